/* From a table to another model's: see transfer_table.h. The arithmetic is
 * cql/transfer/transfer.c's. */
#include "cql/transfer/transfer_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cql/fit/head_signature.h"
#include "calib/prompt/sample.h"
#include "cql/transfer/transfer.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/status.h"

typedef struct mapping {
    const table_file *from;
    const char *where; /* the source's file */
    const transfer_options *o;
    transfer_target to;
    head_signature scan; /* values NULL: no scan */
    transfer_pairing pairing;
    double agreement; /* rank: of weights with spread in the source, NaN: not known */
    table_file *out;
} mapping;

static const char *heads_name(transfer_heads_kind kind) {
    static const char *const names[] = {"index", "rank", "signature"};
    return names[kind];
}

/* ---- what may be mapped ---- */

/* Refused, or with force said and done. */
static ckvc_status doubtful(const mapping *m, const char *text, ckvc_err *err) {
    if (m->o->force) {
        ckvc_warn("%s: %s", m->where, text);
        return CKVC_OK;
    }
    return ckvc_fail(err, CKVC_E_MISMATCH, "%s: %s; --force-mapping maps it all the same", m->where,
                     text);
}

static ckvc_status check_scan(mapping *m, ckvc_err *err) {
    const shard_header *h = &m->scan.h;
    char text[512];
    const ckvc_table *t = m->from->table;
    const char *cql_alpha = json_string_value(json_object_get(m->from->meta, "alpha_kind"));
    uint32_t heads = t->head_axis ? h->n_heads : h->n_kv_heads;
    if (m->to.n_layers != h->n_layers || m->to.n_heads != heads) {
        return ckvc_fail(err, CKVC_E_MISMATCH,
                         "%s: scanned a model of %u layers x %u heads, the target has %u x %u",
                         run_path(m->o->scan), h->n_layers, heads, m->to.n_layers, m->to.n_heads);
    }
    ckvc_status st = CKVC_OK;
    if (h->window != t->window) {
        snprintf(text, sizeof text, "its window is %u, the target's scan has --window %u",
                 t->window, h->window);
        st = doubtful(m, text, err);
    }
    if (st == CKVC_OK && cql_alpha && strcmp(cql_alpha, h->alpha_kind) != 0) {
        snprintf(text, sizeof text, "was made with --alpha %.32s, the target's scan with %.32s",
                 cql_alpha, h->alpha_kind);
        st = doubtful(m, text, err);
    }
    return st;
}

static ckvc_status check_source(mapping *m, ckvc_err *err) {
    const transfer_options *o = m->o;
    bool own = m->from->signature != NULL;
    if (m->from->table->head_axis != 0) {
        if (o->heads != TRANSFER_INDEX) {
            return ckvc_fail(
                err, CKVC_E_MISMATCH,
                "%s: is of query heads; statistics of heads are of KV heads: only --heads index",
                m->where);
        }
        return doubtful(m, "is of query heads, this program's models are read by KV heads", err);
    }
    if (o->heads != TRANSFER_INDEX && !o->scan) {
        return ckvc_fail(err, CKVC_E_USAGE,
                         "--heads %s needs --scan RUN: the statistics of the target's heads",
                         heads_name(o->heads));
    }
    if (o->heads == TRANSFER_SIGNATURE && !own) {
        return ckvc_fail(err, CKVC_E_MISMATCH,
                         "%s: has no statistics of its own heads (hSIG), which a fit takes from "
                         "its runs' scans; --heads index or rank",
                         m->where);
    }
    if (o->heads == TRANSFER_RANK && !own) {
        return doubtful(m,
                        "has no statistics of its own heads (hSIG): whether its weights rise with "
                        "the spread of value norms is not known",
                        err);
    }
    return CKVC_OK;
}

/* ---- values ---- */

static ckvc_status map_weights(mapping *m, uint32_t *source, uint32_t *target, ckvc_err *err) {
    const ckvc_table *from = m->from->table;
    ckvc_table *to = m->out->table;
    uint32_t L = from->n_layers, G = from->n_heads, L2 = to->n_layers, G2 = to->n_heads,
             nB = from->n_budgets;
    double *spread = NULL, sum = 0, n = 0;
    ckvc_status st = CKVC_OK;
    m->agreement = NAN;
    if (m->o->heads == TRANSFER_RANK) {
        size_t most = (size_t)L * G > (size_t)L2 * G2 ? (size_t)L * G : (size_t)L2 * G2;
        spread = ckvc_alloc(most, sizeof *spread);
    } else if (m->o->heads == TRANSFER_SIGNATURE) {
        m->pairing = (transfer_pairing){.L = L, .G = G, .L2 = L2, .G2 = G2};
        st = transfer_pair(&m->pairing, m->from->signature, m->scan.values, err);
    }
    for (uint32_t b = 0; b < nB && st == CKVC_OK; b++) {
        for (size_t i = 0; i < (size_t)L * G; i++) {
            source[i] = (uint32_t)ckvc_grid_index(from->head_grid, from->n_head_actions,
                                                  from->weight[i * nB + b]);
        }
        if (m->o->heads == TRANSFER_INDEX) {
            transfer_heads(L, G, source, L2, G2, target);
        } else if (m->o->heads == TRANSFER_SIGNATURE) {
            transfer_heads_paired(&m->pairing, source, target);
        } else {
            for (size_t i = 0; m->from->signature && i < (size_t)L * G; i++) {
                spread[i] = m->from->signature[i * TRANSFER_STATS];
            }
            double rho = m->from->signature ? transfer_rank_agreement(L, G, source, spread) : NAN;
            sum += isnan(rho) ? 0 : rho;
            n += !isnan(rho);
            for (size_t i = 0; i < (size_t)L2 * G2; i++) {
                spread[i] = m->scan.values[i * TRANSFER_STATS];
            }
            transfer_heads_rank(L, G, source, L2, G2, spread, target);
        }
        for (size_t i = 0; i < (size_t)L2 * G2 && st == CKVC_OK; i++) {
            to->weight[i * nB + b] = (float)to->head_grid[target[i]];
        }
    }
    free(spread);
    m->agreement = n > 0 ? sum / n : NAN;
    if (st == CKVC_OK && m->agreement < 0) {
        ckvc_warn("%s: its weights fall with the spread of value norms (Spearman %.2f, mean over "
                  "layers); --heads rank gives the larger "
                  "weights to the wider heads all the same",
                  m->where, m->agreement);
    }
    return st;
}

static ckvc_status map_values(mapping *m, ckvc_err *err) {
    const ckvc_table *from = m->from->table;
    ckvc_table *to = m->out->table;
    size_t cells = ckvc_tau_index(from, 1, 0, 0, 0), n_source = cells * from->n_layers,
           n_target = cells * to->n_layers;
    size_t heads = (size_t)from->n_layers * from->n_heads,
           heads2 = (size_t)to->n_layers * to->n_heads;
    n_source = n_source > heads ? n_source : heads;
    n_target = n_target > heads2 ? n_target : heads2;
    uint32_t *source = ckvc_alloc(n_source, sizeof *source),
             *target = ckvc_alloc(n_target, sizeof *target);
    ckvc_status st = CKVC_OK;
    if (!source || !target || cells > UINT32_MAX) {
        st = ckvc_fail_memory(err, "transferring a table", (n_source + n_target) * sizeof *source);
        goto done;
    }
    memcpy(to->budgets, from->budgets, from->n_budgets * sizeof *to->budgets);
    memcpy(to->head_grid, from->head_grid, from->n_head_actions * sizeof *to->head_grid);
    memcpy(to->gate_grid, from->gate_grid, from->n_gate_actions * sizeof *to->gate_grid);
    memcpy(to->edges_entropy, from->edges_entropy,
           (from->n_entropy_bins - 1) * sizeof *to->edges_entropy);
    memcpy(to->edges_ppl, from->edges_ppl, (from->n_ppl_bins - 1) * sizeof *to->edges_ppl);
    if (m->o->scan) { /* bins carry over by quantile */
        scanned prompts;
        st = scanned_read(m->o->scan, &prompts, err);
        if (st == CKVC_OK) {
            const risk_edges edges = {to->n_entropy_bins, to->n_ppl_bins, to->edges_entropy,
                                      to->edges_ppl};
            st = scanned_edges(&prompts, m->o->scan, EDGES_QUANTILE, &edges, err);
            scanned_fini(&prompts);
        }
    }
    if (st == CKVC_OK) { st = map_weights(m, source, target, err); }
    for (size_t i = 0; i < cells * from->n_layers && st == CKVC_OK; i++) {
        source[i] = (uint32_t)ckvc_grid_index(from->gate_grid, from->n_gate_actions, from->tau[i]);
    }
    if (st == CKVC_OK) {
        transfer_heads(from->n_layers, (uint32_t)cells, source, to->n_layers, (uint32_t)cells,
                       target);
        for (size_t i = 0; i < cells * to->n_layers; i++) {
            to->tau[i] = (float)to->gate_grid[target[i]];
        }
    }
done:
    free(source);
    free(target);
    return st;
}

/* ---- what it says of itself ---- */

/* [{"cost":…,"heads":[…],"layer":…} …], the nearest source layer's pairing of each target layer. */
static json_t *pairing_json(const transfer_pairing *p) {
    json_t *list = json_array();
    for (uint32_t l2 = 0; l2 < p->L2; l2++) {
        const uint32_t *heads;
        uint32_t layer = transfer_nearest(p, l2, &heads);
        json_array_append_new(list, json_pack("{s:I, s:o, s:f}", "layer", (json_int_t)layer,
                                              "heads", ckvc_json_u32s(heads, p->G2),
                                              "mean_squared_distance", p->cost[l2]));
    }
    if (json_array_size(list) != p->L2) {
        json_decref(list);
        return NULL;
    }
    return list;
}

static int add_scan_facts(const mapping *m, json_t *xfer) {
    int bad =
        json_object_set_new(xfer, "edges", json_string("target-scan-quantiles")) |
        json_object_set_new(xfer, "scan", json_string(run_plan_hash(m->o->scan))) |
        json_object_set_new(xfer, "scan_prompts", json_integer((json_int_t)m->scan.n_prompts)) |
        json_object_set_new(xfer, "target_fingerprint", json_string(m->scan.h.fingerprint));
    if (m->o->heads == TRANSFER_SIGNATURE) {
        bad |= json_object_set_new(xfer, "pairing", pairing_json(&m->pairing));
    }
    if (!isnan(m->agreement)) {
        bad |= json_object_set_new(xfer, "rank_agreement_in_source", json_real(m->agreement));
    }
    return bad;
}

/* META of the new table: what the source was made with, but of the target; what the fit found out
 * stays behind, since nothing was fitted here. */
static ckvc_status describe_transfer(mapping *m, ckvc_err *err) {
    table_file *out = m->out;
    const ckvc_table *s = m->from->table;
    const transfer_target *to = &m->to;
    json_decref(out->meta);
    out->meta = json_deep_copy(m->from->meta);
    json_t *source_fingerprint = json_object_get(m->from->meta, "fingerprint");
    json_t *source_model = json_object_get(m->from->meta, "model_name");
    out->xfer = json_pack(
        "{s:s, s:O?, s:O?, s:n, s:s?, s:[I,I], s:[I,I], s:s, s:s, s:s, s:s}", "source",
        m->from->content_id, "source_fingerprint", source_fingerprint, "source_model", source_model,
        "target_fingerprint", "target_model", to->model_name, "source_shape",
        (json_int_t)s->n_layers, (json_int_t)s->n_heads, "target_shape", (json_int_t)to->n_layers,
        (json_int_t)to->n_heads, "layers", "relative-depth", "heads", heads_name(m->o->heads),
        "edges", "source", "rounding", "action-index-half-down");
    if (!out->meta || !out->xfer ||
        json_object_update_new(
            out->meta, json_pack("{s:s?, s:s?, s:n, s:s}", "model_name", to->model_name, "family",
                                 to->family, "fingerprint", "source", m->from->content_id)) ||
        (m->o->scan &&
         (json_object_set_new(out->meta, "fingerprint", json_string(m->scan.h.fingerprint)) ||
          add_scan_facts(m, out->xfer)))) {
        return ckvc_fail_memory(err, "describing a transfer", 0);
    }
    static const char *const of_the_fit[] = {"diagnostics", "counts", "unsupported",
                                             "until_stable"};
    for (size_t i = 0; i < sizeof of_the_fit / sizeof *of_the_fit; i++) {
        json_object_del(out->meta, of_the_fit[i]);
    }
    json_object_del(json_object_get(out->meta, "solver"), "certificate");
    if (to->n_layers != s->n_layers) {
        json_object_del(out->meta, "layer_budgets"); /* one a layer of the source */
    }
    if (s->head_axis == 0) { /* the target's own: it can be a source again */
        out->signature = m->scan.values;
        m->scan.values = NULL;
    }
    return CKVC_OK;
}

/* ---- the whole ---- */

static ckvc_status map_table(mapping *m, ckvc_err *err) {
    const ckvc_table *s = m->from->table;
    const transfer_target *to = &m->to;
    uint64_t n_values =
        to->n_layers * ((uint64_t)to->n_heads * s->n_budgets + ckvc_tau_index(s, 1, 0, 0, 0));
    if (n_values > CKVC_TABLE_MAX_BYTES / sizeof(float)) {
        return ckvc_fail(err, CKVC_E_USAGE,
                         "a table of %u layers and %u heads would be over the format's %llu bytes",
                         to->n_layers, to->n_heads, (unsigned long long)CKVC_TABLE_MAX_BYTES);
    }
    m->out = table_file_create(to->n_layers, to->n_heads, s->n_entropy_bins, s->n_ppl_bins,
                               s->n_budgets, s->n_head_actions, s->n_gate_actions, false);
    if (!m->out) { return ckvc_fail_memory(err, "a table", 0); }
    m->out->table->n_query_heads = to->n_query_heads;
    m->out->table->window = s->window;
    m->out->table->head_axis = s->head_axis;
    m->out->table->op = s->op;
    ckvc_status st = map_values(m, err);
    return st == CKVC_OK ? describe_transfer(m, err) : st;
}

ckvc_status transfer_table(const table_file *from, const char *where, const transfer_target *target,
                           const transfer_options *o, table_file **out, ckvc_err *err) {
    mapping m = {.from = from, .where = where, .o = o};
    ckvc_status st = check_source(&m, err);
    if (st == CKVC_OK && o->scan) { st = head_signature_read(o->scan, &m.scan, err); }
    const shard_header *h = &m.scan.h;
    if (st == CKVC_OK && o->scan) {
        m.to = (transfer_target){h->n_layers, from->table->head_axis ? h->n_heads : h->n_kv_heads,
                                 h->n_heads, h->model_name, h->family};
    }
    if (st == CKVC_OK && target) {
        m.to = *target;
        if (o->scan && !target->model_name) {
            m.to.n_query_heads = h->n_heads;
            m.to.model_name = h->model_name;
            m.to.family = h->family;
        }
    }
    if (st == CKVC_OK && o->scan) { st = check_scan(&m, err); }
    if (st == CKVC_OK) { st = map_table(&m, err); }
    head_signature_fini(&m.scan);
    transfer_pairing_fini(&m.pairing);
    *out = m.out;
    if (st != CKVC_OK) {
        table_file_free(m.out);
        *out = NULL;
    }
    return st;
}
