/* What `ckvc bench` works on where no prompt does: a shard's worth of records, one layer's
 * attention. */
#ifndef CKVC_BENCH_DATA_H
#define CKVC_BENCH_DATA_H

#include <stdint.h>

#include "formats/shard/shard_h5.h"
#include "lib/backend/backend.h"

/* A shard as a run writes it: every column filled, values as random as rewards are. *out is the
 * caller's, also after an error. */
ckvc_status bench_shard_create(uint32_t n_prompts, uint32_t n_records, uint64_t seed, shard **out,
                               ckvc_err *err) CKVC_MUST_CHECK;

/* A layer's causal attention of all rows of a prompt, on random queries, keys and values. */
typedef struct bench_attention {
    be_attention_shape shape;
    int64_t n_tokens;
    be_buf *q, *out;
    be_cache cache;
} bench_attention;

void bench_attention_init(bench_attention *a, backend *be, const be_attention_shape *s,
                          int64_t n_tokens, uint64_t seed);
ckvc_status bench_attention_run(backend *be, const bench_attention *a,
                                ckvc_err *err) CKVC_MUST_CHECK;
void bench_attention_fini(backend *be, bench_attention *a);

#endif
