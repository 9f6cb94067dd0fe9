/* Compares kernels with plain loops: see cpu_backend.h. */
#include "lib/backend/cpu/cpu_backend.h"

#include <math.h>
#include <stdatomic.h>

#include "lib/base/progress.h"
#include "lib/base/hash.h"
#include "lib/backend/cpu/cpu.h"

/* The largest error sqrt(sum (got - want)^2 / sum want^2): rounding makes some 1e-7, a wrong tile
 * 1e-2 and more. */
#define MOST_ERROR 3e-6
#define REPEATS    4      /* on all threads, as what they do to each other shows only at times */
#define MEET_S     0.0005 /* seconds that a thread waits for the others */

/* Whole tiles and a few rows; more inputs than FMA_DEPTH; one column more than a task has. */
enum { ROWS = 135, IN = 390, OUT = 257, HEADS = 10, KV_HEADS = 2, D = IN / HEADS, CAPACITY = 192 };
static const be_attention_shape shape = {
    .n_heads = HEADS, .n_kv_heads = KV_HEADS, .head_dim = D, .scale = 0.2f};

void (*cpu_selfcheck_spoil)(const char *kernel, int n_threads, float *y, size_t n);

typedef struct scene {
    backend *be;
    float *x, *w; /* [ROWS][IN], [OUT][IN] */
    float *k, *v; /* [KV_HEADS][CAPACITY][D], inside of w */
    be_buf *bx, *by;
    be_cache cache;
    be_weight *bw;
    int32_t target[ROWS];
} scene;

typedef struct trial {
    const char *what;
    int64_t width; /* of y [ROWS][width] */
    /* so many values apart are compared with the plain loop; not a factor of the width */
    int64_t sample;
    ckvc_status (*run)(const scene *s, float *y, ckvc_err *err);
    double (*plain)(const scene *s, int64_t row, int64_t col); /* computes one value of y */
} trial;

static double dot(const float *a, const float *b, int64_t n) {
    /* four chains of additions, because most of the check's time is spent here */
    double sum[4] = {0};
    for (int64_t i = 0; i < n; i++) { sum[i % 4] += (double)a[i] * (double)b[i]; }
    return sum[0] + sum[1] + sum[2] + sum[3];
}

static ckvc_status run_product(const scene *s, float *y, ckvc_err *err) {
    s->be->ops->matmul(s->be, s->bw, NULL, s->bx, &(be_product_rows){.n = ROWS}, false, s->by);
    return s->be->ops->read(s->be, s->by, 0, y, ROWS * OUT, err);
}

static double plain_product(const scene *s, int64_t row, int64_t col) {
    return dot(s->x + row * IN, s->w + col * IN, IN);
}

static ckvc_status run_losses(const scene *s, float *y, ckvc_err *err) {
    double nll[ROWS];
    const be_rows all = {.n_rows = ROWS, .n_lanes = 1};
    CKVC_TRY(s->be->ops->head_nll(s->be, s->bw, s->bx, &all,
                                  &(be_losses){.target = s->target, .nll = nll}, err));
    for (int r = 0; r < ROWS; r++) { y[r] = (float)nll[r]; }
    return CKVC_OK;
}

static double plain_loss(const scene *s, int64_t row, int64_t col) {
    double sum = 0;
    (void)col;
    for (int64_t o = 0; o < OUT; o++) { /* logits are at most tens */
        sum += exp(plain_product(s, row, o));
    }
    return log(sum) - plain_product(s, row, s->target[row]);
}

static ckvc_status run_attention(const scene *s, float *y, ckvc_err *err) {
    s->be->ops->attention_causal(s->be, &shape, 0, ROWS, s->bx, &s->cache, s->by);
    return s->be->ops->read(s->be, s->by, 0, y, ROWS * IN, err);
}

static double plain_attention(const scene *s, int64_t row, int64_t col) {
    const int64_t h = col / D, at = h / (HEADS / KV_HEADS) * CAPACITY * D;
    double sum = 0, mixed = 0;
    for (int64_t t = 0; t <= row; t++) {
        const double e =
            exp((double)shape.scale * dot(s->x + row * IN + h * D, s->k + at + t * D, D));
        sum += e;
        mixed += e * (double)s->v[at + t * D + col % D];
    }
    return mixed / sum;
}

/* The last LATER rows after a prompt of ROWS, whose keys are in the cache, too. */
enum { BEHIND = 70, LATER = 8 };

static ckvc_status run_targets(const scene *s, float *y, ckvc_err *err) {
    double targets[KV_HEADS * ROWS];
    const be_continuation c = {
        .n_rows = BEHIND, .n_prompt = ROWS, .q = s->bx, .prompt = s->cache, .own = s->cache};
    const be_target_rows rows = {.first_row = BEHIND - LATER};
    CKVC_TRY(s->be->ops->attention_targets(s->be, &shape, &c, &rows, s->by, targets, err));
    for (int i = 0; i < KV_HEADS * ROWS; i++) {
        y[i % ROWS * KV_HEADS + i / ROWS] = (float)targets[i];
    }
    return CKVC_OK;
}

static double plain_target(const scene *s, int64_t row, int64_t col) {
    const float *k = s->k + col * CAPACITY * D;
    double given = 0;
    for (int64_t r = BEHIND - LATER; r < BEHIND; r++) {
        for (int64_t h = col * (HEADS / KV_HEADS); h < (col + 1) * (HEADS / KV_HEADS); h++) {
            const float *q = s->x + r * IN + h * D;
            double sum = 0;
            for (int64_t t = 0; t <= ROWS + r; t++) {
                sum += exp((double)shape.scale * dot(q, k + (t < ROWS ? t : t - ROWS) * D, D));
            }
            given += exp((double)shape.scale * dot(q, k + row * D, D)) / sum;
        }
    }
    return given;
}

/* Takes row r for a sequence that holds positions 0 ... r, which is causal attention once more. */
static ckvc_status run_held(const scene *s, float *y, ckvc_err *err) {
    static const int64_t first[KV_HEADS] = {0, CAPACITY}, hidden[KV_HEADS] = {0};
    int64_t n_kept[ROWS][KV_HEADS];
    be_held held[ROWS];
    for (int r = 0; r < ROWS; r++) {
        for (int g = 0; g < KV_HEADS; g++) { n_kept[r][g] = r; }
        held[r] = (be_held){.k = s->cache.k,
                            .v = s->cache.v,
                            .first = first,
                            .n_kept = n_kept[r],
                            .hidden = hidden,
                            .n_own = 1};
    }
    const be_step rows = {.n = ROWS, .q = s->bx, .held = held};
    s->be->ops->attention_held(s->be, &shape, &rows, s->by);
    return s->be->ops->read(s->be, s->by, 0, y, ROWS * IN, err);
}

static const trial trials[] = {{"products", OUT, 11, run_product, plain_product},
                               {"losses", 1, 11, run_losses, plain_loss},
                               {"attention", IN, 101, run_attention, plain_attention},
                               {"attention targets", KV_HEADS, 29, run_targets, plain_target},
                               {"attention of decoding", IN, 101, run_held, plain_attention}};
enum { N_TRIALS = sizeof trials / sizeof *trials };

/* ---- the data ---- */

static float *random_values(ckvc_rng *rng, size_t n) {
    float *v = ckvc_alloc_aligned(n, sizeof *v);
    for (size_t i = 0; i < n; i++) { v[i] = (float)ckvc_rng_double(rng) * 2 - 1; }
    kernel_round_bf16(v, v, (int64_t)n); /* so that the answer is the same in float32 and in bf16 */
    return v;
}

static be_buf *create_filled(backend *be, size_t n, const float *data, size_t n_data) {
    be_buf *b = be->ops->buf_create(be, n);
    be->ops->write(be, b, 0, data, n_data);
    return b;
}

static ckvc_status scene_open(scene *s, ckvc_err *err) {
    enum { CACHE = KV_HEADS * CAPACITY * D };
    _Static_assert(2 * CACHE <= OUT * IN, "");
    backend *be = s->be;
    ckvc_rng rng;
    ckvc_rng_init(&rng, 1, 2, 3);
    s->x = random_values(&rng, ROWS * IN);
    s->w = random_values(&rng, OUT * IN);
    s->k = s->w;
    s->v = s->w + CACHE;
    for (int r = 0; r < ROWS; r++) { s->target[r] = r * 97 % OUT; }
    s->bx = create_filled(be, CAPACITY * IN, s->x, ROWS * IN);
    s->by = be->ops->buf_create(be, CAPACITY * IN);
    s->cache = (be_cache){create_filled(be, CACHE, s->k, CACHE),
                          create_filled(be, CACHE, s->v, CACHE),
                          CAPACITY,
                          {0},
                          {0}};
    const be_matrix m = {
        .bytes = s->w, .type = BE_F32, .rows = OUT, .cols = IN, .row_bytes = IN * sizeof *s->w};
    CKVC_TRY(be->ops->weight_create(be, &m, &s->bw, err));
    return be->ops->weight_acquire(be, s->bw, err);
}

static void scene_close(scene *s) {
    be_buf *const buffers[4] = {s->bx, s->by, s->cache.k, s->cache.v};
    s->be->ops->weight_free(s->be, s->bw);
    for (int i = 0; i < 4; i++) { s->be->ops->buf_free(s->be, buffers[i]); }
    free(s->x);
    free(s->w);
}

/* ---- the check ---- */

typedef struct meeting {
    atomic_int arrived;
    int n;
    double until;
} meeting;

/* One task for each thread. When it returns all of them are running, unless the machine is busy
 * with other things: what threads do to each other does not show while they take turns. */
static void wait_for_all(void *ctx, int64_t task, int worker) {
    meeting *m = ctx;
    (void)task, (void)worker;
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < m->n && ckvc_now_s() < m->until) {}
}

static ckvc_status run_trial(const scene *s, const trial *t, float *y, ckvc_err *err) {
    CKVC_TRY(t->run(s, y, err));
    if (cpu_selfcheck_spoil) {
        cpu_selfcheck_spoil(s->be->kernel, ckvc_pool_threads(s->be->pool), y,
                            (size_t)(ROWS * t->width));
    }
    return CKVC_OK;
}

static double relative_error(const scene *s, const trial *t, const float *y) {
    double error = 0, size = 0;
    for (int64_t i = 0; i < ROWS * t->width; i += t->sample) {
        const double want = t->plain(s, i / t->width, i % t->width), off = (double)y[i] - want;
        error += off * off;
        size += want * want;
    }
    return sqrt(error / size);
}

static ckvc_status check_operation(scene *s, const trial *t, ckvc_pool *one, ckvc_err *err) {
    const size_t n = (size_t)(ROWS * t->width);
    CKVC_AUTO_FREE float *alone = ckvc_alloc(n, sizeof *alone);
    CKVC_AUTO_FREE float *together = ckvc_alloc(n, sizeof *together);
    ckvc_pool *all = s->be->pool;
    s->be->pool = one;
    const ckvc_status st = run_trial(s, t, alone, err);
    s->be->pool = all;
    CKVC_TRY(st);
    const double error = relative_error(s, t, alone);
    CKVC_FAIL_IF(!(error <= MOST_ERROR), err, CKVC_E_DEVICE,
                 "%s gets %s wrong on this machine (self-check: off by %.2g, at most %.2g)",
                 s->be->kernel, t->what, error, MOST_ERROR);
    for (int i = 0; i < REPEATS && ckvc_pool_threads(all) > 1; i++) {
        meeting m = {.n = ckvc_pool_threads(all), .until = ckvc_now_s() + MEET_S};
        ckvc_pool_run(all, m.n, wait_for_all, &m);
        CKVC_TRY(run_trial(s, t, together, err));
        CKVC_FAIL_IF(memcmp(alone, together, n * sizeof *alone) != 0, err, CKVC_E_DEVICE,
                     "%s gets %s wrong on this machine (self-check: %d threads differ from one)",
                     s->be->kernel, t->what, ckvc_pool_threads(all));
    }
    return CKVC_OK;
}

static void pool_destroy_at(ckvc_pool **pool) { ckvc_pool_destroy(*pool); }

ckvc_status cpu_selfcheck(backend *be, ckvc_err *err) {
    CKVC_AUTO(scene_close) scene s = {.be = be};
    CKVC_AUTO(pool_destroy_at) ckvc_pool *one = NULL;
    CKVC_TRY(ckvc_pool_create(1, &one, err));
    CKVC_TRY(scene_open(&s, err));
    for (int i = 0; i < N_TRIALS; i++) { CKVC_TRY(check_operation(&s, &trials[i], one, err)); }
    return CKVC_OK;
}
