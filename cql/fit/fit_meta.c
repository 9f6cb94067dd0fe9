/* META of a fitted table: see fit_meta.h. */
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
    const fitted_side *head = &r->sides[CKVC_SIDE_HEAD], *gate = &r->sides[CKVC_SIDE_GATE];
    bool heads = head->fitted || head->carried, gates = gate->fitted || gate->carried;
    const ckvc_operator op =
        r->table->table->op; /* its name is the probe's, whatever sides were fitted */
    const char *probe = op != CKVC_OPERATOR_PAPER ? ckvc_operator_name(op)
                        : o->probe                ? o->probe
                        : heads && gates          ? "joint"
                        : heads                   ? "head-only"
                                                  : "gate-only";
    setting made = h->setting;
    made.beta_bud =
        pool->sides[gate->fitted ? CKVC_SIDE_GATE : CKVC_SIDE_HEAD].start->setting.beta_bud;
    bool advantage = o->reward == FIT_ADVANTAGE, sum = made.reduction == CKVC_LOSS_SUM;
    json_t *leaks = fit_leaks_meta(&pool->leaks);
    json_t *meta = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:f, s:s, s:o, s:o, s:o}", "schema", "ckvc-table-1", "label",
        o->label != NULL ? o->label : h->model_name, "model_name", h->model_name, "family",
        h->family, "fingerprint", h->fingerprint, "cql_alpha", o->cql_alpha, "probe", probe,
        "passes", names(pool->passes, pool->n_passes, sizeof *pool->passes), "plans",
        names(pool->plans, pool->n_plans, sizeof *pool->plans), "diagnostics", fit_diagnostics(r));
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
        json_object_set_new(meta, "counts",
                            json_pack("{s:{s:I, s:I}, s:{s:I, s:I}}", "head", "prompts",
                                      (json_int_t)head->n_prompts, "records",
                                      (json_int_t)head->n_records, "gate", "prompts",
                                      (json_int_t)gate->n_prompts, "records",
                                      (json_int_t)gate->n_records)) ||
        json_object_set_new(meta, "unsupported",
                            json_pack("{s:s, s:I, s:I}", "kind",
                                      fit_unsupported_name(o->unsupported), "head",
                                      (json_int_t)(head->n_states - head->why.n_supported), "gate",
                                      (json_int_t)(gate->n_states - gate->why.n_supported))) ||
        (o->shrink && json_object_set_new(meta, "shrink", json_true())) ||
        (leaks != NULL && json_object_set(meta, "leak_check", leaks))) {
        json_decref(leaks);
        json_decref(meta);
        return ckvc_fail_memory(err, "a table's META", 0);
    }
    json_decref(leaks);
    setting_write(meta, SETTING_META, &made, 0);
    if (json_array_size(pool->stable) && json_object_set(meta, "until_stable", pool->stable)) {
        json_decref(meta);
        return ckvc_fail_memory(err, "a table's META", 0);
    }
    json_decref(r->table->meta);
    r->table->meta = meta;
    for (int side = 0; side < CKVC_SIDE_COUNT; ++side) {
        if (r->sides[side].carried) { fit_carry_meta(meta, o->incoming, (ckvc_side)side); }
    }
    return CKVC_OK;
}
