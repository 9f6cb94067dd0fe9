/* Creates and destroys the CUDA backend; its buffers, memory and arguments, and its first error. */
#include "lib/backend/cuda/cuda_backend.h"

#include <assert.h>
#include <stdio.h>

#include "lib/backend/cuda/cuda.h"

#define WORKSPACE_BYTES ((size_t)64 << 20)

static size_t scratch_of(const cuda_backend *c, const be_attention_shape *s,
                         const be_extent *most) {
    const size_t attention = cuda_attention_scratch(c, s, most), head = cuda_head_scratch(c, most);
    return attention > head ? attention : head;
}

/* The bytes of bf16 rows, each a multiple of 16. */
static size_t half_of(const cuda_backend *c, const be_extent *most) {
    return c->bf16 ? most->product_values * sizeof(uint16_t) : 0;
}

void cuda_reserve(backend *be, const be_attention_shape *s, const double *inv_freq,
                  const be_extent *most) {
    cuda_backend *c = cuda_of(be);
    cuda_scratch(c, scratch_of(c, s, most));
    if (cuda_grow(c, &c->half, half_of(c, most), "rows in bf16")) {
        cuda_angles(c, inv_freq, s->head_dim / 2, most->n_prompt + most->n_rows);
    }
}

size_t cuda_scratch_bytes(const backend *be, const be_attention_shape *s, const be_extent *most) {
    const cuda_backend *c = (const cuda_backend *)be;
    const size_t angles = (size_t)((most->n_prompt + most->n_rows) * s->head_dim) * sizeof(float);
    return scratch_of(c, s, most) + half_of(c, most) + angles + WORKSPACE_BYTES;
}

/* ---- creating and destroying ---- */

void cuda_destroy(backend *be) {
    cuda_backend *c = cuda_of(be);
    if (c->stream) { cudaStreamSynchronize(c->stream); }
    cuda_staging_free(c);
    cuda_products_free(c);
    cuda_memory *const all[] = {&c->workspace, &c->scratch, &c->half, &c->rope.angles};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cuda_free(c, all[i]->data, all[i]->bytes);
    }
    if (c->upload.data) { cudaFreeHost(c->upload.data); }
    for (int i = 0; i < 2; i++) {
        if (c->uploaded[i]) { cudaEventDestroy(c->uploaded[i]); }
    }
    if (c->lt) { cublasLtDestroy(c->lt); }
    if (c->stream) { cudaStreamDestroy(c->stream); }
    assert(c->n_weights == 0);
    CKVC_FREE(c->weights, c->rope.inv_freq, c);
}

#define OPERATION(name) .name = cuda_##name,
static const backend_ops ops = {.name = "cuda", CUDA_OPERATIONS(OPERATION)};

/* Finds the first device, or says what is missing. It is normal for a machine to have nvcc and no
 * device. */
static ckvc_status find_device(struct cudaDeviceProp *p, ckvc_err *err) {
    int n = 0, driver = 0;
    const cudaError_t st = cudaGetDeviceCount(&n);
    cudaGetLastError();
    if (st != cudaSuccess || n == 0) {
        CKVC_FAIL_IF(cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0, err,
                     CKVC_E_DEVICE,
                     "backend cuda: no NVIDIA driver answers; install it, or use --backend cpu");
        return ckvc_fail(err, CKVC_E_DEVICE,
                         "backend cuda: no device (%s; driver for CUDA %d.%d, built with %d.%d); "
                         "see nvidia-smi and CUDA_VISIBLE_DEVICES, or use --backend cpu",
                         cudaGetErrorString(st), driver / 1000, driver % 1000 / 10,
                         CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    }
    const cudaError_t seen = cudaGetDeviceProperties(p, 0);
    CKVC_FAIL_IF(seen != cudaSuccess, err, CKVC_E_DEVICE, "backend cuda: device 0: %s",
                 cudaGetErrorString(seen));
    CKVC_FAIL_IF(p->major < 8, err, CKVC_E_DEVICE,
                 "backend cuda: %s has compute capability %d.%d, need at least 8.0; use --backend "
                 "cpu",
                 p->name, p->major, p->minor);
    return CKVC_OK;
}

void cuda_device_text(char *text, size_t n) {
    struct cudaDeviceProp p;
    ckvc_err err = {0};
    if (find_device(&p, &err) != CKVC_OK) {
        snprintf(text, n, "%s", err.text);
    } else {
        snprintf(text, n, "%s, sm_%d%d, %.0f GB", p.name, p.major, p.minor,
                 (double)p.totalGlobalMem / 1e9);
    }
}

/* The part of the free memory that we use. The rest is for the driver, and for what cublasLt
 * loads. */
static size_t usable_bytes(size_t left) { return left - left / 32; }

static bool open_device(cuda_backend *c) {
    size_t left = 0, all = 0;
    const char *what = "opening the device";
    if (!cuda_ok(c, cudaSetDevice(0), what) || !cuda_ok(c, cudaMemGetInfo(&left, &all), what) ||
        !cuda_ok(c, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), what) ||
        !cuda_ok(c, cudaMallocHost(&c->upload.data, 2 * CUDA_UPLOAD), what)) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        if (!cuda_ok(c, cudaEventCreateWithFlags(&c->uploaded[i], cudaEventDisableTiming), what)) {
            return false;
        }
    }
    c->base.memory_bytes = c->bytes_max = usable_bytes(left);
    /* 128 x 256 values for each multiprocessor: with 4,096 columns this fills 128 of them, with
     * 14,336 columns 448 */
    c->base.fill_rows = 1024;
    /* 2 bytes of a value at 50 GB/s, divided by 2 operations at 700 TFLOP/s */
    c->base.copy_rows = 14000;
    const cublasStatus_t st = cublasLtCreate(&c->lt);
    if (st != CUBLAS_STATUS_SUCCESS) {
        ckvc_fail(&c->failure, CKVC_E_DEVICE, "%s: cublasLt does not start (status %d)",
                  c->base.kernel, (int)st);
        return false;
    }
    cuda_products_reserve(c);
    return cuda_grow(c, &c->workspace, WORKSPACE_BYTES, "cublasLt's workspace") &&
           cuda_staging_create(c);
}

ckvc_status cuda_backend_create(ckvc_compute compute, ckvc_pool *pool, backend **out,
                                ckvc_err *err) {
    struct cudaDeviceProp p;
    *out = NULL;
    CKVC_TRY(find_device(&p, err));
    cuda_backend *c = ckvc_calloc(1, sizeof *c);
    c->base.ops = &ops;
    c->base.pool = pool;
    c->base.compute = compute;
    c->bf16 = compute == CKVC_COMPUTE_BF16;
    c->base.value_bytes = c->bf16 ? sizeof(uint16_t) : sizeof(float);
    snprintf(c->base.kernel, sizeof c->base.kernel, "cuda/%.80s sm_%d%d cublasLt-%zu%s", p.name,
             p.major, p.minor, cublasLtGetVersion(), c->bf16 ? "+bf16" : "");
    if (!open_device(c)) {
        const ckvc_status st = cuda_sync(&c->base, err);
        cuda_destroy(&c->base);
        return st;
    }
    *out = &c->base;
    return CKVC_OK;
}
