/* The products that fitting spends most of its time in, on vectors of LANES numbers. fit_products.c
 * includes this file once for each type of number and each width. Before including it, define
 * NUMBER (float or double), OUT (the type of what a product is added to), FACTOR (the struct of its
 * left factors), LANES (2 or more), NAME(x) (x with a suffix) and TARGET (the function attribute).
 *
 * The results must be the same bits for every width. Therefore a multiplication and the addition
 * that follows it are rounded one by one, and no operation adds up the numbers of one vector. */

typedef NUMBER NAME(lanes) __attribute__((vector_size(LANES * sizeof(NUMBER))));
#define V    NAME(lanes)
#define WIDE (2 * LANES) /* columns of a tile */

/* A tile of FIT_TILE rows and WIDE columns of a product. */
TARGET static inline void NAME(tile)(OUT *out, size_t stride, FACTOR a, const NUMBER *b, size_t n) {
    V sum[FIT_TILE][2], y[2];
    NUMBER row[WIDE];
    for (size_t i = 0; i < FIT_TILE; i++) { sum[i][0] = sum[i][1] = (V){0}; }
    for (size_t k = 0; k < n; k++) {
        memcpy(&y[0], b + k * stride, sizeof y[0]);
        memcpy(&y[1], b + k * stride + LANES, sizeof y[1]);
        for (size_t i = 0; i < FIT_TILE; i++) {
            const NUMBER x = a.at[i * a.row + k * a.column];
            sum[i][0] += x * y[0];
            sum[i][1] += x * y[1];
        }
    }
    for (size_t i = 0; i < FIT_TILE; i++) {
        memcpy(row, sum[i], sizeof row);
        for (size_t j = 0; j < WIDE; j++) { out[i * stride + j] += (OUT)a.sign * (OUT)row[j]; }
    }
}

/* Does what fit_loops says. */
TARGET static void NAME(product)(OUT *out, size_t rows, size_t columns, size_t stride, FACTOR a,
                                 const NUMBER *b, size_t n) {
    for (size_t j = 0; j < columns; j += WIDE) {
        for (size_t i = 0; i < rows; i += FIT_TILE) {
            const FACTOR of_tile = {a.at + i * a.row, a.row, a.column, a.sign};
            if (rows - i >= FIT_TILE && columns - j >= WIDE) {
                NAME(tile)(out + i * stride + j, stride, of_tile, b + j, n);
                continue;
            }
            for (size_t u = i; u < rows && u < i + FIT_TILE; u++) {
                for (size_t v = j; v < columns && v < j + WIDE; v++) {
                    NUMBER sum = 0;
                    for (size_t k = 0; k < n; k++) {
                        sum += a.at[u * a.row + k * a.column] * b[k * stride + v];
                    }
                    out[u * stride + v] += (OUT)a.sign * (OUT)sum;
                }
            }
        }
    }
}

#ifdef EXPONENTIALS
typedef int32_t NAME(bits) __attribute__((vector_size(LANES * sizeof(int32_t))));

/* Turns x, at most 88, into exp(x). With x = k ln2 + r and |r| <= ln2/2, exp x is 2^k times the
 * Taylor polynomial of exp r, of degree 7, which leaves out less than 6e-9 of it. Adding 1.5 * 2^23
 * rounds to k, whose bits are then the low ones of the mantissa. Below -87 the result is 0; NaN
 * stays. */
TARGET static inline V NAME(exponential)(V x) {
    static const float over_factorial[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24,
                                           1.0f / 6,    0.5f,       1.0f,       1.0f};
    const float rounding = 0x1.8p23f;
    const NAME(bits) stays = ~(x < -87.0f);
    const V y = (V)(stays & (NAME(bits))x), rounded = y * 0x1.715476p0f + rounding,
            k = rounded - rounding, r = (y - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f;
    V sum = {0};
    for (size_t c = 0; c < sizeof over_factorial / sizeof *over_factorial; c++) {
        sum = sum * r + over_factorial[c];
    }
    sum *= (V)(((NAME(bits))rounded + 127) << 23);
    return (V)(stays & (NAME(bits))sum);
}

/* Does what fit_loops says. */
TARGET static void NAME(exponentials)(float *x, size_t n) {
    V v = {0};
    for (; n >= LANES; n -= LANES, x += LANES) {
        memcpy(&v, x, sizeof v);
        v = NAME(exponential)(v);
        memcpy(x, &v, sizeof v);
    }
    memcpy(&v, x, n * sizeof *x);
    v = NAME(exponential)(v);
    memcpy(x, &v, n * sizeof *x);
}

/* Does what fit_loops says. */
TARGET static void NAME(raise)(float *restrict most, const float *restrict logits, size_t rows,
                               size_t n) {
    for (size_t k = 0; k < rows; k++, logits += n) {
        for (size_t i = 0; i < n; i++) { most[i] = logits[i] > most[i] ? logits[i] : most[i]; }
    }
}

/* Does what fit_loops says. */
TARGET static void NAME(attend)(float *restrict logits, size_t rows, size_t n,
                                const float *restrict most, double *restrict sum) {
    for (size_t k = 0; k < rows; k++, logits += n) {
        for (size_t i = 0; i < n; i++) { logits[i] -= most[i]; }
        NAME(exponentials)(logits, n);
        for (size_t i = 0; i < n; i++) { sum[i] += (double)logits[i]; }
    }
}
#undef EXPONENTIALS
#endif

#undef V
#undef WIDE
#undef NUMBER
#undef OUT
#undef FACTOR
#undef LANES
#undef NAME
#undef TARGET
