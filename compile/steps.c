/* See steps.h. */
#include "compile/steps.h"

#include <math.h>
#include <stdio.h>

#include "fit/fit_records.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/progress.h"

steps steps_of(run_dir *run, const compile_options *o, compile_result *result) {
    *result = (compile_result){.stop = STOP_NOT};
    return (steps){.run = run,
                   .o = o,
                   .result = result,
                   .select = heldout_prompts(o->plan->inputs->prompts, true),
                   .judges = heldout_prompts(o->plan->inputs->prompts, false)};
}

void steps_close(steps *s) {
    table_file_free(s->table);
    heldout_free(s->scores);
    CKVC_FREE(s->judges.items, s->select.items);
}

void compile_result_free(compile_result *r) {
    if (r) {
        select_free(r->select);
        free(r->verdicts);
    }
    free(r);
}

/* ---- plans and passes ---- */

plan steps_plan(const compile_options *o, const calibrate_options *options) {
    plan p = *o->plan;
    p.verb = "calibrate";
    p.options = options;
    return p;
}

void steps_set_plan(run_dir *run, const plan *p) {
    char hash[CKVC_SHA256_HEX];
    json_auto_t *json = plan_json(p);
    run_hash_plan(json, hash);
    run_set_pass_plan(run, hash);
}

const char *pass_kind_name(pass_kind kind) {
    static const char *const names[PASS_KINDS] = {"head", "gate", "demand", "select"};
    return names[kind];
}

compile_pass *steps_begin(steps *s, pass_kind kind) {
    compile_pass *p = &s->result->passes[s->result->n_passes++];
    *p = (compile_pass){.kind = kind};
    snprintf(p->name, sizeof p->name, "pass-%02zu-%s", s->result->n_passes, pass_kind_name(kind));
    return p;
}

void steps_file(char file[48], const char *folder, size_t number, const char *ending) {
    snprintf(file, 48, "%s/pass-%02zu.%s", folder, number, ending);
}

/* ---- checkpoints ---- */

static ckvc_status stopped(const steps *s, const char *what, ckvc_err *err) {
    return ckvc_fail(err, CKVC_E_STOPPED, "%s: stopped %s; the same command with --resume goes on",
                     run_path(s->run), what);
}

ckvc_status steps_check_formats(const steps *s, ckvc_err *err) {
    const calibrate_inputs *in = s->o->plan->inputs;
    for (uint32_t b = 0; s->o->bytes && b < s->o->bytes->n; b++) {
        CKVC_TRY(policy_check_formats(s->o->bytes->held[b], in, err));
    }
    return policy_check_formats(setting_formats(&s->o->plan->options->setting), in, err);
}

ckvc_status steps_check_stop(const steps *s, ckvc_err *err) {
    return ckvc_stop_requested() ? stopped(s, "between two steps", err) : CKVC_OK;
}

ckvc_status steps_fit(const steps *s, size_t number, const char *probe, table_file **out,
                      ckvc_err *err) {
    fit_options f = *s->o->fit;
    const char *path = run_path(s->run);
    CKVC_AUTO(fit_result_free_at) fit_result *r = NULL;
    f.pass = (int)number;
    f.incoming = s->table ? s->table : s->o->tables;
    f.probe = probe;
    CKVC_TRY(fit_records(&path, 1, &f, &r, err));
    *out = ckvc_take(&r->table);
    return CKVC_OK;
}

ckvc_status steps_publish(const steps *s, table_file *t, const char *file, ckvc_err *err) {
    CKVC_AUTO_FREE char *path = ckvc_path_join(run_path(s->run), file);
    CKVC_AUTO_FREE char *dir = ckvc_path_dir(file);
    CKVC_TRY(ckvc_make_dir_in(run_path(s->run), dir, err));
    CKVC_TRY(table_file_write(t, path, true, err));
    return run_checkpoint(s->run, file, err);
}

ckvc_status steps_path(const steps *s, const char *file, char **path, ckvc_err *err) {
    CKVC_AUTO_FREE char *bytes = NULL;
    size_t n;
    CKVC_TRY(run_read_file(s->run, file, &bytes, &n, err));
    *path = ckvc_path_join(run_path(s->run), file);
    return CKVC_OK;
}

static bool same_shape(const ckvc_table *a, const ckvc_table *b) {
    return a->n_layers == b->n_layers && a->n_heads == b->n_heads && a->n_budgets == b->n_budgets &&
           a->n_entropy_bins == b->n_entropy_bins && a->n_ppl_bins == b->n_ppl_bins &&
           a->n_head_actions == b->n_head_actions && a->n_gate_actions == b->n_gate_actions;
}

/* Returns whether a table has the shape of the start table. Without a start table, it must have the
 * model's shape, with shares under the run's budgets. */
static bool of_this_run(const steps *s, const ckvc_table *t) {
    if (s->o->start) { return same_shape(t, s->o->start); }
    const model_shape *shape = model_get_shape(s->o->plan->inputs->model);
    return t->share && t->n_layers == (uint32_t)shape->n_layers &&
           t->n_heads == (uint32_t)shape->n_kv_heads &&
           (t->n_budgets == s->o->plan->options->setting.budgets.n ||
            (s->o->bytes && t->byte_share && t->n_budgets <= s->o->bytes->n));
}

ckvc_status steps_read_table(const steps *s, const char *file, table_file **out, ckvc_err *err) {
    CKVC_AUTO_FREE char *path = NULL;
    CKVC_AUTO(table_file_free_at) table_file *t = NULL;
    CKVC_TRY(steps_path(s, file, &path, err));
    CKVC_TRY(table_file_read(path, &t, err));
    CKVC_FAIL_IF(!of_this_run(s, t->table), err, CKVC_E_DATA,
                 "%s: is not of this run's shape; the file was changed", path);
    *out = ckvc_take(&t);
    return CKVC_OK;
}

ckvc_status steps_take_table(steps *s, compile_pass *p, ckvc_err *err) {
    char file[48];
    table_file *t = NULL;
    steps_file(file, "tables", s->result->n_passes, "ckvt");
    CKVC_TRY(steps_read_table(s, file, &t, err));
    table_file_free(s->table);
    s->table = t;
    memcpy(p->content_id, t->content_id, sizeof p->content_id);
    return CKVC_OK;
}

/* ---- held-out prompts ---- */

ckvc_status steps_score(const steps *s, const prompt_list *prompts, const step_policies *policies,
                        const char *before, const char *file, ckvc_err *err) {
    const plan *p = s->o->plan;
    const calibrate_options *co = p->options;
    const uint32_t L = (uint32_t)model_get_shape(p->inputs->model)->n_layers;
    double mean = 0;
    for (uint32_t l = 0; l < co->setting.layer_budgets.n; l++) {
        /* the mean stands for all of them in the lines */
        mean += co->setting.layer_budgets.v[l] / L;
    }
    score_options o = {.choice = {.list = policies->list,
                                  .n = policies->n,
                                  .setting = co->setting,
                                  .mode = policies->mode,
                                  .held = policies->held,
                                  .score = CKVC_SCORE_COUNT},
                       .memory = co->memory,
                       .job = policies->job};
    if (policies->budgets.n) { o.choice.setting.budgets = policies->budgets; }
    if (co->setting.layer_budgets.n) { o.choice.setting.budgets = (setting_list){&mean, 1}; }
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer lines = {0};
    CKVC_AUTO_FREE char *bytes = NULL;
    size_t n_bytes = 0;
    ckvc_err why = {0};
    CKVC_TRY(steps_check_stop(s, err));
    if (*before) { CKVC_TRY(run_read_file(s->run, before, &bytes, &n_bytes, err)); }
    ckvc_buffer_append(&lines, bytes, n_bytes);
    const ckvc_status st = heldout_score(p->inputs, prompts, &o, &lines, &why);
    if (st == CKVC_E_STOPPED) { return stopped(s, "while scoring held-out prompts", err); }
    CKVC_FAIL_IF(st != CKVC_OK, err, st, "%s", why.text);
    return run_checkpoint_file(s->run, file, lines.data, lines.size, err);
}

ckvc_status steps_judge(const steps *s, const table_file *table, const policy_kind *kinds,
                        ckvc_mode mode, const char *file, heldout **out, ckvc_err *err) {
    CKVC_AUTO_FREE char *path = NULL;
    static const double unfitted = 0;
    const ckvc_table *t = table->table;
    const byte_budgets *bytes = s->o->bytes;
    asked_policy list[WHOLE_CACHES + POLICY_KIND_COUNT + 1];
    cache_formats held[BYTE_BUDGETS_MAX];
    step_policies policies = {
        .list = list, .mode = mode, .job = {"judging the table", 0, s->judges.n}};
    heldout_free(*out);
    *out = NULL;
    if (s->judges.n == 0) { return CKVC_OK; }
    for (uint32_t i = 0; bytes && i < bytes->n_whole; i++) {
        list[policies.n++] = (asked_policy){.kind = POLICY_FULL, .formats = &bytes->whole[i]};
    }
    for (uint32_t b = 0; bytes && b < t->n_budgets; b++) { held[b] = table_file_held(table, b); }
    if (bytes) {
        policies.budgets = (setting_list){t->budgets, t->n_budgets};
        policies.held = held;
    }
    for (const policy_kind *kind = kinds; kind == kinds || kind[-1] != POLICY_TABLE; kind++) {
        const bool own = *kind == POLICY_MATCHED || *kind == POLICY_TABLE;
        list[policies.n++] = (asked_policy){.kind = *kind, .table = own ? table : NULL};
    }
    if (t->bank) { /* where it fits entries, it is scored without, too */
        asked_policy *without = &list[policies.n - 1];
        list[policies.n++] = *without;
        without->ridge = &unfitted;
        for (uint32_t b = 0; b < t->n_budgets; b++) {
            without->skip |= (uint64_t)(ckvc_table_ridge(t, b) == 0) << b;
        }
    }
    if (!run_has_file(s->run, file)) {
        CKVC_TRY(steps_score(s, &s->judges, &policies, "", file, err));
    }
    CKVC_TRY(steps_path(s, file, &path, err));
    return heldout_read(path, &s->judges, NAN, out, err);
}

/* Compares the table with rules at its budget b, by the lines of the file at `path`. */
static ckvc_status judge_budget(const steps *s, const char *path, uint32_t b, budget_verdict *out,
                                ckvc_err *err) {
    const ckvc_table *t = s->table->table;
    CKVC_AUTO(heldout_free_at) heldout *h = NULL;
    CKVC_TRY(heldout_read(path, &s->judges, t->budgets[b], &h, err));
    const double *reward = h->reward[POLICY_TABLE];
    const rank_interval own = heldout_gain(h, reward, NULL);
    *out = (budget_verdict){.budget = t->budgets[b],
                            .bytes = t->byte_share ? t->byte_share[b] : 0,
                            .loss = own,
                            .kl = heldout_gain(h, h->kl[POLICY_TABLE], NULL)};
    out->loss.mean = -own.mean;
    out->loss.lo = -own.hi;
    out->loss.hi = -own.lo;
    for (int k = 0; k < POLICY_KIND_COUNT; k++) {
        const bool rule = k != POLICY_TABLE && k != POLICY_FULL && k != POLICY_IDENTITY;
        if (!rule || !h->reward[k]) { continue; }
        const rank_interval more = heldout_gain(h, h->kl[k], h->kl[POLICY_TABLE]);
        if (more.n && (!out->more.n || more.mean < out->more.mean)) {
            out->rule = (policy_kind)k;
            out->more = more;
        }
    }
    return CKVC_OK;
}

ckvc_status steps_judge_pass(steps *s, compile_pass *p, const policy_kind *kinds, ckvc_mode mode,
                             ckvc_err *err) {
    char file[48];
    steps_file(file, "heldout", s->result->n_passes, "jsonl");
    CKVC_TRY(steps_judge(s, s->table, kinds, mode, file, &s->scores, err));
    const heldout *h = s->scores;
    if (!h) { return CKVC_OK; }
    const double *reward = h->reward[POLICY_TABLE];
    p->n_heldout = h->n;
    p->reward = heldout_gain(h, reward, NULL);
    memcpy(p->kept, h->kept, sizeof p->kept);
    for (int k = 0; k < POLICY_KIND_COUNT; k++) {
        if (k != POLICY_TABLE && k != POLICY_FULL && h->reward[k]) { /* full is of all formats */
            p->over[k] = heldout_gain(h, reward, h->reward[k]);
        }
    }
    return CKVC_OK;
}

ckvc_status steps_judge_budgets(steps *s, ckvc_err *err) {
    const ckvc_table *t = s->table->table;
    compile_result *r = s->result;
    CKVC_AUTO_FREE char *path = NULL;
    char file[48];
    if (s->judges.n == 0) { return CKVC_OK; }
    steps_file(file, "heldout", r->n_passes, "jsonl");
    CKVC_TRY(steps_path(s, file, &path, err));
    r->verdicts = ckvc_calloc(t->n_budgets, sizeof *r->verdicts);
    for (uint32_t b = 0; b < t->n_budgets; b++) {
        CKVC_TRY(judge_budget(s, path, b, &r->verdicts[b], err));
    }
    r->n_verdicts = t->n_budgets;
    return CKVC_OK;
}

/* ---- rounds ---- */

void steps_end_round(steps *s, size_t first_pass, const heldout *start) {
    compile_result *r = s->result;
    alternation_round *round = &r->rounds[r->n_rounds];
    *round = (alternation_round){.reward = NAN};
    for (size_t i = first_pass; i < r->n_passes; i++) {
        round->changed += r->passes[i].changed;
        round->supported += r->passes[i].supported;
    }
    r->last_pass[r->n_rounds++] = r->n_passes - 1;
    const heldout *now = s->scores;
    if (!now) { return; }
    const double *before = start ? start->reward[POLICY_TABLE] : now->reward[POLICY_IDENTITY];
    round->reward = heldout_gain(now, now->reward[POLICY_TABLE], NULL).mean;
    if (before) { round->gain = heldout_gain(now, now->reward[POLICY_TABLE], before); }
}

/* Returns whether the journal has a line of this kind about this round. */
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

ckvc_status steps_note_round(steps *s, stop_rule stop, ckvc_err *err) {
    compile_result *r = s->result;
    const alternation_round *round = &r->rounds[r->n_rounds - 1];
    const rank_interval none = {.mean = NAN, .se = NAN},
                        *gain = round->gain.n ? &round->gain : &none;
    const json_int_t number = (json_int_t)r->n_rounds;
    r->stop = stop;
    if (!has_note(s->run, "round", number)) {
        json_t *note =
            json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:s}", "round", number, "changed",
                      (json_int_t)round->changed, "supported", (json_int_t)round->supported,
                      "reward", ckvc_json_real(round->reward), "gain", ckvc_json_real(gain->mean),
                      "gain_se", ckvc_json_real(gain->se), "stop", stop_name(stop));
        CKVC_TRY(run_note(s->run, "round", note, err));
    }
    if (s->o->on_round) { s->o->on_round(s->o->ctx, r, stop); }
    return CKVC_OK;
}

ckvc_status steps_give_out(steps *s, ckvc_err *err) {
    const compile_result *r = s->result;
    const compile_pass *p = &r->passes[r->last_pass[r->best]];
    char file[48];
    CKVC_AUTO_FREE char *bytes = NULL;
    size_t n;
    steps_file(file, "tables", r->last_pass[r->best] + 1, "ckvt");
    CKVC_TRY(run_read_file(s->run, file, &bytes, &n, err));
    CKVC_AUTO_FREE char *path = ckvc_path_join(run_path(s->run), "table.ckvt");
    if (!run_has_file(s->run, "table.ckvt")) {
        CKVC_TRY(run_checkpoint_file(s->run, "table.ckvt", bytes, n, err));
    } else if (!ckvc_file_exists(path)) { /* the user has moved it away */
        CKVC_TRY(run_publish_file(s->run, "table.ckvt", bytes, n, err));
    }
    const json_int_t number = (json_int_t)r->best + 1;
    if (has_note(s->run, "table", number)) { return CKVC_OK; }
    json_t *note = json_pack("{s:I, s:s, s:s, s:s}", "round", number, "from", file, "content_id",
                             p->content_id, "stop", stop_name(r->stop));
    return run_note(s->run, "table", note, err);
}
