/* Timed stages: see bench.h. Prompts are random ids: the arithmetic does not depend on what they mean. */
#include "calib/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calib/rollouts_plain.h"
#include "calib/start_table.h"
#include "cql/cql.h"
#include "formats/shard_h5.h"
#include "lib/base/memory.h"
#include "lib/base/progress.h"
#include "lib/base/rng.h"

typedef struct bench {
    backend *be;
    model *model;
    const bench_options *o;
    ckvc_buffer *csv;
    ckvc_err *err;
    /* stage state */
    be_weight *w;
    be_buf *x, *y;
    float *host;
    session *session;
    int32_t *ids;
    prefill_stats stats;
    ckvc_table *table;
    keep *keep;
    variant_list variants;
    double *nll;
    shard *shard;
    char path[4096];
} bench;

typedef ckvc_status (*stage_fn)(bench *b);

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs a stage once unmeasured, then o->repeats times. */
static ckvc_status measure(bench *b, stage_fn fn, const char *stage, const char *shape, double work, const char *unit)
{
    double *seconds = ckvc_calloc((size_t)b->o->repeats, sizeof *seconds);
    if (!seconds) {
        return ckvc_fail_memory(b->err, "timings", (size_t)b->o->repeats * sizeof *seconds);
    }
    ckvc_status st = fn(b);
    for (int i = 0; st == CKVC_OK && i < b->o->repeats; i++) {
        double start = ckvc_now_s();
        st = fn(b);
        seconds[i] = ckvc_now_s() - start;
    }
    if (st == CKVC_OK) {
        qsort(seconds, (size_t)b->o->repeats, sizeof *seconds, by_value);
        double median = seconds[b->o->repeats / 2];
        ckvc_buffer_printf(b->csv, "%s,%s,%.6g,%s,%.6g,%.6g,%.6g\n", stage, shape, work, unit, median, seconds[0], work / median);
    }
    free(seconds);
    return st;
}

/* ---- stages ---- */

enum { GEMM_ROWS = 512, GEMM_OUT = 2048, GEMM_IN = 768, FIT_STATES = 4096, SHARD_PROMPTS = 16, SHARD_RECORDS = 200000 };

static ckvc_status stage_matmul(bench *b)
{
    b->be->ops->matmul(b->be, b->w, NULL, b->x, GEMM_ROWS, false, b->y);
    return b->be->ops->sync(b->be, b->err);
}

static ckvc_status stage_prefill(bench *b)
{
    int64_t T = b->o->n_tokens;
    return session_prefill(b->session, b->ids, T, T + b->o->continuation, b->o->window, CKVC_ALPHA_PAPER, &b->stats, b->err);
}

static ckvc_status stage_variants(bench *b)
{
    static const bool both[CKVC_SIDE_COUNT] = {true, true};
    keep_prompt(b->keep, (uint32_t)b->o->n_tokens, b->stats.alpha_f32, b->stats.rho, b->stats.r_struct, b->stats.r_sem);
    return variants_build(&b->variants, b->keep, both, BEHAVIOUR_BALANCED, -1, b->o->seed, "bench", b->err);
}

static ckvc_status stage_rollout(bench *b)
{
    double loss;
    return rollout_baseline(b->session, b->keep, 0, b->ids + b->o->n_tokens, (uint32_t)b->o->continuation, b->nll, &loss, b->err);
}

static ckvc_status stage_fit(bench *b)
{
    double rbar[CKVC_HEAD_ACTIONS], q[CKVC_HEAD_ACTIONS];
    uint64_t n[CKVC_HEAD_ACTIONS];
    ckvc_rng rng;
    ckvc_rng_init(&rng, b->o->seed, 2, 0);
    for (int s = 0; s < FIT_STATES; s++) {
        for (int a = 0; a < CKVC_HEAD_ACTIONS; a++) {
            n[a] = 1 + ckvc_rng_below(&rng, 1000);
            rbar[a] = ckvc_rng_double(&rng) - 0.5;
        }
        cql_certificate certificate;
        if (!cql_solve_exact(CKVC_HEAD_ACTIONS, n, rbar, 0.75, q, &certificate)) {
            return ckvc_fail(b->err, CKVC_E_BUG, "the exact solver's certificate failed at gradient %g", certificate.gradient);
        }
    }
    return CKVC_OK;
}

static ckvc_status stage_shard_write(bench *b)
{
    unlink(b->path);
    return shard_h5_write(b->shard, b->path, b->err);
}

static ckvc_status stage_shard_read(bench *b)
{
    shard *s = NULL;
    ckvc_status st = shard_h5_read(b->path, &s, b->err);
    shard_free(s);
    return st;
}

/* ---- groups of stages with their set-up ---- */

static ckvc_status bench_matmul(bench *b)
{
    char shape[64];
    size_t n_w = (size_t)GEMM_OUT * GEMM_IN;
    b->host = ckvc_alloc_aligned(n_w, sizeof *b->host);
    if (!b->host) {
        return ckvc_fail_memory(b->err, "a matrix", n_w * sizeof *b->host);
    }
    ckvc_rng rng;
    ckvc_rng_init(&rng, b->o->seed, 3, 0);
    for (size_t i = 0; i < n_w; i++) {
        b->host[i] = (float)(ckvc_rng_double(&rng) - 0.5);
    }
    ckvc_status st = b->be->ops->weight_create(b->be, b->host, BE_F32, GEMM_OUT, GEMM_IN, &b->w, b->err);
    if (st == CKVC_OK) {
        st = b->be->ops->weight_acquire(b->be, b->w, b->err);
    }
    if (st == CKVC_OK) {
        st = b->be->ops->buf_create(b->be, (size_t)GEMM_ROWS * GEMM_IN, &b->x, b->err);
    }
    if (st == CKVC_OK) {
        st = b->be->ops->buf_create(b->be, (size_t)GEMM_ROWS * GEMM_OUT, &b->y, b->err);
    }
    if (st != CKVC_OK) {
        return st;
    }
    b->be->ops->write(b->be, b->x, 0, b->host, (size_t)GEMM_ROWS * GEMM_IN);
    snprintf(shape, sizeof shape, "%dx%dx%d", GEMM_ROWS, GEMM_OUT, GEMM_IN);
    return measure(b, stage_matmul, "matmul", shape, 2.0 * GEMM_ROWS * GEMM_OUT * GEMM_IN, "flop");
}

static ckvc_status bench_model(bench *b)
{
    const model_shape *s = model_get_shape(b->model);
    int64_t T = b->o->n_tokens, C = b->o->continuation;
    char shape[128];
    if (T + C > model_shape_context(s) || T <= b->o->window) {
        return ckvc_fail(b->err, CKVC_E_USAGE,
                         "%lld + %lld tokens: the model's context is %lld, the window %lld; use other --max-tokens, "
                         "--continuation or --window",
                         (long long)T, (long long)C, (long long)model_shape_context(s), (long long)b->o->window);
    }
    ckvc_status st = session_create(b->model, (session_limits){.max_prompt = T, .max_continuation = C, .max_window = b->o->window},
                                    &b->session, b->err);
    b->ids = ckvc_calloc((size_t)(T + C), sizeof *b->ids);
    b->nll = ckvc_calloc((size_t)C, sizeof *b->nll);
    if (st == CKVC_OK && (!b->ids || !b->nll)) {
        st = ckvc_fail_memory(b->err, "a prompt", (size_t)(T + C) * 4);
    }
    if (st == CKVC_OK) {
        st = start_table_create((uint32_t)s->n_layers, (uint32_t)s->n_kv_heads, 1, 1, &b->o->budget, 1, (uint32_t)b->o->window,
                                &b->table, b->err);
    }
    if (st == CKVC_OK) {
        st = keep_create(b->table, (uint32_t)T, (uint32_t)b->o->window, 0, &b->keep, b->err);
    }
    if (st != CKVC_OK) {
        return st;
    }
    ckvc_rng rng;
    ckvc_rng_init(&rng, b->o->seed, 4, 0);
    for (int64_t i = 0; i < T + C; i++) {
        b->ids[i] = (int32_t)ckvc_rng_below(&rng, (uint64_t)s->vocab);
    }
    snprintf(shape, sizeof shape, "T=%lld", (long long)T);
    st = measure(b, stage_prefill, "prefill", shape, (double)T, "tokens");
    if (st == CKVC_OK) {
        snprintf(shape, sizeof shape, "T=%lld actions=%u", (long long)T,
                 (unsigned)(s->n_layers * (s->n_kv_heads * CKVC_HEAD_ACTIONS + CKVC_GATE_ACTIONS)));
        st = measure(b, stage_variants, "variants", shape,
                     (double)s->n_layers * (s->n_kv_heads * CKVC_HEAD_ACTIONS + CKVC_GATE_ACTIONS), "actions");
    }
    if (st == CKVC_OK) {
        snprintf(shape, sizeof shape, "T=%lld B=%u C=%lld", (long long)T, b->keep->budget[0], (long long)C);
        st = measure(b, stage_rollout, "rollout-plain", shape, 1, "rollouts");
    }
    return st;
}

static ckvc_status bench_shard(bench *b)
{
    /* A shard as a run writes it: every column filled, values as random as rewards are. */
    shard *s = b->shard = shard_create();
    if (!s) {
        return ckvc_fail_memory(b->err, "a shard", sizeof *s);
    }
    double budget = 128;
    ckvc_table *t;
    ckvc_status st = start_table_create(8, 3, 1, 1, &budget, 1, 32, &t, b->err);
    if (st != CKVC_OK) {
        return st;
    }
    shard_header h = {.n_layers = 8,
                      .n_heads = 6,
                      .n_kv_heads = 3,
                      .window = 32,
                      .continuation = 64,
                      .lambda = 1,
                      .n_budgets = 1,
                      .n_head_actions = t->n_head_actions,
                      .n_gate_actions = t->n_gate_actions,
                      .n_entropy_bins = 1,
                      .n_ppl_bins = 1,
                      .budgets = t->budgets,
                      .head_actions = t->head_grid,
                      .gate_actions = t->gate_grid,
                      .edges_entropy = t->edges_entropy,
                      .edges_ppl = t->edges_ppl,
                      .start_weight = t->weight,
                      .start_tau = t->tau};
    snprintf(h.pass, sizeof h.pass, "head");
    snprintf(h.behaviour, sizeof h.behaviour, "balanced");
    snprintf(h.alpha_kind, sizeof h.alpha_kind, "paper");
    memset(h.plan, '0', sizeof h.plan - 1);
    memset(h.fingerprint, '0', sizeof h.fingerprint - 1);
    memset(h.manifest, '0', sizeof h.manifest - 1);
    st = shard_header_copy(&s->h, &h, b->err);
    ckvc_table_free(t);
    ckvc_rng rng;
    ckvc_rng_init(&rng, b->o->seed, 5, 0);
    for (uint32_t p = 0; st == CKVC_OK && p < SHARD_PROMPTS; p++) {
        struct shard_prompt row = {
            .line = p + 1, .n_tokens = 512, .n_continuation = 64, .r_struct = 4, .r_sem = 20, .loss_full = 2};
        struct shard_baseline base = {p, 0, 2.1};
        snprintf(row.id, sizeof row.id, "bench-%u", p);
        st = shard_add_prompt(s, &row, NULL, b->err);
        if (st == CKVC_OK) {
            st = shard_add_baseline(s, &base, NULL, b->err);
        }
    }
    for (uint32_t i = 0; st == CKVC_OK && i < SHARD_RECORDS; i++) {
        double loss = 2 + ckvc_rng_double(&rng) * 0.1;
        struct shard_record r = {.prompt = i % SHARD_PROMPTS,
                                 .action = (uint8_t)(i % CKVC_HEAD_ACTIONS),
                                 .layer = (uint16_t)(i % 8),
                                 .head = (uint16_t)(i % 3),
                                 .reward = 2 - loss,
                                 .baseline = -0.1,
                                 .loss = loss,
                                 .n_candidates = 200,
                                 .n_kept = 128,
                                 .set_hash = ckvc_rng_u64(&rng)};
        st = shard_add_record(s, &r, b->err);
    }
    snprintf(b->path, sizeof b->path, "%s/ckvc-bench-%ld.h5", b->o->scratch_dir, (long)getpid());
    if (st == CKVC_OK) {
        st = measure(b, stage_shard_write, "shard-write", "head", SHARD_RECORDS, "records");
    }
    if (st == CKVC_OK) {
        st = measure(b, stage_shard_read, "shard-read", "head", SHARD_RECORDS, "records");
    }
    unlink(b->path);
    return st;
}

ckvc_status bench_run(backend *be, model *m, const bench_options *o, ckvc_buffer *csv, ckvc_err *err)
{
    bench b = {.be = be, .model = m, .o = o, .csv = csv, .err = err};
    ckvc_buffer_text(csv, "stage,shape,work,unit,seconds_median,seconds_min,rate\n");
    ckvc_status st = bench_matmul(&b);
    if (st == CKVC_OK && m) {
        st = bench_model(&b);
    }
    if (st == CKVC_OK) {
        char shape[64];
        snprintf(shape, sizeof shape, "%d states x %d actions", FIT_STATES, CKVC_HEAD_ACTIONS);
        st = measure(&b, stage_fit, "fit-exact", shape, FIT_STATES, "states");
    }
    if (st == CKVC_OK) {
        st = bench_shard(&b);
    }
    be->ops->buf_free(be, b.x);
    be->ops->buf_free(be, b.y);
    be->ops->weight_free(be, b.w);
    free(b.host);
    session_destroy(b.session);
    free(b.ids);
    free(b.nll);
    keep_destroy(b.keep);
    ckvc_table_free(b.table);
    variants_fini(&b.variants);
    shard_free(b.shard);
    return st;
}
