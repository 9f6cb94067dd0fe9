/* The arguments of the attention kernels, which are plain structs that are passed by value, and the
 * functions that launch them.
 *
 * Kernels read packed keys and values. Packing gathers the rows that a head of a lane sees one
 * after the other, and adds zeros up to a width that the kernels are made for and up to whole
 * tiles; values are bf16 (float with --compute f32). The keys of a head are two runs, the prompt's
 * and the lane's own. Every key has a position, ascending within a run; the query row at position j
 * sees the keys at j - window < t <= j. All pointers are device pointers; positions and counts are
 * below 2^30. */
#pragma once

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdint.h>

#define CUDA_TILE       64        /* rows of a run, a lane or packed queries come in whole tiles */
#define CUDA_WIDEST     256       /* the largest head dimension */
#define CUDA_ALL_SEEN   (1 << 30) /* the window of layers that have none */
#define CUDA_HELD_SPLIT 128       /* keys of a piece of attention_held, from a row's first key on */

#ifdef __cplusplus
extern "C" {
#endif

/* The width of packed rows for head dimension d: columns d ... width-1 are zeros. */
static inline __host__ __device__ int32_t cuda_width(int32_t d) {
    return d <= 64 ? 64 : d <= 96 ? 96 : d <= 128 ? 128 : 256;
}
static inline __host__ __device__ int64_t cuda_tiles(int64_t n) {
    return (n + CUDA_TILE - 1) / CUDA_TILE;
}

/* Row i of the n packed rows is row positions[i] (NULL: i) of `from`, whose rows lie `stride`
 * apart. */
typedef struct cuda_copy {
    const float *from;
    const uint32_t *positions;
    void *to; /* [n in whole tiles][width] */
    int32_t n, stride;
} cuda_copy;

typedef struct cuda_pack {
    const cuda_copy *copies; /* [n_copies], each of at most n_most rows */
    int32_t n_copies, n_most, head_dim;
    bool bf16;
} cuda_pack;
void cuda_pack_rows(cudaStream_t stream, const cuda_pack *p);
/* Copies the rows without padding, [n][head_dim] float. */
void cuda_copy_rows_of(cudaStream_t stream, const cuda_pack *p);

typedef struct cuda_run {
    const void *k, *v;         /* packed */
    const uint32_t *positions; /* [n]; NULL: base, base + 1, ... */
    int32_t base, n;
} cuda_run;

/* What the query heads of one KV head of one lane read. q and out point to the lane's row 0, all
 * heads. */
typedef struct cuda_head {
    const float *q; /* [rows][H][D] */
    float *out;     /* [rows][H][D] */
    cuda_run run[2];
} cuda_head;

typedef struct cuda_attend {
    const cuda_head *heads; /* [n_lanes][G] */
    int32_t n_heads, n_kv_heads, head_dim, window;
    float scale;
    int32_t position; /* position of row 0 */
    int32_t n_rows, n_lanes;
    /* [H][rows in whole tiles][2] of lane 0: a row's largest score, in units of log2, and the
     * inverse of its sum of 2^(score - largest); or NULL */
    float *stats;
    bool values; /* false: only stats are computed */
    bool bf16;
} cuda_attend;
/* out = softmax(scale q k^T) v; rows of padding become 0. */
void cuda_attend_rows(cudaStream_t stream, const cuda_attend *a);

/* What the rows first_row ... n_rows-1 give to the keys of a run. */
typedef struct cuda_columns {
    const cuda_head *heads; /* [G] run[0] of each is read */
    const void *q;          /* packed [H][rows in whole tiles] */
    const float *stats;
    int32_t n_heads, n_kv_heads, head_dim, window;
    float scale;
    int32_t position, first_row, n_rows;
    int32_t n_keys; /* keys of every run */
    bool largest, bf16;
    double
        *columns; /* [G][n_keys]: the sum, or the largest, over rows and query heads of a group */
    float *rows;  /* or NULL; if given, only query head `head`: [n_rows - first_row][n_keys] */
    int32_t head;
} cuda_columns;
void cuda_column_sums(cudaStream_t stream, const cuda_columns *a);

/* One KV head of one row in a step of decoding. */
typedef struct cuda_held_head {
    float *k, *v; /* [n][D] */
    int32_t n, hidden;
} cuda_held_head;

typedef struct cuda_step {
    const cuda_held_head *heads;                      /* [n][G] */
    int32_t n, n_heads, n_kv_heads, head_dim, n_most; /* n_most: the most keys of a head */
    float scale;
    float *q, *out;         /* [n][H*D] */
    const float *k, *v;     /* [n][G*D] */
    const float *cos, *sin; /* [n][D/2] */
    float *pieces;          /* [n][H][cuda_held_pieces(n_most)][D + 2] */
} cuda_step;
static inline __host__ __device__ int32_t cuda_held_pieces(int64_t n) {
    return (int32_t)((n + CUDA_HELD_SPLIT - 1) / CUDA_HELD_SPLIT);
}
void cuda_step_rows(cudaStream_t stream, const cuda_step *a);
void cuda_step_attend(cudaStream_t stream, const cuda_step *a);

/* Writes the errors of row r of query head h to out [H][n_rows] (be_row_error). It computes in
 * float32 whatever type products have, as it serves measurements. */
typedef struct cuda_compare {
    const float *q[2];            /* [n_rows][H][D] of lane `full` and of lane `other` */
    const float *prompt, *own[2]; /* keys: [G][capacity][D] */
    int64_t capacity, own_capacity;
    const uint8_t *kept; /* [sets][n_prompt]: 1 where a position is kept; NULL: all are */
    bool per_head;       /* there is a set for each KV head; false: one for all */
    int32_t n_heads, n_kv_heads, head_dim, window;
    float scale;
    int32_t n_prompt, n_rows;
    double *out; /* [H][n_rows][3] */
} cuda_compare;
void cuda_compare_rows(cudaStream_t stream, const cuda_compare *a);

#ifdef __cplusplus
}
#endif
