/* From records to a table: pools, fits side by side, and says what it did. */
#include "cql/fit/fit_records.h"

#include <stdio.h>
#include <string.h>

#include "cql/fit/fit_meta.h"
#include "cql/fit/fit_side.h"
#include "lib/base/memory.h"

/* The table of --tables must be of the shards' model, score, grids, budgets and edges: its entries
 * stand in for cells without records. */
static ckvc_status check_incoming(const fit_pool *pool, const table_file *t, ckvc_err *err) {
    const ckvc_table *table = t->table;
    const json_t *fingerprint = json_object_get(t->meta, "fingerprint");
    const setting made = setting_of_table(table, t->meta), ours = shard_setting(&pool->first);
    CKVC_TRY(setting_match(&made, "the incoming table", &ours, pool->where,
                           SETTING_SCORE | SETTING_TABLE, "calibrate with --", err));
    shard_header h = pool->first; /* arrays borrowed from both; never freed through this copy */
    shard_header_borrow(&h, table);
    if (json_is_string(fingerprint)) {
        snprintf(h.fingerprint, sizeof h.fingerprint, "%s", json_string_value(fingerprint));
    }
    return fit_match(&pool->first, pool->where, &h, "the incoming table", -1, err);
}

static void fill_shape(ckvc_table *t, const shard_header *h) {
    t->window = h->setting.window;
    t->n_query_heads = h->n_heads;
    t->head_axis = 0;
    t->visible = h->setting.alpha == CKVC_ALPHA_VISIBLE;
    t->keep_window = h->setting.keep_window;
    t->op = h->setting.op;
    memcpy(t->budgets, h->budgets, h->n_budgets * sizeof *t->budgets);
    for (int s = 0; s < CKVC_SIDE_COUNT; s++) {
        const struct side side = side_of_table(t, (ckvc_side)s);
        memcpy(side.grid, h->side[s].actions, side.actions.n * sizeof *side.grid);
    }
    memcpy(t->edges_entropy, h->edges_entropy, (h->n_entropy_bins - 1) * sizeof *t->edges_entropy);
    memcpy(t->edges_ppl, h->edges_ppl, (h->n_ppl_bins - 1) * sizeof *t->edges_ppl);
}

/* The side that a fit has no records of is the incoming table's, with what stands behind it: its
 * evidence, and its part of META (fit_meta.c). A gate fitted under fitted heads then is one joint
 * table, whether its two passes were fitted together or one after the other. */

static const char *kind_of(const json_t *meta, const char *object) {
    const char *kind = json_string_value(json_object_get(json_object_get(meta, object), "kind"));
    return kind ? kind : "";
}

/* The incoming table's evidence of `side` is there and in the units of this fit (solver, alpha,
 * reward). */
static bool carries(const table_file *in, ckvc_side side, const fit_options *o) {
    if (!in || !in->has_evidence) { return false; }
    const json_t *fitted = json_object_get(
        json_object_get(json_object_get(in->meta, "diagnostics"), ckvc_side_name(side)), "fitted");
    return json_is_true(fitted) &&
           json_real_value(json_object_get(in->meta, "cql_alpha")) == o->cql_alpha &&
           strcmp(kind_of(in->meta, "reward"), o->reward == FIT_ADVANTAGE ? "advantage" : "raw") ==
               0 &&
           strcmp(kind_of(in->meta, "solver"), o->solver == FIT_EXACT ? "exact" : "adamw") == 0;
}

static void carry_evidence(table_file *to, const table_file *in, ckvc_side side) {
    const struct side shape = side_of_table(in->table, side);
    const size_t n = shape.n_states * shape.actions.n;
    const table_evidence *from = &in->evidence[side];
    table_evidence *e = &to->evidence[side];
    memcpy(e->q, from->q, n * sizeof *e->q);
    memcpy(e->m, from->m, n * sizeof *e->m);
    memcpy(e->n, from->n, n * sizeof *e->n);
    if (from->l) { memcpy(e->l, from->l, n * sizeof *e->l); }
    if (from->share) { e->share = ckvc_copy(from->share, n, sizeof *e->share); }
}

static ckvc_status fit_sides(fit_pool *pool, const fit_options *o, fit_result *r, ckvc_err *err) {
    table_file *t = r->table;
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
        const ckvc_side which = (ckvc_side)i;
        /* The start table of the side's own shards; a side without records takes it from the first
         * shard of another side, which was logged under it. */
        const bool own = pool->sides[i].where != NULL;
        const shard_header *from = own ? &pool->sides[i].start : &pool->first;
        const fitting f = {.o = o,
                           .s = side_of_table(t->table, which),
                           .e = &t->evidence[i],
                           .pool = &pool->sides[i],
                           .start = o->incoming ? side_of_table(o->incoming->table, which).entries
                                                : from->side[i].start,
                           .where = own ? pool->sides[i].where : pool->where};
        CKVC_TRY(fit_side(&f, &r->sides[i], err));
        r->sides[i].carried = !r->sides[i].fitted && carries(o->incoming, which, o);
        if (r->sides[i].carried) { carry_evidence(t, o->incoming, which); }
    }
    return CKVC_OK;
}

/* Shares of this fit's demand, or the incoming table's. */
static void fit_shares(fit_pool *pool, const fit_options *o, fit_result *r) {
    const table_file *in = o->incoming;
    ckvc_table *t = r->table->table;
    const size_t heads = ckvc_weight_index(t, t->n_layers, 0, 0);
    if (pool->demand.n_prompts > 0) {
        fit_demand_table(&pool->demand, o, r->table, &r->demand);
    } else if (in && in->table->share) {
        r->demand.carried = true;
        if (ckvc_table_copy_shares(t, in->table)) { ckvc_out_of_memory(heads, sizeof(double)); }
        t->relative = in->table->relative;
        if (in->share_interval) {
            r->table->share_interval = ckvc_copy(in->share_interval, 2 * heads, sizeof(double));
        }
    }
}

/* The heads' statistics: of the pool's scans, else of its demand passes, else the incoming table's;
 * NULL: not known. */
static double *signature_of(fit_pool *pool, const fit_options *o) {
    const size_t n = (size_t)pool->first.n_layers * pool->first.n_kv_heads * 3;
    head_signature *of = pool->scanned.values ? &pool->scanned : &pool->demanded;
    head_signature_finish(of);
    if (of->values) { return ckvc_take(&of->values); }
    return o->incoming && o->incoming->signature
               ? ckvc_copy(o->incoming->signature, n, sizeof(double))
               : NULL;
}

ckvc_status fit_records(const char *const *paths, size_t n_paths, const fit_options *o,
                        fit_result **out, ckvc_err *err) {
    *out = NULL;
    CKVC_FAIL_IF(o->shrink && (o->replicates < 20 || o->resample != CQL_RESAMPLE_BOOTSTRAP), err,
                 CKVC_E_USAGE, "--shrink needs --bootstrap R with R of at least 20");
    for (size_t i = 0; i < o->n_splits; ++i) {
        CKVC_FAIL_IF(strcmp(o->splits[i], "heldout") == 0, err, CKVC_E_USAGE,
                     "held-out prompts never enter a fit: --split heldout makes no sense");
    }
    CKVC_AUTO(fit_pool_fini) fit_pool pool = {0};
    CKVC_AUTO(fit_result_free_at) fit_result *r = ckvc_calloc(1, sizeof *r);
    CKVC_TRY(fit_pool_read(&pool, paths, n_paths, o, err));
    if (o->incoming) { CKVC_TRY(check_incoming(&pool, o->incoming, err)); }
    r->n_replicates = o->replicates;
    r->n_heldout = pool.n_heldout;
    r->n_filtered = pool.n_filtered;
    r->n_duplicates = pool.n_duplicates;
    const shard_header *h = &pool.first;
    bool evidence = o->incoming && o->incoming->has_evidence;
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) { evidence |= pool.sides[i].n_prompts > 0; }
    r->table = table_file_around(ckvc_table_create(h->n_layers, h->n_kv_heads, h->n_entropy_bins,
                                                   h->n_ppl_bins, h->n_budgets,
                                                   h->side[CKVC_SIDE_HEAD].n_actions,
                                                   h->side[CKVC_SIDE_GATE].n_actions),
                                 evidence);
    CKVC_FAIL_IF(!r->table, err, CKVC_E_DATA,
                 "%s: a table of %u layers, %u heads, %u x %u bins and %u budgets is over "
                 "the format's limits",
                 pool.where, h->n_layers, h->n_kv_heads, h->n_entropy_bins, h->n_ppl_bins,
                 h->n_budgets);
    fill_shape(r->table->table, h);
    CKVC_TRY(fit_sides(&pool, o, r, err));
    fit_shares(&pool, o, r);
    if (pool.rewards.n_prompts > 0) {
        CKVC_TRY(fit_rewards_table(&pool.rewards, o, r->table, &r->rewards, err));
    }
    if (pool.learned.n_fitted > 0) {
        CKVC_FAIL_IF(!r->table->table->share, err, CKVC_E_DATA,
                     "%s: a learned score ranks what shares leave room for: fit it together with a "
                     "run of --side demand, or give --tables with shares",
                     pool.learned.where);
        fit_learned_table(&pool.learned, o, r->table->table, &r->learned);
    }
    fit_write_meta(&pool, o, r);
    r->table->signature = signature_of(&pool, o);
    *out = ckvc_take(&r);
    return CKVC_OK;
}
