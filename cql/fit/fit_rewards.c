/* See fit_rewards.h. */
#include "cql/fit/fit_rewards.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cql/solve/counts.h"
#include "cql/solve/cql.h"
#include "lib/stats/rank.h"
#include "lib/base/memory.h"
#include "lib/base/order.h"
#include "lib/base/hash.h"

#define TIE 1e-9 /* of scaled rewards, as cql_choose's */

/* Sets of a prompt, and units of a budget: all of them, or of thresholds the layers. */
static uint32_t sets_of(const shard_header *h) {
    return h->n_layers * (h->setting.mode == CKVC_MODE_LAYERS ? 1 : h->n_kv_heads);
}

static bool of_gate(const shard_header *h) { return shard_action_side(h) == CKVC_SIDE_GATE; }

static uint32_t units_of(const shard_header *h) { return of_gate(h) ? h->n_layers : sets_of(h); }

static const struct shard_side *actions_of(const shard_header *h) {
    return &h->side[shard_action_side(h)];
}

ckvc_status fit_rewards_add(fit_rewards *w, const shard *s, size_t p, uint64_t hash,
                            size_t memory_max, const char *where, ckvc_err *err) {
    const shard_header *h = &s->h;
    const size_t n = (size_t)h->n_budgets * units_of(h) * actions_of(h)->n_actions,
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
        .key = ckvc_rng_key(shard_prompt_cluster(&s->prompts[p])),
        .n_tokens = s->prompts[p].n_tokens,
        .risk = {s->prompts[p].r_struct, s->prompts[p].r_sem},
        .losses = ckvc_copy(losses, n, sizeof(double)),
        .entries = ckvc_copy(s->action_entries + p * n, n, sizeof(uint32_t))};
    return CKVC_OK;
}

/* ---- one budget ---- */

/* What a budget's choices are made from, in a sample or in a replicate of it. */
typedef struct sample {
    const fit_rewards *w;
    const fit_options *o;
    uint32_t budget, n_actions, neutral; /* neutral: the factor 1, the threshold 0 */
    uint32_t n_units, n_cells;           /* states; of each layer's thresholds, else 1 */
    double scale;                        /* of rewards */
    double given;                        /* the price of thresholds, as logged; NaN: to be found */
    const uint8_t *weights;              /* [R][n_prompts]: CQL_RESAMPLE_BOOTSTRAP */
    double *price;                       /* [R + 1], R replicates and the sample itself */
} sample;

/* Prompt p's row of a unit; NULL where the budget leaves no choice in it, and of another cell. */
static const uint32_t *row_of(const sample *s, size_t p, uint32_t unit, const double **losses) {
    const struct fit_rewards_prompt *from = &s->w->prompts[p];
    const size_t units = s->n_units / s->n_cells,
                 at = (s->budget * units + unit / s->n_cells) * s->n_actions;
    *losses = from->losses + at;
    return ckvc_budget_tokens(s->w->first.budgets[s->budget], from->n_tokens) < from->n_tokens &&
                   from->cell == unit % s->n_cells
               ? from->entries + at
               : NULL;
}

/* Was a row's state tried? All its actions are there then, and else the neutral one alone. */
static bool was_tried(const uint32_t *entries, uint32_t neutral) {
    return entries[neutral == 0] > 0;
}

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
        if (!weight || !entries || !was_tried(entries, s->neutral)) { continue; }
        const double all =
            (double)sets_of(&s->w->first) *
            ckvc_budget_tokens(s->w->first.budgets[s->budget], s->w->prompts[p].n_tokens);
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
    *price = isnan(s->given) ? price_of(s, q, cost) : s->given / s->scale;
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
    if (r != CQL_SAMPLE) { return prompts; }
    CKVC_AUTO_FREE uint64_t *keys = ckvc_alloc(prompts, sizeof *keys);
    for (size_t p = 0, k = 0; p < s->w->n_prompts; p++) {
        const double *losses;
        const uint32_t *entries = row_of(s, p, (uint32_t)state, &losses);
        if (entries && was_tried(entries, s->neutral)) { keys[k++] = s->w->prompts[p].key; }
    }
    return cql_clusters(keys, prompts, NULL);
}

/* Shares of a block times the factors, mean 1 again -> to [n_units]. */
static void multiply(const sample *s, const double *share, uint32_t stride, const uint32_t *choice,
                     double *to) {
    const double *factor = actions_of(&s->w->first)->actions;
    double sum = 0;
    for (uint32_t u = 0; u < s->n_units; u++) {
        sum += to[u] = share[(size_t)u * stride] * factor[choice[u]];
    }
    for (uint32_t u = 0; u < s->n_units; u++) { to[u] *= s->n_units / sum; }
}

/* Of each unit the 2.5 and 97.5 percentiles over replicates of its share -> ends [n_units][2] (of
 * thresholds, share NULL, none), and how many choices have an interval that holds the neutral one.
 */
static ckvc_status intervals(const sample *s, const double *share, uint32_t stride, double *ends,
                             size_t *undecided, ckvc_err *err) {
    const uint32_t R = s->o->replicates, n = s->n_units;
    CKVC_AUTO_FREE double *q = ckvc_alloc((size_t)n * s->n_actions, sizeof *q);
    CKVC_AUTO_FREE double *cost = ckvc_alloc((size_t)n * s->n_actions, sizeof *cost);
    CKVC_AUTO_FREE double *shares = ckvc_alloc((size_t)n * R, sizeof *shares);
    CKVC_AUTO_FREE double *choices = ckvc_alloc((size_t)n * R, sizeof *choices);
    CKVC_AUTO_FREE double *one = ckvc_calloc(n, sizeof *one);
    CKVC_AUTO_FREE uint32_t *choice = ckvc_alloc(n, sizeof *choice);
    for (uint32_t r = 0; r < R; r++) {
        CKVC_TRY(choose(s, r, q, cost, choice, err));
        if (share) { multiply(s, share, stride, choice, one); }
        for (uint32_t u = 0; u < n; u++) {
            shares[(size_t)u * R + r] = one[u];
            choices[(size_t)u * R + r] = choice[u];
        }
    }
    *undecided = 0;
    for (uint32_t u = 0; u < n; u++) {
        double of_choice[2];
        rank_ends(shares + (size_t)u * R, R, &ends[2 * (size_t)u], &ends[2 * (size_t)u + 1]);
        rank_ends(choices + (size_t)u * R, R, &of_choice[0], &of_choice[1]);
        *undecided += of_choice[0] <= s->neutral && of_choice[1] >= s->neutral;
    }
    return CKVC_OK;
}

/* The choices become the block's thresholds. */
static void put_thresholds(const sample *s, ckvc_table *t, const uint32_t *choice) {
    for (uint32_t u = 0; u < s->n_units; u++) {
        const uint32_t cell = u % s->n_cells, P = t->n_ppl_bins;
        t->tau[ckvc_tau_index(t, u / s->n_cells, cell / P, cell % P, s->budget)] =
            (float)t->gate_grid[choice[u]];
    }
}

/* They become its shares, with the intervals [n_units][2] of the replicates. */
static void put_shares(const sample *s, table_file *t, const uint32_t *choice, const double *ends) {
    const uint32_t n = s->n_units, nB = t->table->n_budgets;
    const bool heads = s->w->first.setting.mode == CKVC_MODE_HEADS;
    double *share = (heads ? t->table->share : t->table->layer_share) + s->budget;
    CKVC_AUTO_FREE double *made = ckvc_alloc(n, sizeof *made);
    multiply(s, share, nB, choice, made);
    for (uint32_t u = 0; u < n; u++) {
        share[(size_t)u * nB] = made[u];
        if (heads && s->o->replicates) {
            memcpy(t->share_interval + 2 * ((size_t)u * nB + s->budget), ends + 2 * (size_t)u,
                   2 * sizeof *ends);
        }
    }
}

/* Block s->budget of the table. */
static ckvc_status fit_block(const sample *s, table_file *t, rewards_block *out, ckvc_err *err) {
    const uint32_t n = s->n_units, A = s->n_actions, nB = t->table->n_budgets;
    const bool heads = s->w->first.setting.mode == CKVC_MODE_HEADS, gate = of_gate(&s->w->first);
    const double *share = gate    ? NULL
                          : heads ? t->table->share + s->budget
                                  : t->table->layer_share + s->budget;
    CKVC_AUTO_FREE double *q = ckvc_alloc((size_t)n * A, sizeof *q);
    CKVC_AUTO_FREE double *cost = ckvc_alloc((size_t)n * A, sizeof *cost);
    CKVC_AUTO_FREE double *ends = ckvc_alloc(2 * (size_t)n, sizeof *ends);
    CKVC_AUTO_FREE uint32_t *choice = ckvc_alloc(n, sizeof *choice);
    for (size_t p = 0; p < s->w->n_prompts; p++) {
        const uint32_t T = s->w->prompts[p].n_tokens;
        out->n_prompts += ckvc_budget_tokens(s->w->first.budgets[s->budget], T) < T;
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
    gate ? put_thresholds(s, t->table, choice) : put_shares(s, t, choice, ends);
    return CKVC_OK;
}

/* ---- the whole ---- */

/* Under the table's own shares the records' prompts kept what the records say; where it has
 * thresholds, at most that. */
static ckvc_status check_start(const fit_rewards *w, uint32_t neutral, const ckvc_table *t,
                               ckvc_err *err) {
    const shard_header *h = &w->first;
    const ckvc_mode mode = h->setting.mode;
    const uint32_t n = units_of(h), A = actions_of(h)->n_actions, sets = sets_of(h) / n;
    CKVC_AUTO_FREE uint32_t *c = ckvc_alloc(sets_of(h), sizeof *c);
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
            for (; fits && u < n; u++) {
                const uint32_t kept = from->entries[((size_t)b * n + u) * A + neutral];
                uint64_t want = 0;
                for (uint32_t k = 0; k < sets; k++) { want += c[u * sets + k]; }
                if (kept > want || (kept < want && (of_gate(h) || !t->relative))) { break; }
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
    const uint32_t A = actions_of(&w->first)->n_actions;
    const size_t states = (size_t)w->first.n_budgets * units_of(&w->first);
    double sum = 0, squares = 0;
    *n_records = 0;
    for (size_t p = 0; p < w->n_prompts; p++) {
        for (size_t i = 0; i < states * A; i++) {
            const size_t row = i / A * A, b = row / A / units_of(&w->first);
            const uint32_t T = w->prompts[p].n_tokens;
            if (ckvc_budget_tokens(w->first.budgets[b], T) >= T) { continue; }
            const double *losses = w->prompts[p].losses + row;
            if (!was_tried(w->prompts[p].entries + row, neutral)) { continue; }
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

/* The neutral action among those that were tried. */
static ckvc_status find_neutral(const fit_rewards *w, uint32_t *neutral, ckvc_err *err) {
    const struct shard_side *a = actions_of(&w->first);
    const bool gate = of_gate(&w->first);
    *neutral = 0;
    while (*neutral < a->n_actions && a->actions[*neutral] != !gate) { ++*neutral; }
    CKVC_FAIL_IF(*neutral == a->n_actions || a->n_actions < 2 || (!gate && !(a->actions[0] > 0)) ||
                     a->n_actions > CQL_MAX_ACTIONS || a->actions[a->n_actions - 1] > 1e6,
                 err, CKVC_E_DATA,
                 "%s: attribute %s_actions: %s must hold %d and another, all at most 1e6", w->where,
                 ckvc_side_name(shard_action_side(&w->first)),
                 gate ? "thresholds" : "factors of shares, all above 0,", !gate);
    return CKVC_OK;
}

/* The table becomes one with these risk cells and thresholds, all 0 yet; prompts learn their cells.
 */
static ckvc_status open_cells(fit_rewards *w, const fit_options *o, table_file *t, ckvc_err *err) {
    const ckvc_table *from = t->table;
    const struct shard_side *a = actions_of(&w->first);
    CKVC_FAIL_IF(from->op != CKVC_OPERATOR_NO_THRESHOLD || t->has_evidence, err, CKVC_E_MISMATCH,
                 "%s: thresholds below shares are for tables by demand; the incoming table has "
                 "thresholds, or records, of the paper's",
                 w->where);
    ckvc_table *to =
        ckvc_table_create(from->n_layers, from->n_heads, o->n_entropy_bins, o->n_ppl_bins,
                          from->n_budgets, from->n_head_actions, a->n_actions);
    if (!to || ckvc_table_copy_shares(to, from)) {
        ckvc_table_free(to);
        return ckvc_fail(err, CKVC_E_DATA, "%s: %u x %u risk cells are over a table's limits",
                         w->where, o->n_entropy_bins, o->n_ppl_bins);
    }
    to->n_query_heads = from->n_query_heads;
    to->window = from->window;
    to->head_axis = from->head_axis;
    to->visible = from->visible;
    to->keep_window = from->keep_window;
    to->op = from->op;
    to->relative = 1;
    memcpy(to->budgets, from->budgets, from->n_budgets * sizeof *to->budgets);
    memcpy(to->head_grid, from->head_grid, from->n_head_actions * sizeof *to->head_grid);
    memcpy(to->gate_grid, a->actions, a->n_actions * sizeof *to->gate_grid);
    memcpy(to->weight, from->weight,
           ckvc_weight_index(from, from->n_layers, 0, 0) * sizeof *to->weight);
    CKVC_AUTO_FREE double *risk = ckvc_alloc(2 * w->n_prompts, sizeof *risk);
    for (size_t p = 0; p < w->n_prompts; p++) {
        risk[p] = w->prompts[p].risk[0];
        risk[w->n_prompts + p] = w->prompts[p].risk[1];
    }
    edges_of(risk, w->n_prompts, to->n_entropy_bins, EDGES_QUANTILE, to->edges_entropy);
    edges_of(risk + w->n_prompts, w->n_prompts, to->n_ppl_bins, EDGES_QUANTILE, to->edges_ppl);
    for (size_t p = 0; p < w->n_prompts; p++) {
        struct fit_rewards_prompt *of = &w->prompts[p];
        of->cell = ckvc_bin_index(to->edges_entropy, to->n_entropy_bins - 1, of->risk[0]) *
                       to->n_ppl_bins +
                   ckvc_bin_index(to->edges_ppl, to->n_ppl_bins - 1, of->risk[1]);
    }
    ckvc_table_free(t->table);
    t->table = to;
    return CKVC_OK;
}

/* The price that the table's shares of a budget were fitted at. */
static ckvc_status price_given(const fit_rewards *w, const fit_options *o, uint32_t b,
                               double *price, ckvc_err *err) {
    *price = fit_price(o->incoming, b);
    CKVC_FAIL_IF(isnan(*price), err, CKVC_E_DATA,
                 "%s: what an entry is worth is not known: the incoming table's shares are not "
                 "from rewards; fit a run of --side head first, and log thresholds under its table",
                 w->where);
    setting theirs = setting_neutral();
    setting_read(o->incoming->meta, SETTING_META, &theirs);
    CKVC_FAIL_IF(theirs.loss != w->first.setting.loss, err, CKVC_E_MISMATCH,
                 "%s: was made with another --loss than the rewards that the incoming table's "
                 "price of an entry is from: log thresholds with that one",
                 w->where);
    return CKVC_OK;
}

static size_t documents_of(const fit_rewards *w) {
    CKVC_AUTO_FREE uint64_t *keys = ckvc_alloc(w->n_prompts, sizeof *keys);
    for (size_t p = 0; p < w->n_prompts; p++) { keys[p] = w->prompts[p].key; }
    return cql_clusters(keys, w->n_prompts, NULL);
}

/* Which resampled prompts each replicate holds -> weights [R][n_prompts]. */
static void draw_weights(const fit_rewards *w, const fit_options *o, uint8_t *weights) {
    const uint32_t R = o->replicates;
    CKVC_AUTO_FREE uint8_t *of_prompt = ckvc_alloc(R, 1);
    for (size_t p = 0; R && p < w->n_prompts; p++) {
        cql_resample_weights(o->seed, w->prompts[p].key, CQL_RESAMPLE_BOOTSTRAP, R, of_prompt);
        for (uint32_t r = 0; r < R; r++) { weights[r * w->n_prompts + p] = of_prompt[r]; }
    }
}

ckvc_status fit_rewards_table(fit_rewards *w, const fit_options *o, table_file *t,
                              fitted_rewards *out, ckvc_err *err) {
    const shard_header *h = &w->first;
    const uint32_t nB = h->n_budgets, R = o->replicates;
    const bool gate = of_gate(h), heads = !gate && h->setting.mode == CKVC_MODE_HEADS;
    uint32_t neutral;
    CKVC_TRY(find_neutral(w, &neutral, err));
    CKVC_TRY(check_start(w, neutral, t->table, err));
    qsort(w->prompts, w->n_prompts, sizeof *w->prompts, ckvc_order_u64);
    if (gate) { CKVC_TRY(open_cells(w, o, t, err)); }
    const uint32_t n_cells = gate ? t->table->n_entropy_bins * t->table->n_ppl_bins : 1;
    *out = (fitted_rewards){.fitted = true,
                            .side = shard_action_side(h),
                            .mode = h->setting.mode,
                            .n_prompts = w->n_prompts,
                            .n_documents = documents_of(w),
                            .n_replicates = R,
                            .n_blocks = nB,
                            .n_units = units_of(h) * n_cells,
                            .blocks = ckvc_calloc(nB, sizeof *out->blocks)};
    out->scale = scale_of(w, neutral, &out->n_records);
    CKVC_AUTO_FREE uint8_t *weights = ckvc_alloc((size_t)R * w->n_prompts, 1);
    CKVC_AUTO_FREE double *price = ckvc_calloc((size_t)R + 1, sizeof *price);
    draw_weights(w, o, weights);
    if (heads && !R) { /* those of the shares before are not these' */
        free(t->share_interval);
        t->share_interval = NULL;
    }
    if (heads && R && !t->share_interval) {
        t->share_interval = ckvc_calloc(2 * (size_t)out->n_units * nB, sizeof(double));
    }
    for (uint32_t b = 0; b < nB; b++) {
        sample s = {.w = w,
                    .o = o,
                    .budget = b,
                    .n_units = out->n_units,
                    .n_cells = n_cells,
                    .n_actions = actions_of(h)->n_actions,
                    .neutral = neutral,
                    .scale = out->scale,
                    .given = NAN,
                    .weights = weights,
                    .price = price};
        if (gate) { CKVC_TRY(price_given(w, o, b, &s.given, err)); }
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
