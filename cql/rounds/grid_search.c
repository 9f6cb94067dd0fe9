/* Grid search over whole tables: see grid_search.h. */
#include "cql/rounds/grid_search.h"

#include <stdio.h>

#include "calib/actions/prompt_sets.h"
#include "cql/solve/cql.h"
#include "formats/lines/leak_record.h"
#include "formats/side/reward.h"
#include "formats/side/side.h"
#include "lib/base/json.h"
#include "lib/base/progress.h"
#include "lib/base/text_lines.h"

typedef struct search {
    const grid_pass *g;
    const calibrate_options *o;
    pass_counts *counts;
    table_file *file;    /* the result; its table is what is tried */
    struct side side;    /* the side of that table which is searched */
    size_t nB, A, cells; /* cells of the side: 1 for the heads, E * P for the gate */
    worker w;
    double *reward; /* [nB][A] rewards of the prompt in hand */
    double *sum;    /* [cells][nB][A] sums of rewards */
    uint32_t *n;    /* [cells] how many prompts a cell has */
    uint64_t n_bad; /* how many prompts have a loss that is not finite */
} search;

static void search_fini(search *s) {
    worker_close(&s->w);
    CKVC_FREE(s->reward, s->sum, s->n);
    table_file_free(s->file);
}

static ckvc_status search_init(search *s, ckvc_err *err) {
    worker_options o = calibrate_worker(s->o);
    s->file = start_table_file(s->g->start);
    s->file->table->n_query_heads = (uint32_t)model_get_shape(s->g->inputs->model)->n_heads;
    s->file->table->visible = s->o->setting.alpha == CKVC_ALPHA_VISIBLE;
    s->file->table->keep_window = s->o->setting.keep_window;
    s->side = side_of_table(s->file->table, s->g->side);
    s->nB = s->side.nB;
    s->A = s->side.actions.n;
    s->cells = s->side.X / side_of_prompt(&s->side);
    s->reward = ckvc_alloc(s->nB * s->A, sizeof *s->reward);
    s->sum = ckvc_calloc(s->cells * s->nB * s->A, sizeof *s->sum);
    s->n = ckvc_calloc(s->cells, sizeof *s->n);
    /* Only baselines are rolled out, of one table after the other. */
    o.behaviour = (behaviour_policy){.limit = 0};
    o.rollouts = ROLLOUTS_PLAIN;
    return worker_open(&s->w, s->g->inputs, &o, s->file->table, err);
}

/* Sets every entry of the side in budget b to this action. With more than one cell it sets only
 * those of `cell`, unless this is SIZE_MAX. Returns how many were set. */
static size_t set_action(search *s, size_t b, size_t cell, size_t a) {
    size_t n = 0;
    for (size_t i = b; i < s->side.n_states; i += s->nB) {
        if (s->cells == 1 || cell == SIZE_MAX || i / s->nB % s->side.X == cell) {
            s->side.entries[i] = (float)s->side.grid[a];
            n++;
        }
    }
    return n;
}

/* ---- trying ---- */

/* Computes the reward of budget b under the table as it is now; NaN where a loss is not finite. */
static ckvc_status try_budget(search *s, uint32_t b, double *reward, ckvc_err *err) {
    const prompt_sets *k = s->w.sets;
    double penalty = 0, loss;
    for (uint32_t l = 0; l < k->n_layers; l++) {
        penalty += reward_penalty(side_beta_bud(s->g->side, s->o->setting.beta_bud), k->n_tokens,
                                  prompt_sets_at(k, b, l)->n_candidates, k->budget[b]);
    }
    CKVC_TRY(rollout_baseline(&s->w.scratch, &s->w.losses, b, &loss, err));
    *reward = reward_of(s->w.losses.full, loss, s->o->setting.reduction, s->w.losses.n_continuation,
                        penalty);
    s->counts->rollouts++;
    return CKVC_OK;
}

/* Computes s->reward of one prompt. */
static ckvc_status try_prompt(search *s, const prompt *p, ckvc_err *err) {
    CKVC_TRY(worker_prefill(&s->w, p, err));
    CKVC_TRY(worker_full(&s->w, err));
    for (size_t a = 0; a < s->A; a++) {
        for (uint32_t b = 0; b < s->nB; b++) { set_action(s, b, SIZE_MAX, a); }
        prompt_sets_build(s->w.sets, &s->w.stats);
        for (uint32_t b = 0; b < s->nB; b++) {
            CKVC_TRY(try_budget(s, b, &s->reward[b * s->A + a], err));
        }
    }
    s->counts->prompts++;
    return CKVC_OK;
}

static void append_prompt(const search *s, const prompt *p, ckvc_buffer *lines) {
    json_t *rewards = json_array();
    for (uint32_t b = 0; b < s->nB; b++) {
        json_array_append_new(rewards, ckvc_json_reals(s->reward + b * s->A, s->A));
    }
    json_auto_t *o = json_pack("{s:s, s:I, s:I, s:o}", "id", p->entry->id, "bin_entropy",
                               (json_int_t)s->w.sets->bin_entropy, "bin_perplexity",
                               (json_int_t)s->w.sets->bin_ppl, "reward", rewards);
    ckvc_json_append(lines, o);
    ckvc_buffer_u8(lines, '\n');
}

/* Tries prompts [first, end) and writes their checkpoint. */
static ckvc_status try_range(search *s, const char *file, size_t first, size_t end, ckvc_err *err) {
    const prompt_list *prompts = s->g->inputs->prompts;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer lines = {0};
    ckvc_buffer_text(&lines, ""); /* there is a file even where none of these prompts is logged */
    for (size_t i = first; i < end; i++) {
        const prompt *p = &prompts->items[i];
        if (p->heldout || p->passed_over) { continue; }
        CKVC_FAIL_IF(ckvc_stop_requested(), err, CKVC_E_STOPPED,
                     "%s: stopped before prompt %zu of %zu; the same command with --resume goes on",
                     run_path(s->g->run), i + 1, prompts->n);
        CKVC_TRY(try_prompt(s, p, err));
        append_prompt(s, p, &lines);
        ckvc_progress_update(i + 1, s->counts->rollouts);
    }
    return run_checkpoint_file(s->g->run, file, lines.data, lines.size, err);
}

/* ---- choosing ---- */

/* Reads a line's rewards into s->reward, and its cell. Returns false where the line does not fit
 * this table. *finite says whether all rewards are numbers. */
static bool take_line(search *s, const json_t *o, size_t *cell, bool *finite) {
    const ckvc_table *t = s->file->table;
    const json_t *rewards = json_object_get(o, "reward");
    const json_int_t e = json_integer_value(json_object_get(o, "bin_entropy")),
                     p = json_integer_value(json_object_get(o, "bin_perplexity"));
    bool fits = e >= 0 && p >= 0 && e < t->n_entropy_bins && p < t->n_ppl_bins &&
                json_array_size(rewards) == t->n_budgets;
    *finite = true;
    for (uint32_t b = 0; fits && b < t->n_budgets; b++) {
        const json_t *row = json_array_get(rewards, b);
        fits = json_array_size(row) == s->A;
        for (size_t a = 0; fits && a < s->A; a++) {
            const json_t *v = json_array_get(row, a);
            *finite &= json_is_number(v);
            s->reward[b * s->A + a] = json_number_value(v);
        }
    }
    *cell = s->cells == 1 ? 0 : (size_t)e * t->n_ppl_bins + (size_t)p;
    return fits;
}

/* Adds one line to the sums. A prompt with a loss that is not finite counts in none of them. */
static ckvc_status add_line(search *s, const char *where, const char *text, size_t n,
                            ckvc_err *err) {
    const size_t per_cell = s->nB * s->A;
    json_auto_t *o = NULL;
    size_t cell;
    bool finite;
    CKVC_TRY(ckvc_json_parse(text, n, where, &o, err));
    CKVC_FAIL_IF(!take_line(s, o, &cell, &finite), err, CKVC_E_DATA,
                 "%s: not the rewards of %zu budgets and %zu actions in a cell of this table",
                 where, s->nB, s->A);
    s->n_bad += !finite;
    for (size_t i = 0; finite && i < per_cell; i++) { s->sum[cell * per_cell + i] += s->reward[i]; }
    s->n[cell] += finite;
    return CKVC_OK;
}

static ckvc_status add_checkpoint(search *s, const char *file, ckvc_err *err) {
    CKVC_AUTO_FREE char *bytes = NULL;
    size_t n;
    CKVC_TRY(run_read_file(s->g->run, file, &bytes, &n, err));
    for (ckvc_lines at = ckvc_lines_of(bytes, n); ckvc_next_line(&at);) {
        CKVC_TRY(add_line(s, file, at.text, at.n, err));
    }
    return CKVC_OK;
}

/* Writes the best action of every budget and cell into the table, and what was compared into
 * `means`. Returns how many entries lie in cells with prompts. */
static size_t choose_actions(search *s, json_t *means) {
    size_t supported = 0;
    memcpy(s->side.entries, side_of_table(s->g->start, s->g->side).entries,
           /* cells without prompts keep what the start table has */
           s->side.n_states * sizeof *s->side.entries);
    for (size_t c = 0; c < s->cells; c++) {
        for (size_t b = 0; s->n[c] && b < s->nB; b++) {
            double *mean = s->sum + (c * s->nB + b) * s->A;
            for (size_t a = 0; a < s->A; a++) { mean[a] /= s->n[c]; }
            supported += set_action(s, b, c, (size_t)cql_choose(&s->side.actions, mean));
            json_array_append_new(means,
                                  json_pack("{s:I, s:I, s:I, s:o}", "cell", (json_int_t)c, "budget",
                                            (json_int_t)b, "prompts", (json_int_t)s->n[c],
                                            "mean_reward", ckvc_json_reals(mean, s->A)));
        }
    }
    return supported;
}

/* Returns META's "diagnostics". */
static json_t *diagnostics_json(const search *s, size_t supported) {
    const float *start = side_of_table(s->g->start, s->g->side).entries;
    uint64_t prompts = 0;
    size_t changed = 0;
    for (size_t c = 0; c < s->cells; c++) { prompts += s->n[c]; }
    for (size_t i = 0; i < s->side.n_states; i++) { changed += start[i] != s->side.entries[i]; }
    return json_pack("{s:{s:b, s:I, s:I, s:I, s:I}}", ckvc_side_name(s->g->side), "fitted", 0,
                     "prompts", (json_int_t)prompts, "states", (json_int_t)s->side.n_states,
                     "supported", (json_int_t)supported, "changed", (json_int_t)changed);
}

static ckvc_status write_meta(search *s, ckvc_err *err) {
    const model *m = s->g->inputs->model;
    json_t *means = json_array();
    const size_t supported = choose_actions(s, means);
    json_t *meta = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:[s], s:o, s:o, s:s}", "label", model_name(m), "model_name",
        model_name(m), "family", model_get_shape(m)->family, "fingerprint", model_fingerprint(m),
        "probe", "grid-search", "plans", run_plan_hash(s->g->run), "diagnostics",
        diagnostics_json(s, supported), "grid_search", means, "side", ckvc_side_name(s->g->side));
    setting_write(meta, SETTING_META, &s->o->setting, SETTING_DEMAND | SETTING_LEARNED);
    json_decref(s->file->meta);
    s->file->meta = meta;
    table_file_set_sketch(s->file, model_get_sketch(m));
    CKVC_AUTO(table_leaks_fini) table_leaks leaks = {0};
    CKVC_TRY(table_leaks_add(&leaks, run_plan(s->g->run), "", NULL, 0, run_path(s->g->run), err));
    json_t *checked = table_leaks_meta(&leaks);
    if (checked) { json_object_set_new(meta, "leak_check", checked); }
    return CKVC_OK;
}

/* Adds every prompt's rewards to the sums, and makes them checkpoints on the way. Checkpoints that
 * a run already has come first. */
static ckvc_status try_all_prompts(search *s, ckvc_err *err) {
    const size_t n = s->g->inputs->prompts->n, each = s->o->shard_prompts;
    bool begun = false;
    for (size_t k = 0; k * each < n; k++) {
        const size_t end = k * each + each < n ? k * each + each : n;
        char file[80];
        snprintf(file, sizeof file, "grid/%s-%05zu.jsonl", s->g->name, k);
        const bool there = run_has_file(s->g->run, file);
        if (!begun) {
            ckvc_progress_start(s->g->name, "prompts", "rollouts", n, there ? end : k * each);
        }
        begun |= !there;
        if (!there) {
            CKVC_TRY(try_range(s, file, k * each, end, err));
            /* counts held-out prompts at the end of the range, too */
            ckvc_progress_update(end, s->counts->rollouts);
        }
        CKVC_TRY(add_checkpoint(s, file, err));
    }
    return CKVC_OK;
}

ckvc_status grid_search(const grid_pass *g, table_file **out, pass_counts *counts, ckvc_err *err) {
    CKVC_AUTO(search_fini)
    search s = {.g = g, .o = g->options, .counts = counts};
    *out = NULL;
    CKVC_TRY(search_init(&s, err));
    const ckvc_status st = try_all_prompts(&s, err);
    ckvc_progress_finish();
    CKVC_TRY(st);
    CKVC_FAIL_IF((int64_t)s.n_bad > s.o->max_failures, err, CKVC_E_DATA,
                 "%s: %llu prompts with a loss that is not finite, --max-failures allows %lld",
                 g->name, (unsigned long long)s.n_bad, (long long)s.o->max_failures);
    CKVC_TRY(write_meta(&s, err));
    *out = ckvc_take(&s.file);
    return CKVC_OK;
}
