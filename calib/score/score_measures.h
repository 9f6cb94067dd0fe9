/* What `ckvc score` can measure besides losses: the attention that a kept set leaves out
 * (--attention-error), and the spread of the utility scores (--utilities). Data for the diagnostics
 * of a report (docs/method.md, section 10). */
#pragma once

#include <jansson.h>

#include "calib/policies/policy_sets.h"

typedef struct score_measures {
    bool attention, utilities;
    rollout_lane lanes[2];                 /* of the rollout in hand */
    int64_t n_layers, n_heads, n_kv_heads; /* L, H, G */
    layer_error *layers;                   /* [L], of the last measured rollout */
    int64_t n_rows;                        /* its C - 1; 0: there is none */
    double *u;                             /* [max T] */
} score_measures;

void score_measures_init(score_measures *m, const model_shape *shape, uint32_t max_tokens,
                         bool attention, bool utilities);
void score_measures_fini(score_measures *m);
/* A rollout of n tokens under what a policy keeps, measured on the way where attention is asked
 * for, n >= 2 and the cache is the prompt's own: then the full cache's goes beside it and in front,
 * which is not there beside one of some rows. nll [n], or [2][n] of both. */
rollout_job score_measures_rollout(score_measures *m, session *s, const int32_t *continuation,
                                   int64_t n, const policy_kept *kept, double *nll);
/* Adds "attention_epsilon", "attention_bound", "attention_error", "attention_drift" [L] of the last
 * rollout to a line; null where the continuation has no rows to measure. Nothing when attention was
 * not asked for. */
void score_measures_attention(const score_measures *m, json_t *line);
/* Adds "alpha_quantiles" and "utility_quantiles" [L][G] (scores.h) of a prompt to a line, the
 * utility being alpha[t] rho[l][g][t]. Nothing when utilities were not asked for. */
void score_measures_utilities(score_measures *m, const prefill_stats *stats, json_t *line);
