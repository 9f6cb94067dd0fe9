/* The side that a fit has no records of is the incoming table's; here, so is what stands behind it:
 * its evidence and its part of META. A gate fitted under fitted heads then is one joint table,
 * whether its two passes were fitted together or one after the other. */
#ifndef CKVC_FIT_CARRY_H
#define CKVC_FIT_CARRY_H

#include "cql/fit/fit_result.h"

/* The incoming table's evidence of `side` is there and in the units of a fit with these options
 * (solver, alpha, reward). */
bool fit_carries(const table_file *incoming, ckvc_side side, const fit_options *o);
/* Copies evidence and bootstrap shares of the side; the shapes agree (the fit has checked it). */
void fit_carry_evidence(table_file *to, const table_file *incoming, ckvc_side side);
/* The texts of both lists (NULL: none), sorted, each once. New reference. */
json_t *fit_carry_names(const json_t *ours, const json_t *theirs);
/* Rewrites what META says of the side: diagnostics, scale, counts, unsupported; the greater
 * certificate; plans and passes of both. */
void fit_carry_meta(json_t *meta, const table_file *incoming, ckvc_side side);

#endif
