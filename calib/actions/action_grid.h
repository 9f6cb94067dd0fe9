/* Action grids other than the default ones: parsed and computed in integers, so that 0.8:1.5:0.025
 * gives the doubles of (32+a)/40. */
#pragma once

#include "lib/base/names.h"
#include "lib/base/status.h"

#define ACTION_GRID_MAX  255 /* record/action is one byte */
#define ACTION_GRID_HIGH 8   /* values lie in [0, 8] */

typedef struct action_grid {
    double values[ACTION_GRID_MAX]; /* ascending, apart in float32 too: a table holds float32 */
    uint32_t n;
} action_grid;

/* The default grid of a side. */
void action_grid_default(ckvc_side side, action_grid *out);
/* items: decimals (0.95) and ranges lowest:highest:step (0.8:1.5:0.025), ascending. Every value is
 * the double nearest to its decimal. The head grid must hold 1, the weight of an unperturbed head.
 * CKVC_E_USAGE. */
ckvc_status action_grid_parse(ckvc_side side, const char *const *items, size_t n, action_grid *out,
                              ckvc_err *err) CKVC_MUST_CHECK;
