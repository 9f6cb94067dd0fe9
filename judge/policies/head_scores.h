/* The scores by which KV heads keep positions, for the current prompt. They are computed while the
 * prefill runs (prefill_watcher), or from what there is after it. What a score is, the rule or the
 * table that asks for it says (rules/rule.h, table_in_use.h); policies with the same score share
 * it. */
#pragma once

#include "judge/policies/rules/rule.h"

typedef struct head_scores {
    uint32_t n_layers, n_heads; /* L, G */
    head_score *kinds;          /* [n] */
    double **values;            /* [n], each [L][G][T] of the current prompt */
    layer_sums *layer;          /* [L] of the current prompt */
    size_t n, cap, cap_values;
    size_t bytes; /* bytes that are reserved */
    /* What a prefill must show: how many last rows of attention, and what else. With n_rows 0 it
     * has to show nothing. */
    prefill_watcher wanted;
    const double *frequencies;            /* [D/2] of the session; borrowed */
    const reconstruction *reconstruction; /* for scores that repeat the prompt; borrowed */
    double *more;                         /* [L][G][max T] scratch of these scores */
    double *scratch;
    uint32_t n_tokens; /* of the current prompt */
} head_scores;

/* Adds a score that will be needed. Returns its number, which is that of an equal score where one
 * was added before. */
size_t head_scores_add(head_scores *h, head_score kind);
/* Reserves memory for prompts of max_tokens: after the last head_scores_add, before the first
 * prompt. */
void head_scores_reserve(head_scores *h, const model_shape *shape, uint32_t max_tokens);
void head_scores_fini(head_scores *h);
/* head_scores_begin is called before the prefill of the next prompt, whose keys are rotated with
 * these frequencies; head_scores_see is called while it runs. */
void head_scores_begin(head_scores *h, const double *frequencies);
void head_scores_see(head_scores *h, const prefill_head *head);
/* Computes the scores that need no watching, after the prefill of tokens [n_tokens]. The status is
 * that of what a score computes, such as a second pass over the prompt. */
ckvc_status head_scores_finish(head_scores *h, session *s, const int32_t *tokens,
                               const prefill_stats *stats, ckvc_err *err) CKVC_MUST_CHECK;
/* Returns score number `kind` of a head, [T]. */
static inline double *head_scores_at(const head_scores *h, size_t kind, uint32_t layer,
                                     uint32_t head) {
    return h->values[kind] + ((size_t)layer * h->n_heads + head) * h->n_tokens;
}

/* Returns how many doubles of scratch a score needs, for T tokens, heads of D numbers and `group`
 * query heads to a KV head. */
size_t head_score_scratch(const head_score *kind, size_t T, size_t D, size_t group);
/* Puts the `first` first and the `last` last positions of a score s [T] before all others, by
 * giving them +infinity. */
void head_score_force(uint32_t first, uint32_t last, uint32_t T, double *s);
