/* The recommended way to a table: see compile.h. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "compile/steps.h"
#include "fit/fit_records.h"
#include "lib/base/json.h"
#include "lib/base/progress.h"

static json_t *plan_of_run(const compile_options *o) {
    calibrate_options options = *o->plan->options;
    const budgets_options *b = &o->fit->budgets;
    options.sides[CKVC_SIDE_HEAD] = options.sides[CKVC_SIDE_GATE] = false;
    plan p = steps_plan(o, &options);
    p.verb = "compile";
    json_t *json = plan_json(&p);
    json_object_set_new(json, "fit",
                        json_pack("{s:s, s:s, s:f, s:I, s:s?}", "mode", ckvc_mode_name(b->mode),
                                  "score", ckvc_score_name(b->score), "c_min", b->c_min,
                                  "bootstrap", (json_int_t)o->fit->resampled.n_replicates, "label",
                                  o->fit->label));
    if (b->bank.n) {
        json_t *fit = json_object_get(json, "fit");
        JSON_NUMBERS(fit, {"bank", b->bank.n});
        json_object_set_new(fit, "bank_of", json_string(bank_of_name(b->bank.of)));
    }
    json_object_set_new(json, "select", json_real(o->plan->prompt_options->select));
    if (b->mode == CKVC_MODE_LENGTHS) {
        json_object_set_new(json_object_get(json, "fit"), "classes", json_integer(b->classes));
    }
    if (b->score == CKVC_SCORE_LEARNED) { JSON_NUMBERS(json, {"features", b->features}); }
    if (o->bytes) { json_object_set_new(json, "bytes", byte_budgets_json(o->bytes, NULL)); }
    return json;
}

/* Returns the plan of the run's one logging pass, which is that of `calibrate --side demand`. */
static plan demand_plan(const compile_options *o, calibrate_options *options) {
    *options = *o->plan->options;
    options->kind = SHARD_DEMAND;
    options->sides[CKVC_SIDE_HEAD] = options->sides[CKVC_SIDE_GATE] = false;
    return steps_plan(o, options);
}

static void begin(run_dir *run, const compile_options *o) {
    calibrate_options options;
    const plan p = demand_plan(o, &options);
    steps_set_plan(run, &p);
}

/* ---- 1: ask what heads want, and fit ---- */

static ckvc_status ask_demand(steps *s, pass_counts *counts, ckvc_err *err) {
    char file[48];
    compile_pass *p = steps_begin(s, PASS_DEMAND);
    const size_t number = s->result->n_passes;
    const plan made = demand_plan(s->o, &s->pass_options);
    steps_file(file, "tables", number, "ckvt");
    steps_set_plan(s->run, &made);
    if (!run_has_file(s->run, file)) {
        CKVC_AUTO(table_file_free_at) table_file *t = NULL;
        CKVC_TRY(steps_check_stop(s, err));
        CKVC_TRY(
            calibrate_repeat(s->run, p->name, s->o->plan->inputs, &s->pass_options, counts, err));
        CKVC_TRY(steps_fit(s, number, NULL, &t, err));
        if (s->o->bytes && s->select.n == 0) { byte_budgets_take(s->o->bytes, NULL, t); }
        CKVC_TRY(steps_publish(s, t, file, err));
    }
    return steps_take_table(s, p, err);
}

/* ---- 2: choose, on the prompts of split `select` ---- */

/* The tables that are tried: the one that was fitted, and the same with other shares. */
typedef struct candidates {
    select_candidate list[SELECT_MAX];
    asked_policy policies[SELECT_MAX];
    size_t n;
    table_file *mixed[SHARD_N_MIXES];
} candidates;

static void candidates_fini(candidates *x) {
    for (size_t i = 0; i < SHARD_N_MIXES; i++) { table_file_free(x->mixed[i]); }
}

/* Gives table t the shares that demand has with these weights, one weight for each budget. */
static ckvc_status take_mixes(steps *s, fit_mixes **m, const double *mix, table_file *t,
                              ckvc_err *err) {
    const char *path = run_path(s->run);
    if (!*m) { CKVC_TRY(fit_mixes_read(&path, 1, s->o->fit, m, err)); }
    fitted_demand found = {0};
    const ckvc_status st = fit_mixes_take(*m, mix, t, &found, err);
    free(found.blocks);
    return st;
}

/* Makes the fitted table with shares of one weight under every budget, as a checkpoint. */
static ckvc_status mix_table(steps *s, fit_mixes **m, double w, table_file **out, ckvc_err *err) {
    char before[48], file[48];
    const size_t pass = s->result->n_passes - 1; /* numbers start at 1, and one pass is in hand */
    steps_file(before, "tables", pass, "ckvt");
    snprintf(file, sizeof file, "tables/pass-%02zu-mix-%g.ckvt", pass, w);
    if (!run_has_file(s->run, file)) {
        CKVC_AUTO(table_file_free_at) table_file *t = NULL;
        CKVC_TRY(steps_read_table(s, before, &t, err));
        CKVC_AUTO_FREE double *mix = ckvc_alloc(t->table->n_budgets, sizeof *mix);
        for (uint32_t b = 0; b < t->table->n_budgets; b++) { mix[b] = w; }
        CKVC_TRY(take_mixes(s, m, mix, t, err));
        CKVC_TRY(steps_publish(s, t, file, err));
    }
    return steps_read_table(s, file, out, err);
}

/* Returns whether demand depends on its weight w, so that several are tried. With a continuation or
 * a repetition alone all weights give the same, and with a floor of the whole budget no share is
 * used. */
static bool has_mixes(const budgets_options *asked, const calibrate_options *made) {
    return made->n_instruction > 0 && made->setting.continuation > 1 && asked->c_min < 1.0;
}

static ckvc_status open_candidates(steps *s, candidates *x, ckvc_err *err) {
    const budgets_options *asked = &s->o->fit->budgets;
    const calibrate_options *made = s->o->plan->options;
    const bool mixes = has_mixes(asked, made);
    CKVC_AUTO(fit_mixes_free_at) fit_mixes *m = NULL;
    const uint32_t features = s->table->table->theta ? asked->features : 0;
    x->n = select_candidates(features, mixes, s->table->table->bank != NULL, asked->score,
                             made->setting.floor, asked->c_min, x->list);
    for (size_t i = 0; i < x->n; i++) {
        size_t k = 0;
        while (k < SHARD_N_MIXES && shard_mixes[k] != x->list[i].mix) { k++; }
        if (k < SHARD_N_MIXES && !x->mixed[k]) {
            CKVC_TRY(mix_table(s, &m, shard_mixes[k], &x->mixed[k], err));
        }
        x->policies[i] = (asked_policy){.kind = POLICY_TABLE,
                                        .table = k < SHARD_N_MIXES ? x->mixed[k] : s->table,
                                        .score = &x->list[i].score,
                                        .floor = &x->list[i].floor,
                                        .ridge = &x->list[i].ridge};
    }
    return CKVC_OK;
}

/* Drops what lost. The file may be of a release that tried other candidates. */
static ckvc_status drop_lost(const select_losses *s, candidates *x, const char *path,
                             ckvc_err *err) {
    bool same = s->n == x->n;
    for (size_t i = 0; same && i < x->n; i++) {
        const select_candidate *a = &s->candidates[i], *c = &x->list[i];
        same = a->score == c->score && a->mix == c->mix && a->ridge == c->ridge;
    }
    CKVC_FAIL_IF(!same, err, CKVC_E_MISMATCH,
                 "%s: has other candidates than this ckvc tries: another release began to choose. "
                 "Go on with that release, or start a new run with another --out",
                 path);
    for (size_t i = 0; i < x->n; i++) {
        for (uint32_t b = 0; b < s->n_budgets; b++) {
            x->policies[i].skip |= (uint64_t)s->lost[i * s->n_budgets + b] << b;
        }
    }
    return CKVC_OK;
}

/* The candidates are compared, and the worse ones dropped, after 4, 8, 16 ... of n prompts. Returns
 * how many prompts will be done at the next comparison if `first` are done. */
static size_t next_halving(size_t first, size_t n) {
    const size_t end = first ? 2 * first : 4;
    return end < n ? end : n;
}

/* Scores the candidates on the prompts that choose. What is chosen is a function of the logged
 * lines. Each prompt is prefilled once for all that is tried on it. The worse half of a budget's
 * candidates is tried no more on the next prompts: successive halving (Karnin, Koren and Somekh,
 * ICML 2013). */
static ckvc_status try_candidates(steps *s, ckvc_err *err) {
    CKVC_AUTO(candidates_fini) candidates x = {0};
    char before[48] = "", file[48];
    const size_t number = s->result->n_passes;
    assert(s->table); /* the table that was fitted */
    CKVC_TRY(open_candidates(s, &x, err));
    for (size_t first = 0, end; first < s->select.n; first = end) {
        CKVC_AUTO_FREE char *path = NULL;
        prompt_list some = {.items = s->select.items + first};
        end = next_halving(first, s->select.n);
        if (end < s->select.n) {
            snprintf(file, sizeof file, "select/pass-%02zu-%zu.jsonl", number, end);
        } else {
            steps_file(file, "select", number, "jsonl");
        }
        while (some.n < end - first) { prompts_add(&some); }
        if (!run_has_file(s->run, file)) {
            const step_policies tried = {
                .list = x.policies,
                .n = x.n,
                .mode = s->o->fit->budgets.mode,
                .held = s->o->bytes ? s->o->bytes->held : NULL,
                .job = {"choosing settings", first, s->select.n},
            };
            CKVC_TRY(steps_score(s, &some, &tried, before, file, err));
        }
        memcpy(before, file, sizeof before);
        CKVC_TRY(steps_path(s, file, &path, err));
        select_free(s->result->select);
        s->result->select = NULL;
        CKVC_TRY(select_read(path, s->table->table, true, &s->result->select, err));
        if (s->o->bytes) { select_across(s->result->select, s->o->bytes->share); }
        CKVC_TRY(drop_lost(s->result->select, &x, path, err));
    }
    return CKVC_OK;
}

/* Makes the table recommend what was chosen. */
static ckvc_status choose(steps *s, ckvc_err *err) {
    char file[48];
    compile_pass *p = steps_begin(s, PASS_SELECT);
    steps_file(file, "tables", s->result->n_passes, "ckvt");
    CKVC_TRY(try_candidates(s, err));
    if (!run_has_file(s->run, file)) {
        CKVC_AUTO(fit_mixes_free_at) fit_mixes *m = NULL;
        const select_losses *found = s->result->select;
        CKVC_AUTO_FREE double *mix = ckvc_alloc(found->n_budgets, sizeof *mix);
        if (select_mixes(found, mix)) { CKVC_TRY(take_mixes(s, &m, mix, s->table, err)); }
        select_take(found, s->table);
        if (s->o->bytes) { byte_budgets_take(s->o->bytes, found, s->table); }
        CKVC_TRY(steps_publish(s, s->table, file, err));
    }
    return steps_take_table(s, p, err);
}

/* ---- 3: judge, on the other held-out prompts ---- */

/* Beside top-k, a table is compared with SnapKV, AdaKV and CAKE, the strongest rules that read a
 * prompt once. They keep as many entries of every prompt as it does. */
static const policy_kind by_head[] = {POLICY_IDENTITY, POLICY_TOP_K, POLICY_SNAPKV,
                                      POLICY_ADAKV,    POLICY_CAKE,  POLICY_TABLE},
                         by_layer[] = {POLICY_IDENTITY, POLICY_TOP_K, POLICY_SNAPKV,
                                       POLICY_TOVA,     POLICY_CAKE,  POLICY_TABLE},
                         of_one_size[] = {POLICY_IDENTITY, POLICY_TOP_K,   POLICY_SNAPKV,
                                          POLICY_TOVA,     POLICY_KEYDIFF, POLICY_TABLE};
enum { REFERENCES = sizeof by_head / sizeof *by_head };

static ckvc_status judge(steps *s, ckvc_err *err) {
    const budgets_options *b = &s->o->fit->budgets;
    compile_pass *p = &s->result->passes[s->result->n_passes - 1];
    CKVC_TRY(steps_judge_pass(s, p,
                              b->c_min >= 1.0               ? of_one_size
                              : b->mode == CKVC_MODE_LAYERS ? by_layer
                                                            : by_head,
                              b->mode, err));
    return steps_judge_budgets(s, err);
}

static void tell(const steps *s, const pass_counts *counts) {
    if (s->o->on_pass) {
        s->o->on_pass(s->o->ctx, &s->result->passes[s->result->n_passes - 1], counts);
    }
}

/* ---- the whole ---- */

static ckvc_status run_budgets(run_dir *run, const compile_options *o, compile_result *result,
                               ckvc_err *err) {
    CKVC_AUTO(steps_close) steps s = steps_of(run, o, result);
    pass_counts logged = {.reliability = NAN}, none = {.reliability = NAN};
    const unsigned n_steps = 1 + (s.select.n > 0) + (s.judges.n > 0);
    CKVC_TRY(steps_check_formats(&s, err));
    ckvc_progress_stage(1, n_steps);
    CKVC_TRY(ask_demand(&s, &logged, err));
    if (s.select.n > 0) {
        tell(&s, &logged);
        ckvc_progress_stage(2, n_steps);
        CKVC_TRY(choose(&s, err));
        ckvc_progress_stage(n_steps, n_steps);
        CKVC_TRY(judge(&s, err));
        tell(&s, &none);
    } else {
        ckvc_progress_stage(n_steps, n_steps);
        CKVC_TRY(judge(&s, err));
        tell(&s, &logged);
    }
    ckvc_progress_stage(0, 0);
    steps_end_round(&s, 0, NULL);
    CKVC_TRY(steps_note_round(&s, STOP_ONCE, err));
    return steps_give_out(&s, err);
}

const compile_way compile_by_budgets = {"demand", plan_of_run, begin, run_budgets};

/* ---- what it costs ---- */

/* Returns the hours of n prompts, each of which is prefilled once and scored under so many policies
 * at every budget. */
static double scored_hours(const compile_load *l, size_t n, double policies) {
    const double each = l->prefill_s + (1 + policies * (double)l->n_budgets) * l->single_s;
    return (double)n * each / 3600;
}

budgets_hours compile_budgets_hours(const budgets_options *asked, const calibrate_options *made,
                                    const compile_load *l) {
    select_candidate list[SELECT_MAX];
    const bool bank = asked->bank.n && made->setting.queries;
    size_t left = select_candidates(asked->features, has_mixes(asked, made), bank, asked->score,
                                    made->setting.floor, asked->c_min, list);
    double select = 0;
    for (size_t first = 0, end; first < l->n_select; first = end) {
        end = next_halving(first, l->n_select);
        select += scored_hours(l, end - first, (double)left);
        left = select_better_half(left);
    }
    return (budgets_hours){.select = select,
                           .heldout = scored_hours(l, l->n_heldout - l->n_select,
                                                   REFERENCES + bank + (double)l->n_whole)};
}
