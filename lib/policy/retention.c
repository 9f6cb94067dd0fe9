/* What one layer keeps: utility, candidates, and the cut to the budget (paper.md section 2). This
 * is the only place that decides it; calibration, evaluation, the installed library and the tests
 * all call it.
 *
 *   u[t] = max_g (alpha[t] * rho[g][t]) * W_head[g]
 *   I    = {t : u[t] >= tau}; where |I| <= B all of I is kept, else the B largest by u,
 *          of equal ones the later position */
#include "lib/policy/policy_parts.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/policy/retain_many.h"

void ckvc_alpha_visible(double *alpha, uint32_t n_tokens, uint32_t window) {
    if (window > n_tokens) { window = n_tokens; }
    /* How many of the window's rows T-W ... T-1 can see position t: all W up to t = T-W, and T-t
     * after it. */
    double sum = 0.0;
    for (uint32_t t = 0; t < n_tokens; t++) {
        if (n_tokens - t < window) { alpha[t] *= (double)window / (double)(n_tokens - t); }
        sum += alpha[t];
    }
    if (!(sum > 0.0)) { return; }
    double scale = (double)n_tokens / sum;
    for (uint32_t t = 0; t < n_tokens; t++) { alpha[t] *= scale; }
}

void ckvc_utility(uint32_t n_tokens, uint32_t n_heads, const float *alpha, const float *rho,
                  const double *weight, double *u) {
    assert(n_heads >= 1);
    for (uint32_t t = 0; t < n_tokens; t++) {
        u[t] = ((double)alpha[t] * (double)rho[t]) * weight[0];
    }
    for (uint32_t g = 1; g < n_heads; g++) {
        const float *rho_t = rho + (size_t)g * n_tokens;
        for (uint32_t t = 0; t < n_tokens; t++) {
            double x = ((double)alpha[t] * (double)rho_t[t]) * weight[g];
            if (x > u[t]) { u[t] = x; }
        }
    }
}

/* Heads are added in their order and the sum is divided once: this gives the same bits everywhere,
 * and neighbouring positions never change places by rounding. */
static void mean_utility(uint32_t n_tokens, uint32_t n_heads, const float *alpha, const float *rho,
                         const double *weight, double *u) {
    for (uint32_t t = 0; t < n_tokens; t++) {
        u[t] = ((double)alpha[t] * (double)rho[t]) * weight[0];
    }
    for (uint32_t g = 1; g < n_heads; g++) {
        const float *rho_t = rho + (size_t)g * n_tokens;
        for (uint32_t t = 0; t < n_tokens; t++) {
            u[t] += ((double)alpha[t] * (double)rho_t[t]) * weight[g];
        }
    }
    for (uint32_t t = 0; t < n_tokens; t++) { u[t] /= (double)n_heads; }
}

void ckvc_operator_utility(ckvc_operator op, uint32_t n_tokens, uint32_t n_heads,
                           const float *alpha, const float *rho, const double *weight, double *u) {
    assert(n_heads >= 1);
    if (op == CKVC_OPERATOR_NO_UTILITY) { /* alpha is not negative, so one weight, the largest, is
                                             the maximum for every token */
        double largest = weight[0];
        for (uint32_t g = 1; g < n_heads; g++) {
            largest = weight[g] > largest ? weight[g] : largest;
        }
        for (uint32_t t = 0; t < n_tokens; t++) { u[t] = (double)alpha[t] * largest; }
    } else if (op == CKVC_OPERATOR_MEAN_POOL) {
        mean_utility(n_tokens, n_heads, alpha, rho, weight, u);
    } else {
        ckvc_utility(n_tokens, n_heads, alpha, rho, weight, u);
    }
}

/* The order of the candidates: a window position comes before any other, then larger u, then the
 * later position. Positions are distinct, so no two are equal. A NaN (from broken statistics of a
 * caller) ranks lowest, so that the order stays total. */
typedef struct ranking {
    const double *u;
    uint32_t window_begin; /* positions from here on are kept first */
    uint64_t work;         /* comparisons */
} ranking;

static bool ranks_before(const ranking *r, uint32_t a, uint32_t b) {
    bool a_window = a >= r->window_begin, b_window = b >= r->window_begin;
    if (a_window != b_window) { return a_window; }
    double ua = isnan(r->u[a]) ? -INFINITY : r->u[a], ub = isnan(r->u[b]) ? -INFINITY : r->u[b];
    return ua != ub ? ua > ub : a > b;
}

/* Returns the position that stands k-th (from 0) in the ranking of items [n], and reorders items.
 * It is quickselect. Pivots come from a fixed generator, so that no ordinary input (sorted, organ
 * pipe, all tied) is a bad case, and every machine does the same work. */
static uint32_t select_rank(ranking *r, uint32_t *items, uint32_t n, uint32_t k) {
    uint32_t lo = 0, hi = n - 1, state = 0x9E3779B9u;
    while (lo < hi) {
        state = state * 1664525u + 1013904223u;
        uint32_t pick = lo + (uint32_t)(((uint64_t)(hi - lo + 1) * state) >> 32),
                 pivot = items[pick], split = lo;
        items[pick] = items[hi];
        for (uint32_t i = lo; i < hi; i++) {
            uint32_t item = items[i];
            if (ranks_before(r, item, pivot)) {
                items[i] = items[split];
                items[split++] = item;
            }
        }
        r->work += hi - lo;
        items[hi] = items[split];
        items[split] = pivot;
        if (split == k) { return pivot; }
        if (split < k) {
            lo = split + 1;
        } else {
            hi = split - 1;
        }
    }
    return items[lo];
}

uint32_t ckvc_retain(uint32_t n_tokens, const double *u, ckvc_rule rule, uint32_t *kept,
                     uint32_t *n_candidates, uint32_t *scratch) {
    const double tau = rule.tau;
    const uint32_t budget = rule.budget;
    ranking r = {u, rule.keep_window >= n_tokens ? 0 : n_tokens - rule.keep_window, 0};
    uint32_t n = 0;
    for (uint32_t t = 0; t < n_tokens; t++) {
        if (u[t] >= tau || t >= r.window_begin) { scratch[n++] = t; }
    }
    *n_candidates = n;
    if (budget == 0) { return 0; }
    if (n <= budget) {
        for (uint32_t i = 0; i < n; i++) { kept[i] = scratch[i]; }
        return n;
    }
    /* `last` is the last one that still fits. A second pass in order of position keeps it and all
     * that rank before it. */
    uint32_t last = select_rank(&r, scratch, n, budget - 1), n_kept = 0;
    for (uint32_t t = 0; t < n_tokens; t++) {
        if ((u[t] >= tau || t >= r.window_begin) && (t == last || ranks_before(&r, t, last))) {
            kept[n_kept++] = t;
        }
    }
    assert(n_kept == budget);
    return n_kept;
}

uint32_t ckvc_retain_head(uint32_t n_tokens, const double *s, uint32_t recent, uint32_t capacity,
                          uint32_t *kept, uint32_t *scratch) {
    ranking r = {s, n_tokens, 0};
    const uint32_t begin_recent = recent < n_tokens ? n_tokens - recent : 0,
                   forced = recent < n_tokens ? recent + 1 : n_tokens;
    uint32_t n = 0, n_kept = 0, last = 0;
    if (capacity >= n_tokens || capacity < forced) {
        const uint32_t first = capacity < n_tokens ? n_tokens - capacity : 0;
        for (uint32_t t = first; t < n_tokens; t++) { kept[n_kept++] = t; }
        return n_kept;
    }
    const uint32_t by_score = capacity - forced;
    for (uint32_t t = 1; t < begin_recent; t++) { scratch[n++] = t; }
    if (by_score) { last = select_rank(&r, scratch, n, by_score - 1); }
    kept[n_kept++] = 0;
    for (uint32_t t = 1; by_score && t < begin_recent; t++) {
        if (t == last || ranks_before(&r, t, last)) { kept[n_kept++] = t; }
    }
    for (uint32_t t = begin_recent; t < n_tokens; t++) { kept[n_kept++] = t; }
    assert(n_kept == capacity);
    return n_kept;
}

/* ---- many sets of one layer (retain_many.h) ---- */

size_t ckvc_retain_many_bytes(uint32_t max_tokens, uint32_t max_actions) {
    return (size_t)max_tokens * 2 * sizeof(uint32_t) + (size_t)max_actions * sizeof(uint32_t) +
           ((size_t)max_tokens / 64 + 1) * sizeof(uint64_t);
}

bool ckvc_retain_many_init(ckvc_retain_many *r, uint32_t max_tokens, uint32_t max_actions) {
    *r = (ckvc_retain_many){.max_tokens = max_tokens, .max_actions = max_actions};
    r->first = calloc((size_t)max_tokens + 1, sizeof *r->first);
    r->second = calloc((size_t)max_tokens + 1, sizeof *r->second);
    r->n_candidates = calloc((size_t)max_actions + 1, sizeof *r->n_candidates);
    r->mark = calloc((size_t)max_tokens / 64 + 1, sizeof *r->mark);
    if (r->first && r->second && r->n_candidates && r->mark) { return true; }
    ckvc_retain_many_fini(r);
    return false;
}

void ckvc_retain_many_fini(ckvc_retain_many *r) {
    free(r->first);
    free(r->second);
    free(r->n_candidates);
    free(r->mark);
    *r = (ckvc_retain_many){0};
}

/* Sorts items [n] into ranking order by heap sort: in place, and never worse than n log n. */
static void sort_rank(ranking *r, uint32_t *items, uint32_t n) {
    for (uint32_t built = n / 2, end = n; end > 1;) {
        uint32_t root, item;
        if (built > 0) {
            root = --built;
            item = items[root];
        } else { /* the top of the heap ranks last, so it goes to the end */
            item = items[--end];
            items[end] = items[0];
            root = 0;
        }
        for (uint32_t child; (child = 2 * root + 1) < end; root = child) {
            child += child + 1 < end && ranks_before(r, items[child], items[child + 1]);
            r->work += 2;
            if (!ranks_before(r, item, items[child])) { break; }
            items[root] = items[child];
        }
        items[root] = item;
    }
}

/* Moves the first n of items [n_items] to the front, in ranking order. Returns how many there
 * are. */
static uint32_t rank_first(ckvc_retain_many *m, const double *value, uint32_t *items,
                           uint32_t n_items, uint32_t n) {
    ranking r = {value, m->n_tokens, 0};
    if (n == 0) { return 0; }
    if (n_items > n) {
        select_rank(&r, items, n_items, n - 1);
        n_items = n;
    }
    sort_rank(&r, items, n_items);
    m->work += r.work;
    return n_items;
}

static void begin_state(ckvc_retain_many *m, uint32_t n_tokens, uint32_t n_actions, uint32_t budget,
                        uint32_t keep_window) {
    assert(n_tokens <= m->max_tokens && n_actions >= 1 && n_actions <= m->max_actions);
    uint32_t window = keep_window < n_tokens ? keep_window : n_tokens;
    m->n_tokens = n_tokens;
    m->n_actions = n_actions;
    m->window_begin = n_tokens - window;
    m->in_window = window > budget;
    m->fill = m->in_window ? budget : budget - window;
    m->n_first = m->n_second = 0;
    memset(m->n_candidates, 0, n_actions * sizeof *m->n_candidates);
}

/* How many of the ascending values [n], multiplied by x, are below the bound; those come first. */
static uint32_t count_below(const double *values, uint32_t n, double x, double bound) {
    uint32_t lo = 0, hi = n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (x * values[mid] >= bound) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return lo;
}

void ckvc_retain_heads(ckvc_retain_many *m, uint32_t n_tokens, const double *others,
                       const double *own, const double *weights, uint32_t n_weights,
                       ckvc_rule rule) {
    const double tau = rule.tau;
    begin_state(m, n_tokens, n_weights, rule.budget, rule.keep_window);
    m->others = others;
    m->own = own;
    m->weights = weights;
    m->tau = tau;
    const double top = weights[n_weights - 1];
    /* t is a candidate from the first weight on that lifts it over tau */
    for (uint32_t t = 0; t < m->window_begin; t++) {
        bool by_others = others[t] >= tau, by_own = own[t] * top >= tau;
        if (by_others || by_own) {
            m->n_candidates[by_others ? 0 : count_below(weights, n_weights, own[t], tau)]++;
        }
        if (!m->in_window && by_others) { m->first[m->n_first++] = t; }
        if (!m->in_window && by_own) { m->second[m->n_second++] = t; }
    }
    for (uint32_t t = m->window_begin; m->in_window && t < n_tokens; t++) {
        m->first[m->n_first++] = m->second[m->n_second++] = t;
    }
    m->n_candidates[0] += n_tokens - m->window_begin;
    for (uint32_t a = 1; a < n_weights; a++) { m->n_candidates[a] += m->n_candidates[a - 1]; }
    m->work += n_tokens;
    m->n_first = rank_first(m, others, m->first, m->n_first, m->fill);
    m->n_second = rank_first(m, own, m->second, m->n_second, m->fill);
}

void ckvc_retain_gates(ckvc_retain_many *m, uint32_t n_tokens, const double *u, const double *taus,
                       uint32_t n_taus, uint32_t budget, uint32_t keep_window) {
    begin_state(m, n_tokens, n_taus, budget, keep_window);
    m->weights = NULL;
    for (uint32_t t = 0; t < m->window_begin; t++) {
        if (!(u[t] >= taus[0])) { continue; }
        uint32_t above = 1; /* t is a candidate up to the last threshold that it reaches */
        for (uint32_t hi = n_taus; above < hi;) {
            uint32_t mid = (above + hi) / 2;
            if (u[t] >= taus[mid]) {
                above = mid + 1;
            } else {
                hi = mid;
            }
        }
        m->n_candidates[above - 1]++;
        if (!m->in_window) { m->first[m->n_first++] = t; }
    }
    for (uint32_t t = m->window_begin; m->in_window && t < n_tokens; t++) {
        m->first[m->n_first++] = t;
    }
    m->n_candidates[n_taus - 1] += n_tokens - m->window_begin;
    for (uint32_t a = n_taus - 1; a-- > 0;) { m->n_candidates[a] += m->n_candidates[a + 1]; }
    m->work += n_tokens;
    m->n_first = rank_first(m, u, m->first, m->n_first, m->fill);
}

static bool is_kept(const ckvc_retain_many *m, uint32_t t) {
    return m->mark[t / 64] >> (t % 64) & 1;
}

static void set_mark(ckvc_retain_many *m, uint32_t t) {
    m->mark[t / 64] |= (uint64_t)1 << (t % 64);
}

/* Marks the `fill` first positions by max(others, own * weight) that reach tau. Each step takes the
 * larger head of the two ranked lists; a position is marked once. */
static void mark_merged(ckvc_retain_many *m, double weight) {
    uint32_t i = 0, k = 0;
    for (uint32_t n = 0; n < m->fill; n++) {
        while (i < m->n_first && is_kept(m, m->first[i])) { i++; }
        while (k < m->n_second && is_kept(m, m->second[k])) { k++; }
        bool has_first = i < m->n_first, has_second = k < m->n_second;
        if (!has_first && !has_second) { break; }
        uint32_t a = has_first ? m->first[i] : 0, b = has_second ? m->second[k] : 0;
        double value_a = has_first ? m->others[a] : 0,
               value_b = has_second ? m->own[b] * weight : 0;
        bool take_a =
            has_first && (!has_second || value_a > value_b || (value_a == value_b && a > b));
        if (!m->in_window && !((take_a ? value_a : value_b) >= m->tau)) { break; }
        set_mark(m, take_a ? a : b);
        i += take_a;
        k += !take_a;
    }
    m->work += i + k + 1;
}

uint32_t ckvc_retain_action(ckvc_retain_many *m, uint32_t action, uint32_t *kept,
                            uint32_t *n_candidates) {
    assert(action < m->n_actions);
    const uint32_t window = m->n_tokens - m->window_begin;
    *n_candidates = m->n_candidates[action];
    if (m->weights) {
        mark_merged(m, m->weights[action]);
    } else {
        uint32_t n = m->in_window ? m->fill : m->n_candidates[action] - window;
        n = n < m->n_first ? n : m->n_first;
        for (uint32_t i = 0; i < n; i++) { set_mark(m, m->first[i]); }
        m->work += n + 1;
    }
    uint32_t n_kept = 0;
    for (uint32_t word = 0; word <= m->n_tokens / 64; word++) {
        for (uint64_t bits = m->mark[word]; bits; bits &= bits - 1) {
            kept[n_kept++] = word * 64 + (uint32_t)__builtin_ctzll(bits);
        }
        m->mark[word] = 0;
    }
    m->work += m->n_tokens / 64 + 1;
    for (uint32_t t = m->window_begin; !m->in_window && t < m->n_tokens; t++) {
        kept[n_kept++] = t;
    }
    return n_kept;
}
