/* What a learned score's features are computed from, of a KV head as the prefill shows it. */
#pragma once

#include "lib/model/model.h"
#include "lib/policy/ckvc_policy.h"

/* For ckvc_features; borrows. frequencies: of the session's keys. */
ckvc_head_view head_features_view(const prefill_head *h, const double *frequencies);
/* Adds the head to its layer's attention [T], for ckvc_features_late: the mean over the rows that
 * features look at and the query heads of all n_heads KV heads. Head 0 begins it. */
void head_features_add(const prefill_head *h, uint32_t n_heads, double *layer);
