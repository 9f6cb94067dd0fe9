/* One continuation per distinct kept set: see rollouts_plain.h. */
#include "calib/rollouts_plain.h"

#include <string.h>

ckvc_status rollout_baseline(session *s, const keep *k, uint32_t budget, const int32_t *continuation, uint32_t C, double *nll,
                             double *loss, ckvc_err *err)
{
    ckvc_status st = session_continue(s, continuation, C, k->sets + (size_t)budget * k->n_layers, nll, err);
    if (st == CKVC_OK) {
        *loss = nll_mean(nll, C);
    }
    return st;
}

ckvc_status rollouts_plain(session *s, const keep *k, variant_list *v, const int32_t *continuation, uint32_t C, kept_set *sets,
                           double *nll, ckvc_err *err)
{
    for (size_t i = 0; i < v->n; i++) {
        variant *item = &v->items[i];
        uint32_t offsets[2] = {0, item->n_kept};
        memcpy(sets, k->sets + (size_t)item->budget * k->n_layers, k->n_layers * sizeof *sets);
        sets[item->layer] = (kept_set){1, offsets, v->positions + item->first};
        ckvc_status st = session_continue(s, continuation, C, sets, nll, err);
        if (st != CKVC_OK) {
            return st;
        }
        item->loss = nll_mean(nll, C);
    }
    return CKVC_OK;
}
