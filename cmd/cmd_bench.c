/* ckvc bench: what this machine reaches, as CSV. */
#include <stdio.h>
#include <string.h>

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

/* What bf16 does to rewards and tables: float32 beside it, on a backend of its own and the same
 * threads. */
static ckvc_status measure_error(const inputs_options *o, const opened_inputs *e,
                                 const bench_options *b, ckvc_buffer *csv, ckvc_err *err) {
    const bench_error_options options = {.prompts = e->prompts->items,
                                         .n_prompts = e->prompts->n,
                                         .window = o->window,
                                         .budget = b->budget,
                                         .variants = b->variants,
                                         .memory = (size_t)o->memory / 2,
                                         .seed = b->seed};
    backend *be = NULL;
    model *reference = NULL;
    bench_error error;
    ckvc_status st = backend_create(o->backend, e->pool, &be, err);
    if (st == CKVC_OK) {
        be->ops->weight_limit(be, (o->memory > 0 ? (size_t)o->memory : memory_plan_default()) / 2);
        st = model_open(o->model, be, &reference, err);
    }
    if (st == CKVC_OK) {
        st = bench_error_measure(be, reference, e->be, e->model, &options, &error, err);
    }
    if (st == CKVC_OK) {
        char shape[96], note[64];
        ckvc_buffer text = {0};
        snprintf(shape, sizeof shape, "T=%u B=%g C=%u", e->prompts->max_tokens, b->budget,
                 e->prompts->max_continuation);
        snprintf(note, sizeof note, "%zu prompts", e->prompts->n);
        bench_error_rows(&error, shape, note, csv);
        bench_error_text(&error, strstr(backend_kernel(e->be), "bf16"), &text);
        if (!o->quiet && !text.failed) { fwrite(text.data, 1, text.size, stderr); }
        ckvc_buffer_fini(&text);
    }
    model_close(reference);
    backend_destroy(be);
    return st;
}

/* Whether to, or a mistake in what was asked for. */
static ckvc_status wants_error(const bench_cli *c, bool *wants, ckvc_err *err) {
    const inputs_options *o = &c->inputs;
    const bool bf16 = strcmp(o->compute, "bf16") == 0,
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

static ckvc_status bench(void *cli, const opt *opts, ckvc_err *err) {
    bench_cli *c = cli;
    (void)opts;
    opened_inputs e = {0};
    double budgets[256];
    uint32_t n_budgets;
    int64_t n_variants = -1;
    bool with_error = false;
    ckvc_buffer csv = {0};
    ckvc_status st = inputs_budgets(&c->budget, budgets, &n_budgets, err);
    if (st == CKVC_OK && n_budgets != 1) {
        st = ckvc_fail(err, CKVC_E_USAGE, "--budget: one value, got %u", n_budgets);
    }
    st = st ? st : inputs_variants(c->variants, &n_variants, err);
    st = st ? st : wants_error(c, &with_error, err);
    if (st == CKVC_OK && c->inputs.model) {
        st = inputs_open_model(&c->inputs, &e, err);
        if (st == CKVC_OK && c->inputs.manifest) {
            c->inputs.limit = with_error ? c->error_prompts : 1;
            st = inputs_open_prompts(&c->inputs, &e, err);
        }
    } else if (st == CKVC_OK) {
        st = inputs_open_machine(&c->inputs, &e, err);
    }
    if (st == CKVC_OK) {
        bench_options b = {.n_tokens = c->inputs.max_tokens,
                           .continuation = c->inputs.continuation,
                           .window = c->inputs.window,
                           .budget = budgets[0],
                           .variants = n_variants,
                           .repeats = (int)c->repeats,
                           .memory = (size_t)c->inputs.memory,
                           .sample = c->sample,
                           .seed = (uint64_t)c->inputs.seed,
                           .scratch_dir = c->scratch,
                           .stages = c->stages.items,
                           .n_stages = c->stages.n};
        if (e.prompts) {
            const prompt *p = &e.prompts->items[0];
            b.n_tokens = p->n_tokens;
            b.continuation = p->n_continuation;
            b.tokens = p->tokens;
        }
        st = bench_run(e.be, e.model, &b, &csv, err);
        st = st == CKVC_OK && with_error ? measure_error(&c->inputs, &e, &b, &csv, err) : st;
    }
    if (st == CKVC_OK) {
        printf("# kernel %s, %d threads\n", backend_kernel(e.be), ckvc_pool_threads(e.pool));
        fwrite(csv.data, 1, csv.size, stdout);
    }
    ckvc_buffer_fini(&csv);
    inputs_close(&e);
    return st;
}

int cmd_bench(int argc, char **argv) {
    static const verb_text text = {
        "bench", "time the stages of a calibration on this machine, as CSV",
        "ckvc bench [--model DIR [--manifest FILE]] [options]",
        "  ckvc bench                                       # arithmetic, fit and shards alone\n"
        "  ckvc bench --model models/ckvc-tiny-8l --max-tokens 512 --budget 128\n"
        "  ckvc bench --model DIR --max-tokens 2048 --stage matmul,prefill\n\n"
        "stages: matmul, attention (one layer's); with a model prefill, variants, rollout-plain, "
        "sweep, rewards-reprefill (every\n"
        "action's reward by a forward pass of its own, extrapolated from a sample), rewards-plain "
        "(one prefill, one rollout per\n"
        "action, likewise), rewards-sweep (as calibrate gets them); fit-exact, fit-count, "
        "shard-write, shard-read; with --compute\n"
        "bf16 and a manifest error: what bf16 does to rewards and tables, float32 beside it. A "
        "stage stops repeating after a\n"
        "minute.\n"};
    bench_cli c = {.inputs = inputs_defaults(),
                   .budget = {{"0.25"}, 1},
                   .repeats = 7,
                   .sample = 20,
                   .error_prompts = 8,
                   .scratch = "/tmp",
                   .variants = "all"};
    c.inputs.max_tokens = 512;
    opt opts[] = {
        OPTS_MODEL(c.inputs),
        {OPT_TITLE, "what is timed", 0, NULL, NULL, NULL, 0, 0},
        {OPT_LIST, "stage", 0, &c.stages, "NAME,...", "only these stages", 0, 0},
        {OPT_TEXT, "manifest", 0, &c.inputs.manifest, "FILE",
         "its first prompt in place of random ids", 0, 0},
        {OPT_INT, "max-tokens", 0, &c.inputs.max_tokens, "N", "prompt tokens", 2, 1e6},
        {OPT_INT, "window", 'W', &c.inputs.window, "N", "observation window", 1, 1e6},
        {OPT_INT, "continuation", 'C', &c.inputs.continuation, "N", "continuation tokens", 2, 1e6},
        {OPT_LIST, "budget", 'B', &c.budget, "N", "tokens kept per layer, or a share", 0, 0},
        {OPT_TEXT, "variants", 0, &c.variants, "N|all", "distinct rollouts per side", 0, 0},
        {OPT_INT, "repeats", 0, &c.repeats, "N", "runs of each stage; the median is printed", 1,
         1000},
        {OPT_INT, "sample", 0, &c.sample, "N", "actions timed where all are extrapolated; 0: all",
         0, 1e6},
        {OPT_INT, "error-prompts", 0, &c.error_prompts, "N",
         "prompts of stage error; 0: leave it out", 0, 1e6},
        {OPT_INT, "seed", 0, &c.inputs.seed, "N", "of the random prompt", 0, 9e15},
        {OPT_TEXT, "scratch", 0, &c.scratch, "DIR",
         "folder for the shard that is written and removed", 0, 0},
        {0}};
    return verb_run(&text, opts, "--model and --manifest name the inputs", argc, argv, bench, &c);
}
