/* Computes what runs say: plan and passes, prompts by risk cell, what merging equal sets saved,
 * and where the gate can change what is kept. */
#include <math.h>

#include "report/numbers/numbers.h"

/* ---- coverage ---- */

/* Returns the prompts by risk cell, of one source or of all (SIZE_MAX): how many there are, and
 * how many were drawn for logging. */
static json_t *cover_of(report_numbers *n, const coverage *c, size_t source) {
    const size_t E = c->n_entropy_bins, P = c->n_ppl_bins;
    double *cells = NEW(n, E * P, double), *drawn_cells = NEW(n, E * P, double);
    double drawn = c->logged ? 0 : NAN; /* a scan alone draws nothing */
    size_t prompts = 0, occupied = 0, thin = 0;
    EACH(coverage_row, row, c->rows, c->n_rows) {
        const size_t cell = row->entropy * P + row->ppl;
        if (source != SIZE_MAX && row->source != source) { continue; }
        cells[cell] += row->prompts;
        drawn_cells[cell] += row->drawn;
        prompts += row->prompts;
        drawn += row->drawn;
    }
    for (size_t i = 0; i < E * P; i++) {
        const double logged = c->logged ? drawn_cells[i] : cells[i];
        occupied += cells[i] > 0;
        thin += logged > 0 && logged < c->min_cell;
    }
    return OBJECT(M(prompts), M(drawn), M(occupied), M(thin),
                  {"source", source < c->n_sources ? J(c->sources[source]) : NULL},
                  {"cells", json_grid(cells, E, P)},
                  {"drawn_cells", c->logged ? json_grid(drawn_cells, E, P) : NULL});
}

static json_t *coverage_of(report_numbers *n, const coverage *c) {
    json_t *sources = json_array(), *o = cover_of(n, c, SIZE_MAX);
    for (size_t s = 0; s < c->n_sources; s++) { json_array_append_new(sources, cover_of(n, c, s)); }
    return ADD_MEMBERS(o, {"min_cell", c->from ? J((double)c->min_cell) : json_null()},
                       {"sample", J((double)c->sample)}, {"unscanned", J(c->n_unscanned)},
                       {"sources", sources});
}

/* ---- rollouts saved ---- */

/* Adds what was logged of a side, if anything was: by layer, and as rates a prompt. */
static void add_savings(const input_run *run, ckvc_side side, double prompts, json_t *by_layer,
                        json_t *rates) {
    const size_t L = run->h.n_layers;
    const rollout_counts *layers = run->savings ? &run->savings[side * L] : NULL;
    rollout_counts all = {0};
    size_t lowest = 0, highest = 0;
    double lowest_rate = NAN, highest_rate = NAN;
    json_t *list = json_array();
    for (size_t l = 0; layers && l < L; l++) {
        const rollout_counts *k = &layers[l];
        const double rate = 1 - (double)k->distinct / (double)k->actions;
        APPEND_OBJECT(list, OF(k, actions), OF(k, at_baseline), OF(k, distinct));
        all.actions += k->actions;
        all.at_baseline += k->at_baseline;
        all.distinct += k->distinct;
        if (k->actions && !(rate >= lowest_rate)) {
            lowest = l;
            lowest_rate = rate;
        }
        if (k->actions && !(rate <= highest_rate)) {
            highest = l;
            highest_rate = rate;
        }
    }
    json_auto_t *columns = json_add_columns(json_object(), list);
    if (all.actions == 0) { return; }
    const double actions = (double)all.actions, distinct = (double)all.distinct;
    json_object_set(by_layer, ckvc_side_name(side), columns);
    json_object_set_new(rates, ckvc_side_name(side),
                        OBJECT({"actions_a_prompt", J(actions / prompts)},
                               {"rollouts_a_prompt", J(distinct / prompts)},
                               {"at_baseline_share", J((double)all.at_baseline / actions)},
                               {"rate", J(1 - distinct / actions)}, M(lowest), M(lowest_rate),
                               M(highest), M(highest_rate)));
}

/* ---- where the gate can act ---- */

/* Returns over all (prompt, layer) where the gate can act, and what was kept. `source` is the
 * one that these are of, or NULL. */
static json_t *binding_of(const gate_binding *c, const char *source) {
    const double n = (double)c->n, kept = (double)c->kept;
    return OBJECT(
        OF(c, n), {"kept_mean", J(kept / n)}, {"budget_mean", J((double)c->budget / n)},
        {"candidates_lo_mean", J((double)c->lo / n)}, {"candidates_hi_mean", J((double)c->hi / n)},
        {"share_of_kept_in_window", J((double)c->window / kept)},
        {"binding", J(gate_binding_share(c))}, {"sets_differ", J(gate_binding_differ_share(c))},
        {"source", source ? J(source) : NULL});
}

/* Returns what the thresholds of tables whose gate was fitted from the run rest on at a budget. */
static json_t *gate_choices_json(const report_numbers *n, const input_run *run, double budget) {
    json_t *list = json_array();
    EACH(table_numbers, t, n->tables, n->n_tables) {
        const json_t *gate = json_object_get(json_object_get(t->json, "evidence"), "gate"),
                     *budgets = json_object_get(gate, "budgets");
        for (size_t b = 0; b < json_array_size(budgets) && fitted_gate_from(t->in, run); b++) {
            json_t *rests = json_array_get(budgets, b);
            if (t->shape->budgets[b] != budget || !(json_number_of(rests, "supported") > 0)) {
                continue;
            }
            json_t *o = OBJECT({"table", J(t->in->tag)});
            json_object_update(o, rests);
            json_object_del(o, "cells");
            json_array_append_new(list, o);
        }
    }
    return list;
}

/* Returns what to change where the gate is not alive; NULL: nothing. */
static json_t *advice_on(const shard_header *h, const gate_binding *all, signed char alive) {
    const struct shard_side *gate = &h->side[CKVC_SIDE_GATE];
    char advice[256];
    if (alive != 0 || all->n == 0) { return NULL; }
    gate_advice(all, gate->actions[gate->n_actions - 1], advice, sizeof advice);
    return J(advice);
}

static json_t *run_budget_json(const report_numbers *n, const input_run *in, size_t b) {
    const shard_header *h = &in->h;
    const size_t L = h->n_layers, P = h->n_ppl_bins, n_cells = h->n_entropy_bins * P;
    const gate_binding *first = &in->cells[input_cell(h, b, 0, 0, 0)];
    gate_binding all = {0};
    size_t occupied = 0, cells_alive = 0;
    json_t *layers = json_array(), *sources = json_array(), *cells = json_array();
    for (size_t l = 0; l < L; l++) {
        gate_binding layer = {0};
        for (size_t i = 0; i < n_cells; i++) {
            gate_binding_merge(&layer, &first[l * n_cells + i]);
        }
        gate_binding_merge(&all, &layer);
        json_array_append_new(layers, binding_of(&layer, NULL));
    }
    EACH(input_source, s, in->sources, in->n_sources) {
        json_array_append_new(sources, binding_of(&s->sums[b], s->name));
    }
    for (size_t i = 0; i < n_cells; i++) {
        gate_binding cell = {0};
        for (size_t l = 0; l < L; l++) { gate_binding_merge(&cell, &first[l * n_cells + i]); }
        occupied += cell.n > 0;
        cells_alive += gate_is_alive(&cell);
        json_array_append_new(cells, binding_of(&cell, NULL));
    }
    /* not known: no thresholds are in use */
    const signed char alive = (signed char)(shard_has_thresholds(h) ? gate_is_alive(&all) : -1);
    return OBJECT({"budget", J(h->budgets[b])}, M(alive), {"cells_occupied", J(occupied)},
                  M(cells_alive), {"advice", advice_on(h, &all, alive)},
                  {"all", binding_of(&all, NULL)}, {"sources", sources}, {"layers", layers},
                  {"cells", json_rows_of(cells, P)},
                  {"choices", gate_choices_json(n, in, h->budgets[b])});
}

/* ---- runs ---- */

static json_t *run_of(report_numbers *n, const input_run *in) {
    json_t *passes = json_array(), *prompts = json_array(), *sources = json_array(),
           *budgets = json_array(), *by_layer = json_object(), *rates = json_object();
    size_t n_heldout = 0;
    for (size_t k = 0; k < run_pass_count(in->dir); k++) {
        const run_pass *p = run_pass_at(in->dir, k);
        APPEND_OBJECT(passes, OF(p, name), OF(p, complete), {"prompts", J(p->n_prompts_done)});
    }
    EACH(input_prompt, p, in->prompts, in->n_prompts) {
        n_heldout += p->heldout;
        APPEND_OBJECT(prompts, OF(p, id), OF(p, source), OF(p, heldout), OF(p, r_struct),
                      OF(p, r_sem), {"T", J(p->n_tokens)});
    }
    EACH(input_source, s, in->sources, in->n_sources) {
        json_array_append_new(sources, json_string(s->name));
    }
    for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
        add_savings(in, (ckvc_side)side, (double)(in->n_prompts - n_heldout), by_layer, rates);
    }
    for (size_t b = 0; in->binned && b < in->h.n_budgets; b++) {
        json_array_append_new(budgets, run_budget_json(n, in, b));
    }
    json_t *o =
        OBJECT({"model", J(in->h.model_name)}, {"fingerprint", J(in->h.fingerprint)},
               {"manifest", J(in->h.manifest)}, {"plan_hash", J(run_plan_hash(in->dir))},
               {"behaviour", J(in->h.behaviour)}, OF(in, n_prompts), M(n_heldout),
               {"skipped", J(json_array_size(run_skipped(in->dir)))},
               {"pass", in->pass ? J(in->pass->name) : json_null()}, {"records", J(in->n_records)});
    setting_write(o, SETTING_REPORT, &in->h.setting, 0);
    return ADD_MEMBERS(
        o, OF(in, tag), OF(in, name), OF(in, title), {"plan", J(run_plan(in->dir))},
        {"passes", passes}, {"prompts", prompts}, {"sources", sources}, {"memo", by_layer},
        {"memo_rates", rates},
        {"coverage", in->coverage.n_entropy_bins ? coverage_of(n, &in->coverage) : NULL},
        {"budgets", budgets});
}

void run_numbers_make(report_numbers *n) {
    json_t *list = json_array();
    EACH(input_run, run, n->in->runs, n->in->n_runs) {
        json_array_append_new(list, run_of(n, run));
    }
    json_object_set_new(n->json, "runs", list);
}
