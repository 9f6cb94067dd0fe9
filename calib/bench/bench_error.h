/* What another arithmetic does to rewards and to the tables fitted from them: the same prompts
 * through two models that differ in it alone. */
#pragma once

#include "calib/rollout/worker.h"
#include "lib/base/buffer.h"

typedef struct bench_error_options {
    int64_t window;   /* W */
    double budget;    /* tokens, or a share of T */
    int64_t variants; /* distinct rollouts per side; < 0: all */
    size_t memory;    /* of each arithmetic's sweep; 0: three eighths of what is free */
    uint64_t seed;
} bench_error_options;

typedef struct bench_error {
    uint64_t n_rewards;
    /* The reference's kept sets, evaluated by either: nats per token. */
    double reward_mean, reward_max;       /* |difference| of rewards */
    double advantage_mean, advantage_max; /* of advantages, which a table sees */
    double advantage_sd; /* of the reference's advantages: what these are to be held against */
    /* Each with its own statistics and kept sets, as a run has them. */
    double kept_share;  /* of the positions that the reference keeps (baselines), those that the
                           other does not */
    uint64_t n_cells;   /* of both tables together */
    uint64_t n_live;    /* those with an action that changes a kept set, in either arithmetic */
    uint64_t n_changed; /* whose chosen action differs */
    double regret; /* mean over changed cells of the reference's mean reward, its choice less the
                      other's; nats per token */
    uint64_t n_side[CKVC_SIDE_COUNT], n_side_changed[CKVC_SIDE_COUNT]; /* the same by side */
} bench_error;

/* inputs [2]: the reference's and the other's, which have one directory's model and the same
 * prompts. Tables start from identity with one risk cell and are fitted exactly from advantages
 * (alpha 0.75). CKVC_E_DATA when a loss is not finite. */
ckvc_status bench_error_measure(const calibrate_inputs inputs[2], const bench_error_options *o,
                                bench_error *out, ckvc_err *err) CKVC_MUST_CHECK;
/* The same as rows of bench.h's CSV: the value stands in `rate`, its kind in `unit`, work is what
 * it was taken over. */
void bench_error_rows(const bench_error *e, const char *shape, const char *note, ckvc_buffer *csv);
/* And as sentences, one a line. */
void bench_error_text(const bench_error *e, const char *name, ckvc_buffer *text);
