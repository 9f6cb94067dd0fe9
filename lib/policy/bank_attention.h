/* The attention that a bank's queries pay to the positions of a prompt, for one KV head at a time
 * (docs/method.md, section 2). A prefill owns it: policy_prefill.c. */
#pragma once

#include "lib/policy/fit_products.h"
#include "lib/policy/policy_parts.h"

enum { BANK_BLOCK = 32 }; /* positions that go together */

/* n reference queries of a KV head, D numbers of each, T positions. All arrays are the prefill's.
 */
typedef struct bank_attention {
    size_t n, D;
    fit_loops run;
    ckvc_attending attending; /* of the open layer */
    float *queries;           /* [n][D] after their rotation */
    uint32_t *positions;      /* [n] theirs */
    float *by_number;         /* [D][n] the queries, times the logits' scale */
    float *logits;            /* [T][n]; at last their exponentials */
    float *most;              /* [n] the largest logit of a query */
    double *sum;              /* [n] of its softmax, then 1 over it */
} bank_attention;

/* Rotates the queries that a block of the table has for head number layer * G + KV head, behind a
 * prompt of n_tokens. */
void bank_attention_begin(bank_attention *b, const ckvc_table *t, uint32_t block, size_t head,
                          uint32_t n_tokens, ckvc_attending attending);
/* Takes the keys [count][D] of positions first ... first + count - 1, after their rotation. */
void bank_attention_take(bank_attention *b, uint32_t first, uint32_t count, const float *keys);
/* Writes the root of the mean over the queries of their squared attention, [n_tokens], once all
 * keys were taken. A query that sees nothing pays none. */
void bank_attention_finish(bank_attention *b, uint32_t n_tokens, double *attention);
