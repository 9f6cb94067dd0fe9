/* Files to documents. */
#include "corpus/build/documents.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <zlib.h>

#include "corpus/build/convert.h"
#include "lib/base/buffer.h"
#include "lib/base/files.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/utf8.h"

enum {
    MAX_FILE_BYTES = 64 << 20,
    MAX_DEPTH = 32,
    PART_BYTES =
        32768 /* longer texts are cut into parts, so that a book too can lie in two splits */
};

/* ---- paragraphs met so far: open addressing over XXH64, 0 = free ---- */
struct paragraph_set {
    uint64_t *slots;
    size_t capacity, used;
};

static bool set_add(struct paragraph_set *s, uint64_t hash, bool *is_new) {
    hash += hash == 0;
    if (s->used * 2 >= s->capacity) {
        struct paragraph_set grown = {NULL, s->capacity ? s->capacity * 2 : 4096, 0};
        grown.slots = ckvc_calloc(grown.capacity, sizeof *grown.slots);
        if (!grown.slots) { return false; }
        bool ignored;
        for (size_t i = 0; i < s->capacity; i++) {
            if (s->slots[i]) {
                (void)set_add(&grown, s->slots[i], &ignored); /* has room: never fails */
            }
        }
        free(s->slots);
        *s = grown;
    }
    size_t at = hash & (s->capacity - 1);
    while (s->slots[at] && s->slots[at] != hash) {
        at = (at + 1) & (s->capacity - 1);
    }
    *is_new = s->slots[at] == 0;
    s->used += *is_new;
    s->slots[at] = hash;
    return true;
}

/* ---- one file ---- */
static ckvc_status inflate_all(const char *path, const char *in, size_t n, ckvc_buffer *out,
                               ckvc_err *err) {
    z_stream z = {0};
    unsigned char block[65536];
    if (inflateInit2(&z, 15 + 32) != Z_OK) { return ckvc_fail_memory(err, "zlib", 0); }
    z.next_in = (unsigned char *)(uintptr_t)in;
    z.avail_in = (unsigned)n;
    int rc = Z_OK;
    ckvc_status status = CKVC_OK;
    while (status == CKVC_OK && (rc != Z_STREAM_END || z.avail_in)) {
        if (rc == Z_STREAM_END && inflateReset(&z) != Z_OK) { break; }
        z.next_out = block;
        z.avail_out = sizeof block;
        rc = inflate(&z, Z_NO_FLUSH);
        if (rc != Z_OK && rc != Z_STREAM_END) {
            status = ckvc_fail(err, CKVC_E_DATA, "%s: byte %lu: damaged gzip data (%s)", path,
                               z.total_in, z.msg ? z.msg : "truncated");
        }
        ckvc_buffer_append(out, block, sizeof block - z.avail_out);
        if (out->size > MAX_FILE_BYTES) {
            status = ckvc_fail(err, CKVC_E_DATA, "%s: more than %d bytes when unpacked", path,
                               MAX_FILE_BYTES);
        }
    }
    inflateEnd(&z);
    return status == CKVC_OK && out->failed ? ckvc_fail_memory(err, path, out->size) : status;
}

/* Keeps the paragraphs that no document has had before. */
static ckvc_status keep_new_paragraphs(corpus *c, ckvc_buffer *text, ckvc_err *err) {
    ckvc_buffer out = {0}, folded = {0};
    const char *at = (const char *)text->data, *end = at + text->size;
    while (at < end) {
        const char *stop = memmem(at, (size_t)(end - at), "\n\n", 2);
        size_t n = (size_t)((stop ? stop : end) - at);
        bool is_new = true;
        if (n >= CORPUS_MIN_PARAGRAPH) { /* compared without regard to white space and case */
            folded.size = 0;
            for (size_t i = 0; i < n; i++) {
                if (!isspace((unsigned char)at[i])) {
                    ckvc_buffer_u8(&folded, (uint8_t)tolower((unsigned char)at[i]));
                }
            }
            if (folded.failed || !set_add(c->seen, ckvc_xxh64(folded.data, folded.size), &is_new)) {
                ckvc_buffer_fini(&out);
                ckvc_buffer_fini(&folded);
                return ckvc_fail_memory(err, "paragraphs", n);
            }
        }
        if (is_new) {
            ckvc_buffer_text(&out, out.size ? "\n\n" : "");
            ckvc_buffer_append(&out, at, n);
        } else {
            c->n_repeated_paragraphs++;
        }
        at += n + 2;
        if (!stop) { break; }
    }
    ckvc_buffer_fini(&folded);
    ckvc_buffer_fini(text);
    *text = out;
    return out.failed ? ckvc_fail_memory(err, "document", out.size) : CKVC_OK;
}

static bool mostly_ascii(const char *text, size_t n) {
    size_t chars = 0, ascii = 0;
    for (size_t i = 0; i < n; i++) {
        chars += ((uint8_t)text[i] & 0xC0) != 0x80;
        ascii += (uint8_t)text[i] < 0x80;
    }
    return (double)ascii >= CORPUS_MIN_ASCII * (double)chars;
}

static bool skipped_name(const char *name) {
    static const char *const endings[] = {".png", ".jpg", ".jpeg", ".gif", ".svg", ".svgz", ".ico",
                                          ".css", ".js",  ".pdf",  ".so",  ".a",   ".o",    ".zip",
                                          ".xz",  ".bz2", ".deb",  ".ps",  ".eps", NULL};
    size_t n = strlen(name);
    for (int i = 0; endings[i]; i++) {
        size_t m = strlen(endings[i]);
        if (n > m && strcasecmp(name + n - m, endings[i]) == 0) { return true; }
    }
    return false;
}

static ckvc_status add_document(corpus *c, const char *source, const char *name, const char *text,
                                size_t n, ckvc_err *err) {
    void *documents = c->documents;
    ckvc_status status =
        ckvc_grow(&documents, &c->capacity, c->n_documents + 1, sizeof *c->documents, err);
    c->documents = documents;
    if (status != CKVC_OK) { return status; }
    corpus_document *d = &c->documents[c->n_documents++];
    *d = (corpus_document){ckvc_strdup(source), ckvc_strdup(name), ckvc_alloc(n + 1, 1), n};
    if (!d->source || !d->name || !d->text) { return ckvc_fail_memory(err, "document", n); }
    memcpy(d->text, text, n);
    d->text[n] = '\0';
    return CKVC_OK;
}

/* The text whole, or its parts "name#1", "name#2" ..., cut between paragraphs (between lines, where
 * a paragraph is too long). */
static ckvc_status add_parts(corpus *c, const char *source, const char *name, const char *text,
                             size_t n, ckvc_err *err) {
    if (n < 2 * PART_BYTES) { return add_document(c, source, name, text, n, err); }
    ckvc_status status = CKVC_OK;
    for (int part = 1; n > 0 && status == CKVC_OK; part++) {
        size_t size = n;
        if (n >= PART_BYTES + CORPUS_MIN_CHARS) {
            const char *from = text + PART_BYTES, *stop = memmem(from, n - PART_BYTES, "\n\n", 2);
            if (!stop || stop - from > PART_BYTES / 2) {
                stop = memchr(from, '\n', n - PART_BYTES);
            }
            size = stop ? (size_t)(stop - text) : n;
        }
        char *part_name = ckvc_format("%s#%d", name, part);
        status = part_name ? add_document(c, source, part_name, text, size, err)
                           : ckvc_fail_memory(err, "a name", strlen(name));
        free(part_name);
        text += size;
        n -= size;
        while (n > 0 && *text == '\n') {
            text++;
            n--;
        }
    }
    return status;
}

static ckvc_status add_file(corpus *c, const char *source, const char *path, const char *name,
                            ckvc_err *err) {
    if (skipped_name(name)) { return CKVC_OK; }
    char *raw = NULL, *clean = NULL;
    size_t n = 0;
    ckvc_buffer unpacked = {0}, text = {0};
    ckvc_status status = ckvc_file_read(path, MAX_FILE_BYTES, &raw, &n, err);
    c->n_files++;
    const char *bytes = raw;
    char *plain_name = ckvc_strdup(name);
    if (status == CKVC_OK && n >= 2 && memcmp(raw, "\x1f\x8b", 2) == 0) {
        status = inflate_all(path, raw, n, &unpacked, err);
        bytes = unpacked.data ? (const char *)unpacked.data : "";
        n = unpacked.size;
        size_t length = strlen(plain_name);
        if (length > 3 && strcmp(plain_name + length - 3, ".gz") == 0) {
            plain_name[length - 3] = '\0';
        }
    }
    if (status == CKVC_OK && (memchr(bytes, 0, n) || skipped_name(plain_name))) {
        c->n_binary++;
    } else if (status == CKVC_OK) {
        if (ckvc_utf8_check(bytes, n) < n) {
            clean = ckvc_utf8_replace(bytes, n, &n);
            status = clean ? CKVC_OK : ckvc_fail_memory(err, path, n);
            bytes = clean;
        }
        if (status == CKVC_OK) {
            text_convert(text_kind_guess(plain_name, bytes, n), bytes, n, &text);
            status = text.failed ? ckvc_fail_memory(err, path, n) : CKVC_OK;
        }
        if (status == CKVC_OK && text.size < CORPUS_MIN_CHARS) {
            c->n_short++;
        } else if (status == CKVC_OK && !mostly_ascii((const char *)text.data, text.size)) {
            c->n_foreign++;
        } else if (status == CKVC_OK) {
            status = keep_new_paragraphs(c, &text, err);
            if (status == CKVC_OK && text.size < CORPUS_MIN_CHARS) {
                c->n_short++;
            } else if (status == CKVC_OK) {
                status = add_parts(c, source, plain_name, (const char *)text.data, text.size, err);
            }
        }
    }
    free(plain_name);
    free(raw);
    free(clean);
    ckvc_buffer_fini(&unpacked);
    ckvc_buffer_fini(&text);
    return status;
}

/* ---- folders ---- */
static int not_dots(const struct dirent *d) {
    return strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name); /* alphasort would follow the locale */
}

static ckvc_status add_folder(corpus *c, const char *source, const char *path, const char *name,
                              int depth, ckvc_err *err) {
    if (depth > MAX_DEPTH) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: folders more than %d deep", path, MAX_DEPTH);
    }
    struct dirent **list = NULL;
    int n = scandir(path, &list, not_dots, by_bytes);
    if (n < 0) { return ckvc_fail_errno(err, CKVC_E_NOINPUT, "%s", path); }
    ckvc_status status = CKVC_OK;
    for (int i = 0; i < n; i++) {
        char *inner = status == CKVC_OK ? ckvc_path_join(path, list[i]->d_name) : NULL;
        char *inner_name =
            inner ? name[0] ? ckvc_path_join(name, list[i]->d_name) : ckvc_strdup(list[i]->d_name)
                  : NULL;
        struct stat info;
        if (status == CKVC_OK && !inner_name) {
            status = ckvc_fail_memory(err, "a path", strlen(path));
        } else if (status == CKVC_OK && lstat(inner, &info) == 0) {
            if (S_ISDIR(info.st_mode)) {
                status = add_folder(c, source, inner, inner_name, depth + 1, err);
            } else if (S_ISREG(info.st_mode)) {
                status = add_file(c, source, inner, inner_name, err);
            }
        }
        free(inner);
        free(inner_name);
        free(list[i]);
    }
    free(list);
    return status;
}

ckvc_status corpus_add(corpus *c, const char *source, const char *path, ckvc_err *err) {
    if (!c->seen && !(c->seen = ckvc_calloc(1, sizeof *c->seen))) {
        return ckvc_fail_memory(err, "paragraphs", sizeof *c->seen);
    }
    if (ckvc_is_dir(path)) { return add_folder(c, source, path, "", 0, err); }
    const char *slash = strrchr(path, '/');
    return add_file(c, source, path, slash ? slash + 1 : path, err);
}

void corpus_fini(corpus *c) {
    for (size_t i = 0; i < c->n_documents; i++) {
        free(c->documents[i].source);
        free(c->documents[i].name);
        free(c->documents[i].text);
    }
    free(c->documents);
    if (c->seen) { free(c->seen->slots); }
    free(c->seen);
    *c = (corpus){0};
}
