/* ckvc bench: what this machine reaches, as CSV. */
#include <stdio.h>
#include <stdlib.h>

#include "calib/bench.h"
#include "cmd/engine.h"
#include "cmd/verbs.h"

int cmd_bench(int argc, char **argv)
{
    static const verb_text text = {
        "bench", "time the stages of a calibration on this machine, as CSV", "ckvc bench [--model DIR [--manifest FILE]] [options]",
        "  ckvc bench                                       # arithmetic, fit and shards alone\n"
        "  ckvc bench --model models/ckvc-tiny-8l --max-tokens 512 --budget 128\n"
        "  ckvc bench --model DIR --max-tokens 2048 --stage matmul,prefill\n\n"
        "stages: matmul, attention (one layer's); with a model prefill, variants, rollout-plain, sweep, rewards-reprefill (every\n"
        "action's reward by a forward pass of its own, extrapolated from a sample), rewards-plain (one prefill, one rollout per\n"
        "action, likewise), rewards-sweep (as calibrate gets them); fit-exact, fit-count, shard-write, shard-read. A stage stops\n"
        "repeating after a minute.\n"};
    engine_options o = engine_defaults();
    opt_list budget = {{"0.25"}, 1};
    opt_list stages = {{0}, 0};
    int64_t repeats = 7, sample = 20;
    const char *scratch = "/tmp", *variants = "all";
    o.max_tokens = 512;
    opt opts[] = {OPTS_MODEL(o),
                  {OPT_TITLE, "what is timed", 0, NULL, NULL, NULL, 0, 0},
                  {OPT_LIST, "stage", 0, &stages, "NAME,...", "only these stages", 0, 0},
                  {OPT_TEXT, "manifest", 0, &o.manifest, "FILE", "its first prompt in place of random ids", 0, 0},
                  {OPT_INT, "max-tokens", 0, &o.max_tokens, "N", "prompt tokens", 2, 1e6},
                  {OPT_INT, "window", 'W', &o.window, "N", "observation window", 1, 1e6},
                  {OPT_INT, "continuation", 'C', &o.continuation, "N", "continuation tokens", 2, 1e6},
                  {OPT_LIST, "budget", 'B', &budget, "N", "tokens kept per layer, or a share", 0, 0},
                  {OPT_TEXT, "variants", 0, &variants, "N|all", "distinct rollouts per side", 0, 0},
                  {OPT_INT, "repeats", 0, &repeats, "N", "runs of each stage; the median is printed", 1, 1000},
                  {OPT_INT, "sample", 0, &sample, "N", "actions timed where all are extrapolated; 0: all", 0, 1e6},
                  {OPT_INT, "seed", 0, &o.seed, "N", "of the random prompt", 0, 9e15},
                  {OPT_TEXT, "scratch", 0, &scratch, "DIR", "folder for the shard that is written and removed", 0, 0},
                  {0}};
    int rc;
    if (!opts_parse_bare(&text, opts, "--model and --manifest name the inputs", argc, argv, &rc)) {
        return rc;
    }
    ckvc_err err = {0};
    engine e = {0};
    double budgets[256];
    uint32_t n_budgets;
    int64_t n_variants = -1;
    ckvc_buffer csv = {0};
    ckvc_status st = engine_budgets(&budget, budgets, &n_budgets, &err);
    if (st == CKVC_OK && n_budgets != 1) {
        st = ckvc_fail(&err, CKVC_E_USAGE, "--budget: one value, got %u", n_budgets);
    }
    st = st ? st : engine_variants(variants, &n_variants, &err);
    if (st == CKVC_OK && o.model) {
        st = engine_open_model(&o, &e, &err);
        if (st == CKVC_OK && o.manifest) {
            o.limit = 1;
            st = engine_open_prompts(&o, &e, &err);
        }
    } else if (st == CKVC_OK) {
        st = engine_open_machine(&o, &e, &err);
    }
    if (st == CKVC_OK) {
        bench_options b = {.n_tokens = o.max_tokens,
                           .continuation = o.continuation,
                           .window = o.window,
                           .budget = budgets[0],
                           .variants = n_variants,
                           .repeats = (int)repeats,
                           .memory = (size_t)o.memory,
                           .sample = sample,
                           .seed = (uint64_t)o.seed,
                           .scratch_dir = scratch,
                           .stages = stages.items,
                           .n_stages = stages.n};
        if (e.prompts) {
            const prompt *p = &e.prompts->items[0];
            b.n_tokens = p->n_tokens;
            b.continuation = p->n_continuation;
            b.tokens = p->tokens;
        }
        st = bench_run(e.be, e.model, &b, &csv, &err);
    }
    if (st == CKVC_OK) {
        printf("# kernel %s, %d threads\n", backend_kernel(e.be), ckvc_pool_threads(e.pool));
        fwrite(csv.data, 1, csv.size, stdout);
    }
    ckvc_buffer_fini(&csv);
    engine_close(&e);
    return st == CKVC_OK ? 0 : cmd_fail(text.name, &err);
}
