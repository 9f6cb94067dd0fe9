/* The records of a shard prompt by prompt, with what turns them into rewards of a fit: its states
 * and the loss of each prompt's baseline. Producers may interleave prompts. */
#pragma once

#include "formats/shard/shard_side.h"
#include "lib/base/status.h"

typedef struct prompt_records {
    const shard *s; /* borrowed */
    struct side sides[CKVC_SIDE_COUNT];
    size_t *first;   /* [n_prompts + 1] where a prompt's rows begin in `order` */
    uint32_t *order; /* [n_records] row numbers by prompt, within it as they stand */
    double *losses;  /* [n_prompts][nB] of the baselines; NaN: none */
} prompt_records;

/* CKVC_E_DATA for two baselines of one prompt and budget, and beyond 2^32 - 1 records or 2^26
 * prompts times budgets. To be released in every case. */
ckvc_status prompt_records_open(prompt_records *x, const shard *s, const char *where,
                                ckvc_err *err) CKVC_MUST_CHECK;
void prompt_records_fini(prompt_records *x);

static inline size_t prompt_records_state(const prompt_records *x, const struct shard_record *r) {
    return shard_state(&x->sides[r->side], r, &x->s->prompts[r->prompt]);
}
static inline double prompt_records_baseline(const prompt_records *x,
                                             const struct shard_record *r) {
    return x->losses[(size_t)r->prompt * x->s->h.n_budgets + r->budget];
}
