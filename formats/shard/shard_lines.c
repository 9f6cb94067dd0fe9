/* Prints records as lines of JSON (shard.md, "Records as lines"). */
#include "formats/shard/shard.h"
#include "lib/base/json.h"

/* Prints one line: which prompt, budget, layer and head (CKVC_NO_HEAD: no head), and then what was
 * found there, an object whose members are taken. */
static void print_line(const shard *s, const struct shard_record *at, const char *kind,
                       json_t *found, FILE *out) {
    const shard_header *h = &s->h;
    const struct shard_prompt *p = &s->prompts[at->prompt];
    json_auto_t *o = json_pack("{s:s, s:s}", "kind", kind, "prompt_id", p->id);
    JSON_NUMBERS(o, {"sequence_length", p->n_tokens}, {"full_loss", p->loss_full},
                 {"budget", ckvc_budget_tokens(h->budgets[at->budget], p->n_tokens)},
                 {"layer", at->layer});
    if (h->setting.loss == SETTING_KL) { json_object_set_new(o, "loss", json_string("kl")); }
    if (at->head != CKVC_NO_HEAD) { /* a row that several query heads read is called kv_head */
        JSON_NUMBERS(o, {h->n_heads == h->n_kv_heads ? "head" : "kv_head", at->head});
    }
    json_object_update_new(o, found);
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer line = {0};
    ckvc_json_append_as_given(&line, o);
    ckvc_buffer_u8(&line, '\n');
    fwrite(line.data, 1, line.size, out);
}

void shard_print_records(const shard *s, const char *pass, FILE *out) {
    const shard_header *h = &s->h;
    CKVC_AUTO_FREE char *policy = ckvc_format("%s %s", pass, h->plan);
    for (size_t i = 0; i < s->n_records; i++) {
        const struct shard_record *r = &s->records[i];
        const struct shard_prompt *p = &s->prompts[r->prompt];
        json_t *found = JSON_NUMBERS(json_object(), {"action", h->side[r->side].actions[r->action]},
                                     {"compressed_loss", r->loss}, {"reward", r->reward},
                                     {"entropy", p->r_struct}, {"ppl", p->r_sem},
                                     {"candidate_count", r->n_candidates}, {"kept", r->n_kept});
        json_object_set_new(found, "paired_policy", json_string(policy));
        print_line(s, r, ckvc_side_name((ckvc_side)r->side), found, out);
    }
    /* How many entries each head takes. */
    const size_t B = h->n_budgets, L = h->n_layers, G = h->n_kv_heads;
    for (size_t i = 0; s->demand && i < s->n_prompts * B * L * G; i++) {
        const struct shard_record at = {.prompt = (uint32_t)(i / G / L / B),
                                        .budget = (uint16_t)(i / G / L % B),
                                        .layer = (uint16_t)(i / G % L),
                                        .head = (uint16_t)(i % G)};
        print_line(s, &at, h->pass, JSON_NUMBERS(json_object(), {"entries", s->demand[i]}), out);
    }
}
