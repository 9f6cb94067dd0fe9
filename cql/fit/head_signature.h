/* The per-head statistics of a scan or a demand pass, as prompt means: what transfer by rank and by
 * signature reads (method.md section 9), with the prompts' risks. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "formats/run/run_dir.h"

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
