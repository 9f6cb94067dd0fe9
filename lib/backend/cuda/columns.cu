// What query rows give to the keys of a run, computed from each row's largest score and sum, which
// cuda_attend_rows has left. This is a second pass over the scores, in which the keys are the rows
// of a tile, so that a thread adds up its own keys over all query rows. The sum of a tile is
// computed in float32; tiles are added in double, in the order of heads and rows.
#include "lib/backend/cuda/tiles.cuh"

// A walk over those tiles of n query rows, of all heads of a group, that see some of the block's
// keys.
typedef struct row_walk {
    int head, row, end; // end is the head after the last one
} row_walk;

static __device__ __forceinline__ row_walk first_rows(const cuda_columns *a, int n) {
    const int group = a->n_heads / a->n_kv_heads, g = blockIdx.y;
    row_walk w = {g * group, a->first_row / n * n - n, (g + 1) * group};
    if (a->rows) {
        w.head = a->head;
        w.end = w.head + 1;
    }
    return w;
}

static __device__ bool next_rows(const cuda_columns *a, const cuda_run *run, int key0, int n_keys,
                                 int n, row_walk *w) {
    bool whole;
    for (w->row += n; w->head < w->end; w->head++, w->row = a->first_row / n * n) {
        for (; w->row < a->n_rows; w->row += n) {
            const int last = w->row + n < a->n_rows ? w->row + n : a->n_rows;
            if (a->rows || tile_seen(run, key0, n_keys, a->position + w->row,
                                     a->position + last - 1, a->window, &whole)) {
                return true;
            }
        }
    }
    return false;
}

static __device__ __forceinline__ size_t packed_row(const cuda_columns *a, const row_walk *w) {
    return (size_t)w->head * (size_t)(cuda_tiles(a->n_rows) * CUDA_TILE) + (size_t)w->row;
}

// Loads the rows' statistics. Rows that do not count get statistics that make every share 0.
static __device__ __forceinline__ void load_stats(const cuda_columns *a, const row_walk *w, int n,
                                                  float *to) {
    const int i = threadIdx.x, row = w->row + i;
    if (i >= n) { return; }
    const bool counts = row >= a->first_row && row < a->n_rows;
    const float *from = a->stats + 2 * (packed_row(a, w) + (size_t)i);
    to[2 * i] = counts ? from[0] : INFINITY;
    to[2 * i + 1] = counts ? from[1] : 0.0f;
}

// Returns the share that query row w->row + i gives to a key, and writes it where the rows
// themselves are asked for.
static __device__ __forceinline__ float share(const cuda_columns *a, const row_walk *w, int i,
                                              int key, int position, float score,
                                              const float *stats) {
    const bool seen = sees(a->position + w->row + i, a->window, position);
    const float e = exp2_of(fmaf(score, a->scale * LOG2_E, -stats[2 * i])),
                x = seen ? e * stats[2 * i + 1] : 0.0f;
    const int row = w->row + i - a->first_row;
    if (a->rows && row >= 0 && w->row + i < a->n_rows && key < a->n_keys) {
        a->rows[(size_t)row * a->n_keys + key] = x;
    }
    return x;
}

static __device__ __forceinline__ void write_column(const cuda_columns *a, int key, double x) {
    if (!a->rows && key < a->n_keys) { a->columns[(size_t)blockIdx.y * a->n_keys + key] = x; }
}

static __device__ __forceinline__ float either(bool largest, float a, float b) {
    return largest ? fmaxf(a, b) : a + b;
}

template <int D, int ROWS>
static __device__ __forceinline__ void load_rows_of(const cuda_columns *a, const row_walk *w,
                                                    uint16_t *to, float *stats) {
    load_rows<ROWS, D, 8>(to, (const uint16_t *)a->q + packed_row(a, w) * D, ROWS);
    cp_async_commit();
    load_stats(a, w, ROWS, stats);
}

// D: width; MT: 16-key tiles of a warp; ROWS: query rows of a step.
template <int D, int MT, int ROWS>
__global__ void __launch_bounds__(THREADS, 3) columns_kernel(const cuda_columns a) {
    constexpr int KEYS = MT * CUDA_TILE, NT = ROWS / 8;
    DYNAMIC_SHARED(shared);
    uint16_t *const k = (uint16_t *)shared, *const q = k + KEYS * (D + 8);
    float *const stats = (float *)(q + 2 * ROWS * (D + 8));
    const cuda_run *run =
        &a.heads[a.rows ? a.head / (a.n_heads / a.n_kv_heads) : blockIdx.y].run[0];
    const int key0 = (int)blockIdx.x * KEYS, padded = (int)(cuda_tiles(run->n) * CUDA_TILE),
              mine = key0 + threadIdx.x / 32 * 16 * MT + threadIdx.x % 32 / 4;
    double total[MT][2];
    int position[MT][2];
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        total[i / 2][i % 2] = 0.0;
        position[i / 2][i % 2] = position_of(run, mine + 8 * i);
    }
    load_rows<KEYS, D, 8>(k, (const uint16_t *)run->k + (size_t)key0 * D, padded - key0);
    row_walk w = first_rows(&a, ROWS), next;
    bool more = next_rows(&a, run, key0, KEYS, ROWS, &w);
    if (more) { load_rows_of<D, ROWS>(&a, &w, q, stats); }
    for (int turn = 0; more; w = next, turn ^= 1) {
        const uint16_t *rows = q + turn * ROWS * (D + 8);
        const float *of = stats + turn * 2 * ROWS;
        float s[MT][NT][4];
        cp_async_wait<0>();
        __syncthreads(); // these rows have arrived, and nobody reads the ones before any more
        next = w;
        more = next_rows(&a, run, key0, KEYS, ROWS, &next);
        if (more) {
            load_rows_of<D, ROWS>(&a, &next, q + (turn ^ 1) * ROWS * (D + 8),
                                  stats + (turn ^ 1) * 2 * ROWS);
        }
        scores<D, MT, NT>(s, k + threadIdx.x / 32 * 16 * MT * (D + 8), rows);
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            float x = 0.0f;
#pragma unroll
            for (int n = 0; n < 2 * NT; n++) {
                const int row = n / 2 * 8 + threadIdx.x % 4 * 2 + n % 2;
                x = either(a.largest, x,
                           share(&a, &w, row, mine + 8 * i, position[i / 2][i % 2],
                                 s[i / 2][n / 2][i % 2 * 2 + n % 2], of));
            }
            for (int step = 2; step; step /= 2) {
                x = either(a.largest, x, __shfl_xor_sync(ALL_LANES, x, step));
            }
            double *sum = &total[i / 2][i % 2];
            *sum = !a.largest ? *sum + (double)x : *sum > (double)x ? *sum : (double)x;
        }
    }
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        if (threadIdx.x % 4 == 0) { write_column(&a, mine + 8 * i, total[i / 2][i % 2]); }
    }
}

template <int D, int MT, int ROWS> static void columns(cudaStream_t stream, const cuda_columns *a) {
    const dim3 grid((unsigned)((a->n_keys + MT * CUDA_TILE - 1) / (MT * CUDA_TILE)),
                    (unsigned)(a->rows ? 1 : a->n_kv_heads));
    LAUNCH((columns_kernel<D, MT, ROWS>), grid, dim3(THREADS),
           (MT * CUDA_TILE + 2 * ROWS) * (D + 8) * sizeof(uint16_t) + 4 * ROWS * sizeof(float),
           stream, *a);
}

// A block has 64 keys and takes 32 query rows in a step; a thread has four of each.
template <int D>
__global__ void __launch_bounds__(THREADS) columns_kernel_f32(const cuda_columns a) {
    constexpr int KEYS = CUDA_TILE, ROWS = 32;
    DYNAMIC_SHARED(shared);
    float *const k = (float *)shared, *const q = k + KEYS * (D + 4),
                 *const stats = q + ROWS * (D + 4);
    const cuda_run *run =
        &a.heads[a.rows ? a.head / (a.n_heads / a.n_kv_heads) : blockIdx.y].run[0];
    const int key0 = (int)blockIdx.x * KEYS, mine = key0 + threadIdx.x / 8 * 4;
    double total[4] = {0.0, 0.0, 0.0, 0.0};
    load_rows<KEYS, D, 4>(k, (const float *)run->k + (size_t)key0 * D, KEYS);
    cp_async_commit();
    row_walk w = first_rows(&a, ROWS);
    while (next_rows(&a, run, key0, KEYS, ROWS, &w)) {
        float s[4][4];
        __syncthreads();
        load_rows<ROWS, D, 4>(q, (const float *)a.q + packed_row(&a, &w) * D, ROWS);
        cp_async_commit();
        load_stats(&a, &w, ROWS, stats);
        cp_async_wait<0>();
        __syncthreads();
        scores<D, 4>(s, k, q);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int position = position_of(run, mine + i);
            float x = 0.0f;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                x = either(
                    a.largest, x,
                    share(&a, &w, threadIdx.x % 8 + 8 * n, mine + i, position, s[i][n], stats));
            }
            for (int step = 4; step; step /= 2) {
                x = either(a.largest, x, __shfl_xor_sync(ALL_LANES, x, step));
            }
            total[i] = !a.largest             ? total[i] + (double)x
                       : total[i] > (double)x ? total[i]
                                              : (double)x;
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (threadIdx.x % 8 == 0) { write_column(&a, mine + i, total[i]); }
    }
}

template <int D> static void columns_f32(cudaStream_t stream, const cuda_columns *a) {
    const dim3 grid((unsigned)cuda_tiles(a->n_keys), (unsigned)(a->rows ? 1 : a->n_kv_heads));
    LAUNCH(columns_kernel_f32<D>, grid, dim3(THREADS), (96 * (D + 4) + 64) * sizeof(float), stream,
           *a);
}

void cuda_column_sums(cudaStream_t stream, const cuda_columns *a) {
    const int width = cuda_width(a->head_dim);
    if (a->bf16) {
        (width == 64    ? columns<64, 2, 64>
         : width == 96  ? columns<96, 2, 64>
         : width == 128 ? columns<128, 2, 64>
                        : columns<256, 1, 32>)(stream, a);
    } else {
        (width == 64    ? columns_f32<64>
         : width == 96  ? columns_f32<96>
         : width == 128 ? columns_f32<128>
                        : columns_f32<256>)(stream, a);
    }
}
