/* Two tables against each other: rank agreement of head weights, agreement of thresholds where both
 * have records. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cql/stats/rank.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "report/report_internal.h"

static json_t *head_json(const report *r, const ckvc_table *x, const ckvc_table *y, size_t bx,
                         size_t by, double *vx, double *vy) {
    size_t n = (size_t)x->n_layers * x->n_heads, equal = 0;
    double difference = 0;
    for (size_t i = 0; i < n; i++) {
        int ax = ckvc_grid_index(x->head_grid, x->n_head_actions, x->weight[i * x->n_budgets + bx]);
        int ay = ckvc_grid_index(y->head_grid, y->n_head_actions, y->weight[i * y->n_budgets + by]);
        vx[i] = ax >= 0 ? x->head_grid[ax] : NAN;
        vy[i] = ay >= 0 ? y->head_grid[ay] : NAN;
        equal += vx[i] == vy[i];
        difference += fabs(vx[i] - vy[i]);
    }
    rank_layers ranks;
    size_t bins = r->o->layer_bins < x->n_layers ? r->o->layer_bins : x->n_layers;
    rank_by_layer(vx, vy, x->n_layers, x->n_heads, bins, &ranks);
    json_t *o = json_object(), *ends = json_array();
    for (size_t i = 0, first = 0; i < bins; i++) {
        size_t size = rank_bin_size(x->n_layers, bins, i);
        json_array_append_new(
            ends, json_pack("[I,I]", (json_int_t)first, (json_int_t)(first + size - 1)));
        first += size;
    }
    json_object_set_new(o, "budget", ckvc_json_real(x->budgets[bx]));
    json_object_set_new(o, "overall", ckvc_json_real(ranks.overall));
    json_object_set_new(o, "bins", ckvc_json_reals(ranks.bins, bins));
    json_object_set_new(o, "bin_layers", ends);
    json_object_set_new(o, "bin_mean", ckvc_json_real(ranks.bin_mean));
    json_object_set_new(o, "bin_min", ckvc_json_real(ranks.bin_min));
    json_object_set_new(o, "n", json_integer((json_int_t)n));
    json_object_set_new(o, "share_equal", ckvc_json_real((double)equal / (double)n));
    json_object_set_new(o, "mean_abs_difference", ckvc_json_real(difference / (double)n));
    return o;
}

/* True when the gate can change what is kept for this layer and cell, on some prompt of the runs of
 * the table's gate. */
bool report_binds(const report *r, const report_table *t, size_t b, size_t l, size_t e, size_t p) {
    const ckvc_table *k = t->f->table;
    for (size_t n = 0; n < t->n_runs; n++) {
        const report_run *run = &r->runs[t->runs[n]];
        const shard_header *h = &run->h;
        bool same = h->n_layers == k->n_layers && h->n_entropy_bins == k->n_entropy_bins &&
                    h->n_ppl_bins == k->n_ppl_bins;
        for (size_t i = 0; same && report_gate_from(r, t, t->runs[n]) && i < h->n_budgets; i++) {
            if (h->budgets[i] == k->budgets[b] &&
                run->cells[report_cell(h, i, l, e, p)].differ > 0) {
                return true;
            }
        }
    }
    return false;
}

static json_t *gate_cells(const report *r, const report_table *tx, const report_table *ty,
                          size_t bx, size_t by, bool binding, double *vx, double *vy) {
    const ckvc_table *x = tx->f->table, *y = ty->f->table;
    size_t n = 0, equal = 0;
    double difference = 0;
    for (uint32_t l = 0; l < x->n_layers; l++) {
        for (uint32_t e = 0; e < x->n_entropy_bins; e++) {
            for (uint32_t p = 0; p < x->n_ppl_bins; p++) {
                if (!report_gate_supported(tx, l, e, p, bx) ||
                    !report_gate_supported(ty, l, e, p, by) ||
                    (binding &&
                     !(report_binds(r, tx, bx, l, e, p) && report_binds(r, ty, by, l, e, p)))) {
                    continue;
                }
                int ax = ckvc_grid_index(x->gate_grid, x->n_gate_actions,
                                         x->tau[ckvc_tau_index(x, l, e, p, (uint32_t)bx)]);
                int ay = ckvc_grid_index(y->gate_grid, y->n_gate_actions,
                                         y->tau[ckvc_tau_index(y, l, e, p, (uint32_t)by)]);
                vx[n] = ax >= 0 ? x->gate_grid[ax] : NAN;
                vy[n] = ay >= 0 ? y->gate_grid[ay] : NAN;
                equal += vx[n] == vy[n];
                difference += fabs(vx[n] - vy[n]);
                n++;
            }
        }
    }
    json_t *o = json_object();
    json_object_set_new(o, "cells", json_integer((json_int_t)n));
    json_object_set_new(o, "share_equal", ckvc_json_real(n ? (double)equal / (double)n : NAN));
    json_object_set_new(o, "mean_abs_difference", ckvc_json_real(n ? difference / (double)n : NAN));
    json_object_set_new(o, "spearman", ckvc_json_real(rank_spearman(vx, vy, n)));
    return o;
}

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

static ckvc_status pair_json(report *r, size_t a, size_t b, json_t *o, ckvc_err *err) {
    const report_table *tx = &r->tables[a], *ty = &r->tables[b];
    const ckvc_table *x = tx->f->table, *y = ty->f->table;
    json_object_set_new(o, "a", json_string(tx->tag));
    json_object_set_new(o, "b", json_string(ty->tag));
    const char *reason = why_not(x, y);
    json_object_set_new(o, "not_compared", reason ? json_string(reason) : json_null());
    json_object_set_new(o, "same_model",
                        json_boolean(strcmp(report_str(tx->f->meta, "fingerprint"),
                                            report_str(ty->f->meta, "fingerprint")) == 0));
    if (reason) { return CKVC_OK; }
    bool same_cells = x->n_entropy_bins == y->n_entropy_bins && x->n_ppl_bins == y->n_ppl_bins;
    size_t heads = (size_t)x->n_layers * x->n_heads,
           cells = (size_t)x->n_layers * x->n_entropy_bins * x->n_ppl_bins;
    size_t n = heads > cells ? heads : cells;
    double *vx = ckvc_alloc(n, sizeof *vx), *vy = ckvc_alloc(n, sizeof *vy);
    json_t *head = json_array(), *gate = json_array();
    for (size_t i = 0; i < x->n_budgets; i++) {
        for (size_t k = 0; k < y->n_budgets; k++) {
            if (x->budgets[i] != y->budgets[k]) { continue; }
            json_array_append_new(head, head_json(r, x, y, i, k, vx, vy));
            if (same_cells) {
                json_t *g = gate_cells(r, tx, ty, i, k, false, vx, vy);
                json_object_set_new(g, "budget", ckvc_json_real(x->budgets[i]));
                json_object_set_new(g, "binding",
                                    tx->n_runs && ty->n_runs
                                        ? gate_cells(r, tx, ty, i, k, true, vx, vy)
                                        : json_null());
                json_array_append_new(gate, g);
            }
        }
    }
    free(vx);
    free(vy);
    json_object_set_new(o, "head", head);
    json_object_set_new(o, "gate", gate);
    json_object_set_new(
        o, "same_edges",
        json_boolean(same_cells &&
                     same_reals(x->edges_entropy, y->edges_entropy, x->n_entropy_bins - 1,
                                y->n_entropy_bins - 1) &&
                     same_reals(x->edges_ppl, y->edges_ppl, x->n_ppl_bins - 1, y->n_ppl_bins - 1)));
    return report_refit(r, a, b, head, gate, err);
}

ckvc_status report_pairs_json(report *r, ckvc_err *err) {
    json_t *list = json_array();
    json_object_set_new(r->json, "pairs", list);
    for (size_t a = 0; a < r->n_tables; a++) {
        for (size_t b = a + 1; b < r->n_tables; b++) {
            json_t *o = json_object();
            json_array_append_new(list, o);
            ckvc_status rc = pair_json(r, a, b, o, err);
            if (rc) { return rc; }
        }
    }
    return CKVC_OK;
}
