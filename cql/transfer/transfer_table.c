/* Maps a table to another model: see transfer_table.h. The arithmetic is in
 * cql/transfer/transfer.c. */
#include "cql/transfer/transfer_table.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "formats/run/prompt_records.h"
#include "lib/stats/rank.h"
#include "cql/transfer/transfer.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/status.h"

typedef struct mapping {
    const table_file *from;
    const char *where; /* the source's file */
    const transfer_options *o;
    transfer_target to;
    head_signature scan; /* its values are NULL without a scan */
    transfer_pairing pairing;
    /* For `rank`: the spread of the source's heads (NULL: not known), and of the target's. */
    double *own, *theirs;
    /* For `rank`: how weights, and how shares, agree with the spread in the source; NaN: not known.
     */
    double agreement, share_agreement;
    table_file *out;
} mapping;

static const char *transfer_heads_name(transfer_heads_kind kind) {
    static const char *const names[] = {"index", "rank", "signature"};
    return names[kind];
}

/* ---- what may be mapped ---- */

/* Returns an error, or with `force` warns and goes on. */
static ckvc_status refuse_or_warn(const mapping *m, const char *text, ckvc_err *err) {
    if (m->o->force) {
        ckvc_warn("%s: %s", m->where, text);
        return CKVC_OK;
    }
    return ckvc_fail(err, CKVC_E_MISMATCH, "%s: %s; --force-mapping maps it all the same", m->where,
                     text);
}

static ckvc_status check_scan(mapping *m, ckvc_err *err) {
    const shard_header *h = &m->scan.h;
    const ckvc_table *t = m->from->table;
    uint32_t heads = t->head_axis ? h->n_heads : h->n_kv_heads;
    CKVC_FAIL_IF(m->to.n_layers != h->n_layers || m->to.n_heads != heads, err, CKVC_E_MISMATCH,
                 "%s: scanned a model of %u layers x %u heads, the target has %u x %u",
                 run_path(m->o->scan), h->n_layers, heads, m->to.n_layers, m->to.n_heads);
    const setting made = setting_of_table(t, m->from->meta);
    ckvc_err why = {0};
    return setting_match(&made, NULL, &h->setting, "the target's scan", SETTING_ATTENTION, NULL,
                         &why) == CKVC_OK
               ? CKVC_OK
               : refuse_or_warn(m, why.text, err);
}

static ckvc_status check_source(mapping *m, ckvc_err *err) {
    const transfer_options *o = m->o;
    bool own = m->from->signature != NULL;
    if (m->from->table->head_axis != 0) {
        CKVC_FAIL_IF(o->heads != TRANSFER_INDEX, err, CKVC_E_MISMATCH,
                     "%s: has query heads on its head axis, and statistics are of KV heads: use "
                     "--heads index",
                     m->where);
        return refuse_or_warn(m, "is of query heads, this program's models are read by KV heads",
                              err);
    }
    CKVC_FAIL_IF(o->heads != TRANSFER_INDEX && !o->scan, err, CKVC_E_USAGE,
                 "--heads %s needs --scan RUN: the statistics of the target's heads",
                 transfer_heads_name(o->heads));
    CKVC_FAIL_IF(o->heads == TRANSFER_SIGNATURE && !own, err, CKVC_E_MISMATCH,
                 "%s: has no statistics of its own heads (hSIG), which a fit takes from "
                 "its runs' scans or demand passes; --heads index or rank",
                 m->where);
    if (o->heads == TRANSFER_RANK && !own) {
        return refuse_or_warn(
            m,
            "has no statistics of its own heads (hSIG): whether its weights rise with "
            "the spread of value norms is not known",
            err);
    }
    return CKVC_OK;
}

/* ---- values ---- */

/* Returns the spread of value norms [heads] from statistics [heads][3]. */
static double *value_norm_spreads(const double *signature, size_t heads) {
    double *spread = ckvc_alloc(heads, sizeof *spread);
    for (size_t i = 0; i < heads; i++) { spread[i] = signature[i * TRANSFER_STATS]; }
    return spread;
}

/* read_actions reads the actions of one side's entries: every `step`-th entry from `from` on.
 * write_actions writes actions, rounded, into such entries. */
static void read_actions(const struct side *s, uint32_t from, uint32_t step, double *action) {
    for (size_t i = from; i < s->n_states; i += step) { *action++ = side_action(s, s->entries[i]); }
}

static void write_actions(const struct side *s, uint32_t from, uint32_t step,
                          const double *action) {
    for (size_t i = from; i < s->n_states; i += step) {
        s->entries[i] = (float)s->grid[transfer_index(*action++)];
    }
}

/* Prepares what --heads needs to know about the heads of both models. */
static ckvc_status prepare_heads(mapping *m, ckvc_err *err) {
    const ckvc_table *s = m->from->table, *t = m->out->table;
    const double *signature = m->from->signature;
    if (m->o->heads == TRANSFER_RANK) {
        m->own = signature ? value_norm_spreads(signature, (size_t)s->n_layers * s->n_heads) : NULL;
        m->theirs = value_norm_spreads(m->scan.values, (size_t)t->n_layers * t->n_heads);
    } else if (m->o->heads == TRANSFER_SIGNATURE) {
        m->pairing = (transfer_pairing){
            .L = s->n_layers, .G = s->n_heads, .L2 = t->n_layers, .G2 = t->n_heads};
        CKVC_TRY(transfer_pair(&m->pairing, signature, m->scan.values, err));
    }
    return CKVC_OK;
}

typedef struct mean_of {
    double sum, n;
} mean_of;

/* Maps one budget's values of heads, [L][G] -> [L2][G2]. Their agreement with the spread is added
 * to `agreement`. */
static void map_heads(const mapping *m, const double *source, double *target, mean_of *agreement) {
    const ckvc_table *s = m->from->table, *t = m->out->table;
    const uint32_t L = s->n_layers, G = s->n_heads, L2 = t->n_layers, G2 = t->n_heads;
    if (m->o->heads == TRANSFER_INDEX) {
        transfer_heads(L, G, source, L2, G2, target);
    } else if (m->o->heads == TRANSFER_SIGNATURE) {
        transfer_heads_paired(&m->pairing, source, target);
    } else {
        const double rho = m->own ? transfer_rank_agreement(L, G, source, m->own) : NAN;
        agreement->sum += isnan(rho) ? 0 : rho;
        agreement->n += !isnan(rho);
        transfer_heads_rank(L, G, source, L2, G2, m->theirs, target);
    }
}

static double agreement_of(const mapping *m, mean_of a, const char *what) {
    const double rho = a.n > 0 ? a.sum / a.n : NAN;
    if (rho < 0) {
        ckvc_warn("%s: its %s fall with the spread of value norms (Spearman %.2f, mean over "
                  "layers); --heads rank gives the larger %s to the wider heads all the same",
                  m->where, what, rho, what);
    }
    return rho;
}

/* read_shares reads one budget of shares [n][nB]. write_shares writes one, scaled so that its mean
 * is 1. */
static void read_shares(const double *from, size_t n, uint32_t nB, uint32_t b, double *share) {
    for (size_t i = 0; i < n; i++) { share[i] = from[i * nB + b]; }
}

static void write_shares(double *to, size_t n, uint32_t nB, uint32_t b, const double *share) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) { sum += share[i]; }
    for (size_t i = 0; i < n; i++) {
        to[i * nB + b] = sum > 0 ? share[i] / (sum / (double)n) : 1.0;
    }
}

/* A learned ranking does not carry over, because its features are coordinates of this model's keys.
 * A budget that recommended one gets the ranking that a fit recommends first. */
static void map_scores(const ckvc_table *s, ckvc_table *t) {
    memcpy(t->score, s->score, s->n_budgets * sizeof *t->score);
    for (uint32_t b = 0; b < t->n_budgets; b++) {
        ckvc_score *score = &t->score[b];
        const uint32_t mode = score->mode;
        score->features = 0;
        if (ckvc_score_learns(score->kind)) { *score = ckvc_default_score(CKVC_SCORE_WINDOW, 0); }
        score->mode = mode;
    }
}

/* Maps shares of layers by depth. */
static void map_layers(const mapping *m, const double *from, double *to) {
    const uint32_t L = m->from->table->n_layers, L2 = m->out->table->n_layers,
                   nB = m->from->table->n_budgets;
    CKVC_AUTO_FREE double *source = ckvc_alloc(L, sizeof *source);
    CKVC_AUTO_FREE double *target = ckvc_alloc(L2, sizeof *target);
    for (uint32_t b = 0; from && b < nB; b++) {
        read_shares(from, L, nB, b, source);
        transfer_heads(L, 1, source, L2, 1, target);
        write_shares(to, L2, nB, b, target);
    }
}

/* Maps the shares of heads as --heads says, and those of layers by depth. */
static void map_shares(mapping *m) {
    const ckvc_table *s = m->from->table;
    ckvc_table *t = m->out->table;
    const uint32_t nB = s->n_budgets;
    const size_t n = (size_t)s->n_layers * s->n_heads, n2 = (size_t)t->n_layers * t->n_heads;
    mean_of agreement = {0};
    if (!s->share) { return; }
    if (ckvc_table_add_shares(t, s->layer_share != NULL) ||
        (s->length_share && ckvc_table_add_lengths(t))) {
        ckvc_out_of_memory(n2 * nB, sizeof *t->share);
    }
    memcpy(t->c_min, s->c_min, nB * sizeof *t->c_min);
    map_scores(s, t);
    CKVC_AUTO_FREE double *source = ckvc_alloc(n, sizeof *source);
    CKVC_AUTO_FREE double *target = ckvc_alloc(n2, sizeof *target);
    for (uint32_t b = 0; b < nB; b++) {
        read_shares(s->share, n, nB, b, source);
        map_heads(m, source, target, &agreement);
        write_shares(t->share, n2, nB, b, target);
    }
    map_layers(m, s->layer_share, t->layer_share);
    map_layers(m, s->length_share, t->length_share);
    m->share_agreement = agreement_of(m, agreement, "shares");
}

/* Computes n_bins - 1 inner edges between bins of equal mass, because bins carry over by quantile.
 */
static void quantile_edges(const double *risk, size_t n, uint32_t n_bins, double *edges) {
    for (uint32_t i = 1; i < n_bins; i++) {
        const double share = (double)i / n_bins;
        rank_quantile(risk, n, &share, 1, &edges[i - 1]);
    }
}

static ckvc_status map_values(mapping *m, ckvc_err *err) {
    const ckvc_table *from = m->from->table;
    ckvc_table *to = m->out->table;
    memcpy(to->budgets, from->budgets, from->n_budgets * sizeof *to->budgets);
    if (m->o->scan) {
        quantile_edges(m->scan.r_struct, m->scan.n_prompts, to->n_entropy_bins, to->edges_entropy);
        quantile_edges(m->scan.r_sem, m->scan.n_prompts, to->n_ppl_bins, to->edges_ppl);
    } else {
        memcpy(to->edges_entropy, from->edges_entropy,
               (from->n_entropy_bins - 1) * sizeof *to->edges_entropy);
        memcpy(to->edges_ppl, from->edges_ppl, (from->n_ppl_bins - 1) * sizeof *to->edges_ppl);
    }
    CKVC_TRY(prepare_heads(m, err));
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        const struct side s = side_of_table(from, (ckvc_side)i),
                          t = side_of_table(to, (ckvc_side)i);
        CKVC_AUTO_FREE double *source = ckvc_alloc(s.n_states, sizeof *source);
        CKVC_AUTO_FREE double *target = ckvc_alloc(t.n_states, sizeof *target);
        mean_of agreement = {0};
        memcpy(t.grid, s.grid, s.actions.n * sizeof *t.grid);
        if (s.kind->axis == SIDE_OF_CELLS) {
            read_actions(&s, 0, 1, source);
            transfer_heads(s.L, s.X * s.nB, source, t.L, t.X * t.nB, target);
            write_actions(&t, 0, 1, target);
            continue;
        }
        for (uint32_t b = 0; b < s.nB; b++) {
            read_actions(&s, b, s.nB, source);
            map_heads(m, source, target, &agreement);
            write_actions(&t, b, t.nB, target);
        }
        m->agreement = agreement_of(m, agreement, "weights");
    }
    map_shares(m);
    return CKVC_OK;
}

/* ---- what it says of itself ---- */

/* Returns [{"heads":[...],"layer":...,"mean_squared_distance":...} ...], with the pairing of each
 * target layer with its nearest source layer. */
static json_t *pairing_json(const transfer_pairing *p) {
    json_t *list = json_array();
    for (uint32_t l2 = 0; l2 < p->L2; l2++) {
        const uint32_t *heads;
        uint32_t layer = transfer_nearest(p, l2, &heads);
        json_array_append_new(list, json_pack("{s:I, s:o, s:f}", "layer", (json_int_t)layer,
                                              "heads", ckvc_json_u32s(heads, p->G2),
                                              "mean_squared_distance", p->cost[l2]));
    }
    return list;
}

/* Writes META of the new table: what the source was made with, but with the target's names. What
 * the fit found out stays behind, since nothing was fitted here. */
static void describe_transfer(mapping *m) {
    static const char *const of_the_fit[] = {"diagnostics", "counts", "unsupported",
                                             "until_stable"};
    table_file *out = m->out;
    const ckvc_table *s = m->from->table;
    const transfer_target *to = &m->to;
    const char *fingerprint = m->o->scan ? m->scan.h.fingerprint : NULL;
    json_decref(out->meta);
    out->meta = json_deep_copy(m->from->meta);
    json_object_update_new(out->meta, json_pack("{s:s?, s:s?, s:s?, s:s}", "model_name",
                                                to->model_name, "family", to->family, "fingerprint",
                                                fingerprint, "source", m->from->content_id));
    table_file_set_sketch(out, m->o->scan ? m->scan.h.sketch : "");
    for (size_t i = 0; i < sizeof of_the_fit / sizeof *of_the_fit; i++) {
        json_object_del(out->meta, of_the_fit[i]);
    }
    json_object_del(json_object_get(out->meta, "solver"), "certificate");
    if (to->n_layers != s->n_layers) {
        /* these are one for each layer of the source */
        json_object_del(out->meta, "layer_budgets");
    }
    out->xfer = json_pack(
        "{s:s, s:O?, s:O?, s:s?, s:s?, s:[I,I], s:[I,I], s:s, s:s, s:s, s:s}", "source",
        m->from->content_id, "source_fingerprint", json_object_get(m->from->meta, "fingerprint"),
        "source_model", json_object_get(m->from->meta, "model_name"), "target_fingerprint",
        fingerprint, "target_model", to->model_name, "source_shape", (json_int_t)s->n_layers,
        (json_int_t)s->n_heads, "target_shape", (json_int_t)to->n_layers, (json_int_t)to->n_heads,
        "layers", "relative-depth", "heads", transfer_heads_name(m->o->heads), "edges",
        m->o->scan ? "target-scan-quantiles" : "source", "rounding", "action-index-half-down");
    if (m->o->scan) {
        json_object_set_new(out->xfer, "scan", json_string(run_plan_hash(m->o->scan)));
        json_object_set_new(out->xfer, "scan_prompts", json_integer((json_int_t)m->scan.n_prompts));
    }
    if (m->o->heads == TRANSFER_SIGNATURE) {
        json_object_set_new(out->xfer, "pairing", pairing_json(&m->pairing));
    }
    if (!isnan(m->agreement)) {
        json_object_set_new(out->xfer, "rank_agreement_in_source", json_real(m->agreement));
    }
    if (!isnan(m->share_agreement)) {
        json_object_set_new(out->xfer, "share_rank_agreement_in_source",
                            json_real(m->share_agreement));
    }
    /* these are the target's own, so that its table can be a source again */
    if (s->head_axis == 0) { out->signature = ckvc_take(&m->scan.values); }
}

/* ---- the whole ---- */

static ckvc_status create_target(mapping *m, ckvc_err *err) {
    const ckvc_table *s = m->from->table;
    const transfer_target *to = &m->to;
    const uint64_t n_values =
        to->n_layers * ((uint64_t)to->n_heads * s->n_budgets + ckvc_tau_index(s, 1, 0, 0, 0));
    if (n_values <= CKVC_TABLE_MAX_BYTES / sizeof(float)) {
        m->out = table_file_around(ckvc_table_create(to->n_layers, to->n_heads, s->n_entropy_bins,
                                                     s->n_ppl_bins, s->n_budgets, s->n_head_actions,
                                                     s->n_gate_actions),
                                   false);
    }
    CKVC_FAIL_IF(!m->out, err, CKVC_E_USAGE,
                 "a table of %u layers and %u heads would be over the format's %llu bytes",
                 to->n_layers, to->n_heads, (unsigned long long)CKVC_TABLE_MAX_BYTES);
    m->out->table->n_query_heads = to->n_query_heads;
    m->out->table->window = s->window;
    m->out->table->head_axis = s->head_axis;
    m->out->table->visible = s->visible;
    m->out->table->keep_window = s->keep_window;
    m->out->table->op = s->op;
    return CKVC_OK;
}

static void mapping_fini(mapping *m) {
    head_signature_fini(&m->scan);
    transfer_pairing_fini(&m->pairing);
    CKVC_FREE(m->own, m->theirs);
    table_file_free(m->out);
}

ckvc_status transfer_table(const table_file *from, const char *where, const transfer_target *target,
                           const transfer_options *o, table_file **out, ckvc_err *err) {
    CKVC_AUTO(mapping_fini)
    mapping m = {.from = from, .where = where, .o = o, .agreement = NAN, .share_agreement = NAN};
    const shard_header *h = &m.scan.h;
    *out = NULL;
    CKVC_TRY(check_source(&m, err));
    if (target) { m.to = *target; }
    if (o->scan) {
        CKVC_TRY(head_signature_read(o->scan, &m.scan, err));
        if (!target) {
            m.to.n_layers = h->n_layers;
            m.to.n_heads = from->table->head_axis ? h->n_heads : h->n_kv_heads;
        }
        if (!m.to.model_name) {
            m.to.n_query_heads = h->n_heads;
            m.to.model_name = h->model_name;
            m.to.family = h->family;
        }
        CKVC_TRY(check_scan(&m, err));
    }
    CKVC_TRY(create_target(&m, err));
    assert(m.out);
    CKVC_TRY(map_values(&m, err));
    describe_transfer(&m);
    *out = ckvc_take(&m.out);
    return CKVC_OK;
}
