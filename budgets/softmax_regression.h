/* Which linear form of features gives positions the attention that they will get: the learned
 * ranking of one head (docs/method.md, section 5).
 *
 *   minimise over theta   sum_p [ y_p * log Z_p(theta) - theta . yf_p ] + ridge/2 |theta|^2,
 *   Z_p(theta) = sum_i w_pi exp(theta . f_pi)
 *
 * which is the cross-entropy of softmax(theta . f) to targets y: y_p is their sum over a prompt's
 * positions, yf_p the sum of their features weighted by them, and Z a sum over the positions that
 * were logged, each with its inverse probability. Convex; damped Newton steps, in double and in one
 * order.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct softmax_prompt {
    uint32_t n;           /* logged positions */
    const float *f;       /* [n][D], `stride` apart */
    size_t stride;        /* D at least */
    const double *weight; /* [n] inverse probabilities, positive */
    const double *yf;     /* [D] */
    double y;             /* >= 0 */
} softmax_prompt;

/* Steps end where the gradient is this small: far below what a bootstrap could tell. */
#define SOFTMAX_CERTIFICATE 1e-9

typedef struct softmax_fit {
    double gradient; /* norm of the objective's, per unit of target and deviation of a feature */
    uint32_t steps;
} softmax_fit;

/* theta [D] of prompts [n]. Features are standardised by their weighted mean and deviation over the
 * logged positions and theta is given for the raw ones; ridge acts on the standardised, per unit of
 * target. One that never varies (the constant 1) gets 0: it changes no ranking. */
softmax_fit softmax_regression(const softmax_prompt *prompts, size_t n, uint32_t D, double ridge,
                               double *theta);
/* The mean loss of such a theta on prompts: nats per unit of target, without the ridge. */
double softmax_loss(const softmax_prompt *prompts, size_t n, uint32_t D, const double *theta);
