// Decoding: compact caches that hold what is kept, and the attention of one row of each sequence
// over its own cache. Memory limits it, so it multiplies in float32 whatever type products have;
// the query heads of a group share what is read. A row's keys are cut into pieces of
// CUDA_HELD_SPLIT from its own first key on, and the pieces are combined in their order, so a row's
// result does not depend on anything beside it.
#include "lib/backend/cuda/cuda_attention.h"
#include "lib/backend/cuda/device.cuh"

#define THREADS 128
#define WARPS   (THREADS / 32)
#define LOG2_E  1.44269504088896340736f

__global__ void copy_kernel(cuda_pack p) {
    const cuda_copy *c = &p.copies[blockIdx.y];
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = i / p.head_dim;
    if (row >= c->n) { return; }
    const int64_t from = c->positions ? (int64_t)c->positions[row] : row;
    ((float *)c->to)[i] = c->from[from * c->stride + i % p.head_dim];
}

void cuda_copy_rows_of(cudaStream_t stream, const cuda_pack *p) {
    const int64_t each = (int64_t)p->n_most * p->head_dim;
    const dim3 grid((unsigned)((each + 255) / 256), (unsigned)p->n_copies);
    if (each > 0) { LAUNCH(copy_kernel, grid, dim3(256), 0, stream, *p); }
}

// blockIdx.x is a query head, which is rotated in place, or after these a KV head, whose key and
// value become the last of what is held. blockIdx.y is the row.
__global__ void step_rows_kernel(cuda_step a) {
    const int half = a.head_dim / 2, h = blockIdx.x, g = h - a.n_heads;
    const int64_t i = blockIdx.y;
    float *to = a.q + (i * a.n_heads + h) * a.head_dim;
    const float *from = to;
    if (g >= 0) {
        const cuda_held_head *held = &a.heads[i * a.n_kv_heads + g];
        const int64_t at = (i * a.n_kv_heads + g) * a.head_dim,
                      last = (int64_t)(held->n - 1) * a.head_dim;
        to = held->k + last;
        from = a.k + at;
        for (int d = threadIdx.x; d < a.head_dim; d += THREADS) { held->v[last + d] = a.v[at + d]; }
    }
    for (int d = threadIdx.x; d < half; d += THREADS) {
        const float c = a.cos[i * half + d], s = a.sin[i * half + d], x = from[d],
                    y = from[half + d];
        to[d] = x * c - y * s;
        to[half + d] = y * c + x * s;
    }
}

void cuda_step_rows(cudaStream_t stream, const cuda_step *a) {
    const dim3 grid((unsigned)(a->n_heads + a->n_kv_heads), (unsigned)a->n);
    LAUNCH(step_rows_kernel, grid, dim3(THREADS), 0, stream, *a);
}

// Computes the scores of keys first ... end-1 for HEADS queries; eight threads work on a key.
template <int HEADS>
static __device__ __forceinline__ void step_scores(const float *q, int n_dims, const float *k,
                                                   int first, int end, float scale,
                                                   float (*score)[CUDA_HELD_SPLIT]) {
    const int x = threadIdx.x % 8;
    for (int i = threadIdx.x / 8; i < CUDA_HELD_SPLIT; i += THREADS / 8) {
        float s[HEADS];
#pragma unroll
        for (int h = 0; h < HEADS; h++) { s[h] = 0.0f; }
        for (int d = 2 * x; d < n_dims && i >= first && i < end; d += 16) {
            const float2 of = *(const float2 *)(k + (int64_t)i * n_dims + d);
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                const float2 with = *(const float2 *)(q + h * n_dims + d);
                s[h] = fmaf(with.y, of.y, fmaf(with.x, of.x, s[h]));
            }
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            for (int step = 4; step; step /= 2) { s[h] += __shfl_xor_sync(ALL_LANES, s[h], step); }
            if (x == 0) { score[h][i] = i >= first && i < end ? s[h] * scale : -INFINITY; }
        }
    }
}

// score becomes 2^(score - largest); a warp works on a head. The largest score and the sum are
// written to piece.
static __device__ __forceinline__ void step_softmax(float *score, float *piece) {
    const int lane = threadIdx.x % 32;
    float max = -INFINITY, sum = 0.0f;
    for (int i = lane; i < CUDA_HELD_SPLIT; i += 32) { max = fmaxf(max, score[i]); }
    max = warp_max(max);
    const float base = max == -INFINITY ? 0.0f : max;
    for (int i = lane; i < CUDA_HELD_SPLIT; i += 32) {
        score[i] = exp2_of(score[i] - base);
        sum += score[i];
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        piece[0] = max;
        piece[1] = sum;
    }
}

// blockIdx.x is the piece, y the KV head and HEADS of its query heads, z the row.
template <int HEADS> __global__ void __launch_bounds__(THREADS) step_kernel(const cuda_step a) {
    alignas(8) __shared__ float q[HEADS * CUDA_WIDEST]; // it is read in pairs
    __shared__ float score[HEADS][CUDA_HELD_SPLIT], part[HEADS][2 * THREADS];
    const int group = a.n_heads / a.n_kv_heads, parts = (group + HEADS - 1) / HEADS,
              g = (int)blockIdx.y / parts, h0 = (int)blockIdx.y % parts * HEADS,
              n_heads = group - h0 < HEADS ? group - h0 : HEADS, d = a.head_dim;
    const int64_t row = blockIdx.z;
    const cuda_held_head *held = &a.heads[row * a.n_kv_heads + g];
    const int begin = (int)blockIdx.x * CUDA_HELD_SPLIT, first = held->hidden - begin,
              end = held->n - begin;
    if (end <= 0) { return; }
    const int64_t at = row * a.n_heads + g * group + h0;
    float *piece = a.pieces + (at * gridDim.x + blockIdx.x) * (d + 2);
    const int64_t next_head = (int64_t)gridDim.x * (d + 2);
    for (int i = threadIdx.x; i < HEADS * d; i += THREADS) {
        q[i] = i < n_heads * d ? a.q[at * d + i] : 0.0f;
    }
    __syncthreads();
    step_scores<HEADS>(q, d, held->k + (int64_t)begin * d, first, end, a.scale * LOG2_E, score);
    __syncthreads();
    for (int h = threadIdx.x / 32; h < n_heads; h += WARPS) {
        step_softmax(score[h], piece + h * next_head);
    }
    __syncthreads();
    // A thread has two columns of every so many-th key; there are `lists` lists of keys.
    const int lists = 2 * THREADS / d, list = threadIdx.x / (d / 2),
              column = threadIdx.x % (d / 2) * 2;
    float o[HEADS][2];
#pragma unroll
    for (int h = 0; h < HEADS; h++) { o[h][0] = o[h][1] = 0.0f; }
    const int last = end < CUDA_HELD_SPLIT ? end : CUDA_HELD_SPLIT;
    for (int i = (first > 0 ? first / lists * lists : 0) + list; i < last && list < lists;
         i += lists) {
        const float2 v = *(const float2 *)(held->v + (int64_t)(begin + i) * d + column);
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            o[h][0] = fmaf(score[h][i], v.x, o[h][0]);
            o[h][1] = fmaf(score[h][i], v.y, o[h][1]);
        }
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        part[h][2 * threadIdx.x] = o[h][0];
        part[h][2 * threadIdx.x + 1] = o[h][1];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n_heads * d; i += THREADS) {
        const int h = i / d, c = i % d;
        float sum = 0.0f;
        for (int l = 0; l < lists; l++) { sum += part[h][l * d + c]; }
        piece[h * next_head + 2 + c] = sum;
    }
}

#define AT_ONCE 256 // pieces whose factors lie in shared memory at a time

// blockIdx.x is the query head, y the row. Threads side by side compute each factor once; sums are
// chains over the pieces in their order.
__global__ void __launch_bounds__(THREADS) bring_together_kernel(const cuda_step a, int stride) {
    constexpr int COLUMNS = CUDA_WIDEST / THREADS;
    __shared__ float warps[WARPS], factor[AT_ONCE], part[AT_ONCE];
    const int d = a.head_dim, h = blockIdx.x, g = h / (a.n_heads / a.n_kv_heads);
    const int64_t at = (int64_t)blockIdx.y * a.n_heads + h;
    const int n = cuda_held_pieces(a.heads[(int64_t)blockIdx.y * a.n_kv_heads + g].n);
    const float *piece = a.pieces + at * stride * (d + 2);
    float max = -INFINITY, sum = 0.0f, x[COLUMNS] = {0.0f};
    for (int i = threadIdx.x; i < n; i += THREADS) { max = fmaxf(max, piece[i * (d + 2)]); }
    max = warp_max(max);
    if (threadIdx.x % 32 == 0) { warps[threadIdx.x / 32] = max; }
    __syncthreads();
    for (int i = 0; i < WARPS; i++) { max = fmaxf(max, warps[i]); }
    for (int first = 0; first < n; first += AT_ONCE, piece += AT_ONCE * (d + 2)) {
        const int count = n - first < AT_ONCE ? n - first : AT_ONCE;
        __syncthreads(); // nobody reads the earlier factors any more
        for (int i = threadIdx.x; i < count; i += THREADS) {
            factor[i] = exp2_of(piece[i * (d + 2)] - max);
            part[i] = piece[i * (d + 2) + 1];
        }
        __syncthreads();
#pragma unroll 8
        for (int i = 0; i < count; i++) {
            sum = fmaf(part[i], factor[i], sum);
#pragma unroll
            for (int k = 0; k < COLUMNS; k++) {
                const int c = (int)threadIdx.x + k * THREADS;
                if (c < d) { x[k] = fmaf(piece[i * (d + 2) + 2 + c], factor[i], x[k]); }
            }
        }
    }
#pragma unroll
    for (int k = 0; k < COLUMNS; k++) {
        const int c = (int)threadIdx.x + k * THREADS;
        if (c < d) { a.out[at * d + c] = x[k] / sum; }
    }
}

template <int HEADS> static void step(cudaStream_t stream, const cuda_step *a, dim3 grid) {
    const int group = a->n_heads / a->n_kv_heads;
    grid.y *= (unsigned)((group + HEADS - 1) / HEADS);
    LAUNCH(step_kernel<HEADS>, grid, dim3(THREADS), 0, stream, *a);
}

void cuda_step_attend(cudaStream_t stream, const cuda_step *a) {
    const int group = a->n_heads / a->n_kv_heads, pieces = cuda_held_pieces(a->n_most);
    const dim3 grid((unsigned)pieces, (unsigned)a->n_kv_heads, (unsigned)a->n);
    (group == 1 ? step<1> : group == 2 ? step<2> : group <= 4 ? step<4> : step<8>)(stream, a, grid);
    LAUNCH(bring_together_kernel, dim3((unsigned)a->n_heads, (unsigned)a->n), dim3(THREADS), 0,
           stream, *a, pieces);
}
