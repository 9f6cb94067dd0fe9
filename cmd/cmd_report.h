/* The work of `ckvc report`, for transfer's own. */
#ifndef CKVC_CMD_REPORT_H
#define CKVC_CMD_REPORT_H

#include "cmd/common/options.h"
#include "lib/base/status.h"

typedef struct report_cli {
    const char *out;
    opt_list scores;
    int64_t layer_bins, bootstrap, seed, memory;
    bool force, quiet, json;
} report_cli;

/* inputs [n]: tables and runs. */
ckvc_status report_run(const report_cli *c, const char *const *inputs, size_t n,
                       ckvc_err *err) CKVC_MUST_CHECK;

#endif
