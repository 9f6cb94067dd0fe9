/* config.json of a Hugging Face model directory -> the shape that the runtime runs.
 *
 * Families (model_type): llama, mistral, qwen2 as transformers' configuration_*.py and
 * modeling_*.py of these names have them, and internlm2 as the configuration_internlm2.py and
 * modeling_internlm2.py that its directories carry (transformers has no class for it).
 */
#ifndef CKVC_MODEL_CONFIG_H
#define CKVC_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/status.h"

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

typedef struct model_shape {
    char family[16]; /* model_type: llama, mistral, qwen2, internlm2 */
    int32_t n_layers, n_heads, n_kv_heads, head_dim; /* L, H, G, D */
    int32_t width, intermediate, vocab;              /* M, MLP, V */
    int32_t
        max_positions; /* max_position_embeddings; the longest sequence is model_shape_context() */
    double rms_eps, rope_theta;
    rope_kind rope;
    double rope_factor;                   /* llama3, linear, dynamic */
    double rope_low_freq, rope_high_freq; /* llama3 */
    int32_t rope_original_positions;      /* llama3 */
    bool tied, qkv_bias, output_bias, mlp_bias;
    int32_t sliding_window; /* of the layers that have one; 0: no layer has */
    uint64_t full_layers[MODEL_LAYERS_MAX /
                         64]; /* bit l: layer l sees everything in spite of sliding_window */
    int32_t bos_id;           /* -1: none */
    int32_t eos_ids[8];
    int32_t n_eos;
} model_shape;

/* Reads dir/config.json, old or new style keys (rope_theta and rope_scaling, or rope_parameters;
 * torch_dtype or dtype), or the metadata when dir is a GGUF file. Defaults of missing keys are the
 * config classes' own (configuration_*.py). What we do not run is refused by name. Every field is
 * within stated caps. */
ckvc_status model_config_read(const char *dir, model_shape *out, ckvc_err *err) CKVC_MUST_CHECK;
/* How many positions layer `layer` sees, its own among them; 0: all. Mistral's sliding_window holds
 * for every layer (MistralModel, create_sliding_window_causal_mask), Qwen2's for those that its
 * layer_types name, by default from max_window_layers on. */
int32_t model_shape_window(const model_shape *s, int32_t layer);
/* Tokens that a sequence may have: max_position_embeddings, times the factor under linear and
 * dynamic scaling, whose point is to reach beyond (transformers itself has no limit; vLLM's is this
 * one). */
int64_t model_shape_context(const model_shape *s);
/* "default", "llama3", "linear", "dynamic": as rope_scaling.rope_type spells it. */
const char *rope_kind_name(rope_kind kind);
/* "rope=..." etc: the resolved shape fields of the fingerprint (formats.md), LF-ended lines; the
 * caller frees. */
char *model_shape_lines(const model_shape *s);
int64_t model_shape_parameters(
    const model_shape *s); /* number of weights, a tied head once: PreTrainedModel.num_parameters */

#endif
