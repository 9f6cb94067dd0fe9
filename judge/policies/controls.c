/* Controls of `ckvc score`: see controls.h. */
#include "judge/policies/controls.h"

#include <assert.h>
#include <math.h>

#include "calib/actions/prompt_sets.h"
#include "lib/base/names.h"

/* The grid value nearest to x. */
static double nearest_of_grid(const double *grid, uint32_t n, double x) {
    return grid[ckvc_grid_nearest(grid, n, x)];
}

/* Gives each layer and block one threshold: the mean of its cells, added in their order. */
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
            const float mean = (float)nearest_of_grid(t->gate_grid, t->n_gate_actions, sum / cells);
            for (uint32_t c = 0; c < cells; c++) { of_layer[(size_t)c * t->n_budgets] = mean; }
        }
    }
}

static void fill_floats(float *values, size_t n, double value) {
    for (size_t i = 0; i < n; i++) { values[i] = (float)value; }
}

ckvc_table *policy_control_table(policy_kind control, const ckvc_table *from) {
    ckvc_table *t = start_table_copy(from);
    switch (control) {
    case POLICY_NO_UTILITY: t->op = CKVC_OPERATOR_NO_UTILITY; break;
    case POLICY_NO_THRESHOLD: t->op = CKVC_OPERATOR_NO_THRESHOLD; break;
    case POLICY_MEAN_POOL: t->op = CKVC_OPERATOR_MEAN_POOL; break;
    case POLICY_MEAN_GATE: flatten_gate(t); break;
    case POLICY_HEAD_ONLY:
        fill_floats(
            t->tau, ckvc_tau_index(t, t->n_layers, 0, 0, 0),
            nearest_of_grid(t->gate_grid, t->n_gate_actions, ckvc_gate_action(CKVC_GATE_START)));
        break;
    default:
        assert(control == POLICY_GATE_ONLY);
        fill_floats(
            t->weight, ckvc_weight_index(t, t->n_layers, 0, 0),
            nearest_of_grid(t->head_grid, t->n_head_actions, ckvc_head_action(CKVC_HEAD_NEUTRAL)));
    }
    return t;
}

static double step_tau(const matched_tau *m, int j) {
    return m->wide ? j / 200.0 * (j / 200.0) : j / 200.0;
}

/* n_above[j] receives the number of tokens with u >= tau_j, or in the window that is kept anyway.
 * Each token is counted at the last step that it reaches; then the counts are summed from above. */
static void count_steps(const matched_tau *m, const matched_unit *unit,
                        uint32_t n_above[MATCHED_STEPS]) {
    for (uint32_t t = 0; t < unit->n_tokens; t++) {
        const double u = unit->u[t], step = floor((m->wide ? sqrt(u) : u) * 200.0);
        int j = step >= MATCHED_STEPS - 1 ? MATCHED_STEPS - 1 : (int)step;
        while (j + 1 < MATCHED_STEPS && u >= step_tau(m, j + 1)) { j++; }
        while (j > 0 && u < step_tau(m, j)) { j--; }
        n_above[t + unit->keep_window >= unit->n_tokens ? MATCHED_STEPS - 1 : j]++;
    }
    for (int j = MATCHED_STEPS - 2; j >= 0; j--) { n_above[j] += n_above[j + 1]; }
}

void matched_tau_add(matched_tau *m, const matched_unit *unit, uint32_t wanted) {
    uint32_t n_above[MATCHED_STEPS] = {0};
    count_steps(m, unit, n_above);
    for (int j = 0; j < MATCHED_STEPS; j++) {
        m->kept[j] += n_above[j] < unit->most ? n_above[j] : unit->most;
    }
    m->wanted += wanted;
}

double matched_tau_find(const matched_tau *m) {
    int best = (int)(ckvc_gate_action(CKVC_GATE_START) * 200);
    for (int j = 0; j < MATCHED_STEPS; j++) {
        if (fabs(m->kept[j] - m->wanted) < fabs(m->kept[best] - m->wanted)) { best = j; }
    }
    return step_tau(m, best);
}
