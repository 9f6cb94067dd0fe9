/* Inside of the CPU backend: its state, its scratch memory, and the row kernels. Nothing outside
 * lib/backend/cpu includes this.
 *
 * Why results are the same bytes for any number of threads and of rows: a matrix product is cut
 * into tiles whose sizes follow from the shapes of the weights (and, in attention, from the row's
 * own place) alone; with OpenBLAS every tile has BE_ROW_TILE rows, padding included, and the BLAS
 * runs on one thread inside a tile (kernels of ours do not see what lies beside a row, cpu_fma.h);
 * and whatever is summed over tiles is summed in tile order.
 */
#ifndef CKVC_BACKEND_CPU_H
#define CKVC_BACKEND_CPU_H

#include "lib/backend/backend.h"
#include "lib/backend/cpu/cpu_fma.h"

struct be_buf {
    float *data; /* [n], 64-byte aligned unless it is a view */
    size_t n;
    float *own; /* what buf_free gives back: [own_n], or one value for a view */
    size_t own_n;
};

struct be_weight {
    int64_t rows, cols;
    int64_t block, stride; /* row r lies at the file's row r / block * stride + r % block; block ==
                              stride: one after the other */
    be_type type;
    const void *bytes; /* borrowed */
    const float *f32;  /* [rows][cols]: bytes themselves, or own; NULL until acquired */
    float *own;
    bool bf16;     /* multiplied in bf16: own holds rounded values, or oneDNN's packed pieces */
    void **pieces; /* oneDNN's handles of the packed pieces */
};

/* Memory of dropped copies, for the next weight of the same size: the layers of a model take turns
 * in it. */
typedef struct spare_copy {
    float *data;
    size_t n;
} spare_copy;
#define SPARE_COPIES   32
#define SPARE_PER_SIZE 4 /* a layer's q, k, v, o at most, or its gate, up, down */

typedef struct cpu_scratch {
    float *data;
    size_t n;
} cpu_scratch;

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
    rope_table rope;
    size_t bytes_max; /* copies of weights and buffers; 0: no limit */
    size_t bytes_now;
    spare_copy spare[SPARE_COPIES];
    int n_spare;
    ckvc_err failure;      /* first failure of a call that returns nothing; handed out by sync */
    struct cpu_bf16 *bf16; /* NULL: products in float32 */
} cpu_backend;

static inline cpu_backend *cpu_of(backend *be) {
    return (cpu_backend *)be;
}

/* Makes every worker's scratch at least per_worker floats and the shared one at least `shared`
 * floats. false: no memory, recorded for the next sync; the operation is then left out. Grows only,
 * so after the largest prompt nothing allocates. */
bool cpu_reserve(cpu_backend *c, size_t per_worker, size_t shared);

#define CPU_MOST_ROWS 256 /* of a task of a product */

/* ---- operations that have a file of their own ---- */
void cpu_matmul(backend *be, const be_weight *w, const be_weight *bias, const be_buf *x,
                int64_t n_rows, bool add, be_buf *y);
ckvc_status cpu_head_nll(backend *be, const be_weight *w, const be_buf *x, int64_t row0,
                         int64_t n_rows, int64_t n_lanes, const int32_t *target, double *nll,
                         ckvc_err *err);
ckvc_status cpu_head_logits(backend *be, const be_weight *w, const be_buf *x, int64_t row,
                            float *logits, ckvc_err *err);
void cpu_attention_causal(backend *be, const be_attention_shape *s, int64_t row0, int64_t n_rows,
                          const be_buf *q, const be_buf *cache_k, const be_buf *cache_v,
                          int64_t capacity, be_buf *out);
void cpu_attention_kept(backend *be, const be_attention_shape *s, int64_t n_rows, int64_t n_prompt,
                        const be_buf *q, const be_buf *cache_k, const be_buf *cache_v,
                        int64_t capacity, const be_buf *own_k, const be_buf *own_v,
                        int64_t own_capacity, const be_lane *lanes, int64_t n_lanes, be_buf *out);
ckvc_status cpu_window_mass(backend *be, const be_attention_shape *s, int64_t n_rows,
                            int64_t window, const be_buf *q, int64_t row0, const be_buf *cache_k,
                            int64_t capacity, double *mass, ckvc_err *err);
ckvc_status cpu_attention_error(backend *be, const be_attention_shape *s, int64_t n_rows,
                                int64_t n_prompt, const be_buf *q, const be_buf *cache_k,
                                int64_t capacity, const be_buf *own_k, int64_t own_capacity,
                                int32_t full, int32_t other, const kept_set *kept,
                                be_row_error *out, ckvc_err *err);
/* Scratch floats that the operations of these files take at most. */
void cpu_attention_scratch(const cpu_backend *c, const be_attention_shape *s, const be_extent *most,
                           size_t *per_worker, size_t *shared);
void cpu_head_scratch(const cpu_backend *c, const be_extent *most, size_t *per_worker,
                      size_t *shared);

/* ---- row kernels (cpu_kernels.c): plain loops over one row that the compiler turns into vector
 * code ---- */
/* x[i] = exp(x[i] - max x), at most 1 ulp off; returns the sum of these, in double, so that what is
 * divided by it sums to 1. n >= 1. *max_out may be NULL. */
double kernel_softmax(float *x, int64_t n, float *max_out);
void kernel_scale(float *x, int64_t n, float factor);
void kernel_mass_add(double *mass, const float *e, int64_t n,
                     double factor); /* mass[i] += e[i] * factor */
void kernel_silu_mul(const float *gate, const float *up, float *y, int64_t n);
void kernel_rmsnorm(const float *x, const float *w, float *y, int64_t n, double eps);
void kernel_rope(float *x, const float *cos, const float *sin,
                 int32_t half);                /* in place, pairs (i, i + half) */
double kernel_norm(const float *x, int64_t n); /* ||x||_2, summed in double */
void kernel_from_bf16(const uint16_t *src, float *dst, int64_t n);
void kernel_from_f16(const uint16_t *src, float *dst, int64_t n);

#endif
