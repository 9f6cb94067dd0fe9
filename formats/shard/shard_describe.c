/* What a shard is, as JSON: for `ckvc inspect`. */
#include "formats/shard/shard.h"
#include "formats/shard/shard_schema.h"
#include "lib/base/json.h"

static json_t *edges(const double *v, uint32_t bins) {
    return ckvc_json_reals(v, bins ? bins - 1 : 0);
}

/* Mean over prompts of entries / B: [L][G][nB]. */
static json_t *shares(const shard *s) {
    const shard_header *h = &s->h;
    const uint32_t L = h->n_layers, G = h->n_kv_heads, nB = h->n_budgets;
    json_t *layers = json_array();
    for (uint32_t l = 0; l < L; l++) {
        json_t *heads = json_array();
        for (uint32_t g = 0; g < G; g++) {
            CKVC_AUTO_FREE double *mean = ckvc_calloc(nB, sizeof *mean);
            for (size_t i = 0; i < s->n_prompts * nB; i++) {
                const uint32_t b = (uint32_t)(i % nB),
                               B = ckvc_budget_tokens(h->budgets[b], s->prompts[i / nB].n_tokens);
                const double entries = s->demand[(i * L + l) * G + g];
                mean[b] += entries / (B ? B : 1) / (double)s->n_prompts;
            }
            json_array_append_new(heads, ckvc_json_reals(mean, nB));
        }
        json_array_append_new(layers, heads);
    }
    return layers;
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
    if (s->demand) { json_object_set_new(out, "shares", shares(s)); }
    return out;
}
