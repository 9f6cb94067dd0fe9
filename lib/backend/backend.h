/* The backend seam: whole operations on whole batches, on buffers that only the backend can look
 * into.
 *
 * A backend is a struct of function pointers (backend_ops) over its own state. The CPU backend is
 * always built and is the reference; another one (CUDA) implements the same table. Rules that every
 * implementation keeps:
 *  - Calls enqueue in order; sync waits and returns the first error since the last one. Results may
 *    be read (read) only after the calls before it, which read implies by syncing.
 *  - No host pointer points into a buffer. Small host arguments (positions, kept sets) are copied
 *    by the call.
 *  - A row of a result depends on that row's inputs alone and on fixed, padded tiles, never on the
 *    number of threads.
 *  - Nothing here knows layers, models, files or policies.
 * Activations are float32 rows, row-major, [n_rows][width]. D head dim, H query heads, G KV heads,
 * H = G * group. Several rollouts go side by side as lanes: lane i's n rows begin at row i *
 * be_padded_rows(n), so that no tile holds rows of two. A step of decoding has one row of each
 * sequence, one behind the other.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/memory.h"
#include "lib/base/names.h"
#include "lib/base/pool.h"
#include "lib/base/status.h"

/* A kept set: which prompt positions of one layer stay in the cache. n_sets is 1 (the heads of a
 * layer share the set, as in the paper) or G (policies that choose per KV head). Set s holds
 * positions[offsets[s] ... offsets[s+1]), strictly ascending. Borrowed pointers; an empty set is
 * legal. */
typedef struct kept_set {
    int32_t n_sets;
    const uint32_t *offsets;   /* [n_sets+1] */
    const uint32_t *positions; /* [offsets[n_sets]] */
} kept_set;

typedef struct backend backend;
typedef struct be_buf be_buf; /* float32 values of the backend's memory */
/* A matrix [rows = out][cols = in] or a vector [rows], in the backend's own type and layout. */
typedef struct be_weight be_weight;

/* A matrix as it lies in a file, of which a weight is all rows or some. */
typedef enum be_type { BE_F32, BE_BF16, BE_PACKED } be_type;
typedef struct be_matrix {
    const void *bytes; /* borrowed until weight_free (a memory map) */
    be_type type;
    int64_t rows, cols; /* the weight's */
    size_t row_bytes;   /* in the file */
    /* Row r is the matrix's row first + r / block * stride + r % block; block 0: row r. */
    int64_t first, block, stride;
    /* Rows row ... row + n - 1 of the matrix -> out [n][cols], from any thread. Of BE_F32 a backend
     * reads them itself. */
    void (*read)(const void *source, int64_t row, int64_t n, float *out);
    const void *source; /* read's, borrowed as `bytes` is */
} be_matrix;

static inline int64_t be_matrix_row(const be_matrix *m, int64_t r) {
    return m->block ? m->first + r / m->block * m->stride + r % m->block : r;
}

typedef struct be_attention_shape {
    int32_t n_heads, n_kv_heads, head_dim;
    int32_t window; /* sliding window: query j sees keys j-window < t <= j; 0: all t <= j */
    float scale;    /* 1/sqrt(D) */
} be_attention_shape;

/* What rows predict: p [n_rows][V] = softmax(W x), and log_p[r] = sum of p log p, nats, host. */
typedef struct be_distributions {
    be_buf *p;
    double *log_p;
} be_distributions;

/* Of rows, double, host [n_lanes][n_rows], nats. */
typedef struct be_losses {
    const int32_t *target; /* [n_rows] */
    double *nll;           /* logsumexp(W x) - (W x)[target[r]] */
    /* KL(p[r] || softmax(W x)), never below 0, or NULL: against the distributions of n_rows rows */
    double *kl;
    const be_distributions *full; /* or NULL */
} be_losses;

/* Rows at positions row0 ... row0 + n_rows - 1, the same of every lane. */
typedef struct be_rows {
    int64_t row0, n_rows, n_lanes;
} be_rows;

/* n rows of a product. Those of lanes have padding behind them, which nobody reads and a backend
 * may leave as it is: row r where (first + r) % each >= used. each 0: there is none. */
typedef struct be_product_rows {
    int64_t n, first, used, each;
} be_product_rows;

/* Keys and values of one layer, [G][capacity][D] each; those of several lanes one behind the
 * other. */
typedef struct be_cache {
    be_buf *k, *v;
    int64_t capacity;
} be_cache;

/* Continuation rows r = 0 ... n_rows-1 at positions n_prompt + r: queries and own keys and values
 * of every lane, beside the one cache of the prompt. */
typedef struct be_continuation {
    int64_t n_rows, n_prompt;
    const be_buf *q;
    be_cache prompt, own;
} be_continuation;

/* One lane's attention in attention_kept. */
typedef struct be_lane {
    int32_t from; /* whose queries, keys and values it reads: its own, or those of a lane that it is
                     about to leave */
    int32_t to;   /* whose rows of `out` are written */
    const kept_set *kept; /* NULL: all prompt positions */
} be_lane;

/* Keys and values of one sequence and layer that hold only what is kept: KV head g's lie from row
 * first[g] on, n_kept[g] of the prompt and n_own of later tokens behind them. */
typedef struct be_held {
    be_buf *k, *v;         /* [rows][D] */
    const int64_t *first;  /* [G] */
    const int64_t *n_kept; /* [G] */
    const int64_t *hidden; /* [G]: so many of the list no longer lie in the sliding window */
    int64_t n_own;
} be_held;

/* A step of decoding: row i of n is the next token of a sequence that holds held[i]. */
typedef struct be_step {
    int64_t n;
    be_buf *q;              /* [n][H*D] */
    const be_buf *k, *v;    /* [n][G*D] */
    const be_held *held;    /* [n] */
    const float *cos, *sin; /* [n][D/2], of the row's position * inv_freq; host */
} be_step;

/* The last `window` of n prompt rows; q's first row is position row0, which begins a tile at or
 * before them. */
typedef struct be_window {
    int64_t n, window, row0;
} be_window;

/* Which continuation rows attention_targets counts, first_row ... n_rows-1, and how. */
typedef struct be_target_rows {
    int64_t first_row;
    bool largest; /* false: summed */
} be_target_rows;

/* What attention_error compares: lane `full` has run on the whole prompt cache, lane `other` on
 * `kept` (NULL: all of it). They may be the same. */
typedef struct be_compared {
    int32_t full, other;
    const kept_set *kept;
} be_compared;

/* Greedy decoding of one row: the first of the largest logits, and -log softmax of it, nats. */
typedef struct be_greedy {
    double nll;
    int32_t id;
} be_greedy;

/* How far one attention row moves when prompt positions are left out of the cache (the paper's
 * Proposition; paper.md section 10). p is the row over all that it sees. */
typedef struct be_row_error {
    double mass;       /* of p on the prompt positions that are left out */
    double restricted; /* ||p - p'||_2^2, p' a softmax of the same scores over what is kept */
    double actual;     /* ||p - p"||_2^2, p" the same row of a rollout that has run on kept
                          positions: its own queries and keys */
} be_row_error;

/* The largest calls to come. */
typedef struct be_extent {
    int64_t n_prompt, n_rows, n_lanes; /* prompt rows; rows of a continuation; lanes */
    bool targets;                      /* attention_targets of such a continuation */
    size_t product_values;             /* the most values that go into one product */
    int64_t vocab;
} be_extent;

typedef struct backend_ops {
    const char *name; /* "cpu", "cuda" */
    void (*destroy)(backend *be);
    ckvc_status (*sync)(backend *be, ckvc_err *err);
    /* Takes the scratch memory that operations within `most` need, so that none of them allocates.
     * inv_freq [D/2] as in rope. */
    void (*reserve)(backend *be, const be_attention_shape *s, const double *inv_freq,
                    const be_extent *most);
    /* Bytes that reserve takes. */
    size_t (*scratch_bytes)(const backend *be, const be_attention_shape *s, const be_extent *most);

    /* Buffers: n float32 values, zeroed. read/write are n values from offset. Where a device's
     * memory does not suffice, the next sync says so. Rows in a buffer of BE_ROW_TILE rows are
     * those of steps of decoding: a product may have a kernel of its own for them, with other last
     * bits than for the rows of larger ones. */
    be_buf *(*buf_create)(backend *be, size_t n);
    void (*buf_free)(backend *be, be_buf *b);
    /* Points `view`, a buffer created with n = 0, at n values of another buffer from offset on,
     * until it is pointed elsewhere. */
    void (*buf_view)(backend *be, be_buf *view, const be_buf *of, size_t offset, size_t n);
    void (*write)(backend *be, be_buf *dst, size_t offset, const float *src, size_t n);
    ckvc_status (*read)(backend *be, const be_buf *src, size_t offset, float *dst, size_t n,
                        ckvc_err *err);

    /* Weights: a backend may use the bytes in place or hold its own copy. acquire makes the weight
     * ready for use, release says that it may be dropped again: what was acquired is there until
     * then. Copies beyond the limit of weight_limit are dropped on release and made again by the
     * next acquire. */
    ckvc_status (*weight_create)(backend *be, const be_matrix *m, be_weight **out, ckvc_err *err);
    void (*weight_free)(backend *be, be_weight *w);
    ckvc_status (*weight_acquire)(backend *be, be_weight *w, ckvc_err *err);
    void (*weight_release)(backend *be, be_weight *w);
    /* w is acquired soon: a backend may begin now what takes time of it, beside the operations that
     * are under way. A hint that fails in silence; never acquires by itself. */
    void (*weight_prefetch)(backend *be, const be_weight *w);
    /* Copies of weights that are kept together with the buffers: at most `bytes`, as far as what is
     * in use at one time allows. */
    void (*weight_limit)(backend *be, size_t bytes);

    /* x[r] = table[tokens[r]]; the one operation that takes a weight as it lies, acquired or not */
    void (*embed)(backend *be, const be_weight *table, const int32_t *tokens, int64_t n_rows,
                  be_buf *x);
    /* y[r] (+)= x[r] / sqrt(mean(x[r]^2) + eps) * w; add as in matmul. y may be x. */
    void (*rmsnorm)(backend *be, const be_buf *x, int64_t n_rows, const be_weight *w, float eps,
                    bool add, be_buf *y);
    /* y[r] (+)= W x[r] + bias. bias may be NULL; add: the result is added to y (the residual). */
    void (*matmul)(backend *be, const be_weight *w, const be_weight *bias, const be_buf *x,
                   const be_product_rows *rows, bool add, be_buf *y);
    /* Rotates rows [n_rows][H*D] of every lane in place. Half-split pairing (i, i + D/2) as in
     * Hugging Face. inv_freq [D/2] in double, host. */
    void (*rope)(backend *be, const be_attention_shape *s, const double *inv_freq,
                 const be_rows *rows, be_buf *q);
    /* Writes k (rotated as above) and v, rows [n_rows][G*D] of every lane, to slots 0 ... n_rows-1
     * of the lane's own cache. */
    void (*cache_rows)(backend *be, const be_attention_shape *s, const double *inv_freq,
                       const be_rows *rows, const be_buf *k, const be_buf *v,
                       const be_cache *cache);
    /* Causal attention of rows at positions row0 ... row0 + n_rows - 1 over the cache; row0 begins
     * a tile; q, out [n_rows][H*D]. */
    void (*attention_causal)(backend *be, const be_attention_shape *s, int64_t row0, int64_t n_rows,
                             const be_buf *q, const be_cache *cache, be_buf *out);
    /* Attention of continuation rows over a lane's kept prompt positions and its own rows 0 ... r.
     * Entries whose kept sets are the same pointer share one gathered copy of these keys and values
     * when they follow each other. */
    void (*attention_kept)(backend *be, const be_attention_shape *s, const be_continuation *c,
                           const be_lane *lanes, int64_t n_lanes, be_buf *out);
    /* Copies the kept positions of a prompt of n (kept NULL: all n) from its cache -> to, whose
     * n_kept say how many they are. */
    void (*cache_keep)(backend *be, const be_attention_shape *s, const be_cache *prompt, int64_t n,
                       const kept_set *kept, const be_held *to);
    /* Rotates q in place, writes k (rotated) and v to the last of held[i]'s n_own rows. */
    void (*held_rows)(backend *be, const be_attention_shape *s, const be_step *rows);
    /* Attention of row i of q over all that held[i] holds and its window shows; out [n][H*D]. With
     * kernels of ours the bits are attention_kept's. */
    void (*attention_held)(backend *be, const be_attention_shape *s, const be_step *rows,
                           be_buf *out);
    /* Attention mass of a window: mass[g][t] = sum over its rows j and the query heads of group g
     * of A[h][j][t], double, host [G][n]. Never materialises more than a tile of rows x keys. */
    ckvc_status (*window_mass)(backend *be, const be_attention_shape *s, const be_window *w,
                               const be_buf *q, const be_cache *cache, double *mass, ckvc_err *err);
    /* The window's rows themselves: rows[h][i][t] = A[h][n - window + i][t], 0 for the t that the
     * row does not see, host [H][window][n]. */
    ckvc_status (*window_rows)(backend *be, const be_attention_shape *s, const be_window *w,
                               const be_buf *q, const be_cache *cache, float *rows, ckvc_err *err);
    /* attention_kept of lane 0 on the whole prompt cache, and what its rows give to the prompt's
     * positions: targets[g][t] = the sum, or the largest, over the rows and the query heads of
     * group g of A[h][r][t], double, host [G][n_prompt]. A row's softmax is over all keys that it
     * sees, its own lane's among them. Never holds more than a tile of rows x keys. */
    ckvc_status (*attention_targets)(backend *be, const be_attention_shape *s,
                                     const be_continuation *c, const be_target_rows *rows,
                                     be_buf *out, double *targets, ckvc_err *err);
    /* Rows r = 0 ... n_rows-1 of query head h -> out [H][n_rows], host. A measurement: it takes
     * scratch of its own on first use. */
    ckvc_status (*attention_error)(backend *be, const be_attention_shape *s,
                                   const be_continuation *c, const be_compared *lanes,
                                   be_row_error *out, ckvc_err *err);
    /* norm[g][t] = ||V[g][t]||_2 of cache slots 0 ... n-1, double, host [G][n]. */
    ckvc_status (*value_norms)(backend *be, const be_attention_shape *s, int64_t n,
                               const be_cache *cache, double *norm, ckvc_err *err);
    /* y[r] = silu(gate[r]) * up[r], or gelu(g) = g/2 (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))) in
     * silu's place; width values a row. y may be gate. */
    void (*gate_mul)(backend *be, bool gelu, const be_buf *gate, const be_buf *up, int64_t n_rows,
                     int64_t width, be_buf *y);
    /* Losses of row row0 + r of lane i; a lane is row0 + n_rows rows here, and all have the same
     * targets. Logits are tiled over the vocabulary, never stored whole. */
    ckvc_status (*head_nll)(backend *be, const be_weight *w, const be_buf *x, const be_rows *rows,
                            const be_losses *out, ckvc_err *err);
    /* Of rows row0 ... row0 + n - 1. */
    ckvc_status (*head_distributions)(backend *be, const be_weight *w, const be_buf *x,
                                      int64_t row0, int64_t n, const be_distributions *out,
                                      ckvc_err *err);
    /* Logits of rows row0 ... row0 + n - 1, host [n][V]. */
    ckvc_status (*head_logits)(backend *be, const be_weight *w, const be_buf *x, int64_t row0,
                               int64_t n, float *logits, ckvc_err *err);
    /* The likeliest entries of the same rows, host [n]. */
    ckvc_status (*head_greedy)(backend *be, const be_weight *w, const be_buf *x, int64_t row0,
                               int64_t n, be_greedy *next, ckvc_err *err);
    /* dst rows dst_row ... = src rows src_row ... (width values each). */
    void (*copy_rows)(backend *be, const be_buf *src, int64_t src_row, be_buf *dst, int64_t dst_row,
                      int64_t n_rows, int64_t width);
} backend_ops;

struct backend {
    const backend_ops *ops;
    ckvc_pool *pool; /* borrowed; for work beside it too, never while an operation runs */
    ckvc_compute compute;
    /* Bytes a value of a matrix as it is multiplied: 4, or 2 for bf16. in_place: one that lies so
     * in its file is used there; else every one gets a copy. */
    size_t value_bytes;
    bool in_place;
    /* Copies of all of a model's weights take about as long as the products of so many rows; for
     * plans alone. */
    int64_t copy_rows;
    /* Rows of a product with weights below which part of the device is idle; 0: there are none. */
    int64_t fill_rows;
    /* Of a device of its own that buffers and copies of weights may fill; 0: they lie in the host's
     * memory. */
    size_t memory_bytes;
    /* "cpu/AVX2", "cpu/OpenBLAS-Zen", "cuda/NVIDIA H200 sm_90 ...": the kind and kernel that
     * results depend on; recorded in journals. */
    char kernel[160];
    /* What a person should know, "" none: a faster or a more trusted kernel is left out; bf16 is
     * emulated. */
    char warning[768], compute_warning[320];
};

/* Row counts of activation buffers and capacities of caches are rounded up to this by whoever sizes
 * them, so that matrix products run on whole tiles. */
#define BE_ROW_TILE 64
static inline int64_t be_padded_rows(int64_t n) {
    return (n + BE_ROW_TILE - 1) / BE_ROW_TILE * BE_ROW_TILE;
}

/* kind: "cpu"; "openblas" (the CPU with OpenBLAS's products, which "cpu" takes alone where it has
 * no kernels of its own); "cuda" (a GPU; asked for and absent is CKVC_E_DEVICE, which names what is
 * missing, never a silent fallback); "auto": cuda where it is built in and a device answers, else
 * cpu. The pool is borrowed and must outlive the backend. Pins the BLAS to one thread; parallel
 * work is cut over the pool. Kernels are checked before they are trusted (cpu/cpu_selfcheck.h): one
 * that fails and was not asked for by name gives way to the next, with a warning. */
ckvc_status backend_create(const char *kind, ckvc_compute compute, ckvc_pool *pool, backend **out,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* What is built in, "cpu, openblas"; and of "cuda" the device, or what is missing. */
const char *backend_kinds(void);
void backend_cuda_text(char *text, size_t n);
static inline void backend_destroy(backend *be) {
    if (be) { be->ops->destroy(be); }
}
CKVC_AUTO_OF(backend, backend_destroy)
