/* Reports of small tables whose numbers can be worked out by hand. Method: write tables and score
 * lines, run report_write, read report.json back. */
#include <jansson.h>

#include "formats/table/table_file.h"
#include "lib/base/files.h"
#include "lib/base/names.h"
#include "tests/unit/report_fixture.h"
#include "tests/unit/unit.h"

static const char hostile[] = "<script>alert(1)</script> & \"x\"";

/* L = 2, G = 2, E = 2, P = 1, one budget of 32 tokens, the default grids. */
static table_file *small(const char *label, const int weights[4], bool evidence) {
    table_file *t = table_file_around(
        ckvc_table_create(2, 2, 2, 1, 1, CKVC_HEAD_ACTIONS, CKVC_GATE_ACTIONS), evidence);
    assert_non_null(t);
    ckvc_table *k = t->table;
    k->window = 8;
    k->n_query_heads = 2;
    k->budgets[0] = 32;
    for (int a = 0; a < CKVC_HEAD_ACTIONS; a++) { k->head_grid[a] = ckvc_head_action(a); }
    for (int a = 0; a < CKVC_GATE_ACTIONS; a++) { k->gate_grid[a] = ckvc_gate_action(a); }
    k->edges_entropy[0] = 4.5;
    for (int i = 0; i < 4; i++) {
        k->weight[i] = (float)ckvc_head_action(weights[i]);
        k->tau[i] = (float)ckvc_gate_action(
            i == 1 ? 5 : 15); /* layer 0: 0.95 then 0.85; layer 1: 0.95, 0.95 */
    }
    json_object_set_new(t->meta, "label", json_string(label));
    json_object_set_new(t->meta, "cql_alpha", json_real(0.75));
    json_object_set_new(t->meta, "fingerprint", json_string("f"));
    return t;
}

/* Head state 0: 4 records at 1.0, 4 at 1.1; Q prefers 1.0, the mean reward 1.1. The others: two
 * records at two actions each, no conflict. Gate: layer 0 both cells and layer 1 cell 0 have
 * records; in cell 0 of layer 0 the loss prefers 0.80 and the penalty turns it to 0.95. */
static void give_evidence(table_file *t) {
    table_evidence *e = t->evidence;
    enum { A = CKVC_HEAD_ACTIONS, B = CKVC_GATE_ACTIONS };
    for (int s = 0; s < 4; s++) {
        uint64_t n = s == 0 ? 4 : 2;
        for (int a = 8; a <= 12; a += 4) {
            e[CKVC_SIDE_HEAD].n[s * A + a] = n;
            e[CKVC_SIDE_HEAD].m[s * A + a] = a == 8 ? (s == 0 ? 0.0 : 1.0) : (s == 0 ? 1.0 : 0.0);
            e[CKVC_SIDE_HEAD].q[s * A + a] = a == 8 ? 0.5 : 0.25;
        }
    }
    for (int s = 0; s < 3; s++) {
        for (int a = 0; a <= 15; a += 15) {
            e[CKVC_SIDE_GATE].n[s * B + a] = 3;
            e[CKVC_SIDE_GATE].l[s * B + a] = s == 0 ? (a == 0 ? 5.0 : 0.0) : 0.0;
            e[CKVC_SIDE_GATE].m[s * B + a] = a == 0 ? -9.0 : 1.0;
            e[CKVC_SIDE_GATE].q[s * B + a] = e[CKVC_SIDE_GATE].m[s * B + a];
        }
    }
}

static void put(table_file *t, const char *path) { OK(table_file_write(t, path, true, &err)); }

static uint32_t replicates; /* of the reports that are made */

/* The report's JSON and page; both the caller's to free. */
static json_t *make(const char *const *inputs, size_t n, const char *score_file, char **page,
                    char **summary) {
    char *verdict = NULL, path[544];
    size_t size;
    report_options o = {.inputs = inputs,
                        .n_inputs = n,
                        .scores = &score_file,
                        .n_scores = score_file ? 1 : 0,
                        .layer_bins = 2,
                        .replicates = replicates};
    json_t *json = report_made(&o, &verdict);
    /* A second report into the same folder must be asked for. */
    char *a = NULL, *b = NULL;
    FAILS(report_write(&o, &a, &b, &err), CKVC_E_CREATE);
    snprintf(path, sizeof path, "%s/report.html", o.out);
    OK(ckvc_file_read(path, (size_t)1 << 26, page, &size, &err));
    if (summary) {
        *summary = verdict;
    } else {
        free(verdict);
    }
    return json;
}

static const int first_weights[4] = {8, 12, 4, 16}, second_weights[4] = {8, 16, 4, 12},
                 ones[4] = {8, 8, 8, 8};

TEST(table_alone) {
    table_file *t = small(hostile, first_weights, true);
    give_evidence(t);
    put(t, in_temp_folder("alone.ckvt"));
    const char *inputs[] = {in_temp_folder("alone.ckvt")};
    char *page = NULL, *summary = NULL;
    json_t *j = make(inputs, 1, NULL, &page, &summary);
    /* in the plain tables, and in the JSON, where no tag may begin */
    assert_non_null(strstr(page, "&lt;script&gt;alert(1)&lt;/script&gt; &amp;"));
    assert_non_null(strstr(page, "\\u003cscript>alert(1)\\u003c/script>"));
    assert_null(strstr(page, "<script>alert"));
    assert_non_null(strstr(summary, "No scores were given"));
    assert_string_equal(json_string_value(at(j, "tables.0.content_id")), t->content_id);
    is(j, "tables.0.head.0.mean", (1.0 + 1.1 + 0.9 + 1.2) / 4);
    is(j, "tables.0.head.0.share_at_1", 0.25);
    is(j, "tables.0.head.0.histogram.12", 1);
    is(j, "tables.0.head.0.weight.1.1", 1.2);
    is(j, "tables.0.gate.0.supported", 3);
    is(j, "tables.0.gate.0.mean_tau", (0.95 + 0.85 + 0.95) / 3);
    /* One pair of neighbours with records on both sides, 0.95 then 0.85. */
    is(j, "tables.0.gate.0.along_entropy.pairs", 1);
    is(j, "tables.0.gate.0.along_entropy.non_increasing", 1);
    is(j, "tables.0.gate.0.along_entropy.non_decreasing", 0);
    is(j, "tables.0.gate.0.along_perplexity.pairs", 0);
    assert_true(json_is_null(at(j, "tables.0.gate.0.along_perplexity.non_increasing")));
    is(j, "tables.0.evidence.head.records", 8 + 3 * 4);
    is(j, "tables.0.evidence.head.records_per_supported_state.min", 4);
    is(j, "tables.0.evidence.head.records_per_supported_state.median", 4);
    is(j, "tables.0.evidence.head.records_per_supported_state.max", 8);
    is(j, "tables.0.evidence.head.alpha_decided", 0.25);
    is(j, "tables.0.evidence.head.logged.8", 4 + 3 * 2);
    is(j, "tables.0.evidence.head.chosen.8", 4);
    assert_true(json_is_null(
        at(j, "tables.0.evidence.head.count_correlation"))); /* equal counts within every state */
    is(j, "tables.0.evidence.gate.supported", 3);
    is(j, "tables.0.evidence.gate.alpha_decided", 0);
    /* Cell 0: the loss alone would take 0.80. Cells 1, 2: the loss is flat, its tie rule takes 0.80
     * too; the choice is 0.95. */
    is(j, "tables.0.evidence.gate.by_loss", 0);
    is(j, "tables.0.evidence.gate.by_penalty", 1);
    is(j, "tables.0.evidence.gate.loss_flat", 2.0 / 3);
    /* By entry and by cell: cell 0 has both layers' choices, cell 1 the first layer's; layer 1 of
     * cell 1 has no records. */
    static const char *const by_entry[4][2] = {
        {"false", "false"}, {"false", "true"}, {"false", "true"}, {"null", "null"}};
    for (int s = 0; s < 4; s++) {
        for (int k = 0; k < 2; k++) {
            char *text =
                json_dumps(json_array_get(at(j, k ? "tables.0.evidence.gate.entries.loss_flat"
                                                  : "tables.0.evidence.gate.entries.by_loss"),
                                          (size_t)s),
                           JSON_ENCODE_ANY);
            assert_string_equal(text, by_entry[s][k]);
            free(text);
        }
    }
    is(j, "tables.0.evidence.gate.budgets.0.cells.0.0.supported", 2);
    is(j, "tables.0.evidence.gate.budgets.0.cells.0.0.by_penalty", 2);
    is(j, "tables.0.evidence.gate.budgets.0.cells.0.0.loss_flat", 1);
    is(j, "tables.0.evidence.gate.budgets.0.cells.1.0.supported", 1);
    is(j, "tables.0.evidence.gate.budgets.0.cells.1.0.by_loss", 0);
    is(j, "tables.0.evidence.gate.budgets.0.cells.1.0.loss_flat", 1);
    json_decref(j);
    free(page);
    free(summary);
    table_file_free(t);
}

TEST(two_tables) {
    table_file *a = small("a", first_weights, false), *b = small("b", second_weights, false),
               *c = small("c", ones, false);
    b->table->tau[0] = (float)ckvc_gate_action(13); /* 0.93 against 0.95 */
    put(a, in_temp_folder("a.ckvt"));
    put(b, in_temp_folder("b.ckvt"));
    put(c, in_temp_folder("c.ckvt"));
    const char *inputs[] = {in_temp_folder("a.ckvt"), in_temp_folder("b.ckvt"),
                            in_temp_folder("c.ckvt")};
    char *page = NULL;
    json_t *j = make(inputs, 3, NULL, &page, NULL);
    /* Ranks 2 3 1 4 and 2 4 1 3: rho = 1 - 6*(0+1+0+1)/(4*15) = 0.8; within each layer two heads in
     * the same order. */
    is(j, "pairs.0.head.0.overall", 0.8);
    is(j, "pairs.0.head.0.bins.0", 1);
    is(j, "pairs.0.head.0.bins.1", 1);
    is(j, "pairs.0.head.0.bin_mean", 1);
    is(j, "pairs.0.head.0.bin_min", 1);
    is(j, "pairs.0.head.0.share_equal", 0.5);
    is(j, "pairs.0.head.0.mean_abs_difference", (0.1 + 0.1) / 4);
    is(j, "pairs.0.gate.0.cells", 4);
    is(j, "pairs.0.gate.0.share_equal", 0.75);
    is(j, "pairs.0.gate.0.mean_abs_difference", 0.02 / 4);
    assert_true(json_is_string(at(j, "pairs.0.head.0.interval_missing")));
    /* A constant side: undefined, null. */
    assert_true(json_is_null(at(j, "pairs.1.head.0.overall")));
    assert_true(json_is_null(at(j, "pairs.1.head.0.bin_min")));
    json_decref(j);
    free(page);
    table_file_free(a);
    table_file_free(b);
    table_file_free(c);
}

TEST(other_shapes_are_not_compared) {
    table_file *a = small("a", first_weights, false),
               *b = table_file_around(ckvc_table_create(1, 1, 1, 1, 1, 2, 2), false);
    put(a, in_temp_folder("a2.ckvt"));
    b->table->window = 8;
    b->table->n_query_heads = 1;
    b->table->budgets[0] = 0.25;
    b->table->head_grid[0] = 1.0;
    b->table->head_grid[1] = 1.5;
    b->table->gate_grid[0] = 0.8;
    b->table->gate_grid[1] = 0.9;
    b->table->weight[0] = 1.5f;
    b->table->tau[0] = 0.9f;
    put(b, in_temp_folder("tiny.ckvt"));
    const char *inputs[] = {in_temp_folder("a2.ckvt"), in_temp_folder("tiny.ckvt")};
    char *page = NULL;
    json_t *j = make(inputs, 2, NULL, &page, NULL);
    assert_string_equal(json_string_value(at(j, "pairs.0.not_compared")),
                        "layers or heads differ in number");
    assert_string_equal(json_string_value(at(j, "tables.1.name")),
                        "tiny"); /* no label: the file's name */
    json_decref(j);
    free(page);
    table_file_free(a);
    table_file_free(b);
}

static void score_line_of(FILE *f, const char *id, const char *source, const char *split,
                          const char *policy, const char *table, double comp, int kept, int T,
                          const char *more) {
    fprintf(f,
            "{\"id\":\"%s\",\"source\":\"%s\",\"split\":\"%s\",\"model\":\"m\",\"manifest\":\"f\","
            "\"policy\":\"%s\",\"table\":%s%s%s,"
            "\"tau\":null,%s\"T\":%d,\"C\":8,\"budget\":32,\"r_struct\":4.5,\"r_sem\":12.25,\"bin_"
            "entropy\":null,\"bin_perplexity\":"
            "null,"
            "\"n_candidates\":null,\"n_kept\":[%d,%d],\"n_kept_window\":null,\"loss_full\":2,"
            "\"loss_comp\":%.17g,\"reward\":%.17g}\n",
            id, source, split, policy, table ? "\"" : "", table ? table : "null", table ? "\"" : "",
            more, T, kept, kept + 2, comp, -(comp - 2));
}

static void score_line(FILE *f, const char *id, const char *source, const char *split,
                       const char *policy, const char *table, double comp, int kept) {
    score_line_of(f, id, source, split, policy, table, comp, kept, 100, "");
}

TEST(paired_differences) {
    table_file *t = small("t", first_weights, false);
    put(t, in_temp_folder("t.ckvt"));
    FILE *f = fopen(in_temp_folder("s.jsonl"), "w");
    assert_non_null(f);
    static const double gain[4] = {0.25, 0.5, 0.75, 0.5}; /* mean 0.5, sd sqrt(0.125/3) */
    for (int i = 0; i < 4; i++) {
        char id[16];
        snprintf(id, sizeof id, "p%d", i);
        score_line(f, id, i < 2 ? "x" : "y", "heldout", "identity", NULL, 3 + i, 20);
        score_line(f, id, i < 2 ? "x" : "y", "heldout", "table", t->content_id, 3 + i - gain[i],
                   24);
        score_line(f, id, i < 2 ? "x" : "y", "heldout", "matched", t->content_id, 3 + i - 0.125,
                   24);
    }
    score_line(f, "used", "x", "", "identity", NULL, 9,
               20); /* not held out: left out, though it would double the gain */
    score_line(f, "used", "x", "", "table", t->content_id, 2, 24);
    fclose(f);
    const char *inputs[] = {in_temp_folder("t.ckvt")};
    char *page = NULL, *summary = NULL, score_file[512];
    snprintf(score_file, sizeof score_file, "%s", in_temp_folder("s.jsonl"));
    replicates = 2000;
    json_t *j = make(inputs, 1, score_file, &page, &summary);
    replicates = 0;
    is(j, "scores.rows", 12);
    assert_true(json_is_true(at(j, "scores.held_out_checked")));
    is(j, "scores.rows_of_other_splits_left_out", 2);
    assert_string_equal(json_string_value(at(j, "scores.against_identity.0.title")), "T1 t");
    is(j, "scores.against_identity.0.all.n", 4);
    is(j, "scores.against_identity.0.all.difference", 0.5);
    /* t(3 degrees of freedom, 97.5%) = 3.182446305284263 */
    double half = 3.182446305284263 * sqrt(0.125 / 3 / 4);
    json_t *lo = at(j, "scores.against_identity.0.all.lo"),
           *hi = at(j, "scores.against_identity.0.all.hi");
    assert_true(fabs(json_number_value(lo) - (0.5 - half)) < 1e-6 &&
                fabs(json_number_value(hi) - (0.5 + half)) < 1e-6);
    /* Poisson(1) weights of the four gains, by enumeration: 3.2% of the means are 0.25 and 3.2% are
     * 0.75; a constant has no spread. */
    is(j, "scores.against_identity.0.all.bootstrap.lo", 0.25);
    is(j, "scores.against_identity.0.all.bootstrap.hi", 0.75);
    is(j, "scores.against_identity.1.all.bootstrap.lo", 0.125);
    is(j, "scores.against_identity.1.all.bootstrap.hi", 0.125);
    double drawn = json_number_value(at(
        j, "scores.against_identity.1.all.bootstrap.replicates")); /* e^-4 of them draw no prompt */
    assert_true(drawn > 1930 && drawn < 1990);
    is(j, "scores.against_identity.0.all.kept", 25);
    is(j, "scores.against_identity.0.all.kept_base", 21);
    assert_true(json_is_false(at(j, "scores.against_identity.0.all.equal_tokens")));
    is(j, "scores.against_identity.0.sources.0.difference", 0.375);
    is(j, "scores.against_identity.0.sources.1.difference", 0.625);
    is(j, "scores.at_equal_tokens.0.all.difference", 0.375);
    json_decref(j);
    free(page);
    free(summary);
    table_file_free(t);
}

/* What is compared with what: a table with its match and with references of its tokens, with its
 * controls apart from these, every policy with identity and with the match; by length in thirds;
 * budgets by layer for themselves. */
TEST(controls_and_references) {
    table_file *t = small("t", first_weights, false);
    put(t, in_temp_folder("t.ckvt"));
    FILE *f = fopen(in_temp_folder("c.jsonl"), "w");
    assert_non_null(f);
    static const int lengths[6] = {100, 90, 90, 95, 120, 110}; /* thirds: 90 90, 95 100, 110 120 */
    for (int i = 0; i < 6; i++) {
        const struct {
            const char *policy, *table;
            double gain;
            int kept;
        } rows[] = {{"identity", NULL, 0, 20},
                    {"table", t->content_id, 0.5 + (lengths[i] >= 110), 24},
                    {"matched", t->content_id, 0.25, 24},
                    {"no-threshold", t->content_id, 0.375,
                     32}, /* other tokens, and a control: no fair opponent */
                    {"mean-gate", t->content_id, 0.5, 24},
                    {"window", t->content_id, 2, 24}, /* with the table's tokens */
                    {"recent", NULL, 0.125, 24},      /* happens to keep as many */
                    {"random", NULL, 3, 32}};         /* does not */
        char id[16];
        snprintf(id, sizeof id, "p%d", i);
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            score_line_of(f, id, "x", "heldout", rows[k].policy, rows[k].table, 9 - rows[k].gain,
                          rows[k].kept, lengths[i], "");
        }
        score_line_of(f, id, "x", "heldout", "identity", NULL, 9, 20, lengths[i],
                      "\"layer_budgets\":[16,48],");
    }
    fclose(f);
    const char *inputs[] = {in_temp_folder("t.ckvt")};
    char *page = NULL, *summary = NULL, score_file[512];
    snprintf(score_file, sizeof score_file, "%s", in_temp_folder("c.jsonl"));
    json_t *j = make(inputs, 1, score_file, &page, &summary);
    static const struct {
        const char *list, *titles[8], *bases[8];
        double differences[8];
        size_t n;
    } want[] = {
        {"at_equal_tokens",
         {"T1 t", "T1 t", "T1 t"},
         {"matched of T1 t", "window with the tokens of T1 t", "recent"},
         {5.0 / 6 - 0.25, 5.0 / 6 - 2, 5.0 / 6 - 0.125},
         3},
        {"at_other_tokens", {"T1 t"}, {"random"}, {5.0 / 6 - 3}, 1},
        {"against_controls",
         {"T1 t", "T1 t"},
         {"no-threshold of T1 t", "mean-gate of T1 t"},
         {5.0 / 6 - 0.375, 1.0 / 3},
         2},
        {"between_tables", {0}, {0}, {0}, 0},
        {"against_matched",
         {"T1 t", "no-threshold of T1 t", "mean-gate of T1 t", "identity",
          "window with the tokens of T1 t", "recent", "random"},
         {"matched of T1 t", "matched of T1 t", "matched of T1 t", "matched of T1 t",
          "matched of T1 t", "matched of T1 t", "matched of T1 t"},
         {5.0 / 6 - 0.25, 0.125, 0.25, -0.25, 1.75, -0.125, 2.75},
         7},
        {"against_identity",
         {"T1 t", "matched of T1 t", "no-threshold of T1 t", "mean-gate of T1 t",
          "window with the tokens of T1 t", "recent", "random"},
         {"identity", "identity", "identity", "identity", "identity", "identity", "identity"},
         {5.0 / 6, 0.25, 0.375, 0.5, 2, 0.125, 3},
         7},
    };
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        json_t *list = json_object_get(at(j, "scores"), want[k].list);
        assert_int_equal(json_array_size(list), want[k].n);
        for (size_t i = 0; i < want[k].n; i++) {
            json_t *o = json_array_get(list, i);
            assert_string_equal(json_string_value(json_object_get(o, "title")), want[k].titles[i]);
            assert_string_equal(json_string_value(json_object_get(o, "base")), want[k].bases[i]);
            is(o, "all.difference", want[k].differences[i]);
            is(o, "all.n", 6);
            assert_int_equal(json_array_size(at(o, "sources")), 0); /* there is one */
            assert_int_equal(json_array_size(at(o, "lengths")), 3);
        }
    }
    static const double bounds[3][3] = {
        {90, 90, 0.25}, {95, 100, 0.25}, {110, 120, 1.25}}; /* T, T, table - matched */
    for (int g = 0; g < 3; g++) {
        json_t *of = json_array_get(at(j, "scores.at_equal_tokens.0.lengths"), (size_t)g);
        is(of, "T_lo", bounds[g][0]);
        is(of, "T_hi", bounds[g][1]);
        is(of, "difference", bounds[g][2]);
        is(of, "n", 2);
    }
    assert_non_null(strstr(summary, "1.167 worse"));
    assert_null(strstr(summary, "mean-gate"));
    is(j, "tables.0.verdict.budgets.0.parts.2.T_lo", 95);
    json_decref(j);
    free(page);
    free(summary);
    table_file_free(t);
}

/* The same prompt under the same policy in two files counts once, and must not say two things. */
TEST(rows_of_two_files) {
    table_file *t = small("t", first_weights, false);
    put(t, in_temp_folder("t.ckvt"));
    const char *files[3];
    for (int k = 0; k < 3; k++) {
        char name[24];
        snprintf(name, sizeof name, "two-%d.jsonl", k);
        FILE *f = fopen(files[k] = in_temp_folder(name), "w");
        assert_non_null(f);
        for (int i = 0; i < 4; i++) {
            char id[16];
            snprintf(id, sizeof id, "p%d", i);
            score_line(f, id, "x", "heldout", k ? "recent" : "identity", NULL, 3, 20);
            score_line(f, id, "x", "heldout", "table", t->content_id,
                       2.5 + (k == 2 ? 0.01 : 1e-9 * k) + 0.125 * i, 24);
        }
        fclose(f);
    }
    const char *inputs[] = {in_temp_folder("t.ckvt")};
    report_options o = {.inputs = inputs,
                        .n_inputs = 1,
                        .scores = files,
                        .n_scores = 2,
                        .out = in_temp_folder("two"),
                        .layer_bins = 2};
    char *text = NULL, *verdict = NULL;
    OK(report_write(&o, &verdict, &text, &err));
    json_t *j = json_loads(text, 0, NULL);
    is(j, "scores.rows", 12);
    is(j, "scores.rows_in_several_files", 4);
    is(j, "scores.against_identity.0.all.n", 4);
    json_decref(j);
    free(text);
    free(verdict);
    o.out = in_temp_folder("three");
    o.n_scores = 3;
    FAILS(report_write(&o, &verdict, &text, &err), CKVC_E_DATA);
    assert_non_null(strstr(err.text, "made with different options"));
    table_file_free(t);
}

TEST(inputs_that_are_none) {
    const char *inputs[] = {in_temp_folder("missing.ckvt")};
    report_options o = {
        .inputs = inputs, .n_inputs = 1, .out = in_temp_folder("never"), .layer_bins = 4};
    char *a = NULL, *b = NULL;
    FAILS(report_write(&o, &a, &b, &err), CKVC_E_NOINPUT);
    assert_false(
        ckvc_is_dir(in_temp_folder("never"))); /* nothing is made for a report that cannot be */
}

static void copy_file(const char *from, const char *to) {
    char *text = NULL;
    size_t size;
    OK(ckvc_file_read(from, (size_t)1 << 26, &text, &size, &err));
    OK(ckvc_publish_bytes(to, text, size, true, &err));
    free(text);
}

/* A report that was cut short, at any file, is replaced by a rerun; what others put there is not.
 */
TEST(cut_short) {
    table_file *t = small("x", first_weights, true);
    put(t, in_temp_folder("cut.ckvt"));
    table_file_free(t);
    char table[512], out[512]; /* in_temp_folder gives those of the last eight calls */
    snprintf(table, sizeof table, "%s", in_temp_folder("cut.ckvt"));
    snprintf(out, sizeof out, "%s", in_temp_folder("cut"));
    const char *inputs[] = {table};
    const report_options o = {.inputs = inputs, .n_inputs = 1, .out = out, .layer_bins = 2};
    char *a = NULL, *b = NULL;
    OK(ckvc_make_dirs(in_temp_folder("cut"), &err));
    copy_file(in_temp_folder("cut.ckvt"), in_temp_folder("cut/mine"));
    FAILS(report_write(&o, &a, &b, &err), CKVC_E_CREATE);
    assert_non_null(strstr(err.text, "holds mine, which is no report's"));
    assert_int_equal(unlink(in_temp_folder("cut/mine")), 0);
    /* what a killed process left; what is called nearly so; a folder that is empty */
    OK(ckvc_make_dirs(in_temp_folder("cut.tmp.0000000000000001"), &err));
    copy_file(in_temp_folder("cut.ckvt"), in_temp_folder("cut.tmp.0000000000000001/report.json"));
    OK(ckvc_make_dirs(in_temp_folder("cut.tmp.mine"), &err));
    OK(report_write(&o, &a, &b, &err));
    free(a);
    free(b);
    assert_false(ckvc_file_exists(in_temp_folder("cut.tmp.0000000000000001")));
    assert_true(ckvc_file_exists(in_temp_folder("cut.tmp.mine")));
    FAILS(report_write(&o, &a, &b, &err), CKVC_E_CREATE);
    assert_non_null(strstr(err.text, "holds a report already"));
    copy_file(in_temp_folder("cut.ckvt"), in_temp_folder("cut/earlier.csv"));
    assert_int_equal(unlink(in_temp_folder("cut/report.html")), 0);
    report_options forced = o;
    forced.force = true;
    OK(report_write(&forced, &a, &b, &err));
    free(a);
    free(b);
    assert_true(ckvc_file_exists(in_temp_folder("cut/report.html")));
    assert_false(ckvc_file_exists(in_temp_folder("cut/earlier.csv"))); /* one report at a time */
    assert_int_equal(rmdir(in_temp_folder("cut.tmp.mine")), 0);
    char command[600]; /* and nothing beside it */
    snprintf(command, sizeof command, "test -z \"$(ls -d %s.tmp.* 2>/dev/null)\"", out);
    assert_int_equal(system(command), 0);
}

/* META's leak_check as it may come from outside, without scores: the check alone decides. */
#define HASH(c)                                                                                    \
    c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c  \
        c c c c c c c c c c c c c c c c c
#define CHECK(leaked)                                                                              \
    "{\"schema\":\"ckvc-leak-check-1\",\"manifest\":\"" HASH(                                      \
        "a") "\",\"ngram\":13,\"shingle\":5,\"near\":0.5,\"holdout\":0,"                           \
             "\"seed\":1,\"prompts\":7,\"held_out\":2,\"near_duplicates_within\":0,\"leaked_"      \
             "prompts\":" leaked ",\"against\":[{\"sha256\":\"" HASH(                              \
                 "b") "\",\"bytes\":1,\"lines\":1,\"texts\":1,\"words\":1,\"shared_spans\":0,"     \
                      "\"near_duplicates\":0,\"duplicate_ids\":0,"                                 \
                      "\"leaked_lines\":0,\"leaked_prompts\":" leaked "}]}"

TEST(leak_checks) {
    static const char *const cases[][2] = {
        {"{\"checks\":[" CHECK("0") "],\"unchecked\":[]}", "passed"},
        {"{\"checks\":[" CHECK("0") "," CHECK("3") "],\"unchecked\":[]}", "shared"},
        {"{\"checks\":[" CHECK("0") "],\"unchecked\":[\"" HASH("c") "\"]}", "in part"},
        {"{\"checks\":[" CHECK("0") ",{}],\"unchecked\":[]}", "not readable"},
        {"{\"checks\":[7],\"unchecked\":[]}", "not readable"},
        {"{\"checks\":[],\"unchecked\":[]}", "not checked"},
        {"{\"checks\":{}}", "not checked"},
        {"[1]", "not checked"},
        {"null", "not checked"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        table_file *t = small("x", ones, false);
        json_object_set_new(t->meta, "leak_check", json_loads(cases[i][0], JSON_DECODE_ANY, NULL));
        put(t, in_temp_folder("leaks.ckvt"));
        table_file_free(t);
        const char *inputs[] = {in_temp_folder("leaks.ckvt")};
        char *page = NULL, *summary = NULL;
        json_t *j = make(inputs, 1, NULL, &page, &summary);
        assert_string_equal(json_string_value(at(j, "tables.0.leak_check.state")), cases[i][1]);
        bool passed = strcmp(cases[i][1], "passed") == 0,
             shared = strcmp(cases[i][1], "shared") == 0;
        const char *says = json_string_value(at(j, "tables.0.leak_check.says"));
        assert_int_equal(strstr(says, "Leak check passed: none of its 7 prompts shares 13 words") !=
                             NULL,
                         passed);
        assert_int_equal(strstr(summary, "At least 3 of its 14 prompts share") != NULL, shared);
        json_decref(j);
        free(page);
        free(summary);
    }
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
