/* Rankings that depend on nothing but a prompt's length: everything, the last positions, sinks and
 * then the last (as streamingllm does), and an order drawn by (seed, prompt id). */
#include "judge/policies/rules/rule.h"
#include "lib/base/hash.h"

enum { STAGE_RANDOM = 16 };

static void rank_recent(const rank_ask *a, double *u) {
    for (uint32_t t = 0; t < a->n_tokens; t++) { u[t] = t; }
}

static void rank_random(const rank_ask *a, double *u) {
    ckvc_rng rng;
    ckvc_rng_init(&rng, a->seed, ckvc_rng_key(a->prompt_id), STAGE_RANDOM);
    for (uint32_t t = 0; t < a->n_tokens; t++) { u[t] = ckvc_rng_double(&rng); }
}

static void allot_all(const allot_ask *a, uint32_t *c) { allot_evenly(a, a->n_tokens, c); }

const policy_rule rule_full = {.rank = rank_recent, .allot = allot_all};

const policy_rule rule_recent = {.rank = rank_recent};

const policy_rule rule_sink_recent = {.rank = rank_sinks};

const policy_rule rule_random = {.rank = rank_random};
