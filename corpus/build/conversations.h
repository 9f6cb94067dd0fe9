/* Reads requests in the form of chat APIs: {"messages": [{"role", "content"}, ...], ...}. */
#pragma once

#include "formats/lines/manifest.h"

/* Reads a line of a JSONL file as an entry of a manifest, whose id is "PATH:LINE". The last turn,
 * which must be the assistant's, is the continuation of the turns before it.
 *
 * "document" is taken from the request. Members that would be written into the prompt are refused
 * unless they are null or empty: "tools", "functions", "system" and "documents" of the request, and
 * members of a message other than role and content. All other members of the request are ignored.
 *
 * Also refused are unknown roles, contents in parts, and a last turn that is empty or that is not
 * an answer of the assistant to somebody else's turn. What is refused is CKVC_E_DATA, with a
 * message that names PATH:LINE and what it was. *out must be freed with manifest_entry_fini in
 * every case. */
ckvc_status conversation_read(const char *path, uint32_t line, const char *text, size_t n,
                              manifest_entry *out, ckvc_err *err) CKVC_MUST_CHECK;
