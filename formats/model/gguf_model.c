/* A GGUF file as a model of ours: metadata -> model_shape, tensors -> weights under the runtime's
 * names.
 *
 * Keys are those of docs/gguf.md ("llama.*", "qwen2.*") and of llama.cpp's
 * gguf-py/gguf/constants.py, tensor names those of constants.py's TENSOR_NAMES, and what the
 * numbers mean is what llama.cpp's convert_hf_to_gguf.py put there: LlamaModel.permute reorders the
 * rows of q and k (weights and biases) for a rotary embedding of neighbouring pairs, Qwen2Model
 * leaves them as they are; a tied head is left out; a llama3 rotary scaling arrives as the tensor
 * rope_freqs.weight.
 */
#include "formats/model/gguf_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/model/gguf.h"
#include "formats/model/weights_list.h"
#include "lib/base/bytes.h"
#include "lib/base/memory.h"

#define ROPE_FREQS "rope_freqs.weight"

typedef struct reader {
    const gguf *g;
    char arch[16];
    ckvc_err *err;
    ckvc_status rc; /* of the first failure; reads after it do nothing */
} reader;

static void refuse(reader *r, ckvc_status rc) {
    if (r->rc == CKVC_OK) { r->rc = rc; }
}

static const char *arch_key(const reader *r, const char *name, char out[64]) {
    snprintf(out, 64, "%s.%s", r->arch, name);
    return out;
}

/* otherwise < min: the key is required; else it stands for a missing one. */
static int32_t read_int(reader *r, const char *name, int64_t min, int64_t max, int64_t otherwise) {
    char key[64];
    int64_t v = otherwise;
    if (r->rc != CKVC_OK) { return 0; }
    refuse(r, gguf_int(r->g, arch_key(r, name, key), min, max, &v, r->err));
    if (r->rc == CKVC_OK && v < min) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA, "%s: key %s is missing", r->g->path, key));
    }
    return (int32_t)v;
}

/* A number above `above`. otherwise <= above: required. */
static double read_number(reader *r, const char *name, double above, double max, double otherwise) {
    char key[64];
    double v = otherwise;
    if (r->rc != CKVC_OK) { return 0; }
    refuse(r, gguf_number(r->g, arch_key(r, name, key), &v, r->err));
    if (r->rc == CKVC_OK && gguf_find(r->g, key) == NULL && otherwise <= above) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA, "%s: key %s is missing", r->g->path, key));
    } else if (r->rc == CKVC_OK && (v <= above || v > max)) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA,
                            "%s: key %s is %g; want a number above %g and at most %g", r->g->path,
                            key, v, above, max));
    }
    return v;
}

/* Keys of networks that differ from the plain one: what value leaves them plain, and what they are.
 */
static void check_supported(reader *r) {
    static const struct {
        const char *key;
        double plain;
        const char *why;
    } keys[] = {
        {"expert_count", 0, "a mixture of experts"},
        {"attention.max_alibi_bias", 0, "positions by ALiBi"},
        {"attention.clamp_kqv", 0, "clamped queries, keys and values"},
        {"attn_logit_softcapping", 0, "attention with capped logits"},
        {"final_logit_softcapping", 0, "capped logits"},
        {"logit_scale", 1, "scaled logits"},
        {"embedding_scale", 1, "scaled embeddings"},
        {"residual_scale", 1, "scaled residuals"},
        {"rope.scaling.attn_factor", 1, "scaled attention"},
    };
    char key[64];
    for (size_t i = 0; r->rc == CKVC_OK && i < sizeof keys / sizeof *keys; i++) {
        const gguf_value *v = gguf_find(r->g, arch_key(r, keys[i].key, key));
        double got = keys[i].plain;
        int64_t whole;
        if (v == NULL) { continue; }
        if (v->type == GGUF_F32 || v->type == GGUF_F64) {
            refuse(r, gguf_number(r->g, key, &got, r->err));
        } else {
            refuse(r, gguf_int(r->g, key, INT64_MIN, INT64_MAX, &whole, r->err));
            got = r->rc == CKVC_OK ? (double)whole : got;
        }
        if (r->rc == CKVC_OK && got != keys[i].plain) {
            refuse(r, ckvc_fail(r->err, CKVC_E_DATA, "%s: key %s is %g: %s, which is not supported",
                                r->g->path, key, got, keys[i].why));
        }
    }
    int64_t parts = 0;
    refuse(r, gguf_int(r->g, "split.count", 0, INT64_MAX, &parts, r->err));
    if (r->rc == CKVC_OK && parts > 1) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA,
                            "%s: key split.count is %" PRId64
                            ": one part of a model; join the parts first",
                            r->g->path, parts));
    }
    int64_t version = 2;
    refuse(r, gguf_int(r->g, "general.quantization_version", 0, INT64_MAX, &version, r->err));
    if (r->rc == CKVC_OK && version != 2) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA,
                            "%s: key general.quantization_version is %" PRId64 "; want 2",
                            r->g->path, version));
    }
}

/* ---- rotary scaling ---- */

/* What convert_hf_to_gguf.py (LlamaModel.generate_extra_tensors) writes for a llama3 scaling: the
 * divisor of every frequency. */
static double llama3_divisor(const model_shape *s, int32_t i) {
    const double f = pow(s->rope_theta, -2.0 * i / s->head_dim),
                 turns = s->rope_original_positions * f / (2.0 * 3.14159265358979323846);
    if (turns < s->rope_low_freq) { return s->rope_factor; }
    if (turns > s->rope_high_freq) { return 1.0; }
    const double smooth = (turns - s->rope_low_freq) / (s->rope_high_freq - s->rope_low_freq);
    return 1.0 / ((1.0 - smooth) / s->rope_factor + smooth);
}

/* The tensor holds divisors, not the parameters that made them. Every published Llama has low 1,
 * high 4 and 8,192 original positions; the last divisor is the factor. A tensor that these do not
 * reproduce is refused. */
static void read_rope_freqs(reader *r, model_shape *s) {
    const gguf_tensor *t = gguf_find_tensor(r->g, ROPE_FREQS);
    const int32_t half = s->head_dim / 2;
    if (t == NULL || r->rc != CKVC_OK) { return; }
    if (s->rope != ROPE_DEFAULT) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA,
                            "%s: tensor \"" ROPE_FREQS
                            "\" beside a %s rotary scaling is not supported",
                            r->g->path, rope_kind_name(s->rope)));
        return;
    }
    if (t->type != TENSOR_F32 || t->rank != 1 || t->dims[0] != half) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA, "%s: tensor \"" ROPE_FREQS "\" is not F32 [%d]",
                            r->g->path, half));
        return;
    }
    model_shape with = *s;
    with.rope = ROPE_LLAMA3;
    with.rope_low_freq = 1.0;
    with.rope_high_freq = 4.0;
    with.rope_original_positions = 8192;
    with.rope_factor = (double)ckvc_get_f32(t->data + (size_t)(half - 1) * 4);
    bool ones = true;
    for (int32_t i = 0; i < half; i++) {
        const double got = (double)ckvc_get_f32(t->data + (size_t)i * 4),
                     want = llama3_divisor(&with, i);
        ones = ones && got == 1.0;
        if (!ones && !(fabs(got - want) <= 1e-5 * want)) {
            refuse(r,
                   ckvc_fail(r->err, CKVC_E_DATA,
                             "%s: tensor \"" ROPE_FREQS "\"[%d] is %g; a llama3 scaling by %g (low "
                             "1, high 4, original 8192) has %g, and "
                             "no other rotary factors are supported",
                             r->g->path, i, got, with.rope_factor, want));
            return;
        }
    }
    if (!ones) { *s = with; }
}

static void read_rope(reader *r, model_shape *s) {
    char key[64], legacy_key[64];
    const gguf_value *type = NULL;
    s->rope_theta = read_number(r, "rope.freq_base", 1.0, 1e15, 10000.0);
    const int32_t turned = read_int(r, "rope.dimension_count", 1, MODEL_HEAD_DIM_MAX, s->head_dim);
    if (r->rc == CKVC_OK && turned != s->head_dim) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA,
                            "%s: key %s.rope.dimension_count is %d, the head dimension %d: a "
                            "partial rotary embedding "
                            "is not supported",
                            r->g->path, r->arch, turned, s->head_dim));
    }
    if (r->rc == CKVC_OK) {
        refuse(r, gguf_string(r->g, arch_key(r, "rope.scaling.type", key), &type, r->err));
    }
    const double legacy = read_number(r, "rope.scale_linear", 0.0, 1e6, 1.0);
    const double factor =
        read_number(r, "rope.scaling.factor", -1.0, 1e6, 1.0); /* 0 stands for none */
    if (r->rc != CKVC_OK) { return; }
    if (type != NULL && !gguf_string_is(type, "none") && !gguf_string_is(type, "linear")) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA, "%s: key %s is \"%.*s\", which is not supported",
                            r->g->path, key, (int)(type->n < 32 ? type->n : 32),
                            (const char *)type->data));
        return;
    }
    const double linear = gguf_string_is(type, "linear") && factor != 0.0 ? factor : legacy;
    if (linear < 1.0) {
        refuse(r, ckvc_fail(
                      r->err, CKVC_E_DATA,
                      "%s: key %s: a linear rotary scaling by %g is not at least 1", r->g->path,
                      gguf_string_is(type, "linear") ? key
                                                     : arch_key(r, "rope.scale_linear", legacy_key),
                      linear));
    } else if (linear > 1.0) {
        s->rope = ROPE_LINEAR;
        s->rope_factor = linear;
    }
    read_rope_freqs(r, s);
}

/* ---- the shape ---- */

static void read_dims(reader *r, model_shape *s) {
    s->n_layers = read_int(r, "block_count", 1, MODEL_LAYERS_MAX, 0);
    s->n_heads = read_int(r, "attention.head_count", 1, MODEL_HEADS_MAX, 0);
    s->n_kv_heads = read_int(r, "attention.head_count_kv", 1, MODEL_HEADS_MAX, s->n_heads);
    s->width = read_int(r, "embedding_length", 1, MODEL_WIDTH_MAX, 0);
    s->intermediate = read_int(r, "feed_forward_length", 1, MODEL_INTERMEDIATE_MAX, 0);
    s->max_positions = read_int(r, "context_length", 1, MODEL_POSITIONS_MAX, 0);
    s->rms_eps = read_number(r, "attention.layer_norm_rms_epsilon", 0.0, 1.0, 0.0);
    if (r->rc != CKVC_OK) { return; }
    const char *path = r->g->path, *arch = r->arch;
    if (s->n_heads % s->n_kv_heads != 0) {
        refuse(r,
               ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: key %s.attention.head_count is %d, no multiple of head_count_kv %d",
                         path, arch, s->n_heads, s->n_kv_heads));
        return;
    }
    s->head_dim = read_int(r, "attention.key_length", 2, MODEL_HEAD_DIM_MAX,
                           0 == s->width % s->n_heads ? s->width / s->n_heads : -1);
    const int32_t value_length =
        read_int(r, "attention.value_length", 1, MODEL_HEAD_DIM_MAX, s->head_dim);
    if (r->rc == CKVC_OK &&
        (s->head_dim > MODEL_HEAD_DIM_MAX || s->head_dim % 2 != 0 || value_length != s->head_dim)) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA,
                            "%s: heads of %d key and %d value dimensions (%s.attention.key_length, "
                            "value_length, or "
                            "embedding_length / head_count); want one even number up to %d",
                            path, s->head_dim, value_length, arch, MODEL_HEAD_DIM_MAX));
    }
    /* llama.cpp runs these two architectures without a window. */
    const int32_t window = read_int(r, "attention.sliding_window", 0, INT32_MAX, 0);
    if (r->rc == CKVC_OK && window > 0 && window < s->max_positions) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA,
                            "%s: key %s.attention.sliding_window is %d, which is not supported",
                            path, arch, window));
    }
    const double scale =
        read_number(r, "attention.scale", 0.0, 1e6, 1.0 / sqrt((double)s->head_dim));
    if (r->rc == CKVC_OK && fabs(scale * sqrt((double)s->head_dim) - 1.0) > 1e-6) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA,
                            "%s: key %s.attention.scale is %g, which is not supported (1/sqrt(head "
                            "dimension) is)",
                            path, arch, scale));
    }
}

static bool has_tensor(const reader *r, const char *name) {
    return gguf_find_tensor(r->g, name) != NULL;
}

/* What the tensors say: the vocabulary's size and which optional ones there are. Their shapes are
 * checked by whoever loads them. */
static void read_tensors(reader *r, model_shape *s) {
    const gguf_tensor *embedding = gguf_find_tensor(r->g, "token_embd.weight");
    if (r->rc != CKVC_OK) { return; }
    if (embedding == NULL || embedding->rank != 2 || embedding->dims[1] > MODEL_VOCAB_MAX) {
        refuse(
            r,
            ckvc_fail(
                r->err, CKVC_E_DATA,
                "%s: tensor \"token_embd.weight\" is missing, or not [width, vocabulary up to %d]",
                r->g->path, MODEL_VOCAB_MAX));
        return;
    }
    s->vocab = (int32_t)embedding->dims[1];
    const int32_t vocab = read_int(r, "vocab_size", 1, MODEL_VOCAB_MAX, s->vocab);
    if (r->rc == CKVC_OK && vocab != s->vocab) {
        refuse(r, ckvc_fail(r->err, CKVC_E_DATA,
                            "%s: key %s.vocab_size is %d, token_embd.weight has %d rows",
                            r->g->path, r->arch, vocab, s->vocab));
    }
    s->tied = !has_tensor(r, "output.weight");
    s->qkv_bias = has_tensor(r, "blk.0.attn_q.bias") || strcmp(r->arch, "qwen2") == 0;
    s->output_bias = has_tensor(r, "blk.0.attn_output.bias");
    s->mlp_bias = has_tensor(r, "blk.0.ffn_gate.bias");
}

/* Ids say nothing about what the network computes; one outside the vocabulary counts as none, as in
 * config.json. */
static void read_ids(reader *r, model_shape *s) {
    static const char *const eos[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"};
    int64_t id = -1;
    refuse(r, gguf_int(r->g, "tokenizer.ggml.bos_token_id", 0, INT64_MAX, &id, r->err));
    s->bos_id = id >= 0 && id < s->vocab ? (int32_t)id : -1;
    for (size_t i = 0; i < sizeof eos / sizeof *eos && r->rc == CKVC_OK; i++) {
        id = -1;
        refuse(r, gguf_int(r->g, eos[i], 0, INT64_MAX, &id, r->err));
        if (id >= 0 && id < s->vocab && (s->n_eos == 0 || s->eos_ids[0] != id)) {
            s->eos_ids[s->n_eos++] = (int32_t)id;
        }
    }
}

static ckvc_status read_shape(const gguf *g, model_shape *s, ckvc_err *err) {
    static const char *const archs[] = {"llama", "qwen2"};
    *s = (model_shape){.bos_id = -1};
    reader r = {.g = g, .err = err};
    const gguf_value *arch;
    ckvc_status st = gguf_string(g, "general.architecture", &arch, err);
    if (st != CKVC_OK) { return st; }
    if (arch == NULL) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: key general.architecture is missing", g->path);
    }
    size_t i = 0;
    while (i < sizeof archs / sizeof *archs && !gguf_string_is(arch, archs[i])) {
        i++;
    }
    if (i == sizeof archs / sizeof *archs) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: key general.architecture is \"%.*s\", which is not supported "
                         "(supported: llama, qwen2)",
                         g->path, (int)(arch->n < 32 ? arch->n : 32), (const char *)arch->data);
    }
    snprintf(r.arch, sizeof r.arch, "%s", archs[i]);
    snprintf(s->family, sizeof s->family, "%s", archs[i]);
    check_supported(&r);
    read_dims(&r, s);
    if (r.rc == CKVC_OK) { read_rope(&r, s); }
    read_tensors(&r, s);
    if (r.rc == CKVC_OK) { read_ids(&r, s); }
    return r.rc;
}

ckvc_status gguf_shape_read(const char *path, model_shape *out, ckvc_err *err) {
    gguf *g;
    ckvc_status st = gguf_open(path, &g, err);
    if (st != CKVC_OK) { return st; }
    st = read_shape(g, out, err);
    gguf_close(g);
    return st;
}

/* ---- names ---- */

typedef struct renamed {
    const char *stored, *name;
    bool rotary; /* its rows are in pairwise order under the llama architecture */
} renamed;

static const renamed model_names[] = {
    {"token_embd.weight", "model.embed_tokens.weight", false},
    {"output_norm.weight", "model.norm.weight", false},
    {"output.weight", "lm_head.weight", false},
};
static const renamed layer_names[] = {
    /* behind "blk.N." and "model.layers.N." */
    {"attn_norm.weight", "input_layernorm.weight", false},
    {"attn_q.weight", "self_attn.q_proj.weight", true},
    {"attn_k.weight", "self_attn.k_proj.weight", true},
    {"attn_v.weight", "self_attn.v_proj.weight", false},
    {"attn_output.weight", "self_attn.o_proj.weight", false},
    {"attn_q.bias", "self_attn.q_proj.bias", true},
    {"attn_k.bias", "self_attn.k_proj.bias", true},
    {"attn_v.bias", "self_attn.v_proj.bias", false},
    {"attn_output.bias", "self_attn.o_proj.bias", false},
    {"ffn_norm.weight", "post_attention_layernorm.weight", false},
    {"ffn_gate.weight", "mlp.gate_proj.weight", false},
    {"ffn_up.weight", "mlp.up_proj.weight", false},
    {"ffn_down.weight", "mlp.down_proj.weight", false},
    {"ffn_gate.bias", "mlp.gate_proj.bias", false},
    {"ffn_up.bias", "mlp.up_proj.bias", false},
    {"ffn_down.bias", "mlp.down_proj.bias", false},
};

static const renamed *lookup(const renamed *names, size_t n, const char *stored) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i].stored, stored) == 0) { return &names[i]; }
    }
    return NULL;
}

/* The runtime's name, owned by the caller; NULL with an error when it is no tensor of these
 * architectures: one that llama.cpp would compute with and we would not. */
static char *rename_tensor(const gguf *g, const model_shape *s, const char *stored, bool *rotary,
                           ckvc_err *err) {
    const renamed *hit = lookup(model_names, sizeof model_names / sizeof *model_names, stored);
    char *name = NULL;
    *rotary = false;
    if (hit != NULL) {
        name = ckvc_strdup(hit->name);
    } else if (strcmp(stored, ROPE_FREQS) == 0) {
        name = ckvc_strdup(stored);
    } else {
        char *end = NULL;
        const long layer = strncmp(stored, "blk.", 4) == 0 && stored[4] >= '0' && stored[4] <= '9'
                               ? strtol(stored + 4, &end, 10)
                               : -1;
        const bool plain =
            end && *end == '.' && layer < s->n_layers && (stored[4] != '0' || end == stored + 5);
        hit = plain ? lookup(layer_names, sizeof layer_names / sizeof *layer_names, end + 1) : NULL;
        if (hit == NULL) {
            ckvc_fail(err, CKVC_E_DATA, "%s: tensor \"%s\" is none of a %s model of %d layers",
                      g->path, stored, s->family, s->n_layers);
            return NULL;
        }
        *rotary = hit->rotary;
        name = ckvc_format("model.layers.%ld.%s", layer, hit->name);
    }
    return name;
}

ckvc_status gguf_load(const char *path, weights *w, ckvc_err *err) {
    model_shape shape;
    ckvc_status st = gguf_open(path, &w->container, err);
    if (st == CKVC_OK) { st = read_shape(w->container, &shape, err); }
    if (st != CKVC_OK) { return st; }
    const gguf *g = w->container;
    const bool pairwise = strcmp(shape.family, "llama") == 0;
    w->tensors = ckvc_calloc(g->n_tensors, sizeof *w->tensors);
    w->cap_tensors = g->n_tensors;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const gguf_tensor *t = &g->tensors[i];
        tensor_view *view = &w->tensors[i];
        bool rotary;
        view->name = rename_tensor(g, &shape, t->name, &rotary, err);
        if (view->name == NULL) { return CKVC_E_DATA; }
        w->n_tensors++;
        view->stored = t->name;
        view->file = g->path;
        view->type = t->type;
        view->dtype = t->dtype;
        view->rank = t->rank;
        for (int32_t d = 0; d < t->rank; d++) {
            view->dims[d] = t->dims[t->rank - 1 - d];
        }
        view->pairwise = rotary && pairwise ? shape.head_dim : 0;
        view->data = t->data;
        view->bytes = t->bytes;
    }
    return weights_sort(w, err);
}
