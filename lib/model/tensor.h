/* One tensor of a model's weights as it lies in a file, and its values in float32. */
#ifndef CKVC_TENSOR_H
#define CKVC_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
#define TENSOR_MAX_RANK     4
#define TENSOR_BLOCK_VALUES 256 /* the most values of one block */

/* Text and bytes are borrowed from whoever read the file. */
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
int64_t tensor_n_values(const tensor_view *t);
/* "[64,65]" -> text, rank <= TENSOR_MAX_RANK. */
#define TENSOR_DIMS_TEXT 96
const char *tensor_dims(const int64_t *dims, int32_t rank, char text[TENSOR_DIMS_TEXT]);
/* True when the bytes can be used as they lie: F32, F16 or BF16, rows in the runtime's order. */
bool tensor_is_plain(const tensor_view *t);
/* n values from value `first` on, in float32 and in the file's order; both are multiples of the
 * type's block. ggml-quants.c, dequantize_row_*. */
void tensor_decode(const tensor_view *t, int64_t first, int64_t n, float *out);
/* Puts all of a tensor's decoded values, in place, from the file's row order into the runtime's:
 * undoes LlamaModel.permute of llama.cpp's convert_hf_to_gguf.py. */
void tensor_order_rows(const tensor_view *t, float *values);

#endif
