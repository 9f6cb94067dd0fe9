/* Which runs, and which of their passes, a table was fitted from.
 *
 * A table's META names the plans of its passes. Those of one side may lie in any of the runs that
 * have these plans: a compiled run has both sides, each round's; made by hand with the four verbs,
 * each side has a run of its own; `fit a b` pools the last passes of both.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "report/report_internal.h"

static bool lists(const json_t *array, const char *text) {
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *v = json_string_value(json_array_get(array, i));
        if (v && strcmp(v, text) == 0) { return true; }
    }
    return false;
}

static uint64_t start_hash(const shard_header *h) {
    uint64_t parts[CKVC_SIDE_COUNT + 1] = {0};
    for (int s = 0; s < CKVC_SIDE_COUNT; s++) {
        const struct side side = shard_side_of(h, (ckvc_side)s);
        parts[s] =
            side.entries ? ckvc_xxh64(side.entries, side.n_states * sizeof *side.entries) : 0;
    }
    if (h->setting.layer_budgets.v) {
        parts[CKVC_SIDE_COUNT] = ckvc_xxh64(h->setting.layer_budgets.v, h->setting.layer_budgets.n * sizeof(double));
    }
    return ckvc_xxh64(parts, sizeof parts);
}

ckvc_status report_origins(report_run *run, ckvc_err *err) {
    size_t n = run_pass_count(run->dir);
    run->origins = ckvc_calloc(n, sizeof *run->origins);
    ckvc_status rc =
        run->origins ? CKVC_OK : ckvc_fail_memory(err, "report", n * sizeof *run->origins);
    for (size_t i = 0; i < n && rc == CKVC_OK; i++) {
        const run_pass *p = run_pass_at(run->dir, i);
        shard *first = NULL;
        rc = p->n_shards > 0 ? run_read_shard(run->dir, p, 0, &first, err) : CKVC_OK;
        if (first) {
            memcpy(run->origins[i].plan, first->h.plan, sizeof run->origins[i].plan);
            run->origins[i].start = start_hash(&first->h);
        }
        shard_free(first);
    }
    return rc;
}

ckvc_status report_fitted_from(report *r, report_table *t, ckvc_err *err) {
    const json_t *plans = json_object_get(t->f->meta, "plans");
    t->runs = ckvc_alloc(r->n_runs + 1, sizeof *t->runs);
    for (size_t i = 0; i < r->n_runs; i++) {
        const report_run *run = &r->runs[i];
        bool any = lists(plans, run_plan_hash(run->dir));
        for (size_t k = 0; k < run_pass_count(run->dir); k++) {
            any =
                any || (run_pass_at(run->dir, k)->number > 0 && lists(plans, run->origins[k].plan));
        }
        if (any) { t->runs[t->n_runs++] = i; }
    }
    return CKVC_OK;
}

void report_run_tags(const report *r, const size_t *runs, size_t n, char out[REPORT_TAGS]) {
    size_t at = 0;
    *out = 0;
    for (size_t i = 0; i < n && at < REPORT_TAGS; i++) {
        at += (size_t)snprintf(out + at, REPORT_TAGS - at, "%s%s", i ? ", " : "",
                               r->runs[runs[i]].tag);
    }
}

/* Pass k of the run, if its records may be the side's. */
static const run_pass *pass_at(const report_run *run, const report_table *t, int side, size_t k) {
    const run_pass *p = run_pass_at(run->dir, k);
    const ckvc_table *f = t->f->table;
    const shard_header *h = &run->h;
    bool has =
        strcmp(p->kind, ckvc_side_name((ckvc_side)side)) == 0 || strcmp(p->kind, "both") == 0;
    bool shaped = h->n_layers == f->n_layers && h->n_kv_heads == f->n_heads &&
                  h->n_budgets == f->n_budgets && h->n_entropy_bins == f->n_entropy_bins &&
                  h->n_ppl_bins == f->n_ppl_bins &&
                  h->side[CKVC_SIDE_HEAD].n_actions == f->n_head_actions &&
                  h->side[CKVC_SIDE_GATE].n_actions == f->n_gate_actions;
    bool named = lists(json_object_get(t->f->meta, "plans"), run->origins[k].plan);
    return has && shaped && named && p->complete && p->n_shards > 0 ? p : NULL;
}

bool report_gate_from(const report *r, const report_table *t, size_t run) {
    const report_side *gate = &t->sides[CKVC_SIDE_GATE];
    for (size_t i = 0; i < gate->n_runs; i++) {
        if (gate->runs[i] == run) { return true; }
    }
    bool named = false, other = false; /* its records are not known: the runs that it names, if one
                                          has a gate's, those that have */
    for (size_t i = 0; gate->n_runs == 0 && i < t->n_runs; i++) {
        bool has = false;
        for (size_t k = run_pass_count(r->runs[t->runs[i]].dir); k-- > 0 && !has;) {
            has = pass_at(&r->runs[t->runs[i]], t, CKVC_SIDE_GATE, k) != NULL;
        }
        if (t->runs[i] == run && has) { return true; }
        named |= t->runs[i] == run;
        other |= has;
    }
    return named && !other;
}

typedef struct candidate {
    const report_run *run;
    size_t index; /* of the run */
    const run_pass *pass;
    uint64_t start;
} candidate;

/* As a fit orders its inputs: by plan, then by path; of one run the last pass first. */
static int by_source(const void *pa, const void *pb) {
    const candidate *a = pa, *b = pb;
    int order = strcmp(run_plan_hash(a->run->dir), run_plan_hash(b->run->dir));
    order = order ? order : strcmp(run_path(a->run->dir), run_path(b->run->dir));
    if (order == 0 && a->index != b->index) { order = a->index < b->index ? -1 : 1; }
    return order ? order : b->pass->number - a->pass->number;
}

static ckvc_status candidates(const report *r, const report_table *t, int side, candidate **out,
                              size_t *n, ckvc_err *err) {
    size_t most = 0;
    for (size_t i = 0; i < t->n_runs; i++) {
        most += run_pass_count(r->runs[t->runs[i]].dir);
    }
    candidate *list = ckvc_alloc(most, sizeof *list);
    *out = list;
    *n = 0;
    for (size_t i = 0; i < t->n_runs; i++) {
        const report_run *run = &r->runs[t->runs[i]];
        for (size_t k = 0; k < run_pass_count(run->dir); k++) {
            const run_pass *p = pass_at(run, t, side, k);
            if (p) { list[(*n)++] = (candidate){run, t->runs[i], p, run->origins[k].start}; }
        }
    }
    qsort(list, *n, sizeof *list, by_source);
    return CKVC_OK;
}

/* The pool of all runs whose passes started as candidate `first` did; empty when an earlier one did
 * too, or no other. */
static void pool_from(const candidate *list, size_t n, size_t first, report_pool *out) {
    for (size_t i = 0; i < first; i++) {
        if (list[i].start == list[first].start) { return; }
    }
    for (size_t i = first; i < n; i++) {
        bool again = out->n > 0 &&
                     out->of[out->n - 1].run == list[i].index; /* an earlier pass of the same run */
        if (list[i].start == list[first].start && !again) {
            out->of[out->n++] = (struct report_pooled){list[i].index, list[i].pass};
        }
    }
    out->n = out->n > 1 ? out->n : 0;
}

ckvc_status report_pool_nth(const report *r, const report_table *t, int side, size_t k,
                            report_pool *out, ckvc_err *err) {
    candidate *list = NULL;
    size_t n = 0;
    *out = (report_pool){0, NULL};
    ckvc_status rc = candidates(r, t, side, &list, &n, err);
    if (rc == CKVC_OK && !(out->of = ckvc_alloc(n, sizeof *out->of))) {
        rc = ckvc_fail_memory(err, "report", n * sizeof *out->of);
    }
    if (rc == CKVC_OK && k < n) {
        out->of[out->n++] = (struct report_pooled){list[k].index, list[k].pass};
    }
    for (size_t first = 0, at = n; rc == CKVC_OK && k >= n && first < n && out->n == 0; first++) {
        pool_from(list, n, first, out);
        if (out->n > 0 && at++ < k) { out->n = 0; }
    }
    if (out->n == 0) {
        free(out->of);
        out->of = NULL;
    }
    free(list);
    return rc;
}
