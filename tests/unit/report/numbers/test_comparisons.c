/* What is compared with what, and what is called equal. Method: score lines of a made-up table,
 * whose differences and tokens are known, and the numbers that report_write makes. */
#include "tests/unit/report_fixture.h"

#define TABLE "abcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcd"

/* One line of two layers that keep `kept` each; the reward is gain - 4. tau 0: none. */
static void line(FILE *f, int prompt, const char *policy, bool of_table, double tau, double gain,
                 int kept) {
    char threshold[32] = "";
    if (tau > 0) { snprintf(threshold, sizeof threshold, ",\"tau\":%.17g", tau); }
    put_score(f, (scored_line){.id = prompt,
                               .source = "x",
                               .policy = policy,
                               .table = of_table ? TABLE : NULL,
                               .reward = gain - 4,
                               .kept = kept,
                               .more = threshold});
}

/* report.json, the caller's to free. */
static json_t *make(const char *const *files, size_t n) {
    report_options o = report_of(NULL, 0, files, n);
    json_t *json = report_made(&o);
    assert_non_null(strstr(summary, "No table was given"));
    return json;
}

/* A control that keeps 4% fewer tokens is no equal; thresholds of two files are both named. */
TEST(tokens_of_the_matched_control) {
    const char *files[2];
    static const double taus[2] = {0.895, 0.875};
    for (int k = 0; k < 2; k++) {
        FILE *f = fopen(files[k] = in_temp_folder(k ? "matched-1.jsonl" : "matched-0.jsonl"), "w");
        assert_non_null(f);
        for (int i = 0; i < 4; i++) {
            line(f, 4 * k + i, "identity", false, 0, 0, 20);
            line(f, 4 * k + i, "table", true, 0, 0.5 + 0.01 * i, 26);
            line(f, 4 * k + i, "matched", true, taus[k], 0.25, 25);
        }
        fclose(f);
    }
    json_auto_t *j = make(files, 2);
    json_t *fair = at(j, "scores.at_equal_tokens.0");
    has(text_at(fair, "base"), "(τ 0.875, 0.895)");
    holds(fair, "",
          "{'base_taus': [0.875, 0.895], 'all': {'difference': 0.265, 'equal_tokens': false,"
          " 'judged': 'better', 'equal_in': null}}");
}

/* References with the table's tokens are preferred, others of as many count, the rest is marked. */
TEST(references) {
    const char *path = in_temp_folder("references.jsonl");
    FILE *f = open_lines("references.jsonl");
    for (int i = 0; i < 6; i++) {
        line(f, i, "identity", false, 0, 0, 20);
        line(f, i, "table", true, 0, 0.5 + 0.01 * (i % 2), 26);
        line(f, i, "sink-recent", false, 0, 0.25, 32); /* scored both ways: not used */
        line(f, i, "sink-recent", true, 0, 0.75, 26);
        line(f, i, "recent", false, 0, 0.25, 32);
        line(f, i, "random", true, 0, 0.5 + 0.01 * (i / 3), 26);
    }
    fclose(f);
    json_auto_t *j = make(&path, 1);
    holds(j, "scores",
          "{'at_equal_tokens': [{'all.equal_in': 'in each layer of each prompt'}, {}],"
          " 'at_other_tokens': [{'base': 'recent'}]}");
}

/* What fitting brings: a table against its own sets with entries as they were, in either order of
 * the lines, and not against those of another floor. */
TEST(fitted_entries) {
    const char *path = in_temp_folder("fitted.jsonl");
    FILE *f = open_lines("fitted.jsonl");
    for (int i = 0; i < 12; i++) {
        const struct {
            const char *more;
            double gain;
        } lines[] = {{",\"floor\":0.2,\"ridge\":0.1", 3.5}, /* it loses 0.5, and without 0.75 */
                     {",\"floor\":0.2", 3.25},
                     {",\"floor\":0.4", 3}};
        for (int k = 0; k < 3; k++) {
            put_score(f, (scored_line){.id = i,
                                       .source = "x",
                                       .policy = "table",
                                       .table = TABLE,
                                       .reward = lines[k].gain - 4 + 0.01 * (i % 3) * (k + 1),
                                       .kept = 20,
                                       .more = lines[k].more});
        }
    }
    fclose(f);
    json_auto_t *j = make(&path, 1);
    const json_t *of = at(j, "scores.against_controls");
    assert_int_equal(json_array_size(of), 1);
    has(text_at(at(j, "scores.against_controls.0"), "title"), "fitted with ridge 0.1");
    holds(at(j, "scores.against_controls.0"), "",
          "{'all': {'difference': 0.24, 'n': 12, 'judged': 'better', 'decided': true}}");
    assert_int_equal(json_array_size(at(j, "scores.between_tables")), 2);
    /* each has a row of its losses, and that without fitting says so */
    const json_t *rows = at(j, "scores.losses");
    assert_int_equal(json_array_size(rows), 3);
    has(text_at(at(j, "scores.losses.1"), "label"), ", entries as they were");
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
