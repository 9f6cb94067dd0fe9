/* The work of `ckvc score`, for transfer's report. */
#pragma once

#include "judge/score/score.h"
#include "cmd/common/chosen_policies.h"

typedef struct score_cli {
    inputs_options inputs;
    score_options score; /* without what is opened */
    policies_options of;
    const char *out;
    bool own_command; /* of `ckvc score`: what is stopped goes on with --resume */
    const char *layer_budgets, *shard;
    int64_t limit_time;
    bool resume, dry_run;
    double c_min; /* in place of each table's floors; below 0: those */
} score_cli;

ckvc_status score_run(const score_cli *c, ckvc_err *err) CKVC_MUST_CHECK;
