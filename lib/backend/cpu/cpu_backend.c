/* The CPU backend: its life, its buffers and scratch memory, and which kernels it takes. */
#include "lib/backend/cpu/cpu_backend.h"

#include <assert.h>
#include <cblas.h>
#include <stdio.h>
#include <sys/mman.h>

#include "lib/backend/cpu/cpu.h"
#include "lib/backend/cpu/cpu_selfcheck.h"
#include "lib/base/sizes.h"

/* ---- memory ---- */

static void grow(cpu_scratch *s, size_t need) {
    if (need <= s->n) { return; }
    free(s->data);
    s->n = (need + 16383) / 16384 * 16384;
    s->data = ckvc_alloc_aligned(s->n, sizeof *s->data);
}

void cpu_need(cpu_backend *c, size_t per_worker, size_t shared) {
    for (int i = 0; i < c->n_threads; i++) { grow(&c->worker[i], per_worker); }
    grow(&c->shared, shared);
}

static void scratch_of(const cpu_backend *c, const be_attention_shape *s, const be_extent *most,
                       size_t *per_worker, size_t *shared) {
    size_t worker[3], all[3];
    cpu_attention_scratch(c, s, most, &worker[0], &all[0]);
    cpu_window_scratch(s, most, &worker[1], &all[1]);
    cpu_head_scratch(c, most, &worker[2], &all[2]);
    *per_worker = *shared = 0;
    for (int i = 0; i < 3; i++) {
        *per_worker = *per_worker > worker[i] ? *per_worker : worker[i];
        *shared = *shared > all[i] ? *shared : all[i];
    }
}

void cpu_reserve(backend *be, const be_attention_shape *s, const double *inv_freq,
                 const be_extent *most) {
    size_t per_worker, shared;
    scratch_of(cpu_of(be), s, most, &per_worker, &shared);
    cpu_need(cpu_of(be), per_worker, shared);
    cpu_rope_reserve(cpu_of(be), inv_freq, s->head_dim / 2, most->n_prompt + most->n_rows);
}

size_t cpu_scratch_bytes(const backend *be, const be_attention_shape *s, const be_extent *most) {
    const cpu_backend *c = (const cpu_backend *)be;
    size_t per_worker, shared;
    scratch_of(c, s, most, &per_worker, &shared);
    const size_t angles = (size_t)((most->n_prompt + most->n_rows) * s->head_dim),
                 floats = (size_t)c->n_threads * per_worker + shared + angles;
    return floats * sizeof(float) + (c->bf16 ? cpu_bf16_scratch_bytes(c) : 0);
}

be_buf *cpu_buf_create(backend *be, size_t n) {
    be_buf *b = ckvc_alloc(1, sizeof *b);
    float *data = ckvc_alloc_aligned(n, sizeof *data);
    memset(data, 0, n * sizeof *data);
    *b = (be_buf){data, n, data, n};
    cpu_of(be)->bytes_now += n * sizeof *data;
    return b;
}

void cpu_buf_free(backend *be, be_buf *b) {
    if (!b) { return; }
    cpu_of(be)->bytes_now -= b->own_n * sizeof *b->own;
    free(b->own);
    free(b);
}

void cpu_buf_view(backend *be, be_buf *view, const be_buf *of, size_t offset, size_t n) {
    (void)be;
    assert(view->own_n == 0 && ckvc_span_ok(offset, n, of->n));
    view->data = of->data + offset;
    view->n = n;
}

void cpu_write(backend *be, be_buf *dst, size_t offset, const float *src, size_t n) {
    (void)be;
    assert(ckvc_span_ok(offset, n, dst->n));
    memcpy(dst->data + offset, src, n * sizeof *src);
}

ckvc_status cpu_read(backend *be, const be_buf *src, size_t offset, float *dst, size_t n,
                     ckvc_err *err) {
    assert(ckvc_span_ok(offset, n, src->n));
    memcpy(dst, src->data + offset, n * sizeof *dst);
    return cpu_sync(be, err);
}

ckvc_status cpu_sync(backend *be, ckvc_err *err) {
    const ckvc_err failure = cpu_of(be)->failure;
    if (failure.status == CKVC_OK) { return CKVC_OK; }
    cpu_of(be)->failure = (ckvc_err){0};
    return ckvc_fail(err, failure.status, "%s", failure.text);
}

/* ---- life ---- */

void cpu_destroy(backend *be) {
    cpu_backend *c = cpu_of(be);
    for (int i = 0; i < c->n_threads; i++) { free(c->worker[i].data); }
    free(c->worker);
    free(c->shared.data);
    free(c->rope.inv_freq);
    free(c->rope.cos);
    free(c->rope.sin);
    for (int i = 0; i < c->n_spare; i++) { free(c->spare[i].data); }
    cpu_bf16_destroy(c);
    free(c);
}

#define OPERATION(name) .name = cpu_##name,
static const backend_ops ops = {.name = "cpu", CPU_OPERATIONS(OPERATION)};

/* ---- which kernel ---- */

#if defined(__x86_64__)
static bool is_one_of(const char *name, const char *const *names) {
    for (; *names; names++) {
        if (strcasecmp(name, *names) == 0) { return true; }
    }
    return false;
}

/* OpenBLAS chooses its kernel by CPU model when it is loaded, or as OPENBLAS_CORETYPE says. One
 * that leaves vector units idle is worth a warning, since it halves the speed. */
static void warn_of_slow_blas(backend *be, const char *core) {
    static const char *const with_avx512[] = {"SkylakeX", "Cooperlake", "Sapphirerapids", NULL};
    static const char *const with_avx2[] = {"Haswell", "Zen", "Excavator", NULL};
    __builtin_cpu_init();
    if (is_one_of(core, with_avx512)) { return; }
    const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
    if (!has_avx512 && (!__builtin_cpu_supports("avx2") || is_one_of(core, with_avx2))) { return; }
    const char *unused = has_avx512 ? "AVX-512" : "AVX2", *variable = "OPENBLAS_CORETYPE";
    const char *preset = getenv(variable);
    if (!preset) { preset = getenv(variable = "OPENBLAS_L2_SIZE"); }
    char advice[128];
    if (preset) {
        snprintf(advice, sizeof advice, "%s=%s is set; unset it for speed", variable, preset);
    } else {
        snprintf(advice, sizeof advice, "a newer OpenBLAS, or OPENBLAS_CORETYPE=%s, is faster",
                 has_avx512 ? "SkylakeX" : "Haswell");
    }
    snprintf(be->warning, sizeof be->warning,
             "OpenBLAS runs its %s kernel although this CPU has %s: %s (results change in the last "
             "bits)",
             core, unused, advice);
}
#else
static void warn_of_slow_blas(backend *be, const char *core) { (void)be, (void)core; }
#endif

/* OpenBLAS takes a buffer of this size for every thread that calls it, at the thread's first call,
 * and tries for ever when the system refuses one (0.3.21, blas_memory_alloc). */
#define BLAS_BUFFER_BYTES ((size_t)128 << 20)

/* Asks the system for as much as OpenBLAS will and gives it back: under a limit of memory (ulimit
 * -v, -d) a refusal is an error now and not a process that never ends. */
static ckvc_status check_blas_buffers(int n_threads, ckvc_err *err) {
    const size_t bytes = BLAS_BUFFER_BYTES * (size_t)n_threads;
    void *probe = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CKVC_FAIL_IF(probe == MAP_FAILED, err, CKVC_E_MEMORY,
                 "OpenBLAS needs %zu MiB for %d threads and the system refuses them; raise the "
                 "limit (ulimit -v, -d) or use fewer --threads",
                 bytes >> 20, n_threads);
    munmap(probe, bytes);
    return CKVC_OK;
}

static void destroy_at(cpu_backend **c) {
    if (*c) { cpu_destroy(&(*c)->base); }
}

/* fma NULL: products in float32, and attention, by OpenBLAS. */
static ckvc_status make(const cpu_fma *fma, cpu_products products, ckvc_pool *pool,
                        cpu_backend **out, ckvc_err *err) {
    CKVC_AUTO(destroy_at) cpu_backend *c = ckvc_calloc(1, sizeof *c);
    *out = NULL;
    c->base.ops = &ops;
    c->base.pool = pool;
    c->base.copy_rows = 32;
    c->n_threads = ckvc_pool_threads(pool);
    c->worker = ckvc_calloc((size_t)c->n_threads, sizeof *c->worker);
    c->fma = fma;
    openblas_set_num_threads(1);
    if (fma) {
        snprintf(c->base.kernel, sizeof c->base.kernel, "cpu/%s", fma->name);
    } else {
        const char *core = openblas_get_corename();
        CKVC_TRY(check_blas_buffers(c->n_threads, err));
        snprintf(c->base.kernel, sizeof c->base.kernel, "cpu/OpenBLAS-%s", core);
        warn_of_slow_blas(&c->base, core);
    }
    if (products != CPU_F32) { CKVC_TRY(cpu_bf16_create(c, products, err)); }
    *out = ckvc_take(&c);
    return CKVC_OK;
}

/* Makes one, and lets it show what it can. */
static ckvc_status try_out(const cpu_fma *fma, cpu_products products, ckvc_pool *pool,
                           const char *advice, ckvc_err *err) {
    CKVC_AUTO(destroy_at) cpu_backend *c = NULL;
    ckvc_err wrong = {0};
    CKVC_TRY(make(fma, products, pool, &c, err));
    const ckvc_status st = cpu_selfcheck(&c->base, &wrong);
    return st == CKVC_OK ? st : ckvc_fail(err, st, "%s%s", wrong.text, advice);
}

ckvc_status cpu_backend_create(bool openblas, cpu_products products, ckvc_pool *pool, backend **out,
                               ckvc_err *err) {
    static const cpu_fma *const none = NULL;
    const cpu_fma *const *fma = openblas ? &none : cpu_fma_list();
    ckvc_err wrong = {0};
    cpu_backend *c;
    *out = NULL;
    while (*fma && try_out(*fma, CPU_F32, pool, "", &wrong) != CKVC_OK) { fma++; }
    if (!*fma) {
        CKVC_TRY(try_out(NULL, CPU_F32, pool, openblas ? "; use --backend cpu" : "", err));
    }
    if (products != CPU_F32) {
        CKVC_TRY(try_out(*fma, products, pool, "; use --compute f32", err));
    }
    CKVC_TRY(make(*fma, products, pool, &c, err));
    if (wrong.status != CKVC_OK) {
        snprintf(c->base.warning, sizeof c->base.warning, "%.500s; going on with %s", wrong.text,
                 c->base.kernel);
    }
    *out = &c->base;
    return CKVC_OK;
}
