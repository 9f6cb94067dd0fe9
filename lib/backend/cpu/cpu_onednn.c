/* oneDNN by dlopen: see cpu_onednn.h. Debian 12 has version 2 of its C interface; version 3 changed
 * it and goes by another file name. */
#include "lib/backend/cpu/cpu_onednn.h"

#ifdef CKVC_ONEDNN

#include <dlfcn.h>
#include <dnnl.h>
#include <pthread.h>
#include <stdio.h>

/* The functions in use. */
/* clang-format off */
#define FUNCTIONS(X) \
    X(dnnl_version) X(dnnl_get_effective_cpu_isa) X(dnnl_engine_create) X(dnnl_engine_destroy) \
    X(dnnl_stream_create) X(dnnl_stream_destroy) X(dnnl_stream_wait) \
    X(dnnl_memory_desc_init_by_strides) X(dnnl_memory_desc_init_by_tag) \
    X(dnnl_memory_desc_get_size) X(dnnl_memory_create) X(dnnl_memory_destroy) \
    X(dnnl_matmul_desc_init) X(dnnl_primitive_attr_create) X(dnnl_primitive_attr_destroy) \
    X(dnnl_primitive_attr_set_scratchpad_mode) X(dnnl_reorder_primitive_desc_create) \
    X(dnnl_primitive_desc_create) X(dnnl_primitive_desc_query_md) \
    X(dnnl_primitive_desc_destroy) X(dnnl_primitive_create) X(dnnl_primitive_destroy) \
    X(dnnl_primitive_execute)
/* clang-format on */

static struct {
#define X(name) __typeof__(&name) name;
    FUNCTIONS(X)
#undef X
    void (*omp_set_num_threads)(int); /* NULL where oneDNN was built without OpenMP */
    const char *missing;              /* NULL: all of them are there */
} f;

/* The library stays loaded: OpenMP's threads cannot be taken down with it. */
static void load(void) {
    void *library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL), *symbol;
    if (!library) {
        f.missing = "oneDNN is not installed (libdnnl.so.2, Debian package libdnnl2)";
        return;
    }
#define X(function)                                                                                \
    symbol = dlsym(library, #function);                                                            \
    memcpy(&f.function, &symbol, sizeof symbol);                                                   \
    if (!symbol) { f.missing = "libdnnl.so.2 lacks a function that ckvc calls: " #function; }
    FUNCTIONS(X)
#undef X
    symbol = dlsym(library, "omp_set_num_threads"); /* in the libraries that it was linked with */
    memcpy(&f.omp_set_num_threads, &symbol, sizeof symbol);
}

#define DNNL_TRY(step)                                                                             \
    do {                                                                                           \
        const dnnl_status_t try_status = (step);                                                   \
        if (try_status != dnnl_success) { return try_status; }                                     \
    } while (0)

/* A primitive may be executed by several threads at once only if each brings a scratchpad of its
 * own (dnnl_scratchpad_mode_user): the library's is one for the primitive, or for the thread that
 * made it, and executions that share it overwrite each other's partial sums. Both kinds of bf16
 * products (AVX512_BF16, AMX) keep theirs there. */
enum { X_ROWS, W_ROWS, Y_ROWS, PRODUCT_SCRATCH, REORDER_SCRATCH, N_BUFFERS };

typedef struct library {
    onednn door;
    int n_workers;
    dnnl_engine_t engine;
    dnnl_stream_t *streams; /* [n_workers] */
} library;

typedef struct shape {
    onednn_shape door;
    library *d;
    dnnl_memory_desc_t packed, buffer[N_BUFFERS];
    dnnl_primitive_desc_t product_desc, reorder_desc;
    dnnl_primitive_t product, reorder;
    struct {
        void *data[N_BUFFERS];
        dnnl_memory_t memory[N_BUFFERS]; /* NULL: a scratchpad that is not needed */
    } * workers;                         /* [n_workers] */
} shape;

/* oneDNN's own threads stay out of it: every thread that calls it says so for itself, OpenMP keeps
 * the number per thread. */
static void alone(void) {
    if (f.omp_set_num_threads) { f.omp_set_num_threads(1); }
}

/* ---- the library ---- */

static const char *isa_name(dnnl_cpu_isa_t isa) {
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } names[] = {{dnnl_cpu_isa_avx512_core_amx, "amx"},
                 {dnnl_cpu_isa_avx512_core_bf16, "avx512_bf16"},
                 {dnnl_cpu_isa_avx512_core, "avx512"},
                 {dnnl_cpu_isa_avx2, "avx2"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if ((isa & names[i].isa) == names[i].isa) { return names[i].name; }
    }
    return "sse";
}

void onednn_close(onednn *door) {
    library *d = (library *)door;
    if (!d) { return; }
    for (int i = 0; i < d->n_workers; i++) {
        if (d->streams[i]) { f.dnnl_stream_destroy(d->streams[i]); }
    }
    free(d->streams);
    if (d->engine) { f.dnnl_engine_destroy(d->engine); }
    free(d);
}

static dnnl_status_t start(library *d) {
    DNNL_TRY(f.dnnl_engine_create(&d->engine, dnnl_cpu, 0));
    for (int i = 0; i < d->n_workers; i++) {
        DNNL_TRY(f.dnnl_stream_create(&d->streams[i], d->engine, dnnl_stream_in_order));
    }
    return dnnl_success;
}

onednn *onednn_open(int n_workers, const char **why) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (f.missing) {
        *why = f.missing;
        return NULL;
    }
    alone();
    CKVC_AUTO(onednn_close_at) onednn *door = ckvc_calloc(1, sizeof(library));
    library *d = (library *)door;
    d->n_workers = n_workers;
    d->streams = ckvc_calloc((size_t)n_workers, sizeof *d->streams);
    if (start(d) != dnnl_success) {
        *why = "oneDNN does not start";
        return NULL;
    }
    const dnnl_cpu_isa_t isa = f.dnnl_get_effective_cpu_isa();
    const dnnl_version_t *version = f.dnnl_version();
    door->bf16 = (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
    snprintf(door->name, sizeof door->name, "oneDNN-%d.%d.%d-%s", version->major, version->minor,
             version->patch, isa_name(isa));
    return ckvc_take(&door);
}

/* ---- shapes ---- */

void onednn_shape_free(onednn_shape *door) {
    shape *s = (shape *)door;
    if (!s) { return; }
    for (int i = 0; i < s->d->n_workers; i++) {
        for (int k = 0; k < N_BUFFERS; k++) {
            if (s->workers[i].memory[k]) { f.dnnl_memory_destroy(s->workers[i].memory[k]); }
            free(s->workers[i].data[k]);
        }
    }
    free(s->workers);
    free(door->worker);
    if (s->product) { f.dnnl_primitive_destroy(s->product); }
    if (s->reorder) { f.dnnl_primitive_destroy(s->reorder); }
    if (s->product_desc) { f.dnnl_primitive_desc_destroy(s->product_desc); }
    if (s->reorder_desc) { f.dnnl_primitive_desc_destroy(s->reorder_desc); }
    free(s);
}

static dnnl_status_t primitives_create(shape *s, const_dnnl_primitive_attr_t attr, bool bf16) {
    const dnnl_data_type_t type = bf16 ? dnnl_bf16 : dnnl_f32;
    const int64_t rows = s->door.rows, n = s->door.n, k = s->door.k;
    const dnnl_dims_t x_dims = {rows, k}, w_dims = {k, n}, y_dims = {rows, n}, w_strides = {1, k};
    dnnl_memory_desc_t *b = s->buffer, any;
    dnnl_matmul_desc_t op;
    DNNL_TRY(f.dnnl_memory_desc_init_by_tag(&b[X_ROWS], 2, x_dims, type, dnnl_ab));
    DNNL_TRY(f.dnnl_memory_desc_init_by_strides(&b[W_ROWS], 2, w_dims, type, w_strides));
    DNNL_TRY(f.dnnl_memory_desc_init_by_tag(&b[Y_ROWS], 2, y_dims, dnnl_f32, dnnl_ab));
    DNNL_TRY(f.dnnl_memory_desc_init_by_tag(&any, 2, w_dims, type, dnnl_format_tag_any));
    DNNL_TRY(f.dnnl_matmul_desc_init(&op, &b[X_ROWS], &any, NULL, &b[Y_ROWS]));
    DNNL_TRY(f.dnnl_primitive_desc_create(&s->product_desc, &op, attr, s->d->engine, NULL));
    s->packed = *f.dnnl_primitive_desc_query_md(s->product_desc, dnnl_query_weights_md, 0);
    DNNL_TRY(f.dnnl_reorder_primitive_desc_create(&s->reorder_desc, &b[W_ROWS], s->d->engine,
                                                  &s->packed, s->d->engine, attr));
    DNNL_TRY(f.dnnl_primitive_create(&s->product, s->product_desc));
    return f.dnnl_primitive_create(&s->reorder, s->reorder_desc);
}

static dnnl_status_t buffers_create(shape *s) {
    const const_dnnl_primitive_desc_t of[2] = {s->product_desc, s->reorder_desc};
    for (int i = 0; i < 2; i++) {
        const dnnl_memory_desc_t *md =
            f.dnnl_primitive_desc_query_md(of[i], dnnl_query_scratchpad_md, 0);
        if (md) { s->buffer[PRODUCT_SCRATCH + i] = *md; }
    }
    for (int k = 0; k < N_BUFFERS; k++) {
        const size_t bytes = f.dnnl_memory_desc_get_size(&s->buffer[k]);
        s->door.buffer_bytes += (size_t)s->d->n_workers * bytes;
        for (int i = 0; bytes && i < s->d->n_workers; i++) {
            s->workers[i].data[k] = ckvc_alloc_aligned(bytes, 1);
            DNNL_TRY(f.dnnl_memory_create(&s->workers[i].memory[k], &s->buffer[k], s->d->engine,
                                          s->workers[i].data[k]));
        }
    }
    for (int i = 0; i < s->d->n_workers; i++) {
        void **data = s->workers[i].data;
        s->door.worker[i] = (onednn_buffers){data[X_ROWS], data[W_ROWS], data[Y_ROWS]};
    }
    return dnnl_success;
}

static dnnl_status_t describe(shape *s, bool bf16) {
    dnnl_primitive_attr_t attr;
    DNNL_TRY(f.dnnl_primitive_attr_create(&attr));
    dnnl_status_t st = f.dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (st == dnnl_success) { st = primitives_create(s, attr, bf16); }
    f.dnnl_primitive_attr_destroy(attr);
    DNNL_TRY(st);
    s->door.packed_bytes = f.dnnl_memory_desc_get_size(&s->packed);
    return buffers_create(s);
}

ckvc_status onednn_shape_create(onednn *d, bool bf16, int64_t rows, int64_t n, int64_t k,
                                onednn_shape **out, ckvc_err *err) {
    *out = NULL;
    CKVC_AUTO(onednn_shape_free_at) onednn_shape *door = ckvc_calloc(1, sizeof(shape));
    shape *s = (shape *)door;
    s->d = (library *)d;
    *door = (onednn_shape){.rows = rows, .n = n, .k = k};
    door->worker = ckvc_calloc((size_t)s->d->n_workers, sizeof *door->worker);
    s->workers = ckvc_calloc((size_t)s->d->n_workers, sizeof *s->workers);
    alone();
    const dnnl_status_t st = describe(s, bf16);
    CKVC_FAIL_IF(st != dnnl_success, err, CKVC_E_DEVICE,
                 "%s has no product of %lld x %lld with %lld x %lld in %s (status %d); use "
                 "--compute f32",
                 d->name, (long long)rows, (long long)k, (long long)n, (long long)k,
                 bf16 ? "bf16" : "f32", (int)st);
    *out = ckvc_take(&door);
    return CKVC_OK;
}

/* args: two or three arguments, with room for the scratchpad. */
static bool execute(const shape *s, int worker, dnnl_primitive_t primitive, dnnl_exec_arg_t *args,
                    int n_args, int scratch) {
    dnnl_stream_t stream = s->d->streams[worker];
    const dnnl_memory_t memory = s->workers[worker].memory[scratch];
    if (memory) { args[n_args++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, memory}; }
    alone();
    return f.dnnl_primitive_execute(primitive, stream, n_args, args) == dnnl_success &&
           f.dnnl_stream_wait(stream) == dnnl_success;
}

void *onednn_pack(const onednn_shape *door, int worker, void *packed) {
    const shape *s = (const shape *)door;
    dnnl_memory_t memory;
    if (f.dnnl_memory_create(&memory, &s->packed, s->d->engine, packed) != dnnl_success) {
        return NULL;
    }
    dnnl_exec_arg_t args[3] = {{DNNL_ARG_FROM, s->workers[worker].memory[W_ROWS]},
                               {DNNL_ARG_TO, memory}};
    if (execute(s, worker, s->reorder, args, 2, REORDER_SCRATCH)) { return memory; }
    f.dnnl_memory_destroy(memory);
    return NULL;
}

void onednn_unpack(void *handle) {
    if (handle) { f.dnnl_memory_destroy(handle); }
}

bool onednn_run(const onednn_shape *door, int worker, void *handle) {
    const shape *s = (const shape *)door;
    const dnnl_memory_t *memory = s->workers[worker].memory;
    dnnl_exec_arg_t args[4] = {
        {DNNL_ARG_SRC, memory[X_ROWS]}, {DNNL_ARG_WEIGHTS, handle}, {DNNL_ARG_DST, memory[Y_ROWS]}};
    return execute(s, worker, s->product, args, 3, PRODUCT_SCRATCH);
}

#else /* built without oneDNN's headers: it cannot be opened, so nothing else is ever called */

onednn *onednn_open(int n_workers, const char **why) {
    (void)n_workers;
    *why = "this ckvc was built without oneDNN's headers (Debian package libdnnl-dev)";
    return NULL;
}

void onednn_close(onednn *d) { (void)d; }

ckvc_status onednn_shape_create(onednn *d, bool bf16, int64_t rows, int64_t n, int64_t k,
                                onednn_shape **out, ckvc_err *err) {
    (void)d, (void)bf16, (void)rows, (void)n, (void)k, (void)out;
    return ckvc_fail(err, CKVC_E_BUG, "oneDNN is not there");
}

void onednn_shape_free(onednn_shape *s) { (void)s; }

void *onednn_pack(const onednn_shape *s, int worker, void *packed) {
    (void)s, (void)worker, (void)packed;
    return NULL;
}

void onednn_unpack(void *handle) { (void)handle; }

bool onednn_run(const onednn_shape *s, int worker, void *handle) {
    (void)s, (void)worker, (void)handle;
    return false;
}

#endif
