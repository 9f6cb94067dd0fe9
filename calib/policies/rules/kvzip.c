/* KVzip: what the prompt's reconstruction attends to (reconstruction.h), all heads of all layers by
 * rank; 4 sinks. */
#include "calib/policies/rules/by_rank.h"
#include "calib/policies/rules/reconstruction.h"
#include "calib/policies/rules/rules.h"

enum { SINKS = 4 };

static ckvc_status finish(const head_score *self, const scored_prompt *p, ckvc_err *err) {
    (void)self;
    return reconstruct(p->reconstruction, p->session, p->tokens, p->n_tokens, p->s, p->more, err);
}

static void allot(const allot_ask *a, uint32_t *c) {
    allot_by_rank(a->n_layers * a->n_heads, a->n_tokens, a->s, a->budget, SINKS, c, a->keys);
}

const policy_rule rule_kvzip = {.kind = SCORE_KVZIP,
                                .by_head = true,
                                .sorts = true,
                                .score = {.finish = finish, .first = SINKS},
                                .allot = allot};
