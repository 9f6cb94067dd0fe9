/* Scan and logging passes: see calibrate.h. */
#include "calib/log/calibrate.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cql/solve/reward.h"
#include "calib/rollout/rollouts_check.h"
#include "calib/rollout/rollouts_plain.h"
#include "calib/rollout/rollouts_sweep.h"
#include "calib/log/stable.h"
#include "lib/base/memory.h"
#include "lib/base/progress.h"
#include "lib/base/status.h"

/* Everything a pass needs for one prompt at a time, sized once. */
typedef struct worker {
    session *session;
    prompt_sets *kept; /* NULL in a scan */
    variant_list variants;
    epsilon_greedy *greedy; /* BEHAVIOUR_EPSILON_GREEDY */
    double share;           /* of random choices, for the prompt in hand */
    sweep sweep;            /* with keep and ROLLOUTS_SWEEP */
    memory_plan plan;
    kept_set *sets;   /* [L] */
    double *nll;      /* [max C] */
    double *baseline; /* [nB] */
    shard *rows;      /* one prompt's rows */
} worker;

static void worker_fini(worker *w) {
    session_destroy(w->session);
    prompt_sets_destroy(w->kept);
    variants_fini(&w->variants);
    epsilon_greedy_free(w->greedy);
    sweep_fini(&w->sweep);
    free(w->sets);
    free(w->nll);
    free(w->baseline);
    shard_free(w->rows);
    *w = (worker){0};
}

/* Everything that work on a prompt needs is allocated here: nothing allocates between one prompt's
 * tokens and its losses. */
static ckvc_status worker_init(worker *w, const calibrate_inputs *in, const calibrate_options *o,
                               const ckvc_table *table, ckvc_err *err) {
    const model_shape *shape = model_get_shape(in->model);
    session_limits limits = {in->prompts->max_tokens, in->prompts->max_continuation, o->window, 1};
    const bool plain = o->rollouts == ROLLOUTS_PLAIN;
    variant_extent most = {0};
    *w = (worker){0};
    if (table) {
        most = o->layer_budgets
                   ? variants_extent_by_layer(table, o->layer_budgets, in->prompts->max_tokens,
                                              o->sides, o->variants)
                   : variants_extent(table, in->prompts->max_tokens, o->sides, o->variants);
    }
    ckvc_status st = memory_plan_make(in->backend, shape, model_converted_bytes(in->model),
                                      model_converted_least(in->model), limits, table, &most, plain,
                                      o->memory ? o->memory : memory_plan_default(), &w->plan, err);
    limits.max_lanes = w->plan.lanes;
    if (st == CKVC_OK) { st = session_create(in->model, limits, &w->session, err); }
    if (st == CKVC_OK && table) {
        st = prompt_sets_create(table, in->prompts->max_tokens, (uint32_t)o->window, o->keep_window,
                                &w->kept, err);
    }
    if (st == CKVC_OK && table && o->layer_budgets) {
        prompt_sets_by_layer(w->kept, o->layer_budgets);
    }
    if (st == CKVC_OK && table) { st = variants_reserve(&w->variants, &most, err); }
    if (st == CKVC_OK && table && o->behaviour == BEHAVIOUR_EPSILON_GREEDY) {
        st = epsilon_greedy_create(table, o->sides, &w->greedy, err);
        w->variants.greedy = w->greedy;
        w->share = EPSILON_FIRST;
    }
    if (st == CKVC_OK && table && !plain) {
        st = sweep_create(&w->sweep, w->plan.lanes, in->prompts->max_continuation, table->n_budgets,
                          table->n_layers, most.n_variants, err);
    }
    if (st == CKVC_OK) {
        w->sets = ckvc_calloc((size_t)shape->n_layers, sizeof *w->sets);
        w->nll = ckvc_calloc((size_t)in->prompts->max_continuation + 1, sizeof *w->nll);
        w->baseline = ckvc_calloc(table ? table->n_budgets : 1, sizeof *w->baseline);
        w->rows = shard_create();
        if (!w->sets || !w->nll || !w->baseline || !w->rows) {
            st = ckvc_fail_memory(err, "the calibration's buffers",
                                  (size_t)in->prompts->max_tokens * sizeof *w->nll);
        }
    }
    if (st != CKVC_OK) { worker_fini(w); }
    return st;
}

static void copy_text(char dst[SHARD_STRING], const char *src) {
    snprintf(dst, SHARD_STRING, "%s", src ? src : "");
}

/* Prefill and the prompt's row. loss_full is left to the caller. */
static ckvc_status prefill_row(worker *w, const prompt *p, const calibrate_options *o,
                               prefill_stats *stats, struct shard_prompt *row, ckvc_err *err) {
    const prefill_input in = {.tokens = p->tokens,
                              .n = p->n_tokens,
                              .n_total = (int64_t)p->n_tokens + p->n_continuation,
                              .window = o->window,
                              .alpha_kind = o->alpha_kind};
    ckvc_status st = session_prefill(w->session, &in, stats, err);
    if (st != CKVC_OK) { return st; }
    *row = (struct shard_prompt){.line = p->entry->line,
                                 .n_tokens = p->n_tokens,
                                 .n_continuation = p->n_continuation,
                                 .cut = p->cut,
                                 .token_hash = p->token_hash,
                                 .r_struct = stats->r_struct,
                                 .r_sem = stats->r_sem};
    copy_text(row->id, p->entry->id);
    copy_text(row->source, p->entry->source);
    copy_text(row->split, p->heldout ? "heldout" : p->entry->split);
    return CKVC_OK;
}

/* ---- one prompt of each kind of pass: fills w->rows; *bad names a non-finite value, if any ----
 */

static ckvc_status scan_prompt(worker *w, const prompt *p, const calibrate_options *o,
                               const ckvc_table *table, pass_counts *counts, const char **bad,
                               ckvc_err *err) {
    (void)table, (void)counts;
    prefill_stats stats;
    struct shard_prompt row;
    ckvc_alloc_forbid("a scan's prompt");
    ckvc_status st = prefill_row(w, p, o, &stats, &row, err);
    if (st == CKVC_OK && p->n_continuation > 0) {
        st = session_continue(w->session, p->tokens + p->n_tokens, p->n_continuation, NULL, w->nll,
                              err);
    }
    ckvc_alloc_permit();
    if (st != CKVC_OK) { return st; }
    row.loss_full = nll_mean(w->nll, p->n_continuation);
    if (!isfinite(row.loss_full) || !isfinite(row.r_sem) || !isfinite(row.r_struct)) {
        *bad = "the full-cache loss or a risk is not finite";
        return CKVC_OK;
    }
    size_t index;
    st = shard_add_prompt(w->rows, &row, &index, err);
    if (st == CKVC_OK) {
        size_t n = (size_t)w->rows->h.n_layers * w->rows->h.n_kv_heads;
        memcpy(w->rows->rho_sd + index * n, stats.rho_sd, n * sizeof(double));
        memcpy(w->rows->own_recent + index * n, stats.own_recent, n * sizeof(double));
        memcpy(w->rows->own_entropy + index * n, stats.own_entropy, n * sizeof(double));
    }
    return st;
}

/* Does a layer of budget b draw on this block of the table? With budgets by layer there is one
 * budget and may be many blocks. */
static bool block_in_use(const prompt_sets *k, uint32_t b, uint32_t block) {
    for (uint32_t l = 0; l < k->n_layers; l++) {
        if (prompt_sets_at(k, b, l)->block == block) { return true; }
    }
    return false;
}

/* The baseline's row of each budget; with budgets by layer the one baseline's, under every block
 * that its layers draw on. */
static ckvc_status log_baselines(worker *w, const char **bad, ckvc_err *err) {
    const prompt_sets *k = w->kept;
    for (uint32_t block = 0; block < k->table->n_budgets; block++) {
        const uint32_t b = k->layer_budgets ? 0 : block;
        if (!isfinite(w->baseline[b])) {
            *bad = "a baseline loss is not finite";
            return CKVC_OK;
        }
        if (!block_in_use(k, b, block)) { continue; }
        size_t row;
        struct shard_baseline base = {0, (uint16_t)block, w->baseline[b]};
        ckvc_status st = shard_add_baseline(w->rows, &base, &row, err);
        if (st != CKVC_OK) { return st; }
        for (uint32_t l = 0; l < k->n_layers; l++) {
            const layer_set *at = prompt_sets_at(k, b, l);
            size_t i = row * k->n_layers + l;
            w->rows->n_candidates[i] = at->n_candidates;
            w->rows->n_kept[i] = at->n_kept;
            w->rows->n_kept_window[i] = at->n_kept_window;
            w->rows->n_candidates_lo[i] = at->n_candidates_lo;
            w->rows->n_candidates_hi[i] = at->n_candidates_hi;
        }
    }
    return CKVC_OK;
}

static ckvc_status log_actions(worker *w, const prompt *p, const calibrate_options *o,
                               double loss_full, pass_counts *counts, const char **bad,
                               ckvc_err *err) {
    const prompt_sets *k = w->kept;
    for (size_t i = 0; i < w->variants.n_actions; i++) {
        const taken_action *t = &w->variants.actions[i];
        const layer_set *base = prompt_sets_at(k, t->budget, t->layer);
        double loss = t->variant == VARIANT_NONE ? w->baseline[t->budget]
                                                 : w->variants.items[t->variant].loss;
        ckvc_side side = (ckvc_side)t->side;
        if (!isfinite(loss)) {
            *bad = "the loss of a rollout is not finite";
            return CKVC_OK;
        }
        struct shard_record r = {
            .prompt = 0,
            .side = t->side,
            .action = t->action,
            .layer = t->layer,
            .head = t->head,
            .budget = (uint16_t)base->block,
            .loss = loss,
            .reward = reward_of(
                loss_full, loss, o->reduction, p->n_continuation,
                reward_penalty(side, o->beta_bud, p->n_tokens, t->n_candidates, base->tokens)),
            .baseline = reward_of(
                loss_full, w->baseline[t->budget], o->reduction, p->n_continuation,
                reward_penalty(side, o->beta_bud, p->n_tokens, base->n_candidates, base->tokens)),
            .n_candidates = t->n_candidates,
            .n_kept = t->n_kept,
            .set_hash = t->set_hash};
        ckvc_status st = shard_add_record(w->rows, &r, err);
        if (st != CKVC_OK) { return st; }
        counts->records++;
        counts->actions_equal += t->variant == VARIANT_NONE;
    }
    return CKVC_OK;
}

/* Full cache, baselines, variants: every loss that the prompt needs. */
static ckvc_status run_rollouts(worker *w, const prompt *p, const calibrate_options *o,
                                double *full, ckvc_err *err) {
    const int32_t *next = p->tokens + p->n_tokens;
    if (o->rollouts == ROLLOUTS_PLAIN) {
        return rollouts_plain(w->session, w->kept, &w->variants, next, p->n_continuation, w->sets,
                              w->nll, full, w->baseline, err);
    }
    return rollouts_sweep(&w->sweep, w->session, w->kept, &w->variants, next, p->n_continuation,
                          full, w->baseline, err);
}

static uint64_t count_rollouts(const worker *w) {
    uint64_t n = 1 + w->variants.n;
    for (uint32_t b = 0; b < w->kept->n_budgets; b++) {
        n += w->variants.group[b] == b;
    }
    return n;
}

/* From the prompt's tokens to all its losses, without an allocation. */
static ckvc_status measure_prompt(worker *w, const prompt *p, const calibrate_options *o,
                                  struct shard_prompt *row, pass_counts *counts, const char **bad,
                                  ckvc_err *err) {
    static const bool no_side[CKVC_SIDE_COUNT];
    prefill_stats stats;
    ckvc_status st = prefill_row(w, p, o, &stats, row, err);
    if (st != CKVC_OK) { return st; }
    double prefilled = ckvc_now_s();
    if (!isfinite(stats.r_struct) || !isfinite(stats.r_sem)) {
        *bad = "a risk is not finite";
        return CKVC_OK;
    }
    prompt_sets_build(w->kept, p->n_tokens, stats.alpha_f32, stats.rho, stats.r_struct,
                      stats.r_sem);
    if (w->greedy) {
        epsilon_greedy_begin(w->greedy, w->share, w->kept->bin_entropy, w->kept->bin_ppl);
    }
    st = variants_build(&w->variants, w->kept, p->heldout ? no_side : o->sides, o->behaviour,
                        o->variants, o->seed, p->entry->id, err);
    if (st == CKVC_OK) { st = run_rollouts(w, p, o, &row->loss_full, err); }
    if (st != CKVC_OK) { return st; }
    row->bin_entropy = (uint16_t)w->kept->bin_entropy;
    row->bin_ppl = (uint16_t)w->kept->bin_ppl;
    counts->rollouts += count_rollouts(w);
    counts->rollout_seconds += ckvc_now_s() - prefilled;
    if (!isfinite(row->loss_full)) { *bad = "the full-cache loss is not finite"; }
    return CKVC_OK;
}

static ckvc_status log_prompt(worker *w, const prompt *p, const calibrate_options *o,
                              const ckvc_table *table, pass_counts *counts, const char **bad,
                              ckvc_err *err) {
    (void)table;
    struct shard_prompt row;
    ckvc_alloc_forbid("a prompt's prefill, kept sets and rollouts");
    ckvc_status st = measure_prompt(w, p, o, &row, counts, bad, err);
    ckvc_alloc_permit();
    if (st == CKVC_OK && !*bad && o->check_rollouts > 0) {
        st = rollouts_check(o->check_rollouts, o->seed, p->entry->id, w->session, w->kept,
                            &w->variants, w->baseline, p->tokens + p->n_tokens, p->n_continuation,
                            w->sets, w->nll, &counts->checked, err);
    }
    if (st == CKVC_OK && !*bad) { st = shard_add_prompt(w->rows, &row, NULL, err); }
    if (st == CKVC_OK && !*bad) { st = log_baselines(w, bad, err); }
    if (st == CKVC_OK && !*bad) { st = log_actions(w, p, o, row.loss_full, counts, bad, err); }
    if (st == CKVC_OK && !*bad && o->savings) { savings_add(o->savings, &w->variants); }
    return st;
}

/* ---- the loop over prompts that both kinds of pass share ---- */

typedef ckvc_status (*prompt_fn)(worker *w, const prompt *p, const calibrate_options *o,
                                 const ckvc_table *table, pass_counts *counts, const char **bad,
                                 ckvc_err *err);

/* Borrows table's arrays and the model's names: for run_pass_begin, which copies. */
static void fill_header(shard_header *h, const run_dir *run, const char *pass,
                        const calibrate_inputs *in, const calibrate_options *o,
                        const ckvc_table *table) {
    const model_shape *shape = model_get_shape(in->model);
    *h = (shard_header){.n_layers = (uint32_t)shape->n_layers,
                        .n_heads = (uint32_t)shape->n_heads,
                        .n_kv_heads = (uint32_t)shape->n_kv_heads,
                        .window = (uint32_t)o->window,
                        .continuation = (uint32_t)o->continuation,
                        .keep_window = o->keep_window,
                        .beta_bud = table ? o->beta_bud : 1.0, /* a scan knows no rewards */
                        .reduction = table ? o->reduction : CKVC_LOSS_MEAN,
                        .seed = o->seed};
    snprintf(h->ckvc_version, sizeof h->ckvc_version, "%s", CKVC_VERSION);
    if (in->backend->compute != BE_COMPUTE_F32) {
        snprintf(h->compute, sizeof h->compute, "%s",
                 be_compute_name(in->backend->compute));
    }
    snprintf(h->plan, sizeof h->plan, "%s", run_plan_hash(run));
    snprintf(h->fingerprint, sizeof h->fingerprint, "%s", model_fingerprint(in->model));
    snprintf(h->manifest, sizeof h->manifest, "%s", in->manifest->sha256);
    copy_text(h->model_name, model_name(in->model));
    snprintf(h->family, sizeof h->family, "%s", shape->family);
    snprintf(h->pass, sizeof h->pass, "%s", pass);
    snprintf(h->behaviour, sizeof h->behaviour, "%s",
             table ? behaviour_name(o->behaviour) : "none");
    snprintf(h->alpha_kind, sizeof h->alpha_kind, "%s", ckvc_alpha_name(o->alpha_kind));
    if (table) {
        shard_header_borrow(h, table);
        if (o->layer_budgets) {
            h->n_layer_budgets = table->n_layers;
            h->layer_budgets = (double *)(uintptr_t)o->layer_budgets; /* borrowed like the rest */
        }
    } else {
        h->n_entropy_bins = h->n_ppl_bins = 1;
    }
}

static int64_t count_failures(const run_dir *run, const char *pass) {
    int64_t n = 0;
    for (size_t i = 0; i < json_array_size(run_skipped(run)); i++) {
        const char *of =
            json_string_value(json_object_get(json_array_get(run_skipped(run), i), "pass"));
        n += of && strcmp(of, pass) == 0;
    }
    return n;
}

static void learn(void *greedy, const shard *rows) {
    epsilon_greedy_learn(greedy, rows);
}

static ckvc_status run_prompts(run_dir *run, const char *name, const char *kind,
                               const calibrate_inputs *in, const calibrate_options *o,
                               const ckvc_table *table, prompt_fn fn, pass_counts *counts,
                               ckvc_err *err) {
    worker w;
    shard_header header;
    stable *until = NULL;
    uint32_t n = 0, *of_pass = ckvc_calloc(in->prompts->n, sizeof *of_pass);
    *counts = (pass_counts){.reliability = NAN};
    bool *done = ckvc_calloc(in->prompts->n, sizeof *done);
    for (uint32_t i = 0; i < in->prompts->n; i++) {
        if (!table || !in->prompts->items[i].passed_over) { of_pass[n++] = i; }
    }
    ckvc_status st = worker_init(&w, in, o, table, err);
    if (st != CKVC_OK) {
        free(done);
        free(of_pass);
        return st;
    }
    fill_header(&header, run, kind, in, o, table);
    st = run_pass_begin(run, name, n, o->shard_prompts, &header, in->backend->kernel, done,
                        err);
    if (st == CKVC_OK) { st = shard_header_copy(&w.rows->h, &header, err); }
    if (st != CKVC_OK) { goto out; }
    bool stopped = false, end = false;
    if (table && o->until_stable > 0) {
        st = stable_create(table, o->until_cql_alpha, o->until_reward, o->seed, w.plan.limit,
                           &until, err);
        if (st == CKVC_OK) {
            st = stable_watch(until, run, name, o->until_stable, &counts->reliability, &end, err);
        }
        n = run_pass_named(run, name)->n_prompts;
    }
    if (st != CKVC_OK) { goto out; }
    size_t n_logged = 0, logged = 0; /* prompts that leave records; those before the one in hand */
    for (uint32_t i = 0; i < n; i++) {
        counts->resumed += done[i];
        n_logged += !in->prompts->items[of_pass[i]].heldout;
    }
    if (w.greedy) { st = run_pass_replay(run, learn, w.greedy, err); }
    int64_t failures = count_failures(run, name); /* of the runs before this one too */
    double start = ckvc_now_s();
    ckvc_progress progress;
    ckvc_progress_start(&progress, name, table ? "rollouts" : "prompts", n, counts->resumed,
                        o->quiet);
    for (uint32_t i = 0; st == CKVC_OK && !end && i < n; i++) {
        const size_t rank = logged;
        logged += !in->prompts->items[of_pass[i]].heldout;
        if (done[i]) { continue; }
        if (ckvc_stop_requested() ||
            (o->limit_time_s > 0 && ckvc_now_s() - start > o->limit_time_s)) {
            stopped = true;
            break;
        }
        const prompt *p = &in->prompts->items[of_pass[i]];
        const char *bad = NULL;
        shard_clear(w.rows);
        w.share = epsilon_greedy_share(rank, n_logged);
        st = fn(&w, p, o, table, counts, &bad, err);
        if (st == CKVC_OK && bad) {
            counts->skipped++;
            failures++;
            st = run_skip_prompt(run, i, p->entry->id, bad, err);
            ckvc_warn("%s: prompt \"%s\" (line %u) leaves no records: %s", name, p->entry->id,
                      p->entry->line, bad);
            if (st == CKVC_OK && failures > o->max_failures) {
                st = ckvc_fail(err, CKVC_E_DATA,
                               "%s:%u: prompt \"%s\": %s; %" PRId64
                               " such prompts, --max-failures allows %" PRId64,
                               in->manifest->path, p->entry->line, p->entry->id, bad, failures,
                               o->max_failures);
            }
        } else if (st == CKVC_OK) {
            st = run_log_prompt(run, i, w.rows, err);
            counts->prompts++;
            if (w.greedy) { learn(w.greedy, w.rows); }
        }
        if (st == CKVC_OK && until) {
            st = stable_watch(until, run, name, o->until_stable, &counts->reliability, &end, err);
        }
        ckvc_progress_update(&progress, counts->resumed + counts->prompts + counts->skipped,
                             table ? counts->rollouts : counts->prompts + counts->skipped);
    }
    ckvc_progress_finish(&progress);
    counts->stable = end;
    counts->seconds = ckvc_now_s() - start;
    if (st == CKVC_OK) { run_pass_end(run); }
    if (st == CKVC_OK && stopped) {
        st = ckvc_fail(
            err, CKVC_E_STOPPED,
            "%s: stopped with %u of %u prompts done; the same command with --resume goes on",
            run_path(run), counts->resumed + counts->prompts + counts->skipped, n);
    }
out:
    stable_free(until);
    worker_fini(&w);
    free(done);
    free(of_pass);
    return st;
}

ckvc_status calibrate_scan(run_dir *run, const calibrate_inputs *in, const calibrate_options *o,
                           pass_counts *counts, ckvc_err *err) {
    return run_prompts(run, "scan", "scan", in, o, NULL, scan_prompt, counts, err);
}

ckvc_status calibrate_pass(run_dir *run, const char *name, const calibrate_inputs *in,
                           const calibrate_options *o, const ckvc_table *table, pass_counts *counts,
                           ckvc_err *err) {
    const char *kind = o->sides[CKVC_SIDE_HEAD] && o->sides[CKVC_SIDE_GATE] ? "both"
                       : o->sides[CKVC_SIDE_HEAD]                           ? "head"
                                                                            : "gate";
    return run_prompts(run, name, kind, in, o, table, log_prompt, counts, err);
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

ckvc_status calibrate_binding(const run_dir *run, const char *pass,
                              gate_binding out[PROMPT_SETS_MAX_BUDGETS],
                              double budgets[PROMPT_SETS_MAX_BUDGETS], uint32_t *n_budgets,
                              double *top, ckvc_err *err) {
    const run_pass *p = run_pass_named(run, pass);
    memset(out, 0, PROMPT_SETS_MAX_BUDGETS * sizeof *out);
    *n_budgets = 0;
    *top = NAN;
    for (size_t k = 0; p && k < p->n_shards; k++) {
        shard *s = NULL;
        ckvc_status st = run_read_shard(run, p, k, &s, err);
        if (st != CKVC_OK) { return st; }
        assert(s->h.n_budgets <=
               PROMPT_SETS_MAX_BUDGETS); /* the pass was made with a prompt_sets */
        if (!shard_has_thresholds(&s->h)) {
            shard_free(s);
            return CKVC_OK;
        }
        *n_budgets = s->h.n_budgets;
        *top = s->h.side[CKVC_SIDE_GATE].actions[s->h.side[CKVC_SIDE_GATE].n_actions - 1];
        memcpy(budgets, s->h.budgets, s->h.n_budgets * sizeof *budgets);
        add_baselines(s, out);
        shard_free(s);
    }
    return CKVC_OK;
}

/* ---- dry run ---- */

/* Leaves n of the variants, spread over the list, for timing: every layer and both sides are in it.
 */
static void thin_out(variant_list *v, size_t n) {
    for (size_t i = 0; n < v->n && i < n; i++) {
        v->items[i] = v->items[i * v->n / n];
    }
    v->n = n < v->n ? n : v->n;
}

ckvc_status calibrate_dry_run(const calibrate_inputs *in, const calibrate_options *o,
                              const ckvc_table *table, dry_run *out, ckvc_err *err) {
    enum { SECONDS = 4 }; /* of timed rollouts, about */
    worker w;
    *out = (dry_run){0};
    ckvc_status st = worker_init(&w, in, o, table, err);
    if (st != CKVC_OK) { return st; }
    const prompt *longest = &in->prompts->items[0];
    for (size_t i = 1; i < in->prompts->n; i++) {
        const prompt *p = &in->prompts->items[i];
        if (p->n_tokens + p->n_continuation > longest->n_tokens + longest->n_continuation) {
            longest = p;
        }
    }
    out->memory = w.plan;
    out->n_tokens = longest->n_tokens;
    out->n_continuation = longest->n_continuation;
    prefill_stats stats;
    struct shard_prompt row;
    double start = ckvc_now_s(), loss;
    st = prefill_row(&w, longest, o, &stats, &row, err);
    out->prefill_s = ckvc_now_s() - start;
    if (st == CKVC_OK) {
        prompt_sets_build(w.kept, longest->n_tokens, stats.alpha_f32, stats.rho, stats.r_struct,
                          stats.r_sem);
        if (w.greedy) {
            epsilon_greedy_begin(w.greedy, w.share, w.kept->bin_entropy, w.kept->bin_ppl);
        }
        st = variants_build(&w.variants, w.kept, o->sides, o->behaviour, o->variants, o->seed,
                            longest->entry->id, err);
    }
    if (st == CKVC_OK) {
        out->actions = w.variants.n_actions;
        out->distinct = w.variants.n;
        start = ckvc_now_s();
        st = rollout_baseline(w.session, w.kept, 0, longest->tokens + longest->n_tokens,
                              longest->n_continuation, w.nll, &loss, err);
        out->single_s = ckvc_now_s() - start;
    }
    if (st == CKVC_OK) {
        const double affordable = SECONDS / (out->single_s > 1e-6 ? out->single_s : 1e-6);
        thin_out(&w.variants, affordable < 8                      ? 8
                              : affordable < (double)w.variants.n ? (size_t)affordable
                                                                  : w.variants.n);
        start = ckvc_now_s();
        st = run_rollouts(&w, longest, o, &loss, err);
        out->timed = count_rollouts(&w);
        out->rollout_s = (ckvc_now_s() - start) / (double)out->timed;
    }
    worker_fini(&w);
    return st;
}
