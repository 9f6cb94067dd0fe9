/* run.json: see plan.h. Paths, threads, limits of time and output names stay out: they do not
 * change results. */
#include "calib/log/plan.h"

#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/hash.h"
#include "lib/base/json.h"

/* SHA-256 over ids and token hashes in order: texts that a manifest names as files are part of the
 * plan, too. */
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

static int set(json_t *o, const char *key, json_t *value) {
    return json_object_set_new(o, key, value);
}

json_t *plan_json(const plan *p) {
    const calibrate_options *o = p->options;
    const prompt_options *po = p->prompt_options;
    char prompts[CKVC_SHA256_HEX];
    digest_prompts(p->inputs->prompts, prompts);
    json_t *splits = json_array();
    for (size_t i = 0; i < po->n_splits; i++) {
        json_array_append_new(splits, json_string(po->splits[i]));
    }
    json_t *json = json_object();
    int bad = !json;
    bad |= set(json, "schema", json_string("ckvc-plan-1"));
    bad |= set(json, "verb", json_string(p->verb));
    bad |= set(json, "model", json_string(model_fingerprint(p->inputs->model)));
    bad |= set(json, "model_name", json_string(model_name(p->inputs->model)));
    bad |= set(json, "tokenizer", p->tokenizer ? json_string(p->tokenizer) : json_null());
    bad |= set(json, "manifest", json_string(p->inputs->manifest->sha256));
    bad |= set(json, "prompts", json_string(prompts));
    bad |= set(json, "n_prompts", json_integer((json_int_t)p->inputs->prompts->n));
    bad |= set(json, "chat_template", json_string(chat_style_name(po->chat.style)));
    if (po->chat.date) { bad |= set(json, "chat_date", json_string(po->chat.date)); }
    bad |= set(json, "split", splits);
    bad |= set(json, "max_tokens", json_integer(po->max_tokens));
    bad |= set(json, "skip_short", json_boolean(po->skip_short));
    bad |= set(json, "limit", json_integer(po->limit));
    bad |= set(json, "holdout", json_real(po->holdout));
    bad |= set(json, "max_failures", json_integer(o->max_failures));
    bad |= set(json, "shard_prompts", json_integer(o->shard_prompts));
    setting s = o->setting;
    const bool logs = s.budgets.n > 0;
    if (logs && strcmp(p->start_table, "identity") != 0) {
        memset(s.grid, 0, sizeof s.grid); /* a start table brings its own */
    }
    setting_write(json, SETTING_PLAN, &s, logs ? 0 : SETTING_LOGGED);
    if (p->leak_check) { bad |= json_object_set(json, "leak_check", p->leak_check); }
    if (logs) {
        const char *side = o->sides[0] && o->sides[1]
                               ? "both"
                               : ckvc_side_name(o->sides[0] ? CKVC_SIDE_HEAD : CKVC_SIDE_GATE);
        bad |= set(json, "side", json_string(side));
        bad |= set(json, "bins", json_pack("[i,i]", (int)p->n_entropy_bins, (int)p->n_ppl_bins));
        bad |= set(json, "bin_edges",
                   json_string(p->edges == EDGES_QUANTILE ? "quantile" : "uniform"));
        bad |= set(json, "edges_from", json_string(p->edges_from));
        bad |= set(json, "min_cell", json_integer(p->min_cell));
        bad |= set(json, "behaviour", json_string(behaviour_name(o->behaviour)));
        bad |=
            set(json, "variants", o->variants < 0 ? json_string("all") : json_integer(o->variants));
        bad |= set(json, "check_rollouts", json_real(o->check_rollouts));
        if (p->sample > 0) { bad |= set(json, "sample_prompts", json_integer(p->sample)); }
        if (p->sample > 0 && p->sample_from) {
            bad |= set(json, "sample_from", json_string(p->sample_from));
        }
        bad |= set(json, "start_table", json_string(p->start_table));
        /* What later versions added is written only where it is not neutral: a plan without it
         * keeps its hash. */
        if (o->until_stable > 0) {
            bad |= set(json, "until_stable", json_real(o->until_stable));
            if (o->until_cql_alpha != fit_defaults().cql_alpha) {
                bad |= set(json, "until_stable_alpha", json_real(o->until_cql_alpha));
            }
            if (o->until_reward == FIT_RAW) {
                bad |= set(json, "until_stable_reward", json_string("raw"));
            }
        }
    }
    if (bad) {
        json_decref(json);
        return NULL;
    }
    return json;
}
