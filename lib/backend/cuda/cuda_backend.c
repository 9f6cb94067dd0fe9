/* The CUDA backend: its life, its buffers, memory and arguments, and its first error. */
#include "lib/backend/cuda/cuda_backend.h"

#include <assert.h>
#include <stdio.h>

#include "lib/backend/cuda/cuda.h"
#include "lib/base/sizes.h"

#define WORKSPACE_BYTES ((size_t)64 << 20)

/* ---- failures ---- */

bool cuda_ok(cuda_backend *c, cudaError_t st, const char *what) {
    if (st == cudaSuccess) { return true; }
    cudaGetLastError(); /* or the next launch's check finds it once more */
    ckvc_fail(&c->failure, CKVC_E_DEVICE, "%s: %s: %s (%s)", c->base.kernel, what,
              cudaGetErrorString(st), cudaGetErrorName(st));
    return false;
}

bool cuda_check(cuda_backend *c, const char *what) { return cuda_ok(c, cudaGetLastError(), what); }

ckvc_status cuda_sync(backend *be, ckvc_err *err) {
    cuda_backend *c = cuda_of(be);
    cuda_ok(c, cudaStreamSynchronize(c->stream), "waiting for the device");
    const ckvc_err failure = c->failure;
    if (failure.status == CKVC_OK) { return CKVC_OK; }
    c->failure = (ckvc_err){0};
    return ckvc_fail(err, failure.status, "%s", failure.text);
}

/* ---- memory ---- */

void *cuda_alloc(cuda_backend *c, size_t bytes, const char *what) {
    void *data = NULL;
    if (cuda_failed(c)) { return NULL; }
    while (c->bytes_max && c->bytes_now + bytes > c->bytes_max && cuda_weight_drop(c)) {}
    cudaError_t st;
    while ((st = cudaMalloc(&data, bytes ? bytes : 1)) == cudaErrorMemoryAllocation) {
        cudaGetLastError(); /* it is none yet */
        if (cuda_weight_drop(c)) { continue; }
        size_t left = 0, all = 0;
        cudaMemGetInfo(&left, &all);
        ckvc_fail(&c->failure, CKVC_E_MEMORY,
                  "%s is out of memory: %.1f MB for %s, %.1f of its %.1f MB are free, %.1f are "
                  "ours; lower --max-tokens, use --compute bf16 where it is f32, or end what else "
                  "runs there",
                  c->base.kernel, (double)bytes / 1e6, what, (double)left / 1e6, (double)all / 1e6,
                  (double)c->bytes_now / 1e6);
        return NULL;
    }
    if (!cuda_ok(c, st, what)) { return NULL; }
    c->bytes_now += bytes;
    return data;
}

void cuda_free(cuda_backend *c, void *data, size_t bytes) {
    if (!data) { return; }
    cudaStreamSynchronize(c->stream); /* what is enqueued reads it */
    cudaFree(data);
    c->bytes_now -= bytes;
}

bool cuda_grow(cuda_backend *c, cuda_memory *m, size_t bytes, const char *what) {
    if (bytes <= m->bytes) { return true; }
    cuda_free(c, m->data, m->bytes);
    bytes = (bytes + 65535) / 65536 * 65536;
    m->data = cuda_alloc(c, bytes, what);
    m->bytes = m->data ? bytes : 0;
    return m->data != NULL;
}

void *cuda_scratch(cuda_backend *c, size_t bytes) {
    return cuda_grow(c, &c->scratch, bytes, "scratch") ? c->scratch.data : NULL;
}

static size_t scratch_of(const cuda_backend *c, const be_attention_shape *s,
                         const be_extent *most) {
    const size_t attention = cuda_attention_scratch(c, s, most), head = cuda_head_scratch(c, most);
    return attention > head ? attention : head;
}

/* Their bf16 rows, whole 16 bytes each. */
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

/* ---- buffers ---- */

be_buf *cuda_buf_create(backend *be, size_t n) {
    cuda_backend *c = cuda_of(be);
    be_buf *b = ckvc_calloc(1, sizeof *b);
    if (n == 0) { return b; }
    const size_t bytes = n * sizeof *b->own;
    b->n = b->whole = n;
    b->own = b->data = cuda_alloc(c, bytes, "a buffer");
    if (!b->own) { return b; }
    b->own_n = n;
    cuda_ok(c, cudaMemsetAsync(b->own, 0, bytes, c->stream), "clearing a buffer");
    return b;
}

void cuda_buf_free(backend *be, be_buf *b) {
    if (!b) { return; }
    cuda_written(cuda_of(be), b);
    cuda_free(cuda_of(be), b->own, b->own_n * sizeof *b->own);
    free(b);
}

void cuda_buf_view(backend *be, be_buf *view, const be_buf *of, size_t offset, size_t n) {
    (void)be;
    assert(view->own_n == 0 && ckvc_span_ok(offset, n, of->n));
    view->data = of->data ? of->data + offset : NULL;
    view->n = n;
    view->whole = of->whole;
}

void cuda_write(backend *be, be_buf *dst, size_t offset, const float *src, size_t n) {
    assert(ckvc_span_ok(offset, n, dst->n));
    if (cuda_failed(cuda_of(be))) { return; }
    cuda_upload(cuda_of(be), cuda_written(cuda_of(be), dst) + offset, src, n * sizeof *src);
}

ckvc_status cuda_read(backend *be, const be_buf *src, size_t offset, float *dst, size_t n,
                      ckvc_err *err) {
    assert(ckvc_span_ok(offset, n, src->n));
    const float *from = src->data ? src->data + offset : NULL;
    return cuda_download(cuda_of(be), dst, from, n * sizeof *dst, err);
}

/* ---- between host and device ---- */

void *cuda_upload_begin(cuda_backend *c, size_t bytes) {
    assert(bytes <= CUDA_UPLOAD);
    if (cuda_failed(c)) { return NULL; }
    if (c->upload_at + bytes > CUDA_UPLOAD) {
        const char *what = "copying to the device";
        if (!cuda_ok(c, cudaEventRecord(c->uploaded[c->upload_half], c->stream), what)) {
            return NULL;
        }
        c->upload_half = 1 - c->upload_half;
        c->upload_at = 0;
        if (!cuda_ok(c, cudaEventSynchronize(c->uploaded[c->upload_half]), what)) { return NULL; }
    }
    return (char *)c->upload.data + (size_t)c->upload_half * CUDA_UPLOAD + c->upload_at;
}

void cuda_upload_end(cuda_backend *c, void *to, const void *from, size_t bytes) {
    cuda_ok(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, c->stream),
            "copying to the device");
    c->upload_at += cuda_align(bytes);
}

void cuda_upload(cuda_backend *c, void *to, const void *from, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        const size_t part = bytes - at < CUDA_UPLOAD ? bytes - at : CUDA_UPLOAD;
        void *pinned = cuda_upload_begin(c, part);
        if (!pinned) { return; }
        memcpy(pinned, (const char *)from + at, part);
        cuda_upload_end(c, (char *)to + at, pinned, part);
        at += part;
    }
}

ckvc_status cuda_download(cuda_backend *c, void *to, const void *from, size_t bytes,
                          ckvc_err *err) {
    const char *what = "copying from the device";
    for (size_t at = 0, part; at < bytes; at += part) {
        part = bytes - at < CUDA_UPLOAD ? bytes - at : CUDA_UPLOAD;
        void *pinned = cuda_upload_begin(c, part); /* free again before anybody else asks for it */
        if (!pinned ||
            !cuda_ok(c,
                     cudaMemcpyAsync(pinned, (const char *)from + at, part, cudaMemcpyDeviceToHost,
                                     c->stream),
                     what) ||
            !cuda_ok(c, cudaStreamSynchronize(c->stream), what)) {
            break;
        }
        memcpy((char *)to + at, pinned, part);
    }
    return cuda_sync(&c->base, err);
}

/* ---- life ---- */

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

/* The first device, or what is missing. A machine with nvcc and no device is normal. */
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

/* Of what is free: the rest is for the driver, and for what cublasLt loads. */
static size_t usable(size_t left) { return left - left / 32; }

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
    c->base.memory_bytes = c->bytes_max = usable(left);
    /* 128 x 256 values a multiprocessor: with 4,096 columns these are 128 of them, with 14,336 448
     */
    c->base.fill_rows = 1024;
    c->base.copy_rows = 14000; /* 2 bytes a value at 50 GB/s over 2 operations at 700 TFLOP/s */
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
    c->base.matrix_copy_bytes = c->bf16 ? sizeof(uint16_t) : sizeof(float);
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
