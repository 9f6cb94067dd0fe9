/* How far the Spearman of two tables is fixed by the prompts that they were fitted from.
 *
 * Refits every table from its run's records under resampled prompts (cql/counts.h). `interval`: 2.5% and 97.5% points of rho over
 * bootstrap replicates of both. `split_half`: mean rho of one table's refits from two disjoint halves of its own prompts, which is what
 * no comparison with another corpus of half the size can exceed on average. Only where the records are here and are the table's own.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cql/counts.h"
#include "cql/rank.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/names.h"
#include "report/report_internal.h"

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

/* The pass whose head records the table was fitted from: the last complete one of its META that has any. */
static const run_pass *head_pass(const report_run *run, const json_t *meta)
{
    for (size_t i = run_pass_count(run->dir); i-- > 0;) {
        const run_pass *p = run_pass_at(run->dir, i);
        bool has = strcmp(p->kind, "head") == 0 || strcmp(p->kind, "both") == 0;
        if (has && p->complete && lists(json_object_get(meta, "passes"), p->name)) {
            return p;
        }
    }
    return NULL;
}

static int by_prompt(const void *pa, const void *pb)
{
    const struct shard_record *const *a = pa, *const *b = pb;
    if ((*a)->prompt != (*b)->prompt) {
        return (*a)->prompt < (*b)->prompt ? -1 : 1;
    }
    return *a < *b ? -1 : *a > *b;
}

static ckvc_status count_shard(const shard *s, bool advantage, cql_counts *into[2], ckvc_err *err)
{
    const struct shard_record **order = ckvc_alloc(s->n_records + 1, sizeof *order);
    if (!order) {
        return ckvc_fail_memory(err, "report", s->n_records * sizeof *order);
    }
    for (size_t i = 0; i < s->n_records; i++) {
        order[i] = &s->records[i];
    }
    qsort(order, s->n_records, sizeof *order, by_prompt);
    ckvc_status rc = CKVC_OK;
    uint32_t current = UINT32_MAX;
    for (size_t i = 0; i < s->n_records && rc == CKVC_OK; i++) {
        const struct shard_record *k = order[i];
        const struct shard_prompt *p = &s->prompts[k->prompt];
        if (k->side != CKVC_SIDE_HEAD || strcmp(p->split, "heldout") == 0) {
            continue;
        }
        size_t state = ((size_t)k->layer * s->h.n_kv_heads + k->head) * s->h.n_budgets + k->budget;
        double reward = advantage ? k->reward - k->baseline : k->reward;
        for (int set = 0; set < 2 && rc == CKVC_OK; set++) {
            if (k->prompt != current) {
                cql_counts_prompt(into[set], p->id);
            }
            rc = cql_counts_add(into[set], state, k->action, reward, reward, err);
        }
        current = k->prompt;
    }
    free(order);
    return rc;
}

/* The counts must be the table's own NHEAD, or the refits would be another fit's. */
static bool same_counts(const report_table *t, const cql_counts *c)
{
    size_t states = cql_counts_states(c), actions = cql_counts_actions(c);
    uint64_t *n = ckvc_alloc(actions, sizeof *n);
    double *mean = ckvc_alloc(actions, sizeof *mean);
    bool same = n && mean;
    for (size_t s = 0; same && s < states; s++) {
        cql_counts_state(c, s, 1.0, n, mean, NULL, NULL);
        same = memcmp(n, t->f->evidence.n_head + s * actions, actions * sizeof *n) == 0;
    }
    free(n);
    free(mean);
    return same;
}

/* choices[0]: bootstrap [R][S], choices[1]: halves [R][S]; *why is set, and choices left NULL, when they cannot be had. */
static ckvc_status refit(const report *r, const report_table *t, uint16_t *choices[2], char why[256], ckvc_err *err)
{
    const ckvc_table *k = t->f->table;
    const json_t *meta = t->f->meta, *reward = json_object_get(meta, "reward");
    double alpha = report_num(meta, "cql_alpha"), scale = report_num(reward, "scale_head");
    *why = 0;
    if (r->o->replicates < 2) {
        snprintf(why, 256, "no refits were asked for");
    } else if (t->run < 0) {
        snprintf(why, 256, "the run that %s was fitted from is not among the inputs", t->tag);
    } else if (!t->f->has_evidence || json_array_size(json_object_get(meta, "plans")) != 1) {
        snprintf(why, 256, "%s was not fitted from one run alone", t->tag);
    } else if (!(alpha >= 0) || !(scale > 0)) {
        snprintf(why, 256, "%s does not say how it was fitted", t->tag);
    }
    if (*why) {
        return CKVC_OK;
    }
    const report_run *run = &r->runs[t->run];
    const run_pass *pass = head_pass(run, meta);
    if (!pass || run->h.n_layers != k->n_layers || run->h.n_kv_heads != k->n_heads || run->h.n_budgets != k->n_budgets ||
        run->h.n_head_actions != k->n_head_actions) {
        snprintf(why, 256, "%s has no complete head pass of the shape of %s", run->tag, t->tag);
        return CKVC_OK;
    }
    size_t states = (size_t)k->n_layers * k->n_heads * k->n_budgets;
    uint32_t n = r->o->replicates / 2 * 2;
    cql_counts *counts[2] = {NULL, NULL};
    ckvc_err trouble = {0};
    ckvc_status rc = CKVC_OK;
    for (int set = 0; set < 2 && rc == CKVC_OK; set++) {
        rc = cql_counts_create(states, k->n_head_actions, n, set ? CQL_RESAMPLE_HALVES : CQL_RESAMPLE_BOOTSTRAP, r->o->seed,
                               r->o->memory_max / 2, &counts[set], &trouble);
    }
    if (rc) { /* too large: the report goes on without the interval */
        snprintf(why, 256, "%.250s", trouble.text);
        rc = CKVC_OK;
        goto done;
    }
    bool advantage = strcmp(report_str(reward, "kind"), "raw") != 0;
    for (size_t i = 0; i < pass->n_shards && rc == CKVC_OK; i++) {
        shard *s = NULL;
        rc = run_read_shard(run->dir, pass, i, &s, err);
        if (rc == CKVC_OK) {
            rc = count_shard(s, advantage, counts, err);
        }
        shard_free(s);
    }
    if (rc == CKVC_OK && !same_counts(t, counts[0])) {
        snprintf(why, 256, "the records of %s are not those that %s was fitted from", run->tag, t->tag);
        goto done;
    }
    for (int set = 0; set < 2 && rc == CKVC_OK; set++) {
        choices[set] = ckvc_alloc((size_t)n * states, sizeof(uint16_t));
        rc = choices[set] ? cql_counts_choices(counts[set], alpha, scale, k->head_grid, choices[set], err)
                          : ckvc_fail_memory(err, "report", (size_t)n * states * sizeof(uint16_t));
    }
done:
    cql_counts_free(counts[0]);
    cql_counts_free(counts[1]);
    return rc;
}

/* One replicate's weights of one budget; a state without records keeps the table's entry, as the fit does. */
static void weights_of(const report_table *t, const uint16_t *choices, uint32_t replicate, size_t b, double *out)
{
    const ckvc_table *k = t->f->table;
    size_t heads = (size_t)k->n_layers * k->n_heads, states = heads * k->n_budgets;
    for (size_t i = 0; i < heads; i++) {
        size_t s = i * k->n_budgets + b;
        uint16_t a = choices[(size_t)replicate * states + s];
        out[i] = a == CQL_NO_CHOICE ? (double)k->weight[s] : k->head_grid[a];
    }
}

static size_t budget_index(const ckvc_table *k, double budget)
{
    size_t b = 0;
    while (b + 1 < k->n_budgets && k->budgets[b] != budget) {
        b++;
    }
    return b;
}

static double half_mean(const report_table *t, const uint16_t *halves, uint32_t n, size_t b, double *x, double *y)
{
    size_t heads = (size_t)t->f->table->n_layers * t->f->table->n_heads;
    double sum = 0;
    uint32_t defined = 0;
    for (uint32_t i = 0; i + 1 < n; i += 2) {
        weights_of(t, halves, i, b, x);
        weights_of(t, halves, i + 1, b, y);
        double rho = rank_spearman(x, y, heads);
        if (isfinite(rho)) {
            sum += rho;
            defined++;
        }
    }
    return defined ? sum / defined : NAN;
}

ckvc_status report_refit(report *r, size_t a, size_t b, json_t *heads, ckvc_err *err)
{
    const report_table *t[2] = {&r->tables[a], &r->tables[b]};
    uint16_t *choices[2][2] = {{NULL, NULL}, {NULL, NULL}};
    size_t n_heads = (size_t)t[0]->f->table->n_layers * t[0]->f->table->n_heads;
    uint32_t n = r->o->replicates / 2 * 2;
    double *x = ckvc_alloc(n_heads, sizeof *x), *y = ckvc_alloc(n_heads, sizeof *y), *rho = ckvc_alloc((size_t)n + 1, sizeof *rho);
    char why[256] = "";
    ckvc_status rc = x && y && rho ? CKVC_OK : ckvc_fail_memory(err, "report", n_heads * 2 * sizeof *x);
    for (int i = 0; i < 2 && rc == CKVC_OK && !*why; i++) {
        rc = refit(r, t[i], choices[i], why, err);
    }
    for (size_t k = 0; k < json_array_size(heads) && rc == CKVC_OK; k++) {
        json_t *o = json_array_get(heads, k);
        json_object_set_new(o, "interval_missing", *why ? json_string(why) : json_null());
        if (*why) {
            continue;
        }
        double budget = report_num(o, "budget"), ends[2] = {NAN, NAN};
        size_t bi[2] = {budget_index(t[0]->f->table, budget), budget_index(t[1]->f->table, budget)};
        size_t defined = 0;
        for (uint32_t i = 0; i < n; i++) {
            weights_of(t[0], choices[0][0], i, bi[0], x);
            weights_of(t[1], choices[1][0], i, bi[1], y);
            double v = rank_spearman(x, y, n_heads);
            if (isfinite(v)) {
                rho[defined++] = v;
            }
        }
        if (defined >= 2) {
            static const double points[2] = {0.025, 0.975};
            rc = rank_quantile(rho, defined, points, 2, ends, err);
        }
        json_object_set_new(o, "lo", ckvc_json_real(ends[0]));
        json_object_set_new(o, "hi", ckvc_json_real(ends[1]));
        json_object_set_new(o, "replicates", json_integer(n));
        json_object_set_new(o, "replicates_defined", json_integer((json_int_t)defined));
        for (int i = 0; i < 2; i++) {
            json_object_set_new(o, i ? "split_half_b" : "split_half_a",
                                ckvc_json_real(half_mean(t[i], choices[i][1], n, bi[i], x, y)));
        }
    }
    for (int i = 0; i < 4; i++) {
        free(choices[i / 2][i % 2]);
    }
    free(x);
    free(y);
    free(rho);
    return rc;
}
