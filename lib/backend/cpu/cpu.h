/* Private to lib/backend/cpu: the state of the CPU backend, its scratch memory, and the row
 * kernels.
 *
 * Results have the same bytes for any number of threads and rows, for three reasons. A matrix
 * product is cut into tiles whose sizes depend only on the shapes of the weights (and, in
 * attention, on the row's own place). With OpenBLAS every tile has BE_ROW_TILE rows, padding
 * included, and BLAS runs on one thread inside a tile; our own kernels compute a row independently
 * of its neighbours (cpu_fma.h). And whatever is summed over tiles is summed in the order of the
 * tiles. */
#pragma once

#include <assert.h>
#include <string.h>

#include "lib/backend/backend.h"
#include "lib/backend/cpu/cpu_fma.h"

struct be_buf {
    float *data; /* [n], 64-byte aligned unless it is a view */
    size_t n;
    float *own; /* what buf_free releases: [own_n], or one value for a view */
    size_t own_n;
};

struct be_weight {
    be_matrix m;
    const float *data; /* [rows][places] the file's bytes, or own; NULL until acquired */
    float *own;
    int64_t places; /* values of a row, or half of them: pairs of bf16 (cpu_fma.h) */
    /* its values are rounded to bfloat16, and so are the rows that it is multiplied with */
    bool bf16;
};

/* Memory that only grows, so that nothing allocates after the largest prompt. */
typedef struct cpu_scratch {
    float *data;
    size_t n;
} cpu_scratch;

/* Memory of dropped copies, kept for the next weight of the same size: the layers of a model use it
 * in turn. */
#define SPARE_COPIES   32
#define SPARE_PER_SIZE 4 /* a layer has at most four of one size: q, k, v, o; or gate, up, down */

/* cos and sin of position * inv_freq, [n_positions][half]. They are kept, because every layer of
 * every prompt asks for the same ones. */
typedef struct rope_table {
    int32_t half;
    int64_t n_positions, capacity;
    double *inv_freq; /* [half] that the table was made from */
    float *cos, *sin;
} rope_table;

typedef struct cpu_backend {
    backend base;
    int n_threads;
    const cpu_fma *fma;  /* NULL: products by OpenBLAS */
    cpu_scratch *worker; /* [n_threads] */
    cpu_scratch shared;
    rope_table rope[2];            /* layers may have one of two bases */
    int rope_last;                 /* the one that was asked for last */
    size_t bytes_max;              /* limit of the bytes of weights' copies and buffers; 0: none */
    size_t bytes_now, bytes_spare; /* bytes in use; spare copies among them */
    /* The most that spare copies have taken, which are those of weights that take turns. */
    size_t bytes_turns;
    cpu_scratch spare[SPARE_COPIES];
    int n_spare;
    cpu_scratch rounded; /* the rows of a product, rounded to bf16 */
} cpu_backend;

static inline cpu_backend *cpu_of(backend *be) { return (cpu_backend *)be; }

/* Makes every worker's scratch at least per_worker floats, and the shared one at least `shared`
 * floats. */
void cpu_need(cpu_backend *c, size_t per_worker, size_t shared);
void cpu_grow(cpu_scratch *s, size_t n); /* loses the old contents */
/* Rounds rows x [n_rows][n] to bf16 as products need them, into to [n_rows][cpu_places(n)]: in
 * pairs where the CPU multiplies pairs; else as floats, and then `to` may be x. */
void cpu_round(const cpu_backend *c, int64_t n_rows, int64_t n, const float *x, float *to);
int64_t cpu_places(const cpu_backend *c, int64_t n);

#define CPU_MOST_ROWS   256   /* rows of a product's task at most */
#define CPU_TASK_FLOATS 32768 /* a worker's scratch: logits of the head, weights to be rounded */

/* For n things cut into pieces of `piece`: how many pieces there are, and the length of the piece
 * that begins at `from`. */
static inline int64_t cpu_pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }
static inline int64_t cpu_piece_length(int64_t n, int64_t from, int64_t piece) {
    return n - from < piece ? n - from : piece;
}

/* The length of a row of n scores, which is rounded up to whole vectors. */
static inline int64_t cpu_score_stride(int64_t n) { return (n + 15) / 16 * 16; }
/* score [BE_ROW_TILE][stride] = scale q k^T for n keys [n][D], by the product that the backend
 * uses. Rows of q lie H*D apart. */
void cpu_scores(const cpu_backend *c, const be_attention_shape *s, const float *q, const float *k,
                int64_t n, float *score, int64_t stride);
/* Rows first ... first + n - 1 of a cache's buffers, of all lanes and heads, or of what a sequence
 * holds. */
static inline key_run cpu_rows_of(const be_buf *k, const be_buf *v, cache_formats f,
                                  int32_t head_dim, int64_t first, int64_t n) {
    const size_t keys = cache_bytes(f.keys, (size_t)head_dim),
                 values = cache_bytes(f.values, (size_t)head_dim), end = (size_t)(first + n);
    assert(end * keys <= k->n * sizeof(float) && end * values <= v->n * sizeof(float));
    return (key_run){(const char *)k->data + keys * (size_t)first,
                     (const char *)v->data + values * (size_t)first,
                     n,
                     f,
                     {0}};
}
/* Writes row i of a run of the backend's own memory: a rotated key and a value [D]. */
static inline void cpu_hold_row(const key_run *to, int32_t head_dim, int64_t i, const float *key,
                                const float *value) {
    const cache_formats f = to->formats;
    const size_t d = (size_t)head_dim;
    float rest[CACHE_HEAD_MAX];
    if (to->mean.c) {
        memcpy(rest, key, d * sizeof *rest);
        cpu_add_mean(&to->mean, i, head_dim, -1, rest);
        key = rest;
    }
    cache_write(f.keys, cache_key_rotation(f, head_dim), key, d,
                (char *)ckvc_unconst(to->k) + cache_bytes(f.keys, d) * (size_t)i);
    cache_write(f.values, cache_value_rotation(f, head_dim), value, d,
                (char *)ckvc_unconst(to->v) + cache_bytes(f.values, d) * (size_t)i);
}
/* What was taken out of head g's keys. It is empty for formats that take nothing out. positions and
 * first are those of key_mean. `angles` must hold all positions (cpu_means_reserve). */
static inline key_mean cpu_mean_of(cache_formats f, const be_key_means *m, const rope_table *angles,
                                   int32_t head_dim, int64_t g, const uint32_t *positions,
                                   int64_t first) {
    if (!cache_takes_mean(f)) { return (key_mean){0}; }
    return (key_mean){m->of_head + g * head_dim, angles->cos, angles->sin, positions, first};
}
/* Returns the positions that head g keeps, [*n]. */
static inline const uint32_t *cpu_kept_of(const kept_set *kept, int64_t g, int64_t *n) {
    const int64_t set = kept->n_sets == 1 ? 0 : g;
    *n = (int64_t)kept->offsets[set + 1] - (int64_t)kept->offsets[set];
    return kept->positions + kept->offsets[set];
}

/* ---- operations: backend.h says what they do, and gives their types ---- */

/* clang-format off */
#define CPU_OPERATIONS(X) \
    /* cpu_backend.c */ \
    X(destroy) X(sync) X(reserve) X(scratch_bytes) \
    X(buf_create) X(buf_free) X(buf_view) X(write) X(read) \
    /* cpu_memory.c */ \
    X(weight_create) X(weight_free) X(weight_acquire) X(weight_release) X(weight_prefetch) \
    X(weight_limit) \
    /* cpu_rows.c */ \
    X(embed) X(rmsnorm) X(rope) X(cache_rows) X(value_norms) X(gate_mul) X(copy_rows) \
    /* cpu_matmul.c */ \
    X(matmul) X(head_nll) X(head_distributions) X(head_logits) X(head_greedy) \
    /* cpu_attention.c, cpu_attention_error.c */ \
    X(attention_causal) X(attention_kept) X(attention_targets) \
    X(window_mass) X(window_rows) \
    X(cache_keep) X(held_rows) X(attention_held) \
    X(attention_error)
/* clang-format on */
#define DECLARE(name) __typeof__(*((backend_ops *)NULL)->name) cpu_##name;
CPU_OPERATIONS(DECLARE)
#undef DECLARE

/* Writes n rows from row `row` on, all of one block, as float32. */
void cpu_weight_read(const be_matrix *m, int64_t row, int64_t n, float *dst);
/* The table for these frequencies, made or grown if needed. The table for other frequencies
 * stays. */
const rope_table *cpu_rope_reserve(cpu_backend *c, const double *inv_freq, int32_t half,
                                   int64_t n_positions);
/* The table of the angles by which means are rotated; NULL where formats take none out. */
static inline const rope_table *cpu_means_reserve(cpu_backend *c, cache_formats f,
                                                  const be_key_means *m, int32_t head_dim,
                                                  int64_t n_positions) {
    return cache_takes_mean(f) ? cpu_rope_reserve(c, m->inv_freq, head_dim / 2, n_positions) : NULL;
}
/* The most scratch floats that the operations of these files need. */
void cpu_attention_scratch(const cpu_backend *c, const be_attention_shape *s, const be_extent *most,
                           size_t *per_worker, size_t *shared);
void cpu_window_scratch(const be_attention_shape *s, const be_extent *most, size_t *per_worker,
                        size_t *shared);
void cpu_head_scratch(const cpu_backend *c, const be_extent *most, size_t *per_worker,
                      size_t *shared);

/* ---- row kernels (cpu_kernels.c): plain loops over one row that the compiler turns into vector
 * code ---- */

/* x[i] = exp(x[i] - max x), at most 1 ulp off. Returns the sum of these in double, so that dividing
 * by it gives a sum of 1. n >= 1. max_out may be NULL. */
double kernel_softmax(float *x, int64_t n, float *max_out);
void kernel_scale(float *x, int64_t n, float factor);
/* The dot product of x and y, summed in double. */
double kernel_dot(const float *x, const float *y, int64_t n);
/* mass += e * factor; mass = max(mass, e * factor) */
void kernel_mass_add(double *mass, const float *e, int64_t n, double factor);
void kernel_mass_max(double *mass, const float *e, int64_t n, double factor);
void kernel_silu_mul(const float *gate, const float *up, float *y, int64_t n);
void kernel_gelu_mul(const float *gate, const float *up, float *y, int64_t n);
void kernel_rmsnorm(const float *x, const float *w, float *y, int64_t n, double eps);
void kernel_rmsnorm_add(const float *x, const float *w, float *y, int64_t n, double eps);
/* Rotates a row in place, in pairs (i, i + half). */
void kernel_rope(float *x, const float *cos, const float *sin, int32_t half);
double kernel_norm(const float *x, int64_t n); /* ||x||_2, summed in double */
/* Rounds to the nearest bfloat16, ties to even; src may be dst. */
void kernel_round_bf16(const float *src, float *dst, int64_t n);
