/* The sweep over a prompt's distinct variants: see rollouts_sweep.h. */
#include "calib/rollout/rollouts_sweep.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "calib/rollout/flops.h"
#include "lib/base/memory.h"

size_t sweep_bytes(int64_t max_lanes, uint32_t max_continuation, uint32_t n_budgets,
                   uint32_t n_layers, size_t max_variants) {
    const size_t a_lane = sizeof(uint32_t) + sizeof(rollout_lane) + sizeof(kept_set) +
                          2 * sizeof(uint32_t) + (size_t)max_continuation * sizeof(double);
    return (size_t)max_lanes * a_lane +
           ((size_t)n_budgets * n_layers + 1 + max_variants) * sizeof(uint32_t);
}

ckvc_status sweep_create(sweep *w, int64_t max_lanes, uint32_t max_continuation, uint32_t n_budgets,
                         uint32_t n_layers, size_t max_variants, ckvc_err *err) {
    const size_t lanes = (size_t)max_lanes;
    assert(max_lanes >= 2);
    *w = (sweep){.max_lanes = max_lanes, .max_continuation = max_continuation};
    w->order = ckvc_alloc(max_variants, sizeof *w->order);
    w->first = ckvc_alloc((size_t)n_budgets * n_layers + 1, sizeof *w->first);
    w->item = ckvc_alloc(lanes, sizeof *w->item);
    w->lanes = ckvc_alloc(lanes, sizeof *w->lanes);
    w->kept = ckvc_alloc(lanes, sizeof *w->kept);
    w->offsets = ckvc_alloc(lanes, sizeof *w->offsets);
    w->nll = ckvc_alloc(lanes * max_continuation, sizeof *w->nll);
    if (w->order && w->first && w->item && w->lanes && w->kept && w->offsets && w->nll) {
        return CKVC_OK;
    }
    sweep_fini(w);
    return ckvc_fail_memory(
        err, "the sweep",
        sweep_bytes(max_lanes, max_continuation, n_budgets, n_layers, max_variants));
}

void sweep_fini(sweep *w) {
    free(w->order);
    free(w->first);
    free(w->item);
    free(w->lanes);
    free(w->kept);
    free(w->offsets);
    free(w->nll);
    *w = (sweep){0};
}

/* w->order: the variants by (group, layer), counted, in the list's order within. */
static void sort_variants(sweep *w, const prompt_sets *k, const variant_list *v) {
    const size_t n_keys = (size_t)k->n_budgets * k->n_layers;
    memset(w->first, 0, (n_keys + 1) * sizeof *w->first);
    for (size_t i = 0; i < v->n; i++) {
        w->first[(size_t)v->group[v->items[i].budget] * k->n_layers + v->items[i].layer + 1]++;
    }
    for (size_t i = 0; i < n_keys; i++) {
        w->first[i + 1] += w->first[i];
    }
    for (size_t i = 0; i < v->n; i++) {
        w->order[w->first[(size_t)v->group[v->items[i].budget] * k->n_layers +
                          v->items[i].layer]++] = (uint32_t)i;
    }
}

/* The rollouts of one batch in the order of work: starts, then variants in w->item, which belong to
 * these starts. */
typedef struct batch {
    int64_t n_starts, n_variants;
    int64_t full;                                /* lane of the full cache, or -1 */
    int64_t start[PROMPT_SETS_MAX_BUDGETS];      /* lane of each group's baseline, or -1 */
    uint32_t group[PROMPT_SETS_MAX_BUDGETS + 1]; /* of each start */
} batch;

static int64_t add_start(batch *b, uint32_t group) {
    b->group[b->n_starts] = group;
    return b->start[group] = b->n_starts++;
}

/* Lanes from the batch: starts in front, then the variants by layer (each group's are in that order
 * already). */
static void fill_lanes(sweep *w, const prompt_sets *k, const variant_list *v, const batch *b) {
    for (int64_t i = 0; i < b->n_starts; i++) {
        w->lanes[i] = (rollout_lane){
            .parent = -1,
            .sets = i == b->full ? NULL : k->sets + (size_t)b->group[i] * k->n_layers};
    }
    int64_t n = b->n_starts;
    for (uint32_t l = 0; l < k->n_layers; l++) {
        for (int64_t i = 0; i < b->n_variants; i++) {
            const variant *item = &v->items[w->item[i]];
            if (item->layer != l) { continue; }
            w->offsets[n][0] = 0;
            w->offsets[n][1] = item->n_kept;
            w->kept[n] = (kept_set){1, w->offsets[n], v->positions + item->first};
            w->lanes[n] = (rollout_lane){.parent = (int32_t)b->start[v->group[item->budget]],
                                         .layer = (int32_t)l,
                                         .kept = &w->kept[n]};
            n++;
        }
    }
    assert(n == b->n_starts + b->n_variants);
}

/* Takes the losses of a batch to their places; lanes of variants are in the order of fill_lanes. */
static void store_losses(const sweep *w, const prompt_sets *k, variant_list *v, const batch *b,
                         uint32_t C, double *full, double *baseline) {
    for (int64_t i = 0; i < b->n_starts; i++) {
        const double loss = nll_mean(w->nll + (size_t)i * C, C);
        if (i == b->full) {
            *full = loss;
            continue;
        }
        for (uint32_t budget = 0; budget < k->n_budgets; budget++) {
            if (v->group[budget] == b->group[i]) { baseline[budget] = loss; }
        }
    }
    int64_t n = b->n_starts;
    for (uint32_t l = 0; l < k->n_layers; l++) {
        for (int64_t i = 0; i < b->n_variants; i++) {
            variant *item = &v->items[w->item[i]];
            if (item->layer == l) { item->loss = nll_mean(w->nll + (size_t)n++ * C, C); }
        }
    }
}

/* Fills the batch from what is left: the full cache's rollout, baselines that have no loss yet,
 * variants from order[*next] on with the baselines that they leave. false: nothing is left. */
static bool next_batch(sweep *w, const prompt_sets *k, const variant_list *v, bool *want_full,
                       bool done[PROMPT_SETS_MAX_BUDGETS], size_t *next, batch *b) {
    *b = (batch){.full = -1};
    for (uint32_t g = 0; g < k->n_budgets; g++) {
        b->start[g] = -1;
    }
    if (*want_full) {
        b->full = b->n_starts++;
        *want_full = false;
    }
    for (; *next < v->n; ++*next) {
        const uint32_t g = v->group[v->items[w->order[*next]].budget];
        const int64_t needs = b->start[g] < 0 ? 2 : 1;
        if (b->n_starts + b->n_variants + needs > w->max_lanes) { return true; }
        if (b->start[g] < 0) {
            add_start(b, g);
            done[g] = true;
        }
        w->item[b->n_variants++] = w->order[*next];
    }
    for (uint32_t g = 0; g < k->n_budgets && b->n_starts + b->n_variants < w->max_lanes;
         g++) { /* baselines that no variant leaves */
        if (v->group[g] == g && !done[g]) {
            add_start(b, g);
            done[g] = true;
        }
    }
    return b->n_starts > 0;
}

ckvc_status rollouts_sweep(sweep *w, session *s, const prompt_sets *k, variant_list *v,
                           const int32_t *continuation, uint32_t C, double *full, double *baseline,
                           ckvc_err *err) {
    batch b;
    bool want_full = full != NULL, done[PROMPT_SETS_MAX_BUDGETS] = {0};
    size_t next = 0;
    assert(C <= w->max_continuation);
    sort_variants(w, k, v);
    while (next_batch(w, k, v, &want_full, done, &next, &b)) {
        fill_lanes(w, k, v, &b);
        ckvc_status st =
            session_rollouts(s, continuation, C, w->lanes, b.n_starts + b.n_variants, w->nll, err);
        if (st != CKVC_OK) { return st; }
        store_losses(w, k, v, &b, C, full, baseline);
    }
    return CKVC_OK;
}

double rollouts_sweep_flops(const model_shape *shape, const prompt_sets *k, const variant_list *v,
                            uint32_t C) {
    uint32_t n_kept[MODEL_LAYERS_MAX];
    double total = flops_rollout(shape, k->n_tokens, C, NULL); /* the full cache's */
    for (uint32_t b = 0; b < k->n_budgets; b++) {
        if (v->group[b] != b) { continue; }
        for (uint32_t l = 0; l < k->n_layers; l++) {
            n_kept[l] = prompt_sets_at(k, b, l)->n_kept;
        }
        total += flops_rollout(shape, k->n_tokens, C, n_kept);
        for (size_t i = 0; i < v->n; i++) {
            if (v->group[v->items[i].budget] == b) {
                total +=
                    flops_variant(shape, C, (int32_t)v->items[i].layer, v->items[i].n_kept, n_kept);
            }
        }
    }
    return total;
}
