/* The CPU backend's own products and attention, for CPUs with fused multiply-adds (x86 with AVX2
 * and FMA, or AVX-512).
 *
 * OpenBLAS packs both factors of every product anew and works on tiles of whatever shape it gets,
 * so that a row's bits depend on the rows beside it unless all tiles have one small size. Here
 * every result is one chain of fused multiply-adds in a fixed order:
 *
 *   y[r][c] = (y[r][c] +) sum over blocks of FMA_DEPTH inputs, in order, of
 *                         fma(x[r][k], w[c][k], ...) from 0, k in order
 *
 * for every tile, vector width and number of threads: AVX2 and AVX-512 give the same bytes. Tiles
 * have 6 rows by two vectors, as in BLIS' Haswell kernel (Van Zee and van de Geijn 2015, "BLIS: a
 * framework for rapidly instantiating BLAS functionality"). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/backend/backend.h"

/* The number of inputs of a partial sum. So many inputs of 16 columns fit the first-level cache. */
#define FMA_DEPTH 384
/* The number of keys of a step of attention. A panel of their scores fits that cache, too. */
#define FMA_KEYS 96

/* What was taken out of the keys of a run. It is R(p) c for the key at position p, where c is the
 * head's mean key and R(p) the rotation by position. */
typedef struct key_mean {
    const float *c;            /* [D]; NULL: nothing was taken out */
    const float *cos, *sin;    /* [positions][D/2] */
    const uint32_t *positions; /* of the rows; NULL: they are at first, first + 1 and so on */
    int64_t first;
} key_mean;
/* Adds factor * R(p) c to x [D], where p is the position of row i. */
static inline void cpu_add_mean(const key_mean *m, int64_t i, int32_t head_dim, float factor,
                                float *x) {
    const int64_t p = m->positions ? (int64_t)m->positions[i] : m->first + i,
                  at = p * (head_dim / 2);
    cache_add_mean(m->c, m->cos + at, m->sin + at, head_dim, factor, x);
}

/* A run of keys and values that lie together: n rows of D values each, in their formats. */
typedef struct key_run {
    const void *k, *v;
    int64_t n;
    cache_formats formats;
    key_mean mean;
} key_run;
/* Returns rows at ... at + n - 1 of a run's keys or values as float32, [n][D]. Rows of float32 are
 * returned where they lie; others are read into `tile`, which has room for n rows. */
static inline const float *cpu_run_rows(const void *rows, cache_format f, int32_t head_dim,
                                        int64_t at, int64_t n, float *tile) {
    const size_t d = (size_t)head_dim, first = cache_bytes(f, d) * (size_t)at;
    const char *from = (const char *)rows + first;
    if (cache_bytes(f, d) == d * sizeof(float)) { return (const float *)(const void *)from; }
    cache_read(f, from, (size_t)n * d, tile);
    return tile;
}
/* Does this for a run's keys. Where a mean was taken out of them it is added again, and their
 * Hadamard rotation is undone, so that queries need no rotation. Other keys stay rotated. */
static inline const float *cpu_run_keys(const key_run *run, int32_t head_dim, int64_t at, int64_t n,
                                        float *tile) {
    const float *keys = cpu_run_rows(run->k, run->formats.keys, head_dim, at, n, tile);
    if (!run->mean.c) { return keys; }
    cache_rotate(tile, (size_t)n * (size_t)head_dim, cache_key_rotation(run->formats, head_dim));
    for (int64_t i = 0; i < n; i++) {
        cpu_add_mean(&run->mean, at + i, head_dim, 1, tile + i * head_dim);
    }
    return tile;
}

/* A query row sees the entries [lo, hi) of its two runs, counted as one list. Where hi <= lo the
 * row is padding. */
typedef struct row_span {
    int64_t lo, hi;
} row_span;

/* What a block's rows from `first` on give to the keys of the first run, which is in float32. It is
 * added to what `into` holds, or compared with it. */
typedef struct key_columns {
    double *into;  /* [keys of the first run] */
    int32_t first; /* a row of the block; padding rows never count */
    bool largest;  /* takes the largest share of a row; false: the sum */
} key_columns;

typedef struct cpu_fma {
    const char *name;
    /* y = x W^T, or y += x W^T with `onto`, for all rows but padding. x [rows->n][n_in], w
     * [n_out][n_in], y [rows->n][n_out]; rows lie at the given strides. */
    void (*product)(const be_product_rows *rows, int64_t n_out, int64_t n_in, const float *x,
                    int64_t x_stride, const float *w, int64_t w_stride, bool onto, float *y,
                    int64_t y_stride);
    /* Attention of the BE_ROW_TILE query rows q [..][D] over two runs, each row over its span:
     * softmax with a running maximum (Milakov and Gimelshein 2018; Dao et al. 2022), in steps of
     * FMA_KEYS keys from the beginning of each run. Rows of q and out lie `stride` apart. Rows of
     * padding become 0. With `columns` not NULL it also adds up what the keys get. scratch holds
     * cpu_fma_scratch floats, 64-byte aligned. */
    void (*attend)(int32_t head_dim, float scale, const float *q, int64_t stride,
                   const key_run runs[2], const row_span *span, const key_columns *columns,
                   float *out, float *scratch);
    /* The sum of exp(x[i] - *max), where *max is the largest of the n >= 1 values. It is summed in
     * float, lane by lane, so it is meant for pieces of a few hundred. */
    double (*exp_sum)(const float *x, int64_t n, float *max);
    /* Products in bf16, two inputs in each step; NULL where the CPU has no such instruction. pairs
     * rounds rows x [n_rows][n] to nearest even and lays them out as [n_rows][(n + 1) / 2], two
     * values in the place of a float, the earlier one in the lower half; an odd n is followed by a
     * 0. product_pairs is product() for such x and w: n_in and strides count places, and the two
     * products of a pair are added one after the other in float32. */
    void (*pairs)(int64_t n_rows, int64_t n, const float *x, float *to);
    void (*product_pairs)(const be_product_rows *rows, int64_t n_out, int64_t n_in, const float *x,
                          int64_t x_stride, const float *w, int64_t w_stride, bool onto, float *y,
                          int64_t y_stride);
} cpu_fma;

/* Floats of attend's scratch. n_columns is the number of keys of the first run where columns are
 * asked for, else 0. */
size_t cpu_fma_scratch(int32_t head_dim, int64_t n_columns);

/* The kernels that this CPU can run, the best one first. The list ends with NULL. */
const cpu_fma *const *cpu_fma_list(ckvc_compute compute);
