/* Kept sets of one prompt: see prompt_sets.h. */
#include "calib/actions/prompt_sets.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "formats/side/side.h"

static uint32_t max_actions(const ckvc_table *t) {
    size_t most = 0;
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        const size_t n = side_of_table(t, (ckvc_side)i).actions.n;
        most = n > most ? n : most;
    }
    return (uint32_t)most;
}

size_t prompt_sets_bytes(const ckvc_table *table, uint32_t max_tokens) {
    const size_t cells = (size_t)table->n_budgets * table->n_layers, T = max_tokens;
    return sizeof(prompt_sets) +
           cells * (sizeof(layer_set) + sizeof(kept_set) + T * sizeof(uint32_t)) +
           T * (2 * sizeof(double) + sizeof(uint32_t)) +
           (table->n_heads + table->n_gate_actions) * sizeof(double) +
           ckvc_retain_many_bytes(max_tokens, max_actions(table));
}

ckvc_status prompt_sets_create(const ckvc_table *table, uint32_t max_tokens, const setting *s,
                               prompt_sets **out, ckvc_err *err) {
    *out = NULL;
    CKVC_FAIL_IF(table->n_budgets > PROMPT_SETS_MAX_BUDGETS, err, CKVC_E_USAGE,
                 "got %u budgets, wanted at most %d in one run", table->n_budgets,
                 PROMPT_SETS_MAX_BUDGETS);
    const size_t cells = (size_t)table->n_budgets * table->n_layers;
    prompt_sets *k = *out = ckvc_calloc(1, sizeof *k);
    *k = (prompt_sets){.n_layers = table->n_layers,
                       .n_heads = table->n_heads,
                       .n_budgets = table->n_budgets,
                       .max_tokens = max_tokens,
                       .window = s->window,
                       .keep_window = s->keep_window,
                       .table = table};
    k->layers = ckvc_calloc(cells, sizeof *k->layers);
    k->sets = ckvc_calloc(cells, sizeof *k->sets);
    k->pool = ckvc_alloc(cells + 1, max_tokens * sizeof *k->pool);
    k->scratch = k->pool + cells * max_tokens;
    k->u =
        ckvc_alloc(2 * (size_t)max_tokens + table->n_heads + table->n_gate_actions, sizeof *k->u);
    k->own = k->u + max_tokens;
    k->weight = k->own + max_tokens;
    k->taus = k->weight + table->n_heads;
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) { k->sides[i] = side_of_table(table, (ckvc_side)i); }
    if (!ckvc_retain_many_init(&k->many, max_tokens, max_actions(table))) {
        ckvc_out_of_memory(1, ckvc_retain_many_bytes(max_tokens, max_actions(table)));
    }
    for (size_t i = 0; i < cells; i++) { k->layers[i].positions = k->pool + i * max_tokens; }
    for (uint32_t a = 0; a < table->n_gate_actions; a++) {
        k->taus[a] = table->op == CKVC_OPERATOR_NO_THRESHOLD ? -INFINITY : table->gate_grid[a];
    }
    return CKVC_OK;
}

void prompt_sets_by_layer(prompt_sets *k, const double *budgets) {
    k->layer_budgets = budgets;
    k->n_budgets = budgets ? 1 : k->table->n_budgets;
}

void prompt_sets_destroy(prompt_sets *k) {
    if (!k) { return; }
    CKVC_FREE(k->layers, k->sets, k->pool, k->u);
    ckvc_retain_many_fini(&k->many);
    free(k);
}

uint32_t kept_in_window(const uint32_t *positions, uint32_t n, uint32_t n_tokens, uint32_t window) {
    uint32_t count = 0;
    while (count < n && positions[n - 1 - count] + window >= n_tokens) { count++; }
    return count;
}

/* ---- the baseline ---- */

/* Computes k->u of one layer under the weights of a block, with the weight of `head` replaced by
 * `weight`; head = G replaces none. */
static void layer_utility(prompt_sets *k, uint32_t block, uint32_t layer, uint32_t head,
                          double weight) {
    k->has_state = false; /* its actions were prepared from the k->u that changes here */
    for (uint32_t g = 0; g < k->n_heads; g++) {
        k->weight[g] = g == head ? weight : ckvc_table_weight(k->table, layer, g, block);
    }
    ckvc_operator_utility(k->table->op, k->n_tokens, k->n_heads, k->alpha,
                          k->rho + (size_t)layer * k->n_heads * k->n_tokens, k->weight, k->u);
}

/* The layer's threshold in the prompt's risk cell. */
static double layer_tau(const prompt_sets *k, uint32_t block, uint32_t layer) {
    return ckvc_table_tau(k->table, layer, k->bin_entropy, k->bin_ppl, block);
}

/* Writes what a layer keeps by the utilities k->u; returns how many positions that are. */
static uint32_t retain(prompt_sets *k, uint32_t block, uint32_t layer, uint32_t tokens,
                       uint32_t *positions, uint32_t *n_candidates) {
    return ckvc_retain(k->n_tokens, k->u,
                       (ckvc_rule){layer_tau(k, block, layer), tokens, k->keep_window}, positions,
                       n_candidates, k->scratch);
}

static uint32_t count_candidates(const prompt_sets *k, double tau) {
    uint32_t n = 0;
    for (uint32_t t = 0; t < k->n_tokens; t++) {
        n += k->u[t] >= tau || t + k->keep_window >= k->n_tokens;
    }
    return n;
}

static void build_layer(prompt_sets *k, uint32_t b, uint32_t l) {
    const ckvc_table *t = k->table;
    layer_set *at = prompt_sets_at(k, b, l);
    at->block = b;
    at->tokens = k->budget[b];
    if (k->layer_budgets) {
        at->block = ckvc_nearest_budget(t->budgets, t->n_budgets, k->layer_budgets[l], k->n_tokens);
        at->tokens = ckvc_budget_tokens(k->layer_budgets[l], k->n_tokens);
    }
    layer_utility(k, at->block, l, k->n_heads, 0.0);
    at->n_candidates_lo = count_candidates(k, k->taus[0]);
    at->n_candidates_hi = count_candidates(k, k->taus[t->n_gate_actions - 1]);
    at->n_kept = retain(k, at->block, l, at->tokens, at->positions, &at->n_candidates);
    at->n_kept_window = kept_in_window(at->positions, at->n_kept, k->n_tokens, k->window);
    at->offsets[0] = 0;
    at->offsets[1] = at->n_kept;
    k->sets[(size_t)b * k->n_layers + l] = (kept_set){1, at->offsets, at->positions, false, {0}};
}

void prompt_sets_build(prompt_sets *k, const prefill_stats *stats) {
    const ckvc_table *t = k->table;
    assert(stats->n_tokens <= k->max_tokens);
    k->n_tokens = (uint32_t)stats->n_tokens;
    k->alpha = stats->alpha_f32;
    k->rho = stats->rho;
    k->bin_entropy = ckvc_bin_index(t->edges_entropy, t->n_entropy_bins - 1, stats->r_struct);
    k->bin_ppl = ckvc_bin_index(t->edges_ppl, t->n_ppl_bins - 1, stats->r_sem);
    for (uint32_t b = 0; b < t->n_budgets; b++) {
        k->budget[b] = ckvc_budget_tokens(t->budgets[b], k->n_tokens);
    }
    for (uint32_t b = 0; b < k->n_budgets; b++) {
        for (uint32_t l = 0; l < k->n_layers; l++) { build_layer(k, b, l); }
    }
}

uint32_t prompt_sets_layer_at_budget(prompt_sets *k, uint32_t block, uint32_t layer,
                                     uint32_t tokens, uint32_t *positions, uint32_t *n_candidates) {
    layer_utility(k, block, layer, k->n_heads, 0.0);
    return retain(k, block, layer, tokens, positions, n_candidates);
}

/* ---- states and their actions ---- */

uint32_t prompt_sets_states(const prompt_sets *k, ckvc_side side) {
    return k->n_budgets * k->n_layers * side_of_prompt(&k->sides[side]);
}

prompt_state prompt_sets_state(const prompt_sets *k, ckvc_side side, uint32_t index) {
    const uint32_t each = side_of_prompt(&k->sides[side]), at = index / each;
    const bool of_heads = k->sides[side].kind->axis == SIDE_OF_HEADS;
    return (prompt_state){.side = side,
                          .budget = at / k->n_layers,
                          .layer = at % k->n_layers,
                          .head = of_heads ? index % each : CKVC_NO_HEAD};
}

/* Prepares the actions of a head's state: computes the layer's utility with the head's weight at 0
 * (k->u) and the head's own utility at weight 1 (k->own). A weight changes the latter alone. */
static void enter_head(prompt_sets *k, const prompt_state *s, const layer_set *base) {
    const ckvc_table *t = k->table;
    const float *rho = k->rho + ((size_t)s->layer * k->n_heads + s->head) * k->n_tokens;
    layer_utility(k, base->block, s->layer, s->head, 0.0); /* no utility is below 0 */
    for (uint32_t i = 0; i < k->n_tokens; i++) {
        k->own[i] = t->op == CKVC_OPERATOR_NO_UTILITY ? (double)k->alpha[i]
                                                      : (double)k->alpha[i] * (double)rho[i];
    }
    ckvc_retain_heads(
        &k->many, k->n_tokens, k->u, k->own, t->head_grid, t->n_head_actions,
        (ckvc_rule){layer_tau(k, base->block, s->layer), base->tokens, k->keep_window});
}

static void enter_gate(prompt_sets *k, const prompt_state *s, const layer_set *base) {
    layer_utility(k, base->block, s->layer, k->n_heads, 0.0);
    ckvc_retain_gates(&k->many, k->n_tokens, k->u, k->taus, k->table->n_gate_actions, base->tokens,
                      k->keep_window);
}

uint32_t prompt_sets_action(prompt_sets *k, const prompt_state *s, uint32_t action,
                            uint32_t *positions, uint32_t *n_candidates) {
    static void (*const enter[CKVC_SIDE_COUNT])(prompt_sets *, const prompt_state *,
                                                const layer_set *) = {
        [CKVC_SIDE_HEAD] = enter_head, [CKVC_SIDE_GATE] = enter_gate};
    const layer_set *base = prompt_sets_at(k, s->budget, s->layer);
    if (s->side == CKVC_SIDE_HEAD && k->table->op == CKVC_OPERATOR_MEAN_POOL) {
        /* ckvc_retain_heads needs a maximum of two fixed rankings (retain_many.h). A mean is none,
         * and its rounding depends on the order of the heads, so each action is computed from the
         * start. */
        layer_utility(k, base->block, s->layer, s->head, k->table->head_grid[action]);
        return retain(k, base->block, s->layer, base->tokens, positions, n_candidates);
    }
    if (!k->has_state || k->state.side != s->side || k->state.budget != s->budget ||
        k->state.layer != s->layer || k->state.head != s->head) {
        enter[s->side](k, s, base);
        k->has_state = true;
        k->state = *s;
    }
    return ckvc_retain_action(&k->many, action, positions, n_candidates);
}

/* Decimals are held as integers in units of 10^-9. Divided by UNIT they give the double nearest to
 * the decimal. */
enum { PLACES_MAX = 9, UNIT = 1000000000 };

/* Reads digits with at most one point, up to `end`. Signs and exponents are not allowed. Returns -1
 * where the text is anything else, or more than ACTION_GRID_HIGH. */
static int64_t read_decimal(const char *text, const char *end) {
    int64_t units = 0;
    int places = 0;
    bool point = false, digits = false;
    for (; text < end; text++) {
        if (*text == '.' && !point) {
            point = true;
            continue;
        }
        if (*text < '0' || *text > '9' || places == PLACES_MAX) { return -1; }
        units = units * 10 + (*text - '0');
        if (units > (int64_t)ACTION_GRID_HIGH * UNIT) { return -1; }
        places += point;
        digits = true;
    }
    for (; places < PLACES_MAX; places++) { units *= 10; }
    return digits ? units : -1;
}

/* Reads "a" or "a:b:step" into part: lowest, highest, step (1 unit for a single value). */
static bool read_item(const char *item, int64_t part[3]) {
    int n = 0;
    for (const char *from = item;; n++) {
        const char *colon = strchr(from, ':'), *end = colon ? colon : from + strlen(from);
        if (n == 3 || (part[n] = read_decimal(from, end)) < 0) { return false; }
        if (!colon) { break; }
        from = colon + 1;
    }
    if (n == 0) {
        part[1] = part[0];
        part[2] = 1;
    }
    return n != 1 && part[2] > 0 && part[1] >= part[0] &&
           part[1] <= (int64_t)ACTION_GRID_HIGH * UNIT;
}

void action_grid_default(ckvc_side side, action_grid *out) {
    const side_kind *kind = side_kind_of(side);
    for (out->n = 0; out->n < kind->n_default; out->n++) {
        out->values[out->n] = kind->default_action((int)out->n);
    }
}

ckvc_status action_grid_parse(ckvc_side side, const char *const *items, size_t n, action_grid *out,
                              ckvc_err *err) {
    const side_kind *kind = side_kind_of(side);
    const char *name = kind->grid_option;
    out->n = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t part[3];
        CKVC_FAIL_IF(!read_item(items[i], part), err, CKVC_E_USAGE,
                     "%s: got '%s', wanted decimals from 0 to %d with at most %d places, "
                     "or lowest:highest:step as in %s",
                     name, items[i], ACTION_GRID_HIGH, PLACES_MAX, kind->grid_text);
        const int64_t lo = part[0], hi = part[1], step = part[2];
        CKVC_FAIL_IF((hi - lo) % step, err, CKVC_E_USAGE,
                     "%s: the steps of '%s' end at %.10g, not at %.10g", name, items[i],
                     (double)(hi - (hi - lo) % step) / UNIT, (double)hi / UNIT);
        CKVC_FAIL_IF((hi - lo) / step >= (int64_t)(ACTION_GRID_MAX - out->n), err, CKVC_E_USAGE,
                     "%s: '%s' makes more than %d actions", name, items[i], ACTION_GRID_MAX);
        for (int64_t k = 0; k <= (hi - lo) / step; k++) {
            const double v = (double)(lo + k * step) / UNIT;
            CKVC_FAIL_IF(
                out->n > 0 && (float)v <= (float)out->values[out->n - 1], err, CKVC_E_USAGE,
                "%s: %.10g stands after %.10g; values ascend, by more than float32 rounds away",
                name, v, out->values[out->n - 1]);
            out->values[out->n++] = v;
        }
    }
    CKVC_FAIL_IF(out->n == 0, err, CKVC_E_USAGE,
                 "%s: no value; wanted lowest:highest:step, or a list", name);
    CKVC_FAIL_IF(
        side_neutral_of(side, out->values, out->n) < 0, err, CKVC_E_USAGE,
        "%s: 1 is not in it, the weight that heads start from and that leaves them as they are",
        name);
    return CKVC_OK;
}

ckvc_status start_table_create(const start_table_spec *spec, ckvc_table **out, ckvc_err *err) {
    action_grid grids[CKVC_SIDE_COUNT];
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        if (spec->grids) {
            grids[i] = spec->grids[i];
        } else {
            action_grid_default((ckvc_side)i, &grids[i]);
        }
    }
    const uint32_t E = spec->n_entropy_bins ? spec->n_entropy_bins : 1,
                   P = spec->n_ppl_bins ? spec->n_ppl_bins : 1;
    ckvc_table *t = *out = ckvc_table_create(spec->n_layers, spec->n_heads, E, P, spec->n_budgets,
                                             grids[CKVC_SIDE_HEAD].n, grids[CKVC_SIDE_GATE].n);
    CKVC_FAIL_IF(
        !t, err, CKVC_E_USAGE,
        "a table of %u layers x %u heads, %u x %u bins, %u budgets is over the format's limits",
        spec->n_layers, spec->n_heads, E, P, spec->n_budgets);
    t->window = spec->window;
    t->head_axis = 0;
    memcpy(t->budgets, spec->budgets, spec->n_budgets * sizeof *t->budgets);
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        const struct side s = side_of_table(t, (ckvc_side)i);
        memcpy(s.grid, grids[i].values, s.actions.n * sizeof *s.grid);
        for (size_t k = 0; k < s.n_states; k++) { s.entries[k] = (float)s.grid[side_neutral(&s)]; }
    }
    return CKVC_OK;
}

ckvc_table *start_table_copy(const ckvc_table *from) {
    ckvc_table *t = ckvc_table_clone(from);
    if (!t) { ckvc_out_of_memory(1, sizeof *t); }
    return t;
}

table_file *start_table_file(const ckvc_table *from) {
    return table_file_around(start_table_copy(from), false);
}
