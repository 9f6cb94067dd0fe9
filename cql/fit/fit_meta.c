/* META of a fitted table, and the diagnostics beside it: see fit_meta.h. */
#include "cql/fit/fit_meta.h"

#include <math.h>

#include "cql/fit/fit_carry.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

/* Rounded up to one digit, so that it does not depend on the last bits of a machine's exp and log.
 */
static double one_digit_up(double x) {
    if (!(x > 0.0)) { return 0.0; }
    double unit = pow(10.0, floor(log10(x)));
    return ceil(x / unit * (1.0 - 1e-12)) * unit;
}

const char *fit_unsupported_name(fit_unsupported u) {
    return u == FIT_INCOMING ? "incoming" : u == FIT_SAFEST ? "safest" : "neighbour";
}

static json_t *side_numbers(const fit_side *s, bool gate) {
    json_t *o = json_pack(
        "{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:o}", "fitted", s->fitted, "prompts",
        (json_int_t)s->n_prompts, "records", (json_int_t)s->n_records, "states",
        (json_int_t)s->n_states, "supported", (json_int_t)s->n_supported, "records_per_state_min",
        (json_int_t)s->count_min, "records_per_state_median", (json_int_t)s->count_median,
        "records_per_state_max", (json_int_t)s->count_max, "alpha_decided_share",
        ckvc_json_real(s->n_supported > 0 ? (double)s->n_alpha_decided / (double)s->n_supported
                                          : NAN),
        "alpha_decided", (json_int_t)s->n_alpha_decided, "count_correlation",
        ckvc_json_real(s->count_correlation));
    if (o == NULL || json_object_set_new(o, "changed", json_integer((json_int_t)s->n_changed)) ||
        json_object_set_new(o, "shrunk", json_integer((json_int_t)s->n_shrunk))) {
        goto failed;
    }
    if (gate && (json_object_set_new(o, "by_loss", json_integer((json_int_t)s->n_by_loss)) ||
                 json_object_set_new(o, "by_penalty", json_integer((json_int_t)s->n_by_penalty)) ||
                 json_object_set_new(o, "flat_loss", json_integer((json_int_t)s->n_flat_loss)))) {
        goto failed;
    }
    if (!isnan(s->adamw_distance) &&
        json_object_set_new(o, "adamw_distance", json_real(s->adamw_distance))) {
        goto failed;
    }
    return o;
failed:
    json_decref(o);
    return NULL;
}

/* A NaN is no JSON: members that are undefined are left out. */
static void drop_nulls(json_t *object) {
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(object, next, key, value) if (json_is_null(value))
        json_object_del(object, key);
}

static json_t *diagnostics(const fit_result *r) {
    json_t *head = side_numbers(&r->sides[CKVC_SIDE_HEAD], false),
           *gate = side_numbers(&r->sides[CKVC_SIDE_GATE], true);
    if (head == NULL || gate == NULL) {
        json_decref(head);
        json_decref(gate);
        return NULL;
    }
    drop_nulls(head);
    drop_nulls(gate);
    return json_pack("{s:o, s:o}", "head", head, "gate", gate);
}

/* The gate's choices per budget of the table. */
static json_t *split_json(const fit_result *r, const fit_side *gate) {
    json_t *list = json_array();
    for (size_t b = 0; list != NULL && b < gate->n_budgets; ++b) {
        const struct fit_split *s = &gate->by_budget[b];
        if (json_array_append_new(list, json_pack("{s:f, s:I, s:I, s:I, s:I}", "budget",
                                                  r->table->table->budgets[b], "supported",
                                                  (json_int_t)s->n_supported, "by_loss",
                                                  (json_int_t)s->n_by_loss, "by_penalty",
                                                  (json_int_t)(s->n_supported - s->n_by_loss),
                                                  "flat_loss", (json_int_t)s->n_flat_loss))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *fit_describe(const fit_result *r) {
    json_t *o = diagnostics(r);
    if (o == NULL) { return NULL; }
    /* not in META, which is hashed: content ids of tables must not depend on what is printed beside
     * them */
    for (int side = 0; side < CKVC_SIDE_COUNT; ++side) {
        if (isfinite(r->sides[side].count_noise) &&
            json_object_set_new(json_object_get(o, ckvc_side_name((ckvc_side)side)),
                                "count_noise_share", json_real(r->sides[side].count_noise))) {
            json_decref(o);
            return NULL;
        }
    }
    const fit_side *gate = &r->sides[CKVC_SIDE_GATE];
    if ((gate->fitted &&
         json_object_set_new(json_object_get(o, "gate"), "by_budget", split_json(r, gate))) ||
        json_object_set_new(o, "replicates", json_integer(r->n_replicates)) ||
        json_object_set_new(o, "heldout_prompts", json_integer((json_int_t)r->n_heldout)) ||
        json_object_set_new(o, "filtered_prompts", json_integer((json_int_t)r->n_filtered)) ||
        json_object_set_new(o, "duplicate_prompts", json_integer((json_int_t)r->n_duplicates)) ||
        json_object_set(o, "solver", json_object_get(r->table->meta, "solver")) ||
        json_object_set(o, "reward", json_object_get(r->table->meta, "reward")) ||
        json_object_set(o, "unsupported", json_object_get(r->table->meta, "unsupported"))) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static json_t *names(const void *list, size_t n, size_t size) {
    json_t *array = json_array();
    for (size_t i = 0; array != NULL && i < n; ++i) {
        if (json_array_append_new(array, json_string((const char *)list + i * size))) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static const char *reward_units(bool sum) {
    return sum ? "nats" : "nats per token";
}

static const char *q_units(bool advantage, bool sum) {
    return !advantage ? reward_units(sum)
           : sum      ? "advantage in nats, divided by the reward scale"
                      : "advantage in nats per token, divided by the reward scale";
}

ckvc_status fit_write_meta(const fit_pool *pool, const fit_options *o, fit_result *r,
                           ckvc_err *err) {
    const shard_header *h = pool->first;
    const fit_side *head = &r->sides[CKVC_SIDE_HEAD], *gate = &r->sides[CKVC_SIDE_GATE];
    bool heads = head->fitted || head->carried, gates = gate->fitted || gate->carried;
    const ckvc_operator op =
        r->table->table->op; /* its name is the probe's, whatever sides were fitted */
    const char *probe = op != CKVC_OPERATOR_PAPER ? ckvc_operator_name(op)
                        : o->probe                ? o->probe
                        : heads && gates          ? "joint"
                        : heads                   ? "head-only"
                                                  : "gate-only";
    double beta_bud = pool->sides[gate->fitted ? CKVC_SIDE_GATE : CKVC_SIDE_HEAD].start->beta_bud;
    bool advantage = o->reward == FIT_ADVANTAGE, sum = h->reduction == CKVC_LOSS_SUM;
    json_t *leaks = fit_leaks_meta(&pool->leaks);
    json_t *meta = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:f, s:f, s:s, s:o, s:o, s:o}", "schema",
        "ckvc-table-1", "label", o->label != NULL ? o->label : h->model_name, "model_name",
        h->model_name, "family", h->family, "fingerprint", h->fingerprint, "alpha_kind",
        h->alpha_kind, "keep_window", (json_int_t)h->keep_window, "continuation",
        (json_int_t)h->continuation, "cql_alpha", o->cql_alpha, "lambda", beta_bud, "probe", probe,
        "passes", names(pool->passes, pool->n_passes, sizeof *pool->passes), "plans",
        names(pool->plans, pool->n_plans, sizeof *pool->plans), "diagnostics", diagnostics(r));
    if (meta == NULL ||
        json_object_set_new(meta, "reward",
                            json_pack("{s:s, s:f, s:f}", "kind", advantage ? "advantage" : "raw",
                                      "scale_head", head->scale, "scale_gate", gate->scale)) ||
        json_object_set_new(meta, "solver",
                            json_pack("{s:s, s:f}", "kind",
                                      o->solver == FIT_EXACT ? "exact" : "adamw", "certificate",
                                      one_digit_up(fmax(head->certificate, gate->certificate)))) ||
        json_object_set_new(meta, "units",
                            json_pack("{s:s, s:s, s:s, s:s}", "q", q_units(advantage, sum), "scale",
                                      reward_units(sum), "edges_entropy", "nats",
                                      "edges_perplexity", "perplexity")) ||
        (*h->compute && json_object_set_new(meta, "compute", json_string(h->compute))) ||
        (sum && json_object_set_new(meta, "loss_reduction",
                                    json_string(ckvc_loss_reduction_name(h->reduction)))) ||
        json_object_set_new(meta, "counts",
                            json_pack("{s:{s:I, s:I}, s:{s:I, s:I}}", "head", "prompts",
                                      (json_int_t)head->n_prompts, "records",
                                      (json_int_t)head->n_records, "gate", "prompts",
                                      (json_int_t)gate->n_prompts, "records",
                                      (json_int_t)gate->n_records)) ||
        json_object_set_new(meta, "unsupported",
                            json_pack("{s:s, s:I, s:I}", "kind",
                                      fit_unsupported_name(o->unsupported), "head",
                                      (json_int_t)(head->n_states - head->n_supported), "gate",
                                      (json_int_t)(gate->n_states - gate->n_supported))) ||
        (o->shrink && json_object_set_new(meta, "shrink", json_true())) ||
        (h->n_layer_budgets &&
         json_object_set_new(meta, "layer_budgets",
                             ckvc_json_reals(h->layer_budgets, h->n_layer_budgets))) ||
        (leaks != NULL && json_object_set(meta, "leak_check", leaks))) {
        json_decref(leaks);
        json_decref(meta);
        return ckvc_fail_memory(err, "a table's META", 0);
    }
    json_decref(leaks);
    if (json_array_size(pool->stable) && json_object_set(meta, "until_stable", pool->stable)) {
        json_decref(meta);
        return ckvc_fail_memory(err, "a table's META", 0);
    }
    json_decref(r->table->meta);
    r->table->meta = meta;
    ckvc_status st = CKVC_OK;
    for (int side = 0; side < CKVC_SIDE_COUNT && st == CKVC_OK; ++side) {
        if (r->sides[side].carried) {
            st = fit_carry_meta(meta, o->incoming, (ckvc_side)side, err);
        }
    }
    return st;
}
