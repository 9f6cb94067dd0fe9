/* Sufficient statistics in exact fixed point, and resampling over prompts. */
#include "cql/solve/counts.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cql/solve/bound.h"
#include "cql/solve/cql.h"
#include "cql/solve/logged.h"
#include "lib/base/memory.h"
#include "lib/base/rng.h"
#include "lib/base/sizes.h"

/* 128-bit integers hold |reward| <= 2^14 in units of 2^-76, summed over 2^36 weighted records;
 * squares <= 2^28 in units of 2^-66 over 2^32 records. A double of 2^-24 or more is held to its
 * last bit. */
__extension__ typedef __int128 fixed;
#define UNIT_BITS   76
#define SQUARE_BITS 66
#define UNIT        0x1p76
#define SQUARE_UNIT 0x1p66
#define MAX_RECORDS ((uint64_t)1 << 32) /* of one state and action */
#define STAGE       0x62740000u /* of the RNG's stream of weights, plus the kind of resampling */
#define REFUSED                                                                                    \
    "cannot resample: the statistics need %zu bytes with %u replicates, allowed are %zu; ask for " \
    "at most %zu replicates"

typedef struct cell {
    uint64_t n;
    fixed sum, part, square, part_square;
} cell;

struct cql_counts {
    size_t n_states, n_actions;
    uint32_t n_replicates;
    cql_resample kind;
    uint64_t seed;
    cell *cells;       /* [S][A] */
    uint64_t *rep_n;   /* [S][A][R] weighted counts */
    fixed *rep_sum;    /* [S][A][R] weighted sums */
    uint8_t *weight;   /* [R] of the prompt in hand */
    uint64_t prompt;   /* serial number of the prompt in hand, from 1 */
    uint64_t *prompts; /* [S] prompts with a record of the state */
    uint64_t *last;    /* [S] serial number of the last of them */
};

/* x * 2^bits towards zero, of |x| < 2^(127 - bits): what a cast does, without its call per value.
 */
static inline fixed to_fixed(double x, int bits) {
    __extension__ typedef unsigned __int128 magnitude;
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    int shift = (int)(u >> 52 & 0x7ff) - 1075 +
                bits; /* of the 53-bit mantissa; a subnormal is far below the unit */
    uint64_t mantissa = (u & 0xfffffffffffff) | (uint64_t)1 << 52;
    magnitude m = shift >= 0 ? (magnitude)mantissa << shift : shift > -64 ? mantissa >> -shift : 0;
    return u >> 63 ? -(fixed)m : (fixed)m;
}

ckvc_status cql_counts_create(size_t n_states, size_t n_actions, uint32_t n_replicates,
                              cql_resample kind, uint64_t seed, size_t memory_max, cql_counts **out,
                              ckvc_err *err) {
    *out = NULL;
    const size_t per_replicate = sizeof(uint64_t) + sizeof(fixed);
    size_t cells = 0, base = 0, resampled = 0, all = 0;
    if (!ckvc_mul_size(n_states, n_actions, &cells) ||
        !ckvc_mul_size(cells, sizeof(cell) + sizeof(uint64_t), &base) ||
        !ckvc_mul_size(cells, per_replicate * (size_t)n_replicates, &resampled) ||
        !ckvc_add_size(resampled, base, &all)) {
        return ckvc_fail(err, CKVC_E_MEMORY,
                         "the statistics of %zu states with %zu actions do not fit in memory",
                         n_states, n_actions);
    }
    if (n_replicates > 0 && all > memory_max) {
        size_t fit = base < memory_max ? (memory_max - base) / per_replicate / cells : 0;
        return ckvc_fail(err, CKVC_E_MEMORY, REFUSED, all, n_replicates, memory_max, fit);
    }
    cql_counts *c = ckvc_calloc(1, sizeof *c);
    *c = (cql_counts){.n_states = n_states,
                      .n_actions = n_actions,
                      .n_replicates = n_replicates,
                      .kind = kind,
                      .seed = seed};
    c->cells = ckvc_calloc(cells, sizeof *c->cells);
    c->prompts = ckvc_calloc(n_states, sizeof *c->prompts);
    c->last = ckvc_calloc(n_states, sizeof *c->last);
    c->weight = ckvc_calloc(n_replicates, sizeof *c->weight);
    c->rep_n = ckvc_calloc(cells * n_replicates, sizeof *c->rep_n);
    c->rep_sum = ckvc_calloc(cells * n_replicates, sizeof *c->rep_sum);
    *out = c;
    return CKVC_OK;
}

void cql_counts_free(cql_counts *c) {
    if (c == NULL) { return; }
    free(c->cells);
    free(c->prompts);
    free(c->last);
    free(c->weight);
    free(c->rep_n);
    free(c->rep_sum);
    free(c);
}

void cql_resample_weights(uint64_t seed, uint64_t key, cql_resample kind, uint32_t n_replicates,
                          uint8_t *weight) {
    ckvc_rng rng;
    ckvc_rng_init(&rng, seed, key, STAGE + (uint32_t)kind);
    for (uint32_t r = 0; r < n_replicates; ++r) {
        if (kind == CQL_RESAMPLE_BOOTSTRAP) {
            uint32_t w = ckvc_rng_poisson1(&rng);
            weight[r] = (uint8_t)(w < 255 ? w : 255);
        } else {
            weight[r] = r % 2 == 0 ? (uint8_t)(ckvc_rng_u32(&rng) >> 31) : (uint8_t)!weight[r - 1];
        }
    }
}

void cql_counts_prompt(cql_counts *c, const char *id) {
    c->prompt++;
    cql_resample_weights(c->seed, ckvc_rng_key(id), c->kind, c->n_replicates, c->weight);
}

ckvc_status cql_counts_add(cql_counts *c, size_t state, size_t action, double reward, double part,
                           ckvc_err *err) {
    assert(state < c->n_states && action < c->n_actions && c->prompt > 0);
    if (!(fabs(reward) <= CQL_MAX_REWARD) || !(fabs(part) <= CQL_MAX_REWARD)) {
        return ckvc_fail(
            err, CKVC_E_DATA,
            "a reward of %.17g (loss part %.17g) nats per token; wanted magnitudes up to %g",
            reward, part, CQL_MAX_REWARD);
    }
    size_t at = state * c->n_actions + action;
    cell *s = &c->cells[at];
    if (s->n >= MAX_RECORDS) {
        return ckvc_fail(err, CKVC_E_DATA, "more than 2^32 records of one state and action");
    }
    fixed value = to_fixed(reward, UNIT_BITS);
    s->n++;
    s->sum += value;
    s->part += to_fixed(part, UNIT_BITS);
    s->square += to_fixed(reward * reward, SQUARE_BITS);
    s->part_square += to_fixed(part * part, SQUARE_BITS);
    if (c->last[state] != c->prompt) {
        c->last[state] = c->prompt;
        c->prompts[state]++;
    }
    if (c->n_replicates > 0) {
        uint64_t *rep_n = c->rep_n + at * c->n_replicates;
        fixed *rep_sum = c->rep_sum + at * c->n_replicates;
        for (uint32_t r = 0; r < c->n_replicates; ++r) {
            rep_n[r] += c->weight[r];
            rep_sum[r] += c->weight[r] * value;
        }
    }
    return CKVC_OK;
}

size_t cql_counts_actions(const cql_counts *c) {
    return c->n_actions;
}

uint32_t cql_counts_replicates(const cql_counts *c) {
    return c->n_replicates;
}

/* All cells together. */
static cell pooled(const cql_counts *c) {
    cell all = {0};
    for (size_t i = 0; i < c->n_states * c->n_actions; ++i) {
        all.n += c->cells[i].n;
        all.sum += c->cells[i].sum;
        all.part += c->cells[i].part;
        all.square += c->cells[i].square;
        all.part_square += c->cells[i].part_square;
    }
    return all;
}

uint64_t cql_counts_records(const cql_counts *c) {
    return pooled(c).n;
}

uint64_t cql_counts_prompts(const cql_counts *c, size_t state) {
    return c->prompts[state];
}

double cql_counts_sd(const cql_counts *c, bool of_parts) {
    cell all = pooled(c);
    if (all.n == 0) { return 0.0; }
    double n = (double)all.n;
    double mean = (double)(of_parts ? all.part : all.sum) / UNIT / n;
    double square = (double)(of_parts ? all.part_square : all.square) / SQUARE_UNIT / n;
    double variance = square - mean * mean;
    /* What is left of equal values is rounding: a few ulps of their square, or the unit that
     * squares are cut to. */
    return variance > 1e-14 * square + 2.0 / SQUARE_UNIT ? sqrt(variance) : 0.0;
}

void cql_counts_state(const cql_counts *c, size_t state, double scale, uint64_t *n, double *mean,
                      double *sumsq, double *part_mean) {
    for (size_t a = 0; a < c->n_actions; ++a) {
        const cell *s = &c->cells[state * c->n_actions + a];
        double each = s->n > 0 ? 1.0 / (double)s->n : 0.0;
        n[a] = s->n;
        mean[a] = (double)s->sum / UNIT * each / scale;
        if (part_mean != NULL) { part_mean[a] = (double)s->part / UNIT * each / scale; }
        if (sumsq != NULL) { sumsq[a] = (double)s->square / SQUARE_UNIT / (scale * scale); }
    }
}

void cql_counts_replicate(const cql_counts *c, uint32_t replicate, size_t state, double scale,
                          uint64_t *n, double *mean) {
    for (size_t a = 0; a < c->n_actions; ++a) {
        size_t at = (state * c->n_actions + a) * c->n_replicates + replicate;
        n[a] = c->rep_n[at];
        mean[a] = n[a] > 0 ? (double)c->rep_sum[at] / UNIT / (double)n[a] / scale : 0.0;
    }
}

ckvc_status cql_counts_choices(const cql_counts *c, double cql_alpha, double scale,
                               const double *head_grid, uint16_t *choices, ckvc_err *err) {
    size_t A = c->n_actions;
    uint64_t n[CQL_MAX_ACTIONS];
    double mean[CQL_MAX_ACTIONS];
    for (size_t s = 0; s < c->n_states; ++s) {
        for (uint32_t r = 0; r < c->n_replicates; ++r) {
            int chosen = -1;
            if (c->prompts[s] > 0) {
                cql_counts_replicate(c, r, s, scale, n, mean);
                if ((chosen = cql_choice(A, n, mean, cql_alpha, head_grid)) < -1) {
                    return ckvc_fail(err, CKVC_E_BUG,
                                     "replicate %u, state %zu: the exact solver failed", r, s);
                }
            }
            choices[(size_t)r * c->n_states + s] = chosen < 0 ? CQL_NO_CHOICE : (uint16_t)chosen;
        }
    }
    return CKVC_OK;
}

void cql_choice_shares(const uint16_t *choices, uint32_t n_replicates, size_t n_states,
                       size_t n_actions, float *share) {
    memset(share, 0, n_states * n_actions * sizeof *share);
    for (size_t s = 0; s < n_states; ++s) {
        float *share_s = share + s * n_actions;
        for (uint32_t r = 0; r < n_replicates; ++r) {
            uint16_t a = choices[(size_t)r * n_states + s];
            if (a != CQL_NO_CHOICE) { share_s[a] += 1.0f; /* whole numbers: exact */ }
        }
        for (size_t a = 0; a < n_actions; ++a) {
            share_s[a] /= (float)n_replicates;
        }
    }
}

typedef struct one_state {
    const cql_counts *counts;
    size_t state;
} one_state;

static void replicate_of(const void *ctx, uint32_t r, uint64_t *n, double *mean) {
    const one_state *o = ctx;
    cql_counts_replicate(o->counts, r, o->state, 1.0, n, mean);
}

bool cql_counts_better(const cql_counts *c, size_t state, int chosen, int other) {
    assert(c->kind == CQL_RESAMPLE_BOOTSTRAP && chosen >= 0 && (size_t)chosen < c->n_actions);
    uint64_t n[CQL_MAX_ACTIONS];
    double mean[CQL_MAX_ACTIONS];
    one_state ctx = {c, state};
    cql_counts_state(c, state, 1.0, n, mean, NULL, NULL);
    cql_resampled s = {c->n_actions, c->n_replicates, c->prompts[state], n, mean, replicate_of,
                       &ctx};
    return chosen != other && cql_lower_bound(&s, chosen, other, NULL) > 0.0;
}
