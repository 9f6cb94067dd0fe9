/* SnapKV: the last 32, and the largest means of their attention, the largest of 7 positions before
 * them (its LongBench settings). */
#include "judge/policies/rules/rule.h"
#include "judge/policies/rules/window_attention.h"

const policy_rule rule_snapkv = {
    .by_head = true, .score = {.on_head = window_see_largest, .window = 32, .pool = 7, .last = 32}};
