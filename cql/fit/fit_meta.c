/* META of a fitted table: see fit_meta.h. */
#include "cql/fit/fit_meta.h"

#include <math.h>
#include <stdio.h>

#include "cql/fit/fit_carry.h"

/* Rounded up to one digit, so that it does not depend on the last bits of a machine's exp and log.
 */
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

/* The operator's, whatever sides were fitted; else by the sides that are there. */
static const char *probe_of(const fit_options *o, const fit_result *r, char *room, size_t size) {
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
    snprintf(room, size, "%s-only", only);
    return n > 1 ? "joint" : room;
}

/* The shards' setting, with the penalty of a side that paid it. */
static setting setting_of(const fit_pool *pool) {
    setting made = pool->first.setting;
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
        const fit_pool_side *p = &pool->sides[i];
        if (p->n_prompts > 0) { made.beta_bud = p->start.setting.beta_bud; }
        if (p->n_prompts > 0 && side_kind_of((ckvc_side)i)->penalty) { break; }
    }
    return made;
}

void fit_write_meta(const fit_pool *pool, const fit_options *o, fit_result *r) {
    const shard_header *h = &pool->first;
    const setting made = setting_of(pool);
    const bool advantage = o->reward == FIT_ADVANTAGE, sum = made.reduction == CKVC_LOSS_SUM;
    double certificate = 0.0;
    char text[32];
    json_t *reward = json_pack("{s:s}", "kind", advantage ? "advantage" : "raw"),
           *counts = json_object(),
           *unsupported = json_pack("{s:s}", "kind", fit_unsupported_name(o->unsupported));
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
        const fitted_side *s = &r->sides[i];
        const char *name = ckvc_side_name((ckvc_side)i);
        certificate = fmax(certificate, s->certificate);
        snprintf(text, sizeof text, "scale_%s", name);
        json_object_set_new(reward, text, json_real(s->scale));
        json_object_set_new(counts, name,
                            json_pack("{s:I, s:I}", "prompts", (json_int_t)s->n_prompts, "records",
                                      (json_int_t)s->n_records));
        json_object_set_new(unsupported, name,
                            json_integer((json_int_t)(s->n_states - s->why.n_supported)));
    }
    json_t *meta = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:f, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:{s:s, s:f}, s:{s:s, "
        "s:s, s:s, s:s}}",
        "schema", "ckvc-table-1", "label", o->label ? o->label : h->model_name, "model_name",
        h->model_name, "family", h->family, "fingerprint", h->fingerprint, "cql_alpha",
        o->cql_alpha, "probe", probe_of(o, r, text, sizeof text), "passes",
        fit_carry_names(pool->passes, NULL), "plans", fit_carry_names(pool->plans, NULL),
        "diagnostics", fit_diagnostics(r), "reward", reward, "counts", counts, "unsupported",
        unsupported, "solver", "kind", o->solver == FIT_EXACT ? "exact" : "adamw", "certificate",
        one_digit_up(certificate), "units", "q", q_units(advantage, sum), "scale",
        reward_units(sum), "edges_entropy", "nats", "edges_perplexity", "perplexity");
    json_auto_t *leaks = fit_leaks_meta(&pool->leaks);
    if (o->shrink) { json_object_set_new(meta, "shrink", json_true()); }
    if (leaks) { json_object_set(meta, "leak_check", leaks); }
    if (pool->stable) { json_object_set(meta, "until_stable", pool->stable); }
    setting_write(meta, SETTING_META, &made, 0);
    json_decref(r->table->meta);
    r->table->meta = meta;
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
        if (r->sides[i].carried) { fit_carry_meta(meta, o->incoming, (ckvc_side)i); }
    }
}
