/* Reports of small tables whose numbers can be worked out by hand. Method: write tables and score
 * lines, run report_write, read report.json back. */
#include "tests/unit/report_fixture.h"

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
        k->tau[i] = (float)ckvc_gate_action(i == 1 ? 5 : 15); /* 0.85, 0.95 */
    }
    json_auto_t *meta =
        json_pack("{s:s, s:f, s:s}", "label", label, "cql_alpha", 0.75, "fingerprint", "f");
    json_object_update(t->meta, meta);
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
            e[CKVC_SIDE_HEAD].m[s * A + a] = (a == 8) == (s > 0);
            e[CKVC_SIDE_HEAD].q[s * A + a] = a == 8 ? 0.5 : 0.25;
        }
    }
    for (int s = 0; s < 3; s++) {
        for (int a = 0; a <= 15; a += 15) {
            e[CKVC_SIDE_GATE].n[s * B + a] = 3;
            e[CKVC_SIDE_GATE].l[s * B + a] = s == 0 && a == 0 ? 5.0 : 0.0;
            e[CKVC_SIDE_GATE].m[s * B + a] = e[CKVC_SIDE_GATE].q[s * B + a] = a == 0 ? -9.0 : 1.0;
        }
    }
}

/* Writes it into the folder and frees it; returns the path. */
static char put_id[CKVC_SHA256_HEX]; /* the last table's content id */
static const char *put(table_file *t, const char *name) {
    const char *path = in_temp_folder(name);
    OK(table_file_write(t, path, true, &err));
    strcpy(put_id, t->content_id);
    table_file_free(t);
    return path;
}

/* The report's JSON and, where there is a place for it, page; the caller's to free. */
static json_t *make(const char *const *inputs, size_t n, const char *score_file,
                    uint32_t replicates, char **page) {
    char path[544];
    report_options o = report_of(inputs, n, &score_file, score_file ? 1 : 0);
    o.replicates = replicates;
    json_t *json = report_made(&o);
    /* A second report into the same folder must be asked for. */
    char *a = NULL, *b = NULL;
    FAILS(report_write(&o, &a, &b, &err), CKVC_E_CREATE);
    snprintf(path, sizeof path, "%s/report.html", o.out);
    if (page) { *page = file_bytes(path, NULL); }
    return json;
}

static const int first_weights[4] = {8, 12, 4, 16}, second_weights[4] = {8, 16, 4, 12},
                 ones[4] = {8, 8, 8, 8};

TEST(table_alone) {
    table_file *t = small(hostile, first_weights, true);
    give_evidence(t);
    const char *path = put(t, "alone.ckvt");
    CKVC_AUTO_FREE char *page = NULL;
    json_auto_t *j = make(&path, 1, NULL, 0, &page);
    /* in the plain tables, and in the JSON, where no tag may begin */
    assert_non_null(strstr(page, "&lt;script&gt;alert(1)&lt;/script&gt; &amp;"));
    assert_non_null(strstr(page, "\\u003cscript>alert(1)\\u003c/script>"));
    assert_null(strstr(page, "<script>alert"));
    assert_non_null(strstr(summary, "No scores were given"));
    assert_string_equal(text_at(j, "tables.0.content_id"), put_id);
    holds(j, "tables.0.head.0",
          "{'mean': 1.05, 'share_at_1': 0.25, 'histogram.12': 1, 'weight.1.1': 1.2}");
    is(j, "tables.0.gate.0.mean_tau", (0.95 + 0.85 + 0.95) / 3);
    /* One pair of neighbours with records on both sides, 0.95 then 0.85. */
    holds(j, "tables.0.gate.0",
          "{'supported': 3,"
          " 'along_entropy': {'pairs': 1, 'non_increasing': 1, 'non_decreasing': 0},"
          " 'along_perplexity': {'pairs': 0, 'non_increasing': null}}");
    holds(j, "tables.0.evidence.head", /* equal counts within every state: no correlation */
          "{'records': 20, 'records_per_supported_state': {'min': 4, 'median': 4, 'max': 8},"
          " 'alpha_decided': 0.25, 'logged.8': 10, 'chosen.8': 4, 'count_correlation': null}");
    /* Cell 0: the loss alone would take 0.80. Cells 1, 2: the loss is flat, its tie rule takes 0.80
     * too; the choice is 0.95. By entry and by cell: cell 0 has both layers' choices, cell 1 the
     * first layer's; layer 1 of cell 1 has no records. */
    is(j, "tables.0.evidence.gate.loss_flat", 2.0 / 3);
    holds(j, "tables.0.evidence.gate",
          "{'supported': 3, 'alpha_decided': 0, 'by_loss': 0, 'by_penalty': 1,"
          " 'entries': {'by_loss': [false, false, false, null],"
          "             'loss_flat': [false, true, true, null]},"
          " 'budgets.0.cells': [[{'supported': 2, 'by_penalty': 2, 'loss_flat': 1}],"
          "                     [{'supported': 1, 'by_loss': 0, 'loss_flat': 1}]]}");
}

TEST(two_tables) {
    table_file *b = small("b", second_weights, false);
    b->table->tau[0] = (float)ckvc_gate_action(13); /* 0.93 against 0.95 */
    const char *inputs[] = {put(small("a", first_weights, false), "a.ckvt"), put(b, "b.ckvt"),
                            put(small("c", ones, false), "c.ckvt")};
    json_auto_t *j = make(inputs, 3, NULL, 0, NULL);
    /* Ranks 2 3 1 4 and 2 4 1 3: rho = 1 - 6*(0+1+0+1)/(4*15) = 0.8; in a layer one order. */
    holds(j, "pairs.0.head.0",
          "{'overall': 0.8, 'bins': [1, 1], 'bin_mean': 1, 'bin_min': 1, 'share_equal': 0.5,"
          " 'mean_abs_difference': 0.05}");
    holds(j, "pairs.0.gate.0", "{'cells': 4, 'share_equal': 0.75, 'mean_abs_difference': 0.005}");
    assert_true(json_is_string(at(j, "pairs.0.head.0.interval_missing")));
    /* A constant side: undefined, null. */
    holds(j, "pairs.1.head.0", "{'overall': null, 'bin_min': null}");
}

TEST(other_shapes_are_not_compared) {
    const char *inputs[] = {put(small("a", first_weights, false), "a2.ckvt"),
                            put(plain_table(1), "tiny.ckvt")};
    json_auto_t *j = make(inputs, 2, NULL, 0, NULL);
    holds(j, "pairs.0", "{'not_compared': 'layers or heads differ in number'}");
    holds(j, "tables.1", "{'name': 'tiny'}"); /* no label: the file's name */
}

/* A file's name need not be text: the report has all its members, and says which table it is. */
TEST(name_that_is_no_text) {
    const char *path = put(plain_table(1), "t\xff.ckvt");
    json_auto_t *j = make(&path, 1, NULL, 0, NULL);
    holds(j, "tables.0", "{'name': 't?', 'title': 'T1 t?', 'file': 't?.ckvt'}");
    has(text_at(j, "findings.0.text"), "T1 t?: No scores were given");
    has(summary, "no verdict: T1 t?: No scores were given");
}

TEST(paired_differences) {
    const char *path = put(small("t", first_weights, false), "t.ckvt");
    FILE *f = open_lines("s.jsonl");
    static const double gain[4] = {0.25, 0.5, 0.75, 0.5}; /* mean 0.5, sd sqrt(0.125/3) */
    for (int i = 0; i < 5; i++) { /* the last not held out, though it would double the gain */
        scored_line x = {.id = i, .source = i % 4 < 2 ? "x" : "y", .seen = i == 4, .kept_more = 2};
        x.policy = "identity", x.kept = 20, x.reward = i < 4 ? -1 - i : -7;
        put_score(f, x);
        x.policy = "table", x.table = put_id, x.kept = 24, x.reward = i < 4 ? -1 - i + gain[i] : 0;
        put_score(f, x);
        x.policy = "matched", x.reward = -1 - i + 0.125;
        if (i < 4) { put_score(f, x); }
    }
    fclose(f);
    json_auto_t *j = make(&path, 1, in_temp_folder("s.jsonl"), 2000, NULL);
    holds(j, "scores",
          "{'rows': 12, 'held_out_checked': true, 'rows_of_other_splits_left_out': 2,"
          " 'against_identity.0': {'title': 'T1 t', 'all': {'n': 4, 'difference': 0.5}}}");
    /* t(3 degrees of freedom, 97.5%) = 3.182446305284263 */
    double half = 3.182446305284263 * sqrt(0.125 / 3 / 4);
    json_t *lo = at(j, "scores.against_identity.0.all.lo"),
           *hi = at(j, "scores.against_identity.0.all.hi");
    assert_true(fabs(json_number_value(lo) - (0.5 - half)) < 1e-6 &&
                fabs(json_number_value(hi) - (0.5 + half)) < 1e-6);
    /* Poisson(1) weights of the four gains: 3.2% of the means are 0.25, 3.2% 0.75 */
    holds(j, "scores.against_identity",
          "{'0': {'all': {'bootstrap': {'lo': 0.25, 'hi': 0.75}, 'kept': 25, 'kept_base': 21,"
          "               'equal_tokens': false},"
          "       'sources': [{'difference': 0.375}, {'difference': 0.625}]},"
          " '1.all.bootstrap': {'lo': 0.125, 'hi': 0.125}}");
    json_t *drawn = at(j, "scores.against_identity.1.all.bootstrap.replicates");
    assert_in_range(json_integer_value(drawn), 1931, 1989); /* e^-4 of 2000 draw no prompt */
    is(j, "scores.at_equal_tokens.0.all.difference", 0.375);
}

/* A table is compared with its match, references of its tokens and, apart, its controls; every
 * policy with identity and the match; lengths in thirds; budgets by layer for themselves. */
TEST(controls_and_references) {
    const char *path = put(small("t", first_weights, false), "t.ckvt"), *id = put_id;
    FILE *f = open_lines("c.jsonl");
    static const int lengths[6] = {100, 90, 90, 95, 120, 110}; /* thirds: 90 90, 95 100, 110 120 */
    for (int i = 0; i < 6; i++) {
        const struct {
            const char *policy, *table;
            double gain;
            int kept;
        } rows[] = {{"identity", NULL, 0, 20},
                    {"table", id, 0.5 + (lengths[i] >= 110), 24},
                    {"matched", id, 0.25, 24},
                    {"no-threshold", id, 0.375, 32}, /* a control: no fair opponent */
                    {"mean-gate", id, 0.5, 24},
                    {"window", id, 2, 24},       /* with the table's tokens */
                    {"recent", NULL, 0.125, 24}, /* happens to keep as many */
                    {"random", NULL, 3, 32}};    /* does not */
        scored_line x = {.id = i, .source = "x", .kept_more = 2, .T = lengths[i]};
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            x.policy = rows[k].policy, x.table = rows[k].table, x.kept = rows[k].kept;
            x.reward = rows[k].gain - 7;
            put_score(f, x);
        }
        x.policy = "identity", x.table = NULL, x.kept = 20, x.reward = -7;
        x.more = ",\"layer_budgets\":[16,48]";
        put_score(f, x);
    }
    fclose(f);
    json_auto_t *j = make(&path, 1, in_temp_folder("c.jsonl"), 0, NULL);
    static const struct {
        const char *list, *title, *base;
        double difference;
    } want[] = {
        {"at_equal_tokens", "T1 t", "matched of T1 t", 5.0 / 6 - 0.25},
        {"at_equal_tokens", "T1 t", "window with the tokens of T1 t", 5.0 / 6 - 2},
        {"at_equal_tokens", "T1 t", "recent", 5.0 / 6 - 0.125},
        {"at_other_tokens", "T1 t", "random", 5.0 / 6 - 3},
        {"against_controls", "T1 t", "no-threshold of T1 t", 5.0 / 6 - 0.375},
        {"against_controls", "T1 t", "mean-gate of T1 t", 1.0 / 3},
        {"against_matched", "T1 t", "matched of T1 t", 5.0 / 6 - 0.25},
        {"against_matched", "no-threshold of T1 t", "matched of T1 t", 0.125},
        {"against_matched", "mean-gate of T1 t", "matched of T1 t", 0.25},
        {"against_matched", "identity", "matched of T1 t", -0.25},
        {"against_matched", "window with the tokens of T1 t", "matched of T1 t", 1.75},
        {"against_matched", "recent", "matched of T1 t", -0.125},
        {"against_matched", "random", "matched of T1 t", 2.75},
        {"against_identity", "T1 t", "identity", 5.0 / 6},
        {"against_identity", "matched of T1 t", "identity", 0.25},
        {"against_identity", "no-threshold of T1 t", "identity", 0.375},
        {"against_identity", "mean-gate of T1 t", "identity", 0.5},
        {"against_identity", "window with the tokens of T1 t", "identity", 2},
        {"against_identity", "recent", "identity", 0.125},
        {"against_identity", "random", "identity", 3},
    };
    json_t *list = NULL;
    for (size_t k = 0, i = 0; k < sizeof want / sizeof *want; k++, i++) {
        json_t *of = at(at(j, "scores"), want[k].list), *o;
        if (of != list) {
            assert_int_equal(json_array_size(list), i); /* there are no more of the last */
            list = of, i = 0;
        }
        assert_non_null(o = json_array_get(list, i));
        assert_string_equal(text_at(o, "title"), want[k].title);
        assert_string_equal(text_at(o, "base"), want[k].base);
        is(o, "all.difference", want[k].difference);
        is(o, "all.n", 6);
        assert_int_equal(json_array_size(at(o, "sources")), 0); /* there is one */
        assert_int_equal(json_array_size(at(o, "lengths")), 3);
    }
    assert_int_equal(json_array_size(list), 7);
    holds(j, "scores", /* differences are table - matched */
          "{'between_tables': [], 'at_equal_tokens.0.lengths': ["
          "{'T_lo': 90, 'T_hi': 90, 'difference': 0.25, 'n': 2},"
          "{'T_lo': 95, 'T_hi': 100, 'difference': 0.25, 'n': 2},"
          "{'T_lo': 110, 'T_hi': 120, 'difference': 1.25, 'n': 2}]}");
    assert_non_null(strstr(summary, "1.167 worse"));
    assert_null(strstr(summary, "mean-gate"));
    is(j, "tables.0.verdict.budgets.0.parts.2.T_lo", 95);
}

/* The same prompt under the same policy in two files counts once, and must not say two things. */
TEST(rows_of_two_files) {
    const char *path = put(small("t", first_weights, false), "t.ckvt"), *files[3];
    for (int k = 0; k < 3; k++) {
        static const char *const names[] = {"two-0.jsonl", "two-1.jsonl", "two-2.jsonl"};
        FILE *f = fopen(files[k] = in_temp_folder(names[k]), "w");
        assert_non_null(f);
        for (int i = 0; i < 4; i++) {
            put_score(f,
                      (scored_line){
                          .id = i, .policy = k ? "recent" : "identity", .reward = -1, .kept = 20});
            put_score(f, (scored_line){.id = i,
                                       .policy = "table",
                                       .table = put_id,
                                       .reward = -0.5 - (k == 2 ? 0.01 : 1e-9 * k) - 0.125 * i,
                                       .kept = 24});
        }
        fclose(f);
    }
    report_options o = report_of(&path, 1, files, 2);
    json_auto_t *j = report_made(&o);
    holds(j, "scores", "{'rows': 12, 'rows_in_several_files': 4, 'against_identity.0.all.n': 4}");
    o.out = in_temp_folder("three");
    o.n_scores = 3;
    SAYS(write_report(&o), CKVC_E_DATA, "made with different options");
}

TEST(inputs_that_are_none) {
    const char *path = in_temp_folder("missing.ckvt");
    report_options o = report_of(&path, 1, NULL, 0);
    o.out = in_temp_folder("never");
    FAILS(write_report(&o), CKVC_E_NOINPUT);
    assert_false(ckvc_is_dir(in_temp_folder("never")));
}

/* A report that was cut short is replaced by a rerun; what others put there is not. */
TEST(cut_short) {
    put(small("x", first_weights, true), "cut.ckvt");
    const char *inputs[] = {in_temp_folder("cut.ckvt")}, *out = in_temp_folder("cut");
    report_options o = report_of(inputs, 1, NULL, 0);
    o.out = out;
    OK(ckvc_make_dirs(out, &err));
    put_text("cut/mine", "");
    SAYS(write_report(&o), CKVC_E_CREATE, "holds mine, which is no report's");
    assert_int_equal(unlink(in_temp_folder("cut/mine")), 0);
    /* what a killed process left; what is called nearly so; a folder that is empty */
    OK(ckvc_make_dirs(in_temp_folder("cut.tmp.0000000000000001"), &err));
    put_text("cut.tmp.0000000000000001/report.json", "");
    OK(ckvc_make_dirs(in_temp_folder("cut.tmp.mine"), &err));
    OK(write_report(&o));
    assert_false(ckvc_file_exists(in_temp_folder("cut.tmp.0000000000000001")));
    assert_true(ckvc_file_exists(in_temp_folder("cut.tmp.mine")));
    SAYS(write_report(&o), CKVC_E_CREATE, "holds a report already");
    put_text("cut/earlier.csv", "");
    assert_int_equal(unlink(in_temp_folder("cut/report.html")), 0);
    o.force = true;
    OK(write_report(&o));
    assert_true(ckvc_file_exists(in_temp_folder("cut/report.html")));
    assert_false(ckvc_file_exists(in_temp_folder("cut/earlier.csv"))); /* one report at a time */
    assert_int_equal(rmdir(in_temp_folder("cut.tmp.mine")), 0);
    shell("test -z \"$(ls -d %s.tmp.* 2>/dev/null)\"", out); /* and nothing beside it */
}

/* META's leak_check as it may come from outside, without scores: the check alone decides. */
TEST(leak_checks) {
    static const char *const cases[][2] = {
        {"{\"checks\":[" CHECK("0") "],\"unchecked\":[]}", "passed"},
        {"{\"checks\":[" CHECK("0") "," CHECK("3") "],\"unchecked\":[]}", "shared"},
        {"{\"checks\":[" CHECK("0") "],\"unchecked\":[\"" MANIFEST "\"]}", "in part"},
        {"{\"checks\":[" CHECK("0") ",{}],\"unchecked\":[]}", "not readable"},
        {"{\"checks\":[7],\"unchecked\":[]}", "not readable"},
        {"{\"checks\":[],\"unchecked\":[]}", "not checked"},
        {"{\"checks\":{}}", "not checked"},
        {"[1]", "not checked"},
        {"null", "not checked"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        table_file *t = small("x", ones, false);
        json_object_set_new(t->meta, "leak_check", json_loads(cases[i][0], JSON_DECODE_ANY, NULL));
        const char *path = put(t, "leaks.ckvt");
        json_auto_t *j = make(&path, 1, NULL, 0, NULL);
        assert_string_equal(text_at(j, "tables.0.leak_check.state"), cases[i][1]);
        const char *says = text_at(j, "tables.0.leak_check.says");
        assert_int_equal(strstr(says, "Leak check passed: none of its 7 prompts shares 13 words") !=
                             NULL,
                         strcmp(cases[i][1], "passed") == 0);
        assert_int_equal(strstr(summary, "At least 3 of its 14 prompts share") != NULL,
                         strcmp(cases[i][1], "shared") == 0);
    }
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
