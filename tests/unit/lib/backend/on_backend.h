/* What tests of a backend's operations share: random values, and arrays to and from its buffers. */
#pragma once

#include "tests/unit/golden_model.h"

static ckvc_rng rng;

/* Returns n random values in [-scale, scale). */
static inline float *values(size_t n, double scale) {
    float *v = ckvc_alloc_aligned(n, sizeof *v);
    for (size_t i = 0; i < n; i++) { v[i] = (float)((ckvc_rng_double(&rng) * 2 - 1) * scale); }
    return v;
}

/* What buffer() and weight() have made on backends that still stand. */
static struct made {
    backend *be;
    be_buf *buf;
    be_weight *w;
} * made;
static size_t n_made, made_capacity;

/* Frees what was made on a backend, and ends the backend; the second function does so with a
 * bench. */
static inline void end_backend(backend *be) {
    for (size_t i = n_made; i-- > 0;) {
        if (made[i].be != be) { continue; }
        made[i].buf ? be->ops->buf_free(be, made[i].buf) : be->ops->weight_free(be, made[i].w);
        made[i] = made[--n_made];
    }
    backend_destroy(be);
}
CKVC_AUTO_OF(backend, end_backend)
static inline void end_bench(bench *b) {
    session_destroy(b->s), model_close(b->m), end_backend(b->be), ckvc_pool_destroy(b->pool);
}

/* Makes a buffer of n values; if data is NULL, they are zeros. */
static inline be_buf *buffer(backend *be, size_t n, const float *data) {
    be_buf *b = be->ops->buf_create(be, n);
    if (data) { be->ops->write(be, b, 0, data, n); }
    CKVC_GROW(made, made_capacity, n_made + 1);
    made[n_made++] = (struct made){.be = be, .buf = b};
    return b;
}

/* Returns n values of a buffer from the from-th on. */
static inline float *contents_from(backend *be, const be_buf *b, size_t from, size_t n) {
    float *v = ckvc_alloc(n, sizeof *v);
    OK(be->ops->read(be, b, from, v, n, &err));
    return v;
}
static inline float *contents(backend *be, const be_buf *b, size_t n) {
    return contents_from(be, b, 0, n);
}

/* Makes a weight and acquires it. data may be aligned to nothing. */
static inline be_weight *weight(backend *be, const void *data, int64_t rows, int64_t cols) {
    be_weight *w;
    const be_matrix m = {
        .bytes = data, .rows = rows, .cols = cols, .row_bytes = (size_t)cols * sizeof(float)};
    OK(be->ops->weight_create(be, &m, &w, &err));
    OK(be->ops->weight_acquire(be, w, &err));
    CKVC_GROW(made, made_capacity, n_made + 1);
    made[n_made++] = (struct made){.be = be, .w = w};
    return w;
}

static inline ckvc_status head_nll(backend *be, const be_weight *w, const be_buf *x, be_rows rows,
                                   const int32_t *target, double *nll) {
    return be->ops->head_nll(be, w, x, &rows, &(be_losses){.target = target, .nll = nll}, &err);
}

/* sum (got - want)^2 / sum want^2 */
PLAIN_LOOP static inline double nmse(const float *got, const double *want, size_t n) {
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += want[i] * want[i];
    }
    return error == 0 ? 0 : error / size;
}

/* Bound on the normalised error of float32 against a naive loop in double: test_backend_cpu.c. */
#define NMSE_BOUND 1e-11

static inline void check_nmse(const char *what, const float *got, const double *want, size_t n) {
    const double error = nmse(got, want, n);
    if (!(error <= NMSE_BOUND)) { fail_msg("%s: NMSE %.3g, bound %.3g", what, error, NMSE_BOUND); }
}
static inline void check_buffer(const char *what, backend *be, const be_buf *b, size_t from,
                                const double *want, size_t n) {
    CKVC_AUTO_FREE float *got = contents_from(be, b, from, n);
    check_nmse(what, got, want, n);
}

/* (y0 +) (bias +) x W^T in double. */
PLAIN_LOOP static inline void naive_product(double *y, const float *y0, const float *bias,
                                            const float *w, const float *x, int64_t n,
                                            int64_t n_out, int64_t n_in) {
    for (int64_t i = 0; i < n * n_out; i++) {
        const float *row = x + i / n_out * n_in, *of = w + i % n_out * n_in;
        y[i] = (y0 ? (double)y0[i] : 0) + (bias ? (double)bias[i % n_out] : 0);
        for (int64_t k = 0; k < n_in; k++) { y[i] += (double)of[k] * (double)row[k]; }
    }
}

/* Returns n values, each as `round_one` makes it; if that is NULL, as it is. */
PLAIN_LOOP static inline float *rounded_all(const float *x, size_t n, float (*round_one)(float)) {
    float *v = ckvc_alloc(n, sizeof *v);
    for (size_t i = 0; i < n; i++) { v[i] = round_one ? round_one(x[i]) : x[i]; }
    return v;
}

/* Checks n rows times a matrix, with and without a bias, and with and without adding to what is
 * there, against the naive product of operands that were rounded. Where something was there, the
 * rounding shows. */
static inline void check_products(backend *be, int64_t n, int64_t n_out, int64_t n_in,
                                  float (*round_one)(float)) {
    const int64_t rows = be_padded_rows(n), used = n * n_out;
    CKVC_AUTO_FREE float *w = values(n_out * n_in, 1), *bias = values(n_out, 1),
                         *x = values(rows * n_in, 1), *y0 = values(rows * n_out, 1),
                         *near_w = rounded_all(w, n_out * n_in, round_one),
                         *near_x = rounded_all(x, rows * n_in, round_one);
    CKVC_AUTO_FREE double *want = ckvc_alloc(used, sizeof *want);
    for (int variant = 0; variant < 4; variant++) {
        const bool add = variant & 1, with_bias = variant & 2;
        be_weight *bw = weight(be, w, n_out, n_in), *bb = weight(be, bias, n_out, 1);
        be_buf *bx = buffer(be, rows * n_in, x), *by = buffer(be, rows * n_out, y0);
        be->ops->matmul(be, bw, with_bias ? bb : NULL, bx, &(be_product_rows){.n = n}, add, by);
        CKVC_AUTO_FREE float *got = contents(be, by, used);
        const float *sums = add ? y0 : NULL, *biases = with_bias ? bias : NULL;
        naive_product(want, sums, biases, near_w, near_x, n, n_out, n_in);
        check_nmse("matmul", got, want, used);
        if (round_one && n_in > 2) {
            naive_product(want, sums, biases, w, x, n, n_out, n_in);
            assert_true(nmse(got, want, used) > 1e-7);
        }
    }
}

/* Checks losses and logits of rows 41 ... 149 through a head against those of the operands that
 * were rounded. */
static inline void check_head(backend *be, float (*round_one)(float), double tolerance) {
    enum { ROW0 = 41, N = 109, IN = 37, VOCAB = 1291 };
    CKVC_AUTO_FREE float *w = values(VOCAB * IN, round_one ? 1 : 2), *x = values(192 * IN, 1),
                         *near_w = rounded_all(w, VOCAB * IN, round_one),
                         *near_x = rounded_all(x, 192 * IN, round_one),
                         *logits = ckvc_alloc(2 * VOCAB, sizeof *logits);
    CKVC_AUTO_FREE double *want = ckvc_alloc(VOCAB, sizeof *want);
    be_weight *bw = weight(be, w, VOCAB, IN);
    be_buf *bx = buffer(be, 192 * IN, x);
    int32_t target[N] = {[3] = VOCAB - 1};
    double nll[N];
    for (int i = 5; i < N; i++) { target[i] = i * 997 % VOCAB; }
    OK(head_nll(be, bw, bx, (be_rows){ROW0, N, 1}, target, nll));
    for (int64_t r = 0; r < N; r++) {
        double sum = 0;
        naive_product(want, NULL, NULL, near_w, near_x + (ROW0 + r) * IN, 1, VOCAB, IN);
        for (int64_t v = 0; v < VOCAB; v++) { sum += exp(want[v]); }
        assert_true(fabs(nll[r] - (log(sum) - want[target[r]])) < tolerance);
        if (r % 50 == 0) {
            OK(be->ops->head_logits(be, bw, bx, ROW0 + r - 1, 2, logits, &err));
            check_nmse("head_logits", logits + VOCAB, want, VOCAB);
        }
    }
}

/* ---- attention ---- */

/* Kept sets of n positions and n_kv heads: one set for all heads; an empty one; and one for each
 * head, of different sizes, the second of them empty. The caller frees them. */
typedef struct kept_sets {
    kept_set sets[3];
    uint32_t offsets[3][MAX_G + 1], positions[];
} kept_sets;

static inline kept_sets *kept_sets_of(int64_t n, int32_t n_kv) {
    kept_sets *k = ckvc_calloc(1, sizeof *k + (size_t)((n_kv + 1) * n) * sizeof(uint32_t));
    uint32_t *per_head = k->positions + n;
    for (int64_t t = 0; t < n; t += t % 3 + 1) { k->positions[k->offsets[0][1]++] = (uint32_t)t; }
    for (int32_t g = 0; g < n_kv; g++) {
        k->offsets[2][g + 1] = k->offsets[2][g];
        for (int64_t t = g; g != 1 && t < n; t += g + 2) {
            per_head[k->offsets[2][g + 1]++] = (uint32_t)t;
        }
    }
    k->sets[0] = (kept_set){1, k->offsets[0], k->positions, false, {0}};
    k->sets[1] = (kept_set){1, k->offsets[1], k->positions, false, {0}};
    k->sets[2] = (kept_set){n_kv, k->offsets[2], per_head, false, {0}};
    return k;
}

/* A prompt of n positions and LANES lanes of n_own rows behind it: q [rows][H*D], rows of the
 * prompt or of the lanes; caches [G][capacity][D], those of the lanes one behind the other. */
typedef struct attention_case {
    be_attention_shape s;
    int64_t n, capacity, n_own, own_capacity, width, rows; /* width: H*D; rows: of q */
    size_t cache, own;                                     /* values of a cache, of the lanes' */
    float *q, *k, *v, *own_k, *own_v;
    kept_sets *kept;
} attention_case;
enum { CASE_LANES = 4 };

static inline attention_case attention_create(int32_t n_heads, int32_t n_kv, int32_t d,
                                              int32_t window, int64_t n, int64_t n_own) {
    attention_case c = {.s = {n_heads, n_kv, d, window, (float)(1 / sqrt((double)d))},
                        .n = n,
                        .capacity = be_padded_rows(n) + 64,
                        .n_own = n_own,
                        .own_capacity = be_padded_rows(n_own),
                        .width = n_heads * d,
                        .kept = kept_sets_of(n, n_kv)};
    const int64_t lanes = CASE_LANES * c.own_capacity;
    c.rows = be_padded_rows(n > lanes ? n : lanes);
    c.cache = (size_t)(n_kv * c.capacity * d), c.own = (size_t)(n_kv * lanes * d);
    c.q = values(c.rows * c.width, 4), c.k = values(c.cache, 2), c.v = values(c.cache, 1);
    c.own_k = values(c.own, 2), c.own_v = values(c.own, 1);
    return c;
}

static inline void attention_free(attention_case *c) {
    free(c->q), free(c->k), free(c->v), free(c->own_k), free(c->own_v), free(c->kept);
}

/* Works out query head h of row q [H*D] of a lane at position j. The softmax is over the lane's
 * positions that it sees and those of the prompt's that `kept` has (NULL: all). weights [j + 1]
 * receives it, with zeros elsewhere, and out [D], unless NULL, the values mixed by it. */
PLAIN_LOOP static inline void naive_row(const attention_case *c, const float *q, int64_t lane,
                                        int32_t h, int64_t j, const kept_set *kept, double *weights,
                                        double *out) {
    const int64_t d = c->s.head_dim, g = h / (c->s.n_heads / c->s.n_kv_heads),
                  own = (lane * c->s.n_kv_heads + g) * c->own_capacity - c->n;
    const uint32_t *offset = kept ? kept->offsets + (kept->n_sets > 1 ? g : 0) : NULL;
    double max = -INFINITY, sum = 0;
    for (int64_t t = 0, i = kept ? offset[0] : 0; t <= j; t++) {
        const float *k = t < c->n ? c->k + (g * c->capacity + t) * d : c->own_k + (own + t) * d;
        bool sees = !kept || t >= c->n;
        if (!sees && i < offset[1] && kept->positions[i] == t) { sees = true, i++; }
        weights[t] = sees && (!c->s.window || j - t < c->s.window) ? 0 : -INFINITY;
        for (int64_t x = 0; x < d; x++) {
            weights[t] += (double)c->s.scale * (double)q[h * d + x] * (double)k[x];
        }
        max = fmax(max, weights[t]);
    }
    for (int64_t t = 0; t <= j; t++) { sum += weights[t] = exp(weights[t] - max); }
    for (int64_t x = 0; out && x < d; x++) { out[x] = 0; }
    for (int64_t t = 0; t <= j; t++) {
        const float *v = t < c->n ? c->v + (g * c->capacity + t) * d : c->own_v + (own + t) * d;
        weights[t] /= sum;
        for (int64_t x = 0; out && x < d; x++) { out[x] += weights[t] * (double)v[x]; }
    }
}

/* A sequence that holds what is kept of a prompt of n positions (NULL: all of it) in some formats.
 * It has room for rows of its own up to position n + row, which attends next. */
typedef struct held_case {
    int64_t first[MAX_G], n_kept[MAX_G], hidden[MAX_G], from[MAX_G], n_entries;
    be_key_means means; /* set by the caller */
    be_held held;
} held_case;

static inline void hold(backend *be, const be_attention_shape *s, const be_cache *prompt, int64_t n,
                        const kept_set *kept, cache_formats f, int64_t row, held_case *h) {
    const int64_t seen = s->window ? n + row - s->window + 1 : 0;
    h->n_entries = 0;
    for (int32_t g = 0; g < s->n_kv_heads; g++) {
        const uint32_t *offset = kept ? kept->offsets + (kept->n_sets > 1 ? g : 0) : NULL;
        h->first[g] = h->n_entries;
        h->from[g] = kept ? offset[0] : 0;
        h->n_kept[g] = kept ? offset[1] - offset[0] : n;
        h->hidden[g] = seen > n ? h->n_kept[g] + seen - n : 0;
        for (int64_t t = 0; t < h->n_kept[g] && seen <= n; t++) {
            h->hidden[g] += (kept ? kept->positions[offset[0] + t] : t) < seen;
        }
        h->n_entries += h->n_kept[g] + row + 1;
    }
    const size_t size = (size_t)(h->n_entries * s->head_dim), four = sizeof(float);
    h->held = (be_held){.k = buffer(be, (cache_bytes(f.keys, size) + four - 1) / four, NULL),
                        .v = buffer(be, (cache_bytes(f.values, size) + four - 1) / four, NULL),
                        .first = h->first,
                        .n_kept = h->n_kept,
                        .hidden = h->hidden,
                        .n_own = row + 1,
                        .formats = f,
                        .means = h->means,
                        .positions = kept ? kept->positions : NULL,
                        .from = h->from,
                        .n_prompt = n};
    be->ops->cache_keep(be, s, prompt, n, kept, &h->held);
}
