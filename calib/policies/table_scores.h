/* What tables rank positions by: the paper's, the window's or the learned score of
 * ckvc_policy.h, of every KV head. */
#pragma once

#include "calib/policies/rules/rule.h"

/* As a table's block has it; the first position and the last `recent` come before all others.
 * Borrows the table. */
head_score table_score(ckvc_score of, const ckvc_table *table, uint32_t recent);
