/* Looking at a model directory without running it. */
#include "lib/model/model_info.h"

#include "lib/model/model_weights.h"

/* The whole check; *files stays open for the caller. */
static ckvc_status check_dir(const char *dir, model_shape *shape, weights **files,
                             char fingerprint[CKVC_SHA256_HEX], ckvc_err *err) {
    ckvc_pool *pool = NULL;
    *files = NULL;
    ckvc_status rc = model_config_read(dir, shape, err);
    if (rc == CKVC_OK) { rc = weights_open(dir, files, err); }
    if (rc == CKVC_OK) { rc = ckvc_pool_create(ckvc_cpu_count(), &pool, err); }
    if (rc == CKVC_OK) { rc = model_check(shape, *files, dir, pool, fingerprint, err); }
    ckvc_pool_destroy(pool);
    if (rc != CKVC_OK) {
        weights_close(*files);
        *files = NULL;
    }
    return rc;
}

static json_t *shape_json(const model_shape *s) {
    json_t *o =
        json_pack("{s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:f,s:f,s:s,s:b}", "n_layers", s->n_layers,
                  "n_heads", s->n_heads, "n_kv_heads", s->n_kv_heads, "head_dim", s->head_dim,
                  "width", s->width, "intermediate", s->intermediate, "vocab", s->vocab,
                  "max_positions", s->max_positions, "rms_eps", s->rms_eps, "rope_theta",
                  s->rope_theta, "rope", rope_kind_name(s->rope), "tied", s->tied);
    if (o && s->rope != ROPE_DEFAULT) {
        json_object_set_new(o, "rope_factor", json_real(s->rope_factor));
    }
    if (o && s->rope == ROPE_LLAMA3) {
        json_object_set_new(o, "rope_low_freq", json_real(s->rope_low_freq));
        json_object_set_new(o, "rope_high_freq", json_real(s->rope_high_freq));
        json_object_set_new(o, "rope_original_positions", json_integer(s->rope_original_positions));
    }
    if (o && model_shape_context(s) != s->max_positions) {
        json_object_set_new(o, "context", json_integer(model_shape_context(s)));
    }
    if (o && s->sliding_window) {
        json_t *layers = json_array();
        for (int32_t l = 0; l < s->n_layers; l++) {
            if (model_shape_window(s, l) > 0) { json_array_append_new(layers, json_integer(l)); }
        }
        json_object_set_new(o, "sliding_window", json_integer(s->sliding_window));
        json_object_set_new(o, "sliding_layers", layers);
    }
    if (o && s->qkv_bias) { json_object_set_new(o, "qkv_bias", json_true()); }
    if (o && s->output_bias) { json_object_set_new(o, "output_bias", json_true()); }
    if (o && s->mlp_bias) { json_object_set_new(o, "mlp_bias", json_true()); }
    return o;
}

#define INFO_PROMPT 2048 /* tokens that memory is stated for when none are given */

json_t *model_info(const char *dir, session_limits limits, ckvc_err *err) {
    model_shape shape;
    weights *files;
    char fingerprint[CKVC_SHA256_HEX];
    if (check_dir(dir, &shape, &files, fingerprint, err) != CKVC_OK) { return NULL; }
    uint64_t bytes = 0;
    json_t *types = json_object();
    for (size_t i = 0; i < weights_count(files); i++) {
        const tensor_view *t = weights_at(files, i);
        bytes += t->bytes;
        json_object_set_new(types, t->dtype,
                            json_integer(json_integer_value(json_object_get(types, t->dtype)) + 1));
    }
    const copy_bytes copies = model_copy_bytes(&shape, files, 0);
    weights_close(files);
    const int64_t context = model_shape_context(&shape),
                  longest = context - limits.max_continuation;
    if (limits.max_prompt == 0) {
        limits.max_prompt = longest < INFO_PROMPT ? longest : INFO_PROMPT;
    }
    if (limits.max_prompt < 1 || limits.max_prompt > longest) {
        json_decref(types);
        ckvc_fail(err, CKVC_E_USAGE, "%s: %lld + %lld tokens: the model's context is %lld", dir,
                  (long long)limits.max_prompt, (long long)limits.max_continuation,
                  (long long)context);
        return NULL;
    }
    const json_int_t buffers = (json_int_t)session_bytes(&shape, limits),
                     all = (json_int_t)copies.all, least = (json_int_t)copies.least;
    json_t *memory =
        json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "prompt", (json_int_t)limits.max_prompt,
                  "continuation", (json_int_t)limits.max_continuation, "weights_mapped",
                  (json_int_t)bytes, "weights_float32", all, "weights_float32_least", least,
                  "session", buffers, "least", buffers + least, "all", buffers + all);
    json_t *out = json_pack("{s:s,s:s,s:o,s:I,s:I,s:o,s:o}", "family", shape.family, "fingerprint",
                            fingerprint, "shape", shape_json(&shape), "parameters",
                            (json_int_t)model_shape_parameters(&shape), "weight_bytes",
                            (json_int_t)bytes, "weight_types", types, "memory", memory);
    if (out == NULL) { ckvc_fail(err, CKVC_E_MEMORY, "%s: no memory for the description", dir); }
    return out;
}

ckvc_status model_verify(const char *dir, ckvc_err *err) {
    model_shape shape;
    weights *files;
    char fingerprint[CKVC_SHA256_HEX];
    ckvc_status rc = check_dir(dir, &shape, &files, fingerprint, err);
    weights_close(files);
    return rc;
}
