/* Many kept sets of one layer: every weight of one head, or every threshold, at little more than
 * the cost of one ckvc_retain.
 *
 * An action moves one thing only, so what it does not move is ordered once a state (n_tokens T, B
 * the budget, A actions):
 *
 *   head    u[t] = max(others[t], own[t] * w): others is fixed, and own[t] * w has the order of own
 *           whatever w. Two lists, the B first by `others` and the B first by `own`, hold the B
 *           first by u of every w between them; merging them finds these.
 *   gate    u is fixed: a threshold cuts the one list of the B first.
 *
 * Cost of a state: O(T log A) for the counts of candidates plus O(B log B) for the lists; of an
 * action: at most 2 B + 2 steps of merging and T/64 words of marks, from which the positions come
 * out ascending. `work` counts these steps. The sets are ckvc_retain's, position for position;
 * tests hold it to that.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/policy/policy_parts.h"

typedef struct ckvc_retain_many {
    uint32_t max_tokens, max_actions;
    uint64_t work; /* steps since init: positions looked at, compared, merged, words scanned */
    /* the state in hand */
    uint32_t n_tokens, n_actions, window_begin;
    uint32_t fill;  /* what the lists have to give: B, less the window that is kept before them */
    bool in_window; /* the lists are the window's: it alone overfills the budget */
    double tau;     /* heads */
    const double *others, *own; /* heads, [T], borrowed */
    const double *weights;      /* heads, [A], borrowed */
    /* [T] positions, ranked, at most fill: by others (heads) or u (gates); by own */
    uint32_t *first, n_first;
    uint32_t *second, n_second;
    uint32_t *n_candidates; /* [A] */
    uint64_t *mark;         /* [T/64 + 1], all zero between calls */
} ckvc_retain_many;

size_t ckvc_retain_many_bytes(uint32_t max_tokens, uint32_t max_actions);
/* False: no memory. */
bool ckvc_retain_many_init(ckvc_retain_many *r, uint32_t max_tokens, uint32_t max_actions);
void ckvc_retain_many_fini(ckvc_retain_many *r);

/* A head's state: utilities are max(others[t], own[t] * weights[a]), none negative. own[t] must be
 * a product of two float32, as alpha[t] * rho[t] is: its 48 bits keep distinct values distinct, and
 * in order, when they are multiplied in double. weights ascend. */
void ckvc_retain_heads(ckvc_retain_many *r, uint32_t n_tokens, const double *others,
                       const double *own, const double *weights, uint32_t n_weights,
                       ckvc_rule rule);
/* A gate's state: utilities are u[t]. taus ascend. */
void ckvc_retain_gates(ckvc_retain_many *r, uint32_t n_tokens, const double *u, const double *taus,
                       uint32_t n_taus, uint32_t budget, uint32_t keep_window);
/* What action `action` of the state keeps, as ckvc_retain gives it. The state's arrays must still
 * be there. */
uint32_t ckvc_retain_action(ckvc_retain_many *r, uint32_t action, uint32_t *kept,
                            uint32_t *n_candidates);

/* The learned score's features in parts, as a prefill that comes tile by tile can make them
 * (policy_prefill.c). Not installed. */
/* Whose mean attention the columns of version 1 before CKVC_FEATURES_OWN are made from: that of the
 * last 8, 32 and 64 rows, the largest of the query heads' own over 64, and that of the last 16. */
enum { CKVC_MEAN_8, CKVC_MEAN_32, CKVC_MEAN_64, CKVC_MEAN_LARGEST, CKVC_MEAN_16, CKVC_MEANS };
extern const uint32_t ckvc_mean_rows[CKVC_MEANS]; /* 0: no mean over all of the group */

/* The columns of one of them, mean [n_tokens], into f[t * stride + column]. */
void ckvc_features_of_mean(uint32_t which, uint32_t n_tokens, const double *mean, uint32_t stride,
                           double *f);
/* The columns from CKVC_FEATURES_OWN on of the token at position t; of v its n_tokens, head_dim and
 * inv_freq are read. key, value [head_dim]. */
void ckvc_features_own(const ckvc_head_view *v, uint32_t t, const float *key, const float *value,
                       double *f);
/* Euclidean, of x [n]. */
double ckvc_norm(const float *x, uint32_t n);
