/* What a shard is, as JSON: for `ckvc inspect`. */
#include "formats/shard/shard.h"
#include "formats/shard/shard_schema.h"
#include "lib/base/json.h"

static json_t *edges(const double *v, uint32_t bins) {
    return ckvc_json_reals(v, bins ? bins - 1 : 0);
}

json_t *shard_describe(const shard *s) {
    const shard_header *h = &s->h;
    const struct shard_side *head = &h->side[CKVC_SIDE_HEAD], *gate = &h->side[CKVC_SIDE_GATE];
    size_t records[CKVC_SIDE_COUNT] = {0};
    for (size_t i = 0; i < s->n_records; i++) { records[s->records[i].side]++; }
    json_t *out = json_pack("{s:s, s:i}", "format", "ckvc-shard", "version", 1);
    shard_attribute list[SHARD_MAX_ATTRIBUTES];
    const size_t n = shard_attributes(list);
    for (size_t i = 0; i < n; i++) {
        const shard_attribute *a = &list[i];
        const void *at = (const char *)h + a->offset;
        size_t dims[4];
        if (shard_attribute_dims(h, a, false, dims) < 0) { continue; }
        if (a->type == SHARD_TEXT) {
            json_object_set_new(out, a->name, json_string(at));
        } else if (a->setting) {
            json_object_set_new(out, a->name, setting_json(a->setting, &h->setting));
        } else if (a->type == SHARD_U32) {
            json_object_set_new(out, a->name, json_integer(*(const uint32_t *)at));
        }
    }
    json_object_update_new(
        out,
        json_pack("{s:o, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "budgets",
                  ckvc_json_reals(h->budgets, h->n_budgets), "n_head_actions",
                  (json_int_t)head->n_actions, "n_gate_actions", (json_int_t)gate->n_actions,
                  "edges_entropy", edges(h->edges_entropy, h->n_entropy_bins), "edges_perplexity",
                  edges(h->edges_ppl, h->n_ppl_bins), "prompts", (json_int_t)s->n_prompts,
                  "baselines", (json_int_t)s->n_baselines, "records", (json_int_t)s->n_records,
                  "head_records", (json_int_t)records[CKVC_SIDE_HEAD], "gate_records",
                  (json_int_t)records[CKVC_SIDE_GATE]));
    return out;
}
