// How far attention rows move when prompt positions are left out of the cache: attention_error of
// backend.h. A block is one row of one query head. It computes the scores of both lanes at every
// position three times, for the largest, for the sums and for the distances, so that no row of A is
// stored. The positions of a thread lie THREADS apart, and sums are computed in double.
#include "lib/backend/cuda/cuda_attention.h"
#include "lib/backend/cuda/device.cuh"

#define THREADS 128
#define WARPS   (THREADS / 32)
#define LOG2_E  1.44269504088896340736f

// The softmaxes of a row: over everything that it sees; of the same scores over what is kept; of
// the other lane.
enum { FULL, RESTRICTED, ACTUAL, SOFTMAXES };

typedef struct compared_row {
    const cuda_compare *a;
    const float *q[2]; // in shared memory
    int g, lo, hi;     // it sees positions lo ... hi-1
} compared_row;

static __device__ __forceinline__ bool is_kept(const compared_row *r, int t) {
    const cuda_compare *a = r->a;
    return !a->kept || t >= a->n_prompt ||
           a->kept[(int64_t)(a->per_head ? r->g : 0) * a->n_prompt + t];
}

// The score at position t in lane 0 (`full`) or 1 (`other`), in units of log2.
static __device__ __forceinline__ float score_at(const compared_row *r, int lane, int t) {
    const cuda_compare *a = r->a;
    const float *k = t < a->n_prompt
                         ? a->prompt + (r->g * a->capacity + t) * a->head_dim
                         : a->own[lane] + (r->g * a->own_capacity + t - a->n_prompt) * a->head_dim;
    float s = 0.0f;
    for (int d = 0; d < a->head_dim; d += 2) {
        const float2 of = *(const float2 *)(k + d);
        s = fmaf(r->q[lane][d + 1], of.y, fmaf(r->q[lane][d], of.x, s));
    }
    return s * (a->scale * LOG2_E);
}

template <class T, class Fold>
static __device__ __forceinline__ T over_block(T x, T *scratch, Fold fold) {
    for (int step = 16; step; step /= 2) { x = fold(x, __shfl_xor_sync(ALL_LANES, x, step)); }
    __syncthreads();
    if (threadIdx.x % 32 == 0) { scratch[threadIdx.x / 32] = x; }
    __syncthreads();
    x = scratch[0];
    for (int i = 1; i < WARPS; i++) { x = fold(x, scratch[i]); }
    return x;
}

static __device__ __forceinline__ double block_sum(double x, double *scratch) {
    return over_block(x, scratch, [](double a, double b) { return a + b; });
}

// blockIdx.x is the row, blockIdx.y the query head.
__global__ void __launch_bounds__(THREADS) compare_kernel(const cuda_compare a) {
    __shared__ float q[2][CUDA_WIDEST];
    __shared__ double scratch[WARPS];
    const int row = blockIdx.x, h = blockIdx.y;
    const int64_t from = ((int64_t)row * a.n_heads + h) * a.head_dim;
    compared_row r = {&a, {q[0], q[1]}, h / (a.n_heads / a.n_kv_heads), 0, a.n_prompt + row + 1};
    if (r.hi > a.window) { r.lo = r.hi - a.window; }
    for (int d = threadIdx.x; d < a.head_dim; d += THREADS) {
        q[0][d] = a.q[0][from + d];
        q[1][d] = a.q[1][from + d];
    }
    __syncthreads();
    float max[SOFTMAXES] = {-INFINITY, -INFINITY, -INFINITY};
    for (int t = r.lo + threadIdx.x; t < r.hi; t += THREADS) {
        const float s = score_at(&r, 0, t);
        max[FULL] = fmaxf(max[FULL], s);
        if (is_kept(&r, t)) {
            max[RESTRICTED] = fmaxf(max[RESTRICTED], s);
            max[ACTUAL] = fmaxf(max[ACTUAL], score_at(&r, 1, t));
        }
    }
    for (int i = 0; i < SOFTMAXES; i++) {
        max[i] = over_block(max[i], (float *)scratch, [](float x, float y) { return fmaxf(x, y); });
    }
    double sum[SOFTMAXES] = {0.0, 0.0, 0.0};
    for (int t = r.lo + threadIdx.x; t < r.hi; t += THREADS) {
        const float s = score_at(&r, 0, t);
        sum[FULL] += (double)exp2_of(s - max[FULL]);
        if (is_kept(&r, t)) {
            sum[RESTRICTED] += (double)exp2_of(s - max[RESTRICTED]);
            sum[ACTUAL] += (double)exp2_of(score_at(&r, 1, t) - max[ACTUAL]);
        }
    }
    for (int i = 0; i < SOFTMAXES; i++) { sum[i] = 1.0 / block_sum(sum[i], scratch); }
    double mass = 0.0, restricted = 0.0, actual = 0.0;
    for (int t = r.lo + threadIdx.x; t < r.hi; t += THREADS) {
        const float s = score_at(&r, 0, t);
        const double p = (double)exp2_of(s - max[FULL]) * sum[FULL];
        double to_restricted = p, to_actual = p;
        if (is_kept(&r, t)) {
            to_restricted -= (double)exp2_of(s - max[RESTRICTED]) * sum[RESTRICTED];
            to_actual -= (double)exp2_of(score_at(&r, 1, t) - max[ACTUAL]) * sum[ACTUAL];
        } else {
            mass += p;
        }
        restricted += to_restricted * to_restricted;
        actual += to_actual * to_actual;
    }
    mass = block_sum(mass, scratch);
    restricted = block_sum(restricted, scratch);
    actual = block_sum(actual, scratch);
    if (threadIdx.x == 0) {
        double *out = a.out + ((int64_t)h * a.n_rows + row) * 3;
        out[0] = mass;
        out[1] = restricted;
        out[2] = actual;
    }
}

void cuda_compare_rows(cudaStream_t stream, const cuda_compare *a) {
    LAUNCH(compare_kernel, dim3((unsigned)a->n_rows, (unsigned)a->n_heads), dim3(THREADS), 0,
           stream, *a);
}
