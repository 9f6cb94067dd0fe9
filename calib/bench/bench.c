/* Timed stages: see bench.h. Without a prompt the ids are random: the arithmetic of a prefill does
 * not depend on what they mean, but what is kept, and so how many variants differ, does. */
#include "calib/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calib/actions/start_table.h"
#include "calib/bench/bench_data.h"
#include "calib/bench/flops.h"
#include "calib/rollout/worker.h"
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
    double peak; /* flop/s of the matmul stage; 0: not run */
    /* stage state */
    be_weight *w;
    float *values; /* of w */
    be_buf *x, *y;
    bench_attention attention;
    manifest_entry entry;
    prompt prompt; /* T tokens; C, or 0 when no stage continues it */
    ckvc_table *table;
    worker worker;
    cql_counts *counts;
    double *rewards; /* [COUNT_RECORDS] */
    shard *shard;
    char path[4096];
} bench;

typedef ckvc_status (*stage_fn)(bench *b);

/* A row of the table. */
typedef struct bench_row {
    const char *stage, *unit;
    char shape[128], note[128];
    double work, flop; /* flop 0: not counted */
    double scale;      /* what was timed is this part of the work; 0 stands for 1, all of it */
    double fixed;      /* seconds that are added to it unscaled */
    int runs;          /* at least; 0: as many as were asked for */
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

/* Runs a stage up to o->repeats times, the first time unmeasured unless that alone takes long. Its
 * row goes to the table, its least time to *least_s (may be NULL). */
static ckvc_status measure(bench *b, stage_fn fn, const bench_row *r, double *least_s) {
    const int repeats = r->runs > b->o->repeats ? r->runs : b->o->repeats;
    const double scale = r->scale > 0 ? r->scale : 1, begin_s = ckvc_now_s();
    CKVC_AUTO_FREE double *each = ckvc_calloc((size_t)repeats, sizeof *each);
    double spent_s = 0;
    int n = 0;
    CKVC_TRY(fn(b));
    if (ckvc_now_s() - begin_s > BENCH_ENOUGH / 6) { spent_s = each[n++] = ckvc_now_s() - begin_s; }
    while (n < repeats && (n == 0 || spent_s < BENCH_ENOUGH)) {
        const double start_s = ckvc_now_s();
        CKVC_TRY(fn(b));
        each[n] = ckvc_now_s() - start_s;
        spent_s += each[n++];
    }
    qsort(each, (size_t)n, sizeof *each, by_value);
    const double median_s = each[n / 2] / scale + r->fixed, min_s = each[0] / scale + r->fixed;
    ckvc_buffer_printf(b->csv, "%s,%s,%.6g,%s,%d,%.6g,%.6g,%.6g,", r->stage, r->shape, r->work,
                       r->unit, n, median_s, min_s, r->work / median_s);
    if (r->flop > 0) { ckvc_buffer_printf(b->csv, "%.6g", r->flop * 1e-9); }
    ckvc_buffer_text(b->csv, ",");
    if (r->flop > 0 && b->peak > 0) {
        ckvc_buffer_printf(b->csv, "%.3f", r->flop / median_s / b->peak);
    }
    ckvc_buffer_printf(b->csv, ",%s\n", r->note);
    if (least_s) { *least_s = min_s; }
    return CKVC_OK;
}

/* ---- arithmetic ---- */

enum { GEMM_ROWS = 512, GEMM_OUT = 2048, GEMM_IN = 768, PEAK_RUNS = 50 /* a peak is a best one */ };

static ckvc_status stage_matmul(bench *b) {
    b->be->ops->matmul(b->be, b->w, NULL, b->x, GEMM_ROWS, false, b->y);
    return b->be->ops->sync(b->be, b->err);
}

static ckvc_status bench_matmul(bench *b) {
    const backend_ops *ops = b->be->ops;
    const size_t n_w = (size_t)GEMM_OUT * GEMM_IN, n_x = (size_t)GEMM_ROWS * GEMM_IN;
    const double flop = 2.0 * GEMM_ROWS * GEMM_OUT * GEMM_IN;
    float *values = b->values = ckvc_alloc_aligned(n_w, sizeof *values);
    ckvc_rng rng;
    ckvc_rng_init(&rng, b->o->seed, 3, 0);
    for (size_t i = 0; i < n_w; i++) {
        values[i] = (float)(ckvc_rng_double(&rng) - 0.5);
    }
    const be_matrix matrix = {.bytes = values, .type = BE_F32, .rows = GEMM_OUT, .cols = GEMM_IN};
    CKVC_TRY(ops->weight_create(b->be, &matrix, &b->w, b->err));
    CKVC_TRY(ops->weight_acquire(b->be, b->w, b->err));
    b->x = ops->buf_create(b->be, n_x);
    b->y = ops->buf_create(b->be, (size_t)GEMM_ROWS * GEMM_OUT);
    ops->write(b->be, b->x, 0, values, n_x);
    bench_row row = {
        .stage = "matmul", .unit = "flop", .work = flop, .flop = flop, .runs = PEAK_RUNS};
    snprintf(row.shape, sizeof row.shape, "%dx%dx%d", GEMM_ROWS, GEMM_OUT, GEMM_IN);
    double least_s;
    CKVC_TRY(measure(b, stage_matmul, &row, &least_s));
    b->peak = flop / least_s;
    return CKVC_OK;
}

static ckvc_status stage_attention(bench *b) {
    return bench_attention_run(b->be, &b->attention, b->err);
}

/* One layer's causal attention: of the model's first layer, or of SmolLM2-135M's shape. */
static ckvc_status bench_one_attention(bench *b) {
    be_attention_shape layer = {.n_heads = 9, .n_kv_heads = 3, .head_dim = 64, .scale = 0.125f};
    if (b->model) {
        const model_shape *s = model_get_shape(b->model);
        layer = (be_attention_shape){s->n_heads, s->n_kv_heads, s->head_dim,
                                     model_shape_window(s, 0), layer.scale};
    }
    const int64_t T = b->o->n_tokens;
    bench_row row = {.stage = "attention",
                     .unit = "rows",
                     .work = (double)T,
                     .flop = flops_attention(layer.n_heads, layer.head_dim, layer.window, T)};
    snprintf(row.shape, sizeof row.shape, "T=%lld H=%d G=%d D=%d", (long long)T, layer.n_heads,
             layer.n_kv_heads, layer.head_dim);
    bench_attention_init(&b->attention, b->be, &layer, T, b->o->seed);
    return measure(b, stage_attention, &row, NULL);
}

/* ---- a prompt ---- */

static ckvc_status stage_prefill(bench *b) {
    return worker_prefill(&b->worker, &b->prompt, b->err);
}

static ckvc_status stage_variants(bench *b) {
    worker_keep(&b->worker, &b->prompt, true);
    return CKVC_OK;
}

static ckvc_status stage_rollout(bench *b) {
    double loss;
    return rollout_baseline(&b->worker.scratch, &b->worker.losses, 0, &loss, b->err);
}

static ckvc_status stage_sweep(bench *b) {
    return rollouts_sweep(&b->worker.scratch, &b->worker.losses, b->err);
}

static ckvc_status stage_rewards_sweep(bench *b) {
    CKVC_TRY(stage_prefill(b));
    CKVC_TRY(stage_variants(b));
    return stage_sweep(b);
}

static size_t n_sampled(const bench *b) {
    const size_t n = b->worker.variants.n_actions, sample = (size_t)b->o->sample;
    return b->o->sample > 0 && sample < n ? sample : n;
}

/* Sampled actions as the plain way rolls them out, at equal distances, so that every layer has its
 * share. */
static ckvc_status roll_sample(bench *b, bool prefill) {
    worker *w = &b->worker;
    const size_t n = n_sampled(b);
    for (size_t i = 0; i < n; i++) {
        const taken_action *t =
            &w->variants.actions[(size_t)((double)i * (double)w->variants.n_actions / (double)n)];
        double loss;
        if (prefill) { CKVC_TRY(stage_prefill(b)); }
        CKVC_TRY(t->variant == VARIANT_NONE
                     ? rollout_baseline(&w->scratch, &w->losses, t->budget, &loss, b->err)
                     : rollout_variant(&w->scratch, &w->losses, t->variant, &loss, b->err));
    }
    return CKVC_OK;
}

static ckvc_status stage_rewards_reprefill(bench *b) {
    return roll_sample(b, true);
}

static ckvc_status stage_rewards_plain(bench *b) {
    return roll_sample(b, false);
}

/* The prompt, what it keeps, and room for its rollouts. */
static ckvc_status open_prompt(bench *b) {
    const model_shape *s = model_get_shape(b->model);
    const int64_t T = b->o->n_tokens, C = b->prompt.n_continuation;
    if (T + C > model_shape_context(s) || T <= b->o->window) {
        return ckvc_fail(b->err, CKVC_E_USAGE,
                         "%lld + %lld tokens: the model's context is %lld, the window %lld; use "
                         "other --max-tokens, --continuation or --window",
                         (long long)T, (long long)C, (long long)model_shape_context(s),
                         (long long)b->o->window);
    }
    static char id[] = "bench";
    ckvc_rng rng;
    ckvc_rng_init(&rng, b->o->seed, 4, 0);
    b->entry.id = id;
    b->prompt.entry = &b->entry;
    b->prompt.n_tokens = (uint32_t)T;
    b->prompt.tokens = ckvc_calloc((size_t)(T + C), sizeof *b->prompt.tokens);
    for (int64_t i = 0; i < T + C; i++) {
        b->prompt.tokens[i] =
            b->o->tokens ? b->o->tokens[i] : (int32_t)ckvc_rng_below(&rng, (uint64_t)s->vocab);
    }
    const start_table_spec spec = {.n_layers = (uint32_t)s->n_layers,
                                   .n_heads = (uint32_t)s->n_kv_heads,
                                   .budgets = &b->o->budget,
                                   .n_budgets = 1,
                                   .window = (uint32_t)b->o->window};
    CKVC_TRY(start_table_create(&spec, &b->table, b->err));
    const prompt_list one = {
        .items = &b->prompt, .n = 1, .max_tokens = (uint32_t)T, .max_continuation = (uint32_t)C};
    const calibrate_inputs in = {.model = b->model, .backend = b->be, .prompts = &one};
    const worker_options o = {
        .setting = {.window = (uint32_t)b->o->window},
        .behaviour = {.sides = {true, true}, .limit = b->o->variants, .seed = b->o->seed},
        .rollouts =
            wanted(b, "sweep") || wanted(b, "rewards-sweep") ? ROLLOUTS_SWEEP : ROLLOUTS_PLAIN,
        .memory = b->o->memory};
    return worker_open(&b->worker, &in, &o, b->table, b->err);
}

typedef struct prompt_stage {
    const char *name, *unit;
    stage_fn run;
    bool continues; /* needs a continuation */
} prompt_stage;

static const prompt_stage prompt_stages[] = {
    /* prefill first: the others stand on it */
    {"prefill", "tokens", stage_prefill, false},
    {"variants", "actions", stage_variants, false},
    {"rollout-plain", "rollouts", stage_rollout, true},
    {"sweep", "rollouts", stage_sweep, true},
    {"rewards-sweep", "rewards", stage_rewards_sweep, true},
    {"rewards-reprefill", "rewards", stage_rewards_reprefill, true},
    {"rewards-plain", "rewards", stage_rewards_plain, true},
};
enum { N_PROMPT_STAGES = sizeof prompt_stages / sizeof *prompt_stages };

/* What a row says of its stage, once those before it have run. */
static ckvc_status describe(bench *b, const prompt_stage *stage, bench_row *row) {
    const model_shape *s = model_get_shape(b->model);
    const prompt_sets *k = b->worker.sets;
    const variant_list *v = &b->worker.variants;
    const int64_t T = b->o->n_tokens, C = b->prompt.n_continuation;
    const size_t sampled = n_sampled(b);
    const double n_actions = (double)v->n_actions, prefill = flops_prefill(s, T, b->o->window);
    uint32_t n_kept[MODEL_LAYERS_MAX];
    for (uint32_t l = 0; l < k->n_layers; l++) {
        n_kept[l] = prompt_sets_at(k, 0, l)->n_kept;
    }
    const double rollout = C > 0 ? flops_rollout(s, T, C, n_kept) : 0,
                 sweep = C > 0 ? flops_sweep(s, k, v, (uint32_t)C) : 0;
    *row = (bench_row){.stage = stage->name, .unit = stage->unit, .work = n_actions};
    snprintf(row->shape, sizeof row->shape, "T=%lld B=%u C=%lld", (long long)T, k->budget[0],
             (long long)C);
    if (stage->run == stage_prefill) {
        snprintf(row->shape, sizeof row->shape, "T=%lld", (long long)T);
        row->work = (double)T;
        row->flop = prefill;
    } else if (stage->run == stage_variants) {
        snprintf(row->shape, sizeof row->shape, "T=%lld B=%u", (long long)T, k->budget[0]);
        snprintf(row->note, sizeof row->note, "%zu distinct%s", v->n,
                 b->o->tokens ? "" : " (random ids)");
    } else if (stage->run == stage_rollout) {
        row->work = 1;
        row->flop = rollout;
    } else if (stage->run == stage_sweep) {
        row->work = (double)v->n + 2;
        row->flop = sweep;
        snprintf(row->note, sizeof row->note,
                 "%zu distinct variants and two baselines; up to %lld side by side", v->n,
                 (long long)b->worker.plan.lanes);
    } else if (stage->run == stage_rewards_sweep) {
        row->flop = sweep + prefill;
        snprintf(row->note, sizeof row->note, "with prefill and variants");
    } else {
        row->scale = (double)sampled / n_actions;
        row->flop = n_actions * (rollout + prefill);
        if (sampled < v->n_actions) {
            snprintf(row->note, sizeof row->note, "extrapolated from %zu of %zu actions", sampled,
                     v->n_actions);
        } else {
            snprintf(row->note, sizeof row->note, "all actions");
        }
        if (stage->run == stage_rewards_plain) { /* one prefill for all of them */
            const double start_s = ckvc_now_s();
            CKVC_TRY(stage_prefill(b));
            row->fixed = ckvc_now_s() - start_s;
            row->flop = n_actions * rollout + prefill;
        }
    }
    return CKVC_OK;
}

static ckvc_status bench_prompt(bench *b) {
    bool any = false;
    for (int i = 0; i < N_PROMPT_STAGES; i++) {
        if (!wanted(b, prompt_stages[i].name)) { continue; }
        any = true;
        if (prompt_stages[i].continues) { b->prompt.n_continuation = (uint32_t)b->o->continuation; }
    }
    if (!any) { return CKVC_OK; }
    CKVC_TRY(open_prompt(b));
    for (int i = 0; i < N_PROMPT_STAGES; i++) {
        const prompt_stage *stage = &prompt_stages[i];
        if (wanted(b, stage->name)) {
            bench_row row;
            CKVC_TRY(describe(b, stage, &row));
            CKVC_TRY(measure(b, stage->run, &row, NULL));
        } else if (i == 0) {
            CKVC_TRY(stage_prefill(b));
        }
        if (i == 0) { CKVC_TRY(stage_variants(b)); } /* what the other rows tell of */
    }
    return CKVC_OK;
}

/* ---- fits and shards ---- */

enum {
    FIT_STATES = 4096,
    SHARD_PROMPTS = 16,
    SHARD_RECORDS = 200000,
    COUNT_RECORDS = 1 << 20,
    COUNT_PROMPTS = 1024
};

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

static ckvc_status bench_fit(bench *b) {
    bench_row row = {.stage = "fit-exact", .unit = "states", .work = FIT_STATES};
    snprintf(row.shape, sizeof row.shape, "%d states x %d actions", FIT_STATES, CKVC_HEAD_ACTIONS);
    return measure(b, stage_fit, &row, NULL);
}

/* Records of many prompts into statistics, as a fit's reader hands them over; prompts come in
 * blocks. */
static ckvc_status stage_count(bench *b) {
    enum { EACH = COUNT_RECORDS / COUNT_PROMPTS };
    for (int p = 0; p < COUNT_PROMPTS; p++) {
        char id[32];
        snprintf(id, sizeof id, "bench-%d", p);
        cql_counts_prompt(b->counts, id);
        for (int i = 0; i < EACH; i++) {
            const double reward = b->rewards[p * EACH + i];
            CKVC_TRY(cql_counts_add(b->counts, (size_t)i / CKVC_HEAD_ACTIONS,
                                    (size_t)i % CKVC_HEAD_ACTIONS, reward, reward, b->err));
        }
    }
    return CKVC_OK;
}

static ckvc_status bench_count(bench *b) {
    const size_t n_states = COUNT_RECORDS / COUNT_PROMPTS / CKVC_HEAD_ACTIONS + 1;
    bench_row row = {.stage = "fit-count", .unit = "records", .work = COUNT_RECORDS};
    b->rewards = ckvc_alloc(COUNT_RECORDS, sizeof *b->rewards);
    ckvc_rng rng;
    ckvc_rng_init(&rng, b->o->seed, 6, 0);
    for (size_t i = 0; i < COUNT_RECORDS; i++) {
        b->rewards[i] = 0.02 * (ckvc_rng_double(&rng) - 0.5);
    }
    b->counts = cql_counts_create(n_states, CKVC_HEAD_ACTIONS);
    snprintf(row.shape, sizeof row.shape, "%zu states x %d actions", n_states, CKVC_HEAD_ACTIONS);
    return measure(b, stage_count, &row, NULL);
}

static ckvc_status stage_shard_write(bench *b) {
    unlink(b->path);
    return shard_h5_write(b->shard, b->path, b->err);
}

static ckvc_status stage_shard_read(bench *b) {
    CKVC_AUTO(shard_free_at) shard *s = NULL;
    return shard_h5_read(b->path, &s, b->err);
}

static ckvc_status bench_shard(bench *b) {
    bench_row row = {
        .stage = "shard-write", .shape = "head", .unit = "records", .work = SHARD_RECORDS};
    CKVC_TRY(bench_shard_create(SHARD_PROMPTS, SHARD_RECORDS, b->o->seed, &b->shard, b->err));
    snprintf(b->path, sizeof b->path, "%s/ckvc-bench-%ld.h5", b->o->scratch_dir, (long)getpid());
    CKVC_TRY(measure(b, stage_shard_write, &row, NULL));
    row.stage = "shard-read";
    return measure(b, stage_shard_read, &row, NULL);
}

/* ---- all of it ---- */

static void bench_fini(bench *b) {
    if (*b->path) { unlink(b->path); }
    b->be->ops->buf_free(b->be, b->x);
    b->be->ops->buf_free(b->be, b->y);
    b->be->ops->weight_free(b->be, b->w);
    free(b->values);
    bench_attention_fini(b->be, &b->attention);
    worker_close(&b->worker);
    free(b->prompt.tokens);
    ckvc_table_free(b->table);
    cql_counts_free(b->counts);
    free(b->rewards);
    shard_free(b->shard);
}

ckvc_status bench_run(backend *be, model *m, const bench_options *o, ckvc_buffer *csv,
                      ckvc_err *err) {
    CKVC_AUTO(bench_fini) bench b = {.be = be, .model = m, .o = o, .csv = csv, .err = err};
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
    if (wanted(&b, "matmul")) { CKVC_TRY(bench_matmul(&b)); }
    if (wanted(&b, "attention")) { CKVC_TRY(bench_one_attention(&b)); }
    if (m) { CKVC_TRY(bench_prompt(&b)); }
    if (wanted(&b, "fit-exact")) { CKVC_TRY(bench_fit(&b)); }
    if (wanted(&b, "fit-count")) { CKVC_TRY(bench_count(&b)); }
    return wanted(&b, "shard-write") || wanted(&b, "shard-read") ? bench_shard(&b) : CKVC_OK;
}
