/* What runs say: plan and passes, prompts by risk cell, what merging equal sets saved, where the
 * gate can change what is kept. */
#include <math.h>

#include "report/numbers/numbers.h"

/* ---- coverage ---- */

/* Of one source, or of all (SIZE_MAX). */
static cover_numbers cover_of(report_numbers *n, const coverage *c, size_t source) {
    const size_t E = c->n_entropy_bins, P = c->n_ppl_bins;
    cover_numbers o = {.logged = c->logged, .n_entropy = E, .n_perplexity = P};
    o.source = source < c->n_sources ? c->sources[source] : NULL;
    o.cells = NEW(n, E * P, double);
    o.drawn_cells = NEW(n, E * P, double);
    o.drawn = c->logged ? 0 : NAN;
    EACH(coverage_row, row, c->rows, c->n_rows) {
        const size_t cell = row->entropy * P + row->ppl;
        if (source != SIZE_MAX && row->source != source) { continue; }
        o.cells[cell] += row->prompts;
        o.drawn_cells[cell] += row->drawn;
        o.prompts += row->prompts;
        o.drawn += row->drawn;
    }
    for (size_t i = 0; i < E * P; i++) {
        const double logged = c->logged ? o.drawn_cells[i] : o.cells[i];
        o.occupied += o.cells[i] > 0;
        o.thin += logged > 0 && logged < c->min_cell;
    }
    return o;
}

static coverage_numbers *coverage_of(report_numbers *n, const coverage *c) {
    coverage_numbers *o = NEW(n, 1, coverage_numbers);
    o->all = cover_of(n, c, SIZE_MAX);
    o->sources = NEW(n, c->n_sources, cover_numbers);
    o->min_cell = c->from ? (double)c->min_cell : NAN;
    o->sample = (double)c->sample;
    o->unscanned = c->n_unscanned;
    for (; o->n_sources < c->n_sources; o->n_sources++) {
        o->sources[o->n_sources] = cover_of(n, c, o->n_sources);
    }
    return o;
}

/* ---- rollouts saved ---- */

static savings_numbers savings_of(const input_run *run, int side, double prompts) {
    const size_t L = run->h.n_layers;
    savings_numbers o = {.n_layers = L, .lowest_rate = NAN, .highest_rate = NAN};
    rollout_counts all = {0};
    if (run->savings) { o.layers = &run->savings[(size_t)side * L]; }
    for (size_t l = 0; o.layers && l < L; l++) {
        const rollout_counts *k = &o.layers[l];
        const double rate = 1 - (double)k->distinct / (double)k->actions;
        all.actions += k->actions;
        all.at_baseline += k->at_baseline;
        all.distinct += k->distinct;
        if (k->actions && !(rate >= o.lowest_rate)) {
            o.lowest = l;
            o.lowest_rate = rate;
        }
        if (k->actions && !(rate <= o.highest_rate)) {
            o.highest = l;
            o.highest_rate = rate;
        }
    }
    const double actions = (double)all.actions, distinct = (double)all.distinct;
    o.logged = all.actions > 0;
    o.side = o.logged ? ckvc_side_name((ckvc_side)side) : NULL;
    o.actions = actions / prompts;
    o.rollouts = distinct / prompts;
    o.at_baseline = (double)all.at_baseline / actions;
    o.rate = 1 - distinct / actions;
    return o;
}

/* ---- where the gate can act ---- */

static binding_numbers binding_of(const gate_binding *c) {
    const double n = (double)c->n;
    return (binding_numbers){.n = c->n,
                             .binding = gate_binding_share(c),
                             .sets_differ = gate_binding_differ_share(c),
                             .kept_mean = (double)c->kept / n,
                             .budget_mean = (double)c->budget / n,
                             .candidates_lo_mean = (double)c->lo / n,
                             .candidates_hi_mean = (double)c->hi / n,
                             .share_of_kept_in_window = (double)c->window / (double)c->kept};
}

/* What the thresholds of tables whose gate was fitted from the run rest on at a budget. */
static void choices_of(report_numbers *n, const input_run *run, budget_numbers *o) {
    size_t most = 0;
    EACH(table_numbers, t, n->tables, n->n_tables) { most += t->n_budgets; }
    o->choices = NEW(n, most, gate_choices);
    EACH(table_numbers, t, n->tables, n->n_tables) {
        const side_evidence *e = &t->evidence[CKVC_SIDE_GATE];
        if (!fitted_gate_from(t->in, run)) { continue; }
        EACH(budget_rests, r, e->budgets, e->n_budgets) {
            if (r->budget == o->budget && r->all.supported > 0) {
                o->choices[o->n_choices++] = (gate_choices){t->tag, r->all};
            }
        }
    }
}

static budget_numbers budget_of(report_numbers *n, const input_run *in, size_t b) {
    const shard_header *h = &in->h;
    const size_t L = h->n_layers, P = h->n_ppl_bins, cells = h->n_entropy_bins * P;
    const gate_binding *first = &in->cells[input_cell(h, b, 0, 0, 0)];
    gate_binding all = {0};
    budget_numbers o = {.run = in->title, .budget = h->budgets[b]};
    o.n_sources = in->n_sources;
    o.n_layers = L;
    o.n_entropy = h->n_entropy_bins;
    o.n_perplexity = P;
    o.sources = NEW(n, o.n_sources, binding_numbers);
    o.layers = NEW(n, L, binding_numbers);
    o.cells = NEW(n, cells, binding_numbers);
    for (size_t l = 0; l < L; l++) {
        gate_binding layer = {0};
        for (size_t i = 0; i < cells; i++) { gate_binding_merge(&layer, &first[l * cells + i]); }
        gate_binding_merge(&all, &layer);
        o.layers[l] = binding_of(&layer);
    }
    for (size_t s = 0; s < o.n_sources; s++) {
        o.sources[s] = binding_of(&in->sources[s].sums[b]);
        o.sources[s].source = in->sources[s].name;
    }
    for (size_t i = 0; i < cells; i++) {
        gate_binding cell = {0};
        for (size_t l = 0; l < L; l++) { gate_binding_merge(&cell, &first[l * cells + i]); }
        o.cells_occupied += cell.n > 0;
        o.cells_alive += gate_is_alive(&cell);
        o.cells[i] = binding_of(&cell);
    }
    o.all = binding_of(&all);
    o.alive = (signed char)(shard_has_thresholds(h) ? gate_is_alive(&all) : -1);
    if (o.alive == 0 && all.n) {
        const struct shard_side *gate = &h->side[CKVC_SIDE_GATE];
        char *advice = NEW(n, 256, char);
        gate_advice(&all, gate->actions[gate->n_actions - 1], advice, 256);
        o.advice = advice;
    }
    choices_of(n, in, &o);
    return o;
}

/* ---- runs ---- */

static run_numbers run_of(report_numbers *n, const input_run *in) {
    run_numbers o = {.in = *in, .plan_hash = run_plan_hash(in->dir), .n_sides = CKVC_SIDE_COUNT};
    o.plan = run_plan(in->dir);
    o.pass = in->pass ? in->pass->name : NULL;
    o.skipped = json_array_size(run_skipped(in->dir));
    o.n_passes = run_pass_count(in->dir);
    o.passes = NEW(n, o.n_passes, run_pass);
    for (size_t k = 0; k < o.n_passes; k++) { o.passes[k] = *run_pass_at(in->dir, k); }
    EACH(input_prompt, p, in->prompts, in->n_prompts) { o.n_heldout += p->heldout; }
    for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
        o.savings[side] = savings_of(in, side, (double)(in->n_prompts - o.n_heldout));
    }
    if (in->coverage.n_entropy_bins) { o.coverage = coverage_of(n, &in->coverage); }
    o.n_budgets = in->binned ? in->h.n_budgets : 0;
    o.budgets = NEW(n, o.n_budgets, budget_numbers);
    for (size_t b = 0; b < o.n_budgets; b++) { o.budgets[b] = budget_of(n, in, b); }
    return o;
}

void run_numbers_make(report_numbers *n) {
    n->runs = NEW(n, n->in->n_runs, run_numbers);
    for (; n->n_runs < n->in->n_runs; n->n_runs++) {
        n->runs[n->n_runs] = run_of(n, &n->in->runs[n->n_runs]);
    }
}
