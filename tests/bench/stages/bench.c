/* Timed stages: see bench.h. Without a prompt the ids are random: the arithmetic of a prefill does
 * not depend on what they mean, but what is kept, and so how many variants differ, does. */
#include "tests/bench/stages/bench.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "calib/actions/prompt_sets.h"
#include "calib/demand/demand_meter.h"
#include "judge/policies/fitted_entries.h"
#include "lib/base/order.h"
#include "lib/base/progress.h"
#include "lib/model/decoder.h"
#include "tests/bench/stages/flops.h"

/* A row of the table. */
typedef struct bench_row {
    char shape[128], note[128];
    double work, flop; /* flop 0: not counted */
    double scale;      /* what was timed is this part of the work; 0 stands for 1, all of it */
    double fixed;      /* seconds that are added to it unscaled */
    int64_t runs;      /* at least; 0: as many as were asked for */
} bench_row;
#define SHAPE(...) snprintf(row->shape, sizeof row->shape, __VA_ARGS__)
#define NOTE(...)  snprintf(row->note, sizeof row->note, __VA_ARGS__)

enum {
    BUFS = 6,
    INSTRUCTION = 9, /* tokens before the repeated prompt */
    DECODED = 8,     /* sequences that are decoded side by side */
    BANK = 48,       /* reference queries of each query head */
    MORE_ROWS = 32   /* of attention */
};

typedef struct bench {
    backend *be;
    model *model;
    const bench_options *o;
    ckvc_buffer *csv;
    ckvc_err *err;
    const struct bench_stage *stage; /* that is timed */
    double peak;                     /* flop/s of the matmul stage; 0: not run */
    int64_t gemm_rows;               /* of that stage's product */
    /* matmul, attention */
    be_weight *w;
    float *values; /* of w */
    be_buf *bufs[BUFS];
    be_attention_shape layer; /* the model's first, or one of SmolLM2-135M's */
    kept_set kept;            /* of attention-layer, attention-heads */
    uint32_t *kept_buffer;    /* its offsets and positions */
    /* the prompt */
    manifest_entry entry;
    prompt prompt; /* T tokens; C, or 0 when no stage continues it */
    ckvc_table *table;
    worker worker;
    demand_meter demand;
    prompt repeated;   /* the prompt, or as much of it as the context holds twice */
    double quarter;    /* of its tokens */
    uint32_t *entries; /* [L][G] */
    /* what a head of the prompt is fitted with */
    entry_fitter fitter;
    ckvc_table *bank;
    double rows_s; /* of the stage window-rows; 0: not run */
    sequence *sequences[DECODED];
    decoder *decoder;
} bench;

/* A stage: `open` makes what it runs on and fills its row, `run` is what is timed. Stages stand in
 * their order; one that works on the prompt finds what those before it left. */
typedef struct bench_stage {
    const char *name, *unit;
    ckvc_status (*open)(bench *b, bench_row *row);
    ckvc_status (*run)(bench *b);
    bool of_prompt; /* needs a model */
    bool continues; /* the prompt */
    bool each;      /* head has a set of its own; action has a prefill of its own */
} bench_stage;

static void ignore_head(void *ctx, const prefill_head *head) {
    (void)ctx;
    (void)head;
}

static const prefill_watcher more_rows = {
    .n_rows = MORE_ROWS, .later = true, .on_head = ignore_head};

static bool wanted(const bench_options *o, const char *stage) {
    bool any = o->stages.n == 0;
    for (size_t i = 0; i < o->stages.n; i++) {
        any = any || strcmp(o->stages.items[i], stage) == 0;
    }
    return any;
}

/* ---- arithmetic ---- */

enum { GEMM_ROWS = 512, GEMM_OUT = 2048, GEMM_IN = 768, PEAK_RUNS = 50 /* a peak is a best one */ };

/* n values in [-scale / 2, scale / 2). */
static float *random_values(bench *b, uint32_t stream, size_t n, double scale) {
    float *values = ckvc_alloc_aligned(n, sizeof *values);
    ckvc_rng rng;
    ckvc_rng_init(&rng, b->o->seed, stream, 0);
    for (size_t i = 0; i < n; i++) { values[i] = (float)((ckvc_rng_double(&rng) - 0.5) * scale); }
    return values;
}

/* Buffer i of n values; values NULL: left as it is. */
static void fill_buf(bench *b, int i, const float *values, size_t n) {
    b->bufs[i] = b->be->ops->buf_create(b->be, n);
    if (values) { b->be->ops->write(b->be, b->bufs[i], 0, values, n); }
}

static void drop_bufs(bench *b) {
    for (int i = 0; i < BUFS; i++) {
        b->be->ops->buf_free(b->be, b->bufs[i]);
        b->bufs[i] = NULL;
    }
}

/* On a GPU the model's gate matrix and rows enough to fill it: what it does best. */
static ckvc_status open_matmul(bench *b, bench_row *row) {
    const backend_ops *ops = b->be->ops;
    const model_shape *s = b->model && b->be->fill_rows ? model_get_shape(b->model) : NULL;
    const int64_t n_rows = s ? 8 * b->be->fill_rows : GEMM_ROWS,
                  out = s ? s->intermediate : GEMM_OUT, in = s ? s->width : GEMM_IN,
                  most = out > n_rows ? out : n_rows;
    b->values = random_values(b, 3, (size_t)(most * in), 1);
    const be_matrix m = {.bytes = b->values, .type = BE_F32, .rows = out, .cols = in};
    CKVC_TRY(ops->weight_create(b->be, &m, &b->w, b->err));
    CKVC_TRY(ops->weight_acquire(b->be, b->w, b->err));
    fill_buf(b, 0, b->values, (size_t)(n_rows * in));
    fill_buf(b, 1, NULL, (size_t)(n_rows * out));
    b->gemm_rows = n_rows;
    row->work = row->flop = 2.0 * (double)n_rows * (double)out * (double)in;
    row->runs = PEAK_RUNS;
    SHAPE("%" PRId64 "x%" PRId64 "x%" PRId64, n_rows, out, in);
    return CKVC_OK;
}

static ckvc_status run_matmul(bench *b) {
    b->be->ops->matmul(b->be, b->w, NULL, b->bufs[0], &(be_product_rows){.n = b->gemm_rows}, false,
                       b->bufs[1]);
    return b->be->ops->sync(b->be, b->err);
}

/* One layer's causal attention of all rows of a prompt. */
static ckvc_status open_attention(bench *b, bench_row *row) {
    const int64_t T = b->o->n_tokens, rows = be_padded_rows(T);
    const be_attention_shape *s = &b->layer;
    const size_t q = (size_t)(rows * s->n_heads * s->head_dim),
                 kv = (size_t)(rows * s->n_kv_heads * s->head_dim);
    CKVC_AUTO_FREE float *values = random_values(b, 7, q + 2 * kv, 2);
    fill_buf(b, 0, values, q);
    fill_buf(b, 1, values + q, kv);
    fill_buf(b, 2, values + q + kv, kv);
    fill_buf(b, 3, NULL, q);
    row->work = (double)T;
    row->flop = flops_attention(s->n_heads, s->head_dim, s->window, T);
    SHAPE("T=%" PRId64 " H=%d G=%d D=%d", T, s->n_heads, s->n_kv_heads, s->head_dim);
    return CKVC_OK;
}

static ckvc_status run_attention(bench *b) {
    const be_cache cache = {
        .k = b->bufs[1], .v = b->bufs[2], .capacity = be_padded_rows(b->o->n_tokens)};
    b->be->ops->attention_causal(b->be, &b->layer, 0, b->o->n_tokens, b->bufs[0], &cache,
                                 b->bufs[3]);
    return b->be->ops->sync(b->be, b->err);
}

/* Positions at equal distances in n_sets sets whose sizes rise by equal steps around B, from at
 * least 1 to at most T: n_sets times B entries. */
static void make_kept(bench *b, int32_t n_sets, uint32_t B, uint32_t T) {
    const uint32_t step = (B < T - B ? B : T - B) / (uint32_t)n_sets;
    b->kept_buffer =
        ckvc_realloc_array(b->kept_buffer, (size_t)n_sets * (B + 1) + 1, sizeof *b->kept_buffer);
    uint32_t *offsets = b->kept_buffer, *positions = offsets + n_sets + 1;
    offsets[0] = 0;
    for (int32_t k = 0; k < n_sets; k++) {
        const uint32_t n = (uint32_t)((int64_t)B + (2 * k - (n_sets - 1)) * (int64_t)step);
        for (uint32_t i = 0; i < n; i++) {
            positions[offsets[k] + i] = (uint32_t)((uint64_t)i * T / n);
        }
        offsets[k + 1] = offsets[k] + n;
    }
    b->kept = (kept_set){n_sets, offsets, positions, false, {0}};
}

/* One layer's attention of a continuation's rows over what is kept: one set, or one a KV head. */
static ckvc_status open_kept(bench *b, bench_row *row) {
    const int64_t T = b->o->n_tokens, C = b->o->continuation, own = be_padded_rows(C);
    const uint32_t asked = ckvc_budget_tokens(b->o->budget, (uint32_t)T),
                   B = asked < T ? asked : (uint32_t)T;
    const be_attention_shape *s = &b->layer;
    const size_t q = (size_t)(own * s->n_heads * s->head_dim),
                 kv = (size_t)s->n_kv_heads * (size_t)s->head_dim,
                 most = (size_t)(own > T ? own : T);
    CKVC_AUTO_FREE float *values = random_values(b, 8, q + kv * most, 2);
    fill_buf(b, 0, values, q);
    for (int i = 1; i < 5; i++) { fill_buf(b, i, values + q, kv * (size_t)(i < 3 ? T : own)); }
    fill_buf(b, 5, NULL, q);
    make_kept(b, b->stage->each ? s->n_kv_heads : 1, B, (uint32_t)T);
    row->work = (double)C;
    row->flop = flops_kept(s->n_heads, s->head_dim, B, C);
    SHAPE("T=%" PRId64 " B=%u C=%" PRId64 " H=%d G=%d D=%d", T, B, C, s->n_heads, s->n_kv_heads,
          s->head_dim);
    const uint32_t *at = b->kept.offsets;
    const int32_t n = b->kept.n_sets;
    NOTE("sets of %u to %u entries", at[1], at[n] - at[n - 1]);
    return CKVC_OK;
}

static ckvc_status run_kept(bench *b) {
    const int64_t T = b->o->n_tokens, C = b->o->continuation;
    const be_continuation c = {.n_rows = C,
                               .n_prompt = T,
                               .q = b->bufs[0],
                               .prompt = {b->bufs[1], b->bufs[2], T, {0}},
                               .own = {b->bufs[3], b->bufs[4], be_padded_rows(C), {0}}};
    const be_lane lane = {.kept = &b->kept};
    b->be->ops->attention_kept(b->be, &b->layer, &c, &lane, 1, b->bufs[5]);
    return b->be->ops->sync(b->be, b->err);
}

/* ---- a prompt ---- */

/* The prompt and room for what is done with it. */
static ckvc_status open_prompt(bench *b) {
    const model_shape *s = model_get_shape(b->model);
    const int64_t T = b->o->n_tokens, C = b->prompt.n_continuation;
    static char id[] = "bench";
    CKVC_FAIL_IF(T + C > model_shape_context(s) || T <= b->o->window, b->err, CKVC_E_USAGE,
                 "%" PRId64 " + %" PRId64 " tokens: the model's context is %" PRId64
                 ", the window %" PRId64 "; use other --max-tokens, --continuation or --window",
                 T, C, (int64_t)model_shape_context(s), b->o->window);
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
    const bool sweep = wanted(b->o, "sweep") || wanted(b->o, "rewards-sweep");
    worker_options o = {
        .setting = {.window = (uint32_t)b->o->window},
        .behaviour = {.sides = {true, true}, .limit = b->o->variants, .seed = b->o->seed},
        .rollouts = sweep ? ROLLOUTS_SWEEP : ROLLOUTS_PLAIN,
        .fitted = wanted(b->o, "fit"),
        .max_watched = wanted(b->o, "window-rows") ? MORE_ROWS : 0,
        .watched_later = wanted(b->o, "window-rows"),
        .memory = b->o->memory};
    if (!wanted(b->o, "demand")) { return worker_open(&b->worker, &in, &o, b->table, b->err); }
    const int64_t longest = repeat_longest(model_shape_context(s), INSTRUCTION);
    b->repeated = b->prompt;
    b->repeated.n_tokens = (uint32_t)(T < longest ? T : longest);
    CKVC_FAIL_IF(longest <= b->o->window, b->err, CKVC_E_USAGE,
                 "demand: a context of %" PRId64 " tokens does not hold a prompt of the window "
                 "%" PRId64 " twice",
                 (int64_t)model_shape_context(s), b->o->window);
    b->quarter = floor(fmax(1, b->repeated.n_tokens / 4.0));
    b->entries = ckvc_alloc((size_t)s->n_layers * (size_t)s->n_kv_heads, sizeof *b->entries);
    const demand_options demand = {.setting = {.budgets = {&b->quarter, 1}, .floor = 0.2},
                                   .instruction = b->prompt.tokens,
                                   .n_instruction = INSTRUCTION};
    const prompt_list twice = {.items = &b->repeated, .n = 1, .max_tokens = b->repeated.n_tokens};
    const calibrate_inputs of = {.model = b->model, .backend = b->be, .prompts = &twice};
    demand_need(&demand, &of, &o);
    CKVC_TRY(demand_meter_open(&b->demand, &demand, &of, b->err));
    return worker_open(&b->worker, &in, &o, b->table, b->err);
}

static ckvc_status run_demand(bench *b) {
    demand_meter *meter = &b->demand;
    worker *w = &b->worker;
    const prompt *p = &b->repeated;
    bool finite;
    CKVC_TRY(demand_measure(&meter, &w, &p, 1, b->err));
    b->worker.fed = 0;
    CKVC_TRY(demand_weigh(meter, w, &finite, b->err));
    demand_entries(meter, p->n_tokens, 0, b->entries, b->entries, b->entries);
    return CKVC_OK;
}

static ckvc_status open_demand(bench *b, bench_row *row) {
    const int64_t T = b->repeated.n_tokens;
    row->work = (double)T;
    row->flop = flops_demand(model_get_shape(b->model), T, b->o->window, T + INSTRUCTION);
    SHAPE("T=%u", b->repeated.n_tokens);
    NOTE("prefill and repeat pass");
    return CKVC_OK;
}

static ckvc_status run_prefill(bench *b) {
    b->worker.watcher = wanted(b->o, "window-rows") ? &more_rows : NULL;
    return worker_prefill(&b->worker, &b->prompt, b->err);
}

static ckvc_status open_prefill(bench *b, bench_row *row) {
    const int64_t T = b->o->n_tokens;
    row->work = (double)T;
    row->flop = flops_prefill(model_get_shape(b->model), T, b->o->window);
    SHAPE("T=%" PRId64, T);
    return CKVC_OK;
}

/* The attention of so many last rows, as a policy sees it. */
static ckvc_status open_rows(bench *b, bench_row *row) {
    row->work = MORE_ROWS;
    SHAPE("T=%" PRId64, b->o->n_tokens);
    return CKVC_OK;
}

static ckvc_status run_rows(bench *b) {
    return session_show(b->worker.session, &more_rows, b->err);
}

/* Entries of all heads, fitted to a bank of random queries. */
static ckvc_status open_fit(bench *b, bench_row *row) {
    const model_shape *s = model_get_shape(b->model);
    const uint32_t L = (uint32_t)s->n_layers, G = (uint32_t)s->n_kv_heads, H = (uint32_t)s->n_heads,
                   D = (uint32_t)s->head_dim, T = (uint32_t)b->o->n_tokens,
                   asked = ckvc_budget_tokens(b->o->budget, T), B = asked < T ? asked : T;
    CKVC_AUTO_FREE float *queries = random_values(b, 9, (size_t)L * H * BANK * D, 4);
    b->bank = ckvc_table_clone(b->table);
    if (b->bank) { b->bank->n_query_heads = H; }
    if (!b->bank || ckvc_table_add_shares(b->bank, 0) || ckvc_table_add_bank(b->bank, BANK, D)) {
        ckvc_out_of_memory(BANK, D);
    }
    memcpy(b->bank->bank, queries, (size_t)L * H * BANK * D * sizeof *queries);
    b->bank->bank_use[0] = (ckvc_bank_use){BANK, 96};
    entry_fitter_open(&b->fitter, s, T, b->bank);
    make_kept(b, (int32_t)G, B, T);
    row->work = L * G;
    SHAPE("T=%u B=%u n=%u D=%u", T, B, H / G * BANK, D);
    if (b->rows_s > 0) {
        NOTE("%d more window rows of this run took %.3g s", MORE_ROWS, b->rows_s);
    }
    return CKVC_OK;
}

static ckvc_status run_fit(bench *b) {
    const double ridge = 0.1;
    kept_set sets[MODEL_LAYERS_MAX];
    entry_fitter_forget(&b->fitter);
    for (int32_t l = 0; l < model_get_shape(b->model)->n_layers; l++) { sets[l] = b->kept; }
    return entry_fitter_fit(&b->fitter,
                            &(fit_request){.session = b->worker.session,
                                           .n_tokens = (uint32_t)b->o->n_tokens,
                                           .table = b->bank,
                                           .ridge = &ridge,
                                           .sets = sets},
                            b->err);
}

static ckvc_status run_variants(bench *b) {
    worker_keep(&b->worker, &b->prompt, true);
    return CKVC_OK;
}

static ckvc_status open_variants(bench *b, bench_row *row) {
    const variant_list *v = &b->worker.variants;
    CKVC_TRY(run_variants(b));
    row->work = (double)v->n_actions;
    SHAPE("T=%" PRId64 " B=%u", b->o->n_tokens, b->worker.sets->budget[0]);
    NOTE("%zu distinct%s", v->n, b->o->tokens ? "" : " (random ids)");
    return CKVC_OK;
}

/* What rollouts share; returns the operations of one under the baseline. */
static double describe_rollouts(bench *b, bench_row *row) {
    const prompt_sets *k = b->worker.sets;
    uint32_t n_kept[MODEL_LAYERS_MAX];
    for (uint32_t l = 0; l < k->n_layers; l++) { n_kept[l] = prompt_sets_at(k, 0, l)->n_kept; }
    row->work = (double)b->worker.variants.n_actions;
    SHAPE("T=%" PRId64 " B=%u C=%u", b->o->n_tokens, k->budget[0], b->prompt.n_continuation);
    return flops_rollout(model_get_shape(b->model), b->o->n_tokens, b->prompt.n_continuation,
                         n_kept);
}

static ckvc_status open_rollout(bench *b, bench_row *row) {
    row->flop = describe_rollouts(b, row);
    row->work = 1;
    return CKVC_OK;
}

static ckvc_status run_rollout(bench *b) {
    double loss;
    return rollout_baseline(&b->worker.scratch, &b->worker.losses, 0, &loss, b->err);
}

static ckvc_status open_sweep(bench *b, bench_row *row) {
    const variant_list *v = &b->worker.variants;
    describe_rollouts(b, row);
    row->work = (double)v->n + 2;
    row->flop = flops_sweep(model_get_shape(b->model), b->worker.sets, v, b->prompt.n_continuation);
    NOTE("%zu distinct variants and two baselines; up to %" PRId64 " side by side", v->n,
         (int64_t)b->worker.plan.lanes);
    return CKVC_OK;
}

static ckvc_status run_sweep(bench *b) {
    return rollouts_sweep_together(&(prompt_rollouts){&b->worker.scratch, &b->worker.losses}, 1,
                                   b->err);
}

static ckvc_status open_rewards_sweep(bench *b, bench_row *row) {
    CKVC_TRY(open_sweep(b, row));
    row->work = (double)b->worker.variants.n_actions;
    row->flop += flops_prefill(model_get_shape(b->model), b->o->n_tokens, b->o->window);
    NOTE("with prefill and variants");
    return CKVC_OK;
}

static ckvc_status run_rewards_sweep(bench *b) {
    CKVC_TRY(run_prefill(b));
    CKVC_TRY(run_variants(b));
    return run_sweep(b);
}

static size_t n_sampled(const bench *b) {
    const size_t n = b->worker.variants.n_actions, sample = (size_t)b->o->sample;
    return b->o->sample > 0 && sample < n ? sample : n;
}

/* Every action's reward the plain way, from a sample of them: with one prefill, or one for each. */
static ckvc_status open_sample(bench *b, bench_row *row) {
    const size_t n = b->worker.variants.n_actions, sampled = n_sampled(b);
    const double rollout = describe_rollouts(b, row), prefills = b->stage->each ? (double)n : 1;
    row->scale = (double)sampled / (double)n;
    row->flop = (double)n * rollout +
                prefills * flops_prefill(model_get_shape(b->model), b->o->n_tokens, b->o->window);
    NOTE(sampled < n ? "extrapolated from %zu of %zu actions" : "all actions", sampled, n);
    if (b->stage->each) { return CKVC_OK; }
    const double start_s = ckvc_now_s();
    CKVC_TRY(run_prefill(b));
    row->fixed = ckvc_now_s() - start_s;
    return CKVC_OK;
}

/* Sampled actions at equal distances, so that every layer has its share. */
static ckvc_status run_sample(bench *b) {
    worker *w = &b->worker;
    const size_t n = n_sampled(b);
    for (size_t i = 0; i < n; i++) {
        const taken_action *t =
            &w->variants.actions[(size_t)((double)i * (double)w->variants.n_actions / (double)n)];
        double loss;
        if (b->stage->each) { CKVC_TRY(run_prefill(b)); }
        CKVC_TRY(t->variant == VARIANT_NONE
                     ? rollout_baseline(&w->scratch, &w->losses, t->budget, &loss, b->err)
                     : rollout_variant(&w->scratch, &w->losses, t->variant, &loss, b->err));
    }
    return CKVC_OK;
}

/* ---- decoding ---- */

/* The bytes of memory that this process has in use. */
static double resident_bytes(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*d %ld", &pages) != 1) { pages = 0; }
    if (f) { fclose(f); }
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* Steps of DECODED sequences that hold B entries a head of the prompt, in the formats asked for. */
static ckvc_status open_decode(bench *b, bench_row *row) {
    const uint32_t T = (uint32_t)b->o->n_tokens, asked = ckvc_budget_tokens(b->o->budget, T),
                   B = asked < T ? asked : T;
    const int32_t L = model_get_shape(b->model)->n_layers;
    CKVC_AUTO_FREE kept_set *sets = ckvc_calloc((size_t)L, sizeof *sets);
    make_kept(b, 1, B, T);
    b->kept.formats = b->o->formats;
    for (int32_t l = 0; l < L; l++) { sets[l] = b->kept; }
    const double before = resident_bytes();
    for (int i = 0; i < DECODED; i++) {
        CKVC_TRY(
            sequence_create(b->worker.session, sets, b->o->repeats + 2, &b->sequences[i], b->err));
    }
    NOTE("%.1f MB held; resident memory grew by %.1f MB",
         DECODED * (double)sequence_bytes(b->sequences[0]) / 1e6,
         (resident_bytes() - before) / 1e6);
    row->work = DECODED;
    SHAPE("T=%u B=%u batch=%d %zu bytes an entry", T, B, DECODED,
          cache_entry_bytes(b->o->formats, b->layer.head_dim));
    return decoder_create(b->model, DECODED, &b->decoder, b->err);
}

static ckvc_status run_decode(bench *b) {
    static const int32_t tokens[DECODED] = {1, 2, 3, 4, 5, 6, 7, 8};
    be_greedy next[DECODED];
    return decoder_step(b->decoder, b->sequences, tokens, DECODED, NULL, next, b->err);
}

/* ---- all of it ---- */

static const bench_stage stages[] = {
    {"matmul", "flop", open_matmul, run_matmul, false, false, false},
    {"attention", "rows", open_attention, run_attention, false, false, false},
    {"attention-layer", "rows", open_kept, run_kept, false, false, false},
    {"attention-heads", "rows", open_kept, run_kept, false, false, true},
    {"demand", "tokens", open_demand, run_demand, true, true, false},
    {"prefill", "tokens", open_prefill, run_prefill, true, false, false},
    {"window-rows", "rows", open_rows, run_rows, true, true, false},
    {"fit", "heads", open_fit, run_fit, true, true, false},
    {"variants", "actions", open_variants, run_variants, true, false, false},
    {"rollout-plain", "rollouts", open_rollout, run_rollout, true, true, false},
    {"sweep", "rollouts", open_sweep, run_sweep, true, true, false},
    {"rewards-sweep", "rewards", open_rewards_sweep, run_rewards_sweep, true, true, false},
    {"rewards-reprefill", "rewards", open_sample, run_sample, true, true, true},
    {"rewards-plain", "rewards", open_sample, run_sample, true, true, false},
    {"decode", "tokens", open_decode, run_decode, true, true, false},
};
enum { N_STAGES = sizeof stages / sizeof *stages };

/* Runs a stage up to o->repeats times, the first time unmeasured unless that alone takes long, and
 * adds its row to the table. */
static ckvc_status measure(bench *b, const bench_row *r) {
    const bench_stage *stage = b->stage;
    const int64_t repeats = r->runs > b->o->repeats ? r->runs : b->o->repeats;
    const double scale = r->scale > 0 ? r->scale : 1, begin_s = ckvc_now_s();
    CKVC_AUTO_FREE double *each = ckvc_calloc((size_t)repeats, sizeof *each);
    double spent_s = 0;
    int n = 0;
    CKVC_TRY(stage->run(b));
    if (ckvc_now_s() - begin_s > BENCH_ENOUGH / 6) { spent_s = each[n++] = ckvc_now_s() - begin_s; }
    while (n < repeats && (n == 0 || spent_s < BENCH_ENOUGH)) {
        const double start_s = ckvc_now_s();
        CKVC_TRY(stage->run(b));
        each[n] = ckvc_now_s() - start_s;
        spent_s += each[n++];
    }
    qsort(each, (size_t)n, sizeof *each, ckvc_order_double);
    const double median_s = each[n / 2] / scale + r->fixed, min_s = each[0] / scale + r->fixed;
    ckvc_buffer_printf(b->csv, "%s,%s,%.6g,%s,%d,%.6g,%.6g,%.6g,", stage->name, r->shape, r->work,
                       stage->unit, n, median_s, min_s, r->work / median_s);
    if (r->flop > 0) { ckvc_buffer_printf(b->csv, "%.6g", r->flop * 1e-9); }
    ckvc_buffer_text(b->csv, ",");
    if (r->flop > 0 && b->peak > 0) {
        ckvc_buffer_printf(b->csv, "%.3f", r->flop / median_s / b->peak);
    }
    ckvc_buffer_printf(b->csv, ",%s\n", r->note);
    if (stage->run == run_matmul) { b->peak = r->flop / min_s; }
    if (stage->run == run_rows) { b->rows_s = median_s; }
    return CKVC_OK;
}

static ckvc_status check_names(const bench_options *o, ckvc_err *err) {
    for (size_t i = 0; i < o->stages.n; i++) {
        size_t k = 0;
        while (k < N_STAGES && strcmp(stages[k].name, o->stages.items[i]) != 0) { k++; }
        CKVC_FAIL_IF(k == N_STAGES, err, CKVC_E_USAGE, "--stage: there is no \"%s\"; see --help",
                     o->stages.items[i]);
    }
    return CKVC_OK;
}

static void bench_fini(bench *b) {
    drop_bufs(b);
    for (int i = 0; i < DECODED; i++) { sequence_free(b->sequences[i]); }
    decoder_destroy(b->decoder);
    b->be->ops->weight_free(b->be, b->w);
    worker_close(&b->worker);
    demand_meter_close(&b->demand);
    entry_fitter_close(&b->fitter);
    ckvc_table_free(b->bank);
    CKVC_FREE(b->values, b->entries, b->kept_buffer, b->prompt.tokens);
    ckvc_table_free(b->table);
}

/* The prompt, where a stage works on one. */
static ckvc_status begin_prompt(bench *b) {
    bool any = false;
    for (int i = 0; i < N_STAGES; i++) {
        if (!stages[i].of_prompt || !wanted(b->o, stages[i].name)) { continue; }
        any = true;
        if (stages[i].continues) { b->prompt.n_continuation = (uint32_t)b->o->continuation; }
    }
    return any ? open_prompt(b) : CKVC_OK;
}

ckvc_status bench_run(backend *be, model *m, const bench_options *o, ckvc_buffer *csv,
                      ckvc_err *err) {
    CKVC_AUTO(bench_fini)
    bench b = {.be = be, .model = m, .o = o, .csv = csv, .err = err};
    b.layer = (be_attention_shape){.n_heads = 9, .n_kv_heads = 3, .head_dim = 64, .scale = 0.125f};
    if (m) {
        const model_shape *s = model_get_shape(m);
        b.layer.n_heads = s->n_heads;
        b.layer.n_kv_heads = s->n_kv_heads;
        b.layer.head_dim = s->head_dim;
        b.layer.window = model_shape_window(s, 0);
    }
    CKVC_TRY(check_names(o, err));
    ckvc_buffer_text(
        csv, "stage,shape,work,unit,runs,seconds_median,seconds_min,rate,gflop,share,note\n");
    if (m) { CKVC_TRY(begin_prompt(&b)); }
    for (int i = 0; i < N_STAGES; i++) {
        const bench_stage *stage = b.stage = &stages[i];
        bench_row row = {0};
        if (stage->of_prompt && !b.worker.session) { continue; }
        if (wanted(o, stage->name)) {
            CKVC_TRY(stage->open(&b, &row));
            CKVC_TRY(measure(&b, &row));
            if (!stage->of_prompt) { drop_bufs(&b); }
        } else if (stage->of_prompt && !stage->continues) { /* what the others stand on */
            CKVC_TRY(stage->run(&b));
        }
    }
    return CKVC_OK;
}
