/* Floating-point operations that a stage has to do, counted from the model's shape: what `ckvc
 * bench` divides by the time.
 *
 * A multiply and an add are two. Matrix products and attention (scores and mix) alone are counted,
 * for the rows that are needed and no padding: norms, rotations, exponentials and statistics are
 * work too, but theirs is not the machine's sgemm rate. Of a prefill, keys that a sliding window
 * hides are not counted. */
#pragma once

#include "calib/actions/variants.h"
#include "lib/model/model_spec.h"

/* A layer's causal attention of T rows, a window of so many keys sliding along (0: none). */
double flops_attention(int32_t n_heads, int32_t head_dim, int32_t window, int64_t T);
/* A layer's attention of a continuation's rows to n_kept entries a KV head and their own. */
double flops_kept(int32_t n_heads, int32_t head_dim, double n_kept, int64_t rows);
/* A prompt of T tokens, window W: keys and values of every row, in the last layer the rest for the
 * W + 1 rows that are read, and the head for W rows (paper.md section 4). */
double flops_prefill(const model_shape *s, int64_t T, int64_t W);
/* A continuation of C tokens from layer 0: C - 1 rows, the head for each. n_kept [L]; NULL: T. */
double flops_rollout(const model_shape *s, int64_t T, int64_t C, const uint32_t *n_kept);
/* A demand pass: a prefill, and `rows` more rows on its full cache, of the last layer up to its
 * attention's scores. */
double flops_demand(const model_shape *s, int64_t T, int64_t W, int64_t rows);
/* A variant that leaves the baseline at `layer`: from its attention on, all above, and the head. */
double flops_variant(const model_shape *s, int64_t C, int32_t layer, uint32_t n_kept_own,
                     const uint32_t *n_kept);
/* A sweep over a prompt's variants; baselines that a later batch repeats are not counted again. */
double flops_sweep(const model_shape *s, const prompt_sets *k, const variant_list *v, uint32_t C);
