/* Makes reports in folders of their own, and score lines for them, for the tests of reports. */
#pragma once

#include "formats/table/table_file.h"
#include "report/report.h"
#include "tests/unit/json_holds.h"
#include "tests/unit/temp_folder.h"

#define MANIFEST "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

/* A leak check of META, in which a manifest of 7 prompts was compared with MANIFEST. */
#define FITTED "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define CHECK(leaked)                                                                              \
    "{\"schema\":\"ckvc-leak-check-1\",\"manifest\":\"" FITTED                                     \
    "\",\"ngram\":13,\"shingle\":5,\"near\":0.5,\"holdout\":0,\"seed\":1,\"prompts\":7,"           \
    "\"held_out\":2,\"near_duplicates_within\":0,\"leaked_prompts\":" leaked                       \
    ",\"against\":[{\"sha256\":\"" MANIFEST "\",\"bytes\":1,\"lines\":1,\"texts\":1,\"words\":1,"  \
    "\"shared_spans\":0,\"near_duplicates\":0,\"duplicate_ids\":0,\"leaked_lines\":0,"             \
    "\"leaked_prompts\":" leaked "}]}"

/* A line of `ckvc score`. Two layers keep `kept`, and the last keeps `kept_more` besides. */
typedef struct scored_line {
    int id;
    const char *source; /* NULL: none */
    bool seen;          /* not held out */
    const char *policy, *table;
    double reward;
    int kept, kept_more, T, C; /* T, C: 0: 100, 8 */
    double r_struct, r_sem;    /* 0: 4.5, 12.25 */
    const char *more;          /* members; NULL: none */
} scored_line;

static inline void put_score(FILE *f, scored_line x) {
    fprintf(f,
            "{\"id\":\"p%02d\",\"split\":\"%s\",\"model\":\"m\",\"manifest\":\"" MANIFEST
            "\",\"policy\":\"%s\",\"T\":%d,\"C\":%d,\"budget\":32,\"r_struct\":%.17g,"
            "\"r_sem\":%.17g,\"n_kept\":[%d,%d],\"loss_full\":2,\"loss_comp\":%.17g,"
            "\"reward\":%.17g",
            x.id, x.seen ? "" : "heldout", x.policy, x.T ? x.T : 100, x.C ? x.C : 8,
            x.r_struct ? x.r_struct : 4.5, x.r_sem ? x.r_sem : 12.25, x.kept, x.kept + x.kept_more,
            2 - x.reward, x.reward);
    if (x.source) { fprintf(f, ",\"source\":\"%s\"", x.source); }
    if (x.table) { fprintf(f, ",\"table\":\"%s\"", x.table); }
    fprintf(f, "%s}\n", x.more ? x.more : "");
}

static inline FILE *open_lines(const char *name) {
    FILE *f = fopen(in_temp_folder(name), "wb");
    assert_non_null(f);
    return f;
}

/* Makes a table of one budget, 32 tokens, of n layers and n heads, that changes nothing. */
static inline table_file *plain_table(uint32_t n) {
    table_file *t = table_file_around(ckvc_table_create(n, n, 1, 1, 1, 2, 2), false);
    ckvc_table *k = t->table;
    k->window = 8;
    k->n_query_heads = n;
    k->budgets[0] = 32;
    for (int a = 0; a < 2; a++) { k->head_grid[a] = 1 + 0.5 * a, k->gate_grid[a] = 0.8 + 0.1 * a; }
    for (uint32_t i = 0; i < n * n; i++) { k->weight[i] = 1.0f; }
    for (uint32_t l = 0; l < n; l++) { k->tau[l] = (float)k->gate_grid[1]; }
    return t;
}

static inline report_options report_of(const char *const *inputs, size_t n_inputs,
                                       const char *const *scores, size_t n_scores) {
    return (report_options){.inputs = inputs,
                            .n_inputs = n_inputs,
                            .scores = scores,
                            .n_scores = n_scores,
                            .layer_bins = 2,
                            .seed = 1};
}

static char *summary, *report_text; /* of the last report, or NULL */

static inline ckvc_status write_report(const report_options *o) {
    free(summary), free(report_text);
    summary = report_text = NULL;
    return report_write(o, &summary, &report_text, &err);
}

/* Writes a report into a subfolder of its own, which it names in o->out. Returns its JSON, which
 * the caller frees. */
static inline json_t *report_made(report_options *o) {
    static int number;
    char name[32];
    snprintf(name, sizeof name, "out-%d", number++);
    o->out = in_temp_folder(name);
    OK(write_report(o));
    json_t *json = json_loads(report_text, 0, NULL);
    assert_non_null(json);
    return json;
}
