/* What a model is, as plain data: its shape, and its weights by name. Readers in formats/model fill
 * it, and model_open runs it. Nothing here opens a file: the bytes of the weights belong to the
 * reader that mapped them, which leaves with the spec a function that releases them. model_info.c,
 * tensor.c and model_spec.c compute what follows from the data alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/memory.h"

/* ---- the shape: which network this is ---- */

/* The functions of these names in transformers' modeling_rope_utils.py. */
typedef enum rope_kind { ROPE_DEFAULT, ROPE_LLAMA3, ROPE_LINEAR, ROPE_DYNAMIC } rope_kind;

/* Limits of what a model's file may state: an order of magnitude above every existing model, and
 * small enough that products of two stay far inside 63 bits. */
#define MODEL_LAYERS_MAX       1024
#define MODEL_HEADS_MAX        1024
#define MODEL_HEAD_DIM_MAX     1024
#define MODEL_WIDTH_MAX        (1 << 17)
#define MODEL_INTERMEDIATE_MAX (1 << 20)
#define MODEL_VOCAB_MAX        (1 << 22)
#define MODEL_POSITIONS_MAX    (1 << 26)
#define MODEL_STOP_IDS_MAX     16

typedef struct model_shape {
    char family[16]; /* model_type: llama, mistral, qwen2, qwen3, phi3, gemma3_text, internlm2 */
    int32_t n_layers, n_heads, n_kv_heads, head_dim; /* L, H, G, D */
    int32_t width, intermediate, vocab;              /* M, MLP, V */
    int32_t max_positions; /* max_position_embeddings; see also model_shape_context */
    double rms_eps, rope_theta;
    rope_kind rope;
    double rope_factor;                   /* for llama3, linear and dynamic */
    double rope_low_freq, rope_high_freq; /* for llama3 */
    int32_t rope_original_positions;      /* for llama3 */
    int32_t rope_dims; /* how many of a head's values are rotated, an even number below D; 0: all */
    bool tied, qkv_bias, output_bias, mlp_bias;
    bool qk_norm; /* each head's query and key are normed before they are rotated */
    /* post_norms: what attention and the MLP compute is normed before it is added. gelu: the MLP's
     * gate is a GELU, not a SiLU. */
    bool post_norms, gelu;
    double embed_scale;  /* embedded rows are multiplied by it; 0: they are not */
    double query_scalar; /* attention's scale is its -0.5th power; 0 stands for D */
    /* base, without scaling, in layers with a window; 0: rope_theta in all layers */
    double rope_local_theta;
    int32_t sliding_window; /* of the layers that have a window; 0: no layer has one */
    /* bit l: layer l sees everything although sliding_window is set */
    uint64_t full_layers[MODEL_LAYERS_MAX / 64];
    int32_t n_stop_ids;
    int32_t stop_ids[MODEL_STOP_IDS_MAX]; /* tokens that end a text, inside the vocabulary */
} model_shape;

/* How many positions layer `layer` sees, its own among them; 0: all. Mistral's sliding_window
 * applies to every layer (MistralModel, create_sliding_window_causal_mask); Qwen2's applies to the
 * layers that its layer_types name, by default to those from max_window_layers on. */
int32_t model_shape_window(const model_shape *s, int32_t layer);
/* The most tokens that a sequence may have: max_position_embeddings, multiplied by the factor under
 * linear and dynamic scaling, whose purpose is to reach beyond it. (transformers has no such limit;
 * vLLM has this one.) */
int64_t model_shape_context(const model_shape *s);
/* Sets what all of Gemma 3's layers have: post_norms, gelu, embedded rows multiplied by width^0.5
 * (Gemma3TextScaledWordEmbedding, whose factor is float32 where weights are float32), and the scale
 * of attention by query_pre_attn_scalar. */
void model_shape_gemma(model_shape *s, double query_scalar);
/* Adds a token that ends a text. Ids outside the vocabulary (such as -1 for none) and those beyond
 * the most that fit are left out. */
void model_shape_stop(model_shape *s, int64_t id);
bool model_shape_stops(const model_shape *s, int32_t id);
/* The number of weights, counting a tied head once, as PreTrainedModel.num_parameters does. */
int64_t model_shape_parameters(const model_shape *s);
/* The shape's part of the fingerprint (formats.md): lines such as "rope=...", with numbers of so
 * many digits. The caller frees the text. */
char *model_shape_lines(const model_shape *s, int digits);
/* "default", "llama3", "linear" or "dynamic", as rope_scaling.rope_type spells it. */
const char *rope_kind_name(rope_kind kind);
/* Checks that all layers of a model rotate alike; only for such models has it been measured what
 * policies choose of a prompt's cache. CKVC_E_DATA for a model with a rope_local_theta; the message
 * names it by `name`, its path or name. */
ckvc_status model_shape_evicts(const model_shape *s, const char *name,
                               ckvc_err *err) CKVC_MUST_CHECK;
/* Computes the rotary frequencies [D/2] for a sequence of n_total tokens in all (prompt and
 * continuation have one base). Those from rope_dims / 2 on are 0, which rotates nothing. With a
 * rope_local_theta the result is [2][D/2]: the second row is for layers that have a window, the
 * first for the others. transformers, modeling_rope_utils.py: _compute_llama3_parameters,
 * _compute_linear_scaling_rope_parameters, _compute_dynamic_ntk_parameters; InternLM2 computes the
 * last in the same way (modeling_internlm2.py, InternLM2DynamicNTKScalingRotaryEmbedding). */
void rope_frequencies(const model_shape *s, int64_t n_total, double *inv_freq);

/* ---- one tensor as it lies in a file, and its values in float32 ---- */

/* The types of a tensor's values; quantised types store blocks of values. */
typedef enum tensor_type {
    TENSOR_F32,
    TENSOR_F16,
    TENSOR_BF16,
    TENSOR_Q4_0,
    TENSOR_Q4_1,
    TENSOR_Q5_0,
    TENSOR_Q5_1,
    TENSOR_Q8_0,
    TENSOR_Q4_K,
    TENSOR_Q6_K,
    TENSOR_OTHER /* a type of the format that the runtime cannot compute with */
} tensor_type;
#define TENSOR_MAX_RANK     5
#define TENSOR_BLOCK_VALUES 256 /* the most values that one block has */

/* A tensor in a file. Texts and bytes are borrowed from the reader of the file. Where plus and
 * times are not 0, values are (what is stored + plus) * times. */
typedef struct tensor_view {
    const char *name;   /* as Hugging Face's modules: "model.layers.0.self_attn.q_proj.weight" */
    const char *stored; /* the name in the file; in safetensors it equals `name` */
    const char *file;   /* its path, for messages */
    tensor_type type;
    const char *dtype; /* as the file spells it: "BF16", "I64", "Q4_1" */
    int32_t rank;
    int64_t dims[TENSOR_MAX_RANK]; /* row-major: the last dimension is contiguous */
    /* For a rotary projection, the order of rows within each head. 0: half-split, (i, i + D/2),
     * which is what the runtime uses. D, the rows of a head: pairwise, (2i, 2i + 1), as GGUF files
     * of the llama architecture store them. */
    int32_t pairwise;
    /* For a partial rotary embedding. Among rows 0 ... partial.rows - 1, each head of `head` rows
     * has first the rows that are rotated, in pairs (i, i + rotated/2), and then the others (Phi3's
     * apply_rotary_pos_emb). The runtime puts rotated pair i in rows (i, i + D/2), and treats the
     * others as more such pairs, whose angle is 0. */
    struct partial_rows {
        int64_t rows; /* 0: the file's order is the runtime's */
        int32_t head, rotated;
    } partial;
    float plus, times;
    const uint8_t *data; /* not necessarily aligned to the type */
    uint64_t bytes;
} tensor_view;

/* The type with this name, which safetensors and GGUF spell alike; TENSOR_OTHER for any other
 * name. */
tensor_type tensor_type_named(const char *name);
/* How many values and bytes one block of a type has: {1, 4} for F32, {32, 18} for Q4_0 ...;
 * TENSOR_OTHER has none. See block_q4_0 and the like in ggml-common.h. */
typedef struct tensor_block {
    uint32_t values, bytes;
} tensor_block;
tensor_block tensor_block_of(tensor_type type);
/* Writes dimensions as "[64,65]" to text, which it returns. rank <= TENSOR_MAX_RANK. */
#define TENSOR_DIMS_TEXT 96
const char *tensor_dims(const int64_t *dims, int32_t rank, char text[TENSOR_DIMS_TEXT]);
/* Whether rows lie in the runtime's order and values are used as they are stored. */
bool tensor_as_stored(const tensor_view *t);
/* Decodes n values from value `first` on to float32, in the file's order. first and n are multiples
 * of the type's block. See dequantize_row_* in ggml-quants.c. */
void tensor_decode(const tensor_view *t, int64_t first, int64_t n, float *out);
/* Writes rows row ... row + n - 1 of a matrix, or so many values of a vector, to out. They come in
 * the runtime's order (this undoes LlamaModel.permute of llama.cpp's convert_hf_to_gguf.py, or what
 * `partial` says) and with plus and times applied. A row consists of whole blocks; for a vector,
 * row and n are multiples of the type's block. */
void tensor_read_rows(const tensor_view *t, int64_t row, int64_t n, float *out);

/* ---- the model ---- */

/* Tensors have the names of Hugging Face's modules: InternLM2's own in that family, those of Llama
 * and Qwen2 in all others. Every rule of the file's format is checked before a reader returns a
 * spec. Whether the tensors fit the shape is checked when the model is opened (model_tensors.c). */
typedef struct model_spec {
    char *path; /* path of the folder or file, for messages */
    char *name; /* the path's last component, without .gguf */
    model_shape shape;
    /* tokenizer_words of its tokenizer, set by whoever opened the tokenizer; 0: not known. */
    uint64_t words;
    /* first line of the fingerprint, which names its scheme (formats.md) */
    const char *fingerprint_kind;
    /* [n_tensors] The names are owned; stored names and file names belong to `source`. They are in
     * no order, and cannot be found by name, until model_spec_order. */
    tensor_view *tensors;
    size_t n_tensors, cap_tensors;
    const tensor_view **by_name; /* [n_tensors] in byte order of names */
    /* What the views point into; it is released with the spec. */
    void *source;
    void (*release)(void *source);
} model_spec;

model_spec *model_spec_create(const char *path); /* without tensors */
/* frees the spec and all it owns; does nothing with NULL */
void model_spec_free(model_spec *spec);
/* Adds the tensor t under this name, which is copied. Where t->stored is NULL, the name is the
 * stored one too. */
void model_spec_add(model_spec *spec, const char *name, const tensor_view *t);
/* A reader's last step: sorts the tensors by the bytes of their stored names. CKVC_E_DATA where a
 * name occurs twice. */
ckvc_status model_spec_order(model_spec *spec, ckvc_err *err) CKVC_MUST_CHECK;
const tensor_view *model_spec_find(const model_spec *spec,
                                   const char *name); /* NULL: it is not there */

CKVC_AUTO_OF(model_spec, model_spec_free)
