/* Opening a model: which tensor is which, the pass over all bytes (finite? fingerprint), the rotary
 * frequencies. */
#include "lib/model/model_weights.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/buffer.h"
#include "lib/base/memory.h"
#include "lib/base/status.h"

/* ---- names ---- */

/* One row a tensor of a layer: its name behind "model.layers.N.", where it goes, its shape in terms
 * of the model's. Of a fused tensor three rows take their part: for each KV head in turn its H/G
 * query heads, its key head, its value head (modeling_internlm2.py, InternLM2Attention.forward, the
 * rearrange "b q (h gs d) -> b q h gs d"). */
typedef enum dim { ONE, WIDTH, HEADS, KV_HEADS, FUSED, MLP } dim;
typedef enum when { ALWAYS, QKV_BIAS, OUTPUT_BIAS, MLP_BIAS } when;
typedef enum fused_part { WHOLE, QUERIES, KEYS, VALUES } fused_part;
typedef struct layer_row {
    const char *name;
    size_t offset; /* in layer_weights */
    dim rows, cols;
    when when;
    fused_part part;
} layer_row;

/* transformers: modeling_llama.py, modeling_mistral.py, modeling_qwen2.py */
static const layer_row llama_rows[] = {
    {"input_layernorm.weight", offsetof(layer_weights, attention_norm), WIDTH, ONE, ALWAYS, WHOLE},
    {"self_attn.q_proj.weight", offsetof(layer_weights, q), HEADS, WIDTH, ALWAYS, WHOLE},
    {"self_attn.k_proj.weight", offsetof(layer_weights, k), KV_HEADS, WIDTH, ALWAYS, WHOLE},
    {"self_attn.v_proj.weight", offsetof(layer_weights, v), KV_HEADS, WIDTH, ALWAYS, WHOLE},
    {"self_attn.o_proj.weight", offsetof(layer_weights, o), WIDTH, HEADS, ALWAYS, WHOLE},
    {"self_attn.q_proj.bias", offsetof(layer_weights, q_bias), HEADS, ONE, QKV_BIAS, WHOLE},
    {"self_attn.k_proj.bias", offsetof(layer_weights, k_bias), KV_HEADS, ONE, QKV_BIAS, WHOLE},
    {"self_attn.v_proj.bias", offsetof(layer_weights, v_bias), KV_HEADS, ONE, QKV_BIAS, WHOLE},
    {"self_attn.o_proj.bias", offsetof(layer_weights, o_bias), WIDTH, ONE, OUTPUT_BIAS, WHOLE},
    {"post_attention_layernorm.weight", offsetof(layer_weights, mlp_norm), WIDTH, ONE, ALWAYS,
     WHOLE},
    {"mlp.gate_proj.weight", offsetof(layer_weights, gate), MLP, WIDTH, ALWAYS, WHOLE},
    {"mlp.up_proj.weight", offsetof(layer_weights, up), MLP, WIDTH, ALWAYS, WHOLE},
    {"mlp.down_proj.weight", offsetof(layer_weights, down), WIDTH, MLP, ALWAYS, WHOLE},
    {"mlp.gate_proj.bias", offsetof(layer_weights, gate_bias), MLP, ONE, MLP_BIAS, WHOLE},
    {"mlp.up_proj.bias", offsetof(layer_weights, up_bias), MLP, ONE, MLP_BIAS, WHOLE},
    {"mlp.down_proj.bias", offsetof(layer_weights, down_bias), WIDTH, ONE, MLP_BIAS, WHOLE},
};

/* modeling_internlm2.py; w1 is the gate, w3 goes up, w2 down (InternLM2MLP.forward) */
static const layer_row internlm2_rows[] = {
    {"attention_norm.weight", offsetof(layer_weights, attention_norm), WIDTH, ONE, ALWAYS, WHOLE},
    {"attention.wqkv.weight", offsetof(layer_weights, q), FUSED, WIDTH, ALWAYS, QUERIES},
    {"attention.wqkv.weight", offsetof(layer_weights, k), FUSED, WIDTH, ALWAYS, KEYS},
    {"attention.wqkv.weight", offsetof(layer_weights, v), FUSED, WIDTH, ALWAYS, VALUES},
    {"attention.wo.weight", offsetof(layer_weights, o), WIDTH, HEADS, ALWAYS, WHOLE},
    {"attention.wqkv.bias", offsetof(layer_weights, q_bias), FUSED, ONE, QKV_BIAS, QUERIES},
    {"attention.wqkv.bias", offsetof(layer_weights, k_bias), FUSED, ONE, QKV_BIAS, KEYS},
    {"attention.wqkv.bias", offsetof(layer_weights, v_bias), FUSED, ONE, QKV_BIAS, VALUES},
    {"attention.wo.bias", offsetof(layer_weights, o_bias), WIDTH, ONE, OUTPUT_BIAS, WHOLE},
    {"ffn_norm.weight", offsetof(layer_weights, mlp_norm), WIDTH, ONE, ALWAYS, WHOLE},
    {"feed_forward.w1.weight", offsetof(layer_weights, gate), MLP, WIDTH, ALWAYS, WHOLE},
    {"feed_forward.w3.weight", offsetof(layer_weights, up), MLP, WIDTH, ALWAYS, WHOLE},
    {"feed_forward.w2.weight", offsetof(layer_weights, down), WIDTH, MLP, ALWAYS, WHOLE},
};

typedef struct tensor_names {
    const char *embedding, *head, *final_norm;
    const layer_row *rows;
    size_t n_rows;
} tensor_names;

static const tensor_names *names_of(const model_shape *s) {
    static const tensor_names llama = {"model.embed_tokens.weight", "lm_head.weight",
                                       "model.norm.weight", llama_rows,
                                       sizeof llama_rows / sizeof *llama_rows};
    static const tensor_names internlm2 = {"model.tok_embeddings.weight", "output.weight",
                                           "model.norm.weight", internlm2_rows,
                                           sizeof internlm2_rows / sizeof *internlm2_rows};
    return strcmp(s->family, "internlm2") == 0 ? &internlm2 : &llama;
}

#define ROPE_FREQS                                                                                 \
    "rope_freqs.weight" /* of a GGUF file: its reader has made it the shape's rope fields */

static int64_t size_of(const model_shape *s, dim d) {
    switch (d) {
    case ONE:
        return 1;
    case WIDTH:
        return s->width;
    case HEADS:
        return (int64_t)s->n_heads * s->head_dim;
    case KV_HEADS:
        return (int64_t)s->n_kv_heads * s->head_dim;
    case FUSED:
        return (s->n_heads + 2 * (int64_t)s->n_kv_heads) * s->head_dim;
    case MLP:
        break;
    }
    return s->intermediate;
}

static bool wanted(const model_shape *s, when w) {
    return w == ALWAYS || (w == QKV_BIAS && s->qkv_bias) || (w == OUTPUT_BIAS && s->output_bias) ||
           (w == MLP_BIAS && s->mlp_bias);
}

/* The tensor, checked: there, of a type that we compute with, [rows][cols] or, for cols == 1,
 * [rows]. */
static const tensor_view *find(const weights *files, const char *dir, const char *name,
                               int64_t rows, int64_t cols, ckvc_err *err) {
    const tensor_view *t = weights_find(files, name);
    if (t == NULL) {
        ckvc_fail(err, CKVC_E_DATA, "%s: tensor \"%s\" is missing; config.json asks for it", dir,
                  name);
        return NULL;
    }
    if (t->type == TENSOR_OTHER) {
        ckvc_fail(err, CKVC_E_DATA,
                  "%s: tensor \"%s\" has dtype %s; the runtime computes with F32, F16 and BF16",
                  t->file, t->stored, t->dtype);
        return NULL;
    }
    char got[96] = "[", want[64];
    for (int32_t i = 0; i < t->rank; i++) {
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%lld", i ? "," : "",
                 (long long)t->dims[i]);
    }
    strcat(got, "]");
    if (cols == 1) {
        snprintf(want, sizeof want, "[%lld]", (long long)rows);
    } else {
        snprintf(want, sizeof want, "[%lld,%lld]", (long long)rows, (long long)cols);
    }
    if (strcmp(got, want) != 0) {
        ckvc_fail(err, CKVC_E_DATA, "%s: tensor \"%s\" has shape %s, config.json asks for %s",
                  t->file, t->stored, got, want);
        return NULL;
    }
    return t;
}

/* A tied model may carry its one matrix under either name. Carrying both is fine while they are the
 * same bytes. */
static ckvc_status find_ends(const model_shape *s, const weights *files, const char *dir,
                             const tensor_view **embedding, const tensor_view **head,
                             ckvc_err *err) {
    const tensor_names *names = names_of(s);
    const bool has_embedding = weights_find(files, names->embedding) != NULL,
               has_head = weights_find(files, names->head) != NULL;
    const bool one = s->tied && has_embedding != has_head;
    *embedding =
        find(files, dir, one && has_head ? names->head : names->embedding, s->vocab, s->width, err);
    *head = *embedding && !one && (has_head || !s->tied)
                ? find(files, dir, names->head, s->vocab, s->width, err)
                : *embedding;
    if (*embedding == NULL || *head == NULL) { return CKVC_E_DATA; }
    if (s->tied && *head != *embedding) {
        if ((*head)->type != (*embedding)->type ||
            memcmp((*head)->data, (*embedding)->data, (*head)->bytes) != 0) {
            return ckvc_fail(
                err, CKVC_E_DATA,
                "%s: tie_word_embeddings is true, but %s and %s differ: one of them is wrong", dir,
                names->head, names->embedding);
        }
        *head = *embedding;
    }
    return CKVC_OK;
}

static char *layer_name(int32_t layer, const char *name, char *out, size_t size) {
    snprintf(out, size, "model.layers.%d.%s", layer, name);
    return out;
}

/* ---- the pass over all bytes ---- */

typedef struct tensor_check {
    char sha256[CKVC_SHA256_HEX];
    int64_t bad; /* index of the first value that is not finite; -1: none */
    bool nan;
} tensor_check;

typedef struct check_job {
    const weights *files;
    tensor_check *out; /* [n tensors] */
} check_job;

/* Index of the first value whose exponent is all ones, among n values of 2 or 4 bytes at p; -1:
 * none. */
static int64_t first_not_finite(const uint8_t *p, tensor_type type, int64_t n, bool *nan) {
    const uint32_t exponent = type == TENSOR_F32   ? 0x7f800000u
                              : type == TENSOR_F16 ? 0x7c00u
                                                   : 0x7f80u;
    const uint32_t mantissa = type == TENSOR_F32   ? 0x007fffffu
                              : type == TENSOR_F16 ? 0x03ffu
                                                   : 0x007fu;
    union {
        uint32_t w[1024];
        uint16_t h[1024];
    } piece;
    for (int64_t i = 0; i < n; i += 1024) {
        const int m = i + 1024 < n ? 1024 : (int)(n - i);
        uint32_t any = 0;
        if (type == TENSOR_F32) {
            memcpy(piece.w, p + i * 4, (size_t)m * 4);
            for (int j = 0; j < m; j++) {
                any |= (piece.w[j] & exponent) == exponent;
            }
        } else {
            memcpy(piece.h, p + i * 2, (size_t)m * 2);
            for (int j = 0; j < m; j++) {
                any |= (piece.h[j] & exponent) == exponent;
            }
        }
        for (int j = 0; any && j < m; j++) {
            const uint32_t v = type == TENSOR_F32 ? piece.w[j] : piece.h[j];
            if ((v & exponent) == exponent) {
                *nan = (v & mantissa) != 0;
                return i + j;
            }
        }
    }
    return -1;
}

/* The same for n values of a quantised tensor from value `first` on: they are decoded, a few blocks
 * at a time. */
static int64_t first_not_finite_decoded(const tensor_view *t, int64_t first, int64_t n, bool *nan) {
    float values[8 * TENSOR_BLOCK_VALUES];
    const int64_t room = (int64_t)(sizeof values / sizeof *values);
    for (int64_t i = 0; i < n; i += room) {
        const int64_t m = i + room < n ? room : n - i;
        tensor_decode(t, first + i, m, values);
        const int64_t bad = first_not_finite((const uint8_t *)values, TENSOR_F32, m, nan);
        if (bad >= 0) { return i + bad; }
    }
    return -1;
}

/* Blocks small enough that the hash finds in the cache what the scan has just read. */
#define CHECK_BLOCK (1 << 18)

static void check_task(void *ctx, int64_t task, int worker) {
    (void)worker;
    const check_job *job = ctx;
    const tensor_view *t = weights_at(job->files, (size_t)task);
    tensor_check *out = &job->out[task];
    const tensor_block block =
        t->type == TENSOR_OTHER ? (tensor_block){1, 1} : tensor_block_of(t->type);
    const uint64_t step = CHECK_BLOCK / block.bytes * block.bytes;
    ckvc_sha256 hash;
    uint8_t digest[CKVC_SHA256_BYTES];
    ckvc_sha256_init(&hash);
    out->bad = -1;
    for (uint64_t at = 0; at < t->bytes; at += step) {
        const uint64_t n = at + step < t->bytes ? step : t->bytes - at;
        if (t->type != TENSOR_OTHER && out->bad < 0) {
            const int64_t first = (int64_t)(at / block.bytes * block.values),
                          m = (int64_t)(n / block.bytes * block.values);
            out->bad = block.values == 1 ? first_not_finite(t->data + at, t->type, m, &out->nan)
                                         : first_not_finite_decoded(t, first, m, &out->nan);
            out->bad += out->bad < 0 ? 0 : first;
        }
        ckvc_sha256_update(&hash, t->data + at, (size_t)n);
    }
    ckvc_sha256_final(&hash, digest);
    ckvc_hex(digest, sizeof digest, out->sha256);
}

/* "model.safetensors: model.layers.0.mlp.up_proj.weight[1][2] is NaN" */
static ckvc_status fail_not_finite(const tensor_view *t, const tensor_check *c, ckvc_err *err) {
    char index[128] = "";
    int64_t rest = c->bad, stride = 1;
    for (int32_t i = 1; i < t->rank; i++) {
        stride *= t->dims[i];
    }
    for (int32_t i = 0; i < t->rank; i++) {
        snprintf(index + strlen(index), sizeof index - strlen(index), "[%lld]",
                 (long long)(rest / stride));
        rest %= stride;
        stride = i + 1 < t->rank ? stride / t->dims[i + 1] : 1;
    }
    return ckvc_fail(err, CKVC_E_DATA, "%s: %s%s is %s; the weights are damaged", t->file,
                     t->stored, index, c->nan ? "NaN" : "infinite");
}

ckvc_status model_check(const model_shape *s, const weights *files, const char *dir,
                        ckvc_pool *pool, char fingerprint[CKVC_SHA256_HEX], ckvc_err *err) {
    char name[128];
    const tensor_names *names = names_of(s);
    const tensor_view *embedding, *head;
    size_t n_used = 2;
    ckvc_status rc = find_ends(s, files, dir, &embedding, &head, err);
    if (rc != CKVC_OK) { return rc; }
    if (find(files, dir, names->final_norm, s->width, 1, err) == NULL) { return CKVC_E_DATA; }
    for (int32_t l = 0; l < s->n_layers; l++) {
        for (size_t i = 0; i < names->n_rows; i++) {
            const layer_row *row = &names->rows[i];
            if (!wanted(s, row->when)) { continue; }
            if (find(files, dir, layer_name(l, row->name, name, sizeof name), size_of(s, row->rows),
                     size_of(s, row->cols), err) == NULL) {
                return CKVC_E_DATA;
            }
            n_used += row->part == WHOLE || row->part == QUERIES;
        }
    }
    n_used +=
        weights_find(files, names->embedding) != NULL && weights_find(files, names->head) != NULL;
    n_used += weights_find(files, ROPE_FREQS) != NULL;

    const size_t n = weights_count(files);
    if (n > n_used) {
        ckvc_warn("%s: %zu of %zu tensors are not part of a %s model of this config.json and are "
                  "not used",
                  dir, n - n_used, n, s->family);
    }
    ckvc_buffer text = {0};
    char *lines = model_shape_lines(s);
    check_job job = {files, ckvc_calloc(n, sizeof *job.out)};
    if (lines == NULL || job.out == NULL) {
        rc = ckvc_fail_memory(err, "the sums of the weights", n * sizeof *job.out);
        goto done;
    }
    ckvc_pool_run(pool, (int64_t)n, check_task, &job);
    ckvc_buffer_text(&text, weights_fingerprint_kind(files));
    ckvc_buffer_text(&text, lines);
    for (size_t i = 0; i < n; i++) {
        const tensor_view *t = weights_at(files, i);
        if (job.out[i].bad >= 0) {
            rc = fail_not_finite(t, &job.out[i], err);
            goto done;
        }
        ckvc_buffer_printf(&text, "%s\t%s\t[", t->stored, t->dtype);
        for (int32_t d = 0; d < t->rank; d++) {
            ckvc_buffer_printf(&text, "%s%lld", d ? "," : "", (long long)t->dims[d]);
        }
        ckvc_buffer_printf(&text, "]\t%s\n", job.out[i].sha256);
    }
    if (text.failed) {
        rc = ckvc_fail_memory(err, "the fingerprint", n * 128);
    } else {
        ckvc_sha256_hex(text.data, text.size, fingerprint);
    }
done:
    ckvc_buffer_fini(&text);
    free(lines);
    free(job.out);
    return rc;
}

/* ---- memory ---- */

/* Of one row of a layer, or of a tensor taken whole: float32 that lies in one piece is used in
 * place, unless matrices get copies of matrix_value bytes a value. */
static uint64_t copy_of(const weights *files, const char *name, bool fused, uint64_t values,
                        size_t matrix_value) {
    const tensor_view *t = weights_find(files, name);
    if (t && t->rank > 1 && matrix_value) { return values * matrix_value; }
    return t && (fused || t->type != TENSOR_F32 || !tensor_is_plain(t)) ? values * sizeof(float)
                                                                        : 0;
}

copy_bytes model_copy_bytes(const model_shape *s, const weights *files, size_t matrix_value) {
    const tensor_names *names = names_of(s);
    char name[128];
    copy_bytes b = {0};
    uint64_t layer = 0;
    for (int32_t l = 0; l < s->n_layers; l++) {
        uint64_t here = 0;
        for (size_t i = 0; i < names->n_rows; i++) {
            const layer_row *row = &names->rows[i];
            const dim rows = row->part == QUERIES ? HEADS
                             : row->part == WHOLE ? row->rows
                                                  : KV_HEADS;
            if (wanted(s, row->when)) {
                here +=
                    copy_of(files, layer_name(l, row->name, name, sizeof name), row->part != WHOLE,
                            (uint64_t)(size_of(s, rows) * size_of(s, row->cols)), matrix_value);
            }
        }
        b.all += here;
        layer = here > layer ? here : layer;
    }
    /* the embedding is read row by row as it lies; only as a tied head it is copied */
    const char *head_name = weights_find(files, names->head) ? names->head : names->embedding;
    const uint64_t head =
        copy_of(files, head_name, false, (uint64_t)s->vocab * (uint64_t)s->width, matrix_value) +
        copy_of(files, names->final_norm, false, (uint64_t)s->width, matrix_value);
    b.all += head;
    b.least = layer + head;
    return b;
}

/* ---- positions ---- */

/* inv_freq[i] = base^(-2i/D).
 * llama3: with wavelength w = 2 pi / inv_freq, long waves (w > original / low) are slowed down by
 * `factor`, short ones (w < original / high) stay, between them the two are mixed by (original / w
 * - low) / (high - low). linear: all are slowed down by `factor`. dynamic: base = theta * (factor *
 * n / max_positions - (factor - 1))^(D / (D - 2)) for n > max_positions tokens, else theta. */
void rope_frequencies(const model_shape *s, int64_t n_total, double *inv_freq) {
    double base = s->rope_theta;
    if (s->rope == ROPE_DYNAMIC && n_total > s->max_positions) {
        base *= pow(s->rope_factor * (double)n_total / s->max_positions - (s->rope_factor - 1.0),
                    (double)s->head_dim / (s->head_dim - 2));
    }
    for (int32_t i = 0; i < s->head_dim / 2; i++) {
        double f = pow(base, -2.0 * i / s->head_dim);
        if (s->rope == ROPE_LINEAR) { f /= s->rope_factor; }
        if (s->rope == ROPE_LLAMA3) {
            const double turns = s->rope_original_positions * f / (2.0 * 3.14159265358979323846);
            if (turns < s->rope_low_freq) {
                f /= s->rope_factor;
            } else if (turns <= s->rope_high_freq) {
                const double smooth =
                    (turns - s->rope_low_freq) / (s->rope_high_freq - s->rope_low_freq);
                f = (1.0 - smooth) * f / s->rope_factor + smooth * f;
            }
        }
        inv_freq[i] = f;
    }
}

be_attention_shape layer_attention(const model *m, int32_t layer) {
    const model_shape *s = &m->shape;
    return (be_attention_shape){.n_heads = s->n_heads,
                                .n_kv_heads = s->n_kv_heads,
                                .head_dim = s->head_dim,
                                .window = model_shape_window(s, layer),
                                .scale = (float)(1.0 / sqrt((double)s->head_dim))};
}

/* ---- open, close ---- */

typedef struct decode_job {
    const tensor_view *tensor;
    float *values;
} decode_job;

#define DECODE_CHUNK (256 * TENSOR_BLOCK_VALUES)

static void decode_task(void *ctx, int64_t task, int worker) {
    (void)worker;
    const decode_job *job = ctx;
    const int64_t first = task * DECODE_CHUNK, rest = tensor_n_values(job->tensor) - first;
    tensor_decode(job->tensor, first, rest < DECODE_CHUNK ? rest : DECODE_CHUNK,
                  job->values + first);
}

/* A tensor that the backend cannot use as it lies in the file, made float32 once, in memory of the
 * model's. */
static ckvc_status decode(model *m, const tensor_view *t, const float **out, ckvc_err *err) {
    const int64_t n = tensor_n_values(t);
    void *list = m->decoded;
    ckvc_status rc = ckvc_grow(&list, &m->cap_decoded, m->n_decoded + 1, sizeof *m->decoded, err);
    m->decoded = list;
    if (rc != CKVC_OK) { return rc; }
    float *values = ckvc_alloc_aligned((size_t)n, sizeof *values);
    m->decoded[m->n_decoded++] = values;
    decode_job job = {t, values};
    ckvc_pool_run(backend_pool(m->be), (n + DECODE_CHUNK - 1) / DECODE_CHUNK, decode_task, &job);
    *out = values;
    return tensor_order_rows(t, values, err);
}

static ckvc_status hand_over(model *m, const tensor_view *t, fused_part part, be_weight **out,
                             ckvc_err *err) {
    static const be_type types[] = {
        [TENSOR_F32] = BE_F32, [TENSOR_F16] = BE_F16, [TENSOR_BF16] = BE_BF16};
    const model_shape *s = &m->shape;
    const int64_t rows = t->dims[0], cols = t->rank > 1 ? t->dims[1] : 1;
    const float *values = NULL;
    const ckvc_status rc = tensor_is_plain(t) ? CKVC_OK : decode(m, t, &values, err);
    if (rc != CKVC_OK) { return rc; }
    const uint8_t *bytes = values ? (const uint8_t *)values : t->data;
    const be_type type = values ? BE_F32 : types[t->type];
    if (part == WHOLE) {
        return m->be->ops->weight_create(m->be, bytes, type, rows, cols, out, err);
    }
    /* one KV head's rows: its queries, then one head of keys, then one of values */
    const int64_t d = s->head_dim, queries = s->n_heads / s->n_kv_heads * d,
                  stride = queries + 2 * d;
    const int64_t first = part == QUERIES ? 0
                          : part == KEYS  ? queries
                                          : queries + d,
                  block = part == QUERIES ? queries : d;
    assert(values == NULL); /* fused tensors come from directories alone, whose types are plain */
    const uint64_t row_bytes = t->bytes / (uint64_t)rows;
    return m->be->ops->weight_create_blocks(m->be, bytes + (uint64_t)first * row_bytes, type,
                                            s->n_kv_heads * block, cols, block, stride, out, err);
}

/* Every be_weight of a layer, whichever family filled it. */
static be_weight **slot(layer_weights *layer, size_t i) {
    return (be_weight **)(void *)((char *)layer + i * sizeof(be_weight *));
}

static ckvc_status hand_over_all(model *m, const char *dir, ckvc_err *err) {
    const model_shape *s = &m->shape;
    const tensor_names *names = names_of(s);
    char name[128];
    const tensor_view *embedding, *head;
    ckvc_status rc = find_ends(s, m->files, dir, &embedding, &head, err);
    if (rc == CKVC_OK) { rc = hand_over(m, embedding, WHOLE, &m->embedding, err); }
    if (rc == CKVC_OK && head != embedding) { rc = hand_over(m, head, WHOLE, &m->head, err); }
    if (rc == CKVC_OK && head == embedding) { m->head = m->embedding; }
    if (rc == CKVC_OK) {
        rc = hand_over(m, weights_find(m->files, names->final_norm), WHOLE, &m->final_norm, err);
    }
    for (int32_t l = 0; rc == CKVC_OK && l < s->n_layers; l++) {
        for (size_t i = 0; rc == CKVC_OK && i < names->n_rows; i++) {
            const layer_row *row = &names->rows[i];
            if (wanted(s, row->when)) {
                rc = hand_over(
                    m, weights_find(m->files, layer_name(l, row->name, name, sizeof name)),
                    row->part, slot(&m->layers[l], row->offset / sizeof(be_weight *)), err);
            }
        }
    }
    return rc;
}

ckvc_status model_open(const char *dir, backend *be, model **out, ckvc_err *err) {
    *out = NULL;
    model *m = ckvc_calloc(1, sizeof *m);
    m->be = be;
    ckvc_status rc = model_config_read(dir, &m->shape, err);
    if (rc == CKVC_OK) { rc = weights_open(dir, &m->files, err); }
    if (rc == CKVC_OK) {
        rc = model_check(&m->shape, m->files, dir, backend_pool(be), m->fingerprint, err);
    }
    if (rc != CKVC_OK) { goto failed; }
    const model_shape *s = &m->shape;
    m->layers = ckvc_calloc((size_t)s->n_layers, sizeof *m->layers);
    size_t end = strlen(dir);
    while (end > 1 && dir[end - 1] == '/') {
        end--;
    }
    size_t begin = end;
    while (begin > 0 && dir[begin - 1] != '/') {
        begin--;
    }
    if (end - begin > 5 && strncmp(dir + end - 5, ".gguf", 5) == 0) { end -= 5; }
    m->name = ckvc_format("%.*s", (int)(end - begin), dir + begin);
    rc = hand_over_all(m, dir, err);
    if (rc != CKVC_OK) { goto failed; }
    *out = m;
    return CKVC_OK;
failed:
    model_close(m);
    return rc;
}

void model_close(model *m) {
    if (m == NULL) { return; }
    for (int32_t l = 0; m->layers && l < m->shape.n_layers; l++) {
        for (size_t i = 0; i < LAYER_WEIGHTS; i++) {
            m->be->ops->weight_free(m->be, *slot(&m->layers[l], i));
        }
    }
    if (m->head != m->embedding) { m->be->ops->weight_free(m->be, m->head); }
    m->be->ops->weight_free(m->be, m->embedding);
    m->be->ops->weight_free(m->be, m->final_norm);
    for (size_t i = 0; i < m->n_decoded; i++) {
        free(m->decoded[i]);
    }
    free(m->decoded);
    free(m->layers);
    free(m->name);
    weights_close(m->files);
    free(m);
}

ckvc_status layer_acquire(model *m, int32_t layer, ckvc_err *err) {
    for (size_t i = 0; i < LAYER_WEIGHTS; i++) {
        be_weight *w = *slot(&m->layers[layer], i);
        ckvc_status rc = w ? m->be->ops->weight_acquire(m->be, w, err) : CKVC_OK;
        if (rc != CKVC_OK) { return rc; }
    }
    return CKVC_OK;
}

void layer_release(model *m, int32_t layer) {
    for (size_t i = 0; i < LAYER_WEIGHTS; i++) {
        be_weight *w = *slot(&m->layers[layer], i);
        if (w) { m->be->ops->weight_release(m->be, w); }
    }
}

ckvc_status model_acquire(model *m, ckvc_err *err) {
    const backend_ops *op = m->be->ops;
    ckvc_status rc = CKVC_OK;
    for (int32_t l = 0; rc == CKVC_OK && l < m->shape.n_layers; l++) {
        rc = layer_acquire(m, l, err);
        layer_release(m, l);
    }
    be_weight *const ends[] = {m->final_norm, m->head};
    for (int i = 0; rc == CKVC_OK && i < 2; i++) {
        rc = op->weight_acquire(m->be, ends[i], err);
        op->weight_release(m->be, ends[i]);
    }
    return rc;
}

size_t model_converted_bytes(const model *m) {
    return (size_t)model_copy_bytes(&m->shape, m->files, backend_matrix_copy_bytes(m->be)).all;
}

size_t model_converted_least(const model *m) {
    return (size_t)model_copy_bytes(&m->shape, m->files, backend_matrix_copy_bytes(m->be)).least;
}

const model_shape *model_get_shape(const model *m) {
    return &m->shape;
}

const char *model_fingerprint(const model *m) {
    return m->fingerprint;
}

const char *model_name(const model *m) {
    return m->name;
}
