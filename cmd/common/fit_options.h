/* The options of a fit, as fit and compile share them. */
#pragma once

#include "fit/fit_result.h"
#include "cmd/common/options.h"
#include "formats/run/run_dir.h"

extern const opt opts_fit[]; /* rows of fit_options: the fit */
/* These two are calibrate's, too: what --until-stable judges by. */
#define OPT_CQL_ALPHA(member)                                                                      \
    OPT_DOUBLE("cql-alpha", member, "X", 0, 1000,                                                  \
               "weight of the conservative term; 0 is plain regression", .preset = "0.75")
#define OPT_REWARD(member)                                                                         \
    OPT_ENUM("reward", member, "advantage|raw", "over the baseline on unit scale, or as logged")

/* --shard I/N and --shard auto: which part of a run this process makes. */
#define OPT_SHARD(member)                                                                          \
    OPT_TEXT(                                                                                      \
        "shard", member, "I/N|auto",                                                               \
        "make part I of N (from 0): shards I, I + N, ... of a run, prompts of a score; auto: "     \
        "as Slurm, MPI, Kubernetes or torchrun say. `ckvc merge` joins the parts")

/* NULL is no part (count 0). auto asks the environment, and says on stderr what answered. */
ckvc_status shard_option(const char *text, run_part *out, ckvc_err *err) CKVC_MUST_CHECK;
