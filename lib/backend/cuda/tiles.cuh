// What attention.cu and columns.cu share: tiles of packed rows in shared memory, and the scores of
// two of them. A block has THREADS threads, four warps.
//
// Rows of bf16 lie D + 8 values apart, rows of float D + 4. As D is a multiple of 16, the eight
// rows of 16 bytes that ldmatrix (or eight threads) read at a time then lie in different banks.
#pragma once

#include "lib/backend/cuda/cuda_attention.h"
#include "lib/backend/cuda/device.cuh"

#define THREADS 128
#define HIDDEN  (-INFINITY)
#define LOG2_E  1.44269504088896340736f

// The place where a run's tile of keys begins, and whether all rows at positions j0 ... j1 see all
// of it.
typedef struct key_tile {
    int run, c;
    bool whole;
} key_tile;

static __device__ __forceinline__ int position_of(const cuda_run *r, int c) {
    if (c >= r->n) { return CUDA_ALL_SEEN; }
    return r->positions ? (int)r->positions[c] : r->base + c;
}

static __device__ __forceinline__ bool sees(int j, int window, int position) {
    return position <= j && position > j - window;
}

// Whether a row at positions j0 ... j1 sees any of the keys c ... c + n - 1.
static __device__ __forceinline__ bool tile_seen(const cuda_run *r, int c, int n, int j0, int j1,
                                                 int window, bool *whole) {
    const int end = c + n < r->n ? c + n : r->n;
    const int first = position_of(r, c), last = position_of(r, end - 1);
    *whole = c + n <= r->n && last <= j0 && first > j1 - window;
    return first <= j1 && last > j0 - window;
}

// Goes to the next tile of either run that some row sees. Returns false where there is none.
static __device__ bool next_tile(const cuda_head *h, int n, int j0, int j1, int window,
                                 key_tile *at) {
    for (at->c += n; at->run < 2; at->run++, at->c = 0) {
        const cuda_run *r = &h->run[at->run];
        for (; at->c < r->n && position_of(r, at->c) <= j1; at->c += n) {
            if (tile_seen(r, at->c, n, j0, j1, window, &at->whole)) { return true; }
            const int first = (j0 - window + 1 - r->base) / n * n; // of the window of the first row
            if (!r->positions && first > at->c) { at->c = first - n; }
        }
    }
    return false;
}

// A row sees the keys first ... end - 1 of a run.
typedef struct seen_keys {
    int first, end;
} seen_keys;

static __device__ __forceinline__ seen_keys keys_seen(const cuda_run *r, int j, int window) {
    const int from = j - window + 1;
    if (!r->positions) { return {from - r->base, j + 1 - r->base < r->n ? j + 1 - r->base : r->n}; }
    // searches positions below `from` by halving
    int first = 0, n = window == CUDA_ALL_SEEN ? 0 : r->n;
    while (n > 0) {
        const int half = n / 2;
        const bool below = (int)r->positions[first + half] < from;
        first = below ? first + half + 1 : first;
        n = below ? n - half - 1 : half;
    }
    return {first, r->n};
}

// How many rows, each of so many pieces, the block's threads load at a time, one piece each: a
// power of two.
static __host__ __device__ constexpr int rows_at_once(int pieces) {
    int rows = 1;
    while (2 * rows * pieces <= THREADS) { rows *= 2; }
    return rows;
}

// Loads ROWS packed rows into shared memory, with PAD values after each. Rows from n on become
// zeros.
template <int ROWS, int D, int PAD, class T>
static __device__ __forceinline__ void load_rows(T *to, const T *from, int n) {
    constexpr int EACH = 16 / (int)sizeof(T), PIECES = D / EACH, AT_ONCE = rows_at_once(PIECES);
    static_assert(ROWS % AT_ONCE == 0, "whole turns");
    const int row = threadIdx.x / PIECES, at = threadIdx.x % PIECES * EACH;
    if (row >= AT_ONCE) { return; }
    to += row * (D + PAD) + at;
    from += row * D + at;
#pragma unroll
    for (int i = 0; i < ROWS; i += AT_ONCE) {
        cp_async_16(to + i * (D + PAD), from + i * D, row + i < n);
    }
}

// ---- bf16 ----

// s = A B^T of a warp: MT * 16 rows of A, NT * 8 rows of B.
template <int D, int MT, int NT>
static __device__ __forceinline__ void scores(float s[MT][NT][4], const uint16_t *a,
                                              const uint16_t *b) {
    const int lane = threadIdx.x % 32;
    a += (lane % 16) * (D + 8) + lane / 16 * 8;
    b += (lane / 16 * 8 + lane % 8) * (D + 8) + lane / 8 % 2 * 8;
#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int j = 0; j < NT; j++) { s[i][j][0] = s[i][j][1] = s[i][j][2] = s[i][j][3] = 0.0f; }
    }
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t fa[MT][4];
#pragma unroll
        for (int i = 0; i < MT; i++) { ldmatrix_x4(fa[i], a + i * 16 * (D + 8) + k); }
#pragma unroll
        for (int j = 0; j < NT; j += 2) {
            uint32_t fb[4];
            ldmatrix_x4(fb, b + j * 8 * (D + 8) + k);
#pragma unroll
            for (int i = 0; i < MT; i++) {
                mma_bf16_16816(s[i][j], fa[i], fb);
                mma_bf16_16816(s[i][j + 1], fa[i], fb + 2);
            }
        }
    }
}

// ---- float: thread (y, x) = (threadIdx.x / 8, threadIdx.x % 8) has rows y * M ... of A and rows
// x, x + 8, x + 16, x + 24 of B ----

template <int D, int M>
static __device__ __forceinline__ void scores(float s[M][4], const float *a, const float *b) {
    a += threadIdx.x / 8 * M * (D + 4);
    b += threadIdx.x % 8 * (D + 4);
#pragma unroll
    for (int i = 0; i < M; i++) { s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f; }
    for (int k = 0; k < D; k += 4) {
        float4 fa[M];
#pragma unroll
        for (int i = 0; i < M; i++) { fa[i] = *(const float4 *)(a + i * (D + 4) + k); }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float4 fb = *(const float4 *)(b + j * 8 * (D + 4) + k);
#pragma unroll
            for (int i = 0; i < M; i++) {
                s[i][j] = fmaf(fa[i].x, fb.x, s[i][j]);
                s[i][j] = fmaf(fa[i].y, fb.y, s[i][j]);
                s[i][j] = fmaf(fa[i].z, fb.z, s[i][j]);
                s[i][j] = fmaf(fa[i].w, fb.w, s[i][j]);
            }
        }
    }
}

// The sum over the N lanes of a row, where N is a power of two.
template <int N> static __device__ __forceinline__ float row_sum(float x) {
    for (int step = N / 2; step; step /= 2) { x += __shfl_xor_sync(ALL_LANES, x, step); }
    return x;
}
template <int N> static __device__ __forceinline__ float row_max(float x) {
    for (int step = N / 2; step; step /= 2) { x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, step)); }
    return x;
}
