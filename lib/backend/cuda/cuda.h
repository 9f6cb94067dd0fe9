/* Inside of the CUDA backend: its state, and what its files share. Nothing outside lib/backend/cuda
 * includes this.
 *
 * Everything is enqueued on one stream and nothing waits but what hands numbers to the host.
 * Activations and caches are float32; weights lie in device memory in the type that is multiplied,
 * bf16 or float32.
 *
 * Why results are the same bytes from run to run, and a row's whatever lies beside it: products
 * take one explicit algorithm a shape of weights, whose tiles and order of sums do not follow from
 * the number of rows (two of them: rows of buffers that hold one tile and no more, as the steps of
 * decoding do, have their own, always run on the whole tile); kernels of ours give a row to threads
 * by its own place alone and sum in fixed trees; no float is added to atomically.
 */
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "lib/backend/backend.h"
#include "lib/backend/cuda/cuda_kernels.h"

struct be_buf {
    float *data; /* device, [n], 256-byte aligned unless it is a view */
    size_t n;
    size_t buffer_size; /* values of the buffer that a view is of; else n */
    float *own;         /* what buf_free gives back: [own_n], NULL for a view */
    size_t own_n;
};

typedef struct cuda_piece cuda_piece; /* cuda_memory.c: rows on their way into device memory */

struct be_weight {
    be_matrix m;
    bool bf16;      /* a matrix of a backend that multiplies in bf16; anything else is float32 */
    int64_t stride; /* values a row: cols, and for bf16 whole 16 bytes, zeros behind cols */
    void *data;     /* device, [rows][stride]; NULL: not acquired yet, or dropped */
    cuda_piece *pieces;
    size_t n_pieces;
    int users;          /* acquired and not released */
    bool promised;      /* prefetched and not acquired yet */
    bool arriving;      /* copied into, and the operations' stream does not know yet */
    uint64_t turn;      /* when it was released last */
    cudaEvent_t unused; /* what had read it then has run */
    cudaEvent_t filled; /* the copy has arrived */
};

/* Memory that only grows, so that after the largest prompt nothing allocates. */
typedef struct cuda_memory {
    void *data;
    size_t bytes;
} cuda_memory;

typedef struct cuda_product cuda_product; /* cuda_matmul.c: a shape's algorithm */
typedef struct cuda_staging cuda_staging; /* cuda_memory.c: from the file into device memory */

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
    bool bf16; /* products in bf16 */
    cudaStream_t stream;
    cublasLtHandle_t lt;
    cuda_memory workspace; /* cublasLt's */
    cuda_product *products;
    size_t n_products, cap_products;
    cuda_memory scratch;  /* of the operation that is being enqueued */
    cuda_memory half;     /* bf16 values of activations, for products ... */
    const float *half_of; /* ... and whose they are: whole tiles of rows; NULL: nobody's */
    size_t half_n;        /* values of these rows */
    int64_t half_cols;    /* of a row */
    cuda_memory upload;   /* pinned host memory in two halves: arguments on their way */
    size_t upload_at;
    int upload_half;
    cudaEvent_t uploaded[2]; /* a half's last argument has left it */
    cuda_angle_table rope;
    cuda_staging *staging;
    be_weight **weights; /* all there are */
    size_t n_weights, cap_weights;
    uint64_t turn;
    size_t bytes_max; /* weights, buffers and scratch; 0: no limit */
    size_t bytes_now;
    ckvc_err failure; /* first failure of a call that returns nothing; handed out by sync */
} cuda_backend;

static inline cuda_backend *cuda_of(backend *be) { return (cuda_backend *)be; }

/* ---- cuda_backend.c, for everybody ---- */

/* Records a failure of CUDA's, or of a launch before it (cuda_check), unless there is one already.
 * false: there is a failure now. */
bool cuda_ok(cuda_backend *c, cudaError_t st, const char *what);
bool cuda_check(cuda_backend *c, const char *what); /* after launches */
/* Whether something has failed since the last sync: then nothing is enqueued any more. An operation
 * asks first. */
static inline bool cuda_failed(const cuda_backend *c) { return c->failure.status != CKVC_OK; }
void cuda_free(cuda_backend *c, void *data, size_t bytes);
/* Makes it at least so many bytes; what it held is lost. false: recorded. */
bool cuda_grow(cuda_backend *c, cuda_memory *m, size_t bytes, const char *what);
/* Device memory of at least so many bytes for the operation that is being enqueued, 256-byte
 * aligned; the next operation's overwrites it. Within what `reserve` was told it never allocates.
 * NULL: out of device memory, recorded. */
void *cuda_scratch(cuda_backend *c, size_t bytes);
/* Copies a host argument to device memory in order with the stream; `from` is free on return. */
void cuda_upload(cuda_backend *c, void *to, const void *from, size_t bytes);
/* The same in two steps: pinned host memory for at most CUDA_UPLOAD bytes, to be filled at once;
 * and its way to the device. NULL: recorded. */
#define CUDA_UPLOAD ((size_t)16 << 20)
void *cuda_upload_begin(cuda_backend *c, size_t bytes);
void cuda_upload_end(cuda_backend *c, void *to, const void *from, size_t bytes);
/* Waits and copies a result to the host, through the same pinned memory; the first failure since
 * the last sync. */
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
    /* cuda_memory.c */ \
    X(weight_create) X(weight_free) X(weight_acquire) X(weight_release) X(weight_limit) \
    X(weight_prefetch) X(embed) \
    /* cuda_rows.c */ \
    X(rmsnorm) X(rope) X(cache_rows) X(value_norms) X(gate_mul) X(copy_rows) \
    /* cuda_matmul.c, cuda_head.c */ \
    X(matmul) X(head_nll) X(head_distributions) X(head_logits) X(head_greedy) \
    /* cuda_attention.c */ \
    X(attention_causal) X(attention_kept) X(attention_targets) \
    X(window_mass) X(window_rows) \
    /* cuda_held.c */ \
    X(cache_keep) X(held_rows) X(attention_held) X(attention_error)
/* clang-format on */
#define DECLARE(name) __typeof__(*((backend_ops *)NULL)->name) cuda_##name;
CUDA_OPERATIONS(DECLARE)
#undef DECLARE

/* Scratch bytes that the operations of these files take at most. */
size_t cuda_attention_scratch(const cuda_backend *c, const be_attention_shape *s,
                              const be_extent *most);
size_t cuda_head_scratch(const cuda_backend *c, const be_extent *most);

/* ---- parts of the backend's life ---- */

/* Room for more shapes than a model has: a prompt's first product then allocates nothing of ours.
 */
void cuda_products_reserve(cuda_backend *c);
void cuda_products_free(cuda_backend *c);
bool cuda_staging_create(cuda_backend *c);
void cuda_staging_free(cuda_backend *c);

/* ---- attention (cuda_attention.c) ---- */

/* Whether it can be enqueued; false: a failure is recorded. */
bool cuda_attends(cuda_backend *c, const be_attention_shape *s);
/* The n positions of KV head g in a set; their first in the set's list. */
static inline uint32_t cuda_kept_of(const kept_set *kept, int64_t g, int64_t *n) {
    const int64_t set = kept->n_sets == 1 ? 0 : g;
    *n = (int64_t)kept->offsets[set + 1] - (int64_t)kept->offsets[set];
    return kept->offsets[set];
}

/* ---- products (cuda_matmul.c) ---- */

/* y [rows][stride] (+)= x [rows][cols of w] times rows first ... first + n_out - 1 of w. rows are
 * whole tiles. few: one tile, by the algorithm of buffers that hold no more. */
typedef struct cuda_call {
    const be_weight *w;
    int64_t first, n_out;
    const float *x;
    int64_t rows;
    bool few, add;
    float *y;
    int64_t stride;
} cuda_call;
bool cuda_multiply(cuda_backend *c, const cuda_call *p);
/* Whether rows of so many values lie in a buffer of one tile. */
static inline bool cuda_few(const be_buf *x, int64_t cols) {
    return x->buffer_size < (size_t)(2 * BE_ROW_TILE * cols);
}
/* Room for bf16 values of the rows that the caller's kernel writes to y, [padded rows][stride]: the
 * next product takes them from there. NULL: products are not in bf16, or recorded. */
uint16_t *cuda_half_room(cuda_backend *c, const float *y, int64_t n_rows, int64_t cols,
                         int64_t *stride);
