/* The records of a shard prompt by prompt, with what turns them into rewards of a fit: its states
 * and the loss of each prompt's baseline. Producers may interleave prompts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "formats/shard/shard_rows.h"
#include "lib/base/status.h"
#include "formats/run/run_dir.h"

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

/* The per-head statistics of a scan or a demand pass, as prompt means: what transfer by rank and by
 * signature reads (paper.md section 9), with the prompts' risks. */
typedef struct head_signature {
    shard_header h; /* of its shards: model, window, alpha */
    /* [L][G][3] sums, once finished means: spread of rho over t, window attention on the window,
     * entropy of the window attention; NULL: no prompt */
    double *values;
    size_t n_prompts;
    double *r_struct, *r_sem; /* [n_prompts] their risks */
    size_t capacity[2];
} head_signature;

/* The shard has the statistics: the first demand shards do not. */
bool head_signature_there(const shard *s);
/* Prompt p of such a shard of the same model as those before. */
void head_signature_add(head_signature *to, const shard *s, size_t p);
void head_signature_finish(head_signature *s);
/* Of a run's complete scan, or of its complete demand pass, held-out prompts apart; CKVC_E_DATA
 * when it has neither. To be released in every case. */
ckvc_status head_signature_read(const run_dir *run, head_signature *out,
                                ckvc_err *err) CKVC_MUST_CHECK;
void head_signature_fini(head_signature *s);
