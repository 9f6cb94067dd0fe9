/* Averages over tasks, tails, two-level intervals, McNemar's test against SciPy, statsmodels. */
#include "lib/stats/task_scores.h"
#include "tests/unit/golden.h"

enum { REPLICATES = 40000, MOST = 256 };

static void near(double got, double want, double tolerance, const char *what) {
    if (!(fabs(got - want) <= tolerance)) {
        fail_msg("%s: %.17g, wanted %.17g within %g", what, got, want, tolerance);
    }
}

/* Two series, "a" and "b", of a case of the golden file. */
static void draws_of(const json_t *c, task_draws *out) {
    static const char *const keys[2] = {"a", "b"};
    double score[2 * MOST];
    size_t first[16] = {0}, n = 0, t, i;
    json_t *task, *v;
    for (int k = 0; k < 2; k++) {
        json_array_foreach(json_object_get(c, keys[k]), t, task) {
            json_array_foreach(task, i, v) { score[n++] = json_number_value(v); }
            first[t + 1] = k ? first[t + 1] : n;
        }
    }
    *out = task_draws_of(&(task_scores){t, 2, first, score}, REPLICATES, 3);
}

static void near_ends(task_interval got, const json_t *ends, double tolerance, const char *what) {
    near(got.lo, json_number_value(json_array_get(ends, 0)), tolerance, what);
    near(got.hi, json_number_value(json_array_get(ends, 1)), tolerance, what);
}

static void check(const json_t *c, double within) {
    CKVC_AUTO(task_draws_fini) task_draws d;
    draws_of(c, &d);
    const task_interval got[3] = {task_macro(&d, 0, TASK_ALONE), task_tail(&d, 0, TASK_ALONE),
                                  task_macro(&d, 0, 1)};
    static const char *const keys[3] = {"macro", "tail", "difference"};
    const json_t *deviation = json_object_get(c, "deviation");
    for (size_t k = 0; k < 3; k++) {
        const double slack =
            deviation ? within * json_number_value(json_array_get(deviation, k)) : within;
        near(got[k].mean, golden_number(c, keys[k]), 1e-12, keys[k]);
        near_ends(got[k], json_array_get(json_object_get(c, "ends"), k), slack, keys[k]);
    }
}

TEST(whole_distributions) {
    json_auto_t *root = golden_read("tests/golden/tasks/tasks.json");
    json_t *c;
    size_t i;
    json_array_foreach(json_object_get(root, "small"), i, c) { check(c, 1e-9); }
    assert_int_equal(i, 3);
}

TEST(large_sample) {
    json_auto_t *root = golden_read("tests/golden/tasks/tasks.json");
    check(json_object_get(root, "large"), 0.1);
}

TEST(one_task) {
    json_auto_t *root = golden_read("tests/golden/tasks/tasks.json");
    const json_t *c = json_object_get(root, "single"), *v;
    double score[MOST], within = 0.1 * golden_number(c, "deviation");
    size_t n;
    json_array_foreach(json_object_get(c, "a"), n, v) { score[n] = json_number_value(v); }
    CKVC_AUTO(task_draws_fini)
    task_draws d = task_draws_of(&(task_scores){1, 1, (size_t[]){0, n}, score}, REPLICATES, 1);
    const task_interval x = task_macro(&d, 0, TASK_ALONE), tail = task_tail(&d, 0, TASK_ALONE);
    near_ends(x, json_object_get(c, "ends"), within, "one task");
    assert_memory_equal(&x, &tail, sizeof x); /* the tail of one task is the task */
}

/* A replicate is of (seed, its number): more of them do not change the first; no difference of a
 * series with itself; nothing of nothing. */
TEST(draws) {
    const double score[10] = {0, 1, 1, 0.5, 0.25, 1, 1, 0, 0, 1};
    const task_scores s = {2, 2, (size_t[]){0, 2, 5}, score}, none = {0, 1, (size_t[]){0}, NULL};
    CKVC_AUTO(task_draws_fini) task_draws few = task_draws_of(&s, 50, 7);
    CKVC_AUTO(task_draws_fini) task_draws more = task_draws_of(&s, 80, 7);
    CKVC_AUTO(task_draws_fini) task_draws other = task_draws_of(&s, 50, 8);
    CKVC_AUTO(task_draws_fini) task_draws no_task = task_draws_of(&none, 5, 1);
    CKVC_AUTO(task_draws_fini) task_draws alone = task_draws_of(&s, 0, 7);
    assert_memory_equal(few.macro, more.macro, 51 * 2 * sizeof(double));
    assert_memory_equal(few.tail, more.tail, 51 * 2 * sizeof(double));
    assert_memory_not_equal(few.macro, other.macro, 51 * 2 * sizeof(double));
    const task_interval same = task_macro(&few, 1, 1), single = task_macro(&alone, 0, TASK_ALONE);
    assert_true(same.mean == 0 && same.lo == 0 && same.hi == 0);
    assert_true(isnan(task_macro(&no_task, 0, TASK_ALONE).mean));
    assert_true(isnan(task_tail(&no_task, 0, TASK_ALONE).hi));
    assert_true(single.mean == (0.5 + 1.75 / 3) / 2 && isnan(single.lo));
}

TEST(bar) {
    near(task_bar(0.15), 0.235, 1e-15, "bar");
    near(task_bar(NAN), 0.1, 1e-15, "bar");
}

TEST(mcnemar) {
    json_auto_t *root = golden_read("tests/golden/tasks/tasks.json");
    json_t *c;
    size_t i;
    json_array_foreach(json_object_get(root, "mcnemar"), i, c) {
        const uint64_t x = (uint64_t)golden_number(c, "b"), y = (uint64_t)golden_number(c, "c");
        const double want = golden_number(c, "p");
        near(mcnemar_exact(x, y), want, 1e-9 * want, "p");
        assert_true(mcnemar_exact(x, y) == mcnemar_exact(y, x));
    }
    assert_int_equal(i, 11);
}

RUN_TESTS(NULL, NULL)
