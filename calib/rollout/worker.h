/* A worker takes one prompt at a time. It holds a session, what the prompt keeps under a table and
 * under its actions, and the losses of all of these. Calibration, the grid search and the
 * benchmarks each drive a worker; a calibration drives several where their prompts go through the
 * layers together. The caller decides which prompts come in what order, and what becomes of the
 * losses.
 *
 * worker_open sizes everything once, for the longest prompt, so that nothing allocates between a
 * prompt's tokens and its losses. Call worker_prefill, worker_keep and worker_rollouts for each
 * prompt, in this order. */
#pragma once

#include "calib/actions/variants.h"
#include "calib/prompt/prompts.h"
#include "calib/rollout/memory_plan.h"
#include "calib/rollout/rollouts.h"
#include "lib/model/model.h"

/* What a pass runs on; all borrowed. */
typedef struct calibrate_inputs {
    model *model;
    backend *backend;
    const manifest *manifest;
    const prompt_list *prompts;
} calibrate_inputs;

/* How losses are computed: all variants of a prompt in one sweep of the layers, or one continuation
 * each. The same bits either way. */
typedef enum rollout_way { ROLLOUTS_SWEEP, ROLLOUTS_PLAIN } rollout_way;

typedef struct worker_options {
    setting setting;            /* borrows */
    behaviour_policy behaviour; /* greedy is the worker's own to make */
    rollout_way rollouts;
    size_t memory; /* bytes; 0: three quarters of what is free */
    /* For who looks at what later rows attend to (calib/demand): tokens of a target_job, and
     * bytes that it holds beside the worker. */
    uint32_t max_targets;
    uint32_t max_counted; /* positions of a target_input's `counted` */
    uint32_t max_watched; /* last rows that w->watcher is shown, */
    bool watched_later;   /* and by session_show */
    bool
        divergence; /* full-cache losses keep what rollouts are held against; --loss kl does, too */
    size_t beside, once; /* of each prompt; whatever their number */
    size_t held;         /* of the backend's memory, by others, beside all workers */
    int64_t most_lanes;  /* without a table: rollouts side by side at most; 0: none are */
    int64_t n_rollouts;  /* likewise: of a prompt in all; 0: as most_lanes */
    double steps; /* passes beside, a prompt's share of them: decoding, while workers are open */
    /* Prompts that may go through the layers together, at most (workers_open); 0: one at a time */
    int64_t most_prompts;
} worker_options;

typedef struct worker {
    worker_options o;
    session *session;
    prompt_sets *sets; /* NULL without a table */
    variant_list variants;
    rollout_scratch scratch;
    memory_plan plan;
    double share; /* of random choices under BEHAVIOUR_EPSILON_GREEDY; set before worker_keep */
    const prefill_watcher *watcher; /* of the next prefill, or NULL */
    double *attended; /* [L][G][T] of the next full-cache loss (rollout_job.targets), or NULL */
    uint32_t fed; /* tokens behind the next prompt, where these are more than its continuation */
    /* the prompt in hand */
    prefill_stats stats;
    rollouts losses; /* of these sets and variants */
} worker;

/* Opens a worker that is sized for the longest of in->prompts. table is borrowed; NULL allows
 * prefills and full caches alone. CKVC_E_MEMORY when the memory does not hold the worker; give it
 * to worker_close even then. Do not move an open worker, because it points into itself. */
ckvc_status worker_open(worker *w, const calibrate_inputs *in, const worker_options *o,
                        const ckvc_table *table, ckvc_err *err) CKVC_MUST_CHECK;
void worker_close(worker *w);

/* As many as the memory plan has prompts go together: several where o->most_prompts allows it, and
 * that spares copies of weights or fills a device. */
typedef struct workers {
    worker *items; /* [n] */
    int64_t n;
} workers;
ckvc_status workers_open(workers *ws, const calibrate_inputs *in, const worker_options *o,
                         const ckvc_table *table, ckvc_err *err) CKVC_MUST_CHECK;
void workers_close(workers *ws);

/* -> stats. */
ckvc_status worker_prefill(worker *w, const prompt *p, ckvc_err *err) CKVC_MUST_CHECK;
/* Computes the loss under the full cache alone, into losses.full; NaN without a continuation. */
ckvc_status worker_full(worker *w, ckvc_err *err) CKVC_MUST_CHECK;
/* Computes the kept sets and the distinct variants of the prefilled prompt. Where `logged` is
 * false, as for a prompt that is held out, no action is tried. */
void worker_keep(worker *w, const prompt *p, bool logged);
/* Computes every loss that the prompt needs: under the full cache, the baselines and the
 * variants. */
ckvc_status worker_rollouts(worker *w, ckvc_err *err) CKVC_MUST_CHECK;

/* The same three for a prompt each of n workers of one workers_open, through the layers together;
 * prompts [n]. */
ckvc_status workers_prefill(worker *const *w, const prompt *const *prompts, int64_t n,
                            ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status workers_full(worker *const *w, int64_t n, ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status workers_rollouts(worker *const *w, int64_t n, ckvc_err *err) CKVC_MUST_CHECK;

/* ---- for dry runs ---- */

/* What a pass through the layers spends on copies of weights that do not stay. */
ckvc_status worker_time_copies(const calibrate_inputs *in, const memory_plan *plan, double *copy_s,
                               ckvc_err *err) CKVC_MUST_CHECK;
/* What a prompt's prefill takes without copies. A device copies beside its products, so that the
 * longer of both is what was timed: where that is the copies, products count as the backend says.
 */
double worker_compute_s(const calibrate_inputs *in, double prefill_s, double copy_s,
                        uint32_t n_tokens);
