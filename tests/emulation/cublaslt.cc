/* D = alpha A^T B + beta C in columns, the one product that lib/backend/cuda asks for: A [k][m] and
 * B [k][n] in bf16 or float32, C and D [m][n] in float32. Three algorithms, as the real one has
 * many: a sum in two halves; one that says that it has one chain and splits it for more than a tile
 * of rows, as kernels might that share out tiles to multiprocessors; and one chain over k. What the
 * real one would refuse, or read past, ends the process. */
#include <algorithm>
#include <cublasLt.h>
#include <vector>

#include "device_memory.h"
#include "emulation.h"

struct cublasLtContext {};
struct cublasLtProduct {
    cublasOperation_t trans[2];
};
struct cublasLtLayout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t leading;
};
struct cublasLtPreference {
    uint64_t workspace;
    uint32_t reductions, alignment[4]; /* of A, B, C, D */
};

namespace {
/* What an algorithm's bytes mean here; `split` lies first. */
struct algorithm {
    uint32_t split, by_rows, alignment[4];
    uint64_t k;
};
enum { TILE = 64 };
algorithm meaning(const cublasLtMatmulAlgo_t *a) {
    algorithm m;
    memcpy(&m, a, sizeof m);
    return m;
}
template <class T> cublasStatus_t take(T *to, const void *value, size_t n) {
    if (n != sizeof *to) { return CUBLAS_STATUS_INVALID_VALUE; }
    memcpy(to, value, n);
    return CUBLAS_STATUS_SUCCESS;
}
/* Parts of split sums, or the counter of tiles that Hopper's kernels keep from some size on. */
size_t workspace_of(uint32_t split, cublasLtMatrixLayout_t d) {
    return split > 1 ? d->rows * d->cols * split * sizeof(float) : d->cols > 4 * TILE ? 4 : 0;
}
size_t size_of(cudaDataType_t type) { return type == CUDA_R_16BF ? 2 : 4; }

bool fits(CUBLASLT_PRODUCT) {
    for (cublasLtMatrixLayout_t l : {a, b, c, d}) {
        if (!l->rows || !l->cols || l->leading < (int64_t)l->rows) { return false; }
    }
    return desc->trans[0] == CUBLAS_OP_T && desc->trans[1] == CUBLAS_OP_N && a->type == b->type &&
           c->type == CUDA_R_32F && d->type == CUDA_R_32F && a->rows == b->rows &&
           a->cols == d->rows && b->cols == d->cols && c->rows == d->rows && c->cols == d->cols;
}

void check(char name, const void *p, const cublasLtLayout *l, uint32_t alignment) {
    const size_t size = size_of(l->type);
    const size_t span = ((l->cols - 1) * (uint64_t)l->leading + l->rows) * size;
    if ((uintptr_t)p % alignment || (alignment > size && l->leading * size % alignment)) {
        emulation::stop("cublasLtMatmul: %c at %p is not aligned to %u bytes", name, p, alignment);
    }
    if (!emulation::in_device_memory(p, span)) {
        emulation::stop("cublasLtMatmul: %c at %p, %zu bytes, is not within one allocation", name,
                        p, span);
    }
}

float value(const void *p, cudaDataType_t type, size_t i) {
    return type == CUDA_R_16BF ? float_of_bits((uint32_t)((const uint16_t *)p)[i] << 16)
                               : ((const float *)p)[i];
}

enum { AT_ONCE = 16 };
/* sum[i] += a[k][i] x[k], k in order */
__attribute__((target_clones("avx2", "default"))) void chains(float sum[AT_ONCE], const float *a,
                                                              const float *x, size_t n) {
    float s[AT_ONCE] = {0};
    for (size_t k = 0; k < n; k++) {
        for (int i = 0; i < AT_ONCE; i++) { s[i] += a[k * AT_ONCE + i] * x[k]; }
    }
    for (int i = 0; i < AT_ONCE; i++) { sum[i] += s[i]; }
}

void multiply(const cublasLtLayout &la, const void *from_a, const cublasLtLayout &lb,
              const void *from_b, const cublasLtLayout &ld, const float *from_c, float *to,
              float alpha, float beta, uint32_t split) {
    const size_t m = la.cols, n = lb.cols, k = la.rows, part = (k + split - 1) / split;
    std::vector<float> a(k * AT_ONCE), b(n * k);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < k; i++) {
            b[j * k + i] = value(from_b, lb.type, j * (size_t)lb.leading + i);
        }
    }
    for (size_t first = 0; first < m; first += AT_ONCE) {
        const size_t width = std::min<size_t>(AT_ONCE, m - first);
        for (size_t c = 0; c < AT_ONCE; c++) {
            for (size_t i = 0; i < k; i++) {
                const size_t at = (first + c) * (size_t)la.leading + i;
                a[i * AT_ONCE + c] = c < width ? value(from_a, la.type, at) : 0;
            }
        }
        for (size_t j = 0; j < n; j++) {
            float sum[AT_ONCE] = {0};
            for (size_t i = 0; i < k; i += part) {
                chains(sum, &a[i * AT_ONCE], &b[j * k + i], std::min(part, k - i));
            }
            for (size_t c = 0; c < width; c++) {
                const size_t at = j * (size_t)ld.leading + first + c;
                to[at] = alpha * sum[c] + (beta == 0 ? 0 : beta * from_c[at]);
            }
        }
    }
}
} // namespace

size_t cublasLtGetVersion(void) { return 0; }
#define DESTROY(name, type)                                                                        \
    cublasStatus_t name(type thing) { return delete thing, CUBLAS_STATUS_SUCCESS; }
DESTROY(cublasLtDestroy, cublasLtHandle_t)
DESTROY(cublasLtMatmulDescDestroy, cublasLtMatmulDesc_t)
DESTROY(cublasLtMatrixLayoutDestroy, cublasLtMatrixLayout_t)
DESTROY(cublasLtMatmulPreferenceDestroy, cublasLtMatmulPreference_t)
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    return *handle = new cublasLtContext(), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    *desc = new cublasLtProduct();
    return compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS
                                                                : CUBLAS_STATUS_NOT_SUPPORTED;
}
CUBLASLT_SET(cublasLtMatmulDesc, Attributes_t) {
    return take(&of->trans[name == CUBLASLT_MATMUL_DESC_TRANSB], value, n);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t cols, int64_t leading) {
    return *layout = new cublasLtLayout{type, rows, cols, leading}, CUBLAS_STATUS_SUCCESS;
}
CUBLASLT_SET(cublasLtMatrixLayout, Attribute_t) {
    return take(name == CUBLASLT_MATRIX_LAYOUT_ROWS ? &of->rows : &of->cols, value, n);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    *preference = new cublasLtPreference{0, UINT32_MAX, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}
CUBLASLT_SET(cublasLtMatmulPreference, Attributes_t) {
    switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return take(&of->workspace, value, n);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return take(&of->reductions, value, n);
    default:
        return take(&of->alignment[name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, n);
    }
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t name,
                                                    void *value, size_t n, size_t *) {
    const bool known = name == CUBLASLT_ALGO_CONFIG_SPLITK_NUM;
    return known ? take((uint32_t *)value, &algo->data, n) : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, CUBLASLT_PRODUCT,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *found, int *n) {
    *n = 0;
    if (!fits(desc, a, b, c, d)) { return CUBLAS_STATUS_NOT_SUPPORTED; }
    for (uint32_t i = 0; i < 3 && *n < wanted; i++) {
        const bool splits = i == 0;
        algorithm m = {splits ? 2u : 1u, i == 1, {}, a->rows};
        const size_t workspace = workspace_of(m.split, d);
        if ((splits && !(preference->reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) ||
            workspace > preference->workspace) {
            continue;
        }
        memcpy(m.alignment, preference->alignment, sizeof m.alignment);
        found[*n] = {};
        memcpy(&found[*n].algo, &m, sizeof m);
        found[(*n)++].workspaceSize = workspace;
    }
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, CUBLASLT_PRODUCT,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result) {
    const algorithm m = meaning(algo);
    *result = {};
    result->workspaceSize = workspace_of(m.split, d);
    return m.split && m.k == a->rows && fits(desc, a, b, c, d) ? CUBLAS_STATUS_SUCCESS
                                                               : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t layout_a, const void *b,
                              cublasLtMatrixLayout_t layout_b, const void *beta, const void *c,
                              cublasLtMatrixLayout_t layout_c, void *d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream) {
    cublasLtMatmulHeuristicResult_t checked;
    if (cublasLtMatmulAlgoCheck(handle, desc, layout_a, layout_b, layout_c, layout_d, algo,
                                &checked) != CUBLAS_STATUS_SUCCESS ||
        checked.workspaceSize > workspace_bytes) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    const algorithm m = meaning(algo);
    const void *const from[] = {a, b, c, d};
    const cublasLtLayout *const layouts[] = {layout_a, layout_b, layout_c, layout_d};
    for (int i = 0; i < 4; i++) { check("ABCD"[i], from[i], layouts[i], m.alignment[i]); }
    if (workspace_bytes && !emulation::in_device_memory(workspace, workspace_bytes)) {
        emulation::stop("cublasLtMatmul: the workspace is not device memory");
    }
    const uint32_t split = m.by_rows && layout_b->cols > TILE ? 2 : m.split;
    emulation::enqueue(stream, [=, la = *layout_a, lb = *layout_b, ld = *layout_d,
                                by = *(const float *)alpha, onto = *(const float *)beta] {
        multiply(la, a, lb, b, ld, (const float *)c, (float *)d, by, onto, split);
    });
    return CUBLAS_STATUS_SUCCESS;
}
