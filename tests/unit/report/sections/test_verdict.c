/* The verdict's lines: what they call equal, where a gain is, and which references they name.
 * Method: score lines of a made-up table, whose differences and tokens are known, and the lines
 * that report_write gives back. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/report_fixture.h"

#define TABLE "abcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcd"
#define NAME  "table abcdefabcdef, budget 32 tokens"

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

/* report.json; page may be NULL. All the caller's to free. */
static json_t *make(const char *const *files, size_t n, char **page, char **summary) {
    char *whole = NULL;
    report_options o = {.scores = files, .n_scores = n, .layer_bins = 2};
    json_t *json = report_made(&o, summary, page ? page : &whole);
    free(whole);
    return json;
}

static void has(const char *text, const char *part) {
    if (!strstr(text, part)) { fail_msg("\"%s\" is not in:\n%s", part, text); }
}

static void lacks(const char *text, const char *part) {
    if (strstr(text, part)) { fail_msg("\"%s\" is in:\n%s", part, text); }
}

/* A matched control that keeps 4% fewer tokens is no equal; thresholds of two score files are both
 * named. */
static void tokens_of_the_matched_control(void **state) {
    (void)state;
    const char *files[3];
    char *summary = NULL;
    static const double taus[3] = {0.895, 0.875, 0.875};
    static const int kept[3] = {25, 25, 26};
    for (int k = 0; k < 3; k++) {
        char name[32];
        snprintf(name, sizeof name, "matched-%d.jsonl", k);
        FILE *f = open_scores(name, &files[k]);
        for (int i = 0; i < 4; i++) {
            line(f, 4 * k + i, "x", "identity", false, 0, 0, 20);
            line(f, 4 * k + i, "x", "table", true, 0, 0.5 + 0.01 * i, 26);
            line(f, 4 * k + i, "x", "matched", true, taus[k], 0.25, kept[k]);
        }
        fclose(f);
    }
    json_t *j = make(files, 2, NULL, &summary);
    has(summary, "better, with 4.0% more tokens kept: " NAME ": +0.2650");
    has(summary, "against identity at the thresholds 0.875 and 0.895 (26.0 and 25.0 tokens per "
                 "layer), 8 held-out prompts");
    lacks(summary, "equal tokens");
    lacks(summary, "one threshold");
    json_t *fair =
        json_array_get(json_object_get(json_object_get(j, "scores"), "at_equal_tokens"), 0);
    has(json_string_value(json_object_get(fair, "base")), "(τ 0.875, 0.895)");
    json_t *both = json_object_get(fair, "base_taus");
    assert_int_equal(json_array_size(both), 2);
    assert_true(json_number_value(json_array_get(both, 0)) == 0.875 &&
                json_number_value(json_array_get(both, 1)) == 0.895);
    json_decref(j);
    free(summary);
    j = make(files + 2, 1, NULL, &summary);
    has(summary, "better: " NAME ", at equal tokens kept: +0.2650");
    has(summary,
        "against identity at one threshold (26.0 and 26.0 tokens per layer), 4 held-out prompts");
    json_decref(j);
    free(summary);
}

/* References are never left out: those with the table's tokens are preferred, what happens to keep
 * as many counts, the rest is marked. */
static void references(void **state) {
    (void)state;
    const char *files[1];
    char *page = NULL, *summary = NULL;
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
    json_t *j = make(files, 1, &page, &summary);
    has(summary,
        "worse than a simple reference: " NAME ", against simple references at as many tokens: ");
    has(summary, "worse than sink-recent, \u22120.2450");
    has(summary, "no difference shown from random, 0.0000");
    has(summary, "; not at equal tokens: recent +0.2550");
    has(summary, "with 19% fewer tokens; 6 prompts. `ckvc score --equal-tokens` gives references "
                 "the table's tokens.");
    lacks(summary, "sink-recent +0.2550");
    json_t *of = json_object_get(j, "scores"), *fair = json_object_get(of, "at_equal_tokens"),
           *other = json_object_get(of, "at_other_tokens");
    assert_int_equal(json_array_size(fair), 2);
    assert_int_equal(json_array_size(other), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(other, 0), "base")),
                        "recent");
    const char *table = strstr(page, "Not at equal tokens: references");
    assert_non_null(table);
    has(table, "better; tokens differ");
    json_decref(j);
    free(page);
    free(summary);
    /* Nothing else there: the line begins with it. */
    f = open_scores("unequal.jsonl", files);
    for (int i = 0; i < 4; i++) {
        line(f, i, "x", "table", true, 0, 0.5 + 0.01 * i, 26);
        line(f, i, "x", "recent", false, 0, 0.75, 32);
    }
    fclose(f);
    j = make(files, 1, NULL, &summary);
    has(summary, "not at equal tokens: " NAME ", against simple references: recent \u22120.2350");
    lacks(summary, "as many tokens");
    lacks(summary, "worse than");
    json_decref(j);
    free(summary);
}

/* Which prompts a gain comes from: the line, the table in sight, the picture, all at equal tokens.
 */
static void where_the_gain_is(void **state) {
    (void)state;
    const char *files[1];
    char *page = NULL, *summary = NULL;
    FILE *f = open_scores("where.jsonl", files);
    for (int i = 0; i < 16; i++) {
        const char *source = i < 6 ? "a" : i < 12 ? "b" : "c-retrieval";
        const double wave = i % 2 ? 1 : -1, gain = i < 6    ? 0.02 + 0.01 * wave
                                                   : i < 12 ? 0.01 * wave
                                                            : 0.5 + 0.1 * wave;
        line(f, i, source, "identity", false, 0, -1, 20);
        line(f, i, source, "table", true, 0, gain, i < 12 ? 25 : 26);
        line(f, i, source, "matched", true, 0.9, 0, 25);
    }
    fclose(f);
    json_t *j = make(files, 1, &page, &summary);
    /* 16 differences: -0.01 three times, 0.01 six times, 0.03 three times, 0.4 and 0.6 twice; 0.6
     * is 28% of their sum, 2.12 */
    has(summary, "better: " NAME ", at equal tokens kept: +0.1325");
    has(summary,
        "16 held-out prompts, 95% interval; median prompt +0.0100, one prompt is 28% of the sum.");
    has(summary, "\nwhere: " NAME ": better on text prompts, +0.0100 (");
    has(summary, "), 25.0 and 25.0 tokens, n 12; undecided on retrieval prompts, +0.5000 (");
    has(summary,
        "), 26.0 and 25.0 tokens (4.0% more tokens), n 4; none of 3 sources is decided alone.\n");
    json_t *fair =
               json_array_get(json_object_get(json_object_get(j, "scores"), "at_equal_tokens"), 0),
           *all = json_object_get(fair, "all");
    assert_float_equal(json_number_value(json_object_get(all, "median")), 0.01, 1e-12);
    assert_float_equal(json_number_value(json_object_get(all, "largest_share")), 0.6 / 2.12, 1e-12);
    assert_int_equal(json_array_size(json_object_get(fair, "kinds")), 2);
    const char *table = strstr(page, "Where the gain is, at equal tokens"),
               *fold = strstr(page, "<details>");
    assert_non_null(table);
    assert_true(fold && table < fold);
    has(table, ">+0.0200 (");
    has(table, "not corrected for the number of parts");
    has(table, ", n 4, 4.0% more tokens<");
    has(page, "all, at equal tokens");
    has(page, "kept 26.0 \u2260 base 25.0 · n 4");
    json_decref(j);
    free(page);
    free(summary);
    /* One kind, three sources, one with too few prompts to be called better: their numbers stand in
     * the line, which says that plain identity is the opponent. */
    f = open_scores("sources.jsonl", files);
    for (int i = 0; i < 24; i++) {
        const char *source = i < 10 ? "a" : i < 20 ? "b" : "c";
        line(f, i, source, "identity", false, 0, 0, 25);
        line(f, i, source, "table", true, 0, (i >= 10 && i < 20 ? -0.5 : 0.02) + 0.01 * (i % 2),
             i >= 10 && i < 20 ? 26 : 25);
    }
    fclose(f);
    j = make(files, 1, NULL, &summary);
    has(summary,
        "where: " NAME ", against plain identity: of single sources better on a +0.0250 (");
    has(summary, ") of 10 prompts; worse on b \u22120.4950 (");
    lacks(summary, "text prompts");
    has(summary, ") of 10 prompts with 4.0% more tokens; undecided on 1.\n");
    json_decref(j);
    free(summary);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_of_the_matched_control),
                                       cmocka_unit_test(references),
                                       cmocka_unit_test(where_the_gain_is)};
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_remove);
}
