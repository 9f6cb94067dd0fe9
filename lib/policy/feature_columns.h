/* The learned score's features in parts, as a prefill that comes tile by tile can make them
 * (policy_prefill.c). Not installed. */
#pragma once

#include "lib/policy/ckvc_policy.h"

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
