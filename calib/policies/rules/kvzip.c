/* KVzip: what a second pass over the prompt attends to (repeat_pass.h), all heads of all layers by
 * rank; 4 sinks. */
#include "calib/policies/rules/by_rank.h"
#include "calib/policies/rules/rules.h"

enum { SINKS = 4 };

static ckvc_status finish(const head_score *self, const scored_prompt *p, ckvc_err *err) {
    (void)self;
    const repeat_job job = {p->repeat, p->session, p->tokens, p->n_tokens, p->s, p->more};
    return repeat_targets(&job, 1, err);
}

static void allot(const allot_ask *a, uint32_t *c) {
    allot_by_rank(a->n_layers * a->n_heads, a->n_tokens, a->s, a->budget, SINKS, c, a->keys);
}

const policy_rule rule_kvzip = {.kind = SCORE_KVZIP,
                                .by_head = true,
                                .sorts = true,
                                .score = {.finish = finish, .first = SINKS},
                                .allot = allot};
