/* One table's own numbers: weights, thresholds, monotonicity, and what the evidence says about how
 * they were chosen. */
#include <math.h>
#include <stdlib.h>

#include "cql/stats/decided.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "report/report_internal.h"

static json_t *weights_json(const report_table *t, size_t b) {
    const ckvc_table *k = t->f->table;
    json_t *map = json_array(), *histogram = json_array(), *o = json_object();
    double sum = 0, lo = INFINITY, hi = -INFINITY;
    size_t n = (size_t)k->n_layers * k->n_heads, neutral = 0, supported = 0;
    for (uint32_t l = 0; l < k->n_layers; l++) {
        json_t *row = json_array();
        for (uint32_t g = 0; g < k->n_heads; g++) {
            int a = ckvc_grid_index(k->head_grid, k->n_head_actions,
                                    k->weight[ckvc_weight_index(k, l, g, (uint32_t)b)]);
            double w = a >= 0 ? k->head_grid[a] : NAN;
            sum += w;
            lo = fmin(lo, w);
            hi = fmax(hi, w);
            neutral += w == 1.0;
            supported += report_head_supported(t, l, g, b);
            json_array_append_new(row, ckvc_json_real(w));
        }
        json_array_append_new(map, row);
    }
    for (uint32_t a = 0; a < k->n_head_actions; a++) {
        json_int_t count = 0;
        for (size_t i = 0; i < n; i++) {
            count += ckvc_grid_index(k->head_grid, k->n_head_actions,
                                     k->weight[i * k->n_budgets + b]) == (int)a;
        }
        json_array_append_new(histogram, json_integer(count));
    }
    json_object_set_new(o, "budget", ckvc_json_real(k->budgets[b]));
    json_object_set_new(o, "mean", ckvc_json_real(sum / (double)n));
    json_object_set_new(o, "min", ckvc_json_real(lo));
    json_object_set_new(o, "max", ckvc_json_real(hi));
    json_object_set_new(o, "share_at_1", ckvc_json_real((double)neutral / (double)n));
    json_object_set_new(o, "n", json_integer((json_int_t)n));
    json_object_set_new(o, "supported", json_integer((json_int_t)supported));
    json_object_set_new(o, "histogram", histogram);
    json_object_set_new(o, "weight", map);
    return o;
}

/* Adjacent supported pairs along one risk axis, all layers: higher risk should not raise the
 * threshold. */
static json_t *monotone_json(const report_table *t, size_t b, bool along_entropy) {
    const ckvc_table *k = t->f->table;
    uint32_t de = along_entropy ? 1 : 0, dp = along_entropy ? 0 : 1;
    size_t pairs = 0, not_up = 0, not_down = 0;
    for (uint32_t l = 0; l < k->n_layers; l++) {
        for (uint32_t e = 0; e + de < k->n_entropy_bins; e++) {
            for (uint32_t p = 0; p + dp < k->n_ppl_bins; p++) {
                if (!report_gate_supported(t, l, e, p, b) ||
                    !report_gate_supported(t, l, e + de, p + dp, b)) {
                    continue;
                }
                float from = k->tau[ckvc_tau_index(k, l, e, p, (uint32_t)b)];
                float to = k->tau[ckvc_tau_index(k, l, e + de, p + dp, (uint32_t)b)];
                pairs++;
                not_up += to <= from;
                not_down += to >= from;
            }
        }
    }
    json_t *o = json_object();
    json_object_set_new(o, "pairs", json_integer((json_int_t)pairs));
    json_object_set_new(o, "non_increasing",
                        ckvc_json_real(pairs ? (double)not_up / (double)pairs : NAN));
    json_object_set_new(o, "non_decreasing",
                        ckvc_json_real(pairs ? (double)not_down / (double)pairs : NAN));
    json_object_set_new(
        o, "equal",
        ckvc_json_real(pairs ? (double)(not_up + not_down - pairs) / (double)pairs : NAN));
    return o;
}

static json_t *gate_json(const report_table *t, size_t b) {
    const ckvc_table *k = t->f->table;
    json_t *map = json_array(), *o = json_object(), *histogram = json_array();
    size_t cells = (size_t)k->n_layers * k->n_entropy_bins * k->n_ppl_bins, supported = 0;
    double sum = 0;
    size_t *counts = ckvc_calloc(k->n_gate_actions, sizeof *counts);
    for (uint32_t l = 0; l < k->n_layers; l++) {
        json_t *layer = json_array();
        for (uint32_t e = 0; e < k->n_entropy_bins; e++) {
            json_t *row = json_array();
            for (uint32_t p = 0; p < k->n_ppl_bins; p++) {
                int a = ckvc_grid_index(k->gate_grid, k->n_gate_actions,
                                        k->tau[ckvc_tau_index(k, l, e, p, (uint32_t)b)]);
                double tau = a >= 0 ? k->gate_grid[a] : NAN;
                if (report_gate_supported(t, l, e, p, b)) {
                    supported++;
                    sum += tau;
                    if (counts && a >= 0) { counts[a]++; }
                }
                json_array_append_new(row, ckvc_json_real(tau));
            }
            json_array_append_new(layer, row);
        }
        json_array_append_new(map, layer);
    }
    for (uint32_t a = 0; counts && a < k->n_gate_actions; a++) {
        json_array_append_new(histogram, json_integer((json_int_t)counts[a]));
    }
    free(counts);
    json_object_set_new(o, "budget", ckvc_json_real(k->budgets[b]));
    json_object_set_new(o, "cells", json_integer((json_int_t)cells));
    json_object_set_new(o, "supported", json_integer((json_int_t)supported));
    json_object_set_new(o, "mean_tau", ckvc_json_real(supported ? sum / (double)supported : NAN));
    json_object_set_new(o, "histogram", histogram);
    json_object_set_new(o, "along_entropy", monotone_json(t, b, true));
    json_object_set_new(o, "along_perplexity", monotone_json(t, b, false));
    json_object_set_new(o, "tau", map);
    return o;
}

/* Where the chosen action's count stands among the state's logged counts: 0 lowest, 1 highest, ties
 * in the middle. */
static double count_percentile(const uint64_t *n, size_t actions, int chosen) {
    double below = 0, others = 0;
    for (size_t a = 0; a < actions; a++) {
        if (n[a] && (int)a != chosen) {
            below += n[a] < n[chosen] ? 1 : n[a] == n[chosen] ? 0.5 : 0;
            others++;
        }
    }
    return others > 0 ? below / others : 0.5;
}

/* One budget: shares, and numbers of layers per cell [E][P]. */
static json_t *split_json(const decided *d, size_t b, size_t P) {
    const decided_split all = decided_sum(d, b);
    json_t *cells = json_array();
    for (size_t x = 0; x < d->X; x++) {
        const decided_split *cell = &d->split[b * d->X + x];
        if (x % P == 0) { json_array_append_new(cells, json_array()); }
        json_array_append_new(json_array_get(cells, x / P),
                              json_pack("{s:I, s:I, s:I, s:I}", "supported",
                                        (json_int_t)cell->supported, "by_loss",
                                        (json_int_t)cell->by_loss, "by_penalty",
                                        (json_int_t)(cell->supported - cell->by_loss), "loss_flat",
                                        (json_int_t)cell->flat));
    }
    double n = (double)all.supported;
    return json_pack("{s:I, s:o, s:o, s:o, s:o}", "supported", (json_int_t)all.supported, "by_loss",
                     ckvc_json_real((double)all.by_loss / n), "by_penalty",
                     ckvc_json_real(1 - (double)all.by_loss / n), "loss_flat",
                     ckvc_json_real((double)all.flat / n), "cells", cells);
}

/* What the penalty is to blame for: every budget, every entry, all. */
static void penalty_json(const decided *d, size_t P, json_t *o) {
    json_t *by_budget = json_array(), *loss_states = json_array(), *flat_states = json_array();
    for (size_t b = 0; b < d->nB; b++) {
        json_array_append_new(by_budget, split_json(d, b, P));
    }
    for (size_t i = 0; i < d->S; i++) {
        const bool there = d->chosen[i] >= 0;
        json_array_append_new(loss_states, there ? json_boolean(d->by_loss[i]) : json_null());
        json_array_append_new(flat_states, there ? json_boolean(d->flat[i]) : json_null());
    }
    const decided_split all = decided_sum(d, d->nB);
    double n = (double)d->n_supported;
    json_object_set_new(o, "budgets", by_budget);
    json_object_set_new(o, "entries",
                        json_pack("{s:o, s:o}", "by_loss", loss_states, "loss_flat", flat_states));
    json_object_set_new(o, "by_loss", ckvc_json_real((double)all.by_loss / n));
    json_object_set_new(o, "by_penalty", ckvc_json_real(n > 0 ? 1 - (double)all.by_loss / n : NAN));
    json_object_set_new(o, "loss_flat", ckvc_json_real((double)all.flat / n));
}

static json_t *side_json(const table_file *f, const struct side *s, double cql_alpha) {
    const table_evidence *e = &f->evidence[s->which];
    const size_t A = s->actions.n;
    const decided_from from = {.S = s->n_states,
                               .X = s->X,
                               .nB = s->nB,
                               .actions = s->actions,
                               .n = e->n,
                               .q = e->q,
                               .mean = e->m,
                               .part = e->l,
                               .cql_alpha = cql_alpha,
                               .exact = true};
    CKVC_AUTO(decided_fini) decided d = decided_of(&from);
    CKVC_AUTO_FREE double *logged = ckvc_calloc(A, sizeof *logged);
    CKVC_AUTO_FREE double *chosen = ckvc_calloc(A, sizeof *chosen);
    double percentile = 0, stability = 0, records = 0;
    for (size_t i = 0; i < d.S; i++) {
        for (size_t a = 0; a < A; a++) {
            logged[a] += (double)e->n[i * A + a];
            records += (double)e->n[i * A + a];
        }
        if (d.chosen[i] < 0) { continue; }
        chosen[d.chosen[i]]++;
        percentile += count_percentile(e->n + i * A, A, d.chosen[i]);
        if (e->share) { stability += e->share[i * A + (size_t)d.chosen[i]]; }
    }
    const size_t k = d.n_supported;
    double n = (double)k;
    double median = k ? ((double)d.records[(k - 1) / 2] + (double)d.records[k / 2]) / 2 : NAN;
    json_t *o =
        json_pack("{s:I, s:I, s:I, s:{s:o, s:o, s:o, s:o}}", "states", (json_int_t)d.S, "supported",
                  (json_int_t)k, "records", (json_int_t)records, "records_per_supported_state",
                  "min", k ? json_integer((json_int_t)d.records[0]) : json_null(), "median",
                  ckvc_json_real(median), "mean", ckvc_json_real(records / n), "max",
                  k ? json_integer((json_int_t)d.records[k - 1]) : json_null());
    json_object_set_new(o, "action", ckvc_json_reals(s->grid, A));
    json_object_set_new(o, "logged", ckvc_json_reals(logged, A));
    json_object_set_new(o, "chosen", ckvc_json_reals(chosen, A));
    json_object_set_new(o, "alpha_decided", ckvc_json_real((double)d.n_alpha / n));
    json_object_set_new(o, "count_correlation", ckvc_json_real(d.correlation));
    json_object_set_new(o, "count_percentile", ckvc_json_real(percentile / n));
    json_object_set_new(o, "choice_stability", ckvc_json_real(e->share ? stability / n : NAN));
    if (e->l) { penalty_json(&d, s->P, o); }
    return o;
}

static json_t *evidence_json(const report_table *t) {
    if (!t->f->has_evidence) { return json_null(); }
    /* cql_alpha is META's; a table without it cannot tell the loss part's own choice: the plain
     * mean stands in. */
    const double alpha = report_num(t->f->meta, "cql_alpha");
    json_t *sides = json_object();
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        const struct side s = side_of_table(t->f->table, (ckvc_side)i);
        json_object_set_new(sides, ckvc_side_name(s.which),
                            side_json(t->f, &s, isfinite(alpha) && alpha >= 0 ? alpha : 0));
    }
    return sides;
}

ckvc_status report_tables_json(report *r, ckvc_err *err) {
    json_t *list = json_array();
    json_object_set_new(r->json, "tables", list);
    for (size_t i = 0; i < r->n_tables; i++) {
        const report_table *t = &r->tables[i];
        const ckvc_table *k = t->f->table;
        json_t *o = json_object(), *shape = json_object(), *weights = json_array(),
               *gates = json_array();
        json_array_append_new(list, o);
        json_object_set_new(o, "tag", json_string(t->tag));
        json_object_set_new(o, "name", json_string(t->name));
        json_object_set_new(o, "file", json_string(t->file));
        json_object_set_new(o, "content_id", json_string(t->f->content_id));
        char runs[REPORT_TAGS];
        report_run_tags(r, t->runs, t->n_runs, runs);
        json_object_set_new(o, "run", t->n_runs ? json_string(runs) : json_null());
        json_object_set(o, "meta", t->f->meta);
        json_object_set_new(shape, "layers", json_integer(k->n_layers));
        json_object_set_new(shape, "heads", json_integer(k->n_heads));
        json_object_set_new(shape, "head_axis",
                            json_string(k->head_axis ? "query head" : "KV head"));
        json_object_set_new(shape, "entropy_bins", json_integer(k->n_entropy_bins));
        json_object_set_new(shape, "perplexity_bins", json_integer(k->n_ppl_bins));
        json_object_set_new(shape, "window", json_integer(k->window));
        json_object_set_new(shape, "budgets", ckvc_json_reals(k->budgets, k->n_budgets));
        json_object_set_new(shape, "edges_entropy",
                            ckvc_json_reals(k->edges_entropy, k->n_entropy_bins - 1));
        json_object_set_new(shape, "edges_perplexity",
                            ckvc_json_reals(k->edges_ppl, k->n_ppl_bins - 1));
        json_object_set_new(o, "shape", shape);
        for (size_t b = 0; b < k->n_budgets; b++) {
            json_array_append_new(weights, weights_json(t, b));
            json_array_append_new(gates, gate_json(t, b));
        }
        json_object_set_new(o, "head", weights);
        json_object_set_new(o, "gate", gates);
        json_object_set_new(o, "evidence", evidence_json(t));
        if (t->f->xfer) { json_object_set(o, "transfer", t->f->xfer); }
    }
    return CKVC_OK;
}
