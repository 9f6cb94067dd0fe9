/* StreamingLLM: keeps the first four positions, then the last ones. Its keys are not rotated to new
 * positions here, just as in kvpress. Where there is room for fewer than four, the first positions
 * are kept. */
#include "judge/policies/rules/rule.h"

void rank_sinks(const rank_ask *a, double *u) {
    enum { SINKS = 4 };
    for (uint32_t t = 0; t < a->n_tokens; t++) { u[t] = t < SINKS ? 2.0 * a->n_tokens - t : t; }
}

const policy_rule rule_streamingllm = {.rank = rank_sinks};
