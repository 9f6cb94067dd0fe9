/* Looking at a model without running it: see model_info.h. */
#include "lib/model/model_info.h"

#include "lib/model/model_weights.h"
#include "lib/model/model_spec.h"

ckvc_status model_verify(const model_spec *spec, char fingerprint[CKVC_SHA256_HEX], ckvc_err *err) {
    ckvc_pool *pool;
    CKVC_TRY(ckvc_pool_create(ckvc_cpu_count(), &pool, err));
    const ckvc_status st = model_tensors_check(spec, pool, fingerprint, err);
    ckvc_pool_destroy(pool);
    return st;
}

static json_t *shape_json(const model_shape *s) {
    json_t *o =
        json_pack("{s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:f,s:f,s:s,s:b}", "n_layers", s->n_layers,
                  "n_heads", s->n_heads, "n_kv_heads", s->n_kv_heads, "head_dim", s->head_dim,
                  "width", s->width, "intermediate", s->intermediate, "vocab", s->vocab,
                  "max_positions", s->max_positions, "rms_eps", s->rms_eps, "rope_theta",
                  s->rope_theta, "rope", rope_kind_name(s->rope), "tied", s->tied);
    if (s->rope != ROPE_DEFAULT) {
        json_object_set_new(o, "rope_factor", json_real(s->rope_factor));
    }
    if (s->rope == ROPE_LLAMA3) {
        json_object_set_new(o, "rope_low_freq", json_real(s->rope_low_freq));
        json_object_set_new(o, "rope_high_freq", json_real(s->rope_high_freq));
        json_object_set_new(o, "rope_original_positions", json_integer(s->rope_original_positions));
    }
    if (s->rope_dims) { json_object_set_new(o, "rope_dims", json_integer(s->rope_dims)); }
    if (model_shape_context(s) != s->max_positions) {
        json_object_set_new(o, "context", json_integer(model_shape_context(s)));
    }
    if (s->sliding_window) {
        json_t *layers = json_array();
        for (int32_t l = 0; l < s->n_layers; l++) {
            if (model_shape_window(s, l) > 0) { json_array_append_new(layers, json_integer(l)); }
        }
        json_object_set_new(o, "sliding_window", json_integer(s->sliding_window));
        json_object_set_new(o, "sliding_layers", layers);
    }
    if (s->qkv_bias) { json_object_set_new(o, "qkv_bias", json_true()); }
    if (s->output_bias) { json_object_set_new(o, "output_bias", json_true()); }
    if (s->mlp_bias) { json_object_set_new(o, "mlp_bias", json_true()); }
    if (s->qk_norm) { json_object_set_new(o, "qk_norm", json_true()); }
    if (s->post_norms) { json_object_set_new(o, "post_norms", json_true()); }
    if (s->gelu) { json_object_set_new(o, "gelu", json_true()); }
    if (s->embed_scale > 0) { json_object_set_new(o, "embed_scale", json_real(s->embed_scale)); }
    if (s->query_scalar > 0) { json_object_set_new(o, "query_scalar", json_real(s->query_scalar)); }
    if (s->rope_local_theta > 0) {
        json_object_set_new(o, "rope_local_theta", json_real(s->rope_local_theta));
    }
    return o;
}

#define INFO_PROMPT 2048 /* the tokens for which memory is stated when none are given */

ckvc_status model_info(const model_spec *spec, session_limits limits, json_t **out, ckvc_err *err) {
    const model_shape *s = &spec->shape;
    char fingerprint[CKVC_SHA256_HEX];
    *out = NULL;
    CKVC_TRY(model_verify(spec, fingerprint, err));
    const int64_t context = model_shape_context(s), longest = context - limits.max_continuation;
    if (limits.max_prompt == 0) {
        limits.max_prompt = longest < INFO_PROMPT ? longest : INFO_PROMPT;
    }
    CKVC_FAIL_IF(limits.max_prompt < 1 || limits.max_prompt > longest, err, CKVC_E_USAGE,
                 "%s: %lld + %lld tokens are more than the model's context of %lld", spec->path,
                 (long long)limits.max_prompt, (long long)limits.max_continuation,
                 (long long)context);
    json_int_t bytes = 0;
    json_t *types = json_object();
    for (size_t i = 0; i < spec->n_tensors; i++) {
        const tensor_view *t = &spec->tensors[i];
        bytes += (json_int_t)t->bytes;
        json_object_set_new(types, t->dtype,
                            json_integer(json_integer_value(json_object_get(types, t->dtype)) + 1));
    }
    const copy_bytes copies = model_copy_bytes(spec, sizeof(float), true);
    const json_int_t buffers = (json_int_t)session_bytes(s, limits), all = (json_int_t)copies.all,
                     least = (json_int_t)copies.least;
    json_t *memory =
        json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "prompt", (json_int_t)limits.max_prompt,
                  "continuation", (json_int_t)limits.max_continuation, "weights_mapped", bytes,
                  "weights_float32", all, "weights_float32_least", least, "session", buffers,
                  "least", buffers + least, "all", buffers + all);
    *out =
        json_pack("{s:s,s:s,s:o,s:I,s:I,s:o,s:o}", "family", s->family, "fingerprint", fingerprint,
                  "shape", shape_json(s), "parameters", (json_int_t)model_shape_parameters(s),
                  "weight_bytes", bytes, "weight_types", types, "memory", memory);
    return CKVC_OK;
}
