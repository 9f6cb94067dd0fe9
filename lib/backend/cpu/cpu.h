/* Inside of the CPU backend: its state, its scratch memory, and the row kernels. Nothing outside
 * lib/backend/cpu includes this.
 *
 * Why results are the same bytes for any number of threads and of rows: a matrix product is cut
 * into tiles whose sizes follow from the shapes of the weights (and, in attention, from the row's
 * own place) alone; with OpenBLAS every tile has BE_ROW_TILE rows, padding included, and the BLAS
 * runs on one thread inside a tile (kernels of ours do not see what lies beside a row, cpu_fma.h);
 * and whatever is summed over tiles is summed in tile order. */
#pragma once

#include "lib/backend/backend.h"
#include "lib/backend/cpu/cpu_fma.h"

struct be_buf {
    float *data; /* [n], 64-byte aligned unless it is a view */
    size_t n;
    float *own; /* what buf_free gives back: [own_n], or one value for a view */
    size_t own_n;
};

struct be_weight {
    be_matrix m;
    const float *data; /* [rows][places]: the bytes themselves, or own; NULL until acquired */
    float *own;
    int64_t places; /* cols, or half of them: pairs of bf16 (cpu_fma.h) */
    bool bf16;      /* values are rounded to bfloat16, and so are the rows it is multiplied with */
};

/* Memory that only grows, so that after the largest prompt nothing allocates. */
typedef struct cpu_scratch {
    float *data;
    size_t n;
} cpu_scratch;

/* Memory of dropped copies, for the next weight of the same size: the layers of a model take turns
 * in it. */
#define SPARE_COPIES   32
#define SPARE_PER_SIZE 4 /* a layer's q, k, v, o at most, or its gate, up, down */

/* cos and sin of position * inv_freq, [n_positions][half]; kept because every layer of every prompt
 * asks for the same. */
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
    int rope_last;                 /* which was asked for last */
    size_t bytes_max;              /* copies of weights and buffers; 0: no limit */
    size_t bytes_now, bytes_spare; /* what is taken; of it, spare copies */
    size_t bytes_turns;            /* the most that these were: of weights that take turns */
    cpu_scratch spare[SPARE_COPIES];
    int n_spare;
    cpu_scratch rounded; /* the rows of a product in bf16 */
} cpu_backend;

static inline cpu_backend *cpu_of(backend *be) { return (cpu_backend *)be; }

/* Makes every worker's scratch at least per_worker floats and the shared one at least `shared`. */
void cpu_need(cpu_backend *c, size_t per_worker, size_t shared);
void cpu_grow(cpu_scratch *s, size_t n); /* what it held is lost */
/* Rows x [n_rows][n] -> to [n_rows][cpu_places(n)], rounded to bf16 as products take them: in pairs
 * where the CPU multiplies those, else as floats, and then `to` may be x. */
void cpu_round(const cpu_backend *c, int64_t n_rows, int64_t n, const float *x, float *to);
int64_t cpu_places(const cpu_backend *c, int64_t n);

#define CPU_MOST_ROWS   256   /* of a task of a product */
#define CPU_TASK_FLOATS 32768 /* of a worker's scratch: the head's logits, weights to round */

/* n things in pieces of so many: how many pieces; the length of the one that begins at `from`. */
static inline int64_t cpu_pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }
static inline int64_t cpu_piece_length(int64_t n, int64_t from, int64_t piece) {
    return n - from < piece ? n - from : piece;
}

/* Score rows are this long: whole vectors. */
static inline int64_t cpu_score_stride(int64_t n) { return (n + 15) / 16 * 16; }
/* score [BE_ROW_TILE][stride] = scale q k^T for n keys [n][D], by whichever product the backend
 * computes with; rows of q lie H*D apart. */
void cpu_scores(const cpu_backend *c, const be_attention_shape *s, const float *q, const float *k,
                int64_t n, float *score, int64_t stride);
/* The n positions that head g keeps. */
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

/* n rows from row `row` on, of one block, as float32. */
void cpu_weight_read(const be_matrix *m, int64_t row, int64_t n, float *dst);
/* The table of these frequencies, made or grown: the other one stays. */
const rope_table *cpu_rope_reserve(cpu_backend *c, const double *inv_freq, int32_t half,
                                   int64_t n_positions);
/* Scratch floats that the operations of these files take at most. */
void cpu_attention_scratch(const cpu_backend *c, const be_attention_shape *s, const be_extent *most,
                           size_t *per_worker, size_t *shared);
void cpu_window_scratch(const be_attention_shape *s, const be_extent *most, size_t *per_worker,
                        size_t *shared);
void cpu_head_scratch(const cpu_backend *c, const be_extent *most, size_t *per_worker,
                      size_t *shared);

/* ---- row kernels (cpu_kernels.c): plain loops over one row that the compiler turns into vector
 * code ---- */

/* x[i] = exp(x[i] - max x), at most 1 ulp off; returns the sum of these, in double, so that what is
 * divided by it sums to 1. n >= 1. *max_out may be NULL. */
double kernel_softmax(float *x, int64_t n, float *max_out);
void kernel_scale(float *x, int64_t n, float factor);
/* Summed in double. */
double kernel_dot(const float *x, const float *y, int64_t n);
/* mass += e * factor; mass = max(mass, e * factor) */
void kernel_mass_add(double *mass, const float *e, int64_t n, double factor);
void kernel_mass_max(double *mass, const float *e, int64_t n, double factor);
void kernel_silu_mul(const float *gate, const float *up, float *y, int64_t n);
void kernel_gelu_mul(const float *gate, const float *up, float *y, int64_t n);
void kernel_rmsnorm(const float *x, const float *w, float *y, int64_t n, double eps);
void kernel_rmsnorm_add(const float *x, const float *w, float *y, int64_t n, double eps);
/* In place, pairs (i, i + half). */
void kernel_rope(float *x, const float *cos, const float *sin, int32_t half);
double kernel_norm(const float *x, int64_t n); /* ||x||_2, summed in double */
/* To the nearest bfloat16, ties to even; src may be dst. */
void kernel_round_bf16(const float *src, float *dst, int64_t n);
