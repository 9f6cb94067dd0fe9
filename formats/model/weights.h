/* Weights of a model as named tensors, whatever file they lie in: a Hugging Face directory of
 * safetensors files (safetensors.c) or one GGUF file (gguf_model.c). Memory-mapped; every rule of
 * the format is checked before a tensor can be asked for. Names are those of Hugging Face's Llama
 * and Qwen2 modules ("model.layers.0.self_attn.q_proj.weight"): the runtime knows no others.
 */
#ifndef CKVC_WEIGHTS_H
#define CKVC_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

/* Quantised types hold blocks of values: weights.c knows their sizes, tensor_values.c their
 * arithmetic. */
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
#define TENSOR_MAX_RANK     4
#define TENSOR_BLOCK_VALUES 256 /* the most values of one block */

typedef struct tensor_view {
    const char *name, *file; /* borrowed from the weights; file is its path for messages */
    const char *stored;      /* the name as the file spells it; name itself in safetensors */
    tensor_type type;
    const char *dtype; /* as the file spells it: "BF16", "I64", "Q4_1" */
    int32_t rank;
    int64_t dims[TENSOR_MAX_RANK]; /* row-major: the last one is contiguous */
    /* Rows of a rotary projection, within each head of this many rows: 0, in half-split order (i, i
     * + D/2), as the runtime wants them; D, in the pairwise order (2i, 2i + 1) that GGUF files of
     * the llama architecture store. */
    int32_t pairwise;
    const uint8_t
        *data; /* borrowed, not necessarily aligned to the type; valid until weights_close */
    uint64_t bytes;
} tensor_view;

typedef struct weights weights;
/* path: a model directory (model.safetensors, or the files of model.safetensors.index.json's
 * weight_map: SAFE_WEIGHTS_NAME and SAFE_WEIGHTS_INDEX_NAME of transformers' utils), or a GGUF file
 * (gguf.h). */
ckvc_status weights_open(const char *path, weights **out, ckvc_err *err) CKVC_MUST_CHECK;
void weights_close(weights *w);
size_t weights_count(const weights *w);
const tensor_view *weights_at(const weights *w, size_t i); /* in byte order of stored names */
/* First line of the model's fingerprint: which scheme it is of (formats.md). */
const char *weights_fingerprint_kind(const weights *w);
const tensor_view *weights_find(const weights *w, const char *name); /* NULL: not there */

/* Values and bytes of one block of a type: {1, 4} for F32, {32, 18} for Q4_0 ...; TENSOR_OTHER has
 * none. ggml-common.h, block_q4_0 and its like. */
typedef struct tensor_block {
    uint32_t values, bytes;
} tensor_block;
tensor_block tensor_block_of(tensor_type type);
int64_t tensor_n_values(const tensor_view *t);
/* True when the bytes can be used as they lie: F32, F16 or BF16, rows in the runtime's order. */
bool tensor_is_plain(const tensor_view *t);
/* n values from value `first` on, in float32 and in the file's order; both are multiples of the
 * type's block. ggml-quants.c, dequantize_row_*. */
void tensor_decode(const tensor_view *t, int64_t first, int64_t n, float *out);
/* Puts all of a tensor's decoded values, in place, from the file's row order into the runtime's:
 * undoes LlamaModel.permute of llama.cpp's convert_hf_to_gguf.py. */
ckvc_status tensor_order_rows(const tensor_view *t, float *values, ckvc_err *err) CKVC_MUST_CHECK;

#endif
