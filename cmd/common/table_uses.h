/* What a person does with a table that was just made: the line of each engine that can hold it. */
#pragma once

#include <jansson.h>

#include "formats/table/table_file.h"

/* Returns the lines for a table as a new reference. `keeps` lists for each budget what it keeps of
 * a cache. `python`, `vllm` and `llama` serve the table at `path` with the model at `model`, at its
 * largest budget: `python` and `llama` have the lines of a whole program, `vllm` is one command.
 * The last two are there only where that engine can hold the table. `other`, where one of them
 * cannot, says how a table is compiled for it. */
json_t *table_uses(const table_file *t, const char *path, const char *model);
/* Prints these lines, but for `keeps`. */
void table_uses_print(FILE *to, const json_t *uses);
/* Says on stderr how many bytes the table at `path` and what it keeps of a cache have, and
 * those lines. A token's keys and values have `token_bytes` bytes. */
void table_uses_say(const table_file *t, const char *path, const char *model, double token_bytes);
