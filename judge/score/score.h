/* Losses of prompts under tables and reference policies: what `ckvc score` prints
 * (formats/lines/scores.md).
 *
 * From one prefill a policy decides the kept set of every layer. Tables go through the same
 * retention operator as calibration, each table with its own kind of operator. So do two baselines:
 *
 *   identity  every weight is 1.0 and every threshold 0.9
 *
 *   matched   identity under the one threshold that keeps as many tokens as a table does, on
 *             average over the held-out prompts (over all prompts where none is held out). There
 *             is one for each table and budget. It is the control for "more tokens kept" (paper.md
 *             section 2, confound).
 *
 * Controls of a table and references are described in policies/policy_sets.h. A reference keeps
 * min(B, T) positions in every layer; one that is given a table keeps, in each layer of each
 * prompt, as many as that table does there. */
#pragma once

#include <jansson.h>

#include "calib/log/calibrate.h"
#include "judge/policies/policy_sets.h"
#include "lib/base/json.h"
#include "lib/stats/rank.h"

/* How progress lines tell of a score: its name (NULL: "score", of these prompts alone), and that
 * its prompts are some of `all`, after so many others. */
typedef struct score_progress {
    const char *name;
    uint64_t before, all;
} score_progress;

typedef struct score_options {
    policy_choice choice;
    bool sets; /* print the kept positions, too */
    /* Whether to measure the attention that a set leaves out, and to print the utilities by which
     * positions were ranked. */
    bool attention_error, utilities;
    const char *vectors; /* the file to which alpha and rho are written, or NULL */
    bool force;
    bool finite;   /* a loss that is not finite is CKVC_E_DATA; false: its line says null */
    size_t memory; /* bytes; 0: three quarters of what is free */
    run_part part; /* only every part.count-th prompt; count 0: all */
    size_t n_done; /* prompts of these whose lines exist already, from an earlier call */
    /* Takes each prompt's lines as they come, so that a score that was stopped can go on from them,
     * and they are not held in memory. NULL: they are held. The lines of prompts that go through
     * the layers together come one prompt after the other. */
    ckvc_status (*keep)(void *ctx, const void *lines, size_t size, ckvc_err *err);
    void *keep_ctx;
    score_progress job;
} score_options;

typedef struct score_summary { /* one for each policy and budget, in that order */
    asked_policy policy;
    double budget, tau; /* tau: the threshold found for POLICY_MATCHED */
    size_t n;
    /* Rewards and KL are in nats per token, kept_mean in tokens per layer, or per KV head. */
    double reward_mean, kl_mean, kept_mean;
} score_summary;

/* Adds `lines` [n bytes] of prompts that are done to summary [policies * budgets], as was done when
 * they were written. */
ckvc_status score_count_done(const calibrate_inputs *in, const score_options *o, const char *lines,
                             size_t n, score_summary *summary, ckvc_err *err) CKVC_MUST_CHECK;
/* Scores the prompts after the first n_done. It appends one JSON line for each prompt, budget and
 * policy to `lines`, unless o->keep takes them, and adds to summary [policies * budgets], which is
 * zero or comes from score_count_done. CKVC_E_STOPPED after a clean stop. */
ckvc_status score_prompts(const calibrate_inputs *in, const score_options *o, ckvc_buffer *lines,
                          score_summary *summary, ckvc_err *err) CKVC_MUST_CHECK;

/* What all prompts cost. It is measured by doing the longest one once, so that it is an upper
 * bound. */
typedef struct score_forecast {
    memory_plan memory;
    uint32_t n_tokens, n_continuation; /* of the longest prompt */
    /* Seconds of the longest prompt: its prefill alone, and all that is asked of it, the prefill
     * included. */
    double prefill_s, prompt_s;
    /* Seconds of one pass through the layers: copy_s makes the copies of weights that do not stay,
     * compute_s is what a prefill takes without them. */
    double copy_s, compute_s;
    double hours, disk_bytes;
} score_forecast;
ckvc_status score_forecast_make(const calibrate_inputs *in, const score_options *o,
                                score_forecast *out, ckvc_err *err) CKVC_MUST_CHECK;

/* The held-out objective: rewards of policies on the prompts that no fit has seen (paper.md section
 * 7). The prompt is the unit: its reward is the mean over budgets, and policies are compared prompt
 * by prompt. */
typedef struct heldout {
    size_t n;        /* held-out prompts, in the plan's order */
    size_t *cluster; /* [n] equal for prompts of one document (lib/stats/rank.h) */
    /* By kind of policy: [n] in nats per token, NaN where a loss was not finite; NULL: the policy
     * was not scored. */
    double *reward[POLICY_KIND_COUNT];
    double *kl[POLICY_KIND_COUNT];  /* the same of the KL from the full cache */
    double kept[POLICY_KIND_COUNT]; /* mean tokens per layer, or per KV head */
} heldout;

/* Returns the held-out prompts of a list as a list of their own: those that judge, or with `select`
 * those that choose. The contents of the prompts are borrowed, so the caller frees only the new
 * list's items. */
prompt_list heldout_prompts(const prompt_list *all, bool select);
/* Scores o's policies on these prompts, as JSON lines like those of `ckvc score`. CKVC_E_STOPPED
 * after a stop. */
ckvc_status heldout_score(const calibrate_inputs *in, const prompt_list *prompts,
                          const score_options *o, ckvc_buffer *lines,
                          ckvc_err *err) CKVC_MUST_CHECK;
/* Reads such a file back, as rewards by prompt: those of one budget, or with NaN the means over
 * all. Of several lines of a prompt under one policy and budget, such as those of a table with
 * fitted entries and without, the last counts. Free *out with heldout_free. */
ckvc_status heldout_read(const char *path, const prompt_list *prompts, double budget, heldout **out,
                         ckvc_err *err) CKVC_MUST_CHECK;
void heldout_free(heldout *h);
CKVC_AUTO_OF(heldout, heldout_free)
/* The mean of a - b [h->n] with its paired interval by documents, over the prompts where both are
 * finite. With b NULL it is the mean of a. */
rank_interval heldout_gain(const heldout *h, const double *a, const double *b);
