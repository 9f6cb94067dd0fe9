/* Maps a table to another model (paper.md section 9): weights, thresholds, shares of heads and
 * layers, risk-bin edges, and what the new table says about itself. */
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

typedef struct transfer_target {
    /* n_heads counts the heads of the table's head axis */
    uint32_t n_layers, n_heads, n_query_heads;
    const char *model_name, *family; /* NULL where not known */
} transfer_target;

typedef struct transfer_options {
    transfer_heads_kind heads;
    /* The scan of the target. With NULL the source's edges stay, and heads can only be matched by
     * index. */
    const run_dir *scan;
    bool force; /* maps what usually makes no sense, with a warning in place of an error */
} transfer_options;

/* Maps the table `from`, which `where` names, to `target` (NULL: the scan's model).
 *
 * What cannot be mapped is refused with CKVC_E_MISMATCH, or with CKVC_E_USAGE where an option is
 * missing. Unless `force` is set, these are refused: a table of query heads, a scan of another
 * window or alpha, and `rank` without the source's own statistics. These are always refused: a scan
 * of another shape than the target, `rank` and `signature` without a scan, and `signature` without
 * the source's statistics. */
ckvc_status transfer_table(const table_file *from, const char *where, const transfer_target *target,
                           const transfer_options *o, table_file **out,
                           ckvc_err *err) CKVC_MUST_CHECK;
