/* Inside of the CUDA backend: its state, and what its files share. Nothing outside lib/backend/cuda
 * includes this.
 *
 * Everything is enqueued on one stream and nothing waits but what hands numbers to the host.
 * Activations and caches are float32; weights lie in device memory in the type that is multiplied,
 * bf16 or float32.
 *
 * Why results are the same bytes from run to run, and a row's whatever lies beside it: products
 * take one explicit algorithm a shape of weights, whose tiles and order of sums do not follow from
 * the number of rows (two of them: calls of fewer than BE_ROW_TILE rows, which are steps of
 * decoding, have their own, always run on a whole tile); kernels of ours give a row to threads by
 * its own place alone and sum in fixed trees; no float is added to atomically.
 */
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "lib/backend/backend.h"
#include "lib/backend/cuda/cuda_kernels.h"

struct be_buf {
    float *data; /* device, [n], 256-byte aligned unless it is a view */
    size_t n;
    float *own; /* what buf_free gives back: [own_n], NULL for a view */
    size_t own_n;
};

/* Device memory of a weight's size, which the layers of a model take turns in. */
typedef struct cuda_slot {
    void *data;
    size_t bytes;
    cudaEvent_t filled; /* the copy into it has arrived */
    cudaEvent_t unused; /* what reads it has run */
} cuda_slot;

struct be_weight {
    be_matrix m;
    bool bf16;      /* a matrix of a backend that multiplies in bf16; a vector is float32 */
    int64_t stride; /* values a row: cols, and for bf16 whole 16 bytes, zeros behind cols */
    cuda_slot *at;  /* [rows][stride], or NULL: not acquired yet, or dropped */
};

/* Memory that only grows, so that after the largest prompt nothing allocates. */
typedef struct cuda_memory {
    void *data;
    size_t bytes;
} cuda_memory;

typedef struct cuda_product cuda_product; /* cuda_matmul.c: a shape's algorithm */
typedef struct cuda_staging cuda_staging; /* cuda_weights.c: from the file into device memory */

/* cos and sin of position * inv_freq, device, [n_positions][half]. */
typedef struct cuda_angle_table {
    int32_t half;
    int64_t n_positions;
    double *inv_freq;   /* host, [half] that the table was made from */
    cuda_memory angles; /* inv_freq, cos, sin */
    float *cos, *sin;
} cuda_angle_table;

typedef struct cuda_backend {
    backend base;
    cudaStream_t stream;
    cublasLtHandle_t lt;
    cuda_memory workspace; /* cublasLt's */
    cuda_product *products;
    size_t n_products, cap_products;
    cuda_memory scratch;  /* of the operation that is being enqueued */
    cuda_memory half;     /* bf16 values of activations, for products ... */
    const float *half_of; /* ... and whose they are: half_n values from there; NULL: nobody's */
    size_t half_n;
    int64_t half_cols;
    cuda_memory upload; /* pinned host memory, a ring: arguments on their way ... */
    size_t upload_at;
    cuda_angle_table rope;
    cuda_staging *staging;
    size_t bytes_max; /* weights and buffers; 0: no limit */
    size_t bytes_now;
    ckvc_err failure; /* first failure of a call that returns nothing; handed out by sync */
} cuda_backend;

static inline cuda_backend *cuda_of(backend *be) { return (cuda_backend *)be; }

/* ---- cuda_backend.c, for everybody ---- */

/* Records a failure of CUDA's, or of a launch before it (cuda_check), unless there is one already.
 * false: there is a failure now. */
bool cuda_ok(cuda_backend *c, cudaError_t st, const char *what);
bool cuda_check(cuda_backend *c, const char *what); /* after launches */
/* Device memory of at least so many bytes for the operation that is being enqueued, 256-byte
 * aligned; the next operation's overwrites it. Within what `reserve` was told it never allocates.
 * NULL: out of device memory, recorded. */
void *cuda_scratch(cuda_backend *c, size_t bytes);
/* Copies a host argument to device memory in order with the stream; `from` is free on return. */
void cuda_upload(cuda_backend *c, void *to, const void *from, size_t bytes);
/* Waits and copies a result to the host; the first failure since the last sync. */
ckvc_status cuda_download(cuda_backend *c, void *to, const void *from, size_t bytes, ckvc_err *err);
/* A buffer that an operation is about to write: what was known of its bf16 values is forgotten.
 * Whoever writes a buffer comes by here; reading is b->data. */
static inline float *cuda_written(cuda_backend *c, be_buf *b) {
    if (c->half_of && b->data < c->half_of + c->half_n && c->half_of < b->data + b->n) {
        c->half_of = NULL;
    }
    return b->data;
}
/* The table of angles for positions 0 ... n_positions-1. false: recorded. */
bool cuda_angles(cuda_backend *c, const double *inv_freq, int32_t half, int64_t n_positions);
static inline size_t cuda_align(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* ---- operations: backend.h says what they do, and gives their types ---- */

/* clang-format off */
#define CUDA_OPERATIONS(X) \
    /* cuda_backend.c */ \
    X(destroy) X(sync) X(reserve) X(scratch_bytes) \
    X(buf_create) X(buf_free) X(buf_view) X(write) X(read) \
    /* cuda_weights.c */ \
    X(weight_create) X(weight_free) X(weight_acquire) X(weight_release) X(weight_limit) \
    X(embed) \
    /* cuda_rows.c */ \
    X(rmsnorm) X(rope) X(cache_rows) X(value_norms) X(silu_mul) X(copy_rows) \
    /* cuda_matmul.c */ \
    X(matmul) X(head_nll) X(head_logits) \
    /* cuda_attention.c */ \
    X(attention_causal) X(attention_kept) X(attention_targets) \
    X(window_mass) X(window_rows) \
    X(attention_error) \
    X(cache_keep) X(held_rows) X(attention_held)
/* clang-format on */
#define DECLARE(name) __typeof__(*((backend_ops *)NULL)->name) cuda_##name;
CUDA_OPERATIONS(DECLARE)
#undef DECLARE

/* Scratch bytes that the operations of these files take at most. */
size_t cuda_attention_scratch(const cuda_backend *c, const be_attention_shape *s,
                              const be_extent *most);
size_t cuda_head_scratch(const cuda_backend *c, const be_extent *most);
