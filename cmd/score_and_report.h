/* The work of `ckvc score` and of `ckvc report`, for transfer's own report. */
#pragma once

#include "cmd/common/chosen_policies.h"
#include "judge/score/score.h"
#include "report/load/report_options.h"

typedef struct score_cli {
    inputs_options inputs;
    score_options score; /* without what is opened */
    policies_options of;
    const char *out;
    bool own_command; /* this is `ckvc score`, where what is stopped goes on with --resume */
    const char *layer_budgets, *shard;
    int64_t limit_time;
    bool resume, dry_run;
    double c_min; /* a kept floor in place of each table's own; below 0: the tables' */
    double ridge; /* by which kept entries are fitted, in place of what tables say; below 0: the
                     tables' */
} score_cli;

ckvc_status score_run(const score_cli *c, ckvc_err *err) CKVC_MUST_CHECK;

typedef struct report_cli {
    report_options report; /* without the lists of files */
    opt_list scores, answers;
    const char *card, *base_model, *licence; /* a model hub's card; NULL: none, and no such model */
    unsigned require;                        /* 0 nothing, 1 deploy */
    bool quiet, json;
} report_cli;

/* inputs [n]: tables and runs. */
ckvc_status report_run(const report_cli *c, const char *const *inputs, size_t n,
                       ckvc_err *err) CKVC_MUST_CHECK;
