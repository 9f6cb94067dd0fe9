/* ckvc calibrate and ckvc scan turn prompts into the records of a run directory. */
#include "cmd/common/fit_options.h"
#include "cmd/common/json_text.h"
#include "cmd/common/run_setup.h"
#include "cmd/verbs.h"

static const char pass_form[] =
    "{until_stable?{pass}: split-half reliability of the head weights {reliability:.3f}; "
    "--until-stable {until_stable:g} {stable?ended the pass here}{stable!was not reached}\n}"
    "{pass|scan}: {prompts} prompts now, {resumed} before, {skipped} skipped{memo!, {seconds:.1f} "
    "s}{memo?; {rollouts} rollouts{rollouts? ({rollouts_per_second:.1f}/s)}, {records} records"
    "{records?, {records_at_baseline*100/records:.1f}% of them at the baseline's set}}\n"
    "{check_rollouts?checked the plain way: {checked} rollouts, none differs\n}" GATE_FORM
    "{part?wrote part {part} into {out}; when all parts are there: ckvc merge {out}\n}"
    "{part!wrote {out}; next: ckvc {pass?fit {out} --out T.ckvt}{pass!calibrate ... --scan "
    "{out}}\n}";

/* What every pass says of itself: its run, its name (NULL: a scan), and how many prompts it has. A
 * new reference. */
static json_t *pass_json(const run_setup *j, const char *pass, const pass_counts *n) {
    return JSON_NUMBERS(json_pack("{s:s, s:s*}", "run", run_plan_hash(j->run), "pass", pass),
                        {"prompts", n->prompts}, {"resumed", n->resumed}, {"skipped", n->skipped});
}

/* What the text alone says: the run's folder, and which part of it this was, "0/2". A new
 * reference.
 */
static json_t *out_json(const run_setup_options *c, const run_setup *j) {
    return json_pack("{s:s, s:o}", "out", c->out, "part",
                     j->part.count ? json_sprintf("%u/%u", j->part.index, j->part.count)
                                   : json_null());
}

static ckvc_status print_counts(const run_setup_options *c, const run_setup *j,
                                const pass_counts *n, const char *pass, ckvc_err *err) {
    const bool until = c->log.until_stable > 0;
    if (c->inputs.quiet && !c->inputs.json) { return CKVC_OK; }
    json_auto_t *o = pass_json(j, pass, n);
    json_auto_t *beside = out_json(c, j);
    JSON_NUMBERS(o, {"rollouts", n->rollouts}, {"records", n->records},
                 {"records_at_baseline", n->actions_equal}, {"seconds", n->seconds},
                 {"rollouts_per_second",
                  n->rollout_seconds > 0 ? (double)n->rollouts / n->rollout_seconds : 0});
    CKVC_TRY(gate_add(j->run, pass, o, beside, err));
    if (until) { json_object_set_new(o, "stable", json_boolean(n->stable)); }
    if (until && isfinite(n->reliability)) {
        json_object_set_new(o, "reliability", json_real(n->reliability));
    }
    json_object_set_new(o, "memo", savings_json(j->options.savings));
    if (c->inputs.json) {
        json_print_as_given(o);
        return CKVC_OK;
    }
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer rates = {0};
    savings_text(j->options.savings, &rates);
    if (rates.size) { fwrite(rates.data, 1, rates.size, stderr); }
    if (until) { json_object_set_new(beside, "until_stable", json_real(c->log.until_stable)); }
    JSON_NUMBERS(beside, {"check_rollouts", c->log.check_rollouts > 0}, {"checked", n->checked});
    form_print(stderr, pass_form, o, json_incref(beside));
    return CKVC_OK;
}

static ckvc_status print_dry_run(const run_setup_options *c, run_setup *j, ckvc_err *err) {
    dry_run d;
    CKVC_TRY(run_setup_dry_run(c, j, &d, err));
    forecast_print(run_setup_cost_json(j, &d), c->inputs.json, &d.memory, d.copy_s, d.compute_s);
    return CKVC_OK;
}

/* ---- passes that repeat prompts (--side demand, --side score); dry runs of these and of scans
 * ---- */

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
    json_auto_t *o = JSON_NUMBERS(pass_json(j, pass, &n), {"seconds", n.seconds});
    if (c->inputs.json) {
        json_print_as_given(o);
    } else if (!c->inputs.quiet) {
        form_print(stderr, pass_form, o, out_json(c, j));
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
    json_auto_t *o = JSON_NUMBERS(pass_json(&j, NULL, &counts), {"seconds", counts.seconds});
    json_object_set_new(o, "coverage", cover.n_rows ? coverage_json(&cover) : json_null());
    if (c->inputs.json) {
        json_print_as_given(o);
    } else if (!c->inputs.quiet) {
        if (cover.n_rows) { coverage_say(&cover, true, true); }
        form_print(stderr, pass_form, o, out_json(c, &j));
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
