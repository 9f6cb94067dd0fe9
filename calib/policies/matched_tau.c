/* The threshold that matches a table: see matched_tau.h. */
#include "calib/policies/matched_tau.h"

#include <math.h>

#include "lib/base/names.h"

static double step_tau(const matched_tau *m, int j) {
    return m->wide ? j / 200.0 * (j / 200.0) : j / 200.0;
}

/* n_above[j]: tokens with u >= tau_j, or in the window that is kept. Counted by their last step,
 * then summed from above. */
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
