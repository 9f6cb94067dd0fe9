/* RocketKV's first stage: SnapKV with the largest of 63 positions. Its second stage reads a part of
 * what is kept in every step; that is left to an engine. */
#include "judge/policies/rules/rule.h"
#include "judge/policies/rules/window_attention.h"

const policy_rule rule_rocketkv = {
    .by_head = true,
    .score = {.on_head = window_see_largest, .window = 32, .pool = 63, .last = 32}};
