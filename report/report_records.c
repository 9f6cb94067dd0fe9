/* The records that a table was fitted from, prompt by prompt, and its refits from resampled prompts
 * (cql/solve/logged.h).
 *
 * Only where the runs are among the inputs and the records, counted and averaged, are the table's
 * own.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cql/solve/cql.h"
#include "lib/base/memory.h"
#include "report/report_internal.h"

#define WORK_MAX                                                                                   \
    1.5e9 /* multiplications of one side's refits: with the bounds on entries a few seconds */
#define BOOT_MIN  100u
#define SAME_MEAN 1e-9 /* of the reward scale */

/* ---- prompts already read ---- */

/* Of one side. A prompt that several runs logged counts once, from the first: as in a fit
 * (cql/fit/fit_pool.c). */
typedef struct prompt_key {
    uint64_t id, tokens;
} prompt_key;

typedef struct prompt_list {
    prompt_key *keys;
    size_t n_before, n, cap; /* sorted are those of the passes before */
} prompt_list;

static int by_key(const void *pa, const void *pb) {
    const prompt_key *a = pa, *b = pb;
    if (a->id != b->id) { return a->id < b->id ? -1 : 1; }
    return (a->tokens > b->tokens) - (a->tokens < b->tokens);
}

static bool read_before(const prompt_list *seen, const struct shard_prompt *p) {
    const prompt_key key = {ckvc_xxh64(p->id, strlen(p->id)), p->token_hash};
    return seen->n_before > 0 && bsearch(&key, seen->keys, seen->n_before, sizeof key, by_key);
}

static ckvc_status add_key(prompt_list *seen, const struct shard_prompt *p, ckvc_err *err) {
    ckvc_status rc =
        ckvc_grow((void **)&seen->keys, &seen->cap, seen->n + 1, sizeof *seen->keys, err);
    if (rc == CKVC_OK) {
        seen->keys[seen->n++] = (prompt_key){ckvc_xxh64(p->id, strlen(p->id)), p->token_hash};
    }
    return rc;
}

static void end_pass(prompt_list *seen) {
    qsort(seen->keys, seen->n, sizeof *seen->keys, by_key);
    seen->n_before = seen->n;
}

/* ---- one shard ---- */

typedef struct rollout {
    uint32_t prompt, layer, budget;
    uint64_t set;
} rollout;

static int by_rollout(const void *pa, const void *pb) {
    const rollout *a = pa, *b = pb;
    if (a->prompt != b->prompt) { return a->prompt < b->prompt ? -1 : 1; }
    if (a->layer != b->layer) { return a->layer < b->layer ? -1 : 1; }
    if (a->budget != b->budget) { return a->budget < b->budget ? -1 : 1; }
    return (a->set > b->set) - (a->set < b->set);
}

/* What a shard's records are read with: row numbers by prompt, the baseline's loss per prompt and
 * budget. */
typedef struct reader {
    const shard *s;
    int side;
    size_t *first; /* [prompts+1] */
    uint32_t *order;
    double *losses; /* [prompts][nB], NaN: none */
    rollout *rollouts;
    size_t n_rollouts;
} reader;

static ckvc_status open_reader(reader *x, ckvc_err *err) {
    const shard *s = x->s;
    size_t pairs = s->n_prompts * s->h.n_budgets;
    x->first = ckvc_calloc(s->n_prompts + 1, sizeof *x->first);
    x->order = ckvc_alloc(s->n_records, sizeof *x->order);
    x->losses = ckvc_alloc(pairs, sizeof *x->losses);
    x->rollouts = ckvc_alloc(s->n_records, sizeof *x->rollouts);
    for (size_t i = 0; i < pairs; i++) {
        x->losses[i] = NAN;
    }
    for (size_t i = 0; i < s->n_baselines; i++) {
        x->losses[(size_t)s->baselines[i].prompt * s->h.n_budgets + s->baselines[i].budget] =
            s->baselines[i].loss;
    }
    for (size_t i = 0; i < s->n_records; i++) {
        x->first[s->records[i].prompt + 1]++;
    }
    for (size_t i = 0; i < s->n_prompts; i++) {
        x->first[i + 1] += x->first[i];
    }
    for (size_t i = 0; i < s->n_records; i++) { /* stable: a counting sort */
        x->order[x->first[s->records[i].prompt]++] = (uint32_t)i;
    }
    memmove(x->first + 1, x->first, s->n_prompts * sizeof *x->first);
    x->first[0] = 0;
    return CKVC_OK;
}

static void close_reader(reader *x) {
    free(x->first);
    free(x->order);
    free(x->losses);
    free(x->rollouts);
}

/* The records of prompt i, if there are any. */
static ckvc_status read_prompt(reader *x, size_t i, cql_logged *into, prompt_list *seen,
                               ckvc_err *err) {
    const struct shard_prompt *p = &x->s->prompts[i];
    const struct side side = shard_side_of(&x->s->h, (ckvc_side)x->side);
    bool named = false;
    for (size_t k = x->first[i]; k < x->first[i + 1]; k++) {
        const struct shard_record *r = &x->s->records[x->order[k]];
        double before = x->losses[i * x->s->h.n_budgets + r->budget];
        if (r->side != x->side) { continue; }
        if (!named) { cql_logged_prompt(into, p->id); }
        ckvc_status rc = named ? CKVC_OK : add_key(seen, p, err);
        named = true;
        if (rc == CKVC_OK) {
            double tokens = x->s->h.setting.reduction == CKVC_LOSS_SUM ? (double)p->n_continuation : 1;
            double part = isnan(before) ? r->reward - r->baseline : -(r->loss - before) * tokens;
            rc = cql_logged_add(into, shard_state(&side, r, p), r->action, r->reward - r->baseline,
                                part, r->baseline, err);
        }
        if (rc) { return rc; }
        if (r->loss != before) { /* the unperturbed set needs no rollout of its own */
            x->rollouts[x->n_rollouts++] = (rollout){(uint32_t)i, r->layer, r->budget, r->set_hash};
        }
    }
    return CKVC_OK;
}

static ckvc_status read_shard(const shard *s, int side, cql_logged *into, prompt_list *seen,
                              double *rollouts, ckvc_err *err) {
    reader x = {.s = s, .side = side};
    ckvc_status rc = open_reader(&x, err);
    for (size_t i = 0; i < s->n_prompts && rc == CKVC_OK; i++) {
        if (strcmp(s->prompts[i].split, "heldout") != 0 && !read_before(seen, &s->prompts[i])) {
            rc = read_prompt(&x, i, into, seen, err);
        }
    }
    if (rc == CKVC_OK) {
        qsort(x.rollouts, x.n_rollouts, sizeof *x.rollouts, by_rollout);
        for (size_t i = 0; i < x.n_rollouts; i++) {
            *rollouts += i == 0 || by_rollout(&x.rollouts[i - 1], &x.rollouts[i]) != 0;
        }
    }
    close_reader(&x);
    return rc;
}

/* ---- one side of a table ---- */

/* The counts must be the table's own NHEAD or NGATE, and the means its MHEAD or MGATE, or the
 * refits would be another fit's. Passes of two rounds that log every action have the same counts;
 * their means tell them apart. */
static bool same_evidence(const report_table *t, int side, const report_side *s) {
    const uint64_t *own = t->f->evidence[side].n;
    const double *own_mean = t->f->evidence[side].m;
    uint64_t n[CQL_MAX_ACTIONS];
    double mean[CQL_MAX_ACTIONS];
    const size_t A = s->logged->n_actions;
    for (size_t i = 0; i < s->logged->n_states; i++) {
        cql_logged_state(s->logged, i, &cql_all, s->fit.reward, s->fit.scale, n, mean);
        if (memcmp(n, own + i * A, A * sizeof *n) != 0) { return false; }
        for (size_t a = 0; a < A; a++) { /* the fit sums in another order */
            if (n[a] > 0 &&
                !(fabs(mean[a] - own_mean[i * A + a]) <= SAME_MEAN * fmax(1, fabs(mean[a])))) {
                return false;
            }
        }
    }
    return true;
}

static ckvc_status table_actions(const report_table *t, int side, const shard_header *h,
                                 report_side *s, ckvc_err *err) {
    size_t n = s->of.n_states;
    const float *start = h->side[side].start;
    s->incoming = ckvc_alloc(n, sizeof *s->incoming);
    s->chosen = ckvc_alloc(n, sizeof *s->chosen);
    for (size_t i = 0; i < n; i++) {
        int chosen = side_action(&s->of, s->of.entries[i]), before = side_action(&s->of, start[i]);
        if (chosen < 0 || before < 0) {
            snprintf(s->why, sizeof s->why, "%s has an entry that is not on its grid", t->tag);
            return CKVC_OK;
        }
        s->chosen[i] = chosen;
        /* A state that never had records is what the fit's rule made of it in every refit; else the
         * fit starts from the run's table. */
        s->incoming[i] = cql_logged_prompts(s->logged, i) == 0 ? chosen : before;
    }
    return CKVC_OK;
}

/* All records of the pool into s->logged, and the table's actions when they are its own; else
 * s->why says what is the matter. *stop: more pools would not help. */
static ckvc_status read_pool(const report *r, report_table *t, int side, const report_pool *pool,
                             bool *stop, ckvc_err *err) {
    report_side *s = &t->sides[side];
    prompt_list seen = {0};
    shard *last = NULL;
    ckvc_err trouble = {0};
    *s->why = 0;
    s->rollouts = 0;
    ckvc_status failed = CKVC_OK;
    ckvc_status rc = cql_logged_create(s->of.n_states, s->of.actions.n, s->of.kind->penalty,
                                       r->o->memory_max / (2 * r->n_tables), &s->logged, &trouble);
    for (size_t i = 0; i < pool->n && rc == CKVC_OK; i++) {
        for (size_t n = 0; n < pool->of[i].pass->n_shards && rc == CKVC_OK; n++) {
            shard_free(last);
            last = NULL;
            if ((failed = run_read_shard(r->runs[pool->of[i].run].dir, pool->of[i].pass, n, &last,
                                         err)) != CKVC_OK) {
                goto done; /* the run is damaged */
            }
            rc = read_shard(last, side, s->logged, &seen, &s->rollouts, &trouble);
        }
        end_pass(&seen);
    }
    if (rc == CKVC_OK) {
        cql_logged_finish(s->logged);
        if (s->logged->n_blocks > 0 && same_evidence(t, side, s)) {
            rc = table_actions(t, side, &last->h, s, &trouble);
            *stop = true;
        } else {
            char names[REPORT_TAGS];
            report_run_tags(r, t->runs, t->n_runs, names);
            snprintf(
                s->why, sizeof s->why,
                "the %s records of %s are not those that %s was fitted from, or not all of them",
                ckvc_side_name((ckvc_side)side), names, t->tag);
        }
    }
    if (rc) { /* too large: the report goes on without */
        snprintf(s->why, sizeof s->why, "%.250s", trouble.text);
        *stop = true;
    }
done:
    if (failed || *s->why) {
        cql_logged_free(s->logged);
        s->logged = NULL;
    }
    free(seen.keys);
    shard_free(last);
    return failed;
}

static ckvc_status take_pool(report_side *s, const report_pool *pool, ckvc_err *err) {
    s->runs = ckvc_alloc(pool->n, sizeof *s->runs);
    for (size_t i = 0; i < pool->n; i++) {
        s->runs[s->n_runs++] = pool->of[i].run;
    }
    return CKVC_OK;
}

static ckvc_status read_side(const report *r, report_table *t, int side, ckvc_err *err) {
    const ckvc_table *k = t->f->table;
    const json_t *meta = t->f->meta, *reward = json_object_get(meta, "reward");
    report_side *s = &t->sides[side];
    const struct side of = side_of_table(k, (ckvc_side)side);
    char names[REPORT_TAGS];
    snprintf(names, sizeof names, "scale_%s", ckvc_side_name(of.which));
    double alpha = report_num(meta, "cql_alpha"), scale = report_num(reward, names);
    if (t->f->xfer) {
        snprintf(s->why, sizeof s->why, "%s was mapped from another table, not fitted", t->tag);
    } else if (t->n_runs == 0) {
        snprintf(s->why, sizeof s->why, "the run that %s was fitted from is not among the inputs",
                 t->tag);
    } else if (!t->f->has_evidence || !(alpha >= 0) || !(scale > 0) ||
               k->n_head_actions > CQL_MAX_ACTIONS || k->n_gate_actions > CQL_MAX_ACTIONS) {
        snprintf(s->why, sizeof s->why, "%s does not say how it was fitted", t->tag);
    }
    if (*s->why) { return CKVC_OK; }
    report_run_tags(r, t->runs, t->n_runs, names);
    snprintf(s->why, sizeof s->why, "%s: no complete %s pass of the shape of %s", names,
             ckvc_side_name((ckvc_side)side), t->tag);
    s->of = of;
    s->fit =
        (cql_fit){.cql_alpha = alpha,
                  .scale = scale,
                  .actions = of.actions,
                  .reward = strcmp(report_str(reward, "kind"), "raw") ? CQL_ADVANTAGE : CQL_RAW};
    s->neutral = side_neutral(&of);
    bool stop = false;
    for (size_t i = 0; !stop; i++) {
        report_pool pool;
        ckvc_status rc = report_pool_nth(r, t, side, i, &pool, err);
        if (rc || !pool.of) { return rc; }
        rc = read_pool(r, t, side, &pool, &stop, err);
        if (rc == CKVC_OK && s->logged) { rc = take_pool(s, &pool, err); }
        free(pool.of);
        if (rc) { return rc; }
    }
    return CKVC_OK;
}

static ckvc_status refit(const report *r, report_side *s, ckvc_err *err) {
    const cql_logged *l = s->logged;
    double each = (double)l->n_blocks * (double)l->n_actions;
    if (!l->whole) {
        each += (double)l->n_states * (double)l->n_actions * 400; /* the solver's exp and log */
    }
    uint32_t most =
        WORK_MAX / each < r->o->replicates ? (uint32_t)(WORK_MAX / each) : r->o->replicates;
    s->n_boot = most > BOOT_MIN || r->o->replicates < BOOT_MIN ? most : BOOT_MIN;
    s->n_halves = 2 * REPORT_SPLITS < s->n_boot ? 2 * REPORT_SPLITS : s->n_boot / 2 * 2;
    s->boot_choices = ckvc_alloc((size_t)s->n_boot * l->n_states, sizeof *s->boot_choices);
    s->half_choices = ckvc_alloc((size_t)s->n_halves * l->n_states, sizeof *s->half_choices);
    s->boot = cql_logged_weights(l, s->n_boot, CQL_RESAMPLE_BOOTSTRAP, r->o->seed);
    CKVC_AUTO_FREE uint8_t *halves =
        cql_logged_weights(l, s->n_halves, CQL_RESAMPLE_HALVES, r->o->seed);
    const cql_fit *f = &s->fit;
    const cql_resampled boots = cql_logged_resampled(l, s->boot, s->n_boot, f->reward, f->scale),
                        split = cql_logged_resampled(l, halves, s->n_halves, f->reward, f->scale);
    CKVC_TRY(cql_resampled_choices(&boots, &f->actions, f->cql_alpha, s->boot_choices, err));
    return cql_resampled_choices(&split, &f->actions, f->cql_alpha, s->half_choices, err);
}

ckvc_status report_records(report *r, ckvc_err *err) {
    for (size_t i = 0; i < r->n_tables; i++) {
        for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
            report_side *s = &r->tables[i].sides[side];
            ckvc_status rc = read_side(r, &r->tables[i], side, err);
            if (rc == CKVC_OK && s->logged && r->o->replicates > 0) { rc = refit(r, s, err); }
            if (rc) { return rc; }
        }
    }
    return CKVC_OK;
}

void report_records_free(report_side *s) {
    cql_logged_free(s->logged);
    free(s->runs);
    free(s->incoming);
    free(s->chosen);
    free(s->boot);
    free(s->boot_choices);
    free(s->half_choices);
}

stability_fit report_stability_fit(const report_table *t, int side) {
    const report_side *s = &t->sides[side];
    return (stability_fit){s->logged, s->fit, s->incoming, t->f->table->n_budgets};
}
