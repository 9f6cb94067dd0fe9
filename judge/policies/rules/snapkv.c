/* SnapKV (its LongBench settings): keeps the last 32 positions, and those before them with the
 * largest mean attention from these, after the maximum over 7 positions. */
#include "judge/policies/rules/rule.h"
#include "judge/policies/rules/window_attention.h"

const policy_rule rule_snapkv = {
    .by_head = true, .score = {.on_head = window_see_largest, .window = 32, .pool = 7, .last = 32}};
