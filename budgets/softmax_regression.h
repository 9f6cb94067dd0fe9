/* Finds the linear form of features that best gives positions the attention that they will get.
 * This is the learned ranking of one head (docs/method.md, section 5).
 *
 *   minimise over theta   sum_p [ y_p * log Z_p(theta) - theta . yf_p ] + ridge/2 |theta|^2,
 *   Z_p(theta) = sum_i w_pi exp(theta . f_pi)
 *
 * This is the cross-entropy of softmax(theta . f) to targets y. Here y_p is the sum of the targets
 * over a prompt's positions, yf_p is the sum of the positions' features weighted by their targets,
 * and Z is a sum over the positions that were logged, each weighted by its inverse probability. The
 * objective is convex. It is minimised by damped Newton steps, in double and in one fixed order. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct softmax_prompt {
    uint32_t n;           /* how many positions are logged */
    const float *f;       /* [n][D] features; rows are `stride` apart */
    size_t stride;        /* at least D */
    const double *weight; /* [n] inverse probabilities, positive */
    const double *yf;     /* [D] */
    double y;             /* >= 0 */
} softmax_prompt;

/* Steps end where the gradient is this small, which is far below what a bootstrap could tell. */
#define SOFTMAX_CERTIFICATE 1e-9

typedef struct softmax_fit {
    /* norm of the objective's gradient, per unit of target and deviation of a feature */
    double gradient;
    uint32_t steps;
} softmax_fit;

/* Fits theta [D] to prompts [n]. Features are standardised by their weighted mean and deviation
 * over the logged positions, and theta is given for the raw ones. The ridge acts on the
 * standardised features, per unit of target. A feature that never varies (the constant 1) gets 0,
 * since it changes no ranking. */
softmax_fit softmax_regression(const softmax_prompt *prompts, size_t n, uint32_t D, double ridge,
                               double *theta);
/* Returns the mean loss of such a theta on prompts, in nats per unit of target, without the ridge.
 */
double softmax_loss(const softmax_prompt *prompts, size_t n, uint32_t D, const double *theta);
