/* A rule is a policy from elsewhere, in a file of its own. It says by what score, which is computed
 * from one prefill, the positions of a prompt are ranked, and how many of them each KV head keeps.
 * The retention operator makes sets of both (policy_sets.h). formats/lines/policy_kind.h
 * names the source of each rule, and the rule's file holds what this source says.
 *
 *   L layers of G KV heads · T prompt tokens · B the budget, mean entries of a head
 *   A the attention of the prompt's last rows, over the query heads of a group */
#pragma once

#include "judge/policies/rules/reconstruction.h"
#include "formats/lines/policy_kind.h"
#include "lib/model/model.h"
#include "lib/policy/policy_parts.h"

/* ---- ranking: the highest score comes first, of equal ones the later position ---- */

/* A prompt whose prefill is finished. */
typedef struct scored_prompt {
    uint32_t n_layers, n_heads, n_tokens; /* L, G, T */
    session *session;                     /* its full cache */
    const int32_t *tokens;                /* [T] */
    const prefill_stats *stats;
    const reconstruction *reconstruction; /* for scores that repeat the prompt */
    double *s;                            /* [L][G][T] */
    double *more;                         /* [L][G][T] for scores that repeat the prompt */
    double *scratch;                      /* of the size that the score asks for */
} scored_prompt;

/* Sums over the heads of a layer, which some allotments need. */
typedef struct layer_sums {
    double entropy, variance; /* of CAKE */
    double positions;         /* of ZigZagKV */
} layer_sums;

/* Where the scores of a head go. */
typedef struct head_output {
    const double *frequencies; /* [D/2] that queries and keys were rotated with */
    double *s;                 /* [T], which follows those of the layer's heads before it */
    layer_sums *layer;
    double *scratch; /* of the size that the score asks for */
} head_output;

/* A score s[l][g][t] of KV heads. */
typedef struct head_score head_score;
struct head_score {
    /* Called for each head while the prefill shows it. NULL: nothing needs to be shown. */
    void (*on_head)(const head_score *self, const prefill_head *h, const head_output *to);
    /* Called after the prefill, for all of s. NULL: nothing is left to do. */
    ckvc_status (*finish)(const head_score *self, const scored_prompt *p, ckvc_err *err);
    /* Returns the doubles of scratch, for heads of D and `group` query heads. NULL: T + D. */
    size_t (*scratch)(size_t T, size_t D, size_t group);
    uint32_t window, pool;    /* rows of A that are read; positions that are pooled */
    uint32_t first, last;     /* so many positions come before all others (+infinity) */
    bool queries, column_sum; /* what else the prefill must show (model.h) */
};

/* What a ranking is computed from. There is one for all heads of all layers or, with by_unit, one
 * for each set. */
typedef struct rank_ask {
    uint32_t n_tokens, window; /* T; W of alpha */
    const float *alpha;        /* [T] */
    uint32_t n_heads;          /* heads that share the set (by_unit) */
    const float *rho;          /* [n_heads][T] of these heads */
    const double *ones;        /* [n_heads] */
    uint64_t seed;
    const char *prompt_id;
} rank_ask;

/* ---- how many of them ---- */

typedef struct allot_ask {
    uint32_t n_layers, n_heads, n_tokens, budget; /* L, G, T, B */
    const double *s;                              /* [L][G][T] */
    const layer_sums *layer;                      /* [L] */
    const double *share;                          /* [L][G] of a table, for rules that use shares */
    uint32_t least;    /* how many positions each head of that table keeps in any case */
    uint64_t *keys;    /* [L][G][T] for rules that sort */
    uint32_t *scratch; /* [L][G + 1] */
} allot_ask;

/* ---- both ---- */

typedef struct policy_rule {
    /* Whether there is one set for each KV head. Else there is one for each layer, ranked by the
     * scores of its head 0. */
    bool by_head;
    bool by_share; /* capacities come from a table's shares */
    bool by_table; /* positions are ranked by a table's scores */
    bool by_unit;  /* `rank` is called for each set */
    /* What tables keep whatever its score is kept here, too: the last positions of --keep-window
     * or, beside a table with shares, the table's first and last positions. */
    bool as_tables;
    bool sorts;   /* its allotment sorts all scores */
    bool repeats; /* its score feeds the prompt once more */
    head_score score;
    /* Writes u [T], by which positions are ranked. NULL: they are ranked by the scores. */
    void (*rank)(const rank_ask *a, double *u);
    /* Writes the capacities c [L][G], none of them above T. It is called where B is below T; else
     * everything is kept. NULL: every head keeps B. */
    void (*allot)(const allot_ask *a, uint32_t *c);
} policy_rule;

/* Returns the rule of a policy; NULL for a table, for what is matched to one and for controls. */
const policy_rule *policy_rule_of(policy_kind kind);

/* Writes the ranking of streamingllm to u [T]: four sinks come first, then the last positions. */
void rank_sinks(const rank_ask *a, double *u);
static inline uint32_t rule_min(uint32_t a, uint32_t b) { return a < b ? a : b; }
/* Returns the dot product of a [n] and b [n], with its terms added in their order. */
static inline double rule_dot(const double *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) { sum += a[i] * (double)b[i]; }
    return sum;
}
/* Gives every head of layer l the capacity n. */
static inline void allot_layer(const allot_ask *a, uint32_t l, uint32_t n, uint32_t *c) {
    for (uint32_t g = 0; g < a->n_heads; g++) { c[l * a->n_heads + g] = n; }
}
/* Gives every head of every layer the capacity n, or T where that is less. */
static inline void allot_evenly(const allot_ask *a, uint32_t n, uint32_t *c) {
    for (uint32_t l = 0; l < a->n_layers; l++) { allot_layer(a, l, rule_min(n, a->n_tokens), c); }
}
