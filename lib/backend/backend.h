/* The interface of a backend: whole operations on whole batches, on buffers that only the backend
 * can look into.
 *
 * A backend is a struct of function pointers (backend_ops) over its own state. The CPU backend is
 * always built and is the reference; others (CUDA) implement the same table. Every implementation
 * keeps these rules:
 *  - Calls are enqueued in order. sync waits for them and returns the first error since the last
 *    sync. read syncs by itself, so it returns what the calls before it have computed.
 *  - No host pointer points into a buffer. Small host arguments (positions, kept sets) are copied
 *    by the call.
 *  - A row of a result depends on that row's inputs and on fixed, padded tiles, never on the
 *    number of threads.
 *  - Nothing here knows layers, models, files or policies.
 *
 * Activations are rows of float32, row-major, [n_rows][width]. D is the head dimension, H the
 * number of query heads, G that of KV heads, and H = G * group. Several rollouts go side by side as
 * lanes: lane i's n rows begin at row i * be_padded_rows(n), so that no tile holds rows of two
 * lanes. A step of decoding has one row of each sequence, one after the other. "Host" means that an
 * array lies in the host's memory. */
#pragma once

#include <stdbool.h>

#include "lib/base/cache_format.h"
#include "lib/base/memory.h"
#include "lib/base/names.h"
#include "lib/base/pool.h"
#include "lib/base/status.h"

/* A kept set: which prompt positions of one layer stay in the cache. n_sets is 1 (the heads of a
 * layer share the set, as in the paper) or G (for policies that choose for each KV head). Set s
 * holds positions[offsets[s] ... offsets[s+1]), strictly ascending; it may be empty. Pointers are
 * borrowed. */
typedef struct kept_set {
    int32_t n_sets;
    const uint32_t *offsets;   /* [n_sets+1] */
    const uint32_t *positions; /* [offsets[n_sets]] */
    /* The entries are those that session_write_fitted stored (model.h), not the prompt's own. To
     * backends this makes no difference: they get the cache that they are to read. */
    bool fitted;
    /* How what is kept is held, and how the keys and values of the tokens behind it are. Nor do
     * backends read this: they get the formats with the caches. */
    cache_formats formats;
} kept_set;

typedef struct backend backend;
typedef struct be_buf be_buf; /* float32 values in the backend's memory */
/* A matrix [rows = out][cols = in] or a vector [rows], in the backend's own type and layout. */
typedef struct be_weight be_weight;

/* A matrix as it lies in a file. A weight is all of its rows or some of them. */
typedef enum be_type { BE_F32, BE_BF16, BE_PACKED } be_type;
typedef struct be_matrix {
    const void *bytes; /* borrowed until weight_free (a memory map) */
    be_type type;
    int64_t rows, cols; /* of the weight */
    size_t row_bytes;   /* bytes of a row in the file */
    /* Row r of the weight is the matrix's row first + r / block * stride + r % block; with block 0
     * it is row r. */
    int64_t first, block, stride;
    /* Writes rows row ... row + n - 1 of the matrix to out [n][cols]; any thread may call it. A
     * backend reads a BE_F32 matrix by itself. */
    void (*read)(const void *source, int64_t row, int64_t n, float *out);
    const void *source; /* the argument of read, borrowed like `bytes` */
} be_matrix;

static inline int64_t be_matrix_row(const be_matrix *m, int64_t r) {
    return m->block ? m->first + r / m->block * m->stride + r % m->block : r;
}

typedef struct be_attention_shape {
    int32_t n_heads, n_kv_heads, head_dim;
    int32_t window; /* sliding window: query j sees keys j-window < t <= j; 0: all t <= j */
    float scale;    /* what a product of query and key is multiplied by, 1/sqrt(D) in most models */
} be_attention_shape;

/* What rows predict: p [n_rows][V] = softmax(W x), and log_p[r] = sum of p log p in nats, on the
 * host. */
typedef struct be_distributions {
    be_buf *p;
    double *log_p;
} be_distributions;

/* The losses of rows: doubles on the host, [n_lanes][n_rows], in nats. */
typedef struct be_losses {
    const int32_t *target; /* [n_rows] */
    double *nll;           /* logsumexp(W x) - (W x)[target[r]] */
    /* KL(p[r] || softmax(W x)) against the distributions `full`, never below 0; or NULL */
    double *kl;
    const be_distributions *full; /* of n_rows rows; or NULL */
} be_losses;

/* Rows at positions row0 ... row0 + n_rows - 1, the same positions in every lane. */
typedef struct be_rows {
    int64_t row0, n_rows, n_lanes;
} be_rows;

/* n rows of a product. Lanes have padding after their rows: row r is padding where (first + r) %
 * each >= used. Nobody reads padding, and a backend may leave it as it is. each 0: there is no
 * padding. */
typedef struct be_product_rows {
    int64_t n, first, used, each;
} be_product_rows;

/* A layer's mean keys, which formats with "+mean" take out of keys (cache_format.h); other formats
 * do not read them. Both arrays are on the host. */
typedef struct be_key_means {
    const float *of_head;   /* [G][D] before the rotation by position */
    const double *inv_freq; /* [D/2] as in rope */
} be_key_means;

/* Keys and values of one layer, [G][capacity][D] each. The caches of several lanes lie one after
 * the other. Only the cache of lanes may be in other formats than float32 (backend.formats): a
 * buffer then has the rows one behind the other, as many bytes each as its format takes. */
typedef struct be_cache {
    be_buf *k, *v;
    int64_t capacity;
    cache_formats formats;
    be_key_means means;
} be_cache;

/* Continuation rows r = 0 ... n_rows-1 at positions n_prompt + r: the queries, and the own keys and
 * values, of every lane; and the one cache of the prompt. Where `own` has other formats than
 * float32, what is kept of the prompt is gathered in these formats, too, and every lane has a kept
 * set. */
typedef struct be_continuation {
    int64_t n_rows, n_prompt;
    const be_buf *q;
    be_cache prompt, own;
} be_continuation;

/* The attention of one lane in attention_kept. */
typedef struct be_lane {
    /* Which lane's queries, keys and values it reads: its own, or those of a lane that it is about
     * to leave. */
    int32_t from;
    int32_t to;           /* which lane's rows of `out` are written */
    const kept_set *kept; /* NULL: all prompt positions */
} be_lane;

/* Keys and values of one sequence and layer that hold only what is kept. Those of KV head g begin
 * at row first[g]: n_kept[g] of the prompt, and then n_own of later tokens. */
typedef struct be_held {
    be_buf *k, *v;         /* [rows][D] */
    const int64_t *first;  /* [G] */
    const int64_t *n_kept; /* [G] */
    const int64_t *hidden; /* [G] so many at the list's beginning have left the sliding window */
    int64_t n_own;
    cache_formats formats; /* as in be_cache */
    be_key_means means;
    /* On the host, for formats with "+mean": head g keeps positions[from[g]], positions[from[g] +
     * 1] and so on, and the first own row is at n_prompt. Other formats do not read these. */
    const uint32_t *positions;
    const int64_t *from; /* [G] */
    int64_t n_prompt;
} be_held;

/* A step of decoding: row i of n is the next token of the sequence that holds held[i]. */
typedef struct be_step {
    int64_t n;
    be_buf *q;              /* [n][H*D] */
    const be_buf *k, *v;    /* [n][G*D] */
    const be_held *held;    /* [n] */
    const float *cos, *sin; /* [n][D/2] of the row's position * inv_freq, on the host */
} be_step;

/* The last `window` of n prompt rows. The first row of q is position row0, which begins a tile and
 * is not after the window's first row. */
typedef struct be_window {
    int64_t n, window, row0;
} be_window;

/* Which continuation rows attention_targets counts (first_row ... n_rows-1), and how. */
typedef struct be_target_rows {
    int64_t first_row;
    bool largest; /* the largest is taken; false: the sum */
} be_target_rows;

/* What attention_error compares: lane `full`, which has run on the whole prompt cache, and lane
 * `other`, which has run on `kept` (NULL: all of it). They may be the same lane. */
typedef struct be_compared {
    int32_t full, other;
    const kept_set *kept;
} be_compared;

/* Greedy decoding of one row: the first of the entries with the largest logit, and -log softmax of
 * it in nats. */
typedef struct be_greedy {
    double nll;
    int32_t id;
} be_greedy;

/* How far one attention row moves when prompt positions are left out of the cache (the paper's
 * Proposition; paper.md section 10). p is the row over everything that it sees. */
typedef struct be_row_error {
    double mass; /* the mass of p on the prompt positions that are left out */
    /* ||p - p'||_2^2, where p' is a softmax of the same scores over what is kept */
    double restricted;
    /* ||p - p"||_2^2, where p" is the same row of a rollout that has run on the kept positions,
     * with its own queries and keys. */
    double actual;
} be_row_error;

/* The sizes of the largest calls to come. */
typedef struct be_extent {
    int64_t n_prompt, n_rows, n_lanes; /* prompt rows; rows of a continuation; lanes */
    /* whether attention_targets will be called for such continuations */
    bool targets;
    size_t product_values; /* the most values that go into one product */
    int64_t vocab;
} be_extent;

typedef struct backend_ops {
    const char *name; /* "cpu", "cuda" */
    void (*destroy)(backend *be);
    ckvc_status (*sync)(backend *be, ckvc_err *err);
    /* Allocates the scratch memory that operations within `most` need, so that none of them
     * allocates. inv_freq [D/2] as in rope. */
    void (*reserve)(backend *be, const be_attention_shape *s, const double *inv_freq,
                    const be_extent *most);
    /* About the bytes that reserve allocates, for plans; nothing is allocated. */
    size_t (*scratch_bytes)(const backend *be, const be_attention_shape *s, const be_extent *most);

    /* Buffers hold n float32 values, zeroed. read and write copy n values from `offset` on. Where a
     * device has no memory left, the next sync says so. Rows in a buffer of exactly BE_ROW_TILE
     * rows are taken for those of decoding steps: a product may have another kernel for them, whose
     * last bits differ from those for rows of larger buffers. */
    be_buf *(*buf_create)(backend *be, size_t n);
    void (*buf_free)(backend *be, be_buf *b);
    /* Makes `view`, a buffer created with n = 0, stand for n values of another buffer from offset
     * on, until it is pointed elsewhere. */
    void (*buf_view)(backend *be, be_buf *view, const be_buf *of, size_t offset, size_t n);
    void (*write)(backend *be, be_buf *dst, size_t offset, const float *src, size_t n);
    ckvc_status (*read)(backend *be, const be_buf *src, size_t offset, float *dst, size_t n,
                        ckvc_err *err);

    /* Weights: a backend may use the bytes in place or hold a copy. acquire makes the weight ready
     * for use, and it stays ready until release, which says that it may be dropped. Copies beyond
     * the limit of weight_limit are dropped on release and made again by the next acquire. */
    ckvc_status (*weight_create)(backend *be, const be_matrix *m, be_weight **out, ckvc_err *err);
    void (*weight_free)(backend *be, be_weight *w);
    ckvc_status (*weight_acquire)(backend *be, be_weight *w, ckvc_err *err);
    void (*weight_release)(backend *be, be_weight *w);
    /* Announces that w will soon be acquired. A backend may begin to prepare it while operations
     * run. This is only a hint: it reports no failure and acquires nothing. */
    void (*weight_prefetch)(backend *be, const be_weight *w);
    /* Limits the bytes of weights' copies and buffers together. What is in use at one time is kept
     * even beyond the limit. */
    void (*weight_limit)(backend *be, size_t bytes);

    /* x[r] = table[tokens[r]]. This is the one operation whose weight need not be acquired. */
    void (*embed)(backend *be, const be_weight *table, const int32_t *tokens, int64_t n_rows,
                  be_buf *x);
    /* y[r] (+)= x[r] / sqrt(mean(x[r]^2) + eps) * w, where `add` is as in matmul. y may be x. */
    void (*rmsnorm)(backend *be, const be_buf *x, int64_t n_rows, const be_weight *w, float eps,
                    bool add, be_buf *y);
    /* y[r] (+)= W x[r] + bias. bias may be NULL; with `add` the result is added to y (the
     * residual). */
    void (*matmul)(backend *be, const be_weight *w, const be_weight *bias, const be_buf *x,
                   const be_product_rows *rows, bool add, be_buf *y);
    /* Rotates rows [n_rows][H*D] of every lane in place, in half-split pairs (i, i + D/2) as
     * Hugging Face does. inv_freq [D/2] are doubles on the host. */
    void (*rope)(backend *be, const be_attention_shape *s, const double *inv_freq,
                 const be_rows *rows, be_buf *q);
    /* Writes k (rotated as above) and v, rows [n_rows][G*D] of every lane, to the slots 0 ...
     * n_rows-1 of the lane's own cache, in its formats. */
    void (*cache_rows)(backend *be, const be_attention_shape *s, const double *inv_freq,
                       const be_rows *rows, const be_buf *k, const be_buf *v,
                       const be_cache *cache);
    /* Causal attention of rows at positions row0 ... row0 + n_rows - 1 over the cache. row0 begins
     * a tile; q and out are [n_rows][H*D]. */
    void (*attention_causal)(backend *be, const be_attention_shape *s, int64_t row0, int64_t n_rows,
                             const be_buf *q, const be_cache *cache, be_buf *out);
    /* Attention of continuation rows over a lane's kept prompt positions and over its own rows 0
     * ... r. Consecutive entries of `lanes` whose kept sets are the same pointer share one gathered
     * copy of the set's keys and values. */
    void (*attention_kept)(backend *be, const be_attention_shape *s, const be_continuation *c,
                           const be_lane *lanes, int64_t n_lanes, be_buf *out);
    /* Copies the kept positions of a prompt of n tokens (kept NULL: all n) from its cache to `to`,
     * whose n_kept says how many they are, in the formats of `to`. */
    void (*cache_keep)(backend *be, const be_attention_shape *s, const be_cache *prompt, int64_t n,
                       const kept_set *kept, const be_held *to);
    /* Rotates q in place, and writes k (rotated) and v to the last of the n_own rows of held[i], in
     * its formats. */
    void (*held_rows)(backend *be, const be_attention_shape *s, const be_step *rows);
    /* Attention of row i of q over everything that held[i] holds and its window does not hide; out
     * is [n][H*D]. With our own kernels the bits are those of attention_kept. */
    void (*attention_held)(backend *be, const be_attention_shape *s, const be_step *rows,
                           be_buf *out);
    /* The attention mass of a window: mass[g][t] is the sum over the window's rows j and over the
     * query heads of group g of A[h][j][t], in double, on the host [G][n]. It never stores more
     * than a tile of rows times keys. */
    ckvc_status (*window_mass)(backend *be, const be_attention_shape *s, const be_window *w,
                               const be_buf *q, const be_cache *cache, double *mass, ckvc_err *err);
    /* The window's rows themselves: rows[h][i][t] = A[h][n - window + i][t], which is 0 where the
     * row does not see t, on the host [H][window][n]. */
    ckvc_status (*window_rows)(backend *be, const be_attention_shape *s, const be_window *w,
                               const be_buf *q, const be_cache *cache, float *rows, ckvc_err *err);
    /* Computes attention_kept of lane 0 on the whole prompt cache, and what its rows give to the
     * prompt's positions: targets[g][t] is the sum, or the largest, over the rows and the query
     * heads of group g of A[h][r][t], in double, on the host [G][n_prompt]. A row's softmax runs
     * over all keys that it sees, its own lane's included. It never stores more than a tile of rows
     * times keys. */
    ckvc_status (*attention_targets)(backend *be, const be_attention_shape *s,
                                     const be_continuation *c, const be_target_rows *rows,
                                     be_buf *out, double *targets, ckvc_err *err);
    /* Writes the errors of rows r = 0 ... n_rows-1 of every query head to out [H][n_rows] on the
     * host. It serves measurements only, so it allocates its scratch on first use. */
    ckvc_status (*attention_error)(backend *be, const be_attention_shape *s,
                                   const be_continuation *c, const be_compared *lanes,
                                   be_row_error *out, ckvc_err *err);
    /* norm[g][t] = ||V[g][t]||_2 for the cache slots 0 ... n-1, in double, on the host [G][n]. */
    ckvc_status (*value_norms)(backend *be, const be_attention_shape *s, int64_t n,
                               const be_cache *cache, double *norm, ckvc_err *err);
    /* y[r] = silu(gate[r]) * up[r]; with `gelu` it takes gelu(g) = g/2 (1 + tanh(sqrt(2/pi) (g +
     * 0.044715 g^3))) in place of silu. A row has `width` values. y may be gate. */
    void (*gate_mul)(backend *be, bool gelu, const be_buf *gate, const be_buf *up, int64_t n_rows,
                     int64_t width, be_buf *y);
    /* Computes the losses of rows row0 + r of lane i. Here a lane has row0 + n_rows rows, and all
     * lanes have the same targets. Logits are computed in tiles of the vocabulary and never stored
     * whole. */
    ckvc_status (*head_nll)(backend *be, const be_weight *w, const be_buf *x, const be_rows *rows,
                            const be_losses *out, ckvc_err *err);
    /* Computes the distributions of rows row0 ... row0 + n - 1. */
    ckvc_status (*head_distributions)(backend *be, const be_weight *w, const be_buf *x,
                                      int64_t row0, int64_t n, const be_distributions *out,
                                      ckvc_err *err);
    /* Writes the logits of rows row0 ... row0 + n - 1, on the host [n][V]. */
    ckvc_status (*head_logits)(backend *be, const be_weight *w, const be_buf *x, int64_t row0,
                               int64_t n, float *logits, ckvc_err *err);
    /* Writes the likeliest entry of each of these rows, on the host [n]. */
    ckvc_status (*head_greedy)(backend *be, const be_weight *w, const be_buf *x, int64_t row0,
                               int64_t n, be_greedy *next, ckvc_err *err);
    /* Copies n_rows rows of `width` values from src_row on to rows dst_row ... of dst. */
    void (*copy_rows)(backend *be, const be_buf *src, int64_t src_row, be_buf *dst, int64_t dst_row,
                      int64_t n_rows, int64_t width);
} backend_ops;

struct backend {
    const backend_ops *ops;
    /* Borrowed. Others may use it between operations, but never while one runs. */
    ckvc_pool *pool;
    ckvc_compute compute;
    /* value_bytes: bytes of one value of a matrix as it is multiplied, 4, or 2 for bf16. in_place:
     * a matrix that lies like that in its file is used there; false: every matrix gets a copy. */
    size_t value_bytes;
    bool in_place;
    bool formats; /* caches may be in other formats than float32 */
    /* To copy all of a model's weights takes about as long as products of so many rows. Only plans
     * use this number. */
    int64_t copy_rows;
    /* Products with weights of fewer rows than this leave part of the device idle; 0: none do. */
    int64_t fill_rows;
    /* Bytes of the device's own memory that buffers and copies of weights may fill; 0: they lie in
     * the host's memory. */
    size_t memory_bytes;
    /* The kind and kernel that results depend on, which journals record: "cpu/AVX2",
     * "cpu/OpenBLAS-Zen", "cuda/NVIDIA H200 sm_90 ...". */
    char kernel[160];
    /* What a user should know, or "". warning: a faster or better-tested kernel cannot be used.
     * compute_warning: bf16 is emulated. */
    char warning[768], compute_warning[320];
};

/* Whoever allocates activation buffers and caches rounds their rows up to a multiple of this, so
 * that matrix products run on whole tiles. */
#define BE_ROW_TILE 64
static inline int64_t be_padded_rows(int64_t n) {
    return (n + BE_ROW_TILE - 1) / BE_ROW_TILE * BE_ROW_TILE;
}

/* Creates a backend. The kinds are:
 *
 *   "cpu"       the CPU with our own kernels, or with OpenBLAS's products where it has none of ours
 *   "openblas"  the CPU with OpenBLAS's products
 *   "cuda"      a GPU; where it is missing the error is CKVC_E_DEVICE, which says what is missing,
 *               and no other kind takes its place
 *   "auto"      cuda where it is built in and a device answers, else cpu
 *
 * The pool is borrowed and must outlive the backend. BLAS is limited to one thread, as parallel
 * work is divided over the pool. Kernels are checked before they are used: one that fails and was
 * not asked for by name is replaced by the next, with a warning. Free *out with backend_destroy; it
 * is NULL after a failure. */
ckvc_status backend_create(const char *kind, ckvc_compute compute, ckvc_pool *pool, backend **out,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* Returns the kinds that are built in, such as "cpu, openblas". */
const char *backend_kinds(void);
/* Writes into text [n] the device that "cuda" would use, or what is missing for it. */
void backend_cuda_text(char *text, size_t n);
static inline void backend_destroy(backend *be) {
    if (be) { be->ops->destroy(be); }
}
CKVC_AUTO_OF(backend, backend_destroy)
