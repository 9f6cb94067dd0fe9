/* The decisions of the alternating loop (paper.md section 7): which sides a probe's round fits,
 * when a round was the last one, and which round's table goes out. Numbers come in, and decisions
 * go out. */
#pragma once

#include <stdint.h>

#include "formats/side/side.h"
#include "lib/stats/rank.h"

#define ALTERNATION_MAX_ROUNDS 49 /* a round has two passes, and a pass's number has two digits */

typedef enum probe_kind {
    PROBE_JOINT,
    PROBE_HEAD_ONLY,
    PROBE_GATE_ONLY,
    PROBE_INDEPENDENT,
    PROBE_ALPHA_0,
    PROBE_NO_UTILITY,
    PROBE_NO_THRESHOLD,
    PROBE_MEAN_GATE,
    PROBE_MEAN_POOL,
    PROBE_GRID_SEARCH,
    PROBE_EPSILON_GREEDY,
    PROBE_COUNT
} probe_kind;
/* The words stand in the order of the kinds, so that an option that takes them gives the kind as
 * its place among them. */
#define PROBE_NAMES                                                                                \
    "joint|head-only|gate-only|independent|alpha-0|no-utility|no-threshold|mean-gate|mean-pool|"   \
    "grid-search|epsilon-greedy"

const char *probe_name(probe_kind probe);
/* Writes the sides of a round of the loop, in order, and returns how many there are: 1 or 2. */
int probe_sides(probe_kind probe, ckvc_side sides[CKVC_SIDE_COUNT]);
/* Returns the most rounds: `rounds`, or 1 where the probe never returns to a side. */
uint32_t probe_rounds(probe_kind probe, uint32_t rounds);

typedef enum stop_rule {
    STOP_NOT,
    STOP_CONVERGED, /* fewer than max(1 entry, 1%) of the supported entries changed in the round */
    STOP_HELDOUT,   /* the held-out objective did not rise by more than one paired standard error */
    STOP_ROUNDS,    /* as many rounds were made as were asked for */
    STOP_ONCE       /* the probe has one round */
} stop_rule;
const char *stop_name(stop_rule rule); /* "converged", "held-out", "rounds", "one round" */

typedef struct alternation_round {
    size_t changed, supported; /* entries of the sides that the round fitted */
    /* The held-out reward less that of the round before, or of the start table for the first round;
     * with n = 0 it was not measured. */
    rank_interval gain;
    /* The held-out objective: the mean over prompts of the mean over budgets; NaN: not measured. */
    double reward;
} alternation_round;

/* Decides after round `number` (from 1) of a probe whether to stop, and by which rule. The held-out
 * rule needs two prompts, because one has no standard error. */
stop_rule alternation_stop(const alternation_round *round, uint32_t number, probe_kind probe,
                           uint32_t rounds);
/* Returns the index of the round whose table goes out: the one with the highest held-out objective,
 * and of equal ones the later. Where nothing was measured it is the last round. n >= 1. */
size_t alternation_best(const alternation_round *rounds, size_t n);
