/* config.json: see model_readers.h.
 *
 * Keys and defaults are those of transformers' LlamaConfig, MistralConfig, Qwen2Config,
 * Qwen3Config, Phi3Config and Gemma3TextConfig, and of InternLM2's own InternLM2Config. Two
 * spellings of the rotary part are read: `rope_theta` with `rope_scaling` (up to transformers 4),
 * and `rope_parameters` (from 5 on). A key that would change what the model computes, and that we
 * do not run, is refused by name. A key that no rule knows leads to a warning, as a newer
 * transformers may compute with it. */
#include "formats/model/model_readers.h"

#include <math.h>
#include <stdio.h>
#include <strings.h>

#include "lib/base/files.h"
#include "lib/base/json.h"

#define CONFIG_BYTES_MAX (1u << 20)

/* What the config class of a family says; this is the one table of differences. */
typedef struct family {
    const char *model_type, *architecture;
    const char *bias; /* the key that gives biases to q, k, v and o; NULL: there is none */
    double rms_eps;   /* used where the key is missing; 0: 1e-6 */
    /* Only Gemma 3 has these: the bases of layers without and with a window, a
     * query_pre_attn_scalar, and how often a layer without the window comes where no layer_types
     * say it. */
    double rope_theta, local_theta, query_scalar;
    int32_t pattern;
    /* What is used where num_key_value_heads, max_position_embeddings or sliding_window is missing.
     * kv_heads 0: as many as there are query heads, which null always means. window -1: no window;
     * 0: the family never has one. */
    int32_t kv_heads, positions, window;
    int32_t default_head_dim; /* used where the key is missing; 0: width / heads */
    bool bias_default;
    bool qkv_bias;       /* q, k and v have biases, whatever config.json says */
    bool mlp_bias;       /* it reads mlp_bias */
    bool no_head_dim;    /* it reads no head_dim, which is always width / heads */
    bool qk_norm;        /* see model_shape */
    bool partial_rotary; /* it reads partial_rotary_factor and has no rotary scaling */
    /* use_sliding_window, max_window_layers and layer_types choose the layers that have the
     * window */
    bool sliding_layer;
} family;

static const family families[] = {
    {.model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .positions = 2048,
     .bias = "attention_bias",
     .mlp_bias = true},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .kv_heads = 8,
     .positions = 131072,
     .window = 4096},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .kv_heads = 32,
     .positions = 32768,
     .window = 4096,
     .qkv_bias = true,
     .sliding_layer = true},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .kv_heads = 32,
     .positions = 32768,
     .window = 4096,
     .bias = "attention_bias",
     .default_head_dim = 128,
     .qk_norm = true,
     .sliding_layer = true},
    {.model_type = "phi3",
     .architecture = "Phi3ForCausalLM",
     .positions = 4096,
     .window = -1,
     .rms_eps = 1e-5,
     .partial_rotary = true},
    {.model_type = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .kv_heads = 4,
     .positions = 131072,
     .window = 4096,
     .bias = "attention_bias",
     .default_head_dim = 256,
     .qk_norm = true,
     .pattern = 6,
     .rope_theta = 1e6,
     .local_theta = 1e4,
     .query_scalar = 256},
    {.model_type = "internlm2",
     .architecture = "InternLM2ForCausalLM",
     .positions = 2048,
     .bias = "bias",
     .bias_default = true,
     .no_head_dim = true},
};
#define SUPPORTED_TYPES                                                                            \
    "\"llama\", \"mistral\", \"qwen2\", \"qwen3\", \"phi3\", \"gemma3_text\", \"internlm2\""

/* The member, or NULL when it is missing or null, which transformers treats alike. */
static const json_t *member(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    return json_is_null(v) ? NULL : v;
}

static bool is_text(const json_t *v, const char *text) {
    return json_is_string(v) && strcmp(json_string_value(v), text) == 0;
}

/* Short text of a value for messages: "4", "\"abc\"" ... */
typedef char short_text[48];
static const char *value_text(const json_t *v, short_text out) {
    CKVC_AUTO_FREE char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    snprintf(out, sizeof(short_text), "%.*s%s", 40, text ? text : "nothing",
             text && strlen(text) > 40 ? "..." : "");
    return out;
}
#define TEXT(v) value_text(v, (short_text){0})

/* Whether the key has a value. A key that is required and is not there is refused. */
static bool is_given(reading *r, const json_t *v, const char *key, bool required) {
    if (r->status != CKVC_OK) { return false; }
    if (!v && required) { refuse(r, "%s is missing", key); }
    return v != NULL;
}

/* Reads an integer in min ... max; returns one in this range even where it refuses the value.
 * otherwise < min: the key is required; else `otherwise` stands for a missing key. */
static int32_t read_int(reading *r, const json_t *object, const char *key, int64_t min, int64_t max,
                        int64_t otherwise) {
    const json_t *v = member(object, key);
    const int64_t x = json_integer_value(v);
    if (!is_given(r, v, key, otherwise < min)) {
        return (int32_t)(otherwise < min ? min : otherwise);
    }
    if (json_is_integer(v) && x >= min && x <= max) { return (int32_t)x; }
    refuse(r, "%s=%s is not an integer in %lld ... %lld", key, TEXT(v), (long long)min,
           (long long)max);
    return (int32_t)min;
}

/* Reads a number in (above, max]. otherwise <= above: the key is required. */
static double read_number(reading *r, const json_t *object, const char *key, double above,
                          double max, double otherwise) {
    const json_t *v = member(object, key);
    if (!is_given(r, v, key, otherwise <= above)) { return otherwise; }
    const double x = json_number_value(v);
    if (!json_is_number(v) || !isfinite(x) || x <= above || x > max) {
        refuse(r, "%s=%s is not a number above %g and at most %g", key, TEXT(v), above, max);
    }
    return x;
}

static bool read_bool(reading *r, const json_t *object, const char *key, bool otherwise) {
    const json_t *v = member(object, key);
    if (!is_given(r, v, key, false)) { return otherwise; }
    if (!json_is_boolean(v)) { refuse(r, "%s=%s is not true or false", key, TEXT(v)); }
    return json_is_true(v);
}

static const family *read_family(reading *r, const json_t *config) {
    const json_t *type = member(config, "model_type");
    if (!is_given(r, type, "model_type", true)) { return NULL; }
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (is_text(type, families[i].model_type)) { return &families[i]; }
    }
    refuse(r, "model_type %s is not supported (supported: " SUPPORTED_TYPES ")", TEXT(type));
    return NULL;
}

/* What a key of config.json means. A family that has no such key in its table ignores it in
 * transformers, too. For a rule's value, 1 stands for true as well, and 0 for false, [] and {}.
 * python/ckvc/fingerprint.py knows the same keys. */
#define ANOTHER "with it this is another network than its family's"
static const key_rule rules[] = {
    /* these are read */
    {" model_type architectures num_hidden_layers num_attention_heads num_key_value_heads "
     "hidden_size intermediate_size vocab_size max_position_embeddings rms_norm_eps head_dim "
     "hidden_act hidden_activation layer_types sliding_window use_sliding_window "
     "max_window_layers sliding_window_pattern tie_word_embeddings attention_bias bias mlp_bias "
     "query_pre_attn_scalar eos_token_id rope_theta rope_local_base_freq rope_scaling "
     "rope_parameters full_attention sliding_attention rope_type type factor low_freq_factor "
     "high_freq_factor original_max_position_embeddings ",
     0, NULL},
    /* notes, tokenizer, training and generation; other ways to compute the same; what else is
     * returned */
    {" _name_or_path _model_name_or_path name_or_path _commit_hash auto_map transformers_version "
     "torch_dtype dtype "
     "transformers.js_config unsloth_version unsloth_fixed is_llama_config task_specific_params "
     "id2label label2id num_labels problem_type is_decoder bos_token_id pad_token_id unk_token_id "
     "sep_token_id cls_token_id mask_token_id decoder_start_token_id prefix tokenizer_class "
     "model_max_length max_sequence_length seq_length initializer_range attention_dropout "
     "attn_pdrop embd_pdrop resid_pdrop hidden_dropout classifier_dropout pretraining_tp "
     "gradient_checkpointing use_cache cache_implementation attn_implementation "
     "_attn_implementation _attn_implementation_autoset _flash_attn_2_enabled use_flash_attn "
     "chunk_size_feed_forward return_dict output_attentions output_hidden_states "
     "tie_last_hidden_states torchscript use_bfloat16 do_sample max_length min_length num_beams "
     "temperature top_k top_p repetition_penalty ",
     0, NULL},
    {" is_causal ", 1, "attention to later tokens"},
    {" use_bidirectional_attention ", 0, "attention to later tokens"},
    {" quantization_config compression_config quantization ", 0,
     "use the unquantised F32, F16 or BF16 weights"},
    {" num_local_experts num_experts n_routed_experts ", 0, "a mixture of experts"},
    {" transformers_weights ", 0, "weights in a file of another name"},
    {" attention_chunk_size per_layer_config pruned_heads kv_sharing_modes num_kv_shared_layers "
     "kv_lora_rank is_encoder_decoder add_cross_attention attn_logit_softcapping "
     "final_logit_softcapping clip_qkv use_qk_norm qk_layernorm alibi rope_interleaved "
     "mrope_section use_mrope no_rope_layers no_rope_layer_interval ",
     0, ANOTHER},
    {" partial_rotary_factor logit_scale logits_scaling embedding_multiplier residual_multiplier ",
     1, ANOTHER},
    {NULL, 0, NULL},
};

/* A value as the `plain` of a rule; NaN where it is none of these. */
static double plain_value(const json_t *v) {
    if (json_is_number(v)) { return json_number_value(v); }
    const bool filled = json_array_size(v) + json_object_size(v) > 0 || json_is_string(v);
    return filled ? NAN : json_is_true(v);
}

/* Checks the keys of the configuration, and those of its rotary part. */
static ckvc_status check_keys(reading *r, const json_t *object, const family *f,
                              ckvc_buffer *unknown) {
    const char *key;
    json_t *v;
    json_object_foreach(ckvc_unconst(object), key, v) {
        const json_t *method = json_object_get(v, "quant_method");
        /* null counts as a key that is not there; only for is_causal does its truth value count */
        if (json_is_null(v) && strcmp(key, "is_causal") != 0) { continue; }
        if (f->partial_rotary && strcmp(key, "partial_rotary_factor") == 0) { continue; }
        CKVC_TRY(key_check(r, rules, key, key, plain_value(v), TEXT(method ? method : v), unknown));
        if (json_is_object(v) && (strncmp(key, "rope_", 5) == 0 || strstr(key, "_attention"))) {
            CKVC_TRY(check_keys(r, v, f, unknown));
        }
    }
    return CKVC_OK;
}

/* Refuses by name what we do not run. */
static ckvc_status check_supported(reading *r, const json_t *config, const family *f) {
    const json_t *arch = json_array_get(member(config, "architectures"), 0);
    /* "LLaMA..." is the spelling of the first converted checkpoints */
    MUST(r,
         !arch ||
             (json_is_string(arch) && strcasecmp(json_string_value(arch), f->architecture) == 0),
         "architecture %s is not supported (supported: \"%s\")", TEXT(arch), f->architecture);
    const bool gemma = f->pattern > 0;
    const char *key = gemma ? "hidden_activation" : "hidden_act",
               *name = gemma ? "gelu_pytorch_tanh" : "silu";
    const json_t *act = member(config, key);
    MUST(r, !act || is_text(act, name) || (!gemma && is_text(act, "swish")),
         "%s %s is not supported (supported: \"%s\")", key, TEXT(act), name);
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer unknown = {0};
    CKVC_TRY(check_keys(r, config, f, &unknown));
    warn_of_keys(r, &unknown);
    return CKVC_OK;
}

/* Whether layer_types gives layer l the window. s->sliding_window and `windowed` are what the rest
 * of the configuration says. A family without this rule ignores the list in transformers; here the
 * list must then agree with what the family does. */
static bool read_layer_type(reading *r, const json_t *types, int32_t l, const family *f,
                            const model_shape *s, bool windowed) {
    const json_t *t = json_array_get(types, (size_t)l);
    const bool sliding = is_text(t, "sliding_attention"), by_list = f->sliding_layer || f->pattern;
    if ((!sliding && !is_text(t, "full_attention")) || (sliding && s->sliding_window == 0) ||
        (!by_list && sliding != windowed)) {
        refuse(r, "layer_types[%d]=%s is not supported (supported: %s)", l, TEXT(t),
               s->sliding_window == 0 ? "\"full_attention\", as no sliding window is on"
               : by_list              ? "\"full_attention\", \"sliding_attention\""
                                      : "\"sliding_attention\", as sliding_window is set");
    }
    return sliding;
}

/* Reads which layers have a window. Mistral: sliding_window holds for all layers; a missing key
 * means MistralConfig's 4096, null means none. Phi3: the same, but a missing key means none. Gemma
 * 3 (Gemma3TextConfig.__post_init__): the layers that layer_types says, by default all but every
 * sixth. Qwen2 and Qwen3 (Qwen2Config.__post_init__): none unless use_sliding_window is true; then
 * the layers that layer_types calls sliding_attention, by default those from max_window_layers
 * on. */
static ckvc_status read_window(reading *r, const json_t *config, const family *f, model_shape *s) {
    const json_t *types = member(config, "layer_types");
    const bool on =
        f->window != 0 && (!f->sliding_layer || read_bool(r, config, "use_sliding_window", false));
    const json_t *window = json_object_get(config, "sliding_window");
    MUST(r,
         f->window != 0 || types || !member(config, "sliding_window") ||
             json_integer_value(window) >= s->max_positions,
         "sliding_window=%s is not supported: a %s model attends to everything, but transformers "
         "drops what lies farther back while it generates",
         TEXT(window), f->model_type);
    if (on && !json_is_null(window) && (window || f->window > 0)) {
        s->sliding_window =
            read_int(r, config, "sliding_window", 1, MODEL_POSITIONS_MAX, f->window);
    }
    const int32_t from =
        on && f->sliding_layer ? read_int(r, config, "max_window_layers", 0, INT32_MAX, 28) : 0;
    const int32_t every =
        f->pattern ? read_int(r, config, "sliding_window_pattern", 1, INT32_MAX, f->pattern) : 0;
    MUST(r, !types || (json_is_array(types) && json_array_size(types) == (size_t)s->n_layers),
         "layer_types is not a list of num_hidden_layers=%d names", s->n_layers);
    int32_t n_windowed = 0;
    for (int32_t l = 0; l < s->n_layers && r->status == CKVC_OK; l++) {
        bool windowed = s->sliding_window > 0 && (every ? (l + 1) % every != 0 : l >= from);
        if (types) { windowed = read_layer_type(r, types, l, f, s, windowed); }
        if (!windowed) { s->full_layers[l / 64] |= UINT64_C(1) << (l % 64); }
        n_windowed += windowed;
    }
    if (n_windowed == 0) { /* so that a model without windows has one spelling */
        s->sliding_window = 0;
        s->rope_local_theta = 0.0;
        memset(s->full_layers, 0, sizeof s->full_layers);
    }
    return r->status;
}

/* Reads the base of Gemma 3's layers that have a window
 * (Gemma3TextConfig.convert_rope_params_to_dict) into the shape; *parameters become those of its
 * other layers. */
static ckvc_status read_local_rope(reading *r, const json_t *config, const family *f,
                                   const json_t **parameters, model_shape *s) {
    const json_t *local = member(*parameters, "sliding_attention"),
                 *type = member(local, "rope_type");
    MUST(r, !type || is_text(type, "default"),
         "rope_parameters.sliding_attention.rope_type %s is not supported (supported: "
         "\"default\")",
         TEXT(type));
    s->rope_local_theta = read_number(r, config, "rope_local_base_freq", 1.0, 1e15, f->local_theta);
    if (member(local, "rope_theta")) {
        s->rope_local_theta = read_number(r, local, "rope_theta", 1.0, 1e15, 0.0);
    }
    MUST(r, !*parameters || member(*parameters, "full_attention"),
         "rope_parameters has no full_attention");
    *parameters = member(*parameters, "full_attention");
    return r->status;
}

static ckvc_status read_rope(reading *r, const json_t *config, const family *f, model_shape *s) {
    const json_t *parameters = member(config, "rope_parameters"),
                 *scaling = member(config, "rope_scaling");
    if (f->local_theta > 0) { CKVC_TRY(read_local_rope(r, config, f, &parameters, s)); }
    MUST(r, !parameters || !scaling || json_equal(parameters, scaling),
         "rope_parameters and rope_scaling are both given and differ: remove one");
    const char *where = parameters ? "rope_parameters" : "rope_scaling";
    const json_t *rope = parameters ? parameters : scaling;
    MUST(r, !rope || json_is_object(rope), "%s is not an object", where);
    s->rope_theta = read_number(r, config, "rope_theta", 1.0, 1e15,
                                f->rope_theta > 0 ? f->rope_theta : 10000.0);
    if (member(rope, "rope_theta")) {
        const double inner = read_number(r, rope, "rope_theta", 1.0, 1e15, 0.0);
        MUST(r, !member(config, "rope_theta") || inner == s->rope_theta,
             "rope_theta is %g, but %s.rope_theta is %g", s->rope_theta, where, inner);
        s->rope_theta = inner;
    }
    if (f->partial_rotary) {
        /* Phi3Config.convert_rope_params_to_dict: the inner value counts */
        const json_t *of = member(rope, "partial_rotary_factor") ? rope : config;
        const double share = read_number(r, of, "partial_rotary_factor", 0.0, 1.0, 1.0);
        CKVC_TRY(r->status);
        s->rope_dims = (int32_t)(s->head_dim * share);
        MUST(r, s->rope_dims > 0 && s->rope_dims % 2 == 0,
             "partial_rotary_factor=%g rotates %d of head_dim=%d values; want a positive even "
             "number",
             share, s->rope_dims, s->head_dim);
        if (s->rope_dims == s->head_dim) { s->rope_dims = 0; } /* so that it has one spelling */
    }
    CKVC_TRY(r->status);
    const json_t *type = member(rope, "rope_type");
    if (!type) { type = member(rope, "type"); }
    if (!rope || (!type && parameters)) { /* rope_parameters may hold nothing but the base */
        return CKVC_OK;
    }
    if (is_text(type, "default")) { return CKVC_OK; }
    MUST(r, !f->partial_rotary, "%s.rope_type %s is not supported (supported: \"default\")", where,
         TEXT(type));
    for (rope_kind k = ROPE_LLAMA3; k <= ROPE_DYNAMIC; k++) {
        if (is_text(type, rope_kind_name(k))) { s->rope = k; }
    }
    MUST(r, s->rope != ROPE_DEFAULT,
         "%s.rope_type %s is not supported (supported: \"default\", \"llama3\", \"linear\", "
         "\"dynamic\")",
         where, TEXT(type));
    MUST(r, s->rope == ROPE_LINEAR || f->local_theta == 0,
         "%s.rope_type %s is not supported (supported: \"default\", \"linear\")", where,
         TEXT(type));
    s->rope_factor = read_number(r, rope, "factor", 0.0, 1e6, 0.0);
    if (s->rope == ROPE_LLAMA3) {
        s->rope_low_freq = read_number(r, rope, "low_freq_factor", 0.0, 1e6, 0.0);
        s->rope_high_freq = read_number(r, rope, "high_freq_factor", 0.0, 1e6, 0.0);
        s->rope_original_positions =
            read_int(r, rope, "original_max_position_embeddings", 1, MODEL_POSITIONS_MAX, 0);
        MUST(r, s->rope_high_freq > s->rope_low_freq,
             "%s.high_freq_factor=%g must be above low_freq_factor=%g", where, s->rope_high_freq,
             s->rope_low_freq);
        return r->status;
    }
    MUST(r, s->rope_factor >= 1.0, "%s.factor=%g must be at least 1", where, s->rope_factor);
    /* the exponent of its base is D / (D - 2) */
    MUST(r, s->rope != ROPE_DYNAMIC || s->head_dim > 2,
         "head_dim=2 is too small for dynamic rotary scaling");
    return r->status;
}

static ckvc_status read_dims(reading *r, const json_t *config, const family *f, model_shape *s) {
    s->n_layers = read_int(r, config, "num_hidden_layers", 1, MODEL_LAYERS_MAX, 0);
    s->n_heads = read_int(r, config, "num_attention_heads", 1, MODEL_HEADS_MAX, 0);
    const bool kv_heads_missing = !json_object_get(config, "num_key_value_heads");
    s->n_kv_heads = read_int(r, config, "num_key_value_heads", 1, MODEL_HEADS_MAX,
                             f->kv_heads > 0 && kv_heads_missing ? f->kv_heads : s->n_heads);
    s->width = read_int(r, config, "hidden_size", 1, MODEL_WIDTH_MAX, 0);
    s->intermediate = read_int(r, config, "intermediate_size", 1, MODEL_INTERMEDIATE_MAX, 0);
    s->vocab = read_int(r, config, "vocab_size", 1, MODEL_VOCAB_MAX, 0);
    s->max_positions =
        read_int(r, config, "max_position_embeddings", 1, MODEL_POSITIONS_MAX, f->positions);
    s->rms_eps =
        read_number(r, config, "rms_norm_eps", 0.0, 1.0, f->rms_eps > 0 ? f->rms_eps : 1e-6);
    CKVC_TRY(r->status);
    MUST(r, s->n_heads % s->n_kv_heads == 0,
         "num_attention_heads=%d is not a multiple of num_key_value_heads=%d", s->n_heads,
         s->n_kv_heads);
    const bool has_head_dim =
        !f->no_head_dim && (f->default_head_dim > 0 || member(config, "head_dim"));
    MUST(r, has_head_dim || s->width % s->n_heads == 0,
         "hidden_size=%d is not a multiple of num_attention_heads=%d%s", s->width, s->n_heads,
         f->no_head_dim ? "" : " and head_dim is not given");
    s->head_dim = has_head_dim
                      ? read_int(r, config, "head_dim", 2, MODEL_HEAD_DIM_MAX, f->default_head_dim)
                      : s->width / s->n_heads;
    CKVC_TRY(r->status);
    MUST(r, s->head_dim <= MODEL_HEAD_DIM_MAX && s->head_dim % 2 == 0,
         "head_dim=%d is not an even number up to %d", s->head_dim, MODEL_HEAD_DIM_MAX);
    return CKVC_OK;
}

/* Reads the tokens that end a text. GenerationMixin.generate stops at generation_config.json's
 * eos_token_id, which from_model_config takes from config.json where there is no such file. It is
 * one id or a list. */
static ckvc_status read_stops(const char *dir, const json_t *config, model_shape *s,
                              ckvc_err *err) {
    json_auto_t *generation = NULL;
    CKVC_AUTO_FREE char *path = ckvc_path_join(dir, "generation_config.json");
    if (ckvc_file_exists(path)) {
        CKVC_TRY(ckvc_json_read(path, CONFIG_BYTES_MAX, &generation, err));
    }
    const json_t *ids = member(generation, "eos_token_id"), *id;
    if (!ids) { ids = member(config, "eos_token_id"); }
    size_t i;
    if (json_is_integer(ids)) { model_shape_stop(s, json_integer_value(ids)); }
    json_array_foreach(ids, i, id) {
        if (json_is_integer(id)) { model_shape_stop(s, json_integer_value(id)); }
    }
    return CKVC_OK;
}

ckvc_status model_config_read(const char *dir, model_shape *s, ckvc_err *err) {
    *s = (model_shape){0};
    json_auto_t *config = NULL;
    CKVC_AUTO_FREE char *path = ckvc_path_join(dir, "config.json");
    reading r = {.path = path, .err = err};
    CKVC_AUTO_FREE char *held = model_folder_holds(dir);
    CKVC_FAIL_IF(ckvc_file_exists(dir) && !ckvc_file_exists(path), err, CKVC_E_NOINPUT,
                 "%s: %s; want a Hugging Face model folder or a GGUF file%s", dir,
                 ckvc_is_dir(dir) ? "holds no config.json" : "neither a folder nor a GGUF file",
                 held);
    CKVC_TRY(ckvc_json_read(path, CONFIG_BYTES_MAX, &config, err));
    MUST(&r, json_is_object(config), "not a JSON object");
    const family *f = read_family(&r, config);
    CKVC_TRY(r.status);
    snprintf(s->family, sizeof s->family, "%s", f->model_type);
    CKVC_TRY(check_supported(&r, config, f));
    CKVC_TRY(read_dims(&r, config, f, s));
    CKVC_TRY(read_rope(&r, config, f, s));
    s->tied = read_bool(&r, config, "tie_word_embeddings", f->pattern > 0);
    /* LlamaAttention, Qwen3Attention and InternLM2Attention have one flag for q, k, v and o; in
     * Qwen2Attention q, k and v always have biases and o never does. */
    s->output_bias = f->bias && read_bool(&r, config, f->bias, f->bias_default);
    s->qkv_bias = f->qkv_bias || s->output_bias;
    s->mlp_bias = f->mlp_bias && read_bool(&r, config, "mlp_bias", false);
    s->qk_norm = f->qk_norm;
    if (f->pattern) {
        const double scalar =
            read_number(&r, config, "query_pre_attn_scalar", 0.0, 1e6, f->query_scalar);
        model_shape_gemma(s, scalar);
    }
    CKVC_TRY(read_window(&r, config, f, s));
    return read_stops(dir, config, s, err);
}
