/* A GGUF file as a model: its metadata becomes a model_shape, its tensors become weights with the
 * runtime's names.
 *
 * Keys are those of docs/gguf.md ("llama.*", "qwen2.*" ...) and of llama.cpp's
 * gguf-py/gguf/constants.py; tensor names are those of TENSOR_NAMES there. Numbers mean what
 * llama.cpp's convert_hf_to_gguf.py has written: LlamaModel.permute reorders the rows of q and k
 * (weights and biases) for a rotary embedding of neighbouring pairs, and Qwen2Model and Qwen3Model
 * leave them as they are; Gemma3Model adds 1 to the weights of norms; a tied head is left out; a
 * llama3 rotary scaling is stored as the tensor rope_freqs.weight. */
#include "formats/model/gguf.h"
#include "formats/model/model_readers.h"

#include <math.h>
#include <stdio.h>

#include "lib/base/bytes.h"

#define ROPE_FREQS "rope_freqs.weight"

typedef struct reader {
    reading in;
    const gguf *g;
    const char *arch;
} reader;

/* Makes the key of a name, such as "llama.block_count". */
static const char *arch_key(const reader *r, const char *name, char key[64]) {
    snprintf(key, 64, "%s.%s", r->arch, name);
    return key;
}

/* Reads an integer in min ... max. otherwise < min: the key is required; else `otherwise` stands
 * for a missing key. */
static int32_t read_int(reader *r, const char *name, int64_t min, int64_t max, int64_t otherwise) {
    char key[64];
    int64_t v = otherwise;
    if (r->in.status != CKVC_OK) { return 0; }
    r->in.status = gguf_int(r->g, arch_key(r, name, key), min, max, &v, r->in.err);
    if (r->in.status == CKVC_OK && v < min) { refuse(&r->in, "key %s is missing", key); }
    return (int32_t)v;
}

/* Reads a number above `above`, at most `max`. otherwise <= above: the key is required. */
static double read_number(reader *r, const char *name, double above, double max, double otherwise) {
    char key[64];
    double v = otherwise;
    if (r->in.status != CKVC_OK) { return 0; }
    r->in.status = gguf_number(r->g, arch_key(r, name, key), &v, r->in.err);
    if (r->in.status != CKVC_OK) { return 0; }
    if (otherwise <= above && !gguf_find(r->g, key)) {
        refuse(&r->in, "key %s is missing", key);
    } else if (v <= above || v > max) {
        refuse(&r->in, "key %s is %g; want a number above %g and at most %g", key, v, above, max);
    }
    return v;
}

/* What a key after "ARCH." means. Keys that begin otherwise are the tokenizer's, are notes, or
 * belong to another program. */
#define ANOTHER "with it this is another network than its architecture's"
static const key_rule rules[] = {
    /* these are read; these are notes, or needed only to make embeddings */
    {" block_count context_length embedding_length feed_forward_length vocab_size "
     "attention.head_count attention.head_count_kv attention.key_length attention.key_length_swa "
     "attention.value_length attention.value_length_swa attention.layer_norm_rms_epsilon "
     "attention.sliding_window attention.sliding_window_pattern attention.scale "
     "rope.dimension_count rope.dimension_count_swa rope.freq_base rope.freq_base_swa "
     "rope.scale_linear rope.scaling.type rope.scaling.factor "
     "rope.scaling.original_context_length rope.scaling.finetuned tensor_data_layout pooling_type "
     "embedding_length_out ",
     0, NULL},
    {" attention.causal ", 1, "attention to later tokens"},
    {" expert_count expert_used_count ", 0, "a mixture of experts"},
    {" attention.max_alibi_bias attention.relative_buckets_count attention.clamp_kqv "
     "attention.kv_lora_rank attention.shared_kv_layers attention.temperature_length "
     "attention.temperature_scale attn_logit_softcapping final_logit_softcapping "
     "use_parallel_residual nextn_predict_layers n_deepstack_layers ",
     0, ANOTHER},
    {" attention.output_scale rope.scaling.attn_factor logit_scale embedding_scale residual_scale ",
     1, ANOTHER},
    {NULL, 0, NULL},
};

/* A value as the `plain` of a rule; NaN where it is neither number nor flag. */
static double plain_value(const gguf *g, const gguf_value *v) {
    ckvc_err none = {0};
    int64_t whole;
    double number = NAN;
    if (v->type == GGUF_BOOL) { return *v->data; }
    if (gguf_int(g, v->key, INT64_MIN, INT64_MAX, &whole, &none) == CKVC_OK) {
        return (double)whole;
    }
    return gguf_number(g, v->key, &number, &none) == CKVC_OK ? number : NAN;
}

static ckvc_status check_supported(reader *r) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer unknown = {0};
    const size_t n = strlen(r->arch);
    for (const gguf_value *v = r->g->values; v < r->g->values + r->g->n_values; v++) {
        if (strncmp(v->key, r->arch, n) != 0 || v->key[n] != '.') { continue; }
        const double value = plain_value(r->g, v);
        char text[32];
        snprintf(text, sizeof text, "%g", value);
        CKVC_TRY(key_check(&r->in, rules, v->key, v->key + n + 1, value, text, &unknown));
    }
    warn_of_keys(&r->in, &unknown);
    int64_t parts = 0, version = 2;
    CKVC_TRY(gguf_int(r->g, "split.count", 0, INT64_MAX, &parts, r->in.err));
    MUST(&r->in, parts <= 1,
         "key split.count is %lld: one part of a model; join all: llama-gguf-split --merge FIRST "
         "OUT",
         (long long)parts);
    CKVC_TRY(gguf_int(r->g, "general.quantization_version", 0, INT64_MAX, &version, r->in.err));
    MUST(&r->in, version == 2, "key general.quantization_version is %lld; want 2",
         (long long)version);
    return CKVC_OK;
}

/* ---- rotary scaling ---- */

/* Recognises what convert_hf_to_gguf.py (LlamaModel.generate_extra_tensors) writes for a llama3
 * scaling: the divisor of every frequency, not the parameters from which they were computed. Every
 * published Llama has low 1, high 4 and 8,192 original positions, and the last divisor is the
 * factor. A tensor that these do not reproduce is refused. */
static ckvc_status read_rope_freqs(reader *r, model_shape *s) {
    const tensor_view *t = gguf_find_tensor(r->g, ROPE_FREQS);
    const int32_t half = s->head_dim / 2;
    if (!t) { return CKVC_OK; }
    MUST(&r->in, s->rope == ROPE_DEFAULT,
         "tensor \"" ROPE_FREQS "\" beside a %s rotary scaling is not supported",
         rope_kind_name(s->rope));
    MUST(&r->in, t->type == TENSOR_F32 && t->rank == 1 && t->dims[0] == half,
         "tensor \"" ROPE_FREQS "\" is not F32 [%d]", half);
    double plain[MODEL_HEAD_DIM_MAX / 2], scaled[MODEL_HEAD_DIM_MAX / 2];
    model_shape with = *s;
    with.rope = ROPE_LLAMA3;
    with.rope_low_freq = 1.0;
    with.rope_high_freq = 4.0;
    with.rope_original_positions = 8192;
    with.rope_factor = (double)ckvc_get_f32(t->data + (size_t)(half - 1) * 4);
    rope_frequencies(s, 0, plain);
    rope_frequencies(&with, 0, scaled);
    bool ones = true;
    for (int32_t i = 0; i < half; i++) {
        const double got = (double)ckvc_get_f32(t->data + (size_t)i * 4),
                     want = plain[i] / scaled[i];
        ones = ones && got == 1.0;
        MUST(&r->in, ones || fabs(got - want) <= 1e-5 * want,
             "tensor \"" ROPE_FREQS "\"[%d] is %g; a llama3 scaling by %g (low 1, high 4, original "
             "8192) has %g, and no other rotary factors are supported",
             i, got, with.rope_factor, want);
    }
    if (!ones) { *s = with; }
    return CKVC_OK;
}

static ckvc_status read_rope(reader *r, model_shape *s) {
    char type_key[64], legacy_key[64];
    const gguf_value *type = NULL;
    s->rope_theta = read_number(r, "rope.freq_base", 1.0, 1e15, 10000.0);
    CKVC_TRY(gguf_string(r->g, arch_key(r, "rope.scaling.type", type_key), &type, r->in.err));
    const double legacy = read_number(r, "rope.scale_linear", 0.0, 1e6, 1.0);
    const double factor =
        read_number(r, "rope.scaling.factor", -1.0, 1e6, 1.0); /* 0 means that there is none */
    CKVC_TRY(r->in.status);
    const bool is_linear = gguf_string_is(type, "linear");
    MUST(&r->in, !type || is_linear || gguf_string_is(type, "none"),
         "key %s is \"%.*s\", which is not supported", type_key, (int)(type->n < 32 ? type->n : 32),
         (const char *)type->data);
    const double linear = is_linear && factor != 0.0 ? factor : legacy;
    MUST(&r->in, linear >= 1.0, "key %s: a linear rotary scaling by %g is not at least 1",
         is_linear ? type_key : arch_key(r, "rope.scale_linear", legacy_key), linear);
    if (linear > 1.0) {
        s->rope = ROPE_LINEAR;
        s->rope_factor = linear;
    }
    return read_rope_freqs(r, s);
}

/* ---- the shape ---- */

static bool is_gemma(const reader *r) { return strcmp(r->arch, "gemma3") == 0; }

/* What llama.cpp's llama-model.cpp says of LLM_ARCH_GEMMA3: every sixth layer sees everything; the
 * others rotate with a base of their own; only the model with 62 layers (27B) scales queries by
 * another number than its head dimension. */
static ckvc_status read_gemma(reader *r, model_shape *s) {
    s->sliding_window = read_int(r, "attention.sliding_window", 0, MODEL_POSITIONS_MAX, 0);
    const int32_t every = read_int(r, "attention.sliding_window_pattern", 1, INT32_MAX, 6);
    const double local = read_number(r, "rope.freq_base_swa", 1.0, 1e15, 10000.0);
    CKVC_TRY(r->in.status);
    if (every == 1) { s->sliding_window = 0; }
    for (int32_t l = every - 1; l < s->n_layers && s->sliding_window; l += every) {
        s->full_layers[l / 64] |= UINT64_C(1) << (l % 64);
    }
    s->rope_local_theta = s->sliding_window ? local : 0.0;
    model_shape_gemma(s, s->n_layers == 62 ? s->width / s->n_heads : s->head_dim);
    return CKVC_OK;
}

static ckvc_status read_dims(reader *r, model_shape *s) {
    static const char *const as_key_length[] = {
        "attention.value_length", "attention.key_length_swa", "attention.value_length_swa",
        "rope.dimension_count", "rope.dimension_count_swa"};
    s->n_layers = read_int(r, "block_count", 1, MODEL_LAYERS_MAX, 0);
    s->n_heads = read_int(r, "attention.head_count", 1, MODEL_HEADS_MAX, 0);
    s->n_kv_heads = read_int(r, "attention.head_count_kv", 1, MODEL_HEADS_MAX, s->n_heads);
    s->width = read_int(r, "embedding_length", 1, MODEL_WIDTH_MAX, 0);
    s->intermediate = read_int(r, "feed_forward_length", 1, MODEL_INTERMEDIATE_MAX, 0);
    s->max_positions = read_int(r, "context_length", 1, MODEL_POSITIONS_MAX, 0);
    s->rms_eps = read_number(r, "attention.layer_norm_rms_epsilon", 0.0, 1.0, 0.0);
    CKVC_TRY(r->in.status);
    MUST(&r->in, s->n_heads % s->n_kv_heads == 0,
         "key %s.attention.head_count is %d, no multiple of head_count_kv %d", r->arch, s->n_heads,
         s->n_kv_heads);
    s->head_dim = read_int(r, "attention.key_length", 2, MODEL_HEAD_DIM_MAX,
                           0 == s->width % s->n_heads ? s->width / s->n_heads : -1);
    CKVC_TRY(r->in.status);
    MUST(&r->in, s->head_dim <= MODEL_HEAD_DIM_MAX && s->head_dim % 2 == 0,
         "heads of %d dimensions (%s.attention.key_length, or embedding_length / head_count); want "
         "an even number up to %d",
         s->head_dim, r->arch, MODEL_HEAD_DIM_MAX);
    for (size_t i = 0; i < sizeof as_key_length / sizeof *as_key_length; i++) {
        const int32_t got = read_int(r, as_key_length[i], 1, MODEL_HEAD_DIM_MAX, s->head_dim);
        CKVC_TRY(r->in.status);
        MUST(&r->in, got == s->head_dim,
             "key %s.%s is %d, the head dimension %d: other lengths of values or of windowed "
             "layers' heads, and a partial rotary embedding, are not supported",
             r->arch, as_key_length[i], got, s->head_dim);
    }
    if (is_gemma(r)) {
        CKVC_TRY(read_gemma(r, s));
    } else {
        /* llama.cpp runs these architectures without a window. */
        const int32_t window = read_int(r, "attention.sliding_window", 0, INT32_MAX, 0);
        CKVC_TRY(r->in.status);
        MUST(&r->in, window == 0 || window >= s->max_positions,
             "key %s.attention.sliding_window is %d, which is not supported", r->arch, window);
    }
    const double root = sqrt((double)s->head_dim),
                 scale = read_number(r, "attention.scale", 0.0, 1e6, 1.0 / root);
    CKVC_TRY(r->in.status);
    MUST(&r->in, fabs(scale * root - 1.0) <= 1e-6,
         "key %s.attention.scale is %g, which is not supported (1/sqrt(head dimension) is)",
         r->arch, scale);
    return CKVC_OK;
}

static bool has_tensor(const reader *r, const char *name) {
    return gguf_find_tensor(r->g, name) != NULL;
}

/* Reads what the tensors say: the size of the vocabulary, and which optional tensors there are.
 * Whoever loads them checks their shapes. */
static ckvc_status read_tensors(reader *r, model_shape *s) {
    const tensor_view *embedding = gguf_find_tensor(r->g, "token_embd.weight");
    MUST(&r->in, embedding && embedding->rank == 2 && embedding->dims[0] <= MODEL_VOCAB_MAX,
         "tensor \"token_embd.weight\" is missing, or not [width, vocabulary up to %d]",
         MODEL_VOCAB_MAX);
    s->vocab = (int32_t)embedding->dims[0];
    const int32_t vocab = read_int(r, "vocab_size", 1, MODEL_VOCAB_MAX, s->vocab);
    CKVC_TRY(r->in.status);
    MUST(&r->in, vocab == s->vocab, "key %s.vocab_size is %d, token_embd.weight has %d rows",
         r->arch, vocab, s->vocab);
    s->tied = !has_tensor(r, "output.weight");
    s->qkv_bias = has_tensor(r, "blk.0.attn_q.bias") || strcmp(r->arch, "qwen2") == 0;
    s->output_bias = has_tensor(r, "blk.0.attn_output.bias");
    s->mlp_bias = has_tensor(r, "blk.0.ffn_gate.bias");
    s->qk_norm = strcmp(r->arch, "qwen3") == 0 || is_gemma(r);
    return CKVC_OK;
}

static ckvc_status read_stops(const gguf *g, model_shape *s, ckvc_err *err) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.eot_token_id"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t id = -1;
        CKVC_TRY(gguf_int(g, keys[i], INT32_MIN, UINT32_MAX, &id, err));
        if (!model_shape_stops(s, (int32_t)id)) { model_shape_stop(s, id); }
    }
    return CKVC_OK;
}

ckvc_status gguf_shape(const gguf *g, model_shape *s, ckvc_err *err) {
    static const char *const archs[] = {"llama", "qwen2", "qwen3", "gemma3"};
    *s = (model_shape){0};
    reader r = {.in = {.path = g->path, .err = err}, .g = g};
    const gguf_value *arch, *type;
    CKVC_TRY(gguf_string(g, "general.type", &type, err));
    CKVC_TRY(gguf_string(g, "general.architecture", &arch, err));
    MUST(&r.in, (!type || gguf_string_is(type, "model")) && !gguf_string_is(arch, "clip"),
         "key general.type is \"%.*s\": no language model but what goes beside one (an adapter, a "
         "reader of images, a vocabulary ...); give the model's own file",
         type ? (int)(type->n < 32 ? type->n : 32) : 6, type ? (const char *)type->data : "mmproj");
    MUST(&r.in, arch, "key general.architecture is missing");
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        if (gguf_string_is(arch, archs[i])) { r.arch = archs[i]; }
    }
    MUST(&r.in, r.arch,
         "key general.architecture is \"%.*s\", which is not supported (supported: llama, qwen2, "
         "qwen3, gemma3)",
         (int)(arch->n < 32 ? arch->n : 32), (const char *)arch->data);
    snprintf(s->family, sizeof s->family, "%s%s", r.arch, is_gemma(&r) ? "_text" : "");
    CKVC_TRY(check_supported(&r));
    CKVC_TRY(read_dims(&r, s));
    CKVC_TRY(read_rope(&r, s));
    CKVC_TRY(read_tensors(&r, s));
    return read_stops(g, s, err);
}

/* ---- names ---- */

static const char *const model_names[][2] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
    {ROPE_FREQS, ROPE_FREQS},
};
/* The part of a name after "blk.N." or "model.layers.N." and before ".weight" or ".bias". */
static const struct {
    const char *stored, *name;
    bool bias;   /* it may have a bias */
    bool rotary; /* its rows are in pairwise order under the llama architecture */
    /* The tensor belongs only to shapes that have these norms, or to shapes without post_norms. */
    bool qk_norm, post_norms, no_post_norms;
} layer_names[] = {
    {"attn_norm", "input_layernorm", .bias = false},
    {"attn_q", "self_attn.q_proj", .bias = true, .rotary = true},
    {"attn_k", "self_attn.k_proj", .bias = true, .rotary = true},
    {"attn_v", "self_attn.v_proj", .bias = true},
    {"attn_output", "self_attn.o_proj", .bias = true},
    {"attn_q_norm", "self_attn.q_norm", .qk_norm = true},
    {"attn_k_norm", "self_attn.k_norm", .qk_norm = true},
    {"ffn_norm", "post_attention_layernorm", .no_post_norms = true},
    {"ffn_norm", "pre_feedforward_layernorm", .post_norms = true},
    {"post_attention_norm", "post_attention_layernorm", .post_norms = true},
    {"post_ffw_norm", "post_feedforward_layernorm", .post_norms = true},
    {"ffn_gate", "mlp.gate_proj", .bias = true},
    {"ffn_up", "mlp.up_proj", .bias = true},
    {"ffn_down", "mlp.down_proj", .bias = true},
};

/* Writes the runtime's name of a tensor to name. Returns false when these architectures have no
 * such tensor: llama.cpp would compute with it, and we would not. */
static bool rename_tensor(const model_shape *s, const char *stored, char name[96], bool *rotary) {
    *rotary = false;
    for (size_t i = 0; i < sizeof model_names / sizeof *model_names; i++) {
        if (strcmp(stored, model_names[i][0]) == 0) {
            snprintf(name, 96, "%s", model_names[i][1]);
            return true;
        }
    }
    char *part, again[GGUF_MAX_NAME + 1];
    const unsigned long layer =
        strncmp(stored, "blk.", 4) == 0 ? strtoul(stored + 4, &part, 10) : MODEL_LAYERS_MAX;
    if (layer >= (unsigned long)s->n_layers) { return false; }
    /* so that a number has only one spelling */
    snprintf(again, sizeof again, "blk.%lu%s", layer, part);
    const char *kind = strrchr(part, '.');
    if (strcmp(again, stored) != 0 || *part != '.' || kind == part) { return false; }
    for (size_t i = 0; i < sizeof layer_names / sizeof *layer_names; i++) {
        const size_t n = strlen(layer_names[i].stored);
        if (n == (size_t)(kind - part - 1) && memcmp(layer_names[i].stored, part + 1, n) == 0 &&
            (s->qk_norm || !layer_names[i].qk_norm) &&
            !(s->post_norms ? layer_names[i].no_post_norms : layer_names[i].post_norms)) {
            snprintf(name, 96, "model.layers.%lu.%s%s", layer, layer_names[i].name, kind);
            *rotary = layer_names[i].rotary;
            return strcmp(kind, ".weight") == 0 ||
                   (layer_names[i].bias && strcmp(kind, ".bias") == 0);
        }
    }
    return false;
}

static void close_source(void *g) { gguf_close(g); }

ckvc_status gguf_model_read(const char *path, model_spec *spec, ckvc_err *err) {
    gguf *g;
    CKVC_TRY(gguf_open(path, &g, err));
    spec->source = g;
    spec->release = close_source;
    spec->fingerprint_kind = "ckvc-model-gguf-1\n";
    CKVC_TRY(gguf_shape(g, &spec->shape, err));
    const model_shape *s = &spec->shape;
    reading r = {.path = path, .err = err};
    const int32_t pairwise = strcmp(s->family, "llama") == 0 ? s->head_dim : 0;
    for (const tensor_view *t = g->tensors; t < g->tensors + g->n_tensors; t++) {
        char name[96];
        bool rotary;
        MUST(&r, rename_tensor(s, t->name, name, &rotary),
             "tensor \"%s\" is none of a %s model of %d layers", t->name, s->family, s->n_layers);
        tensor_view view = *t;
        view.pairwise = rotary ? pairwise : 0;
        model_spec_add(spec, name, &view);
    }
    return model_spec_order(spec, err);
}
