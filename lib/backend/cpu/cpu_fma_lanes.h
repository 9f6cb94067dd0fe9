/* Products and attention on vectors of LANES floats. cpu_fma.c includes this file once for each
 * width, and once for products of pairs of bf16, where INPUTS is 2: a lane of the factors then
 * holds two inputs, and V_FMA adds both of their products (cpu_fma.h). Before including it,
 * cpu_fma.c defines LANES, NAME(x) (x with the width's suffix), TARGET (the function attribute), V
 * (the vector type), V_LOAD(p), V_STORE(p, v), V_ALL(f) (f in every lane), V_FMA(a, b, c) = a * b +
 * c rounded once, and V_MAX(a, b). Plain operators on V are the compiler's. Only exp_sum and
 * fold_columns combine lanes, always as 16 of them, so the width does not show in the results. */
#define PANEL (2 * LANES) /* columns of a tile */

typedef int32_t NAME(ints) __attribute__((vector_size(LANES * sizeof(int32_t))));

/* acc[r] += sum over k of x[r * x_row + k * x_k] * panel[k], for R <= 6 rows and one panel. R is a
 * constant where this is inlined. */
TARGET INLINE void NAME(multiply)(const int R, int64_t n, const float *x, int64_t x_row,
                                  int64_t x_k, const float *panel, V acc[6][2]) {
    for (int64_t k = 0; k < n; k++) {
        const V left = V_LOAD(panel + k * PANEL), right = V_LOAD(panel + k * PANEL + LANES);
        for (int r = 0; r < R; r++) {
            const V all = V_ALL(x[r * x_row + k * x_k]);
            acc[r][0] = V_FMA(all, left, acc[r][0]);
            acc[r][1] = V_FMA(all, right, acc[r][1]);
        }
    }
}

/* y = x panel; with `onto` y += x panel. */
TARGET INLINE void NAME(tile)(const int R, int64_t n, const float *x, int64_t x_row,
                              const float *panel, bool onto, float *y, int64_t y_row) {
    V acc[6][2];
    for (int r = 0; r < R; r++) { acc[r][0] = acc[r][1] = V_ALL(0.0f); }
    (NAME(multiply))(R, n, x, x_row, 1, panel, acc);
    for (int r = 0; r < R; r++) {
        for (int half = 0; half < 2; half++) {
            float *to = y + r * y_row + half * LANES;
            if (onto) { acc[r][half] += V_LOAD(to); }
            V_STORE(to, acc[r][half]);
        }
    }
}

#if INPUTS == 1
/* y = y * factor + x^T panel, where each lane has its factor, and the rows of x are the index of
 * the sum. */
TARGET INLINE void NAME(mix_tile)(const int R, int64_t n, const float *x, int64_t x_k,
                                  const float *panel, const V factor[2], float *y) {
    V acc[6][2];
    for (int r = 0; r < R; r++) {
        for (int half = 0; half < 2; half++) {
            acc[r][half] = V_LOAD(y + r * PANEL + half * LANES) * factor[half];
        }
    }
    (NAME(multiply))(R, n, x, 1, x_k, panel, acc);
    for (int r = 0; r < R; r++) {
        for (int half = 0; half < 2; half++) {
            V_STORE(y + r * PANEL + half * LANES, acc[r][half]);
        }
    }
}
#endif

/* A tile of R rows for a constant R, so that the compiler makes a loop of its own for each. */
#define CASE(R)                                                                                    \
    case R:                                                                                        \
        CALL(R);                                                                                   \
        break;
#define BY_ROWS                                                                                    \
    switch (tile_rows) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) }

/* soon may be NULL. Otherwise as many values as x has lie there, one after the other, and are
 * prefetched meanwhile. */
TARGET static void NAME(rows)(int64_t n_rows, int64_t n, const float *x, int64_t x_row,
                              const float *panel, const float *soon, bool onto, float *y,
                              int64_t y_row) {
    for (int64_t r = 0; r < n_rows;) {
        const int tile_rows = rows_of_tile(n_rows - r);
        for (int64_t i = r * n; soon && i < (r + tile_rows) * n; i += 16) {
            __builtin_prefetch(soon + i);
        }
#define CALL(R) NAME(tile)(R, n, x + r * x_row, x_row, panel, onto, y + r * y_row, y_row)
        BY_ROWS
#undef CALL
        r += tile_rows;
    }
}

#if INPUTS == 1
TARGET static void NAME(mix_rows)(int64_t n_rows, int64_t n, const float *x, int64_t x_k,
                                  const float *panel, const V factor[2], float *y) {
    for (int64_t r = 0; r < n_rows;) {
        const int tile_rows = rows_of_tile(n_rows - r);
#define CALL(R) NAME(mix_tile)(R, n, x + r, x_k, panel, factor, y + r * PANEL)
        BY_ROWS
#undef CALL
        r += tile_rows;
    }
}
#endif
#undef BY_ROWS
#undef CASE

TARGET static void NAME(product)(const be_product_rows *rows, int64_t n_out, int64_t n_in,
                                 const float *x, int64_t x_stride, const float *w, int64_t w_stride,
                                 bool onto, float *y, int64_t y_stride) {
    _Alignas(64) float panel[FMA_DEPTH * PANEL], edge[BE_ROW_TILE * PANEL];
    for (int64_t k = 0; k < n_in; k += FMA_DEPTH) {
        const int64_t depth = n_in - k < FMA_DEPTH ? n_in - k : FMA_DEPTH;
        for (int64_t col = 0; col < n_out; col += PANEL) {
            const int64_t width = n_out - col < PANEL ? n_out - col : PANEL;
            if (width < PANEL) { memset(panel, 0, (size_t)(depth * PANEL) * sizeof *panel); }
            transpose(w + col * w_stride + k, w_stride, width, depth, panel, PANEL);
            for (int64_t row = 0, n; (n = run_of_rows(rows, &row)) > 0; row += n) {
                const float *from = x + row * x_stride + k;
                float *to = y + row * y_stride + col;
                if (width == PANEL) {
                    (NAME(rows))(n, depth, from, x_stride, panel, NULL, onto || k > 0, to,
                                 y_stride);
                    continue;
                }
                n = n < BE_ROW_TILE ? n : BE_ROW_TILE;
                (NAME(rows))(n, depth, from, x_stride, panel, NULL, false, edge, PANEL);
                for (int64_t r = 0; r < n; r++, to += y_stride) {
                    for (int64_t c = 0; c < width; c++) {
                        to[c] = onto || k > 0 ? to[c] + edge[r * PANEL + c] : edge[r * PANEL + c];
                    }
                }
            }
        }
    }
}

#if INPUTS == 1
/* v = exp(v) for v <= 0, computed as vector_exp of cpu_kernels.c (Cephes), but with fused steps. It
 * is 0 below ln(2^-126); NaN stays. */
TARGET INLINE void NAME(exp)(V *v) {
    const V x = *v;
    const V magic = V_ALL(12582912.0f);
    const NAME(ints) above = ~(NAME(ints))(x < -87.33f);
    const V shifted = V_FMA(x, V_ALL(1.44269504088896341f), magic), n = shifted - magic;
    const V r = V_FMA(n, V_ALL(2.12194440e-4f), V_FMA(n, V_ALL(-0.693359375f), x));
    V p = V_FMA(r, V_ALL(1.9875691500e-4f), V_ALL(1.3981999507e-3f));
    p = V_FMA(p, r, V_ALL(8.3334519073e-3f));
    p = V_FMA(p, r, V_ALL(4.1665795894e-2f));
    p = V_FMA(p, r, V_ALL(1.6666665459e-1f));
    p = V_FMA(p, r, V_ALL(5.0000001201e-1f));
    const V y = V_FMA(p, r * r, r) + 1.0f, scaled = y * (V)(((NAME(ints))shifted + 127) << 23);
    *v = (V)((NAME(ints))scaled & above);
}

/* Value i goes to lane i % 16 at every width. */
TARGET static double NAME(exp_sum)(const float *x, int64_t n, float *max_out) {
    enum { EACH = 16 / LANES };
    const int64_t whole = n / 16 * 16;
    _Alignas(64) float rest[16], lane[16];
    for (int64_t i = 0; i < 16; i++) {
        rest[i] = whole + i < n ? x[whole + i] : -INFINITY; /* exp makes it 0 */
    }
    V top[EACH], sum[EACH];
    for (int v = 0; v < EACH; v++) {
        top[v] = V_LOAD(rest + v * LANES);
        sum[v] = V_ALL(0.0f);
    }
    for (int64_t i = 0; i < whole; i += 16) {
        for (int v = 0; v < EACH; v++) { top[v] = V_MAX(top[v], V_LOAD(x + i + v * LANES)); }
    }
    for (int v = 0; v < EACH; v++) { V_STORE(lane + v * LANES, top[v]); }
    float max = lane[0];
    for (int i = 1; i < 16; i++) { max = lane[i] > max ? lane[i] : max; }
    for (int64_t i = 0; i <= whole; i += 16) {
        for (int v = 0; v < EACH; v++) {
            V e = V_LOAD((i < whole ? x + i : rest) + v * LANES) - max;
            (NAME(exp))(&e);
            sum[v] += e;
        }
    }
    for (int v = 0; v < EACH; v++) { V_STORE(lane + v * LANES, sum[v]); }
    double total = 0;
    for (int i = 0; i < 16; i++) { total += (double)lane[i]; }
    *max_out = max;
    return total;
}

/* Sets the entries outside of their lane's span to -inf. */
TARGET static void NAME(hide)(float *score, int64_t n, int64_t index, const int32_t *lo,
                              const int32_t *hi) {
    const NAME(ints) hidden = (NAME(ints))V_ALL(-INFINITY);
    for (int half = 0; half < 2; half++) {
        NAME(ints) from, to;
        memcpy(&from, lo + half * LANES, sizeof from);
        memcpy(&to, hi + half * LANES, sizeof to);
        for (int64_t t = 0; t < n; t++) {
            float *at = score + t * PANEL + half * LANES;
            const NAME(ints) i = (NAME(ints)){0} + (int32_t)(index + t),
                             seen = (i >= from) & (i < to);
            V_STORE(at, (V)(((NAME(ints))V_LOAD(at) & seen) | (hidden & ~seen)));
        }
    }
}

/* score = exp(score - the maximum so far). It updates *max and *sum; what was summed before must be
 * multiplied by *factor. */
TARGET INLINE void NAME(soften)(float *score, int64_t n, float *max, float *sum, V *factor) {
    const V before = V_LOAD(max);
    V top = before, total = V_ALL(0.0f);
    for (int64_t t = 0; t < n; t++) { top = V_MAX(top, V_LOAD(score + t * PANEL)); }
    V_STORE(max, top);
    /* for a lane that has seen nothing yet: exp(-inf - 0) = 0 */
    top = (V)((NAME(ints))top & ~(NAME(ints))(top == -INFINITY));
    for (int64_t t = 0; t < n; t++) {
        V e = V_LOAD(score + t * PANEL) - top;
        (NAME(exp))(&e);
        V_STORE(score + t * PANEL, e);
        total += e;
    }
    *factor = before - top;
    (NAME(exp))(factor);
    V_STORE(sum, V_FMA(V_LOAD(sum), *factor, total));
}

/* What is stored of the first run of a block after its last step. */
typedef struct NAME(block) {
    int64_t n;             /* number of keys */
    const float *score;    /* [panels][n][PANEL]: exp(score - the row's maximum at that step) */
    const float *step_max; /* [steps][BE_ROW_TILE] */
    const int64_t *first, *end; /* the keys that some row of a panel sees */
    const float *max, *sum;     /* [BE_ROW_TILE] over everything that a row sees */
    const row_span *span;
} NAME(block);

/* part[t][r % 16] = part[t][r % 16] + e[t][r] * factor[r], or the maximum of the two, for LANES
 * rows and n keys. */
TARGET INLINE void NAME(fold_rows)(const bool largest, int64_t n, const float *e, V factor,
                                   float *part) {
    for (int64_t t = 0; t < n; t++) {
        const V x = V_LOAD(e + t * PANEL) * factor;
        V to = V_LOAD(part + t * 16);
        if (largest) {
            to = V_MAX(to, x);
        } else {
            to += x;
        }
        V_STORE(part + t * 16, to);
    }
}

/* Row r goes to lane r % 16 at every width. The rows of a lane are added in their order, then the
 * lanes in theirs. */
TARGET static void NAME(fold_columns)(const key_columns *c, const NAME(block) * b) {
    _Alignas(64) float shift[BE_ROW_TILE], inverse[BE_ROW_TILE], part[FMA_KEYS * 16],
        turned[16 * FMA_KEYS];
    for (int r = 0; r < BE_ROW_TILE; r++) {
        const bool counts = r >= c->first && b->span[r].hi > b->span[r].lo;
        shift[r] = counts ? b->max[r] : INFINITY; /* exp(-inf) = 0 */
        inverse[r] = counts ? 1.0f / b->sum[r] : 0.0f;
    }
    for (int64_t at = 0; at < b->n; at += FMA_KEYS) {
        const int64_t n = b->n - at < FMA_KEYS ? b->n - at : FMA_KEYS;
        memset(part, 0, (size_t)(n * 16) * sizeof *part);
        for (int r = 0; r < BE_ROW_TILE; r += LANES) {
            const int p = r / PANEL;
            const int64_t from = b->first[p] > at ? b->first[p] - at : 0,
                          to = b->end[p] - at < n ? b->end[p] - at : n;
            if (from >= to) { continue; }
            const float *e = b->score + (p * b->n + at + from) * PANEL + r % PANEL;
            float *lanes = part + from * 16 + r % 16;
            V factor = V_LOAD(b->step_max + at / FMA_KEYS * BE_ROW_TILE + r) - V_LOAD(shift + r);
            (NAME(exp))(&factor);
            factor = factor * V_LOAD(inverse + r);
            if (c->largest) {
                (NAME(fold_rows))(true, to - from, e, factor, lanes);
            } else {
                (NAME(fold_rows))(false, to - from, e, factor, lanes);
            }
        }
        transpose(part, 16, n, 16, turned, FMA_KEYS);
        for (int lane = 1; lane < 16; lane++) {
            const float *other = turned + lane * FMA_KEYS;
            for (int64_t t = 0; t < n; t++) {
                const float larger = other[t] > turned[t] ? other[t] : turned[t];
                turned[t] = c->largest ? larger : turned[t] + other[t];
            }
        }
        for (int64_t t = 0; t < n; t++) {
            double *to = c->into + at + t;
            const double x = (double)turned[t], larger = x > *to ? x : *to;
            *to = c->largest ? larger : *to + x;
        }
    }
}

TARGET static void NAME(attend)(int32_t head_dim, float scale, const float *q, int64_t stride,
                                const key_run runs[2], const row_span *span,
                                const key_columns *columns, float *out, float *scratch) {
    enum { N_PANELS = BE_ROW_TILE / PANEL };
    const int64_t d = head_dim;
    float *const query = scratch, *const mix = query + BE_ROW_TILE * d,
                 *const one_step = mix + BE_ROW_TILE * d,
                 *const tile = one_step + BE_ROW_TILE * FMA_KEYS;
    float *step_max = NULL, *kept = NULL;
    if (columns) { /* scratch after this point exists only for columns: cpu_fma_scratch */
        step_max = tile + 2 * FMA_KEYS * d;
        kept = step_max + BE_ROW_TILE * (runs[0].n / FMA_KEYS + 1);
    }
    _Alignas(64) float max[BE_ROW_TILE], sum[BE_ROW_TILE];
    int32_t lo[BE_ROW_TILE], hi[BE_ROW_TILE];
    int64_t first[N_PANELS], end[N_PANELS], all_from[N_PANELS], all_to[N_PANELS];
    memset(mix, 0, (size_t)(BE_ROW_TILE * d) * sizeof *mix);
    for (int p = 0; p < N_PANELS; p++) {
        float *const panel = query + p * PANEL * d;
        transpose(q + p * PANEL * stride, stride, PANEL, d, panel, PANEL);
        for (int64_t i = 0; i < PANEL * d; i++) { panel[i] *= scale; }
        first[p] = all_to[p] = INT64_MAX;
        end[p] = all_from[p] = 0;
        for (int r = p * PANEL; r < (p + 1) * PANEL; r++) {
            const bool padding = span[r].hi <= span[r].lo;
            max[r] = -INFINITY;
            sum[r] = 0.0f;
            lo[r] = padding ? 0 : (int32_t)span[r].lo;
            hi[r] = padding ? 0 : (int32_t)span[r].hi;
            if (!padding && lo[r] < first[p]) { first[p] = lo[r]; }
            end[p] = hi[r] > end[p] ? hi[r] : end[p];
            all_from[p] = lo[r] > all_from[p] ? lo[r] : all_from[p];
            all_to[p] = hi[r] < all_to[p] ? hi[r] : all_to[p];
        }
    }
    int64_t index = 0; /* of the step's first key, in the list of both runs */
    for (int i = 0; i < 2; i++) {
        for (int64_t at = 0; at < runs[i].n; at += FMA_KEYS) {
            const int64_t n = runs[i].n - at < FMA_KEYS ? runs[i].n - at : FMA_KEYS,
                          next = FMA_KEYS * d;
            bool seen = false;
            for (int p = 0; p < N_PANELS; p++) { seen |= first[p] < index + n && end[p] > index; }
            if (!seen) {
                index += n;
                continue;
            }
            const float *const k = cpu_run_keys(&runs[i], head_dim, at, n, tile),
                               *const v = cpu_run_rows(runs[i].v, runs[i].formats.values, head_dim,
                                                       at, n, tile + FMA_KEYS * d);
            /* The next step is prefetched meanwhile: its keys during the first panel, its values
             * during the second. */
            const bool more = at + 2 * FMA_KEYS <= runs[i].n;
            const float *const soon[2] = {more && k != tile ? k + next : NULL,
                                          more && v != tile + next ? v + next : NULL};
            for (int p = 0; p < N_PANELS; p++) {
                const int64_t from = first[p] > index ? first[p] - index : 0,
                              to = end[p] - index < n ? end[p] - index : n;
                if (from >= to) { continue; }
                const int64_t key = at + from;
                const bool keep = columns && i == 0;
                float *const score = keep ? kept + (p * runs[0].n + key) * PANEL : one_step;
                (NAME(rows))(to - from, d, k + from * d, d, query + p * PANEL * d,
                             p < 2 ? soon[p] : NULL, false, score, PANEL);
                if (index + from < all_from[p] || index + to > all_to[p]) {
                    (NAME(hide))(score, to - from, index + from, lo + p * PANEL, hi + p * PANEL);
                }
                V factor[2];
                for (int half = 0; half < 2; half++) {
                    (NAME(soften))(score + half * LANES, to - from, max + p * PANEL + half * LANES,
                                   sum + p * PANEL + half * LANES, &factor[half]);
                }
                if (keep) {
                    memcpy(step_max + at / FMA_KEYS * BE_ROW_TILE + p * PANEL, max + p * PANEL,
                           PANEL * sizeof *max);
                }
                (NAME(mix_rows))(d, to - from, v + from * d, d, score, factor, mix + p * PANEL * d);
            }
            index += n;
        }
    }
    for (int p = 0; p < N_PANELS; p++) {
        float *const panel = mix + p * PANEL * d;
        for (int half = 0; half < 2; half++) {
            const V all = V_LOAD(sum + p * PANEL + half * LANES);
            const V inverse = (V)((NAME(ints))(1.0f / all) & ~(NAME(ints))(all == 0.0f));
            for (int64_t x = 0; x < d; x++) {
                float *to = panel + x * PANEL + half * LANES;
                V_STORE(to, V_LOAD(to) * inverse);
            }
        }
        transpose(panel, PANEL, d, PANEL, out + p * PANEL * stride, stride);
    }
    if (columns) {
        const NAME(block) block = {runs[0].n, kept, step_max, first, end, max, sum, span};
        (NAME(fold_columns))(columns, &block);
    }
}
#endif

#undef PANEL
#undef INPUTS
#undef LANES
#undef NAME
#undef TARGET
#undef V
#undef V_LOAD
#undef V_STORE
#undef V_ALL
#undef V_FMA
#undef V_MAX
