/* One continuation per distinct kept set: see rollouts.h. */
#include "calib/rollout/rollouts.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/base/progress.h"

size_t rollout_scratch_bytes(const rollout_extent *most) {
    const size_t lanes = (size_t)most->max_lanes,
                 plain = most->n_layers * sizeof(kept_set) +
                         lanes * most->max_continuation * sizeof(double);
    return lanes < 2
               ? plain
               : plain + lanes * (2 * sizeof(uint32_t) + sizeof(rollout_lane) + sizeof(kept_set)) +
                     ((size_t)most->n_budgets * most->n_layers + 1 + most->max_variants) *
                         sizeof(uint32_t);
}

void rollout_scratch_init(rollout_scratch *w, const rollout_extent *most) {
    const size_t lanes = (size_t)most->max_lanes;
    *w = (rollout_scratch){.most = *most};
    w->nll = ckvc_alloc(lanes * most->max_continuation, sizeof *w->nll);
    w->sets = ckvc_alloc(most->n_layers, sizeof *w->sets);
    if (lanes < 2) { return; }
    w->order = ckvc_alloc(most->max_variants, sizeof *w->order);
    w->first = ckvc_alloc((size_t)most->n_budgets * most->n_layers + 1, sizeof *w->first);
    w->item = ckvc_alloc(lanes, sizeof *w->item);
    w->of_lane = ckvc_alloc(lanes, sizeof *w->of_lane);
    w->lanes = ckvc_alloc(lanes, sizeof *w->lanes);
    w->kept = ckvc_alloc(lanes, sizeof *w->kept);
}

void rollout_scratch_fini(rollout_scratch *w) {
    free(w->nll);
    free(w->sets);
    free(w->order);
    free(w->first);
    free(w->item);
    free(w->of_lane);
    free(w->lanes);
    free(w->kept);
    *w = (rollout_scratch){0};
}

static ckvc_status rollout(rollout_scratch *w, const rollouts *r, const kept_set *sets,
                           double *loss, ckvc_err *err) {
    CKVC_TRY(session_continue(r->session, r->continuation, r->n_continuation, sets, w->nll, err));
    *loss = nll_mean(w->nll, r->n_continuation);
    ckvc_progress_step(1);
    return CKVC_OK;
}

ckvc_status rollout_baseline(rollout_scratch *w, const rollouts *r, uint32_t budget, double *loss,
                             ckvc_err *err) {
    return rollout(w, r, prompt_sets_baseline(r->sets, budget), loss, err);
}

ckvc_status rollout_variant(rollout_scratch *w, const rollouts *r, size_t i, double *loss,
                            ckvc_err *err) {
    const variant *item = &r->variants->items[i];
    memcpy(w->sets, prompt_sets_baseline(r->sets, item->budget),
           r->sets->n_layers * sizeof *w->sets);
    w->sets[item->layer] = variant_set(r->variants, i);
    return rollout(w, r, w->sets, loss, err);
}

ckvc_status rollouts_plain(rollout_scratch *w, rollouts *r, ckvc_err *err) {
    const variant_list *v = r->variants;
    CKVC_TRY(rollout(w, r, NULL, &r->full, err));
    for (uint32_t b = 0; b < r->sets->n_budgets; b++) {
        if (v->group[b] == b) {
            CKVC_TRY(rollout_baseline(w, r, b, &r->baseline[b], err));
        } else { /* budgets of one group share the rollout */
            r->baseline[b] = r->baseline[v->group[b]];
        }
    }
    for (size_t i = 0; i < v->n; i++) {
        CKVC_TRY(rollout_variant(w, r, i, &v->items[i].loss, err));
    }
    return CKVC_OK;
}
