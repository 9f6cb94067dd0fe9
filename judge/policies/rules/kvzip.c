/* KVzip: ranks by what the prompt's reconstruction attends to (reconstruction.h), all heads of all
 * layers together; keeps 4 sinks. */
#include "judge/policies/rules/window_attention.h"
#include "judge/policies/rules/reconstruction.h"
#include "judge/policies/rules/rule.h"

enum { SINKS = 4 };

static ckvc_status score_prompt(const head_score *self, const scored_prompt *p, ckvc_err *err) {
    (void)self;
    return reconstruct(p->reconstruction, p->session, p->tokens, p->n_tokens, p->s, p->more, err);
}

static void fill_capacities(const allot_ask *a, uint32_t *c) {
    allot_by_rank(a->n_layers * a->n_heads, a->n_tokens, a->s, a->budget, SINKS, c, a->keys);
}

const policy_rule rule_kvzip = {.by_head = true,
                                .sorts = true,
                                .repeats = true,
                                .score = {.finish = score_prompt, .first = SINKS},
                                .allot = fill_capacities};
