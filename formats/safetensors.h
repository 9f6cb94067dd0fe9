/* Weights of a model directory: model.safetensors, or several files through model.safetensors.index.json. Memory-mapped;
 * every rule of the format is checked before a tensor can be asked for (header <= 100 MB, no duplicate keys, contiguous
 * spans from 0 to the end of the file, shape x type = span, plain file names in the index). */
#ifndef CKVC_SAFETENSORS_H
#define CKVC_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

typedef enum tensor_type { TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_OTHER } tensor_type;
#define TENSOR_MAX_RANK 4

typedef struct tensor_view {
    const char *name, *file; /* borrowed from the weights; file is its path for messages */
    tensor_type type;        /* TENSOR_OTHER: a type of the format that the runtime does not compute with */
    const char *dtype;       /* as the header spells it: "BF16", "I64" */
    int32_t rank;
    int64_t dims[TENSOR_MAX_RANK];
    const uint8_t *data; /* borrowed, not necessarily aligned to the type; valid until weights_close */
    uint64_t bytes;
} tensor_view;

typedef struct weights weights;
ckvc_status weights_open(const char *dir, weights **out, ckvc_err *err) CKVC_MUST_CHECK;
void weights_close(weights *w);
size_t weights_count(const weights *w);
const tensor_view *weights_at(const weights *w, size_t i);           /* in byte order of names */
const tensor_view *weights_find(const weights *w, const char *name); /* NULL: not there */

#endif
