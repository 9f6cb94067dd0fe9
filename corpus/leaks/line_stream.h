/* Lines of a file of any length, one at a time: memory for the longest alone. gzip is unpacked. */
#pragma once

#include "lib/base/hash.h"
#include "lib/base/memory.h"

enum { LINE_STREAM_MAX_BYTES = 64 << 20 }; /* of one line, as in manifests */

typedef struct line_stream line_stream;

/* A regular file only (a FIFO would have no bytes to hash a second time). */
ckvc_status line_stream_open(const char *path, line_stream **out, ckvc_err *err) CKVC_MUST_CHECK;
void line_stream_close(line_stream *s);
CKVC_AUTO_OF(line_stream, line_stream_close)
/* The next line without its LF, NUL behind it; valid until the next call. *text is NULL at the end
 * of the file. A longer line than LINE_STREAM_MAX_BYTES and damaged gzip data are CKVC_E_DATA. */
ckvc_status line_stream_next(line_stream *s, char **text, size_t *n, uint64_t *line,
                             ckvc_err *err) CKVC_MUST_CHECK;
/* SHA-256 and length of the file's own bytes, packed as they are; after the last line. */
void line_stream_digest(line_stream *s, char sha256[CKVC_SHA256_HEX], uint64_t *bytes);
