/* See stability.h. */
#include "cql/stats/stability.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cql/solve/cql.h"
#include "cql/stats/rank.h"
#include "lib/base/memory.h"
#include "lib/base/rng.h"

#define STAGE_SUBSET 0x73750000u /* of the RNG's stream of random sets of prompts */

ckvc_status stability_spread_of(const double *values, size_t n, stability_spread *out,
                                ckvc_err *err) {
    static const double points[2] = {0.025, 0.975};
    *out = (stability_spread){NAN, NAN, NAN, 0};
    double *defined = ckvc_alloc(n, sizeof *defined), sum = 0.0, ends[2];
    size_t k = 0;
    for (size_t i = 0; i < n; ++i) {
        if (isfinite(values[i])) {
            defined[k++] = values[i];
            sum += values[i];
        }
    }
    ckvc_status st = k > 0 ? rank_quantile(defined, k, points, 2, ends, err) : CKVC_OK;
    if (st == CKVC_OK && k > 0) { *out = (stability_spread){sum / (double)k, ends[0], ends[1], k}; }
    free(defined);
    return st;
}

double stability_spearman_brown(double rho) {
    return rho > 0.0 ? 2.0 * rho / (1.0 + rho) : rho;
}

void stability_correct(stability_spread *halves) {
    halves->mean = stability_spearman_brown(halves->mean);
    halves->lo = stability_spearman_brown(halves->lo);
    halves->hi = stability_spearman_brown(halves->hi);
}

double stability_ceiling(double reliability_a, double reliability_b) {
    return reliability_a > 0.0 && reliability_b > 0.0 ? sqrt(reliability_a * reliability_b) : NAN;
}

/* Spearman between two tables [S], mean over budgets where defined; NaN when there is none. */
static double agreement(size_t n_states, size_t n_budgets, const double *x, const double *y) {
    double *picked = ckvc_alloc(2 * n_states, sizeof *picked), sum = 0.0;
    if (picked == NULL) { return NAN; }
    size_t defined = 0;
    for (size_t b = 0; b < n_budgets; ++b) {
        size_t k = 0;
        for (size_t i = b; i < n_states; i += n_budgets) {
            picked[k] = x[i];
            picked[n_states + k++] = y[i];
        }
        double rho = rank_spearman(picked, picked + n_states, k);
        if (isfinite(rho)) {
            sum += rho;
            defined++;
        }
    }
    free(picked);
    return defined > 0 ? sum / (double)defined : NAN;
}

/* A random order of the prompts: the same for the same (seed, repeat). */
static void shuffled(const cql_logged *l, uint64_t seed, uint32_t repeat, uint32_t *order) {
    ckvc_rng rng;
    ckvc_rng_init(&rng, seed, repeat, STAGE_SUBSET);
    for (size_t p = 0; p < l->n_prompts; ++p) {
        order[p] = (uint32_t)p;
    }
    ckvc_rng_shuffle_u32(&rng, order, l->n_prompts);
}

static void only(uint8_t *weight, size_t n_prompts, const uint32_t *order, size_t n) {
    memset(weight, 0, n_prompts);
    for (size_t i = 0; i < n; ++i) {
        weight[order[i]] = 1;
    }
}

/* values [S] of the table fitted from a subset; adds its records and supported states to the
 * counters. */
static ckvc_status table_of(const stability_side *s, const cql_subset *of, double *values,
                            double *records, double *supported, ckvc_err *err) {
    uint64_t n[CQL_MAX_ACTIONS];
    double mean[CQL_MAX_ACTIONS];
    for (size_t i = 0; i < s->l->n_states; ++i) {
        int a = -1;
        if (cql_logged_state(s->l, i, of, s->fit.reward, s->fit.scale, n, mean) > 0) {
            a = cql_choice(s->l->n_actions, n, mean, s->fit.cql_alpha, s->fit.head_grid);
            if (a < -1) {
                return ckvc_fail(err, CKVC_E_BUG, "state %zu: the exact solver failed", i);
            }
            for (size_t k = 0; k < s->l->n_actions; ++k) {
                *records += (double)n[k];
            }
            *supported += 1.0;
        }
        values[i] = s->grid[a < 0 ? s->incoming[i] : a];
    }
    return CKVC_OK;
}

ckvc_status stability_curve_point(const stability_side *s, size_t n, double keep, uint32_t repeats,
                                  uint64_t seed, stability_point *out, ckvc_err *err) {
    size_t N = s->l->n_prompts, S = s->l->n_states;
    bool halves = 2 * n > N;
    size_t each = halves ? n / 2 : n;
    *out = (stability_point){.prompts = n, .keep = keep, .corrected = halves};
    double *full = ckvc_alloc(4 * S, sizeof *full), *x = full + S, *y = full + 2 * S,
           *z = full + 3 * S;
    double *rho = ckvc_alloc(2 * (size_t)repeats, sizeof *rho), *to_full = rho + repeats;
    uint32_t *order = ckvc_alloc(N, sizeof *order);
    uint8_t *weight = ckvc_alloc(N, 1);
    double records = 0.0, supported = 0.0, ignored = 0.0;
    ckvc_status st = CKVC_OK;
    st = table_of(s, &cql_all, full, &ignored, &ignored, err);
    for (uint32_t r = 0; r < repeats && st == CKVC_OK; ++r) {
        cql_subset of = {weight, keep, seed ^ (uint64_t)r << 32};
        rho[r] = to_full[r] = NAN;
        shuffled(s->l, seed, r, order);
        only(weight, N, order, each);
        double r_one = 0.0, s_one = 0.0;
        st = each > 0 ? table_of(s, &of, x, &r_one, &s_one, err) : CKVC_OK;
        if (st == CKVC_OK && each > 0) {
            only(weight, N, order + each, each);
            st = table_of(s, &of, y, &ignored, &ignored, err);
            rho[r] = agreement(S, s->n_budgets, x, y);
        }
        if (st == CKVC_OK && halves) {
            only(weight, N, order, n);
            r_one = s_one = 0.0;
            st = table_of(s, &of, z, &r_one, &s_one, err);
        }
        records += r_one;
        supported += s_one;
        if (st == CKVC_OK) { to_full[r] = agreement(S, s->n_budgets, halves ? z : x, full); }
    }
    out->records = records / repeats;
    out->supported = supported / (double)S / repeats;
    if (st == CKVC_OK) { st = stability_spread_of(rho, repeats, &out->rho, err); }
    if (halves) { stability_correct(&out->rho); }
    if (st == CKVC_OK) { st = stability_spread_of(to_full, repeats, &out->to_full, err); }
done:
    free(full);
    free(rho);
    free(order);
    free(weight);
    return st;
}

ckvc_status stability_left_out(const stability_side *s, size_t n, uint32_t repeats, uint64_t seed,
                               double *gain, ckvc_err *err) {
    const cql_logged *l = s->l;
    size_t N = l->n_prompts, A = l->n_actions;
    uint32_t *order = ckvc_alloc(N, sizeof *order);
    uint8_t *weight = ckvc_alloc(N, 1);
    double *sum = ckvc_calloc(3 * N, sizeof *sum), *blocks = sum + N, *times = sum + 2 * N;
    ckvc_status st = CKVC_OK;
    for (size_t p = 0; p < N; ++p) {
        gain[p] = 0.0;
    }
    for (uint32_t r = 0; r < repeats && st == CKVC_OK; ++r) {
        const cql_subset of = {weight, 1.0, 0};
        shuffled(l, seed, r, order);
        only(weight, N, order, n);
        memset(sum, 0, 2 * N * sizeof *sum);
        for (size_t i = 0; i < l->n_states && st == CKVC_OK; ++i) {
            int a = cql_logged_choice(l, i, &of, &s->fit);
            if (a < -1) {
                st = ckvc_fail(err, CKVC_E_BUG, "state %zu: the exact solver failed", i);
            }
            for (size_t k = l->first[i]; k < l->first[i + 1]; ++k) {
                size_t at = (size_t)l->order[k] * A + (size_t)(a < 0 ? 0 : a);
                uint32_t p = l->blocks[l->order[k]].prompt;
                if (weight[p] || (a >= 0 && a != s->incoming[i] && l->n[at] == 0)) {
                    continue; /* fitted from it, or it never tried the action */
                }
                sum[p] += a < 0 || a == s->incoming[i] ? 0.0 : l->sum[at] / l->n[at];
                blocks[p] += 1.0;
            }
        }
        for (size_t p = 0; p < N; ++p) {
            if (blocks[p] > 0.0) {
                gain[p] += sum[p] / blocks[p];
                times[p] += 1.0;
            }
        }
    }
    for (size_t p = 0; p < N; ++p) {
        gain[p] = times[p] > 0.0 ? gain[p] / times[p] : NAN;
    }
done:
    free(order);
    free(weight);
    free(sum);
    return st;
}

/* Orders the logged actions of one state by mean, best first; equal means by number. */
static void by_mean(size_t A, const double *mean, uint32_t *rank) {
    for (size_t a = 0; a < A; ++a) {
        size_t k = a;
        while (k > 0 && mean[rank[k - 1]] < mean[a]) {
            rank[k] = rank[k - 1];
            k--;
        }
        rank[k] = (uint32_t)a;
    }
}

static bool all_logged(size_t A, const uint64_t *n) {
    for (size_t a = 0; a < A; ++a) {
        if (n[a] == 0) { return false; }
    }
    return true;
}

/* other [A] += the means of each half of the prompts in the order of the other half's; *states +=
 * how many of them. */
static void across_halves(const cql_logged *l, uint8_t *weight, double *other, double *states) {
    uint64_t n[2][CQL_MAX_ACTIONS];
    double mean[2][CQL_MAX_ACTIONS];
    uint32_t rank[CQL_MAX_ACTIONS];
    size_t A = l->n_actions;
    for (size_t i = 0; i < l->n_states; ++i) {
        for (int half = 0; half < 2; ++half) {
            const cql_subset of = {weight, 1.0, 0};
            cql_logged_state(l, i, &of, CQL_ADVANTAGE, 1.0, n[half], mean[half]);
            for (size_t p = 0; p < l->n_prompts; ++p) {
                weight[p] = !weight[p];
            }
        }
        if (!all_logged(A, n[0]) || !all_logged(A, n[1])) { continue; }
        for (int half = 0; half < 2; ++half) {
            by_mean(A, mean[half], rank);
            for (size_t a = 0; a < A; ++a) {
                other[a] += mean[!half][rank[a]];
            }
            *states += 1.0;
        }
    }
}

ckvc_status stability_rank_curve(const stability_side *s, uint32_t repeats, uint64_t seed,
                                 stability_ranks *out, ckvc_err *err) {
    const cql_logged *l = s->l;
    size_t A = l->n_actions, S = l->n_states, N = l->n_prompts;
    uint64_t n[CQL_MAX_ACTIONS];
    double mean[CQL_MAX_ACTIONS], states = 0.0;
    uint32_t rank[CQL_MAX_ACTIONS];
    *out = (stability_ranks){.same = ckvc_calloc(4 * A, sizeof(double))};
    double *sorted = ckvc_alloc(A * S, sizeof *sorted); /* [A][states] */
    uint32_t *order = ckvc_alloc(N, sizeof *order);
    uint8_t *weight = ckvc_alloc(N, 1);
    ckvc_status st = CKVC_OK;
    if (out->same == NULL || sorted == NULL || order == NULL || weight == NULL) {
        st = ckvc_fail_memory(err, "ranks of actions", A * S * sizeof *sorted);
        goto done;
    }
    out->lo = out->same + A;
    out->hi = out->same + 2 * A;
    out->other = out->same + 3 * A;
    for (size_t i = 0; i < S; ++i) {
        cql_logged_state(l, i, &cql_all, CQL_ADVANTAGE, 1.0, n, mean);
        if (!all_logged(A, n)) { continue; }
        by_mean(A, mean, rank);
        for (size_t a = 0; a < A; ++a) {
            sorted[a * S + out->n_states] = mean[rank[a]];
            out->same[a] += mean[rank[a]];
        }
        out->n_states++;
    }
    for (uint32_t r = 0; r < repeats; ++r) {
        shuffled(l, seed, r, order);
        only(weight, N, order, N / 2);
        across_halves(l, weight, out->other, &states);
    }
    for (size_t a = 0; a < A && st == CKVC_OK; ++a) {
        static const double points[2] = {0.25, 0.75};
        double ends[2] = {NAN, NAN};
        if (out->n_states > 0) {
            st = rank_quantile(sorted + a * S, out->n_states, points, 2, ends, err);
        }
        out->lo[a] = ends[0];
        out->hi[a] = ends[1];
        out->same[a] = out->n_states > 0 ? out->same[a] / (double)out->n_states : NAN;
        out->other[a] = states > 0.0 ? out->other[a] / states : NAN;
    }
done:
    free(sorted);
    free(order);
    free(weight);
    return st;
}

void stability_ranks_free(stability_ranks *r) {
    free(r->same);
    *r = (stability_ranks){0};
}
