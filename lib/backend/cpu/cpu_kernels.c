/* Row kernels of the CPU backend.
 *
 * Written so that one source gives the same bits on every x86 level: sums run in a fixed number of lanes, no product is
 * contracted into a fused multiply-add (the Makefile's -ffp-contract=off), and exp is ours. The compiler emits a version for
 * AVX-512, AVX2 and the baseline, and the loader picks one. libm's expf would be a fifth of a rollout's time: it is scalar.
 */
#include <math.h>
#include <string.h>

#include "lib/backend/cpu/cpu.h"

/* The loader's choice runs before the sanitizers are up, so they get the baseline alone. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&                           \
    !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif
#define INLINE static inline __attribute__((always_inline))

#define LANES 16

/* exp(x) for float: x = n ln2 + r, |r| <= ln2/2, a polynomial of degree 7 in r, times 2^n (Cephes expf, S. Moshier). The rounding
 * to n is the addition of 1.5 * 2^23, whose low mantissa bits are then n. 0 below ln(2^-126); never above exp(88.37). NaN stays. */
INLINE float exp_f32(float x)
{
    const float magic = 12582912.0f;
    x = x > 88.37f ? 88.37f : x;
    float shifted = x * 1.44269504088896341f + magic;
    float n = shifted - magic;
    float r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    float y = p * (r * r) + r + 1.0f;
    union {
        float f;
        uint32_t u;
    } scale = {.f = shifted};
    scale.u = (scale.u + 127u) << 23;
    y = y * scale.f;
    return x < -87.33f ? 0.0f : y;
}

CLONES double kernel_softmax(float *x, int64_t n, float *max_out)
{
    float m[LANES];
    for (int j = 0; j < LANES; j++)
        m[j] = x[0];
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++)
            m[j] = x[i + j] > m[j] ? x[i + j] : m[j];
    }
    for (; i < n; i++)
        m[0] = x[i] > m[0] ? x[i] : m[0];
    float max = m[0];
    for (int j = 1; j < LANES; j++)
        max = m[j] > max ? m[j] : max;

    double total = 0;
    for (int64_t block = 0; block < n; block += 256) {
        const int64_t end = block + 256 < n ? block + 256 : n;
        float sum[LANES] = {0};
        for (i = block; i + LANES <= end; i += LANES) {
            for (int j = 0; j < LANES; j++) {
                float e = exp_f32(x[i + j] - max);
                x[i + j] = e;
                sum[j] += e;
            }
        }
        for (int j = 0; i < end; i++, j++) {
            float e = exp_f32(x[i] - max);
            x[i] = e;
            sum[j] += e;
        }
        for (int j = 0; j < LANES; j++)
            total += (double)sum[j];
    }
    if (max_out)
        *max_out = max;
    return total;
}

CLONES void kernel_scale(float *x, int64_t n, float factor)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

CLONES void kernel_mass_add(double *restrict mass, const float *restrict e, int64_t n, double factor)
{
    for (int64_t i = 0; i < n; i++)
        mass[i] += (double)e[i] * factor;
}

/* silu(g) = g / (1 + exp(-g)) */
CLONES void kernel_silu_mul(const float *gate, const float *up, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = gate[i] / (1.0f + exp_f32(-gate[i])) * up[i];
}

CLONES void kernel_rmsnorm(const float *restrict x, const float *restrict w, float *restrict y, int64_t n, double eps)
{
    double sum[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int j = 0; j < 8; j++)
            sum[j] += (double)x[i + j] * (double)x[i + j];
    }
    for (int j = 0; i < n; i++, j++)
        sum[j] += (double)x[i] * (double)x[i];
    double total = 0;
    for (int j = 0; j < 8; j++)
        total += sum[j];
    const float scale = (float)(1.0 / sqrt(total / (double)n + eps));
    for (i = 0; i < n; i++)
        y[i] = x[i] * scale * w[i];
}

CLONES void kernel_rope(float *restrict x, const float *restrict cos, const float *restrict sin, int32_t half)
{
    for (int32_t i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half];
        x[i] = a * cos[i] - b * sin[i];
        x[i + half] = b * cos[i] + a * sin[i];
    }
}

CLONES double kernel_norm(const float *x, int64_t n)
{
    double sum[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int j = 0; j < 8; j++)
            sum[j] += (double)x[i + j] * (double)x[i + j];
    }
    for (int j = 0; i < n; i++, j++)
        sum[j] += (double)x[i] * (double)x[i];
    double total = 0;
    for (int j = 0; j < 8; j++)
        total += sum[j];
    return sqrt(total);
}

CLONES void kernel_from_bf16(const uint16_t *src, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        union {
            uint32_t u;
            float f;
        } v = {.u = (uint32_t)src[i] << 16};
        dst[i] = v.f;
    }
}

/* Exact: a normal number moves its exponent from bias 15 to 127, a subnormal is an integer times 2^-24, the top exponent stays the top. */
CLONES void kernel_from_f16(const uint16_t *src, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t sign = (uint32_t)(src[i] & 0x8000u) << 16, rest = src[i] & 0x7fffu;
        union {
            float f;
            uint32_t u;
        } small = {.f = (float)(int32_t)rest * 0x1p-24f}, v;
        const uint32_t normal = (rest << 13) + (112u << 23), top = (rest << 13) | 0x7f800000u;
        const uint32_t big = rest >= 0x7c00u ? top : normal;
        v.u = (rest < 0x0400u ? small.u : big) | sign;
        dst[i] = v.f;
    }
}
