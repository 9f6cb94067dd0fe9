/* Whether the prompts behind a table were checked for leaks: lines of the verdict. */
#include "report/sections/sections.h"

SHARED_TABLE(leak_columns, leak_numbers,
             MEMBERS(state, prompts, files, leaked_prompts, scored_manifests, scored_not_compared,
                     leaked_in_scored, ngram));

/* What is no held-out result, which the verdict says first. */
void leak_findings(const report_numbers *n, view *v) {
    EACH(table_numbers, t, n->tables, n->n_tables) {
        const leak_numbers *l = &t->leaks;
        const bool scored = l->scored_manifests > 0;
        if (strcmp(l->state, "shared") != 0) { continue; }
        finding(v, "leak",
                "%s: at least %zu of its %zu prompts share text or ids with %s: this is no "
                "held-out result.",
                t->title, scored ? l->leaked_in_scored : l->leaked_prompts, l->prompts,
                scored ? "the prompts scored here" : "files that they were compared with");
    }
}

static void passed(const char *title, const leak_numbers *l, view *v) {
    const bool scored = l->scored_manifests > 0;
    const size_t n = scored ? l->scored_manifests : l->files;
    page_note(v,
              "Leak check passed: %s: none of its %zu prompts shares %u words in a row, a "
              "near-duplicate or an id with the %s%s%s%s.%s",
              title, l->prompts, l->ngram, n > 1 ? say("%zu ", n) : "",
              scored ? "manifest" : "file", n > 1 ? "s" : "",
              scored ? " scored here" : " compared with",
              scored && l->leaked_prompts ? " Some share text with other evaluation files." : "");
}

/* Checks passed, and checks missing of what is scored. */
void leak_notes(const report_numbers *n, view *v) {
    static const char *const notes[][2] = {
        {"not compared", "its prompts were checked for leaks, but not against all manifests that "
                         "it is scored on here"},
        {"in part", "only a part of its prompts was checked for leaks"},
        {"not readable", "its leak check cannot be read"},
        {"not checked", "its prompts were not checked for leaks"}};
    EACH(table_numbers, t, n->tables, n->n_tables) {
        const leak_numbers *l = &t->leaks;
        if (strcmp(l->state, "passed") == 0) { passed(t->title, l, v); }
        for (size_t k = 0; l->scored_manifests && k < sizeof notes / sizeof *notes; k++) {
            if (strcmp(l->state, notes[k][0]) == 0) {
                page_warn(v, "%s: %s (`ckvc manifest check --against`, then --leak-check).",
                          t->title, notes[k][1]);
            }
        }
    }
}
