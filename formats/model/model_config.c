/* config.json of a Hugging Face model directory.
 *
 * Keys and defaults are those of transformers' LlamaConfig, MistralConfig and Qwen2Config and of
 * InternLM2's own InternLM2Config. Two spellings of the rotary part are read: `rope_theta` with
 * `rope_scaling` (up to transformers 4) and `rope_parameters` (5). A field that would change what
 * the model computes and that we do not run is refused by name; the rest (auto_map,
 * initializer_range, use_cache ...) means nothing here and is skipped.
 */
#include "formats/model/model_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "formats/model/gguf.h"
#include "formats/model/gguf_model.h"
#include "lib/base/buffer.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

#define CONFIG_BYTES_MAX (1u << 20)

/* What a family's config class says of itself: the one table of differences. */
typedef struct family {
    const char *model_type, *architecture;
    int32_t kv_heads; /* num_key_value_heads when the key is missing; 0: as many as query heads.
                         null is always that */
    int32_t positions, window; /* max_position_embeddings, sliding_window when missing */
    bool qkv_bias;             /* q, k and v have biases whatever config.json says */
    const char *bias;          /* key that gives biases to q, k, v and o; NULL: none */
    bool bias_default;
    bool mlp_bias;      /* reads mlp_bias */
    bool head_dim;      /* reads head_dim; otherwise it is width / heads */
    bool sliding_layer; /* use_sliding_window, max_window_layers, layer_types choose the layers that
                           have the window */
} family;

static const family families[] = {
    {.model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .positions = 2048,
     .bias = "attention_bias",
     .mlp_bias = true,
     .head_dim = true},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .kv_heads = 8,
     .positions = 131072,
     .window = 4096,
     .head_dim = true},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .kv_heads = 32,
     .positions = 32768,
     .window = 4096,
     .qkv_bias = true,
     .head_dim = true,
     .sliding_layer = true},
    {.model_type = "internlm2",
     .architecture = "InternLM2ForCausalLM",
     .positions = 2048,
     .bias = "bias",
     .bias_default = true},
};
#define SUPPORTED_TYPES "\"llama\", \"mistral\", \"qwen2\", \"internlm2\""

typedef struct reader {
    const char *path;
    ckvc_err *err;
    ckvc_status rc; /* of the first failure; reads after it do nothing */
} reader;

static void refuse(reader *r, ckvc_status rc) {
    if (r->rc == CKVC_OK) { r->rc = rc; }
}

/* The member, or NULL when it is missing or null: transformers treats both alike. */
static const json_t *member(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    return json_is_null(v) ? NULL : v;
}

/* "4", "\"abc\"" ... of a value, for messages; short. */
static void value_text(const json_t *v, char *out, size_t size) {
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    snprintf(out, size, "%.*s%s", 40, text ? text : "nothing",
             text && strlen(text) > 40 ? "..." : "");
    free(text);
}

/* An integer in min ... max. otherwise < min: the key is required; else it stands for a missing
 * one. */
static int32_t read_int(reader *r, const json_t *object, const char *key, int64_t min, int64_t max,
                        int64_t otherwise) {
    const json_t *v = member(object, key);
    if (r->rc != CKVC_OK) { return 0; }
    if (v == NULL && otherwise >= min) { return (int32_t)otherwise; }
    if (v == NULL) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA, "%s: %s is missing", r->path, key));
        return 0;
    }
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max) {
        char got[64];
        value_text(v, got, sizeof got);
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA, "%s: %s=%s is not an integer in %lld ... %lld",
                            r->path, key, got, (long long)min, (long long)max));
        return 0;
    }
    return (int32_t)json_integer_value(v);
}

/* A number in (above, max]. otherwise <= above: the key is required. */
static double read_number(reader *r, const json_t *object, const char *key, double above,
                          double max, double otherwise) {
    const json_t *v = member(object, key);
    if (r->rc != CKVC_OK) { return 0; }
    if (v == NULL && otherwise > above) { return otherwise; }
    if (v == NULL) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA, "%s: %s is missing", r->path, key));
        return 0;
    }
    double x = json_number_value(v);
    if (!json_is_number(v) || !isfinite(x) || x <= above || x > max) {
        char got[64];
        value_text(v, got, sizeof got);
        refuse(r,
               ckvc_fail(r->err, CKVC_E_DATA, "%s: %s=%s is not a number above %g and at most %g",
                         r->path, key, got, above, max));
        return 0;
    }
    return x;
}

static bool read_bool(reader *r, const json_t *object, const char *key, bool otherwise) {
    const json_t *v = member(object, key);
    if (r->rc == CKVC_OK && v != NULL && !json_is_boolean(v)) {
        char got[64];
        value_text(v, got, sizeof got);
        refuse(r,
               ckvc_fail(r->err, CKVC_E_DATA, "%s: %s=%s is not true or false", r->path, key, got));
    }
    return v ? json_is_true(v) : otherwise;
}

static const family *read_family(reader *r, const json_t *config) {
    char got[64];
    const json_t *type = member(config, "model_type");
    if (type == NULL) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA, "%s: model_type is missing", r->path));
        return NULL;
    }
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (json_is_string(type) && strcmp(json_string_value(type), families[i].model_type) == 0) {
            return &families[i];
        }
    }
    value_text(type, got, sizeof got);
    refuse(r, ckvc_fail(r->err, CKVC_E_DATA,
                        "%s: model_type %s is not supported (supported: " SUPPORTED_TYPES ")",
                        r->path, got));
    return NULL;
}

/* Keys of networks that differ from their family's. Present and not null, false, 0 or [] means
 * refused. */
static const struct {
    const char *key, *why;
} foreign_keys[] = {
    {"quantization_config", "use the unquantised F32, F16 or BF16 weights"},
    {"compression_config", "use the unquantised F32, F16 or BF16 weights"},
    {"num_local_experts", "a mixture of experts"},
    {"num_experts", "a mixture of experts"},
    {"attn_logit_softcapping", "attention with capped logits"},
    {"final_logit_softcapping", "capped logits"},
    {"use_qk_norm", "normalised queries and keys"},
    {"qk_layernorm", "normalised queries and keys"},
    {"rope_interleaved", "pairs (2i, 2i+1) of rotary values"},
};

/* What we do not run, by name. */
static void check_supported(reader *r, const json_t *config, const family *f) {
    char got[64];
    const json_t *arch = json_array_get(member(config, "architectures"), 0);
    /* "LLaMA..." is how the first converted checkpoints spell it */
    if (arch != NULL &&
        (!json_is_string(arch) || strcasecmp(json_string_value(arch), f->architecture) != 0)) {
        value_text(arch, got, sizeof got);
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA,
                            "%s: architecture %s is not supported (supported: \"%s\")", r->path,
                            got, f->architecture));
    }
    const json_t *act = member(config, "hidden_act");
    if (act != NULL && (!json_is_string(act) || (strcmp(json_string_value(act), "silu") != 0 &&
                                                 strcmp(json_string_value(act), "swish") != 0))) {
        value_text(act, got, sizeof got);
        refuse(r,
               ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: hidden_act %s is not supported (supported: \"silu\")", r->path, got));
    }
    for (size_t i = 0; i < sizeof foreign_keys / sizeof *foreign_keys; i++) {
        const json_t *v = member(config, foreign_keys[i].key);
        if (v == NULL || json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0.0) ||
            (json_is_array(v) && json_array_size(v) == 0)) {
            continue;
        }
        value_text(json_is_object(v) ? json_object_get(v, "quant_method") : v, got, sizeof got);
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA, "%s: %s (%s%s) is not supported: %s", r->path,
                            foreign_keys[i].key, json_is_object(v) ? "quant_method " : "", got,
                            foreign_keys[i].why));
    }
    const json_t *partial = member(config, "partial_rotary_factor");
    if (partial != NULL && json_number_value(partial) != 1.0) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA,
                            "%s: partial_rotary_factor other than 1 is not supported", r->path));
    }
}

/* Mistral: sliding_window for all layers, missing is MistralConfig's 4096, null is none. Qwen2
 * (Qwen2Config.__post_init__): only while use_sliding_window is true, then for the layers that
 * layer_types calls sliding_attention, by default those from max_window_layers on. */
static void read_window(reader *r, const json_t *config, const family *f, model_shape *s) {
    const json_t *types = member(config, "layer_types");
    const bool on =
        f->window > 0 && (!f->sliding_layer || read_bool(r, config, "use_sliding_window", false));
    if (on && (json_object_get(config, "sliding_window") == NULL ||
               member(config, "sliding_window") != NULL)) {
        s->sliding_window =
            read_int(r, config, "sliding_window", 1, MODEL_POSITIONS_MAX, f->window);
    }
    const int32_t from =
        on && f->sliding_layer ? read_int(r, config, "max_window_layers", 0, INT32_MAX, 28) : 0;
    if (types != NULL && (!json_is_array(types) || json_array_size(types) != (size_t)s->n_layers)) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA,
                            "%s: layer_types is not a list of num_hidden_layers=%d names", r->path,
                            s->n_layers));
        return;
    }
    int32_t n_windowed = 0;
    for (int32_t l = 0; l < s->n_layers && r->rc == CKVC_OK; l++) {
        bool windowed = s->sliding_window > 0 && l >= from;
        const json_t *t = json_array_get(types, (size_t)l);
        if (t != NULL) {
            const char *name = json_is_string(t) ? json_string_value(t) : "";
            const bool sliding = strcmp(name, "sliding_attention") == 0;
            /* a family without the rule ignores the list in transformers: then it must not say
             * anything else than the family does */
            if ((!sliding && strcmp(name, "full_attention") != 0) ||
                (sliding && s->sliding_window == 0) || (!f->sliding_layer && sliding != windowed)) {
                char got[64];
                value_text(t, got, sizeof got);
                refuse(r, ckvc_fail(r->err, CKVC_E_DATA,
                                    "%s: layer_types[%d]=%s is not supported (supported: %s)",
                                    r->path, l, got,
                                    s->sliding_window == 0
                                        ? "\"full_attention\", as no sliding window is on"
                                    : f->sliding_layer
                                        ? "\"full_attention\", \"sliding_attention\""
                                        : "\"sliding_attention\", as sliding_window is set"));
            }
            windowed = sliding;
        }
        if (!windowed && s->sliding_window > 0) {
            s->full_layers[l / 64] |= UINT64_C(1) << (l % 64);
        }
        n_windowed += windowed;
    }
    if (n_windowed == 0) { /* one spelling of a model without windows */
        s->sliding_window = 0;
        memset(s->full_layers, 0, sizeof s->full_layers);
    }
}

static void read_rope(reader *r, const json_t *config, model_shape *s) {
    const json_t *parameters = member(config, "rope_parameters"),
                 *scaling = member(config, "rope_scaling");
    char got[64];
    if (parameters != NULL && scaling != NULL && !json_equal(parameters, scaling)) {
        refuse(r, ckvc_fail(
                      r->err, CKVC_E_DATA,
                      "%s: rope_parameters and rope_scaling are both given and differ: remove one",
                      r->path));
        return;
    }
    const char *where = parameters ? "rope_parameters" : "rope_scaling";
    const json_t *rope = parameters ? parameters : scaling;
    if (rope != NULL && !json_is_object(rope)) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA, "%s: %s is not an object", r->path, where));
        return;
    }
    s->rope_theta = read_number(r, config, "rope_theta", 1.0, 1e15, 10000.0);
    if (member(rope, "rope_theta") != NULL) {
        double inner = read_number(r, rope, "rope_theta", 1.0, 1e15, 0.0);
        if (r->rc == CKVC_OK && member(config, "rope_theta") != NULL && inner != s->rope_theta) {
            refuse(r,
                   ckvc_fail(r->err, CKVC_E_DATA, "%s: rope_theta is %g, but %s.rope_theta is %g",
                             r->path, s->rope_theta, where, inner));
        }
        s->rope_theta = inner;
    }
    const json_t *type = member(rope, "rope_type");
    if (type == NULL) { type = member(rope, "type"); }
    if (rope == NULL ||
        (type == NULL &&
         parameters != NULL)) { /* rope_parameters alone may hold nothing but the base */
        return;
    }
    if (member(rope, "partial_rotary_factor") != NULL &&
        json_number_value(member(rope, "partial_rotary_factor")) != 1.0) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA,
                            "%s: %s.partial_rotary_factor other than 1 is not supported", r->path,
                            where));
    }
    if (json_is_string(type) && strcmp(json_string_value(type), "default") == 0) { return; }
    for (rope_kind k = ROPE_LLAMA3; json_is_string(type) && k <= ROPE_DYNAMIC; k++) {
        if (strcmp(json_string_value(type), rope_kind_name(k)) == 0) { s->rope = k; }
    }
    switch (s->rope) {
    case ROPE_DEFAULT:
        value_text(type, got, sizeof got);
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA,
                            "%s: %s.rope_type %s is not supported (supported: \"default\", "
                            "\"llama3\", \"linear\", \"dynamic\")",
                            r->path, where, got));
        return;
    case ROPE_LLAMA3:
        s->rope_factor = read_number(r, rope, "factor", 0.0, 1e6, 0.0);
        s->rope_low_freq = read_number(r, rope, "low_freq_factor", 0.0, 1e6, 0.0);
        s->rope_high_freq = read_number(r, rope, "high_freq_factor", 0.0, 1e6, 0.0);
        s->rope_original_positions =
            read_int(r, rope, "original_max_position_embeddings", 1, MODEL_POSITIONS_MAX, 0);
        if (r->rc == CKVC_OK && s->rope_high_freq <= s->rope_low_freq) {
            refuse(r, ckvc_fail(r->err, CKVC_E_DATA,
                                "%s: %s.high_freq_factor=%g must be above low_freq_factor=%g",
                                r->path, where, s->rope_high_freq, s->rope_low_freq));
        }
        return;
    case ROPE_LINEAR:
    case ROPE_DYNAMIC:
        s->rope_factor = read_number(r, rope, "factor", 0.0, 1e6, 0.0);
        if (r->rc == CKVC_OK && s->rope_factor < 1.0) {
            refuse(r, ckvc_fail(r->err, CKVC_E_DATA, "%s: %s.factor=%g must be at least 1", r->path,
                                where, s->rope_factor));
        }
        return;
    }
}

/* Token ids say nothing about what the network computes; one outside the vocabulary counts as none.
 */
static void read_ids(const json_t *config, model_shape *s) {
    const json_t *bos = member(config, "bos_token_id"), *eos = member(config, "eos_token_id");
    s->bos_id =
        json_is_integer(bos) && json_integer_value(bos) >= 0 && json_integer_value(bos) < s->vocab
            ? (int32_t)json_integer_value(bos)
            : -1;
    size_t n = json_is_array(eos) ? json_array_size(eos) : eos != NULL;
    for (size_t i = 0; i < n && s->n_eos < (int32_t)(sizeof s->eos_ids / sizeof *s->eos_ids); i++) {
        const json_t *id = json_is_array(eos) ? json_array_get(eos, i) : eos;
        if (json_is_integer(id) && json_integer_value(id) >= 0 &&
            json_integer_value(id) < s->vocab) {
            s->eos_ids[s->n_eos++] = (int32_t)json_integer_value(id);
        }
    }
}

ckvc_status model_config_read(const char *dir, model_shape *out, ckvc_err *err) {
    if (gguf_is_file(dir)) { return gguf_shape_read(dir, out, err); }
    *out = (model_shape){.bos_id = -1};
    json_t *config = NULL;
    char *path = ckvc_path_join(dir, "config.json");
    reader r = {path, err, CKVC_OK};
    r.rc = ckvc_json_read(path, CONFIG_BYTES_MAX, &config, err);
    if (r.rc != CKVC_OK) { goto done; }
    if (!json_is_object(config)) {
        r.rc = ckvc_fail(err, CKVC_E_DATA, "%s: not a JSON object", path);
        goto done;
    }
    const family *f = read_family(&r, config);
    if (f == NULL) { goto done; }
    check_supported(&r, config, f);
    model_shape *s = out;
    snprintf(s->family, sizeof s->family, "%s", f->model_type);
    s->n_layers = read_int(&r, config, "num_hidden_layers", 1, MODEL_LAYERS_MAX, 0);
    s->n_heads = read_int(&r, config, "num_attention_heads", 1, MODEL_HEADS_MAX, 0);
    const bool kv_heads_missing = json_object_get(config, "num_key_value_heads") == NULL;
    s->n_kv_heads = read_int(&r, config, "num_key_value_heads", 1, MODEL_HEADS_MAX,
                             f->kv_heads > 0 && kv_heads_missing ? f->kv_heads : s->n_heads);
    s->width = read_int(&r, config, "hidden_size", 1, MODEL_WIDTH_MAX, 0);
    s->intermediate = read_int(&r, config, "intermediate_size", 1, MODEL_INTERMEDIATE_MAX, 0);
    s->vocab = read_int(&r, config, "vocab_size", 1, MODEL_VOCAB_MAX, 0);
    s->max_positions =
        read_int(&r, config, "max_position_embeddings", 1, MODEL_POSITIONS_MAX, f->positions);
    s->rms_eps = read_number(&r, config, "rms_norm_eps", 0.0, 1.0, 1e-6);
    if (r.rc != CKVC_OK) { goto done; }
    if (s->n_heads % s->n_kv_heads != 0) {
        r.rc = ckvc_fail(err, CKVC_E_DATA,
                         "%s: num_attention_heads=%d is not a multiple of num_key_value_heads=%d",
                         path, s->n_heads, s->n_kv_heads);
        goto done;
    }
    const bool given = f->head_dim && member(config, "head_dim") != NULL;
    if (!given && s->width % s->n_heads != 0) {
        r.rc = ckvc_fail(err, CKVC_E_DATA,
                         "%s: hidden_size=%d is not a multiple of num_attention_heads=%d%s", path,
                         s->width, s->n_heads, f->head_dim ? " and head_dim is not given" : "");
        goto done;
    }
    s->head_dim =
        given ? read_int(&r, config, "head_dim", 2, MODEL_HEAD_DIM_MAX, 0) : s->width / s->n_heads;
    if (r.rc == CKVC_OK && (s->head_dim > MODEL_HEAD_DIM_MAX || s->head_dim % 2 != 0)) {
        r.rc = ckvc_fail(err, CKVC_E_DATA, "%s: head_dim=%d is not an even number up to %d", path,
                         s->head_dim, MODEL_HEAD_DIM_MAX);
    }
    read_rope(&r, config, s);
    if (r.rc == CKVC_OK && s->rope == ROPE_DYNAMIC &&
        s->head_dim == 2) { /* its exponent is D / (D - 2) */
        r.rc = ckvc_fail(err, CKVC_E_DATA, "%s: head_dim=2 is too small for dynamic rotary scaling",
                         path);
    }
    s->tied = read_bool(&r, config, "tie_word_embeddings", false);
    /* LlamaAttention and InternLM2Attention: one flag for q, k, v and o; Qwen2Attention: q, k, v
     * always, o never */
    s->output_bias = f->bias && read_bool(&r, config, f->bias, f->bias_default);
    s->qkv_bias = f->qkv_bias || s->output_bias;
    s->mlp_bias = f->mlp_bias && read_bool(&r, config, "mlp_bias", false);
    read_window(&r, config, f, s);
    if (r.rc == CKVC_OK) { read_ids(config, s); }
done:
    json_decref(config);
    free(path);
    return r.rc;
}

int32_t model_shape_window(const model_shape *s, int32_t layer) {
    return s->full_layers[layer / 64] >> (layer % 64) & 1 ? 0 : s->sliding_window;
}

int64_t model_shape_context(const model_shape *s) {
    const bool stretched = s->rope == ROPE_LINEAR || s->rope == ROPE_DYNAMIC;
    const double context = (double)s->max_positions * (stretched ? s->rope_factor : 1.0);
    return context < MODEL_POSITIONS_MAX ? (int64_t)context : MODEL_POSITIONS_MAX;
}

const char *rope_kind_name(rope_kind kind) {
    static const char *const names[] = {[ROPE_DEFAULT] = "default",
                                        [ROPE_LLAMA3] = "llama3",
                                        [ROPE_LINEAR] = "linear",
                                        [ROPE_DYNAMIC] = "dynamic"};
    return names[kind];
}

/* The fields that decide what the network computes, in this order; one that has its neutral value
 * is left out, so that a later version that knows more fields gives an old model the same lines.
 * The context length is a limit, not arithmetic. */
char *model_shape_lines(const model_shape *s) {
    ckvc_buffer b = {0};
    ckvc_buffer_printf(&b,
                       "family=%s\nlayers=%d\nheads=%d\nkv_heads=%d\nhead_dim=%d\nwidth=%"
                       "d\nintermediate=%d\nvocab=%d\n",
                       s->family, s->n_layers, s->n_heads, s->n_kv_heads, s->head_dim, s->width,
                       s->intermediate, s->vocab);
    ckvc_buffer_printf(&b, "rms_eps=%.17g\nrope_theta=%.17g\n", s->rms_eps, s->rope_theta);
    if (s->rope == ROPE_LLAMA3) {
        ckvc_buffer_printf(&b,
                           "rope=llama3\nrope_factor=%.17g\nrope_low_freq=%.17g\nrope_high_freq=%."
                           "17g\nrope_original_positions=%d\n",
                           s->rope_factor, s->rope_low_freq, s->rope_high_freq,
                           s->rope_original_positions);
    }
    if (s->rope == ROPE_LINEAR) {
        ckvc_buffer_printf(&b, "rope=linear\nrope_factor=%.17g\n", s->rope_factor);
    }
    if (s->rope ==
        ROPE_DYNAMIC) { /* here the context length is arithmetic: the base grows beyond it */
        ckvc_buffer_printf(&b, "rope=dynamic\nrope_factor=%.17g\nmax_positions=%d\n",
                           s->rope_factor, s->max_positions);
    }
    if (s->tied) { ckvc_buffer_text(&b, "tied=1\n"); }
    if (s->qkv_bias) { ckvc_buffer_text(&b, "qkv_bias=1\n"); }
    if (s->output_bias) { ckvc_buffer_text(&b, "output_bias=1\n"); }
    if (s->mlp_bias) { ckvc_buffer_text(&b, "mlp_bias=1\n"); }
    if (s->sliding_window) { ckvc_buffer_printf(&b, "sliding_window=%d\n", s->sliding_window); }
    for (int32_t l = 0; s->sliding_window && l < s->n_layers; l++) {
        if (model_shape_window(s, l) == 0) { ckvc_buffer_printf(&b, "full_layer=%d\n", l); }
    }
    if (b.failed) {
        ckvc_buffer_fini(&b);
        return NULL;
    }
    return (char *)b.data;
}

int64_t model_shape_parameters(const model_shape *s) {
    const int64_t m = s->width, q = (int64_t)s->n_heads * s->head_dim,
                  kv = (int64_t)s->n_kv_heads * s->head_dim, f = s->intermediate;
    int64_t layer = m * (q + 2 * kv) + q * m + 3 * m * f + 2 * m;
    if (s->qkv_bias) { layer += q + 2 * kv; }
    if (s->output_bias) { layer += m; }
    if (s->mlp_bias) { layer += 2 * f + m; }
    return s->n_layers * layer + (int64_t)s->vocab * m * (s->tied ? 1 : 2) + m;
}
