/* Scores against the benchmarks' own functions (tests/golden/tasks). */
#include "tests/unit/judge/tasks/task_fixture.h"
#include "tests/unit/golden.h"

static task_metric metric_named(const char *name) {
    for (int m = 0; m < TASK_METRIC_COUNT; m++) {
        if (strcmp(task_metric_name((task_metric)m), name) == 0) { return (task_metric)m; }
    }
    fail_msg("no metric %s", name);
    return TASK_METRIC_COUNT;
}

static size_t texts(const json_t *list, const char **out) {
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) { out[i] = json_string_value(json_array_get(list, i)); }
    return n;
}

TEST(scores_are_the_originals) {
    json_auto_t *cases = golden_read("tests/golden/tasks/metrics.json");
    size_t seen[TASK_METRIC_COUNT] = {0}, i;
    json_t *c;
    json_array_foreach(cases, i, c) {
        const char *expected[8], *classes[16];
        const metric_texts t = {expected, texts(json_object_get(c, "expected"), expected), classes,
                                texts(json_object_get(c, "classes"), classes)};
        const task_metric metric = metric_named(json_string_value(json_object_get(c, "metric")));
        const char *answer = json_string_value(json_object_get(c, "answer"));
        const double got = metric_score(metric, &t, answer), want = golden_number(c, "score");
        if (fabs(got - want) > 1e-12) {
            fail_msg("case %zu: %s of \"%s\": %.17g, not %.17g", i, task_metric_name(metric),
                     answer, got, want);
        }
        seen[metric]++;
    }
    for (int m = 0; m < TASK_METRIC_COUNT; m++) { assert_true(seen[m] >= 5); }
}

TEST(first_line_alone) {
    char right[] = "right", *answers[] = {right};
    const task_item item = {
        .answers = answers, .n_answers = 1, .metric = TASK_MATCH_PART, .first_line = true};
    assert_true(task_score(&item, "\n\nright\nwrong") == 1);
    assert_true(task_score(&item, "wrong\nright") == 0);
}

RUN_TESTS(NULL, NULL)
