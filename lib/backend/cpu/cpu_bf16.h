/* Products with weights in bfloat16: both operands rounded to nearest even, float32 accumulation.
 *
 *   y[r] (+)= sum_k bf16(W[o][k]) * bf16(x[r][k])   (a product of two of them is exact in float32)
 *
 * With a CPU that multiplies bf16 and oneDNN at hand, weights are packed once in 16 bits and a tile
 * of BE_ROW_TILE rows and a piece of BF16_PIECE columns goes through oneDNN. Elsewhere the same
 * arithmetic is emulated: weights and rows are rounded but stay float32 and take float32's
 * products, which costs a little more than plain float32. The two differ in the order of the
 * float32 sums alone (and in subnormal numbers, which the CPU's instruction flushes). */
#pragma once

#include "lib/backend/backend.h"

struct cpu_backend;
typedef struct cpu_bf16 cpu_bf16;

/* How products with weights are computed. */
typedef enum cpu_products {
    CPU_F32,
    CPU_BF16,          /* through oneDNN where the CPU has bf16, else emulated */
    CPU_BF16_EMULATED, /* in any case: for tests, as is the next */
    CPU_BF16_WIDE      /* oneDNN with float32 elements that hold rounded numbers: the library's road
                          on any CPU; CKVC_E_DEVICE without it */
} cpu_products;

/* A product's tile: y [n_rows][width] (+)= rows x [n_rows][cols] times columns col ... of W^T. */
typedef struct cpu_tile {
    const be_weight *w;
    const float *x;
    int64_t n_rows, col, width;
    bool onto;
    float *y;
    int64_t y_stride;
} cpu_tile;

/* Columns that are packed together: what a product is asked for begins and ends at one, or at the
 * last column. */
#define BF16_PIECE 256

/* Before the first weight, and once: sets the backend's bf16, and what it says of itself. */
ckvc_status cpu_bf16_create(struct cpu_backend *c, cpu_products products,
                            ckvc_err *err) CKVC_MUST_CHECK;
void cpu_bf16_destroy(struct cpu_backend *c); /* fine without one; all below need one */

/* A matrix of more than one column will come: makes room for it, so that no product allocates. */
ckvc_status cpu_bf16_expect(struct cpu_backend *c, be_weight *w, ckvc_err *err) CKVC_MUST_CHECK;
size_t cpu_bf16_copy_floats(const struct cpu_backend *c, const be_weight *w); /* of its own */
ckvc_status cpu_bf16_pack(struct cpu_backend *c, be_weight *w, ckvc_err *err) CKVC_MUST_CHECK;
void cpu_bf16_drop(be_weight *w); /* before its own memory goes to another weight */
size_t cpu_bf16_scratch_bytes(const struct cpu_backend *c);

/* Matrices are oneDNN's pieces, not rounded float32; false without bf16. */
bool cpu_bf16_packed(const struct cpu_backend *c);
/* The worker's rounded copy of rows x, at most CPU_MOST_ROWS of a weight's cols values: for a
 * product in float32. */
const float *cpu_bf16_rows(const struct cpu_backend *c, const float *x, int64_t n_values,
                           int worker);
/* A tile with packed W: whole row tiles; columns begin at a piece and end at one, or at the last
 * column. A failure is kept for cpu_bf16_check. */
void cpu_bf16_product(const struct cpu_backend *c, const cpu_tile *t, int worker);
void cpu_bf16_check(struct cpu_backend *c); /* hands a product's failure to sync */

void kernel_to_bf16(const float *src, uint16_t *dst, int64_t n);
void kernel_round_bf16(const float *src, float *dst, int64_t n); /* src may be dst */
