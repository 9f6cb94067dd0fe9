/* A table mapped to another model (paper.md section 9): weights, thresholds, shares of heads and
 * layers, risk-bin edges, and what the new table says of itself. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "formats/run/run_dir.h"
#include "formats/table/table_file.h"

typedef enum transfer_heads_kind {
    TRANSFER_INDEX,
    TRANSFER_RANK,
    TRANSFER_SIGNATURE
} transfer_heads_kind;
const char *transfer_heads_name(transfer_heads_kind kind); /* "index", ... */

typedef struct transfer_target {
    uint32_t n_layers, n_heads, n_query_heads; /* heads of the table's head axis; query heads */
    const char *model_name, *family;           /* NULL: not known */
} transfer_target;

typedef struct transfer_options {
    transfer_heads_kind heads;
    const run_dir *scan; /* of the target, or NULL: the source's edges stay, and heads can only be
                            matched by index */
    bool force;          /* map what usually makes no sense: warn in place of refusing */
} transfer_options;

/* target NULL: the scan's model. Refused (CKVC_E_MISMATCH; CKVC_E_USAGE where an option is missing)
 * unless force: a table of query heads, a scan of another window or alpha, `rank` without the
 * source's own statistics. Refused always: a scan of another shape than the target, rank and
 * signature without a scan, `signature` without the source's statistics. */
ckvc_status transfer_table(const table_file *from, const char *where, const transfer_target *target,
                           const transfer_options *o, table_file **out,
                           ckvc_err *err) CKVC_MUST_CHECK;
