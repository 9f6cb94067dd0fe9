/* Expected Attention: 4 sinks, and the largest attention expected of the next 512 positions
 * (calib/demand/expected_attention.h) times the value norm. */
#include "calib/demand/expected_attention.h"

#include "calib/policies/rules/rules.h"

static void see(const head_score *self, const prefill_head *h, const score_room *to) {
    (void)self;
    expected_attention(h, to->frequencies, EXPECTED_SINKS, h->value_norms, to->s, to->scratch);
}

const policy_rule rule_expected_attention = {.kind = SCORE_EXPECTED_ATTENTION,
                                             .by_head = true,
                                             .score = {.see = see,
                                                       .scratch = expected_attention_scratch,
                                                       .first = EXPECTED_SINKS,
                                                       .queries = true}};
