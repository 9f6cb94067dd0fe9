/* Where the gate (the threshold) can change what is kept (paper.md section 2, "Binding"): sums over
 * every (prompt, layer), and what they mean.
 *
 * Sets that are ranked by one utility are the beginnings of one list. So two thresholds keep
 * different sets exactly when they keep different numbers, and the lowest and the highest threshold
 * of a grid differ if any two do. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a smaller share of the sets differs, the choice between thresholds rests on the penalty and
 * on chance. */
#define GATE_ALIVE_SHARE 0.05

typedef struct gate_binding {
    uint64_t n;            /* number of (prompt, layer) pairs */
    uint64_t binding;      /* of them: those with fewer candidates than the budget at the highest
                              threshold */
    uint64_t differ;       /* of them: those whose lowest and highest threshold keep different
                              sets */
    uint64_t kept, window; /* tokens kept, and how many of them lie in the observation window */
    uint64_t budget;       /* tokens allowed */
    uint64_t lo, hi;       /* candidates at the lowest and at the highest threshold */
    uint64_t tokens;       /* T */
} gate_binding;

/* Adds one layer of one prompt: the budget in tokens, the candidates at the lowest and the highest
 * threshold, the number kept, how many of these lie in the window, and T. */
void gate_binding_add(gate_binding *b, uint32_t budget, uint32_t lo, uint32_t hi, uint32_t kept,
                      uint32_t window, uint32_t n_tokens);
void gate_binding_merge(gate_binding *into, const gate_binding *from);

/* These shares are NaN when n is 0. */
double gate_binding_share(const gate_binding *b);        /* binding / n */
double gate_binding_differ_share(const gate_binding *b); /* differ / n */
bool gate_is_alive(const gate_binding *b);               /* differ / n >= GATE_ALIVE_SHARE */

/* Writes, as one clause, what to change where the gate is not alive. top is the grid's highest
 * threshold. */
void gate_advice(const gate_binding *b, double top, char *out, size_t size);
