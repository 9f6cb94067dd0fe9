/* What a shard is, as JSON: for `ckvc inspect`. */
#include "formats/shard/shard_rows.h"
#include "lib/base/json.h"
#include "lib/base/names.h"

json_t *shard_describe(const shard *s) {
    const shard_header *h = &s->h;
    json_t *out = json_object();
    json_object_set_new(out, "format", json_string("ckvc-shard"));
    json_object_set_new(out, "version", json_integer(1));
    for (size_t i = 0; i < SHARD_TEXT_ATTRIBUTES; i++) {
        const char *text = (const char *)h + shard_text_attributes[i].offset;
        if (!shard_text_attributes[i].optional || *text) {
            json_object_set_new(out, shard_text_attributes[i].name, json_string(text));
        }
    }
    for (size_t i = 0; i < SHARD_U32_ATTRIBUTES; i++) {
        json_object_set_new(
            out, shard_u32_attributes[i].name,
            json_integer(*(const uint32_t *)(const void *)((const char *)h +
                                                           shard_u32_attributes[i].offset)));
    }
    json_object_set_new(out, "lambda", ckvc_json_real(h->beta_bud));
    if (h->reduction != CKVC_LOSS_MEAN) {
        json_object_set_new(out, "loss_reduction",
                            json_string(ckvc_loss_reduction_name(h->reduction)));
    }
    json_object_set_new(out, "seed", json_integer((json_int_t)h->seed));
    json_object_set_new(out, "budgets", ckvc_json_reals(h->budgets, h->n_budgets));
    if (h->n_layer_budgets) {
        json_object_set_new(out, "layer_budgets",
                            ckvc_json_reals(h->layer_budgets, h->n_layer_budgets));
    }
    json_object_set_new(out, "n_head_actions", json_integer(h->side[CKVC_SIDE_HEAD].n_actions));
    json_object_set_new(out, "n_gate_actions", json_integer(h->side[CKVC_SIDE_GATE].n_actions));
    json_object_set_new(
        out, "edges_entropy",
        ckvc_json_reals(h->edges_entropy, h->n_entropy_bins ? h->n_entropy_bins - 1 : 0));
    json_object_set_new(out, "edges_perplexity",
                        ckvc_json_reals(h->edges_ppl, h->n_ppl_bins ? h->n_ppl_bins - 1 : 0));
    json_object_set_new(out, "prompts", json_integer((json_int_t)s->n_prompts));
    json_object_set_new(out, "baselines", json_integer((json_int_t)s->n_baselines));
    json_object_set_new(out, "records", json_integer((json_int_t)s->n_records));
    size_t side[CKVC_SIDE_COUNT] = {0};
    for (size_t i = 0; i < s->n_records; i++) {
        side[s->records[i].side]++;
    }
    json_object_set_new(out, "head_records", json_integer((json_int_t)side[CKVC_SIDE_HEAD]));
    json_object_set_new(out, "gate_records", json_integer((json_int_t)side[CKVC_SIDE_GATE]));
    return out;
}
