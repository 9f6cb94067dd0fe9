/* Lines of a file, one at a time, of any length up to a limit. Only the longest line is held in
 * memory. Files packed with gzip are unpacked. */
#pragma once

#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/json.h"

enum { LINE_STREAM_MAX_BYTES = 64 << 20 }; /* the longest line, as in manifests */

typedef struct line_stream line_stream;

/* Opens a file, which must be a regular one (a FIFO would have no bytes to hash a second time). */
ckvc_status line_stream_open(const char *path, line_stream **out, ckvc_err *err) CKVC_MUST_CHECK;
void line_stream_close(line_stream *s);
CKVC_AUTO_OF(line_stream, line_stream_close)
/* Gives the next line without its LF, with a NUL behind it; it stays valid until the next call.
 * *text is NULL at the end of the file. A line of more than LINE_STREAM_MAX_BYTES and damaged gzip
 * data are CKVC_E_DATA. */
ckvc_status line_stream_next(line_stream *s, char **text, size_t *n, uint64_t *line,
                             ckvc_err *err) CKVC_MUST_CHECK;
/* Gives SHA-256 and length of the file's own bytes, packed as they are. Call it after the last
 * line. */
void line_stream_digest(line_stream *s, char sha256[CKVC_SHA256_HEX], uint64_t *bytes);

/* Visits every string value of one JSON text without building it as a tree, because files of other
 * people may have any shape and size.
 *
 * The JSON library that reads everything else (jansson) cannot do this. It refuses lone surrogates,
 * NaN and bytes that are not UTF-8, which evaluation files of other people contain. Of a repeated
 * key it keeps the last value alone, so that a text under the first would escape the check. And it
 * builds the tree: a line of 30 MiB of small numbers takes 632 MiB with it and 31 MiB here, and
 * lines of text pass at 12 MiB/s with it and at 59 MiB/s here.
 *
 * The scan is nowhere stricter than it needs to be: numbers are skipped as they stand (NaN and
 * Infinity too), lone surrogates and bytes that are not UTF-8 pass into the text, and a repeated
 * key gives both values. But it checks the structure: an unbalanced or cut line is refused, so that
 * nothing is left out unseen. It needs memory for the longest string of the line. */
enum { JSON_STRINGS_MAX_DEPTH = 512 };

typedef struct json_leaf {
    /* The top-level key under which the value stands, unescaped, with a NUL behind it; "" when the
     * line is no object. */
    const char *field;
    size_t depth; /* 1 for a member of the line's object itself */
    bool is_string;
    /* The value of a string, unescaped, with a NUL behind it. Of anything else it is the literal as
     * it stands, which is NOT NUL-terminated. */
    const char *text;
    size_t n;
} json_leaf;

typedef ckvc_status (*json_leaf_fn)(void *ctx, const json_leaf *leaf, ckvc_err *err);

/* Buffers that are used again for each line; zero-initialise them, release them with
 * json_scratch_fini. */
typedef struct json_scratch {
    ckvc_buffer text, field;
} json_scratch;
void json_scratch_fini(json_scratch *scratch);

/* Calls fn for every string, and at depth 1 also for numbers, true, false, null and the "{" or "["
 * that opens a value. `where` names the line in messages. The first error of fn ends the scan and
 * is returned. */
ckvc_status json_strings_scan(const char *line, size_t n, const char *where, json_scratch *scratch,
                              json_leaf_fn fn, void *ctx, ckvc_err *err) CKVC_MUST_CHECK;
