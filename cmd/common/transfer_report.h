/* `transfer --report`: the transferred table against one that was compiled for the target, and
 * against identity. */
#ifndef CKVC_CMD_TRANSFER_REPORT_H
#define CKVC_CMD_TRANSFER_REPORT_H

#include "cmd/common/options.h"
#include "formats/table/table_file.h"

typedef struct transfer_report_cli {
    const char *out, *against, *manifest;
    opt_list scores, split;
} transfer_report_cli;

#define OPTS_TRANSFER_REPORT(r)                                                                    \
    {OPT_TITLE, "what it brings there", 0, NULL, NULL, NULL, 0, 0},                                \
        {OPT_TEXT, "report", 0,                                                                    \
         &(r).out, "DIR",    "write a report of the new table, as `ckvc report` does",             \
         0,        0},                                                                             \
        {OPT_TEXT,  "against",                                                                     \
         0,         &(r).against,                                                                  \
         "T3.ckvt", "a table compiled for the target: compared in the report",                     \
         0,         0},                                                                            \
        {OPT_TEXT, "manifest",                                                                     \
         0,        &(r).manifest,                                                                  \
         "FILE",   "score both tables and identity on these prompts (needs --to-model)",           \
         0,        0},                                                                             \
        {OPT_LIST, "split", 0, &(r).split, "NAME,...", "only prompts of these splits", 0, 0}, {    \
        OPT_LIST, "scores", 0, &(r).scores, "S.jsonl,...",                                         \
            "scores that are there already, for the report", 0, 0                                  \
    }

/* Before the work: options and tables that do not go together. */
ckvc_status transfer_report_check(const transfer_report_cli *c, const char *to_model,
                                  const table_file *from, ckvc_err *err) CKVC_MUST_CHECK;
/* Runs `ckvc score` (into DIR/scores.jsonl, when there is a manifest) and `ckvc report`; returns
 * the exit code. */
int transfer_report(const transfer_report_cli *c, const char *to_model, const char *table_path,
                    const table_file *table, bool force);

#endif
