/* Finds the runs, and the passes in them, that a table was fitted from.
 *
 * A table's META names the plans of its passes. The passes of one side may lie in any of the
 * runs that have these plans: a run of compile has both sides of every round; in a table made by
 * hand with the four verbs each side has a run of its own; and `fit a b` pools the last passes
 * of both runs. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "report/load/inputs.h"

static bool holds_text(const json_t *array, const char *text) {
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

ckvc_status fitted_starts(inputs *in, input_run *run, ckvc_err *err) {
    const size_t n = run_pass_count(run->dir);
    run->starts = arena_alloc(&in->arena, n, sizeof *run->starts);
    for (size_t i = 0; i < n; i++) {
        const run_pass *p = run_pass_at(run->dir, i);
        CKVC_AUTO(shard_free_at) shard *first = NULL;
        if (p->n_shards == 0) { continue; }
        CKVC_TRY(run_read_shard(run->dir, p, 0, &first, err));
        run->starts[i] = start_hash(&first->h);
    }
    return CKVC_OK;
}

void fitted_from(inputs *in, input_table *t) {
    const json_t *plans = json_object_get(t->f->meta, "plans");
    t->runs = arena_alloc(&in->arena, in->n_runs, sizeof(input_run *));
    for (size_t i = 0; i < in->n_runs; i++) {
        const input_run *run = &in->runs[i];
        bool any = holds_text(plans, run_plan_hash(run->dir));
        for (size_t k = 0; k < run_pass_count(run->dir); k++) {
            const run_pass *p = run_pass_at(run->dir, k);
            any |= p->number > 0 && p->n_shards > 0 && holds_text(plans, p->plan);
        }
        if (any) { t->runs[t->n_runs++] = run; }
    }
}

const char *input_run_tags(inputs *in, const input_table *t) {
    const char *tags = "";
    for (size_t i = 0; i < t->n_runs; i++) {
        tags = arena_text(&in->arena, "%s%s%s", tags, i ? ", " : "", t->runs[i]->tag);
    }
    return arena_text(&in->arena, "%.63s", tags);
}

/* Returns pass k of the run if its records may be the side's, else NULL. */
static const run_pass *pass_at(const input_run *run, const input_table *t, int side, size_t k) {
    const run_pass *p = run_pass_at(run->dir, k);
    const ckvc_table *f = t->f->table;
    const shard_header *h = &run->h;
    bool has = shard_pass_named(p->kind)->sides >> side & 1;
    bool shaped = h->n_layers == f->n_layers && h->n_kv_heads == f->n_heads &&
                  h->n_budgets == f->n_budgets && h->n_entropy_bins == f->n_entropy_bins &&
                  h->n_ppl_bins == f->n_ppl_bins;
    for (int s = 0; s < CKVC_SIDE_COUNT; s++) {
        shaped &= h->side[s].n_actions == side_of_table(f, (ckvc_side)s).actions.n;
    }
    bool named = holds_text(json_object_get(t->f->meta, "plans"), p->plan);
    return has && shaped && named && p->complete && p->n_shards > 0 ? p : NULL;
}

bool fitted_gate_from(const input_table *t, const input_run *run) {
    const pass_pool *gate = t->sides[CKVC_SIDE_GATE].from;
    for (size_t i = 0; gate && i < gate->n; i++) {
        if (gate->of[i].run == run) { return true; }
    }
    /* Where the gate's records are not known, these are the runs that the table names; if any of
     * them has a gate's pass, only those that have one. */
    bool named = false, has_one = false, any = false;
    for (size_t i = 0; !gate && i < t->n_runs; i++) {
        const bool same = t->runs[i] == run;
        named |= same;
        for (size_t k = 0; k < run_pass_count(t->runs[i]->dir); k++) {
            const bool has = pass_at(t->runs[i], t, CKVC_SIDE_GATE, k) != NULL;
            has_one |= same && has;
            any |= has;
        }
    }
    return has_one || (named && !any);
}

/* ---- pools ---- */

/* Orders passes as a fit orders its inputs: by plan, then by path; of one run the last pass
 * comes first. */
static int by_source(const void *pa, const void *pb) {
    const pooled_pass *a = pa, *b = pb;
    int order = strcmp(run_plan_hash(a->run->dir), run_plan_hash(b->run->dir));
    order = order ? order : strcmp(run_path(a->run->dir), run_path(b->run->dir));
    order = order ? order : (a->run > b->run) - (a->run < b->run);
    return order ? order : b->pass->number - a->pass->number;
}

static pooled_pass *candidates(inputs *in, const input_table *t, int side, size_t *n) {
    size_t most = 0;
    for (size_t i = 0; i < t->n_runs; i++) { most += run_pass_count(t->runs[i]->dir); }
    pooled_pass *list = arena_alloc(&in->arena, most, sizeof *list);
    for (size_t i = 0; i < t->n_runs; i++) {
        const input_run *run = t->runs[i];
        for (size_t k = 0; k < run_pass_count(run->dir); k++) {
            const run_pass *p = pass_at(run, t, side, k);
            if (p) { list[(*n)++] = (pooled_pass){run, p, run->starts[k]}; }
        }
    }
    qsort(list, *n, sizeof *list, by_source);
    return list;
}

size_t fitted_pools(inputs *in, const input_table *t, int side, pass_pool **out) {
    size_t n = 0, k = 0;
    pooled_pass *list = candidates(in, t, side, &n);
    pass_pool *pools = *out = arena_alloc(&in->arena, 2 * n, sizeof *pools);
    for (; k < n; k++) { pools[k] = (pass_pool){&list[k], 1}; }
    for (size_t first = 0; first < n; first++) {
        pass_pool p = {.of = arena_alloc(&in->arena, n, sizeof *p.of)};
        bool earlier = false;
        for (size_t i = 0; i < first; i++) { earlier |= list[i].start == list[first].start; }
        for (size_t i = first; i < n && !earlier; i++) { /* no earlier pass of the same run */
            const bool again = p.n > 0 && p.of[p.n - 1].run == list[i].run;
            if (list[i].start == list[first].start && !again) { p.of[p.n++] = list[i]; }
        }
        if (p.n > 1) { pools[k++] = p; }
    }
    return k;
}
