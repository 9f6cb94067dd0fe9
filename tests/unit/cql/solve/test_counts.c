/* Sufficient statistics: exact in any order; resampling over prompts as distributed. */
#include "tests/unit/cql/cql_fixture.h"

#define LIMIT ((size_t)1 << 28)

static cql_counts *make(size_t S, size_t A, uint32_t R) {
    cql_counts *c = cql_counts_create(S, A);
    OK(cql_counts_resample(c, R, RESAMPLE_BOOTSTRAP, 4, LIMIT, &err));
    return c;
}

static bool better(const cql_counts *c, size_t state, int chosen, int other) {
    const cql_resampled s = cql_counts_resampled(c, 1.0);
    return cql_lower_bound(&s, state, chosen, other, NULL) > 0.0;
}

static void add(cql_counts *c, size_t s, size_t a, double reward, double part) {
    OK(cql_counts_add(c, s, a, reward, part, &err));
}

/* 24 prompts whose rewards differ by prompt: as their own they show that action 1 is better; as
 * three of each of eight documents that agree they do not, and of four they may say nothing,
 * whatever other states have. */
TEST(documents_are_drawn_whole) {
    double bound[4];
    for (int kind = 0; kind < 4; kind++) {
        CKVC_AUTO(cql_counts_free_at) cql_counts *c = make(2, 2, 200);
        const int each = kind == 0 ? 1 : kind == 1 ? 3 : 6;
        for (int p = 0; p < 24; p++) {
            cql_counts_prompt(c, numbered("p", p / each));
            add(c, 0, 0, 0, 0);
            add(c, 0, 1, p / 3 % 8 < 6 ? 0.3 : -0.3, 0);
        }
        assert_int_equal(cql_counts_clusters(c), 24 / each);
        for (int p = 0; kind == 3 && p < 24; p++) {
            cql_counts_prompt(c, numbered("other ", p));
            add(c, 1, 1, 0.1, 0);
        }
        const cql_resampled s = cql_counts_resampled(c, 1.0);
        bound[kind] = cql_lower_bound(&s, 0, 1, 0, NULL);
    }
    assert_true(bound[0] > 0 && bound[1] < 0 && isfinite(bound[1]) && bound[2] == -INFINITY);
    assert_true(bound[3] == -INFINITY);
}

/* 60 prompts with records of two states, in one order and in the reverse: the same bits. */
TEST(order_never_shows) {
    enum { S = 2, A = 3, R = 16, P = 60 };
    cql_counts *both[2];
    for (int k = 0; k < 2; ++k) {
        both[k] = make(S, A, R);
        for (int i = 0; i < P; ++i) {
            int p = k == 0 ? i : P - 1 - i;
            const char *id = numbered("prompt ", p);
            ckvc_rng rng = rng_of(1, ckvc_rng_key(id), 0);
            cql_counts_prompt(both[k], id);
            for (size_t cell = 0; cell < S * A; ++cell) {
                double r = exp(20.0 * ckvc_rng_double(&rng) - 12.0) * (p % 2 ? 1.0 : -1.0);
                add(both[k], cell / A, cell % A, r, 0.3 * r);
            }
        }
    }
    assert_true(cql_counts_sd(both[0], false) == cql_counts_sd(both[1], false));
    assert_true(cql_counts_sd(both[0], true) == cql_counts_sd(both[1], true));
    assert_int_equal(cql_counts_records(both[0]), P * S * A);
    for (size_t i = 0; i < S * (R + 1); ++i) { /* each state, and each replicate of it */
        uint64_t n[2][A];
        double mean[2][A], part[2][A] = {{0}};
        const size_t s = i % S, r = i / S;
        for (int k = 0; k < 2; ++k) {
            r < R ? cql_counts_replicate(both[k], (uint32_t)r, s, 1.0, n[k], mean[k])
                  : cql_counts_state(both[k], s, 0.7, n[k], mean[k], part[k]);
        }
        assert_true(r < R || n[0][0] == P);
        assert_memory_equal(n[0], n[1], sizeof n[0]);
        assert_memory_equal(mean[0], mean[1], sizeof mean[0]);
        assert_memory_equal(part[0], part[1], sizeof part[0]);
    }
    cql_counts_free(both[0]), cql_counts_free(both[1]);
}

TEST(moments_are_those_of_the_records) {
    CKVC_AUTO(cql_counts_free_at) cql_counts *c = make(1, 2, 0);
    const double r[4] = {0.5, -0.25, 1e-7, 0.125};
    uint64_t n[2];
    double mean[2], part[2];
    assert_true(cql_counts_sd(c, false) == 0.0);
    cql_counts_prompt(c, "a");
    for (int i = 0; i < 4; ++i) { add(c, 0, 1, r[i], 2.0 * r[i]); }
    cql_counts_state(c, 0, 0.5, n, mean, part);
    assert_true(n[0] == 0 && mean[0] == 0.0 && n[1] == 4);
    double sum = (r[0] + r[1] + r[2] + r[3]) / 4.0, square = 0.0;
    for (int i = 0; i < 4; ++i) { square += r[i] * r[i]; }
    assert_true(fabs(mean[1] - sum / 0.5) < 1e-15);
    assert_true(fabs(part[1] - 2.0 * sum / 0.5) < 1e-15);
    assert_true(fabs(cql_counts_sd(c, false) - sqrt(square / 4.0 - sum * sum)) < 1e-15);
    assert_true(fabs(cql_counts_sd(c, true) - 2.0 * sqrt(square / 4.0 - sum * sum)) < 1e-15);
}

TEST(equal_rewards_have_no_deviation) {
    CKVC_AUTO(cql_counts_free_at) cql_counts *c = make(1, 1, 0);
    cql_counts_prompt(c, "a");
    for (int i = 0; i < 1000; ++i) { add(c, 0, 0, 0.1, 1234.1); }
    assert_true(cql_counts_sd(c, false) == 0.0);
    assert_true(cql_counts_sd(c, true) == 0.0);
}

TEST(rewards_out_of_range_are_refused) {
    CKVC_AUTO(cql_counts_free_at) cql_counts *c = make(1, 1, 0);
    const double bad[] = {NAN, INFINITY, -INFINITY, 1e300, 16385.0};
    cql_counts_prompt(c, "a");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
        FAILS(cql_counts_add(c, 0, 0, bad[i], 0.0, &err), CKVC_E_DATA);
        assert_int_equal(cql_counts_add(c, 0, 0, 0.0, bad[i], NULL), CKVC_E_DATA);
    }
    assert_int_equal(cql_counts_records(c), 0);
}

TEST(memory_has_a_cap) {
    CKVC_AUTO(cql_counts_free_at) cql_counts *c = cql_counts_create(1000, 29);
    SAYS(cql_counts_resample(c, 100000, RESAMPLE_BOOTSTRAP, 0, LIMIT, &err), CKVC_E_MEMORY,
         "at most");
    assert_int_equal(cql_counts_resample(c, UINT32_MAX, RESAMPLE_BOOTSTRAP, 0, LIMIT, NULL),
                     CKVC_E_MEMORY);
    OK(cql_counts_resample(c, 0, RESAMPLE_BOOTSTRAP, 0, 0, NULL));
}

/* A prompt's weight has mean 1 and variance 1, the same in every state and object of one seed. */
TEST(bootstrap_weights_are_poisson) {
    enum { R = 200, P = 50 };
    CKVC_AUTO(cql_counts_free_at) cql_counts *c = make(P, 1, R), *twin = make(1, 1, R);
    double sum = 0.0, square = 0.0, mean;
    uint64_t n, m;
    for (int p = 0; p < P; ++p) {
        cql_counts_prompt(c, numbered("", p));
        add(c, (size_t)p, 0, 0.1, 0.1);
    }
    cql_counts_prompt(twin, "17");
    add(twin, 0, 0, 0.1, 0.1);
    for (size_t p = 0; p < P; ++p) {
        for (uint32_t r = 0; r < R; ++r) {
            cql_counts_replicate(c, r, p, 1.0, &n, &mean);
            assert_true(n == 0 ? mean == 0.0 : fabs(mean - 0.1) < 1e-15);
            sum += (double)n;
            square += (double)n * (double)n;
            if (p == 17) {
                cql_counts_replicate(twin, r, 0, 1.0, &m, &mean);
                assert_int_equal(n, m);
            }
        }
    }
    const double average = sum / (P * R);
    assert_true(fabs(average - 1.0) < 0.05); /* standard error 0.01 */
    assert_true(fabs(square / (P * R) - average * average - 1.0) < 0.1);
}

TEST(halves_are_complements) {
    enum { R = 40, P = 100 };
    CKVC_AUTO(cql_counts_free_at) cql_counts *c = cql_counts_create(1, 1);
    OK(cql_counts_resample(c, R, RESAMPLE_HALVES, 4, LIMIT, &err));
    for (int p = 0; p < P; ++p) {
        cql_counts_prompt(c, numbered("", p));
        add(c, 0, 0, 0.01 * p, 0.0);
    }
    uint64_t all, a, b;
    double mean, mean_a, mean_b;
    cql_counts_state(c, 0, 1.0, &all, &mean, NULL);
    for (uint32_t k = 0; k < R / 2; ++k) {
        cql_counts_replicate(c, 2 * k, 0, 1.0, &a, &mean_a);
        cql_counts_replicate(c, 2 * k + 1, 0, 1.0, &b, &mean_b);
        assert_int_equal(a + b, all);
        assert_true(a > 25 && b > 25);
        assert_true(fabs((double)a * mean_a + (double)b * mean_b - (double)all * mean) < 1e-12);
    }
}

/* One of five actions is truly better: with many prompts every refit finds it, as shares say. */
TEST(shares_tell_certain_from_uncertain) {
    enum { A = 5, R = 100 };
    const double gaps[2] = {1.0, 0.0};
    for (int k = 0; k < 2; ++k) {
        CKVC_AUTO(cql_counts_free_at) cql_counts *c = make(1, A, R);
        ckvc_rng rng = rng_of(21, 0, 0);
        for (int p = 0; p < 200; ++p) {
            cql_counts_prompt(c, numbered("", p));
            for (size_t a = 0; a < A; ++a) {
                double r = gauss(&rng) + (a == 3 ? gaps[k] : 0.0);
                add(c, 0, a, r, r);
            }
        }
        const cql_resampled s = cql_counts_resampled(c, 1.0);
        const ckvc_actions gate = {.n = A};
        uint16_t choices[R];
        float share[A], total = 0.0f;
        OK(cql_resampled_choices(&s, &gate, 0.75, choices, &err));
        cql_choice_shares(choices, R, 1, A, share);
        for (size_t a = 0; a < A; ++a) { total += share[a]; }
        assert_true(fabsf(total - 1.0f) < 1e-6f);
        if (k == 0) {
            assert_true(share[3] > 0.99f && better(c, 0, 3, 0) && better(c, 0, 3, -1));
        } else {
            assert_true(share[3] < 0.95f);
        }
        assert_false(better(c, 0, 0, 3));
    }
}

TEST(few_prompts_prove_nothing) {
    CKVC_AUTO(cql_counts_free_at) cql_counts *c = make(1, 2, 100);
    for (int p = 0; p < RESAMPLE_MIN_PROMPTS; ++p) {
        assert_false(better(c, 0, 1, 0));
        cql_counts_prompt(c, numbered("", p));
        add(c, 0, 0, 0.0, 0.0);
        add(c, 0, 1, 1.0, 1.0);
    }
    assert_true(better(c, 0, 1, 0));
}

RUN_TESTS(NULL, NULL)
