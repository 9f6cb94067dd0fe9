/* Expected Attention (Devoto et al. 2025). */
#pragma once

#include "lib/model/model.h"

/* How much the next 512 positions will look at each of a prompt, if their queries follow the
 * prompt's own: before rotation normal, of the mean and covariance of its queries from position 4
 * on (the first are sinks), then turned by the mean rotation of those positions. */
enum { EXPECTED_SINKS = 4 };

/* Of one head as the prefill shows it, queries too: softmax over t >= first of
 * k.mean / sqrt(D) + k'cov k / (2D), mean over the group -> s [T], 0 before; times norms [T] if not
 * NULL. frequencies [D/2] that keys and queries were rotated with. */
void expected_attention(const prefill_head *h, const double *frequencies, int64_t first,
                        const double *norms, double *s, double *scratch);
size_t expected_attention_scratch(size_t max_tokens, size_t head_dim, size_t group); /* doubles */
