/* Finds out which tensor is which, and checks all bytes in one pass, which also computes the
 * fingerprint: see model_weights.h. */
#include "lib/model/model_weights.h"

#include <stdatomic.h>
#include <stdio.h>

#include "lib/base/json.h"
#include "lib/base/progress.h"

/* ---- names and shapes ---- */

typedef struct end_names {
    const char *embedding, *head, *final_norm;
} end_names;

static bool is_internlm2(const model_shape *s) { return strcmp(s->family, "internlm2") == 0; }
static bool is_phi3(const model_shape *s) { return strcmp(s->family, "phi3") == 0; }

static const end_names *end_tensor_names(const model_shape *s) {
    static const end_names llama = {"model.embed_tokens.weight", "lm_head.weight",
                                    "model.norm.weight"},
                           internlm2 = {"model.tok_embeddings.weight", "output.weight",
                                        "model.norm.weight"};
    return is_internlm2(s) ? &internlm2 : &llama;
}

/* A tensor of GGUF files, which their reader has turned into the shape's rope fields. */
#define ROPE_FREQS "rope_freqs.weight"

bool layer_tensor_of(const model_shape *s, int32_t layer, layer_part part, layer_tensor *out) {
    const int64_t d = s->head_dim, width = s->width, mlp = s->intermediate, heads = s->n_heads * d,
                  kv_heads = s->n_kv_heads * d;
    /* The first name is the one in transformers' modeling_llama.py, modeling_mistral.py,
     * modeling_qwen2.py, modeling_qwen3.py and modeling_gemma3.py. The second is the one in
     * modeling_internlm2.py, where w1 is the gate, w3 goes up and w2 down
     * (InternLM2MLP.forward). */
    const struct {
        const char *names[2];
        int64_t rows, cols;
        bool wanted;
    } parts[LAYER_PARTS] = {
        [W_ATTENTION_NORM] = {{"input_layernorm.weight", "attention_norm.weight"}, width, 1, true},
        [W_Q] = {{"self_attn.q_proj.weight", "attention.wqkv.weight"}, heads, width, true},
        [W_K] = {{"self_attn.k_proj.weight", "attention.wqkv.weight"}, kv_heads, width, true},
        [W_V] = {{"self_attn.v_proj.weight", "attention.wqkv.weight"}, kv_heads, width, true},
        [W_O] = {{"self_attn.o_proj.weight", "attention.wo.weight"}, width, heads, true},
        [W_Q_BIAS] = {{"self_attn.q_proj.bias", "attention.wqkv.bias"}, heads, 1, s->qkv_bias},
        [W_K_BIAS] = {{"self_attn.k_proj.bias", "attention.wqkv.bias"}, kv_heads, 1, s->qkv_bias},
        [W_V_BIAS] = {{"self_attn.v_proj.bias", "attention.wqkv.bias"}, kv_heads, 1, s->qkv_bias},
        [W_O_BIAS] = {{"self_attn.o_proj.bias", "attention.wo.bias"}, width, 1, s->output_bias},
        [W_MLP_NORM] = {{s->post_norms ? "pre_feedforward_layernorm.weight"
                                       : "post_attention_layernorm.weight",
                         "ffn_norm.weight"},
                        width,
                        1,
                        true},
        [W_POST_ATTENTION_NORM] = {{"post_attention_layernorm.weight", NULL},
                                   width,
                                   1,
                                   s->post_norms},
        [W_POST_MLP_NORM] = {{"post_feedforward_layernorm.weight", NULL}, width, 1, s->post_norms},
        [W_GATE] = {{"mlp.gate_proj.weight", "feed_forward.w1.weight"}, mlp, width, true},
        [W_UP] = {{"mlp.up_proj.weight", "feed_forward.w3.weight"}, mlp, width, true},
        [W_DOWN] = {{"mlp.down_proj.weight", "feed_forward.w2.weight"}, width, mlp, true},
        [W_GATE_BIAS] = {{"mlp.gate_proj.bias", NULL}, mlp, 1, s->mlp_bias},
        [W_UP_BIAS] = {{"mlp.up_proj.bias", NULL}, mlp, 1, s->mlp_bias},
        [W_DOWN_BIAS] = {{"mlp.down_proj.bias", NULL}, width, 1, s->mlp_bias},
        [W_Q_NORM] = {{"self_attn.q_norm.weight", NULL}, d, 1, s->qk_norm},
        [W_K_NORM] = {{"self_attn.k_norm.weight", NULL}, d, 1, s->qk_norm},
    };
    if (!parts[part].wanted) { return false; }
    *out = (layer_tensor){
        .rows = parts[part].rows, .cols = parts[part].cols, .own_rows = parts[part].rows};
    snprintf(out->name, sizeof out->name, "model.layers.%d.%s", layer,
             parts[part].names[is_internlm2(s)]);
    const bool q = part == W_Q || part == W_Q_BIAS, k = part == W_K || part == W_K_BIAS,
               v = part == W_V || part == W_V_BIAS;
    if (is_internlm2(s) && (q || k || v)) {
        /* All are in one tensor: for each KV head in turn its H/G query heads, its key head and its
         * value head (InternLM2Attention.forward, the rearrange "b q (h gs d) -> b q h gs d"). */
        const int64_t queries = s->n_heads / s->n_kv_heads * d;
        out->rows = heads + 2 * kv_heads;
        out->first = q ? 0 : k ? queries : queries + d;
        out->block = q ? queries : d;
        out->stride = queries + 2 * d;
    }
    /* One tensor has all queries, keys and values, another the MLP's gate and up
     * (Phi3Attention.forward, Phi3MLP.forward). */
    const bool qkv = part == W_Q || part == W_K || part == W_V;
    if (is_phi3(s) && (qkv || part == W_GATE || part == W_UP)) {
        snprintf(out->name, sizeof out->name, "model.layers.%d.%s", layer,
                 qkv ? "self_attn.qkv_proj.weight" : "mlp.gate_up_proj.weight");
        out->rows = qkv ? heads + 2 * kv_heads : 2 * mlp;
        out->first = part == W_K ? heads : part == W_V ? heads + kv_heads : part == W_UP ? mlp : 0;
        out->block = out->stride = out->own_rows;
    }
    return true;
}

/* Finds a tensor and checks that it has a type that we compute with and the shape [rows][cols], or
 * [rows] for cols 1. */
static ckvc_status find_tensor(const model_spec *spec, const char *name, int64_t rows, int64_t cols,
                               const tensor_view **out, ckvc_err *err) {
    const tensor_view *t = model_spec_find(spec, name);
    CKVC_FAIL_IF(!t, err, CKVC_E_DATA, "%s: tensor \"%s\" is missing; config.json asks for it",
                 spec->path, name);
    CKVC_FAIL_IF(t->type == TENSOR_OTHER, err, CKVC_E_DATA,
                 "%s: tensor \"%s\" has dtype %s; the runtime computes with F32, F16 and BF16",
                 t->file, t->stored, t->dtype);
    const int64_t dims[2] = {rows, cols};
    const int32_t rank = cols == 1 ? 1 : 2;
    CKVC_FAIL_IF(rank == 1 && tensor_block_of(t->type).values > 1, err, CKVC_E_DATA,
                 "%s: tensor \"%s\" has dtype %s; vectors are read as F32, F16 and BF16", t->file,
                 t->stored, t->dtype);
    if (t->rank != rank || memcmp(t->dims, dims, (size_t)rank * sizeof *dims) != 0) {
        char got[TENSOR_DIMS_TEXT], want[TENSOR_DIMS_TEXT];
        return ckvc_fail(
            err, CKVC_E_DATA, "%s: tensor \"%s\" has shape %s, config.json asks for %s", t->file,
            t->stored, tensor_dims(t->dims, t->rank, got), tensor_dims(dims, rank, want));
    }
    *out = t;
    return CKVC_OK;
}

ckvc_status model_ends_find(const model_spec *spec, model_ends *out, ckvc_err *err) {
    const model_shape *s = &spec->shape;
    const end_names *names = end_tensor_names(s);
    const bool has_embedding = model_spec_find(spec, names->embedding),
               has_head = model_spec_find(spec, names->head);
    const bool one = s->tied && has_embedding != has_head;
    CKVC_TRY(find_tensor(spec, one && has_head ? names->head : names->embedding, s->vocab, s->width,
                         &out->embedding, err));
    out->head = out->embedding;
    if (!one && (has_head || !s->tied)) {
        CKVC_TRY(find_tensor(spec, names->head, s->vocab, s->width, &out->head, err));
    }
    if (s->tied && out->head != out->embedding) {
        CKVC_FAIL_IF(out->head->type != out->embedding->type ||
                         memcmp(out->head->data, out->embedding->data, out->head->bytes) != 0,
                     err, CKVC_E_DATA,
                     "%s: tie_word_embeddings is true, but %s and %s differ: one of them is wrong",
                     spec->path, names->head, names->embedding);
        out->head = out->embedding;
    }
    return find_tensor(spec, names->final_norm, s->width, 1, &out->final_norm, err);
}

/* ---- the pass over all bytes ---- */

typedef struct tensor_check {
    char sha256[CKVC_SHA256_HEX];
    int64_t bad; /* index of the first value that is not finite; -1: all are */
    bool nan;
} tensor_check;

typedef struct check_job {
    const tensor_view *tensors;
    tensor_check *out;         /* [n tensors] */
    atomic_uint_fast64_t done; /* bytes */
} check_job;

/* The index of the first value whose exponent is all ones (NaN or infinite), among n values from
 * `first` on; -1: none. Values of a quantised tensor are decoded a few blocks at a time. */
static int64_t first_not_finite(const tensor_view *t, int64_t first, int64_t n, bool *nan) {
    enum { ROOM = 8 * TENSOR_BLOCK_VALUES };
    union {
        uint32_t w[ROOM];
        uint16_t h[ROOM];
        float f[ROOM];
    } piece;
    const bool half = t->type == TENSOR_F16 || t->type == TENSOR_BF16,
               plain = half || t->type == TENSOR_F32;
    const uint32_t exponent = t->type == TENSOR_F16 ? 0x7c00
                              : half                ? 0x7f80
                                                    : 0x7f800000,
                   mantissa = t->type == TENSOR_F16 ? 0x03ff
                              : half                ? 0x007f
                                                    : 0x007fffff;
    const size_t size = half ? 2 : 4;
    for (int64_t i = first; i < first + n; i += ROOM) {
        const int m = i + ROOM < first + n ? ROOM : (int)(first + n - i);
        uint32_t any = 0;
        if (plain) {
            memcpy(&piece, t->data + (size_t)i * size, (size_t)m * size);
        } else {
            tensor_decode(t, i, m, piece.f);
        }
        for (int j = 0; half && j < m; j++) { any |= (piece.h[j] & exponent) == exponent; }
        for (int j = 0; !half && j < m; j++) { any |= (piece.w[j] & exponent) == exponent; }
        for (int j = 0; any && j < m; j++) {
            const uint32_t v = half ? piece.h[j] : piece.w[j];
            if ((v & exponent) == exponent) {
                *nan = (v & mantissa) != 0;
                return i + j;
            }
        }
    }
    return -1;
}

/* Blocks are so small that the hash finds in the processor's cache what the scan has just read. */
#define CHECK_BLOCK (1 << 18)

static void check_task(void *ctx, int64_t task, int worker) {
    check_job *job = ctx;
    const tensor_view *t = &job->tensors[task];
    tensor_check *out = &job->out[task];
    const tensor_block block =
        t->type == TENSOR_OTHER ? (tensor_block){1, 1} : tensor_block_of(t->type);
    const uint64_t step = (uint64_t)CHECK_BLOCK / block.bytes * block.bytes;
    ckvc_sha256 hash;
    uint8_t digest[CKVC_SHA256_BYTES];
    ckvc_sha256_init(&hash);
    out->bad = -1;
    for (uint64_t at = 0; at < t->bytes; at += step) {
        const uint64_t n = at + step < t->bytes ? step : t->bytes - at;
        if (t->type != TENSOR_OTHER && out->bad < 0) {
            out->bad = first_not_finite(t, (int64_t)(at / block.bytes * block.values),
                                        (int64_t)(n / block.bytes * block.values), &out->nan);
        }
        ckvc_sha256_update(&hash, t->data + at, (size_t)n);
        const uint64_t done = atomic_fetch_add(&job->done, n) + n;
        if (worker == 0) { ckvc_progress_update(done / 1000000, done / 1000000); }
    }
    ckvc_sha256_final(&hash, digest);
    ckvc_hex(digest, sizeof digest, out->sha256);
}

/* Reports, for example, "model.safetensors: model.layers.0.mlp.up_proj.weight[1][2] is NaN". */
static ckvc_status fail_not_finite(const tensor_view *t, const tensor_check *c, ckvc_err *err) {
    char index[128] = "";
    int64_t at[TENSOR_MAX_RANK], rest = c->bad;
    for (int32_t i = t->rank; i-- > 0; rest /= t->dims[i]) { at[i] = rest % t->dims[i]; }
    for (int32_t i = 0; i < t->rank; i++) {
        snprintf(index + strlen(index), sizeof index - strlen(index), "[%lld]", (long long)at[i]);
    }
    return ckvc_fail(err, CKVC_E_DATA, "%s: %s%s is %s; the weights are damaged", t->file,
                     t->stored, index, c->nan ? "NaN" : "infinite");
}

/* Checks that every tensor that the shape needs is there, and warns of those that it does not
 * need. */
static ckvc_status check_names(const model_spec *spec, ckvc_err *err) {
    const model_shape *s = &spec->shape;
    const end_names *names = end_tensor_names(s);
    const tensor_view *found;
    model_ends ends;
    CKVC_TRY(model_ends_find(spec, &ends, err));
    size_t n_used = 2 + (model_spec_find(spec, ROPE_FREQS) != NULL) +
                    (model_spec_find(spec, names->embedding) && model_spec_find(spec, names->head));
    for (int32_t l = 0; l < s->n_layers; l++) {
        for (layer_part part = 0; part < LAYER_PARTS; part++) {
            layer_tensor t;
            if (layer_tensor_of(s, l, part, &t)) {
                CKVC_TRY(find_tensor(spec, t.name, t.rows, t.cols, &found, err));
                n_used += t.first == 0;
            }
        }
    }
    if (spec->n_tensors > n_used) {
        ckvc_warn("%s: %zu of %zu tensors are not part of a %s model of this config.json and are "
                  "not used",
                  spec->path, spec->n_tensors - n_used, spec->n_tensors, s->family);
    }
    return CKVC_OK;
}

ckvc_status model_tensors_check(const model_spec *spec, ckvc_pool *pool,
                                char fingerprint[CKVC_SHA256_HEX], ckvc_err *err) {
    CKVC_TRY(check_names(spec, err));
    CKVC_AUTO_FREE char *lines = model_shape_lines(&spec->shape, 17);
    CKVC_AUTO_FREE tensor_check *checks = ckvc_calloc(spec->n_tensors, sizeof *checks);
    check_job job = {spec->tensors, checks, 0};
    uint64_t bytes = 0;
    for (size_t i = 0; i < spec->n_tensors; i++) { bytes += spec->tensors[i].bytes; }
    ckvc_progress_start("reading the model", "MB", "MB", bytes / 1000000 + 1, 0);
    ckvc_pool_run(pool, (int64_t)spec->n_tensors, check_task, &job);
    ckvc_progress_clear();
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    ckvc_buffer_printf(&text, "%s%s", spec->fingerprint_kind, lines);
    for (size_t i = 0; i < spec->n_tensors; i++) {
        const tensor_view *t = &spec->tensors[i];
        char dims[TENSOR_DIMS_TEXT];
        if (checks[i].bad >= 0) { return fail_not_finite(t, &checks[i], err); }
        ckvc_buffer_printf(&text, "%s\t%s\t%s\t%s\n", t->stored, t->dtype,
                           tensor_dims(t->dims, t->rank, dims), checks[i].sha256);
    }
    ckvc_sha256_hex(text.data, text.size, fingerprint);
    return CKVC_OK;
}

/* ---- memory ---- */

typedef struct copy_rule {
    const model_spec *spec;
    size_t matrix; /* bytes of one value of a matrix */
    bool in_place;
} copy_rule;

/* The bytes that a copy of a weight with so many values takes; 0 where none is made. */
static uint64_t copy_of(const copy_rule *r, const char *name, bool fused, int64_t values) {
    const tensor_view *t = model_spec_find(r->spec, name);
    if (!t) { return 0; }
    const bool vector = t->rank < 2, aligned = (uintptr_t)t->data % sizeof(float) == 0,
               may = (vector || r->in_place) && aligned && !fused && tensor_as_stored(t);
    const size_t bytes = vector ? sizeof(float) : r->matrix;
    return may && t->type == (bytes == 2 ? TENSOR_BF16 : TENSOR_F32) ? 0 : (uint64_t)values * bytes;
}

copy_bytes model_copy_bytes(const model_spec *spec, size_t value_bytes, bool in_place) {
    const model_shape *s = &spec->shape;
    const copy_rule rule = {spec, value_bytes, in_place};
    const end_names *names = end_tensor_names(s);
    copy_bytes b = {0};
    uint64_t layer = 0;
    for (int32_t l = 0; l < s->n_layers; l++) {
        uint64_t here = 0;
        for (layer_part part = 0; part < LAYER_PARTS; part++) {
            layer_tensor t;
            if (layer_tensor_of(s, l, part, &t)) {
                here += copy_of(&rule, t.name, t.block > 0, t.own_rows * t.cols);
            }
        }
        b.all += here;
        layer = here > layer ? here : layer;
    }
    /* rows of the embedding are read as they lie; it is copied only where it serves as a tied
     * head */
    const char *head_name = model_spec_find(spec, names->head) ? names->head : names->embedding;
    const uint64_t head = copy_of(&rule, head_name, false, (int64_t)s->vocab * s->width) +
                          copy_of(&rule, names->final_norm, false, s->width);
    b.all += head;
    b.least = layer + head;
    return b;
}
