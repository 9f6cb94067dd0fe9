/* See alternation.h. */
#include "cql/rounds/alternation.h"

#include <math.h>

static const char *const probe_names[PROBE_COUNT] = {
    "joint",        "head-only", "gate-only", "independent", "alpha-0",       "no-utility",
    "no-threshold", "mean-gate", "mean-pool", "grid-search", "epsilon-greedy"};

const char *probe_name(probe_kind probe) { return probe_names[probe]; }

int probe_sides(probe_kind probe, ckvc_side sides[CKVC_SIDE_COUNT]) {
    sides[0] = probe == PROBE_GATE_ONLY ? CKVC_SIDE_GATE : CKVC_SIDE_HEAD;
    sides[1] = CKVC_SIDE_GATE;
    /* no-threshold has no thresholds that could be tried */
    return probe == PROBE_HEAD_ONLY || probe == PROBE_GATE_ONLY || probe == PROBE_NO_THRESHOLD ? 1
                                                                                               : 2;
}

static bool probe_once(probe_kind probe) {
    return probe == PROBE_INDEPENDENT || probe == PROBE_GRID_SEARCH;
}

uint32_t probe_rounds(probe_kind probe, uint32_t rounds) { return probe_once(probe) ? 1 : rounds; }

const char *stop_name(stop_rule rule) {
    static const char *const names[] = {"going on", "converged", "held-out", "rounds", "one round"};
    return names[rule];
}

stop_rule alternation_stop(const alternation_round *round, uint32_t number, probe_kind probe,
                           uint32_t rounds) {
    const double few = fmax(1.0, 0.01 * (double)round->supported);
    if (probe_once(probe)) { return STOP_ONCE; }
    if ((double)round->changed < few) { return STOP_CONVERGED; }
    if (round->gain.n >= 2 && !(round->gain.mean > round->gain.se)) { return STOP_HELDOUT; }
    return number >= rounds ? STOP_ROUNDS : STOP_NOT;
}

size_t alternation_best(const alternation_round *rounds, size_t n) {
    size_t best = n - 1;
    for (size_t i = n; i-- > 0;) {
        if (rounds[i].reward > rounds[best].reward ||
            (isnan(rounds[best].reward) && !isnan(rounds[i].reward))) {
            best = i;
        }
    }
    return best;
}
