/* The shape that the runtime runs, as plain data: what a reader takes from config.json or from a
 * GGUF file's metadata. It says which network this is; that the weights have these shapes is
 * checked when the model is opened. */
#ifndef CKVC_MODEL_SHAPE_H
#define CKVC_MODEL_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

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
#define MODEL_EOS_MAX          8

typedef struct model_shape {
    char family[16]; /* model_type: llama, mistral, qwen2, internlm2 */
    int32_t n_layers, n_heads, n_kv_heads, head_dim; /* L, H, G, D */
    int32_t width, intermediate, vocab;              /* M, MLP, V */
    int32_t max_positions; /* max_position_embeddings; see model_shape_context */
    double rms_eps, rope_theta;
    rope_kind rope;
    double rope_factor;                   /* llama3, linear, dynamic */
    double rope_low_freq, rope_high_freq; /* llama3 */
    int32_t rope_original_positions;      /* llama3 */
    bool tied, qkv_bias, output_bias, mlp_bias;
    int32_t sliding_window; /* of the layers that have one; 0: no layer has */
    /* bit l: layer l sees everything in spite of sliding_window */
    uint64_t full_layers[MODEL_LAYERS_MAX / 64];
    int32_t bos_id; /* -1: none */
    int32_t eos_ids[MODEL_EOS_MAX];
    int32_t n_eos;
} model_shape;

/* How many positions layer `layer` sees, its own among them; 0: all. Mistral's sliding_window holds
 * for every layer (MistralModel, create_sliding_window_causal_mask), Qwen2's for those that its
 * layer_types name, by default from max_window_layers on. */
int32_t model_shape_window(const model_shape *s, int32_t layer);
/* Tokens that a sequence may have: max_position_embeddings, times the factor under linear and
 * dynamic scaling, whose point is to reach beyond (transformers itself has no limit; vLLM's is this
 * one). */
int64_t model_shape_context(const model_shape *s);
/* Number of weights, a tied head once: PreTrainedModel.num_parameters. */
int64_t model_shape_parameters(const model_shape *s);
/* The shape's part of the fingerprint (formats.md): "rope=..." etc., LF-ended lines; the caller
 * frees. */
char *model_shape_lines(const model_shape *s);
/* "default", "llama3", "linear", "dynamic": as rope_scaling.rope_type spells it. */
const char *rope_kind_name(rope_kind kind);
/* Rotary frequencies [D/2] for a sequence of n_total tokens in all (prompt and continuation: one
 * base for both). transformers, modeling_rope_utils.py: _compute_llama3_parameters,
 * _compute_linear_scaling_rope_parameters, _compute_dynamic_ntk_parameters; InternLM2 computes the
 * last alike (modeling_internlm2.py, InternLM2DynamicNTKScalingRotaryEmbedding). */
void rope_frequencies(const model_shape *s, int64_t n_total, double *inv_freq);

#endif
