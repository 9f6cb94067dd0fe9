/* run.json: see plan.h. Paths, threads, limits of time and output names stay out: they do not change results. */
#include "calib/plan.h"

#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/hash.h"
#include "lib/base/json.h"

/* SHA-256 over ids and token hashes in order: texts that a manifest names as files are part of the plan, too. */
static void digest_prompts(const prompt_list *list, char out[CKVC_SHA256_HEX])
{
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

static int set(json_t *o, const char *key, json_t *value)
{
    return json_object_set_new(o, key, value);
}

json_t *plan_json(const plan *p)
{
    const calibrate_options *o = p->options;
    const prompt_options *po = p->prompt_options;
    char prompts[CKVC_SHA256_HEX];
    digest_prompts(p->inputs->prompts, prompts);
    json_t *splits = json_array();
    for (size_t i = 0; i < po->n_splits; i++) {
        json_array_append_new(splits, json_string(po->splits[i]));
    }
    json_t *plan = json_object();
    int bad = !plan;
    bad |= set(plan, "schema", json_string("ckvc-plan-1"));
    bad |= set(plan, "verb", json_string(p->verb));
    bad |= set(plan, "model", json_string(model_fingerprint(p->inputs->model)));
    bad |= set(plan, "model_name", json_string(model_name(p->inputs->model)));
    bad |= set(plan, "tokenizer", p->tokenizer ? json_string(p->tokenizer) : json_null());
    bad |= set(plan, "manifest", json_string(p->inputs->manifest->sha256));
    bad |= set(plan, "prompts", json_string(prompts));
    bad |= set(plan, "n_prompts", json_integer((json_int_t)p->inputs->prompts->n));
    bad |= set(plan, "split", splits);
    bad |= set(plan, "window", json_integer(o->window));
    bad |= set(plan, "continuation", json_integer(o->continuation));
    bad |= set(plan, "max_tokens", json_integer(po->max_tokens));
    bad |= set(plan, "skip_short", json_boolean(po->skip_short));
    bad |= set(plan, "limit", json_integer(po->limit));
    bad |= set(plan, "holdout", json_real(po->holdout));
    bad |= set(plan, "max_failures", json_integer(o->max_failures));
    bad |= set(plan, "alpha", json_string(ckvc_alpha_name(o->alpha)));
    bad |= set(plan, "keep_window", json_integer(o->keep_window));
    bad |= set(plan, "seed", json_integer((json_int_t)o->seed));
    bad |= set(plan, "shard_prompts", json_integer(o->shard_prompts));
    bad |= set(plan, "compute", json_string("f32"));
    if (p->budgets) {
        const char *side = o->sides[0] && o->sides[1] ? "both" : ckvc_side_name(o->sides[0] ? CKVC_SIDE_HEAD : CKVC_SIDE_GATE);
        bad |= set(plan, "side", json_string(side));
        bad |= set(plan, "budget", ckvc_json_reals(p->budgets, p->n_budgets));
        bad |= set(plan, "bins", json_pack("[i,i]", (int)p->n_entropy_bins, (int)p->n_ppl_bins));
        bad |= set(plan, "bin_edges", json_string(p->edges == EDGES_QUANTILE ? "quantile" : "uniform"));
        bad |= set(plan, "edges_from", json_string(p->edges_from));
        bad |= set(plan, "min_cell", json_integer(p->min_cell));
        bad |= set(plan, "behaviour", json_string(o->behaviour == BEHAVIOUR_BALANCED ? "balanced" : "uniform"));
        bad |= set(plan, "variants", o->variants < 0 ? json_string("all") : json_integer(o->variants));
        bad |= set(plan, "lambda", json_real(o->lambda));
        bad |= set(plan, "start_table", json_string(p->start_table));
    }
    if (bad) {
        json_decref(plan);
        return NULL;
    }
    return plan;
}
