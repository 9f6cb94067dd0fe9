/* Computes many kept sets of one layer, one for every weight of one head or for every threshold, at
 * little more than the cost of one ckvc_retain.
 *
 * The actions of a state differ in one number only, so everything else is put in order once for
 * each state (T = n_tokens, B the budget, A actions):
 *
 *   head    u[t] = max(others[t], own[t] * w): others is fixed, and own[t] * w has the order of own
 *           for every w. Two lists, the B first by `others` and the B first by `own`, contain the B
 *           first by u for every w between them; merging the lists finds these.
 *   gate    u is fixed: a threshold cuts the one list of the B first.
 *
 * A state costs O(T log A) for the numbers of candidates and O(B log B) for the lists. An action
 * costs at most 2 B + 2 steps of merging and T/64 words of marks, from which the positions come out
 * in ascending order. `work` counts these steps. The sets are those of ckvc_retain, position for
 * position; tests check that. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/policy/policy_parts.h"

typedef struct ckvc_retain_many {
    uint32_t max_tokens, max_actions;
    uint64_t work; /* steps since init: positions read, compared and merged, words scanned */
    /* the current state */
    uint32_t n_tokens, n_actions, window_begin;
    uint32_t fill; /* how many the lists must give: B less the window, which is kept before them */
    /* The window alone overfills the budget, so the lists hold positions of the window. */
    bool in_window;
    double tau;                 /* of a head's state */
    const double *others, *own; /* of a head's state, [T], borrowed */
    const double *weights;      /* of a head's state, [A], borrowed; NULL in a gate's state */
    /* [T] positions in ranking order, at most `fill` of them: `first` is ranked by others (heads)
     * or by u (gates), `second` by own */
    uint32_t *first, n_first;
    uint32_t *second, n_second;
    uint32_t *n_candidates; /* [A] */
    uint64_t *mark;         /* [T/64 + 1], all zero between calls */
} ckvc_retain_many;

size_t ckvc_retain_many_bytes(uint32_t max_tokens, uint32_t max_actions);
/* Allocates the arrays; false when memory is out. ckvc_retain_many_fini frees them. */
bool ckvc_retain_many_init(ckvc_retain_many *r, uint32_t max_tokens, uint32_t max_actions);
void ckvc_retain_many_fini(ckvc_retain_many *r);

/* Begins a head's state: utilities are max(others[t], own[t] * weights[a]), none of them negative.
 * own[t] must be a product of two float32, as alpha[t] * rho[t] is: its 48 bits keep distinct
 * values distinct, and in order, when they are multiplied in double. weights ascend. The arrays are
 * borrowed until the last ckvc_retain_action of the state. */
void ckvc_retain_heads(ckvc_retain_many *r, uint32_t n_tokens, const double *others,
                       const double *own, const double *weights, uint32_t n_weights,
                       ckvc_rule rule);
/* Begins a gate's state: utilities are u[t]. taus ascend. */
void ckvc_retain_gates(ckvc_retain_many *r, uint32_t n_tokens, const double *u, const double *taus,
                       uint32_t n_taus, uint32_t budget, uint32_t keep_window);
/* Computes what action `action` of the state keeps, as ckvc_retain would. The arrays that the state
 * was begun with must still be there. */
uint32_t ckvc_retain_action(ckvc_retain_many *r, uint32_t action, uint32_t *kept,
                            uint32_t *n_candidates);

/* The features of the learned ranking in parts, for policy_prefill.c, which gets a prefill tile by
 * tile. This header is not installed. */
/* The columns of version 1 before CKVC_FEATURES_OWN are made from five averages of attention: the
 * means over the last 8, 32, 64 and 16 rows, and the largest of the query heads' own means over 64
 * rows. */
enum { CKVC_MEAN_8, CKVC_MEAN_32, CKVC_MEAN_64, CKVC_MEAN_LARGEST, CKVC_MEAN_16, CKVC_MEANS };
extern const uint32_t ckvc_mean_rows[CKVC_MEANS]; /* rows of each; 0 for the largest one */

/* Writes the columns that belong to one of these averages, mean [n_tokens], to f[t * stride +
 * column]. */
void ckvc_features_of_mean(uint32_t which, uint32_t n_tokens, const double *mean, uint32_t stride,
                           double *f);
/* Writes the columns from CKVC_FEATURES_OWN on of the token at position t, from its key and value
 * [head_dim]. Of v, only n_tokens, head_dim and inv_freq are read. */
void ckvc_features_own(const ckvc_head_view *v, uint32_t t, const float *key, const float *value,
                       double *f);
/* The Euclidean norm of x [n]. */
double ckvc_norm(const float *x, uint32_t n);
