/* Passes to a table: see compile.h. */
#include "compile/compile.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "calib/actions/prompt_sets.h"
#include "cql/rounds/grid_search.h"
#include "judge/score/score.h"
#include "fit/fit_records.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/progress.h"

typedef struct loop {
    run_dir *run;
    const compile_options *o;
    compile_result *result;
    calibrate_options pass_options; /* of the pass in hand */
    table_file *table;              /* of the pass before; NULL: the start table */
    prompt_list select, heldout;    /* who chooses, who judges; items borrowed */
    heldout *scores, *round_start;  /* under `table`; under the table that the round began with */
} loop;

/* ---- plans ---- */

/* What `calibrate --side KIND` would do under this table (NULL: the start table, or none). */
static plan pass_plan(const compile_options *o, pass_kind kind, const table_file *table,
                      calibrate_options *options) {
    plan p = *o->plan;
    *options = *o->plan->options;
    p.verb = "calibrate";
    p.options = options;
    options->kind = kind == PASS_DEMAND ? SHARD_DEMAND : SHARD_LOGGED;
    options->sides[CKVC_SIDE_HEAD] = kind == PASS_HEAD;
    options->sides[CKVC_SIDE_GATE] = kind == PASS_GATE;
    if (options->kind != SHARD_LOGGED) { return p; }
    if (kind == PASS_GATE) { options->until_stable = 0; /* looks at heads */ }
    if (table) { /* --tables brings its own edges, whatever made them */
        p.edges = EDGES_QUANTILE;
        p.edges_from = "start table";
        p.start_table = table->content_id;
    }
    return p;
}

static void set_pass_plan(run_dir *run, const plan *p) {
    char hash[CKVC_SHA256_HEX];
    json_auto_t *json = plan_json(p);
    run_hash_plan(json, hash);
    run_set_pass_plan(run, hash);
}

json_t *compile_plan_json(const compile_options *o) {
    plan p = *o->plan;
    calibrate_options options = *p.options;
    const fit_options *f = o->fit;
    ckvc_side sides[CKVC_SIDE_COUNT];
    options.sides[CKVC_SIDE_HEAD] = options.sides[CKVC_SIDE_GATE] = false;
    for (int i = options.kind == SHARD_DEMAND ? 0 : probe_sides(o->probe, sides); i-- > 0;) {
        options.sides[sides[i]] = true;
    }
    p.verb = "compile";
    p.options = &options;
    json_t *json = plan_json(&p);
    if (options.kind == SHARD_DEMAND) {
        json_object_set_new(
            json, "fit",
            json_pack("{s:s, s:s, s:f, s:I, s:s?}", "mode", ckvc_mode_name(f->budgets.mode),
                      "score", ckvc_score_name(f->budgets.score), "c_min", f->budgets.c_min,
                      "bootstrap", (json_int_t)f->resampled.n_replicates, "label", f->label));
        json_object_set_new(json, "select", json_real(o->plan->prompt_options->select));
        if (f->budgets.score == CKVC_SCORE_LEARNED) {
            JSON_NUMBERS(json, {"features", f->budgets.features});
        }
        return json;
    }
    json_t *fit = json_pack("{s:f, s:s, s:s, s:s, s:I, s:b, s:s?}", "cql_alpha", f->cql.cql_alpha,
                            "solver", f->cql.solver == FIT_EXACT ? "exact" : "adamw", "reward",
                            f->cql.reward == FIT_ADVANTAGE ? "advantage" : "raw", "unsupported",
                            fit_unsupported_name(f->cql.unsupported), "bootstrap",
                            (json_int_t)f->resampled.n_replicates, "shrink", f->cql.shrink, "label",
                            f->label);
    json_object_set_new(json, "fit", fit);
    json_object_set_new(json, "rounds", json_integer(o->rounds));
    json_object_set_new(json, "probe", json_string(probe_name(o->probe)));
    return json;
}

void compile_begin(run_dir *run, const compile_options *o) {
    pass_kind passes[PASS_KINDS];
    calibrate_options options;
    (void)probe_passes(o->probe, false, passes);
    const plan p = pass_plan(o, passes[0], NULL, &options);
    set_pass_plan(run, &p);
}

/* ---- checkpoints ---- */

static ckvc_status checkpoint_stop(const loop *c, const char *what, ckvc_err *err) {
    return ckvc_fail(err, CKVC_E_STOPPED, "%s: stopped %s; the same command with --resume goes on",
                     run_path(c->run), what);
}

static ckvc_status check_stop(const loop *c, ckvc_err *err) {
    return ckvc_stop_requested() ? checkpoint_stop(c, "between two steps", err) : CKVC_OK;
}

static ckvc_status publish_table(loop *c, table_file *t, const char *file, ckvc_err *err) {
    CKVC_AUTO_FREE char *path = ckvc_path_join(run_path(c->run), file);
    CKVC_AUTO_FREE char *dir = ckvc_path_dir(file);
    CKVC_TRY(ckvc_make_dir_in(run_path(c->run), dir, err));
    CKVC_TRY(table_file_write(t, path, true, err));
    return run_checkpoint(c->run, file, err);
}

/* Path of a checkpoint whose bytes are those that the journal names; free() it. */
static ckvc_status checked_path(const run_dir *run, const char *file, char **path, ckvc_err *err) {
    CKVC_AUTO_FREE char *bytes = NULL;
    size_t n;
    CKVC_TRY(run_read_file(run, file, &bytes, &n, err));
    *path = ckvc_path_join(run_path(run), file);
    return CKVC_OK;
}

static bool same_shape(const ckvc_table *a, const ckvc_table *b) {
    return a->n_layers == b->n_layers && a->n_heads == b->n_heads && a->n_budgets == b->n_budgets &&
           a->n_entropy_bins == b->n_entropy_bins && a->n_ppl_bins == b->n_ppl_bins &&
           a->n_head_actions == b->n_head_actions && a->n_gate_actions == b->n_gate_actions;
}

/* By demand: of the model, with shares under the run's budgets. */
static bool of_this_run(const loop *c, const ckvc_table *t) {
    if (c->o->start) { return same_shape(t, c->o->start); }
    const model_shape *shape = model_get_shape(c->o->plan->inputs->model);
    return t->share && t->n_layers == (uint32_t)shape->n_layers &&
           t->n_heads == (uint32_t)shape->n_kv_heads &&
           t->n_budgets == c->o->plan->options->setting.budgets.n;
}

static ckvc_status read_table(const loop *c, const char *file, table_file **out, ckvc_err *err) {
    CKVC_AUTO_FREE char *path = NULL;
    CKVC_AUTO(table_file_free_at) table_file *t = NULL;
    CKVC_TRY(checked_path(c->run, file, &path, err));
    CKVC_TRY(table_file_read(path, &t, err));
    CKVC_FAIL_IF(!of_this_run(c, t->table), err, CKVC_E_DATA,
                 "%s: is not of this run's shape; the file was changed", path);
    *out = ckvc_take(&t);
    return CKVC_OK;
}

/* ---- the table of a pass ---- */

static const ckvc_table *table_before(const loop *c) {
    return c->table ? c->table->table : c->o->start;
}

/* What the pass's records make of the table before it. */
static ckvc_status fit_pass(loop *c, int number, table_file **out, ckvc_err *err) {
    const probe_kind probe = c->o->probe;
    fit_options f = *c->o->fit;
    const char *path = run_path(c->run);
    CKVC_AUTO(fit_result_free_at) fit_result *r = NULL;
    f.pass = number;
    f.incoming = c->table ? c->table : c->o->tables;
    if (probe == PROBE_INDEPENDENT || probe == PROBE_ALPHA_0 || probe == PROBE_MEAN_GATE ||
        probe == PROBE_EPSILON_GREEDY) {
        f.probe = probe_name(probe);
    }
    CKVC_TRY(fit_records(&path, 1, &f, &r, err));
    *out = ckvc_take(&r->table);
    return CKVC_OK;
}

/* --probe mean-gate: the threshold of every cell becomes the layer's mean, and META's count of
 * changed entries that of those. */
static void take_mean_gate(const loop *c, table_file *t) {
    const float *before = table_before(c)->tau;
    const size_t n = ckvc_tau_index(t->table, t->table->n_layers, 0, 0, 0);
    ckvc_table *mean = score_control_table(SCORE_MEAN_GATE, t->table);
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

/* The table of the pass before with shares of these weights, budget by budget. */
static ckvc_status take_mixes(loop *c, fit_mixes **m, const double *mix, table_file *t,
                              ckvc_err *err) {
    const char *path = run_path(c->run);
    if (!*m) { CKVC_TRY(fit_mixes_read(&path, 1, c->o->fit, m, err)); }
    fitted_demand found = {0};
    const ckvc_status st = fit_mixes_take(*m, mix, t, &found, err);
    free(found.blocks);
    return st;
}

/* What was chosen -> the table of the pass before. */
static ckvc_status take_choice(loop *c, ckvc_err *err) {
    CKVC_AUTO(fit_mixes_free_at) fit_mixes *m = NULL;
    const select_losses *s = c->result->select;
    CKVC_AUTO_FREE double *mix = ckvc_alloc(s->n_budgets, sizeof *mix);
    if (select_mixes(s, mix)) { CKVC_TRY(take_mixes(c, &m, mix, c->table, err)); }
    select_take(s, c->table);
    return CKVC_OK;
}

/* Logs and fits, or searches; the table is checkpoint `file` then. */
static ckvc_status make_table(loop *c, int number, const compile_pass *p, const char *file,
                              pass_counts *counts, ckvc_err *err) {
    const calibrate_inputs *in = c->o->plan->inputs;
    CKVC_AUTO(table_file_free_at) table_file *made = NULL;
    if (p->kind == PASS_SELECT) {
        CKVC_TRY(take_choice(c, err));
        return publish_table(c, c->table, file, err);
    }
    CKVC_TRY(check_stop(c, err));
    if (c->o->probe == PROBE_GRID_SEARCH) {
        const grid_pass grid = {.run = c->run,
                                .name = p->name,
                                .inputs = in,
                                .options = &c->pass_options,
                                .start = table_before(c),
                                .side = (ckvc_side)p->kind};
        CKVC_TRY(grid_search(&grid, &made, counts, err));
    } else {
        if (c->pass_options.kind != SHARD_LOGGED) {
            CKVC_TRY(calibrate_repeat(c->run, p->name, in, &c->pass_options, counts, err));
        } else {
            CKVC_TRY(calibrate_pass(c->run, p->name, in, &c->pass_options, table_before(c), counts,
                                    err));
        }
        CKVC_TRY(fit_pass(c, number, &made, err));
        if (c->o->probe == PROBE_MEAN_GATE && p->kind == PASS_GATE) { take_mean_gate(c, made); }
    }
    return publish_table(c, made, file, err);
}

/* ---- held-out prompts ---- */

/* What a table is held against. Beside demand's top-k, snapkv, adakv and cake, the strongest rules
 * that read a prompt once, keep as many entries on every prompt; `matched` would take a prefill of
 * its own. */
static const score_kind loop_policies[] = {SCORE_IDENTITY, SCORE_MATCHED, SCORE_TABLE},
                        demand_policies[] = {SCORE_IDENTITY, SCORE_TOP_K, SCORE_SNAPKV,
                                             SCORE_ADAKV,    SCORE_CAKE,  SCORE_TABLE},
                        equal_policies[] = {SCORE_IDENTITY, SCORE_TOP_K,   SCORE_SNAPKV,
                                            SCORE_TOVA,     SCORE_KEYDIFF, SCORE_TABLE},
                        layer_policies[] = {SCORE_IDENTITY, SCORE_TOP_K, SCORE_SNAPKV,
                                            SCORE_TOVA,     SCORE_CAKE,  SCORE_TABLE};
enum { POLICIES_MAX = sizeof demand_policies / sizeof *demand_policies };

/* Scores policies [n] on prompts as checkpoint `file`, behind the lines of another ("": none). */
static ckvc_status log_scores(loop *c, const prompt_list *prompts, const score_policy *policies,
                              size_t n, const char *before, const char *file, ckvc_err *err) {
    const plan *p = c->o->plan;
    const calibrate_options *co = p->options;
    const uint32_t L = (uint32_t)model_get_shape(p->inputs->model)->n_layers;
    double mean = 0;
    for (uint32_t l = 0; l < co->setting.layer_budgets.n; l++) {
        mean += co->setting.layer_budgets.v[l] / L; /* stands for them all in the lines */
    }
    score_options o = {
        .choice = {.list = policies,
                   .n = n,
                   .setting = co->setting,
                   .mode = c->o->probe == PROBE_DEMAND ? c->o->fit->budgets.mode : CKVC_MODE_COUNT,
                   .score = CKVC_SCORE_COUNT},
        .memory = co->memory};
    if (co->setting.layer_budgets.n) { o.choice.setting.budgets = (setting_list){&mean, 1}; }
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer lines = {0};
    CKVC_AUTO_FREE char *bytes = NULL;
    size_t n_bytes = 0;
    ckvc_err why = {0};
    CKVC_TRY(check_stop(c, err));
    if (*before) { CKVC_TRY(run_read_file(c->run, before, &bytes, &n_bytes, err)); }
    ckvc_buffer_append(&lines, bytes, n_bytes);
    const ckvc_status st = heldout_score(p->inputs, prompts, &o, &lines, &why);
    if (st == CKVC_E_STOPPED) { return checkpoint_stop(c, "while scoring held-out prompts", err); }
    CKVC_FAIL_IF(st != CKVC_OK, err, st, "%s", why.text);
    return run_checkpoint_file(c->run, file, lines.data, lines.size, err);
}

/* Scores of the table and what it is held against, on the prompts that judge. */
static ckvc_status log_heldout(loop *c, const table_file *table, const char *file, ckvc_err *err) {
    const bool demand = c->o->probe == PROBE_DEMAND;
    const score_kind *kinds = !demand ? loop_policies
                              : c->o->fit->budgets.c_min >= 1.0
                                  ? equal_policies /* every head B, too */
                              : c->o->fit->budgets.mode == CKVC_MODE_LAYERS ? layer_policies
                                                                            : demand_policies;
    score_policy policies[POLICIES_MAX];
    size_t n = 0;
    do {
        const bool own = kinds[n] == SCORE_MATCHED || kinds[n] == SCORE_TABLE;
        policies[n] = (score_policy){.kind = kinds[n], .table = own ? table : NULL};
    } while (kinds[n++] != SCORE_TABLE);
    return log_scores(c, &c->heldout, policies, n, "", file, err);
}

/* The same, and read. NULL without such prompts. */
static ckvc_status score_heldout(loop *c, const table_file *table, const char *file, heldout **out,
                                 ckvc_err *err) {
    CKVC_AUTO_FREE char *path = NULL;
    heldout_free(*out);
    *out = NULL;
    if (c->heldout.n == 0) { return CKVC_OK; }
    if (!run_has_file(c->run, file)) { CKVC_TRY(log_heldout(c, table, file, err)); }
    CKVC_TRY(checked_path(c->run, file, &path, err));
    return heldout_read(path, &c->heldout, out, err);
}

static void measure_pass(const heldout *h, compile_pass *p) {
    if (!h) { return; }
    const double *reward = h->reward[SCORE_TABLE];
    p->n_heldout = h->n;
    p->reward = heldout_gain(h, reward, NULL);
    memcpy(p->kept, h->kept, sizeof p->kept);
    for (int k = 0; k < SCORE_KIND_COUNT; k++) {
        if (k != SCORE_TABLE && h->reward[k]) {
            p->over[k] = heldout_gain(h, reward, h->reward[k]);
        }
    }
}

/* ---- the choice ---- */

/* Tables that are tried: that of the pass before, and it with other shares. */
typedef struct candidates {
    select_candidate list[SELECT_MAX];
    score_policy policies[SELECT_MAX];
    size_t n;
    table_file *mixed[SHARD_N_MIXES];
} candidates;

static void candidates_fini(candidates *x) {
    for (size_t i = 0; i < SHARD_N_MIXES; i++) { table_file_free(x->mixed[i]); }
}

/* The same with one weight, a checkpoint. */
static ckvc_status mix_table(loop *c, fit_mixes **m, double w, table_file **out, ckvc_err *err) {
    char before[48], file[48];
    const size_t pass = c->result->n_passes - 1; /* numbers are from 1, and one is in hand */
    snprintf(before, sizeof before, "tables/pass-%02zu.ckvt", pass);
    snprintf(file, sizeof file, "tables/pass-%02zu-mix-%g.ckvt", pass, w);
    if (!run_has_file(c->run, file)) {
        CKVC_AUTO(table_file_free_at) table_file *t = NULL;
        CKVC_TRY(read_table(c, before, &t, err));
        CKVC_AUTO_FREE double *mix = ckvc_alloc(t->table->n_budgets, sizeof *mix);
        for (uint32_t b = 0; b < t->table->n_budgets; b++) { mix[b] = w; }
        CKVC_TRY(take_mixes(c, m, mix, t, err));
        CKVC_TRY(publish_table(c, t, file, err));
    }
    return read_table(c, file, out, err);
}

bool compile_has_mixes(const calibrate_options *o) {
    return o->n_instruction > 0 && o->setting.continuation > 1;
}

static ckvc_status open_candidates(loop *c, candidates *x, ckvc_err *err) {
    const fit_options *f = c->o->fit;
    const calibrate_options *made = c->o->plan->options;
    const bool mixes =
        compile_has_mixes(made) && f->budgets.c_min < 1.0; /* else no share is looked at */
    CKVC_AUTO(fit_mixes_free_at) fit_mixes *m = NULL;
    const uint32_t features = c->table->table->theta ? f->budgets.features : 0;
    x->n = select_candidates(features, mixes, f->budgets.score, made->setting.floor,
                             f->budgets.c_min, x->list);
    for (size_t i = 0; mixes && i < SHARD_N_MIXES; i++) {
        CKVC_TRY(mix_table(c, &m, shard_mixes[i], &x->mixed[i], err));
    }
    for (size_t i = 0; i < x->n; i++) {
        size_t k = 0;
        while (k < SHARD_N_MIXES && shard_mixes[k] != x->list[i].mix) { k++; }
        x->policies[i] = (score_policy){.kind = SCORE_TABLE,
                                        .table = k < SHARD_N_MIXES ? x->mixed[k] : c->table,
                                        .score = &x->list[i].score,
                                        .floor = &x->list[i].floor};
    }
    return CKVC_OK;
}

static void drop_lost(const select_losses *s, candidates *x) {
    for (size_t i = 0; i < x->n; i++) {
        for (uint32_t b = 0; b < s->n_budgets; b++) {
            x->policies[i].skip |= (uint64_t)s->lost[i * s->n_budgets + b] << b;
        }
    }
}

/* What is chosen is a function of the logged lines. Each prompt is prefilled once for all that is
 * tried on it; after 4, 8, 16 ... prompts what is decided to lose is tried no more. */
static ckvc_status read_choice(loop *c, int number, ckvc_err *err) {
    CKVC_AUTO(candidates_fini) candidates x = {0};
    char before[48] = "", file[48];
    assert(c->table); /* of the pass before */
    CKVC_TRY(open_candidates(c, &x, err));
    for (size_t first = 0, end; first < c->select.n; first = end) {
        CKVC_AUTO_FREE char *path = NULL;
        prompt_list some = {.items = c->select.items + first};
        end = first ? 2 * first : 4;
        snprintf(file, sizeof file, "select/pass-%02d-%zu.jsonl", number, end);
        if (end >= c->select.n) {
            end = c->select.n;
            snprintf(file, sizeof file, "select/pass-%02d.jsonl", number);
        }
        while (some.n < end - first) { prompts_add(&some); }
        if (!run_has_file(c->run, file)) {
            CKVC_TRY(log_scores(c, &some, x.policies, x.n, before, file, err));
        }
        memcpy(before, file, sizeof before);
        CKVC_TRY(checked_path(c->run, file, &path, err));
        select_free(c->result->select);
        c->result->select = NULL;
        CKVC_TRY(select_read(path, c->table->table, true, &c->result->select, err));
        drop_lost(c->result->select, &x);
    }
    return CKVC_OK;
}

/* ---- one pass ---- */

/* What META says of a side. */
static size_t diagnostic(const table_file *t, const char *side, const char *key) {
    const json_t *d = json_object_get(json_object_get(t->meta, "diagnostics"), side);
    const json_int_t v = json_integer_value(json_object_get(d, key));
    return v > 0 ? (size_t)v : 0;
}

/* judged: on held-out prompts, too. */
static ckvc_status run_pass_of(loop *c, pass_kind kind, bool judged, ckvc_err *err) {
    compile_pass *p = &c->result->passes[c->result->n_passes++];
    const int number = (int)c->result->n_passes;
    char file[48];
    pass_counts counts = {.reliability = NAN};
    *p = (compile_pass){.kind = kind};
    snprintf(p->name, sizeof p->name, "pass-%02d-%s", number, pass_kind_name(kind));
    snprintf(file, sizeof file, "tables/pass-%02d.ckvt", number);
    if (kind == PASS_SELECT) {
        CKVC_TRY(read_choice(c, number, err));
    } else {
        const plan single = pass_plan(c->o, kind, c->table, &c->pass_options);
        set_pass_plan(c->run, &single);
    }
    if (!run_has_file(c->run, file)) { CKVC_TRY(make_table(c, number, p, file, &counts, err)); }
    table_file *fitted = NULL;
    CKVC_TRY(read_table(c, file, &fitted, err));
    table_file_free(c->table);
    c->table = fitted;
    if (kind == PASS_HEAD || kind == PASS_GATE) {
        const char *side = pass_kind_name(kind);
        p->changed = diagnostic(fitted, side, "changed");
        p->supported = diagnostic(fitted, side, "supported");
        p->states = diagnostic(fitted, side, "states");
    }
    memcpy(p->content_id, fitted->content_id, sizeof p->content_id);
    if (judged) {
        snprintf(file, sizeof file, "heldout/pass-%02d.jsonl", number);
        CKVC_TRY(score_heldout(c, fitted, file, &c->scores, err));
        measure_pass(c->scores, p);
    }
    if (c->o->on_pass) { c->o->on_pass(c->o->ctx, p, &counts); }
    return CKVC_OK;
}

/* ---- rounds ---- */

/* The held-out rewards that the first round is held against: those of identity in its own scores,
 * unless the loop starts elsewhere. Under another operator than the paper's the start table is a
 * checkpoint, too: tables/pass-00.ckvt. */
static ckvc_status measure_start(loop *c, ckvc_err *err) {
    static const char file[] = "tables/pass-00.ckvt", lines[] = "heldout/pass-00.jsonl";
    const ckvc_table *start = c->o->start;
    if (c->o->tables) { return score_heldout(c, c->o->tables, lines, &c->round_start, err); }
    if (!start || start->op == CKVC_OPERATOR_PAPER || c->heldout.n == 0) { return CKVC_OK; }
    if (!run_has_file(c->run, file)) {
        CKVC_AUTO(table_file_free_at) table_file *t = start_table_file(start);
        json_object_set_new(t->meta, "label", json_string("start"));
        json_object_set_new(t->meta, "probe", json_string(ckvc_operator_name(start->op)));
        CKVC_TRY(publish_table(c, t, file, err));
    }
    CKVC_AUTO(table_file_free_at) table_file *t = NULL;
    CKVC_TRY(read_table(c, file, &t, err));
    return score_heldout(c, t, lines, &c->round_start, err);
}

static void end_round(loop *c, size_t first_pass) {
    compile_result *r = c->result;
    alternation_round *round = &r->rounds[r->n_rounds];
    *round = (alternation_round){.reward = NAN};
    for (size_t i = first_pass; i < r->n_passes; i++) {
        round->changed += r->passes[i].changed;
        round->supported += r->passes[i].supported;
    }
    r->last_pass[r->n_rounds++] = r->n_passes - 1;
    const heldout *now = c->scores, *start = c->round_start;
    if (!now) { return; }
    const double *before = start ? start->reward[SCORE_TABLE] : now->reward[SCORE_IDENTITY];
    round->reward = heldout_gain(now, now->reward[SCORE_TABLE], NULL).mean;
    if (before) { round->gain = heldout_gain(now, now->reward[SCORE_TABLE], before); }
    heldout_free(c->round_start);
    c->round_start = ckvc_take(&c->scores);
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
    const rank_interval none = {.mean = NAN, .se = NAN},
                        *gain = round->gain.n ? &round->gain : &none;
    const json_int_t number = (json_int_t)r->n_rounds;
    if (has_note(c->run, "round", number)) { return CKVC_OK; }
    json_t *note =
        json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:s}", "round", number, "changed",
                  (json_int_t)round->changed, "supported", (json_int_t)round->supported, "reward",
                  ckvc_json_real(round->reward), "gain", ckvc_json_real(gain->mean), "gain_se",
                  ckvc_json_real(gain->se), "stop", stop_name(stop));
    return run_note(c->run, "round", note, err);
}

static ckvc_status run_round(loop *c, ckvc_err *err) {
    compile_result *r = c->result;
    const size_t first_pass = r->n_passes;
    pass_kind passes[PASS_KINDS];
    const int n = probe_passes(c->o->probe, c->select.n > 0, passes);
    for (int i = 0; i < n; i++) {
        const bool last = i + 1 == n;
        CKVC_TRY(run_pass_of(c, passes[i], last || c->o->probe != PROBE_DEMAND, err));
    }
    end_round(c, first_pass);
    r->stop = alternation_stop(&r->rounds[r->n_rounds - 1], (uint32_t)r->n_rounds, c->o->probe,
                               probe_rounds(c->o->probe, c->o->rounds));
    CKVC_TRY(note_round(c, r->stop, err));
    if (c->o->on_round) { c->o->on_round(c->o->ctx, r, r->stop); }
    return CKVC_OK;
}

/* table.ckvt: the best round's, byte for byte. */
static ckvc_status give_out(loop *c, ckvc_err *err) {
    compile_result *r = c->result;
    r->best = alternation_best(r->rounds, r->n_rounds);
    const compile_pass *p = &r->passes[r->last_pass[r->best]];
    char file[48];
    CKVC_AUTO_FREE char *bytes = NULL;
    size_t n;
    snprintf(file, sizeof file, "tables/pass-%.2s.ckvt", p->name + strlen("pass-"));
    CKVC_TRY(run_read_file(c->run, file, &bytes, &n, err));
    if (!run_has_file(c->run, "table.ckvt")) {
        CKVC_TRY(run_checkpoint_file(c->run, "table.ckvt", bytes, n, err));
    }
    const json_int_t number = (json_int_t)r->best + 1;
    if (has_note(c->run, "table", number)) { return CKVC_OK; }
    json_t *note = json_pack("{s:I, s:s, s:s, s:s}", "round", number, "from", file, "content_id",
                             p->content_id, "stop", stop_name(r->stop));
    return run_note(c->run, "table", note, err);
}

static void loop_fini(loop *c) {
    table_file_free(c->table);
    heldout_free(c->scores);
    heldout_free(c->round_start);
    CKVC_FREE(c->heldout.items, c->select.items);
}

void compile_result_free(compile_result *r) {
    if (r) { select_free(r->select); }
    free(r);
}

ckvc_status compile_run(run_dir *run, const compile_options *o, compile_result *result,
                        ckvc_err *err) {
    CKVC_AUTO(loop_fini)
    loop c = {.run = run,
              .o = o,
              .result = result,
              .select = heldout_prompts(o->plan->inputs->prompts, true),
              .heldout = heldout_prompts(o->plan->inputs->prompts, false)};
    *result = (compile_result){.stop = STOP_NOT};
    CKVC_TRY(measure_start(&c, err));
    while (result->stop == STOP_NOT) { CKVC_TRY(run_round(&c, err)); }
    return give_out(&c, err);
}

static const char *const probe_names[PROBE_COUNT] = {
    "joint",        "head-only", "gate-only", "independent", "alpha-0",        "no-utility",
    "no-threshold", "mean-gate", "mean-pool", "grid-search", "epsilon-greedy", "demand"};

const char *probe_name(probe_kind probe) { return probe_names[probe]; }

int probe_sides(probe_kind probe, ckvc_side sides[CKVC_SIDE_COUNT]) {
    sides[0] = probe == PROBE_GATE_ONLY ? CKVC_SIDE_GATE : CKVC_SIDE_HEAD;
    sides[1] = CKVC_SIDE_GATE;
    /* no-threshold has no thresholds to try */
    return probe == PROBE_HEAD_ONLY || probe == PROBE_GATE_ONLY || probe == PROBE_NO_THRESHOLD ? 1
                                                                                               : 2;
}

const char *pass_kind_name(pass_kind kind) {
    static const char *const names[PASS_KINDS] = {"head", "gate", "demand", "select"};
    return names[kind];
}

int probe_passes(probe_kind probe, bool select, pass_kind passes[PASS_KINDS]) {
    int n = 0;
    if (probe != PROBE_DEMAND) {
        ckvc_side sides[CKVC_SIDE_COUNT];
        n = probe_sides(probe, sides);
        for (int i = 0; i < n; i++) { passes[i] = (pass_kind)sides[i]; }
        return n;
    }
    passes[n++] = PASS_DEMAND;
    if (select) { passes[n++] = PASS_SELECT; }
    return n;
}

static bool probe_once(probe_kind probe) {
    return probe == PROBE_INDEPENDENT || probe == PROBE_GRID_SEARCH || probe == PROBE_DEMAND;
}

uint32_t probe_rounds(probe_kind probe, uint32_t rounds) { return probe_once(probe) ? 1 : rounds; }

const char *stop_name(stop_rule rule) {
    static const char *const names[] = {"going on", "converged", "held-out", "rounds", "one round"};
    return names[rule];
}

stop_rule alternation_stop(const alternation_round *round, uint32_t number, probe_kind probe,
                           uint32_t rounds) {
    const double few = fmax(1.0, 0.01 * (double)round->supported);
    if (probe_once(probe)) { return STOP_ONCE; }
    if ((double)round->changed < few) { return STOP_CONVERGED; }
    if (round->gain.n >= 2 && !(round->gain.mean > round->gain.se)) { return STOP_HELDOUT; }
    return number >= rounds ? STOP_ROUNDS : STOP_NOT;
}

size_t alternation_best(const alternation_round *rounds, size_t n) {
    size_t best = n - 1;
    for (size_t i = n; i-- > 0;) {
        if (rounds[i].reward > rounds[best].reward ||
            (isnan(rounds[best].reward) && !isnan(rounds[i].reward))) {
            best = i;
        }
    }
    return best;
}

/* ---- what it costs beside its passes ---- */

enum { REFERENCES = 6 }; /* what a table by demand is held against */

/* n prompts, each prefilled so often, and under so many policies at every budget. */
static double scored_hours(const compile_load *l, size_t n, int prefills, double policies) {
    const double each =
        prefills * l->prefill_s + (1 + policies * (double)l->n_budgets) * l->single_s;
    return (double)n * each / 3600;
}

double loop_heldout_hours(const compile_load *l) { return scored_hours(l, l->n_heldout, 2, 3); }

demand_cost demand_cost_of(const demand_plan *p, const compile_load *l) {
    select_candidate list[SELECT_MAX];
    const double tried =
        (double)select_candidates(p->features, p->mixes, p->score, p->floor, p->c_min, list);
    return (demand_cost){.select = scored_hours(l, l->n_select, 1, tried),
                         .heldout = scored_hours(l, l->n_heldout - l->n_select, 1, REFERENCES)};
}
