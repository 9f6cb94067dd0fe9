/* The work of `ckvc report`, for transfer's own. */
#pragma once

#include "cmd/common/options.h"
#include "report/load/report_options.h"

typedef struct report_cli {
    report_options report; /* without the lists of files */
    opt_list scores, answers;
    unsigned require; /* 0 nothing, 1 deploy */
    bool quiet, json;
} report_cli;

/* inputs [n]: tables and runs. */
ckvc_status report_run(const report_cli *c, const char *const *inputs, size_t n,
                       ckvc_err *err) CKVC_MUST_CHECK;
