/* Rollouts the fast way: all distinct variants of a prompt in one sweep of the layers (method.md
 * section 4), cut into batches that the memory allows. Every batch starts from the baselines that
 * its variants leave; a variant joins at its layer. Each rollout is the same bits as the plain
 * way's, whatever the batches: its rows have tiles of their own.
 */
#ifndef CKVC_ROLLOUTS_SWEEP_H
#define CKVC_ROLLOUTS_SWEEP_H

#include "calib/actions/prompt_sets.h"
#include "calib/actions/variants.h"
#include "lib/model/model.h"

/* More lanes than this buy no speed: the products are thousands of rows high by then. */
#define SWEEP_MAX_LANES 512

/* Scratch, sized once. */
typedef struct sweep {
    int64_t max_lanes; /* the session's; at least 2 */
    uint32_t max_continuation;
    uint32_t *order;        /* [max variants]: by group of budgets, then layer, then as listed */
    uint32_t *first;        /* [nB * L + 1] */
    uint32_t *item;         /* [max_lanes]: which variant a lane is */
    rollout_lane *lanes;    /* [max_lanes] */
    kept_set *kept;         /* [max_lanes] */
    uint32_t (*offsets)[2]; /* [max_lanes] */
    double *nll;            /* [max_lanes][C] */
} sweep;

size_t sweep_bytes(int64_t max_lanes, uint32_t max_continuation, uint32_t n_budgets,
                   uint32_t n_layers, size_t max_variants);
ckvc_status sweep_create(sweep *w, int64_t max_lanes, uint32_t max_continuation, uint32_t n_budgets,
                         uint32_t n_layers, size_t max_variants, ckvc_err *err) CKVC_MUST_CHECK;
void sweep_fini(sweep *w);

/* full (may be NULL: left out), baseline [nB] and every variant's loss, from the session's
 * prefilled prompt. v holds at most max_variants variants; losses may be non-finite. */
ckvc_status rollouts_sweep(sweep *w, session *s, const prompt_sets *k, variant_list *v,
                           const int32_t *continuation, uint32_t C, double *full, double *baseline,
                           ckvc_err *err) CKVC_MUST_CHECK;

/* Operations that one such call asks for, counted as flops.h says; baselines that a later batch
 * repeats are not counted again. */
double rollouts_sweep_flops(const model_shape *shape, const prompt_sets *k, const variant_list *v,
                            uint32_t C);

#endif
