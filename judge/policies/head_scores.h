/* The scores by which KV heads keep positions, of the prompt in hand: taken from the prefill as it
 * goes (prefill_watcher) or from what is there after it. What a score is says the rule or the table
 * that asks for it (rules/rule.h, table_in_use.h); policies of the same score share it. */
#pragma once

#include "judge/policies/rules/rule.h"

typedef struct head_scores {
    uint32_t n_layers, n_heads; /* L, G */
    head_score *kinds;          /* [n] */
    double **values;            /* [n], each [L][G][T] of the prompt in hand */
    layer_sums *layer;          /* [L] of the prompt in hand */
    size_t n, cap, cap_values;
    size_t bytes;                         /* that are reserved */
    prefill_watcher wanted;               /* rows and what else; n_rows 0: nothing is to be seen */
    const double *frequencies;            /* [D/2] of the session */
    const reconstruction *reconstruction; /* of what repeats the prompt, borrowed */
    double *more;                         /* [L][G][max T]: its scratch */
    double *scratch;
    uint32_t n_tokens; /* of the prompt in hand */
} head_scores;

/* A score that will be wanted: its number. */
size_t head_scores_add(head_scores *h, head_score kind);
/* After the last of them, before the first prompt: room for prompts of max_tokens. */
void head_scores_reserve(head_scores *h, const model_shape *shape, uint32_t max_tokens);
void head_scores_fini(head_scores *h);
/* Before the prefill of the next prompt, whose keys are rotated with these, and as it goes. */
void head_scores_begin(head_scores *h, const double *frequencies);
void head_scores_see(head_scores *h, const prefill_head *head);
/* After the prefill of these tokens: what is not watched. */
ckvc_status head_scores_finish(head_scores *h, session *s, const int32_t *tokens,
                               const prefill_stats *stats, ckvc_err *err) CKVC_MUST_CHECK;
/* Score number `kind` of a head, [T]. */
static inline double *head_scores_at(const head_scores *h, size_t kind, uint32_t layer,
                                     uint32_t head) {
    return h->values[kind] + ((size_t)layer * h->n_heads + head) * h->n_tokens;
}

/* Doubles of a score's scratch, for T tokens, heads of D and query heads. */
size_t head_score_scratch(const head_score *kind, size_t T, size_t D, size_t group);
/* Puts the first and the last positions of a score s [T] before all others. */
void head_score_force(uint32_t first, uint32_t last, uint32_t T, double *s);
