/* What one fit may pool (formats/table/table.md). Internal to cql/fit. */
#ifndef CKVC_FIT_MATCH_H
#define CKVC_FIT_MATCH_H

#include "formats/shard/shard.h"
#include "lib/base/status.h"

/* Names the first field in which two headers may not be pooled, with both values. The start tables
 * and, where the side pays one, the penalty are compared too when side >= 0. Scan shards have no
 * tables: only the model and the window are compared. */
ckvc_status fit_match(const shard_header *a, const char *a_where, const shard_header *b,
                      const char *b_where, int side, ckvc_err *err) CKVC_MUST_CHECK;

#endif
