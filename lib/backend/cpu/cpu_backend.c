/* Creates and destroys the CPU backend, with its buffers and scratch memory, and chooses its
 * kernels. */
#include "lib/backend/cpu/cpu_backend.h"

#include <cblas.h>
#include <stdio.h>
#include <sys/mman.h>

#include "lib/backend/cpu/cpu.h"

/* ---- memory ---- */

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

/* The floats of rows that are rounded to bf16; rows have an even number of values. */
static size_t rounded_floats(const cpu_backend *c, const be_extent *most) {
    const bool bf16 = c->base.compute == CKVC_COMPUTE_BF16;
    return bf16 ? (size_t)cpu_places(c, (int64_t)most->product_values) : 0;
}

void cpu_reserve(backend *be, const be_attention_shape *s, const double *inv_freq,
                 const be_extent *most) {
    size_t per_worker, shared;
    scratch_of(cpu_of(be), s, most, &per_worker, &shared);
    cpu_need(cpu_of(be), per_worker, shared);
    cpu_grow(&cpu_of(be)->rounded, rounded_floats(cpu_of(be), most));
    cpu_rope_reserve(cpu_of(be), inv_freq, s->head_dim / 2, most->n_prompt + most->n_rows);
}

size_t cpu_scratch_bytes(const backend *be, const be_attention_shape *s, const be_extent *most) {
    const cpu_backend *c = (const cpu_backend *)be;
    size_t per_worker, shared;
    scratch_of(c, s, most, &per_worker, &shared);
    const size_t angles = (size_t)((most->n_prompt + most->n_rows) * s->head_dim),
                 floats = (size_t)c->n_threads * per_worker + shared + angles;
    return (floats + rounded_floats(c, most)) * sizeof(float);
}

/* ---- creating and destroying ---- */

void cpu_destroy(backend *be) {
    cpu_backend *c = cpu_of(be);
    for (int i = 0; i < c->n_threads; i++) { free(c->worker[i].data); }
    CKVC_FREE(c->worker, c->shared.data, c->rounded.data);
    for (int i = 0; i < 2; i++) { CKVC_FREE(c->rope[i].inv_freq, c->rope[i].cos, c->rope[i].sin); }
    for (int i = 0; i < c->n_spare; i++) { free(c->spare[i].data); }
    free(c);
}

#define OPERATION(name) .name = cpu_##name,
static const backend_ops ops = {.name = "cpu", CPU_OPERATIONS(OPERATION)};

/* ---- the choice of a kernel ---- */

#if defined(__x86_64__)
static bool is_one_of(const char *name, const char *const *names) {
    for (; *names; names++) {
        if (strcasecmp(name, *names) == 0) { return true; }
    }
    return false;
}

/* OpenBLAS chooses its kernel by the CPU's model when it is loaded, or as OPENBLAS_CORETYPE says. A
 * kernel that does not use all vector units halves the speed, so it leads to a warning. */
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
 * and retries without end when the system refuses one (0.3.21, blas_memory_alloc). */
#define BLAS_BUFFER_BYTES ((size_t)128 << 20)

/* Asks the system for as much memory as OpenBLAS will ask for, and gives it back. So under a limit
 * of memory (ulimit -v, -d) a refusal is an error now, and not a process that never ends. */
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

static void take_bf16(backend *be, bool emulated) {
    const size_t used = strlen(be->kernel);
    snprintf(be->kernel + used, sizeof be->kernel - used, emulated ? "+bf16-emulated" : "+bf16");
    if (emulated) {
        snprintf(be->compute_warning, sizeof be->compute_warning,
                 "--compute bf16 is emulated in float32: its rounding can be measured here, but it "
                 "saves no time");
    }
    be->compute = CKVC_COMPUTE_BF16;
    be->value_bytes = emulated ? sizeof(float) : sizeof(uint16_t);
    be->in_place = !emulated;
}

/* Makes a backend. With fma NULL, OpenBLAS computes products in float32 and attention. */
static ckvc_status create_backend(const cpu_fma *fma, ckvc_compute compute, ckvc_pool *pool,
                                  cpu_backend **out, ckvc_err *err) {
    CKVC_AUTO(destroy_at) cpu_backend *c = ckvc_calloc(1, sizeof *c);
    *out = NULL;
    c->base.ops = &ops;
    c->base.pool = pool;
    c->base.copy_rows = 32;
    c->base.value_bytes = sizeof(float);
    c->base.in_place = true;
    c->base.formats = true;
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
    if (compute == CKVC_COMPUTE_BF16) { take_bf16(&c->base, !fma || !fma->pairs); }
    *out = ckvc_take(&c);
    return CKVC_OK;
}

/* Makes a backend and runs its self-check. */
static ckvc_status try_out(const cpu_fma *fma, ckvc_compute compute, ckvc_pool *pool,
                           const char *advice, ckvc_err *err) {
    CKVC_AUTO(destroy_at) cpu_backend *c = NULL;
    ckvc_err wrong = {0};
    CKVC_TRY(create_backend(fma, compute, pool, &c, err));
    const ckvc_status st = cpu_selfcheck(&c->base, &wrong);
    return st == CKVC_OK ? st : ckvc_fail(err, st, "%s%s", wrong.text, advice);
}

ckvc_status cpu_backend_create(bool openblas, ckvc_compute compute, ckvc_pool *pool, backend **out,
                               ckvc_err *err) {
    static const cpu_fma *const none = NULL;
    const cpu_fma *const *fma = openblas ? &none : cpu_fma_list(compute);
    ckvc_err wrong = {0};
    cpu_backend *c;
    *out = NULL;
    while (*fma && try_out(*fma, compute, pool, "", &wrong) != CKVC_OK) { fma++; }
    if (!*fma) {
        CKVC_TRY(try_out(NULL, compute, pool, openblas ? "; use --backend cpu" : "", err));
    }
    CKVC_TRY(create_backend(*fma, compute, pool, &c, err));
    if (wrong.status != CKVC_OK) {
        snprintf(c->base.warning, sizeof c->base.warning, "%.500s; going on with %s", wrong.text,
                 c->base.kernel);
    }
    *out = &c->base;
    return CKVC_OK;
}
