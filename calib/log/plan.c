/* run.json: see plan.h. Paths, threads, limits of time and output names stay out: they do not
 * change results. */
#include "calib/log/plan.h"

#include "lib/base/bytes.h"
#include "lib/base/hash.h"

/* Computes the SHA-256 over ids and token hashes, in order. In this way the texts that a manifest
 * names as files are part of the plan, too. */
static void digest_prompts(const prompt_list *list, char out[CKVC_SHA256_HEX]) {
    ckvc_sha256 s;
    uint8_t digest[CKVC_SHA256_BYTES], number[8];
    ckvc_sha256_init(&s);
    for (size_t i = 0; i < list->n; i++) {
        const prompt *p = &list->items[i];
        ckvc_sha256_update(&s, p->entry->id, strlen(p->entry->id) + 1);
        ckvc_put_u64(number, p->token_hash);
        ckvc_sha256_update(&s, number, sizeof number);
    }
    ckvc_sha256_final(&s, digest);
    ckvc_hex(digest, sizeof digest, out);
}

static void set(json_t *o, const char *key, json_t *value) { json_object_set_new(o, key, value); }

json_t *plan_json(const plan *p) {
    const calibrate_options *o = p->options;
    const prompt_options *po = p->prompt_options;
    char prompts[CKVC_SHA256_HEX];
    digest_prompts(p->inputs->prompts, prompts);
    json_t *splits = ckvc_json_texts(po->splits, po->n_splits);
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:s, s:s?, s:s, s:s, s:I, s:s}", "schema", "ckvc-plan-1", "verb", p->verb,
        "model", model_fingerprint(p->inputs->model), "model_name", model_name(p->inputs->model),
        "tokenizer", p->tokenizer, "manifest", p->inputs->manifest->sha256, "prompts", prompts,
        "n_prompts", (json_int_t)p->inputs->prompts->n, "chat_template",
        chat_style_plan(po->chat.style));
    if (po->chat.date) { set(json, "chat_date", json_string(po->chat.date)); }
    json_t *more =
        json_pack("{s:o, s:I, s:b, s:I, s:f, s:I, s:I}", "split", splits, "max_tokens",
                  (json_int_t)po->max_tokens, "skip_short", (int)po->skip_short, "limit",
                  (json_int_t)po->limit, "holdout", po->holdout, "max_failures",
                  (json_int_t)o->max_failures, "shard_prompts", (json_int_t)o->shard_prompts);
    json_object_update(json, more);
    json_decref(more);
    setting s = calibrate_setting(o, model_get_shape(p->inputs->model));
    const bool logs = s.budgets.n > 0 && o->kind == SHARD_LOGGED;
    if (logs && strcmp(p->start_table, "identity") != 0) {
        memset(s.grid, 0, sizeof s.grid); /* a start table brings its own */
    }
    if (o->judges && (o->kind == SHARD_DEMAND || o->kind == SHARD_SCORE)) {
        set(json, "judges", json_integer(o->judges));
    }
    if (logs || o->kind != SHARD_LOGGED) { set(json, "side", json_string(calibrate_sides(o))); }
    setting_write(json, SETTING_PLAN, &s,
                  o->kind == SHARD_DEMAND ? SETTING_PENALTY
                  : logs                  ? 0
                                          : SETTING_LOGGED);
    if (p->leak_check) { json_object_set(json, "leak_check", p->leak_check); }
    if (!logs) { return json; }
    set(json, "variants", o->variants < 0 ? json_string("all") : json_integer(o->variants));
    set(json, "check_rollouts", json_real(o->check_rollouts));
    set(json, "start_table", json_string(p->start_table));
    set(json, "bins", json_pack("[i,i]", (int)p->n_entropy_bins, (int)p->n_ppl_bins));
    set(json, "bin_edges", json_string(p->edges == EDGES_QUANTILE ? "quantile" : "uniform"));
    set(json, "edges_from", json_string(p->edges_from));
    set(json, "min_cell", json_integer(p->min_cell));
    set(json, "behaviour", json_string(behaviour_name(o->behaviour)));
    if (p->sample > 0) { set(json, "sample_prompts", json_integer(p->sample)); }
    if (p->sample > 0 && p->sample_from) { set(json, "sample_from", json_string(p->sample_from)); }
    /* What later versions added is written only where it is not neutral: a plan without it keeps
     * its hash. */
    if (o->until_stable <= 0) { return json; }
    set(json, "until_stable", json_real(o->until_stable));
    if (o->until_cql_alpha != REWARD_CQL_ALPHA) {
        set(json, "until_stable_alpha", json_real(o->until_cql_alpha));
    }
    if (o->until_reward == FIT_RAW) { set(json, "until_stable_reward", json_string("raw")); }
    return json;
}
