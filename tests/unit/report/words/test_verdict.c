/* The rule by which a table is deployed, its words, where it holds: from score lines whose
 * differences are known; prompts needed are worked out by hand. */
#include "tests/unit/report_fixture.h"

#define CHECKED(leaked) "{\"checks\":[" CHECK(leaked) "],\"unchecked\":[]}"

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
    bool kl;             /* lines have one: 0.1 of the table, 0.3 of the others */
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
    char more[96];
    kept = kept ? kept : 24;
    snprintf(more, sizeof more, "%s%s,\"entries\":%d,\"head_dim\":16",
             c->one_document ? ",\"document\":\"d\"" : "",
             !c->kl  ? ""
             : table ? ",\"kl\":0.1"
                     : ",\"kl\":0.3",
             4 * kept);
    put_score(f, (scored_line){.id = i,
                               .source = c->parts && i % 2 ? "y-retrieval" : "x",
                               .seen = c->seen,
                               .policy = policy,
                               .table = table,
                               .reward = gain - 4,
                               .kept = kept,
                               .more = more});
}

/* The report of such scores: its JSON, the caller's to free. */
static json_t *make(const scored *c, const char *also) {
    const char *table = in_temp_folder("t.ckvt"), *path = in_temp_folder("s.jsonl");
    table_file *t = plain_table(2);
    json_object_set_new(t->meta, "leak_check",
                        json_loads(c->leak ? c->leak : CHECKED("0"), JSON_DECODE_ANY, NULL));
    OK(table_file_write(t, table, true, &err));
    FILE *f = open_lines("s.jsonl");
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
    report_options o = report_of(&table, 1, &path, c->n ? 1 : 0);
    table_file_free(t);
    return report_made(&o);
}

/* Waves of 0.25 on n prompts, an even number: the standard error is 0.25 / sqrt(n - 1). */
TEST(the_three_answers) {
    static const scored cases[] = {
        SCORED(20, 1, 1, 0.25, "deploy", 0),
        SCORED(20, 1, 0, 0, "deploy", 0),                 /* not worse: the same, to the last bit */
        SCORED(20, 0, 1, 0, "do not deploy", NAN),        /* not better than identity: the same */
        SCORED(20, -1, 1, 0.25, "do not deploy", NAN),    /* worse than identity */
        SCORED(20, 1, -1, 0.25, "do not deploy", NAN),    /* worse than the reference */
        SCORED(20, 1, -0.01, 0.25, "do not deploy", NAN), /* no better, and behind */
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
        SCORED(20, 1, 1, 0.25, "do not deploy", NAN, .leak = CHECKED("3")),
        SCORED(20, 0.05, 1, 0.25, "do not deploy", NAN, .leak = "null"),
        SCORED(20, 1, 1, 0.25, "do not deploy", NAN, .policy = ""),      /* no reference */
        SCORED(20, 1, 1, 0.25, "do not deploy", NAN, .policy = "kvzip"), /* none that is simple */
        SCORED(20, 1, 1, 0.25, "do not deploy", NAN, .policy = "pooled"),
        /* not at as many entries */
        SCORED(20, 1, 1, 0.25, "do not deploy", NAN, .kept = 26, .kept_base = 24),
        SCORED(20, 1, 1, 0.25, "do not deploy", NAN, .seen = true),
        SCORED(20, 0.05, 0.025, 0.25, "deploy", 0, .kl = true), /* which losses do not decide */
        SCORED(0, 1, 1, 0.25, "no verdict", NAN)};              /* not scored */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const scored *c = &cases[i];
        json_auto_t *j = make(c, NULL);
        const char *word = text_at(j, "tables.0.verdict.word");
        const json_t *needed = at(j, "tables.0.verdict.needed");
        const double got = json_is_null(needed) ? NAN : json_number_value(needed);
        if (strcmp(word, c->word) != 0 || !(got == c->needed || (isnan(got) && isnan(c->needed)))) {
            fail_msg("case %zu: %s, %g more, wanted %s, %g", i, word, got, c->word, c->needed);
        }
        assert_int_equal(json_array_size(at(j, "tables.0.verdict.budgets")), c->n ? 1 : 0);
    }
}

/* The best of several counts, and is named with its numbers; an entry is 16 pairs of two bytes. */
TEST(what_it_rests_on) {
    const scored c = SCORED(20, 1, 0.5, 0.0, "deploy", 0);
    json_auto_t *j = make(&c, "adakv");
    holds(j, "tables.0.verdict",
          "{'budgets.0': {'reference': {'policy': 'adakv', 'difference': 0.001, 'prompts': 20,"
          "                             'equal_in': 'in each layer of each prompt'},"
          "               'gain': {'policy': 'identity', 'difference': 1, 'lo': 1},"
          "               'loss.mean': 3, 'prompts': 20,"
          "               'cache': {'tokens': 100, 'entries': 96, 'all_entries': 400,"
          "                         'saved_bytes': 19456}},"
          " 'leak_passed': true}");
}

/* Summary and JSON say the same. */
TEST(words) {
    static const struct {
        scored of;
        const char *said[4];
    } cases[] = {
        {SCORED(20, 1, 0.5, 0.25, "deploy", 0),
         {"deploy: T1 t: at 32 entries a head in mode uniform, on 20 prompts, it loses 3.000 nats "
          "per token more than the full cache. The best simple reference at as many entries in "
          "each layer of each prompt is snapkv, with a loss of 3.500: the table is 0.500 better "
          "(0.380 to 0.620). Against identity (no table), with a loss of 4.000, the table is 1.000 "
          "better (0.880 to 1.120)."}},
        {SCORED(20, 1, 0.5, 0.25, "deploy", 0, .matched = 0.25),
         {" Against matched (no table), with a loss of 3.750, the table is 0.750 better (0.630 to "
          "0.870)."}},
        {SCORED(20, 1, -0.5, 0.25, "do not deploy", NAN),
         {": the table is 0.500 worse (0.380 to 0.620)."}},
        {SCORED(20, 1, 0.025, 0.25, "needs more prompts", 450),
         {"needs about 450 more prompts that judge: T1 t: ",
          ": the table is ahead by +0.025 (\u22120.095 to +0.145), which decides nothing."}},
        {SCORED(20, 1, 0.025, 0.25, "deploy", 0, .kl = true),
         {", on 20 prompts, it loses ", ", and its KL, which decides, is 0.100. ",
          " is snapkv, with a KL of 0.300: the table is 0.200 better (0.200 to 0.200)."}},
        {SCORED(20, 1, 0.5, 0.25, "do not deploy", NAN, .policy = "kvzip"),
         {"No simple reference was scored at as many entries"}},
        {SCORED(20, 1, 0.5, 0.25, "do not deploy", NAN, .leak = CHECKED("3")),
         {"do not deploy: T1 t: At least 3 of its 7 prompts share text or ids with the prompts "
          "scored here"}},
        {SCORED(20, 1, 0.5, 0.25, "do not deploy", NAN, .seen = true),
         {"they are not marked as held out, and no run was given."}},
        {SCORED(0, 1, 0.5, 0.25, "no verdict", NAN),
         {"no verdict: T1 t: No scores were given: name the run of compile that made it, or"}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const scored *of = &cases[i].of;
        json_auto_t *j = make(of, NULL);
        for (size_t k = 0; k < 4 && cases[i].said[k]; k++) { has(summary, cases[i].said[k]); }
        has(summary, text_at(j, "findings.0.text"));
        if (of->n && !of->leak) {
            has(text_at(j, "tables.0.leak_check.says"),
                "Leak check passed: none of its 7 prompts shares 13 words in a row");
        }
        if (of->policy) {
            assert_true(strcmp(text_at(j, "scores.losses.0.label"), "kvzip, reads twice") == 0 ||
                        strcmp(text_at(j, "scores.losses.1.label"), "kvzip, reads twice") == 0);
        }
    }
}

/* The first figure is sorted by KL where every line has it, else by loss. The table's loss is above
 * snapkv's, and its KL is below. */
TEST(order_of_losses) {
    const scored by_kl = SCORED(20, 1, -0.5, 0.25, "deploy", 0, .kl = true),
                 by_loss = SCORED(20, 1, -0.5, 0.25, "do not deploy", NAN);
    json_auto_t *j = make(&by_kl, NULL);
    holds(j, "scores", "{'losses_by_kl': true, 'losses.0': {'label': 'T1 t', 'loss': 3}}");
    json_auto_t *k = make(&by_loss, NULL);
    holds(k, "scores", "{'losses_by_kl': false, 'losses.0': {'label': 'snapkv', 'loss': 2.5}}");
}

/* Better on one kind of prompts, the same on the other. */
TEST(where_it_holds) {
    const scored c = SCORED(20, 1, 1, 0, "deploy", 0, .parts = true);
    json_auto_t *j = make(&c, NULL);
    holds(j, "tables.0.verdict.budgets.0.parts",
          "{'0.against': 'snapkv',"
          " '1': {'part': 'text prompts', 'n': 10, 'difference': 1, 'decided': true},"
          " '2': {'part': 'retrieval prompts', 'n': 10, 'difference': 0, 'decided': false}}");
    /* fewer than 10 prompts decide nothing, all of them together neither */
    const scored few = SCORED(8, 1, 1, 0.25, "needs more prompts", 2, .parts = true);
    json_auto_t *k = make(&few, NULL);
    holds(k, "tables.0.verdict.budgets.0.parts.0",
          "{'part': 'all prompts', 'n': 8, 'difference': 0.5, 'decided': false}");
    /* without a simple reference: against what the verdict is */
    const scored alone =
        SCORED(20, 1, 0, 0, "deploy", 0, .policy = "", .matched = 0.25, .parts = true);
    json_auto_t *l = make(&alone, NULL);
    holds(l, "tables.0.verdict.budgets.0.parts.0", "{'against': 'matched'}");
}

/* What is required is checked when all has been written. */
TEST(required) {
    const scored c = SCORED(20, 1, 1, 0.25, "deploy", 0);
    json_decref(make(&c, NULL)); /* writes the files */
    const char *table = in_temp_folder("t.ckvt"), *path = in_temp_folder("s.jsonl");
    report_options o = report_of(&table, 1, &path, 1);
    o.out = in_temp_folder("required");
    o.force = o.require_deploy = true;
    static const char *const errors[] = {"", "T1 t: no verdict, wanted deploy",
                                         "no table was given"};
    for (size_t i = 0; i < 3; i++) {
        o.n_inputs = i < 2;
        o.n_scores = i != 1;
        SAYS(write_report(&o), i ? CKVC_CHECK_FAILED : CKVC_OK, errors[i]);
        assert_true(summary && report_text &&
                    ckvc_file_exists(in_temp_folder("required/report.html")));
    }
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
