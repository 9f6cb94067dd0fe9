/* Whether the prompts behind a table were checked for leaks, and against the prompts that it is
 * scored on here (manifest.md, "Leaks"). */
#include <stdio.h>
#include <string.h>

#include "report/draw/html.h"
#include "formats/lines/leak_record.h"
#include "lib/base/memory.h"
#include "report/report_internal.h"
#include "report/report_page.h"

/* Sums over the checks of one table; a table fitted from several manifests has several. */
typedef struct leak_sums {
    uint64_t prompts, files, leaked,
        leaked_scored; /* leaked_scored: at least so many, with the manifests scored here */
    size_t n_scored, not_compared; /* manifests of its score rows; of those, some check lacks */
    unsigned ngram;
} leak_sums;

/* The manifests that a table's score rows are of, as keys. */
static json_t *scored_manifests(const report *r, const report_table *t) {
    json_t *set = json_object();
    const char *last = "";
    for (size_t i = 0; i < r->n_scores; i++) {
        for (size_t k = 0; k < r->scores[i]->n; k++) {
            const score_row *row = &r->scores[i]->rows[k];
            if (strcmp(row->table, t->f->content_id) == 0 && strcmp(row->manifest, last) != 0) {
                json_object_set_new(set, row->manifest, json_true());
                last = row->manifest;
            }
        }
    }
    return set;
}

/* false: a check is malformed. A manifest counts as compared when every check compared it. */
static bool sum_checks(const json_t *checks, json_t *scored, leak_sums *sums) {
    size_t i;
    json_t *check, *compared;
    const char *manifest;
    sums->n_scored = json_object_size(scored);
    json_array_foreach(checks, i, check) {
        leak_record rec;
        ckvc_err why = {0};
        if (leak_record_parse(check, "META", &rec, &why) != CKVC_OK) { return false; }
        sums->prompts += rec.prompts;
        sums->leaked += rec.leaked_prompts;
        sums->files += rec.n_against;
        sums->ngram = rec.ngram > sums->ngram ? rec.ngram : sums->ngram;
        uint64_t leaked = 0; /* with one of them: two may share the same prompts */
        json_object_foreach(scored, manifest, compared) {
            const leak_against *a = leak_record_find(&rec, manifest);
            leaked = a && a->leaked_prompts > leaked ? a->leaked_prompts : leaked;
            if (!a && json_is_true(compared)) {
                sums->not_compared++;
                json_object_set_new(scored, manifest, json_false());
            }
        }
        sums->leaked_scored += leaked;
        leak_record_fini(&rec);
    }
    return true;
}

ckvc_status report_leaks_json(report *r, ckvc_err *err) {
    for (size_t i = 0; i < r->n_tables; i++) {
        const report_table *t = &r->tables[i];
        const json_t *guard = json_object_get(t->f->meta, "leak_check"),
                     *checks = json_object_get(guard, "checks");
        leak_sums sums = {0};
        json_t *scored = scored_manifests(r, t);
        bool readable = sum_checks(checks, scored, &sums);
        uint64_t leaked = sums.n_scored ? sums.leaked_scored : sums.leaked;
        const char *state = !readable                                              ? "not readable"
                            : json_array_size(checks) == 0                         ? "not checked"
                            : leaked                                               ? "shared"
                            : json_array_size(json_object_get(guard, "unchecked")) ? "in part"
                            : sums.not_compared                                    ? "not compared"
                                                                                   : "passed";
        json_decref(scored);
        json_t *o =
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:i}", "state", state, "prompts",
                      (json_int_t)sums.prompts, "files", (json_int_t)sums.files, "leaked_prompts",
                      (json_int_t)sums.leaked, "scored_manifests", (json_int_t)sums.n_scored,
                      "scored_not_compared", (json_int_t)sums.not_compared, "leaked_in_scored",
                      (json_int_t)sums.leaked_scored, "ngram", (int)sums.ngram);
        if (!o || json_object_set_new(json_array_get(json_object_get(r->json, "tables"), i),
                                      "leak_check", o) != 0) {
            return ckvc_fail_memory(err, "report", sizeof sums);
        }
    }
    return CKVC_OK;
}

static void passed(const json_t *t, const json_t *o, ckvc_buffer *html) {
    double scored = report_num(o, "scored_manifests"), n = scored ? scored : report_num(o, "files");
    char with[64] = "";
    if (n > 1) { snprintf(with, sizeof with, "%.0f ", n); }
    html_paragraph(html, "note",
                   "Leak check passed: %s %s: none of its %.0f prompts shares %.0f words in a row, "
                   "a near-duplicate or an id with "
                   "the %s%s%s%s.%s",
                   report_str(t, "tag"), report_str(t, "name"), report_num(o, "prompts"),
                   report_num(o, "ngram"), with, scored ? "manifest" : "file", n > 1 ? "s" : "",
                   scored ? " scored here" : " compared with",
                   scored && report_num(o, "leaked_prompts") > 0
                       ? " Some share text with other evaluation files."
                       : "");
}

void report_leaks_found(const report *r, ckvc_buffer *html, ckvc_buffer *summary) {
    size_t i;
    json_t *t;
    json_array_foreach(json_object_get(r->json, "tables"), i, t) {
        const json_t *o = json_object_get(t, "leak_check");
        const bool scored = report_num(o, "scored_manifests") > 0;
        if (strcmp(report_str(o, "state"), "shared") == 0) {
            report_finding(html, summary, "leak",
                           "%s %s: at least %.0f of its %.0f prompts share text or ids with %s: "
                           "this is no held-out result.",
                           report_str(t, "tag"), report_str(t, "name"),
                           report_num(o, scored ? "leaked_in_scored" : "leaked_prompts"),
                           report_num(o, "prompts"),
                           scored ? "the prompts scored here"
                                  : "files that they were compared with");
        }
    }
}

void report_leak_notes(const report *r, ckvc_buffer *html) {
    size_t i;
    json_t *t;
    json_array_foreach(json_object_get(r->json, "tables"), i, t) {
        const json_t *o = json_object_get(t, "leak_check");
        const char *state = report_str(o, "state"), *tag = report_str(t, "tag"),
                   *name = report_str(t, "name");
        if (strcmp(state, "passed") == 0) {
            passed(t, o, html);
        } else if (strcmp(state, "shared") != 0 && report_num(o, "scored_manifests") > 0) {
            html_paragraph(
                html, "warn", "%s %s: %s (`ckvc manifest check --against`, then --leak-check).",
                tag, name,
                strcmp(state, "not compared") == 0
                    ? "its prompts were checked for leaks, but not against all manifests that it "
                      "is scored on here"
                : strcmp(state, "in part") == 0 ? "only a part of its prompts was checked for leaks"
                : strcmp(state, "not readable") == 0 ? "its leak check cannot be read"
                                                     : "its prompts were not checked for leaks");
        }
    }
}
