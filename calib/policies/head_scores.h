/* By what a KV head keeps positions: scores s[l][g][t], of which a policy keeps the highest. They
 * are taken from the prefill as it goes (prefill_watcher) or from what is there after it. Policies
 * of the same score share it.
 *
 *   T prompt tokens · w rows of the window · A their attention, over the query heads of a group
 *
 * The rules of the references are those of the repositories in allotments.h; "before the window":
 * t < T - w, which pooling does not cross. */
#pragma once

#include "calib/demand/repeat_pass.h"
#include "lib/policy/ckvc_policy.h"
#include "lib/model/model.h"

typedef enum head_score_kind {
    HEAD_SCORE_PAPER,   /* log of alpha * rho (ckvc_score_paper) */
    HEAD_SCORE_WINDOW,  /* log of the window's mean attention, pooled (ckvc_score_window) */
    HEAD_SCORE_LEARNED, /* a table's linear form of features (ckvc_score_learned) */
    HEAD_SCORE_SNAPKV,  /* mean of A, the largest of `pool` positions before the window */
    HEAD_SCORE_CAKE,    /* mean of A + 200 var(A) over the rows, mean of `pool` before the window */
    HEAD_SCORE_H2O,     /* attention of all T rows, summed */
    HEAD_SCORE_TOVA, /* attention of the last row, summed over all heads of the layer: head 0's */
    HEAD_SCORE_KEYDIFF,  /* less the cosine of the cached key and the mean of the normalised keys */
    HEAD_SCORE_EXPECTED, /* attention expected of the next 512 positions, times |v| */
    HEAD_SCORE_KVZIP     /* the largest attention of a repeated prompt (repeat_pass.h) */
} head_score_kind;

typedef struct head_score {
    head_score_kind kind;
    uint32_t window, pool;
    bool norm;               /* HEAD_SCORE_WINDOW: times |v| */
    uint32_t first, last;    /* so many positions come before all others (+infinity) */
    const ckvc_table *table; /* HEAD_SCORE_LEARNED: whose theta and mass; borrowed */
} head_score;

typedef struct head_scores {
    uint32_t n_layers, n_heads; /* L, G */
    head_score *kinds;          /* [n] */
    double **values;            /* [n], each [L][G][T] of the prompt in hand */
    double *preference;         /* [L]: CAKE's, of the prompt in hand */
    /* Where a learned score is wanted: [L][T] of head_features_add; [L][G][T] of the values. */
    double *layer_attention, *norms;
    size_t n, cap, cap_values;
    size_t bytes;              /* that are reserved */
    prefill_watcher watcher;   /* n_rows 0: nothing is to be seen */
    const double *frequencies; /* [D/2] of the session */
    const repeat_pass *repeat; /* of HEAD_SCORE_KVZIP, borrowed */
    double *more;              /* [L][G][max T]: its scratch */
    double *scratch;
    uint32_t n_tokens; /* of the prompt in hand */
} head_scores;

/* A score that will be wanted: its number. */
size_t head_scores_add(head_scores *h, head_score kind);
/* After the last of them, before the first prompt: room for prompts of max_tokens. */
void head_scores_reserve(head_scores *h, const model_shape *shape, uint32_t max_tokens);
void head_scores_fini(head_scores *h);
/* The watcher of the next prefill, NULL: none is needed. */
const prefill_watcher *head_scores_watch(head_scores *h, const session *s);
/* After the prefill of these tokens: what is not watched. */
ckvc_status head_scores_finish(head_scores *h, session *s, const int32_t *tokens,
                               const prefill_stats *stats, ckvc_err *err) CKVC_MUST_CHECK;
/* Score number `kind` of a head, [T]. */
static inline double *head_scores_at(const head_scores *h, size_t kind, uint32_t layer,
                                     uint32_t head) {
    return h->values[kind] + ((size_t)layer * h->n_heads + head) * h->n_tokens;
}

/* One score of one head as the prefill shows it -> s [T]; scratch as head_scores_scratch says. Of
 * HEAD_SCORE_LEARNED the linear form without the late features. HEAD_SCORE_CAKE adds to
 * preference[0 ... 1] the head's entropy and variance, HEAD_SCORE_TOVA to s but for head 0. */
void head_score_watched(const head_score *kind, const prefill_head *head, const double *frequencies,
                        double *s, double *preference, double *scratch);
/* Values, for T tokens, heads of D and query heads. */
size_t head_score_scratch(head_score_kind kind, size_t T, size_t D, size_t group);
/* Puts the first and the last positions of a score s [T] before all others. */
void head_score_force(uint32_t first, uint32_t last, uint32_t T, double *s);
