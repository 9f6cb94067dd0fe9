// Attention of query rows over two runs of packed keys, with a running maximum (Milakov and
// Gimelshein 2018), in tiles as in FlashAttention-2 (Dao 2023). A block has one or two units, each
// of which is CUDA_TILE rows of one head; a warp has 16 or 32 of the rows. Scores, softmax and sums
// stay in registers. While scores are computed the tile's values are loaded, and while values are
// added the next tile's keys are.
//
// Two units are two heads of a group or, where the group ends, two tiles of rows: they read the
// same keys. A tile whose keys are all hidden from a row changes none of the row's bits (its
// maximum stays, the factor is 2^0, the sums get 0), so that a row's result does not depend on the
// unit beside it.
#include "lib/backend/cuda/tiles.cuh"

// ---- packing ----

// A thread copies four columns of a row; blockIdx.y is the number of the copy.
template <bool BF16> __global__ void pack_kernel(cuda_pack p, int width) {
    const cuda_copy *c = &p.copies[blockIdx.y];
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = i / (width / 4);
    const int at = (int)(i % (width / 4)) * 4;
    if (row >= cuda_tiles(c->n) * CUDA_TILE) { return; }
    float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (row < c->n) {
        const float *from = c->from + (c->positions ? (int64_t)c->positions[row] : row) * c->stride;
        if (p.head_dim % 4 == 0 && at < p.head_dim) {
            const float4 four = *(const float4 *)(from + at);
            x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
        } else {
            for (int k = 0; k < 4 && at + k < p.head_dim; k++) { x[k] = from[at + k]; }
        }
    }
    if (BF16) {
        uint2 *to = (uint2 *)((uint16_t *)c->to + row * width + at);
        *to = make_uint2(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]));
    } else {
        *(float4 *)((float *)c->to + row * width + at) = make_float4(x[0], x[1], x[2], x[3]);
    }
}

void cuda_pack_rows(cudaStream_t stream, const cuda_pack *p) {
    const int width = cuda_width(p->head_dim), threads = 256;
    const int64_t each = cuda_tiles(p->n_most) * CUDA_TILE * (width / 4);
    const dim3 grid((unsigned)((each + threads - 1) / threads), (unsigned)p->n_copies);
    if (p->n_copies == 0 || each == 0) { return; }
    if (p->bf16) {
        LAUNCH(pack_kernel<true>, grid, dim3(threads), 0, stream, *p, width);
    } else {
        LAUNCH(pack_kernel<false>, grid, dim3(threads), 0, stream, *p, width);
    }
}

// ---- the rows of a block ----

typedef struct block_rows {
    const cuda_head *keys;
    int first_unit, n_units, group, g;
    int j0, j1; // positions of the first and the last row
} block_rows;

// The place of row `i` of a block.
typedef struct row_place {
    int head, row; // the row is padding where row >= n_rows
    bool unit;     // whether there is such a unit
} row_place;

static __device__ __forceinline__ block_rows rows_of(const cuda_attend *a, int first_unit,
                                                     int n_units) {
    block_rows b;
    b.group = a->n_heads / a->n_kv_heads;
    b.g = blockIdx.y;
    b.keys = &a->heads[blockIdx.z * a->n_kv_heads + b.g];
    b.first_unit = first_unit;
    b.n_units = (int)cuda_tiles(a->n_rows) * b.group;
    const int end = first_unit + n_units < b.n_units ? first_unit + n_units : b.n_units;
    const int last = (end - 1) / b.group * CUDA_TILE + CUDA_TILE - 1;
    b.j0 = a->position + first_unit / b.group * CUDA_TILE;
    b.j1 = a->position + (last < a->n_rows ? last : a->n_rows - 1);
    return b;
}

static __device__ __forceinline__ row_place place_of(const block_rows *b, int i) {
    const int unit = b->first_unit + i / CUDA_TILE;
    row_place p;
    p.head = b->g * b->group + unit % b->group;
    p.row = unit / b->group * CUDA_TILE + i % CUDA_TILE;
    p.unit = unit < b->n_units;
    return p;
}

static __device__ __forceinline__ void write_stats(const cuda_attend *a, int head, int row,
                                                   float largest, float inverse) {
    const size_t at = (size_t)head * (size_t)(cuda_tiles(a->n_rows) * CUDA_TILE) + (size_t)row;
    a->stats[2 * at] = largest;
    a->stats[2 * at + 1] = inverse;
}

// ---- bf16: mma.sync ----

// The rows of a warp belong to one unit. Those of a thread are 8 apart: half i % 2 of its tile i /
// 2.

// Sets the scores of keys that a row does not see to -inf. c is the tile's first key, j the
// position of a thread's first row.
template <int MT, int NT>
static __device__ __forceinline__ void hide(float s[MT][NT][4], const cuda_run *run, int c, int j,
                                            int window) {
    c += threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        const seen_keys seen = keys_seen(run, j + 8 * i, window);
#pragma unroll
        for (int n = 0; n < 2 * NT; n++) {
            const int key = c + n / 2 * 8 + n % 2;
            float *x = &s[i / 2][n / 2][i % 2 * 2 + n % 2];
            *x = key >= seen.first && key < seen.end ? *x : HIDDEN;
        }
    }
}

// s becomes 2^(s * scale - m), where m is the row's new maximum of s * scale. Returns the factor
// for what was summed before.
template <int NT>
static __device__ __forceinline__ float soften(float s[NT][4], int half, float scale, float *max,
                                               float *sum) {
    float m = HIDDEN, add = 0.0f;
#pragma unroll
    for (int n = 0; n < NT; n++) { m = fmaxf(m, fmaxf(s[n][2 * half], s[n][2 * half + 1])); }
    m = fmaxf(*max, row_max<4>(m) * scale);
    const float base = m == HIDDEN ? 0.0f : m, factor = exp2_of(*max - base);
#pragma unroll
    for (int n = 0; n < NT; n++) {
        s[n][2 * half] = exp2_of(fmaf(s[n][2 * half], scale, -base));
        s[n][2 * half + 1] = exp2_of(fmaf(s[n][2 * half + 1], scale, -base));
        add += s[n][2 * half] + s[n][2 * half + 1];
    }
    *sum = fmaf(*sum, factor, add);
    *max = m;
    return factor;
}

// o += P V, where P [16 MT][KEYS] comes from the scores' registers and the rows of V lie in shared
// memory.
template <int D, int MT, int KEYS>
static __device__ __forceinline__ void
add_values(float o[MT][D / 8][4], const float p[MT][KEYS / 8][4], const uint16_t *v) {
    const int lane = threadIdx.x % 32;
    v += (lane % 16) * (D + 8) + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
        uint32_t fp[MT][4];
#pragma unroll
        for (int i = 0; i < MT; i++) {
            fp[i][0] = pack_bf16(p[i][2 * k][0], p[i][2 * k][1]);
            fp[i][1] = pack_bf16(p[i][2 * k][2], p[i][2 * k][3]);
            fp[i][2] = pack_bf16(p[i][2 * k + 1][0], p[i][2 * k + 1][1]);
            fp[i][3] = pack_bf16(p[i][2 * k + 1][2], p[i][2 * k + 1][3]);
        }
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t fv[4];
            ldmatrix_x4_trans(fv, v + k * 16 * (D + 8) + n * 8);
#pragma unroll
            for (int i = 0; i < MT; i++) {
                mma_bf16_16816(o[i][n], fp[i], fv);
                mma_bf16_16816(o[i][n + 1], fp[i], fv + 2);
            }
        }
    }
}

// Writes a thread's row and columns of O, or zeros.
template <int D>
static __device__ __forceinline__ void write_row(const cuda_attend *a, float *out, bool padding,
                                                 const float o[D / 8][4], int half, float inverse) {
    const float factor = padding ? 0.0f : inverse;
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        const int at = n * 8 + threadIdx.x % 4 * 2;
        if (at < a->head_dim) {
            *(float2 *)(out + at) =
                make_float2(o[n][2 * half] * factor, o[n][2 * half + 1] * factor);
        }
    }
}

static __device__ __forceinline__ size_t row_at(const cuda_attend *a, int head, int row) {
    return ((size_t)row * a->n_heads + head) * a->head_dim;
}

// Loads the queries of a block's rows in bf16, with zeros where there is no row.
template <int D, int MT>
static __device__ __forceinline__ void load_queries(const cuda_attend *a, const block_rows *b,
                                                    uint16_t *to) {
    constexpr int PIECES = D / 4, AT_ONCE = rows_at_once(PIECES);
    const int row = threadIdx.x / PIECES, at = threadIdx.x % PIECES * 4;
    if (row >= AT_ONCE) { return; }
#pragma unroll
    for (int unit = 0; unit < MT; unit++) {
        const row_place p = place_of(b, unit * CUDA_TILE + row);
        const float *x = b->keys->q + row_at(a, p.head, p.row) + at;
        const int64_t next = row_at(a, 0, AT_ONCE);
        uint16_t *into = to + (unit * CUDA_TILE + row) * (D + 8) + at;
#pragma unroll 8
        for (int i = 0; i < CUDA_TILE; i += AT_ONCE, x += next, into += AT_ONCE * (D + 8)) {
            const bool there = p.unit && p.row + i < a->n_rows;
            float2 low = make_float2(0.0f, 0.0f), high = low;
            if (there && at < a->head_dim) { low = *(const float2 *)x; }
            if (there && at + 2 < a->head_dim) { high = *(const float2 *)(x + 2); }
            *(uint2 *)into = make_uint2(pack_bf16(low.x, low.y), pack_bf16(high.x, high.y));
        }
    }
}

template <int D, int KEYS>
static __device__ __forceinline__ void load_tile(uint16_t *to, const void *from, int c) {
    load_rows<KEYS, D, 8>(to, (const uint16_t *)from + (size_t)c * D, KEYS);
    cp_async_commit();
}

// D: width; MT: units of a block, and 16-row tiles of a warp; KEYS: keys of a step.
template <int D, int MT, int KEYS, bool VALUES>
__global__ void __launch_bounds__(THREADS, 2) attend_kernel(const cuda_attend a) {
    constexpr int ROWS = MT * CUDA_TILE, NT = KEYS / 8, OT = VALUES ? D / 8 : 1;
    DYNAMIC_SHARED(shared);
    uint16_t *const q = (uint16_t *)shared, *const k = q + ROWS * (D + 8),
                    *const v = k + KEYS * (D + 8);
    // the longest rows begin first
    const block_rows b = rows_of(&a, (int)(gridDim.x - 1 - blockIdx.x) * MT, MT);
    const row_place mine = place_of(&b, threadIdx.x / 32 * 16 * MT + threadIdx.x % 32 / 4);
    const float scale = a.scale * LOG2_E;
    float max[MT][2], sum[MT][2], o[MT][OT][4];
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        max[i / 2][i % 2] = HIDDEN;
        sum[i / 2][i % 2] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < MT * OT * 4; i++) { o[i / 4 / OT][i / 4 % OT][i % 4] = 0.0f; }
    key_tile at = {0, -KEYS, false};
    bool more = next_tile(b.keys, KEYS, b.j0, b.j1, a.window, &at);
    if (more) { load_tile<D, KEYS>(k, b.keys->run[at.run].k, at.c); }
    load_queries<D, MT>(&a, &b, q);
    while (more) {
        float s[MT][NT][4];
        cp_async_wait<0>();
        __syncthreads(); // the keys have arrived, and nobody reads the last tile's values any more
        if (VALUES) { load_tile<D, KEYS>(v, b.keys->run[at.run].v, at.c); }
        scores<D, MT, NT>(s, q + threadIdx.x / 32 * 16 * MT * (D + 8), k);
        if (!at.whole) {
            hide<MT, NT>(s, &b.keys->run[at.run], at.c, a.position + mine.row, a.window);
        }
        more = next_tile(b.keys, KEYS, b.j0, b.j1, a.window, &at);
        cp_async_wait<0>();
        __syncthreads(); // the values have arrived, and nobody reads the keys any more
        if (more) { load_tile<D, KEYS>(k, b.keys->run[at.run].k, at.c); }
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int half = i % 2;
            const float factor =
                soften<NT>(s[i / 2], half, scale, &max[i / 2][half], &sum[i / 2][half]);
#pragma unroll
            for (int n = 0; n < OT; n++) {
                o[i / 2][n][2 * half] *= factor;
                o[i / 2][n][2 * half + 1] *= factor;
            }
        }
        if constexpr (VALUES) { add_values<D, MT, KEYS>(o, s, v); }
    }
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        const int row = mine.row + 8 * i;
        const float inverse = 1.0f / row_sum<4>(sum[i / 2][i % 2]);
        if (!mine.unit) { continue; }
        if constexpr (VALUES) {
            write_row<D>(&a, b.keys->out + row_at(&a, mine.head, row), row >= a.n_rows, o[i / 2],
                         i % 2, inverse);
        }
        if (a.stats && threadIdx.x % 4 == 0) {
            write_stats(&a, mine.head, row, max[i / 2][i % 2], inverse);
        }
    }
}

template <int D, int MT, int KEYS> static void attend(cudaStream_t stream, const cuda_attend *a) {
    const int64_t units = cuda_tiles(a->n_rows) * (a->n_heads / a->n_kv_heads);
    const dim3 grid((unsigned)((units + MT - 1) / MT), (unsigned)a->n_kv_heads,
                    (unsigned)a->n_lanes);
    const size_t rows = MT * CUDA_TILE + KEYS;
    if (a->values) {
        LAUNCH((attend_kernel<D, MT, KEYS, true>), grid, dim3(THREADS),
               (rows + KEYS) * (D + 8) * sizeof(uint16_t), stream, *a);
    } else {
        LAUNCH((attend_kernel<D, MT, KEYS, false>), grid, dim3(THREADS),
               rows * (D + 8) * sizeof(uint16_t), stream, *a);
    }
}

// ---- float: --compute f32 ----

// A block has 16 M rows of a unit. A thread has M of them, and every eighth of a tile's 32 keys, or
// every eighth group of four of the D columns.
template <int D, int M>
__global__ void __launch_bounds__(THREADS, 3) attend_kernel_f32(const cuda_attend a) {
    constexpr int ROWS = 16 * M, KEYS = 32, OT = D / 32, PARTS = CUDA_TILE / ROWS;
    DYNAMIC_SHARED(shared);
    float *const q = (float *)shared, *const kv = q + ROWS * (D + 4),
                 *const p = kv + KEYS * (D + 4);
    const int unit = (int)(blockIdx.x / PARTS), i0 = (int)(blockIdx.x % PARTS) * ROWS;
    const int y = threadIdx.x / 8, x = threadIdx.x % 8;
    const block_rows b = rows_of(&a, unit, 1);
    const row_place mine = place_of(&b, i0 + y * M);
    const float scale = a.scale * LOG2_E;
    float max[M], sum[M], o[M][OT][4];
#pragma unroll
    for (int i = 0; i < M; i++) {
        max[i] = HIDDEN;
        sum[i] = 0.0f;
#pragma unroll
        for (int n = 0; n < OT * 4; n++) { o[i][n / 4][n % 4] = 0.0f; }
    }
    for (int i = threadIdx.x; i < ROWS * D; i += THREADS) {
        const row_place at = place_of(&b, i0 + i / D);
        q[i / D * (D + 4) + i % D] = at.row < a.n_rows && i % D < a.head_dim
                                         ? b.keys->q[row_at(&a, at.head, at.row) + i % D]
                                         : 0.0f;
    }
    key_tile at = {0, -KEYS, false};
    while (next_tile(b.keys, KEYS, b.j0, b.j1, a.window, &at)) {
        const cuda_run *run = &b.keys->run[at.run];
        const size_t first = (size_t)at.c * D;
        float s[M][4];
        __syncthreads();
        load_rows<KEYS, D, 4>(kv, (const float *)run->k + first, KEYS);
        cp_async_commit();
        cp_async_wait<0>();
        __syncthreads();
        scores<D, M>(s, q, kv);
        __syncthreads();
        if (a.values) {
            load_rows<KEYS, D, 4>(kv, (const float *)run->v + first, KEYS);
            cp_async_commit();
        }
#pragma unroll
        for (int i = 0; i < M; i++) {
            const seen_keys seen = keys_seen(run, a.position + mine.row + i, a.window);
            float m = HIDDEN, add = 0.0f;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int key = at.c + x + 8 * n;
                s[i][n] = key >= seen.first && key < seen.end ? s[i][n] : HIDDEN;
                m = fmaxf(m, s[i][n]);
            }
            m = fmaxf(max[i], row_max<8>(m) * scale);
            const float base = m == HIDDEN ? 0.0f : m, factor = exp2_of(max[i] - base);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                s[i][n] = exp2_of(fmaf(s[i][n], scale, -base));
                add += s[i][n];
                p[(y * M + i) * (KEYS + 1) + x + 8 * n] = s[i][n];
            }
            sum[i] = fmaf(sum[i], factor, add);
            max[i] = m;
#pragma unroll
            for (int n = 0; n < OT * 4; n++) { o[i][n / 4][n % 4] *= factor; }
        }
        cp_async_wait<0>();
        __syncthreads();
        for (int t = 0; t < KEYS && a.values; t++) {
#pragma unroll
            for (int n = 0; n < OT; n++) {
                const float4 v = *(const float4 *)(kv + t * (D + 4) + n * 32 + x * 4);
#pragma unroll
                for (int i = 0; i < M; i++) {
                    const float w = p[(y * M + i) * (KEYS + 1) + t];
                    o[i][n][0] = fmaf(w, v.x, o[i][n][0]);
                    o[i][n][1] = fmaf(w, v.y, o[i][n][1]);
                    o[i][n][2] = fmaf(w, v.z, o[i][n][2]);
                    o[i][n][3] = fmaf(w, v.w, o[i][n][3]);
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < M; i++) {
        const int row = mine.row + i;
        const float inverse = 1.0f / row_sum<8>(sum[i]), factor = row < a.n_rows ? inverse : 0.0f;
        float *out = b.keys->out + row_at(&a, mine.head, row);
#pragma unroll
        for (int n = 0; n < OT * 4; n++) {
            const int d = n / 4 * 32 + x * 4 + n % 4;
            if (a.values && d < a.head_dim) { out[d] = o[i][n / 4][n % 4] * factor; }
        }
        if (a.stats && x == 0) { write_stats(&a, mine.head, row, max[i], inverse); }
    }
}

template <int D, int M> static void attend_f32(cudaStream_t stream, const cuda_attend *a) {
    constexpr int rows = 16 * M, keys = 32;
    const int64_t units = cuda_tiles(a->n_rows) * (a->n_heads / a->n_kv_heads);
    const dim3 grid((unsigned)(units * (CUDA_TILE / rows)), (unsigned)a->n_kv_heads,
                    (unsigned)a->n_lanes);
    LAUNCH((attend_kernel_f32<D, M>), grid, dim3(THREADS),
           ((rows + keys) * (D + 4) + rows * (keys + 1)) * sizeof(float), stream, *a);
}

void cuda_attend_rows(cudaStream_t stream, const cuda_attend *a) {
    const int width = cuda_width(a->head_dim);
    if (a->n_rows == 0 || a->n_lanes == 0) { return; }
    if (a->bf16) {
        (width == 64    ? attend<64, 2, 64>
         : width == 96  ? attend<96, 2, 64>
         : width == 128 ? attend<128, 2, 64>
                        : attend<256, 1, 32>)(stream, a);
    } else {
        (width == 64    ? attend_f32<64, 4>
         : width == 96  ? attend_f32<96, 4>
         : width == 128 ? attend_f32<128, 4>
                        : attend_f32<256, 2>)(stream, a);
    }
}
