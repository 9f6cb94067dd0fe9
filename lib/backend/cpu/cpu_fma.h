/* The CPU backend's own products and attention, for CPUs with fused multiply-adds (x86 with AVX2
 * and FMA, or AVX-512).
 *
 * OpenBLAS packs both factors of every product anew and works on tiles of whatever shape it is
 * given, so that a row's bits depend on the rows beside it unless all tiles have one small size.
 * Here every result is one chain of fused multiply-adds in a fixed order:
 *
 *   y[r][c] = (y[r][c] +) sum over blocks of FMA_DEPTH inputs, in order, of
 *                         fma(x[r][k], w[c][k], ...) from 0, k in order
 *
 * whatever the tile, the vector's width or the number of threads: AVX2 and AVX-512 give the same
 * bytes. Tiles are of 6 rows by two vectors, as in BLIS' Haswell kernel (Van Zee and van de Geijn
 * 2015, "BLIS: a framework for rapidly instantiating BLAS functionality").
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/backend/backend.h"

#define FMA_DEPTH 384 /* inputs a partial sum: 16 columns of them stay in the first-level cache */
#define FMA_KEYS  96  /* keys a step of attention takes: a panel of their scores stays there, too */

/* A run of keys and values that lie together: n rows of D values. */
typedef struct key_run {
    const float *k, *v; /* [n][D] */
    int64_t n;
} key_run;

/* A query row sees the entries [lo, hi) of its runs taken as one list; hi <= lo: the row is
 * padding. */
typedef struct row_span {
    int64_t lo, hi;
} row_span;

/* What the rows from `first` on of a block give to the keys of its first run, added to, or compared
 * with, what is there. */
typedef struct key_columns {
    double *into;  /* [keys of the first run] */
    int32_t first; /* inside of the block; rows of padding never count */
    bool largest;  /* the largest share of a row; false: their sum */
} key_columns;

typedef struct cpu_fma {
    const char *name;
    /* y = x W^T, or y += x W^T with `onto`, of all rows but padding. x [rows->n][n_in],
     * w [n_out][n_in], y [rows->n][n_out], rows at their strides. */
    void (*product)(const be_product_rows *rows, int64_t n_out, int64_t n_in, const float *x,
                    int64_t x_stride, const float *w, int64_t w_stride, bool onto, float *y,
                    int64_t y_stride);
    /* Attention of the BE_ROW_TILE query rows q [..][D] over two runs, each row over its span:
     * softmax with a running maximum (Milakov and Gimelshein 2018; Dao et al. 2022), steps of
     * FMA_KEYS keys from the beginning of each run. Rows of q and out lie `stride` apart. Rows of
     * padding become 0. columns: NULL, or also what its keys get. scratch: cpu_fma_scratch floats,
     * 64-byte aligned. */
    void (*attend)(int32_t head_dim, float scale, const float *q, int64_t stride,
                   const key_run runs[2], const row_span *span, const key_columns *columns,
                   float *out, float *scratch);
    /* Sum of exp(x[i] - *max), *max the largest of the n >= 1 values; summed in float by lanes: for
     * pieces of a few hundred. */
    double (*exp_sum)(const float *x, int64_t n, float *max);
    /* NULL where the CPU has no such instruction: products in bf16, two inputs a step. pairs rounds
     * rows x [n_rows][n] to nearest even, and lays them out [n_rows][(n + 1) / 2], two values in a
     * float's place, the earlier one in its lower half; behind an odd n stands 0. product_pairs is
     * product() of such x and w: n_in and strides count places, a pair's products are added one
     * after the other in float32. */
    void (*pairs)(int64_t n_rows, int64_t n, const float *x, float *to);
    void (*product_pairs)(const be_product_rows *rows, int64_t n_out, int64_t n_in, const float *x,
                          int64_t x_stride, const float *w, int64_t w_stride, bool onto, float *y,
                          int64_t y_stride);
} cpu_fma;

/* n_columns: keys of the first run where columns are asked for, else 0. */
size_t cpu_fma_scratch(int32_t head_dim, int64_t n_columns);

/* Those that this CPU has, the best for it first; ends with NULL. */
const cpu_fma *const *cpu_fma_list(ckvc_compute compute);
