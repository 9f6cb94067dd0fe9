/* --shard I/N and --shard auto: which part of a run this process makes. */
#pragma once

#include "cmd/common/options.h"
#include "formats/run/run_dir.h"

#define OPT_SHARD(member)                                                                          \
    OPT_TEXT(                                                                                      \
        "shard", member, "I/N|auto",                                                               \
        "make part I of N (from 0): shards I, I + N, ... of a run, prompts of a score; auto: "     \
        "as Slurm, MPI, Kubernetes or torchrun say. `ckvc merge` joins the parts")

/* NULL is no part (count 0). auto asks the environment, and says on stderr what answered. */
ckvc_status shard_option(const char *text, run_part *out, ckvc_err *err) CKVC_MUST_CHECK;
