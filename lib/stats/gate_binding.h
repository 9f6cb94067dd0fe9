/* Where the gate can change what is kept (paper.md section 2, "Binding"): sums over (prompt,
 * layer), and what they mean.
 *
 * Sets of one utility order are its beginnings, so two thresholds keep different sets exactly when
 * they keep different numbers, and the lowest and the highest threshold of a grid differ when any
 * two do. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fewer different sets than this: choices of thresholds rest on the penalty and on chance. */
#define GATE_ALIVE_SHARE 0.05

typedef struct gate_binding {
    uint64_t n;            /* (prompt, layer) */
    uint64_t binding;      /* fewer candidates than the budget at the highest threshold */
    uint64_t differ;       /* the lowest and the highest threshold keep different sets */
    uint64_t kept, window; /* tokens kept, and those of them in the observation window */
    uint64_t budget;       /* tokens allowed */
    uint64_t lo, hi;       /* candidates at the lowest and at the highest threshold */
    uint64_t tokens;       /* T */
} gate_binding;

/* One layer of one prompt: budget in tokens, candidates at both ends of the grid, |S|, |S in the
 * window|, T. */
void gate_binding_add(gate_binding *b, uint32_t budget, uint32_t lo, uint32_t hi, uint32_t kept,
                      uint32_t window, uint32_t n_tokens);
void gate_binding_merge(gate_binding *into, const gate_binding *from);

/* NaN when n is 0. */
double gate_binding_share(const gate_binding *b);        /* binding / n */
double gate_binding_differ_share(const gate_binding *b); /* differ / n */
bool gate_is_alive(const gate_binding *b);               /* differ / n >= GATE_ALIVE_SHARE */

/* What to change where the gate is not alive, one clause; top is the grid's highest threshold. */
void gate_advice(const gate_binding *b, double top, char *out, size_t size);
