/* What this machine reaches: the stages of a calibration timed one by one, as CSV rows. */
#ifndef CKVC_BENCH_H
#define CKVC_BENCH_H

#include <stdint.h>

#include "lib/base/buffer.h"
#include "lib/model/model.h"

typedef struct bench_options {
    int64_t n_tokens, continuation, window; /* T, C, W of the synthetic prompt */
    double budget;                          /* tokens, or a share of T */
    int repeats;                            /* of each stage; median and minimum are printed */
    uint64_t seed;
    const char *scratch_dir; /* where the shard is written, read and removed */
} bench_options;

/* CSV with a header line: stage,shape,work,unit,seconds_median,seconds_min,rate (work / median, units per second). model may be NULL:
 * then the stages that need one are left out. */
ckvc_status bench_run(backend *be, model *m, const bench_options *o, ckvc_buffer *csv, ckvc_err *err) CKVC_MUST_CHECK;

#endif
