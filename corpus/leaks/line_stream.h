/* Lines of a file of any length, one at a time: memory for the longest alone. gzip is unpacked. */
#pragma once

#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/json.h"

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

/* Every string value of one JSON text, without building it: for files of other people, of any shape
 * and size.
 *
 * Stricter than needed nowhere: numbers are skipped as they stand (NaN and Infinity too), lone
 * surrogates and bytes that are not UTF-8 pass into the text, repeated keys give both values.
 * Structure is checked: an unbalanced or cut line is refused, so that nothing is left out unseen.
 * Memory: the longest string of the line. */
enum { JSON_STRINGS_MAX_DEPTH = 512 };

typedef struct json_leaf {
    /* The top-level key above it, unescaped, NUL behind it; "" when the line is no object. */
    const char *field;
    size_t depth; /* 1: a member of the line's object itself */
    bool is_string;
    /* A string's value, unescaped (NUL behind it); else the literal as it stands, NOT
     * NUL-terminated. */
    const char *text;
    size_t n;
} json_leaf;

typedef ckvc_status (*json_leaf_fn)(void *ctx, const json_leaf *leaf, ckvc_err *err);

/* Reused from line to line; zero-initialise, json_scratch_fini. */
typedef struct json_scratch {
    ckvc_buffer text, field;
} json_scratch;
void json_scratch_fini(json_scratch *scratch);

/* Calls fn for every string, and at depth 1 for numbers, true, false, null and the "{" or "[" that
 * opens a value. `where` names the line in messages. The first error of fn ends it. */
ckvc_status json_strings_scan(const char *line, size_t n, const char *where, json_scratch *scratch,
                              json_leaf_fn fn, void *ctx, ckvc_err *err) CKVC_MUST_CHECK;
