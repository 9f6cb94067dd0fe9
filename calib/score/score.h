/* Losses of prompts under tables and reference policies: what `ckvc score` prints
 * (formats/lines/scores.md).
 *
 * A policy decides the kept set of every layer from one prefill. Tables go through the same
 * retention operator as calibration, each through its own; so do:
 *
 *   identity  every weight 1.0, every threshold 0.9
 *   matched   identity under the one threshold that keeps as many tokens as a table does, on
 *             average over those of these prompts that are held out (over all, when none is): the
 *             control for "more tokens kept" (method.md section 2, confound). One per table and
 *             budget.
 *
 * Controls of a table and references: policies/policy_sets.h. A reference keeps min(B, T) positions
 * in every layer; one that is given a table keeps in each layer of each prompt as many as that
 * table does there.
 */
#pragma once

#include "calib/log/calibrate.h"
#include "calib/policies/policy_workers.h"
#include "lib/base/buffer.h"

typedef struct score_options {
    policy_choice choice;
    bool sets;                       /* print the kept positions */
    bool attention_error, utilities; /* measures of score_measures.h */
    const char *vectors;             /* file to write alpha and rho to, or NULL */
    bool force, quiet;
    bool finite;   /* a loss that is not finite is CKVC_E_DATA; else its line says null */
    size_t memory; /* bytes; 0: three quarters of what is free */
    run_part part; /* every part.count-th prompt alone; count 0: all */
    size_t n_done; /* of these, whose lines are there already, from an earlier call */
    /* Takes each prompt's lines as they come: a score that is stopped can go on from them, and
     * nobody holds them. NULL: none does. Those of prompts that go through the layers together come
     * one prompt after the other. */
    ckvc_status (*keep)(void *ctx, const void *lines, size_t size, ckvc_err *err);
    void *keep_ctx;
} score_options;

typedef struct score_summary { /* one per policy x budget, in that order */
    score_policy policy;
    double budget, tau; /* tau: SCORE_MATCHED, the threshold that was found */
    size_t n;
    double reward_mean, kept_mean; /* nats per token; tokens per layer, or head */
} score_summary;

/* Adds `lines` [n bytes] of prompts that are done to summary [policies * budgets], as when they
 * were written. */
ckvc_status score_count_done(const calibrate_inputs *in, const score_options *o, const char *lines,
                             size_t n, score_summary *summary, ckvc_err *err) CKVC_MUST_CHECK;
/* Appends one JSON line per prompt x budget x policy to `lines`, of the prompts behind the first
 * n_done; without those that o->keep takes. summary [policies * budgets], zero or of
 * score_count_done, is filled. CKVC_E_STOPPED after a clean stop. */
ckvc_status score_prompts(const calibrate_inputs *in, const score_options *o, ckvc_buffer *lines,
                          score_summary *summary, ckvc_err *err) CKVC_MUST_CHECK;

/* What all prompts cost, from the longest one done once: an upper bound. */
typedef struct score_forecast {
    memory_plan memory;
    uint32_t n_tokens, n_continuation; /* of the longest prompt */
    double prefill_s, prompt_s;        /* of it; of all that is asked of it, a prefill among it */
    double copy_s, compute_s; /* of copies that do not stay, a pass; of a prefill without them */
    double hours, disk_bytes;
} score_forecast;
ckvc_status score_forecast_make(const calibrate_inputs *in, const score_options *o,
                                score_forecast *out, ckvc_err *err) CKVC_MUST_CHECK;
