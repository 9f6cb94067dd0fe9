/* oneDNN by dlopen: see cpu_onednn.h. Debian 12 has version 2 of its C interface; version 3 changed
 * it and goes by another file name. */
#include "lib/backend/cpu/cpu_onednn.h"

#ifndef CKVC_ONEDNN

const onednn_api *onednn_get(void) {
    return NULL;
}

#else

#include <dlfcn.h>
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"

/* The functions in use. */
#define FUNCTIONS(X)                                                                               \
    X(dnnl_version)                                                                                \
    X(dnnl_get_effective_cpu_isa)                                                                  \
    X(dnnl_engine_create)                                                                          \
    X(dnnl_engine_destroy)                                                                         \
    X(dnnl_stream_create)                                                                          \
    X(dnnl_stream_destroy)                                                                         \
    X(dnnl_stream_wait)                                                                            \
    X(dnnl_memory_desc_init_by_strides)                                                            \
    X(dnnl_memory_desc_init_by_tag)                                                                \
    X(dnnl_memory_desc_get_size)                                                                   \
    X(dnnl_memory_create)                                                                          \
    X(dnnl_memory_destroy)                                                                         \
    X(dnnl_matmul_desc_init)                                                                       \
    X(dnnl_reorder_primitive_desc_create)                                                          \
    X(dnnl_primitive_desc_create)                                                                  \
    X(dnnl_primitive_desc_query_md)                                                                \
    X(dnnl_primitive_desc_destroy)                                                                 \
    X(dnnl_primitive_create)                                                                       \
    X(dnnl_primitive_destroy)                                                                      \
    X(dnnl_primitive_execute)

typedef struct functions {
#define X(name) __typeof__(&name) name;
    FUNCTIONS(X)
#undef X
    void (*omp_set_num_threads)(int); /* NULL where oneDNN was built without OpenMP */
} functions;

struct onednn {
    void *library;
    functions f;
    dnnl_engine_t engine;
    dnnl_stream_t *streams; /* [n_workers] */
    int n_workers;
    bool bf16;
    char name[64];
};

typedef struct worker_buffers {
    void *x, *w;
    float *y;
    dnnl_memory_t x_memory, w_memory, y_memory;
} worker_buffers;

struct onednn_shape {
    onednn *d;
    int64_t rows, n, k;
    size_t element, packed_bytes;
    dnnl_memory_desc_t packed;
    dnnl_primitive_t product, reorder;
    worker_buffers *workers; /* [n_workers] */
};

/* oneDNN's own threads stay out of it: every thread that calls it says so for itself, OpenMP keeps
 * the number per thread. */
static void alone(const onednn *d) {
    if (d->f.omp_set_num_threads) { d->f.omp_set_num_threads(1); }
}

static bool load(onednn *d, const char **why) {
    d->library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (d->library == NULL) {
        *why = "oneDNN is not installed (libdnnl.so.2, Debian package libdnnl2)";
        return false;
    }
    bool all = true;
#define X(function)                                                                                \
    {                                                                                              \
        void *symbol = dlsym(d->library, #function);                                               \
        memcpy(&d->f.function, &symbol, sizeof symbol);                                            \
        all = all && symbol != NULL;                                                               \
    }
    FUNCTIONS(X)
#undef X
    void *symbol =
        dlsym(d->library, "omp_set_num_threads"); /* in the libraries that it was linked with */
    memcpy(&d->f.omp_set_num_threads, &symbol, sizeof symbol);
    if (!all) { *why = "libdnnl.so.2 lacks a function that ckvc calls"; }
    return all;
}

static const char *isa_name(dnnl_cpu_isa_t isa) {
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } names[] = {{dnnl_cpu_isa_avx512_core_amx, "amx"},
                 {dnnl_cpu_isa_avx512_core_bf16, "avx512_bf16"},
                 {dnnl_cpu_isa_avx512_core, "avx512"},
                 {dnnl_cpu_isa_avx2, "avx2"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (((unsigned)isa & (unsigned)names[i].isa) == (unsigned)names[i].isa) {
            return names[i].name;
        }
    }
    return "sse";
}

static void close_library(onednn *d) {
    if (d == NULL) { return; }
    for (int i = 0; d->streams && i < d->n_workers; i++) {
        if (d->streams[i]) { d->f.dnnl_stream_destroy(d->streams[i]); }
    }
    free(d->streams);
    if (d->engine) { d->f.dnnl_engine_destroy(d->engine); }
    /* The library stays loaded: OpenMP's threads cannot be taken down with it. */
    free(d);
}

static onednn *open_library(int n_workers, const char **why) {
    *why = "no memory for oneDNN";
    onednn *d = ckvc_calloc(1, sizeof *d);
    if (d == NULL) { return NULL; }
    d->n_workers = n_workers;
    if (!load(d, why)) { goto failed; }
    alone(d);
    *why = "oneDNN does not start";
    d->streams = ckvc_calloc((size_t)n_workers, sizeof *d->streams);
    if (d->streams == NULL || d->f.dnnl_engine_create(&d->engine, dnnl_cpu, 0) != dnnl_success) {
        goto failed;
    }
    for (int i = 0; i < n_workers; i++) {
        if (d->f.dnnl_stream_create(&d->streams[i], d->engine, dnnl_stream_in_order) !=
            dnnl_success) {
            goto failed;
        }
    }
    const dnnl_cpu_isa_t isa = d->f.dnnl_get_effective_cpu_isa();
    const dnnl_version_t *version = d->f.dnnl_version();
    d->bf16 = ((unsigned)isa & (unsigned)dnnl_cpu_isa_avx512_core_bf16) ==
              (unsigned)dnnl_cpu_isa_avx512_core_bf16;
    snprintf(d->name, sizeof d->name, "oneDNN-%d.%d.%d-%s", version->major, version->minor,
             version->patch, isa_name(isa));
    return d;
failed:
    close_library(d);
    return NULL;
}

static bool has_bf16(const onednn *d) {
    return d->bf16;
}

static const char *name_of(const onednn *d) {
    return d->name;
}

static dnnl_status_t describe(onednn_shape *s, bool bf16) {
    const functions *f = &s->d->f;
    const dnnl_data_type_t type = bf16 ? dnnl_bf16 : dnnl_f32;
    const dnnl_dims_t x_dims = {s->rows, s->k}, w_dims = {s->k, s->n}, y_dims = {s->rows, s->n},
                      w_strides = {1, s->k};
    dnnl_memory_desc_t x, any, plain, y;
    dnnl_matmul_desc_t op;
    dnnl_primitive_desc_t pd = NULL, reorder = NULL;
    dnnl_status_t st = f->dnnl_memory_desc_init_by_tag(&x, 2, x_dims, type, dnnl_ab);
    st = st ? st : f->dnnl_memory_desc_init_by_tag(&any, 2, w_dims, type, dnnl_format_tag_any);
    st = st ? st : f->dnnl_memory_desc_init_by_strides(&plain, 2, w_dims, type, w_strides);
    st = st ? st : f->dnnl_memory_desc_init_by_tag(&y, 2, y_dims, dnnl_f32, dnnl_ab);
    st = st ? st : f->dnnl_matmul_desc_init(&op, &x, &any, NULL, &y);
    st = st ? st : f->dnnl_primitive_desc_create(&pd, &op, NULL, s->d->engine, NULL);
    if (st == dnnl_success) {
        s->packed = *f->dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
        s->packed_bytes = f->dnnl_memory_desc_get_size(&s->packed);
    }
    st = st ? st : f->dnnl_primitive_create(&s->product, pd);
    st = st ? st
            : f->dnnl_reorder_primitive_desc_create(&reorder, &plain, s->d->engine, &s->packed,
                                                    s->d->engine, NULL);
    st = st ? st : f->dnnl_primitive_create(&s->reorder, reorder);
    for (int i = 0; st == dnnl_success && i < s->d->n_workers; i++) {
        worker_buffers *b = &s->workers[i];
        st = f->dnnl_memory_create(&b->x_memory, &x, s->d->engine, b->x);
        st = st ? st : f->dnnl_memory_create(&b->w_memory, &plain, s->d->engine, b->w);
        st = st ? st : f->dnnl_memory_create(&b->y_memory, &y, s->d->engine, b->y);
    }
    if (pd) { f->dnnl_primitive_desc_destroy(pd); }
    if (reorder) { f->dnnl_primitive_desc_destroy(reorder); }
    return st;
}

static void shape_free(onednn_shape *s) {
    if (s == NULL) { return; }
    const functions *f = &s->d->f;
    for (int i = 0; s->workers && i < s->d->n_workers; i++) {
        worker_buffers *b = &s->workers[i];
        dnnl_memory_t memories[] = {b->x_memory, b->w_memory, b->y_memory};
        for (int k = 0; k < 3; k++) {
            if (memories[k]) { f->dnnl_memory_destroy(memories[k]); }
        }
        free(b->x);
        free(b->w);
        free(b->y);
    }
    free(s->workers);
    if (s->product) { f->dnnl_primitive_destroy(s->product); }
    if (s->reorder) { f->dnnl_primitive_destroy(s->reorder); }
    free(s);
}

static ckvc_status shape_create(onednn *d, bool bf16, int64_t rows, int64_t n, int64_t k,
                                onednn_shape **out, ckvc_err *err) {
    *out = NULL;
    onednn_shape *s = ckvc_calloc(1, sizeof *s);
    *s = (onednn_shape){
        .d = d, .rows = rows, .n = n, .k = k, .element = bf16 ? sizeof(uint16_t) : sizeof(float)};
    s->workers = ckvc_calloc((size_t)d->n_workers, sizeof *s->workers);
    bool all = s->workers != NULL;
    for (int i = 0; all && i < d->n_workers; i++) {
        worker_buffers *b = &s->workers[i];
        b->x = ckvc_alloc_aligned((size_t)(rows * k), s->element);
        b->w = ckvc_alloc_aligned((size_t)(n * k), s->element);
        b->y = ckvc_alloc_aligned((size_t)(rows * n), sizeof *b->y);
        all = b->x && b->w && b->y;
    }
    if (!all) {
        shape_free(s);
        return ckvc_fail_memory(err, "a matrix product's buffers",
                                (size_t)(rows * k + n * k) * sizeof(float));
    }
    alone(d);
    const dnnl_status_t st = describe(s, bf16);
    if (st != dnnl_success) {
        shape_free(s);
        return ckvc_fail(err, CKVC_E_DEVICE,
                         "%s has no product of %lld x %lld with %lld x %lld in %s (status %d); use "
                         "--compute f32",
                         d->name, (long long)rows, (long long)k, (long long)n, (long long)k,
                         bf16 ? "bf16" : "f32", (int)st);
    }
    *out = s;
    return CKVC_OK;
}

static size_t packed_bytes(const onednn_shape *s) {
    return s->packed_bytes;
}

static size_t buffer_bytes(const onednn_shape *s) {
    return (size_t)s->d->n_workers * ((size_t)((s->rows + s->n) * s->k) * s->element +
                                      (size_t)(s->rows * s->n) * sizeof(float));
}

static void *buffer_x(const onednn_shape *s, int worker) {
    return s->workers[worker].x;
}

static void *buffer_w(const onednn_shape *s, int worker) {
    return s->workers[worker].w;
}

static const float *buffer_y(const onednn_shape *s, int worker) {
    return s->workers[worker].y;
}

static void *pack(const onednn_shape *s, int worker, void *packed) {
    const functions *f = &s->d->f;
    dnnl_memory_t memory = NULL;
    alone(s->d);
    if (f->dnnl_memory_create(&memory, &s->packed, s->d->engine, packed) != dnnl_success) {
        return NULL;
    }
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, s->workers[worker].w_memory},
                                    {DNNL_ARG_TO, memory}};
    if (f->dnnl_primitive_execute(s->reorder, s->d->streams[worker], 2, args) != dnnl_success ||
        f->dnnl_stream_wait(s->d->streams[worker]) != dnnl_success) {
        f->dnnl_memory_destroy(memory);
        return NULL;
    }
    return memory;
}

static void unpack(onednn *d, void *handle) {
    if (handle) { d->f.dnnl_memory_destroy(handle); }
}

static bool run(const onednn_shape *s, int worker, void *handle) {
    const functions *f = &s->d->f;
    const worker_buffers *b = &s->workers[worker];
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, b->x_memory}, {DNNL_ARG_WEIGHTS, handle}, {DNNL_ARG_DST, b->y_memory}};
    alone(s->d);
    return f->dnnl_primitive_execute(s->product, s->d->streams[worker], 3, args) == dnnl_success &&
           f->dnnl_stream_wait(s->d->streams[worker]) == dnnl_success;
}

const onednn_api *onednn_get(void) {
    static const onednn_api api = {.open = open_library,
                                   .close = close_library,
                                   .has_bf16 = has_bf16,
                                   .name = name_of,
                                   .shape_create = shape_create,
                                   .shape_free = shape_free,
                                   .packed_bytes = packed_bytes,
                                   .buffer_bytes = buffer_bytes,
                                   .x = buffer_x,
                                   .w = buffer_w,
                                   .y = buffer_y,
                                   .pack = pack,
                                   .unpack = unpack,
                                   .run = run};
    return &api;
}

#endif
