/* One table's own numbers: weights, thresholds, monotonicity, and what the evidence says about how
 * they were chosen. */
#include <math.h>
#include <stdlib.h>

#include "cql/solve/cql.h"
#include "cql/stats/rank.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/order.h"
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

typedef struct side_view {
    size_t states, actions;
    size_t entropy, perplexity,
        budgets; /* a gate state is [layer][entropy][perplexity][budget]; 0 bins on the head side */
    const double *grid, *q, *mean, *part; /* part: mean loss part, NULL on the head side */
    const uint64_t *n;
    const float *share; /* bootstrap's choices, or NULL */
    double alpha;       /* of the fit */
} side_view;

static int choose(const side_view *v, const double *q) {
    return cql_choose(&(cql_actions){v->actions, v->grid, v->part ? 0.0 : 1.0}, q);
}

/* values [A] with the never-logged actions out of the running */
static void masked(const side_view *v, size_t state, const double *values, double *out) {
    for (size_t a = 0; a < v->actions; a++) {
        out[a] = v->n[state * v->actions + a] ? values[state * v->actions + a] : -INFINITY;
    }
}

/* The action that the loss part alone would choose, by the same solver; -1: the solver failed,
 * which no sound evidence makes it do. */
static int choose_by_loss(const side_view *v, size_t state, double *row) {
    cql_certificate cert;
    if (!cql_solve_exact(v->actions, v->n + state * v->actions, v->part + state * v->actions,
                         v->alpha, row, &cert)) {
        return -1;
    }
    return choose(v, row);
}

/* Whether counts choose: Spearman, over the logged actions of all states, of chosen or not against
 * count / mean count of the state. */
static ckvc_status count_correlation(const side_view *v, const int *by_q, double *out,
                                     ckvc_err *err) {
    double *is_chosen = ckvc_alloc(v->states * v->actions, sizeof *is_chosen);
    double *relative = ckvc_alloc(v->states * v->actions, sizeof *relative);
    size_t k = 0;
    for (size_t s = 0; s < v->states; s++) {
        const uint64_t *n = v->n + s * v->actions;
        double total = 0, logged = 0;
        for (size_t a = 0; a < v->actions; a++) {
            total += (double)n[a];
            logged += n[a] > 0;
        }
        for (size_t a = 0; a < v->actions; a++) {
            if (n[a] > 0) {
                is_chosen[k] = by_q[s] == (int)a;
                relative[k++] = (double)n[a] * logged / total;
            }
        }
    }
    *out = rank_spearman(is_chosen, relative, k);
    free(is_chosen);
    free(relative);
    return CKVC_OK;
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

static bool constant(const side_view *v, size_t state, const double *values) {
    double lo = INFINITY, hi = -INFINITY;
    for (size_t a = 0; a < v->actions; a++) {
        if (v->n[state * v->actions + a]) {
            lo = fmin(lo, values[state * v->actions + a]);
            hi = fmax(hi, values[state * v->actions + a]);
        }
    }
    return !(hi - lo > 1e-9); /* the tie width of extraction */
}

/* Gate choices: that the loss part alone would make too, and those where it is the same for all
 * actions. */
typedef struct split {
    size_t supported, by_loss, flat;
} split;

static split sum_of(const split *cells, size_t n) {
    split all = {0, 0, 0};
    for (size_t i = 0; i < n; i++) {
        all.supported += cells[i].supported;
        all.by_loss += cells[i].by_loss;
        all.flat += cells[i].flat;
    }
    return all;
}

/* One budget: shares, and numbers of layers per cell [E][P]. */
static json_t *split_json(const side_view *v, const split *of) {
    split all = sum_of(of, v->entropy * v->perplexity);
    json_t *cells = json_array();
    for (size_t e = 0; e < v->entropy; e++) {
        json_t *row = json_array();
        for (size_t p = 0; p < v->perplexity; p++) {
            const split *cell = &of[e * v->perplexity + p];
            json_array_append_new(row, json_pack("{s:I, s:I, s:I, s:I}", "supported",
                                                 (json_int_t)cell->supported, "by_loss",
                                                 (json_int_t)cell->by_loss, "by_penalty",
                                                 (json_int_t)(cell->supported - cell->by_loss),
                                                 "loss_flat", (json_int_t)cell->flat));
        }
        json_array_append_new(cells, row);
    }
    double n = (double)all.supported;
    return json_pack("{s:I, s:o, s:o, s:o, s:o}", "supported", (json_int_t)all.supported, "by_loss",
                     ckvc_json_real((double)all.by_loss / n), "by_penalty",
                     ckvc_json_real(1 - (double)all.by_loss / n), "loss_flat",
                     ckvc_json_real((double)all.flat / n), "cells", cells);
}

static ckvc_status side_json(const side_view *v, json_t **out, ckvc_err *err) {
    uint64_t *totals = ckvc_calloc(v->states + 1, sizeof *totals);
    double *logged = ckvc_calloc(v->actions, sizeof *logged),
           *chosen = ckvc_calloc(v->actions, sizeof *chosen);
    double *row = ckvc_calloc(v->actions, sizeof *row), correlation = NAN;
    int *choice = ckvc_alloc(v->states, sizeof *choice);
    size_t cells = v->entropy * v->perplexity;
    split *splits = ckvc_calloc(v->budgets * cells, sizeof *splits);
    json_t *loss_states = json_array(), *flat_states = json_array();
    ckvc_status rc = CKVC_OK;
    size_t supported = 0, decided = 0;
    double percentile = 0, stability = 0, records = 0;
    for (size_t s = 0; s < v->states; s++) {
        uint64_t total = 0;
        choice[s] = -1;
        for (size_t a = 0; a < v->actions; a++) {
            total += v->n[s * v->actions + a];
            logged[a] += (double)v->n[s * v->actions + a];
        }
        json_array_append_new(loss_states, json_null());
        json_array_append_new(flat_states, json_null());
        if (total == 0) { continue; }
        totals[supported++] = total;
        records += (double)total;
        masked(v, s, v->q, row);
        int by_q = choose(v, row);
        masked(v, s, v->mean, row);
        int by_mean = choose(v, row);
        if (by_q < 0) { continue; }
        choice[s] = by_q;
        chosen[by_q]++;
        decided += by_q != by_mean;
        percentile += count_percentile(v->n + s * v->actions, v->actions, by_q);
        if (v->share) { stability += v->share[s * v->actions + (size_t)by_q]; }
        if (v->part) {
            bool same = by_q == choose_by_loss(v, s, row), flat = constant(v, s, v->part);
            split *of = &splits[s % v->budgets * cells + s / v->budgets % cells];
            of->supported++;
            of->by_loss += same;
            of->flat += flat;
            json_array_set_new(loss_states, s, json_boolean(same));
            json_array_set_new(flat_states, s, json_boolean(flat));
        }
    }
    if ((rc = count_correlation(v, choice, &correlation, err))) { goto done; }
    qsort(totals, supported, sizeof *totals, ckvc_order_u64);
    double n = (double)supported;
    json_t *o = json_object(), *per_state = json_object();
    json_object_set_new(o, "states", json_integer((json_int_t)v->states));
    json_object_set_new(o, "supported", json_integer((json_int_t)supported));
    json_object_set_new(o, "records", json_integer((json_int_t)records));
    json_object_set_new(per_state, "min",
                        supported ? json_integer((json_int_t)totals[0]) : json_null());
    double median =
        supported ? ((double)totals[(supported - 1) / 2] + (double)totals[supported / 2]) / 2 : NAN;
    json_object_set_new(per_state, "median", ckvc_json_real(median));
    json_object_set_new(per_state, "mean", ckvc_json_real(records / n));
    json_object_set_new(per_state, "max",
                        supported ? json_integer((json_int_t)totals[supported - 1]) : json_null());
    json_object_set_new(o, "records_per_supported_state", per_state);
    json_object_set_new(o, "action", ckvc_json_reals(v->grid, v->actions));
    json_object_set_new(o, "logged", ckvc_json_reals(logged, v->actions));
    json_object_set_new(o, "chosen", ckvc_json_reals(chosen, v->actions));
    json_object_set_new(o, "alpha_decided", ckvc_json_real((double)decided / n));
    json_object_set_new(o, "count_correlation", ckvc_json_real(correlation));
    json_object_set_new(o, "count_percentile", ckvc_json_real(percentile / n));
    json_object_set_new(o, "choice_stability", ckvc_json_real(v->share ? stability / n : NAN));
    if (v->part) {
        json_t *by_budget = json_array();
        for (size_t b = 0; b < v->budgets; b++) {
            json_array_append_new(by_budget, split_json(v, splits + b * cells));
        }
        split all = sum_of(splits, v->budgets * cells);
        json_object_set_new(o, "budgets", by_budget);
        json_object_set_new(
            o, "entries",
            json_pack("{s:O, s:O}", "by_loss", loss_states, "loss_flat", flat_states));
        json_object_set_new(o, "by_loss", ckvc_json_real((double)all.by_loss / n));
        json_object_set_new(o, "by_penalty",
                            ckvc_json_real(n > 0 ? 1 - (double)all.by_loss / n : NAN));
        json_object_set_new(o, "loss_flat", ckvc_json_real((double)all.flat / n));
    }
    *out = o;
done:
    free(totals);
    free(logged);
    free(chosen);
    free(row);
    free(choice);
    free(splits);
    json_decref(loss_states);
    json_decref(flat_states);
    return rc;
}

static ckvc_status evidence_json(const report_table *t, json_t **out, ckvc_err *err) {
    const ckvc_table *k = t->f->table;
    *out = json_null();
    if (!t->f->has_evidence) { return CKVC_OK; }
    /* cql_alpha is META's; a table without it cannot tell the loss part's own choice: the plain
     * mean stands in. */
    double alpha = report_num(t->f->meta, "cql_alpha");
    alpha = isfinite(alpha) && alpha >= 0 ? alpha : 0;
    json_auto_t *sides = json_object();
    for (int s = 0; s < CKVC_SIDE_COUNT; s++) {
        const bool gate = s == CKVC_SIDE_GATE;
        const table_side shape = table_side_of(k, (ckvc_side)s);
        const table_evidence *e = &t->f->evidence[s];
        side_view v = {shape.n_entries,
                       shape.n_actions,
                       gate ? k->n_entropy_bins : 0,
                       gate ? k->n_ppl_bins : 0,
                       k->n_budgets,
                       shape.grid,
                       e->q,
                       e->m,
                       e->l,
                       e->n,
                       e->share,
                       alpha};
        json_t *o = NULL;
        CKVC_TRY(side_json(&v, &o, err));
        json_object_set_new(sides, ckvc_side_name((ckvc_side)s), o);
    }
    *out = ckvc_take(&sides);
    return CKVC_OK;
}

ckvc_status report_tables_json(report *r, ckvc_err *err) {
    json_t *list = json_array();
    json_object_set_new(r->json, "tables", list);
    for (size_t i = 0; i < r->n_tables; i++) {
        const report_table *t = &r->tables[i];
        const ckvc_table *k = t->f->table;
        json_t *o = json_object(), *shape = json_object(), *weights = json_array(),
               *gates = json_array(), *evidence = NULL;
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
        ckvc_status rc = evidence_json(t, &evidence, err);
        json_object_set_new(o, "evidence", evidence ? evidence : json_null());
        if (t->f->xfer) { json_object_set(o, "transfer", t->f->xfer); }
        if (rc) { return rc; }
    }
    return CKVC_OK;
}
