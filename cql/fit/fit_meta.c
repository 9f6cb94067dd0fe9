/* META of a fitted table: see fit_meta.h. */
#include "cql/fit/fit_meta.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/shard/shard_side.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

/* Rounded up to one digit: it does not depend on the last bits of a machine's exp and log. */
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

/* Were both sides logged under the same start table, so that neither knew what the other became? Of
 * a table that both are carried from its own word says it. */
static bool one_start(const fit_options *o, const fit_pool *pool, const fit_result *r) {
    if (r->sides[CKVC_SIDE_HEAD].carried && r->sides[CKVC_SIDE_GATE].carried) {
        const char *said = json_string_value(json_object_get(o->incoming->meta, "probe"));
        return said && strcmp(said, "both-one-start") == 0;
    }
    const fit_pool_side *head = &pool->sides[CKVC_SIDE_HEAD], *gate = &pool->sides[CKVC_SIDE_GATE];
    bool same = head->n_prompts > 0 && gate->n_prompts > 0;
    for (int i = 0; same && i < CKVC_SIDE_COUNT; ++i) {
        const size_t n = shard_side_of(&head->start, (ckvc_side)i).n_states;
        same = memcmp(head->start.side[i].start, gate->start.side[i].start, n * sizeof(float)) == 0;
    }
    return same;
}

/* The operator's, whatever sides were fitted; else by the sides that are there. */
static const char *probe_of(const fit_options *o, const fit_pool *pool, const fit_result *r,
                            char *room, size_t size) {
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
    snprintf(room, size, "%s-only", only ? only : "demand");
    return n < 2 ? room : one_start(o, pool, r) ? "both-one-start" : "joint";
}

/* The shards' setting, with the penalty of a side that paid it, and the text of the demand's repeat
 * pass. */
static setting setting_of(const fit_pool *pool) {
    setting made = pool->first.setting;
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
        const fit_pool_side *p = &pool->sides[i];
        if (p->n_prompts > 0) { made.beta_bud = p->start.setting.beta_bud; }
        if (p->n_prompts > 0 && side_kind_of((ckvc_side)i)->penalty) { break; }
    }
    if (pool->demand.n_prompts > 0) {
        memcpy(made.repeat, pool->demand.first.setting.repeat, sizeof made.repeat);
    }
    return made;
}

/* meta[object][key] = the incoming table's. */
static void take(json_t *meta, const json_t *from, const char *object, const char *key) {
    json_t *value = json_object_get(json_object_get(from, object), key);
    if (value) { json_object_set_new(json_object_get(meta, object), key, json_deep_copy(value)); }
}

static int by_text(const void *a, const void *b) {
    return strcmp(json_string_value(*(json_t *const *)a), json_string_value(*(json_t *const *)b));
}

/* The texts of both lists (NULL: none), sorted, each once. New reference. */
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

/* meta[key] = those of both. */
static void unite(json_t *meta, const json_t *from, const char *key) {
    json_object_set_new(meta, key,
                        names_of(json_object_get(meta, key), json_object_get(from, key)));
}

/* What META says of a side, or of demand, that was carried over. */
static void carry_part(json_t *meta, const json_t *from, const char *name) {
    char scale[32];
    snprintf(scale, sizeof scale, "scale_%s", name);
    take(meta, from, "diagnostics", name);
    take(meta, from, "counts", name);
    take(meta, from, "unsupported", name);
    take(meta, from, "reward", scale);
}

/* Rewrites what META says of all that was carried over: each part's own, the greater certificate of
 * sides, plans and passes of both. */
static void carry_meta(json_t *meta, const json_t *from, const fit_result *r) {
    bool sides = false;
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) {
        if (r->sides[i].carried) { carry_part(meta, from, ckvc_side_name((ckvc_side)i)); }
        sides |= r->sides[i].carried;
    }
    if (r->demand.carried) {
        json_t *repeat = json_object_get(from, "repeat"), *select = json_object_get(from, "select");
        carry_part(meta, from, "demand");
        if (repeat) { json_object_set(meta, "repeat", repeat); }
        if (select && !r->learned.fitted) { json_object_set(meta, "select", select); }
        if (r->table->table->theta && !r->learned.fitted) { carry_part(meta, from, "learned"); }
        const fitted_rewards *w = &r->rewards;
        if (!w->fitted || w->side == CKVC_SIDE_GATE) { carry_part(meta, from, "rewards"); }
        if (r->table->table->relative && !(w->fitted && w->side == CKVC_SIDE_GATE)) {
            carry_part(meta, from, "cuts");
        }
    }
    if (!sides && !r->demand.carried) { return; }
    unite(meta, from, "plans");
    unite(meta, from, "passes");
    const json_t *stable = json_object_get(from, "until_stable");
    if (json_is_array(stable)) {
        json_t *both = json_deep_copy(stable);
        json_array_extend(both, json_object_get(meta, "until_stable"));
        json_object_set_new(meta, "until_stable", both);
    }
    if (!sides) { return; }
    json_t *solver = json_object_get(meta, "solver");
    const double ours = json_real_value(json_object_get(solver, "certificate")),
                 theirs = json_real_value(
                     json_object_get(json_object_get(from, "solver"), "certificate"));
    json_object_set_new(solver, "certificate", json_real(fmax(ours, theirs)));
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
        json_object_set_new(
            counts, name,
            JSON_NUMBERS(json_object(), {"prompts", s->n_prompts}, {"records", s->n_records}));
        JSON_NUMBERS(unsupported, {name, s->n_states - s->why.n_supported});
    }
    if (r->demand.fitted) {
        json_object_set_new(counts, "demand",
                            JSON_NUMBERS(json_object(), {"prompts", r->demand.n_prompts}));
    }
    if (r->rewards.fitted) {
        json_object_set_new(counts, "rewards",
                            JSON_NUMBERS(json_object(), {"prompts", r->rewards.n_prompts},
                                         {"records", r->rewards.n_records}));
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
        o->cql_alpha, "probe", probe_of(o, pool, r, text, sizeof text), "passes",
        names_of(pool->passes, NULL), "plans", names_of(pool->plans, NULL), "diagnostics",
        fit_diagnostics(r), "reward", reward, "counts", counts, "unsupported", unsupported,
        "solver", "kind", o->solver == FIT_EXACT ? "exact" : "adamw", "certificate",
        one_digit_up(certificate), "units", "q", q_units(advantage, sum), "scale",
        reward_units(sum), "edges_entropy", "nats", "edges_perplexity", "perplexity");
    json_auto_t *leaks = fit_leaks_meta(&pool->leaks);
    if (o->shrink) { json_object_set_new(meta, "shrink", json_true()); }
    if (leaks) { json_object_set(meta, "leak_check", leaks); }
    if (pool->stable) { json_object_set(meta, "until_stable", pool->stable); }
    setting_write(meta, SETTING_META, &made, 0);
    json_decref(r->table->meta);
    r->table->meta = meta;
    if (o->incoming) { carry_meta(meta, o->incoming->meta, r); }
}
