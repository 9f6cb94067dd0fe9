/* What a model is, as plain data: its shape and its weights by name. Readers in formats/model fill
 * it, model_open runs it. No files here: the bytes of the weights belong to the reader that mapped
 * them, who leaves with the spec what releases them. model_info.c, tensor.c and model_spec.c have
 * what follows from the data alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/memory.h"

/* ---- the shape: which network this is ---- */

/* transformers, modeling_rope_utils.py: the functions of these names */
typedef enum rope_kind { ROPE_DEFAULT, ROPE_LLAMA3, ROPE_LINEAR, ROPE_DYNAMIC } rope_kind;

/* Caps of what a model's file may say: an order of magnitude above any model there is, and small
 * enough that products of two stay far inside 63 bits. */
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
    int32_t max_positions; /* max_position_embeddings; see model_shape_context */
    double rms_eps, rope_theta;
    rope_kind rope;
    double rope_factor;                   /* llama3, linear, dynamic */
    double rope_low_freq, rope_high_freq; /* llama3 */
    int32_t rope_original_positions;      /* llama3 */
    int32_t rope_dims; /* so many of a head's values are rotated, an even number below D; 0: all */
    bool tied, qkv_bias, output_bias, mlp_bias;
    bool qk_norm; /* each head's query and key are normed before they are rotated */
    /* what attention and the MLP give is normed before it is added; the MLP's gate is a GELU, not a
     * SiLU */
    bool post_norms, gelu;
    double embed_scale;  /* embedded rows are multiplied by it; 0: they are not */
    double query_scalar; /* attention's scale is its -0.5th power; 0: D */
    double
        rope_local_theta; /* base, without scaling, of the layers that have a window; 0: the one */
    int32_t sliding_window; /* of the layers that have one; 0: no layer has */
    /* bit l: layer l sees everything in spite of sliding_window */
    uint64_t full_layers[MODEL_LAYERS_MAX / 64];
    int32_t n_stop_ids;
    int32_t stop_ids[MODEL_STOP_IDS_MAX]; /* tokens that end a text, inside the vocabulary */
} model_shape;

/* How many positions layer `layer` sees, its own among them; 0: all. Mistral's sliding_window holds
 * for every layer (MistralModel, create_sliding_window_causal_mask), Qwen2's for those that its
 * layer_types name, by default from max_window_layers on. */
int32_t model_shape_window(const model_shape *s, int32_t layer);
/* Tokens that a sequence may have: max_position_embeddings, times the factor under linear and
 * dynamic scaling, whose point is to reach beyond (transformers itself has no limit; vLLM's is this
 * one). */
int64_t model_shape_context(const model_shape *s);
/* What Gemma 3's layers have all of: post_norms, gelu, embedded rows times width^0.5
 * (Gemma3TextScaledWordEmbedding, whose factor is float32 beside weights in float32), attention's
 * scale by query_pre_attn_scalar. */
void model_shape_gemma(model_shape *s, double query_scalar);
/* A token that ends a text; ids outside the vocabulary (-1 for none, say) and those beyond the cap
 * are left out. */
void model_shape_stop(model_shape *s, int64_t id);
bool model_shape_stops(const model_shape *s, int32_t id);
/* Number of weights, a tied head once: PreTrainedModel.num_parameters. */
int64_t model_shape_parameters(const model_shape *s);
/* The shape's part of the fingerprint (formats.md): "rope=..." etc., in lines, numbers with so many
 * digits; the caller frees. */
char *model_shape_lines(const model_shape *s, int digits);
/* "default", "llama3", "linear", "dynamic": as rope_scaling.rope_type spells it. */
const char *rope_kind_name(rope_kind kind);
/* What policies choose of a prompt's cache is measured for models whose layers rotate alike.
 * CKVC_E_DATA for one with a rope_local_theta; `name` is its path or name, for the message. */
ckvc_status model_shape_evicts(const model_shape *s, const char *name,
                               ckvc_err *err) CKVC_MUST_CHECK;
/* Rotary frequencies [D/2] for a sequence of n_total tokens in all (prompt and continuation: one
 * base for both); those behind rope_dims / 2 are 0, which turns nothing. With a rope_local_theta
 * [2][D/2], those of the layers that have a window behind the others'. transformers,
 * modeling_rope_utils.py: _compute_llama3_parameters, _compute_linear_scaling_rope_parameters,
 * _compute_dynamic_ntk_parameters; InternLM2 computes the last alike (modeling_internlm2.py,
 * InternLM2DynamicNTKScalingRotaryEmbedding). */
void rope_frequencies(const model_shape *s, int64_t n_total, double *inv_freq);

/* ---- one tensor as it lies in a file, and its values in float32 ---- */

/* Quantised types hold blocks of values. */
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
    TENSOR_OTHER /* a type of the format that the runtime does not compute with */
} tensor_type;
#define TENSOR_MAX_RANK     5
#define TENSOR_BLOCK_VALUES 256 /* the most values of one block */

/* Text and bytes are borrowed from whoever read the file. Values are (what is stored + plus) *
 * times, where these are not 0. */
typedef struct tensor_view {
    const char *name;   /* in Hugging Face's modules: "model.layers.0.self_attn.q_proj.weight" */
    const char *stored; /* as the file spells it; name itself in safetensors */
    const char *file;   /* its path, for messages */
    tensor_type type;
    const char *dtype; /* as the file spells it: "BF16", "I64", "Q4_1" */
    int32_t rank;
    int64_t dims[TENSOR_MAX_RANK]; /* row-major: the last one is contiguous */
    /* Rows of a rotary projection, within each head of this many rows: 0, in half-split order (i, i
     * + D/2), as the runtime wants them; D, in the pairwise order (2i, 2i + 1) that GGUF files of
     * the llama architecture store. */
    int32_t pairwise;
    /* Of rows 0 ... partial.rows - 1 each head of `head` rows has in front what is rotated, in
     * pairs (i, i + rotated/2), the rest behind it (Phi3's apply_rotary_pos_emb). The runtime takes
     * rotated pair i as rows (i, i + D/2), and the rest as more such pairs, which it turns by 0. */
    struct partial_rows {
        int64_t rows; /* 0: the file's order is the runtime's */
        int32_t head, rotated;
    } partial;
    float plus, times;
    const uint8_t *data; /* not necessarily aligned to the type */
    uint64_t bytes;
} tensor_view;

/* The type of this name, as safetensors and GGUF alike spell it; TENSOR_OTHER for any other. */
tensor_type tensor_type_named(const char *name);
/* Values and bytes of one block of a type: {1, 4} for F32, {32, 18} for Q4_0 ...; TENSOR_OTHER has
 * none. ggml-common.h, block_q4_0 and its like. */
typedef struct tensor_block {
    uint32_t values, bytes;
} tensor_block;
tensor_block tensor_block_of(tensor_type type);
/* "[64,65]" -> text, rank <= TENSOR_MAX_RANK. */
#define TENSOR_DIMS_TEXT 96
const char *tensor_dims(const int64_t *dims, int32_t rank, char text[TENSOR_DIMS_TEXT]);
/* True when rows lie in the runtime's order and values are what is stored. */
bool tensor_as_stored(const tensor_view *t);
/* n values from value `first` on, in float32 and in the file's order; both are multiples of the
 * type's block. ggml-quants.c, dequantize_row_*. */
void tensor_decode(const tensor_view *t, int64_t first, int64_t n, float *out);
/* Rows row ... row + n - 1 of a matrix, or values of a vector, in the runtime's order (which undoes
 * LlamaModel.permute of llama.cpp's convert_hf_to_gguf.py, or what `partial` says), and with plus
 * and times -> out. A row is whole blocks; of a vector row and n are multiples of the type's block.
 */
void tensor_read_rows(const tensor_view *t, int64_t row, int64_t n, float *out);

/* ---- the model ---- */

/* Names of tensors are those of Hugging Face's modules: of InternLM2's own for that family, of
 * Llama's and Qwen2's for all others. Every rule of the file's format is checked before a spec is
 * handed out; that the tensors fit the shape is checked when it is opened (model_tensors.c). */
typedef struct model_spec {
    char *path; /* of the folder or file, for messages */
    char *name; /* its last component, without .gguf */
    model_shape shape;
    uint64_t words; /* tokenizer_words of its tokenizer, set by whoever opened that; 0: not known */
    const char *fingerprint_kind; /* first line of the fingerprint: its scheme (formats.md) */
    /* [n_tensors]; names are owned, stored names and files are the source's. Unordered, and not to
     * be found by name, until model_spec_order. */
    tensor_view *tensors;
    size_t n_tensors, cap_tensors;
    const tensor_view **by_name; /* [n_tensors] in byte order of names */
    /* What the views look into, released with the spec. */
    void *source;
    void (*release)(void *source);
} model_spec;

model_spec *model_spec_create(const char *path); /* without tensors */
void model_spec_free(model_spec *spec);          /* the spec and all it owns; NULL is fine */
/* One tensor more: t under this name, which is copied; stored NULL: that is the stored one too. */
void model_spec_add(model_spec *spec, const char *name, const tensor_view *t);
/* The last step of a reader: byte order of stored names; a name that is there twice is refused. */
ckvc_status model_spec_order(model_spec *spec, ckvc_err *err) CKVC_MUST_CHECK;
const tensor_view *model_spec_find(const model_spec *spec, const char *name); /* NULL: not there */

CKVC_AUTO_OF(model_spec, model_spec_free)
