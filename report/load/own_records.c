/* Reads the records that a table was fitted from, prompt by prompt, and refits it from resampled
 * prompts (cql/solve/logged.h).
 *
 * A table has these only where its runs are among the inputs and their records, counted and
 * averaged, are the table's own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/run/prompt_records.h"
#include "cql/solve/cql.h"
#include "formats/side/reward.h"
#include "lib/base/memory.h"
#include "lib/base/order.h"
#include "report/load/inputs.h"

/* The most multiplications for one side's refits; with the bounds on entries these take a few
 * seconds. */
#define WORK_MAX  1.5e9
#define BOOT_MIN  100u
#define SAME_MEAN 1e-9 /* of the reward scale */

/* ---- one shard ---- */

/* Reads a side's records, prompt by prompt, as a fit takes them. A prompt that several runs
 * logged counts once, from the first run, as in a fit (fit/fit_pool.c). */
typedef struct reader {
    int side;
    cql_logged *into;
    uint64_t *read; /* hashes of the prompts read; those of earlier passes are sorted */
    size_t n_before, n_read, cap;
    double rollouts;
} reader;

static void reader_fini(reader *x) { free(x->read); }

static ckvc_status read_shard(reader *x, const shard *s, ckvc_err *err) {
    CKVC_AUTO(prompt_records_fini) prompt_records all = {0};
    CKVC_AUTO_FREE rollout *rollouts = ckvc_alloc(s->n_records, sizeof *rollouts);
    size_t n = 0;
    CKVC_TRY(prompt_records_open(&all, s, "its records", err));
    for (size_t i = 0; i < s->n_prompts; i++) {
        const struct shard_prompt *p = &s->prompts[i];
        const uint64_t key = shard_prompt_hash(p);
        bool named = false;
        if (strcmp(p->split, "heldout") == 0 ||
            (x->n_before && bsearch(&key, x->read, x->n_before, sizeof key, ckvc_order_u64))) {
            continue;
        }
        for (size_t k = all.first[i]; k < all.first[i + 1]; k++) {
            const struct shard_record *r = &s->records[all.order[k]];
            const double before = prompt_records_baseline(&all, r),
                         advantage = r->reward - r->baseline;
            if (r->side != x->side) { continue; }
            if (!named) {
                cql_logged_prompt(x->into, shard_prompt_cluster(p));
                CKVC_GROW(x->read, x->cap, x->n_read + 1);
                x->read[x->n_read++] = key;
                named = true;
            }
            CKVC_TRY(cql_logged_add(
                x->into, prompt_records_state(&all, r), r->action, advantage,
                isnan(before)
                    ? advantage
                    : reward_loss_part(before, r->loss, s->h.setting.reduction, p->n_continuation),
                r->baseline, err));
            /* the unperturbed set needs no rollout of its own */
            if (r->loss != before) { rollouts[n++] = rollout_of(r); }
        }
    }
    x->rollouts += (double)rollouts_distinct(rollouts, n);
    return CKVC_OK;
}

/* ---- one side of a table ---- */

/* Are these the records that the table was fitted from? The counts must be the table's own NHEAD
 * or NGATE, and the means its MHEAD or MGATE, or the refits would be another fit's. Passes of
 * two rounds that log every action have the same counts; their means tell them apart. */
static bool same_evidence(const input_table *t, int side, const own_records *s) {
    const uint64_t *own = t->f->evidence[side].n;
    const double *own_mean = t->f->evidence[side].m;
    uint64_t n[CQL_MAX_ACTIONS];
    double mean[CQL_MAX_ACTIONS];
    const size_t A = s->logged->n_actions;
    for (size_t i = 0; i < s->logged->n_states; i++) {
        cql_logged_state(s->logged, i, NULL, s->fit.reward, s->fit.scale, n, mean);
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

/* Fills incoming and chosen. False means that an entry is not on its grid. */
static bool table_actions(arena *r, const shard_header *h, own_records *s) {
    s->incoming = arena_alloc(r, s->of.n_states, sizeof *s->incoming);
    s->chosen = arena_alloc(r, s->of.n_states, sizeof *s->chosen);
    for (size_t i = 0; i < s->of.n_states; i++) {
        const int chosen = side_action(&s->of, s->of.entries[i]),
                  before = side_action(&s->of, h->side[s->of.which].start[i]);
        if (chosen < 0 || before < 0) { return false; }
        s->chosen[i] = chosen;
        /* In every refit, a state that never had records is what the fit's rule made of it. For
         * the others the fit starts from the run's table. */
        s->incoming[i] = cql_logged_prompts(s->logged, i) == 0 ? chosen : before;
    }
    return true;
}

/* Reads all records of a pool. What the run cannot give is an error. *trouble is what a fit of
 * the records would fail by, such as too little memory: the report goes on without them. */
static ckvc_status read_pool(const pass_pool *pool, reader *x, shard **last, ckvc_err *trouble,
                             ckvc_err *err) {
    for (size_t i = 0; i < pool->n; i++) {
        for (size_t n = 0; n < pool->of[i].pass->n_shards; n++) {
            shard_free(ckvc_take(last));
            CKVC_TRY(run_read_shard(pool->of[i].run->dir, pool->of[i].pass, n, last, err));
            const struct side of = shard_side_of(&(*last)->h, (ckvc_side)x->side);
            CKVC_FAIL_IF(of.n_states != x->into->n_states || of.actions.n != x->into->n_actions,
                         err, CKVC_E_DATA,
                         "%s: shard %zu of pass %s has %zu states of %zu actions, the table %zu of "
                         "%zu: the run was damaged, and has to be made again",
                         run_path(pool->of[i].run->dir), n, pool->of[i].pass->name,
                         (size_t)of.n_states, (size_t)of.actions.n, (size_t)x->into->n_states,
                         (size_t)x->into->n_actions);
            if (read_shard(x, *last, trouble) != CKVC_OK) { return CKVC_OK; }
        }
        if (x->n_read) { qsort(x->read, x->n_read, sizeof *x->read, ckvc_order_u64); }
        x->n_before = x->n_read;
    }
    return CKVC_OK;
}

/* Takes the pool's records when they are the table's own; else s->why says what is the matter.
 * *stop says that more pools would not help. */
static ckvc_status try_pool(inputs *in, input_table *t, int side, const pass_pool *pool, bool *stop,
                            ckvc_err *err) {
    own_records *s = &t->sides[side];
    CKVC_AUTO(reader_fini) reader x = {.side = side};
    ckvc_err trouble = {0};
    CKVC_AUTO(shard_free_at) shard *last = NULL;
    s->why = NULL;
    if (cql_logged_create(s->of.n_states, s->of.actions.n, s->of.kind->penalty,
                          in->o->memory_max / (2 * in->n_tables), &s->logged,
                          &trouble) == CKVC_OK) {
        x.into = s->logged;
        CKVC_TRY(read_pool(pool, &x, &last, &trouble, err));
        cql_logged_finish(s->logged);
    }
    if (trouble.status || !s->logged) {
        s->why = arena_text(&in->arena, "%.250s", trouble.text);
    } else if (!last || s->logged->n_blocks == 0 || !same_evidence(t, side, s)) {
        s->why = arena_text(
            &in->arena,
            "the %s records of %s are not those that %s was fitted from, or not all of them",
            ckvc_side_name((ckvc_side)side), input_run_tags(in, t), t->tag);
    } else if (!table_actions(&in->arena, &last->h, s)) {
        s->why = arena_text(&in->arena, "%s has an entry that is not on its grid", t->tag);
        trouble.status = CKVC_E_DATA;
    }
    *stop = !s->why || trouble.status;
    if (s->why) { cql_logged_free(ckvc_take(&s->logged)); }
    s->rollouts = x.rollouts;
    return CKVC_OK;
}

/* Returns why no records of the side are looked for; NULL means that they are. */
static const char *why_no_records(inputs *in, const input_table *t, double alpha, double scale) {
    const ckvc_table *k = t->f->table;
    if (t->f->xfer) {
        return arena_text(&in->arena, "%s was mapped from another table, not fitted", t->tag);
    }
    if (t->n_runs == 0) {
        return arena_text(&in->arena, "the run that %s was fitted from is not among the inputs",
                          t->tag);
    }
    if (!t->f->has_evidence || !(alpha >= 0) || !(scale > 0) ||
        k->n_head_actions > CQL_MAX_ACTIONS || k->n_gate_actions > CQL_MAX_ACTIONS) {
        return arena_text(&in->arena, "%s does not say how it was fitted", t->tag);
    }
    return NULL;
}

static double number_in(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static ckvc_status read_side(inputs *in, input_table *t, int side, ckvc_err *err) {
    const json_t *meta = t->f->meta, *reward = json_object_get(meta, "reward");
    const char *kind = json_string_value(json_object_get(reward, "kind"));
    own_records *s = &t->sides[side];
    s->of = side_of_table(t->f->table, (ckvc_side)side);
    const char *name = ckvc_side_name(s->of.which), *key = arena_text(&in->arena, "scale_%s", name);
    const double alpha = number_in(meta, "cql_alpha"), scale = number_in(reward, key);
    if ((s->why = why_no_records(in, t, alpha, scale))) { return CKVC_OK; }
    s->why = arena_text(&in->arena, "%s: no complete %s pass of the shape of %s",
                        input_run_tags(in, t), name, t->tag);
    s->fit = (cql_fit){.cql_alpha = alpha, .scale = scale, .actions = s->of.actions};
    s->fit.reward = kind && strcmp(kind, "raw") == 0 ? CQL_RAW : CQL_ADVANTAGE;
    s->neutral = side_neutral(&s->of);
    pass_pool *pools;
    const size_t n = fitted_pools(in, t, side, &pools);
    bool stop = false;
    for (size_t i = 0; i < n && !stop; i++) {
        CKVC_TRY(try_pool(in, t, side, &pools[i], &stop, err));
        s->from = s->logged ? &pools[i] : NULL;
    }
    return CKVC_OK;
}

static ckvc_status refit(inputs *in, own_records *s, ckvc_err *err) {
    const cql_logged *l = s->logged;
    const uint32_t asked = in->o->replicates;
    double each = (double)l->n_blocks * (double)l->n_actions;
    if (!l->balanced) {
        each += (double)l->n_states * (double)l->n_actions * 400; /* the solver's exp and log */
    }
    uint32_t most = WORK_MAX / each < asked ? (uint32_t)(WORK_MAX / each) : asked;
    s->n_boot = most > BOOT_MIN || asked < BOOT_MIN ? most : BOOT_MIN;
    s->n_halves = 2 * OWN_SPLITS < s->n_boot ? 2 * OWN_SPLITS : s->n_boot / 2 * 2;
    s->boot_choices =
        arena_alloc(&in->arena, (size_t)s->n_boot * l->n_states, sizeof *s->boot_choices);
    s->half_choices =
        arena_alloc(&in->arena, (size_t)s->n_halves * l->n_states, sizeof *s->half_choices);
    s->boot = cql_logged_weights(l, s->n_boot, RESAMPLE_BOOTSTRAP, in->o->seed);
    CKVC_AUTO_FREE uint8_t *halves =
        cql_logged_weights(l, s->n_halves, RESAMPLE_HALVES, in->o->seed);
    const cql_fit *f = &s->fit;
    const cql_resampled boots = cql_logged_resampled(l, s->boot, s->n_boot, f->reward, f->scale),
                        split = cql_logged_resampled(l, halves, s->n_halves, f->reward, f->scale);
    CKVC_TRY(cql_resampled_choices(&boots, &f->actions, f->cql_alpha, s->boot_choices, err));
    return cql_resampled_choices(&split, &f->actions, f->cql_alpha, s->half_choices, err);
}

ckvc_status own_records_load(inputs *in, ckvc_err *err) {
    for (size_t i = 0; i < in->n_tables; i++) {
        for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
            own_records *s = &in->tables[i].sides[side];
            CKVC_TRY(read_side(in, &in->tables[i], side, err));
            if (s->logged && in->o->replicates > 0) { CKVC_TRY(refit(in, s, err)); }
        }
    }
    return CKVC_OK;
}

void own_records_free(own_records *s) {
    cql_logged_free(s->logged);
    free(s->boot);
}

stability_fit own_stability(const input_table *t, int side) {
    const own_records *s = &t->sides[side];
    return (stability_fit){s->logged, s->fit, s->incoming, t->f->table->n_budgets};
}

static int by_bytes(const void *a, const void *b) { return memcmp(a, b, sizeof(rollout)); }

size_t rollouts_distinct(rollout *list, size_t n) {
    size_t kept = 0;
    qsort(list, n, sizeof *list, by_bytes);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || by_bytes(&list[kept - 1], &list[i]) != 0) { list[kept++] = list[i]; }
    }
    return kept;
}
