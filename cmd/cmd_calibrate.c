/* ckvc calibrate and ckvc scan: prompts -> records in a run directory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calib/calibrate.h"
#include "calib/plan.h"
#include "calib/start_table.h"
#include "cmd/engine.h"
#include "cmd/verbs.h"
#include "formats/table_file.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/stop.h"

typedef struct calibrate_cli {
    engine_options engine;
    const char *out, *side, *tables, *scan, *behaviour, *variants, *bin_edges, *rollouts;
    opt_list budget, bins;
    int64_t shard_prompts, max_failures, min_cell, limit_time;
    double check_rollouts;
    bool resume, dry_run;
} calibrate_cli;

typedef struct calibrate_job {
    engine e;
    calibrate_inputs inputs;
    calibrate_options options;
    plan plan;
    double budgets[256];
    uint32_t n_budgets;
    table_file *tables; /* --tables, or NULL */
    ckvc_table *start;  /* own table, when there is no --tables */
    run_dir *scan_run;  /* --scan */
    run_dir *run;
} calibrate_job;

static ckvc_table *job_table(const calibrate_job *j)
{
    return j->tables ? j->tables->table : j->start;
}

static void job_fini(calibrate_job *j)
{
    run_close(j->run);
    run_close(j->scan_run);
    ckvc_table_free(j->start);
    table_file_free(j->tables);
    engine_close(&j->e);
}

/* The parts that scan and calibrate share: model, prompts, options. */
static ckvc_status open_job(const calibrate_cli *c, calibrate_job *j, ckvc_err *err)
{
    ckvc_status st = engine_open_model(&c->engine, &j->e, err);
    if (st == CKVC_OK) {
        st = engine_open_prompts(&c->engine, &j->e, err);
    }
    if (st != CKVC_OK) {
        return st;
    }
    if (!c->out && !c->dry_run) {
        return ckvc_fail(err, CKVC_E_USAGE, "--out RUN is needed: the run directory to make");
    }
    j->inputs = (calibrate_inputs){j->e.model, j->e.be, j->e.manifest, j->e.prompts};
    j->options = (calibrate_options){.window = c->engine.window,
                                     .continuation = c->engine.continuation,
                                     .alpha = engine_alpha(&c->engine),
                                     .keep_window = (uint32_t)c->engine.keep_window,
                                     .lambda = 1.0,
                                     .seed = (uint64_t)c->engine.seed,
                                     .shard_prompts = (uint32_t)c->shard_prompts,
                                     .max_failures = c->max_failures,
                                     .limit_time_s = (double)c->limit_time,
                                     .rollouts = strcmp(c->rollouts, "plain") == 0 ? ROLLOUTS_PLAIN : ROLLOUTS_SWEEP,
                                     .check_rollouts = c->check_rollouts,
                                     .memory = (size_t)c->engine.memory,
                                     .quiet = c->engine.quiet};
    j->plan = (plan){.inputs = &j->inputs,
                     .options = &j->options,
                     .prompt_options = &j->e.prompt_options,
                     .tokenizer = j->e.tok ? tokenizer_fingerprint(j->e.tok) : NULL};
    if (!c->engine.quiet) {
        const prompt_list *p = j->e.prompts;
        fprintf(stderr, "prompts: %zu (%zu held out, %zu cut, %zu too short), longest %u + %u tokens\n", p->n, p->n_heldout,
                p->n_cut, p->n_short, p->max_tokens, p->max_continuation);
    }
    return CKVC_OK;
}

static ckvc_status parse_bins(const opt_list *list, uint32_t *E, uint32_t *P, ckvc_err *err)
{
    long v[2] = {0, 0};
    for (size_t i = 0; i < list->n && i < 2; i++) {
        char *end;
        v[i] = strtol(list->items[i], &end, 10);
        v[i] = *end ? 0 : v[i];
    }
    if (list->n != 2 || v[0] < 1 || v[1] < 1 || v[0] > 4096 || v[1] > 4096) {
        return ckvc_fail(err, CKVC_E_USAGE,
                         "--bins: wanted two numbers from 1 to 4096, entropy bins and perplexity bins, as in 20,4");
    }
    *E = (uint32_t)v[0];
    *P = (uint32_t)v[1];
    return CKVC_OK;
}

static ckvc_status open_tables(const calibrate_cli *c, const opt *opts, calibrate_job *j, ckvc_err *err)
{
    if (opts_given(opts, "bins") || opts_given(opts, "bin-edges") || c->scan) {
        return ckvc_fail(err, CKVC_E_USAGE, "--tables brings its own risk bins: leave out --bins, --bin-edges and --scan");
    }
    ckvc_status st = table_file_read(c->tables, &j->tables, err);
    if (st != CKVC_OK) {
        return st;
    }
    const ckvc_table *t = j->tables->table;
    const model_shape *s = model_get_shape(j->e.model);
    const char *fingerprint = json_string_value(json_object_get(j->tables->meta, "fingerprint"));
    const char *alpha = json_string_value(json_object_get(j->tables->meta, "alpha_kind"));
    if (t->n_layers != (uint32_t)s->n_layers || t->n_heads != (uint32_t)s->n_kv_heads || t->head_axis != 0) {
        return ckvc_fail(err, CKVC_E_MISMATCH,
                         "%s: is for %u layers x %u %s heads, the model has %d x %d KV heads; `ckvc transfer` maps it", c->tables,
                         t->n_layers, t->n_heads, t->head_axis ? "query" : "KV", s->n_layers, s->n_kv_heads);
    }
    if (fingerprint && strcmp(fingerprint, model_fingerprint(j->e.model)) != 0) {
        return ckvc_fail(err, CKVC_E_MISMATCH, "%s: was made for model %.12s..., this one is %.12s...; `ckvc transfer` maps it",
                         c->tables, fingerprint, model_fingerprint(j->e.model));
    }
    if (t->window != (uint32_t)c->engine.window) {
        return ckvc_fail(err, CKVC_E_MISMATCH, "%s: was made with --window %u, this run has %lld", c->tables, t->window,
                         (long long)c->engine.window);
    }
    if (alpha && strcmp(alpha, c->engine.alpha) != 0) {
        return ckvc_fail(err, CKVC_E_MISMATCH, "%s: was made with --alpha %s, this run has %s", c->tables, alpha, c->engine.alpha);
    }
    if (j->n_budgets && opts_given(opts, "budget")) {
        bool same = j->n_budgets == t->n_budgets;
        for (uint32_t b = 0; same && b < t->n_budgets; b++) {
            same = t->budgets[b] == j->budgets[b];
        }
        if (!same) {
            return ckvc_fail(err, CKVC_E_MISMATCH, "%s: holds other budgets than --budget; leave --budget out to use the table's",
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

/* A scan serves another run only when it measured the same thing. */
static ckvc_status open_scan(const calibrate_cli *c, calibrate_job *j, ckvc_err *err)
{
    ckvc_status st = run_open(c->scan, &j->scan_run, err);
    if (st != CKVC_OK) {
        return st;
    }
    const json_t *theirs = run_plan(j->scan_run);
    const char *scanned = json_string_value(json_object_get(theirs, "model"));
    if (!scanned || strcmp(scanned, model_fingerprint(j->e.model)) != 0) {
        return ckvc_fail(err, CKVC_E_MISMATCH, "%s: scanned model %.12s..., this one is %.12s...", c->scan, scanned ? scanned : "?",
                         model_fingerprint(j->e.model));
    }
    const struct {
        const char *key;
        int64_t ours;
    } numbers[] = {{"window", c->engine.window}, {"continuation", c->engine.continuation}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int64_t v = json_integer_value(json_object_get(theirs, numbers[i].key));
        if (v != numbers[i].ours) {
            return ckvc_fail(err, CKVC_E_MISMATCH, "%s: scanned with --%s %lld, this run has %lld", c->scan, numbers[i].key,
                             (long long)v, (long long)numbers[i].ours);
        }
    }
    const char *alpha = json_string_value(json_object_get(theirs, "alpha"));
    if (!alpha || strcmp(alpha, c->engine.alpha) != 0) {
        return ckvc_fail(err, CKVC_E_MISMATCH, "%s: scanned with --alpha %s, this run has %s", c->scan, alpha ? alpha : "?",
                         c->engine.alpha);
    }
    j->plan.edges_from = run_plan_hash(j->scan_run);
    return CKVC_OK;
}

/* Start table and the source of its edges. */
static ckvc_status open_start(const calibrate_cli *c, const opt *opts, calibrate_job *j, ckvc_err *err)
{
    ckvc_status st = engine_budgets(&c->budget, j->budgets, &j->n_budgets, err);
    if (st != CKVC_OK) {
        return st;
    }
    const char *side = c->side;
    j->options.sides[CKVC_SIDE_HEAD] = strcmp(side, "gate") != 0;
    j->options.sides[CKVC_SIDE_GATE] = strcmp(side, "head") != 0;
    j->options.behaviour = strcmp(c->behaviour, "uniform") == 0 ? BEHAVIOUR_UNIFORM : BEHAVIOUR_BALANCED;
    if (strcmp(c->variants, "all") == 0) {
        j->options.variants = -1;
    } else {
        char *end;
        long v = strtol(c->variants, &end, 10);
        if (*end || end == c->variants || v < 1) {
            return ckvc_fail(err, CKVC_E_USAGE, "--variants: got '%s', wanted a number from 1 up, or all", c->variants);
        }
        j->options.variants = v;
    }
    j->plan.edges = strcmp(c->bin_edges, "uniform") == 0 ? EDGES_UNIFORM : EDGES_QUANTILE;
    j->plan.min_cell = (uint32_t)c->min_cell;
    j->plan.start_table = "identity";
    j->plan.edges_from = "this run's scan";
    if (c->tables) {
        st = open_tables(c, opts, j, err);
    } else {
        st = parse_bins(&c->bins, &j->plan.n_entropy_bins, &j->plan.n_ppl_bins, err);
        if (st == CKVC_OK && c->scan) {
            st = open_scan(c, j, err);
        }
        if (st == CKVC_OK) {
            const model_shape *s = model_get_shape(j->e.model);
            st = start_table_create((uint32_t)s->n_layers, (uint32_t)s->n_kv_heads, j->plan.n_entropy_bins, j->plan.n_ppl_bins,
                                    j->budgets, j->n_budgets, (uint32_t)c->engine.window, &j->start, err);
        }
    }
    j->plan.budgets = j->budgets;
    j->plan.n_budgets = j->n_budgets;
    return st;
}

static ckvc_status begin_run(const calibrate_cli *c, calibrate_job *j, ckvc_err *err)
{
    json_t *json = plan_json(&j->plan);
    if (!json) {
        return ckvc_fail_memory(err, "the plan", 4096);
    }
    ckvc_status st = run_create(c->out, json, c->resume, &j->run, err);
    json_decref(json);
    ckvc_stop_install();
    return st;
}

/* Own scan or another run's -> the table's edges; listed with the occupancy of the cells. */
static ckvc_status set_edges(const calibrate_cli *c, calibrate_job *j, ckvc_err *err)
{
    ckvc_table *t = j->start;
    const run_dir *from = j->scan_run;
    if (!t) {
        return CKVC_OK; /* --tables has them */
    }
    if (!from) {
        pass_counts counts;
        ckvc_status st = calibrate_scan(j->run, &j->inputs, &j->options, &counts, err);
        if (st != CKVC_OK) {
            return st;
        }
        from = j->run;
    }
    uint32_t E = t->n_entropy_bins, P = t->n_ppl_bins;
    ckvc_status st = calibrate_edges(from, E, P, j->plan.edges, t->edges_entropy, t->edges_ppl, err);
    uint32_t *cells = ckvc_calloc((size_t)E * P, sizeof *cells);
    if (st == CKVC_OK && !cells) {
        st = ckvc_fail_memory(err, "cells", (size_t)E * P * sizeof *cells);
    }
    if (st == CKVC_OK) {
        st = calibrate_occupancy(from, E, P, t->edges_entropy, t->edges_ppl, cells, err);
    }
    if (st == CKVC_OK) {
        uint32_t thin = 0;
        for (uint32_t i = 0; i < E * P; i++) {
            thin += cells[i] < j->plan.min_cell;
        }
        if (thin && !c->engine.quiet) {
            fprintf(stderr,
                    "risk cells: %u of %u hold fewer than %u prompts; their thresholds will rest on little (--bins, --min-cell)\n",
                    thin, E * P, j->plan.min_cell);
        }
        json_t *o = json_pack("{s:o,s:o,s:o,s:s}", "edges_entropy", ckvc_json_reals(t->edges_entropy, E - 1), "edges_perplexity",
                              ckvc_json_reals(t->edges_ppl, P - 1), "occupancy", ckvc_json_u32s(cells, (size_t)E * P), "from",
                              j->plan.edges_from);
        char *text = o ? ckvc_json_canonical(o) : NULL;
        st = text ? run_publish_file(j->run, "scan/edges.json", text, strlen(text), true, err)
                  : ckvc_fail_memory(err, "edges", (size_t)E * P);
        free(text);
        json_decref(o);
    }
    free(cells);
    return st;
}

static void print_counts(const calibrate_cli *c, const calibrate_job *j, const pass_counts *n, const char *pass)
{
    double rate = n->rollout_seconds > 0 ? (double)n->rollouts / n->rollout_seconds : 0;
    if (c->engine.json) {
        printf("{\"run\":\"%s\",\"pass\":\"%s\",\"prompts\":%u,\"resumed\":%u,\"skipped\":%u,\"rollouts\":%llu,\"records\":%llu,"
               "\"records_at_baseline\":%llu,\"seconds\":%.3f,\"rollouts_per_second\":%.3f}\n",
               run_plan_hash(j->run), pass, n->prompts, n->resumed, n->skipped, (unsigned long long)n->rollouts,
               (unsigned long long)n->records, (unsigned long long)n->actions_equal, n->seconds, rate);
        return;
    }
    if (!c->engine.quiet) {
        fprintf(stderr,
                "%s: %u prompts now, %u before, %u skipped; %llu rollouts (%.1f/s), %llu records, %.1f%% of them at the baseline's "
                "set\n"
                "wrote %s; next: ckvc fit %s --out T.ckvt\n",
                pass, n->prompts, n->resumed, n->skipped, (unsigned long long)n->rollouts, rate, (unsigned long long)n->records,
                n->records ? 100.0 * (double)n->actions_equal / (double)n->records : 0.0, c->out, c->out);
        if (c->check_rollouts > 0) {
            fprintf(stderr, "checked the plain way: %llu rollouts, none differs\n", (unsigned long long)n->checked);
        }
    }
}

static ckvc_status print_dry_run(const calibrate_cli *c, calibrate_job *j, ckvc_err *err)
{
    dry_run d;
    ckvc_status st = calibrate_dry_run(&j->inputs, &j->options, job_table(j), &d, err);
    if (st != CKVC_OK) {
        return st;
    }
    size_t n = j->e.prompts->n, logged = n - j->e.prompts->n_heldout;
    double scan_s = j->start && !j->scan_run ? d.prefill_s + d.single_s : 0;
    double hours = ((double)n * (d.prefill_s + scan_s + d.rollout_s * (1 + j->n_budgets)) +
                    (double)logged * d.rollout_s * (double)d.distinct * (1 + c->check_rollouts * d.single_s / d.rollout_s)) /
                   3600;
    double records = (double)d.actions * (double)logged;
    double disk = records * 18 + (double)n * (200.0 + 20.0 * j->n_budgets * model_get_shape(j->e.model)->n_layers);
    const memory_plan *m = &d.memory;
    if (c->engine.json) {
        printf("{\"prompts\":%zu,\"longest\":%u,\"actions_per_prompt\":%llu,\"distinct_per_prompt\":%llu,\"prefill_s\":%.6f,"
               "\"rollout_s\":%.6f,\"hours\":%.4f,\"records\":%.0f,\"memory_bytes\":%zu,\"batch\":%lld,\"disk_bytes\":%.0f}\n",
               n, d.n_tokens, (unsigned long long)d.actions, (unsigned long long)d.distinct, d.prefill_s, d.rollout_s, hours,
               records, m->total, (long long)m->lanes, disk);
        return CKVC_OK;
    }
    printf("prompts            %zu (%zu logged, %zu held out)\n", n, logged, n - logged);
    printf("longest prompt     %u + %u tokens: prefill %.3f s, a rollout %.4f s (%.0f/s, over %llu)\n", d.n_tokens,
           d.n_continuation, d.prefill_s, d.rollout_s, 1 / d.rollout_s, (unsigned long long)d.timed);
    printf("per prompt         %llu actions in %llu distinct rollouts (the longest prompt's)\n", (unsigned long long)d.actions,
           (unsigned long long)d.distinct);
    printf("this run           about %.2f hours at most, %.0f records, %.1f MB on disk\n", hours, records, disk / 1e6);
    printf("memory             %.1f MB of %.1f: weights %.1f, prompt %.1f, kept sets %.1f, batches of %lld rollouts %.1f\n",
           (double)m->total / 1e6, (double)m->limit / 1e6, (double)m->weights / 1e6, (double)m->prompt / 1e6, (double)m->sets / 1e6,
           (long long)m->lanes, (double)m->batch / 1e6);
    return CKVC_OK;
}

#define CALIBRATE_DEFAULTS                                                                                                         \
    {                                                                                                                              \
        .engine = engine_defaults(), .side = "both", .behaviour = "balanced", .variants = "256", .bin_edges = "quantile",          \
        .rollouts = "sweep", .budget = {{"512"}, 1}, .bins = {{"20", "4"}, 2}, .shard_prompts = 16, .min_cell = 8                  \
    }
#define OPTS_RUN(c)                                                                                                                \
    {OPT_TITLE, "run", 0, NULL, NULL, NULL, 0, 0}, {OPT_TEXT, "out", 'o', &(c).out, "RUN", "run directory to make", 0, 0},         \
        {OPT_FLAG, "resume", 0, &(c).resume, "", "go on with a run of the same plan", 0, 0},                                       \
        {OPT_INT, "shard-prompts", 0, &(c).shard_prompts, "N", "prompts per shard file", 1, 1e6},                                  \
        {OPT_INT, "max-failures", 0, &(c).max_failures, "N", "prompts that may fail (non-finite loss) before the run stops", 0,    \
         1e9},                                                                                                                     \
    {                                                                                                                              \
        OPT_INT, "limit-time", 0, &(c).limit_time, "S", "stop cleanly after S seconds (exit 75); 0: no limit", 0, 1e9              \
    }

int cmd_calibrate(int argc, char **argv)
{
    static const verb_text text = {"calibrate", "try retention actions on prompts and log state-action-reward records",
                                   "ckvc calibrate --model DIR --manifest FILE --out RUN [options]",
                                   "  ckvc calibrate --model models/ckvc-tiny-8l --manifest prompts.jsonl --budget 0.25 --out run\n"
                                   "  ckvc calibrate ... --out run --resume            # after Ctrl-C, a crash, a full disk\n"
                                   "  ckvc calibrate ... --dry-run                     # how long, how much memory\n"
                                   "  ckvc calibrate ... --side gate --tables heads.ckvt --out run2\n"};
    calibrate_cli c = CALIBRATE_DEFAULTS;
    opt opts[] = {
        OPTS_MODEL(c.engine),
        OPTS_PROMPTS(c.engine),
        OPTS_STATISTICS(c.engine, 1),
        {OPT_TITLE, "actions", 0, NULL, NULL, NULL, 0, 0},
        {OPT_CHOICE, "side", 0, &c.side, "head|gate|both", "which table to try actions of", 0, 0},
        {OPT_LIST, "budget", 'B', &c.budget, "N,...", "tokens kept per layer; below 1: a share of the prompt", 0, 0},
        {OPT_CHOICE, "behaviour", 0, &c.behaviour, "balanced|uniform", "which actions are logged", 0, 0},
        {OPT_TEXT, "variants", 0, &c.variants, "N|all", "distinct rollouts per prompt and side", 0, 0},
        {OPT_CHOICE, "rollouts", 0, &c.rollouts, "sweep|plain", "many rollouts at once, or one by one (the same losses)", 0, 0},
        {OPT_DOUBLE, "check-rollouts", 0, &c.check_rollouts, "SHARE", "do this share again one by one; exit 1 if they differ", 0,
         1},
        {OPT_TEXT, "tables", 0, &c.tables, "T.ckvt", "start from this table in place of identity", 0, 0},
        {OPT_TITLE, "risk bins", 0, NULL, NULL, NULL, 0, 0},
        {OPT_LIST, "bins", 0, &c.bins, "E,P", "entropy and perplexity bins", 0, 0},
        {OPT_CHOICE, "bin-edges", 0, &c.bin_edges, "quantile|uniform", "equal mass or equal steps", 0, 0},
        {OPT_TEXT, "scan", 0, &c.scan, "RUN", "bin edges from another run's scan", 0, 0},
        {OPT_INT, "min-cell", 0, &c.min_cell, "N", "risk cells with fewer prompts are listed", 0, 1e9},
        OPTS_RUN(c),
        {OPT_FLAG, "dry-run", 0, &c.dry_run, "", "check everything, time the longest prompt, write nothing", 0, 0},
        {0}};
    opt_args args;
    int rc;
    if (!opts_parse(&text, opts, argc, argv, &args, &rc)) {
        return rc;
    }
    int extra = args.n;
    free(args.items);
    if (extra) {
        return cmd_usage(text.name, "takes no arguments besides options; --manifest names the prompts");
    }
    ckvc_err err = {0};
    calibrate_job j = {0};
    pass_counts counts = {0};
    char pass[32];
    snprintf(pass, sizeof pass, "pass-01-%s", c.side);
    ckvc_status st = open_job(&c, &j, &err);
    j.plan.verb = "calibrate";
    if (st == CKVC_OK) {
        st = open_start(&c, opts, &j, &err);
    }
    if (st == CKVC_OK && c.dry_run) {
        st = print_dry_run(&c, &j, &err);
    } else if (st == CKVC_OK) {
        st = begin_run(&c, &j, &err);
        if (st == CKVC_OK) {
            st = set_edges(&c, &j, &err);
        }
        if (st == CKVC_OK) {
            st = calibrate_pass(j.run, pass, &j.inputs, &j.options, job_table(&j), &counts, &err);
        }
        if (st == CKVC_OK) {
            print_counts(&c, &j, &counts, pass);
        }
    }
    job_fini(&j);
    return st == CKVC_OK ? 0 : cmd_fail(text.name, &err);
}

int cmd_scan(int argc, char **argv)
{
    static const verb_text text = {"scan", "statistics of prompts (pass 0): risks, losses, per-head statistics",
                                   "ckvc scan --model DIR --manifest FILE --out RUN [options]",
                                   "  ckvc scan --model models/ckvc-tiny-8l --manifest prompts.jsonl --out scan-run\n"
                                   "  ckvc calibrate ... --scan scan-run --out run     # bin edges from it\n"};
    calibrate_cli c = CALIBRATE_DEFAULTS;
    opt opts[] = {OPTS_MODEL(c.engine), OPTS_PROMPTS(c.engine), OPTS_STATISTICS(c.engine, 1), OPTS_RUN(c), {0}};
    opt_args args;
    int rc;
    if (!opts_parse(&text, opts, argc, argv, &args, &rc)) {
        return rc;
    }
    int extra = args.n;
    free(args.items);
    if (extra) {
        return cmd_usage(text.name, "takes no arguments besides options; --manifest names the prompts");
    }
    ckvc_err err = {0};
    calibrate_job j = {0};
    pass_counts counts = {0};
    ckvc_status st = open_job(&c, &j, &err);
    j.plan.verb = "scan";
    if (st == CKVC_OK) {
        st = begin_run(&c, &j, &err);
    }
    if (st == CKVC_OK) {
        st = calibrate_scan(j.run, &j.inputs, &j.options, &counts, &err);
    }
    if (st == CKVC_OK && c.engine.json) {
        printf("{\"run\":\"%s\",\"prompts\":%u,\"resumed\":%u,\"skipped\":%u,\"seconds\":%.3f}\n", run_plan_hash(j.run),
               counts.prompts, counts.resumed, counts.skipped, counts.seconds);
    } else if (st == CKVC_OK && !c.engine.quiet) {
        fprintf(stderr, "scan: %u prompts now, %u before, %u skipped, %.1f s\nwrote %s; next: ckvc calibrate ... --scan %s\n",
                counts.prompts, counts.resumed, counts.skipped, counts.seconds, c.out, c.out);
    }
    job_fini(&j);
    return st == CKVC_OK ? 0 : cmd_fail(text.name, &err);
}
