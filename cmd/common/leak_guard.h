/* The leak guard outside `manifest check`: a record that goes into a plan, and what a table's
 * record says about a score. */
#pragma once

#include <jansson.h>

#include "cmd/common/opened_inputs.h"
#include "formats/table/table_file.h"

/* *out: the record as the plan keeps it, a new reference; NULL when path is NULL. A record of
 * another manifest, or of fewer prompts than this run takes, is CKVC_E_MISMATCH. Warns when it
 * found leaks. */
ckvc_status leak_guard_plan(const char *path, const opened_inputs *e, json_t **out,
                            ckvc_err *err) CKVC_MUST_CHECK;
/* One line on stderr unless the prompts of the table were compared with those scored here and share
 * nothing with them. */
void leak_guard_warn(const table_file *t, const char *path, const char *scored_manifest);
