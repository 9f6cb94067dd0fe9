/* The fit of one state, against tests/golden/method/cql.json (its README states the tolerances) and
 * against what it promises: certificates, limits in alpha. */
#include "cql/solve/cql.h"
#include "lib/base/names.h"
#include "tests/unit/golden.h"

#define GOLDEN "tests/golden/method/cql.json"

static size_t reals(const json_t *array, double *out, double null_value) {
    size_t n = json_array_size(array);
    for (size_t i = 0; i < n; ++i) {
        const json_t *v = json_array_get(array, i);
        out[i] = json_is_null(v) ? null_value : json_number_value(v);
    }
    return n;
}

static double at(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

TEST(exact_solution_agrees_with_golden) {
    json_auto_t *root = golden_read(GOLDEN);
    double grid[CKVC_HEAD_ACTIONS];
    for (int a = 0; a < CKVC_HEAD_ACTIONS; ++a) { grid[a] = ckvc_head_action(a); }
    size_t i, j, fits = 0;
    json_t *s, *fit;
    json_array_foreach(json_object_get(root, "states"), i, s) {
        double rbar[64], want[64], got[64], counts[64];
        uint64_t n[64];
        size_t A = reals(json_object_get(s, "n"), counts, 0.0);
        const char *name = json_string_value(json_object_get(s, "name"));
        reals(json_object_get(s, "rbar"), rbar, 0.0);
        double size = 1.0;
        for (size_t a = 0; a < A; ++a) {
            n[a] = (uint64_t)counts[a];
            size = fmax(size, fabs(rbar[a]));
        }
        double tolerance = strstr(name, "six decades") ? 1e-9 : 1e-10 * size;
        json_array_foreach(json_object_get(s, "fits"), j, fit) {
            double alpha = at(fit, "alpha");
            cql_certificate cert;
            reals(json_object_get(fit, "Q"), want, -INFINITY);
            if (!cql_solve_exact(A, n, rbar, alpha, got, &cert) || cert.iterations > 30 ||
                cert.gradient > 1e-10 * size) {
                fail_msg("%s, alpha %g: certificate %g after %d", name, alpha, cert.gradient,
                         cert.iterations);
            }
            for (size_t a = 0; a < A; ++a) {
                if (!(isinf(want[a]) ? got[a] == want[a] : fabs(got[a] - want[a]) <= tolerance)) {
                    fail_msg("%s, alpha %g, action %zu: got %.17g, want %.17g", name, alpha, a,
                             got[a], want[a]);
                }
            }
            assert_int_equal(cql_choose(&(ckvc_actions){.n = A}, got), (int)at(fit, "argmax_gate"));
            if (A == CKVC_HEAD_ACTIONS) {
                assert_int_equal(cql_choose(&(ckvc_actions){A, grid, 1.0}, got),
                                 (int)at(fit, "argmax_head"));
            }
            fits++;
        }
    }
    assert_int_equal(fits, 33 * 4);
}

/* On unit scale, a fit's, a few evaluations suffice; a wide range costs a few more. */
TEST(few_steps_at_any_scale) {
    static const struct {
        double scale;
        int most;
    } cases[] = {{1e-4, 4}, {0.1, 4}, {1.0, 4}, {3.0, 5}, {1000.0, 20}};
    static const double alphas[] = {0.01, 0.1, 0.75, 5.0, 100.0};
    ckvc_rng rng = rng_of(3, 1, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        for (int k = 0; k < 3000; ++k) {
            uint64_t n[CKVC_HEAD_ACTIONS];
            double rbar[CKVC_HEAD_ACTIONS], q[CKVC_HEAD_ACTIONS], size = 1.0;
            double alpha = alphas[k % 5];
            for (int a = 0; a < CKVC_HEAD_ACTIONS; ++a) {
                n[a] = k % 3 == 0   ? 100
                       : k % 3 == 1 ? ckvc_rng_below(&rng, 200)
                                    : (uint64_t)exp(14.0 * ckvc_rng_double(&rng));
                rbar[a] = 0.0;
                for (int j = 0; j < 4; ++j) {
                    rbar[a] += 1.7 * cases[i].scale * (ckvc_rng_double(&rng) - 0.5);
                }
                size = fmax(size, fabs(rbar[a]));
            }
            cql_certificate cert;
            if (!cql_solve_exact(CKVC_HEAD_ACTIONS, n, rbar, alpha, q, &cert) ||
                cert.gradient > 1e-11 * size || cert.iterations > cases[i].most) {
                fail_msg("scale %g, alpha %g, state %d: %d steps, certificate %g", cases[i].scale,
                         alpha, k, cert.iterations, cert.gradient);
            }
        }
    }
}

static void order_of_golden(const void *ctx, uint32_t epoch, uint32_t *order, size_t n) {
    const json_t *list = json_array_get(ctx, epoch);
    assert_int_equal(json_array_size(list), n);
    for (size_t i = 0; i < n; ++i) {
        order[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    }
}

TEST(adamw_agrees_with_golden) {
    json_auto_t *root = golden_read(GOLDEN);
    json_t *run;
    size_t k;
    json_array_foreach(json_object_get(root, "adamw"), k, run) {
        size_t S = (size_t)at(run, "S"), A = (size_t)at(run, "A");
        const json_t *list = json_object_get(run, "records"),
                     *betas = json_object_get(run, "betas");
        size_t n = json_array_size(list);
        cql_record records[1000];
        for (size_t i = 0; i < n; ++i) {
            const json_t *r = json_array_get(list, i);
            records[i] = (cql_record){(uint32_t)json_integer_value(json_array_get(r, 0)),
                                      (uint32_t)json_integer_value(json_array_get(r, 1)),
                                      json_number_value(json_array_get(r, 2))};
        }
        cql_adamw_options o = {.cql_alpha = at(run, "alpha"),
                               .lr = at(run, "lr"),
                               .weight_decay = at(run, "weight_decay"),
                               .beta1 = json_number_value(json_array_get(betas, 0)),
                               .beta2 = json_number_value(json_array_get(betas, 1)),
                               .eps = at(run, "eps"),
                               .batch = (uint32_t)at(run, "batch"),
                               .epochs = (uint32_t)at(run, "epochs")};
        double q[1000];
        OK(cql_adamw(&(cql_records){records, n, S, A}, &o,
                     (cql_shuffle){order_of_golden, json_object_get(run, "order")}, q, &err));
        for (size_t i = 0; i < S * A; ++i) {
            double want = json_number_value(
                json_array_get(json_array_get(json_object_get(run, "Q"), i / A), i % A));
            if (!(fabs(q[i] - want) <= 1e-9)) {
                fail_msg("run %zu, state %zu, action %zu: got %.17g, want %.17g", k, i / A, i % A,
                         q[i], want);
            }
        }
    }
}

TEST(seeded_order_is_a_permutation_of_its_own_for_each_epoch) {
    enum { N = 1000 };
    uint32_t a[N], b[N], again[N];
    bool seen[N] = {false};
    uint64_t seed = 5;
    cql_seeded_order(&seed, 0, a, N);
    cql_seeded_order(&seed, 1, b, N);
    cql_seeded_order(&seed, 0, again, N);
    assert_memory_equal(a, again, sizeof a);
    assert_memory_not_equal(a, b, sizeof a);
    for (int i = 0; i < N; ++i) {
        assert_false(seen[a[i]]);
        seen[a[i]] = true;
    }
}

TEST(omega_solves_its_equation) {
    for (double x = -60.0; x < 2000.0; x += 0.137) {
        double w = cql_omega(x);
        assert_true(w >= 0.0);
        if (x > -40.0) { /* below, ln w loses what w + ln w = x needs */
            assert_true(fabs(w + log(w) - x) <= 4e-15 * (1.0 + fabs(x)));
        } else {
            assert_true(fabs(w / exp(x) - 1.0) <= 1e-14);
        }
    }
    assert_true(fabs(cql_omega(1.0) - 1.0) < 1e-15);
    assert_true(fabs(cql_omega(0.0) - 0.56714329040978387) < 1e-15); /* the omega constant */
    assert_true(cql_omega(-800.0) == 0.0);
    assert_true(cql_omega(1e30) == 1e30);
}

typedef struct problem {
    size_t A;
    uint64_t n[CKVC_HEAD_ACTIONS];
    double rbar[CKVC_HEAD_ACTIONS];
} problem;

static problem random_problem(uint64_t seed, double scale, double decades) {
    ckvc_rng rng = rng_of(seed, 1, 2);
    problem p = {.A = 2 + ckvc_rng_below(&rng, CKVC_HEAD_ACTIONS - 1)};
    for (size_t a = 0; a < p.A; ++a) {
        p.n[a] = 1 + (uint64_t)pow(10.0, decades * ckvc_rng_double(&rng));
        p.rbar[a] = scale * (2.0 * ckvc_rng_double(&rng) - 1.0);
    }
    return p;
}

TEST(wide_ranges_are_certified) {
    const double scales[] = {1e-12, 1e-4, 1, 1e2, 1e4, 1e6}, alphas[] = {1e-6, 0.01, 0.1, 0.75, 5};
    for (uint64_t k = 0; k < 40; ++k) {
        for (size_t i = 0; i < sizeof scales / sizeof *scales; ++i) {
            for (size_t j = 0; j < sizeof alphas / sizeof *alphas; ++j) {
                problem p = random_problem(k, scales[i], 6.0);
                for (size_t a = 0; a < p.A; ++a) {
                    p.rbar[a] += scales[i] * 0.5; /* an offset is no difficulty of its own */
                }
                double q[CKVC_HEAD_ACTIONS], mean = 0.0, mean_q = 0.0, total = 0.0;
                cql_certificate cert;
                if (!cql_solve_exact(p.A, p.n, p.rbar, alphas[j], q, &cert) ||
                    cert.iterations > 30) {
                    fail_msg("state %d, scale %g, alpha %g: certificate %g after %d", (int)k,
                             scales[i], alphas[j], cert.gradient, cert.iterations);
                }
                for (size_t a = 0; a < p.A; ++a) {
                    mean += (double)p.n[a] * p.rbar[a];
                    mean_q += (double)p.n[a] * q[a];
                    total += (double)p.n[a];
                }
                assert_true(fabs(mean - mean_q) / total <= 1e-11 * fmax(1.0, scales[i]));
            }
        }
    }
}

/* The gap of Q between a rare and a frequent action of equal mean grows with alpha, from 0. */
TEST(pessimism_grows_with_alpha) {
    uint64_t n[3] = {1, 100, 100};
    double rbar[3] = {0.25, 0.25, 0.2}, q[3], last = 0.0;
    cql_certificate cert;
    const double alphas[] = {0.0, 0.05, 0.1, 0.5, 0.75, 1.5, 5.0};
    for (size_t i = 0; i < sizeof alphas / sizeof *alphas; ++i) {
        assert_true(cql_solve_exact(3, n, rbar, alphas[i], q, &cert));
        double gap = q[1] - q[0];
        assert_true(i == 0 ? gap == 0.0 : gap > last);
        last = gap;
    }
}

/* paper.md section 5: with equal counts the order of Q is that of the means, for every alpha. */
TEST(equal_counts_keep_the_order_of_means) {
    for (uint64_t k = 0; k < 200; ++k) {
        problem p = random_problem(k, k % 2 ? 1e-3 : 1.0, 0.0);
        for (size_t a = 0; a < p.A; ++a) { p.n[a] = 40; }
        double q[CKVC_HEAD_ACTIONS];
        cql_certificate cert;
        assert_true(cql_solve_exact(p.A, p.n, p.rbar, 0.05 + (double)(k % 7), q, &cert));
        for (size_t a = 0; a < p.A; ++a) {
            for (size_t b = 0; b < p.A; ++b) {
                if (p.rbar[a] > p.rbar[b] + 1e-9) { assert_true(q[a] > q[b]); }
            }
        }
    }
}

TEST(bad_numbers_are_no_solution) {
    uint64_t n[2] = {3, 4};
    double rbar[2] = {0.0, NAN}, q[2];
    cql_certificate cert;
    assert_false(cql_solve_exact(2, n, rbar, 0.75, q, &cert));
    rbar[1] = INFINITY;
    assert_false(cql_solve_exact(2, n, rbar, 0.75, q, &cert));
    rbar[1] = 0.0;
    assert_false(cql_solve_exact(2, n, rbar, -1.0, q, &cert));
    n[1] = 0;
    rbar[1] = NAN; /* never logged: not looked at */
    assert_true(cql_solve_exact(2, n, rbar, 0.75, q, &cert));
    assert_true(fabs(q[0]) < 1e-15 && q[1] == -INFINITY);
}

RUN_TESTS(NULL, NULL)
