/* ckvc calibrate and ckvc scan: prompts -> records in a run directory. */
#include "cmd/common/fit_options.h"
#include "cmd/common/json_text.h"
#include "cmd/common/run_setup.h"
#include "cmd/verbs.h"

static double rollout_rate(const pass_counts *n) {
    return n->rollout_seconds > 0 ? (double)n->rollouts / n->rollout_seconds : 0;
}

/* What to do with what was made. */
static void say_next(const run_setup_options *c, const run_setup *j, const char *next) {
    if (j->part.count) {
        say("wrote part %u/%u into %s; when all parts are there: ckvc merge %s\n", j->part.index,
            j->part.count, c->out, c->out);
    } else {
        say("wrote %s; next: ckvc %s\n", c->out, next);
    }
}

static ckvc_status print_counts_json(const run_setup_options *c, const run_setup *j,
                                     const pass_counts *n, const char *pass, ckvc_err *err) {
    json_t *gate;
    CKVC_TRY(gate_say(j->run, pass, false, &gate, err));
    json_t *o = json_pack("{s:s, s:s}", "run", run_plan_hash(j->run), "pass", pass);
    JSON_NUMBERS(o, {"prompts", n->prompts}, {"resumed", n->resumed}, {"skipped", n->skipped},
                 {"rollouts", n->rollouts}, {"records", n->records},
                 {"records_at_baseline", n->actions_equal}, {"seconds", n->seconds},
                 {"rollouts_per_second", rollout_rate(n)});
    json_object_set_new(o, "gate", gate);
    if (c->log.until_stable > 0) { json_object_set_new(o, "stable", json_boolean(n->stable)); }
    if (c->log.until_stable > 0 && isfinite(n->reliability)) {
        json_object_set_new(o, "reliability", json_real(n->reliability));
    }
    json_object_set_new(o, "memo", savings_json(j->options.savings));
    json_print_as_given(o);
    return CKVC_OK;
}

static ckvc_status print_counts(const run_setup_options *c, const run_setup *j,
                                const pass_counts *n, const char *pass, ckvc_err *err) {
    if (c->inputs.json) { return print_counts_json(c, j, n, pass, err); }
    if (c->inputs.quiet) { return CKVC_OK; }
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer rates = {0};
    savings_text(j->options.savings, &rates);
    fwrite(rates.data, 1, rates.size, stderr);
    if (c->log.until_stable > 0) {
        say("%s: split-half reliability of the head weights %.3f; --until-stable %g %s\n", pass,
            n->reliability, c->log.until_stable,
            n->stable ? "ended the pass here" : "was not reached");
    }
    char rate[32] = "", equal[64] = "";
    if (n->rollouts > 0) { snprintf(rate, sizeof rate, " (%.1f/s)", rollout_rate(n)); }
    if (n->records > 0) {
        snprintf(equal, sizeof equal, ", %.1f%% of them at the baseline's set",
                 100.0 * (double)n->actions_equal / (double)n->records);
    }
    say("%s: %u prompts now, %u before, %u skipped; %llu rollouts%s, %llu records%s\n", pass,
        n->prompts, n->resumed, n->skipped, (unsigned long long)n->rollouts, rate,
        (unsigned long long)n->records, equal);
    if (c->log.check_rollouts > 0) {
        say("checked the plain way: %llu rollouts, none differs\n", (unsigned long long)n->checked);
    }
    CKVC_TRY(gate_say(j->run, pass, true, NULL, err));
    CKVC_AUTO_FREE char *next = ckvc_format("fit %s --out T.ckvt", c->out);
    say_next(c, j, next);
    return CKVC_OK;
}

static ckvc_status print_dry_run(const run_setup_options *c, run_setup *j, ckvc_err *err) {
    dry_run d;
    CKVC_TRY(run_setup_dry_run(c, j, &d, err));
    forecast_print(run_setup_cost_json(j, &d), c->inputs.json, &d.memory, d.copy_s, d.compute_s);
    return CKVC_OK;
}

/* ---- --side demand, --side score; the dry run of a scan, too ---- */

static ckvc_status print_repeat_dry_run(const run_setup_options *c, run_setup *j, ckvc_err *err) {
    repeat_dry_run d;
    CKVC_TRY(calibrate_repeat_dry_run(&j->inputs, &j->options, &d, err));
    forecast_print(run_setup_repeat_json(j, &d), c->inputs.json, &d.memory, d.copy_s, d.compute_s);
    return CKVC_OK;
}

static ckvc_status calibrate_repeated(const run_setup_options *c, run_setup *j, const char *pass,
                                      ckvc_err *err) {
    pass_counts n = {0};
    CKVC_TRY(run_setup_open_repeat(c, j, err));
    if (c->dry_run) { return print_repeat_dry_run(c, j, err); }
    CKVC_TRY(run_setup_begin_run(c, j, NULL, err));
    CKVC_TRY(calibrate_repeat(j->run, pass, &j->inputs, &j->options, &n, err));
    if (c->inputs.json) {
        json_t *o = json_pack("{s:s, s:s}", "run", run_plan_hash(j->run), "pass", pass);
        JSON_NUMBERS(o, {"prompts", n.prompts}, {"resumed", n.resumed}, {"skipped", n.skipped},
                     {"seconds", n.seconds});
        json_print_as_given(o);
    } else if (!c->inputs.quiet) {
        CKVC_AUTO_FREE char *next = ckvc_format("fit %s --out T.ckvt", c->out);
        say("%s: %u prompts now, %u before, %u skipped, %.1f s\n", pass, n.prompts, n.resumed,
            n.skipped, n.seconds);
        say_next(c, j, next);
    }
    return CKVC_OK;
}

static ckvc_status calibrate(const verb_call *call, ckvc_err *err) {
    const run_setup_options *c = call->options;
    CKVC_AUTO(run_setup_close) run_setup j = {0};
    pass_counts counts = {0};
    char pass[32];
    snprintf(pass, sizeof pass, "pass-01-%s", c->side);
    CKVC_TRY(run_setup_open(c, &j, err));
    j.plan.verb = "calibrate";
    if (j.options.kind != SHARD_LOGGED) { return calibrate_repeated(c, &j, pass, err); }
    USAGE_IF(c->log.until_stable > 0 && strcmp(c->side, "gate") == 0,
             "--until-stable looks at the head table: it goes with --side head or both");
    CKVC_TRY(run_setup_open_start(c, &j, err));
    const ckvc_mode mode = (ckvc_mode)ckvc_table_score(run_setup_table(&j), 0).mode;
    USAGE_IF(strcmp(c->side, "both") != 0 && mode != CKVC_MODE_SHARED,
             "--side %s: %s recommends budgets of %s, and ckvc no longer logs rewards of shares or "
             "of thresholds below them: leave --tables out, or give a table of --mode uniform",
             c->side, c->tables, ckvc_mode_name(mode));
    USAGE_IF(run_setup_table(&j)->op == CKVC_OPERATOR_NO_THRESHOLD &&
                 j.options.sides[CKVC_SIDE_GATE],
             "the operator no-threshold has no thresholds to try: say --side head");
    if (c->dry_run) { return print_dry_run(c, &j, err); }
    CKVC_TRY(run_setup_begin_run(c, &j, NULL, err));
    CKVC_TRY(run_setup_set_edges(c, &j, err));
    j.options.savings = savings_create((uint32_t)model_get_shape(j.e.model)->n_layers);
    CKVC_TRY(calibrate_pass(j.run, pass, &j.inputs, &j.options, run_setup_table(&j), &counts, err));
    return print_counts(c, &j, &counts, pass, err);
}

static ckvc_status scan(const verb_call *call, ckvc_err *err) {
    const run_setup_options *c = call->options;
    CKVC_AUTO(run_setup_close) run_setup j = {0};
    CKVC_AUTO(coverage_fini) coverage cover = {0};
    pass_counts counts = {0};
    CKVC_TRY(run_setup_open(c, &j, err));
    j.plan.verb = "scan";
    CKVC_TRY(run_setup_open_bins(c, &j, err));
    if (c->dry_run) {
        j.options.kind = SHARD_SCAN;
        return print_repeat_dry_run(c, &j, err);
    }
    CKVC_TRY(run_setup_begin_run(c, &j, NULL, err));
    CKVC_TRY(calibrate_scan(j.run, &j.inputs, &j.options, &counts, err));
    if (!j.part.count) { CKVC_TRY(run_setup_scan_coverage(&j, &cover, err)); }
    if (c->inputs.json) {
        json_t *o = json_pack("{s:s}", "run", run_plan_hash(j.run));
        JSON_NUMBERS(o, {"prompts", counts.prompts}, {"resumed", counts.resumed},
                     {"skipped", counts.skipped}, {"seconds", counts.seconds});
        json_object_set_new(o, "coverage", cover.n_rows ? coverage_json(&cover) : json_null());
        json_print_as_given(o);
    } else if (!c->inputs.quiet) {
        if (cover.n_rows) {
            coverage_say(&cover, true);
            coverage_print(&cover);
        }
        CKVC_AUTO_FREE char *next = ckvc_format("calibrate ... --scan %s", c->out);
        say("scan: %u prompts now, %u before, %u skipped, %.1f s\n", counts.prompts, counts.resumed,
            counts.skipped, counts.seconds);
        say_next(c, &j, next);
    }
    return CKVC_OK;
}

#define OPTIONS_OF run_setup_options
static const opt calibrate_rows[] = {
    OPT_ROWS(opts_inputs),
    OPT_TITLE("actions"),
    OPT_ROWS(opts_log),
    OPT_ROWS(opts_actions),
    OPT_TITLE("--side demand, --side score"),
    OPT_ROWS(opts_repeat),
    OPT_COUNT("judges", log.judges, "N", 0, 1e9,
              "Measure N held-out prompts as well, by which a fit judges its learned ranking.",
              .preset = "8"),
    OPT_TITLE("the fit to come, which --until-stable judges by"),
    OPT_CQL_ALPHA(log.until_cql_alpha),
    OPT_REWARD(log.until_reward),
    OPT_ROWS(opts_run),
    OPT_ROWS(opts_shard),
    OPT_ROWS(opts_dry_run),
    {0}};

const verb verb_calibrate = {
    .name = "calibrate",
    .about = "try retention actions on prompts, or count what each head asks for, and log records",
    .summary = "try retention actions on prompts and log records of state, action and reward, or "
               "count how many\nentries each head asks for",
    .usage = "ckvc calibrate --model DIR --manifest FILE --out RUN [options]",
    .examples =
        "  ckvc calibrate --model models/ckvc-tiny-8l --manifest prompts.jsonl --budget 0.25 --out "
        "run\n"
        "  ckvc calibrate ... --out run --resume            # after Ctrl-C, a crash, a full disk\n"
        "  ckvc calibrate ... --dry-run                     # how long, how much memory\n"
        "  ckvc calibrate ... --side gate --tables heads.ckvt --out run2\n"
        "  ckvc calibrate ... --side demand --budget 0.125,0.25 --out run3   # budgets of heads\n",
    .common = " model manifest side budget window continuation holdout variants tables threads "
              "seed out resume shard dry-run ",
    VERB_OPTIONS(calibrate_rows),
    .instead = "--manifest names the prompts",
    .work = calibrate};

static const opt scan_rows[] = {{.name = "", .type = OPT_IS_PRESET, .group = calibrate_rows},
                                OPT_ROWS(opts_inputs),
                                OPT_ROWS(opts_bins),
                                OPT_ROWS(opts_run),
                                OPT_ROWS(opts_shard),
                                OPT_ROWS(opts_dry_run),
                                {0}};

const verb verb_scan = {
    .name = "scan",
    .about = "measure prompts, and set the edges of the risk bins (pass 0)",
    .summary = "measure prompts (pass 0): their risks, losses and statistics of each head",
    .usage = "ckvc scan --model DIR --manifest FILE --out RUN [options]",
    .examples = "  ckvc scan --model models/ckvc-tiny-8l --manifest prompts.jsonl --out scan-run\n"
                "  ckvc calibrate ... --scan scan-run --out run     # bin edges from it\n",
    .common = " model manifest split limit window continuation bins threads out resume dry-run ",
    VERB_OPTIONS(scan_rows),
    .instead = "--manifest names the prompts",
    .work = scan};
