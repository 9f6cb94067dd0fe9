/* A shard's worth of records for `ckvc bench` to write and read. */
#pragma once

#include "formats/shard/shard_h5.h"

enum { BENCH_PROMPTS = 16, BENCH_RECORDS = 200000 };

/* As a run writes it: every column filled, values as random as rewards are. *out is the caller's,
 * also after an error. */
ckvc_status bench_shard_create(uint64_t seed, shard **out, ckvc_err *err) CKVC_MUST_CHECK;
