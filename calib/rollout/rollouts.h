/* The losses of one prompt: under the full cache, the baselines and the distinct variants (paper.md
 * section 4). There are two ways to compute them, and a check of one by the other:
 *
 *   plain  after one prefill, one continuation for each distinct kept set: slow and simple, the
 *          oracle
 *   sweep  all distinct variants in one sweep of the layers, cut into batches that the memory
 *          allows; every batch starts from the baselines that its variants leave, and a variant
 *          joins at its layer (rollouts.c)
 *   check  a share of what the sweep gave is computed again the plain way (--check-rollouts)
 *
 * Each rollout of a sweep gives the same bits as the plain way does, whatever the batches are,
 * because its rows have tiles of their own. */
#pragma once

#include "calib/actions/prompt_sets.h"
#include "calib/actions/variants.h"
#include "lib/model/model.h"

/* More lanes than this buy no speed: the products are thousands of rows high by then. */
#define SWEEP_MAX_LANES 512
#define CHECK_TOLERANCE 1e-5 /* nats; the same bits are expected */

/* Losses are means over the continuation in nats per token, and may be non-finite. With scratch
 * whose `by_kl` is set they are the divergences from the full cache instead. */
typedef struct rollouts {
    session *session;            /* holds the prefilled prompt */
    const prompt_sets *sets;     /* of that prompt */
    variant_list *variants;      /* variants of these sets; the loss of each item is filled in */
    const int32_t *continuation; /* [C] */
    uint32_t n_continuation;     /* C */
    /* The first n_later tokens of the continuation enter no loss. Only `score` has any. */
    uint32_t n_later;
    double full;      /* filled in */
    double *baseline; /* [nB], filled in */
} rollouts;

/* What decides how large scratch has to be. */
typedef struct rollout_extent {
    int64_t max_lanes; /* those of the session; 1 suffices for the plain way */
    uint32_t max_continuation, n_budgets, n_layers;
    size_t max_variants;
    bool divergence; /* as in the session's limits */
    bool by_kl;      /* whether losses are the divergences */
} rollout_extent;

/* Scratch of rollouts, whose size is set once. */
typedef struct rollout_scratch {
    rollout_extent most;
    double *nll;    /* [max_lanes][C] */
    double *kl;     /* [max_lanes][C] divergences, where the session has them */
    kept_set *sets; /* [L] the kept sets of a plain rollout */
    /* What follows is used by a sweep alone. */
    uint32_t *order;     /* [max variants] by group of budgets, then by layer, then as listed */
    uint32_t *first;     /* [nB * L + 1] */
    uint32_t *item;      /* [max_lanes] the variants of a batch, as they were taken */
    uint32_t *of_lane;   /* [max_lanes] which variant a lane is */
    rollout_lane *lanes; /* [max_lanes] */
    kept_set *kept;      /* [max_lanes] */
} rollout_scratch;

/* rollout_scratch_bytes returns how many bytes rollout_scratch_init allocates for this extent. The
 * caller releases the scratch with rollout_scratch_fini. */
size_t rollout_scratch_bytes(const rollout_extent *most);
void rollout_scratch_init(rollout_scratch *w, const rollout_extent *most);
void rollout_scratch_fini(rollout_scratch *w);

/* rollouts_job returns the job of lanes [n] of a prompt, which writes to w->nll and w->kl and
 * borrows all of its arguments. After it has run, rollouts_loss returns the loss of a lane. */
rollout_job rollouts_job(const rollout_scratch *w, const rollouts *r, const rollout_lane *lanes,
                         int64_t n);
double rollouts_loss(const rollout_scratch *w, const rollouts *r, int64_t lane);
/* Both compute one loss the plain way: under the baseline of one budget, or under variant i. */
ckvc_status rollout_baseline(rollout_scratch *w, const rollouts *r, uint32_t budget, double *loss,
                             ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status rollout_variant(rollout_scratch *w, const rollouts *r, size_t i, double *loss,
                            ckvc_err *err) CKVC_MUST_CHECK;
/* Computes all losses of the prompt, one rollout after the other. */
ckvc_status rollouts_plain(rollout_scratch *w, rollouts *r, ckvc_err *err) CKVC_MUST_CHECK;
/* One prompt of several whose sweeps go together. */
typedef struct prompt_rollouts {
    rollout_scratch *scratch;
    rollouts *losses;
} prompt_rollouts;
/* Makes the sweeps of n prompts side by side through the layers, a batch of each prompt at a time,
 * and fills in their losses. The sessions of the prompts are of one sessions_create. They have at
 * least 2 lanes, and so have their scratches. */
ckvc_status rollouts_sweep_together(const prompt_rollouts *of, int64_t n,
                                    ckvc_err *err) CKVC_MUST_CHECK;

/* Which rollouts a check computes again. */
typedef struct rollouts_sample {
    double share; /* 0 to 1 */
    uint64_t seed;
    const char *prompt_id;
} rollouts_sample;
/* Computes again the baselines and variants whose hash of (seed, prompt, budget group, layer, set)
 * falls into the share. Where a loss differs by more than CHECK_TOLERANCE the status is
 * CKVC_CHECK_FAILED, with the prompt and the action. *n_checked is increased by the number of
 * losses that were checked. */
ckvc_status rollouts_check(rollout_scratch *w, const rollouts *r, const rollouts_sample *of,
                           uint64_t *n_checked, ckvc_err *err) CKVC_MUST_CHECK;
