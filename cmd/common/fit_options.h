/* The options of a fit, which `ckvc fit` and `ckvc compile` share. */
#pragma once

#include "fit/fit_result.h"
#include "cmd/common/options.h"
#include "formats/run/run_dir.h"

extern const opt opts_fit[]; /* rows of fit_options: the fit */
/* `ckvc calibrate` has these two options as well: its --until-stable judges by them. */
#define OPT_CQL_ALPHA(member)                                                                      \
    OPT_DOUBLE("cql-alpha", member, "X", 0, 1000,                                                  \
               "Weigh the conservative term by X; 0 is plain regression.", .preset = "0.75")
#define OPT_REWARD(member)                                                                         \
    OPT_ENUM("reward", member, "advantage|raw",                                                    \
             "Fit the reward's advantage over the baseline, on unit scale, or the raw reward as "  \
             "it was logged.")

/* --shard says which part of a run this process makes: part I of N, or, with auto, the part that
 * a launcher's environment variables name. */
#define OPT_SHARD(member)                                                                          \
    OPT_TEXT("shard", member, "I/N|auto",                                                          \
             "Make only part I of N, counted from 0: shards I, I + N, ... of a run, or the "       \
             "prompts of a score; auto asks Slurm, MPI, Kubernetes or torchrun for both. `ckvc "   \
             "merge` joins the parts.")

/* Reads the value of --shard. A `text` of NULL means no part (count 0). With auto the
 * environment is asked, and a line on stderr says which variable answered. */
ckvc_status shard_option(const char *text, run_part *out, ckvc_err *err) CKVC_MUST_CHECK;
