/* Files to documents. */
#include "corpus/build/documents.h"

#include <ctype.h>
#include <errno.h>
#include <fts.h>
#include <iconv.h>
#define ZLIB_CONST
#include <zlib.h>

#include "corpus/build/convert.h"
#include "corpus/build/cuts.h"
#include "corpus/texts.h"
#include "lib/base/buffer.h"
#include "lib/base/files.h"
#include "lib/base/hash.h"
#include "lib/base/utf8.h"

enum {
    MAX_FILE_BYTES = 64 << 20,
    MAX_DEPTH = 32,
    /* Longer texts are cut into parts, so that a book too can lie in two splits. */
    PART_BYTES = 32768
};

const struct corpus_reason_name corpus_reasons[CORPUS_REASON_COUNT] = {
    [LEFT_SHORT] = {"short documents", "short"},
    [LEFT_GARBLED] = {"files of unreadable characters", "unreadable"},
    [LEFT_BINARY] = {"binary files", "binary"}};

static void leave_out(corpus *c, corpus_reason reason, const char *name) {
    if (c->left_out[reason].n++ == 0) { c->left_out[reason].first = ckvc_strdup(name); }
}

/* ---- paragraphs ---- */

/* Compared without regard to white space and case. */
static bool is_new_paragraph(corpus *c, const char *text, size_t n, ckvc_buffer *folded) {
    folded->size = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isspace((unsigned char)text[i])) {
            ckvc_buffer_u8(folded, (uint8_t)tolower((unsigned char)text[i]));
        }
    }
    return hash_set_add(&c->seen, ckvc_xxh64(folded->data, folded->size));
}

/* Keeps the paragraphs that no document has had before. */
static void keep_new_paragraphs(corpus *c, ckvc_buffer *text) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer whole = *text, folded = {0};
    *text = (ckvc_buffer){0};
    for (size_t at = 0, n; at < whole.size; at += n + 2) {
        const char *paragraph = (const char *)whole.data + at;
        const char *stop = memmem(paragraph, whole.size - at, "\n\n", 2);
        n = stop ? (size_t)(stop - paragraph) : whole.size - at;
        if (n < CORPUS_MIN_PARAGRAPH || is_new_paragraph(c, paragraph, n, &folded)) {
            ckvc_buffer_text(text, text->size ? "\n\n" : "");
            ckvc_buffer_append(text, paragraph, n);
        } else {
            c->n_repeated_paragraphs++;
        }
    }
}

/* ---- one file ---- */

static bool is_readable(const char *text, size_t n) {
    size_t chars = 0, bad = 0;
    for (size_t i = 0; i < n; chars++) {
        int32_t c;
        i += char_next(text + i, n - i, &c);
        bad += (uint32_t)c >= 0x80 && (c == 0xFFFD || char_category(c) == 'C');
    }
    return (double)(chars - bad) >= CORPUS_MIN_READABLE * (double)chars;
}

static bool skipped_name(const char *name) {
    const char *dot = strrchr(name, '.');
    char ending[8] = "";
    for (size_t i = 0; dot && dot > name && dot[i + 1] && i < sizeof ending - 1; i++) {
        ending[i] = (char)tolower((unsigned char)dot[i + 1]);
    }
    return *ending &&
           word_in_list(ending,
                        " png jpg jpeg gif svg svgz ico css js pdf so a o zip xz bz2 deb ps eps ");
}

typedef struct document_text { /* a document, or a part of it, before it is copied */
    const char *source, *name, *text;
    size_t size;
    bool ascii;
} document_text;

static void add_document(corpus *c, const document_text *d, const char *whole) {
    CKVC_GROW(c->documents, c->capacity, c->n_documents + 1);
    c->documents[c->n_documents++] = (corpus_document){.source = ckvc_strdup(d->source),
                                                       .name = ckvc_strdup(d->name),
                                                       .whole = ckvc_strdup(whole),
                                                       .text = ckvc_text_copy(d->text, d->size),
                                                       .size = d->size,
                                                       .ascii = d->ascii};
}

/* The text whole, or its parts "name#1", "name#2" ..., cut between paragraphs (between lines or
 * sentences, where a paragraph is too long). */
static void add_parts(corpus *c, const document_text *d) {
    if (d->size / 2 < PART_BYTES) {
        add_document(c, d, d->name);
        return;
    }
    size_t n = d->size;
    for (int number = 1; n > 0; number++) {
        CKVC_AUTO_FREE char *name = ckvc_format("%s#%d", d->name, number);
        document_text part = {d->source, name, d->text + d->size - n, n, d->ascii};
        if (n >= PART_BYTES + CORPUS_MIN_BYTES) {
            part.size =
                PART_BYTES + cut_paragraph(part.text + PART_BYTES, n - PART_BYTES, PART_BYTES / 2);
        }
        add_document(c, &part, d->name);
        n -= part.size;
        while (n > 0 && d->text[d->size - n] == '\n') { n--; }
    }
}

static void inflate_end(z_stream *z) { inflateEnd(z); }

static ckvc_status inflate_all(const char *path, const char *in, size_t n, ckvc_buffer *out,
                               ckvc_err *err) {
    CKVC_AUTO(inflate_end) z_stream z = {0};
    unsigned char block[65536];
    if (inflateInit2(&z, 15 + 32) != Z_OK) { ckvc_out_of_memory(1, sizeof z); }
    z.next_in = (const unsigned char *)in;
    z.avail_in = (unsigned)n;
    for (int rc = Z_OK; rc != Z_STREAM_END || z.avail_in;) {
        if (rc == Z_STREAM_END && inflateReset(&z) != Z_OK) { break; }
        z.next_out = block;
        z.avail_out = sizeof block;
        rc = inflate(&z, Z_NO_FLUSH);
        CKVC_FAIL_IF(rc != Z_OK && rc != Z_STREAM_END, err, CKVC_E_DATA,
                     "%s: byte %lu: damaged gzip data (%s)", path, z.total_in,
                     z.msg ? z.msg : "truncated");
        ckvc_buffer_append(out, block, sizeof block - z.avail_out);
        CKVC_FAIL_IF(out->size > MAX_FILE_BYTES, err, CKVC_E_DATA,
                     "%s: more than %d bytes when unpacked", path, MAX_FILE_BYTES);
    }
    return CKVC_OK;
}

static void end_iconv(iconv_t *i) {
    if ((intptr_t)*i != -1) { iconv_close(*i); }
}

/* Appends bytes that are no UTF-8 from `bad` on as UTF-8, by the encoding that the user named. */
static ckvc_status decode(const corpus *c, const char *path, const char *bytes, size_t n,
                          size_t bad, ckvc_buffer *out, ckvc_err *err) {
    CKVC_FAIL_IF(!c->encoding, err, CKVC_E_DATA,
                 "%s: byte %zu (0x%02x) is no UTF-8; say which encoding its text has, as in "
                 "--encoding latin1, or mend the file or leave it out",
                 path, bad, (uint8_t)bytes[bad]);
    CKVC_AUTO(end_iconv) iconv_t to_utf8 = iconv_open("UTF-8", c->encoding);
    CKVC_FAIL_IF((intptr_t)to_utf8 == -1, err, CKVC_E_USAGE,
                 "--encoding %s: no such encoding here; `iconv -l` lists them", c->encoding);
    char block[65536], *in = ckvc_unconst(bytes);
    for (size_t left = n; left > 0;) {
        char *at = block;
        size_t room = sizeof block;
        const bool failed = iconv(to_utf8, &in, &left, &at, &room) == (size_t)-1 && errno != E2BIG;
        CKVC_FAIL_IF(failed, err, CKVC_E_DATA, "%s: byte %zu is neither UTF-8 nor %s (--encoding)",
                     path, n - left, c->encoding);
        ckvc_buffer_append(out, block, sizeof block - room);
    }
    return CKVC_OK;
}

/* The bytes of a file that is no gzip file, or of what was in one. */
static ckvc_status add_bytes(corpus *c, const char *source, const char *path, const char *name,
                             const char *bytes, size_t n, ckvc_err *err) {
    const bool wide = /* UTF-16, whose NULs are text */
        n >= 2 && (memcmp(bytes, "\xFF\xFE", 2) == 0 || memcmp(bytes, "\xFE\xFF", 2) == 0);
    if ((memchr(bytes, 0, n) && !wide) || skipped_name(name)) {
        leave_out(c, LEFT_BINARY, name);
        return CKVC_OK;
    }
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0}, decoded = {0};
    const size_t bad = ckvc_utf8_check(bytes, n);
    if (bad < n) {
        CKVC_TRY(decode(c, path, bytes, n, bad, &decoded, err));
        bytes = (const char *)decoded.data;
        n = decoded.size;
    }
    const bool ascii = text_convert(text_kind_guess(name, bytes, n), bytes, n, &text);
    if (text.size >= CORPUS_MIN_BYTES && !is_readable((char *)text.data, text.size)) {
        leave_out(c, LEFT_GARBLED, name);
        return CKVC_OK;
    }
    if (text.size >= CORPUS_MIN_BYTES) { keep_new_paragraphs(c, &text); }
    if (text.size < CORPUS_MIN_BYTES) {
        leave_out(c, LEFT_SHORT, name);
    } else {
        add_parts(c, &(document_text){source, name, (const char *)text.data, text.size, ascii});
    }
    return CKVC_OK;
}

static ckvc_status add_file(corpus *c, const char *source, const char *path, const char *name,
                            ckvc_err *err) {
    CKVC_AUTO_FREE char *raw = NULL;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer unpacked = {0};
    size_t n = 0;
    if (skipped_name(name)) { return CKVC_OK; }
    CKVC_TRY(ckvc_file_read(path, MAX_FILE_BYTES, &raw, &n, err));
    c->n_files++;
    if (n < 2 || memcmp(raw, "\x1f\x8b", 2) != 0) {
        return add_bytes(c, source, path, name, raw, n, err);
    }
    CKVC_AUTO_FREE char *plain_name = ckvc_strdup(name);
    const size_t length = strlen(plain_name);
    if (length > 3 && strcmp(plain_name + length - 3, ".gz") == 0) {
        plain_name[length - 3] = '\0';
    }
    ckvc_buffer_text(&unpacked, "");
    CKVC_TRY(inflate_all(path, raw, n, &unpacked, err));
    return add_bytes(c, source, path, plain_name, (char *)unpacked.data, unpacked.size, err);
}

/* ---- folders ---- */

static int by_bytes(const FTSENT **a, const FTSENT **b) {
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static void walk_end(FTS **walk) {
    if (*walk) { fts_close(*walk); }
}

static ckvc_status add_folder(corpus *c, const char *source, const char *path, ckvc_err *err) {
    CKVC_AUTO_FREE char *root = ckvc_strdup(path);
    CKVC_AUTO(walk_end)
    FTS *walk =
        fts_open((char *[]){root, NULL}, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_bytes);
    CKVC_FAIL_ERRNO_IF(!walk, err, CKVC_E_NOINPUT, "%s", path);
    for (FTSENT *at; (at = fts_read(walk));) {
        CKVC_FAIL_IF(at->fts_info == FTS_D && at->fts_level > MAX_DEPTH, err, CKVC_E_DATA,
                     "%s: folders more than %d deep", at->fts_path, MAX_DEPTH);
        errno = at->fts_errno;
        CKVC_FAIL_ERRNO_IF(at->fts_info == FTS_DNR, err, CKVC_E_NOINPUT, "%s", at->fts_path);
        if (at->fts_info != FTS_F) { continue; }
        const char *name = at->fts_path + strlen(root);
        CKVC_TRY(add_file(c, source, at->fts_path, name + strspn(name, "/"), err));
    }
    return CKVC_OK;
}

ckvc_status corpus_add(corpus *c, const char *source, const char *path, ckvc_err *err) {
    const char *slash = strrchr(path, '/');
    const size_t before = c->n_files;
    CKVC_TRY(ckvc_is_dir(path) ? add_folder(c, source, path, err)
                               : add_file(c, source, path, slash ? slash + 1 : path, err));
    CKVC_FAIL_IF(c->n_files == before, err, CKVC_E_DATA,
                 "%s: holds no text file; read are plain text, HTML, man pages, info and "
                 "reStructuredText, each also as .gz",
                 path);
    return CKVC_OK;
}

void corpus_fini(corpus *c) {
    for (size_t i = 0; i < c->n_documents; i++) {
        corpus_document *d = &c->documents[i];
        CKVC_FREE(d->source, d->name, d->whole, d->text);
    }
    free(c->documents);
    for (int i = 0; i < CORPUS_REASON_COUNT; i++) { free(c->left_out[i].first); }
    free(c->seen.slots);
    *c = (corpus){0};
}
