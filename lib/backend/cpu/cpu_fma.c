/* Products and attention on AVX2 with FMA and on AVX-512, which are chosen when the backend starts:
 * see cpu_fma.h. */
#include "lib/backend/cpu/cpu_fma.h"

/* A step's keys and values may have to be read from another format. With columns, the scores of a
 * block are stored, and the maxima of its rows at every step. */
size_t cpu_fma_scratch(int32_t head_dim, int64_t n_columns) {
    const size_t n = (size_t)n_columns, kept = n ? n + n / FMA_KEYS + 1 : 0;
    return BE_ROW_TILE * (2 * (size_t)head_dim + FMA_KEYS + kept) + 2 * FMA_KEYS * (size_t)head_dim;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#include <math.h>

#define INLINE static inline __attribute__((always_inline))

/* How many rows the next tile has: six while there are so many. A rest of 7 or 8 becomes two tiles
 * of about four, rather than one of six and a thin one. */
INLINE int rows_of_tile(int64_t n) { return n == 7 || n == 8 ? 4 : n < 6 ? (int)n : 6; }

__attribute__((target("avx2,fma"))) static void transpose8(const float *src, int64_t src_stride,
                                                           float *dst, int64_t dst_stride) {
    __m256 a[8], b[8];
    for (int i = 0; i < 8; i++) { a[i] = _mm256_loadu_ps(src + i * src_stride); }
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(dst + i * dst_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
        _mm256_storeu_ps(dst + (i + 4) * dst_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
    }
}

/* dst[c][r] = src[r][c] of [n_rows][n_cols] */
__attribute__((target("avx2,fma"))) static void transpose(const float *src, int64_t src_stride,
                                                          int64_t n_rows, int64_t n_cols,
                                                          float *dst, int64_t dst_stride) {
    const int64_t whole_rows = n_rows / 8 * 8, whole_cols = n_cols / 8 * 8;
    for (int64_t r = 0; r < whole_rows; r += 8) {
        for (int64_t c = 0; c < whole_cols; c += 8) {
            /* those that are laid out next, or begin the next call's, are only prefetched */
            for (int64_t i = 8; i < 16 && c % 16 == 0; i++) {
                __builtin_prefetch(src + (r + i) * src_stride + c);
            }
            transpose8(src + r * src_stride + c, src_stride, dst + c * dst_stride + r, dst_stride);
        }
    }
    for (int64_t r = 0; r < n_rows; r++) {
        for (int64_t c = r < whole_rows ? whole_cols : 0; c < n_cols; c++) {
            dst[c * dst_stride + r] = src[r * src_stride + c];
        }
    }
}

/* Moves *row to the next row that is not padding. Returns how many such rows follow each other from
 * there; 0: there is none. */
static int64_t run_of_rows(const be_product_rows *rows, int64_t *row) {
    int64_t most = rows->n;
    if (rows->each > 0) {
        const int64_t place = (rows->first + *row) % rows->each;
        *row += place < rows->used ? 0 : rows->each - place;
        most = rows->used - (place < rows->used ? place : 0);
    }
    const int64_t rest = rows->n - *row;
    return rest < 0 ? 0 : rest < most ? rest : most;
}

/* Denormal numbers become 0, as the product treats them. */
__attribute__((target("avx512f,avx512bf16"))) static void pairs(int64_t n_rows, int64_t n,
                                                                const float *x, float *to) {
    for (int64_t r = 0; r < n_rows; r++, x += n, to += (n + 1) / 2) {
        for (int64_t i = 0; i < n; i += 32) {
            const int64_t left = n - i < 32 ? n - i : 32;
            const uint32_t some = (uint32_t)((UINT64_C(1) << left) - 1);
            const __m512 first = _mm512_maskz_loadu_ps((__mmask16)some, x + i),
                         second = _mm512_maskz_loadu_ps((__mmask16)(some >> 16), x + i + 16);
            _mm512_mask_storeu_epi32(to + i / 2, (__mmask16)((1U << (left + 1) / 2) - 1),
                                     (__m512i)_mm512_cvtne2ps_pbh(second, first));
        }
    }
}

#define INPUTS        1
#define LANES         8
#define NAME(x)       x##_8
#define TARGET        __attribute__((target("avx2,fma")))
#define V             __m256
#define V_LOAD(p)     _mm256_loadu_ps(p)
#define V_STORE(p, v) _mm256_storeu_ps(p, v)
#define V_ALL(f)      _mm256_set1_ps(f)
#define V_FMA         _mm256_fmadd_ps
#define V_MAX         _mm256_max_ps
#include "lib/backend/cpu/cpu_fma_lanes.h"

#define INPUTS        1
#define LANES         16
#define NAME(x)       x##_16
#define TARGET        __attribute__((target("avx512f")))
#define V             __m512
#define V_LOAD(p)     _mm512_loadu_ps(p)
#define V_STORE(p, v) _mm512_storeu_ps(p, v)
#define V_ALL(f)      _mm512_set1_ps(f)
#define V_FMA         _mm512_fmadd_ps
#define V_MAX         _mm512_max_ps
#include "lib/backend/cpu/cpu_fma_lanes.h"

#define INPUTS         2
#define LANES          16
#define NAME(x)        x##_pairs
#define TARGET         __attribute__((target("avx512f,avx512bf16")))
#define V              __m512
#define V_LOAD(p)      _mm512_loadu_ps(p)
#define V_STORE(p, v)  _mm512_storeu_ps(p, v)
#define V_ALL(f)       _mm512_set1_ps(f)
#define V_FMA(a, b, c) _mm512_dpbf16_ps(c, (__m512bh)(a), (__m512bh)(b))
#include "lib/backend/cpu/cpu_fma_lanes.h"

static const cpu_fma avx2 = {"AVX2", product_8, attend_8, exp_sum_8, NULL, NULL},
                     avx512 = {"AVX-512", product_16, attend_16, exp_sum_16, NULL, NULL},
                     bf16 = {"AVX-512", product_16, attend_16, exp_sum_16, pairs, product_pairs};

const cpu_fma *const *cpu_fma_list(ckvc_compute compute) {
    static const cpu_fma *const all[] = {&bf16, &avx512, &avx2, NULL};
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) { return all + 3; }
    if (!__builtin_cpu_supports("avx512f")) { return all + 2; }
    return compute == CKVC_COMPUTE_BF16 && __builtin_cpu_supports("avx512bf16") ? all : all + 1;
}
#else
const cpu_fma *const *cpu_fma_list(ckvc_compute compute) {
    static const cpu_fma *const none = NULL;
    (void)compute;
    return &none;
}
#endif
