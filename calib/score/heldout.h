/* The held-out objective: rewards of policies on the prompts that no fit has seen (method.md
 * section 7). The prompt is the unit: its reward is the mean over budgets, and policies are
 * compared prompt by prompt.
 */
#pragma once

#include "calib/score/score.h"
#include "cql/stats/rank.h"

typedef struct heldout {
    size_t n;        /* held-out prompts, in the plan's order */
    size_t *cluster; /* [n] of each: alike where prompts are of one document (cql/stats/rank.h) */
    /* By kind of policy: [n] nats per token, NaN where a loss was not finite; NULL: not scored. */
    double *reward[SCORE_KIND_COUNT];
    double kept[SCORE_KIND_COUNT]; /* tokens per layer, or KV head, means */
} heldout;

/* The held-out prompts of a list as a list of their own: those that judge, or those that choose;
 * what they hold is borrowed. Free list->items alone. */
prompt_list heldout_prompts(const prompt_list *all, bool select);
/* Scores o's policies on them: JSON lines as `ckvc score` writes them. A stop is CKVC_E_STOPPED. */
ckvc_status heldout_score(const calibrate_inputs *in, const prompt_list *prompts,
                          const score_options *o, ckvc_buffer *lines,
                          ckvc_err *err) CKVC_MUST_CHECK;
/* Such a file back as rewards by prompt. heldout_free it. prices: a table whose shares were fitted
 * at a price (fit_price), which each prompt then pays for the entries that were kept; NULL: none.
 */
ckvc_status heldout_read(const char *path, const prompt_list *prompts, const table_file *prices,
                         heldout **out, ckvc_err *err) CKVC_MUST_CHECK;
void heldout_free(heldout *h);
CKVC_AUTO_OF(heldout, heldout_free)
/* Mean and paired interval of a - b [h->n], over the prompts where both are finite, by documents. b
 * NULL: of a. */
rank_interval heldout_gain(const heldout *h, const double *a, const double *b);
