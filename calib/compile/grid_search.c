/* Grid search over whole tables: see grid_search.h. */
#include "calib/compile/grid_search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cql/fit/fit_leaks.h"
#include "calib/actions/prompt_sets.h"
#include "cql/solve/reward.h"
#include "calib/rollout/rollouts_plain.h"
#include "calib/actions/start_table.h"
#include "cql/solve/cql.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/progress.h"

typedef struct search {
    run_dir *run;
    const calibrate_inputs *in;
    const calibrate_options *o;
    ckvc_side side;
    table_file *file;  /* the result; its table is what is tried */
    ckvc_table *table; /* of file */
    size_t A, cells;   /* actions; cells of the side: 1, E * P */
    session *session;
    prompt_sets *kept;
    double *nll, *reward; /* [max C]; [nB][A] of the prompt in hand */
    double *sum;          /* [cells][nB][A] */
    uint32_t *n;          /* [cells] prompts */
    pass_counts *counts;
    double start_s;
} search;

static void search_fini(search *s) {
    session_destroy(s->session);
    prompt_sets_destroy(s->kept);
    free(s->nll);
    free(s->reward);
    free(s->sum);
    free(s->n);
    table_file_free(s->file);
}

static ckvc_status search_init(search *s, const ckvc_table *start, ckvc_err *err) {
    const uint32_t nB = start->n_budgets;
    const session_limits limits = {.max_prompt = s->in->prompts->max_tokens,
                                   .max_continuation = s->in->prompts->max_continuation,
                                   .max_window = s->o->window};
    s->file = start_table_file(start);
    if (!s->file) {
        return ckvc_fail_memory(err, "a table", (size_t)start->n_layers * start->n_heads * nB);
    }
    ckvc_table *t = s->table = s->file->table;
    t->n_query_heads = (uint32_t)model_get_shape(s->in->model)->n_heads;
    s->A = s->side == CKVC_SIDE_HEAD ? t->n_head_actions : t->n_gate_actions;
    s->cells = s->side == CKVC_SIDE_HEAD ? 1 : (size_t)t->n_entropy_bins * t->n_ppl_bins;
    ckvc_status st = session_create(s->in->model, limits, &s->session, err);
    st = st ? st
            : prompt_sets_create(t, s->in->prompts->max_tokens, (uint32_t)s->o->window,
                                 s->o->keep_window, &s->kept, err);
    s->nll = ckvc_alloc((size_t)s->in->prompts->max_continuation + 1, sizeof *s->nll);
    s->reward = ckvc_alloc(nB * s->A, sizeof *s->reward);
    s->sum = ckvc_calloc(s->cells * nB * s->A, sizeof *s->sum);
    s->n = ckvc_calloc(s->cells, sizeof *s->n);
    if (st == CKVC_OK && (!s->nll || !s->reward || !s->sum || !s->n)) {
        st = ckvc_fail_memory(err, "rewards of a grid", s->cells * nB * s->A * sizeof *s->sum);
    }
    return st;
}

/* Every entry of the side in budget b (of one cell of the gate; SIZE_MAX: of all) becomes this
 * action. */
static void set_action(search *s, uint32_t b, size_t cell, size_t a) {
    ckvc_table *t = s->table;
    const size_t X =
        s->side == CKVC_SIDE_HEAD ? t->n_heads : (size_t)t->n_entropy_bins * t->n_ppl_bins;
    float *entries = s->side == CKVC_SIDE_HEAD ? t->weight : t->tau;
    const double value = s->side == CKVC_SIDE_HEAD ? t->head_grid[a] : t->gate_grid[a];
    for (size_t l = 0; l < t->n_layers; l++) {
        for (size_t x = 0; x < X; x++) {
            if (cell == SIZE_MAX || x == cell) {
                entries[(l * X + x) * t->n_budgets + b] = (float)value;
            }
        }
    }
}

/* ---- trying ---- */

/* s->reward of one prompt; NaN where a loss is not finite. */
static ckvc_status try_prompt(search *s, const prompt *p, uint32_t cell[2], ckvc_err *err) {
    const uint32_t nB = s->table->n_budgets, C = p->n_continuation;
    const int32_t *next = p->tokens + p->n_tokens;
    prefill_stats stats;
    double full, loss;
    const prefill_input in = {.tokens = p->tokens,
                              .n = p->n_tokens,
                              .n_total = (int64_t)p->n_tokens + C,
                              .window = s->o->window,
                              .alpha_kind = s->o->alpha_kind};
    ckvc_status st = session_prefill(s->session, &in, &stats, err);
    st = st ? st : session_continue(s->session, next, C, NULL, s->nll, err);
    full = st ? NAN : nll_mean(s->nll, C);
    for (size_t a = 0; st == CKVC_OK && a < s->A; a++) {
        for (uint32_t b = 0; b < nB; b++) {
            set_action(s, b, SIZE_MAX, a);
        }
        prompt_sets_build(s->kept, p->n_tokens, stats.alpha_f32, stats.rho, stats.r_struct,
                          stats.r_sem);
        cell[0] = s->kept->bin_entropy;
        cell[1] = s->kept->bin_ppl;
        for (uint32_t b = 0; st == CKVC_OK && b < nB; b++) {
            double penalty = 0;
            for (uint32_t l = 0; l < s->table->n_layers; l++) {
                penalty +=
                    reward_penalty(s->side, s->o->beta_bud, p->n_tokens,
                                   prompt_sets_at(s->kept, b, l)->n_candidates, s->kept->budget[b]);
            }
            st = rollout_baseline(s->session, s->kept, b, next, C, s->nll, &loss, err);
            s->reward[b * s->A + a] = reward_of(full, loss, s->o->reduction, C, penalty);
            s->counts->rollouts++;
        }
    }
    return st;
}

static ckvc_status append_prompt(search *s, const prompt *p, const uint32_t cell[2],
                                 ckvc_buffer *lines, ckvc_err *err) {
    json_t *rewards = json_array();
    for (uint32_t b = 0; rewards && b < s->table->n_budgets; b++) {
        json_array_append_new(rewards, ckvc_json_reals(s->reward + b * s->A, s->A));
    }
    json_t *o =
        json_pack("{s:s, s:I, s:I, s:o}", "id", p->entry->id, "bin_entropy", (json_int_t)cell[0],
                  "bin_perplexity", (json_int_t)cell[1], "reward", rewards);
    if (o) {
        ckvc_json_append(lines, o);
        ckvc_buffer_u8(lines, '\n');
    }
    json_decref(o);
    return !o || lines->failed ? ckvc_fail_memory(err, "rewards of a grid", lines->size) : CKVC_OK;
}

/* The checkpoint of prompts [first, end). */
static ckvc_status try_range(search *s, const char *file, size_t first, size_t end,
                             ckvc_progress *progress, ckvc_err *err) {
    ckvc_buffer lines = {0};
    ckvc_status st = CKVC_OK;
    for (size_t i = first; st == CKVC_OK && i < end; i++) {
        const prompt *p = &s->in->prompts->items[i];
        uint32_t cell[2] = {0, 0};
        if (p->heldout || p->passed_over) { continue; }
        if (ckvc_stop_requested() ||
            (s->o->limit_time_s > 0 && ckvc_now_s() - s->start_s > s->o->limit_time_s)) {
            st = ckvc_fail(
                err, CKVC_E_STOPPED,
                "%s: stopped before prompt %zu of %zu; the same command with --resume goes on",
                run_path(s->run), i + 1, s->in->prompts->n);
            break;
        }
        st = try_prompt(s, p, cell, err);
        st = st ? st : append_prompt(s, p, cell, &lines, err);
        s->counts->prompts++;
        ckvc_progress_update(progress, i + 1, s->counts->rollouts);
    }
    st = st ? st
            : run_checkpoint_file(s->run, file, lines.size ? lines.data : (const void *)"",
                                  lines.size, err);
    ckvc_buffer_fini(&lines);
    return st;
}

/* ---- choosing ---- */

/* One line into the sums: a prompt with a loss that is not finite counts in none of them. */
static ckvc_status add_line(search *s, const char *where, const char *text, size_t n,
                            uint64_t *n_bad, ckvc_err *err) {
    const uint32_t nB = s->table->n_budgets;
    json_t *o = NULL;
    ckvc_status st = ckvc_json_parse(text, n, where, &o, err);
    if (st != CKVC_OK) { return st; }
    const json_t *rewards = json_object_get(o, "reward");
    const json_int_t e = json_integer_value(json_object_get(o, "bin_entropy")),
                     p = json_integer_value(json_object_get(o, "bin_perplexity"));
    bool fits = e >= 0 && p >= 0 && e < s->table->n_entropy_bins && p < s->table->n_ppl_bins &&
                json_array_size(rewards) == nB,
         finite = true;
    for (uint32_t b = 0; fits && b < nB; b++) {
        const json_t *row = json_array_get(rewards, b);
        fits = json_array_size(row) == s->A;
        for (size_t a = 0; fits && a < s->A; a++) {
            const json_t *v = json_array_get(row, a);
            finite &= json_is_number(v);
            s->reward[b * s->A + a] = json_number_value(v);
        }
    }
    json_decref(o);
    if (!fits) {
        return ckvc_fail(
            err, CKVC_E_DATA,
            "%s: not the rewards of %u budgets and %zu actions in a cell of this table", where, nB,
            s->A);
    }
    if (!finite) {
        ++*n_bad;
        return CKVC_OK;
    }
    const size_t cell =
        s->side == CKVC_SIDE_HEAD ? 0 : (size_t)e * s->table->n_ppl_bins + (size_t)p;
    for (size_t i = 0; i < nB * s->A; i++) {
        s->sum[cell * nB * s->A + i] += s->reward[i];
    }
    s->n[cell]++;
    return CKVC_OK;
}

static ckvc_status add_file(search *s, const char *file, uint64_t *n_bad, ckvc_err *err) {
    char *bytes;
    size_t n;
    ckvc_status st = run_read_file(s->run, file, &bytes, &n, err);
    for (size_t at = 0; st == CKVC_OK && at < n;) {
        const char *end = memchr(bytes + at, '\n', n - at);
        size_t length = end ? (size_t)(end - (bytes + at)) : n - at;
        st = add_line(s, file, bytes + at, length, n_bad, err);
        at += length + 1;
    }
    free(bytes);
    return st;
}

/* The best action of every budget and cell into the table. Returns how many entries of the side
 * differ from `start`; *supported: how many lie in cells with prompts. */
static size_t choose(search *s, const ckvc_table *start, json_t *means, size_t *supported) {
    ckvc_table *t = s->table;
    const uint32_t nB = t->n_budgets;
    const bool head = s->side == CKVC_SIDE_HEAD;
    const size_t X = head ? t->n_heads : (size_t)t->n_entropy_bins * t->n_ppl_bins,
                 S = t->n_layers * X * nB;
    memcpy(head ? t->weight : t->tau, head ? start->weight : start->tau,
           S * sizeof(float)); /* cells without prompts keep it */
    *supported = 0;
    for (size_t c = 0; c < s->cells; c++) {
        for (uint32_t b = 0; s->n[c] && b < nB; b++) {
            double *mean = s->sum + (c * nB + b) * s->A;
            for (size_t a = 0; a < s->A; a++) {
                mean[a] /= s->n[c];
            }
            const ckvc_actions actions = {s->A, head ? t->head_grid : t->gate_grid,
                                          head ? 1.0 : 0.0};
            const int best = cql_choose(&actions, mean);
            set_action(s, b, head ? SIZE_MAX : c, (size_t)best);
            *supported += t->n_layers * (head ? X : 1);
            json_array_append_new(means,
                                  json_pack("{s:I, s:I, s:I, s:o}", "cell", (json_int_t)c, "budget",
                                            (json_int_t)b, "prompts", (json_int_t)s->n[c],
                                            "mean_reward", ckvc_json_reals(mean, s->A)));
        }
    }
    const float *was = head ? start->weight : start->tau, *is = head ? t->weight : t->tau;
    size_t changed = 0;
    for (size_t i = 0; i < S; i++) {
        changed += was[i] != is[i];
    }
    return changed;
}

static ckvc_status write_meta(search *s, const ckvc_table *start, ckvc_err *err) {
    const model_shape *shape = model_get_shape(s->in->model);
    const char *side = ckvc_side_name(s->side);
    json_t *means = json_array(), *sides = json_object();
    const ckvc_table *t = s->table;
    size_t supported, states[CKVC_SIDE_COUNT] = {(size_t)t->n_layers * t->n_heads * t->n_budgets,
                                                 (size_t)t->n_layers * t->n_entropy_bins *
                                                     t->n_ppl_bins * t->n_budgets};
    uint64_t prompts = 0;
    for (size_t c = 0; c < s->cells; c++) {
        prompts += s->n[c];
    }
    size_t changed = choose(s, start, means, &supported);
    json_object_set_new(sides, side,
                        json_pack("{s:b, s:I, s:I, s:I, s:I}", "fitted", 0, "prompts",
                                  (json_int_t)prompts, "states", (json_int_t)states[s->side],
                                  "supported", (json_int_t)supported, "changed",
                                  (json_int_t)changed));
    json_t *meta =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:f, s:s, s:[s], s:o, s:o, s:s}", "label",
                  model_name(s->in->model), "model_name", model_name(s->in->model), "family",
                  shape->family, "fingerprint", model_fingerprint(s->in->model), "alpha_kind",
                  ckvc_alpha_name(s->o->alpha_kind), "keep_window", (json_int_t)s->o->keep_window,
                  "continuation", (json_int_t)s->o->continuation, "lambda", s->o->beta_bud, "probe",
                  "grid-search", "plans", run_plan_hash(s->run), "diagnostics", sides,
                  "grid_search", means, "side", side);
    if (!meta) { return ckvc_fail_memory(err, "a table's META", 4096); }
    if (s->o->reduction != CKVC_LOSS_MEAN) {
        json_object_set_new(meta, "loss_reduction",
                            json_string(ckvc_loss_reduction_name(s->o->reduction)));
    }
    json_decref(s->file->meta);
    s->file->meta = meta;
    fit_leaks leaks = {0};
    ckvc_status st = fit_leaks_add(&leaks, run_plan(s->run), "", NULL, 0, run_path(s->run), err);
    json_t *checked = st == CKVC_OK ? fit_leaks_meta(&leaks) : NULL;
    if (checked && json_object_set_new(meta, "leak_check", checked)) {
        st = ckvc_fail_memory(err, "a table's META", 0);
    }
    fit_leaks_fini(&leaks);
    return st;
}

ckvc_status grid_search(run_dir *run, const char *name, const calibrate_inputs *in,
                        const calibrate_options *o, const ckvc_table *start, ckvc_side side,
                        table_file **out, pass_counts *counts, ckvc_err *err) {
    search s = {
        .run = run, .in = in, .o = o, .side = side, .counts = counts, .start_s = ckvc_now_s()};
    const size_t n = in->prompts->n, S = o->shard_prompts;
    uint64_t n_bad = 0;
    char file[80];
    ckvc_progress progress;
    *out = NULL;
    ckvc_status st = search_init(&s, start, err);
    ckvc_progress_start(&progress, name, "rollouts", n, 0, o->quiet);
    for (size_t k = 0; st == CKVC_OK && k * S < n; k++) {
        const size_t end = k * S + S < n ? k * S + S : n;
        snprintf(file, sizeof file, "grid/%s-%05zu.jsonl", name, k);
        if (!run_has_file(run, file)) { st = try_range(&s, file, k * S, end, &progress, err); }
        st = st ? st : add_file(&s, file, &n_bad, err);
    }
    ckvc_progress_finish(&progress);
    if (st == CKVC_OK && (int64_t)n_bad > o->max_failures) {
        st =
            ckvc_fail(err, CKVC_E_DATA,
                      "%s: %llu prompts with a loss that is not finite, --max-failures allows %lld",
                      name, (unsigned long long)n_bad, (long long)o->max_failures);
    }
    st = st ? st : write_meta(&s, start, err);
    if (st == CKVC_OK) {
        *out = s.file;
        s.file = NULL;
    }
    search_fini(&s);
    return st;
}
