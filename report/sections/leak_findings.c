/* Whether the prompts behind a table were checked for leaks: a sentence of its banner. */
#include "report/sections/sections.h"

SHARED_TABLE(leak_columns, leak_numbers,
             MEMBERS(state, prompts, files, leaked_prompts, scored_manifests, scored_not_compared,
                     leaked_in_scored, ngram));

static const char *passed(const leak_numbers *l) {
    const bool scored = l->scored_manifests > 0;
    const size_t n = scored ? l->scored_manifests : l->files;
    return say("Leak check passed: none of its %zu prompts shares %u words in a row, a "
               "near-duplicate or an id with the %s%s%s%s.%s",
               l->prompts, l->ngram, n > 1 ? say("%zu ", n) : "", scored ? "manifest" : "file",
               n > 1 ? "s" : "", scored ? " scored here" : " compared with",
               scored && l->leaked_prompts ? " Some share text with other evaluation files." : "");
}

const char *leak_sentence(const leak_numbers *l) {
    static const char *const missing[][2] = {
        {"not compared", "Its prompts were checked for leaks, but not against all manifests that "
                         "it is scored on here"},
        {"in part", "Only a part of its prompts was checked for leaks"},
        {"not readable", "Its leak check cannot be read"},
        {"not checked", "Its prompts were not checked for leaks"}};
    const bool scored = l->scored_manifests > 0;
    if (strcmp(l->state, "passed") == 0) { return passed(l); }
    for (size_t k = 0; k < sizeof missing / sizeof *missing; k++) {
        if (strcmp(l->state, missing[k][0]) == 0) {
            return say("%s (`ckvc manifest check --against`, then --leak-check).", missing[k][1]);
        }
    }
    return say("At least %zu of its %zu prompts share text or ids with %s: this is no held-out "
               "result.",
               scored ? l->leaked_in_scored : l->leaked_prompts, l->prompts,
               scored ? "the prompts scored here" : "files that they were compared with");
}
