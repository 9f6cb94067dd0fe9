/* Fits the keys and values of what a head keeps. The formulas are those of docs/method.md, section
 * 9; the value step is that of Attention Matching (arXiv 2602.16284), in its dual form.
 *
 *   T tokens · S kept entries · n reference queries · D numbers of a key, query or value
 *
 * All sums are taken in double and in one fixed order. Where a loop takes four positions at a time,
 * its innermost loop runs over queries or over the numbers of a value, which do not depend on each
 * other, so that compilers can vectorise it without changing a bit. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "lib/base/sizes.h"
#include "lib/policy/policy_parts.h"

enum { AT_A_TIME = 4 }; /* positions */

/* The parts of the scratch memory. */
typedef struct parts {
    const ckvc_fit *f;
    size_t n, D;
    double *q;          /* [D][n] the queries, times the scale */
    double *l;          /* [AT_A_TIME][n] logits, then exponentials */
    double *v;          /* [AT_A_TIME][D] */
    double *most, *sum; /* [n] of a softmax: its largest logit, and its sum */
    double *answer;     /* [n][D] with the whole cache; then what is missing, and X */
    double *of_kept;    /* [n][D] with what is kept */
    double *w;          /* [S][n] the softmax over what is kept */
    double *lost;    /* [n] r: log of the share of its mass that a query loses, as a loss above 0 */
    double *shift;   /* [D] u: what is added to every kept key */
    double *of_keys; /* [D][D] X^T X */
    double *gram;    /* [n][n] */
} parts;

static double *take(double *memory, size_t *at, size_t count) {
    double *p = memory ? memory + *at : NULL;
    *at += count;
    return p;
}

/* Places the parts in `memory`. Returns how many doubles they are; memory NULL only counts. */
static size_t lay_out(parts *p, double *memory, size_t S) {
    const size_t n = p->n, D = p->D;
    size_t at = 0;
    p->q = take(memory, &at, D * n);
    p->l = take(memory, &at, AT_A_TIME * n);
    p->v = take(memory, &at, AT_A_TIME * D);
    p->most = take(memory, &at, n);
    p->sum = take(memory, &at, n);
    p->answer = take(memory, &at, n * D);
    p->of_kept = take(memory, &at, n * D);
    p->w = take(memory, &at, S * n);
    p->lost = take(memory, &at, n);
    p->shift = take(memory, &at, D);
    p->of_keys = take(memory, &at, D * D);
    p->gram = take(memory, &at, n * n);
    return at;
}

size_t ckvc_fit_bytes(uint32_t n_queries, uint32_t head_dim, uint32_t n_kept) {
    const size_t n = n_queries, D = head_dim, S = n_kept;
    size_t most, bytes;
    /* more than any of the products in lay_out, so that none of them overflows */
    if (!ckvc_mul_size(n + D + AT_A_TIME, n + 2 * D + S + 2 * AT_A_TIME, &most) ||
        !ckvc_mul_size(most, 2 * sizeof(double), &bytes)) {
        return SIZE_MAX;
    }
    parts p = {.n = n, .D = D};
    return lay_out(&p, NULL, S) * sizeof(double);
}

/* Rotates a query of the bank to a position: pairs i and i + D/2 turn by position * inv_freq[i]. */
static void rotate(const float *query, uint32_t D, const double *inv_freq, double position,
                   float *out) {
    const uint32_t half = D / 2;
    for (uint32_t i = 0; i < half; i++) {
        const double angle = position * inv_freq[i], c = cos(angle), s = sin(angle);
        const double a = (double)query[i], b = (double)query[i + half];
        out[i] = (float)(a * c - b * s);
        out[i + half] = (float)(b * c + a * s);
    }
}

void ckvc_bank_queries(const ckvc_table *t, size_t head, ckvc_bank_use use, const double *inv_freq,
                       uint32_t n_tokens, float *queries, uint32_t *positions) {
    const uint32_t group = t->n_query_heads / t->n_heads, layer = (uint32_t)(head / t->n_heads),
                   kv_head = (uint32_t)(head % t->n_heads);
    for (uint32_t h = 0; h < group; h++) {
        for (uint32_t i = 0; i < use.n_queries; i++) {
            const size_t at = (size_t)h * use.n_queries + i;
            positions[at] = n_tokens + (uint32_t)((uint64_t)i * use.span / use.n_queries);
            rotate(t->bank + ckvc_bank_index(t, layer, kv_head * group + h, i), t->bank_dim,
                   inv_freq, (double)positions[at], queries + at * t->bank_dim);
        }
    }
}

/* Writes the logits of all queries at up to AT_A_TIME positions to p->l, and -inf where a query
 * does not see a position. */
static void logits_at(const parts *p, const uint32_t *positions, size_t count) {
    const ckvc_attending *a = &p->f->attending;
    const size_t n = p->n, D = p->D;
    double *const l = p->l;
    memset(l, 0, AT_A_TIME * n * sizeof *l);
    for (size_t k = 0; k < count; k++) {
        const float *key = p->f->keys + (size_t)positions[k] * D;
        for (size_t d = 0; d < D; d++) { p->v[k * D + d] = (double)key[d]; }
    }
    for (size_t k = count; k < AT_A_TIME; k++) { memset(p->v + k * D, 0, D * sizeof *p->v); }
    for (size_t d = 0; d < D; d++) {
        const double *q = p->q + d * n, k0 = p->v[d], k1 = p->v[D + d], k2 = p->v[2 * D + d],
                     k3 = p->v[3 * D + d];
        for (size_t i = 0; i < n; i++) {
            l[i] += k0 * q[i];
            l[n + i] += k1 * q[i];
            l[2 * n + i] += k2 * q[i];
            l[3 * n + i] += k3 * q[i];
        }
    }
    for (size_t k = 0; k < count; k++) {
        for (size_t i = 0; a->cap > 0.0 && i < n; i++) {
            l[k * n + i] = a->cap * tanh(l[k * n + i] / a->cap);
        }
        for (size_t i = 0; a->window && i < n; i++) {
            if (p->f->positions[i] - positions[k] >= a->window) { l[k * n + i] = -INFINITY; }
        }
    }
    for (size_t i = count * n; i < AT_A_TIME * n; i++) { l[i] = -INFINITY; }
}

/* Adds up to AT_A_TIME positions to the answers with the whole cache. The largest logit so far is
 * taken off; where it grows, what is there already shrinks. */
static void add_to_answers(const parts *p, const uint32_t *positions, size_t count) {
    const size_t n = p->n, D = p->D;
    logits_at(p, positions, count);
    for (size_t k = 0; k < count; k++) {
        const float *value = p->f->values + (size_t)positions[k] * D;
        for (size_t d = 0; d < D; d++) { p->v[k * D + d] = (double)value[d]; }
    }
    for (size_t i = 0; i < n; i++) {
        double e[AT_A_TIME], most = p->most[i], *out = p->answer + i * D;
        for (size_t k = 0; k < AT_A_TIME; k++) { most = fmax(most, p->l[k * n + i]); }
        if (most > p->most[i]) {
            const double shrink = exp(p->most[i] - most);
            p->sum[i] *= shrink;
            for (size_t d = 0; d < D; d++) { out[d] *= shrink; }
            p->most[i] = most;
        }
        for (size_t k = 0; k < AT_A_TIME; k++) {
            const double logit = p->l[k * n + i];
            e[k] = logit == -INFINITY ? 0.0 : exp(logit - most); /* NaN stays NaN */
            p->sum[i] += e[k];
        }
        for (size_t d = 0; d < D; d++) {
            out[d] += e[0] * p->v[d] + e[1] * p->v[D + d] + e[2] * p->v[2 * D + d] +
                      e[3] * p->v[3 * D + d];
        }
    }
}

/* Computes what the queries are answered with the whole cache. A query that sees nothing is
 * answered 0. */
static void answer_from_all(const parts *p) {
    const uint32_t T = p->f->n_tokens;
    memset(p->answer, 0, p->n * p->D * sizeof *p->answer);
    memset(p->sum, 0, p->n * sizeof *p->sum);
    for (size_t i = 0; i < p->n; i++) { p->most[i] = -INFINITY; }
    for (uint32_t t = 0; t < T; t += AT_A_TIME) {
        const uint32_t positions[AT_A_TIME] = {t, t + 1, t + 2, t + 3};
        add_to_answers(p, positions, T - t < AT_A_TIME ? T - t : AT_A_TIME);
    }
    for (size_t i = 0; i < p->n; i++) {
        p->lost[i] = p->most[i] + log(p->sum[i]);
        for (size_t d = 0; p->sum[i] != 0.0 && d < p->D; d++) {
            p->answer[i * p->D + d] /= p->sum[i];
        }
    }
}

/* Computes the softmax over what is kept, w, and what is still missing in the answers. */
static void answer_from_kept(const parts *p) {
    const ckvc_fit *f = p->f;
    const size_t n = p->n, D = p->D, S = f->n_kept;
    for (size_t i = 0; i < n; i++) { p->most[i] = -INFINITY; }
    memset(p->sum, 0, n * sizeof *p->sum);
    for (size_t s = 0; s < S; s += AT_A_TIME) {
        const size_t count = S - s < AT_A_TIME ? S - s : AT_A_TIME;
        logits_at(p, f->kept + s, count);
        memcpy(p->w + s * n, p->l, count * n * sizeof *p->w);
    }
    for (size_t j = 0; j < S * n; j++) { p->most[j % n] = fmax(p->most[j % n], p->w[j]); }
    for (size_t j = 0; j < S * n; j++) {
        p->w[j] = p->w[j] == -INFINITY ? 0.0 : exp(p->w[j] - p->most[j % n]);
        p->sum[j % n] += p->w[j];
    }
    for (size_t i = 0; i < n; i++) { p->lost[i] -= p->most[i] + log(p->sum[i]); }
    memset(p->of_kept, 0, n * D * sizeof *p->of_kept);
    for (size_t s = 0; s < S; s++) {
        const float *value = f->values + (size_t)f->kept[s] * D;
        for (size_t i = 0; i < n; i++) {
            const double w = p->sum[i] == 0.0 ? 0.0 : p->w[s * n + i] / p->sum[i];
            double *out = p->of_kept + i * D;
            p->w[s * n + i] = w;
            for (size_t d = 0; d < D; d++) { out[d] += w * (double)value[d]; }
        }
    }
    for (size_t j = 0; j < n * D; j++) { p->answer[j] -= p->of_kept[j]; }
}

/* Makes the lower half of w^T w (over kept entries), with the ridge on its diagonal. Returns the
 * mean of the diagonal without it. */
static double make_gram(const parts *p) {
    const size_t n = p->n, S = p->f->n_kept;
    double trace = 0.0;
    memset(p->gram, 0, n * n * sizeof *p->gram);
    for (size_t s = 0; s < S; s++) {
        const double *w = p->w + s * n;
        for (size_t i = 0; i < n; i++) {
            double *row = p->gram + i * n;
            for (size_t j = 0; j <= i; j++) { row[j] += w[i] * w[j]; }
        }
    }
    for (size_t i = 0; i < n; i++) { trace += p->gram[i * n + i]; }
    for (size_t i = 0; i < n; i++) { p->gram[i * n + i] += p->f->ridge * (trace / (double)n); }
    return trace / (double)n;
}

/* Solves g x = x0 in place, g [n][n] by its lower half and x [n][m], by Cholesky's factors. Returns
 * false where the system is singular: a pivot is no larger than the rounding of numbers of the
 * diagonal's `size`. */
static bool solve(double *g, double size, size_t n, double *x, size_t m) {
    const double least = 1e-13 * size;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j <= i; j++) {
            double sum = g[i * n + j];
            for (size_t k = 0; k < j; k++) { sum -= g[i * n + k] * g[j * n + k]; }
            if (i == j && !(sum > least && isfinite(sum))) { return false; }
            g[i * n + j] = i == j ? sqrt(sum) : sum / g[j * n + j];
        }
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++) {
            for (size_t d = 0; d < m; d++) { x[i * m + d] -= g[i * n + k] * x[k * m + d]; }
        }
        for (size_t d = 0; d < m; d++) { x[i * m + d] /= g[i * n + i]; }
    }
    for (size_t i = n; i-- > 0;) {
        for (size_t k = i + 1; k < n; k++) {
            for (size_t d = 0; d < m; d++) { x[i * m + d] -= g[k * n + i] * x[k * m + d]; }
        }
        for (size_t d = 0; d < m; d++) { x[i * m + d] /= g[i * n + i]; }
    }
    return true;
}

/* Finds the vector that, added to every kept key, gives what is kept the mass of the whole cache:
 * least squares of q . u to what the queries lose. It is 0 under a cap, where logits do not add up.
 * A query that sees nothing of the one or of the other does not count. Returns false where the
 * system is singular. */
static bool find_shift(const parts *p) {
    const size_t n = p->n, D = p->D;
    double trace = 0.0;
    memset(p->shift, 0, D * sizeof *p->shift);
    memset(p->of_keys, 0, D * D * sizeof *p->of_keys);
    if (p->f->attending.cap > 0.0) { return true; }
    for (size_t i = 0; i < n; i++) {
        if (isinf(p->lost[i]) || p->sum[i] == 0.0) { continue; }
        for (size_t d = 0; d < D; d++) {
            const double q = p->q[d * n + i];
            p->shift[d] += q * p->lost[i];
            for (size_t e = 0; e <= d; e++) { p->of_keys[d * D + e] += q * p->q[e * n + i]; }
        }
    }
    for (size_t d = 0; d < D; d++) { trace += p->of_keys[d * D + d]; }
    for (size_t d = 0; d < D; d++) {
        p->of_keys[d * D + d] += CKVC_FIT_KEY_RIDGE * (trace / (double)D);
    }
    return solve(p->of_keys, trace / (double)D, D, p->shift, 1);
}

/* Rounds to float32 within the cache's range. */
static float within(const ckvc_attending *a, double x) {
    const double most = a->most > 0.0 ? a->most : 3.4028234663852886e38;
    return (float)fmax(-most, fmin(most, x));
}

/* Writes the kept keys plus the shift, and the kept values plus w X. Returns false where one of
 * them is not finite. */
static bool put_entries(const parts *p, float *keys, float *values) {
    const ckvc_fit *f = p->f;
    const size_t n = p->n, D = p->D;
    double *const key = p->v, *const value = p->v + D;
    for (size_t s = 0; s < f->n_kept; s++) {
        const size_t at = (size_t)f->kept[s] * D;
        for (size_t d = 0; d < D; d++) {
            key[d] = (double)f->keys[at + d] + p->shift[d];
            value[d] = (double)f->values[at + d];
        }
        for (size_t i = 0; i < n; i++) {
            const double w = p->w[s * n + i];
            for (size_t d = 0; d < D; d++) { value[d] += w * p->answer[i * D + d]; }
        }
        for (size_t d = 0; d < D; d++) {
            if (!isfinite(key[d]) || !isfinite(value[d])) { return false; }
            keys[s * D + d] = within(&f->attending, key[d]);
            values[s * D + d] = within(&f->attending, value[d]);
        }
    }
    return true;
}

static void copy_entries(const ckvc_fit *f, float *keys, float *values) {
    const size_t D = f->head_dim;
    for (size_t s = 0; s < f->n_kept; s++) {
        memcpy(keys + s * D, f->keys + f->kept[s] * D, D * sizeof *keys);
        memcpy(values + s * D, f->values + f->kept[s] * D, D * sizeof *values);
    }
}

int ckvc_fit_entries(const ckvc_fit *f, void *scratch, float *keys, float *values) {
    parts p = {.f = f, .n = f->n_queries, .D = f->head_dim};
    if (f->ridge > 0.0 && f->n_kept > 0 && f->n_kept < f->n_tokens && f->n_queries > 0) {
        lay_out(&p, scratch, f->n_kept);
        for (size_t i = 0; i < p.n; i++) {
            for (size_t d = 0; d < p.D; d++) {
                p.q[d * p.n + i] = f->attending.scale * (double)f->queries[i * p.D + d];
            }
        }
        answer_from_all(&p);
        answer_from_kept(&p);
        const double size = make_gram(&p);
        if (find_shift(&p) && solve(p.gram, size, p.n, p.answer, p.D) &&
            put_entries(&p, keys, values)) {
            return 1;
        }
    }
    copy_entries(f, keys, values);
    return 0;
}
