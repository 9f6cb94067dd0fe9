/* JSON on standard output: one line for programs, or text for people. */
#pragma once

#include <jansson.h>

#include "lib/base/json.h"
#include "budgets/select.h"
#include "formats/run/run_status.h"
#include "formats/run/run_dir.h"

/* One canonical line; takes the reference. */
void json_print(json_t *o);
/* The same with keys in the order in which they were set. */
void json_print_as_given(json_t *o);
/* Aligned keys, short lists on one line, lists of objects as small tables. */
void json_text(json_t *object, int indent);
/* A copy whose keys and texts are each one line for a terminal (ckvc_utf8_tame). New reference. */
json_t *json_tamed(const json_t *v);

/* What a run says to people, on stderr: where risk cells are thin, what each source gives, what was
 * drawn; and where the gate can act. */
/* Cells that hold prompts, how many are drawn, and, where the run tries thresholds, the cells below
 * --min-cell by name. */
void coverage_say(const coverage *c, bool thresholds);
/* On stdout: tab-separated, one line a cell that holds prompts: bins, all sources together, then
 * each. */
void coverage_print(const coverage *c);

/* At the end of a pass, budget by budget. talk: one line for all budgets and one with what to
 * change for each at which the gate is not alive; where no thresholds are in use it says so. json:
 * a list of {alive, binding, budget, sets_differ}, a new reference; NULL: none wanted. */
ckvc_status gate_say(const run_dir *run, const char *pass, bool talk, json_t **json,
                     ckvc_err *err) CKVC_MUST_CHECK;
/* A mean with its 95% interval, behind what it is of. */
void gain_say(const char *what, rank_interval g);
/* What was tried on the prompts that choose, by budget, and what each budget recommends. */
void choice_say(const select_losses *s, const double *budgets);
