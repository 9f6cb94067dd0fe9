/* Our kernels bit by bit: products are the chain of fused multiply-adds that cpu_fma.h states,
 * whatever lies beside a row or column, and every vector width gives the same bytes. The width of
 * AVX-512 runs here on any machine with AVX2: the same source on vectors that the compiler puts
 * together, and where the CPU has AVX-512 that, too. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored                                                                     \
    "-Wpsabi" /* 64-byte vectors by value; every such function is inlined */
#endif

#include "lib/backend/backend.h"
#include "lib/backend/cpu/cpu_fma.c" /* its static functions are what is tested */
#include "tests/unit/lib/backend/on_backend.h"

#if defined(__x86_64__) && defined(__GNUC__)
typedef float wide __attribute__((vector_size(64)));
#define WIDE __attribute__((target("avx2,fma")))

WIDE INLINE wide wide_load(const float *p) {
    wide v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Wide arguments go by address: how they are passed by value has changed between compilers. */
WIDE INLINE void wide_store(float *p, const wide *v) { memcpy(p, v, sizeof *v); }

WIDE INLINE wide wide_fma(const wide *a, const wide *b, const wide *c) {
    wide v = *c;
    for (int i = 0; i < 16; i++) { v[i] = __builtin_fmaf((*a)[i], (*b)[i], v[i]); }
    return v;
}

WIDE INLINE wide wide_max(const wide *a, const wide *b) {
    wide v = *a;
    for (int i = 0; i < 16; i++) { v[i] = v[i] > (*b)[i] ? v[i] : (*b)[i]; }
    return v;
}

#define AT(v)          ((const wide[1]){v})
#define INPUTS         1
#define LANES          16
#define NAME(x)        x##_wide
#define TARGET         WIDE
#define V              wide
#define V_LOAD         wide_load
#define V_STORE(p, v)  wide_store(p, AT(v))
#define V_ALL(f)       ((wide){0} + (f))
#define V_FMA(a, b, c) wide_fma(AT(a), AT(b), AT(c))
#define V_MAX(a, b)    wide_max(AT(a), AT(b))
#include "lib/backend/cpu/cpu_fma_lanes.h"

static const cpu_fma emulated = {"emulated", product_wide, attend_wide, exp_sum_wide, NULL, NULL};

/* The widths that this machine can run; where it has none, the test ends as skipped. */
static int widths(const cpu_fma *list[3]) {
    int n = 0;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        print_message("skipped: this CPU has no AVX2 with FMA\n");
        skip();
    }
    list[n++] = &avx2;
    list[n++] = &emulated;
    if (__builtin_cpu_supports("avx512f")) { list[n++] = &avx512; }
    return n;
}

TEST(product_is_its_chain) {
    const cpu_fma *list[3] = {NULL};
    const int n_list = widths(list);
    static const int64_t shapes[][3] = {{1, 1, 1},     {2, 16, 5},    {3, 17, 64},  {4, 31, 383},
                                        {5, 33, 384},  {6, 48, 385},  {7, 50, 700}, {8, 8, 1000},
                                        {64, 40, 100}, {67, 100, 776}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        const int64_t rows = shapes[k][0], out = shapes[k][1], in = shapes[k][2], xs = in + 3,
                      ws = in + 1, ys = out + 5;
        CKVC_AUTO_FREE float *x = values(rows * xs, 1), *w = values(out * ws, 1),
                             *before = values(rows * ys, 1), *y = ckvc_alloc(rows * ys, sizeof *y);
        for (int variant = 0; variant < 2 * n_list; variant++) {
            const bool onto = variant & 1;
            memcpy(y, before, (size_t)(rows * ys) * sizeof *y);
            list[variant / 2]->product(&(be_product_rows){.n = rows}, out, in, x, xs, w, ws, onto,
                                       y, ys);
            for (int64_t r = 0; r < rows; r++) {
                for (int64_t c = 0; c < ys; c++) {
                    float want = before[r * ys + c];
                    for (int64_t first = 0; c < out && first < in; first += FMA_DEPTH) {
                        float sum = 0;
                        for (int64_t i = first; i < in && i < first + FMA_DEPTH; i++) {
                            sum = __builtin_fmaf(x[r * xs + i], w[c * ws + i], sum);
                        }
                        want = onto || first > 0 ? want + sum : sum;
                    }
                    /* and nothing behind the columns is touched */
                    assert_memory_equal(&y[r * ys + c], &want, sizeof want);
                }
            }
        }
    }
    for (int i = 0; i < n_list; i++) { /* for the last lines of scripts/test.sh */
        if (list[i] != &emulated) { printf("ran: %s\n", list[i]->name); }
    }
}

/* Spans: causal, under a window, ending in the middle of a step, padding; two runs, one, none. */
TEST(attention_of_every_width) {
    const cpu_fma *list[3] = {NULL};
    const int n_list = widths(list);
    static const struct {
        int64_t first, second; /* keys of the runs */
        int32_t d;
        int64_t window, rows;
    } cases[] = {{64, 0, 64, 0, 64},      {500, 0, 32, 0, 64},   {300, 64, 20, 0, 40},
                 {0, 64, 7, 0, 64},       {1000, 64, 8, 90, 64}, {96, 0, 16, 1, 64},
                 {193, 128, 128, 100, 3}, {0, 0, 8, 0, 0}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int64_t d = cases[k].d, n = cases[k].first + cases[k].second, stride = d + 9;
        CKVC_AUTO_FREE float *q = values(BE_ROW_TILE * stride, 6), *keys = values(n * d + 1, 1),
                             *v = values(n * d + 1, 1),
                             *scratch = values(cpu_fma_scratch((int32_t)d, cases[k].first), 1);
        const key_run runs[2] = {
            {keys, v, cases[k].first, {0}, {0}},
            {keys + cases[k].first * d, v + cases[k].first * d, cases[k].second, {0}, {0}}};
        row_span span[BE_ROW_TILE];
        for (int64_t r = 0; r < BE_ROW_TILE; r++) {
            const int64_t hi = n - BE_ROW_TILE + r + 1;
            span[r] = (row_span){cases[k].window && hi > cases[k].window ? hi - cases[k].window : 0,
                                 r < cases[k].rows ? hi : 0};
        }
        const size_t n_first = (size_t)cases[k].first,
                     n_got = (size_t)(BE_ROW_TILE * stride) * sizeof(float);
        float *got[3], *again = ckvc_calloc(n_got, 1);
        double *column[3][2], *want_column[2];
        for (int m = 0; m < 2; m++) { want_column[m] = ckvc_calloc(n_first, sizeof(double)); }
        for (int i = 0; i < n_list; i++) {
            got[i] = ckvc_calloc((size_t)(BE_ROW_TILE * stride), sizeof *got[i]);
            list[i]->attend((int32_t)d, 0.2f, q, stride, runs, span, NULL, got[i], scratch);
            for (int m = 0; m < 2; m++) { /* asking for columns changes nothing else */
                column[i][m] = ckvc_calloc(n_first, sizeof(double));
                const key_columns columns = {column[i][m], 5, m};
                list[i]->attend((int32_t)d, 0.2f, q, stride, runs, span, &columns, again, scratch);
                assert_memory_equal(again, got[i], n_got);
                assert_memory_equal(column[i][m], column[0][m], n_first * sizeof(double));
            }
            assert_memory_equal(got[i], got[0], n_got);
        }
        for (int64_t r = 0; r < BE_ROW_TILE; r++) {
            double sum = 0, max = -INFINITY, e[2000], want;
            for (int64_t t = span[r].lo; t < span[r].hi; t++) {
                e[t] = 0;
                for (int64_t i = 0; i < d; i++) {
                    e[t] += 0.2 * (double)q[r * stride + i] * (double)keys[t * d + i];
                }
                max = e[t] > max ? e[t] : max;
            }
            for (int64_t t = span[r].lo; t < span[r].hi; t++) { sum += e[t] = exp(e[t] - max); }
            for (int64_t t = span[r].lo; r >= 5 && t < span[r].hi; t++) {
                if (t >= cases[k].first) { break; }
                want_column[0][t] += e[t] / sum;
                want_column[1][t] = fmax(want_column[1][t], e[t] / sum);
            }
            for (int64_t i = 0; i < d; i++) {
                want = 0;
                for (int64_t t = span[r].lo; t < span[r].hi; t++) {
                    want += e[t] / sum * (double)v[t * d + i];
                }
                /* values up to 1; padding is exactly 0 */
                assert_true(fabs((double)got[0][r * stride + i] - want) < 2e-6);
                assert_true(r < cases[k].rows || got[0][r * stride + i] == 0.0f);
            }
        }
        for (int m = 0; m < 2; m++) {
            for (size_t t = 0; t < n_first; t++) {
                assert_true(fabs(column[0][m][t] - want_column[m][t]) <
                            1e-9 + 5e-6 * want_column[m][t]);
            }
            free(want_column[m]);
        }
        for (int i = 0; i < n_list; i++) { free(got[i]), free(column[i][0]), free(column[i][1]); }
        free(again);
    }
}

TEST(sum_of_exponentials) {
    const cpu_fma *list[3] = {NULL};
    const int n_list = widths(list);
    for (int64_t n = 1; n < 300; n += n < 40 ? 1 : 37) {
        float *x = values((size_t)n, 60), max[3];
        double sum[3], want = 0;
        for (int i = 0; i < n_list; i++) {
            sum[i] = list[i]->exp_sum(x, n, &max[i]);
            assert_memory_equal(&sum[i], &sum[0], sizeof *sum);
            assert_memory_equal(&max[i], &max[0], sizeof *max);
        }
        float top = x[0];
        for (int64_t i = 0; i < n; i++) { top = x[i] > top ? x[i] : top; }
        for (int64_t i = 0; i < n; i++) { want += exp((double)x[i] - (double)top); }
        assert_true(max[0] == top && fabs(sum[0] - want) <= 1e-6 * want);
        x[n / 2] = NAN;
        assert_true(isnan(list[0]->exp_sum(x, n, max)));
        free(x);
    }
}

/* NaN among the keys or values that a row sees reaches the row, and no other. */
TEST(attention_keeps_nan) {
    const cpu_fma *list[3] = {NULL};
    const int n_list = widths(list);
    enum { D = 8, N = 200 };
    CKVC_AUTO_FREE float *q = values(BE_ROW_TILE * D, 1), *keys = values(N * D, 1),
                         *v = values(N * D, 1), *scratch = values(cpu_fma_scratch(D, 0), 1);
    float out[BE_ROW_TILE * D];
    row_span span[BE_ROW_TILE];
    for (int r = 0; r < BE_ROW_TILE; r++) { span[r] = (row_span){0, N - BE_ROW_TILE + 1 + r}; }
    keys[(N - 20) * D + 3] = NAN;
    for (int i = 0; i < n_list; i++) {
        list[i]->attend(D, 1.0f, q, D, (key_run[2]){{keys, v, N, {0}, {0}}, {0}}, span, NULL, out,
                        scratch);
        for (int r = 0; r < BE_ROW_TILE; r++) {
            assert_true(isnan(out[r * D]) == (span[r].hi > N - 20));
        }
    }
}

int main(void) {
    ckvc_rng_init(&rng, 11, 11, 11);
    return unit_run(NULL, NULL);
}
#else
TEST(elsewhere) { assert_null(*cpu_fma_list(CKVC_COMPUTE_F32)); }

RUN_TESTS(NULL, NULL)
#endif
