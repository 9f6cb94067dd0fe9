/* Compares two tables: rank agreement of head weights, agreement of thresholds where both have
 * records, and how far both are fixed by the prompts that the tables were fitted from. */
#include <math.h>

#include "lib/base/memory.h"
#include "lib/stats/rank.h"
#include "report/numbers/numbers.h"

/* How far the prompts fix a measure of agreement. `boot` has its 2.5% and 97.5% points over
 * bootstrap refits of both tables. The split halves have the same measure between refits from
 * two random halves of one table's own prompts, for Spearman corrected to all of the prompts
 * (Spearman and Brown). `ceiling` is what two corpora of one truth can reach with these
 * reliabilities. */
typedef struct reach {
    double ceiling;
    size_t replicates;
    sample_spread boot, split_half_a, split_half_b;
} reach;

enum { MEASURE_SPEARMAN, MEASURE_DIFFERENCE, MEASURE_EQUAL, GATE_MEASURES };
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

static void compare_thresholds(const double *x, const double *y, size_t n,
                               double out[GATE_MEASURES]) {
    double apart = 0, equal = 0;
    for (size_t i = 0; i < n; i++) {
        apart += fabs(x[i] - y[i]);
        equal += x[i] == y[i];
    }
    out[MEASURE_SPEARMAN] = rank_spearman(x, y, n);
    out[MEASURE_DIFFERENCE] = apart / (double)n;
    out[MEASURE_EQUAL] = equal / (double)n;
}

/* Measures agreement on the cells of the mask, to which it shortens the columns. Returns how
 * many cells these are. */
static size_t measure_gates(const columns_of *c, double out[GATE_MEASURES]) {
    size_t k = 0;
    for (size_t i = 0; i < c->L * c->X; i++) {
        if (!c->mask[i]) { continue; }
        c->x[0][k] = c->x[0][i];
        c->x[1][k++] = c->x[1][i];
    }
    compare_thresholds(c->x[0], c->x[1], k, out);
    return k;
}

/* Fills the columns with the tables' own entries. */
static void take_own(const columns_of *c) {
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < c->L * c->X; i++) {
            c->x[k][i] = c->t[k]->entries[c->side][i * c->t[k]->n_budgets + c->b[k]].value;
        }
    }
}

/* ---- over resampled prompts ---- */

/* Fills one column with a replicate's choices; a state without records keeps what the fit keeps. */
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

/* Computes the spreads of the measures over bootstrap pairs or, if `which` >= 0, over the halves
 * of that table. */
static void spread_measures(const columns_of *c, int which, uint32_t n, sample_spread *out) {
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
    for (size_t m = 0; m < c->n_measures; m++) { out[m] = sample_spread_of(values + m * n, n); }
}

/* Computes the reach of each measure: out [measures]. */
static void reach_of(const columns_of *c, reach *out) {
    const own_records *sa = &c->t[0]->in->sides[c->side], *sb = &c->t[1]->in->sides[c->side];
    const uint32_t boots = sa->n_boot < sb->n_boot ? sa->n_boot : sb->n_boot;
    sample_spread boot[MEASURES_MAX], a[MEASURES_MAX], b[MEASURES_MAX];
    spread_measures(c, -1, boots, boot);
    spread_measures(c, 0, sa->n_halves / 2, a);
    spread_measures(c, 1, sb->n_halves / 2, b);
    for (size_t m = 0; m < c->n_measures; m++) {
        const bool spearman = c->side == CKVC_SIDE_HEAD || m == MEASURE_SPEARMAN;
        if (spearman) { /* a half has half of the prompts: corrected to all of them */
            spearman_brown_spread(&a[m]);
            spearman_brown_spread(&b[m]);
        }
        out[m] = (reach){.ceiling = spearman ? reliability_ceiling(a[m].mean, b[m].mean) : NAN,
                         .replicates = boots,
                         .boot = boot[m],
                         .split_half_a = a[m],
                         .split_half_b = b[m]};
    }
}

json_t *spread_json(const sample_spread *s) {
    return OBJECT(OF(s, mean), OF(s, lo), OF(s, hi), {"defined", J(s->n)});
}

static json_t *reach_json(const reach *r) {
    return OBJECT({"lo", J(r->boot.lo)}, {"hi", J(r->boot.hi)},
                  {"split_half_a", spread_json(&r->split_half_a)},
                  {"split_half_b", spread_json(&r->split_half_b)}, OF(r, ceiling),
                  OF(r, replicates), {"replicates_defined", J(r->boot.n)});
}

/* Returns why a side of this pair has no refits; NULL when it has them. */
static const char *why_no_refits(const columns_of *c) {
    if (c->n->in->o->replicates < 2) { return "no refits were asked for"; }
    const char *why = c->t[0]->in->sides[c->side].why;
    return why ? why : c->t[1]->in->sides[c->side].why;
}

/* ---- heads ---- */

/* Sets the rank agreement by groups of layers, and which layers are in a group. */
static void set_bins(json_t *o, const columns_of *c, const rank_layers *ranks) {
    const size_t bins = c->n_measures - 1;
    json_t *layers = json_array();
    for (size_t i = 0, first = 0; i < bins; i++) {
        const size_t size = rank_bin_size(c->L, bins, i);
        json_array_append_new(
            layers, json_pack("[I, I]", (json_int_t)first, (json_int_t)(first + size - 1)));
        first += size;
    }
    ADD_MEMBERS(o, {"bins", ckvc_json_reals(ranks->bins, bins)}, {"bin_layers", layers});
}

static json_t *weights_json(columns_of *c) {
    double measures[GATE_MEASURES];
    rank_layers ranks;
    take_own(c);
    rank_by_layer(c->x[0], c->x[1], c->L, c->X, c->n_measures - 1, &ranks);
    compare_thresholds(c->x[0], c->x[1], c->L * c->X, measures);
    const char *missing = why_no_refits(c);
    json_t *o = OBJECT({"budget", J(c->t[0]->shape->budgets[c->b[0]])},
                       {"overall", J(ranks.overall)}, {"bin_mean", J(ranks.bin_mean)},
                       {"bin_min", J(ranks.bin_min)}, {"share_equal", J(measures[MEASURE_EQUAL])},
                       {"mean_abs_difference", J(measures[MEASURE_DIFFERENCE])},
                       {"n", J(c->L * c->X)}, {"interval_missing", J(missing)});
    set_bins(o, c, &ranks);
    if (!missing) {
        reach reaches[MEASURES_MAX] = {0};
        json_t *bins = json_array();
        reach_of(c, reaches);
        for (size_t i = 1; i < c->n_measures; i++) {
            json_array_append_new(bins, reach_json(&reaches[i]));
        }
        ADD_MEMBERS(o, {"interval", reach_json(&reaches[0])}, {"bin_intervals", bins});
    }
    return o;
}

/* ---- gates ---- */

/* Can the gate change what is kept for this cell, on some prompt of the runs of the table's
 * gate? */
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

#define MEASURES(of, x)                                                                            \
    {"spearman", of(x[MEASURE_SPEARMAN])}, {"mean_abs_difference", of(x[MEASURE_DIFFERENCE])}, {   \
        "share_equal", of(x[MEASURE_EQUAL])                                                        \
    }
#define REACH_JSON(x) reach_json(&(x))

/* Adds how the cells with records in both tables agree or, with `binding`, those of them where
 * the gate binds in both. */
static void set_cells(json_t *o, columns_of *c, bool binding) {
    CKVC_AUTO_FREE uint8_t *mask = ckvc_calloc(c->L * c->X, 1);
    double measures[GATE_MEASURES];
    for (size_t i = 0; i < c->L * c->X; i++) {
        mask[i] = 1;
        for (int k = 0; k < 2; k++) {
            const entry *e = &c->t[k]->entries[c->side][i * c->t[k]->n_budgets + c->b[k]];
            mask[i] &= e->supported && (!binding || binds(c->t[k], e));
        }
    }
    c->mask = mask;
    take_own(c);
    const size_t cells = measure_gates(c, measures);
    ADD_MEMBERS(o, M(cells), MEASURES(J, measures));
    if (!binding) { return; }
    const char *missing = why_no_refits(c);
    ADD_MEMBERS(o, {"interval_missing", J(missing)});
    if (!missing && cells > 0) {
        reach r[GATE_MEASURES] = {0};
        reach_of(c, r);
        ADD_MEMBERS(o, {"intervals", OBJECT(MEASURES(REACH_JSON, r))});
    }
}

static json_t *gates_of(columns_of *c) {
    json_t *o = OBJECT({"budget", J(c->t[0]->shape->budgets[c->b[0]])}), *binding = json_null();
    set_cells(o, c, false);
    if (c->t[0]->in->n_runs && c->t[1]->in->n_runs) { /* else it is not known where it binds */
        set_cells(binding = json_object(), c, true);
    }
    return ADD_MEMBERS(o, {"binding", binding});
}

/* ---- shares ---- */

/* Returns the reliability of block b's shares: the split halves that the fit found, corrected to
 * all of its prompts. It is NaN for shares that rewards have changed since. */
static double reliability_of(const table_numbers *t, size_t b) {
    const json_t *o = t->f->meta;
    static const char *const path[] = {"diagnostics", "demand", "by_budget"};
    static const char *const rest[] = {"heads", "split_halves", "overall"};
    if (json_object_get(json_object_get(o, path[0]), "rewards")) { return NAN; }
    for (int i = 0; i < 3; i++) { o = json_object_get(o, path[i]); }
    o = json_array_get(o, b);
    for (int i = 0; i < 3; i++) { o = json_object_get(o, rest[i]); }
    return json_is_number(o) ? spearman_brown(json_number_value(o)) : NAN;
}

/* Compares the shares of two tables. lo and hi are over resampled heads, because a table has no
 * replicates of its shares, only each share's interval, and the shares of a prompt are not
 * independent. The split halves are what the fits said of their own prompts. */
static json_t *compare_shares_json(const columns_of *c) {
    const size_t X = c->X, n = c->L * X, bins = c->n_measures - 1;
    double apart = 0, lo, hi;
    rank_layers ranks;
    json_t *bin_lo = json_array(), *bin_hi = json_array();
    for (size_t i = 0; i < n; i++) {
        for (int k = 0; k < 2; k++) {
            c->x[k][i] = c->t[k]->shape->share[i * c->t[k]->n_budgets + c->b[k]];
        }
        apart += fabs(c->x[0][i] - c->x[1][i]) / (double)n;
    }
    rank_by_layer(c->x[0], c->x[1], c->L, X, bins, &ranks);
    for (size_t i = 0, first = 0; i < bins; i++) {
        const size_t size = rank_bin_size(c->L, bins, i);
        rank_spearman_ends(c->x[0] + first * X, c->x[1] + first * X, size * X, &lo, &hi);
        json_array_append_new(bin_lo, J(lo));
        json_array_append_new(bin_hi, J(hi));
        first += size;
    }
    rank_spearman_ends(c->x[0], c->x[1], n, &lo, &hi);
    const double a = reliability_of(c->t[0], c->b[0]), b = reliability_of(c->t[1], c->b[1]);
    json_t *o =
        OBJECT({"budget", J(c->t[0]->shape->budgets[c->b[0]])}, {"overall", J(ranks.overall)},
               M(lo), M(hi), {"ceiling", J(reliability_ceiling(a, b))}, {"split_half_a", J(a)},
               {"split_half_b", J(b)}, {"bin_mean", J(ranks.bin_mean)},
               {"bin_min", J(ranks.bin_min)}, {"mean_abs_difference", J(apart)}, M(n));
    set_bins(o, c, &ranks);
    return ADD_MEMBERS(o, {"bin_lo", bin_lo}, {"bin_hi", bin_hi});
}

/* ---- pairs ---- */

static bool same_reals(const double *x, const double *y, size_t nx, size_t ny) {
    return nx == ny && memcmp(x, y, nx * sizeof *x) == 0;
}

static const char *why_incomparable(const ckvc_table *x, const ckvc_table *y) {
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

static void compare_tables(report_numbers *n, json_t *o, const table_numbers *a,
                           const table_numbers *b) {
    const ckvc_table *x = a->shape, *y = b->shape;
    const bool same_cells =
        x->n_entropy_bins == y->n_entropy_bins && x->n_ppl_bins == y->n_ppl_bins;
    const bool same_edges =
        same_cells &&
        same_reals(x->edges_entropy, y->edges_entropy, x->n_entropy_bins - 1,
                   y->n_entropy_bins - 1) &&
        same_reals(x->edges_ppl, y->edges_ppl, x->n_ppl_bins - 1, y->n_ppl_bins - 1);
    const size_t cells = (size_t)x->n_entropy_bins * x->n_ppl_bins,
                 most = x->n_layers * (cells > x->n_heads ? cells : x->n_heads),
                 bins = n->in->o->layer_bins < x->n_layers ? n->in->o->layer_bins : x->n_layers;
    const bool fitted = !(a->shares_alone && b->shares_alone), have_shares = x->share && y->share;
    json_t *heads = json_array(), *gates = json_array(),
           *shares = have_shares ? json_array() : NULL;
    columns_of c = {
        .n = n, .t = {a, b}, .L = x->n_layers, .x = {NEW(n, most, double), NEW(n, most, double)}};
    for (size_t i = 0; i < (size_t)x->n_budgets * y->n_budgets; i++) {
        c.b[0] = i / y->n_budgets;
        c.b[1] = i % y->n_budgets;
        if (x->budgets[c.b[0]] != y->budgets[c.b[1]]) { continue; }
        c.side = CKVC_SIDE_HEAD;
        c.X = x->n_heads;
        c.n_measures = 1 + bins;
        if (fitted) { json_array_append_new(heads, weights_json(&c)); }
        if (have_shares) { json_array_append_new(shares, compare_shares_json(&c)); }
        c.side = CKVC_SIDE_GATE;
        c.X = cells;
        c.n_measures = GATE_MEASURES;
        if (same_cells && fitted) { json_array_append_new(gates, gates_of(&c)); }
    }
    ADD_MEMBERS(o, {"head", heads}, {"gate", gates}, {"shares", shares}, M(same_edges));
}

void pair_numbers_make(report_numbers *n) {
    json_t *list = json_array();
    for (size_t a = 0; a < n->n_tables; a++) {
        for (size_t b = a + 1; b < n->n_tables; b++) {
            const table_numbers *x = &n->tables[a], *y = &n->tables[b];
            const char *fx = json_text_of(x->f->meta, "fingerprint"),
                       *fy = json_text_of(y->f->meta, "fingerprint"),
                       *not_compared = why_incomparable(x->shape, y->shape);
            const bool same_model = strcmp(fx ? fx : "", fy ? fy : "") == 0;
            json_t *o =
                OBJECT({"a", J(x->in->tag)}, {"b", J(y->in->tag)}, M(not_compared), M(same_model));
            if (!not_compared) { compare_tables(n, o, x, y); }
            json_array_append_new(list, o);
        }
    }
    json_object_set_new(n->json, "pairs", list);
}
