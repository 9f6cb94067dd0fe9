/* The tables that come with the program. tables.json beside them describes them; its members are
 * explained in docs/results/README.md. */
#pragma once

#include <jansson.h>

#include "lib/base/status.h"

/* Reads tables.json, and adds to each entry the path of its table (`file`) and how many bytes it
 * has. *out is a new reference to a list. CKVC_E_NOINPUT: no tables are beside this program. */
ckvc_status shipped_tables_read(json_t **out, ckvc_err *err) CKVC_MUST_CHECK;
/* Returns the name of the table for vLLM that was made from the same model as the table with this
 * content id, or NULL if that is none of these tables or has none beside it. The caller frees it.
 */
char *shipped_table_beside(const char *content_id);
/* Says on stderr which of these tables were made from a file of the name that `model` has. Nothing
 * is said if there are none, or if tables.json cannot be read. */
void shipped_tables_say(const char *model);
