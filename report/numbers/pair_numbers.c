/* Two tables against each other: rank agreement of head weights, agreement of thresholds where both
 * have records, and how far both are fixed by the prompts that the tables were fitted from (reach,
 * numbers.h). */
#include <math.h>

#include "lib/base/memory.h"
#include "report/numbers/numbers.h"

#define MEASURES_MAX 65 /* overall and 64 groups of layers; or the gate's three */

/* ---- measures of two columns ---- */

/* One pair at one budget: columns of entries, and how to measure their agreement. */
typedef struct columns_of {
    const report_numbers *n;
    const table_numbers *t[2];
    size_t b[2]; /* index of the budget in either table */
    int side;
    size_t L, X, n_measures; /* X entries of a layer */
    const uint8_t *mask;     /* gate: [L * X] cells that count */
    double *x[2];            /* [L * X] */
} columns_of;

static void measure_heads(const columns_of *c, double *out) {
    rank_layers ranks;
    rank_by_layer(c->x[0], c->x[1], c->L, c->X, c->n_measures - 1, &ranks);
    out[0] = ranks.overall;
    memcpy(out + 1, ranks.bins, (c->n_measures - 1) * sizeof *out);
}

static void measure(const double *x, const double *y, size_t n, double out[GATE_MEASURES]) {
    double apart = 0, equal = 0;
    for (size_t i = 0; i < n; i++) {
        apart += fabs(x[i] - y[i]);
        equal += x[i] == y[i];
    }
    out[MEASURE_SPEARMAN] = rank_spearman(x, y, n);
    out[MEASURE_DIFFERENCE] = apart / (double)n;
    out[MEASURE_EQUAL] = equal / (double)n;
}

/* On the cells of the mask, to which it shortens the columns. Returns how many they are. */
static size_t measure_gates(const columns_of *c, double out[GATE_MEASURES]) {
    size_t k = 0;
    for (size_t i = 0; i < c->L * c->X; i++) {
        if (!c->mask[i]) { continue; }
        c->x[0][k] = c->x[0][i];
        c->x[1][k++] = c->x[1][i];
    }
    measure(c->x[0], c->x[1], k, out);
    return k;
}

/* The tables' own columns. */
static void take_own(const columns_of *c) {
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < c->L * c->X; i++) {
            c->x[k][i] = c->t[k]->entries[c->side][i * c->t[k]->n_budgets + c->b[k]].value;
        }
    }
}

/* ---- over resampled prompts ---- */

/* Column of one replicate; a state without records keeps what the fit keeps. */
static void take_replicate(const columns_of *c, int k, int which, const uint16_t *choices,
                           size_t replicate) {
    const own_records *s = &c->t[which]->in->sides[c->side];
    choices += replicate * s->logged->n_states;
    for (size_t i = 0; i < c->L * c->X; i++) {
        const size_t state = i * c->t[which]->n_budgets + c->b[which];
        const uint16_t a = choices[state];
        c->x[k][i] = s->of.grid[a == CQL_NO_CHOICE ? s->incoming[state] : a];
    }
}

/* Spreads of the measures over bootstrap pairs, or over the halves of table `which` (>= 0). */
static void spread_measures(const columns_of *c, int which, uint32_t n, stability_spread *out) {
    CKVC_AUTO_FREE double *values = ckvc_alloc(n * c->n_measures, sizeof *values);
    double one[MEASURES_MAX];
    for (uint32_t i = 0; i < n; i++) {
        for (int k = 0; k < 2; k++) {
            const int of = which < 0 ? k : which;
            const own_records *s = &c->t[of]->in->sides[c->side];
            take_replicate(c, k, of, which < 0 ? s->boot_choices : s->half_choices,
                           which < 0 ? i : 2 * i + (uint32_t)k);
        }
        if (c->side == CKVC_SIDE_HEAD) {
            measure_heads(c, one);
        } else {
            measure_gates(c, one);
        }
        for (size_t m = 0; m < c->n_measures; m++) { values[m * n + i] = one[m]; }
    }
    for (size_t m = 0; m < c->n_measures; m++) { out[m] = stability_spread_of(values + m * n, n); }
}

/* out [measures] */
static void reach_of(const columns_of *c, reach *out) {
    const own_records *sa = &c->t[0]->in->sides[c->side], *sb = &c->t[1]->in->sides[c->side];
    const uint32_t boots = sa->n_boot < sb->n_boot ? sa->n_boot : sb->n_boot;
    stability_spread boot[MEASURES_MAX], a[MEASURES_MAX], b[MEASURES_MAX];
    spread_measures(c, -1, boots, boot);
    spread_measures(c, 0, sa->n_halves / 2, a);
    spread_measures(c, 1, sb->n_halves / 2, b);
    for (size_t m = 0; m < c->n_measures; m++) {
        const bool spearman = c->side == CKVC_SIDE_HEAD || m == MEASURE_SPEARMAN;
        if (spearman) { /* a half has half of the prompts: corrected to all of them */
            stability_correct(&a[m]);
            stability_correct(&b[m]);
        }
        out[m] = (reach){.lo = boot[m].lo,
                         .hi = boot[m].hi,
                         .ceiling = spearman ? stability_ceiling(a[m].mean, b[m].mean) : NAN,
                         .replicates = boots,
                         .replicates_defined = boot[m].n,
                         .split_half_a = a[m],
                         .split_half_b = b[m]};
    }
}

/* Why a side of this pair has no refits; NULL when it has. */
static const char *why_no_refits(const columns_of *c) {
    if (c->n->in->o->replicates < 2) { return "no refits were asked for"; }
    const char *why = c->t[0]->in->sides[c->side].why;
    return why ? why : c->t[1]->in->sides[c->side].why;
}

/* ---- heads ---- */

static const reach no_reach = {NAN, NAN, NAN, .split_half_a.mean = NAN, .split_half_b.mean = NAN};

/* Rank agreement of the columns, in all and by groups of layers. */
static pair_heads ranks_of(report_numbers *n, const columns_of *c) {
    const size_t bins = c->n_measures - 1;
    pair_heads h = {.budget = c->t[0]->shape->budgets[c->b[0]],
                    .n = c->L * c->X,
                    .n_groups = bins,
                    .reach = no_reach,
                    .groups = NEW(n, bins, layer_group)};
    rank_layers ranks;
    rank_by_layer(c->x[0], c->x[1], c->L, c->X, bins, &ranks);
    h.overall = ranks.overall;
    h.bin_mean = ranks.bin_mean;
    h.bin_min = ranks.bin_min;
    for (size_t i = 0, first = 0; i < bins; i++) {
        const size_t size = rank_bin_size(c->L, bins, i);
        h.groups[i] = (layer_group){first, first + size - 1, ranks.bins[i], no_reach};
        first += size;
    }
    return h;
}

static pair_heads heads_of(report_numbers *n, columns_of *c) {
    double measures[GATE_MEASURES];
    reach reaches[MEASURES_MAX];
    take_own(c);
    pair_heads h = ranks_of(n, c);
    measure(c->x[0], c->x[1], h.n, measures);
    h.share_equal = measures[MEASURE_EQUAL];
    h.mean_abs_difference = measures[MEASURE_DIFFERENCE];
    h.interval_missing = why_no_refits(c);
    h.has_reach = !h.interval_missing;
    if (!h.has_reach) { return h; }
    reach_of(c, reaches);
    h.reach = reaches[0];
    for (size_t i = 0; i < h.n_groups; i++) { h.groups[i].reach = reaches[i + 1]; }
    return h;
}

/* ---- gates ---- */

/* True when the gate can change what is kept for this cell, on some prompt of the runs of the
 * table's gate. */
static bool binds(const table_numbers *t, const entry *e) {
    const ckvc_table *k = t->shape;
    for (size_t r = 0; r < t->in->n_runs; r++) {
        const input_run *run = t->in->runs[r];
        const shard_header *h = &run->h;
        bool same = h->n_layers == k->n_layers && h->n_entropy_bins == k->n_entropy_bins &&
                    h->n_ppl_bins == k->n_ppl_bins;
        if (!same || !fitted_gate_from(t->in, run)) { continue; }
        for (size_t b = 0; b < h->n_budgets; b++) {
            if (h->budgets[b] == e->budget &&
                run->cells[input_cell(h, b, (size_t)e->layer, (size_t)e->entropy,
                                      (size_t)e->perplexity)]
                        .differ > 0) {
                return true;
            }
        }
    }
    return false;
}

static pair_cells cells_of(columns_of *c, bool binding) {
    CKVC_AUTO_FREE uint8_t *mask = ckvc_calloc(c->L * c->X, 1);
    pair_cells out = {.interval_missing = binding ? why_no_refits(c) : NULL};
    for (size_t i = 0; i < c->L * c->X; i++) {
        mask[i] = 1;
        for (int k = 0; k < 2; k++) {
            const entry *e = &c->t[k]->entries[c->side][i * c->t[k]->n_budgets + c->b[k]];
            mask[i] &= e->supported && (!binding || binds(c->t[k], e));
        }
    }
    c->mask = mask;
    take_own(c);
    out.cells = measure_gates(c, out.measures);
    out.has_reach = binding && !out.interval_missing && out.cells > 0;
    if (out.has_reach) { reach_of(c, out.reach); }
    return out;
}

static pair_gates gates_of(columns_of *c) {
    pair_gates g = {.budget = c->t[0]->shape->budgets[c->b[0]],
                    .all = cells_of(c, false),
                    .runs_known = c->t[0]->in->n_runs && c->t[1]->in->n_runs};
    if (g.runs_known) { g.binding = cells_of(c, true); }
    return g;
}

/* ---- shares ---- */

/* Split halves that the fit found for block b, corrected to all of its prompts. NaN of shares that
 * rewards have changed since. */
static double reliability_of(const table_numbers *t, size_t b) {
    const json_t *o = t->f.meta;
    static const char *const path[] = {"diagnostics", "demand", "by_budget"};
    static const char *const rest[] = {"heads", "split_halves", "overall"};
    if (json_object_get(json_object_get(o, path[0]), "rewards")) { return NAN; }
    for (int i = 0; i < 3; i++) { o = json_object_get(o, path[i]); }
    o = json_array_get(o, b);
    for (int i = 0; i < 3; i++) { o = json_object_get(o, rest[i]); }
    return json_is_number(o) ? stability_spearman_brown(json_number_value(o)) : NAN;
}

static pair_heads shares_of(report_numbers *n, const columns_of *c) {
    double apart = 0;
    for (size_t i = 0; i < c->L * c->X; i++) {
        for (int k = 0; k < 2; k++) {
            c->x[k][i] = c->t[k]->shape->share[i * c->t[k]->n_budgets + c->b[k]];
        }
        apart += fabs(c->x[0][i] - c->x[1][i]) / (double)(c->L * c->X);
    }
    pair_heads h = ranks_of(n, c);
    h.mean_abs_difference = apart;
    h.reach.split_half_a.mean = reliability_of(c->t[0], c->b[0]);
    h.reach.split_half_b.mean = reliability_of(c->t[1], c->b[1]);
    h.reach.ceiling = stability_ceiling(h.reach.split_half_a.mean, h.reach.split_half_b.mean);
    rank_spearman_ends(c->x[0], c->x[1], h.n, &h.reach.lo, &h.reach.hi);
    for (layer_group *g = h.groups; g < h.groups + h.n_groups; g++) {
        rank_spearman_ends(c->x[0] + g->first * c->X, c->x[1] + g->first * c->X,
                           (g->last - g->first + 1) * c->X, &g->reach.lo, &g->reach.hi);
    }
    return h;
}

/* ---- pairs ---- */

static bool same_reals(const double *x, const double *y, size_t nx, size_t ny) {
    return nx == ny && memcmp(x, y, nx * sizeof *x) == 0;
}

static const char *why_not(const ckvc_table *x, const ckvc_table *y) {
    if (x->n_layers != y->n_layers || x->n_heads != y->n_heads) {
        return "layers or heads differ in number";
    }
    if (x->head_axis != y->head_axis) {
        return "one is indexed by KV head, the other by query head";
    }
    if (!same_reals(x->head_grid, y->head_grid, x->n_head_actions, y->n_head_actions) ||
        !same_reals(x->gate_grid, y->gate_grid, x->n_gate_actions, y->n_gate_actions)) {
        return "action grids differ";
    }
    for (size_t i = 0; i < x->n_budgets; i++) {
        for (size_t k = 0; k < y->n_budgets; k++) {
            if (x->budgets[i] == y->budgets[k]) { return NULL; }
        }
    }
    return "no budget in common";
}

static void compare_tables(report_numbers *n, pair_numbers *p) {
    const ckvc_table *x = p->tables[0]->shape, *y = p->tables[1]->shape;
    const bool same_cells =
        x->n_entropy_bins == y->n_entropy_bins && x->n_ppl_bins == y->n_ppl_bins;
    const size_t cells = (size_t)x->n_entropy_bins * x->n_ppl_bins,
                 most = x->n_layers * (cells > x->n_heads ? cells : x->n_heads),
                 bins = n->in->o->layer_bins < x->n_layers ? n->in->o->layer_bins : x->n_layers;
    p->head = NEW(n, (size_t)x->n_budgets * y->n_budgets, pair_heads);
    p->gate = NEW(n, (size_t)x->n_budgets * y->n_budgets, pair_gates);
    p->shares = NEW(n, (size_t)x->n_budgets * y->n_budgets, pair_heads);
    p->has_shares = x->share && y->share;
    p->same_edges = same_cells &&
                    same_reals(x->edges_entropy, y->edges_entropy, x->n_entropy_bins - 1,
                               y->n_entropy_bins - 1) &&
                    same_reals(x->edges_ppl, y->edges_ppl, x->n_ppl_bins - 1, y->n_ppl_bins - 1);
    columns_of c = {.n = n,
                    .t = {p->tables[0], p->tables[1]},
                    .L = x->n_layers,
                    .x = {NEW(n, most, double), NEW(n, most, double)}};
    for (size_t i = 0; i < (size_t)x->n_budgets * y->n_budgets; i++) {
        c.b[0] = i / y->n_budgets;
        c.b[1] = i % y->n_budgets;
        if (x->budgets[c.b[0]] != y->budgets[c.b[1]]) { continue; }
        c.side = CKVC_SIDE_HEAD;
        c.X = x->n_heads;
        c.n_measures = 1 + bins;
        const bool fitted = !(p->tables[0]->shares_alone && p->tables[1]->shares_alone);
        if (fitted) { p->head[p->n_head++] = heads_of(n, &c); }
        if (p->has_shares) { p->shares[p->n_shares++] = shares_of(n, &c); }
        c.side = CKVC_SIDE_GATE;
        c.X = cells;
        c.n_measures = GATE_MEASURES;
        if (same_cells && fitted) { p->gate[p->n_gate++] = gates_of(&c); }
    }
}

void pair_numbers_make(report_numbers *n) {
    const size_t T = n->n_tables;
    n->pairs = NEW(n, T * T, pair_numbers);
    for (size_t a = 0; a < T; a++) {
        for (size_t b = a + 1; b < T; b++) {
            pair_numbers *p = &n->pairs[n->n_pairs++];
            const table_numbers *x = &n->tables[a], *y = &n->tables[b];
            const json_t *mine = json_object_get(x->f.meta, "fingerprint"),
                         *other = json_object_get(y->f.meta, "fingerprint");
            const char *fx = json_string_value(mine), *fy = json_string_value(other);
            *p = (pair_numbers){.tables = {x, y},
                                .a = x->tag,
                                .b = y->tag,
                                .not_compared = why_not(x->shape, y->shape),
                                .same_model = strcmp(fx ? fx : "", fy ? fy : "") == 0};
            p->compared = !p->not_compared;
            if (p->compared) { compare_tables(n, p); }
        }
    }
}
