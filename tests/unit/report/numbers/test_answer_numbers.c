/* Numbers of answers files in report.json, held against what is found by hand on a few items: which
 * tasks count, averages, differences to the table, McNemar, lengths, needles; what is refused. */
#include "tests/unit/report_fixture.h"

#define MODEL "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define TABLE "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100"

typedef struct line {
    const char *task, *id, *query, *policy;
    double budget, score, control; /* budget, control 0: none */
    int aimed;
    double depth; /* < 0: null */
} line;

static const char second_table[] = "second"; /* its id is before the other's */

static void put(FILE *f, line x) {
    const double entries = x.budget >= 1 ? 600 : x.budget > 0 ? 1200 * x.budget : 1200;
    fprintf(f,
            "{\"id\":\"%s\",\"task\":\"%s\",\"group\":\"%s\",\"model\":\"" MODEL
            "\",\"query\":\"%s\",\"length\":100,\"policy\":\"%s\",\"table\":%s,"
            "\"entries\":%.0f,\"share\":%.17g,\"bytes\":%.0f,\"metric\":\"match\",\"score\":%.17g,"
            "\"answer\":\"a\",\"tokens\":1,\"end\":\"stop\",\"nll\":null",
            x.id, x.task, x.depth == 0.3 ? "records" : "needle", x.query,
            x.policy == second_table ? "table" : x.policy,
            x.policy == second_table         ? "\"" MODEL "\""
            : strcmp(x.policy, "table") == 0 ? "\"" TABLE "\""
                                             : "null",
            entries, entries / 1200, entries * 64, x.score);
    x.budget > 0 ? fprintf(f, ",\"budget\":%g", x.budget) : fprintf(f, ",\"budget\":null");
    x.depth >= 0 ? fprintf(f, ",\"depth\":%g", x.depth) : fprintf(f, ",\"depth\":null");
    if (x.aimed) { fprintf(f, ",\"aimed\":%d", x.aimed); }
    if (x.control > 0) { fprintf(f, ",\"control\":%g", x.control); }
    fprintf(f, "}\n");
}

/* One item under the full cache, the table and SnapKV, at a quarter. */
static void item(FILE *f, const char *query, const char *task, int k, double full, double table,
                 double snapkv, double control, int aimed, double depth) {
    char id[32];
    snprintf(id, sizeof id, "%s-%02d", task, k);
    put(f, (line){task, id, query, "full", 0, full, control, aimed, depth});
    put(f, (line){task, id, query, "snapkv", 0.25, snapkv, control, aimed, depth});
    put(f, (line){task, id, query, "table", 0.25, table, control, aimed, depth});
}

/* copy: 12 items, all right under full and table, SnapKV wrong on 7 of them; hop: 2 items with
 * scores between; guess: the full cache scores what a wrong answer does. */
static const char *written(const char *name, bool unseen) {
    FILE *f = open_lines(name);
    for (int k = 0; k < 12; k++) {
        item(f, "seen", "copy", k, 1, 1, k < 5, 0, k % 2 ? 64 : 128, k % 3 / 2.0);
    }
    item(f, "seen", "hop", 0, 0.75, 0.25, 0.5, 0, 64, 0.3); /* of another group: not on the map */
    item(f, "seen", "hop", 1, 0.25, 0.25, 0.5, 0, 128, -1);
    item(f, "seen", "guess", 0, 0.5, 0, 1, 0.45, 64, -1);
    item(f, "seen", "guess", 1, 0.25, 0, 1, 0.25, 128, -1);
    put(f, (line){"hop", "hop-09", "seen", "full", 0, 1, 0, 64, -1}); /* nobody else's */
    if (unseen) { item(f, "unseen", "copy", 0, 1, 0, 0, 0, 64, 0); }
    assert_int_equal(fclose(f), 0);
    return in_temp_folder(name);
}

/* The report's JSON, the caller's to free. */
static json_t *make(const char *const *files, size_t n) {
    report_options o = {
        .answers = files, .n_answers = n, .layer_bins = 2, .replicates = 500, .seed = 1};
    return report_made(&o);
}

TEST(by_hand) {
    const char *file = written("a.jsonl", true);
    json_auto_t *j = make(&file, 1);
    holds(j, "answers",
          "[{'query': 'seen', 'n_items': 16, 'n_lacking': 1, 'n_counted': 2,"
          "  'tasks.0.counted': true,"
          "  'tasks.1': {'task': 'guess', 'counted': false, 'full': 0.375, 'control': 0.35}},"
          " {'query': 'unseen'}]");
    /* means over copy and hop */
    is(j, "answers.0.lines.2.score", (5 / 12.0 + 0.5) / 2);
    is(j, "answers.0.lines.2.against_table", (5 / 12.0 - 1 + 0.25) / 2);
    holds(j, "answers.0.lines", /* the last is not decided: one task says another */
          "{'0': {'policy': 'full cache', 'query_aware': false, 'score': 0.75,"
          "       'against_table': null},"
          " '1': {'policy': 'table', 'score': 0.625, 'task_p10': 0.325, 'bytes': 19200,"
          "       'frontier': true},"
          " '2': {'policy': 'snapkv', 'query_aware': true, 'costs_besides': '',"
          "       'entries_over_table': 1, 'decided': false, 'frontier': false}}");
    /* copy: seven items that the table alone has; hop has other scores, and two items */
    holds(j, "answers.0.lines.2.tasks",
          "{'0': {'mcnemar_p': 0.015625, 'items_below_table': 7, 'items_above_table': 0,"
          "       'decided': true},"
          " '2': {'mcnemar_p': null, 'against_table': 0.25, 'decided': false}}");
    /* at 64 tokens copy has items 1, 3, ... 11, hop the first */
    is(j, "answers.0.lines.2.lengths.0.score", (2 / 6.0 + 0.5) / 2);
    /* depth 0: items 0, 3, 6, 9, of which 3 and 9 are of 64 tokens */
    assert_int_equal(json_array_size(at(j, "answers.0.depths")), 3);
    holds(j, "answers.0",
          "{'depths.2': 1, 'aimed.1': 128, 'lines.2': {'lengths': {'0.length': 64, '1.score': 0.5},"
          "                                            'needle': {'0.0': 0.5, '2.1': 0.5}}}");
    assert_non_null(strstr(summary, "25% of T, question seen: full cache 0.750; table 0.625; best "
                                    "other snapkv 0.458 (\u22120.167"));
}

/* The same file twice counts once; another score of the same answer is an error. */
TEST(in_several_files) {
    const char *files[] = {written("a.jsonl", false), written("b.jsonl", false)};
    json_auto_t *j = make(files, 2);
    is(j, "answers.0.n_items", 16);
    is(j, "answers.0.lines.1.score", (1 + 0.25) / 2);

    FILE *f = fopen(files[1], "wb");
    put(f, (line){"copy", "copy-00", "seen", "full", 0, 0, 0, 128, 0});
    assert_int_equal(fclose(f), 0);
    report_options o = {.answers = files, .n_answers = 2, .out = in_temp_folder("never")};
    SAYS(write_report(&o), CKVC_E_DATA, "item \"copy-00\"");

    f = fopen(files[1], "wb");
    for (int k = 0; k < 1001; k++) {
        put(f, (line){"copy", "copy-00", "seen", "snapkv", 1000 + k, 0, 0, 128, 0});
    }
    assert_int_equal(fclose(f), 0);
    SAYS(write_report(&o), CKVC_E_DATA, "1004 policies, tables, budgets");
}

/* Others are held against the table that was given first: by the file, whatever its id. */
TEST(first_table) {
    const char *file = in_temp_folder("c.jsonl");
    FILE *f = open_lines("c.jsonl");
    for (int k = 0; k < 12; k++) {
        char id[32];
        snprintf(id, sizeof id, "copy-%02d", k);
        put(f, (line){"copy", id, "seen", "full", 0, 1, 0, 0, -1});
        put(f, (line){"copy", id, "seen", "table", 0.25, k < 6, 0, 0, -1});
        put(f, (line){"copy", id, "seen", second_table, 0.25, 1, 0, 0, -1});
    }
    assert_int_equal(fclose(f), 0);
    json_auto_t *j = make(&file, 1);
    holds(j, "answers.0.lines",
          "{'1.policy': 'table ffeeddccbbaa',"
          " '2': {'policy': 'table 001122334455', 'against_table': 0.5}}");
    assert_non_null(
        strstr(summary, "table ffeeddccbbaa 0.500; best other table 001122334455 1.000"));
}

/* A plain table: its columns begin at one place in every line; nothing in it moves a terminal. */
TEST(as_text) {
    const char *file = written("a.jsonl", false);
    CKVC_AUTO_FREE char *text = NULL;
    FILE *f = fopen(file, "ab");
    item(f, "seen", "tail\\u001b[2J", 0, 0, 0, 0, 0, 0, -1);
    assert_int_equal(fclose(f), 0);
    size_t size;
    CKVC_AUTO_FREE uint8_t *lines = file_bytes(file, &size);
    OK(report_answers(lines, size, &text, &err));
    static const char *const wanted[] = {
        "question seen, model 001122334455: 2 of 4 tasks in averages, 17 items\n",
        "\nleft out of averages: guess: the full cache has 0.375, wrong answers 0.350\n",
        "\nleft out of averages: tail?[2J: the full cache has 0.000, wrong answers 0.000\n",
        "\nbudget    policy        MB  ",
        "\n          full cache  0.08  0.750 (0.",
        "  100%  ",
        "\n25% of T  table       0.02  0.625 (0.",
        "(the table)  0.325 (0.",
        "   25%  the last rows",
        "\n25% of T  snapkv      0.02  0.458 (0."};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) { has(text, wanted[i]); }
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
