/* ckvc calibrate and ckvc scan: prompts -> records in a run directory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/coverage_text.h"
#include "cmd/common/fit_options.h"
#include "cmd/common/gate_text.h"
#include "cmd/common/run_setup.h"
#include "cmd/verbs.h"
#include "lib/base/json.h"
#include "lib/base/progress.h"

static ckvc_status print_counts_json(const run_setup_options *c, const run_setup *j,
                                     const pass_counts *n, const char *pass, ckvc_err *err) {
    const double rate = n->rollout_seconds > 0 ? (double)n->rollouts / n->rollout_seconds : 0;
    json_t *gate;
    ckvc_status st = gate_say(j->run, pass, NULL, &gate, err);
    if (st != CKVC_OK) { return st; }
    char *budgets = ckvc_json_canonical(gate);
    printf("{\"run\":\"%s\",\"pass\":\"%s\",\"prompts\":%u,\"resumed\":%u,\"skipped\":%u,"
           "\"rollouts\":%llu,\"records\":%llu,"
           "\"records_at_baseline\":%llu,\"seconds\":%.3f,\"rollouts_per_second\":%.3f,\"gate\":%s",
           run_plan_hash(j->run), pass, n->prompts, n->resumed, n->skipped,
           (unsigned long long)n->rollouts, (unsigned long long)n->records,
           (unsigned long long)n->actions_equal, n->seconds, rate, budgets ? budgets : "null");
    if (c->until_stable > 0) {
        printf(",\"stable\":%s", n->stable ? "true" : "false");
        if (isfinite(n->reliability)) { printf(",\"reliability\":%.17g", n->reliability); }
    }
    ckvc_buffer rates = {0};
    savings_json(j->options.savings, &rates);
    printf(",%s}\n", rates.failed ? "\"memo\":null" : (const char *)rates.data);
    ckvc_buffer_fini(&rates);
    free(budgets);
    json_decref(gate);
    return CKVC_OK;
}

static ckvc_status print_counts(const run_setup_options *c, const run_setup *j,
                                const pass_counts *n, const char *pass, ckvc_err *err) {
    if (c->inputs.json) { return print_counts_json(c, j, n, pass, err); }
    if (c->inputs.quiet) { return CKVC_OK; }
    ckvc_buffer rates = {0};
    savings_text(j->options.savings, &rates);
    fwrite(rates.data, 1, rates.size, stderr);
    ckvc_buffer_fini(&rates);
    if (c->until_stable > 0) {
        fprintf(stderr,
                "%s: split-half reliability of the head weights %.3f; --until-stable %g %s\n", pass,
                n->reliability, c->until_stable,
                n->stable ? "ended the pass here" : "was not reached");
    }
    fprintf(stderr,
            "%s: %u prompts now, %u before, %u skipped; %llu rollouts (%.1f/s), %llu records, "
            "%.1f%% of them at the baseline's set\n",
            pass, n->prompts, n->resumed, n->skipped, (unsigned long long)n->rollouts,
            n->rollout_seconds > 0 ? (double)n->rollouts / n->rollout_seconds : 0,
            (unsigned long long)n->records,
            n->records ? 100.0 * (double)n->actions_equal / (double)n->records : 0.0);
    if (c->check_rollouts > 0) {
        fprintf(stderr, "checked the plain way: %llu rollouts, none differs\n",
                (unsigned long long)n->checked);
    }
    ckvc_status st = gate_say(j->run, pass, stderr, NULL, err);
    if (st == CKVC_OK) {
        fprintf(stderr, "wrote %s; next: ckvc fit %s --out T.ckvt\n", c->out, c->out);
    }
    return st;
}

static ckvc_status print_dry_run(const run_setup_options *c, run_setup *j, ckvc_err *err) {
    run_cost cost;
    ckvc_status st = run_setup_dry_run(c, j, &cost, err);
    if (st != CKVC_OK) { return st; }
    const dry_run *d = &cost.longest;
    const double hours = cost.scan_hours + cost.pass_hours;
    if (c->inputs.json) {
        printf("{\"prompts\":%zu,\"longest\":%u,\"actions_per_prompt\":%llu,\"distinct_per_"
               "prompt\":%llu,\"prefill_s\":%.6f,"
               "\"rollout_s\":%.6f,\"hours\":%.6f,\"records\":%.0f,\"memory_bytes\":%zu,\"batch\":%"
               "lld,\"disk_bytes\":%.0f}\n",
               j->e.prompts->n, d->n_tokens, (unsigned long long)d->actions,
               (unsigned long long)d->distinct, d->prefill_s, d->rollout_s, hours, cost.records,
               d->memory.total, (long long)d->memory.lanes, cost.disk_bytes);
        return CKVC_OK;
    }
    run_setup_print_cost(j, &cost);
    char duration[CKVC_DURATION];
    ckvc_duration(3600 * hours, duration);
    printf("this run           about %s at most, %.0f records, %.1f MB on disk\n", duration,
           cost.records, cost.disk_bytes / 1e6);
    return CKVC_OK;
}

static ckvc_status calibrate(void *cli, const opt *opts, ckvc_err *err) {
    const run_setup_options *c = cli;
    run_setup j = {0};
    pass_counts counts = {0};
    char pass[32];
    snprintf(pass, sizeof pass, "pass-01-%s", c->side);
    ckvc_status st = run_setup_open(c, &j, err);
    j.plan.verb = "calibrate";
    if (st == CKVC_OK && c->until_stable > 0 && strcmp(c->side, "gate") == 0) {
        st = ckvc_fail(err, CKVC_E_USAGE,
                       "--until-stable looks at the head table: it goes with --side head or both");
    }
    if (st == CKVC_OK) { st = run_setup_open_start(c, opts, &j, err); }
    if (st == CKVC_OK && run_setup_table(&j)->op == CKVC_OPERATOR_NO_THRESHOLD &&
        j.options.sides[CKVC_SIDE_GATE]) {
        st = ckvc_fail(err, CKVC_E_USAGE,
                       "the operator no-threshold has no thresholds to try: say --side head");
    }
    if (st == CKVC_OK && c->dry_run) {
        st = print_dry_run(c, &j, err);
    } else if (st == CKVC_OK) {
        st = run_setup_begin_run(c, &j, NULL, err);
        if (st == CKVC_OK) { st = run_setup_set_edges(c, &j, err); }
        if (st == CKVC_OK) {
            st = savings_create((uint32_t)model_get_shape(j.e.model)->n_layers, &j.options.savings,
                                err);
        }
        if (st == CKVC_OK) {
            st = calibrate_pass(j.run, pass, &j.inputs, &j.options, run_setup_table(&j), &counts,
                                err);
        }
        if (st == CKVC_OK) { st = print_counts(c, &j, &counts, pass, err); }
    }
    savings_free(j.options.savings);
    run_setup_close(&j);
    return st;
}

int cmd_calibrate(int argc, char **argv) {
    static const verb_text text = {
        "calibrate", "try retention actions on prompts and log state-action-reward records",
        "ckvc calibrate --model DIR --manifest FILE --out RUN [options]",
        "  ckvc calibrate --model models/ckvc-tiny-8l --manifest prompts.jsonl --budget 0.25 --out "
        "run\n"
        "  ckvc calibrate ... --out run --resume            # after Ctrl-C, a crash, a full disk\n"
        "  ckvc calibrate ... --dry-run                     # how long, how much memory\n"
        "  ckvc calibrate ... --side gate --tables heads.ckvt --out run2\n"};
    run_setup_options c = run_setup_defaults();
    opt opts[] = {
        OPTS_MODEL(c.inputs),
        OPTS_PROMPTS(c.inputs),
        OPTS_STATISTICS(c.inputs, 1),
        {OPT_TITLE, "actions", 0, NULL, NULL, NULL, 0, 0},
        {OPT_CHOICE, "side", 0, &c.side, "head|gate|both", "which table to try actions of", 0, 0},
        OPT_LAYER_BUDGETS(c.layer_budgets),
        OPT_OPERATOR(c),
        OPTS_ACTIONS(c),
        {OPT_TITLE, "the fit to come, which --until-stable judges by", 0, NULL, NULL, NULL, 0, 0},
        OPT_CQL_ALPHA(c.cql_alpha),
        OPT_REWARD(c.reward),
        OPTS_RUN(c),
        OPT_DRY_RUN(c),
        {0}};
    return verb_run(&text, opts, "--manifest names the prompts", argc, argv, calibrate, &c);
}

static ckvc_status scan(void *cli, const opt *opts, ckvc_err *err) {
    const run_setup_options *c = cli;
    (void)opts;
    run_setup j = {0};
    pass_counts counts = {0};
    ckvc_status st = run_setup_open(c, &j, err);
    j.plan.verb = "scan";
    if (st == CKVC_OK) { st = run_setup_open_bins(c, &j, err); }
    if (st == CKVC_OK) { st = run_setup_begin_run(c, &j, NULL, err); }
    if (st == CKVC_OK) { st = calibrate_scan(j.run, &j.inputs, &j.options, &counts, err); }
    coverage cover = {0};
    if (st == CKVC_OK) { st = run_setup_scan_coverage(&j, &cover, err); }
    if (st == CKVC_OK && c->inputs.json) {
        json_t *cells = cover.n_rows ? coverage_json(&cover) : NULL;
        char *covered = cells ? ckvc_json_canonical(cells) : NULL;
        printf("{\"run\":\"%s\",\"prompts\":%u,\"resumed\":%u,\"skipped\":%u,\"seconds\":%.3f,"
               "\"coverage\":%s}\n",
               run_plan_hash(j.run), counts.prompts, counts.resumed, counts.skipped, counts.seconds,
               covered ? covered : "null");
        free(covered);
        json_decref(cells);
    } else if (st == CKVC_OK && !c->inputs.quiet) {
        if (cover.n_rows) {
            coverage_say(&cover, stderr);
            coverage_print(&cover, stdout);
        }
        fprintf(stderr,
                "scan: %u prompts now, %u before, %u skipped, %.1f s\nwrote %s; next: ckvc "
                "calibrate ... --scan %s\n",
                counts.prompts, counts.resumed, counts.skipped, counts.seconds, c->out, c->out);
    }
    coverage_fini(&cover);
    run_setup_close(&j);
    return st;
}

int cmd_scan(int argc, char **argv) {
    static const verb_text text = {
        "scan", "statistics of prompts (pass 0): risks, losses, per-head statistics",
        "ckvc scan --model DIR --manifest FILE --out RUN [options]",
        "  ckvc scan --model models/ckvc-tiny-8l --manifest prompts.jsonl --out scan-run\n"
        "  ckvc calibrate ... --scan scan-run --out run     # bin edges from it\n"};
    run_setup_options c = run_setup_defaults();
    opt opts[] = {OPTS_MODEL(c.inputs),
                  OPTS_PROMPTS(c.inputs),
                  OPTS_STATISTICS(c.inputs, 1),
                  OPTS_BINS(c),
                  OPTS_RUN(c),
                  {0}};
    return verb_run(&text, opts, "--manifest names the prompts", argc, argv, scan, &c);
}
