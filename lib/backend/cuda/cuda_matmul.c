/* Products with weights by cuBLASLt, y = x W^T. In cuBLASLt's terms W is a column-major matrix that
 * is transposed, and each column of x and y is one of our rows.
 *
 * cuBLASLt chooses a kernel by the shape of the whole call, so a row's bits would change with the
 * rows beside it. Here the kernel is chosen once for each shape of weights, for MANY_ROWS rows, and
 * named in every call. It may not split sums, and gets no memory but for a counter of tiles, so
 * that a value is one chain over the columns for any number of rows. It is also tried (rows_alike),
 * because a kernel that hands out its work by the number of tiles could split sums nevertheless. A
 * buffer that holds one tile, as a decoder's does, has another kernel: it always computes that
 * tile, for which a kernel for many rows would leave most of the device idle. */
#include <assert.h>

#include "lib/backend/cuda/cuda.h"

#define MANY_ROWS     1024 /* the largest piece of the layer loop after attention */
#define SOME_ROWS     (5 * BE_ROW_TILE)
#define COUNTER_BYTES 256 /* a kernel for Hopper asks for 4 bytes from some number of tiles on */

struct cuda_product {
    int64_t n_out, cols, stride; /* cols: of a row of W and x; stride: of a row of y */
    bool bf16, few;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t w, x, y;
    cublasLtMatmulAlgo_t algorithm;
};

static bool blas_ok(cuda_backend *c, cublasStatus_t st, const char *what) {
    if (st == CUBLAS_STATUS_SUCCESS) { return true; }
    ckvc_fail(&c->failure, CKVC_E_DEVICE, "%s: cublasLt: %s: status %d", c->base.kernel, what,
              (int)st);
    return false;
}

static void product_fini(cuda_product *p) {
    if (p->product) { cublasLtMatmulDescDestroy(p->product); }
    const cublasLtMatrixLayout_t layouts[] = {p->w, p->x, p->y};
    for (int i = 0; i < 3; i++) {
        if (layouts[i]) { cublasLtMatrixLayoutDestroy(layouts[i]); }
    }
}

void cuda_products_reserve(cuda_backend *c) { CKVC_GROW(c->products, c->cap_products, 64); }

void cuda_products_free(cuda_backend *c) {
    for (size_t i = 0; i < c->n_products; i++) { product_fini(&c->products[i]); }
    free(c->products);
}

/* ---- the choice of a kernel ---- */

static bool set_rows(cuda_backend *c, const cuda_product *p, int64_t n_rows) {
    const uint64_t n = (uint64_t)n_rows;
    const cublasLtMatrixLayout_t both[] = {p->x, p->y};
    for (int i = 0; i < 2; i++) {
        if (!blas_ok(c,
                     cublasLtMatrixLayoutSetAttribute(both[i], CUBLASLT_MATRIX_LAYOUT_COLS, &n,
                                                      sizeof n),
                     "a number of rows")) {
            return false;
        }
    }
    return true;
}

static bool describe_product(cuda_backend *c, cuda_product *p) {
    const cudaDataType_t type = p->bf16 ? CUDA_R_16BF : CUDA_R_32F;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const uint64_t in = (uint64_t)p->cols, out = (uint64_t)p->n_out;
    const char *what = "describing a product";
    return blas_ok(c, cublasLtMatmulDescCreate(&p->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                   what) &&
           blas_ok(c,
                   cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_TRANSA,
                                                  &transposed, sizeof transposed),
                   what) &&
           blas_ok(c, cublasLtMatrixLayoutCreate(&p->w, type, in, out, p->cols), what) &&
           blas_ok(c, cublasLtMatrixLayoutCreate(&p->x, type, in, MANY_ROWS, p->cols), what) &&
           blas_ok(c, cublasLtMatrixLayoutCreate(&p->y, CUDA_R_32F, out, MANY_ROWS, p->stride),
                   what) &&
           set_rows(c, p, p->few ? BE_ROW_TILE : MANY_ROWS);
}

/* The alignment of rows: buffers begin at multiples of 256 bytes; views, and rows within buffers,
 * at whole rows. */
static uint32_t alignment(int64_t values, size_t bytes) {
    return (size_t)values * bytes % 16 == 0 ? 16 : (uint32_t)bytes;
}

static bool prefer(cuda_backend *c, const cuda_product *p, cublasLtMatmulPreference_t preference) {
    const size_t element = p->bf16 ? sizeof(uint16_t) : sizeof(float);
    const size_t workspace = p->few ? c->workspace.bytes : COUNTER_BYTES;
    /* partial sums in the workspace, added in order, are allowed only for a fixed number of rows */
    const uint32_t sums =
        p->few ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    const uint32_t x = alignment(p->cols, element), y = alignment(p->stride, sizeof(float));
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } wanted[] = {{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
                  {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &x, sizeof x},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &x, sizeof x},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &y, sizeof y},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &y, sizeof y}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (!blas_ok(c,
                     cublasLtMatmulPreferenceSetAttribute(preference, wanted[i].name,
                                                          wanted[i].value, wanted[i].bytes),
                     "choosing a kernel")) {
            return false;
        }
    }
    return true;
}

/* Whether a kernel accepts every number of rows that it will get, without splitting sums. */
static bool takes_any_rows(cuda_backend *c, cuda_product *p, const cublasLtMatmulAlgo_t *algo) {
    static const int64_t rows[] = {BE_ROW_TILE, SOME_ROWS, 8 * MANY_ROWS, MANY_ROWS};
    uint32_t split = 1;
    if (cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split,
                                             sizeof split, NULL) != CUBLAS_STATUS_SUCCESS ||
        split > 1) {
        return false;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cublasLtMatmulHeuristicResult_t checked;
        if (!set_rows(c, p, rows[i]) ||
            cublasLtMatmulAlgoCheck(c->lt, p->product, p->w, p->x, p->y, p->y, algo, &checked) !=
                CUBLAS_STATUS_SUCCESS ||
            checked.workspaceSize > COUNTER_BYTES) {
            return false;
        }
    }
    return true;
}

/* ---- whether a row's bits depend on the rows beside it ---- */

typedef struct trial {
    const be_weight *w;
    const cublasLtMatmulAlgo_t *algorithm;
    const char *x;
} trial;

/* Multiplies rows first ... first + n - 1 of the trial's x by the first rows of the weights, into
 * y. */
static bool try_rows(cuda_backend *c, const cuda_product *p, const trial *t, int64_t first,
                     int64_t n, float *y) {
    const float one = 1, zero = 0;
    const size_t row = (size_t)p->cols * (p->bf16 ? sizeof(uint16_t) : sizeof(float));
    return set_rows(c, p, n) &&
           cublasLtMatmul(c->lt, p->product, &one, t->w->data, p->w, t->x + (size_t)first * row,
                          p->x, &zero, y, p->y, y, p->y, t->algorithm, c->workspace.data,
                          COUNTER_BYTES, c->stream) == CUBLAS_STATUS_SUCCESS;
}

/* Whether rows get the same bits in calls of one tile, of some tiles, and of as many as there is
 * room for, up to MANY_ROWS. It works in cublasLt's workspace, of which such a kernel itself gets
 * only the first bytes; x is the weights themselves, repeated. It waits for the device, once for
 * each shape. */
static bool rows_alike(cuda_backend *c, const cuda_product *p, const be_weight *w,
                       const cublasLtMatmulAlgo_t *algorithm) {
    const size_t x_row = (size_t)p->cols * (p->bf16 ? sizeof(uint16_t) : sizeof(float)),
                 y_row = (size_t)p->stride * sizeof(float),
                 beside = COUNTER_BYTES + SOME_ROWS * y_row + sizeof(uint32_t),
                 room = c->workspace.bytes > beside ? c->workspace.bytes - beside : 0,
                 fits = room / (x_row + y_row) / BE_ROW_TILE * BE_ROW_TILE;
    const int64_t n = fits < MANY_ROWS ? (int64_t)fits : MANY_ROWS, rest = n - BE_ROW_TILE;
    const struct {
        int64_t first, n;
    } calls[] = {
        {0, BE_ROW_TILE}, {rest, BE_ROW_TILE}, {BE_ROW_TILE, rest < SOME_ROWS ? rest : SOME_ROWS}};
    const char *what = "trying a product";
    uint32_t differs = 0;
    if (rest <= 0) { return true; }
    char *x = (char *)c->workspace.data + COUNTER_BYTES;
    float *all = (float *)(x + (size_t)n * x_row), *some = all + n * p->stride;
    uint32_t *found = (uint32_t *)(some + SOME_ROWS * p->stride);
    const trial t = {w, algorithm, x};
    for (int64_t row = 0, part; row < n; row += part) {
        part = n - row < w->m.rows ? n - row : w->m.rows;
        if (!cuda_ok(c,
                     cudaMemcpyAsync(x + (size_t)row * x_row, w->data, (size_t)part * x_row,
                                     cudaMemcpyDeviceToDevice, c->stream),
                     what)) {
            return false;
        }
    }
    if (!cuda_ok(c, cudaMemsetAsync(found, 0, sizeof *found, c->stream), what) ||
        !try_rows(c, p, &t, 0, n, all)) {
        return false;
    }
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (!try_rows(c, p, &t, calls[i].first, calls[i].n, some)) { return false; }
        cuda_rows_differ(c->stream, all + calls[i].first * p->stride, some, calls[i].n, p->n_out,
                         p->stride, found);
    }
    return cuda_check(c, what) &&
           cuda_ok(
               c,
               cudaMemcpyAsync(&differs, found, sizeof differs, cudaMemcpyDeviceToHost, c->stream),
               what) &&
           cuda_ok(c, cudaStreamSynchronize(c->stream), what) && !differs;
}

#define CANDIDATES 16

static bool choose_kernel(cuda_backend *c, cuda_product *p, const be_weight *w) {
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int n = 0, i = 0;
    if (!blas_ok(c, cublasLtMatmulPreferenceCreate(&preference), "choosing a kernel")) {
        return false;
    }
    const bool asked =
        prefer(c, p, preference) &&
        blas_ok(c,
                cublasLtMatmulAlgoGetHeuristic(c->lt, p->product, p->w, p->x, p->y, p->y,
                                               preference, CANDIDATES, found, &n),
                "no kernel for a product");
    cublasLtMatmulPreferenceDestroy(preference);
    if (!asked) { return false; }
    while (i < n && !cuda_failed(c) &&
           (found[i].state != CUBLAS_STATUS_SUCCESS ||
            (!p->few &&
             !(takes_any_rows(c, p, &found[i].algo) && rows_alike(c, p, w, &found[i].algo))))) {
        i++;
    }
    if (cuda_failed(c)) { return false; }
    if (i == n) {
        ckvc_fail(&c->failure, CKVC_E_DEVICE,
                  "%s: cublasLt has no kernel of one order of sums for a product with weights "
                  "[%lld][%lld]",
                  c->base.kernel, (long long)p->n_out, (long long)p->cols);
        return false;
    }
    p->algorithm = found[i].algo;
    return true;
}

static const cuda_product *product_of(cuda_backend *c, const cuda_call *call) {
    cuda_product wanted = {.n_out = call->n_out,
                           .cols = call->w->stride,
                           .stride = call->stride,
                           .bf16 = call->w->bf16,
                           .few = call->few};
    for (size_t i = 0; i < c->n_products; i++) {
        const cuda_product *p = &c->products[i];
        if (p->n_out == wanted.n_out && p->cols == wanted.cols && p->stride == wanted.stride &&
            p->bf16 == wanted.bf16 && p->few == wanted.few) {
            return p;
        }
    }
    if (!describe_product(c, &wanted) || !choose_kernel(c, &wanted, call->w)) {
        product_fini(&wanted);
        return NULL;
    }
    CKVC_GROW(c->products, c->cap_products, c->n_products + 1);
    c->products[c->n_products] = wanted;
    return &c->products[c->n_products++];
}

/* ---- rows in bf16 ---- */

uint16_t *cuda_half_buffer(cuda_backend *c, const float *y, int64_t n_rows, int64_t cols,
                           int64_t *stride) {
    const int64_t padded = be_padded_rows(n_rows);
    *stride = (cols + 7) / 8 * 8;
    c->half_of = NULL;
    if (!c->bf16 ||
        !cuda_grow(c, &c->half, (size_t)(padded * *stride) * sizeof(uint16_t), "rows in bf16")) {
        return NULL;
    }
    c->half_of = y;
    c->half_n = (size_t)(padded * cols);
    c->half_cols = cols;
    return c->half.data;
}

/* The bf16 values of n_rows rows of x, whole tiles: those that the kernel before has left, or new
 * ones. */
static const uint16_t *half_rows(cuda_backend *c, const float *x, int64_t n_rows, int64_t cols) {
    if (c->half_of == x && c->half_cols == cols && c->half_n >= (size_t)(n_rows * cols)) {
        return c->half.data;
    }
    cuda_half half = {.padded = n_rows};
    half.to = cuda_half_buffer(c, x, n_rows, cols, &half.stride);
    if (half.to) { cuda_to_bf16(c->stream, x, n_rows, cols, &half); }
    return half.to;
}

/* ---- the product ---- */

bool cuda_multiply(cuda_backend *c, const cuda_call *call) {
    const be_weight *w = call->w;
    const cuda_product *p = product_of(c, call);
    const float one = 1, onto = call->add ? 1 : 0;
    assert(call->rows % BE_ROW_TILE == 0 && (!call->few || call->rows == BE_ROW_TILE));
    if (!p) { return false; }
    const void *x = w->bf16 ? (const void *)half_rows(c, call->x, call->rows, w->m.cols) : call->x;
    if (!x || !set_rows(c, p, call->rows)) { return false; }
    const size_t workspace = call->few ? c->workspace.bytes : COUNTER_BYTES;
    const char *weights = (const char *)w->data + (size_t)(call->first * w->stride) *
                                                      (w->bf16 ? sizeof(uint16_t) : sizeof(float));
    return blas_ok(c,
                   cublasLtMatmul(c->lt, p->product, &one, weights, p->w, x, p->x, &onto, call->y,
                                  p->y, call->y, p->y, &p->algorithm, c->workspace.data, workspace,
                                  c->stream),
                   "a product");
}

void cuda_matmul(backend *be, const be_weight *w, const be_weight *bias, const be_buf *x,
                 const be_product_rows *rows, bool add, be_buf *y) {
    cuda_backend *c = cuda_of(be);
    const int64_t padded = be_padded_rows(rows->n);
    if (cuda_failed(c) || rows->n == 0) { return; }
    assert(w->data && (!bias || (bias->data && bias->m.rows * bias->m.cols == w->m.rows)));
    assert((size_t)(padded * w->m.cols) <= x->n && (size_t)(padded * w->m.rows) <= y->n);
    float *to = cuda_written(c, y);
    if (bias) { cuda_bias_rows(c->stream, bias->data, padded, w->m.rows, add, to); }
    if (cuda_multiply(c, &(cuda_call){.w = w,
                                      .n_out = w->m.rows,
                                      .x = x->data,
                                      .rows = padded,
                                      .few = cuda_few(x, w->m.cols),
                                      .add = add || bias,
                                      .y = to,
                                      .stride = w->m.rows})) {
        cuda_check(c, "a product with weights");
    }
}
