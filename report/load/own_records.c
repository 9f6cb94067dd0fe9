/* The records that a table was fitted from, prompt by prompt, and its refits from resampled prompts
 * (cql/solve/logged.h).
 *
 * Only where the runs are among the inputs and the records, counted and averaged, are the table's
 * own.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cql/solve/cql.h"
#include "lib/base/memory.h"
#include "report/load/inputs.h"
#include "report/load/shard_sums.h"

/* Multiplications of one side's refits: with the bounds on entries a few seconds. */
#define WORK_MAX  1.5e9
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

static prompt_key key_of(const struct shard_prompt *p) {
    return (prompt_key){ckvc_xxh64(p->id, strlen(p->id)), p->token_hash};
}

static int by_key(const void *pa, const void *pb) {
    const prompt_key *a = pa, *b = pb;
    if (a->id != b->id) { return a->id < b->id ? -1 : 1; }
    return (a->tokens > b->tokens) - (a->tokens < b->tokens);
}

static bool read_before(const prompt_list *seen, const struct shard_prompt *p) {
    const prompt_key key = key_of(p);
    return seen->n_before > 0 && bsearch(&key, seen->keys, seen->n_before, sizeof key, by_key);
}

static void end_pass(prompt_list *seen) {
    qsort(seen->keys, seen->n, sizeof *seen->keys, by_key);
    seen->n_before = seen->n;
}

/* ---- one shard ---- */

/* A side's records of a shard, prompt by prompt, as a fit takes them. */
typedef struct reader {
    int side;
    cql_logged *into;
    prompt_list seen;
    double rollouts;
} reader;

static ckvc_status read_record(reader *x, const shard *s, const struct shard_record *r,
                               double before, ckvc_err *err) {
    const struct shard_prompt *p = &s->prompts[r->prompt];
    double tokens = s->h.setting.reduction == CKVC_LOSS_SUM ? (double)p->n_continuation : 1;
    double part = isnan(before) ? r->reward - r->baseline : -(r->loss - before) * tokens;
    const struct side side = shard_side_of(&s->h, (ckvc_side)x->side);
    return cql_logged_add(x->into, shard_state(&side, r, p), r->action, r->reward - r->baseline,
                          part, r->baseline, err);
}

static ckvc_status read_shard(reader *x, const shard *s, ckvc_err *err) {
    CKVC_AUTO_FREE double *losses = shard_baseline_losses(s);
    CKVC_AUTO_FREE rollout *rollouts = ckvc_alloc(s->n_records, sizeof *rollouts);
    CKVC_AUTO_FREE uint32_t *order = ckvc_alloc(s->n_records, sizeof *order);
    CKVC_AUTO_FREE size_t *first = ckvc_calloc(s->n_prompts + 2, sizeof *first);
    size_t n = 0;
    for (size_t i = 0; i < s->n_records; i++) { first[s->records[i].prompt + 2]++; }
    for (size_t i = 1; i <= s->n_prompts; i++) { first[i + 1] += first[i]; }
    for (size_t i = 0; i < s->n_records; i++) { /* stable: a counting sort by prompt */
        order[first[s->records[i].prompt + 1]++] = (uint32_t)i;
    }
    for (size_t i = 0; i < s->n_prompts; i++) {
        const struct shard_prompt *p = &s->prompts[i];
        bool named = false;
        if (strcmp(p->split, "heldout") == 0 || read_before(&x->seen, p)) { continue; }
        for (size_t k = first[i]; k < first[i + 1]; k++) {
            const struct shard_record *r = &s->records[order[k]];
            const double before = losses[i * s->h.n_budgets + r->budget];
            if (r->side != x->side) { continue; }
            if (!named) {
                cql_logged_prompt(x->into, p->id);
                CKVC_GROW(x->seen.keys, x->seen.cap, x->seen.n + 1);
                x->seen.keys[x->seen.n++] = key_of(p);
                named = true;
            }
            CKVC_TRY(read_record(x, s, r, before, err));
            if (r->loss != before) { /* the unperturbed set needs no rollout of its own */
                rollouts[n++] = (rollout){r->set_hash, r->prompt, r->layer, r->budget, r->side};
            }
        }
    }
    x->rollouts += (double)rollouts_distinct(rollouts, n);
    return CKVC_OK;
}

/* ---- one side of a table ---- */

/* The counts must be the table's own NHEAD or NGATE, and the means its MHEAD or MGATE, or the
 * refits would be another fit's. Passes of two rounds that log every action have the same counts;
 * their means tell them apart. */
static bool same_evidence(const input_table *t, int side, const own_records *s) {
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

/* Fills incoming and chosen; false: an entry is not on its grid. */
static bool table_actions(room *r, const shard_header *h, own_records *s) {
    s->incoming = room_for(r, s->of.n_states, sizeof *s->incoming);
    s->chosen = room_for(r, s->of.n_states, sizeof *s->chosen);
    for (size_t i = 0; i < s->of.n_states; i++) {
        const int chosen = side_action(&s->of, s->of.entries[i]),
                  before = side_action(&s->of, h->side[s->of.which].start[i]);
        if (chosen < 0 || before < 0) { return false; }
        s->chosen[i] = chosen;
        /* A state that never had records is what the fit's rule made of it in every refit; else the
         * fit starts from the run's table. */
        s->incoming[i] = cql_logged_prompts(s->logged, i) == 0 ? chosen : before;
    }
    return true;
}

/* All records of a pool. What the run cannot give is an error; *trouble is what a fit of them would
 * trip over, such as too little memory: the report goes on without. */
static ckvc_status read_pool(const inputs *in, const pass_pool *pool, reader *x, shard **last,
                             ckvc_err *trouble, ckvc_err *err) {
    for (size_t i = 0; i < pool->n; i++) {
        for (size_t n = 0; n < pool->of[i].pass->n_shards; n++) {
            shard_free(ckvc_take(last));
            CKVC_TRY(run_read_shard(in->runs[pool->of[i].run].dir, pool->of[i].pass, n, last, err));
            if (read_shard(x, *last, trouble) != CKVC_OK) { return CKVC_OK; }
        }
        end_pass(&x->seen);
    }
    return CKVC_OK;
}

/* Takes the pool's records when they are the table's own; else s->why says what is the matter.
 * *stop: more pools would not help. */
static ckvc_status try_pool(inputs *in, input_table *t, int side, const pass_pool *pool, bool *stop,
                            ckvc_err *err) {
    own_records *s = &t->sides[side];
    reader x = {.side = side};
    ckvc_err trouble = {0};
    CKVC_AUTO(shard_free_at) shard *last = NULL;
    s->why = NULL;
    ckvc_status rc =
        cql_logged_create(s->of.n_states, s->of.actions.n, s->of.kind->penalty,
                          in->o->memory_max / (2 * in->n_tables), &s->logged, &trouble);
    x.into = s->logged;
    rc = rc ? CKVC_OK : read_pool(in, pool, &x, &last, &trouble, err);
    free(x.seen.keys);
    if (rc) { return rc; }
    if (!trouble.status) { cql_logged_finish(s->logged); }
    if (trouble.status) {
        s->why = room_text(&in->room, "%.250s", trouble.text);
    } else if (s->logged->n_blocks == 0 || !same_evidence(t, side, s)) {
        s->why = room_text(
            &in->room,
            "the %s records of %s are not those that %s was fitted from, or not all of them",
            ckvc_side_name((ckvc_side)side), input_run_tags(in, t->runs, t->n_runs), t->tag);
    } else if (!table_actions(&in->room, &last->h, s)) {
        s->why = room_text(&in->room, "%s has an entry that is not on its grid", t->tag);
        trouble.status = CKVC_E_DATA;
    }
    *stop = !s->why || trouble.status;
    if (s->why) { cql_logged_free(ckvc_take(&s->logged)); }
    s->rollouts = x.rollouts;
    return CKVC_OK;
}

/* Why no records of the side are looked for; NULL: they are. */
static const char *why_not(inputs *in, const input_table *t, double alpha, double scale) {
    const ckvc_table *k = t->f->table;
    if (t->f->xfer) {
        return room_text(&in->room, "%s was mapped from another table, not fitted", t->tag);
    }
    if (t->n_runs == 0) {
        return room_text(&in->room, "the run that %s was fitted from is not among the inputs",
                         t->tag);
    }
    if (!t->f->has_evidence || !(alpha >= 0) || !(scale > 0) ||
        k->n_head_actions > CQL_MAX_ACTIONS || k->n_gate_actions > CQL_MAX_ACTIONS) {
        return room_text(&in->room, "%s does not say how it was fitted", t->tag);
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
    const char *name = ckvc_side_name(s->of.which), *key = room_text(&in->room, "scale_%s", name);
    const double alpha = number_in(meta, "cql_alpha"), scale = number_in(reward, key);
    if ((s->why = why_not(in, t, alpha, scale))) { return CKVC_OK; }
    s->why = room_text(&in->room, "%s: no complete %s pass of the shape of %s",
                       input_run_tags(in, t->runs, t->n_runs), name, t->tag);
    s->fit = (cql_fit){.cql_alpha = alpha, .scale = scale, .actions = s->of.actions};
    s->fit.reward = kind && strcmp(kind, "raw") == 0 ? CQL_RAW : CQL_ADVANTAGE;
    s->neutral = side_neutral(&s->of);
    bool stop = false;
    for (size_t i = 0; !stop; i++) {
        const pass_pool pool = fitted_pool(in, t, side, i);
        if (pool.n == 0) { return CKVC_OK; }
        CKVC_TRY(try_pool(in, t, side, &pool, &stop, err));
        if (s->logged) {
            s->runs = room_for(&in->room, pool.n, sizeof *s->runs);
            for (size_t p = 0; p < pool.n; p++) { s->runs[s->n_runs++] = pool.of[p].run; }
        }
    }
    return CKVC_OK;
}

static ckvc_status refit(inputs *in, own_records *s, ckvc_err *err) {
    const cql_logged *l = s->logged;
    const uint32_t asked = in->o->replicates;
    double each = (double)l->n_blocks * (double)l->n_actions;
    if (!l->whole) {
        each += (double)l->n_states * (double)l->n_actions * 400; /* the solver's exp and log */
    }
    uint32_t most = WORK_MAX / each < asked ? (uint32_t)(WORK_MAX / each) : asked;
    s->n_boot = most > BOOT_MIN || asked < BOOT_MIN ? most : BOOT_MIN;
    s->n_halves = 2 * OWN_SPLITS < s->n_boot ? 2 * OWN_SPLITS : s->n_boot / 2 * 2;
    s->boot_choices = room_for(&in->room, (size_t)s->n_boot * l->n_states, sizeof *s->boot_choices);
    s->half_choices =
        room_for(&in->room, (size_t)s->n_halves * l->n_states, sizeof *s->half_choices);
    s->boot = cql_logged_weights(l, s->n_boot, CQL_RESAMPLE_BOOTSTRAP, in->o->seed);
    CKVC_AUTO_FREE uint8_t *halves =
        cql_logged_weights(l, s->n_halves, CQL_RESAMPLE_HALVES, in->o->seed);
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
