/* See fit_rewards.h. */
#include "cql/fit/fit_rewards.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cql/solve/counts.h"
#include "cql/solve/cql.h"
#include "cql/stats/rank.h"
#include "lib/base/memory.h"
#include "lib/base/order.h"
#include "lib/base/rng.h"

#define TIE 1e-9 /* of scaled rewards, as cql_choose's */

static uint32_t units_of(const shard_header *h) {
    return h->n_layers * (h->setting.mode == CKVC_MODE_LAYERS ? 1 : h->n_kv_heads);
}

ckvc_status fit_rewards_add(fit_rewards *w, const shard *s, size_t p, uint64_t hash,
                            size_t memory_max, const char *where, ckvc_err *err) {
    const shard_header *h = &s->h;
    const size_t n = (size_t)h->n_budgets * units_of(h) * h->side[CKVC_SIDE_HEAD].n_actions,
                 bytes = n * (sizeof(double) + sizeof(uint32_t));
    CKVC_FAIL_IF(w->n_prompts + 1 > memory_max / bytes, err, CKVC_E_MEMORY,
                 "%s: losses of %zu prompts, %zu bytes each, are over --memory", where,
                 w->n_prompts + 1, bytes);
    const double *losses = s->action_loss + p * n;
    for (size_t i = 0; i < n; i++) {
        CKVC_FAIL_IF(fabs(losses[i]) > CQL_MAX_REWARD, err, CKVC_E_DATA,
                     "%s: /prompt/action_loss, row %zu, holds %g, at most %g is a loss", where, p,
                     losses[i], CQL_MAX_REWARD);
    }
    CKVC_GROW(w->prompts, w->capacity, w->n_prompts + 1);
    w->prompts[w->n_prompts++] = (struct fit_rewards_prompt){
        .hash = hash,
        .key = ckvc_rng_key(s->prompts[p].id),
        .n_tokens = s->prompts[p].n_tokens,
        .losses = ckvc_copy(losses, n, sizeof(double)),
        .entries = ckvc_copy(s->action_entries + p * n, n, sizeof(uint32_t))};
    return CKVC_OK;
}

/* ---- one budget ---- */

/* What a budget's choices are made from, in a sample or in a replicate of it. */
typedef struct sample {
    const fit_rewards *w;
    const fit_options *o;
    uint32_t budget, n_units, n_actions, neutral; /* neutral: the factor 1 */
    double scale;                                 /* of rewards */
    const uint8_t *weights;                       /* [R][n_prompts]: CQL_RESAMPLE_BOOTSTRAP */
    double *price;                                /* [R + 1], R replicates and the sample itself */
} sample;

/* Prompt p's row of a unit; NULL where the budget leaves no choice in it. */
static const uint32_t *row_of(const sample *s, size_t p, uint32_t unit, const double **losses) {
    const struct fit_rewards_prompt *from = &s->w->prompts[p];
    const size_t at = ((size_t)s->budget * s->n_units + unit) * s->n_actions;
    *losses = from->losses + at;
    return ckvc_budget_tokens(s->w->first.budgets[s->budget], from->n_tokens) < from->n_tokens
               ? from->entries + at
               : NULL;
}

/* Was a row's state tried? All its actions are there then, and else the factor 1 alone. */
static bool tried(const uint32_t *entries, uint32_t neutral) { return entries[neutral == 0] > 0; }

/* n, mean reward in units of scale and mean cost [A] of a unit; r: a replicate, or CQL_SAMPLE.
 * Returns the prompts that tried it. */
static size_t means_of(const sample *s, uint32_t r, uint32_t unit, uint64_t *n, double *mean,
                       double *cost) {
    const uint32_t A = s->n_actions;
    size_t prompts = 0;
    for (uint32_t a = 0; a < A; a++) { n[a] = 0, mean[a] = 0, cost[a] = 0; }
    for (size_t p = 0; p < s->w->n_prompts; p++) {
        const uint32_t weight = r == CQL_SAMPLE ? 1 : s->weights[r * s->w->n_prompts + p];
        const double *losses;
        const uint32_t *entries = row_of(s, p, unit, &losses);
        if (!weight || !entries || !tried(entries, s->neutral)) { continue; }
        const double all = (double)s->n_units * ckvc_budget_tokens(s->w->first.budgets[s->budget],
                                                                   s->w->prompts[p].n_tokens);
        prompts++;
        for (uint32_t a = 0; a < A; a++) {
            n[a] += weight;
            mean[a] += weight * (losses[s->neutral] - losses[a]);
            cost[a] += weight * ((double)entries[a] - entries[s->neutral]) / all;
        }
    }
    for (uint32_t a = 0; a < A; a++) {
        if (n[a] == 0) { continue; }
        mean[a] /= (double)n[a] * s->scale;
        cost[a] /= (double)n[a];
    }
    return prompts;
}

/* The best action at a price; neutral where nothing was tried (q is -infinity). */
static uint32_t choice_of(const sample *s, const double *q, const double *cost, double price) {
    uint32_t best = s->neutral;
    double most = -INFINITY;
    for (uint32_t a = 0; a < s->n_actions; a++) { most = fmax(most, q[a] - price * cost[a]); }
    uint32_t least = s->n_actions;
    for (uint32_t a = 0; a < s->n_actions && isfinite(most); a++) {
        const uint32_t change = a > s->neutral ? a - s->neutral : s->neutral - a;
        if (q[a] - price * cost[a] >= most - TIE && change < least) {
            best = a;
            least = change;
        }
    }
    return best;
}

static double cost_at(const sample *s, const double *q, const double *cost, double price) {
    double sum = 0;
    for (uint32_t u = 0; u < s->n_units; u++) {
        const size_t at = (size_t)u * s->n_actions;
        sum += cost[at + choice_of(s, q + at, cost + at, price)];
    }
    return sum;
}

/* The smallest price at which nothing is added: costs fall with it in steps. */
static double price_of(const sample *s, const double *q, const double *cost) {
    double lo = 0, hi = 1;
    if (cost_at(s, q, cost, 0) <= 0) { return 0; }
    while (cost_at(s, q, cost, hi) > 0 && hi < 1e300) { lo = hi, hi *= 2; }
    for (int halving = 0; halving < 64; halving++) {
        const double mid = (lo + hi) / 2;
        *(cost_at(s, q, cost, mid) > 0 ? &lo : &hi) = mid;
    }
    return hi;
}

/* Q and costs [n_units][A] of a replicate, its price, and what it chooses [n_units]. */
static ckvc_status choose(const sample *s, uint32_t r, double *q, double *cost, uint32_t *choice,
                          ckvc_err *err) {
    const uint32_t A = s->n_actions;
    CKVC_AUTO_FREE uint64_t *n = ckvc_alloc(A, sizeof *n);
    CKVC_AUTO_FREE double *mean = ckvc_alloc(A, sizeof *mean);
    for (uint32_t u = 0; u < s->n_units; u++) {
        cql_certificate cert;
        means_of(s, r, u, n, mean, cost + (size_t)u * A);
        CKVC_FAIL_IF(!cql_solve_exact(A, n, mean, s->o->cql_alpha, q + (size_t)u * A, &cert), err,
                     CKVC_E_BUG, "shares, unit %u: the exact solver left a gradient of %g", u,
                     cert.gradient);
    }
    double *price = &s->price[r == CQL_SAMPLE ? s->o->replicates : r];
    *price = price_of(s, q, cost);
    for (uint32_t u = 0; u < s->n_units; u++) {
        const size_t at = (size_t)u * A;
        choice[u] = choice_of(s, q + at, cost + at, *price);
    }
    return CKVC_OK;
}

/* cql_resampled's view of it: rewards net of the replicate's own price. */
static size_t net_rewards(const cql_resampled *view, uint32_t r, size_t state, uint64_t *n,
                          double *mean) {
    const sample *s = view->store;
    double cost[CQL_MAX_ACTIONS];
    const size_t prompts = means_of(s, r, (uint32_t)state, n, mean, cost);
    const double price = s->price[r == CQL_SAMPLE ? s->o->replicates : r];
    for (uint32_t a = 0; a < s->n_actions; a++) { mean[a] -= price * cost[a]; }
    return prompts;
}

/* Shares of a block times the factors, mean 1 again -> to [n_units]. */
static void multiply(const sample *s, const double *share, uint32_t stride, const uint32_t *choice,
                     double *to) {
    const double *factor = s->w->first.side[CKVC_SIDE_HEAD].actions;
    double sum = 0;
    for (uint32_t u = 0; u < s->n_units; u++) {
        sum += to[u] = share[(size_t)u * stride] * factor[choice[u]];
    }
    for (uint32_t u = 0; u < s->n_units; u++) { to[u] *= s->n_units / sum; }
}

/* Of each unit the 2.5 and 97.5 percentiles over replicates of its share -> ends [n_units][2], and
 * how many choices' factors have an interval that holds 1. */
static ckvc_status intervals(const sample *s, const double *share, uint32_t stride, double *ends,
                             size_t *undecided, ckvc_err *err) {
    const uint32_t R = s->o->replicates, n = s->n_units;
    const double *factor = s->w->first.side[CKVC_SIDE_HEAD].actions;
    CKVC_AUTO_FREE double *q = ckvc_alloc((size_t)n * s->n_actions, sizeof *q);
    CKVC_AUTO_FREE double *cost = ckvc_alloc((size_t)n * s->n_actions, sizeof *cost);
    CKVC_AUTO_FREE double *shares = ckvc_alloc((size_t)n * R, sizeof *shares);
    CKVC_AUTO_FREE double *factors = ckvc_alloc((size_t)n * R, sizeof *factors);
    CKVC_AUTO_FREE double *one = ckvc_alloc(n, sizeof *one);
    CKVC_AUTO_FREE uint32_t *choice = ckvc_alloc(n, sizeof *choice);
    for (uint32_t r = 0; r < R; r++) {
        CKVC_TRY(choose(s, r, q, cost, choice, err));
        multiply(s, share, stride, choice, one);
        for (uint32_t u = 0; u < n; u++) {
            shares[(size_t)u * R + r] = one[u];
            factors[(size_t)u * R + r] = factor[choice[u]];
        }
    }
    *undecided = 0;
    for (uint32_t u = 0; u < n; u++) {
        double of_factor[2];
        rank_ends(shares + (size_t)u * R, R, &ends[2 * (size_t)u], &ends[2 * (size_t)u + 1]);
        rank_ends(factors + (size_t)u * R, R, &of_factor[0], &of_factor[1]);
        *undecided += of_factor[0] <= 1 && of_factor[1] >= 1;
    }
    return CKVC_OK;
}

/* Block s->budget of the table. */
static ckvc_status fit_block(const sample *s, table_file *t, rewards_block *out, ckvc_err *err) {
    const uint32_t n = s->n_units, A = s->n_actions, nB = t->table->n_budgets;
    const bool heads = s->w->first.setting.mode == CKVC_MODE_HEADS;
    double *share = (heads ? t->table->share : t->table->layer_share) + s->budget;
    CKVC_AUTO_FREE double *q = ckvc_alloc((size_t)n * A, sizeof *q);
    CKVC_AUTO_FREE double *cost = ckvc_alloc((size_t)n * A, sizeof *cost);
    CKVC_AUTO_FREE double *ends = ckvc_alloc(2 * (size_t)n, sizeof *ends);
    CKVC_AUTO_FREE uint32_t *choice = ckvc_alloc(n, sizeof *choice);
    for (size_t p = 0; p < s->w->n_prompts; p++) {
        const double *losses;
        out->n_prompts += row_of(s, p, 0, &losses) != NULL;
    }
    if (s->o->replicates) { CKVC_TRY(intervals(s, share, nB, ends, &out->undecided, err)); }
    CKVC_TRY(choose(s, CQL_SAMPLE, q, cost, choice, err));
    const cql_resampled view = {.store = s,
                                .n_states = n,
                                .n_actions = A,
                                .n_replicates = s->o->replicates,
                                .scale = s->scale,
                                .state = net_rewards};
    out->price = s->price[s->o->replicates] * s->scale;
    for (uint32_t u = 0; u < n; u++) {
        const size_t at = (size_t)u * A;
        out->supported += isfinite(q[at]);
        if (choice[u] == s->neutral) { continue; }
        if (s->o->shrink &&
            !(cql_lower_bound(&view, u, (int)choice[u], (int)s->neutral, NULL) > 0)) {
            choice[u] = s->neutral;
            out->shrunk++;
        }
        out->changed += choice[u] != s->neutral;
    }
    CKVC_AUTO_FREE double *made = ckvc_alloc(n, sizeof *made);
    multiply(s, share, nB, choice, made);
    for (uint32_t u = 0; u < n; u++) {
        share[(size_t)u * nB] = made[u];
        if (heads && s->o->replicates) {
            memcpy(t->share_interval + 2 * ((size_t)u * nB + s->budget), ends + 2 * (size_t)u,
                   2 * sizeof *ends);
        }
    }
    return CKVC_OK;
}

/* ---- the whole ---- */

/* Under the table's own shares the records' prompts kept what the records say. */
static ckvc_status check_start(const fit_rewards *w, uint32_t neutral, const ckvc_table *t,
                               ckvc_err *err) {
    const shard_header *h = &w->first;
    const ckvc_mode mode = h->setting.mode;
    const uint32_t n = units_of(h), A = h->side[CKVC_SIDE_HEAD].n_actions;
    CKVC_AUTO_FREE uint32_t *c = ckvc_alloc(n, sizeof *c);
    for (uint32_t b = 0; b < h->n_budgets; b++) {
        CKVC_FAIL_IF(ckvc_table_score(t, b).mode != mode ||
                         !(mode == CKVC_MODE_HEADS ? t->share : t->layer_share),
                     err, CKVC_E_MISMATCH,
                     "%s: rewards of mode %s, which the incoming table does not recommend for "
                     "budget %g; give --tables the one that they were logged under",
                     w->where, ckvc_mode_name(mode), h->budgets[b]);
        for (size_t p = 0; p < w->n_prompts; p++) {
            const struct fit_rewards_prompt *from = &w->prompts[p];
            uint32_t least, u = 0;
            const bool fits =
                ckvc_table_capacities(t, b, mode, ckvc_budget_tokens(h->budgets[b], from->n_tokens),
                                      from->n_tokens, c, &least) == 0;
            while (fits && u < n && from->entries[((size_t)b * n + u) * A + neutral] == c[u]) {
                u++;
            }
            CKVC_FAIL_IF(u < n, err, CKVC_E_MISMATCH,
                         "%s: rewards of other shares than the incoming table's; give --tables "
                         "the one that they were logged under",
                         w->where);
        }
    }
    return CKVC_OK;
}

/* Population standard deviation of all rewards that were tried; 1 where they are all equal. */
static double scale_of(const fit_rewards *w, uint32_t neutral, uint64_t *n_records) {
    const uint32_t A = w->first.side[CKVC_SIDE_HEAD].n_actions;
    const size_t states = (size_t)w->first.n_budgets * units_of(&w->first);
    double sum = 0, squares = 0;
    *n_records = 0;
    for (size_t p = 0; p < w->n_prompts; p++) {
        for (size_t i = 0; i < states * A; i++) {
            const size_t row = i / A * A, b = row / A / units_of(&w->first);
            const uint32_t T = w->prompts[p].n_tokens;
            if (ckvc_budget_tokens(w->first.budgets[b], T) >= T) { continue; }
            const double *losses = w->prompts[p].losses + row;
            if (!tried(w->prompts[p].entries + row, neutral)) { continue; }
            const double reward = losses[neutral] - losses[i % A];
            sum += reward;
            squares += reward * reward;
            ++*n_records;
        }
    }
    const double n = (double)*n_records, mean = n > 0 ? sum / n : 0,
                 variance = n > 0 ? squares / n - mean * mean : 0;
    return variance > 0 ? sqrt(variance) : 1;
}

ckvc_status fit_rewards_table(fit_rewards *w, const fit_options *o, table_file *t,
                              fitted_rewards *out, ckvc_err *err) {
    const shard_header *h = &w->first;
    const struct shard_side *actions = &h->side[CKVC_SIDE_HEAD];
    const uint32_t nB = h->n_budgets, R = o->replicates;
    uint32_t neutral = 0;
    while (neutral < actions->n_actions && actions->actions[neutral] != 1.0) { neutral++; }
    CKVC_FAIL_IF(neutral == actions->n_actions || actions->n_actions < 2 ||
                     !(actions->actions[0] > 0) || actions->actions[actions->n_actions - 1] > 1e6,
                 err, CKVC_E_DATA,
                 "%s: attribute head_actions: factors of shares must hold 1 and another, all above "
                 "0 and at most 1e6",
                 w->where);
    CKVC_TRY(check_start(w, neutral, t->table, err));
    qsort(w->prompts, w->n_prompts, sizeof *w->prompts, ckvc_order_u64);
    *out = (fitted_rewards){.fitted = true,
                            .mode = h->setting.mode,
                            .n_prompts = w->n_prompts,
                            .n_replicates = R,
                            .n_blocks = nB,
                            .n_units = units_of(h),
                            .blocks = ckvc_calloc(nB, sizeof *out->blocks)};
    out->scale = scale_of(w, neutral, &out->n_records);
    CKVC_AUTO_FREE uint8_t *weights = ckvc_alloc((size_t)R * w->n_prompts, 1);
    CKVC_AUTO_FREE uint8_t *of_prompt = ckvc_alloc(R, 1);
    CKVC_AUTO_FREE double *price = ckvc_calloc((size_t)R + 1, sizeof *price);
    for (size_t p = 0; R && p < w->n_prompts; p++) {
        cql_resample_weights(o->seed, w->prompts[p].key, CQL_RESAMPLE_BOOTSTRAP, R, of_prompt);
        for (uint32_t r = 0; r < R; r++) { weights[r * w->n_prompts + p] = of_prompt[r]; }
    }
    if (h->setting.mode == CKVC_MODE_HEADS && !R) { /* those of the shares before are not these' */
        free(t->share_interval);
        t->share_interval = NULL;
    }
    if (h->setting.mode == CKVC_MODE_HEADS && R && !t->share_interval) {
        t->share_interval = ckvc_calloc(2 * (size_t)out->n_units * nB, sizeof(double));
    }
    for (uint32_t b = 0; b < nB; b++) {
        const sample s = {.w = w,
                          .o = o,
                          .budget = b,
                          .n_units = out->n_units,
                          .n_actions = actions->n_actions,
                          .neutral = neutral,
                          .scale = out->scale,
                          .weights = weights,
                          .price = price};
        CKVC_TRY(fit_block(&s, t, &out->blocks[b], err));
    }
    return CKVC_OK;
}

void fit_rewards_fini(fit_rewards *w) {
    for (size_t p = 0; p < w->n_prompts; ++p) {
        free(w->prompts[p].losses);
        free(w->prompts[p].entries);
    }
    free(w->prompts);
    free(w->where);
    shard_header_fini(&w->first);
    *w = (fit_rewards){0};
}
