/* Sufficient statistics in exact fixed point, and resampling over prompts: see counts.h. */
#include "cql/solve/counts.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/base/hash.h"
#include "lib/base/sizes.h"

/* A 128-bit integer can hold |reward| <= 2^14 in units of 2^-76, summed over 2^36 weighted records,
 * and squares <= 2^28 in units of 2^-66, summed over 2^32 records. A double of 2^-24 or more is
 * kept to its last bit. */
__extension__ typedef __int128 fixed;
#define UNIT_BITS   76
#define SQUARE_BITS 66
#define UNIT        0x1p76
#define SQUARE_UNIT 0x1p66
#define MAX_RECORDS ((uint64_t)1 << 32) /* the most records of one state and action */

typedef struct cell {
    uint64_t n;
    fixed sum, part, square, part_square;
} cell;

struct cql_counts {
    size_t n_states, n_actions;
    uint32_t n_replicates;
    resample_kind kind;
    uint64_t seed;
    cell *cells;     /* [S][A] */
    uint64_t *rep_n; /* [S][A][R] weighted counts */
    fixed *rep_sum;  /* [S][A][R] weighted sums */
    uint8_t *weight; /* [R] weights of the prompt in hand */
    uint64_t prompt; /* serial number of the prompt in hand, from 1 */
    struct state_prompts {
        uint64_t last; /* serial number of the last prompt with a record of the state */
        uint64_t n;    /* the number of such prompts */
        /* [n] their keys, by which replicates are drawn; only where there are replicates */
        uint64_t *key;
        size_t cap;
    } * of;         /* [S] */
    uint64_t *keys; /* [n_keys] keys of the prompts so far */
    size_t n_keys, cap_keys;
};

/* Returns x * 2^bits, rounded towards zero, for |x| < 2^(127 - bits). It is a cast that spares a
 * call of a library function for every value. */
static inline fixed to_fixed(double x, int bits) {
    __extension__ typedef unsigned __int128 magnitude;
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    /* by how much the 53-bit mantissa is shifted; a subnormal number is far below the unit */
    int shift = (int)(u >> 52 & 0x7ff) - 1075 + bits;
    uint64_t mantissa = (u & 0xfffffffffffff) | (uint64_t)1 << 52;
    magnitude m = shift >= 0 ? (magnitude)mantissa << shift : shift > -64 ? mantissa >> -shift : 0;
    return u >> 63 ? -(fixed)m : (fixed)m;
}

cql_counts *cql_counts_create(size_t n_states, size_t n_actions) {
    cql_counts *c = ckvc_calloc(1, sizeof *c);
    c->n_states = n_states;
    c->n_actions = n_actions;
    c->cells = ckvc_calloc(n_states, n_actions * sizeof *c->cells);
    c->of = ckvc_calloc(n_states, sizeof *c->of);
    return c;
}

ckvc_status cql_counts_resample(cql_counts *c, uint32_t n_replicates, resample_kind kind,
                                uint64_t seed, size_t memory_max, ckvc_err *err) {
    const size_t cells = c->n_states * c->n_actions;
    const size_t base = cells * (sizeof(cell) + sizeof(uint64_t)),
                 each = cells * (sizeof *c->rep_n + sizeof *c->rep_sum);
    size_t resampled = 0, all = 0;
    if (n_replicates == 0) { return CKVC_OK; }
    CKVC_FAIL_IF(!ckvc_mul_size(each, n_replicates, &resampled) ||
                     !ckvc_add_size(resampled, base, &all) || all > memory_max,
                 err, CKVC_E_MEMORY,
                 "cannot resample: the statistics need %zu bytes with %u replicates, "
                 "allowed are %zu; ask for at most %zu replicates",
                 all, n_replicates, memory_max, base < memory_max ? (memory_max - base) / each : 0);
    c->n_replicates = n_replicates;
    c->kind = kind;
    c->seed = seed;
    c->weight = ckvc_calloc(n_replicates, sizeof *c->weight);
    c->rep_n = ckvc_calloc(cells * n_replicates, sizeof *c->rep_n);
    c->rep_sum = ckvc_calloc(cells * n_replicates, sizeof *c->rep_sum);
    return CKVC_OK;
}

void cql_counts_free(cql_counts *c) {
    if (!c) { return; }
    free(c->cells);
    for (size_t s = 0; s < c->n_states; ++s) { free(c->of[s].key); }
    CKVC_FREE(c->of, c->keys, c->weight, c->rep_n, c->rep_sum, c);
}

void cql_counts_prompt(cql_counts *c, const char *id) {
    c->prompt++;
    CKVC_GROW(c->keys, c->cap_keys, c->n_keys + 1);
    c->keys[c->n_keys++] = ckvc_rng_key(id);
    resample_weights(c->seed, ckvc_rng_key(id), c->kind, c->n_replicates, c->weight);
}

size_t cql_counts_clusters(const cql_counts *c) {
    return resample_clusters(c->keys, c->n_keys, NULL);
}

ckvc_status cql_counts_add(cql_counts *c, size_t state, size_t action, double reward, double part,
                           ckvc_err *err) {
    assert(state < c->n_states && action < c->n_actions && c->prompt > 0);
    CKVC_FAIL_IF(!(fabs(reward) <= CQL_MAX_REWARD) || !(fabs(part) <= CQL_MAX_REWARD), err,
                 CKVC_E_DATA,
                 "a reward of %.17g (loss part %.17g) nats per token; wanted magnitudes up to %g",
                 reward, part, CQL_MAX_REWARD);
    size_t at = state * c->n_actions + action;
    cell *s = &c->cells[at];
    CKVC_FAIL_IF(s->n >= MAX_RECORDS, err, CKVC_E_DATA,
                 "more than 2^32 records of one state and action");
    fixed value = to_fixed(reward, UNIT_BITS);
    s->n++;
    s->sum += value;
    s->part += to_fixed(part, UNIT_BITS);
    s->square += to_fixed(reward * reward, SQUARE_BITS);
    s->part_square += to_fixed(part * part, SQUARE_BITS);
    struct state_prompts *of = &c->of[state];
    if (of->last != c->prompt) {
        of->last = c->prompt;
        if (c->n_replicates > 0) {
            CKVC_GROW(of->key, of->cap, of->n + 1);
            of->key[of->n] = c->keys[c->n_keys - 1];
        }
        of->n++;
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

/* Returns the sums over all cells. */
static cell pooled(const cql_counts *c) {
    cell all = {0};
    for (const cell *s = c->cells; s < c->cells + c->n_states * c->n_actions; ++s) {
        all.n += s->n;
        all.sum += s->sum;
        all.part += s->part;
        all.square += s->square;
        all.part_square += s->part_square;
    }
    return all;
}

uint64_t cql_counts_records(const cql_counts *c) { return pooled(c).n; }

double cql_counts_sd(const cql_counts *c, bool of_parts) {
    cell all = pooled(c);
    if (all.n == 0) { return 0.0; }
    double n = (double)all.n;
    double mean = (double)(of_parts ? all.part : all.sum) / UNIT / n;
    double square = (double)(of_parts ? all.part_square : all.square) / SQUARE_UNIT / n;
    double variance = square - mean * mean;
    /* Where all values are equal, what is left is rounding: a few ulps of their square, or the unit
     * to which squares are cut. */
    return variance > 1e-14 * square + 2.0 / SQUARE_UNIT ? sqrt(variance) : 0.0;
}

void cql_counts_state(const cql_counts *c, size_t state, double scale, uint64_t *n, double *mean,
                      double *part_mean) {
    for (size_t a = 0; a < c->n_actions; ++a) {
        const cell *s = &c->cells[state * c->n_actions + a];
        double each = s->n > 0 ? 1.0 / (double)s->n : 0.0;
        n[a] = s->n;
        mean[a] = (double)s->sum / UNIT * each / scale;
        if (part_mean) { part_mean[a] = (double)s->part / UNIT * each / scale; }
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

static size_t state_of(const cql_resampled *s, uint32_t r, size_t state, uint64_t *n,
                       double *mean) {
    const cql_counts *c = s->store;
    if (r == CQL_SAMPLE) {
        cql_counts_state(c, state, s->scale, n, mean, NULL);
    } else {
        cql_counts_replicate(c, r, state, s->scale, n, mean);
    }
    const struct state_prompts *of = &c->of[state];
    return r == CQL_SAMPLE && of->key ? resample_clusters(of->key, of->n, NULL) : of->n;
}

cql_resampled cql_counts_resampled(const cql_counts *c, double scale) {
    return (cql_resampled){.store = c,
                           .n_states = c->n_states,
                           .n_actions = c->n_actions,
                           .n_replicates = c->n_replicates,
                           .scale = scale,
                           .state = state_of};
}
