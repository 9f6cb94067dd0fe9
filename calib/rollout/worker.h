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

/* What a pass runs on. Everything is borrowed. */
typedef struct calibrate_inputs {
    model *model;
    backend *backend;
    const manifest *manifest;
    const prompt_list *prompts;
} calibrate_inputs;

/* How losses are computed: all variants of a prompt in one sweep of the layers, or one continuation
 * for each. Both ways give the same bits. */
typedef enum rollout_way { ROLLOUTS_SWEEP, ROLLOUTS_PLAIN } rollout_way;

typedef struct worker_options {
    setting setting;            /* its lists are borrowed */
    behaviour_policy behaviour; /* its member `greedy` is made by the worker */
    rollout_way rollouts;
    size_t memory; /* in bytes; 0 stands for three quarters of what is free */
    /* For callers that look at what later rows attend to (calib/demand): the tokens of their
     * target_job. The bytes that they hold beside the worker go into `beside`. */
    uint32_t max_targets;
    uint32_t max_counted; /* how many positions a target_input's `counted` has */
    bool fitted;          /* whether there may be sets of fitted entries */
    uint32_t max_watched; /* how many last rows w->watcher is shown */
    bool watched_later;   /* whether session_show shows them, too */
    /* Whether full-cache losses keep the distributions that rollouts are compared with. With --loss
     * kl they do so anyway. */
    bool divergence;
    /* Bytes that are held besides: for each prompt, and whatever the number of prompts. */
    size_t beside, once;
    size_t held; /* bytes of the backend's memory that others hold, beside all workers */
    /* Without a table: how many rollouts go side by side at most; 0: there are no rollouts. */
    int64_t most_lanes;
    /* Without a table: how many rollouts a prompt has in all; 0: as many as most_lanes. */
    int64_t n_rollouts;
    /* Passes through the layers besides, as a prompt's share of them: decoding while workers are
     * open. */
    double steps;
    /* How many prompts may go through the layers together at most (workers_open); 0: one at a time.
     */
    int64_t most_prompts;
} worker_options;

typedef struct worker {
    worker_options o;
    session *session;
    prompt_sets *sets; /* NULL without a table */
    variant_list variants;
    rollout_scratch scratch;
    memory_plan plan;
    /* The share of random choices under BEHAVIOUR_EPSILON_GREEDY. Set it before worker_keep. */
    double share;
    const prefill_watcher *watcher; /* watches the next prefill; or NULL */
    /* [L][G][T] receives what the rows of the next full-cache loss attend to (rollout_job.targets);
     * or NULL. */
    double *attended;
    /* The rows whose queries are wanted of the next prefill, and of the next full-cache loss with
     * `attended`. */
    query_rows prompt_queries, continuation_queries;
    /* How many tokens are fed behind the next prompt, where they are more than its continuation. */
    uint32_t fed;
    /* The prompt in hand: */
    prefill_stats stats;
    rollouts losses; /* of `sets` and `variants` */
} worker;

/* Opens a worker that is sized for the longest of in->prompts. `table` is borrowed; with NULL only
 * prefills and full caches are possible. The status is CKVC_E_MEMORY when the memory does not hold
 * the worker; give it to worker_close even then. Do not move an open worker, because it points into
 * itself. */
ckvc_status worker_open(worker *w, const calibrate_inputs *in, const worker_options *o,
                        const ckvc_table *table, ckvc_err *err) CKVC_MUST_CHECK;
void worker_close(worker *w);

/* Workers whose prompts go through the layers together. There are as many as the memory plan has
 * prompts: several where o->most_prompts allows it, and where that spares copies of weights or
 * fills a device. */
typedef struct workers {
    worker *items; /* [n] */
    int64_t n;
} workers;
ckvc_status workers_open(workers *ws, const calibrate_inputs *in, const worker_options *o,
                         const ckvc_table *table, ckvc_err *err) CKVC_MUST_CHECK;
void workers_close(workers *ws);

/* Prefills the prompt and fills w->stats. */
ckvc_status worker_prefill(worker *w, const prompt *p, ckvc_err *err) CKVC_MUST_CHECK;
/* Computes the loss under the full cache alone, into losses.full; NaN without a continuation. */
ckvc_status worker_full(worker *w, ckvc_err *err) CKVC_MUST_CHECK;
/* Computes the kept sets and the distinct variants of the prefilled prompt. Where `logged` is
 * false, as for a prompt that is held out, no action is tried. */
void worker_keep(worker *w, const prompt *p, bool logged);
/* Computes every loss that the prompt needs: under the full cache, the baselines and the
 * variants. */
ckvc_status worker_rollouts(worker *w, ckvc_err *err) CKVC_MUST_CHECK;

/* The same three functions for n workers of one workers_open, with one prompt each. The prompts [n]
 * go through the layers together. */
ckvc_status workers_prefill(worker *const *w, const prompt *const *prompts, int64_t n,
                            ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status workers_full(worker *const *w, int64_t n, ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status workers_rollouts(worker *const *w, int64_t n, ckvc_err *err) CKVC_MUST_CHECK;

/* ---- for dry runs ---- */

/* Measures how many seconds a pass through the layers spends on copies of weights that do not stay.
 */
ckvc_status worker_time_copies(const calibrate_inputs *in, const memory_plan *plan, double *copy_s,
                               ckvc_err *err) CKVC_MUST_CHECK;
/* Returns the seconds of a prompt's prefill without the copies. A device copies beside its
 * products, so what was timed is the longer of the two. Where that is the copies, the seconds of
 * the products are estimated from the backend's copy_rows. */
double worker_compute_s(const calibrate_inputs *in, double prefill_s, double copy_s,
                        uint32_t n_tokens);
