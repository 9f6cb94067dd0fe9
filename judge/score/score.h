/* Losses of prompts under tables and reference policies: what `ckvc score` prints
 * (formats/lines/scores.md).
 *
 * A policy decides the kept set of every layer from one prefill. Tables go through the same
 * retention operator as calibration, each through its own; so do:
 *
 *   identity  every weight 1.0, every threshold 0.9
 *   matched   identity under the one threshold that keeps as many tokens as a table does, on
 *             average over those of these prompts that are held out (over all, when none is): the
 *             control for "more tokens kept" (paper.md section 2, confound). One per table and
 *             budget.
 *
 * Controls of a table and references: policies/policy_sets.h. A reference keeps min(B, T) positions
 * in every layer; one that is given a table keeps in each layer of each prompt as many as that
 * table does there.
 */
#pragma once

#include <jansson.h>

#include "calib/log/calibrate.h"
#include "judge/policies/policy_sets.h"
#include "lib/base/json.h"
#include "lib/stats/rank.h"

typedef struct score_options {
    policy_choice choice;
    bool sets;                       /* print the kept positions */
    bool attention_error, utilities; /* the attention that a set leaves out; utilities */
    const char *vectors;             /* file to write alpha and rho to, or NULL */
    bool force;
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
    double reward_mean, kl_mean, kept_mean; /* nats per token; tokens per layer, or head */
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

/* The held-out objective: rewards of policies on the prompts that no fit has seen (paper.md
 * section 7). The prompt is the unit: its reward is the mean over budgets, and policies are
 * compared prompt by prompt.
 */
typedef struct heldout {
    size_t n;        /* held-out prompts, in the plan's order */
    size_t *cluster; /* [n] of each: alike where prompts are of one document (lib/stats/rank.h) */
    /* By kind of policy: [n] nats per token, NaN where a loss was not finite; NULL: not scored. */
    double *reward[SCORE_KIND_COUNT];
    double kept[SCORE_KIND_COUNT]; /* tokens per layer, or KV head, means */
} heldout;

/* The held-out prompts of a list as a list of their own: those that judge, or with `select` those
 * that choose. The prompts' contents are borrowed, so free only the new list's items. */
prompt_list heldout_prompts(const prompt_list *all, bool select);
/* Scores o's policies on them: JSON lines as `ckvc score` writes them. A stop is CKVC_E_STOPPED. */
ckvc_status heldout_score(const calibrate_inputs *in, const prompt_list *prompts,
                          const score_options *o, ckvc_buffer *lines,
                          ckvc_err *err) CKVC_MUST_CHECK;
/* Such a file back as rewards by prompt. heldout_free it. */
ckvc_status heldout_read(const char *path, const prompt_list *prompts, heldout **out,
                         ckvc_err *err) CKVC_MUST_CHECK;
void heldout_free(heldout *h);
CKVC_AUTO_OF(heldout, heldout_free)
/* Mean and paired interval of a - b [h->n], by documents, over the prompts where both are finite.
 * Where b is NULL, it is the mean of a. */
rank_interval heldout_gain(const heldout *h, const double *a, const double *b);
