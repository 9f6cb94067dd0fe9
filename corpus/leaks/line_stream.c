/* Reads a file line by line, and hashes and unpacks it on the way: see line_stream.h. */
#include "corpus/leaks/line_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "lib/base/files.h"

enum { BLOCK_BYTES = 1 << 18 };

struct line_stream {
    char *path;
    int fd;
    ckvc_sha256 sha;
    uint64_t bytes, line; /* read from the file; the line in hand */
    unsigned char *raw;   /* [BLOCK_BYTES] as read */
    bool packed, at_end;
    z_stream z;
    bool z_done; /* between two members */
    char *text;  /* unpacked, not handed out yet: [begin, end) */
    size_t begin, end, capacity;
};

ckvc_status line_stream_open(const char *path, line_stream **out, ckvc_err *err) {
    CKVC_AUTO(line_stream_close_at) line_stream *s = ckvc_calloc(1, sizeof *s);
    struct stat info;
    *out = NULL;
    s->path = ckvc_strdup(path);
    s->raw = ckvc_alloc(BLOCK_BYTES, 1);
    CKVC_GROW(s->text, s->capacity, BLOCK_BYTES + 1);
    CKVC_TRY(ckvc_file_open(path, &s->fd, &info, err));
    ckvc_sha256_init(&s->sha);
    *out = ckvc_take(&s);
    return CKVC_OK;
}

void line_stream_close(line_stream *s) {
    if (!s) { return; }
    if (s->fd >= 0) { close(s->fd); }
    if (s->packed) { inflateEnd(&s->z); }
    CKVC_FREE(s->path, s->raw, s->text, s);
}

/* Reads the file's next bytes into s->raw. *n is 0 at its end. */
static ckvc_status read_raw(line_stream *s, size_t *n, ckvc_err *err) {
    ssize_t got;
    do { got = read(s->fd, s->raw, BLOCK_BYTES); } while (got < 0 && errno == EINTR);
    CKVC_FAIL_ERRNO_IF(got < 0, err, CKVC_E_IO, "%s: byte %llu", s->path,
                       (unsigned long long)s->bytes);
    if (s->bytes == 0 && got >= 2 && s->raw[0] == 0x1F && s->raw[1] == 0x8B) {
        s->packed = true;
        if (inflateInit2(&s->z, 15 + 16) != Z_OK) { ckvc_out_of_memory(1, sizeof s->z); }
    }
    ckvc_sha256_update(&s->sha, s->raw, (size_t)got);
    s->bytes += (uint64_t)got;
    *n = (size_t)got;
    return CKVC_OK;
}

static ckvc_status inflate_more(line_stream *s, ckvc_err *err) {
    if (s->z.avail_in == 0) {
        size_t n;
        CKVC_TRY(read_raw(s, &n, err));
        s->z.next_in = s->raw;
        s->z.avail_in = (unsigned)n;
        if (n == 0) {
            s->at_end = true;
            CKVC_FAIL_IF(!s->z_done, err, CKVC_E_DATA, "%s: gzip data end in the middle", s->path);
            return CKVC_OK;
        }
    }
    CKVC_FAIL_IF(s->z_done && inflateReset(&s->z) != Z_OK, err, CKVC_E_BUG,
                 "%s: zlib does not reset", s->path);
    s->z.next_out = (unsigned char *)s->text + s->end;
    s->z.avail_out = BLOCK_BYTES;
    int rc = inflate(&s->z, Z_NO_FLUSH);
    s->end += BLOCK_BYTES - s->z.avail_out;
    s->z_done = rc == Z_STREAM_END;
    CKVC_FAIL_IF(rc != Z_OK && rc != Z_STREAM_END && !(rc == Z_BUF_ERROR && s->z.avail_in == 0),
                 err, CKVC_E_DATA, "%s: line %llu: damaged gzip data (%s)", s->path,
                 (unsigned long long)s->line + 1, s->z.msg ? s->z.msg : "no message");
    return CKVC_OK;
}

/* Reads more text behind s->end, and sets s->at_end when there is none. What was given out before
 * s->begin is moved out of the way. */
static ckvc_status read_more(line_stream *s, ckvc_err *err) {
    size_t n;
    if (s->begin) {
        memmove(s->text, s->text + s->begin, s->end - s->begin);
        s->end -= s->begin;
        s->begin = 0;
    }
    CKVC_GROW(s->text, s->capacity, s->end + BLOCK_BYTES + 1);
    if (s->packed) { return inflate_more(s, err); }
    CKVC_TRY(read_raw(s, &n, err));
    if (s->packed) { /* seen by its first bytes */
        s->z.next_in = s->raw;
        s->z.avail_in = (unsigned)n;
        return inflate_more(s, err);
    }
    s->at_end = n == 0;
    memcpy(s->text + s->end, s->raw, n);
    s->end += n;
    return CKVC_OK;
}

ckvc_status line_stream_next(line_stream *s, char **text, size_t *n, uint64_t *line,
                             ckvc_err *err) {
    size_t looked = 0; /* bytes of [begin, end) without an LF */
    for (;;) {
        char *start = s->text + s->begin;
        size_t have = s->end - s->begin;
        char *newline = have > looked ? memchr(start + looked, '\n', have - looked) : NULL;
        size_t length = newline ? (size_t)(newline - start) : have;
        CKVC_FAIL_IF(length > LINE_STREAM_MAX_BYTES, err, CKVC_E_DATA,
                     "%s:%llu: line of more than %d bytes", s->path,
                     (unsigned long long)s->line + 1, LINE_STREAM_MAX_BYTES);
        if (newline || (s->at_end && have > 0)) {
            start[length] = '\0';
            s->begin += newline ? length + 1 : length;
            *text = start;
            *n = length;
            *line = ++s->line;
            return CKVC_OK;
        }
        if (s->at_end) {
            *text = NULL;
            *n = 0;
            return CKVC_OK;
        }
        looked = have;
        CKVC_TRY(read_more(s, err));
    }
}

void line_stream_digest(line_stream *s, char sha256[CKVC_SHA256_HEX], uint64_t *bytes) {
    uint8_t digest[CKVC_SHA256_BYTES];
    ckvc_sha256 copy = s->sha;
    ckvc_sha256_final(&copy, digest);
    ckvc_hex(digest, sizeof digest, sha256);
    *bytes = s->bytes;
}

typedef struct scanner {
    const char *text, *at, *end, *where;
    json_scratch *scratch;
    json_leaf_fn fn;
    void *ctx;
    ckvc_err *err;
} scanner;

void json_scratch_fini(json_scratch *scratch) {
    ckvc_buffer_fini(&scratch->text);
    ckvc_buffer_fini(&scratch->field);
}

static ckvc_status fail_at(const scanner *s, const char *wanted) {
    return ckvc_fail(s->err, CKVC_E_DATA, "%s: byte %zu: not valid JSON: %s", s->where,
                     (size_t)(s->at - s->text), wanted);
}

/* Goes on to the next character that is no white space, and returns it. At the end it returns a
 * NUL, which stands nowhere in JSON. */
static char peek(scanner *s) {
    while (s->at < s->end && *s->at && strchr(" \t\r\n", *s->at)) { s->at++; }
    return (char)(s->at < s->end ? *s->at : '\0');
}

/* Returns the code unit of the \uXXXX at `at`, or -1 where there is none. */
static int32_t code_unit(const scanner *s, const char *at) {
    char digits[5] = "";
    if (s->end - at < 6 || at[0] != '\\' || at[1] != 'u') { return -1; }
    for (int i = 0; i < 4; i++) {
        if (!isxdigit((unsigned char)at[2 + i])) { return -1; }
        digits[i] = at[2 + i];
    }
    return (int32_t)strtol(digits, NULL, 16);
}

/* Appends the character of a \uXXXX, which is two of them for a surrogate pair. Half of a pair
 * alone becomes U+FFFD. */
static ckvc_status take_unicode(scanner *s, ckvc_buffer *out) {
    int32_t code = code_unit(s, s->at), low = code_unit(s, s->at + (code < 0 ? 0 : 6));
    if (code < 0) { return fail_at(s, "\\u wants four hexadecimal digits"); }
    s->at += 6;
    if (code >= 0xD800 && code <= 0xDBFF && low >= 0xDC00 && low <= 0xDFFF) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        s->at += 6;
    }
    if (code >= 0xD800 && code <= 0xDFFF) { code = 0xFFFD; }
    utf8proc_uint8_t utf8[4];
    ckvc_buffer_append(out, utf8, (size_t)utf8proc_encode_char(code, utf8));
    return CKVC_OK;
}

/* Writes the string whose first quote s->at stands on to `out`. */
static ckvc_status take_string(scanner *s, ckvc_buffer *out) {
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    out->size = 0;
    ckvc_buffer_text(out, ""); /* a NUL also behind an empty one */
    s->at++;
    for (;;) {
        const char *plain = s->at;
        while (s->at < s->end && *s->at != '"' && *s->at != '\\') { s->at++; }
        ckvc_buffer_append(out, plain, (size_t)(s->at - plain));
        if (s->at < s->end && *s->at == '"') { break; }
        if (s->end - s->at < 2) { return fail_at(s, "a string without its end"); }
        const char c = s->at[1], *found = c ? strchr(escapes, c) : NULL;
        if (c == 'u') {
            CKVC_TRY(take_unicode(s, out));
        } else if (found) {
            ckvc_buffer_append(out, meant + (found - escapes), 1);
            s->at += 2;
        } else {
            return fail_at(s, "an unknown escape");
        }
    }
    s->at++;
    return CKVC_OK;
}

static ckvc_status give_leaf(scanner *s, size_t depth, bool is_string, const char *text, size_t n) {
    if (!is_string && depth != 1) { return CKVC_OK; }
    return s->fn(s->ctx,
                 &(json_leaf){(const char *)s->scratch->field.data, depth, is_string, text, n},
                 s->err);
}

static ckvc_status take_value(scanner *s, size_t depth);

/* Takes the members of a container, whose `open` has been read. `depth` is the members'. */
static ckvc_status take_members(scanner *s, char open, size_t depth) {
    const char close = open == '{' ? '}' : ']';
    for (bool first = true; !first || peek(s) != close; first = false) {
        if (open == '{') {
            if (peek(s) != '"') { return fail_at(s, "wanted a key"); }
            CKVC_TRY(take_string(s, depth == 1 ? &s->scratch->field : &s->scratch->text));
            if (peek(s) != ':') { return fail_at(s, "wanted a colon behind a key"); }
            s->at++;
        }
        CKVC_TRY(take_value(s, depth));
        if (peek(s) == close) { break; }
        if (peek(s) != ',') { return fail_at(s, "wanted a comma or an end"); }
        s->at++;
    }
    s->at++;
    return CKVC_OK;
}

static ckvc_status take_value(scanner *s, size_t depth) {
    const char c = peek(s), *start = s->at;
    if (c == '"') {
        CKVC_TRY(take_string(s, &s->scratch->text));
        return give_leaf(s, depth, true, (const char *)s->scratch->text.data,
                         s->scratch->text.size);
    }
    if (c == '{' || c == '[') {
        if (depth == JSON_STRINGS_MAX_DEPTH) { return fail_at(s, "nested too deep"); }
        CKVC_TRY(give_leaf(s, depth, false, s->at++, 1));
        return take_members(s, c, depth + 1);
    }
    while (s->at < s->end && *s->at && (isalnum((unsigned char)*s->at) || strchr("+-.", *s->at))) {
        s->at++;
    }
    return s->at > start ? give_leaf(s, depth, false, start, (size_t)(s->at - start))
                         : fail_at(s, s->at == s->end ? "cut off" : "wanted a value");
}

ckvc_status json_strings_scan(const char *line, size_t n, const char *where, json_scratch *scratch,
                              json_leaf_fn fn, void *ctx, ckvc_err *err) {
    scanner s = {.text = line,
                 .at = line,
                 .end = line + n,
                 .where = where,
                 .scratch = scratch,
                 .fn = fn,
                 .ctx = ctx,
                 .err = err};
    scratch->field.size = 0;
    ckvc_buffer_text(&scratch->field, "");
    CKVC_TRY(take_value(&s, 0));
    peek(&s);
    return s.at == s.end ? CKVC_OK : fail_at(&s, "something behind the value");
}
