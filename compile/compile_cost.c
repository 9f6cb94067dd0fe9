/* See compile_cost.h. */
#include "compile/compile_cost.h"

#include <math.h>

#include "calib/log/calibrate.h"

enum { REFERENCES = 7 }; /* what a table by demand is held against */

/* n prompts, each under so many policies at every budget. */
static double scored_hours(const compile_load *l, size_t n, double policies) {
    const double each = 2 * l->prefill_s + (1 + policies * (double)l->n_budgets) * l->single_s;
    return (double)n * each / 3600;
}

double loop_heldout_hours(const compile_load *l) { return scored_hours(l, l->n_heldout, 3); }

demand_cost demand_cost_of(const demand_plan *p, const compile_load *l) {
    select_candidate candidates[SELECT_MAX];
    const double tried = (double)select_candidates(true, p->score, p->floor, p->c_min, candidates);
    demand_cost o = {.select = scored_hours(l, l->n_select, tried),
                     .heldout = scored_hours(l, l->n_heldout - l->n_select, REFERENCES)};
    const double n_fitted = (double)(l->n_prompts - l->n_heldout),
                 limit = p->variants < 0 ? HUGE_VAL : (double)p->variants;
    o.rewards = (p->rounds ? (double)p->rounds + 1 : 0) * scored_hours(l, l->n_select, 1);
    for (int64_t round = 0; round < p->rounds; round++) {
        const bool gate = round % 2;
        const uint32_t actions = gate ? SHARE_THRESHOLDS : SHARE_FACTORS;
        const double states = (double)l->n_layers * (double)l->n_budgets *
                              (!gate && p->mode == CKVC_MODE_HEADS ? l->n_kv_heads : 1),
                     tries = fmin(limit, states * (actions - 1));
        o.rewards += n_fitted * (l->prefill_s + (1 + tries) * l->single_s) / 3600 + o.heldout;
        o.disk_bytes +=
            (double)l->n_prompts * states * actions * (sizeof(double) + sizeof(uint32_t));
    }
    return o;
}
