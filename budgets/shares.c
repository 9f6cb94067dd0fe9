/* See shares.h. */
#include "budgets/shares.h"

#include <math.h>

#include "lib/stats/resample.h"
#include "lib/stats/rank.h"
#include "lib/base/memory.h"

void shares_mean(const shares_sample *s, double *mean) {
    const size_t N = s->L * s->X;
    for (size_t i = 0; i < N; ++i) {
        mean[i] = s->n_prompts > 0 ? 0.0 : 1.0;
        for (size_t p = 0; p < s->n_prompts; ++p) { mean[i] += s->shares[p * N + i]; }
        if (s->n_prompts > 0) { mean[i] /= (double)s->n_prompts; }
    }
}

void shares_bootstrap(const shares_sample *s, uint32_t replicates, uint64_t seed,
                      double *interval) {
    const size_t N = s->L * s->X, P = s->n_prompts, R = replicates;
    if (resample_clusters(s->keys, P, NULL) < RESAMPLE_MIN_PROMPTS || R < RESAMPLE_MIN_REPLICATES) {
        for (size_t i = 0; i < N; ++i) {
            interval[2 * i] = 0.0;
            interval[2 * i + 1] = (double)N;
        }
        return;
    }
    CKVC_AUTO_FREE uint8_t *weight = ckvc_alloc(P * R, 1); /* [P][R] */
    CKVC_AUTO_FREE double *total = ckvc_calloc(3 * R, sizeof *total);
    double *sum = total + R, *mean = total + 2 * R;
    for (size_t p = 0; p < P; ++p) {
        resample_weights(seed, s->keys[p], RESAMPLE_BOOTSTRAP, replicates, weight + p * R);
        for (size_t r = 0; r < R; ++r) { total[r] += weight[p * R + r]; }
    }
    for (size_t i = 0; i < N; ++i) {
        size_t drawn = 0; /* how many replicates drew a prompt */
        for (size_t r = 0; r < R; ++r) { sum[r] = 0.0; }
        for (size_t p = 0; p < P; ++p) {
            const double share = s->shares[p * N + i];
            for (size_t r = 0; r < R; ++r) { sum[r] += weight[p * R + r] * share; }
        }
        for (size_t r = 0; r < R; ++r) {
            if (total[r] > 0.0) { mean[drawn++] = sum[r] / total[r]; }
        }
        rank_ends(mean, drawn, &interval[2 * i], &interval[2 * i + 1]);
    }
}

size_t shares_undecided(const double *interval, size_t n) {
    size_t undecided = 0;
    for (size_t i = 0; i < n; ++i) {
        undecided += interval[2 * i] <= 1.0 && 1.0 <= interval[2 * i + 1];
    }
    return undecided;
}

/* Writes to half [2][L][X] the means of the prompts in either half of a split; the first half has
 * weight 1. A mean is NaN where its half is empty. weight [P][2 * splits]. */
static void halves_of(const shares_sample *s, const uint8_t *weight, size_t stride, size_t split,
                      double *half) {
    const size_t N = s->L * s->X;
    size_t n[2] = {0, 0};
    for (size_t i = 0; i < 2 * N; ++i) { half[i] = 0.0; }
    for (size_t p = 0; p < s->n_prompts; ++p) {
        const int which = weight[p * stride + 2 * split] == 0;
        n[which]++;
        for (size_t i = 0; i < N; ++i) { half[(size_t)which * N + i] += s->shares[p * N + i]; }
    }
    for (size_t i = 0; i < 2 * N; ++i) {
        half[i] = n[i >= N] > 0 ? half[i] / (double)n[i >= N] : NAN;
    }
}

shares_halves shares_split(const shares_sample *s, uint32_t splits, uint64_t seed) {
    const size_t N = s->L * s->X, stride = 2 * (size_t)splits;
    shares_halves out = {.n_groups = s->L < SHARES_GROUPS ? s->L : SHARES_GROUPS};
    CKVC_AUTO_FREE uint8_t *weight = ckvc_alloc(s->n_prompts * stride, 1);
    CKVC_AUTO_FREE double *half = ckvc_alloc(2 * N, sizeof *half);
    CKVC_AUTO_FREE double *rho = ckvc_alloc((1 + SHARES_GROUPS) * (size_t)splits, sizeof *rho);
    for (size_t p = 0; p < s->n_prompts; ++p) {
        resample_weights(seed, s->keys[p], RESAMPLE_HALVES, 2 * splits, weight + p * stride);
    }
    for (size_t k = 0; k < splits; ++k) {
        rank_layers ranks;
        halves_of(s, weight, stride, k, half);
        rank_by_layer(half, half + N, s->L, s->X, out.n_groups, &ranks);
        rho[k] = ranks.overall;
        for (size_t g = 0; g < out.n_groups; ++g) { rho[(1 + g) * splits + k] = ranks.bins[g]; }
    }
    out.overall = sample_spread_of(rho, splits);
    for (size_t g = 0; g < out.n_groups; ++g) {
        out.groups[g] = sample_spread_of(rho + (1 + g) * splits, splits);
    }
    return out;
}
