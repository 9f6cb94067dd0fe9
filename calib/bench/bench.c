/* Timed stages: see bench.h. Without a prompt the ids are random: the arithmetic of a prefill does
 * not depend on what they mean, but what is kept, and so how many variants differ, does. */
#include "calib/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calib/bench/bench_data.h"
#include "calib/rollout/flops.h"
#include "calib/rollout/memory_plan.h"
#include "calib/rollout/rollouts_plain.h"
#include "calib/rollout/rollouts_sweep.h"
#include "calib/actions/start_table.h"
#include "cql/solve/counts.h"
#include "cql/solve/cql.h"
#include "formats/shard/shard_h5.h"
#include "lib/base/memory.h"
#include "lib/base/progress.h"
#include "lib/base/rng.h"

const char *const bench_stages[] = {
    "matmul",    "attention",         "prefill",       "variants",      "rollout-plain",
    "sweep",     "rewards-reprefill", "rewards-plain", "rewards-sweep", "fit-exact",
    "fit-count", "shard-write",       "shard-read",    "error",         NULL};

typedef struct bench {
    backend *be;
    model *model;
    const bench_options *o;
    ckvc_buffer *csv;
    ckvc_err *err;
    double peak;          /* flop/s of the matmul stage; 0: not run */
    int64_t continuation; /* C, or 0 when no stage continues the prompt */
    /* stage state */
    be_weight *w;
    be_buf *x, *y;
    float *host;
    bench_attention attention;
    session *session;
    int32_t *ids;
    prefill_stats stats;
    ckvc_table *table;
    prompt_sets *kept;
    variant_list variants;
    sweep sweep;
    kept_set *sets;   /* [L] */
    uint32_t *n_kept; /* [L] of the baseline */
    double *nll;
    cql_counts *counts;
    double *rewards; /* [COUNT_RECORDS] */
    shard *shard;
    char path[4096];
} bench;

typedef ckvc_status (*stage_fn)(bench *b);

/* A row of the table. scale: what was timed is this part of the work (1: all of it); fixed is added
 * to it unscaled. */
typedef struct bench_row {
    const char *stage, *shape, *unit;
    double work, flop; /* flop 0: not counted */
    double scale, fixed;
    const char *note;
    int runs; /* at least; 0: as many as were asked for */
} bench_row;

static bool wanted(const bench *b, const char *stage) {
    bool any = b->o->n_stages == 0;
    for (size_t i = 0; i < b->o->n_stages; i++) {
        any = any || strcmp(b->o->stages[i], stage) == 0;
    }
    return any;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs a stage up to o->repeats times, the first time unmeasured unless that alone takes long.
 * seconds [2]: median and minimum. */
static ckvc_status measure(bench *b, stage_fn fn, const bench_row *r, double seconds[2]) {
    const int repeats = r->runs > b->o->repeats ? r->runs : b->o->repeats;
    double *each = ckvc_calloc((size_t)repeats, sizeof *each);
    double begin = ckvc_now_s(), spent = 0;
    ckvc_status st = fn(b);
    int n = 0;
    if (ckvc_now_s() - begin > BENCH_ENOUGH / 6) { spent = each[n++] = ckvc_now_s() - begin; }
    while (st == CKVC_OK && n < repeats && (n == 0 || spent < BENCH_ENOUGH)) {
        double start = ckvc_now_s();
        st = fn(b);
        each[n] = ckvc_now_s() - start;
        spent += each[n++];
    }
    if (st == CKVC_OK) {
        qsort(each, (size_t)n, sizeof *each, by_value);
        double scale = r->scale > 0 ? r->scale : 1;
        seconds[0] = each[n / 2] / scale + r->fixed;
        seconds[1] = each[0] / scale + r->fixed;
        ckvc_buffer_printf(b->csv, "%s,%s,%.6g,%s,%d,%.6g,%.6g,%.6g,", r->stage, r->shape, r->work,
                           r->unit, n, seconds[0], seconds[1], r->work / seconds[0]);
        if (r->flop > 0) { ckvc_buffer_printf(b->csv, "%.6g", r->flop * 1e-9); }
        ckvc_buffer_text(b->csv, ",");
        if (r->flop > 0 && b->peak > 0) {
            ckvc_buffer_printf(b->csv, "%.3f", r->flop / seconds[0] / b->peak);
        }
        ckvc_buffer_printf(b->csv, ",%s\n", r->note ? r->note : "");
    }
    free(each);
    return st;
}

/* ---- stages ---- */

enum {
    GEMM_ROWS = 512,
    GEMM_OUT = 2048,
    GEMM_IN = 768,
    PEAK_RUNS = 50, /* a peak is a best one */
    FIT_STATES = 4096,
    SHARD_PROMPTS = 16,
    SHARD_RECORDS = 200000,
    COUNT_RECORDS = 1 << 20,
    COUNT_PROMPTS = 1024
};

static ckvc_status stage_matmul(bench *b) {
    b->be->ops->matmul(b->be, b->w, NULL, b->x, GEMM_ROWS, false, b->y);
    return b->be->ops->sync(b->be, b->err);
}

static ckvc_status stage_attention(bench *b) {
    return bench_attention_run(b->be, &b->attention, b->err);
}

static ckvc_status stage_prefill(bench *b) {
    int64_t T = b->o->n_tokens;
    const prefill_input in = {
        .tokens = b->ids, .n = T, .n_total = T + b->continuation, .window = b->o->window};
    return session_prefill(b->session, &in, &b->stats, b->err);
}

static ckvc_status stage_variants(bench *b) {
    static const bool both[CKVC_SIDE_COUNT] = {true, true};
    prompt_sets_build(b->kept, (uint32_t)b->o->n_tokens, b->stats.alpha_f32, b->stats.rho,
                      b->stats.r_struct, b->stats.r_sem);
    return variants_build(&b->variants, b->kept, both, BEHAVIOUR_BALANCED, b->o->variants,
                          b->o->seed, "bench", b->err);
}

static ckvc_status stage_rollout(bench *b) {
    double loss;
    return rollout_baseline(b->session, b->kept, 0, b->ids + b->o->n_tokens,
                            (uint32_t)b->o->continuation, b->nll, &loss, b->err);
}

/* Action number i of the prompt as the plain way rolls it out. */
static ckvc_status roll_action(bench *b, size_t i) {
    const taken_action *t = &b->variants.actions[i];
    const kept_set *base = b->kept->sets + (size_t)t->budget * b->kept->n_layers;
    uint32_t offsets[2] = {0, t->n_kept};
    memcpy(b->sets, base, b->kept->n_layers * sizeof *base);
    if (t->variant != VARIANT_NONE) {
        b->sets[t->layer] =
            (kept_set){1, offsets, b->variants.positions + b->variants.items[t->variant].first};
    }
    return session_continue(b->session, b->ids + b->o->n_tokens, b->continuation, b->sets, b->nll,
                            b->err);
}

static size_t n_sampled(const bench *b) {
    return b->o->sample > 0 && (size_t)b->o->sample < b->variants.n_actions ? (size_t)b->o->sample
                                                                            : b->variants.n_actions;
}

/* Sampled actions at equal distances, so that every layer has its share. */
static ckvc_status roll_sample(bench *b, bool prefill) {
    ckvc_status st = CKVC_OK;
    size_t n = n_sampled(b);
    for (size_t i = 0; st == CKVC_OK && i < n; i++) {
        st = prefill ? stage_prefill(b) : CKVC_OK;
        if (st == CKVC_OK) {
            st = roll_action(b, (size_t)((double)i * (double)b->variants.n_actions / (double)n));
        }
    }
    return st;
}

static ckvc_status stage_rewards_reprefill(bench *b) {
    return roll_sample(b, true);
}

static ckvc_status stage_rewards_plain(bench *b) {
    return roll_sample(b, false);
}

static ckvc_status stage_sweep(bench *b) {
    double full, baseline;
    return rollouts_sweep(&b->sweep, b->session, b->kept, &b->variants, b->ids + b->o->n_tokens,
                          (uint32_t)b->continuation, &full, &baseline, b->err);
}

static ckvc_status stage_rewards_sweep(bench *b) {
    ckvc_status st = stage_prefill(b);
    st = st ? st : stage_variants(b);
    return st ? st : stage_sweep(b);
}

/* Records of many prompts into statistics, as a fit's reader hands them over; prompts come in
 * blocks. */
static ckvc_status stage_count(bench *b) {
    ckvc_status st = CKVC_OK;
    enum { EACH = COUNT_RECORDS / COUNT_PROMPTS };
    for (int p = 0; st == CKVC_OK && p < COUNT_PROMPTS; p++) {
        char id[32];
        snprintf(id, sizeof id, "bench-%d", p);
        cql_counts_prompt(b->counts, id);
        for (int i = 0; st == CKVC_OK && i < EACH; i++) {
            double reward = b->rewards[p * EACH + i];
            st = cql_counts_add(b->counts, (size_t)i / CKVC_HEAD_ACTIONS,
                                (size_t)i % CKVC_HEAD_ACTIONS, reward, reward, b->err);
        }
    }
    return st;
}

static ckvc_status stage_fit(bench *b) {
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
            return ckvc_fail(b->err, CKVC_E_BUG,
                             "the exact solver's certificate failed at gradient %g",
                             certificate.gradient);
        }
    }
    return CKVC_OK;
}

static ckvc_status stage_shard_write(bench *b) {
    unlink(b->path);
    return shard_h5_write(b->shard, b->path, b->err);
}

static ckvc_status stage_shard_read(bench *b) {
    shard *s = NULL;
    ckvc_status st = shard_h5_read(b->path, &s, b->err);
    shard_free(s);
    return st;
}

/* ---- groups of stages with their set-up ---- */

static ckvc_status bench_matmul(bench *b) {
    char shape[64];
    size_t n_w = (size_t)GEMM_OUT * GEMM_IN;
    b->host = ckvc_alloc_aligned(n_w, sizeof *b->host);
    ckvc_rng rng;
    ckvc_rng_init(&rng, b->o->seed, 3, 0);
    for (size_t i = 0; i < n_w; i++) {
        b->host[i] = (float)(ckvc_rng_double(&rng) - 0.5);
    }
    ckvc_status st =
        b->be->ops->weight_create(b->be, b->host, BE_F32, GEMM_OUT, GEMM_IN, &b->w, b->err);
    if (st == CKVC_OK) { st = b->be->ops->weight_acquire(b->be, b->w, b->err); }
    if (st == CKVC_OK) {
        st = b->be->ops->buf_create(b->be, (size_t)GEMM_ROWS * GEMM_IN, &b->x, b->err);
    }
    if (st == CKVC_OK) {
        st = b->be->ops->buf_create(b->be, (size_t)GEMM_ROWS * GEMM_OUT, &b->y, b->err);
    }
    if (st != CKVC_OK) { return st; }
    b->be->ops->write(b->be, b->x, 0, b->host, (size_t)GEMM_ROWS * GEMM_IN);
    snprintf(shape, sizeof shape, "%dx%dx%d", GEMM_ROWS, GEMM_OUT, GEMM_IN);
    const double flop = 2.0 * GEMM_ROWS * GEMM_OUT * GEMM_IN;
    double seconds[2] = {0};
    st = measure(b, stage_matmul,
                 &(bench_row){.stage = "matmul",
                              .shape = shape,
                              .unit = "flop",
                              .work = flop,
                              .flop = flop,
                              .runs = PEAK_RUNS},
                 seconds);
    b->peak = st == CKVC_OK ? flop / seconds[1] : 0;
    return st;
}

/* One layer's causal attention: of the model's first layer, or of SmolLM2-135M's shape. */
static ckvc_status attention_stage(bench *b) {
    be_attention_shape layer = {.n_heads = 9, .n_kv_heads = 3, .head_dim = 64, .scale = 0.125f};
    if (b->model) {
        const model_shape *s = model_get_shape(b->model);
        layer = (be_attention_shape){s->n_heads, s->n_kv_heads, s->head_dim,
                                     model_shape_window(s, 0), layer.scale};
    }
    const int64_t T = b->o->n_tokens;
    const double flop = flops_attention(layer.n_heads, layer.head_dim, layer.window, T);
    char shape[128];
    double seconds[2] = {0};
    snprintf(shape, sizeof shape, "T=%lld H=%d G=%d D=%d", (long long)T, layer.n_heads,
             layer.n_kv_heads, layer.head_dim);
    ckvc_status st = bench_attention_create(b->be, &layer, T, b->o->seed, &b->attention, b->err);
    if (st == CKVC_OK) {
        const bench_row row = {
            .stage = "attention", .shape = shape, .unit = "rows", .work = (double)T, .flop = flop};
        st = measure(b, stage_attention, &row, seconds);
    }
    bench_attention_fini(b->be, &b->attention);
    return st;
}

/* How many rollouts a sweep takes side by side; its memory. */
static ckvc_status plan_sweep(bench *b, session_limits *limits) {
    static const bool both[CKVC_SIDE_COUNT] = {true, true};
    memory_plan plan;
    variant_extent most = variants_extent(b->table, (uint32_t)b->o->n_tokens, both, b->o->variants);
    ckvc_status st =
        memory_plan_make(b->be, model_get_shape(b->model), model_converted_bytes(b->model),
                         model_converted_least(b->model), *limits, b->table, &most, false,
                         b->o->memory ? b->o->memory : memory_plan_default(), &plan, b->err);
    limits->max_lanes = plan.lanes;
    return st ? st
              : sweep_create(&b->sweep, plan.lanes, (uint32_t)b->continuation, 1,
                             b->table->n_layers, most.n_variants, b->err);
}

/* The session, the prompt and what it keeps. */
static ckvc_status open_prompt(bench *b) {
    const model_shape *s = model_get_shape(b->model);
    int64_t T = b->o->n_tokens, C = b->continuation;
    if (T + C > model_shape_context(s) || T <= b->o->window) {
        return ckvc_fail(b->err, CKVC_E_USAGE,
                         "%lld + %lld tokens: the model's context is %lld, the window %lld; use "
                         "other --max-tokens, "
                         "--continuation or --window",
                         (long long)T, (long long)C, (long long)model_shape_context(s),
                         (long long)b->o->window);
    }
    session_limits limits = {.max_prompt = T, .max_continuation = C, .max_window = b->o->window};
    ckvc_status st =
        start_table_create((uint32_t)s->n_layers, (uint32_t)s->n_kv_heads, 1, 1, &b->o->budget, 1,
                           (uint32_t)b->o->window, &b->table, b->err);
    if (st == CKVC_OK && (wanted(b, "sweep") || wanted(b, "rewards-sweep"))) {
        st = plan_sweep(b, &limits);
    }
    if (st == CKVC_OK) { st = session_create(b->model, limits, &b->session, b->err); }
    b->ids = ckvc_calloc((size_t)(T + C), sizeof *b->ids);
    b->nll = ckvc_calloc((size_t)C + 1, sizeof *b->nll);
    b->sets = ckvc_calloc((size_t)s->n_layers, sizeof *b->sets);
    b->n_kept = ckvc_calloc((size_t)s->n_layers, sizeof *b->n_kept);
    if (st == CKVC_OK && (!b->ids || !b->nll || !b->sets || !b->n_kept)) {
        st = ckvc_fail_memory(b->err, "a prompt", (size_t)(T + C) * 4);
    }
    if (st == CKVC_OK) {
        st = prompt_sets_create(b->table, (uint32_t)T, (uint32_t)b->o->window, 0, &b->kept, b->err);
    }
    if (st != CKVC_OK) { return st; }
    ckvc_rng rng;
    ckvc_rng_init(&rng, b->o->seed, 4, 0);
    for (int64_t i = 0; i < T + C; i++) {
        b->ids[i] =
            b->o->tokens ? b->o->tokens[i] : (int32_t)ckvc_rng_below(&rng, (uint64_t)s->vocab);
    }
    return CKVC_OK;
}

static ckvc_status bench_model(bench *b) {
    const model_shape *s = model_get_shape(b->model);
    const char *const continuing[] = {"rollout-plain", "sweep", "rewards-reprefill",
                                      "rewards-plain", "rewards-sweep"};
    for (size_t i = 0; i < sizeof continuing / sizeof *continuing; i++) {
        b->continuation = wanted(b, continuing[i]) ? b->o->continuation : b->continuation;
    }
    if (b->continuation == 0 && !wanted(b, "prefill") && !wanted(b, "variants")) { return CKVC_OK; }
    int64_t T = b->o->n_tokens, C = b->continuation;
    char shape[128], note[128];
    double seconds[2] = {0};
    ckvc_status st = open_prompt(b);
    if (st == CKVC_OK && wanted(b, "prefill")) {
        snprintf(shape, sizeof shape, "T=%lld", (long long)T);
        st = measure(b, stage_prefill,
                     &(bench_row){.stage = "prefill",
                                  .shape = shape,
                                  .unit = "tokens",
                                  .work = (double)T,
                                  .flop = flops_prefill(s, T, b->o->window)},
                     seconds);
    } else if (st == CKVC_OK) {
        st = stage_prefill(b);
    }
    if (st == CKVC_OK) { st = stage_variants(b); }
    if (st != CKVC_OK) { return st; }
    double n_actions = (double)b->variants.n_actions;
    for (int32_t l = 0; l < s->n_layers; l++) {
        b->n_kept[l] = prompt_sets_at(b->kept, 0, (uint32_t)l)->n_kept;
    }
    double flop = flops_rollout(s, T, C > 0 ? C : 1, b->n_kept);
    if (wanted(b, "variants")) {
        snprintf(shape, sizeof shape, "T=%lld B=%u", (long long)T, b->kept->budget[0]);
        snprintf(note, sizeof note, "%zu distinct%s", b->variants.n,
                 b->o->tokens ? "" : " (random ids)");
        st = measure(b, stage_variants,
                     &(bench_row){.stage = "variants",
                                  .shape = shape,
                                  .unit = "actions",
                                  .work = n_actions,
                                  .note = note},
                     seconds);
    }
    snprintf(shape, sizeof shape, "T=%lld B=%u C=%lld", (long long)T, b->kept->budget[0],
             (long long)C);
    if (st == CKVC_OK && wanted(b, "rollout-plain")) {
        st = measure(b, stage_rollout,
                     &(bench_row){.stage = "rollout-plain",
                                  .shape = shape,
                                  .unit = "rollouts",
                                  .work = 1,
                                  .flop = flop},
                     seconds);
    }
    double sweep_flop = C > 0 ? rollouts_sweep_flops(s, b->kept, &b->variants, (uint32_t)C) : 0;
    if (st == CKVC_OK && wanted(b, "sweep")) {
        snprintf(note, sizeof note,
                 "%zu distinct variants and two baselines; up to %lld side by side", b->variants.n,
                 (long long)b->sweep.max_lanes);
        st = measure(b, stage_sweep,
                     &(bench_row){.stage = "sweep",
                                  .shape = shape,
                                  .unit = "rollouts",
                                  .work = (double)b->variants.n + 2,
                                  .flop = sweep_flop,
                                  .note = note},
                     seconds);
    }
    if (st == CKVC_OK && wanted(b, "rewards-sweep")) {
        st = measure(b, stage_rewards_sweep,
                     &(bench_row){.stage = "rewards-sweep",
                                  .shape = shape,
                                  .unit = "rewards",
                                  .work = n_actions,
                                  .flop = sweep_flop + flops_prefill(s, T, b->o->window),
                                  .note = "with prefill and variants"},
                     seconds);
    }
    if (st != CKVC_OK) { return st; }
    double sampled = (double)n_sampled(b), fixed = 0;
    if (sampled < n_actions) {
        snprintf(note, sizeof note, "extrapolated from %.0f of %.0f actions", sampled, n_actions);
    } else {
        snprintf(note, sizeof note, "all actions");
    }
    if (wanted(b, "rewards-reprefill")) {
        st = measure(b, stage_rewards_reprefill,
                     &(bench_row){.stage = "rewards-reprefill",
                                  .shape = shape,
                                  .unit = "rewards",
                                  .work = n_actions,
                                  .flop = n_actions * (flop + flops_prefill(s, T, b->o->window)),
                                  .scale = sampled / n_actions,
                                  .note = note},
                     seconds);
    }
    if (st == CKVC_OK && wanted(b, "rewards-plain")) {
        double start = ckvc_now_s();
        st = stage_prefill(b);
        fixed = ckvc_now_s() - start;
    }
    if (st == CKVC_OK && wanted(b, "rewards-plain")) {
        st = measure(b, stage_rewards_plain,
                     &(bench_row){.stage = "rewards-plain",
                                  .shape = shape,
                                  .unit = "rewards",
                                  .work = n_actions,
                                  .flop = n_actions * flop + flops_prefill(s, T, b->o->window),
                                  .scale = sampled / n_actions,
                                  .fixed = fixed,
                                  .note = note},
                     seconds);
    }
    return st;
}

static ckvc_status bench_count(bench *b) {
    double seconds[2] = {0};
    b->rewards = ckvc_alloc(COUNT_RECORDS, sizeof *b->rewards);
    ckvc_rng rng;
    ckvc_rng_init(&rng, b->o->seed, 6, 0);
    for (size_t i = 0; i < COUNT_RECORDS; i++) {
        b->rewards[i] = 0.02 * (ckvc_rng_double(&rng) - 0.5);
    }
    size_t n_states = COUNT_RECORDS / COUNT_PROMPTS / CKVC_HEAD_ACTIONS + 1;
    b->counts = cql_counts_create(n_states, CKVC_HEAD_ACTIONS);
    char shape[64];
    snprintf(shape, sizeof shape, "%zu states x %d actions", n_states, CKVC_HEAD_ACTIONS);
    return measure(
        b, stage_count,
        &(bench_row){
            .stage = "fit-count", .shape = shape, .unit = "records", .work = COUNT_RECORDS},
        seconds);
}

static ckvc_status bench_shard(bench *b) {
    ckvc_status st =
        bench_shard_create(SHARD_PROMPTS, SHARD_RECORDS, b->o->seed, &b->shard, b->err);
    snprintf(b->path, sizeof b->path, "%s/ckvc-bench-%ld.h5", b->o->scratch_dir, (long)getpid());
    if (st == CKVC_OK) {
        double seconds[2] = {0};
        st = measure(
            b, stage_shard_write,
            &(bench_row){
                .stage = "shard-write", .shape = "head", .unit = "records", .work = SHARD_RECORDS},
            seconds);
    }
    if (st == CKVC_OK) {
        double seconds[2] = {0};
        st = measure(
            b, stage_shard_read,
            &(bench_row){
                .stage = "shard-read", .shape = "head", .unit = "records", .work = SHARD_RECORDS},
            seconds);
    }
    unlink(b->path);
    return st;
}

ckvc_status bench_run(backend *be, model *m, const bench_options *o, ckvc_buffer *csv,
                      ckvc_err *err) {
    bench b = {.be = be, .model = m, .o = o, .csv = csv, .err = err};
    for (size_t i = 0; i < o->n_stages; i++) {
        size_t k = 0;
        while (bench_stages[k] && strcmp(bench_stages[k], o->stages[i]) != 0) {
            k++;
        }
        if (!bench_stages[k]) {
            return ckvc_fail(err, CKVC_E_USAGE, "--stage: there is no \"%s\"; see --help",
                             o->stages[i]);
        }
    }
    ckvc_buffer_text(
        csv, "stage,shape,work,unit,runs,seconds_median,seconds_min,rate,gflop,share,note\n");
    ckvc_status st = wanted(&b, "matmul") ? bench_matmul(&b) : CKVC_OK;
    if (st == CKVC_OK && wanted(&b, "attention")) { st = attention_stage(&b); }
    if (st == CKVC_OK && m) { st = bench_model(&b); }
    if (st == CKVC_OK && wanted(&b, "fit-exact")) {
        char shape[64];
        double seconds[2] = {0};
        snprintf(shape, sizeof shape, "%d states x %d actions", FIT_STATES, CKVC_HEAD_ACTIONS);
        st =
            measure(&b, stage_fit,
                    &(bench_row){
                        .stage = "fit-exact", .shape = shape, .unit = "states", .work = FIT_STATES},
                    seconds);
    }
    if (st == CKVC_OK && wanted(&b, "fit-count")) { st = bench_count(&b); }
    if (st == CKVC_OK && (wanted(&b, "shard-write") || wanted(&b, "shard-read"))) {
        st = bench_shard(&b);
    }
    be->ops->buf_free(be, b.x);
    be->ops->buf_free(be, b.y);
    be->ops->weight_free(be, b.w);
    free(b.host);
    session_destroy(b.session);
    free(b.ids);
    free(b.nll);
    free(b.sets);
    free(b.n_kept);
    sweep_fini(&b.sweep);
    cql_counts_free(b.counts);
    free(b.rewards);
    prompt_sets_destroy(b.kept);
    ckvc_table_free(b.table);
    variants_fini(&b.variants);
    shard_free(b.shard);
    return st;
}
