/* ckvc compile: to a table by demand, or by the alternating loop of head and gate passes. */
#include "compile/compile.h"
#include "cmd/common/fit_options.h"
#include "cmd/common/json_text.h"
#include "cmd/common/manifest_leaks.h"
#include "cmd/common/run_setup.h"
#include "cmd/verbs.h"
#include "lib/base/files.h"

typedef struct compile_cli {
    run_setup_options setup;
    fit_options fit;
    const compile_way *way; /* by --mode and --ranking */
    probe_kind probe;
    int64_t rounds;
    double select;
} compile_cli;

/* ---- talk ---- */

static void on_pass(void *ctx, const compile_pass *p, const pass_counts *n) {
    const compile_cli *c = ctx;
    if (c->setup.inputs.quiet) { return; }
    say("%s: ", p->name);
    if (n->prompts + n->resumed > 0) {
        say("%u prompts now, %u before", n->prompts, n->resumed);
        if (n->rollouts) { say(", %llu rollouts", (unsigned long long)n->rollouts); }
        say("; ");
    }
    if (p->kind > PASS_GATE) {
        say("%s\n",
            p->kind == PASS_SELECT ? "ranking, floor and mix chosen" : "shares and ranking fitted");
        return;
    }
    if (p->kind == PASS_HEAD && isfinite(n->reliability)) {
        say("split-half reliability %.3f%s; ", n->reliability, n->stable ? " ended it here" : "");
    }
    say("%zu of %zu supported entries changed (%zu in all)\n", p->changed, p->supported, p->states);
    if (p->n_heldout) {
        say("  held-out reward %.5f", p->reward.mean);
        gain_say(";", p->over[POLICY_IDENTITY]);
        gain_say(" over identity,", p->over[POLICY_MATCHED]);
        say(" at equal tokens kept; %zu prompts of %zu documents\n", p->reward.n,
            p->reward.n_clusters);
    }
}

static void on_round(void *ctx, const compile_result *r, stop_rule stop) {
    const compile_cli *c = ctx;
    const alternation_round *round = &r->rounds[r->n_rounds - 1];
    if (c->setup.inputs.quiet || c->way == &compile_by_budgets) { return; }
    say("round %zu: %zu of %zu supported entries changed", r->n_rounds, round->changed,
        round->supported);
    if (round->gain.n) {
        say("; held-out %+.5f (standard error %.5f, %zu prompts of %zu documents) over %s",
            round->gain.mean, round->gain.se, round->gain.n, round->gain.n_clusters,
            r->n_rounds > 1 ? "the round before" : "the start");
    }
    say("%s\n", stop == STOP_NOT ? "; another round" : "");
}

static const char *why_stopped(stop_rule stop) {
    static const char *const text[] = {
        "", "converged: fewer than 1% of the supported entries changed (or none)",
        "the held-out reward did not rise by more than one paired standard error",
        "the rounds that were asked for (--rounds)", "this probe has one round"};
    return text[stop];
}

static void print_rounds(const compile_result *r) {
    const compile_pass *best = &r->passes[r->last_pass[r->best]];
    say("\nstopped after round %zu: %s\n", r->n_rounds, why_stopped(r->stop));
    say("%-7s %-22s %12s  %-32s %-32s %s\n", "round", "entries changed", "held-out",
        "over identity [95%]", "at equal tokens kept [95%]", "tokens kept");
    for (size_t i = 0; i < r->n_rounds; i++) {
        const alternation_round *round = &r->rounds[i];
        const compile_pass *p = &r->passes[r->last_pass[i]];
        char changed[64], over[2][64] = {"not measured", "not measured"};
        snprintf(changed, sizeof changed, "%zu of %zu (%.1f%%)", round->changed, round->supported,
                 round->supported ? 100.0 * (double)round->changed / (double)round->supported
                                  : 0.0);
        for (int k = 0; k < 2 && p->n_heldout; k++) {
            const rank_interval *g = &p->over[k ? POLICY_MATCHED : POLICY_IDENTITY];
            snprintf(over[k], sizeof over[k], "%+.5f [%+.5f, %+.5f]", g->mean, g->lo, g->hi);
        }
        say("%zu%-6s %-22s ", i + 1, i == r->best ? " *" : "", changed);
        if (p->n_heldout) {
            say("%12.5f  %-32s %-32s %.1f (identity %.1f)\n", p->reward.mean, over[0], over[1],
                p->kept[POLICY_TABLE], p->kept[POLICY_IDENTITY]);
        } else {
            say("%12s\n", "not measured");
        }
    }
    if (best->n_heldout) {
        const rank_interval *g = &best->over[POLICY_MATCHED];
        say("at equal tokens kept the table is %s on %zu held-out prompts of %zu documents\n",
            g->lo > 0   ? "better than identity"
            : g->hi < 0 ? "worse than identity"
                        : "not shown to differ from identity",
            best->n_heldout, best->reward.n_clusters);
    }
}

/* A table by demand beside references, over its budgets. */
static void print_references(const compile_pass *p) {
    if (!p->n_heldout) { return; }
    say("\n%-12s %14s  %s\n", "reference", "entries a head",
        "nats per token that the table loses less [95%]");
    for (int k = 0; k < POLICY_KIND_COUNT; k++) {
        if (!p->over[k].n) { continue; }
        say("%-12s %14.1f ", policy_kind_name((policy_kind)k), p->kept[k]);
        gain_say("", p->over[k]);
        say("\n");
    }
    say("table        %14.1f  reward %.5f, %zu held-out prompts of %zu documents\n",
        p->kept[POLICY_TABLE], p->reward.mean, p->n_heldout, p->reward.n_clusters);
}

static void print_summary(const compile_cli *c, const run_setup *j, const compile_result *r) {
    const compile_pass *best = &r->passes[r->last_pass[r->best]];
    if (r->select) { choice_say(r->select, j->options.setting.budgets.v); }
    if (c->way == &compile_by_budgets) {
        print_references(best);
    } else {
        print_rounds(r);
    }
    if (!best->n_heldout && r->select) {
        say("every held-out prompt is in the split select, so nothing says whether the table is "
            "better than none\n");
    } else if (!best->n_heldout) {
        say("no prompt is held out (--holdout 0.2), so nothing says whether the table is better "
            "than none\n");
    } else if (c->way == &compile_by_budgets && !r->select) {
        say("no held-out prompt is in the split select, so the table recommends what was fitted "
            "last\n");
    }
    say("wrote %s/table.ckvt: round %zu's, content id %s\n", c->setup.out, r->best + 1,
        best->content_id);
    say("tables of every pass: %s/tables; held-out scores: %s/heldout; records: %s/%s\n",
        c->setup.out, c->setup.out, c->setup.out,
        c->probe == PROBE_GRID_SEARCH ? "grid" : "pass-*");
    say("next: ckvc report %s/table.ckvt %s --out report\n", c->setup.out, c->setup.out);
}

static json_t *gain_json(rank_interval g) {
    return JSON_NUMBERS(json_object(), {"mean", g.mean}, {"lo", g.lo}, {"hi", g.hi}, {"se", g.se},
                        {"prompts", g.n}, {"documents", g.n_clusters});
}

static json_t *pass_json(const compile_pass *p) {
    json_t *o = json_pack("{s:s, s:s}", "pass", p->name, "content_id", p->content_id);
    JSON_NUMBERS(o, {"changed", p->changed}, {"supported", p->supported}, {"states", p->states});
    if (p->n_heldout) {
        json_t *h = JSON_NUMBERS(json_object(), {"prompts", p->n_heldout},
                                 {"reward", p->reward.mean}, {"kept", p->kept[POLICY_TABLE]});
        for (int k = 0; k < POLICY_KIND_COUNT; k++) {
            if (!p->over[k].n) { continue; }
            const char *name = policy_kind_name((policy_kind)k);
            CKVC_AUTO_FREE char *over = ckvc_format("over_%s", name),
                                *kept = ckvc_format("%s_kept", name);
            json_object_set_new(h, over, gain_json(p->over[k]));
            JSON_NUMBERS(h, {kept, p->kept[k]});
        }
        json_object_set_new(o, "heldout", h);
    }
    return o;
}

/* Takes gate. */
static void print_json(const compile_cli *c, const run_setup *j, const compile_result *r,
                       json_t *gate) {
    json_t *rounds = json_array(), *passes = json_array();
    for (size_t i = 0; i < r->n_passes; i++) {
        json_array_append_new(passes, pass_json(&r->passes[i]));
    }
    for (size_t i = 0; i < r->n_rounds; i++) {
        const alternation_round *round = &r->rounds[i];
        json_t *gain = round->gain.n ? gain_json(round->gain) : json_null();
        json_array_append_new(
            rounds, JSON_NUMBERS(json_pack("{s:o}", "gain", gain), {"changed", round->changed},
                                 {"supported", round->supported}, {"reward", round->reward}));
    }
    json_t *select = r->select ? select_json(r->select) : NULL;
    json_print(json_pack("{s:s, s:s, s:s, s:I, s:s, s:o*, s:o, s:o, s:o}", "run",
                         run_plan_hash(j->run), "probe",
                         c->way->name ? c->way->name : probe_name(c->probe), "stop",
                         stop_name(r->stop), "best_round", (json_int_t)r->best + 1, "content_id",
                         r->passes[r->last_pass[r->best]].content_id, "select", select, "rounds",
                         rounds, "passes", passes, "gate", gate));
}

/* ---- options ---- */

/* What a person gave and this compile would not look at; what a config file holds may be meant for
 * another mode. Options that stand nowhere here serve all. */
static ckvc_status check_options(const compile_cli *c, ckvc_err *err) {
    const bool loop = c->way == &compile_by_rounds,
               shared = c->fit.budgets.mode == CKVC_MODE_SHARED;
    const struct {
        bool used;
        const char *of, *names[20];
    } rules[] = {
        {loop,
         "--mode uniform --ranking paper",
         {"head-grid", "beta-bud", "loss-reduction", "behaviour", "until-stable", "solver",
          "reward", "unsupported", "gate-grid", "bins", "bin-edges", "min-cell", "rounds",
          "variants", "rollouts", "check-rollouts", "cql-alpha", "shrink", "loss"}},
        {!loop,
         "tables by demand (not --mode uniform --ranking paper)",
         {"select", "recent", "repeat", "no-repeat", "positions"}},
        {!shared, "--mode heads or layers", {"kept-floor", "demand-floor"}},
        {!loop && c->fit.budgets.score == CKVC_SCORE_LEARNED,
         "tables by demand with --ranking learned",
         {"features"}},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        for (size_t k = 0; !rules[i].used && rules[i].names[k]; k++) {
            USAGE_IF(opts_said(rules[i].names[k]),
                     "--%s belongs to %s: leave it out, or give that, too", rules[i].names[k],
                     rules[i].of);
        }
    }
    return CKVC_OK;
}

/* An option that a mode or a probe decides itself must not be given otherwise. */
static ckvc_status check_probe(compile_cli *c, ckvc_err *err) {
    const probe_kind probe = c->probe;
    const bool shared = c->fit.budgets.mode == CKVC_MODE_SHARED;
    if (!shared || c->fit.budgets.score != CKVC_SCORE_PAPER) {
        USAGE_IF(
            probe != PROBE_JOINT,
            "--probe %s is a part of the loop over heads and gate: say --mode uniform --ranking "
            "paper with it",
            probe_name(probe));
        c->way = &compile_by_budgets;
        if (shared) { c->fit.budgets.c_min = 1; /* every layer keeps B */ }
        c->setup.side = "demand";
        return CKVC_OK;
    }
    c->way = &compile_by_rounds;
    const char *name = probe_name(probe);
    if (probe == PROBE_ALPHA_0 || probe == PROBE_EPSILON_GREEDY) {
        USAGE_IF(opts_said("cql-alpha") && c->fit.cql.cql_alpha != 0,
                 "--probe %s has --cql-alpha 0 itself: leave --cql-alpha out", name);
        c->fit.cql.cql_alpha = 0;
    }
    if (probe == PROBE_EPSILON_GREEDY) {
        USAGE_IF(opts_said("behaviour") && c->setup.log.behaviour != BEHAVIOUR_EPSILON_GREEDY,
                 "--probe epsilon-greedy chooses its actions itself: leave --behaviour out");
        c->setup.log.behaviour = BEHAVIOUR_EPSILON_GREEDY;
    }
    if (probe == PROBE_NO_UTILITY || probe == PROBE_NO_THRESHOLD || probe == PROBE_MEAN_POOL) {
        setting_set_name(setting_of_option("operator"), ' ', &c->setup.inputs.setting, name);
    }
    if (probe == PROBE_GRID_SEARCH) {
        USAGE_IF(c->setup.layer_budgets,
                 "--probe grid-search has one weight for all layers: leave --layer-budgets out");
        USAGE_IF(c->setup.tables || (opts_said("bin-edges") && c->setup.bin_edges != EDGES_UNIFORM),
                 "--probe grid-search has uniform bin edges of its own: leave --tables and "
                 "--bin-edges out");
        c->setup.bin_edges = EDGES_UNIFORM;
    }
    USAGE_IF((probe == PROBE_GATE_ONLY || probe == PROBE_GRID_SEARCH) &&
                 c->setup.log.until_stable > 0,
             "--until-stable looks at a head table as it is logged; --probe %s logs none", name);
    return CKVC_OK;
}

static void log_sides(run_setup *j, const ckvc_side *sides, int n) {
    for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
        j->options.sides[side] = sides[0] == (ckvc_side)side || sides[n - 1] == (ckvc_side)side;
    }
}

static compile_load load_of(const run_setup *j, double prefill_s, double single_s) {
    compile_load l = {.prefill_s = prefill_s,
                      .single_s = single_s,
                      .n_heldout = j->e.prompts->n_heldout,
                      .n_budgets = j->options.setting.budgets.n};
    for (size_t i = 0; i < j->e.prompts->n; i++) { l.n_select += j->e.prompts->items[i].select; }
    return l;
}

static ckvc_status print_dry_run(const compile_cli *c, run_setup *j, ckvc_err *err) {
    ckvc_side sides[CKVC_SIDE_COUNT];
    const int n_sides = probe_sides(c->probe, sides);
    const uint32_t rounds = probe_rounds(c->probe, (uint32_t)c->rounds);
    dry_run of = {0};
    json_t *passes = json_array();
    double hours = 0, records = 0, disk = 0;
    for (int i = 0; i < n_sides; i++) {
        log_sides(j, &sides[i], 1);
        CKVC_TRY(run_setup_dry_run(&c->setup, j, &of, err));
        const compile_load l = load_of(j, of.prefill_s, of.single_s);
        hours += of.pass_hours + compile_round_hours(&l);
        records += of.records;
        disk += of.disk_bytes;
        json_array_append_new(passes, run_setup_cost_json(j, &of));
    }
    forecast_print(JSON_NUMBERS(json_pack("{s:o}", "passes", passes), {"prompts", j->e.prompts->n},
                                {"rounds", rounds}, {"hours_per_round", hours},
                                {"hours", of.scan_hours + rounds * hours},
                                {"records_per_round", round(records)},
                                {"disk_bytes", round(rounds * disk)}),
                   c->setup.inputs.json, NULL, 0, 0);
    return CKVC_OK;
}

static ckvc_status print_demand_dry_run(const compile_cli *c, run_setup *j, ckvc_err *err) {
    repeat_dry_run of;
    CKVC_TRY(calibrate_repeat_dry_run(&j->inputs, &j->options, &of, err));
    const compile_load l = load_of(j, of.prefill_s, of.single_s);
    const budgets_hours d = compile_budgets_hours(&c->fit.budgets, &j->options, &l);
    forecast_print(JSON_NUMBERS(json_pack("{s:[o]}", "passes", run_setup_repeat_json(j, &of)),
                                {"prompts", j->e.prompts->n}, {"select_prompts", l.n_select},
                                {"judge_prompts", l.n_heldout - l.n_select},
                                {"select_hours", d.select}, {"heldout_hours", d.heldout},
                                {"hours", of.hours + d.select + d.heldout},
                                {"disk_bytes", round(of.disk_bytes)}),
                   c->setup.inputs.json, NULL, 0, 0);
    return CKVC_OK;
}

/* The table that goes out says how it was held out only as far as the leak check went. */
static ckvc_status warn_of_leaks(const compile_cli *c, const run_setup *j, ckvc_err *err) {
    if (!j->e.prompts->n_heldout) { return CKVC_OK; }
    CKVC_AUTO_FREE char *path = ckvc_path_join(c->setup.out, "table.ckvt");
    CKVC_AUTO(table_file_free_at) table_file *table = NULL;
    CKVC_TRY(table_file_read(path, &table, err));
    leak_guard_warn(table, path, j->e.manifest->sha256);
    return CKVC_OK;
}

/* Budgets, and what the loop starts from. */
static ckvc_status open_run(compile_cli *c, run_setup *j, ckvc_err *err) {
    CKVC_TRY(check_probe(c, err));
    CKVC_TRY(check_options(c, err));
    c->setup.log.until_cql_alpha = c->fit.cql.cql_alpha;
    c->setup.log.until_reward = c->fit.cql.reward;
    CKVC_TRY(run_setup_open(&c->setup, j, err));
    if (c->way == &compile_by_budgets) {
        j->e.prompt_options.select = c->select;
        prompts_divide(j->e.prompts, j->e.manifest, &j->e.prompt_options);
        j->options.judges = 0; /* held-out prompts are scored */
        USAGE_IF(c->setup.budget.n > PROMPT_SETS_MAX_BUDGETS,
                 "--budget: got %u budgets, wanted at most %d", c->setup.budget.n,
                 PROMPT_SETS_MAX_BUDGETS);
        return run_setup_open_repeat(&c->setup, j, err);
    }
    CKVC_TRY(run_setup_open_start(&c->setup, j, err));
    const ckvc_operator op = run_setup_table(j)->op, wanted = c->setup.inputs.setting.op;
    FAIL_IF(op != wanted, CKVC_E_MISMATCH, "%s: was made with the operator %s; --probe %s has %s",
            c->setup.tables, ckvc_operator_name(op), probe_name(c->probe),
            ckvc_operator_name(wanted));
    ckvc_side sides[CKVC_SIDE_COUNT];
    log_sides(j, sides, probe_sides(c->probe, sides));
    return CKVC_OK;
}

static ckvc_status compile(const verb_call *call, ckvc_err *err) {
    compile_cli *c = call->options;
    CKVC_AUTO(run_setup_close) run_setup j = {0};
    CKVC_TRY(open_run(c, &j, err));
    const bool demand = c->way == &compile_by_budgets;
    if (c->setup.dry_run) {
        return demand ? print_demand_dry_run(c, &j, err) : print_dry_run(c, &j, err);
    }
    const size_t memory = c->setup.inputs.memory;
    c->fit.resampled.seed = c->setup.inputs.setting.seed;
    c->fit.memory_max = memory > 0 ? memory : fit_defaults().memory_max;
    const compile_options o = {.probe = c->probe,
                               .rounds = (uint32_t)c->rounds,
                               .plan = &j.plan,
                               .start = run_setup_table(&j),
                               .tables = j.tables,
                               .fit = &c->fit,
                               .on_pass = on_pass,
                               .on_round = on_round,
                               .ctx = c};
    CKVC_AUTO(compile_result_free_at) compile_result *r = ckvc_calloc(1, sizeof *r);
    json_auto_t *whole = c->way->plan_json(&o);
    CKVC_TRY(run_setup_begin_run(&c->setup, &j, whole, err));
    c->way->begin(j.run, &o);
    if (!demand) { CKVC_TRY(run_setup_set_edges(&c->setup, &j, err)); }
    CKVC_TRY(c->way->run(j.run, &o, r, err));
    json_t *gate = json_null();
    if (!demand) {
        CKVC_TRY(gate_say(j.run, r->passes[r->last_pass[r->best]].name, !c->setup.inputs.quiet,
                          &gate, err));
    }
    if (!c->setup.inputs.quiet) { print_summary(c, &j, r); }
    if (c->setup.inputs.json) {
        print_json(c, &j, r, gate);
    } else {
        json_decref(gate);
    }
    return warn_of_leaks(c, &j, err);
}

#define OPTIONS_OF compile_cli
static const opt rows[] = {
    OPT_GROUP(opts_inputs, setup),
    OPT_PRESETS(opts_log, setup),
    OPT_TITLE("demand (not with --mode uniform --ranking paper)"),
    OPT_GROUP(opts_repeat, setup),
    OPT_DOUBLE(
        "select", select, "F", 0, 1,
        "Choose the ranking and floor by this share of the held-out prompts; the others judge "
        "the table.",
        .preset = "0.5"),
    OPT_TITLE("the loop (of --mode uniform --ranking paper)"),
    OPT_INT("rounds", rounds, "N", 1, ALTERNATION_MAX_ROUNDS - 1,
            "Run at most N rounds, each of a head pass and a gate pass.", .preset = "3"),
    OPT_ENUM("probe", probe, PROBE_NAMES,
             "Run the whole loop (joint), or a part or variant of it to compare with."),
    OPT_TITLE("actions"),
    OPT_GROUP(opts_actions, setup),
    OPT_LAYER_BUDGETS(setup.layer_budgets),
    OPT_GROUP(opts_fit, fit),
    OPT_GROUP(opts_run, setup),
    OPT_GROUP(opts_dry_run, setup),
    {0}};

const verb verb_compile = {
    .name = "compile",
    .about =
        "make a table from prompts by what heads ask for, and score it; or run the paper's loop",
    .summary =
        "make a table of a budget per head and a learned ranking from prompts. One pass "
        "counts what\nheads ask for, a fit makes the table, held-out prompts choose its "
        "score and floor, and other held-out prompts judge it.\nWith --mode uniform --ranking "
        "paper the table is made the paper's way: head pass, fit, gate pass, fit, until "
        "nothing changes or\nnothing is gained",
    .usage = "ckvc compile --model DIR --manifest FILE --out RUN [options]",
    .examples =
        "  ckvc compile --model models/ckvc-tiny-8l --manifest prompts.jsonl --budget 0.25 "
        "--holdout 0.2 --out runs/a\n"
        "  ckvc compile ... --out runs/a --resume              # after Ctrl-C, a crash, a full "
        "disk: the same bytes\n"
        "  ckvc compile ... --mode uniform --ranking paper --out runs/loop     # the paper's way, "
        "as "
        "in configs/paper.conf\n"
        "  ckvc compile ... --mode uniform --ranking paper --probe head-only --out runs/heads # "
        "what "
        "the gate is worth\n"
        "  ckvc compile ... --dry-run                          # how long, how much memory\n\n"
        "The table is RUN/table.ckvt. What each of its budgets recommends is chosen on the prompts "
        "of the split select, which are\n"
        "those that the manifest names so, or half of the held-out ones, and is judged on the "
        "other held-out prompts. Of the paper's\n"
        "loop the table is that of the round with the best held-out reward, or of the last round "
        "when nothing is held out.\n\n"
        "--holdout draws prompts, not documents, so that two prompts of one document may stand on "
        "both sides. Whether they share\n"
        "text is found by\n"
        "  ckvc manifest check M --against M --holdout F --seed N --out check.json     # then "
        "compile ... --leak-check check.json\n",
    .common = " model manifest budget window continuation holdout mode ranking select "
              "threads seed out resume dry-run ",
    VERB_OPTIONS(rows),
    .instead = "--manifest names the prompts",
    .work = compile};
