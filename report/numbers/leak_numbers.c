/* Whether the prompts behind a table were checked for leaks, and against the prompts that it is
 * scored on here (manifest.md, "Leaks"). */
#include "formats/lines/leak_record.h"
#include "report/numbers/numbers.h"

/* The manifests that a table's score rows are of, as keys; true: every check so far compared it. */
static json_t *scored_manifests(const report_numbers *n, const table_numbers *t) {
    json_t *set = json_object();
    const score_files *f = &n->in->scores;
    const char *last = "";
    for (size_t i = 0; i < f->n_files; i++) {
        for (size_t k = 0; k < f->files[i]->n; k++) {
            const score_row *row = &f->files[i]->rows[k];
            if (strcmp(row->table, t->f.content_id) == 0 && strcmp(row->manifest, last) != 0) {
                json_object_set_new(set, row->manifest, json_true());
                last = row->manifest;
            }
        }
    }
    return set;
}

/* false: it is malformed. */
static bool add_check(leak_numbers *sums, const json_t *check, json_t *scored) {
    leak_record rec;
    ckvc_err why = {0};
    json_t *compared;
    const char *manifest;
    if (leak_record_parse(check, "META", &rec, &why) != CKVC_OK) { return false; }
    sums->prompts += rec.prompts;
    sums->leaked_prompts += rec.leaked_prompts;
    sums->files += rec.n_against;
    sums->ngram = rec.ngram > sums->ngram ? rec.ngram : sums->ngram;
    uint64_t leaked = 0; /* with one of them: two may share the same prompts */
    json_object_foreach(scored, manifest, compared) {
        const leak_against *a = leak_record_find(&rec, manifest);
        leaked = a && a->leaked_prompts > leaked ? a->leaked_prompts : leaked;
        if (!a && json_is_true(compared)) {
            sums->scored_not_compared++;
            json_object_set_new(scored, manifest, json_false());
        }
    }
    sums->leaked_in_scored += leaked;
    leak_record_fini(&rec);
    return true;
}

void leak_numbers_make(report_numbers *n, table_numbers *t) {
    const json_t *guard = json_object_get(t->f.meta, "leak_check"),
                 *checks = json_object_get(guard, "checks");
    json_auto_t *scored = scored_manifests(n, t);
    leak_numbers *sums = &t->leaks;
    bool readable = true;
    sums->scored_manifests = json_object_size(scored);
    for (size_t i = 0; readable && i < json_array_size(checks); i++) {
        readable = add_check(sums, json_array_get(checks, i), scored);
    }
    uint64_t leaked = sums->scored_manifests ? sums->leaked_in_scored : sums->leaked_prompts;
    sums->state = !readable                                              ? "not readable"
                  : json_array_size(checks) == 0                         ? "not checked"
                  : leaked                                               ? "shared"
                  : json_array_size(json_object_get(guard, "unchecked")) ? "in part"
                  : sums->scored_not_compared                            ? "not compared"
                                                                         : "passed";
}
