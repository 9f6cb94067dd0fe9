/* What a learned score's features are computed from, of a KV head as the prefill shows it. */
#pragma once

#include "lib/model/model.h"
#include "lib/policy/ckvc_policy.h"

/* For ckvc_features; borrows. frequencies: of the session's keys. */
ckvc_head_view head_features_view(const prefill_head *h, const double *frequencies);
/* Adds the head to its layer's attention [T], for ckvc_features_late: the mean over the rows that
 * features look at and the query heads of all n_heads KV heads. Head 0 begins it. */
void head_features_add(const prefill_head *h, uint32_t n_heads, double *layer);

/* Expected Attention: how much the next 512 positions will look at each of a prompt, if their
 * queries follow the prompt's own: before rotation normal, of the mean and covariance of its
 * queries from position 4 on (the first are sinks), then turned by the mean rotation of those
 * positions. */
enum { EXPECTED_SINKS = 4 };

/* Of one head as the prefill shows it, queries too: softmax over t >= first of
 * k.mean / sqrt(D) + k'cov k / (2D), mean over the group -> s [T], 0 before; times norms [T] if not
 * NULL. frequencies [D/2] that keys and queries were rotated with. */
void expected_attention(const prefill_head *h, const double *frequencies, int64_t first,
                        const double *norms, double *s, double *scratch);
size_t expected_attention_scratch(size_t max_tokens, size_t head_dim, size_t group); /* doubles */
