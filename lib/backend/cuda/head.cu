/* Losses from logits: log-sum-exp by running maxima and sums over pieces of the vocabulary
 * (Milakov, Gimelshein: Online normalizer calculation for softmax, 2018), in the order of the
 * pieces. */
#include "lib/backend/cuda/cuda_kernels.h"
#include "lib/backend/cuda/device.cuh"

#define THREADS 256
#define WARPS   (THREADS / 32)

static __device__ float block_max(float x) {
    __shared__ float warps[WARPS];
    x = warp_max(x);
    if (threadIdx.x % 32 == 0) { warps[threadIdx.x / 32] = x; }
    __syncthreads();
    for (int i = 0; i < WARPS; i++) { x = warps[i] > x ? warps[i] : x; }
    return x;
}

/* A block has one row. */
__global__ void head_tile(cuda_losses l, const float *logits, int64_t from, int64_t col,
                          int64_t width) {
    const int64_t at = from + blockIdx.x, row = l.first + at, i = row % l.lane_rows - l.row0;
    const float *x = logits + blockIdx.x * width;
    if (i < 0 || i >= l.n_rows) { return; }
    float top = x[0];
    for (int64_t j = threadIdx.x; j < width; j += THREADS) { top = x[j] > top ? x[j] : top; }
    top = block_max(top);
    double sum = 0;
    for (int64_t j = threadIdx.x; j < width; j += THREADS) { sum += (double)expf(x[j] - top); }
    sum = block_sum<THREADS>(sum);
    double dot = 0;
    if (l.p) {
        const float *p = l.p + i * l.vocab + col;
        for (int64_t j = threadIdx.x; j < width; j += THREADS) {
            dot += (double)p[j] * (double)x[j];
        }
        __syncthreads(); /* the other sum has been read by now */
        dot = block_sum<THREADS>(dot);
    }
    if (threadIdx.x > 0) { return; }
    if (l.p) { l.dot[at] = col > 0 ? l.dot[at] + dot : dot; }
    const int64_t target = l.target[i] - col;
    if (target >= 0 && target < width) { l.target_logit[at] = x[target]; }
    if (col > 0) {
        const float before = l.max[at], most = before > top ? before : top;
        sum =
            l.sum[at] * exp((double)before - (double)most) + sum * exp((double)top - (double)most);
        top = most;
    }
    l.max[at] = top;
    l.sum[at] = sum;
}

void cuda_head_tile(cudaStream_t stream, const cuda_losses *l, const float *logits, int64_t from,
                    int64_t rows, int64_t col, int64_t width) {
    LAUNCH(head_tile, (unsigned)rows, THREADS, 0, stream, *l, logits, from, col, width);
}

__global__ void head_losses(cuda_losses l) {
    const int64_t place = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (place >= l.n_lanes * l.n_rows) { return; }
    const int64_t at = place / l.n_rows * l.lane_rows + l.row0 + place % l.n_rows - l.first;
    const double log_sum = log(l.sum[at]) + (double)l.max[at];
    l.nll[place] = log_sum - (double)l.target_logit[at];
    if (l.p) {
        const double kl = l.log_p[place % l.n_rows] + log_sum - l.dot[at];
        l.kl[place] = kl < 0 ? 0 : kl;
    }
}

void cuda_head_losses(cudaStream_t stream, const cuda_losses *l) {
    const int64_t n = l->n_lanes * l->n_rows;
    LAUNCH(head_losses, (unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, stream, *l);
}

/* A block has one row. */
__global__ void head_distribution(const float *logits, int64_t vocab, float *p, double *log_p) {
    const float *x = logits + blockIdx.x * vocab;
    float *to = p + blockIdx.x * vocab, top = x[0];
    for (int64_t j = threadIdx.x; j < vocab; j += THREADS) { top = x[j] > top ? x[j] : top; }
    top = block_max(top);
    double sum = 0, entropy = 0;
    for (int64_t j = threadIdx.x; j < vocab; j += THREADS) { sum += (double)expf(x[j] - top); }
    sum = block_sum<THREADS>(sum);
    for (int64_t j = threadIdx.x; j < vocab; j += THREADS) {
        to[j] = (float)((double)expf(x[j] - top) / sum);
        if (to[j] != 0.0f) { entropy += (double)to[j] * log((double)to[j]); }
    }
    __syncthreads(); /* the other sum has been read by now */
    entropy = block_sum<THREADS>(entropy);
    if (threadIdx.x == 0) { log_p[blockIdx.x] = entropy; }
}

void cuda_head_distribution_rows(cudaStream_t stream, const float *logits, int64_t rows,
                                 int64_t vocab, float *p, double *log_p) {
    LAUNCH(head_distribution, (unsigned)rows, THREADS, 0, stream, logits, vocab, p, log_p);
}

/* A block has one row. */
__global__ void head_greedy(const float *logits, int64_t vocab, int32_t *id, double *nll) {
    __shared__ int64_t firsts[THREADS];
    const float *x = logits + blockIdx.x * vocab;
    float top = x[0];
    for (int64_t j = threadIdx.x; j < vocab; j += THREADS) { top = x[j] > top ? x[j] : top; }
    top = block_max(top);
    double sum = 0;
    int64_t first = vocab;
    for (int64_t j = threadIdx.x; j < vocab; j += THREADS) {
        if (x[j] == top && j < first) { first = j; }
        sum += (double)expf(x[j] - top);
    }
    firsts[threadIdx.x] = first;
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x > 0) { return; }
    for (int i = 1; i < THREADS; i++) { first = firsts[i] < first ? firsts[i] : first; }
    id[blockIdx.x] = first < vocab ? (int32_t)first : 0; /* nothing equals a NaN */
    nll[blockIdx.x] = log(sum);
}

void cuda_head_greedy_rows(cudaStream_t stream, const float *logits, int64_t rows, int64_t vocab,
                           int32_t *id, double *nll) {
    LAUNCH(head_greedy, (unsigned)rows, THREADS, 0, stream, logits, vocab, id, nll);
}
