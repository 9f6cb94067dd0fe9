/* Expected Attention: 4 sinks, and the largest attention expected of the next 512 positions
 * (calib/demand/head_features.h) times the value norm. */
#include "calib/demand/head_features.h"

#include "judge/policies/rules/rule.h"

static void score_head(const head_score *self, const prefill_head *h, const score_room *to) {
    (void)self;
    expected_attention(h, to->frequencies, EXPECTED_SINKS, h->value_norms, to->s, to->scratch);
}

const policy_rule rule_expected_attention = {.by_head = true,
                                             .score = {.on_head = score_head,
                                                       .scratch = expected_attention_scratch,
                                                       .first = EXPECTED_SINKS,
                                                       .queries = true}};
