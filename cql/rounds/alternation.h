/* The alternating loop's decisions (paper.md section 7): which sides a probe's round fits, when a
 * round was the last one, which round's table goes out. Numbers in, decisions out. */
#pragma once

#include <stdint.h>

#include "formats/side/side.h"
#include "lib/stats/rank.h"

#define ALTERNATION_MAX_ROUNDS 49 /* two passes each; a pass has two digits */

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
/* In the kinds' order: an option of them is the place of its word. */
#define PROBE_NAMES                                                                                \
    "joint|head-only|gate-only|independent|alpha-0|no-utility|no-threshold|mean-gate|mean-pool|"   \
    "grid-search|epsilon-greedy"

const char *probe_name(probe_kind probe);
/* Sides of a round of the loop, in order; returns how many: 1 or 2. */
int probe_sides(probe_kind probe, ckvc_side sides[CKVC_SIDE_COUNT]);
/* Rounds at most: `rounds`, or 1 where the probe never returns to a side. */
uint32_t probe_rounds(probe_kind probe, uint32_t rounds);

typedef enum stop_rule {
    STOP_NOT,
    STOP_CONVERGED, /* fewer than max(1 entry, 1%) of the supported entries changed in the round */
    STOP_HELDOUT,   /* the held-out objective did not rise by more than one paired standard error */
    STOP_ROUNDS,    /* the rounds that were asked for */
    STOP_ONCE       /* the probe's one round */
} stop_rule;
const char *stop_name(stop_rule rule); /* "converged", "held-out", "rounds", "one round" */

typedef struct alternation_round {
    size_t changed, supported; /* entries of the sides that the round fitted */
    rank_interval gain; /* held-out reward over that of the round before (the start table for the
                           first); n = 0: not measured */
    double reward;      /* held-out objective: mean over prompts of the mean over budgets; NaN: not
                           measured */
} alternation_round;

/* After round `number` (from 1) of a probe. The held-out rule needs two prompts: one has no
 * standard error. */
stop_rule alternation_stop(const alternation_round *round, uint32_t number, probe_kind probe,
                           uint32_t rounds);
/* Index of the round whose table goes out: the highest held-out objective, of equal ones the later;
 * the last round where nothing was measured. n >= 1. */
size_t alternation_best(const alternation_round *rounds, size_t n);
