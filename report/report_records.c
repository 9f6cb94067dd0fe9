/* The records that a table was fitted from, prompt by prompt, and its refits from resampled prompts (cql/logged.h).
 *
 * Only where the run is among the inputs and the records, counted, are the table's own.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cql/cql.h"
#include "lib/base/memory.h"
#include "report/report_internal.h"

#define WORK_MAX 1.5e9 /* multiplications of one side's refits: with the bounds on entries a few seconds */
#define BOOT_MIN 100u

static bool lists(const json_t *array, const char *text)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *v = json_string_value(json_array_get(array, i));
        if (v && strcmp(v, text) == 0) {
            return true;
        }
    }
    return false;
}

ckvc_status report_pass_plans(report_run *run, ckvc_err *err)
{
    size_t n = run_pass_count(run->dir);
    run->pass_plans = ckvc_calloc(n, sizeof *run->pass_plans);
    ckvc_status rc = run->pass_plans ? CKVC_OK : ckvc_fail_memory(err, "report", n * sizeof *run->pass_plans);
    for (size_t i = 0; i < n && rc == CKVC_OK; i++) {
        const run_pass *p = run_pass_at(run->dir, i);
        shard *first = NULL;
        rc = p->n_shards > 0 ? run_read_shard(run->dir, p, 0, &first, err) : CKVC_OK;
        if (first) {
            memcpy(run->pass_plans[i], first->h.plan, sizeof run->pass_plans[i]);
        }
        shard_free(first);
    }
    return rc;
}

bool report_fitted_from(const report_table *t, const report_run *run)
{
    const json_t *plans = json_object_get(t->f->meta, "plans");
    bool any = lists(plans, run_plan_hash(run->dir));
    for (size_t i = 0; i < run_pass_count(run->dir); i++) {
        any = any || (run_pass_at(run->dir, i)->number > 0 && lists(plans, run->pass_plans[i]));
    }
    return any;
}

/* Number of the last complete pass before `before` that has records of the side and a plan that the table names; `before` when there is none. */
static size_t pass_of(const report_run *run, const json_t *meta, int side, size_t before)
{
    for (size_t i = before; i-- > 0;) {
        const run_pass *p = run_pass_at(run->dir, i);
        bool has = strcmp(p->kind, ckvc_side_name((ckvc_side)side)) == 0 || strcmp(p->kind, "both") == 0;
        if (has && p->complete && p->n_shards > 0 && lists(json_object_get(meta, "plans"), run->pass_plans[i])) {
            return i;
        }
    }
    return before;
}

/* ---- one shard ---- */

typedef struct rollout {
    uint32_t prompt, layer, budget;
    uint64_t set;
} rollout;

static int by_rollout(const void *pa, const void *pb)
{
    const rollout *a = pa, *b = pb;
    if (a->prompt != b->prompt) {
        return a->prompt < b->prompt ? -1 : 1;
    }
    if (a->layer != b->layer) {
        return a->layer < b->layer ? -1 : 1;
    }
    if (a->budget != b->budget) {
        return a->budget < b->budget ? -1 : 1;
    }
    return (a->set > b->set) - (a->set < b->set);
}

/* What a shard's records are read with: row numbers by prompt, the baseline's loss per prompt and budget. */
typedef struct reader {
    const shard *s;
    int side;
    size_t *first; /* [prompts+1] */
    uint32_t *order;
    double *losses; /* [prompts][nB], NaN: none */
    rollout *rollouts;
    size_t n_rollouts;
} reader;

static ckvc_status open_reader(reader *x, ckvc_err *err)
{
    const shard *s = x->s;
    size_t pairs = s->n_prompts * s->h.n_budgets;
    x->first = ckvc_calloc(s->n_prompts + 1, sizeof *x->first);
    x->order = ckvc_alloc(s->n_records, sizeof *x->order);
    x->losses = ckvc_alloc(pairs, sizeof *x->losses);
    x->rollouts = ckvc_alloc(s->n_records, sizeof *x->rollouts);
    if (!x->first || !x->order || !x->losses || !x->rollouts) {
        return ckvc_fail_memory(err, "report", s->n_records * (sizeof *x->order + sizeof *x->rollouts));
    }
    for (size_t i = 0; i < pairs; i++) {
        x->losses[i] = NAN;
    }
    for (size_t i = 0; i < s->n_baselines; i++) {
        x->losses[(size_t)s->baselines[i].prompt * s->h.n_budgets + s->baselines[i].budget] = s->baselines[i].loss;
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

static void close_reader(reader *x)
{
    free(x->first);
    free(x->order);
    free(x->losses);
    free(x->rollouts);
}

static size_t state_of(const shard_header *h, const struct shard_record *k, const struct shard_prompt *p)
{
    if (k->side == CKVC_SIDE_HEAD) {
        return ((size_t)k->layer * h->n_kv_heads + k->head) * h->n_budgets + k->budget;
    }
    return (((size_t)k->layer * h->n_entropy_bins + p->bin_entropy) * h->n_ppl_bins + p->bin_ppl) * h->n_budgets + k->budget;
}

/* The records of prompt i, if there are any. */
static ckvc_status read_prompt(reader *x, size_t i, cql_logged *into, ckvc_err *err)
{
    const struct shard_prompt *p = &x->s->prompts[i];
    bool named = false;
    for (size_t k = x->first[i]; k < x->first[i + 1]; k++) {
        const struct shard_record *r = &x->s->records[x->order[k]];
        double before = x->losses[i * x->s->h.n_budgets + r->budget];
        if (r->side != x->side) {
            continue;
        }
        ckvc_status rc = named ? CKVC_OK : cql_logged_prompt(into, p->id, err);
        named = true;
        if (rc == CKVC_OK) {
            double part = isnan(before) ? r->reward - r->baseline : -(r->loss - before);
            rc = cql_logged_add(into, state_of(&x->s->h, r, p), r->action, r->reward - r->baseline, part, r->baseline, err);
        }
        if (rc) {
            return rc;
        }
        if (r->loss != before) { /* the unperturbed set needs no rollout of its own */
            x->rollouts[x->n_rollouts++] = (rollout){(uint32_t)i, r->layer, r->budget, r->set_hash};
        }
    }
    return CKVC_OK;
}

static ckvc_status read_shard(const shard *s, int side, cql_logged *into, double *rollouts, ckvc_err *err)
{
    reader x = {.s = s, .side = side};
    ckvc_status rc = open_reader(&x, err);
    for (size_t i = 0; i < s->n_prompts && rc == CKVC_OK; i++) {
        if (strcmp(s->prompts[i].split, "heldout") != 0) {
            rc = read_prompt(&x, i, into, err);
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

/* The counts must be the table's own NHEAD or NGATE, or the refits would be another fit's. */
static bool same_counts(const report_table *t, int side, const cql_logged *l)
{
    const uint64_t *own = side == CKVC_SIDE_HEAD ? t->f->evidence.n_head : t->f->evidence.n_gate;
    uint64_t n[CQL_MAX_ACTIONS];
    double mean[CQL_MAX_ACTIONS];
    for (size_t s = 0; s < l->n_states; s++) {
        cql_logged_state(l, s, &cql_all, CQL_ADVANTAGE, 1.0, n, mean);
        if (memcmp(n, own + s * l->n_actions, l->n_actions * sizeof *n) != 0) {
            return false;
        }
    }
    return true;
}

static ckvc_status table_actions(const report_table *t, int side, const shard_header *h, report_side *s, ckvc_err *err)
{
    const ckvc_table *k = t->f->table;
    bool head = side == CKVC_SIDE_HEAD;
    size_t n = s->logged->n_states;
    uint32_t A = (uint32_t)s->logged->n_actions;
    const float *own = head ? k->weight : k->tau, *start = head ? h->start_weight : h->start_tau;
    s->incoming = ckvc_alloc(n, sizeof *s->incoming);
    s->chosen = ckvc_alloc(n, sizeof *s->chosen);
    if (!s->incoming || !s->chosen) {
        return ckvc_fail_memory(err, "report", n * sizeof *s->chosen);
    }
    for (size_t i = 0; i < n; i++) {
        int chosen = ckvc_grid_index(s->grid, A, own[i]), before = ckvc_grid_index(s->grid, A, start[i]);
        if (chosen < 0 || before < 0) {
            snprintf(s->why, sizeof s->why, "%s has an entry that is not on its grid", t->tag);
            return CKVC_OK;
        }
        s->chosen[i] = chosen;
        /* A state that never had records is what the fit's rule made of it in every refit; else the fit starts from the run's table. */
        s->incoming[i] = cql_logged_prompts(s->logged, i) == 0 ? chosen : before;
    }
    return CKVC_OK;
}

/* All records of one pass into s->logged, and the table's actions when they are its own; else s->why says what is the matter. */
static ckvc_status read_pass(const report *r, report_table *t, int side, const run_pass *pass, ckvc_err *err)
{
    const ckvc_table *k = t->f->table;
    report_side *s = &t->sides[side];
    bool head = side == CKVC_SIDE_HEAD;
    size_t states = (size_t)k->n_layers * k->n_budgets * (head ? k->n_heads : (size_t)k->n_entropy_bins * k->n_ppl_bins);
    ckvc_err trouble = {0};
    *s->why = 0;
    s->rollouts = 0;
    ckvc_status rc = cql_logged_create(states, head ? k->n_head_actions : k->n_gate_actions, !head,
                                       r->o->memory_max / (2 * r->n_tables), &s->logged, &trouble);
    for (size_t i = 0; i < pass->n_shards && rc == CKVC_OK; i++) {
        shard *one = NULL;
        if ((rc = run_read_shard(r->runs[t->run].dir, pass, i, &one, err)) != CKVC_OK) {
            return rc;
        }
        rc = read_shard(one, side, s->logged, &s->rollouts, &trouble);
        if (rc == CKVC_OK && i + 1 == pass->n_shards && (rc = cql_logged_finish(s->logged, &trouble)) == CKVC_OK) {
            if (s->logged->n_blocks > 0 && same_counts(t, side, s->logged)) {
                rc = table_actions(t, side, &one->h, s, &trouble);
            } else {
                snprintf(s->why, sizeof s->why, "the %s records of %s are not those that %s was fitted from",
                         ckvc_side_name((ckvc_side)side), r->runs[t->run].tag, t->tag);
            }
        }
        shard_free(one);
    }
    if (rc) { /* too large: the report goes on without */
        snprintf(s->why, sizeof s->why, "%.250s", trouble.text);
    }
    if (*s->why) {
        cql_logged_free(s->logged);
        s->logged = NULL;
    }
    return CKVC_OK;
}

static ckvc_status read_side(const report *r, report_table *t, int side, ckvc_err *err)
{
    const ckvc_table *k = t->f->table;
    const json_t *meta = t->f->meta, *reward = json_object_get(meta, "reward");
    report_side *s = &t->sides[side];
    bool head = side == CKVC_SIDE_HEAD;
    double alpha = report_num(meta, "cql_alpha"), scale = report_num(reward, head ? "scale_head" : "scale_gate");
    if (t->f->xfer) {
        snprintf(s->why, sizeof s->why, "%s was mapped from another table, not fitted", t->tag);
    } else if (t->run < 0) {
        snprintf(s->why, sizeof s->why, "the run that %s was fitted from is not among the inputs", t->tag);
    } else if (!t->f->has_evidence || !(alpha >= 0) || !(scale > 0)) {
        snprintf(s->why, sizeof s->why, "%s does not say how it was fitted", t->tag);
    }
    if (*s->why) {
        return CKVC_OK;
    }
    const report_run *run = &r->runs[t->run];
    const shard_header *h = &run->h;
    size_t pass = pass_of(run, meta, side, run_pass_count(run->dir));
    if (pass == run_pass_count(run->dir) || h->n_layers != k->n_layers || h->n_kv_heads != k->n_heads ||
        h->n_budgets != k->n_budgets || h->n_entropy_bins != k->n_entropy_bins || h->n_ppl_bins != k->n_ppl_bins ||
        h->n_head_actions != k->n_head_actions || h->n_gate_actions != k->n_gate_actions || k->n_head_actions > CQL_MAX_ACTIONS ||
        k->n_gate_actions > CQL_MAX_ACTIONS) {
        snprintf(s->why, sizeof s->why, "%s has no complete %s pass of the shape of %s", run->tag, ckvc_side_name((ckvc_side)side),
                 t->tag);
        return CKVC_OK;
    }
    s->grid = head ? k->head_grid : k->gate_grid;
    s->fit =
        (cql_fit){alpha, scale, head ? k->head_grid : NULL, strcmp(report_str(reward, "kind"), "raw") ? CQL_ADVANTAGE : CQL_RAW};
    s->neutral = ckvc_grid_index(s->grid, head ? k->n_head_actions : k->n_gate_actions,
                                 (float)(head ? ckvc_head_action(CKVC_HEAD_NEUTRAL) : ckvc_gate_action(CKVC_GATE_START)));
    /* A table of a later round names the plans of the earlier ones too: its own pass is the last whose counts are its counts. */
    for (size_t before = pass + 1; !s->logged && (pass = pass_of(run, meta, side, before)) < before; before = pass) {
        ckvc_status rc = read_pass(r, t, side, run_pass_at(run->dir, pass), err);
        if (rc) {
            return rc;
        }
    }
    return CKVC_OK;
}

static ckvc_status refit(const report *r, report_side *s, ckvc_err *err)
{
    const cql_logged *l = s->logged;
    double each = (double)l->n_blocks * (double)l->n_actions;
    if (!l->whole) {
        each += (double)l->n_states * (double)l->n_actions * 400; /* the solver's exp and log */
    }
    uint32_t most = WORK_MAX / each < r->o->replicates ? (uint32_t)(WORK_MAX / each) : r->o->replicates;
    s->n_boot = most > BOOT_MIN || r->o->replicates < BOOT_MIN ? most : BOOT_MIN;
    s->n_halves = 2 * REPORT_SPLITS < s->n_boot ? 2 * REPORT_SPLITS : s->n_boot / 2 * 2;
    s->boot_choices = ckvc_alloc((size_t)s->n_boot * l->n_states, sizeof *s->boot_choices);
    s->half_choices = ckvc_alloc((size_t)s->n_halves * l->n_states, sizeof *s->half_choices);
    if (!s->boot_choices || !s->half_choices) {
        return ckvc_fail_memory(err, "report", ((size_t)s->n_boot + s->n_halves) * l->n_states * sizeof *s->boot_choices);
    }
    uint8_t *halves = NULL;
    ckvc_status rc = cql_logged_weights(l, s->n_boot, CQL_RESAMPLE_BOOTSTRAP, r->o->seed, &s->boot, err);
    if (rc == CKVC_OK) {
        rc = cql_logged_choices(l, s->boot, s->n_boot, &s->fit, s->boot_choices, err);
    }
    if (rc == CKVC_OK && (rc = cql_logged_weights(l, s->n_halves, CQL_RESAMPLE_HALVES, r->o->seed, &halves, err)) == CKVC_OK) {
        rc = cql_logged_choices(l, halves, s->n_halves, &s->fit, s->half_choices, err);
    }
    free(halves);
    return rc;
}

ckvc_status report_records(report *r, ckvc_err *err)
{
    for (size_t i = 0; i < r->n_tables; i++) {
        for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
            report_side *s = &r->tables[i].sides[side];
            ckvc_status rc = read_side(r, &r->tables[i], side, err);
            if (rc == CKVC_OK && s->logged && r->o->replicates > 0) {
                rc = refit(r, s, err);
            }
            if (rc) {
                return rc;
            }
        }
    }
    return CKVC_OK;
}

void report_records_free(report_side *s)
{
    cql_logged_free(s->logged);
    free(s->incoming);
    free(s->chosen);
    free(s->boot);
    free(s->boot_choices);
    free(s->half_choices);
}

stability_side report_stability_side(const report_table *t, int side)
{
    const report_side *s = &t->sides[side];
    return (stability_side){s->logged, s->fit, s->grid, s->incoming, t->f->table->n_budgets};
}
