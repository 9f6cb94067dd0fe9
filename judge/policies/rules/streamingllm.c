/* StreamingLLM: the first four positions, then the last ones. Its keys are not rotated to new
 * positions here, as they are not in kvpress. Of the four the first: with room for fewer they are
 * what is kept. */
#include "judge/policies/rules/rule.h"

void rank_sinks(const rank_ask *a, double *u) {
    enum { SINKS = 4 };
    for (uint32_t t = 0; t < a->n_tokens; t++) { u[t] = t < SINKS ? 2.0 * a->n_tokens - t : t; }
}

const policy_rule rule_streamingllm = {.rank = rank_sinks};
