/* See stability.h. */
#include "cql/solve/stability.h"

#include <math.h>
#include <string.h>

#include "lib/stats/rank.h"
#include "lib/base/memory.h"
#include "lib/base/hash.h"

#define STAGE_SUBSET 0x73750000u /* stage of the RNG's stream for random sets of prompts */

/* Returns Spearman's rho between two tables [S], as the mean over budgets where it is defined; NaN
 * when there is none. */
static double agreement(size_t n_states, size_t n_budgets, const double *x, const double *y) {
    CKVC_AUTO_FREE double *picked = ckvc_alloc(2 * n_states, sizeof *picked);
    double sum = 0.0;
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
    return defined > 0 ? sum / (double)defined : NAN;
}

/* Writes a random order of the prompts, which is the same for the same (seed, repeat). Prompts of
 * one document stand together, so that two sets share at most one document. */
static void shuffled(const cql_logged *l, uint64_t seed, uint32_t repeat, uint32_t *order) {
    CKVC_AUTO(rank_members_fini) rank_members m = rank_members_of(l->cluster, l->n_prompts);
    CKVC_AUTO_FREE uint32_t *clusters = ckvc_alloc(m.n_clusters, sizeof *clusters);
    ckvc_rng rng;
    ckvc_rng_init(&rng, seed, repeat, STAGE_SUBSET);
    for (size_t g = 0; g < m.n_clusters; ++g) { clusters[g] = (uint32_t)g; }
    ckvc_rng_shuffle_u32(&rng, clusters, m.n_clusters);
    for (size_t g = 0, n = 0; g < m.n_clusters; ++g) {
        const size_t *first = m.first + clusters[g];
        for (size_t k = first[0]; k < first[1]; ++k) { order[n++] = (uint32_t)m.at[k]; }
    }
}

static void keep_only(uint8_t *weight, size_t n_prompts, const uint32_t *order, size_t n) {
    memset(weight, 0, n_prompts);
    for (size_t i = 0; i < n; ++i) { weight[order[i]] = 1; }
}

/* Fits a table to prompts by weight and writes its values [S]. Its records and supported states are
 * added to those of `out`. */
static ckvc_status fit_resampled_table(const stability_fit *s, const uint8_t *weight,
                                       double *values, stability_point *out, ckvc_err *err) {
    uint64_t n[CQL_MAX_ACTIONS];
    double mean[CQL_MAX_ACTIONS];
    const ckvc_actions *actions = &s->fit.actions;
    for (size_t i = 0; i < s->l->n_states; ++i) {
        int a = -1;
        if (cql_logged_state(s->l, i, weight, s->fit.reward, s->fit.scale, n, mean) > 0) {
            a = cql_choice(actions, n, mean, s->fit.cql_alpha);
            CKVC_FAIL_IF(a < -1, err, CKVC_E_BUG, "state %zu: the exact solver failed", i);
            for (size_t k = 0; k < actions->n; ++k) { out->records += (double)n[k]; }
            out->supported += 1.0;
        }
        values[i] = actions->grid[a < 0 ? s->incoming[i] : a];
    }
    return CKVC_OK;
}

ckvc_status stability_curve_point(const stability_fit *s, size_t n, uint32_t repeats, uint64_t seed,
                                  stability_point *out, ckvc_err *err) {
    const size_t N = s->l->n_prompts, S = s->l->n_states;
    const bool halves = 2 * n > N;
    const size_t each = halves ? n / 2 : n;
    CKVC_AUTO_FREE double *full = ckvc_alloc(4 * S, sizeof *full);
    double *x = full + S, *y = full + 2 * S, *z = full + 3 * S;
    CKVC_AUTO_FREE double *rho = ckvc_alloc(2 * (size_t)repeats, sizeof *rho);
    double *to_full = rho + repeats;
    CKVC_AUTO_FREE uint32_t *order = ckvc_alloc(N, sizeof *order);
    CKVC_AUTO_FREE uint8_t *weight = ckvc_alloc(N, 1);
    stability_point ignored = {0}, sum = {0};
    CKVC_TRY(fit_resampled_table(s, NULL, full, &ignored, err));
    for (uint32_t r = 0; r < repeats; ++r) {
        rho[r] = NAN;
        shuffled(s->l, seed, r, order);
        if (each > 0) {
            keep_only(weight, N, order, each);
            CKVC_TRY(fit_resampled_table(s, weight, x, halves ? &ignored : &sum, err));
            keep_only(weight, N, order + each, each);
            CKVC_TRY(fit_resampled_table(s, weight, y, &ignored, err));
            rho[r] = agreement(S, s->n_budgets, x, y);
        }
        if (halves) {
            keep_only(weight, N, order, n);
            CKVC_TRY(fit_resampled_table(s, weight, z, &sum, err));
        }
        to_full[r] = agreement(S, s->n_budgets, halves ? z : x, full);
    }
    *out = (stability_point){.prompts = n,
                             .records = sum.records / repeats,
                             .supported = sum.supported / (double)S / repeats,
                             .rho = sample_spread_of(rho, repeats),
                             .corrected = halves,
                             .to_full = sample_spread_of(to_full, repeats)};
    if (halves) { spearman_brown_spread(&out->rho); }
    return CKVC_OK;
}

ckvc_status stability_left_out(const stability_fit *s, size_t n, uint32_t repeats, uint64_t seed,
                               double *gain, ckvc_err *err) {
    const cql_logged *l = s->l;
    const size_t N = l->n_prompts, A = l->n_actions;
    CKVC_AUTO_FREE uint32_t *order = ckvc_alloc(N, sizeof *order);
    CKVC_AUTO_FREE uint8_t *weight = ckvc_alloc(N, 1);
    CKVC_AUTO_FREE double *sum = ckvc_calloc(3 * N, sizeof *sum);
    double *blocks = sum + N, *times = sum + 2 * N;
    memset(gain, 0, N * sizeof *gain);
    for (uint32_t r = 0; r < repeats; ++r) {
        shuffled(l, seed, r, order);
        keep_only(weight, N, order, n);
        memset(sum, 0, 2 * N * sizeof *sum);
        for (size_t i = 0; i < l->n_states; ++i) {
            int a = cql_logged_choice(l, i, weight, &s->fit);
            CKVC_FAIL_IF(a < -1, err, CKVC_E_BUG, "state %zu: the exact solver failed", i);
            const bool changed = a >= 0 && a != s->incoming[i];
            for (size_t k = l->first[i]; k < l->first[i + 1]; ++k) {
                size_t at = (size_t)l->order[k] * A + (size_t)(a < 0 ? 0 : a);
                uint32_t p = l->blocks[l->order[k]].prompt;
                if (weight[p] || l->cluster[p] == l->cluster[order[n - 1]] ||
                    (changed && l->n[at] == 0)) {
                    /* the table was fitted to it or its document, or it never tried the action */
                    continue;
                }
                if (changed) { sum[p] += l->sum[at] / l->n[at]; }
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
    for (size_t p = 0; p < N; ++p) { gain[p] = times[p] > 0.0 ? gain[p] / times[p] : NAN; }
    return CKVC_OK;
}
