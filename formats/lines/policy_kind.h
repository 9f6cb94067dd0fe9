/* The kinds of policy that a score line names (scores.md). judge/ writes them, and report/ tells
 * them apart. */
#pragma once

#include <stdbool.h>

/* What decides with which other policies one may be compared, and what the policy costs. */
typedef struct policy_properties {
    const char *source; /* the paper and the code that it follows; NULL when the policy is ours */
    /* what it costs beside a prefill at whose last rows it looks; NULL when that is nothing */
    const char *cost;
    /* It ranks by the attention of the prompt's last rows, where the prompt's question is, so that
     * what it keeps serves that question. */
    bool query_aware;
    /* It keeps exactly L·G·B entries. Otherwise `entries` of a line says how many it kept. */
    bool exact;
} policy_properties;

/* One row for each rule of judge/policies/rules: X(POLICY_..., rule_..., name,
 * policy_properties). */
#define POLICY_RULES(X)                                                                            \
    X(FULL, full, "full", {0})                                                                     \
    X(RECENT, recent, "recent", {.exact = true})                                                   \
    X(SINK_RECENT, sink_recent, "sink-recent", {.exact = true})                                    \
    X(RANDOM, random, "random", {.exact = true})                                                   \
    X(TOP_K, top_k, "top-k", {.query_aware = true, .exact = true})                                 \
    X(WINDOW, window, "window", {.query_aware = true, .exact = true})                              \
    X(WINDOW_POOLED, window_pooled, "window-pooled", {.query_aware = true, .exact = true})         \
    X(STREAMINGLLM, streamingllm, "streamingllm",                                                  \
      {"Xiao et al. 2024, arXiv:2309.17453; kvpress, streaming_llm_press.py", .exact = true})      \
    X(H2O, h2o, "h2o",                                                                             \
      {"Zhang et al. 2023, arXiv:2306.14048; KVCache-Factory, pyramidkv_utils.py",                 \
       .cost = "attention of all rows", .exact = true})                                            \
    X(SNAPKV, snapkv, "snapkv",                                                                    \
      {"Li et al. 2024, arXiv:2404.14469; snapkv_utils.py", .query_aware = true, .exact = true})   \
    X(PYRAMIDKV, pyramidkv, "pyramidkv",                                                           \
      {"Cai et al. 2024, arXiv:2406.02069; KVCache-Factory, pyramidkv_utils.py",                   \
       .query_aware = true})                                                                       \
    X(ADAKV, adakv, "adakv",                                                                       \
      {"Feng et al. 2024, arXiv:2407.11550; kvpress, adakv_press.py", .query_aware = true,         \
       .exact = true})                                                                             \
    X(CAKE, cake, "cake",                                                                          \
      {"Qin et al. 2025, arXiv:2503.12491; cake/utils.py", .query_aware = true, .exact = true})    \
    X(EXPECTED_ATTENTION, expected_attention, "expected-attention",                                \
      {"Devoto et al. 2025, arXiv:2510.00636; kvpress, expected_attention_press.py",               \
       .cost = "queries of all rows", .exact = true})                                              \
    X(TOVA, tova, "tova",                                                                          \
      {"Oren et al. 2024, arXiv:2401.06104; kvpress, tova_press.py", .query_aware = true,          \
       .exact = true})                                                                             \
    X(KEYDIFF, keydiff, "keydiff",                                                                 \
      {"Park et al. 2025, arXiv:2504.15364; kvpress, keydiff_press.py", .exact = true})            \
    X(KVZIP, kvzip, "kvzip",                                                                       \
      {"Kim et al. 2025, arXiv:2505.23416; kvpress, kvzip_press.py", .cost = "a second prefill",   \
       .exact = true})                                                                             \
    X(DYNAMICKV, dynamickv, "dynamickv",                                                           \
      {"Zhou et al. 2024, arXiv:2412.14838; methods/dynamic_v11.py", .query_aware = true})         \
    X(CHUNKKV, chunkkv, "chunkkv",                                                                 \
      {"Liu et al. 2025, arXiv:2502.00299; kvpress, chunkkv_press.py", .query_aware = true})       \
    X(FASTKV, fastkv, "fastkv",                                                                    \
      {"Jo et al. 2025, arXiv:2502.01068; baselines/fastkv/utils.py", .query_aware = true})        \
    X(VATP, vatp, "vatp",                                                                          \
      {"Guo et al. 2024, arXiv:2406.12335; utils_hh/modify_llama.py",                              \
       .cost = "attention of all rows", .exact = true})                                            \
    X(ROCKETKV, rocketkv, "rocketkv",                                                              \
      {"Behnam et al. 2025, arXiv:2502.14051; inf_llm/attention/rocket.py", .query_aware = true,   \
       .exact = true})                                                                             \
    X(ZIGZAGKV, zigzagkv, "zigzagkv",                                                              \
      {"Zhong et al. 2025, arXiv:2412.09036; kvpress, pull request 238", .query_aware = true})

/* The same for the rules that are made with a table's shares, floor or score. */
#define POLICY_TABLE_RULES(X)                                                                      \
    X(POOLED, pooled, "pooled", {.query_aware = true, .exact = true})                              \
    X(HEADKV, headkv, "headkv",                                                                    \
      {"Fu et al. 2024, arXiv:2410.19258; headkv/snapkv_utils.py", .query_aware = true})           \
    X(EVOLKV, evolkv, "evolkv", {"Yu et al. 2025, arXiv:2509.08315", .query_aware = true})         \
    X(DUOATTENTION, duoattention, "duoattention",                                                  \
      {"Xiao et al. 2024, arXiv:2410.10819; duo_attn/utils.py", .exact = true})

#define POLICY_ID(ID, ...) POLICY_##ID,
typedef enum policy_kind {
    POLICY_TABLE,
    POLICY_IDENTITY,
    POLICY_MATCHED,
    POLICY_RULES(POLICY_ID) POLICY_TABLE_RULES(POLICY_ID) /* the rules, one by one */
    POLICY_NO_UTILITY,
    POLICY_NO_THRESHOLD,
    POLICY_MEAN_GATE,
    POLICY_MEAN_POOL,
    POLICY_HEAD_ONLY,
    POLICY_GATE_ONLY,
    POLICY_KIND_COUNT,
    /* what Python scores: a press of kvpress, named by its class as in SnapKVPress, or
     * attention-matching (scripts/attention_matching.py) */
    POLICY_PRESS
} policy_kind;
#undef POLICY_ID

const char *policy_kind_name(policy_kind kind); /* "table", "identity", ... */
const policy_properties *policy_properties_of(policy_kind kind);
/* The end of the name of a reference whose entries are fitted by a table's bank, as in cake+fit. */
#define POLICY_FIT "+fit"
/* Returns the kind of this name, that of cake for cake+fit. POLICY_KIND_COUNT or more says that it
 * is none that is scored here. */
policy_kind policy_kind_named(const char *name);
/* Tells whether the name ends in POLICY_FIT. */
bool policy_is_fitted(const char *name);
/* Tells whether the kind ranks positions without looking at a table's entries. */
static inline bool policy_is_reference(policy_kind kind) {
    return (kind > POLICY_FULL && kind < POLICY_NO_UTILITY) || kind == POLICY_PRESS;
}
/* Tells whether a reference needs a table, because it is made with the table's shares, floor or
 * score. */
static inline bool policy_needs_table(policy_kind kind) {
    return kind >= POLICY_POOLED && kind < POLICY_NO_UTILITY;
}
/* Tells whether the kind is a table with one part taken out or put back to its start (paper.md
 * section 7). */
static inline bool policy_is_control(policy_kind kind) {
    return kind >= POLICY_NO_UTILITY && kind < POLICY_KIND_COUNT;
}
