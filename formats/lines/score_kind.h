/* The kinds of policy that a score line names (scores.md): written by calib/, told apart by
 * report/. */
#pragma once

#include <stdbool.h>

typedef enum score_kind {
    SCORE_TABLE,
    SCORE_IDENTITY,
    SCORE_FULL,
    SCORE_MATCHED,
    SCORE_RECENT,
    SCORE_SINK_RECENT,
    SCORE_RANDOM,
    SCORE_TOP_K,
    SCORE_WINDOW,
    SCORE_WINDOW_POOLED,
    SCORE_STREAMINGLLM,
    SCORE_H2O,
    SCORE_SNAPKV,
    SCORE_PYRAMIDKV,
    SCORE_ADAKV,
    SCORE_CAKE,
    SCORE_EXPECTED_ATTENTION,
    SCORE_TOVA,
    SCORE_KEYDIFF,
    SCORE_KVZIP,
    SCORE_DYNAMICKV,
    SCORE_CHUNKKV,
    SCORE_FASTKV,
    SCORE_POOLED,
    SCORE_HEADKV,
    SCORE_DUOATTENTION,
    SCORE_NO_UTILITY,
    SCORE_NO_THRESHOLD,
    SCORE_MEAN_GATE,
    SCORE_MEAN_POOL,
    SCORE_HEAD_ONLY,
    SCORE_GATE_ONLY,
    SCORE_KIND_COUNT
} score_kind;
const char *score_kind_name(score_kind kind); /* "table", "identity", ... */

/* What decides beside which others a policy may stand, and what it costs. */
typedef struct policy_properties {
    const char *source; /* paper and code; NULL: ours */
    const char *cost;   /* beside the prefill of which it looks at the last rows; NULL: nothing */
    bool query_aware;   /* ranks by the attention of the prompt's last rows, where its question is:
                           what it keeps serves that question */
    bool exact;         /* keeps L·G·B entries; else `entries` of a line is what it used */
} policy_properties;
const policy_properties *score_policy_properties(score_kind kind);
/* The kind that goes by this name; SCORE_KIND_COUNT: none does. */
score_kind score_kind_named(const char *name);
/* Ranks positions without looking at a table's entries. */
static inline bool score_is_reference(score_kind kind) {
    return kind >= SCORE_RECENT && kind <= SCORE_DUOATTENTION;
}
/* Of these, what is made with a table's shares, floor or score. */
static inline bool score_needs_table(score_kind kind) {
    return kind >= SCORE_POOLED && kind <= SCORE_DUOATTENTION;
}
/* A table with one part taken out or put back to its start (method.md section 7). */
static inline bool score_is_control(score_kind kind) {
    return kind >= SCORE_NO_UTILITY && kind < SCORE_KIND_COUNT;
}
