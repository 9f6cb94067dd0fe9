/* The paper's way to a table, in alternating rounds: see compile.h. */
#include <math.h>

#include "compile/steps.h"
#include "cql/rounds/grid_search.h"
#include "lib/base/json.h"

static json_t *plan_of_run(const compile_options *o) {
    calibrate_options options = *o->plan->options;
    const cql_options *c = &o->fit->cql;
    ckvc_side sides[CKVC_SIDE_COUNT];
    options.sides[CKVC_SIDE_HEAD] = options.sides[CKVC_SIDE_GATE] = false;
    for (int i = probe_sides(o->probe, sides); i-- > 0;) { options.sides[sides[i]] = true; }
    plan p = steps_plan(o, &options);
    p.verb = "compile";
    json_t *json = plan_json(&p);
    json_t *fit = json_pack("{s:f, s:s, s:s, s:s, s:I, s:b, s:s?}", "cql_alpha", c->cql_alpha,
                            "solver", c->solver == FIT_EXACT ? "exact" : "adamw", "reward",
                            c->reward == FIT_ADVANTAGE ? "advantage" : "raw", "unsupported",
                            fit_unsupported_name(c->unsupported), "bootstrap",
                            (json_int_t)o->fit->resampled.n_replicates, "shrink", c->shrink,
                            "label", o->fit->label);
    json_object_set_new(json, "fit", fit);
    json_object_set_new(json, "rounds", json_integer(o->rounds));
    json_object_set_new(json, "probe", json_string(probe_name(o->probe)));
    return json;
}

/* Returns the plan of what `calibrate --side SIDE` would do under this table (NULL: the start
 * table). */
static plan side_plan(const compile_options *o, ckvc_side side, const table_file *table,
                      calibrate_options *options) {
    *options = *o->plan->options;
    options->kind = SHARD_LOGGED;
    options->sides[CKVC_SIDE_HEAD] = side == CKVC_SIDE_HEAD;
    options->sides[CKVC_SIDE_GATE] = side == CKVC_SIDE_GATE;
    /* --until-stable looks at heads alone. */
    if (side == CKVC_SIDE_GATE) { options->until_stable = 0; }
    plan p = steps_plan(o, options);
    if (table) { /* --tables brings its own edges, whatever made them */
        p.edges = EDGES_QUANTILE;
        p.edges_from = "start table";
        p.start_table = table->content_id;
    }
    return p;
}

static void begin(run_dir *run, const compile_options *o) {
    calibrate_options options;
    ckvc_side sides[CKVC_SIDE_COUNT];
    (void)probe_sides(o->probe, sides);
    const plan p = side_plan(o, sides[0], NULL, &options);
    steps_set_plan(run, &p);
}

/* ---- a pass: log a side, fit it, judge the table ---- */

static const ckvc_table *table_before(const steps *s) {
    return s->table ? s->table->table : s->o->start;
}

/* For --probe mean-gate: sets the threshold of every cell to the layer's mean, and makes META count
 * the entries that change by this. */
static void take_mean_gate(const steps *s, table_file *t) {
    const float *before = table_before(s)->tau;
    const size_t n = ckvc_tau_index(t->table, t->table->n_layers, 0, 0, 0);
    ckvc_table *mean = policy_control_table(POLICY_MEAN_GATE, t->table);
    size_t changed = 0;
    for (size_t i = 0; i < n; i++) {
        t->table->tau[i] = mean->tau[i];
        changed += mean->tau[i] != before[i];
    }
    ckvc_table_free(mean);
    json_object_set_new(
        json_object_get(json_object_get(t->meta, "diagnostics"), ckvc_side_name(CKVC_SIDE_GATE)),
        "changed", json_integer((json_int_t)changed));
}

static ckvc_status log_and_fit(steps *s, const compile_pass *p, table_file **made,
                               pass_counts *counts, ckvc_err *err) {
    const probe_kind probe = s->o->probe;
    const bool named = probe == PROBE_INDEPENDENT || probe == PROBE_ALPHA_0 ||
                       probe == PROBE_MEAN_GATE || probe == PROBE_EPSILON_GREEDY;
    CKVC_TRY(calibrate_pass(s->run, p->name, s->o->plan->inputs, &s->pass_options, table_before(s),
                            counts, err));
    CKVC_TRY(steps_fit(s, s->result->n_passes, named ? probe_name(probe) : NULL, made, err));
    if (probe == PROBE_MEAN_GATE && p->kind == PASS_GATE) { take_mean_gate(s, *made); }
    return CKVC_OK;
}

static ckvc_status search(steps *s, const compile_pass *p, table_file **made, pass_counts *counts,
                          ckvc_err *err) {
    const grid_pass grid = {.run = s->run,
                            .name = p->name,
                            .inputs = s->o->plan->inputs,
                            .options = &s->pass_options,
                            .start = table_before(s),
                            .side = (ckvc_side)p->kind};
    return grid_search(&grid, made, counts, err);
}

/* Returns a number that META's diagnostics give for a side. */
static size_t diagnostic(const table_file *t, const char *side, const char *key) {
    const json_t *of = json_object_get(json_object_get(t->meta, "diagnostics"), side);
    const json_int_t v = json_integer_value(json_object_get(of, key));
    return v > 0 ? (size_t)v : 0;
}

static const policy_kind judged[] = {POLICY_IDENTITY, POLICY_MATCHED, POLICY_TABLE};

static ckvc_status run_side(steps *s, ckvc_side side, ckvc_err *err) {
    const char *name = ckvc_side_name(side);
    compile_pass *p = steps_begin(s, (pass_kind)side);
    pass_counts counts = {.reliability = NAN};
    char file[48];
    const plan made = side_plan(s->o, side, s->table, &s->pass_options);
    steps_file(file, "tables", s->result->n_passes, "ckvt");
    steps_set_plan(s->run, &made);
    if (!run_has_file(s->run, file)) {
        CKVC_AUTO(table_file_free_at) table_file *t = NULL;
        CKVC_TRY(steps_check_stop(s, err));
        CKVC_TRY(s->o->probe == PROBE_GRID_SEARCH ? search(s, p, &t, &counts, err)
                                                  : log_and_fit(s, p, &t, &counts, err));
        CKVC_TRY(steps_publish(s, t, file, err));
    }
    CKVC_TRY(steps_take_table(s, p, err));
    p->changed = diagnostic(s->table, name, "changed");
    p->supported = diagnostic(s->table, name, "supported");
    p->states = diagnostic(s->table, name, "states");
    CKVC_TRY(steps_judge_pass(s, p, judged, CKVC_MODE_COUNT, err));
    if (s->o->on_pass) { s->o->on_pass(s->o->ctx, p, &counts); }
    return CKVC_OK;
}

/* ---- rounds ---- */

/* Makes the held-out scores with which the first round is compared. *out is NULL where these are
 * the ones of identity among its own scores, and is set where the loop starts elsewhere. Under
 * another operator than the paper's the start table is a checkpoint, too: tables/pass-00.ckvt. */
static ckvc_status judge_start(const steps *s, heldout **out, ckvc_err *err) {
    static const char file[] = "tables/pass-00.ckvt", lines[] = "heldout/pass-00.jsonl";
    const ckvc_table *start = s->o->start;
    if (s->o->tables) {
        return steps_judge(s, s->o->tables, judged, CKVC_MODE_COUNT, lines, out, err);
    }
    if (start->op == CKVC_OPERATOR_PAPER || s->judges.n == 0) { return CKVC_OK; }
    if (!run_has_file(s->run, file)) {
        CKVC_AUTO(table_file_free_at) table_file *t = start_table_file(start);
        json_object_set_new(t->meta, "label", json_string("start"));
        json_object_set_new(t->meta, "probe", json_string(ckvc_operator_name(start->op)));
        CKVC_TRY(steps_publish(s, t, file, err));
    }
    CKVC_AUTO(table_file_free_at) table_file *t = NULL;
    CKVC_TRY(steps_read_table(s, file, &t, err));
    return steps_judge(s, t, judged, CKVC_MODE_COUNT, lines, out, err);
}

static ckvc_status run_rounds(run_dir *run, const compile_options *o, compile_result *r,
                              ckvc_err *err) {
    CKVC_AUTO(steps_close) steps s = steps_of(run, o, r);
    /* scores under the table with which the round begins */
    CKVC_AUTO(heldout_free_at) heldout *before = NULL;
    ckvc_side sides[CKVC_SIDE_COUNT];
    const int n = probe_sides(o->probe, sides);
    CKVC_TRY(steps_check_formats(&s, err));
    CKVC_TRY(judge_start(&s, &before, err));
    while (r->stop == STOP_NOT) {
        const size_t first_pass = r->n_passes;
        for (int i = 0; i < n; i++) { CKVC_TRY(run_side(&s, sides[i], err)); }
        steps_end_round(&s, first_pass, before);
        heldout_free(before);
        before = ckvc_take(&s.scores);
        CKVC_TRY(
            steps_note_round(&s,
                             alternation_stop(&r->rounds[r->n_rounds - 1], (uint32_t)r->n_rounds,
                                              o->probe, probe_rounds(o->probe, o->rounds)),
                             err));
    }
    r->best = alternation_best(r->rounds, r->n_rounds);
    return steps_give_out(&s, err);
}

const compile_way compile_by_rounds = {NULL, plan_of_run, begin, run_rounds};

double compile_round_hours(const compile_load *l) {
    const double each = 2 * l->prefill_s + (1 + 3 * (double)l->n_budgets) * l->single_s;
    return (double)l->n_heldout * each / 3600;
}
