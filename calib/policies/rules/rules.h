/* The rules, each of its own file. */
#pragma once

#include "calib/policies/rules/rule.h"

#define POLICY_RULES(X)                                                                            \
    X(full)                                                                                        \
    X(recent)                                                                                      \
    X(sink_recent)                                                                                 \
    X(random)                                                                                      \
    X(window)                                                                                      \
    X(window_pooled)                                                                               \
    X(streamingllm)                                                                                \
    X(h2o)                                                                                         \
    X(snapkv)                                                                                      \
    X(pyramidkv)                                                                                   \
    X(adakv)                                                                                       \
    X(cake)                                                                                        \
    X(expected_attention)                                                                          \
    X(tova)                                                                                        \
    X(keydiff)                                                                                     \
    X(dynamickv)                                                                                   \
    X(chunkkv)                                                                                     \
    X(fastkv_selection)                                                                            \
    X(kvzip)                                                                                       \
    X(pooled)                                                                                      \
    X(headkv)                                                                                      \
    X(duoattention)

#define DECLARE(name) extern const policy_rule rule_##name;
POLICY_RULES(DECLARE)
#undef DECLARE

/* streamingllm's: four sinks, then the last positions. */
void rank_sinks(const rank_ask *a, double *u);
