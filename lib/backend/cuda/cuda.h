/* Private to lib/backend/cuda: the state of the CUDA backend, and what its files share.
 *
 * Everything is enqueued on one stream, and only a call that returns numbers to the host waits.
 * Activations and caches are float32; weights lie in device memory in the type that is multiplied,
 * bf16 or float32.
 *
 * Results have the same bytes from run to run, and a row's do not depend on the rows beside it. For
 * this, products use one explicit algorithm for each shape of weights, whose tiles and order of
 * sums do not depend on the number of rows. (There are two of them: rows of buffers that hold a
 * single tile, as steps of decoding do, have their own algorithm, which always runs on the whole
 * tile.) Our own kernels assign a row to threads by its own place alone and sum in fixed trees, and
 * no float is added to atomically. */
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "lib/backend/backend.h"
#include "lib/backend/cuda/cuda_kernels.h"

struct be_buf {
    float *data; /* on the device, [n], 256-byte aligned unless it is a view */
    size_t n;
    size_t buffer_size; /* values of the buffer that a view belongs to; else n */
    float *own;         /* what buf_free releases: [own_n], NULL for a view */
    size_t own_n;
};

typedef struct cuda_piece cuda_piece; /* rows on their way into device memory (cuda_memory.c) */

struct be_weight {
    be_matrix m;
    bool bf16; /* a matrix of a backend that multiplies in bf16; everything else is float32 */
    /* Values of a row: cols, and for bf16 so many that a row has whole 16 bytes, with zeros after
     * cols. */
    int64_t stride;
    void *data; /* on the device, [rows][stride]; NULL: not acquired yet, or dropped */
    cuda_piece *pieces;
    size_t n_pieces;
    int users;     /* how often it is acquired and not yet released */
    bool promised; /* prefetched and not yet acquired */
    /* A copy into it is under way, and the operations' stream does not wait for it yet. */
    bool arriving;
    uint64_t turn;      /* when it was last released */
    cudaEvent_t unused; /* has run when the operations that read it until then have */
    cudaEvent_t filled; /* has run when the copy has arrived */
};

/* Memory that only grows, so that nothing allocates after the largest prompt. */
typedef struct cuda_memory {
    void *data;
    size_t bytes;
} cuda_memory;

typedef struct cuda_product cuda_product; /* the algorithm for a shape (cuda_matmul.c) */
/* the way from the file into device memory (cuda_memory.c) */
typedef struct cuda_staging cuda_staging;

/* cos and sin of position * inv_freq, on the device, [n_positions][half]. */
typedef struct cuda_angle_table {
    int32_t half;
    int64_t n_positions;
    double *inv_freq;   /* on the host, [half] that the table was made from */
    cuda_memory angles; /* inv_freq, cos, sin */
    float *cos, *sin;
} cuda_angle_table;

typedef struct cuda_backend {
    backend base;
    bool bf16; /* products are computed in bf16 */
    cudaStream_t stream;
    cublasLtHandle_t lt;
    cuda_memory workspace; /* the workspace of cublasLt */
    cuda_product *products;
    size_t n_products, cap_products;
    cuda_memory scratch;  /* for the operation that is being enqueued */
    cuda_memory half;     /* bf16 values of activations, for products ... */
    const float *half_of; /* ... and the rows that they belong to: whole tiles; NULL: none */
    size_t half_n;        /* number of these values */
    int64_t half_cols;    /* of a row */
    cuda_memory upload;   /* pinned host memory in two halves, for arguments on their way */
    size_t upload_at;
    int upload_half;
    cudaEvent_t uploaded[2]; /* has run when the last argument has left a half */
    cuda_angle_table rope;
    cuda_staging *staging;
    be_weight **weights; /* all weights */
    size_t n_weights, cap_weights;
    uint64_t turn;
    size_t bytes_max; /* limit of the bytes of weights, buffers and scratch; 0: none */
    size_t bytes_now;
    /* The first failure of a call that returns nothing, which sync returns. */
    ckvc_err failure;
} cuda_backend;

static inline cuda_backend *cuda_of(backend *be) { return (cuda_backend *)be; }

/* ---- cuda_backend.c, used by all files ---- */

/* Records a failure of CUDA, or of a launch before it (cuda_check), unless one is recorded already.
 * Returns false where there is a failure. */
bool cuda_ok(cuda_backend *c, cudaError_t st, const char *what);
bool cuda_check(cuda_backend *c, const char *what); /* after launches */
/* Whether something has failed since the last sync. Nothing is enqueued then; every operation asks
 * first. */
static inline bool cuda_failed(const cuda_backend *c) { return c->failure.status != CKVC_OK; }
void cuda_free(cuda_backend *c, void *data, size_t bytes);
/* Makes m at least so many bytes; its old contents are lost. Returns false where this fails, which
 * is recorded. */
bool cuda_grow(cuda_backend *c, cuda_memory *m, size_t bytes, const char *what);
/* Device memory of at least so many bytes for the operation that is being enqueued, 256-byte
 * aligned. The next operation overwrites it. It allocates nothing for sizes within what `reserve`
 * was told. Returns NULL, and records it, when device memory is out. */
void *cuda_scratch(cuda_backend *c, size_t bytes);
/* Copies a host argument to device memory in the order of the stream; `from` may be freed on
 * return. */
void cuda_upload(cuda_backend *c, void *to, const void *from, size_t bytes);
/* The same in two steps. cuda_upload_begin returns pinned host memory for at most CUDA_UPLOAD
 * bytes, which must be filled at once; cuda_upload_end sends it to the device. NULL: it failed,
 * which is recorded. */
#define CUDA_UPLOAD ((size_t)16 << 20)
void *cuda_upload_begin(cuda_backend *c, size_t bytes);
void cuda_upload_end(cuda_backend *c, void *to, const void *from, size_t bytes);
/* Waits, and copies a result to the host through the same pinned memory. Returns the first failure
 * since the last sync. */
ckvc_status cuda_download(cuda_backend *c, void *to, const void *from, size_t bytes, ckvc_err *err);
/* Must be called for a buffer that an operation is about to write: what was known of its bf16
 * values is forgotten. Reading needs no call: it uses b->data. */
static inline float *cuda_written(cuda_backend *c, be_buf *b) {
    if (c->half_of && b->data < c->half_of + c->half_n && c->half_of < b->data + b->n) {
        c->half_of = NULL;
    }
    return b->data;
}
/* Provides the table of angles for positions 0 ... n_positions-1. Returns false where this fails,
 * which is recorded. */
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

/* The most scratch bytes that the operations of these files need. */
size_t cuda_attention_scratch(const cuda_backend *c, const be_attention_shape *s,
                              const be_extent *most);
size_t cuda_head_scratch(const cuda_backend *c, const be_extent *most);

/* ---- parts of creating and destroying the backend ---- */

/* Allocates room for more shapes than a model has, so that a prompt's first product allocates
 * nothing of ours. */
void cuda_products_reserve(cuda_backend *c);
void cuda_products_free(cuda_backend *c);
bool cuda_staging_create(cuda_backend *c);
void cuda_staging_free(cuda_backend *c);

/* ---- attention (cuda_attention.c) ---- */

/* Whether attention of this shape can be enqueued. Returns false, with a failure recorded, where it
 * cannot. */
bool cuda_attends(cuda_backend *c, const be_attention_shape *s);
/* The first of the positions of KV head g in a set's list; *n receives how many they are. */
static inline uint32_t cuda_kept_of(const kept_set *kept, int64_t g, int64_t *n) {
    const int64_t set = kept->n_sets == 1 ? 0 : g;
    *n = (int64_t)kept->offsets[set + 1] - (int64_t)kept->offsets[set];
    return kept->offsets[set];
}

/* ---- products (cuda_matmul.c) ---- */

/* y [rows][stride] (+)= x [rows][cols of w] times rows first ... first + n_out - 1 of w. Rows are
 * whole tiles. few: there is one tile, which uses the algorithm of buffers that hold no more. */
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
/* Returns room for the bf16 values [padded rows][stride] of rows that the caller's kernel writes to
 * y; the next product reads them from there. Returns NULL where products are not in bf16, or where
 * this fails, which is recorded. */
uint16_t *cuda_half_buffer(cuda_backend *c, const float *y, int64_t n_rows, int64_t cols,
                           int64_t *stride);
