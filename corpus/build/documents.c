/* Makes documents of files: see documents.h. */
#include "corpus/build/documents.h"

#include <ctype.h>
#include <errno.h>
#include <fts.h>
#include <iconv.h>
#include <string.h>

#include "corpus/texts.h"

#define ZLIB_CONST
#include <zlib.h>

#include "corpus/build/conversations.h"
#include "corpus/build/convert.h"
#include "lib/base/json.h"
#include "lib/base/files.h"
#include "lib/base/hash.h"
#include "lib/base/text_lines.h"
#include "lib/base/utf8.h"

enum { MAX_FILE_BYTES = 64 << 20, MAX_DEPTH = 32 };

const struct corpus_reason_name corpus_reasons[CORPUS_REASON_COUNT] = {
    [LEFT_SHORT] = {"short documents", "short"},
    [LEFT_GARBLED] = {"files of unreadable characters", "unreadable"},
    [LEFT_BINARY] = {"binary files", "binary"},
    [LEFT_MARKUP] = {"files of HTML, man or info, of which scripts/plain_text.py makes text",
                     "markup"}};

const char *const corpus_kinds[CORPUS_KIND_COUNT] = {
    [KIND_TEXT] = "text", [KIND_CODE] = "code", [KIND_DATA] = "data", [KIND_MARKDOWN] = "Markdown"};

static void leave_out(corpus *c, corpus_reason reason, const char *name) {
    if (c->left_out[reason].n++ == 0) { c->left_out[reason].first = ckvc_strdup(name); }
}

/* ---- paragraphs ---- */

/* Whether no document has had this paragraph before; from now on one has. White space and case do
 * not count. `folded` is scratch memory, which the caller releases. */
static bool is_new_paragraph(corpus *c, const char *text, size_t n, ckvc_buffer *folded) {
    folded->size = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isspace((unsigned char)text[i])) {
            ckvc_buffer_u8(folded, (uint8_t)tolower((unsigned char)text[i]));
        }
    }
    return hash_set_add(&c->seen, ckvc_xxh64_keyed(folded->data, folded->size, ckvc_hash_key()));
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

/* Endings of names between spaces, and what they say besides a kind. */
enum { ENDING_RST = CORPUS_KIND_COUNT, ENDING_SKIPPED, ENDING_COUNT };
static const char *const endings[ENDING_COUNT] = {
    [KIND_CODE] = (" asm bash c cc cmake cpp cs cu cxx el ex f90 go h hh hpp hs java jl js kt lua "
                   "m ml mm php pl pm proto py pyi r rb rs s scala scm sh sql swift tcl ts tsx vim "
                   "zig "),
    [KIND_DATA] = " cfg conf csv diff ini json jsonl log patch tex toml tsv xml yaml yml ",
    [KIND_MARKDOWN] = " markdown md ",
    [ENDING_RST] = " rst ",
    [ENDING_SKIPPED] = " png jpg jpeg gif svg svgz ico css pdf so a o zip xz bz2 deb ps eps "};

/* Returns what a file name's ending says: a corpus_kind, ENDING_RST or ENDING_SKIPPED, and
 * KIND_TEXT for an ending that stands in no list. */
static int ending_of(const char *name) {
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name,
               *dot = strrchr(base, '.');
    char padded[16] = " ";
    size_t n = 1;
    for (; dot && dot > base && dot[n] && n < sizeof padded - 2; n++) {
        padded[n] = (char)tolower((unsigned char)dot[n]);
    }
    padded[n] = ' ';
    int at = n > 1 && !dot[n] ? ENDING_COUNT - 1 : KIND_TEXT;
    while (at > KIND_TEXT && !strstr(endings[at], padded)) { at--; }
    return at;
}

typedef struct document_text { /* a document, or a part of it, before it is copied */
    const char *source, *name, *text;
    size_t size;
    bool ascii, as_is;
} document_text;

static void add_document(corpus *c, const document_text *d, const char *whole) {
    CKVC_GROW(c->documents, c->capacity, c->n_documents + 1);
    c->documents[c->n_documents++] = (corpus_document){.source = ckvc_strdup(d->source),
                                                       .name = ckvc_strdup(d->name),
                                                       .full_name = ckvc_strdup(whole),
                                                       .text = ckvc_text_copy(d->text, d->size),
                                                       .size = d->size,
                                                       .ascii = d->ascii,
                                                       .as_is = d->as_is};
}

/* Adds a text as one document. A long one becomes several, "name#1", "name#2" and so on, which are
 * cut between paragraphs, or between lines or sentences where a paragraph is too long. */
static void add_parts(corpus *c, const document_text *d) {
    const size_t part_bytes = c->part_bytes ? c->part_bytes : CORPUS_PART_BYTES;
    if (d->size / 2 < part_bytes) {
        add_document(c, d, d->name);
        return;
    }
    size_t n = d->size;
    for (int number = 1; n > 0; number++) {
        CKVC_AUTO_FREE char *name = ckvc_format("%s#%d", d->name, number);
        document_text part = {d->source, name, d->text + d->size - n, n, d->ascii, d->as_is};
        if (n >= part_bytes + CORPUS_MIN_BYTES) {
            part.size =
                part_bytes + cut_paragraph(part.text + part_bytes, n - part_bytes, part_bytes / 2);
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

/* Appends n bytes, of which byte `bad` is not UTF-8, as UTF-8. They are read in the encoding that
 * the user named; where none was named this is CKVC_E_DATA. */
static ckvc_status decode_to_utf8(const corpus *c, const char *path, const char *bytes, size_t n,
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

/* Writes the text of a file that is kept as it stands to `text`, but without a byte order mark.
 * When another file had the same text, `text` stays empty. */
static void keep_as_is(corpus *c, const char *bytes, size_t n, ckvc_buffer *text) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer folded = {0};
    const size_t mark = n >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    ckvc_buffer_text(text, "");
    if (is_new_paragraph(c, bytes, n, &folded)) {
        ckvc_buffer_append(text, bytes + mark, n - mark);
    }
}

static ckvc_status add_conversations(corpus *c, const char *source, const char *path,
                                     const char *bytes, size_t n, ckvc_err *err) {
    for (ckvc_lines at = ckvc_lines_of(bytes, n); ckvc_next_line(&at);) {
        CKVC_AUTO(manifest_entry_fini) manifest_entry e = {0};
        CKVC_TRY(conversation_read(path, at.number, at.text, at.n, &e, err));
        char hash[CKVC_SHA256_HEX]; /* of what all requests of one conversation begin with */
        size_t begin = 0;
        for (size_t i = 0; i < manifest_first_turn(&e); i++) {
            begin += strlen(e.messages[i].role) + e.messages[i].content_size + 2;
        }
        ckvc_sha256_hex(e.text, begin, hash);
        const char *name = e.document ? e.document : hash;
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
        ckvc_buffer_append(&text, e.text, e.text_size);
        ckvc_buffer_append(&text, e.continuation, e.continuation_size);
        add_document(c, &(document_text){source, name, (char *)text.data, text.size, 0, 0}, name);
        c->documents[c->n_documents - 1].conversation = e;
        e = (manifest_entry){0};
    }
    return CKVC_OK;
}

/* Adds the documents of a file's bytes. Those of a gzip file have been unpacked by now. */
static ckvc_status add_bytes(corpus *c, const char *source, const char *path, const char *name,
                             const char *bytes, size_t n, ckvc_err *err) {
    if (c->chat) { return add_conversations(c, source, path, bytes, n, err); }
    const bool wide = /* UTF-16, whose NULs are text */
        n >= 2 && (memcmp(bytes, "\xFF\xFE", 2) == 0 || memcmp(bytes, "\xFE\xFF", 2) == 0);
    const int ending = ending_of(name);
    if ((memchr(bytes, 0, n) && !wide) || ending == ENDING_SKIPPED) {
        leave_out(c, LEFT_BINARY, name);
        return CKVC_OK;
    }
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0}, decoded = {0};
    const size_t bad = ckvc_utf8_check(bytes, n);
    if (bad < n) {
        CKVC_TRY(decode_to_utf8(c, path, bytes, n, bad, &decoded, err));
        bytes = (const char *)decoded.data;
        n = decoded.size;
    }
    const corpus_kind kind = ending < CORPUS_KIND_COUNT ? (corpus_kind)ending : KIND_TEXT;
    const bool as_is = c->keep_all || kind != KIND_TEXT;
    if (!as_is && text_is_markup(bytes, n)) {
        leave_out(c, LEFT_MARKUP, name);
        return CKVC_OK;
    }
    bool ascii = false;
    if (as_is) {
        keep_as_is(c, bytes, n, &text);
    } else {
        ascii = text_convert(ending == ENDING_RST, bytes, n, &text);
    }
    if (text.size >= CORPUS_MIN_BYTES && !is_readable((char *)text.data, text.size)) {
        leave_out(c, LEFT_GARBLED, name);
        return CKVC_OK;
    }
    if (!as_is && text.size >= CORPUS_MIN_BYTES) { keep_new_paragraphs(c, &text); }
    if (text.size < CORPUS_MIN_BYTES) {
        leave_out(c, LEFT_SHORT, name);
    } else {
        c->n_kept[kind] += as_is;
        add_parts(c,
                  &(document_text){source, name, (const char *)text.data, text.size, ascii, as_is});
    }
    return CKVC_OK;
}

static ckvc_status add_text_file(corpus *c, const char *source, const char *path, const char *name,
                                 ckvc_err *err) {
    CKVC_AUTO_FREE char *raw = NULL;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer unpacked = {0};
    size_t n = 0;
    if (ending_of(name) == ENDING_SKIPPED) { return CKVC_OK; }
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
    for (FTSENT *at; errno = 0, (at = fts_read(walk));) {
        CKVC_FAIL_IF(at->fts_info == FTS_D && at->fts_level > MAX_DEPTH, err, CKVC_E_DATA,
                     "%s: folders more than %d deep", at->fts_path, MAX_DEPTH);
        errno = at->fts_errno;
        CKVC_FAIL_ERRNO_IF(at->fts_info == FTS_DNR || at->fts_info == FTS_NS ||
                               at->fts_info == FTS_ERR,
                           err, CKVC_E_NOINPUT, "%s", at->fts_path);
        if (at->fts_info != FTS_F) { continue; }
        const char *name = at->fts_path + strlen(root);
        CKVC_TRY(add_text_file(c, source, at->fts_path, name + strspn(name, "/"), err));
    }
    CKVC_FAIL_ERRNO_IF(errno != 0, err, CKVC_E_NOINPUT, "%s", path);
    return CKVC_OK;
}

ckvc_status corpus_add(corpus *c, const char *source, const char *path, ckvc_err *err) {
    const char *slash = strrchr(path, '/');
    const size_t before = c->n_files;
    CKVC_TRY(ckvc_is_dir(path) ? add_folder(c, source, path, err)
                               : add_text_file(c, source, path, slash ? slash + 1 : path, err));
    CKVC_FAIL_IF(c->n_files == before, err, CKVC_E_DATA,
                 "%s: holds no text file; read are plain text and reStructuredText, each also as "
                 ".gz, and what scripts/plain_text.py makes of HTML, man pages and info",
                 path);
    return CKVC_OK;
}

void corpus_fini(corpus *c) {
    for (size_t i = 0; i < c->n_documents; i++) {
        corpus_document *d = &c->documents[i];
        CKVC_FREE(d->source, d->name, d->full_name, d->text);
        manifest_entry_fini(&d->conversation);
    }
    free(c->documents);
    for (int i = 0; i < CORPUS_REASON_COUNT; i++) { free(c->left_out[i].first); }
    free(c->seen.slots);
    *c = (corpus){0};
}

enum { REACH = 256, MAX_LINE = 20000 };

bool cut_is_space(char c) { return c == ' ' || c == '\n' || c == '\t'; }

/* ---- characters ---- */

enum { WIDE_SPACE = 0x3000 };

/* Whether this is punctuation of a script without spaces that ends a clause or closes a bracket or
 * a quotation. */
static bool ends_clause(int32_t c) {
    static const char closing[] = "\u3001\u3002\uFF01\uFF0C\uFF0E\uFF1A\uFF1B\uFF1F\uFF61\uFF64"
                                  "\u3009\u300B\u300D\u300F\u3011\u3015\u3017\u3019\u301F\uFF09"
                                  "\uFF3D\uFF5D\uFF63\u104A\u104B\u17D4\u17D5";
    char bytes[5] = "";
    return c >= 0x1000 && utf8proc_encode_char(c, (utf8proc_uint8_t *)bytes) == 3 &&
           strstr(closing, bytes);
}

/* Whether this ends a sentence in a script that has full stops and question marks of its own:
 * ideographic and full-width ones, the danda, and those of Arabic, Urdu, Burmese, Khmer and
 * Ethiopic. */
static bool ends_sentence(int32_t c) {
    static const int32_t marks[] = {0x3002, 0xFF01, 0xFF0E, 0xFF1F, 0xFF61, 0x0964, 0x0965,
                                    0x061F, 0x06D4, 0x104B, 0x17D4, 0x17D5, 0x1362};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (c == marks[i]) { return true; }
    }
    return false;
}

/* Whether this ends a clause where a letter of a script without spaces follows. Before other
 * letters these characters may stand inside of a word or number. */
static bool may_end_clause(int32_t c) {
    return c == 0x2019 || c == 0x201D || c == 0x2026 || (c > 0 && c < 128 && strchr(",.;:!?)", c));
}

/* Whether c must not begin a line, because it closes, repeats or lengthens what stands before it,
 * or forms one character with it. */
static bool begins_no_line(int32_t before, int32_t c) {
    const utf8proc_category_t kind = utf8proc_category(c);
    return ends_clause(c) || kind == UTF8PROC_CATEGORY_PE || kind == UTF8PROC_CATEGORY_PF ||
           (c < 128 && ispunct(c)) || c == 0x2014 || c == 0x2026 || c == 0x3005 || c == 0x30FB ||
           c == 0x30FC || !utf8proc_grapheme_break(before, c);
}

/* Whether c must not end a line, because it opens or joins something, is a vowel that is written
 * before its consonant, or puts the next consonant below. */
static bool ends_no_line(int32_t c) {
    const utf8proc_category_t kind = utf8proc_category(c);
    return kind == UTF8PROC_CATEGORY_PS || kind == UTF8PROC_CATEGORY_PI ||
           (c < 128 && ispunct(c)) || c == 0x30FB || (c >= 0x0E40 && c <= 0x0E44) ||
           (c >= 0x0EC0 && c <= 0x0EC4) || c == 0x17D2 || c == 0x1039;
}

static bool char_begins(const char *text, size_t at) { return ((uint8_t)text[at] & 0xC0) != 0x80; }

static int32_t last_char(const char *text, size_t at) {
    const size_t start = char_before(text, at);
    return char_at(text + start, at - start);
}

/* ---- cuts ---- */

cut_kind cut_at(const char *text, size_t n, size_t at) {
    if (at == 0 || at >= n) { return at ? CUT_GOOD : CUT_NONE; }
    if (cut_is_space(text[at - 1])) { return CUT_NONE; }
    if (cut_is_space(text[at])) { return CUT_GOOD; }
    if (((uint8_t)text[at] < 128 && (uint8_t)text[at - 1] < 128) || !char_begins(text, at)) {
        return CUT_NONE; /* no script without spaces is near */
    }
    const int32_t c = char_at(text + at, n - at), before = last_char(text, at);
    if (before == WIDE_SPACE) { return CUT_NONE; }
    if (c == WIDE_SPACE) { return CUT_GOOD; }
    if (begins_no_line(before, c)) { return CUT_NONE; }
    if (ends_clause(before) || (may_end_clause(before) && char_without_spaces(c))) {
        return CUT_GOOD;
    }
    return (char_without_spaces(before) || char_without_spaces(c)) && !ends_no_line(before)
               ? CUT_FINE
               : CUT_NONE;
}

size_t cut_before(const char *text, size_t n, size_t at) {
    size_t fine = 0;
    for (size_t from = at; at > 0 && cut_at(text, n, at) < CUT_GOOD; at--) {
        if (fine == 0 && cut_at(text, n, at) == CUT_FINE) { fine = at; }
        if (fine && from - at > REACH) { return fine; }
    }
    return at ? at : fine;
}

size_t cut_after(const char *text, size_t n, size_t at) {
    size_t fine = 0;
    for (size_t from = at; at < n && cut_at(text, n, at) < CUT_GOOD; at++) {
        if (fine == 0 && cut_at(text, n, at) == CUT_FINE) { fine = at; }
        if (fine && at - from > REACH) { return fine; }
    }
    return at;
}

size_t cut_after_fine(const char *text, size_t n, size_t at) {
    while (at < n && cut_at(text, n, at) == CUT_NONE) { at++; }
    return at;
}

/* Returns the offset behind the first sentence that ends in another script than Latin, or n where
 * there is none. */
static size_t sentence_end(const char *text, size_t n) {
    int32_t c;
    for (size_t at = 0, step; at < n; at += step) {
        step = char_next(text + at, n - at, &c);
        if ((uint8_t)text[at] >= 128) {
            if (!ends_sentence(c)) { continue; }
            for (at += step; at < n; at += step) {
                step = char_next(text + at, n - at, &c);
                if (!begins_no_line('a', c)) { break; }
            }
            return at;
        }
        if (at == 0 || (uint8_t)text[at - 1] < 128) { continue; }
        /* "." as in Latin script, behind a letter of another / the space between Thai sentences */
        const bool dot = strchr(".!?", text[at]) && at + 1 < n && cut_is_space(text[at + 1]);
        const bool gap = cut_is_space(text[at]) && char_without_spaces(last_char(text, at));
        if (dot || gap) { return at + 1; }
    }
    return n;
}

size_t cut_paragraph(const char *text, size_t n, size_t most) {
    const char *stop = memmem(text, n, "\n\n", 2);
    if (stop && (size_t)(stop - text) <= most) { return (size_t)(stop - text); }
    stop = memchr(text, '\n', n);
    const size_t line = stop ? (size_t)(stop - text) : n;
    return line <= most ? line : sentence_end(text, line);
}

/* ---- prose ---- */

bool is_prose(const char *text, size_t n, bool ascii) {
    size_t letters = 0, marks = 0, solid = 0, line = 0, lines = 0, numbered = 0;
    for (size_t i = 0, step; i < n; i += step) {
        const unsigned char byte = (unsigned char)text[i];
        int32_t c = byte;
        bool letter = isalpha(byte), number = isdigit(byte), neutral = cut_is_space((char)byte);
        step = 1;
        if (byte >= 128 && !ascii) {
            step = char_next(text + i, n - i, &c);
            const char *kind = utf8proc_category_string(c);
            letter = *kind == 'L' || *kind == 'M';
            number = *kind == 'N';
            /* quotations and commas are every fourth character where a letter is a word */
            neutral =
                c == WIDE_SPACE || ends_clause(c) || (*kind == 'P' && strchr("seif", kind[1]));
        }
        line = c == '\n' ? 0 : line + 1;
        if (line == 1) {
            lines++;
            numbered += number;
        }
        if (line > MAX_LINE) { return false; }
        if (!ascii && ends_sentence(c)) { line = 1; /* such texts may have no line ends at all */ }
        if (neutral) { continue; }
        solid++;
        letters += letter;
        marks += c < 128 && strchr("|_=#*+~<>{}\\", c);
    }
    return (double)letters >= 0.75 * (double)solid && (double)marks <= 0.06 * (double)solid &&
           4 * numbered <= lines;
}
