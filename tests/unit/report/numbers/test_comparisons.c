/* What is compared with what, and what is called equal. Method: score lines of a made-up table,
 * whose differences and tokens are known, and the numbers that report_write makes. */
#include <jansson.h>

#include "tests/unit/report_fixture.h"
#include "tests/unit/unit.h"

#define TABLE "abcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcd"

/* A score file of its own in the folder. */
static FILE *open_scores(const char *name, const char **path) {
    FILE *f = fopen(*path = in_temp_folder(name), "w");
    assert_non_null(f);
    return f;
}

/* One line of two layers that keep `kept` each; the reward is gain - 4. tau 0: none. */
static void line(FILE *f, int prompt, const char *source, const char *policy, bool of_table,
                 double tau, double gain, int kept) {
    char threshold[32] = "null";
    if (tau > 0) { snprintf(threshold, sizeof threshold, "%.17g", tau); }
    fprintf(f,
            "{\"id\":\"p%d\",\"source\":\"%s\",\"split\":\"heldout\",\"model\":\"m\",\"manifest\":"
            "\"f\",\"policy\":\"%s\",\"table\":%s,"
            "\"tau\":%s,\"T\":100,\"C\":8,\"budget\":32,\"r_struct\":4.5,\"r_sem\":12.25,\"bin_"
            "entropy\":null,\"bin_perplexity\":null,"
            "\"n_candidates\":null,\"n_kept\":[%d,%d],\"n_kept_window\":null,\"loss_full\":2,"
            "\"loss_comp\":%.17g,\"reward\":%.17g}\n",
            prompt, source, policy, of_table ? "\"" TABLE "\"" : "null", threshold, kept, kept,
            6 - gain, gain - 4);
}

/* report.json, the caller's to free. */
static json_t *make(const char *const *files, size_t n) {
    char *summary = NULL;
    report_options o = {.scores = files, .n_scores = n, .layer_bins = 2};
    json_t *json = report_made(&o, &summary);
    assert_non_null(strstr(summary, "No table was given"));
    free(summary);
    return json;
}

static void has(const char *text, const char *part) {
    if (!strstr(text, part)) { fail_msg("\"%s\" is not in:\n%s", part, text); }
}

/* A matched control that keeps 4% fewer tokens is no equal; thresholds of two score files are both
 * named. */
TEST(tokens_of_the_matched_control) {
    const char *files[2];
    static const double taus[2] = {0.895, 0.875};
    for (int k = 0; k < 2; k++) {
        char name[32];
        snprintf(name, sizeof name, "matched-%d.jsonl", k);
        FILE *f = open_scores(name, &files[k]);
        for (int i = 0; i < 4; i++) {
            line(f, 4 * k + i, "x", "identity", false, 0, 0, 20);
            line(f, 4 * k + i, "x", "table", true, 0, 0.5 + 0.01 * i, 26);
            line(f, 4 * k + i, "x", "matched", true, taus[k], 0.25, 25);
        }
        fclose(f);
    }
    json_auto_t *j = make(files, 2);
    json_t *fair = at(j, "scores.at_equal_tokens.0");
    has(json_string_value(at(fair, "base")), "(τ 0.875, 0.895)");
    is(fair, "base_taus.0", 0.875);
    is(fair, "base_taus.1", 0.895);
    is(fair, "all.difference", 0.265);
    assert_true(json_is_false(at(fair, "all.equal_tokens")));
    assert_string_equal(json_string_value(at(fair, "all.judged")), "better");
    assert_true(json_is_null(at(fair, "all.equal_in")));
}

/* References are never left out: those with the table's tokens are preferred, what happens to keep
 * as many counts, the rest is marked. */
TEST(references) {
    const char *files[1];
    FILE *f = open_scores("references.jsonl", files);
    for (int i = 0; i < 6; i++) {
        const double wave = 0.01 * (i % 2);
        line(f, i, "x", "identity", false, 0, 0, 20);
        line(f, i, "x", "table", true, 0, 0.5 + wave, 26);
        line(f, i, "x", "sink-recent", false, 0, 0.25,
             32); /* scored both ways: this one is not used */
        line(f, i, "x", "sink-recent", true, 0, 0.75, 26);
        line(f, i, "x", "recent", false, 0, 0.25, 32);
        line(f, i, "x", "random", true, 0, 0.5 + 0.01 * (i / 3), 26);
    }
    fclose(f);
    json_auto_t *j = make(files, 1);
    json_t *fair = at(j, "scores.at_equal_tokens"), *other = at(j, "scores.at_other_tokens");
    assert_int_equal(json_array_size(fair), 2);
    assert_int_equal(json_array_size(other), 1);
    assert_string_equal(json_string_value(at(other, "0.base")), "recent");
    assert_string_equal(json_string_value(at(fair, "0.all.equal_in")),
                        "in each layer of each prompt");
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
