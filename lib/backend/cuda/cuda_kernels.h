/* Functions that launch the kernels, which the host's C and the .cu files share. Pointers point
 * into the device's memory unless said otherwise; the first argument is a stream. The functions
 * enqueue and return; cuda_check finds a launch that has failed. */
#pragma once

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- rows.cu ---- */

/* Rows at positions, as in rope: row i of n_lanes * lane_rows is row r = i % lane_rows of lane i /
 * lane_rows, at position row0 + r. Rows with r >= n_rows are padding. */
typedef struct cuda_rows {
    int64_t row0, n_rows, lane_rows, n_lanes;
} cuda_rows;

/* Rows in bf16 for a product: [padded][stride], with 0 after the n_rows rows and after a row's
 * values. to NULL: they are not needed. */
typedef struct cuda_half {
    uint16_t *to;
    int64_t padded, stride;
} cuda_half;

void cuda_to_bf16(cudaStream_t stream, const float *from, int64_t n_rows, int64_t cols,
                  const cuda_half *half);
/* y[r] = x[r] / sqrt(mean(x[r]^2) + eps) * w; the squares are summed in double. */
void cuda_rmsnorm_rows(cudaStream_t stream, const float *x, const float *w, int64_t n_rows,
                       int64_t width, double eps, float *y, const cuda_half *half);
/* Adds the same to y. */
void cuda_rmsnorm_add_rows(cudaStream_t stream, const float *x, const float *w, int64_t n_rows,
                           int64_t width, double eps, float *y);
/* y = silu(gate) * up, or gelu(gate) * up */
void cuda_gate_mul_rows(cudaStream_t stream, bool gelu, const float *gate, const float *up,
                        int64_t n_rows, int64_t width, float *y, const cuda_half *half);
/* cos, sin [n_positions][half] of position * inv_freq[i], inv_freq [half]. */
void cuda_fill_angles(cudaStream_t stream, const double *inv_freq, int32_t half,
                      int64_t n_positions, float *cos, float *sin);
/* Rotates q [rows][n_heads][2 * half] in place. */
void cuda_rope_rows(cudaStream_t stream, const cuda_rows *rows, int32_t n_heads, int32_t half,
                    const float *cos, const float *sin, float *q);
/* Copies k (rotated) and v [rows][n_kv][2 * half] to the lanes' caches
 * [n_lanes][n_kv][capacity][D]. Padding becomes 0. */
void cuda_cache_fill(cudaStream_t stream, const cuda_rows *rows, int32_t n_kv, int32_t half,
                     const float *cos, const float *sin, const float *k, const float *v,
                     int64_t capacity, float *k_cache, float *v_cache);
/* norm[g][t] = ||v[g][t]||_2, v [n_kv][capacity][head_dim] */
void cuda_value_norm_rows(cudaStream_t stream, const float *v, int32_t n_kv, int64_t capacity,
                          int32_t head_dim, int64_t n, double *norm);
/* y[r][i] = (add ? y[r][i] : 0) + bias[i] */
void cuda_bias_rows(cudaStream_t stream, const float *bias, int64_t n_rows, int64_t n_out, bool add,
                    float *y);
/* Sets *found, which was zeroed, to 1 where the first n values of any row differ in a bit between a
 * and b. Rows lie `stride` apart. */
void cuda_rows_differ(cudaStream_t stream, const float *a, const float *b, int64_t n_rows,
                      int64_t n, int64_t stride, uint32_t *found);

/* ---- head.cu ---- */

/* The rows from `first` on of those that the head runs over: lanes of lane_rows rows each, of which
 * rows row0 ... row0 + n_rows - 1 have a target [n_rows]; and what has been computed of them so
 * far. */
typedef struct cuda_losses {
    int64_t first, lane_rows, row0, n_rows, n_lanes;
    const int32_t *target;
    float *max, *target_logit; /* [i] of row first + i */
    double *sum;               /* of exp(logit - max) */
    double *nll;               /* [n_lanes][n_rows] */
    /* The distributions p [n_rows][vocab], or NULL where no KL is asked for, and for each the sum
     * of p log p, log_p [n_rows]. dot[i] is the sum of p * logit in row first + i; kl is
     * [n_lanes][n_rows]. */
    const float *p;
    const double *log_p;
    double *dot, *kl;
    int64_t vocab;
} cuda_losses;

/* Adds a tile: the logits [rows][width] of vocabulary entries col ... col + width - 1, of rows
 * `from` ... from + rows - 1 counted from `first`. Tiles come in order, the one with col 0
 * first. */
void cuda_head_tile(cudaStream_t stream, const cuda_losses *l, const float *logits, int64_t from,
                    int64_t rows, int64_t col, int64_t width);
/* For each row of logits [rows][vocab]: the first of the entries with the largest logit, and
 * log-sum-exp minus that logit. */
void cuda_head_greedy_rows(cudaStream_t stream, const float *logits, int64_t rows, int64_t vocab,
                           int32_t *id, double *nll);
/* For each row of logits [rows][vocab]: its softmax p, and the sum of p log p. */
void cuda_head_distribution_rows(cudaStream_t stream, const float *logits, int64_t rows,
                                 int64_t vocab, float *p, double *log_p);
/* nll = log(sum) + max - target_logit; kl = log_p + log(sum) + max - dot, never below 0 */
void cuda_head_losses(cudaStream_t stream, const cuda_losses *l);

#ifdef __cplusplus
}
#endif
