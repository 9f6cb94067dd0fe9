/* Rankings that are one for all heads, on cases small enough to be done by hand. What they keep on
 * a model's prompts is compared with numpy in tests/python/test_score_policies.py. */
#include "judge/policies/rules/rule.h"
#include "tests/unit/unit.h"

static void rank(policy_kind kind, uint32_t T, uint32_t window, const float *alpha, uint64_t seed,
                 const char *id, double *u) {
    const rank_ask ask = {
        .n_tokens = T, .window = window, .alpha = alpha, .seed = seed, .prompt_id = id};
    policy_rule_of(kind)->rank(&ask, u);
}

static void check_kept(policy_kind kind, uint32_t T, uint32_t window, const float *alpha,
                       uint32_t n, const char *want) {
    double u[16];
    uint32_t kept[16], scratch[16], n_candidates;
    char got[64] = "";
    rank(kind, T, window, alpha, 1, "p", u);
    n = ckvc_retain(T, u, (ckvc_rule){-INFINITY, n, 0}, kept, &n_candidates, scratch);
    assert_int_equal(n_candidates, T);
    for (uint32_t i = 0; i < n; i++) { sprintf(got + strlen(got), "%s%u", i ? " " : "", kept[i]); }
    if (strcmp(got, want) != 0) {
        fail_msg("%s, %u of %u: kept '%s', wanted '%s'", policy_kind_name(kind), n, T, got, want);
    }
}

TEST(references) {
    /*                          0    1    2    3    4    5    6    7    8    9   10   11  */
    static const float a[12] = {.1f, .2f, .9f, .1f, .1f, .1f, .1f, .1f, .1f, .5f, 3.f, .0f};
    check_kept(POLICY_RECENT, 12, 2, a, 3, "9 10 11");
    check_kept(POLICY_RECENT, 12, 2, a, 0, "");
    check_kept(POLICY_SINK_RECENT, 12, 2, a, 6, "0 1 2 3 10 11");
    check_kept(POLICY_SINK_RECENT, 12, 2, a, 4, "0 1 2 3");
    check_kept(POLICY_SINK_RECENT, 12, 2, a, 2, "0 1");
    check_kept(POLICY_SINK_RECENT, 12, 2, a, 12, "0 1 2 3 4 5 6 7 8 9 10 11");
    check_kept(POLICY_WINDOW, 12, 2, a, 4, "1 2 9 10");
    check_kept(POLICY_WINDOW, 12, 2, a, 6, "1 2 7 8 9 10"); /* of the equal ones the later */
    /* Before the window 10, 11: 0.9 reaches 0 to 5, 0.5 6 to 9; the 3.0 inside it nobody. */
    check_kept(POLICY_WINDOW_POOLED, 12, 2, a, 1, "11");
    check_kept(POLICY_WINDOW_POOLED, 12, 2, a, 4, "4 5 10 11");
    check_kept(POLICY_WINDOW_POOLED, 12, 2, a, 9, "0 1 2 3 4 5 9 10 11");
    check_kept(POLICY_WINDOW_POOLED, 3, 8, a, 2, "1 2"); /* a prompt within the window */
    /* An order by name and seed: the same again, nested, another for others. */
    double first[12], again[12], other[12], seeded[12];
    rank(POLICY_RANDOM, 12, 2, a, 1, "p", first);
    rank(POLICY_RANDOM, 12, 2, a, 1, "p", again);
    rank(POLICY_RANDOM, 12, 2, a, 1, "q", other);
    rank(POLICY_RANDOM, 12, 2, a, 2, "p", seeded);
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
    assert_memory_not_equal(first, seeded, sizeof first);
}

/* Every position is drawn as often as any other: 3 of 8, over 4,000 prompts. */
TEST(random_is_fair) {
    enum { PROMPTS = 4000, T = 8, N = 3 };
    uint32_t count[T] = {0}, kept[T], scratch[T], n_candidates;
    for (int i = 0; i < PROMPTS; i++) {
        double u[T];
        CKVC_AUTO_FREE char *id = ckvc_format("prompt %d", i);
        rank(POLICY_RANDOM, T, 1, NULL, 1, id, u);
        const uint32_t n =
            ckvc_retain(T, u, (ckvc_rule){-INFINITY, N, 0}, kept, &n_candidates, scratch);
        assert_int_equal(n, N);
        for (uint32_t k = 0; k < n; k++) { count[kept[k]]++; }
    }
    const double p = (double)N / T, sd = sqrt(PROMPTS * p * (1 - p));
    for (int t = 0; t < T; t++) { assert_true(fabs(count[t] - PROMPTS * p) < 4.5 * sd); }
}

RUN_TESTS(NULL, NULL)
