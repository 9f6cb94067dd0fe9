/* The per-head statistics of a scan, as prompt means: what transfer by rank and by signature reads
 * (method.md section 9). */
#ifndef CKVC_HEAD_SIGNATURE_H
#define CKVC_HEAD_SIGNATURE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/run/run_dir.h"

/* Adds prompt p of a scan shard to sums [L][G][3]: spread of rho over t, window attention on the
 * window, entropy of the window attention. */
void head_signature_add(double *sums, const shard *s, size_t p);
bool head_signature_there(const shard *s); /* the shard has the statistics */

typedef struct head_signature {
    shard_header h;           /* of the scan: model, window, alpha */
    double *values;           /* [L][G][3] means */
    size_t n_prompts;         /* held-out ones apart */
    double *r_struct, *r_sem; /* [n_prompts] their risks */
    size_t capacity[2];
} head_signature;

/* Of a run's complete scan; CKVC_E_DATA when it has none. To be released in every case. */
ckvc_status head_signature_read(const run_dir *run, head_signature *out,
                                ckvc_err *err) CKVC_MUST_CHECK;
void head_signature_fini(head_signature *s);

#endif
