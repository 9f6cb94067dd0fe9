/* The rule by which a table is to be deployed, its words, and where it holds. Method: score lines
 * of a small table whose differences are known, `verdict` in report.json and summary; prompts
 * needed worked out by hand. */
#include "formats/table/table_file.h"
#include "lib/base/names.h"
#include "tests/unit/report_fixture.h"
#include "tests/unit/unit.h"

#define MANIFEST "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define FITTED   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define CHECK(leaked)                                                                              \
    "{\"checks\":[{\"schema\":\"ckvc-leak-check-1\",\"manifest\":\"" FITTED                        \
    "\",\"ngram\":13,\"shingle\":5,\"near\":0.5,\"holdout\":0,\"seed\":1,\"prompts\":7,"           \
    "\"held_out\":2,\"near_duplicates_within\":0,\"leaked_prompts\":" leaked                       \
    ",\"against\":[{\"sha256\":\"" MANIFEST "\",\"bytes\":1,\"lines\":1,\"texts\":1,\"words\":1,"  \
    "\"shared_spans\":0,\"near_duplicates\":0,\"duplicate_ids\":0,\"leaked_lines\":0,"             \
    "\"leaked_prompts\":" leaked "}]}],\"unchecked\":[]}"

/* What is scored: on n prompts the table gains `identity` over identity and `reference` over
 * snapkv, each by turns `wave` more and less. */
typedef struct scored {
    int n;
    double identity, reference, wave;
    const char *word;
    double needed;       /* NaN: null */
    const char *leak;    /* META's leak_check; NULL: one that passed */
    const char *policy;  /* instead of snapkv; "": no reference */
    int kept, kept_base; /* entries of the table and of the others in a layer; 0: 24 */
    double matched;      /* what its matched control gains over identity; 0: none */
    bool one_document;   /* all prompts are of it */
    bool seen;           /* the lines are not marked as held out */
    bool parts;          /* by turns of two sources, one of them retrieval, where the gain is 0 */
} scored;
/* n, gains, wave and what is said of them; then what is not as usual. */
#define SCORED(N, IDENTITY, REFERENCE, WAVE, WORD, ...)                                            \
    {                                                                                              \
        .n = N, .identity = IDENTITY, .reference = REFERENCE, .wave = WAVE, .word = WORD,          \
        .needed = __VA_ARGS__                                                                      \
    }

static void line(FILE *f, const scored *c, int i, const char *policy, const char *table,
                 double gain, int kept) {
    kept = kept ? kept : 24;
    fprintf(f,
            "{\"id\":\"p%d\",%s\"source\":\"%s\",\"split\":\"%s\",\"model\":\"m\",\"manifest\":"
            "\"" MANIFEST "\",\"policy\":\"%s\",\"table\":%s%s%s,\"tau\":null,\"T\":100,\"C\":8,"
            "\"budget\":32,\"r_struct\":4.5,\"r_sem\":12.25,\"bin_entropy\":null,"
            "\"bin_perplexity\":null,\"n_candidates\":null,\"n_kept\":[%d,%d],\"entries\":%d,"
            "\"head_dim\":16,\"n_kept_window\":null,\"loss_full\":2,\"loss_comp\":%.17g,"
            "\"reward\":%.17g}\n",
            i, c->one_document ? "\"document\":\"d\"," : "",
            c->parts && i % 2 ? "y-retrieval" : "x", c->seen ? "" : "heldout", policy,
            table ? "\"" : "", table ? table : "null", table ? "\"" : "", kept, kept, 4 * kept,
            6 - gain, gain - 4);
}

/* The report of such scores: its JSON, the caller's to free. */
static json_t *make(const scored *c, const char *also, char **summary) {
    char table[512], path[512], *said = NULL;
    table_file *t = table_file_around(ckvc_table_create(2, 2, 1, 1, 1, 2, 2), false);
    t->table->window = 8;
    t->table->n_query_heads = 2;
    t->table->budgets[0] = 32;
    for (int a = 0; a < 2; a++) {
        t->table->head_grid[a] = 1 + 0.5 * a;
        t->table->gate_grid[a] = 0.8 + 0.1 * a;
    }
    for (int i = 0; i < 4; i++) { t->table->weight[i] = 1.0f; }
    t->table->tau[0] = t->table->tau[1] = (float)t->table->gate_grid[1];
    json_object_set_new(t->meta, "leak_check",
                        json_loads(c->leak ? c->leak : CHECK("0"), JSON_DECODE_ANY, NULL));
    snprintf(table, sizeof table, "%s", in_temp_folder("t.ckvt"));
    snprintf(path, sizeof path, "%s", in_temp_folder("s.jsonl"));
    OK(table_file_write(t, table, true, &err));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < c->n; i++) {
        const double wave = i % 2 ? c->wave : -c->wave;
        line(f, c, i, "identity", NULL, 0, c->kept_base);
        line(f, c, i, "table", t->content_id,
             c->identity + wave - (c->parts && i % 2 ? c->reference : 0), c->kept);
        if (!c->policy || *c->policy) {
            line(f, c, i, c->policy ? c->policy : "snapkv", NULL, c->identity - c->reference,
                 c->kept_base);
        }
        if (c->matched) { line(f, c, i, "matched", t->content_id, c->matched, c->kept_base); }
        if (also) { line(f, c, i, also, NULL, c->identity - 0.001, c->kept_base); }
    }
    fclose(f);
    const char *inputs[] = {table}, *files[] = {path};
    report_options o = {.inputs = inputs,
                        .n_inputs = 1,
                        .scores = files,
                        .n_scores = c->n ? 1 : 0,
                        .layer_bins = 2};
    json_t *j = report_made(&o, &said);
    *(summary ? summary : &said) = said;
    if (!summary) { free(said); }
    table_file_free(t);
    return j;
}

/* Waves of 0.25 on n prompts, an even number: the standard error is 0.25 / sqrt(n - 1). */
TEST(the_three_answers) {
    static const scored cases[] = {
        SCORED(20, 1, 1, 0.25, "deploy", 0),
        SCORED(20, 1, 0, 0, "deploy", 0),              /* not worse: the same, to the last bit */
        SCORED(20, 0, 1, 0, "do not deploy", NAN),     /* not better than identity: the same */
        SCORED(20, -1, 1, 0.25, "do not deploy", NAN), /* worse than identity */
        SCORED(20, 1, -1, 0.25, "do not deploy", NAN), /* worse than the reference */
        SCORED(20, 1, -0.01, 0.25, "do not deploy",
               NAN), /* no better, and behind: more would not help */
        /* t(19) = 2.0930: half of the interval is 0.12004; over 0.05 its square is 5.764, so 95.3
           more prompts, and over 0.025 23.06, 441.1, to two digits */
        SCORED(20, 0.05, 1, 0.25, "needs more prompts", 96),
        SCORED(20, 1, 0.025, 0.25, "needs more prompts", 450),
        SCORED(20, 0.05, 0.025, 0.25, "needs more prompts", 450), /* the larger need */
        SCORED(20, 0.05, -1, 0.25, "do not deploy", NAN),
        SCORED(1, 1, 1, 0, "needs more prompts", 9), /* no interval */
        SCORED(1, 1, -1, 0, "needs more prompts", 9),
        SCORED(20, 1, 1, 0.25, "needs more prompts", 9, .one_document = true),
        SCORED(6, 1, 1, 0.25, "needs more prompts", 4), /* decided, but by too few */
        SCORED(6, 1, -1, 0.25, "do not deploy", NAN),
        SCORED(20, 1, 1, 0.25, "do not deploy", NAN, .leak = "null"), /* no leak check */
        SCORED(20, 1, 1, 0.25, "do not deploy", NAN, .leak = CHECK("3")),
        SCORED(20, 0.05, 1, 0.25, "do not deploy", NAN, .leak = "null"),
        SCORED(20, 1, 1, 0.25, "do not deploy", NAN, .policy = ""),      /* no reference */
        SCORED(20, 1, 1, 0.25, "do not deploy", NAN, .policy = "kvzip"), /* none that is simple */
        SCORED(20, 1, 1, 0.25, "do not deploy", NAN, .policy = "pooled"),
        SCORED(20, 1, 1, 0.25, "do not deploy", NAN, .kept = 26,
               .kept_base = 24), /* not at as many entries */
        SCORED(20, 1, 1, 0.25, "do not deploy", NAN, .seen = true),
        SCORED(0, 1, 1, 0.25, "no verdict", NAN)}; /* not scored */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const scored *c = &cases[i];
        json_auto_t *j = make(c, NULL, NULL);
        const char *word = json_string_value(at(j, "tables.0.verdict.word"));
        const json_t *needed = at(j, "tables.0.verdict.needed");
        const double got = json_is_null(needed) ? NAN : json_number_value(needed);
        if (strcmp(word, c->word) != 0 || !(got == c->needed || (isnan(got) && isnan(c->needed)))) {
            fail_msg("case %zu: %s, %g more, wanted %s, %g", i, word, got, c->word, c->needed);
        }
        assert_int_equal(json_array_size(at(j, "tables.0.verdict.budgets")), c->n ? 1 : 0);
    }
}

/* The best of several is the one that counts, and is named with its numbers; an entry is a key and
 * a value of 16 numbers of two bytes. */
TEST(what_it_rests_on) {
    const scored c = SCORED(20, 1, 0.5, 0.0, "deploy", 0);
    json_auto_t *j = make(&c, "adakv", NULL);
    json_t *at_32 = at(j, "tables.0.verdict.budgets.0");
    assert_string_equal(json_string_value(at(at_32, "reference.policy")), "adakv");
    assert_string_equal(json_string_value(at(at_32, "reference.equal_in")),
                        "in each layer of each prompt");
    is(at_32, "reference.difference", 0.001);
    is(at_32, "reference.prompts", 20);
    assert_string_equal(json_string_value(at(at_32, "gain.policy")), "identity");
    is(at_32, "gain.difference", 1);
    is(at_32, "gain.lo", 1);
    is(at_32, "loss.mean", 3);
    is(at_32, "prompts", 20);
    is(at_32, "cache.tokens", 100);
    is(at_32, "cache.entries", 96);
    is(at_32, "cache.all_entries", 400);
    is(at_32, "cache.saved_bytes", (400 - 96) * 2 * 16 * 2);
    assert_true(json_is_true(at(j, "tables.0.verdict.leak_passed")));
}

static void has(const char *text, const char *part) {
    if (!strstr(text, part)) { fail_msg("\"%s\" is not in:\n%s", part, text); }
}

/* Summary and JSON say the same. */
TEST(words) {
    static const struct {
        scored of;
        const char *said[4];
    } cases[] = {
        {SCORED(20, 1, 0.5, 0.25, "deploy", 0),
         {"deploy: T1 t: at 32 entries a head it loses 3.000 nats per token over the full cache "
          "where snapkv, the best simple reference at as many entries in each layer of each "
          "prompt, loses 3.500: 0.500 better (0.380 to 0.620). Against identity (no table) 1.000 "
          "better (0.880 to 1.120). 20 prompts."}},
        {SCORED(20, 1, 0.5, 0.25, "deploy", 0, .matched = 0.25),
         {" Against matched (no table) 0.750 better (0.630 to 0.870). 20 prompts."}},
        {SCORED(20, 1, -0.5, 0.25, "do not deploy", NAN), {": 0.500 worse (0.380 to 0.620)."}},
        {SCORED(20, 1, 0.025, 0.25, "needs more prompts", 450),
         {"needs about 450 more prompts: T1 t: ",
          ": +0.025 (\u22120.095 to +0.145), which decides nothing."}},
        {SCORED(20, 1, 0.5, 0.25, "do not deploy", NAN, .policy = "kvzip"),
         {"No simple reference was scored at as many entries"}},
        {SCORED(20, 1, 0.5, 0.25, "do not deploy", NAN, .leak = CHECK("3")),
         {"do not deploy: T1 t: At least 3 of its 7 prompts share text or ids with the prompts "
          "scored here"}},
        {SCORED(20, 1, 0.5, 0.25, "do not deploy", NAN, .seen = true),
         {"they are not marked as held out, and no run was given."}},
        {SCORED(0, 1, 0.5, 0.25, "no verdict", NAN),
         {"no verdict: T1 t: No scores were given: name the run of compile that made it, or"}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const scored *of = &cases[i].of;
        char *summary = NULL;
        json_auto_t *j = make(of, NULL, &summary);
        for (size_t k = 0; k < 4 && cases[i].said[k]; k++) { has(summary, cases[i].said[k]); }
        const char *last = json_string_value(at(j, "findings.0.text"));
        has(summary, last);
        if (of->n && !of->leak) {
            has(json_string_value(at(j, "tables.0.leak_check.says")),
                "Leak check passed: none of its 7 prompts shares 13 words in a row");
        }
        if (of->policy) {
            const char *label = json_string_value(at(j, "scores.losses.0.label")),
                       *other = json_string_value(at(j, "scores.losses.1.label"));
            assert_true(strcmp(label, "kvzip, reads twice") == 0 ||
                        strcmp(other, "kvzip, reads twice") == 0);
        }
        free(summary);
    }
}

/* A part of the prompts, by name: "n difference decided". */
static void is_part(json_t *j, size_t i, const char *name, double n, double difference,
                    bool decided) {
    json_t *part = json_array_get(at(j, "tables.0.verdict.budgets.0.parts"), i);
    assert_string_equal(json_string_value(at(part, "part")), name);
    is(part, "n", n);
    is(part, "difference", difference);
    assert_int_equal(json_is_true(at(part, "decided")), decided);
}

/* Better on one kind of prompts, the same on the other. */
TEST(where_it_holds) {
    const scored c = SCORED(20, 1, 1, 0, "deploy", 0, .parts = true);
    json_auto_t *j = make(&c, NULL, NULL);
    assert_string_equal(json_string_value(at(j, "tables.0.verdict.budgets.0.parts.0.against")),
                        "snapkv");
    is_part(j, 1, "text prompts", 10, 1, true);
    is_part(j, 2, "retrieval prompts", 10, 0, false);
    /* fewer than 10 prompts decide nothing, all of them together neither */
    const scored few = SCORED(8, 1, 1, 0.25, "needs more prompts", 2, .parts = true);
    json_auto_t *k = make(&few, NULL, NULL);
    is_part(k, 0, "all prompts", 8, 0.5, false);
    /* without a simple reference: against what the verdict is */
    const scored alone =
        SCORED(20, 1, 0, 0, "deploy", 0, .policy = "", .matched = 0.25, .parts = true);
    json_auto_t *l = make(&alone, NULL, NULL);
    assert_string_equal(json_string_value(at(l, "tables.0.verdict.budgets.0.parts.0.against")),
                        "matched");
}

/* What is required is checked when all has been written. */
TEST(required) {
    const scored c = SCORED(20, 1, 1, 0.25, "deploy", 0);
    json_decref(make(&c, NULL, NULL)); /* writes the files */
    char table[512], path[512], out[512];
    snprintf(table, sizeof table, "%s", in_temp_folder("t.ckvt"));
    snprintf(path, sizeof path, "%s", in_temp_folder("s.jsonl"));
    snprintf(out, sizeof out, "%s", in_temp_folder("required"));
    const char *inputs[] = {table}, *files[] = {path};
    report_options o = {.inputs = inputs,
                        .n_inputs = 1,
                        .scores = files,
                        .n_scores = 1,
                        .layer_bins = 2,
                        .out = out,
                        .force = true,
                        .require_deploy = true};
    static const struct {
        size_t tables, scores;
        ckvc_status status;
        const char *error;
    } cases[] = {{1, 1, CKVC_OK, ""},
                 {1, 0, CKVC_CHECK_FAILED, "T1 t: no verdict, wanted deploy"},
                 {0, 1, CKVC_CHECK_FAILED, "no table was given"}};
    for (size_t i = 0; i < 3; i++) {
        char *summary = NULL, *json = NULL;
        ckvc_err err = {0};
        o.n_inputs = cases[i].tables;
        o.n_scores = cases[i].scores;
        assert_int_equal(report_write(&o, &summary, &json, &err), cases[i].status);
        assert_non_null(strstr(err.text, cases[i].error));
        assert_true(summary && json && ckvc_file_exists(in_temp_folder("required/report.html")));
        free(summary);
        free(json);
    }
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
