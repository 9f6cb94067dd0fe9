/* The records of a shard prompt by prompt, with what turns them into the rewards of a fit: the
 * sides' states, and the loss of each prompt's baseline. The producer of a shard may have
 * interleaved its prompts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "formats/shard/shard_rows.h"
#include "lib/base/status.h"
#include "formats/run/run_dir.h"

typedef struct prompt_records {
    const shard *s; /* borrowed */
    struct side sides[CKVC_SIDE_COUNT];
    size_t *first; /* [n_prompts + 1] where each prompt's rows begin in `order` */
    /* [n_records] row numbers by prompt; those of a prompt keep the shard's order */
    uint32_t *order;
    double *losses; /* [n_prompts][nB] losses of the baselines; NaN where there is none */
} prompt_records;

/* Sorts the records of the shard `s`, which is borrowed. CKVC_E_DATA: a prompt has two baselines at
 * one budget, or there are more than 2^32 - 1 records or 2^26 prompts times budgets. `x` must be
 * released with prompt_records_fini in every case. */
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

/* The per-head statistics of a scan or a demand pass, as means over prompts. Transfer by rank and
 * by signature read them (paper.md section 9). The prompts' risks stand beside them. */
typedef struct head_signature {
    shard_header h; /* model, window and alpha of its shards */
    /* [L][G][3] sums, which head_signature_finish turns into means: the spread of rho over t, the
     * window attention on the window, and the entropy of the window attention; NULL when there was
     * no prompt */
    double *values;
    size_t n_prompts;
    double *r_struct, *r_sem; /* [n_prompts] the prompts' risks */
    size_t capacity[2];
} head_signature;

/* Tells whether the shard has the statistics, which the first demand shards do not have. */
bool head_signature_there(const shard *s);
/* Adds prompt p of such a shard, which must be of the same model as those before. */
void head_signature_add(head_signature *to, const shard *s, size_t p);
void head_signature_finish(head_signature *s);
/* Reads the statistics of a run's complete scan, or else of its complete demand pass, without
 * held-out prompts. CKVC_E_DATA when the run has neither. *out must be released with
 * head_signature_fini in every case. */
ckvc_status head_signature_read(const run_dir *run, head_signature *out,
                                ckvc_err *err) CKVC_MUST_CHECK;
void head_signature_fini(head_signature *s);
