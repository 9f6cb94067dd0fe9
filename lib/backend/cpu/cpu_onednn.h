/* Matrix products of oneDNN (Debian: libdnnl), loaded when they are asked for: a build without its
 * headers, or a machine without the library, runs on without it.
 *
 * A shape is a product [rows][k] x [n][k]^T -> [rows][n] of one element type with float32
 * accumulation, together with the buffers that every worker needs for it. Weights are packed once
 * into the layout that oneDNN prefers. Every call runs on the calling thread alone; calls of
 * different workers may overlap. Shapes and handles belong to the library object and must go before
 * it.
 */
#ifndef CKVC_CPU_ONEDNN_H
#define CKVC_CPU_ONEDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

typedef struct onednn onednn;
typedef struct onednn_shape onednn_shape;

typedef struct onednn_api {
    /* NULL when there is no oneDNN to use; *why then says what is missing (static text). */
    onednn *(*open)(int n_workers, const char **why);
    void (*close)(onednn *d);
    bool (*has_bf16)(
        const onednn *d); /* this CPU multiplies bfloat16 (AVX512_BF16 or AMX) and oneDNN uses it */
    const char *(*name)(const onednn *d); /* "oneDNN-2.6.3-amx": what results depend on */

    /* bf16: elements of x and of the weights are bfloat16, else float32. CKVC_E_DEVICE with
     * oneDNN's status when it has no such product. */
    ckvc_status (*shape_create)(onednn *d, bool bf16, int64_t rows, int64_t n, int64_t k,
                                onednn_shape **out, ckvc_err *err);
    void (*shape_free)(onednn_shape *s);
    size_t (*packed_bytes)(const onednn_shape *s);
    size_t (*buffer_bytes)(const onednn_shape *s); /* of all workers' buffers */
    /* A worker's buffers, to be filled or read by it: x [rows][k] and w [n][k] elements, y
     * [rows][n] float32. */
    void *(*x)(const onednn_shape *s, int worker);
    void *(*w)(const onednn_shape *s, int worker);
    const float *(*y)(const onednn_shape *s, int worker);
    /* Packs the worker's w into `packed` (64-byte aligned, packed_bytes; borrowed until unpack).
     * NULL: it failed. */
    void *(*pack)(const onednn_shape *s, int worker, void *packed);
    void (*unpack)(onednn *d, void *handle); /* NULL is allowed */
    /* y = x W^T with packed weights; false when it failed. */
    bool (*run)(const onednn_shape *s, int worker, void *handle);
} onednn_api;

/* NULL: this ckvc was built without oneDNN's headers. */
const onednn_api *onednn_get(void);

#endif
