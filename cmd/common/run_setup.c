/* A run in the making: see run_setup.h. */
#include "cmd/common/run_setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calib/prompt/sample.h"
#include "calib/actions/start_table.h"
#include "cmd/common/coverage_text.h"
#include "formats/lines/layer_budgets.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/progress.h"

run_setup_options run_setup_defaults(void) {
    return (run_setup_options){.inputs = inputs_defaults(),
                               .side = "both",
                               .behaviour = "balanced",
                               .variants = "256",
                               .bin_edges = "quantile",
                               .rollouts = "sweep",
                               .operator_name = "paper",
                               .budget = {{"512"}, 1},
                               .bins = {{"20", "4"}, 2},
                               .head_grid = {{ACTION_GRID_HEADS}, 1},
                               .gate_grid = {{ACTION_GRID_GATES}, 1},
                               .beta_bud = 1,
                               .reduction = "mean",
                               .cql_alpha = fit_defaults().cql_alpha,
                               .reward = "advantage",
                               .shard_prompts = 16,
                               .min_cell = 8};
}

ckvc_table *run_setup_table(const run_setup *j) {
    return j->tables ? j->tables->table : j->start;
}

void run_setup_close(run_setup *j) {
    json_decref(j->plan.leak_check);
    run_close(j->run);
    run_close(j->scan_run);
    ckvc_table_free(j->start);
    table_file_free(j->tables);
    free(j->layer_budgets);
    inputs_close(&j->e);
}

ckvc_status run_setup_open(const run_setup_options *c, run_setup *j, ckvc_err *err) {
    ckvc_status st = inputs_open_model(&c->inputs, &j->e, err);
    if (st == CKVC_OK) { st = inputs_open_prompts(&c->inputs, &j->e, err); }
    if (st != CKVC_OK) { return st; }
    if (!c->out && !c->dry_run) {
        return ckvc_fail(err, CKVC_E_USAGE, "--out RUN is needed: the run directory to make");
    }
    j->inputs = (calibrate_inputs){j->e.model, j->e.be, j->e.manifest, j->e.prompts};
    j->options = (calibrate_options){
        .window = c->inputs.window,
        .continuation = c->inputs.continuation,
        .alpha_kind = inputs_alpha(&c->inputs),
        .keep_window = (uint32_t)c->inputs.keep_window,
        .beta_bud = c->beta_bud,
        .reduction = strcmp(c->reduction, "sum") == 0 ? CKVC_LOSS_SUM : CKVC_LOSS_MEAN,
        .seed = (uint64_t)c->inputs.seed,
        .shard_prompts = (uint32_t)c->shard_prompts,
        .max_failures = c->max_failures,
        .limit_time_s = (double)c->limit_time,
        .until_stable = c->until_stable,
        .until_cql_alpha = c->cql_alpha,
        .until_reward = strcmp(c->reward, "raw") == 0 ? FIT_RAW : FIT_ADVANTAGE,
        .rollouts = strcmp(c->rollouts, "plain") == 0 ? ROLLOUTS_PLAIN : ROLLOUTS_SWEEP,
        .check_rollouts = c->check_rollouts,
        .memory = (size_t)c->inputs.memory,
        .quiet = c->inputs.quiet};
    j->plan = (plan){.inputs = &j->inputs,
                     .options = &j->options,
                     .prompt_options = &j->e.prompt_options,
                     .tokenizer = j->e.tok ? tokenizer_fingerprint(j->e.tok) : NULL};
    st = leak_guard_plan(c->leak_check, &j->e, &j->plan.leak_check, err);
    if (st == CKVC_OK && !c->inputs.quiet) {
        const prompt_list *p = j->e.prompts;
        fprintf(stderr,
                "prompts: %zu (%zu held out, %zu cut, %zu too short), longest %u + %u tokens\n",
                p->n, p->n_heldout, p->n_cut, p->n_short, p->max_tokens, p->max_continuation);
    }
    return st;
}

ckvc_status run_setup_open_bins(const run_setup_options *c, run_setup *j, ckvc_err *err) {
    const opt_list *list = &c->bins;
    long v[2] = {0, 0};
    for (size_t i = 0; i < list->n && i < 2; i++) {
        char *end;
        v[i] = strtol(list->items[i], &end, 10);
        v[i] = *end ? 0 : v[i];
    }
    if (list->n != 2 || v[0] < 1 || v[1] < 1 || v[0] > 1024 || v[1] > 1024) {
        return ckvc_fail(err, CKVC_E_USAGE,
                         "--bins: wanted two numbers from 1 to 1024, entropy bins and perplexity "
                         "bins, as in 20,4");
    }
    j->plan.n_entropy_bins = (uint32_t)v[0];
    j->plan.n_ppl_bins = (uint32_t)v[1];
    j->plan.min_cell = (uint32_t)c->min_cell;
    j->plan.edges = strcmp(c->bin_edges, "uniform") == 0 ? EDGES_UNIFORM : EDGES_QUANTILE;
    return CKVC_OK;
}

static ckvc_operator operator_of(const run_setup_options *c) {
    ckvc_operator op = CKVC_OPERATOR_PAPER;
    while (strcmp(c->operator_name, ckvc_operator_name(op)) !=
           0) { /* the option's choices are these names */
        op++;
    }
    return op;
}

/* As far as options say it. */
static setting setting_of_options(const run_setup_options *c, const run_setup *j) {
    return (setting){.alpha = inputs_alpha(&c->inputs),
                     .op = operator_of(c),
                     .compute = strcmp(c->inputs.compute, "bf16") == 0 ? CKVC_COMPUTE_BF16
                                                                       : CKVC_COMPUTE_F32,
                     .window = (uint32_t)c->inputs.window,
                     .continuation = (uint32_t)c->inputs.continuation,
                     .keep_window = (uint32_t)c->inputs.keep_window,
                     .budgets = {(double *)(uintptr_t)j->budgets, j->n_budgets}};
}

static ckvc_status open_tables(const run_setup_options *c, const opt *opts, run_setup *j,
                               ckvc_err *err) {
    if (opts_given(opts, "bins") || opts_given(opts, "bin-edges") || (c->scan && c->sample == 0)) {
        return ckvc_fail(err, CKVC_E_USAGE,
                         "--tables brings its own risk bins: leave out --bins, --bin-edges and "
                         "--scan (which --sample-prompts can use)");
    }
    if (opts_given(opts, "head-grid") || opts_given(opts, "gate-grid")) {
        return ckvc_fail(err, CKVC_E_USAGE,
                         "--tables brings its own actions: leave out --head-grid and --gate-grid");
    }
    ckvc_status st = inputs_read_table(&c->inputs, &j->e, c->tables, &j->tables, err);
    if (st != CKVC_OK) { return st; }
    const ckvc_table *t = j->tables->table;
    if (opts_given(opts, "operator") && t->op != operator_of(c)) {
        return ckvc_fail(err, CKVC_E_MISMATCH, "%s: was made with --operator %s, this run has %s",
                         c->tables, ckvc_operator_name(t->op), c->operator_name);
    }
    if (j->n_budgets && opts_given(opts, "budget")) {
        bool same = j->n_budgets == t->n_budgets;
        for (uint32_t b = 0; same && b < t->n_budgets; b++) {
            same = t->budgets[b] == j->budgets[b];
        }
        if (!same) {
            return ckvc_fail(
                err, CKVC_E_MISMATCH,
                "%s: holds other budgets than --budget; leave --budget out to use the table's",
                c->tables);
        }
    }
    j->n_budgets = t->n_budgets;
    memcpy(j->budgets, t->budgets, t->n_budgets * sizeof *j->budgets);
    j->plan.n_entropy_bins = t->n_entropy_bins;
    j->plan.n_ppl_bins = t->n_ppl_bins;
    j->plan.edges_from = "start table";
    j->plan.start_table = j->tables->content_id;
    return CKVC_OK;
}

/* A scan serves another run only when it measured the same thing. *hash receives its plan's. */
static ckvc_status open_scan(const run_setup_options *c, run_setup *j, const char **hash,
                             ckvc_err *err) {
    ckvc_status st = run_open(c->scan, &j->scan_run, err);
    if (st != CKVC_OK) { return st; }
    const json_t *theirs = run_plan(j->scan_run);
    const char *of = json_string_value(json_object_get(theirs, "model"));
    if (!of || strcmp(of, model_fingerprint(j->e.model)) != 0) {
        return ckvc_fail(err, CKVC_E_MISMATCH, "%s: scanned model %.12s..., this one is %.12s...",
                         c->scan, of ? of : "?", model_fingerprint(j->e.model));
    }
    setting made = setting_neutral();
    const setting ours = setting_of_options(c, j);
    setting_read(theirs, SETTING_PLAN, &made);
    CKVC_TRY(setting_match(&made, c->scan, &ours, "this run", SETTING_SCAN, NULL, err));
    *hash = run_plan_hash(j->scan_run);
    return CKVC_OK;
}

/* --budget, or without it a block for each of --layer-budgets' values. */
static ckvc_status open_budgets(const run_setup_options *c, const opt *opts, run_setup *j,
                                ckvc_err *err) {
    const uint32_t L = (uint32_t)model_get_shape(j->e.model)->n_layers;
    ckvc_status st = inputs_budgets(&c->budget, j->budgets, &j->n_budgets, err);
    if (st == CKVC_OK && c->layer_budgets) {
        st = layer_budgets_read(c->layer_budgets, L, &j->layer_budgets, err);
    }
    if (st != CKVC_OK || !c->layer_budgets) { return st; }
    j->options.layer_budgets = j->plan.layer_budgets = j->layer_budgets;
    j->plan.n_layers = L;
    if (!opts_given(opts, "budget") && !c->tables) {
        j->n_budgets =
            layer_budgets_distinct(j->layer_budgets, L, j->budgets, PROMPT_SETS_MAX_BUDGETS);
        if (j->n_budgets > PROMPT_SETS_MAX_BUDGETS) {
            return ckvc_fail(err, CKVC_E_USAGE,
                             "%s: %u different budgets, a table has at most %d blocks; name fewer "
                             "with --budget, and each layer is "
                             "calibrated under the nearest",
                             c->layer_budgets, j->n_budgets, PROMPT_SETS_MAX_BUDGETS);
        }
    }
    return CKVC_OK;
}

ckvc_status run_setup_open_start(const run_setup_options *c, const opt *opts, run_setup *j,
                                 ckvc_err *err) {
    ckvc_status st = open_budgets(c, opts, j, err);
    if (st != CKVC_OK) { return st; }
    const char *side = c->side;
    j->options.sides[CKVC_SIDE_HEAD] = strcmp(side, "gate") != 0;
    j->options.sides[CKVC_SIDE_GATE] = strcmp(side, "head") != 0;
    while (strcmp(c->behaviour, behaviour_name(j->options.behaviour)) != 0) {
        j->options.behaviour++; /* the option is one of the names */
    }
    st = inputs_variants(c->variants, &j->options.variants, err);
    if (st != CKVC_OK) { return st; }
    st = action_grid_parse(CKVC_SIDE_HEAD, c->head_grid.items, c->head_grid.n,
                           &j->grids[CKVC_SIDE_HEAD], err);
    if (st == CKVC_OK) {
        st = action_grid_parse(CKVC_SIDE_GATE, c->gate_grid.items, c->gate_grid.n,
                               &j->grids[CKVC_SIDE_GATE], err);
    }
    if (st != CKVC_OK) { return st; }
    j->plan.grids = j->grids;
    st = run_setup_open_bins(c, j, err);
    if (st != CKVC_OK) { return st; }
    j->plan.sample = c->sample;
    j->plan.start_table = "identity";
    j->plan.edges_from = "this run's scan";
    if (c->tables) {
        st = open_tables(c, opts, j, err);
        if (st == CKVC_OK && c->scan) { st = open_scan(c, j, &j->plan.sample_from, err); }
    } else {
        if (c->scan) { st = open_scan(c, j, &j->plan.edges_from, err); }
        if (st == CKVC_OK) {
            const model_shape *s = model_get_shape(j->e.model);
            st = start_table_of_grids((uint32_t)s->n_layers, (uint32_t)s->n_kv_heads,
                                      j->plan.n_entropy_bins, j->plan.n_ppl_bins, j->budgets,
                                      j->n_budgets, (uint32_t)c->inputs.window, j->grids, &j->start,
                                      err);
        }
    }
    if (st == CKVC_OK && j->start) { j->start->op = operator_of(c); }
    if (st == CKVC_OK) { j->plan.op = run_setup_table(j)->op; }
    j->plan.budgets = j->budgets;
    j->plan.n_budgets = j->n_budgets;
    if (st == CKVC_OK) { inputs_warn_kept_window(&c->inputs, &j->e, j->budgets, j->n_budgets); }
    return st;
}

ckvc_status run_setup_begin_run(const run_setup_options *c, run_setup *j, const json_t *whole,
                                ckvc_err *err) {
    json_t *own = whole ? NULL : plan_json(&j->plan);
    if (!whole && !own) { return ckvc_fail_memory(err, "the plan", 4096); }
    ckvc_status st = run_create(c->out, whole ? whole : own, c->resume, &j->run, err);
    json_decref(own);
    ckvc_stop_install();
    return st;
}

static ckvc_status publish(run_dir *run, const char *name, json_t *o, ckvc_err *err) {
    char *text = o ? ckvc_json_canonical(o) : NULL;
    ckvc_status st = text ? run_publish_file(run, name, text, strlen(text), true, err)
                          : ckvc_fail_memory(err, name, json_object_size(o));
    free(text);
    json_decref(o);
    return st;
}

/* The start table's edges, and how many of the scan's prompts fall between them. */
static ckvc_status edges_from_scan(run_setup *j, const scanned *s, const run_dir *from,
                                   ckvc_err *err) {
    ckvc_table *t = j->start;
    const uint32_t E = t->n_entropy_bins, P = t->n_ppl_bins;
    ckvc_status st =
        scanned_edges(s, from, E, P, j->plan.edges, t->edges_entropy, t->edges_ppl, err);
    uint32_t *cells = ckvc_calloc((size_t)E * P, sizeof *cells);
    if (st == CKVC_OK) {
        for (size_t i = 0; i < s->n; i++) {
            cells[ckvc_bin_index(t->edges_entropy, E - 1, s->items[i].r_struct) * P +
                  ckvc_bin_index(t->edges_ppl, P - 1, s->items[i].r_sem)]++;
        }
        st = publish(j->run, "scan/edges.json",
                     json_pack("{s:o,s:o,s:o,s:s}", "edges_entropy",
                               ckvc_json_reals(t->edges_entropy, E - 1), "edges_perplexity",
                               ckvc_json_reals(t->edges_ppl, P - 1), "occupancy",
                               ckvc_json_u32s(cells, (size_t)E * P), "from", j->plan.edges_from),
                     err);
    }
    free(cells);
    return st;
}

ckvc_status run_setup_set_edges(const run_setup_options *c, run_setup *j, ckvc_err *err) {
    const run_dir *from = j->scan_run;
    if (!j->start && c->sample == 0) { return CKVC_OK; /* --tables has them */ }
    if (!from) {
        pass_counts counts;
        ckvc_status st = calibrate_scan(j->run, &j->inputs, &j->options, &counts, err);
        if (st != CKVC_OK) { return st; }
        from = j->run;
    }
    scanned s;
    coverage cover = {0};
    ckvc_status st = scanned_read(from, &s, err);
    if (st != CKVC_OK) { return st; }
    if (j->start) { st = edges_from_scan(j, &s, from, err); }
    const ckvc_table *t = run_setup_table(j);
    const sample_options o = {.n_entropy_bins = t->n_entropy_bins,
                              .n_ppl_bins = t->n_ppl_bins,
                              .min_cell = j->plan.min_cell,
                              .edges_entropy = t->edges_entropy,
                              .edges_ppl = t->edges_ppl,
                              .from = j->plan.edges_from,
                              .logged = true,
                              .sample = c->sample,
                              .seed = j->options.seed};
    st = st ? st : sample_prompts(&s, &o, j->e.prompts, &cover, err);
    st = st ? st : publish(j->run, COVERAGE_FILE, coverage_json(&cover), err);
    if (st == CKVC_OK && !c->inputs.quiet) { coverage_say(&cover, stderr); }
    coverage_fini(&cover);
    scanned_fini(&s);
    return st;
}

ckvc_status run_setup_scan_coverage(run_setup *j, coverage *out, ckvc_err *err) {
    const uint32_t E = j->plan.n_entropy_bins, P = j->plan.n_ppl_bins;
    scanned s;
    *out = (coverage){0};
    ckvc_status st = scanned_read(j->run, &s, err);
    if (st != CKVC_OK) { return st; }
    double *edges = ckvc_calloc((size_t)E + P, sizeof *edges);
    if (st == CKVC_OK && s.n > 0) {
        const sample_options o = {.n_entropy_bins = E,
                                  .n_ppl_bins = P,
                                  .min_cell = j->plan.min_cell,
                                  .edges_entropy = edges,
                                  .edges_ppl = edges + E,
                                  .from = "this run's scan"};
        st = scanned_edges(&s, j->run, E, P, j->plan.edges, edges, edges + E, err);
        st = st ? st : sample_prompts(&s, &o, j->e.prompts, out, err);
        st = st ? st : publish(j->run, COVERAGE_FILE, coverage_json(out), err);
    }
    free(edges);
    scanned_fini(&s);
    return st;
}

ckvc_status run_setup_dry_run(const run_setup_options *c, run_setup *j, run_cost *out,
                              ckvc_err *err) {
    dry_run *d = &out->longest;
    *out = (run_cost){0};
    ckvc_status st = calibrate_dry_run(&j->inputs, &j->options, run_setup_table(j), d, err);
    if (st != CKVC_OK) { return st; }
    const size_t all = j->e.prompts->n, most = all - j->e.prompts->n_heldout;
    out->logged = c->sample > 0 && (size_t)c->sample < most ? (size_t)c->sample : most;
    const double logged = (double)out->logged,
                 n = logged + (double)j->e.prompts->n_heldout; /* the rest is only scanned */
    out->scan_hours = (j->start || c->sample > 0) && !j->scan_run
                          ? (double)all * (d->prefill_s + d->single_s) / 3600
                          : 0;
    out->pass_hours = (n * (d->prefill_s + d->rollout_s * (1 + j->n_budgets)) +
                       logged * d->rollout_s * (double)d->distinct *
                           (1 + c->check_rollouts * d->single_s / d->rollout_s)) /
                      3600;
    out->records = (double)d->actions * logged;
    out->disk_bytes = out->records * 18 +
                      n * (200.0 + 20.0 * j->n_budgets * model_get_shape(j->e.model)->n_layers);
    return CKVC_OK;
}

void run_setup_print_cost(const run_setup *j, const run_cost *cost) {
    const dry_run *d = &cost->longest;
    const memory_plan *m = &d->memory;
    printf("prompts            %zu (%zu logged, %zu held out)\n", j->e.prompts->n, cost->logged,
           j->e.prompts->n_heldout);
    printf(
        "longest prompt     %u + %u tokens: prefill %.3f s, a rollout %.4f s (%.0f/s, over %llu)\n",
        d->n_tokens, d->n_continuation, d->prefill_s, d->rollout_s, 1 / d->rollout_s,
        (unsigned long long)d->timed);
    printf("per prompt         %llu actions in %llu distinct rollouts (the longest prompt's)\n",
           (unsigned long long)d->actions, (unsigned long long)d->distinct);
    printf("memory             %.1f MB of %.1f: weights %.1f, prompt %.1f, kept sets %.1f, batches "
           "of %lld rollouts %.1f\n",
           (double)m->total / 1e6, (double)m->limit / 1e6, (double)m->weights / 1e6,
           (double)m->prompt / 1e6, (double)m->sets / 1e6, (long long)m->lanes,
           (double)m->batch / 1e6);
}
