/* See bank_attention.h. Logits and attention are floats, and sums are double, as in fitting. */
#include "lib/policy/bank_attention.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { TOGETHER = 4 }; /* sums that do not wait for each other */

void bank_attention_begin(bank_attention *b, const ckvc_table *t, uint32_t block, size_t head,
                          uint32_t n_tokens, ckvc_attending attending) {
    b->attending = attending;
    b->run = ckvc_fit_loops(0);
    ckvc_bank_queries(t, block, head, n_tokens, attending.inv_freq, b->queries, b->positions);
    for (size_t i = 0; i < b->n; i++) {
        b->most[i] =
            -FLT_MAX; /* finite, so that it can be taken off the -inf of what is not seen */
        b->sum[i] = 0.0;
        for (size_t d = 0; d < b->D; d++) {
            b->by_number[d * b->n + i] =
                (float)(attending.scale * (double)b->queries[i * b->D + d]);
        }
    }
}

void bank_attention_take(bank_attention *b, uint32_t first, uint32_t count, const float *keys) {
    const size_t n = b->n, D = b->D;
    for (uint32_t done = 0; done < count; done += BANK_BLOCK) {
        const uint32_t rows = count - done < BANK_BLOCK ? count - done : BANK_BLOCK;
        float *logits = b->logits + (size_t)(first + done) * n;
        memset(logits, 0, rows * n * sizeof *logits);
        b->run.product_to_floats(logits, rows, n, n, (fit_floats){keys + done * D, D, 1, 1.0},
                                 b->by_number, D);
        for (uint32_t k = 0; k < rows; k++) {
            ckvc_limit_logits(&b->attending, b->positions, n, first + done + k, logits + k * n);
        }
        b->run.raise(b->most, logits, rows, n);
    }
}

void bank_attention_finish(bank_attention *b, uint32_t n_tokens, double *attention) {
    const size_t n = b->n;
    b->run.attend(b->logits, n_tokens, n, b->most, b->sum);
    for (size_t i = 0; i < n; i++) { b->sum[i] = b->sum[i] > 0.0 ? 1.0 / b->sum[i] : 0.0; }
    for (uint32_t t = 0; t < n_tokens; t += TOGETHER) {
        const uint32_t count = n_tokens - t < TOGETHER ? n_tokens - t : TOGETHER;
        const float *rows = b->logits + t * n;
        double squares[TOGETHER] = {0.0};
        for (size_t i = 0; i < n; i++) {
            for (uint32_t k = 0; k < count; k++) {
                const double of_query = (double)rows[k * n + i] * b->sum[i];
                squares[k] += of_query * of_query;
            }
        }
        for (uint32_t k = 0; k < count; k++) { attention[t + k] = sqrt(squares[k] / (double)n); }
    }
}
