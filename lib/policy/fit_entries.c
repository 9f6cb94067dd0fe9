/* Fits the keys and values of what a head keeps. The formulas are those of docs/method.md, section
 * 9; the value step is that of Attention Matching (arXiv 2602.16284), in its dual form.
 *
 *   T tokens · S kept entries · n reference queries · D numbers of a key, query or value
 *
 * Logits and attention are computed in float, as engines do, and over a block of positions so are
 * answers. Everything longer is added up in double, and systems are solved in double. All sums are
 * taken in one fixed order, so that every machine and any number of threads gives the same bits. */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/sizes.h"
#include "lib/policy/cache_rows.h"
#include "lib/policy/fit_products.h"

enum {
    BLOCK = 32, /* positions, or rows of a system, that go together */
    TILE = 16   /* columns of a product */
};

/* The parts of the scratch memory. */
typedef struct parts {
    const ckvc_fit *f;
    fit_loops run;
    size_t n, D;
    double *x;          /* [n][D] the queries, times the scale */
    float *by_number;   /* [D][n] the same, transposed */
    float *w;           /* [BLOCK][n] logits, then their exponentials */
    double *e;          /* [BLOCK][n] the same in double */
    float *v;           /* [BLOCK][D] keys or values */
    double *new_values; /* [BLOCK][D] */
    float *shrink;      /* [n] exp of what a largest logit grows by, negative */
    float *most, *next; /* [n] the largest logit of a softmax; of the positions so far */
    double *sum;        /* [n] of a softmax */
    double *over_sum;   /* [n] 1 / sum, of what is kept */
    double *answer;     /* [n][D] with the whole cache; then what is missing, and X */
    double *of_kept;    /* [n][D] with what is kept, times the sum */
    double *lost;    /* [n] r: minus the log of the share of a query's mass that is kept, so >= 0 */
    double *shift;   /* [D] u: what is added to every kept key */
    double *of_keys; /* [D][D] X^T X */
    double *gram;    /* [n][n] A A^T, or [m][m] A^T A where by_entry */
    /* Where few entries are kept: A, at first times the sums of its rows. It lies behind A^T A, and
     * its rows and those of A^T A have m numbers: S, and zeros up to whole tiles. */
    bool by_entry;
    size_t m;
    float *a; /* [n][m]; else NULL */
} parts;

/* Places `count` numbers of `size` bytes, which divides 8. */
static void *take(char *memory, size_t *at, size_t count, size_t size) {
    void *p = memory ? memory + *at : NULL;
    *at += (count * size + 7) / 8 * 8;
    return p;
}

/* Places the parts in `memory`. Returns their bytes; memory NULL only counts. */
static size_t lay_out(parts *p, void *memory) {
    const size_t n = p->n, D = p->D;
    size_t at = 0;
    p->x = take(memory, &at, n * D, sizeof *p->x);
    p->by_number = take(memory, &at, D * n, sizeof *p->by_number);
    p->w = take(memory, &at, BLOCK * n, sizeof *p->w);
    p->e = take(memory, &at, BLOCK * n, sizeof *p->e);
    p->v = take(memory, &at, BLOCK * D, sizeof *p->v);
    p->new_values = take(memory, &at, BLOCK * D, sizeof *p->new_values);
    p->shrink = take(memory, &at, n, sizeof *p->shrink);
    p->most = take(memory, &at, n, sizeof *p->most);
    p->sum = take(memory, &at, n, sizeof *p->sum);
    p->next = take(memory, &at, n, sizeof *p->next);
    p->over_sum = take(memory, &at, n, sizeof *p->over_sum);
    p->answer = take(memory, &at, n * D, sizeof *p->answer);
    p->of_kept = take(memory, &at, n * D, sizeof *p->of_kept);
    p->lost = take(memory, &at, n, sizeof *p->lost);
    p->shift = take(memory, &at, D, sizeof *p->shift);
    p->of_keys = take(memory, &at, D * D, sizeof *p->of_keys);
    p->gram = take(memory, &at, n * n, sizeof *p->gram);
    return at;
}

size_t ckvc_fit_bytes(uint32_t n_queries, uint32_t head_dim) {
    const size_t n = n_queries, D = head_dim;
    size_t most, bytes;
    /* more than any of the products in lay_out, so that none of them overflows */
    if (!ckvc_mul_size(n + D + BLOCK, n + 2 * D + BLOCK, &most) ||
        !ckvc_mul_size(most, 2 * sizeof(double), &bytes)) {
        return SIZE_MAX;
    }
    parts p = {.n = n, .D = D};
    return lay_out(&p, NULL);
}

void ckvc_limit_logits(const ckvc_attending *a, const uint32_t *positions, size_t n, uint32_t key,
                       float *logits) {
    for (size_t i = 0; a->cap > 0.0 && i < n; i++) {
        logits[i] = (float)(a->cap * tanh((double)logits[i] / a->cap));
    }
    for (size_t i = 0; a->window && i < n; i++) {
        if (positions[i] - key >= a->window) { logits[i] = -INFINITY; }
    }
}

/* Reads the prompt's keys or values at some positions into p->v. */
static void load(const parts *p, cache_side side, const uint32_t *positions, size_t count) {
    const ckvc_rows from = side == CACHE_KEYS ? p->f->keys : p->f->values;
    for (size_t k = 0; k < count; k++) {
        cache_rows_read(from, side, (uint32_t)p->D, positions[k], p->v + k * p->D);
    }
}

/* Writes the logits of all queries at up to BLOCK positions to p->w, and -inf where a query does
 * not see a position. Key k of `keys` stands at positions[k]; NULL: the prompt's own do. */
static void logits_at(const parts *p, const float *keys, const uint32_t *positions, size_t count) {
    const size_t n = p->n, D = p->D;
    memset(p->w, 0, count * n * sizeof *p->w);
    if (!keys) { load(p, CACHE_KEYS, positions, count); }
    p->run.product_to_floats(p->w, count, n, n, (fit_floats){keys ? keys : p->v, D, 1, 1.0},
                             p->by_number, D);
    for (size_t k = 0; k < count; k++) {
        ckvc_limit_logits(&p->f->attending, p->f->positions, n, positions[k], p->w + k * n);
    }
}

/* Adds up to BLOCK positions, whose logits are there, to the answers with the whole cache. Where
 * the largest logit so far grows, what is there already shrinks. */
static void add_to_answers(const parts *p, const uint32_t *positions, size_t count) {
    const size_t n = p->n, D = p->D;
    memcpy(p->next, p->most, n * sizeof *p->next);
    p->run.raise(p->next, p->w, count, n);
    for (size_t i = 0; i < n; i++) { p->shrink[i] = p->most[i] - p->next[i]; }
    p->run.exponentials(p->shrink, n);
    for (size_t i = 0; i < n; i++) {
        const double shrink = (double)p->shrink[i];
        double *row = p->answer + i * D;
        p->sum[i] *= shrink;
        for (size_t d = 0; shrink < 1.0 && d < D; d++) { row[d] *= shrink; }
    }
    memcpy(p->most, p->next, n * sizeof *p->most);
    p->run.attend(p->w, count, n, p->most, p->sum);
    load(p, CACHE_VALUES, positions, count);
    p->run.product_of_floats(p->answer, n, D, D, (fit_floats){p->w, 1, n, 1.0}, p->v, count);
}

/* Lowers the largest logits below any logit of finite numbers, so that they can be taken off the
 * -inf of a position that is not seen. */
static void begin_largest(const parts *p) {
    for (size_t i = 0; i < p->n; i++) { p->most[i] = -FLT_MAX; }
}

/* Computes what the queries are answered with the whole cache, and the logs of their masses, to
 * p->lost. A query that sees nothing is answered 0. */
static void answer_from_all(const parts *p) {
    const ckvc_fit *f = p->f;
    memset(p->answer, 0, p->n * p->D * sizeof *p->answer);
    memset(p->sum, 0, p->n * sizeof *p->sum);
    begin_largest(p);
    for (uint32_t t = 0; t < f->n_tokens; t += BLOCK) {
        const uint32_t count = f->n_tokens - t < BLOCK ? f->n_tokens - t : BLOCK;
        uint32_t positions[BLOCK];
        for (uint32_t k = 0; k < count; k++) { positions[k] = t + k; }
        logits_at(p, NULL, positions, count);
        add_to_answers(p, positions, count);
    }
    for (size_t i = 0; i < p->n; i++) {
        p->lost[i] = (double)p->most[i] + log(p->sum[i]);
        for (size_t d = 0; p->sum[i] != 0.0 && d < p->D; d++) {
            p->answer[i * p->D + d] /= p->sum[i];
        }
    }
}

/* Takes the answers with the whole cache from f->whole where they are known, and else computes them
 * and leaves them there. */
static void find_whole(const parts *p) {
    const size_t n = p->n, n_answers = n * p->D;
    double *whole = p->f->whole;
    if (whole && *p->f->known) {
        memcpy(p->answer, whole, n_answers * sizeof *whole);
        memcpy(p->lost, whole + n_answers, n * sizeof *whole);
        return;
    }
    answer_from_all(p);
    if (whole) {
        memcpy(whole, p->answer, n_answers * sizeof *whole);
        memcpy(whole + n_answers, p->lost, n * sizeof *whole);
        *p->f->known = 1;
    }
}

/* Finds the queries' largest logits of what is kept, where it has these keys [S][D]; NULL: its
 * own. */
static void find_largest(const parts *p, const float *keys) {
    const size_t S = p->f->n_kept;
    begin_largest(p);
    for (size_t s = 0; s < S; s += BLOCK) {
        const size_t count = S - s < BLOCK ? S - s : BLOCK;
        logits_at(p, keys ? keys + s * p->D : NULL, p->f->kept + s, count);
        p->run.raise(p->most, p->w, count, p->n);
    }
}

/* Takes the rows s ... s + count - 1 of A^T, times the sums, from p->w: as they are where by_entry,
 * and else into the upper half of A A^T. */
static void take_rows(const parts *p, size_t s, size_t count) {
    const size_t n = p->n, m = p->m;
    for (size_t i = 0; p->by_entry && i < n; i++) {
        for (size_t k = 0; k < count; k++) { p->a[i * m + s + k] = p->w[k * n + i]; }
    }
    for (size_t i = 0; !p->by_entry && i < n; i += BLOCK) {
        p->run.product_of_floats(p->gram + i * n + i, n - i < BLOCK ? n - i : BLOCK, n - i, n,
                                 (fit_floats){p->w + i, 1, n, 1.0}, p->w + i, count);
    }
}

/* Computes what the queries are answered with what is kept, times the sums of their softmax, the
 * sums, and A or A A^T times the sums of its rows and columns. What is kept has these keys [S][D];
 * NULL: its own. */
static void answer_from_kept(const parts *p, const float *keys) {
    const ckvc_fit *f = p->f;
    const size_t n = p->n, D = p->D, S = f->n_kept;
    find_largest(p, keys);
    memset(p->sum, 0, n * sizeof *p->sum);
    memset(p->of_kept, 0, n * D * sizeof *p->of_kept);
    memset(p->gram, 0, n * n * sizeof *p->gram);
    for (size_t s = 0; s < S; s += BLOCK) {
        const size_t count = S - s < BLOCK ? S - s : BLOCK;
        logits_at(p, keys ? keys + s * D : NULL, f->kept + s, count);
        p->run.attend(p->w, count, n, p->most, p->sum);
        load(p, CACHE_VALUES, f->kept + s, count);
        p->run.product_of_floats(p->of_kept, n, D, D, (fit_floats){p->w, 1, n, 1.0}, p->v, count);
        take_rows(p, s, count);
    }
}

/* Takes what is kept off the answers with the whole cache, so that what is missing remains, and
 * finds 1 over the sums. */
static void take_answers(const parts *p) {
    const size_t n = p->n, D = p->D;
    for (size_t i = 0; i < n; i++) { p->over_sum[i] = p->sum[i] == 0.0 ? 0.0 : 1.0 / p->sum[i]; }
    for (size_t i = 0; i < n; i++) {
        for (size_t d = 0; d < D; d++) {
            p->answer[i * D + d] -= p->over_sum[i] * p->of_kept[i * D + d];
        }
    }
}

/* Takes `factor` times row `from` off row `to`, both [n]. */
static void take_off(double *to, double factor, const double *from, size_t n) {
    for (size_t i = 0; i < n; i++) { to[i] -= factor * from[i]; }
}

/* Factors the rows first ... end - 1 of g, and finishes these rows of x, from which those before
 * them are taken off already. Returns false where a pivot is not above `least`. */
static bool factor_rows(double *g, double least, size_t n, size_t first, size_t end, double *x,
                        size_t m) {
    for (size_t j = first; j < end; j++) {
        double *row = g + j * n;
        for (size_t k = first; k < j; k++) {
            const double factor = g[k * n + j];
            take_off(row + j, factor, g + k * n + j, n - j);
            take_off(x + j * m, factor, x + k * m, m);
        }
        if (!(row[j] > least && isfinite(row[j]))) { return false; }
        const double pivot = sqrt(row[j]);
        for (size_t i = j; i < n; i++) { row[i] /= pivot; }
        for (size_t d = 0; d < m; d++) { x[j * m + d] /= pivot; }
    }
    return true;
}

/* Solves (g + ridge * mean(diagonal of g) * I) x = x0 in place, g [n][n] by its upper half and x
 * [n][m], by Cholesky's factors, a block of rows after the other. Returns false where the system is
 * singular: a pivot is no larger than the rounding of numbers of the diagonal's size. */
static bool solve(const fit_loops *run, double *g, double ridge, size_t n, double *x, size_t m) {
    double trace = 0.0;
    for (size_t i = 0; i < n; i++) { trace += g[i * n + i]; }
    const double size = trace / (double)n;
    for (size_t i = 0; i < n; i++) { g[i * n + i] += ridge * size; }
    for (size_t b = 0; b < n; b += BLOCK) {
        const size_t rows = n - b < BLOCK ? n - b : BLOCK;
        const fit_factor before = {g + b, 1, n, -1.0};
        run->product(g + b * n + b, rows, n - b, n, before, g + b, b);
        run->product(x + b * m, rows, m, m, before, x, b);
        if (!factor_rows(g, 1e-13 * size, n, b, b + rows, x, m)) { return false; }
    }
    for (size_t end = n, b; end > 0; end = b) {
        b = (end - 1) / BLOCK * BLOCK;
        run->product(x + b * m, end - b, m, m, (fit_factor){g + b * n + end, n, 1, -1.0},
                     x + end * m, n - end);
        for (size_t i = end; i-- > b;) {
            for (size_t k = i + 1; k < end; k++) {
                take_off(x + i * m, g[i * n + k], x + k * m, m);
            }
            for (size_t d = 0; d < m; d++) { x[i * m + d] /= g[i * n + i]; }
        }
    }
    return true;
}

/* Finds the vector that, added to every kept key, gives what is kept the mass of the whole cache:
 * least squares of q . u to what the queries lose. It is 0 under a cap, where logits do not add up.
 * A query that sees nothing of the one or of the other does not count. Returns false where the
 * system is singular. */
static bool find_shift(const parts *p) {
    const size_t n = p->n, D = p->D;
    memset(p->shift, 0, D * sizeof *p->shift);
    memset(p->of_keys, 0, D * D * sizeof *p->of_keys);
    if (p->f->attending.cap > 0.0) { return true; }
    for (size_t i = 0; i < n; i++) {
        if (!isinf(p->lost[i]) && p->sum[i] != 0.0) {
            take_off(p->shift, -p->lost[i], p->x + i * D, D);
        } else {
            memset(p->x + i * D, 0, D * sizeof *p->x);
        }
    }
    p->run.product(p->of_keys, D, D, D, (fit_factor){p->x, 1, D, 1.0}, p->x, n);
    return solve(&p->run, p->of_keys, CKVC_FIT_KEY_RIDGE, D, p->shift, 1);
}

/* Rounds a finite number to float32 within the cache's range. */
static float within(const ckvc_fit *f, double most, double x) {
    if (!(most > 0.0)) { most = f->attending.most > 0.0 ? f->attending.most : FLT_MAX; }
    return (float)(x > most ? most : x < -most ? -most : x);
}

/* Writes the kept keys plus the shift, as the cache will hold them. Returns false where one of them
 * is not finite. */
static bool put_keys(const parts *p, float *keys) {
    const ckvc_fit *f = p->f;
    const size_t D = p->D;
    for (size_t s = 0; s < f->n_kept; s++) {
        load(p, CACHE_KEYS, f->kept + s, 1);
        for (size_t d = 0; d < D; d++) {
            const double key = (double)p->v[d] + p->shift[d];
            if (!isfinite(key)) { return false; }
            keys[s * D + d] = within(f, f->most_key, key);
        }
    }
    if (f->hold.format != CKVC_HELD_F32) {
        /* The shift is found, so x is free, and A A^T is computed anew by the keys as they are
         * held. It has n n numbers; cache_hold_keys uses 2 D D, and only where n is 2 D or more. */
        const hold_by by = {f->queries, p->n, f->attending.inv_freq, (float *)p->x, p->gram};
        cache_hold_keys(&f->hold, f->keys.pairwise, (uint32_t)D, by, f->kept, f->n_kept, keys);
    }
    return true;
}

/* Writes the kept values plus A^T X, where (A A^T + ridge) X is what is missing and what is kept
 * has these keys [S][D]; NULL: its own. Returns false where the system is singular or a value is
 * not finite. */
static bool mend_by_query(const parts *p, const float *keys, float *values) {
    const ckvc_fit *f = p->f;
    const size_t n = p->n, D = p->D, S = f->n_kept;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i; j < n; j++) { p->gram[i * n + j] *= p->over_sum[i] * p->over_sum[j]; }
    }
    if (!solve(&p->run, p->gram, f->ridge, n, p->answer, D)) { return false; }
    for (size_t i = 0; i < n; i++) {
        for (size_t d = 0; d < D; d++) { p->answer[i * D + d] *= p->over_sum[i]; }
    }
    for (size_t s = 0; s < S; s += BLOCK) {
        const size_t count = S - s < BLOCK ? S - s : BLOCK;
        logits_at(p, keys ? keys + s * D : NULL, f->kept + s, count);
        p->run.attend(p->w, count, n, p->most, p->sum);
        load(p, CACHE_VALUES, f->kept + s, count);
        for (size_t j = 0; j < count * n; j++) { p->e[j] = (double)p->w[j]; }
        for (size_t j = 0; j < count * D; j++) { p->new_values[j] = (double)p->v[j]; }
        p->run.product(p->new_values, count, D, D, (fit_factor){p->e, n, 1, 1.0}, p->answer, n);
        for (size_t j = 0; j < count * D; j++) {
            if (!isfinite(p->new_values[j])) { return false; }
            values[s * D + j] = within(f, f->most_value, p->new_values[j]);
        }
    }
    return true;
}

/* Does the same where entries are few beside queries, by the system whose solution is what is added
 * to the values: (A^T A + ridge) dV = A^T (what is missing). */
static bool mend_by_entry(const parts *p, float *values) {
    const ckvc_fit *f = p->f;
    const size_t n = p->n, D = p->D, S = f->n_kept, m = p->m;
    double *added = p->of_kept; /* [m][D] */
    memset(added, 0, m * D * sizeof *added);
    memset(p->gram, 0, m * m * sizeof *p->gram);
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t count = n - i < BLOCK ? n - i : BLOCK;
        float *a = p->a + i * m;
        for (size_t k = 0; k < count; k++) {
            for (size_t s = 0; s < m; s++) {
                a[k * m + s] = s < S ? a[k * m + s] * (float)p->over_sum[i + k] : 0.0f;
                p->e[k * m + s] = (double)a[k * m + s];
            }
        }
        p->run.product(added, m, D, D, (fit_factor){p->e, 1, m, 1.0}, p->answer + i * D, count);
        for (size_t s = 0; s < m; s += BLOCK) {
            p->run.product_of_floats(p->gram + s * m + s, m - s < BLOCK ? m - s : BLOCK, m - s, m,
                                     (fit_floats){a + s, 1, m, 1.0}, a + s, count);
        }
    }
    /* the diagonals of both systems add up to the same */
    if (!solve(&p->run, p->gram, f->ridge * (double)m / (double)n, m, added, D)) { return false; }
    for (size_t s = 0; s < S; s++) {
        load(p, CACHE_VALUES, f->kept + s, 1);
        for (size_t d = 0; d < D; d++) {
            const double value = (double)p->v[d] + added[s * D + d];
            if (!isfinite(value)) { return false; }
            values[s * D + d] = within(f, f->most_value, value);
        }
    }
    return true;
}

static void copy_entries(const ckvc_fit *f, float *keys, float *values) {
    const uint32_t D = f->head_dim;
    for (size_t s = 0; s < f->n_kept; s++) {
        cache_rows_read(f->keys, CACHE_KEYS, D, f->kept[s], keys + s * D);
        cache_rows_read(f->values, CACHE_VALUES, D, f->kept[s], values + s * D);
    }
}

int ckvc_fit_entries(const ckvc_fit *f, void *scratch, float *keys, float *values) {
    const size_t S = f->n_kept;
    parts p = {.f = f, .run = ckvc_fit_loops(0), .n = f->n_queries, .D = f->head_dim};
    if (f->ridge > 0.0 && f->n_kept > 0 && f->n_kept < f->n_tokens && f->n_queries > 0) {
        lay_out(&p, scratch);
        /* where A^T A and A fit into the memory of A A^T, their system takes less time, too */
        p.m = (S + TILE - 1) / TILE * TILE;
        p.by_entry = p.m <= p.n && p.m * (2 * p.m + p.n) <= 2 * p.n * p.n;
        p.a = p.by_entry ? (float *)(p.gram + p.m * p.m) : NULL;
        for (size_t i = 0; i < p.n; i++) {
            for (size_t d = 0; d < p.D; d++) {
                const double number = f->attending.scale * (double)f->queries[i * p.D + d];
                p.x[i * p.D + d] = number;
                p.by_number[d * p.n + i] = (float)number;
            }
        }
        find_whole(&p);
        answer_from_kept(&p, NULL);
        for (size_t i = 0; i < p.n; i++) { p.lost[i] -= (double)p.most[i] + log(p.sum[i]); }
        if (find_shift(&p) && put_keys(&p, keys)) {
            /* a vector that all keys get does not change A, but holding them does */
            const float *held = f->hold.format != CKVC_HELD_F32 ? keys : NULL;
            if (held) { answer_from_kept(&p, held); }
            take_answers(&p);
            if (p.by_entry ? mend_by_entry(&p, values) : mend_by_query(&p, held, values)) {
                return 1;
            }
        }
    }
    copy_entries(f, keys, values);
    return 0;
}

size_t ckvc_bank_references(const ckvc_table *t, uint32_t n) {
    return (size_t)(t->n_query_heads / t->n_heads) * n;
}

/* The bytes of a head's rotated queries and their positions, which lie before the scratch memory of
 * the fit itself. */
static size_t queries_bytes(const ckvc_table *t, uint32_t n) {
    const size_t bytes =
        ckvc_bank_references(t, n) * (t->bank_dim * sizeof(float) + sizeof(uint32_t));
    return (bytes + 15) / 16 * 16;
}

size_t ckvc_bank_fit_bytes(const ckvc_table *t, uint32_t n) {
    const size_t of_fit = ckvc_fit_bytes((uint32_t)ckvc_bank_references(t, n), t->bank_dim);
    return of_fit == SIZE_MAX ? SIZE_MAX : queries_bytes(t, n) + of_fit;
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

void ckvc_bank_queries(const ckvc_table *t, uint32_t block, size_t head, uint32_t n_tokens,
                       const double *inv_freq, float *queries, uint32_t *positions) {
    const ckvc_bank_use use = t->bank_use[block];
    const uint32_t layer = (uint32_t)(head / t->n_heads), n = use.n_queries,
                   all = (uint32_t)ckvc_bank_references(t, n);
    for (uint32_t i = 0; i < all; i++, queries += t->bank_dim) {
        const uint32_t of_head = (uint32_t)(head % t->n_heads) * (all / n) + i / n;
        positions[i] = n_tokens + (uint32_t)((uint64_t)(i % n) * use.span / n);
        rotate(t->bank + ckvc_bank_index(t, layer, of_head, i % n), t->bank_dim, inv_freq,
               (double)positions[i], queries);
    }
}

int ckvc_bank_fit(const ckvc_table *t, uint32_t block, size_t head, ckvc_fit f, void *scratch,
                  float *keys, float *values) {
    if (!(f.ridge > 0.0)) {
        copy_entries(&f, keys, values);
        return 0;
    }
    const uint32_t n = t->bank_use[block].n_queries;
    float *queries = scratch;
    uint32_t *positions = (uint32_t *)(queries + ckvc_bank_references(t, n) * t->bank_dim);
    f.n_queries = (uint32_t)ckvc_bank_references(t, n);
    f.queries = queries;
    f.positions = positions;
    ckvc_bank_queries(t, block, head, f.n_tokens, f.attending.inv_freq, queries, positions);
    return ckvc_fit_entries(&f, (char *)scratch + queries_bytes(t, n), keys, values);
}
