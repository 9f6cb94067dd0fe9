/* What prompts cover, for people: where risk cells are thin, what each source gives, what was
 * drawn. */
#ifndef CKVC_COVERAGE_TEXT_H
#define CKVC_COVERAGE_TEXT_H

#include <stdio.h>

#include "formats/run/coverage.h"

/* Two or three lines: cells that hold prompts, how many are drawn, the ones below --min-cell by
 * name. */
void coverage_say(const coverage *c, FILE *f);
/* Tab-separated, one line a cell that holds prompts: bins, all sources together, then every source.
 */
void coverage_print(const coverage *c, FILE *f);

#endif
