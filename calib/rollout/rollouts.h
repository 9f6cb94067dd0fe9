/* The losses of one prompt: full cache, baselines, distinct variants (paper.md section 4).
 *
 *   plain  after one prefill, one continuation per distinct kept set: slow and simple, the oracle
 *   sweep  all distinct variants in one sweep of the layers, cut into batches that the memory
 *          allows; every batch starts from the baselines that its variants leave, a variant joins
 *          at its layer (rollouts.c)
 *   check  a share of what the sweep gave once more, the plain way (--check-rollouts)
 *
 * Each rollout of a sweep is the same bits as the plain way's, whatever the batches: its rows have
 * tiles of their own.
 */
#pragma once

#include "calib/actions/prompt_sets.h"
#include "calib/actions/variants.h"
#include "lib/model/model.h"

/* More lanes than this buy no speed: the products are thousands of rows high by then. */
#define SWEEP_MAX_LANES 512
#define CHECK_TOLERANCE 1e-5 /* nats; the same bits are expected */

/* Losses are means over the continuation in nats per token, and may be non-finite. With scratch
 * whose `by_kl` is set they are the divergences from the full cache. */
typedef struct rollouts {
    session *session;            /* holding the prefilled prompt */
    const prompt_sets *sets;     /* of that prompt */
    variant_list *variants;      /* of these sets; each item's loss is filled */
    const int32_t *continuation; /* [C] */
    uint32_t n_continuation;     /* C */
    /* The first n_later of these tokens enter no loss; only `score` has any. */
    uint32_t n_later;
    double full;      /* filled */
    double *baseline; /* [nB], filled */
} rollouts;

/* How large scratch has to be. */
typedef struct rollout_extent {
    int64_t max_lanes; /* the session's; 1: for the plain way alone */
    uint32_t max_continuation, n_budgets, n_layers;
    size_t max_variants;
    bool divergence; /* of the session's limits */
    bool by_kl;      /* losses are the divergences */
} rollout_extent;

/* Scratch, sized once. */
typedef struct rollout_scratch {
    rollout_extent most;
    double *nll;    /* [max_lanes][C] */
    double *kl;     /* the same of divergences, where the session has them */
    kept_set *sets; /* [L] of a plain rollout */
    /* of a sweep: */
    uint32_t *order;     /* [max variants]: by group of budgets, then layer, then as listed */
    uint32_t *first;     /* [nB * L + 1] */
    uint32_t *item;      /* [max_lanes]: variants of a batch, as they were taken */
    uint32_t *of_lane;   /* [max_lanes]: which variant a lane is */
    rollout_lane *lanes; /* [max_lanes] */
    kept_set *kept;      /* [max_lanes] */
} rollout_scratch;

size_t rollout_scratch_bytes(const rollout_extent *most);
void rollout_scratch_init(rollout_scratch *w, const rollout_extent *most);
void rollout_scratch_fini(rollout_scratch *w);

/* n lanes of a prompt, into w->nll and w->kl; and then a lane's loss. */
rollout_job rollouts_job(const rollout_scratch *w, const rollouts *r, const rollout_lane *lanes,
                         int64_t n);
double rollouts_loss(const rollout_scratch *w, const rollouts *r, int64_t lane);
/* One loss: under the baseline of one budget, under variant i. */
ckvc_status rollout_baseline(rollout_scratch *w, const rollouts *r, uint32_t budget, double *loss,
                             ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status rollout_variant(rollout_scratch *w, const rollouts *r, size_t i, double *loss,
                            ckvc_err *err) CKVC_MUST_CHECK;
/* Computes all losses of the prompt, one rollout after the other. */
ckvc_status rollouts_plain(rollout_scratch *w, rollouts *r, ckvc_err *err) CKVC_MUST_CHECK;
/* The sweeps of n prompts, whose sessions are of one sessions_create and have at least 2 lanes, as
 * their scratches have, side by side through the layers: a batch of each at a time. */
typedef struct prompt_rollouts {
    rollout_scratch *scratch;
    rollouts *losses;
} prompt_rollouts;
ckvc_status rollouts_sweep_together(const prompt_rollouts *of, int64_t n,
                                    ckvc_err *err) CKVC_MUST_CHECK;

typedef struct rollouts_sample {
    double share;
    uint64_t seed;
    const char *prompt_id;
} rollouts_sample;
/* Baselines and variants whose hash of (seed, prompt, budget group, layer, set) falls into the
 * share are done again; one that differs by more than CHECK_TOLERANCE is CKVC_CHECK_FAILED with the
 * prompt and the action. *n_checked counts on. */
ckvc_status rollouts_check(rollout_scratch *w, const rollouts *r, const rollouts_sample *of,
                           uint64_t *n_checked, ckvc_err *err) CKVC_MUST_CHECK;
