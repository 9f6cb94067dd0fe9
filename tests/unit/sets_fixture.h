/* Builds kept sets of made-up prompts as tests ask for them: in one line, of both sides, and
 * without a failure. */
#pragma once

#include "calib/actions/prompt_sets.h"
#include "calib/actions/variants.h"
#include "tests/unit/unit.h"

CKVC_AUTO_OF(ckvc_table, ckvc_table_free)

static inline ckvc_table *new_start_table(uint32_t L, uint32_t G, uint32_t E, uint32_t P,
                                          const double *budgets, uint32_t n_budgets, uint32_t W,
                                          const action_grid *grids) {
    const start_table_spec spec = {.n_layers = L,
                                   .n_heads = G,
                                   .n_entropy_bins = E,
                                   .n_ppl_bins = P,
                                   .budgets = budgets,
                                   .n_budgets = n_budgets,
                                   .window = W,
                                   .grids = grids};
    ckvc_err err = {0};
    ckvc_table *t;
    assert_int_equal(start_table_create(&spec, &t, &err), CKVC_OK);
    return t;
}

/* Builds the sets of alpha [T] and rho [L][G][T], for risks of 4 nats and a perplexity of 20. */
static inline void build_sets(prompt_sets *k, uint32_t T, const float *alpha, const float *rho) {
    const prefill_stats stats = {
        .n_tokens = T, .alpha_f32 = alpha, .rho = rho, .r_struct = 4.0, .r_sem = 20.0};
    prompt_sets_build(k, &stats);
}

static inline void build_variants(variant_list *v, prompt_sets *k, behaviour_kind kind,
                                  int64_t limit, uint64_t seed, const char *id) {
    const behaviour_policy how = {
        .kind = kind, .sides = {true, true}, .limit = limit, .seed = seed};
    variants_build(v, k, &how, id);
}

static inline uint32_t head_action(prompt_sets *k, uint32_t budget, uint32_t layer, uint32_t head,
                                   uint32_t action, uint32_t *positions, uint32_t *n_candidates) {
    const prompt_state s = {CKVC_SIDE_HEAD, budget, layer, head};
    return prompt_sets_action(k, &s, action, positions, n_candidates);
}

static inline uint32_t gate_action(prompt_sets *k, uint32_t budget, uint32_t layer, uint32_t action,
                                   uint32_t *positions, uint32_t *n_candidates) {
    const prompt_state s = {CKVC_SIDE_GATE, budget, layer, CKVC_NO_HEAD};
    return prompt_sets_action(k, &s, action, positions, n_candidates);
}
