/* Requests as chat APIs have them: {"messages": [{"role", "content"}, ...], ...}. */
#pragma once

#include "formats/lines/manifest.h"

/* A line of a JSONL file as an entry of a manifest, whose id is "PATH:LINE": the last turn, which
 * must be the assistant's, is the continuation of those before it. Other members of the request do
 * not matter, but for "document" and for what is written into prompts: tools, functions, system,
 * documents, members of a message other than role and content. Those, unless null or empty, other
 * roles, contents in parts, and a last turn that is empty or no answer of the assistant to
 * another's are CKVC_E_DATA that names PATH:LINE and what it was. *out is to be freed with
 * manifest_entry_fini in every case. */
ckvc_status conversation_read(const char *path, uint32_t line, const char *text, size_t n,
                              manifest_entry *out, ckvc_err *err) CKVC_MUST_CHECK;
