/* Rows of a head's keys or values as an engine's cache has them (ckvc_rows): reading and writing
 * them, and what keys become once they are held. Inside, keys are always float32, with pairs of
 * numbers i and i + D/2, which RoPE turns together. */
#pragma once

#include <stdbool.h>

#include "lib/policy/policy_parts.h"

/* Rows [D] of float32, one behind the other. */
static inline ckvc_rows float_rows(const float *x, uint32_t D) {
    return (ckvc_rows){x, D * sizeof *x, CKVC_HELD_F32, 0};
}

/* Which of the two a row is of. They are rotated over different numbers (cache_format.h). */
typedef enum cache_side { CACHE_KEYS, CACHE_VALUES } cache_side;

/* Says what is wrong with rows for heads of D numbers, or NULL. Rows cannot have a format that
 * takes a mean out of keys: their positions and the mean would have to be known. */
const char *cache_rows_wrong(ckvc_rows r, cache_side side, uint32_t D);
/* The largest magnitude of a number with which no number of a row becomes infinite when it is held,
 * rotated or not. fp8 takes larger ones as its largest. */
double cache_rows_most(ckvc_rows r, cache_side side, uint32_t D);

/* Whether a row is the D numbers themselves: float32, in our order. */
bool cache_rows_plain(ckvc_rows r);

/* Reads row i into x [D]. */
void cache_rows_read(ckvc_rows r, cache_side side, uint32_t D, size_t i, float *x);
/* Writes x [D] to `to` as a row of such rows. */
void cache_rows_write(ckvc_rows r, cache_side side, uint32_t D, const float *x, void *to);

/* Writes row i of `from` to `to` as a row of such rows: its bytes where the format is the same. */
void cache_rows_copy(ckvc_rows from, cache_side side, uint32_t D, size_t i, ckvc_rows as, void *to);

/* What q4_0 rounds keys by: reference queries, and room for what is made of them. */
typedef struct hold_by {
    const float *queries; /* [n][D], rotated by position */
    size_t n;
    const double *inv_freq; /* [D/2] */
    float *turned;          /* [n][D] room */
    double *work;           /* [2][D][D] room; not touched where n is below 2 D */
} hold_by;
/* Makes the keys [n][D] at these positions what is read of them once they are held as h says, with
 * pairs as ckvc_rows has them. Keys in q4_0 are rounded by the queries where these say enough
 * (rounded_keys.h), and else one number at a time. */
void cache_hold_keys(const ckvc_hold *h, bool pairwise, uint32_t D, hold_by by,
                     const uint32_t *positions, size_t n, float *keys);
