/* What fitting spends its time in, on vectors of LANES doubles. fit_products.c includes this file
 * once for each width. Before including it, define LANES (2 or more), NAME(x) (x with the width's
 * suffix) and TARGET (the function attribute). Nothing is rounded once for two operations, and no
 * operation combines lanes, so that the width does not show in the results. */

typedef double NAME(lanes) __attribute__((vector_size(LANES * sizeof(double))));
typedef int64_t NAME(bits) __attribute__((vector_size(LANES * sizeof(double))));
#define V     NAME(lanes)
#define WIDE  (2 * LANES) /* columns of a tile */
#define LOAD  NAME(load)
#define STORE NAME(store)

TARGET static inline void LOAD(V *v, const double *p) { memcpy(v, p, sizeof *v); }
TARGET static inline void STORE(double *p, const V *v) { memcpy(p, v, sizeof *v); }

/* A tile of FIT_TILE rows and WIDE columns of a product. */
TARGET static inline void NAME(tile)(double *out, size_t stride, fit_factor a, const double *b,
                                     size_t n) {
    V sum[FIT_TILE][2], y[2];
    for (size_t i = 0; i < FIT_TILE; i++) { sum[i][0] = sum[i][1] = (V){0}; }
    for (size_t k = 0; k < n; k++) {
        LOAD(&y[0], b + k * stride);
        LOAD(&y[1], b + k * stride + LANES);
        for (size_t i = 0; i < FIT_TILE; i++) {
            const double x = a.at[i * a.row + k * a.column];
            sum[i][0] += x * y[0];
            sum[i][1] += x * y[1];
        }
    }
    for (size_t i = 0; i < FIT_TILE; i++) {
        for (size_t j = 0; j < 2; j++) {
            double *to = out + i * stride + j * LANES;
            LOAD(&y[j], to);
            y[j] += a.sign * sum[i][j];
            STORE(to, &y[j]);
        }
    }
}

/* Does what fit_loops says. */
TARGET static void NAME(product)(double *out, size_t rows, size_t columns, size_t stride,
                                 fit_factor a, const double *b, size_t n) {
    for (size_t j = 0; j < columns; j += WIDE) {
        for (size_t i = 0; i < rows; i += FIT_TILE) {
            const fit_factor of_tile = {a.at + i * a.row, a.row, a.column, a.sign};
            if (rows - i >= FIT_TILE && columns - j >= WIDE) {
                NAME(tile)(out + i * stride + j, stride, of_tile, b + j, n);
                continue;
            }
            for (size_t u = i; u < rows && u < i + FIT_TILE; u++) {
                for (size_t v = j; v < columns && v < j + WIDE; v++) {
                    double sum = 0.0;
                    for (size_t k = 0; k < n; k++) {
                        sum += a.at[u * a.row + k * a.column] * b[k * stride + v];
                    }
                    out[u * stride + v] += a.sign * sum;
                }
            }
        }
    }
}

/* Turns x, at most 709, into exp(x). With x = k ln2 + r and |r| <= ln2/2, exp x is 2^k times the
 * Taylor polynomial of exp r, of degree 13, which leaves out less than 5e-18 of it. Adding
 * 1.5 * 2^52 rounds to k, whose bits are then the low ones of the mantissa. Below -708 the result
 * is 0; NaN stays. */
TARGET static inline void NAME(exponential)(V *x) {
    static const double over_factorial[] = {1.0 / 6227020800,
                                            1.0 / 479001600,
                                            1.0 / 39916800,
                                            1.0 / 3628800,
                                            1.0 / 362880,
                                            1.0 / 40320,
                                            1.0 / 5040,
                                            1.0 / 720,
                                            1.0 / 120,
                                            1.0 / 24,
                                            1.0 / 6,
                                            0.5,
                                            1.0,
                                            1.0};
    const double rounding = 0x1.8p52;
    const NAME(bits) stays = ~(*x < -708.0);
    const V y = (V)(stays & (NAME(bits)) * x), rounded = y * 0x1.71547652b82fep0 + rounding,
            k = rounded - rounding, r = (y - k * 0x1.62e42fefa3800p-1) - k * 0x1.ef35793c76730p-45;
    V sum = {0};
    for (size_t c = 0; c < sizeof over_factorial / sizeof *over_factorial; c++) {
        sum = sum * r + over_factorial[c];
    }
    sum *= (V)(((NAME(bits))rounded + 1023) << 52);
    *x = (V)(stays & (NAME(bits))sum);
}

/* Does what fit_loops says. */
TARGET static void NAME(exponentials)(double *x, size_t n) {
    V v = {0};
    for (; n >= LANES; n -= LANES, x += LANES) {
        LOAD(&v, x);
        NAME(exponential)(&v);
        STORE(x, &v);
    }
    memcpy(&v, x, n * sizeof *x);
    NAME(exponential)(&v);
    memcpy(x, &v, n * sizeof *x);
}

#undef V
#undef WIDE
#undef LOAD
#undef STORE
#undef LANES
#undef NAME
#undef TARGET
