/* The sweep over a prompt's distinct variants: see rollouts.h. */
#include "calib/rollout/rollouts.h"

#include <assert.h>
#include <string.h>

#include "lib/base/progress.h"

/* Whose baseline a variant leaves. */
static uint32_t group_of(const variant_list *v, uint32_t i) { return v->group[v->items[i].budget]; }

/* w->order: the variants by (group, layer), counted, in the list's order within. */
static void sort_variants(rollout_scratch *w, const rollouts *r) {
    const variant_list *v = r->variants;
    const uint32_t L = r->sets->n_layers;
    const size_t n_keys = (size_t)r->sets->n_budgets * L;
    memset(w->first, 0, (n_keys + 1) * sizeof *w->first);
    for (uint32_t i = 0; i < v->n; i++) {
        w->first[(size_t)group_of(v, i) * L + v->items[i].layer + 1]++;
    }
    for (size_t i = 0; i < n_keys; i++) { w->first[i + 1] += w->first[i]; }
    for (uint32_t i = 0; i < v->n; i++) {
        w->order[w->first[(size_t)group_of(v, i) * L + v->items[i].layer]++] = i;
    }
}

/* The rollouts of one batch in the order of work: starts, then variants, which leave these starts.
 */
typedef struct batch {
    int64_t n_starts, n_variants;
    int64_t full;                                /* lane of the full cache, or -1 */
    int64_t start[PROMPT_SETS_MAX_BUDGETS];      /* lane of each group's baseline, or -1 */
    uint32_t group[PROMPT_SETS_MAX_BUDGETS + 1]; /* of each start */
} batch;

/* What is left for the batches to come. */
typedef struct what_is_left {
    bool full;                          /* the full cache's rollout is still wanted */
    bool done[PROMPT_SETS_MAX_BUDGETS]; /* groups whose baseline has its loss */
    size_t next;                        /* of order */
} what_is_left;

static void add_start(batch *b, what_is_left *left, uint32_t group) {
    b->group[b->n_starts] = group;
    b->start[group] = b->n_starts++;
    left->done[group] = true;
}

/* Fills the batch from what is left: the full cache's rollout, baselines that have no loss yet,
 * variants with the baselines that they leave -> w->item. false: nothing is left. */
static bool next_batch(rollout_scratch *w, const rollouts *r, what_is_left *left, batch *b) {
    const variant_list *v = r->variants;
    *b = (batch){.full = -1};
    for (uint32_t g = 0; g < r->sets->n_budgets; g++) { b->start[g] = -1; }
    if (left->full) { b->full = b->n_starts++; }
    left->full = false;
    for (; left->next < v->n; left->next++) {
        const uint32_t g = group_of(v, w->order[left->next]);
        const int64_t needs = b->start[g] < 0 ? 2 : 1;
        if (b->n_starts + b->n_variants + needs > w->most.max_lanes) { return true; }
        if (b->start[g] < 0) { add_start(b, left, g); }
        w->item[b->n_variants++] = w->order[left->next];
    }
    for (uint32_t g = 0; /* baselines that no variant leaves */
         g < r->sets->n_budgets && b->n_starts + b->n_variants < w->most.max_lanes; g++) {
        if (v->group[g] == g && !left->done[g]) { add_start(b, left, g); }
    }
    return b->n_starts > 0;
}

/* Lanes from the batch: starts in front, then the variants by layer (each group's are in that order
 * already). */
static void fill_lanes(rollout_scratch *w, const rollouts *r, const batch *b) {
    const variant_list *v = r->variants;
    int64_t n = 0;
    for (; n < b->n_starts; n++) {
        w->lanes[n] = (rollout_lane){
            .parent = -1, .sets = n == b->full ? NULL : prompt_sets_baseline(r->sets, b->group[n])};
    }
    for (uint32_t l = 0; l < r->sets->n_layers; l++) {
        for (int64_t i = 0; i < b->n_variants; i++) {
            const uint32_t at = w->item[i];
            if (v->items[at].layer != l) { continue; }
            w->of_lane[n] = at;
            w->kept[n] = variant_set(v, at);
            w->lanes[n] = (rollout_lane){.parent = (int32_t)b->start[group_of(v, at)],
                                         .layer = (int32_t)l,
                                         .kept = &w->kept[n]};
            n++;
        }
    }
    assert(n == b->n_starts + b->n_variants);
}

/* Takes the losses of a batch to their places. */
static void store_losses(const rollout_scratch *w, rollouts *r, const batch *b) {
    const variant_list *v = r->variants;
    for (int64_t i = 0; i < b->n_starts + b->n_variants; i++) {
        const uint32_t C = r->n_continuation;
        const double loss = nll_mean(w->nll + (size_t)i * C, C);
        if (i >= b->n_starts) {
            v->items[w->of_lane[i]].loss = loss;
        } else if (i == b->full) {
            r->full = loss;
        } else {
            for (uint32_t budget = 0; budget < r->sets->n_budgets; budget++) {
                if (v->group[budget] == b->group[i]) { r->baseline[budget] = loss; }
            }
        }
    }
}

ckvc_status rollouts_sweep(rollout_scratch *w, rollouts *r, ckvc_err *err) {
    batch b;
    what_is_left left = {.full = true};
    assert(r->n_continuation <= w->most.max_continuation && w->most.max_lanes >= 2);
    sort_variants(w, r);
    while (next_batch(w, r, &left, &b)) {
        fill_lanes(w, r, &b);
        CKVC_TRY(session_rollouts(r->session, r->continuation, r->n_continuation, w->lanes,
                                  b.n_starts + b.n_variants, w->nll, err));
        store_losses(w, r, &b);
        ckvc_progress_step((uint64_t)(b.n_starts + b.n_variants));
    }
    return CKVC_OK;
}
