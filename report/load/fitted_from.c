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
#include "report/load/inputs.h"

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
        parts[CKVC_SIDE_COUNT] =
            ckvc_xxh64(h->setting.layer_budgets.v, h->setting.layer_budgets.n * sizeof(double));
    }
    return ckvc_xxh64(parts, sizeof parts);
}

ckvc_status fitted_origins(inputs *in, input_run *run, ckvc_err *err) {
    const size_t n = run_pass_count(run->dir);
    run->origins = room_for(&in->room, n, sizeof *run->origins);
    for (size_t i = 0; i < n; i++) {
        const run_pass *p = run_pass_at(run->dir, i);
        CKVC_AUTO(shard_free_at) shard *first = NULL;
        if (p->n_shards == 0) { continue; }
        CKVC_TRY(run_read_shard(run->dir, p, 0, &first, err));
        memcpy(run->origins[i].plan, first->h.plan, sizeof run->origins[i].plan);
        run->origins[i].start = start_hash(&first->h);
    }
    return CKVC_OK;
}

void fitted_from(inputs *in, input_table *t) {
    const json_t *plans = json_object_get(t->f->meta, "plans");
    t->runs = room_for(&in->room, in->n_runs, sizeof *t->runs);
    for (size_t i = 0; i < in->n_runs; i++) {
        const input_run *run = &in->runs[i];
        bool any = lists(plans, run_plan_hash(run->dir));
        for (size_t k = 0; k < run_pass_count(run->dir); k++) {
            any |= run_pass_at(run->dir, k)->number > 0 && lists(plans, run->origins[k].plan);
        }
        if (any) { t->runs[t->n_runs++] = i; }
    }
}

const char *input_run_tags(inputs *in, const size_t *runs, size_t n) {
    const char *tags = "";
    for (size_t i = 0; i < n; i++) {
        tags = room_text(&in->room, "%s%s%s", tags, i ? ", " : "", in->runs[runs[i]].tag);
    }
    return room_text(&in->room, "%.63s", tags);
}

/* Pass k of the run, if its records may be the side's. */
static const run_pass *pass_at(const input_run *run, const input_table *t, int side, size_t k) {
    const run_pass *p = run_pass_at(run->dir, k);
    const ckvc_table *f = t->f->table;
    const shard_header *h = &run->h;
    bool has =
        strcmp(p->kind, ckvc_side_name((ckvc_side)side)) == 0 || strcmp(p->kind, "both") == 0;
    bool shaped = h->n_layers == f->n_layers && h->n_kv_heads == f->n_heads &&
                  h->n_budgets == f->n_budgets && h->n_entropy_bins == f->n_entropy_bins &&
                  h->n_ppl_bins == f->n_ppl_bins;
    for (int s = 0; s < CKVC_SIDE_COUNT; s++) {
        shaped &= h->side[s].n_actions == side_of_table(f, (ckvc_side)s).actions.n;
    }
    bool named = lists(json_object_get(t->f->meta, "plans"), run->origins[k].plan);
    return has && shaped && named && p->complete && p->n_shards > 0 ? p : NULL;
}

bool fitted_gate_from(const inputs *in, const input_table *t, size_t run) {
    const own_records *gate = &t->sides[CKVC_SIDE_GATE];
    for (size_t i = 0; i < gate->n_runs; i++) {
        if (gate->runs[i] == run) { return true; }
    }
    /* its records are not known: the runs that it names; where one has a gate's, those that have */
    bool named = false, other = false;
    for (size_t i = 0; gate->n_runs == 0 && i < t->n_runs; i++) {
        const input_run *of = &in->runs[t->runs[i]];
        bool has = false;
        for (size_t k = run_pass_count(of->dir); k-- > 0 && !has;) {
            has = pass_at(of, t, CKVC_SIDE_GATE, k) != NULL;
        }
        if (t->runs[i] == run && has) { return true; }
        named |= t->runs[i] == run;
        other |= has;
    }
    return named && !other;
}

/* ---- pools ---- */

typedef struct candidate {
    const input_run *run;
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

static candidate *candidates(const inputs *in, const input_table *t, int side, size_t *n) {
    size_t most = 0;
    for (size_t i = 0; i < t->n_runs; i++) { most += run_pass_count(in->runs[t->runs[i]].dir); }
    candidate *list = ckvc_alloc(most, sizeof *list);
    *n = 0;
    for (size_t i = 0; i < t->n_runs; i++) {
        const input_run *run = &in->runs[t->runs[i]];
        for (size_t k = 0; k < run_pass_count(run->dir); k++) {
            const run_pass *p = pass_at(run, t, side, k);
            if (p) { list[(*n)++] = (candidate){run, t->runs[i], p, run->origins[k].start}; }
        }
    }
    qsort(list, *n, sizeof *list, by_source);
    return list;
}

/* The pool of all runs whose passes started as candidate `first` did; empty when an earlier one did
 * too, or no other. */
static void pool_from(const candidate *list, size_t n, size_t first, pass_pool *out) {
    for (size_t i = 0; i < first; i++) {
        if (list[i].start == list[first].start) { return; }
    }
    for (size_t i = first; i < n; i++) {
        /* not an earlier pass of the same run */
        bool again = out->n > 0 && out->of[out->n - 1].run == list[i].index;
        if (list[i].start == list[first].start && !again) {
            out->of[out->n++] = (pooled_pass){list[i].index, list[i].pass};
        }
    }
    out->n = out->n > 1 ? out->n : 0;
}

pass_pool fitted_pool(inputs *in, const input_table *t, int side, size_t k) {
    size_t n = 0;
    CKVC_AUTO_FREE candidate *list = candidates(in, t, side, &n);
    pass_pool out = {.of = room_for(&in->room, n, sizeof *out.of)};
    if (k < n) { out.of[out.n++] = (pooled_pass){list[k].index, list[k].pass}; }
    for (size_t first = 0, at = n; k >= n && first < n && out.n == 0; first++) {
        pool_from(list, n, first, &out);
        if (out.n > 0 && at++ < k) { out.n = 0; }
    }
    return out;
}
