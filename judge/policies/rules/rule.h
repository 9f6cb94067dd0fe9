/* A rule is a policy from elsewhere, in a file of its own. It says by what score, taken from one
 * prefill, the positions of a prompt are ranked, and how many of them each KV head keeps. The
 * retention operator makes sets of both (policy_sets.h). A rule file holds what its source says
 * (score_kind.c).
 *
 *   L layers of G KV heads · T prompt tokens · B the budget, mean entries of a head
 *   A the attention of the prompt's last rows, over the query heads of a group */
#pragma once

#include "judge/policies/rules/reconstruction.h"
#include "formats/lines/score_kind.h"
#include "lib/model/model.h"
#include "lib/policy/policy_parts.h"

/* ---- by what positions are ranked: the highest first, of equal ones the later ---- */

/* A prompt whose prefill is over. */
typedef struct scored_prompt {
    uint32_t n_layers, n_heads, n_tokens; /* L, G, T */
    session *session;                     /* its full cache */
    const int32_t *tokens;                /* [T] */
    const prefill_stats *stats;
    const reconstruction *reconstruction; /* of scores that repeat the prompt */
    double *s;                            /* [L][G][T] */
    double *more;                         /* [L][G][T], of scores that repeat */
    double *scratch;                      /* as asked for */
} scored_prompt;

/* Over the heads of a layer, for an allotment. */
typedef struct layer_sums {
    double entropy, variance; /* CAKE's */
    double positions;         /* ZigZagKV's */
} layer_sums;

/* Where a head's scores go. */
typedef struct score_room {
    const double *frequencies; /* [D/2] that queries and keys were rotated with */
    double *s;                 /* [T], behind those of the layer's heads before it */
    layer_sums *layer;
    double *scratch; /* as asked for */
} score_room;

/* Scores s[l][g][t] of KV heads. */
typedef struct head_score head_score;
struct head_score {
    /* A head as the prefill shows it. NULL: nothing is to be seen. */
    void (*on_head)(const head_score *self, const prefill_head *h, const score_room *to);
    /* After the prefill, all of s. NULL: there is nothing left to do. */
    ckvc_status (*finish)(const head_score *self, const scored_prompt *p, ckvc_err *err);
    /* Doubles of scratch, for heads of D and `group` query heads; NULL: T + D. */
    size_t (*scratch)(size_t T, size_t D, size_t group);
    uint32_t window, pool;    /* rows of A that are looked at; positions that are pooled */
    uint32_t first, last;     /* so many positions come before all others (+infinity) */
    bool queries, column_sum; /* what the prefill has to show besides (model.h) */
};

/* One ranking for all heads of all layers, or, by_unit, for those that share a set. */
typedef struct rank_ask {
    uint32_t n_tokens, window; /* T; W of alpha */
    const float *alpha;        /* [T] */
    uint32_t n_heads;          /* by_unit: of the set */
    const float *rho;          /* [n_heads][T] of them */
    const double *ones;        /* [n_heads] */
    uint64_t seed;
    const char *prompt_id;
} rank_ask;

/* ---- how many of them ---- */

typedef struct allot_ask {
    uint32_t n_layers, n_heads, n_tokens, budget; /* L, G, T, B */
    const double *s;                              /* [L][G][T] */
    const layer_sums *layer;                      /* [L] */
    const double *share;                          /* [L][G] of a table, where a rule goes by them */
    uint32_t least;                               /* that each head of this table keeps anyway */
    uint64_t *keys;                               /* [L][G][T] of rules that sort */
    uint32_t *scratch;                            /* [L][G + 1] */
} allot_ask;

/* ---- both ---- */

typedef struct policy_rule {
    bool by_head;   /* a set a KV head; else a layer, ranked by the scores of its head 0 */
    bool by_share;  /* of a table */
    bool by_table;  /* ranked by a table's scores */
    bool by_unit;   /* `rank` is asked for each set */
    bool as_tables; /* what tables keep whatever its score is kept here, too: the last positions
                       of --keep-window, or beside a table with shares its first and last ones */
    bool sorts;     /* its allotment sorts all scores */
    bool repeats;   /* its score feeds the prompt once more */
    head_score score;
    void (*rank)(const rank_ask *a, double *u); /* u [T]; NULL: by the scores */
    /* c [L][G], none above T; B is below T, else all is kept. NULL: B each. */
    void (*allot)(const allot_ask *a, uint32_t *c);
} policy_rule;

/* The rule of a policy; NULL where it is a table, its counterpart or one of its controls. */
const policy_rule *policy_rule_of(score_kind kind);

/* streamingllm's: four sinks, then the last positions. */
void rank_sinks(const rank_ask *a, double *u);
static inline uint32_t rule_min(uint32_t a, uint32_t b) { return a < b ? a : b; }
/* Every head of layer l: n. */
static inline void allot_layer(const allot_ask *a, uint32_t l, uint32_t n, uint32_t *c) {
    for (uint32_t g = 0; g < a->n_heads; g++) { c[l * a->n_heads + g] = n; }
}
/* Every head of every layer: n, or T. */
static inline void allot_evenly(const allot_ask *a, uint32_t n, uint32_t *c) {
    for (uint32_t l = 0; l < a->n_layers; l++) { allot_layer(a, l, rule_min(n, a->n_tokens), c); }
}
