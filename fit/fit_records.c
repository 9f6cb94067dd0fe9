/* Makes a table from records: it pools them, fits one side after the other, and describes what it
 * did. */
#include "fit/fit_records.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <math.h>
#include <stdlib.h>
#include <limits.h>

#include "fit/fit_pool.h"
#include "lib/base/memory.h"
#include "formats/shard/shard_rows.h"
#include "lib/base/json.h"

/* Checks that the table of --tables is of the shards' model, score, grids, budgets and edges,
 * because its entries stand in for cells without records. */
static ckvc_status check_incoming(const fit_pool *pool, const table_file *t, ckvc_err *err) {
    const ckvc_table *table = t->table;
    const json_t *fingerprint = json_object_get(t->meta, "fingerprint");
    const setting made = setting_of_table(table, t->meta), ours = shard_setting(&pool->first);
    CKVC_TRY(setting_match(&made, "the incoming table", &ours, pool->where,
                           SETTING_SCORE | SETTING_TABLE, "calibrate with --", err));
    /* its arrays are borrowed from both, and are never freed through this copy */
    shard_header h = pool->first;
    shard_header_borrow(&h, table);
    if (json_is_string(fingerprint)) {
        snprintf(h.fingerprint, sizeof h.fingerprint, "%s", json_string_value(fingerprint));
    }
    snprintf(h.sketch, sizeof h.sketch, "%s", table_file_sketch(t));
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

static const char *object_kind(const json_t *meta, const char *object) {
    const char *kind = json_string_value(json_object_get(json_object_get(meta, object), "kind"));
    return kind ? kind : "";
}

/* Returns whether the incoming table has evidence of `side` in the units of this fit (solver,
 * alpha, reward, loss).
 *
 * A side of which a fit has no records is taken from the incoming table, with its evidence and its
 * part of META. A gate that is fitted under fitted heads is then one joint table, whether its two
 * passes were fitted together or one after the other. */
static bool has_side_evidence(const table_file *in, ckvc_side side, const fit_options *o,
                              const setting *ours) {
    if (!in || !in->has_evidence || setting_of_table(in->table, in->meta).loss != ours->loss) {
        return false;
    }
    const json_t *fitted = json_object_get(
        json_object_get(json_object_get(in->meta, "diagnostics"), ckvc_side_name(side)), "fitted");
    return json_is_true(fitted) &&
           json_number_value(json_object_get(in->meta, "cql_alpha")) == o->cql.cql_alpha &&
           strcmp(object_kind(in->meta, "reward"),
                  o->cql.reward == FIT_ADVANTAGE ? "advantage" : "raw") == 0 &&
           strcmp(object_kind(in->meta, "solver"),
                  o->cql.solver == FIT_EXACT ? "exact" : "adamw") == 0;
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

/* Rounds up to one digit, so that the result does not depend on the last bits of a machine's exp
 * and log. */
static double one_digit_up(double x) {
    if (!(x > 0.0)) { return 0.0; }
    double unit = pow(10.0, floor(log10(x)));
    return ceil(x / unit * (1.0 - 1e-12)) * unit;
}

static const char *reward_units(bool sum) { return sum ? "nats" : "nats per token"; }

static const char *q_units(bool advantage, bool sum) {
    return !advantage ? reward_units(sum)
           : sum      ? "advantage in nats, divided by the reward scale"
                      : "advantage in nats per token, divided by the reward scale";
}

/* Returns whether both sides were logged under the same start table, so that neither knew what the
 * other became. Where both are carried over from the incoming table, what that table says counts.
 */
static bool one_start(const fit_options *o, const fit_pool *pool, const fit_result *r) {
    if (r->sides[CKVC_SIDE_HEAD].carried && r->sides[CKVC_SIDE_GATE].carried) {
        assert(o->incoming); /* sides are carried over from it */
        const char *said = json_string_value(json_object_get(o->incoming->meta, "probe"));
        return said && strcmp(said, "both-one-start") == 0;
    }
    const side_records *head = &pool->sides[CKVC_SIDE_HEAD], *gate = &pool->sides[CKVC_SIDE_GATE];
    bool same = head->n_prompts > 0 && gate->n_prompts > 0;
    for (int i = 0; same && i < CKVC_SIDE_COUNT; ++i) {
        const size_t n = shard_side_of(&head->start, (ckvc_side)i).n_states;
        same = memcmp(head->start.side[i].start, gate->start.side[i].start, n * sizeof(float)) == 0;
    }
    return same;
}

/* Returns the name of the probe: that of the operator, whatever sides were fitted, unless the
 * operator is the paper's; else the one that was asked for; else it follows from the sides that are
 * there. */
static const char *probe_of(const fit_options *o, const fit_pool *pool, const fit_result *r,
                            char *buffer, size_t size) {
    const ckvc_operator op = r->table->table->op;
    const char *only = NULL;
    int n = 0;
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
        if (r->sides[i].fitted || r->sides[i].carried) {
            only = ckvc_side_name((ckvc_side)i);
            n++;
        }
    }
    if (op != CKVC_OPERATOR_PAPER) { return ckvc_operator_name(op); }
    if (o->probe) { return o->probe; }
    snprintf(buffer, size, "%s-only", only ? only : "demand");
    return n < 2 ? buffer : one_start(o, pool, r) ? "both-one-start" : "joint";
}

/* Returns the shards' setting, with the penalty of a side that paid it, and with the text of the
 * demand's repeat pass. */
static setting setting_of(const fit_pool *pool) {
    setting made = pool->first.setting;
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
        const side_records *p = &pool->sides[i];
        if (p->n_prompts > 0) { made.beta_bud = p->start.setting.beta_bud; }
        if (p->n_prompts > 0 && side_kind_of((ckvc_side)i)->penalty) { break; }
    }
    if (pool->demand.n_prompts > 0) {
        memcpy(made.repeat, pool->demand.first.setting.repeat, sizeof made.repeat);
    }
    return made;
}

/* Sets meta[object][key] to what the incoming table says. */
static void take_member(json_t *meta, const json_t *from, const char *object, const char *key) {
    json_t *value = json_object_get(json_object_get(from, object), key);
    if (value) { json_object_set_new(json_object_get(meta, object), key, json_deep_copy(value)); }
}

static int by_text(const void *a, const void *b) {
    return strcmp(json_string_value(*(json_t *const *)a), json_string_value(*(json_t *const *)b));
}

/* Returns the texts of both lists (either may be NULL), sorted, each once. A new reference. */
static json_t *names_of(const json_t *ours, const json_t *theirs) {
    const json_t *lists[2] = {ours, theirs};
    size_t n = 0, most = json_array_size(ours) + json_array_size(theirs);
    CKVC_AUTO_FREE json_t **all = ckvc_alloc(most, sizeof(json_t *));
    json_t *out = json_array();
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < json_array_size(lists[i]); k++) {
            json_t *text = json_array_get(lists[i], k);
            if (json_is_string(text)) { all[n++] = text; }
        }
    }
    qsort(all, n, sizeof(json_t *), by_text);
    for (size_t k = 0; k < n; k++) {
        if (k == 0 || by_text(&all[k - 1], &all[k]) != 0) { json_array_append(out, all[k]); }
    }
    return out;
}

/* Sets meta[key] to the texts of both. */
static void join_member(json_t *meta, const json_t *from, const char *key) {
    json_object_set_new(meta, key,
                        names_of(json_object_get(meta, key), json_object_get(from, key)));
}

/* Copies what META says about a side, or about demand, that was carried over. */
static void carry_part(json_t *meta, const json_t *from, const char *name) {
    char scale[32];
    snprintf(scale, sizeof scale, "scale_%s", name);
    take_member(meta, from, "diagnostics", name);
    take_member(meta, from, "counts", name);
    take_member(meta, from, "unsupported", name);
    take_member(meta, from, "reward", scale);
}

/* Rewrites what META says about all that was carried over: each part's own members, the larger
 * certificate of the sides, and the plans and passes of both tables. */
static void carry_meta(json_t *meta, const json_t *from, const fit_result *r) {
    bool sides = false;
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
        if (r->sides[i].carried) { carry_part(meta, from, ckvc_side_name((ckvc_side)i)); }
        sides |= r->sides[i].carried;
    }
    if (r->demand.carried) {
        json_t *repeat = json_object_get(from, "repeat"), *select = json_object_get(from, "select");
        carry_part(meta, from, "demand");
        carry_part(meta, from, "bank");
        if (repeat) { json_object_set(meta, "repeat", repeat); }
        if (select && !r->learned.fitted) { json_object_set(meta, "select", select); }
        if (r->table->table->theta && !r->learned.fitted) { carry_part(meta, from, "learned"); }
        carry_part(meta, from, "rewards"); /* an earlier ckvc refined shares by rewards */
    }
    if (!sides && !r->demand.carried) { return; }
    join_member(meta, from, "plans");
    join_member(meta, from, "passes");
    const json_t *stable = json_object_get(from, "until_stable");
    if (json_is_array(stable)) {
        json_t *both = json_deep_copy(stable);
        json_array_extend(both, json_object_get(meta, "until_stable"));
        json_object_set_new(meta, "until_stable", both);
    }
    if (!sides) { return; }
    json_t *solver = json_object_get(meta, "solver");
    const double ours = json_number_value(json_object_get(solver, "certificate")),
                 theirs = json_number_value(
                     json_object_get(json_object_get(from, "solver"), "certificate"));
    json_object_set_new(solver, "certificate", json_real(fmax(ours, theirs)));
}

/* Makes r->table->meta anew from the numbers of the sides. For a side that was carried over it
 * takes what the incoming table says. */
static void write_meta(const fit_pool *pool, const fit_options *o, fit_result *r) {
    const shard_header *h = &pool->first;
    const setting made = setting_of(pool);
    const bool advantage = o->cql.reward == FIT_ADVANTAGE, sum = made.reduction == CKVC_LOSS_SUM;
    double certificate = 0.0;
    char text[32];
    json_t *reward = json_pack("{s:s}", "kind", advantage ? "advantage" : "raw"),
           *counts = json_object(),
           *unsupported = json_pack("{s:s}", "kind", fit_unsupported_name(o->cql.unsupported));
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
        const fitted_side *s = &r->sides[i];
        const char *name = ckvc_side_name((ckvc_side)i);
        certificate = fmax(certificate, s->certificate);
        snprintf(text, sizeof text, "scale_%s", name);
        json_object_set_new(reward, text, json_real(s->scale));
        json_object_set_new(
            counts, name,
            JSON_NUMBERS(json_object(), {"prompts", s->n_prompts}, {"records", s->n_records}));
        JSON_NUMBERS(unsupported, {name, s->n_states - s->why.n_supported});
    }
    if (r->demand.fitted) {
        json_object_set_new(counts, "demand",
                            JSON_NUMBERS(json_object(), {"prompts", r->demand.n_prompts}));
    }
    if (r->learned.fitted) {
        json_object_set_new(counts, "learned",
                            JSON_NUMBERS(json_object(), {"prompts", r->learned.n_prompts}));
    }
    json_t *meta = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:f, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:{s:s, s:f}, s:{s:s, "
        "s:s, s:s, s:s}}",
        "schema", "ckvc-table-1", "label", o->label ? o->label : h->model_name, "model_name",
        h->model_name, "family", h->family, "fingerprint", h->fingerprint, "cql_alpha",
        o->cql.cql_alpha, "probe", probe_of(o, pool, r, text, sizeof text), "passes",
        names_of(pool->passes, NULL), "plans", names_of(pool->plans, NULL), "diagnostics",
        fit_diagnostics(r), "reward", reward, "counts", counts, "unsupported", unsupported,
        "solver", "kind", o->cql.solver == FIT_EXACT ? "exact" : "adamw", "certificate",
        one_digit_up(certificate), "units", "q", q_units(advantage, sum), "scale",
        reward_units(sum), "edges_entropy", "nats", "edges_perplexity", "perplexity");
    json_auto_t *leaks = table_leaks_meta(&pool->leaks);
    if (o->cql.shrink) { json_object_set_new(meta, "shrink", json_true()); }
    if (leaks) { json_object_set(meta, "leak_check", leaks); }
    if (pool->stable) { json_object_set(meta, "until_stable", pool->stable); }
    setting_write(meta, SETTING_META, &made, 0);
    json_decref(r->table->meta);
    r->table->meta = meta;
    if (o->incoming) { carry_meta(meta, o->incoming->meta, r); }
}

static ckvc_status fit_sides(fit_pool *pool, const fit_options *o, fit_result *r, ckvc_err *err) {
    table_file *t = r->table;
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
        const ckvc_side which = (ckvc_side)i;
        /* The start table is that of the side's own shards. A side without records takes it from
         * the first shard of another side, which was logged under it. */
        const bool own = pool->sides[i].where != NULL;
        const shard_header *from = own ? &pool->sides[i].start : &pool->first;
        const side_fitting f = {.o = &o->cql,
                                .resampled = &o->resampled,
                                .s = side_of_table(t->table, which),
                                .e = &t->evidence[i],
                                .records = &pool->sides[i],
                                .start = o->incoming
                                             ? side_of_table(o->incoming->table, which).entries
                                             : from->side[i].start,
                                .where = own ? pool->sides[i].where : pool->where};
        CKVC_TRY(fit_side(&f, &r->sides[i], err));
        r->sides[i].carried =
            !r->sides[i].fitted && has_side_evidence(o->incoming, which, o, &pool->first.setting);
        if (r->sides[i].carried) { carry_evidence(t, o->incoming, which); }
    }
    return CKVC_OK;
}

/* Makes shares from this fit's demand, or takes those of the incoming table. */
static ckvc_status fit_shares(fit_pool *pool, const fit_options *o, fit_result *r, ckvc_err *err) {
    const table_file *in = o->incoming;
    ckvc_table *t = r->table->table;
    const size_t heads = ckvc_weight_index(t, t->n_layers, 0, 0);
    if (pool->demand.n_prompts > 0) {
        CKVC_AUTO_FREE double *mix = ckvc_alloc(t->n_budgets, sizeof *mix);
        for (uint32_t b = 0; b < t->n_budgets; ++b) { mix[b] = o->budgets.mix; }
        CKVC_TRY(demand_records_table(&pool->demand, &o->budgets, &o->resampled, mix, r->table,
                                      &r->demand, err));
        bank_records_table(&pool->bank, t, &r->bank);
    } else if (in && in->table->share) {
        r->demand.carried = true;
        if (ckvc_table_copy_shares(t, in->table)) { ckvc_out_of_memory(heads, sizeof(double)); }
        if (in->share_interval) {
            r->table->share_interval = ckvc_copy(in->share_interval, 2 * heads, sizeof(double));
        }
    }
    return CKVC_OK;
}

/* Returns the statistics of heads: those of the pool's scans, else those of its demand passes, else
 * those of the incoming table; NULL where none are known. */
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
    CKVC_FAIL_IF(o->cql.shrink &&
                     (o->resampled.n_replicates < 20 || o->resampled.kind != RESAMPLE_BOOTSTRAP),
                 err, CKVC_E_USAGE, "--shrink needs --bootstrap R with R of at least 20");
    for (size_t i = 0; i < o->n_splits; ++i) {
        CKVC_FAIL_IF(strcmp(o->splits[i], "heldout") == 0, err, CKVC_E_USAGE,
                     "held-out prompts never enter a fit: --split heldout makes no sense");
    }
    CKVC_AUTO(fit_pool_fini) fit_pool pool = {0};
    CKVC_AUTO(fit_result_free_at) fit_result *r = ckvc_calloc(1, sizeof *r);
    CKVC_TRY(fit_pool_read(&pool, paths, n_paths, o, err));
    if (o->incoming) { CKVC_TRY(check_incoming(&pool, o->incoming, err)); }
    r->n_replicates = o->resampled.n_replicates;
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
    CKVC_FAIL_IF(o->budgets.mix > 0 && pool.demand.n_prompts == 0, err, CKVC_E_USAGE,
                 "--mix weighs demand, and these records hold none: leave it out");
    CKVC_TRY(fit_shares(&pool, o, r, err));
    CKVC_FAIL_IF(
        o->budgets.bank.ridge > 0 && !r->bank.n, err, CKVC_E_USAGE,
        "--ridge is of entries that a bank fits, and this fit makes none: its records hold "
        "no query vectors (calibrate --queries), or --bank is 0; leave it out");
    if (pool.learned.n_fitted > 0) {
        CKVC_FAIL_IF(!r->table->table->share, err, CKVC_E_DATA,
                     "%s: holds a learned ranking, which is of use only beside shares: fit it "
                     "together with a run of --side demand, or give --tables with shares",
                     pool.learned.where);
        learned_records_table(&pool.learned, &o->budgets, r->table->table, &r->learned);
    }
    write_meta(&pool, o, r);
    table_file_set_sketch(r->table, h->sketch);
    r->table->signature = signature_of(&pool, o);
    *out = ckvc_take(&r);
    return CKVC_OK;
}

struct fit_mixes {
    fit_options o;
    fit_pool pool;
};

ckvc_status fit_mixes_read(const char *const *paths, size_t n_paths, const fit_options *o,
                           fit_mixes **out, ckvc_err *err) {
    CKVC_AUTO(fit_mixes_free_at) fit_mixes *m = ckvc_calloc(1, sizeof *m);
    *out = NULL;
    m->o = *o;
    m->o.budgets.score = CKVC_SCORE_WINDOW; /* features are not read, nor are queries */
    m->o.budgets.bank.n = 0;
    CKVC_TRY(fit_pool_read(&m->pool, paths, n_paths, &m->o, err));
    CKVC_FAIL_IF(m->pool.demand.n_prompts == 0, err, CKVC_E_DATA, "%s: has no demand", paths[0]);
    *out = ckvc_take(&m);
    return CKVC_OK;
}

void fit_mixes_free(fit_mixes *m) {
    if (m) { fit_pool_fini(&m->pool); }
    free(m);
}

ckvc_status fit_mixes_take(fit_mixes *m, const double *mix, table_file *t, fitted_demand *found,
                           ckvc_err *err) {
    free(found->blocks);
    CKVC_TRY(
        demand_records_shares(&m->pool.demand, &m->o.budgets, &m->o.resampled, mix, t, found, err));
    json_object_set_new(json_object_get(t->meta, "diagnostics"), "demand",
                        fitted_demand_json(found, t->table->budgets));
    return CKVC_OK;
}
