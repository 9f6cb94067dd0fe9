/* Matrix products of oneDNN (Debian: libdnnl), loaded when they are asked for: a build without its
 * headers, or a machine without the library, runs on without it.
 *
 * A shape is a product [rows][k] x [n][k]^T -> [rows][n] of one element type with float32
 * accumulation, together with the buffers that every worker needs for it. Weights are packed once
 * into the layout that oneDNN prefers. Every call runs on the calling thread alone; calls of
 * different workers may overlap. Shapes and handles belong to the library object and must go before
 * it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/memory.h"
#include "lib/base/status.h"

typedef struct onednn {
    bool bf16;     /* this CPU multiplies bfloat16 (AVX512_BF16 or AMX) and oneDNN uses it */
    char name[64]; /* "oneDNN-2.6.3-amx": what results depend on */
} onednn;

/* A worker's buffers, to be filled or read by it. */
typedef struct onednn_buffers {
    void *x, *w; /* [rows][k] and [n][k] elements */
    float *y;    /* [rows][n] */
} onednn_buffers;

typedef struct onednn_shape {
    int64_t rows, n, k;
    size_t packed_bytes, buffer_bytes; /* of packed weights; of all workers' buffers */
    onednn_buffers *worker;            /* [n_workers] */
} onednn_shape;

/* NULL when there is no oneDNN to use; *why then says what is missing (static text). */
onednn *onednn_open(int n_workers, const char **why);
void onednn_close(onednn *d);
/* bf16: elements of x and of the weights are bfloat16, else float32. CKVC_E_DEVICE with oneDNN's
 * status when it has no such product. */
ckvc_status onednn_shape_create(onednn *d, bool bf16, int64_t rows, int64_t n, int64_t k,
                                onednn_shape **out, ckvc_err *err) CKVC_MUST_CHECK;
void onednn_shape_free(onednn_shape *s);
/* Packs the worker's w into `packed` (64-byte aligned, packed_bytes; borrowed until unpack). NULL:
 * it failed. */
void *onednn_pack(const onednn_shape *s, int worker, void *packed);
void onednn_unpack(void *handle); /* NULL is allowed */
/* y = x W^T with packed weights; false when it failed. */
bool onednn_run(const onednn_shape *s, int worker, void *handle);

CKVC_AUTO_OF(onednn, onednn_close)
CKVC_AUTO_OF(onednn_shape, onednn_shape_free)
