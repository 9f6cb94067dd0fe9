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
    X(fastkv)                                                                                      \
    X(kvzip)                                                                                       \
    X(pooled)                                                                                      \
    X(headkv)                                                                                      \
    X(duoattention)

#define DECLARE(name) extern const policy_rule rule_##name;
POLICY_RULES(DECLARE)
#undef DECLARE

/* fastkv's: the first layer of which some rows alone go on, L for none; and how many. */
uint32_t fastkv_from(uint32_t n_layers);
uint32_t fastkv_rows(uint32_t n_tokens);

/* streamingllm's: four sinks, then the last positions. */
void rank_sinks(const rank_ask *a, double *u);
