/* The alternating loop: see compile.h. */
#include "calib/compile/compile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calib/compile/grid_search.h"
#include "calib/score/heldout.h"
#include "calib/actions/start_table.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/progress.h"

typedef struct loop {
    run_dir *run;
    const compile_options *o;
    compile_result *result;
    calibrate_options pass_options; /* of the pass in hand */
    table_file *table;              /* of the pass before; NULL: the start table */
    prompt_list heldout;            /* items borrowed */
    heldout *scores, *round_start;  /* under `table`; under the table that the round began with */
    double started_s;
} loop;

/* ---- plans ---- */

/* What `calibrate --side SIDE` would do under this table (NULL: the start table). */
static plan pass_plan(const compile_options *o, ckvc_side side, const table_file *table,
                      calibrate_options *options) {
    plan p = *o->plan;
    *options = *o->plan->options;
    options->sides[CKVC_SIDE_HEAD] = side == CKVC_SIDE_HEAD;
    options->sides[CKVC_SIDE_GATE] = side == CKVC_SIDE_GATE;
    if (side == CKVC_SIDE_GATE) { options->until_stable = 0; /* looks at heads */ }
    p.verb = "calibrate";
    p.options = options;
    if (table) { /* --tables brings its own edges, whatever made them */
        p.edges = EDGES_QUANTILE;
        p.edges_from = "start table";
        p.start_table = table->content_id;
    }
    return p;
}

static ckvc_status set_pass_plan(run_dir *run, const plan *p, ckvc_err *err) {
    char hash[CKVC_SHA256_HEX];
    json_t *json = plan_json(p);
    ckvc_status st =
        json ? run_hash_plan(json, hash, err) : ckvc_fail_memory(err, "a pass's plan", 4096);
    json_decref(json);
    if (st == CKVC_OK) { run_set_pass_plan(run, hash); }
    return st;
}

json_t *compile_plan_json(const compile_options *o) {
    plan p = *o->plan;
    calibrate_options options = *p.options;
    const fit_options *f = o->fit;
    ckvc_side sides[CKVC_SIDE_COUNT];
    options.sides[CKVC_SIDE_HEAD] = options.sides[CKVC_SIDE_GATE] = false;
    for (int i = probe_sides(o->probe, sides); i-- > 0;) {
        options.sides[sides[i]] = true;
    }
    p.verb = "compile";
    p.options = &options;
    json_t *json = plan_json(&p);
    json_t *fit = json_pack("{s:f, s:s, s:s, s:s, s:I, s:b, s:s?}", "cql_alpha", f->cql_alpha,
                            "solver", f->solver == FIT_EXACT ? "exact" : "adamw", "reward",
                            f->reward == FIT_ADVANTAGE ? "advantage" : "raw", "unsupported",
                            fit_unsupported_name(f->unsupported), "bootstrap",
                            (json_int_t)f->replicates, "shrink", f->shrink, "label", f->label);
    if (!json || !fit || json_object_set_new(json, "fit", fit) ||
        json_object_set_new(json, "rounds", json_integer(o->rounds)) ||
        json_object_set_new(json, "probe", json_string(probe_name(o->probe)))) {
        json_decref(json);
        return NULL;
    }
    return json;
}

ckvc_status compile_begin(run_dir *run, const compile_options *o, ckvc_err *err) {
    ckvc_side sides[CKVC_SIDE_COUNT];
    calibrate_options options;
    (void)probe_sides(o->probe, sides);
    const plan p = pass_plan(o, sides[0], NULL, &options);
    return set_pass_plan(run, &p, err);
}

/* ---- one pass ---- */

static ckvc_status stopped(const loop *c, const char *what, ckvc_err *err) {
    return ckvc_fail(err, CKVC_E_STOPPED, "%s: stopped %s; the same command with --resume goes on",
                     run_path(c->run), what);
}

/* What is left of --limit-time; stops where nothing is. */
static ckvc_status time_left(loop *c, ckvc_err *err) {
    const double limit = c->o->plan->options->limit_time_s;
    c->pass_options.limit_time_s = limit > 0 ? limit - (ckvc_now_s() - c->started_s) : 0;
    bool over = limit > 0 && c->pass_options.limit_time_s <= 0;
    return over || ckvc_stop_requested() ? stopped(c, "between two steps", err) : CKVC_OK;
}

static ckvc_status publish_table(loop *c, table_file *t, const char *file, ckvc_err *err) {
    char *path = ckvc_path_join(run_path(c->run), file), *dir = path ? ckvc_path_dir(path) : NULL;
    ckvc_status st = dir ? ckvc_make_dirs(dir, err) : ckvc_fail_memory(err, "a path", 1);
    st = st ? st : table_file_write(t, path, true, err);
    st = st ? st : run_checkpoint(c->run, file, err);
    free(path);
    free(dir);
    return st;
}

/* What the pass's records make of the table before it. */
static ckvc_status fit_pass(loop *c, int number, table_file **out, ckvc_err *err) {
    fit_options f = *c->o->fit;
    const char *path = run_path(c->run);
    fit_result *r = NULL;
    f.pass = number;
    f.incoming = c->table ? c->table : c->o->tables;
    if (c->o->probe == PROBE_INDEPENDENT || c->o->probe == PROBE_ALPHA_0 ||
        c->o->probe == PROBE_MEAN_GATE || c->o->probe == PROBE_EPSILON_GREEDY) {
        f.probe = probe_name(c->o->probe);
    }
    ckvc_status st = fit_records(&path, 1, &f, &r, err);
    if (st == CKVC_OK) {
        *out = r->table;
        r->table = NULL;
    }
    fit_result_free(r);
    return st;
}

/* --probe mean-gate: the threshold of every cell becomes the layer's mean, and META's count of
 * changed entries that of those. */
static ckvc_status take_mean_gate(const loop *c, table_file *t, ckvc_err *err) {
    const float *before = c->table ? c->table->table->tau : c->o->start->tau;
    const size_t n = (size_t)t->table->n_layers * t->table->n_entropy_bins * t->table->n_ppl_bins *
                     t->table->n_budgets;
    ckvc_table *mean = NULL;
    ckvc_status st = score_control_table(SCORE_MEAN_GATE, t->table, &mean, err);
    if (st != CKVC_OK) { return st; }
    size_t changed = 0;
    for (size_t i = 0; i < n; i++) {
        t->table->tau[i] = mean->tau[i];
        changed += mean->tau[i] != before[i];
    }
    ckvc_table_free(mean);
    json_t *gate =
        json_object_get(json_object_get(t->meta, "diagnostics"), ckvc_side_name(CKVC_SIDE_GATE));
    return json_object_set_new(gate, "changed", json_integer((json_int_t)changed))
               ? ckvc_fail_memory(err, "a table's META", 64)
               : CKVC_OK;
}

/* Logs and fits, or searches; the table is checkpoint `file` then. */
static ckvc_status make_table(loop *c, int number, const compile_pass *p, const char *file,
                              pass_counts *counts, ckvc_err *err) {
    const ckvc_table *table = c->table ? c->table->table : c->o->start;
    table_file *made = NULL;
    ckvc_status st = time_left(c, err);
    if (st == CKVC_OK && c->o->probe == PROBE_GRID_SEARCH) {
        st = grid_search(c->run, p->name, c->o->plan->inputs, &c->pass_options, table, p->side,
                         &made, counts, err);
    } else if (st == CKVC_OK) {
        st = calibrate_pass(c->run, p->name, c->o->plan->inputs, &c->pass_options, table, counts,
                            err);
        st = st ? st : fit_pass(c, number, &made, err);
        if (st == CKVC_OK && c->o->probe == PROBE_MEAN_GATE && p->side == CKVC_SIDE_GATE) {
            st = take_mean_gate(c, made, err);
        }
    }
    st = st ? st : publish_table(c, made, file, err);
    table_file_free(made);
    return st;
}

/* Path of a checkpoint whose bytes are those that the journal names; NULL and an error otherwise.
 * free() it. */
static char *checked_path(const run_dir *run, const char *file, ckvc_err *err) {
    char *bytes, *path;
    size_t n;
    if (run_read_file(run, file, &bytes, &n, err) != CKVC_OK) { return NULL; }
    free(bytes);
    path = ckvc_path_join(run_path(run), file);
    return path;
}

static ckvc_status read_table(const loop *c, const char *file, table_file **out, ckvc_err *err) {
    ckvc_err why = {0};
    char *path = checked_path(c->run, file, &why);
    if (!path) { return ckvc_fail(err, why.status, "%s", why.text); }
    ckvc_status st = table_file_read(path, out, err);
    const ckvc_table *t = st ? NULL : (*out)->table, *s = c->o->start;
    if (st == CKVC_OK &&
        (t->n_layers != s->n_layers || t->n_heads != s->n_heads || t->n_budgets != s->n_budgets ||
         t->n_entropy_bins != s->n_entropy_bins || t->n_ppl_bins != s->n_ppl_bins ||
         t->n_head_actions != s->n_head_actions || t->n_gate_actions != s->n_gate_actions)) {
        st = ckvc_fail(err, CKVC_E_DATA, "%s: is not of this run's shape; the file was changed",
                       path);
        table_file_free(*out);
        *out = NULL;
    }
    free(path);
    return st;
}

static size_t diagnostic(const table_file *t, ckvc_side side, const char *key) {
    const json_t *d =
        json_object_get(json_object_get(t->meta, "diagnostics"), ckvc_side_name(side));
    json_int_t v = json_integer_value(json_object_get(d, key));
    return v > 0 ? (size_t)v : 0;
}

/* Scores `table` on the held-out prompts as checkpoint `file`, and reads them. Nothing without
 * held-out prompts. */
static ckvc_status score_heldout(loop *c, const table_file *table, const char *file, heldout **out,
                                 ckvc_err *err) {
    const calibrate_options *co = c->o->plan->options;
    *out = NULL;
    if (c->heldout.n == 0) { return CKVC_OK; }
    ckvc_status st = CKVC_OK;
    if (!run_has_file(c->run, file)) {
        const double *by_layer = c->o->plan->layer_budgets;
        const uint32_t L = c->o->start->n_layers;
        double mean = 0;
        for (uint32_t l = 0; by_layer && l < L; l++) {
            mean += by_layer[l] / L; /* stands for them all in the lines */
        }
        const score_options o = {.window = co->window,
                                 .alpha_kind = co->alpha_kind,
                                 .keep_window = co->keep_window,
                                 .budgets = by_layer ? &mean : c->o->plan->budgets,
                                 .n_budgets = by_layer ? 1 : c->o->plan->n_budgets,
                                 .layer_budgets = by_layer,
                                 .seed = co->seed,
                                 .quiet = co->quiet};
        ckvc_buffer lines = {0};
        ckvc_err why = {0};
        st = time_left(c, err);
        if (st == CKVC_OK) {
            st = heldout_score(c->o->plan->inputs, &c->heldout, table, &o, &lines, &why);
            st = st == CKVC_E_STOPPED ? stopped(c, "while scoring held-out prompts", err)
                 : st                 ? ckvc_fail(err, st, "%s", why.text)
                                      : st;
        }
        st = st ? st : run_checkpoint_file(c->run, file, lines.data, lines.size, err);
        ckvc_buffer_fini(&lines);
    }
    if (st != CKVC_OK) { return st; }
    ckvc_err why = {0};
    char *path = checked_path(c->run, file, &why);
    if (!path) { return ckvc_fail(err, why.status, "%s", why.text); }
    st = heldout_read(path, &c->heldout, out, err);
    free(path);
    return st;
}

static ckvc_status measure_pass(loop *c, compile_pass *p, ckvc_err *err) {
    const heldout *h = c->scores;
    if (!h) { return CKVC_OK; }
    p->n_heldout = h->n;
    p->kept = h->table_kept;
    p->identity_kept = h->identity_kept;
    p->matched_kept = h->matched_kept;
    ckvc_status st = heldout_gain(h->table, NULL, h->n, &p->reward, err);
    st = st ? st : heldout_gain(h->table, h->identity, h->n, &p->over_identity, err);
    return st ? st : heldout_gain(h->table, h->matched, h->n, &p->over_matched, err);
}

static ckvc_status run_pass_of(loop *c, int number, ckvc_side side, ckvc_err *err) {
    compile_pass *p = &c->result->passes[c->result->n_passes++];
    char file[48];
    pass_counts counts = {.reliability = NAN};
    *p = (compile_pass){.side = side};
    snprintf(p->name, sizeof p->name, "pass-%02d-%s", number, ckvc_side_name(side));
    snprintf(file, sizeof file, "tables/pass-%02d.ckvt", number);
    const plan single = pass_plan(c->o, side, c->table, &c->pass_options);
    ckvc_status st = set_pass_plan(c->run, &single, err);
    if (st == CKVC_OK && !run_has_file(c->run, file)) {
        st = make_table(c, number, p, file, &counts, err);
    }
    table_file *fitted = NULL;
    st = st ? st : read_table(c, file, &fitted, err);
    if (st != CKVC_OK) { return st; }
    table_file_free(c->table);
    c->table = fitted;
    p->changed = diagnostic(fitted, side, "changed");
    p->supported = diagnostic(fitted, side, "supported");
    p->states = diagnostic(fitted, side, "states");
    memcpy(p->content_id, fitted->content_id, sizeof p->content_id);
    snprintf(file, sizeof file, "heldout/pass-%02d.jsonl", number);
    heldout_free(c->scores);
    c->scores = NULL;
    st = score_heldout(c, fitted, file, &c->scores, err);
    st = st ? st : measure_pass(c, p, err);
    if (st == CKVC_OK && c->o->on_pass) { c->o->on_pass(c->o->ctx, p, &counts); }
    return st;
}

/* ---- rounds ---- */

/* The held-out rewards that the first round is held against: those of identity in its own scores,
 * unless the loop starts elsewhere. Under another operator than the paper's the start table is a
 * checkpoint, too: tables/pass-00.ckvt. */
static ckvc_status measure_start(loop *c, ckvc_err *err) {
    static const char file[] = "tables/pass-00.ckvt", lines[] = "heldout/pass-00.jsonl";
    const ckvc_table *start = c->o->start;
    if (c->o->tables) { return score_heldout(c, c->o->tables, lines, &c->round_start, err); }
    if (start->op == CKVC_OPERATOR_PAPER || c->heldout.n == 0) { return CKVC_OK; }
    table_file *t = NULL;
    ckvc_status st = CKVC_OK;
    if (!run_has_file(c->run, file)) {
        t = start_table_file(start);
        if (!t || json_object_set_new(t->meta, "label", json_string("start")) ||
            json_object_set_new(t->meta, "probe", json_string(ckvc_operator_name(start->op)))) {
            st = ckvc_fail_memory(err, "the start table", 4096);
        }
        st = st ? st : publish_table(c, t, file, err);
        table_file_free(t);
    }
    t = NULL;
    st = st ? st : read_table(c, file, &t, err);
    st = st ? st : score_heldout(c, t, lines, &c->round_start, err);
    table_file_free(t);
    return st;
}

static ckvc_status end_round(loop *c, size_t first_pass, ckvc_err *err) {
    compile_result *r = c->result;
    alternation_round *round = &r->rounds[r->n_rounds];
    *round = (alternation_round){.reward = NAN};
    for (size_t i = first_pass; i < r->n_passes; i++) {
        round->changed += r->passes[i].changed;
        round->supported += r->passes[i].supported;
    }
    r->last_pass[r->n_rounds++] = r->n_passes - 1;
    if (!c->scores) { return CKVC_OK; }
    round->reward = r->passes[r->n_passes - 1].reward.mean;
    const double *before = c->round_start ? c->round_start->table : c->scores->identity;
    ckvc_status st = heldout_gain(c->scores->table, before, c->scores->n, &round->gain, err);
    heldout_free(c->round_start);
    c->round_start = c->scores;
    c->scores = NULL;
    return st;
}

/* Is a line of this kind there about this round? */
static bool has_note(const run_dir *run, const char *kind, json_int_t round) {
    for (size_t i = 0; i < json_array_size(run_notes(run)); i++) {
        const json_t *line = json_array_get(run_notes(run), i);
        if (strcmp(json_string_value(json_object_get(line, "note")), kind) == 0 &&
            json_integer_value(json_object_get(line, "round")) == round) {
            return true;
        }
    }
    return false;
}

static ckvc_status note_round(loop *c, stop_rule stop, ckvc_err *err) {
    const compile_result *r = c->result;
    const alternation_round *round = &r->rounds[r->n_rounds - 1];
    json_int_t number = (json_int_t)r->n_rounds;
    return has_note(c->run, "round", number)
               ? CKVC_OK
               : run_note(c->run, "round",
                          json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:s}", "round", number,
                                    "changed", (json_int_t)round->changed, "supported",
                                    (json_int_t)round->supported, "reward",
                                    ckvc_json_real(round->reward), "gain",
                                    ckvc_json_real(round->gain.n ? round->gain.mean : NAN),
                                    "gain_se", ckvc_json_real(round->gain.n ? round->gain.se : NAN),
                                    "stop", stop_name(stop)),
                          err);
}

/* table.ckvt: the best round's, byte for byte. */
static ckvc_status give_out(loop *c, ckvc_err *err) {
    compile_result *r = c->result;
    r->best = alternation_best(r->rounds, r->n_rounds);
    const compile_pass *p = &r->passes[r->last_pass[r->best]];
    char file[48], *bytes;
    size_t n;
    snprintf(file, sizeof file, "tables/pass-%.2s.ckvt", p->name + strlen("pass-"));
    ckvc_status st = run_read_file(c->run, file, &bytes, &n, err);
    if (st != CKVC_OK) { return st; }
    if (!run_has_file(c->run, "table.ckvt")) {
        st = run_checkpoint_file(c->run, "table.ckvt", bytes, n, err);
    }
    free(bytes);
    if (st == CKVC_OK && !has_note(c->run, "table", (json_int_t)r->best + 1)) {
        st = run_note(c->run, "table",
                      json_pack("{s:I, s:s, s:s, s:s}", "round", (json_int_t)r->best + 1, "from",
                                file, "content_id", p->content_id, "stop", stop_name(r->stop)),
                      err);
    }
    return st;
}

ckvc_status compile_run(run_dir *run, const compile_options *o, compile_result *result,
                        ckvc_err *err) {
    ckvc_side sides[CKVC_SIDE_COUNT];
    const int n_sides = probe_sides(o->probe, sides);
    const uint32_t rounds = probe_rounds(o->probe, o->rounds);
    loop c = {.run = run, .o = o, .result = result, .started_s = ckvc_now_s()};
    *result = (compile_result){.stop = STOP_NOT};
    ckvc_status st = heldout_prompts(o->plan->inputs->prompts, &c.heldout, err);
    st = st ? st : run_clean_folder(run, "tables", err);
    st = st ? st : run_clean_folder(run, "heldout", err);
    st = st ? st : run_clean_folder(run, "grid", err);
    st = st ? st : measure_start(&c, err);
    while (st == CKVC_OK && result->stop == STOP_NOT) {
        const size_t first_pass = result->n_passes;
        for (int i = 0; st == CKVC_OK && i < n_sides; i++) {
            st = run_pass_of(&c, (int)result->n_passes + 1, sides[i], err);
        }
        if (st == CKVC_OK) { st = end_round(&c, first_pass, err); }
        if (st == CKVC_OK) {
            result->stop = alternation_stop(&result->rounds[result->n_rounds - 1],
                                            (uint32_t)result->n_rounds, o->probe, rounds);
            st = note_round(&c, result->stop, err);
        }
        if (st == CKVC_OK && o->on_round) { o->on_round(o->ctx, result, result->stop); }
    }
    st = st ? st : give_out(&c, err);
    table_file_free(c.table);
    heldout_free(c.scores);
    heldout_free(c.round_start);
    free(c.heldout.items);
    return st;
}
