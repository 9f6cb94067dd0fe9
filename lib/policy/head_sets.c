/* Budgets for heads and layers: how many positions each keeps, and the scores that rank them.
 * ckvc_retain_head (retention.c) then chooses the positions.
 *
 * Products are taken in the order that the header states, without contraction (see the Makefile),
 * so that every machine finds the same z and the same capacities. */
#include "lib/policy/retain_many.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

const char *ckvc_mode_name(ckvc_mode mode) {
    static const char *const names[CKVC_MODE_COUNT] = {"shared", "heads", "layers", "lengths"};
    return names[mode];
}

int ckvc_mode_by_head(ckvc_mode mode) {
    return mode == CKVC_MODE_HEADS || mode == CKVC_MODE_LENGTHS;
}

const char *ckvc_score_name(ckvc_score_kind kind) {
    static const char *const names[CKVC_SCORE_COUNT] = {"paper", "window", "learned", "bank"};
    return names[kind];
}

ckvc_score ckvc_table_score(const ckvc_table *t, uint32_t b) {
    return t->score ? t->score[b]
                    : (ckvc_score){.kind = CKVC_SCORE_PAPER, .mode = CKVC_MODE_SHARED};
}

int ckvc_score_learns(uint32_t kind) {
    return kind == CKVC_SCORE_LEARNED || kind == CKVC_SCORE_BANK;
}

int ckvc_table_ranks_by_bank(const ckvc_table *t) {
    for (uint32_t b = 0; b < t->n_budgets; b++) {
        if (ckvc_table_score(t, b).kind == CKVC_SCORE_BANK) { return 1; }
    }
    return 0;
}

ckvc_score ckvc_default_score(ckvc_score_kind kind, uint32_t features) {
    ckvc_score s = {.kind = kind, .features = features};
    if (kind == CKVC_SCORE_WINDOW) {
        s.window = 32;
        s.pool = 7;
        s.norm = 1;
    } else if (ckvc_score_learns(kind)) {
        s.window = ckvc_features_rows(features);
    }
    return s;
}

uint32_t ckvc_head_floor(double f, uint32_t recent, uint32_t budget, uint32_t n_tokens) {
    const double share = floor(f * (double)budget), forced = (double)recent + 1.0;
    const double least = share > forced ? share : forced;
    return least < (double)n_tokens ? (uint32_t)least : n_tokens;
}

/* The heads or layers (units) that divide the entries of a block among them. */
typedef struct units {
    const double *share;
    uint32_t n, stride;
    double budget, floor, n_tokens;
} units;

/* x_i of ckvc_capacities for a share at z. A share of 0 times an infinite z is NaN, which gets the
 * floor. */
static double share_at(const units *u, double share, double z) {
    const double x = share * (u->budget * z);
    return x > u->floor ? (x < u->n_tokens ? x : u->n_tokens) : u->floor;
}

static double unit_at(const units *u, uint32_t i, double z) {
    return share_at(u, u->share[(size_t)i * u->stride], z);
}

static bool fits(const units *u, double z) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < u->n; i++) { sum += (uint64_t)floor(unit_at(u, i, z)); }
    return sum <= (uint64_t)u->n * (uint64_t)u->budget;
}

static double solve_z(const units *u) {
    double smallest = INFINITY;
    for (uint32_t i = 0; i < u->n; i++) {
        const double share = u->share[(size_t)i * u->stride];
        if (share > 0.0 && share < smallest) { smallest = share; }
    }
    double lo = 0.0, hi = u->n_tokens / (u->budget * smallest);
    if (fits(u, hi)) { return hi; }
    for (int halving = 0; halving < 64; halving++) {
        const double mid = (lo + hi) / 2.0;
        if (fits(u, mid)) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return lo;
}

/* Gives one more entry to the unit with the largest fraction among those that have not had one yet.
 * Returns false where no unit can take it. */
static bool give_one(const units *u, double z, uint32_t *c) {
    uint32_t best = u->n;
    double best_fraction = -1.0;
    for (uint32_t i = 0; i < u->n; i++) {
        const double x = unit_at(u, i, z), fraction = x - floor(x);
        const bool eligible =
            u->share[(size_t)i * u->stride] > 0.0 && x < u->n_tokens && (double)c[i] == floor(x);
        if (eligible && fraction > best_fraction) {
            best = i;
            best_fraction = fraction;
        }
    }
    if (best == u->n) { return false; }
    c[best]++;
    return true;
}

int ckvc_capacities(const double *share, uint32_t n, uint32_t stride, uint32_t budget,
                    uint32_t n_tokens, uint32_t least, uint32_t *c) {
    const units u = {share, n, stride, budget, least, n_tokens};
    assert(least <= n_tokens);
    if (least > budget) { return -1; }
    const double z = budget < n_tokens ? solve_z(&u) : 0.0;
    uint64_t left = (uint64_t)n * budget;
    for (uint32_t i = 0; i < n; i++) {
        c[i] = budget < n_tokens ? (uint32_t)unit_at(&u, i, z) : n_tokens;
        left -= c[i];
    }
    while (budget < n_tokens && left && give_one(&u, z, c)) { left--; }
    return 0;
}

void ckvc_even_lengths(const double *share, uint32_t n, uint32_t stride, uint32_t *c) {
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            const bool alike = share[(size_t)i * stride] == share[(size_t)j * stride];
            if (alike && c[j] < c[i]) { c[i] = c[j]; }
        }
    }
}

void ckvc_score_paper(uint32_t n_tokens, const float *alpha, const float *rho, double weight,
                      double *s) {
    for (uint32_t t = 0; t < n_tokens; t++) {
        s[t] = log(((double)alpha[t] * (double)rho[t]) * weight);
    }
}

void ckvc_score_window(uint32_t n_tokens, const double *attention, uint32_t pool,
                       const double *norm, double *s) {
    const uint32_t side = pool / 2;
    for (uint32_t t = 0; t < n_tokens; t++) {
        const uint32_t begin = t > side ? t - side : 0,
                       end = n_tokens - t > side ? t + side + 1 : n_tokens;
        double most = attention[begin];
        for (uint32_t j = begin + 1; j < end; j++) {
            if (attention[j] > most) { most = attention[j]; }
        }
        s[t] = log(norm ? most * norm[t] : most);
    }
}
