/* Kernels on rows. A block has one row, or as many values as it has threads. Sums are trees of
 * warps over threads whose share depends on the width alone. */
#include "lib/backend/cuda/cuda_kernels.h"
#include "lib/backend/cuda/device.cuh"

#define THREADS 256
#define RUN     8 /* values of a thread: 32 bytes are read, 16 bytes of bf16 written */

struct alignas(16) four_floats {
    float v[4];
};
struct alignas(16) four_words {
    uint32_t v[4];
};

static unsigned pieces_of(int64_t n, int64_t piece) { return (unsigned)((n + piece - 1) / piece); }

/* Whether a whole run lies aligned: x begins at whole rows, and buffers at 256 bytes. */
static __device__ bool is_whole(int64_t col, int64_t cols) {
    return cols % 4 == 0 && col + RUN <= cols;
}

static __device__ void load_run(const float *row, int64_t col, int64_t cols, float x[RUN]) {
    if (is_whole(col, cols)) {
        const four_floats *from = (const four_floats *)(row + col);
        for (int i = 0; i < RUN; i++) { x[i] = from[i / 4].v[i % 4]; }
        return;
    }
    for (int i = 0; i < RUN; i++) { x[i] = col + i < cols ? row[col + i] : 0.0f; }
}

static __device__ void store_run(float *row, int64_t col, int64_t cols, const float x[RUN]) {
    if (is_whole(col, cols)) {
        for (int i = 0; i < RUN; i += 4) {
            const four_floats part = {{x[i], x[i + 1], x[i + 2], x[i + 3]}};
            *(four_floats *)(row + col + i) = part;
        }
        return;
    }
    for (int i = 0; i < RUN && col + i < cols; i++) { row[col + i] = x[i]; }
}

/* Stores a run; rows of bf16 are whole runs. */
static __device__ void store_half(const cuda_half &half, int64_t row, int64_t col,
                                  const float x[RUN]) {
    four_words packed;
    for (int i = 0; i < RUN; i += 2) { packed.v[i / 2] = pack_bf16(x[i], x[i + 1]); }
    *(four_words *)(half.to + row * half.stride + col) = packed;
}

/* Finds the row and column of a thread's run. Returns false where there is none. */
static __device__ bool run_of(int64_t n_rows, int64_t cols, int64_t *row, int64_t *col) {
    const int64_t runs = (cols + RUN - 1) / RUN,
                  at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    *row = at / runs;
    *col = at % runs * RUN;
    return *row < n_rows;
}

static unsigned run_blocks(int64_t n_rows, int64_t cols) {
    return pieces_of(n_rows * ((cols + RUN - 1) / RUN), THREADS);
}

__global__ void to_bf16(const float *from, int64_t n_rows, int64_t cols, cuda_half half) {
    int64_t row, col;
    float x[RUN] = {0};
    if (!run_of(half.padded, cols, &row, &col)) { return; }
    if (row < n_rows) { load_run(from + row * cols, col, cols, x); }
    store_half(half, row, col, x);
}

void cuda_to_bf16(cudaStream_t stream, const float *from, int64_t n_rows, int64_t cols,
                  const cuda_half *half) {
    LAUNCH(to_bf16, run_blocks(half->padded, cols), THREADS, 0, stream, from, n_rows, cols, *half);
}

static __device__ float silu(float x) { return x / (1.0f + expf(-x)); }

/* Computes what the CPU's vector_gelu_mul does. */
static __device__ float gelu(float x) {
    return x / (1.0f + expf(-x * (x * x * 0.0713548162726f + 1.59576912160573f)));
}

template <bool GELU>
__global__ void gate_mul(const float *gate, const float *up, int64_t n_rows, int64_t cols, float *y,
                         cuda_half half) {
    int64_t row, col;
    float g[RUN] = {0}, u[RUN] = {0};
    if (!run_of(half.to ? half.padded : n_rows, cols, &row, &col)) { return; }
    if (row < n_rows) {
        load_run(gate + row * cols, col, cols, g);
        load_run(up + row * cols, col, cols, u);
        for (int i = 0; i < RUN; i++) { g[i] = (GELU ? gelu(g[i]) : silu(g[i])) * u[i]; }
        store_run(y + row * cols, col, cols, g);
    }
    if (half.to) { store_half(half, row, col, g); }
}

void cuda_gate_mul_rows(cudaStream_t stream, bool gelu, const float *gate, const float *up,
                        int64_t n_rows, int64_t width, float *y, const cuda_half *half) {
    const unsigned blocks = run_blocks(half->to ? half->padded : n_rows, width);
    if (gelu) {
        LAUNCH(gate_mul<true>, blocks, THREADS, 0, stream, gate, up, n_rows, width, y, *half);
    } else {
        LAUNCH(gate_mul<false>, blocks, THREADS, 0, stream, gate, up, n_rows, width, y, *half);
    }
}

template <bool ADD>
__global__ void rmsnorm(const float *x, const float *w, int64_t n_rows, int64_t width, double eps,
                        float *y, cuda_half half) {
    const int64_t row = blockIdx.x;
    const float *from = x + row * width;
    const bool there = row < n_rows;
    double squares = 0;
    for (int64_t col = threadIdx.x * RUN; there && col < width; col += THREADS * RUN) {
        float v[RUN];
        load_run(from, col, width, v);
        for (int i = 0; i < RUN; i++) { squares += (double)v[i] * (double)v[i]; }
    }
    const float scale = (float)(1.0 / sqrt(block_sum<THREADS>(squares) / (double)width + eps));
    for (int64_t col = threadIdx.x * RUN; col < width; col += THREADS * RUN) {
        float v[RUN] = {0}, by[RUN], onto[RUN] = {0};
        if (there) {
            load_run(from, col, width, v);
            load_run(w, col, width, by);
            if (ADD) { load_run(y + row * width, col, width, onto); }
            for (int i = 0; i < RUN; i++) {
                v[i] = ADD ? onto[i] + v[i] * scale * by[i] : v[i] * scale * by[i];
            }
            store_run(y + row * width, col, width, v);
        }
        if (half.to) { store_half(half, row, col, v); }
    }
}

void cuda_rmsnorm_rows(cudaStream_t stream, const float *x, const float *w, int64_t n_rows,
                       int64_t width, double eps, float *y, const cuda_half *half) {
    LAUNCH(rmsnorm<false>, (unsigned)(half->to ? half->padded : n_rows), THREADS, 0, stream, x, w,
           n_rows, width, eps, y, *half);
}

void cuda_rmsnorm_add_rows(cudaStream_t stream, const float *x, const float *w, int64_t n_rows,
                           int64_t width, double eps, float *y) {
    const cuda_half none = {};
    LAUNCH(rmsnorm<true>, (unsigned)n_rows, THREADS, 0, stream, x, w, n_rows, width, eps, y, none);
}

__global__ void add_bias(const float *bias, int64_t n_rows, int64_t n_out, bool add, float *y) {
    int64_t row, col;
    float v[RUN] = {0}, b[RUN];
    if (!run_of(n_rows, n_out, &row, &col)) { return; }
    if (add) { load_run(y + row * n_out, col, n_out, v); }
    load_run(bias, col, n_out, b);
    for (int i = 0; i < RUN; i++) { v[i] += b[i]; }
    store_run(y + row * n_out, col, n_out, v);
}

void cuda_bias_rows(cudaStream_t stream, const float *bias, int64_t n_rows, int64_t n_out, bool add,
                    float *y) {
    LAUNCH(add_bias, run_blocks(n_rows, n_out), THREADS, 0, stream, bias, n_rows, n_out, add, y);
}

/* ---- positions ---- */

__global__ void fill_angles(const double *inv_freq, int32_t half, int64_t n, float *cosine,
                            float *sine) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) { return; }
    const double angle = (double)(at / half) * inv_freq[at % half];
    cosine[at] = (float)cos(angle);
    sine[at] = (float)sin(angle);
}

void cuda_fill_angles(cudaStream_t stream, const double *inv_freq, int32_t half,
                      int64_t n_positions, float *cosine, float *sine) {
    const int64_t n = n_positions * half;
    LAUNCH(fill_angles, pieces_of(n, THREADS), THREADS, 0, stream, inv_freq, half, n, cosine, sine);
}

/* Rotates pair i of a head at position t; pairs are half-split as in Hugging Face. */
static __device__ void rotate(const float *x, int32_t half, int32_t i, int64_t t,
                              const float *cosine, const float *sine, float *y) {
    const float a = x[i], b = x[i + half], c = cosine[t * half + i], s = sine[t * half + i];
    y[i] = a * c - b * s;
    y[i + half] = b * c + a * s;
}

__global__ void rope(cuda_rows rows, int32_t n_heads, int32_t half, const float *cosine,
                     const float *sine, float *q) {
    const int64_t row = blockIdx.x, r = row % rows.lane_rows;
    if (r >= rows.n_rows) { return; }
    for (int32_t at = threadIdx.x; at < n_heads * half; at += blockDim.x) {
        float *head = q + (row * n_heads + at / half) * 2 * half;
        rotate(head, half, at % half, rows.row0 + r, cosine, sine, head);
    }
}

void cuda_rope_rows(cudaStream_t stream, const cuda_rows *rows, int32_t n_heads, int32_t half,
                    const float *cosine, const float *sine, float *q) {
    LAUNCH(rope, (unsigned)(rows->n_lanes * rows->lane_rows), THREADS, 0, stream, *rows, n_heads,
           half, cosine, sine, q);
}

/* Slots after the last row, up to the next whole tile, become 0: attention multiplies them by
 * weights of 0, and 0 * NaN is NaN. */
__global__ void cache_fill(cuda_rows rows, int32_t n_kv, int32_t half, const float *cosine,
                           const float *sine, const float *k, const float *v, int64_t capacity,
                           float *k_cache, float *v_cache) {
    const int64_t row = blockIdx.x, lane = row / rows.lane_rows, r = row % rows.lane_rows;
    for (int32_t at = threadIdx.x; at < n_kv * half; at += blockDim.x) {
        const int32_t g = at / half, i = at % half;
        const int64_t from = (row * n_kv + g) * 2 * half,
                      to = ((lane * n_kv + g) * capacity + r) * 2 * half;
        if (r < rows.n_rows) {
            rotate(k + from, half, i, rows.row0 + r, cosine, sine, k_cache + to);
            v_cache[to + i] = v[from + i];
            v_cache[to + i + half] = v[from + i + half];
        } else {
            k_cache[to + i] = k_cache[to + i + half] = 0.0f;
            v_cache[to + i] = v_cache[to + i + half] = 0.0f;
        }
    }
}

void cuda_cache_fill(cudaStream_t stream, const cuda_rows *rows, int32_t n_kv, int32_t half,
                     const float *cosine, const float *sine, const float *k, const float *v,
                     int64_t capacity, float *k_cache, float *v_cache) {
    LAUNCH(cache_fill, (unsigned)(rows->n_lanes * rows->lane_rows), THREADS, 0, stream, *rows, n_kv,
           half, cosine, sine, k, v, capacity, k_cache, v_cache);
}

/* A warp has one slot. */
__global__ void value_norm(const float *v, int64_t capacity, int32_t head_dim, int64_t n,
                           double *norm) {
    const int64_t t = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32, g = blockIdx.y;
    const bool there = t < n;
    double squares = 0;
    for (int32_t i = threadIdx.x % 32; there && i < head_dim; i += 32) {
        const double x = (double)v[(g * capacity + t) * head_dim + i];
        squares += x * x;
    }
    squares = warp_sum(squares);
    if (there && threadIdx.x % 32 == 0) { norm[g * n + t] = sqrt(squares); }
}

void cuda_value_norm_rows(cudaStream_t stream, const float *v, int32_t n_kv, int64_t capacity,
                          int32_t head_dim, int64_t n, double *norm) {
    LAUNCH(value_norm, dim3(pieces_of(n, THREADS / 32), (unsigned)n_kv), THREADS, 0, stream, v,
           capacity, head_dim, n, norm);
}

__global__ void rows_differ(const uint32_t *a, const uint32_t *b, int64_t n, int64_t stride,
                            uint32_t *found) {
    const int64_t row = (int64_t)blockIdx.x * stride;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        if (a[row + i] != b[row + i]) { *found = 1; }
    }
}

void cuda_rows_differ(cudaStream_t stream, const float *a, const float *b, int64_t n_rows,
                      int64_t n, int64_t stride, uint32_t *found) {
    LAUNCH(rows_differ, (unsigned)n_rows, THREADS, 0, stream, (const uint32_t *)a,
           (const uint32_t *)b, n, stride, found);
}
