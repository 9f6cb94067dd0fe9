/* Lines of a file, hashed and unpacked as they pass: see line_stream.h. */
#include "corpus/leaks/line_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

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
    s->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    CKVC_FAIL_ERRNO_IF(s->fd < 0 || fstat(s->fd, &info) != 0, err, CKVC_E_NOINPUT, "%s", path);
    CKVC_FAIL_IF(!S_ISREG(info.st_mode), err, CKVC_E_NOINPUT, "%s: not a regular file", path);
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

/* The file's next bytes into raw; *n 0 at its end. */
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

static ckvc_status unpack(line_stream *s, ckvc_err *err) {
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

/* More text behind end. */
static ckvc_status fill(line_stream *s, ckvc_err *err) {
    size_t n;
    if (s->begin) {
        memmove(s->text, s->text + s->begin, s->end - s->begin);
        s->end -= s->begin;
        s->begin = 0;
    }
    CKVC_GROW(s->text, s->capacity, s->end + BLOCK_BYTES + 1);
    if (s->packed) { return unpack(s, err); }
    CKVC_TRY(read_raw(s, &n, err));
    if (s->packed) { /* seen by its first bytes */
        s->z.next_in = s->raw;
        s->z.avail_in = (unsigned)n;
        return unpack(s, err);
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
        CKVC_TRY(fill(s, err));
    }
}

void line_stream_digest(line_stream *s, char sha256[CKVC_SHA256_HEX], uint64_t *bytes) {
    uint8_t digest[CKVC_SHA256_BYTES];
    ckvc_sha256 copy = s->sha;
    ckvc_sha256_final(&copy, digest);
    ckvc_hex(digest, sizeof digest, sha256);
    *bytes = s->bytes;
}
