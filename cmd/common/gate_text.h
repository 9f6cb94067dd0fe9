/* At the end of a pass: where the gate can act, budget by budget, and what to change where it
 * cannot. */
#ifndef CKVC_GATE_TEXT_H
#define CKVC_GATE_TEXT_H

#include <jansson.h>
#include <stdio.h>

#include "formats/run/run_dir.h"

/* f: one line for all budgets and one for each at which the gate is not alive; where no thresholds
 * are in use it says so; NULL: nothing. json: a list of {budget, binding, sets_differ, alive}, a
 * new reference; NULL: none wanted. */
ckvc_status gate_say(const run_dir *run, const char *pass, FILE *f, json_t **json,
                     ckvc_err *err) CKVC_MUST_CHECK;

#endif
