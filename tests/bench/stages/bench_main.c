/* ckvc-bench: what this machine reaches, as CSV. Its options are read as a verb's of ckvc. */
#include "cmd/common/opened_inputs.h"
#include "cmd/common/verb.h"
#include "tests/bench/stages/bench.h"

typedef struct bench_cli {
    inputs_options inputs;
    budget_list budget;
    const char *variants;
    bench_options b;
} bench_cli;

static ckvc_status bench(const verb_call *call, ckvc_err *err) {
    bench_cli *c = call->options;
    bench_options *b = &c->b;
    CKVC_AUTO(inputs_close) opened_inputs e = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer csv = {0};
    USAGE_IF(c->budget.n != 1, "--budget: one value, got %u", c->budget.n);
    CKVC_TRY(inputs_variants(c->variants, &b->variants, err));
    CKVC_TRY((c->inputs.model ? inputs_open_model : inputs_open_machine)(&c->inputs, &e, err));
    if (c->inputs.model && c->inputs.manifest) {
        c->inputs.limit = 1;
        CKVC_TRY(inputs_open_prompts(&c->inputs, &e, err));
    }
    const prompt *p = e.prompts ? &e.prompts->items[0] : NULL;
    b->n_tokens = p ? p->n_tokens : c->inputs.max_tokens;
    b->continuation = p ? p->n_continuation : c->inputs.setting.continuation;
    b->tokens = p ? p->tokens : NULL;
    b->window = c->inputs.setting.window;
    b->budget = c->budget.items[0];
    b->memory = c->inputs.memory;
    b->seed = c->inputs.setting.seed;
    b->formats = (cache_formats){c->inputs.setting.cache_keys, c->inputs.setting.cache_values};
    if (e.model) {
        CKVC_TRY(cache_formats_check(b->formats, model_get_shape(e.model)->head_dim, err));
    }
    if (ckvc_budget_tokens(b->budget, (uint32_t)b->n_tokens) >= b->n_tokens) {
        ckvc_warn("budget %.10g keeps all of the %lld tokens: nothing is evicted; give a smaller "
                  "--budget",
                  b->budget, (long long)b->n_tokens);
    }
    CKVC_TRY(bench_run(e.be, e.model, b, &csv, err));
    printf("# kernel %s, %d threads\n", e.be->kernel, ckvc_pool_threads(e.pool));
    fwrite(csv.data, 1, csv.size, stdout);
    return CKVC_OK;
}

#define OPTIONS_OF bench_cli
static const opt rows[] = {
    OPT_GROUP(opts_model, inputs),
    OPT_PRESETS(opts_chat, inputs),
    OPT_TITLE("what is timed"),
    OPT_LIST("stage", b.stages, "NAME,...", "only these stages"),
    OPT_INPUT("manifest", inputs.manifest, "FILE", "its first prompt in place of random ids"),
    OPT_INT("max-tokens", inputs.max_tokens, "N", 2, 1e6, "prompt tokens", .preset = "512"),
    OPT_SETTING("window", inputs.setting, "N", 1, 1e6, "observation window", .letter = 'W'),
    OPT_SETTING("continuation", inputs.setting, "N", 2, 1e6, "continuation tokens", .letter = 'C'),
    OPT_BUDGETS(budget, "N", "tokens kept per layer, or a share"),
    OPT_GROUP(opts_formats, inputs),
    OPT_TEXT("variants", variants, "N|all", "distinct rollouts per side", .preset = "all"),
    OPT_INT("repeats", b.repeats, "N", 1, 1000, "runs of each stage; the median is printed",
            .preset = "7"),
    OPT_INT("sample", b.sample, "N", 0, 1e6, "actions timed where all are extrapolated; 0: all",
            .preset = "20"),
    OPT_SETTING("seed", inputs.setting, "N", 0, 9e15, "of the random prompt"),
    {0}};

static const verb verb_bench = {
    .name = "bench",
    .about = "what this machine reaches, as CSV",
    .summary = "time the stages of a calibration on this machine, as CSV",
    .usage = "ckvc-bench [--model DIR [--manifest FILE]] [options]",
    .examples =
        "  ckvc-bench                                       # arithmetic alone\n"
        "  ckvc-bench --model models/ckvc-tiny-8l --max-tokens 512 --budget 128\n"
        "  ckvc-bench --model DIR --max-tokens 2048 --stage matmul,prefill\n\n"
        "stages: matmul, attention (one layer's), attention-layer and attention-heads (a "
        "continuation's, to one kept set or to one a KV head); with a model demand (a prompt's, "
        "its prefill in it), prefill, window-rows (32 more rows of attention, as a policy sees "
        "them), fit "
        "(the entries of all heads, fitted to 48 queries of each query head), variants, "
        "rollout-plain, sweep, rewards-reprefill (every\n"
        "action's reward by a forward pass of its own, extrapolated from a sample), rewards-plain "
        "(one prefill, one rollout per\n"
        "action, likewise), rewards-sweep (as calibrate gets them), decode (steps of 8 sequences "
        "that hold the "
        "budget in the formats of --cache-keys and --cache-values). A stage stops repeating after "
        "a "
        "minute.\n",
    VERB_OPTIONS(rows),
    .instead = "--model and --manifest name the inputs",
    .work = bench};

int main(int argc, char **argv) {
    static const verb *const verbs[] = {&verb_bench, NULL};
    static char name[] = "bench";
    char **with_verb = ckvc_calloc((size_t)argc + 2, sizeof *with_verb);
    with_verb[0] = argv[0];
    with_verb[1] = name;
    memcpy(with_verb + 2, argv + 1, (size_t)argc * sizeof *argv);
    const int rc = verbs_run(verbs, argc + 1, with_verb);
    free(with_verb);
    return rc;
}
