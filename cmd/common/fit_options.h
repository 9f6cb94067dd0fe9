/* The options of a fit, as fit and compile share them. */
#pragma once

#include "fit/fit_result.h"
#include "cmd/common/options.h"
#include "formats/run/run_dir.h"

extern const opt opts_fit[]; /* rows of fit_options: the fit */
/* These two are calibrate's, too: what --until-stable judges by. */
#define OPT_CQL_ALPHA(member)                                                                      \
    OPT_DOUBLE("cql-alpha", member, "X", 0, 1000,                                                  \
               "Weigh the conservative term by X; 0 is plain regression.", .preset = "0.75")
#define OPT_REWARD(member)                                                                         \
    OPT_ENUM("reward", member, "advantage|raw",                                                    \
             "Fit the reward's advantage over the baseline, on unit scale, or the raw reward as "  \
             "it was logged.")

/* --shard I/N and --shard auto: which part of a run this process makes. */
#define OPT_SHARD(member)                                                                          \
    OPT_TEXT("shard", member, "I/N|auto",                                                          \
             "Make only part I of N, counted from 0: shards I, I + N, ... of a run, or the "       \
             "prompts of a score; auto asks Slurm, MPI, Kubernetes or torchrun for both. `ckvc "   \
             "merge` joins the parts.")

/* NULL is no part (count 0). auto asks the environment, and says on stderr what answered. */
ckvc_status shard_option(const char *text, run_part *out, ckvc_err *err) CKVC_MUST_CHECK;
