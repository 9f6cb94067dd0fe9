/* What this machine reaches: the stages of a calibration timed one by one, as CSV rows. */
#pragma once

#include "cmd/common/option_values.h"
#include "lib/base/json.h"
#include "lib/model/model.h"

typedef struct bench_options {
    int64_t n_tokens, continuation, window; /* T, C, W */
    double budget;                          /* tokens, or a share of T */
    int64_t variants;                       /* distinct rollouts per side; < 0: the full grid */
    int64_t repeats; /* of each stage, fewer once BENCH_ENOUGH seconds are spent on it */
    size_t memory;   /* of the sweep's plan; 0: three quarters of what is free */
    int64_t sample;  /* actions timed one by one where the whole is extrapolated */
    uint64_t seed;
    const int32_t *tokens; /* [T + C] of a real prompt, borrowed; NULL: random ids */
    cache_formats formats; /* of what is decoded from */
    opt_list stages;       /* only these, by name; none: all */
} bench_options;

#define BENCH_ENOUGH 60.0 /* seconds */

/* CSV with a header line:
 *   stage,shape,work,unit,runs,seconds_median,seconds_min,rate,gflop,share,note
 * rate is work / median; gflop counted as flops.h says (empty where it says nothing); share is
 * gflop / median over the matmul stage's best rate of the same run (empty without it). model may be
 * NULL: then the stages that need one are left out. */
ckvc_status bench_run(backend *be, model *m, const bench_options *o, ckvc_buffer *csv,
                      ckvc_err *err) CKVC_MUST_CHECK;
