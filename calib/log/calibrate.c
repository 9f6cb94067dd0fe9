/* Scan and logging passes: see calibrate.h. */
#include "calib/log/calibrate.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "calib/log/pass.h"
#include "formats/shard/shard_codec.h"
#include "formats/side/reward.h"
#include "lib/base/progress.h"

/* Only records of rewards may have another loss than the negative log-likelihood. */
static enum setting_loss loss_of(const calibrate_options *o) {
    return o->kind == SHARD_LOGGED ? o->setting.loss : SETTING_NLL;
}

worker_options calibrate_worker(const calibrate_options *o) {
    worker_options w = {.setting = o->setting,
                        .behaviour = {.kind = o->behaviour,
                                      .sides = {o->sides[0], o->sides[1]},
                                      .limit = o->variants,
                                      .seed = o->setting.seed},
                        .rollouts = o->rollouts,
                        .memory = o->memory,
                        /* A greedy behaviour chooses by the records of all prompts before, so its
                         * prompts go one at a time. */
                        .most_prompts =
                            o->behaviour != BEHAVIOUR_EPSILON_GREEDY ? SESSIONS_TOGETHER : 0};
    w.setting.loss = loss_of(o);
    return w;
}

setting calibrate_setting(const calibrate_options *o, const model_shape *shape) {
    setting s = o->setting;
    if (o->kind == SHARD_LOGGED) {
        setting_without(&s, SETTING_DEMAND | SETTING_LEARNED);
        return s;
    }
    setting_without(&s, SETTING_LOGGED);
    s.loss = loss_of(o);
    s.features = CKVC_FEATURES_1;
    s.n_features = score_features(shape);
    if (o->kind == SHARD_DEMAND) {
        s.budgets = o->setting.budgets;
        return s;
    }
    s.floor = 0;
    s.recent = 0;
    s.queries = 0;
    return s;
}

const char *calibrate_sides(const calibrate_options *o) {
    unsigned sides = 0;
    const bool any = o->kind == SHARD_LOGGED;
    for (int i = 0; i < CKVC_SIDE_COUNT && any; i++) { sides |= (unsigned)o->sides[i] << i; }
    return shard_pass_name(o->kind, sides);
}

/* ---- the loop over prompts, of any kind of pass ---- */

/* Returns whether the pass shows its progress in rollouts rather than in prompts. */
static bool rolls_out(const pass *s) { return s->table != NULL; }

/* Returns a header that borrows arrays of the table or of the setting, and the model's names. It is
 * meant for run_pass_begin, which copies it. */
static shard_header pass_header(const pass *s, const char *kind) {
    const model_shape *shape = model_get_shape(s->in->model);
    const calibrate_options *o = s->o;
    const ckvc_table *table = s->table;
    shard_header h = {.n_layers = (uint32_t)shape->n_layers,
                      .n_heads = (uint32_t)shape->n_heads,
                      .n_kv_heads = (uint32_t)shape->n_kv_heads,
                      .n_entropy_bins = 1,
                      .n_ppl_bins = 1,
                      .setting = calibrate_setting(o, shape)};
    h.setting.budgets = (setting_list){0}; /* a header keeps budgets and grids beside its setting */
    memset(h.setting.grid, 0, sizeof h.setting.grid);
    snprintf(h.ckvc_version, sizeof h.ckvc_version, "%s", CKVC_VERSION);
    if (s->run) { snprintf(h.plan, sizeof h.plan, "%s", run_plan_hash(s->run)); }
    snprintf(h.fingerprint, sizeof h.fingerprint, "%s", model_fingerprint(s->in->model));
    snprintf(h.sketch, sizeof h.sketch, "%s", model_get_sketch(s->in->model));
    snprintf(h.manifest, sizeof h.manifest, "%s", s->in->manifest->sha256);
    snprintf(h.model_name, sizeof h.model_name, "%s", model_name(s->in->model));
    snprintf(h.family, sizeof h.family, "%s", shape->family);
    snprintf(h.pass, sizeof h.pass, "%s", kind);
    snprintf(h.behaviour, sizeof h.behaviour, "%s", table ? behaviour_name(o->behaviour) : "none");
    if (!table) {
        setting_without(&h.setting, SETTING_LOGGED);
        if (s->kind->budgets) {
            h.budgets = ckvc_unconst(o->setting.budgets.v);
            h.n_budgets = o->setting.budgets.n;
        }
        return h;
    }
    shard_header_borrow(&h, table);
    return h;
}

/* Returns how many failed prompts of pass `name` the journal has. *first becomes the journal's line
 * of the first one, or NULL when there is none. */
static int64_t count_failures(const run_dir *run, const char *name, const json_t **first) {
    int64_t n = 0;
    *first = NULL;
    for (size_t i = 0; i < json_array_size(run_skipped(run)); i++) {
        const json_t *line = json_array_get(run_skipped(run), i);
        const char *of = json_string_value(json_object_get(line, "pass"));
        if (!of || strcmp(of, name) != 0) { continue; }
        *first = n++ ? *first : line;
    }
    return n;
}

static void learn(void *greedy, const shard *rows) { epsilon_greedy_learn(greedy, rows); }

static void pass_close(pass *s) {
    if (s->until) { s->o->watch->close(s->until); }
    for (int64_t i = 0; s->demand && i < s->all.n; i++) { demand_meter_close(&s->demand[i]); }
    for (int64_t i = 0; s->queries && i < s->all.n; i++) { query_log_close(&s->queries[i]); }
    CKVC_FREE(s->demand, s->queries);
    workers_close(&s->all);
    position_sampler_close(&s->sampler);
    shard_free(s->rows);
    CKVC_FREE(s->prompts, s->done);
}

static const prompt *pass_prompt(const pass *s, uint32_t i) {
    return &s->in->prompts->items[s->prompts[i]];
}

/* Sets counts->stable when the pass has reached --until-stable, now or before. */
static ckvc_status watch(pass *s, ckvc_err *err) {
    return s->until ? s->o->watch->look(s->until, s->run, s->name, &s->counts->reliability,
                                        &s->counts->stable, err)
                    : CKVC_OK;
}

/* Lists the prompts of the pass in s->prompts. A pass of a `judged` kind takes as few of the
 * held-out prompts as it is told to, and none of those that choose. */
static void choose_prompts(pass *s) {
    const prompt_list *all = s->in->prompts;
    uint32_t judges = 0;
    s->prompts = ckvc_calloc(all->n, sizeof *s->prompts);
    for (uint32_t i = 0; i < all->n; i++) {
        const prompt *p = &all->items[i];
        if (s->table && p->passed_over) { continue; }
        if (s->kind->judged && p->heldout && (p->select || judges++ >= s->o->judges)) { continue; }
        s->prompts[s->n++] = i;
    }
}

/* Opens the workers with what this kind of pass needs of them, and then what observes them. */
static ckvc_status open_workers(pass *s, ckvc_err *err) {
    worker_options options = calibrate_worker(s->o);
    if (s->kind->need) { s->kind->need(s, &options); }
    CKVC_TRY(workers_open(&s->all, s->in, &options, s->table, err));
    return s->kind->open ? s->kind->open(s, err) : CKVC_OK;
}

/* Opens the workers and the pass in the run's directory, and finds out what was done of the pass
 * before. */
static ckvc_status pass_open(pass *s, const char *kind, ckvc_err *err) {
    choose_prompts(s);
    s->done = ckvc_calloc(s->n, sizeof *s->done);
    CKVC_TRY(open_workers(s, err));
    s->w = s->all.items;
    const shard_header header = pass_header(s, kind);
    s->rows = shard_create();
    const run_pass_start start = {s->name, s->n, s->o->shard_prompts, s->in->backend->kernel};
    CKVC_TRY(run_pass_begin(s->run, &start, &header, s->done, err));
    shard_header_copy(&s->rows->h, &header);
    if (s->table && s->o->until_stable > 0) {
        CKVC_TRY(s->o->watch->open(s->table, s->o, s->w->plan.limit, &s->until, err));
        CKVC_TRY(watch(s, err));
        s->n = run_pass_named(s->run, s->name)->n_prompts;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        s->n_ours += run_is_ours(s->run, i);
        s->counts->resumed += s->done[i] && run_is_ours(s->run, i);
        s->n_logged += !pass_prompt(s, i)->heldout;
    }
    const json_t *first;
    s->failures = count_failures(s->run, s->name, &first);
    epsilon_greedy *greedy = s->w->o.behaviour.greedy;
    return greedy ? run_pass_replay(s->run, learn, greedy, err) : CKVC_OK;
}

/* Measures n prompts that go through the layers together as far as they can, each by a worker of
 * its own. Does not allocate. */
static ckvc_status measure_prompts(pass *s, const prompt *const *p, int64_t n, ckvc_err *err) {
    worker *w[SESSIONS_TOGETHER];
    for (int64_t i = 0; i < n; i++) {
        w[i] = &s->all.items[i];
        w[i]->share = epsilon_greedy_share(s->logged, s->n_logged);
    }
    ckvc_alloc_forbid("prefills, kept sets, rollouts and what repetitions attend to");
    const ckvc_status st = s->kind->measure(s, w, p, n, err);
    ckvc_alloc_permit();
    return st;
}

/* Makes the rows of prompt i of the pass, which s->w has measured, durable. */
static ckvc_status do_prompt(pass *s, uint32_t i, ckvc_err *err) {
    const prompt *p = pass_prompt(s, i);
    epsilon_greedy *greedy = s->w->o.behaviour.greedy;
    const char *bad = NULL;
    shard_clear(s->rows);
    CKVC_TRY(s->kind->log(s, p, &bad, err));
    if (!bad) {
        CKVC_TRY(run_log_prompt(s->run, i, s->rows, err));
        s->counts->prompts++;
        if (greedy) { learn(greedy, s->rows); }
        return CKVC_OK;
    }
    s->counts->skipped++;
    s->failures++;
    ckvc_warn("%s: prompt \"%s\" (line %u) leaves no records: %s", s->name, p->entry->id,
              p->entry->line, bad);
    CKVC_TRY(run_skip_prompt(s->run, i, p->entry->id, bad, err));
    CKVC_FAIL_IF(
        s->failures > s->o->max_failures, err, CKVC_E_DATA,
        "%s:%u: prompt \"%s\": %s; %" PRId64 " such prompts, --max-failures allows %" PRId64,
        s->in->manifest->path, p->entry->line, p->entry->id, bad, s->failures, s->o->max_failures);
    return CKVC_OK;
}

static uint32_t n_done(const pass_counts *c) { return c->resumed + c->prompts + c->skipped; }

static ckvc_status do_prompts(pass *s, ckvc_err *err) {
    pass_counts *counts = s->counts;
    const prompt *p[SESSIONS_TOGETHER];
    uint32_t at[SESSIONS_TOGETHER];
    for (uint32_t i = 0; !counts->stable && i < s->n;) {
        int64_t n = 0;
        for (; i < s->n && n < s->all.n; i++) {
            if (!s->done[i]) {
                p[n] = pass_prompt(s, i);
                at[n++] = i;
            } else {
                s->logged += !pass_prompt(s, i)->heldout;
            }
        }
        if (n == 0) { break; }
        CKVC_FAIL_IF(ckvc_stop_requested(), err, CKVC_E_STOPPED,
                     "%s: stopped with %u of %u prompts done; the same command with --resume "
                     "goes on",
                     run_path(s->run), n_done(counts), s->n_ours);
        CKVC_TRY(measure_prompts(s, p, n, err));
        for (int64_t k = 0; !counts->stable && k < n; k++) {
            s->w = &s->all.items[k];
            CKVC_TRY(do_prompt(s, at[k], err));
            CKVC_TRY(watch(s, err));
            s->logged += !p[k]->heldout;
            ckvc_progress_disk(run_path(s->run), run_pass_bytes(s->run));
            ckvc_progress_update(n_done(counts), rolls_out(s) ? counts->rollouts
                                                              : n_done(counts) - counts->resumed);
        }
    }
    return CKVC_OK;
}

/* Refuses a pass in which every prompt failed, because there is nothing to go on with. Where a run
 * has several parts, the other parts may have prompts that did not fail. */
static ckvc_status check_any_left(const pass *s, ckvc_err *err) {
    const json_t *first;
    CKVC_FAIL_IF(count_failures(s->run, s->name, &first) >= s->n && s->n == s->n_ours, err,
                 CKVC_E_DATA,
                 "%s: none of the %u prompts of %s could be measured; the first, \"%s\": %s",
                 run_path(s->run), s->n, s->name, json_string_value(json_object_get(first, "id")),
                 json_string_value(json_object_get(first, "reason")));
    return CKVC_OK;
}

static ckvc_status run_pass_over(pass *s, const char *kind, ckvc_err *err) {
    pass_counts *counts = s->counts;
    *counts = (pass_counts){.reliability = NAN};
    CKVC_TRY(pass_open(s, kind, err));
    s->start_s = ckvc_now_s();
    ckvc_progress_start(s->name, "prompts", rolls_out(s) ? "rollouts" : "prompts", s->n_ours,
                        counts->resumed);
    const ckvc_status st = do_prompts(s, err);
    ckvc_progress_finish();
    counts->seconds = ckvc_now_s() - s->start_s;
    if (st == CKVC_OK || st == CKVC_E_STOPPED) { run_pass_end(s->run); }
    return st == CKVC_OK ? check_any_left(s, err) : st;
}

ckvc_status calibrate_scan(run_dir *run, const calibrate_inputs *in, const calibrate_options *o,
                           pass_counts *counts, ckvc_err *err) {
    calibrate_options plain = *o; /* options of the pass that the scan is for */
    plain.setting.loss = SETTING_NLL;
    CKVC_AUTO(pass_close)
    pass s = {
        .run = run, .name = "scan", .in = in, .o = &plain, .kind = &pass_scan, .counts = counts};
    return run_pass_over(&s, "scan", err);
}

ckvc_status calibrate_repeat(run_dir *run, const char *name, const calibrate_inputs *in,
                             const calibrate_options *o, pass_counts *counts, ckvc_err *err) {
    CKVC_AUTO(pass_close)
    pass s = {.run = run,
              .name = name,
              .in = in,
              .o = o,
              .kind = pass_type_of(o->kind),
              .counts = counts};
    return run_pass_over(&s, calibrate_sides(o), err);
}

ckvc_status calibrate_pass(run_dir *run, const char *name, const calibrate_inputs *in,
                           const calibrate_options *o, const ckvc_table *table, pass_counts *counts,
                           ckvc_err *err) {
    CKVC_AUTO(pass_close)
    pass s = {.run = run,
              .name = name,
              .in = in,
              .o = o,
              .kind = &pass_rewards,
              .table = table,
              .counts = counts};
    return run_pass_over(&s, calibrate_sides(o), err);
}

/* ---- what the gate can do ---- */

static void add_baselines(const shard *s, gate_binding *out) {
    const uint32_t L = s->h.n_layers;
    for (size_t i = 0; i < s->n_baselines; i++) {
        const struct shard_baseline *b = &s->baselines[i];
        const uint32_t T = s->prompts[b->prompt].n_tokens;
        for (uint32_t l = 0; l < L; l++) {
            const size_t at = i * L + l;
            uint32_t budget;
            if (shard_layer_budget(&s->h, b->budget, l, T, &budget)) {
                gate_binding_add(&out[b->budget], budget, s->n_candidates_lo[at],
                                 s->n_candidates_hi[at], s->n_kept[at], s->n_kept_window[at], T);
            }
        }
    }
}

ckvc_status calibrate_binding(const run_dir *run, const char *name, pass_binding *out,
                              ckvc_err *err) {
    const run_pass *p = run_pass_named(run, name);
    *out = (pass_binding){.top = NAN};
    for (size_t k = 0; p && k < p->n_shards; k++) {
        CKVC_AUTO(shard_free_at) shard *s = NULL;
        CKVC_TRY(run_read_shard(run, p, k, &s, err));
        const shard_header *h = &s->h;
        assert(h->n_budgets <= PROMPT_SETS_MAX_BUDGETS); /* the pass was made with a prompt_sets */
        if (!shard_has_thresholds(h)) { return CKVC_OK; }
        out->n_budgets = h->n_budgets;
        out->top = h->side[CKVC_SIDE_GATE].actions[h->side[CKVC_SIDE_GATE].n_actions - 1];
        memcpy(out->budgets, h->budgets, h->n_budgets * sizeof *h->budgets);
        add_baselines(s, out->by_budget);
    }
    return CKVC_OK;
}

/* ---- dry run ---- */

/* Keeps n of the variants for timing, spread over the list, so that every layer and both sides are
 * among them. */
static void thin_out(variant_list *v, size_t n) {
    for (size_t i = 0; n < v->n && i < n; i++) { v->items[i] = v->items[i * v->n / n]; }
    v->n = n < v->n ? n : v->n;
}

/* Takes off what the timed prompt has paid alone: it had copies of weights made for itself, which
 * the prompts of a batch share. */
static void share_copies(const memory_plan *plan, dry_run *out) {
    const double spared_s = out->copy_s * (1 - 1 / (double)plan->prompts),
                 n_batches = ceil((double)out->timed / (double)plan->lanes);
    out->prefill_s = fmax(out->prefill_s - spared_s, 1e-6);
    out->single_s = fmax(out->single_s - spared_s, 1e-6);
    out->rollout_s = fmax(out->rollout_s - spared_s * n_batches / (double)out->timed, 1e-6);
}

static ckvc_status time_prompt(worker *w, const prompt *p, dry_run *out, ckvc_err *err) {
    enum { SECONDS = 4 }; /* about so many seconds of rollouts are timed */
    double start_s = ckvc_now_s(), loss;
    CKVC_TRY(worker_prefill(w, p, err));
    out->prefill_s = ckvc_now_s() - start_s;
    worker_keep(w, p, true);
    out->actions = w->variants.n_actions;
    out->distinct = w->variants.n;
    start_s = ckvc_now_s();
    CKVC_TRY(rollout_baseline(&w->scratch, &w->losses, 0, &loss, err));
    out->single_s = ckvc_now_s() - start_s;
    const double affordable = SECONDS / fmax(out->single_s, 1e-6);
    thin_out(&w->variants, affordable < 8                       ? 8
                           : affordable < (double)w->variants.n ? (size_t)affordable
                                                                : w->variants.n);
    start_s = ckvc_now_s();
    CKVC_TRY(worker_rollouts(w, err));
    out->timed = variants_rollouts(&w->variants, w->sets->n_budgets);
    out->rollout_s = (ckvc_now_s() - start_s) / (double)out->timed;
    return CKVC_OK;
}

static const prompt *longest_of(const prompt_list *list) {
    const prompt *longest = list->items;
    for (const prompt *p = longest; p < list->items + list->n; p++) {
        if (p->n_tokens + p->n_continuation > longest->n_tokens + longest->n_continuation) {
            longest = p;
        }
    }
    return longest;
}

/* Returns the bytes that the shards of n prompts take beside their rows: HDF5's own structures, and
 * lines of the journal. */
static double shard_files(const calibrate_options *o, double n) {
    const double each = 24e3; /* 20 to 21 kB, measured over the kinds of pass */
    return each * ceil(n / o->shard_prompts);
}

ckvc_status calibrate_repeat_dry_run(const calibrate_inputs *in, const calibrate_options *o,
                                     repeat_dry_run *out, ckvc_err *err) {
    const prompt *p = longest_of(in->prompts);
    const char *bad = NULL;
    pass_counts counts = {0};
    CKVC_AUTO(pass_close)
    pass s = {.in = in, .o = o, .kind = pass_type_of(o->kind), .counts = &counts};
    *out = (repeat_dry_run){.n_tokens = p->n_tokens, .n_continuation = p->n_continuation};
    CKVC_TRY(open_workers(&s, err));
    s.w = s.all.items;
    out->memory = s.w->plan;
    CKVC_TRY(worker_time_copies(in, &out->memory, &out->copy_s, err));
    const shard_header header = pass_header(&s, calibrate_sides(o));
    s.rows = shard_create();
    shard_header_copy(&s.rows->h, &header);
    double start_s = ckvc_now_s();
    CKVC_TRY(worker_prefill(s.w, p, err));
    out->prefill_s = ckvc_now_s() - start_s;
    out->compute_s = worker_compute_s(in, out->prefill_s, out->copy_s, p->n_tokens);
    start_s = ckvc_now_s();
    CKVC_TRY(worker_full(s.w, err));
    out->single_s = ckvc_now_s() - start_s;
    start_s = ckvc_now_s();
    CKVC_TRY(measure_prompts(&s, &p, 1, err));
    CKVC_TRY(s.kind->log(&s, p, &bad, err));
    out->prompt_s = ckvc_now_s() - start_s;
    const double shared_s = s.kind->forwards * out->copy_s * (1 - 1 / (double)out->memory.prompts);
    out->prompt_s = fmax(out->prompt_s - shared_s, 1e-6);
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer row = {0};
    s.rows->n_queries = 0; /* they are counted below, because the prompt may be held out */
    shard_encode(s.rows, &row);
    out->bytes = row.size;
    choose_prompts(&s);
    const double n = s.n, each_queries = s.queries ? (double)query_log_bytes(s.queries) : 0;
    out->hours = n * out->prompt_s / 3600;
    out->query_bytes = (double)(in->prompts->n - in->prompts->n_heldout) * each_queries;
    out->disk_bytes = n * (double)out->bytes + out->query_bytes + shard_files(o, n);
    /* Its rows and HDF5's image of them as it grows take 2.5 times what is logged, as measured. */
    out->shard_bytes = 2.5 * fmin(n, o->shard_prompts) * ((double)out->bytes + each_queries);
    return CKVC_OK;
}

/* Computes from what the longest prompt took what all prompts will take. */
static void cost_of_all(const calibrate_inputs *in, const calibrate_options *o, size_t sample,
                        bool scans, dry_run *out) {
    const double all = (double)in->prompts->n, heldout = (double)in->prompts->n_heldout,
                 each_budget = o->setting.budgets.n;
    const size_t most = in->prompts->n - in->prompts->n_heldout;
    out->logged = sample > 0 && sample < most ? sample : most;
    const double logged = (double)out->logged, n = logged + heldout; /* the rest is only scanned */
    out->scan_hours = scans ? all * (out->prefill_s + out->single_s) / 3600 : 0;
    out->pass_hours = (n * (out->prefill_s + out->rollout_s * (1 + each_budget)) +
                       logged * out->rollout_s * (double)out->distinct *
                           (1 + o->check_rollouts * out->single_s / out->rollout_s)) /
                      3600;
    out->records = (double)out->actions * logged;
    out->disk_bytes = out->records * 18 +
                      n * (200.0 + 20.0 * each_budget * model_get_shape(in->model)->n_layers) +
                      shard_files(o, n) * (out->scan_hours > 0 ? 2 : 1);
}

ckvc_status calibrate_dry_run(const calibrate_inputs *in, const calibrate_options *o,
                              const ckvc_table *table, size_t sample, bool scans, dry_run *out,
                              ckvc_err *err) {
    const worker_options options = calibrate_worker(o);
    const prompt *longest = longest_of(in->prompts);
    CKVC_AUTO(workers_close) workers all = {0};
    *out = (dry_run){.n_tokens = longest->n_tokens, .n_continuation = longest->n_continuation};
    CKVC_TRY(workers_open(&all, in, &options, table, err));
    out->memory = all.items->plan;
    CKVC_TRY(worker_time_copies(in, &out->memory, &out->copy_s, err));
    CKVC_TRY(time_prompt(all.items, longest, out, err));
    out->compute_s = worker_compute_s(in, out->prefill_s, out->copy_s, longest->n_tokens);
    share_copies(&out->memory, out);
    cost_of_all(in, o, sample, scans, out);
    return CKVC_OK;
}
