/* What a compile takes beside its passes, by what its longest prompt took (docs/cost.md): upper
 * bounds, in hours. */
#pragma once

#include "cql/fit/fit_select.h"

typedef struct compile_load {
    double prefill_s, single_s; /* of the longest prompt: a prefill, a continuation */
    /* of the prompts those held out, and of these those that choose */
    size_t n_prompts, n_heldout, n_select, n_budgets;
    uint32_t n_layers, n_kv_heads; /* of the model */
} compile_load;

/* A round of the paper's loop on held-out prompts: two prefills, and one continuation each of the
 * full cache and of three policies at every budget. */
double loop_heldout_hours(const compile_load *l);

/* By demand: two prefills of each held-out prompt, and one continuation each of the full cache and,
 * at every budget, of the scores and floors that are tried or of what the table is held against.
 * Rewards: each round a prefill of every fitted prompt and its rollouts, and held-out scores. */
typedef struct demand_plan {
    ckvc_score_kind score;
    double floor, c_min;
    ckvc_mode mode;
    int64_t rounds, variants; /* of rewards; variants below 0: all */
} demand_plan;
typedef struct demand_cost {
    double select, heldout, rewards, disk_bytes; /* the last: of rewards */
} demand_cost;
demand_cost demand_cost_of(const demand_plan *p, const compile_load *l);
