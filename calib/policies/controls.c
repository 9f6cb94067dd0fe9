/* Controls of `ckvc score`: see controls.h. */
#include "calib/policies/controls.h"

#include <assert.h>

#include "calib/actions/start_table.h"

/* The grid's value nearest to x. */
static double snap(const double *grid, uint32_t n, double x) {
    return grid[ckvc_grid_nearest(grid, n, x)];
}

/* One threshold per layer and block: the mean of its cells, added in their order. */
static void flatten_gate(ckvc_table *t) {
    const uint32_t cells = t->n_entropy_bins * t->n_ppl_bins;
    for (uint32_t l = 0; l < t->n_layers; l++) {
        for (uint32_t b = 0; b < t->n_budgets; b++) {
            float *of_layer = t->tau + ckvc_tau_index(t, l, 0, 0, b);
            double sum = 0.0;
            for (uint32_t c = 0; c < cells; c++) {
                const int a = ckvc_grid_index(t->gate_grid, t->n_gate_actions,
                                              of_layer[(size_t)c * t->n_budgets]);
                assert(a >= 0);
                sum += t->gate_grid[a];
            }
            const float mean = (float)snap(t->gate_grid, t->n_gate_actions, sum / cells);
            for (uint32_t c = 0; c < cells; c++) { of_layer[(size_t)c * t->n_budgets] = mean; }
        }
    }
}

static void fill(float *values, size_t n, double value) {
    for (size_t i = 0; i < n; i++) { values[i] = (float)value; }
}

ckvc_table *score_control_table(score_kind control, const ckvc_table *from) {
    ckvc_table *t = start_table_copy(from);
    switch (control) {
    case SCORE_NO_UTILITY: t->op = CKVC_OPERATOR_NO_UTILITY; break;
    case SCORE_NO_THRESHOLD: t->op = CKVC_OPERATOR_NO_THRESHOLD; break;
    case SCORE_MEAN_POOL: t->op = CKVC_OPERATOR_MEAN_POOL; break;
    case SCORE_MEAN_GATE: flatten_gate(t); break;
    case SCORE_HEAD_ONLY:
        fill(t->tau, ckvc_tau_index(t, t->n_layers, 0, 0, 0),
             snap(t->gate_grid, t->n_gate_actions, ckvc_gate_action(CKVC_GATE_START)));
        break;
    default:
        assert(control == SCORE_GATE_ONLY);
        fill(t->weight, ckvc_weight_index(t, t->n_layers, 0, 0),
             snap(t->head_grid, t->n_head_actions, ckvc_head_action(CKVC_HEAD_NEUTRAL)));
    }
    return t;
}
