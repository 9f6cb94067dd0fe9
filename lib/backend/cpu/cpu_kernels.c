/* Row kernels of the CPU backend.
 *
 * They are written so that one source gives the same bits on every level of x86: sums run in a
 * fixed number of lanes, no product is contracted into a fused multiply-add (the Makefile's
 * -ffp-contract=off), and exp is our own. The compiler emits versions for AVX-512, AVX2 and the
 * baseline, and the loader picks one. libm's expf is scalar and would take a fifth of a rollout's
 * time. */
#include <math.h>
#include <string.h>

#include "lib/backend/cpu/cpu.h"

#define INLINE static inline __attribute__((always_inline))

#define LANES 8
/* The compilers' own vectors, with eight lanes on every machine. Auto-vectorisation fails at the
 * choice at the end of exp, and gcc splits wider vectors into single values where the machine does
 * not have them. */
typedef float f32x __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t i32x __attribute__((vector_size(LANES * sizeof(int32_t))));
typedef float f32half __attribute__((vector_size(LANES / 2 * sizeof(float))));
typedef double f64half __attribute__((vector_size(LANES / 2 * sizeof(double))));

INLINE void load(f32x *v, const float *p) { memcpy(v, p, sizeof *v); }

INLINE void store(float *p, const f32x *v) { memcpy(p, v, sizeof *v); }

/* Loads the n < LANES last values; the other lanes get `fill`. */
INLINE void load_tail(f32x *v, const float *p, int64_t n, float fill) {
    float lane[LANES];
    for (int j = 0; j < LANES; j++) { lane[j] = j < n ? p[j] : fill; }
    memcpy(v, lane, sizeof *v);
}

INLINE void add_to(f64half sum[2], const f32x *v) {
    f32half half[2];
    memcpy(half, v, sizeof half);
    sum[0] += __builtin_convertvector(half[0], f64half);
    sum[1] += __builtin_convertvector(half[1], f64half);
}

/* v = mask ? a : b; the lanes of mask are 0 or -1 */
INLINE void choose(f32x *v, const i32x *mask, const f32x *a, const f32x *b) {
    *v = (f32x)((*mask & (i32x)*a) | (~*mask & (i32x)*b));
}

/* v = exp(v). exp x = 2^n exp r with x = n ln2 + r and |r| <= ln2/2, by a polynomial in r (Cephes
 * expf, S. Moshier); at most 1 ulp off. Adding 1.5 * 2^23 rounds to n, whose bits are then the low
 * ones of the mantissa. The result is 0 below ln(2^-126), and never above exp(88.37), so never
 * infinite. NaN stays. */
INLINE void vector_exp(f32x *v) {
    const f32x zero = {0}, magic = zero + 12582912.0f, top = zero + 88.37f;
    f32x x = *v;
    const i32x over = x > 88.37f, under = x < -87.33f;
    choose(&x, &over, &top, &x);
    const f32x shifted = x * 1.44269504088896341f + magic;
    const f32x n = shifted - magic;
    const f32x r = x - n * 0.693359375f + n * 2.12194440e-4f;
    f32x p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const f32x y = p * (r * r) + r + 1.0f, scaled = y * (f32x)(((i32x)shifted + 127) << 23);
    choose(v, &under, &zero, &scaled);
}

CKVC_CLONES double kernel_softmax(float *x, int64_t n, float *max_out) {
    f32x top = (f32x){0} + x[0], v;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        load(&v, x + i);
        const i32x more = v > top;
        choose(&top, &more, &v, &top);
    }
    load_tail(&v, x + i, n - i, x[0]);
    const i32x more = v > top;
    choose(&top, &more, &v, &top);
    float max = top[0];
    for (int j = 1; j < LANES; j++) { max = top[j] > max ? top[j] : max; }

    f64half sum[2] = {{0}, {0}};
    for (i = 0; i + LANES <= n; i += LANES) {
        load(&v, x + i);
        v -= max;
        vector_exp(&v);
        store(x + i, &v);
        add_to(sum, &v);
    }
    load_tail(&v, x + i, n - i, -INFINITY); /* exp makes it 0 */
    v -= max;
    vector_exp(&v);
    add_to(sum, &v);
    for (int64_t j = 0; j < n - i; j++) { x[i + j] = v[j]; }
    double total = 0;
    for (int j = 0; j < LANES; j++) { total += sum[j / (LANES / 2)][j % (LANES / 2)]; }
    if (max_out) { *max_out = max; }
    return total;
}

CKVC_CLONES void kernel_scale(float *x, int64_t n, float factor) {
    for (int64_t i = 0; i < n; i++) { x[i] *= factor; }
}

CKVC_CLONES void kernel_mass_add(double *restrict mass, const float *restrict e, int64_t n,
                                 double factor) {
    for (int64_t i = 0; i < n; i++) { mass[i] += (double)e[i] * factor; }
}

CKVC_CLONES void kernel_mass_max(double *restrict mass, const float *restrict e, int64_t n,
                                 double factor) {
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)e[i] * factor;
        mass[i] = x > mass[i] ? x : mass[i];
    }
}

/* silu(g) = g / (1 + exp(-g)) */
INLINE void vector_silu_mul(f32x *y, const f32x *gate, const f32x *up) {
    f32x e = -*gate;
    vector_exp(&e);
    *y = *gate / (e + 1.0f) * *up;
}

/* gelu(g) = g / (1 + exp(-2u)) with u = sqrt(2/pi) (g + 0.044715 g^3), because (1 + tanh u) / 2 is
 * the logistic function of 2u. */
INLINE void vector_gelu_mul(f32x *y, const f32x *gate, const f32x *up) {
    f32x e = -*gate * (*gate * *gate * 0.0713548162726f + 1.59576912160573f);
    vector_exp(&e);
    *y = *gate / (e + 1.0f) * *up;
}

INLINE void vector_gate_mul(bool gelu, f32x *y, const f32x *gate, const f32x *up) {
    if (gelu) {
        vector_gelu_mul(y, gate, up);
    } else {
        vector_silu_mul(y, gate, up);
    }
}

INLINE void gate_mul(bool gelu, const float *gate, const float *up, float *y, int64_t n) {
    f32x g, u, v;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        load(&g, gate + i);
        load(&u, up + i);
        vector_gate_mul(gelu, &v, &g, &u);
        store(y + i, &v);
    }
    load_tail(&g, gate + i, n - i, 0.0f);
    load_tail(&u, up + i, n - i, 0.0f);
    vector_gate_mul(gelu, &v, &g, &u);
    for (int64_t j = 0; j < n - i; j++) { y[i + j] = v[j]; }
}

CKVC_CLONES void kernel_silu_mul(const float *gate, const float *up, float *y, int64_t n) {
    gate_mul(false, gate, up, y, n);
}

CKVC_CLONES void kernel_gelu_mul(const float *gate, const float *up, float *y, int64_t n) {
    gate_mul(true, gate, up, y, n);
}

INLINE double dot(const float *x, const float *y, int64_t n) {
    double sum[LANES] = {0}, total = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) { sum[j] += (double)x[i + j] * (double)y[i + j]; }
    }
    for (int j = 0; i < n; i++, j++) { sum[j] += (double)x[i] * (double)y[i]; }
    for (int j = 0; j < LANES; j++) { total += sum[j]; }
    return total;
}

CKVC_CLONES double kernel_dot(const float *x, const float *y, int64_t n) { return dot(x, y, n); }

CKVC_CLONES void kernel_rmsnorm(const float *x, const float *w, float *y, int64_t n, double eps) {
    const float scale = (float)(1.0 / sqrt(dot(x, x, n) / (double)n + eps));
    for (int64_t i = 0; i < n; i++) { y[i] = x[i] * scale * w[i]; }
}

CKVC_CLONES void kernel_rmsnorm_add(const float *x, const float *w, float *y, int64_t n,
                                    double eps) {
    const float scale = (float)(1.0 / sqrt(dot(x, x, n) / (double)n + eps));
    for (int64_t i = 0; i < n; i++) { y[i] += x[i] * scale * w[i]; }
}

CKVC_CLONES void kernel_rope(float *restrict x, const float *restrict cos,
                             const float *restrict sin, int32_t half) {
    for (int32_t i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half];
        x[i] = a * cos[i] - b * sin[i];
        x[i + half] = b * cos[i] + a * sin[i];
    }
}

CKVC_CLONES double kernel_norm(const float *x, int64_t n) { return sqrt(dot(x, x, n)); }

void kernel_round_bf16(const float *src, float *dst, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, src + i, sizeof bits);
        const uint32_t nearest = bits + 0x7FFF + (bits >> 16 & 1),
                       quiet = bits | 0x400000; /* keeps a NaN a NaN */
        bits = ((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : nearest) & 0xFFFF0000;
        memcpy(dst + i, &bits, sizeof bits);
    }
}
