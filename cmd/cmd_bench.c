/* ckvc bench: what this machine reaches, as CSV. */
#include "calib/bench/bench.h"
#include "calib/bench/bench_error.h"
#include "calib/rollout/memory_plan.h"
#include "cmd/common/opened_inputs.h"
#include "cmd/verbs.h"

typedef struct bench_cli {
    inputs_options inputs;
    opt_list budget, stages;
    int64_t repeats, sample, error_prompts;
    const char *scratch, *variants;
} bench_cli;

typedef struct bench_job {
    opened_inputs e;
    backend *reference_be; /* float32 beside bf16 */
    model *reference;
    ckvc_buffer csv;
} bench_job;

static void job_fini(bench_job *j) {
    model_close(j->reference);
    backend_destroy(j->reference_be);
    ckvc_buffer_fini(&j->csv);
    inputs_close(&j->e);
}

/* What bf16 does to rewards and tables: float32 beside it, on a backend of its own and the same
 * threads. */
static ckvc_status measure_error(const inputs_options *o, bench_job *j, const bench_options *b,
                                 ckvc_err *err) {
    const prompt_list *prompts = j->e.prompts;
    const bench_error_options options = {.window = o->setting.window,
                                         .budget = b->budget,
                                         .variants = b->variants,
                                         .memory = o->memory / 2,
                                         .seed = b->seed};
    bench_error error;
    CKVC_TRY(backend_create(o->backend, CKVC_COMPUTE_F32, j->e.pool, &j->reference_be, err));
    j->reference_be->ops->weight_limit(j->reference_be,
                                       memory_plan_limit(j->reference_be, o->memory) / 2);
    CKVC_TRY(inputs_load_model(o->model, j->reference_be, &j->reference, err));
    const calibrate_inputs inputs[2] = {
        {.model = j->reference, .backend = j->reference_be, .prompts = prompts},
        {.model = j->e.model, .backend = j->e.be, .prompts = prompts}};
    CKVC_TRY(bench_error_measure(inputs, &options, &error, err));
    char shape[96], note[64];
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    snprintf(shape, sizeof shape, "T=%u B=%g C=%u", prompts->max_tokens, b->budget,
             prompts->max_continuation);
    snprintf(note, sizeof note, "%zu prompts", prompts->n);
    bench_error_rows(&error, shape, note, &j->csv);
    bench_error_text(&error, strstr(j->e.be->kernel, "bf16"), &text);
    if (!o->quiet) { fwrite(text.data, 1, text.size, stderr); }
    return CKVC_OK;
}

/* Whether to, or a mistake in what was asked for. */
static ckvc_status wants_error(const bench_cli *c, bool *wants, ckvc_err *err) {
    const inputs_options *o = &c->inputs;
    const bool bf16 = o->setting.compute == CKVC_COMPUTE_BF16,
               possible = bf16 && o->model && o->manifest && c->error_prompts > 0;
    bool named = false;
    for (size_t i = 0; i < c->stages.n; i++) {
        named = named || strcmp(c->stages.items[i], "error") == 0;
    }
    *wants = possible && (named || c->stages.n == 0);
    return named && !possible ? ckvc_fail(err, CKVC_E_USAGE,
                                          "--stage error compares bf16 with float32: give "
                                          "--compute bf16, --model and --manifest")
                              : CKVC_OK;
}

static ckvc_status bench(const verb_call *call, ckvc_err *err) {
    bench_cli *c = call->options;
    double budgets[256];
    uint32_t n_budgets;
    int64_t n_variants;
    bool with_error;
    CKVC_AUTO(job_fini) bench_job j = {0};
    CKVC_TRY(inputs_budgets(&c->budget, budgets, &n_budgets, err));
    USAGE_IF(n_budgets != 1, "--budget: one value, got %u", n_budgets);
    CKVC_TRY(inputs_variants(c->variants, &n_variants, err));
    CKVC_TRY(wants_error(c, &with_error, err));
    if (c->inputs.model) {
        CKVC_TRY(inputs_open_model(&c->inputs, &j.e, err));
    } else {
        CKVC_TRY(inputs_open_machine(&c->inputs, &j.e, err));
    }
    if (c->inputs.model && c->inputs.manifest) {
        c->inputs.limit = with_error ? c->error_prompts : 1;
        CKVC_TRY(inputs_open_prompts(&c->inputs, &j.e, err));
    }
    bench_options b = {.n_tokens = c->inputs.max_tokens,
                       .continuation = c->inputs.setting.continuation,
                       .window = c->inputs.setting.window,
                       .budget = budgets[0],
                       .variants = n_variants,
                       .repeats = (int)c->repeats,
                       .memory = c->inputs.memory,
                       .sample = c->sample,
                       .seed = c->inputs.setting.seed,
                       .scratch_dir = c->scratch,
                       .stages = c->stages.items,
                       .n_stages = c->stages.n};
    if (j.e.prompts) {
        const prompt *p = &j.e.prompts->items[0];
        b.n_tokens = p->n_tokens;
        b.continuation = p->n_continuation;
        b.tokens = p->tokens;
    }
    if (ckvc_budget_tokens(b.budget, (uint32_t)b.n_tokens) >= b.n_tokens) {
        ckvc_warn("budget %.10g keeps all of the %lld tokens: nothing is evicted; give a smaller "
                  "--budget",
                  b.budget, (long long)b.n_tokens);
    }
    CKVC_TRY(bench_run(j.e.be, j.e.model, &b, &j.csv, err));
    if (with_error) { CKVC_TRY(measure_error(&c->inputs, &j, &b, err)); }
    printf("# kernel %s, %d threads\n", j.e.be->kernel, ckvc_pool_threads(j.e.pool));
    fwrite(j.csv.data, 1, j.csv.size, stdout);
    return CKVC_OK;
}

#define OPTIONS_OF bench_cli
static const opt rows[] = {
    OPT_GROUP(opts_model, inputs),
    OPT_PRESETS(opts_chat, inputs),
    OPT_TITLE("what is timed"),
    OPT_LIST("stage", stages, "NAME,...", "only these stages"),
    OPT_INPUT("manifest", inputs.manifest, "FILE", "its first prompt in place of random ids"),
    OPT_INT("max-tokens", inputs.max_tokens, "N", 2, 1e6, "prompt tokens", .preset = "512"),
    OPT_SETTING("window", inputs.setting, "N", 1, 1e6, "observation window", .letter = 'W'),
    OPT_SETTING("continuation", inputs.setting, "N", 2, 1e6, "continuation tokens", .letter = 'C'),
    OPT_LIST("budget", budget, "N", "tokens kept per layer, or a share", .letter = 'B',
             .preset = "0.25"),
    OPT_TEXT("variants", variants, "N|all", "distinct rollouts per side", .preset = "all"),
    OPT_INT("repeats", repeats, "N", 1, 1000, "runs of each stage; the median is printed",
            .preset = "7"),
    OPT_INT("sample", sample, "N", 0, 1e6, "actions timed where all are extrapolated; 0: all",
            .preset = "20"),
    OPT_INT("error-prompts", error_prompts, "N", 0, 1e6, "prompts of stage error; 0: leave it out",
            .preset = "8"),
    OPT_SETTING("seed", inputs.setting, "N", 0, 9e15, "of the random prompt"),
    OPT_TEXT("scratch", scratch, "DIR", "folder for the shard that is written and removed",
             .preset = "/tmp"),
    {0}};

const verb verb_bench = {
    .name = "bench",
    .about = "what this machine reaches, as CSV",
    .summary = "time the stages of a calibration on this machine, as CSV",
    .usage = "ckvc bench [--model DIR [--manifest FILE]] [options]",
    .examples =
        "  ckvc bench                                       # arithmetic, fit and shards alone\n"
        "  ckvc bench --model models/ckvc-tiny-8l --max-tokens 512 --budget 128\n"
        "  ckvc bench --model DIR --max-tokens 2048 --stage matmul,prefill\n\n"
        "stages: matmul, attention (one layer's), attention-layer and attention-heads (a "
        "continuation's, to one kept set or to one a KV head); with a model demand (a prompt's, "
        "its prefill in it), prefill, variants, rollout-plain, sweep, rewards-reprefill (every\n"
        "action's reward by a forward pass of its own, extrapolated from a sample), rewards-plain "
        "(one prefill, one rollout per\n"
        "action, likewise), rewards-sweep (as calibrate gets them); fit-exact, fit-count, "
        "shard-write, shard-read; with --compute\n"
        "bf16 and a manifest error: what bf16 does to rewards and tables, float32 beside it. A "
        "stage stops repeating after a\n"
        "minute.\n",
    VERB_OPTIONS(rows),
    .instead = "--model and --manifest name the inputs",
    .work = bench};
