/* One continuation per distinct kept set: see rollouts_plain.h. */
#include "calib/rollout/rollouts_plain.h"

#include <string.h>

static ckvc_status rollout(session *s, const kept_set *sets, const int32_t *continuation,
                           uint32_t C, double *nll, double *loss, ckvc_err *err) {
    ckvc_status st = session_continue(s, continuation, C, sets, nll, err);
    if (st == CKVC_OK) { *loss = nll_mean(nll, C); }
    return st;
}

ckvc_status rollout_baseline(session *s, const prompt_sets *k, uint32_t budget,
                             const int32_t *continuation, uint32_t C, double *nll, double *loss,
                             ckvc_err *err) {
    return rollout(s, k->sets + (size_t)budget * k->n_layers, continuation, C, nll, loss, err);
}

ckvc_status rollout_variant(session *s, const prompt_sets *k, const variant_list *v, size_t i,
                            const int32_t *continuation, uint32_t C, kept_set *sets, double *nll,
                            double *loss, ckvc_err *err) {
    const variant *item = &v->items[i];
    const uint32_t offsets[2] = {0, item->n_kept};
    memcpy(sets, k->sets + (size_t)item->budget * k->n_layers, k->n_layers * sizeof *sets);
    sets[item->layer] = (kept_set){1, offsets, v->positions + item->first};
    return rollout(s, sets, continuation, C, nll, loss, err);
}

ckvc_status rollouts_plain(session *s, const prompt_sets *k, variant_list *v,
                           const int32_t *continuation, uint32_t C, kept_set *sets, double *nll,
                           double *full, double *baseline, ckvc_err *err) {
    ckvc_status st = full ? rollout(s, NULL, continuation, C, nll, full, err) : CKVC_OK;
    for (uint32_t b = 0; st == CKVC_OK && b < k->n_budgets;
         b++) { /* budgets of one group share the rollout */
        if (v->group[b] == b) {
            st = rollout_baseline(s, k, b, continuation, C, nll, &baseline[b], err);
        } else {
            baseline[b] = baseline[v->group[b]];
        }
    }
    for (size_t i = 0; st == CKVC_OK && i < v->n; i++) {
        st = rollout_variant(s, k, v, i, continuation, C, sets, nll, &v->items[i].loss, err);
    }
    return st;
}
