/* What a person does with a table that was just made: the line of each engine that can hold it. */
#pragma once

#include "formats/table/table_file.h"

/* Says on stderr how many bytes the table at `path` and what it keeps of a cache have, which line
 * of Python, of vLLM and of llama.cpp uses it with the model at `model`, and how a table is made
 * for an engine that cannot take this one from the run at `run`. A token's keys and values have
 * `token_bytes` bytes. */
void table_uses_say(const table_file *t, const char *path, const char *model, const char *run,
                    double token_bytes);
