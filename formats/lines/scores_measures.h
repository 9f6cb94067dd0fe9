/* Inside of the reader of score lines: the keys of `ckvc score --attention-error` and
 * `--utilities`. */
#ifndef CKVC_SCORES_MEASURES_H
#define CKVC_SCORES_MEASURES_H

#include <jansson.h>
#include <stdbool.h>

#include "formats/lines/scores.h"

bool scores_is_measure(const char *key);
/* Reads what a line has of them into a row whose counts are read; `path` and row->line name it in
 * messages. */
ckvc_status scores_read_measures(const json_t *line, const char *path, score_row *row,
                                 ckvc_err *err) CKVC_MUST_CHECK;
void scores_free_measures(score_row *row);

#endif
