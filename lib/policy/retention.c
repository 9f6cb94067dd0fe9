/* What one layer keeps: utility, candidates, the clamp to the budget (method.md section 2). This is the only place that decides it;
 * calibration, evaluation, the installed library and the tests all come here.
 *
 *   u[t] = max_g (alpha[t] * rho[g][t]) * W_head[g]
 *   I    = {t : u[t] >= tau};  |I| <= B keeps I, else the B largest by u, of equal ones the later position
 */
#include "lib/policy/ckvc_policy.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

void ckvc_alpha_visible(double *alpha, uint32_t n_tokens, uint32_t window)
{
    if (window > n_tokens)
        window = n_tokens;
    /* Rows T-W ... T-1 with j >= t: all W of them up to t = T-W, T-t behind it. */
    double sum = 0.0;
    for (uint32_t t = 0; t < n_tokens; t++) {
        if (n_tokens - t < window)
            alpha[t] *= (double)window / (double)(n_tokens - t);
        sum += alpha[t];
    }
    if (!(sum > 0.0))
        return;
    double scale = (double)n_tokens / sum;
    for (uint32_t t = 0; t < n_tokens; t++)
        alpha[t] *= scale;
}

void ckvc_utility(uint32_t n_tokens, uint32_t n_heads, const float *alpha, const float *rho, const double *weight, double *u)
{
    assert(n_heads >= 1);
    for (uint32_t t = 0; t < n_tokens; t++)
        u[t] = ((double)alpha[t] * (double)rho[t]) * weight[0];
    for (uint32_t g = 1; g < n_heads; g++) {
        const float *rho_t = rho + (size_t)g * n_tokens;
        for (uint32_t t = 0; t < n_tokens; t++) {
            double x = ((double)alpha[t] * (double)rho_t[t]) * weight[g];
            if (x > u[t])
                u[t] = x;
        }
    }
}

/* Order of the candidates: a window position before any other, then larger u, then later position. Positions are distinct, so no
 * two are equal. A NaN (a caller's broken statistics) ranks lowest, so that the order stays total. */
typedef struct ranking {
    const double *u;
    uint32_t window_begin; /* positions from here on are kept first */
} ranking;

static bool ranks_before(const ranking *r, uint32_t a, uint32_t b)
{
    bool a_window = a >= r->window_begin, b_window = b >= r->window_begin;
    if (a_window != b_window)
        return a_window;
    double ua = isnan(r->u[a]) ? -INFINITY : r->u[a], ub = isnan(r->u[b]) ? -INFINITY : r->u[b];
    return ua != ub ? ua > ub : a > b;
}

/* The position that stands k-th (0-based) in the ranking of items [n], which are reordered. Quickselect; pivots come from a fixed
 * generator, so that no ordinary input (sorted, organ pipe, all tied) is the bad case and every machine does the same work. */
static uint32_t select_rank(const ranking *r, uint32_t *items, uint32_t n, uint32_t k)
{
    uint32_t lo = 0, hi = n - 1, state = 0x9E3779B9u;
    while (lo < hi) {
        state = state * 1664525u + 1013904223u;
        uint32_t pick = lo + (uint32_t)(((uint64_t)(hi - lo + 1) * state) >> 32), pivot = items[pick], split = lo;
        items[pick] = items[hi];
        for (uint32_t i = lo; i < hi; i++) {
            uint32_t item = items[i];
            if (ranks_before(r, item, pivot)) {
                items[i] = items[split];
                items[split++] = item;
            }
        }
        items[hi] = items[split];
        items[split] = pivot;
        if (split == k)
            return pivot;
        if (split < k)
            lo = split + 1;
        else
            hi = split - 1;
    }
    return items[lo];
}

uint32_t ckvc_retain(uint32_t n_tokens, const double *u, double tau, uint32_t budget, uint32_t keep_window, uint32_t *kept,
                     uint32_t *n_candidates, uint32_t *scratch)
{
    ranking r = {u, keep_window >= n_tokens ? 0 : n_tokens - keep_window};
    uint32_t n = 0;
    for (uint32_t t = 0; t < n_tokens; t++)
        if (u[t] >= tau || t >= r.window_begin)
            scratch[n++] = t;
    *n_candidates = n;
    if (budget == 0)
        return 0;
    if (n <= budget) {
        for (uint32_t i = 0; i < n; i++)
            kept[i] = scratch[i];
        return n;
    }
    /* The last one that still fits decides: a second pass in order of position keeps it and all that rank before it. */
    uint32_t last = select_rank(&r, scratch, n, budget - 1), n_kept = 0;
    for (uint32_t t = 0; t < n_tokens; t++)
        if ((u[t] >= tau || t >= r.window_begin) && (t == last || ranks_before(&r, t, last)))
            kept[n_kept++] = t;
    assert(n_kept == budget);
    return n_kept;
}
