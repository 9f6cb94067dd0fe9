/* Reads text files into documents. Folders are walked in byte order of names, and gzip is unpacked.
 * Of files of text only the prose is used, without typographic characters and repeated paragraphs;
 * code, data and Markdown stay as they stand. The same files give the same documents, whatever the
 * order of the file system. Texts may be of any script. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "corpus/texts.h"
#include "formats/lines/manifest.h"

typedef struct corpus_document {
    char *source; /* the name that the user gave the source */
    /* The path below the folder that was given, or the file's own name. Part N of a long file has
     * "#N" behind it. */
    char *name;
    char *full_name; /* the name without "#N" */
    char *text;      /* plain text, with a NUL behind its size bytes */
    size_t size;
    bool ascii; /* whether the text is mostly ASCII */
    /* whether the file is of a kind that is kept as it stands, prose or not */
    bool as_is;
    /* With `chat` this holds the messages and their continuation; its id is "PATH:LINE", and `text`
     * has the texts of both. Otherwise all members are NULL. */
    manifest_entry conversation;
} corpus_document;

/* What a file's ending says that it holds. */
typedef enum corpus_kind {
    KIND_TEXT, /* prose, as far as one can know */
    KIND_CODE,
    KIND_DATA, /* JSON, tables, logs, settings */
    KIND_MARKDOWN,
    CORPUS_KIND_COUNT
} corpus_kind;
extern const char *const corpus_kinds[CORPUS_KIND_COUNT]; /* "text", "code", ... */

/* Why a file makes no document. */
typedef enum corpus_reason {
    LEFT_SHORT,   /* less than CORPUS_MIN_BYTES of text that no earlier document had */
    LEFT_GARBLED, /* too many characters that mean nothing */
    LEFT_BINARY,
    LEFT_MARKUP,
    CORPUS_REASON_COUNT
} corpus_reason;
extern const struct corpus_reason_name {
    const char *text, *key; /* "short documents", ...; a JSON key */
} corpus_reasons[CORPUS_REASON_COUNT];

typedef struct corpus {
    /* The encoding of files that are not UTF-8, by a name that iconv_open knows. Where it is NULL,
     * such a file is an error. */
    const char *encoding;
    bool chat;     /* each line of a file is a conversation; a document is what one begins with */
    bool keep_all; /* files of text stay as they stand, too, not only code, data and Markdown */
    /* A text of at least twice as many bytes is cut into parts, so that one book can lie in several
     * splits. 0 means CORPUS_PART_BYTES. */
    size_t part_bytes;
    /* by kind: files that stand in documents as they are */
    size_t n_kept[CORPUS_KIND_COUNT];
    corpus_document *documents;
    size_t n_documents, capacity;
    size_t n_files, n_repeated_paragraphs;
    struct {
        size_t n;
        char *first; /* name of the first such file, as a document's */
    } left_out[CORPUS_REASON_COUNT];
    hash_set seen; /* hashes of the paragraphs that were met */
} corpus;

/* Lengths are in bytes, because a character of three bytes says as much as a short word. */
enum {
    CORPUS_PART_BYTES = 32768,
    CORPUS_MIN_BYTES = 400,   /* shorter documents make no prompt */
    CORPUS_MIN_PARAGRAPH = 60 /* shorter ones ("See also") may repeat */
};
/* The least share of characters that mean something, which are all but U+FFFD and unassigned,
 * private and control characters. A text below it is in another encoding, or is a binary file in
 * disguise. */
#define CORPUS_MIN_READABLE 0.97

/* Adds a file, or every file below a folder (symbolic links inside are not followed). It is
 * CKVC_E_DATA if there is no text file, or if one is in an unknown encoding; the message then names
 * the file and the byte. */
ckvc_status corpus_add(corpus *c, const char *source, const char *path,
                       ckvc_err *err) CKVC_MUST_CHECK;
void corpus_fini(corpus *c);

/* Where a text may be cut, and which part of it is prose.
 *
 * A cut stands before white space that follows a word, so that the two sides are tokenised as the
 * whole would be. Scripts without spaces have cuts of their own: good ones behind the punctuation
 * that ends a clause and, where none is near, fine ones between any two characters at which a line
 * may be broken. Offsets are in bytes. All of these are pure functions. */
/* Whether c is a space, a tab or a line end. */
bool cut_is_space(char c);
typedef enum cut_kind { CUT_NONE, CUT_FINE, CUT_GOOD } cut_kind;
/* How well the text [n bytes] may be cut before the byte at `at`. The end of the text is a good
 * cut. */
cut_kind cut_at(const char *text, size_t n, size_t at);
/* The last cut up to `at` (0 where there is none), and the first cut from `at` on (n at the
 * latest). Both take a good cut; if the nearest lies more than 256 bytes off, they take a fine
 * one. */
size_t cut_before(const char *text, size_t n, size_t at);
size_t cut_after(const char *text, size_t n, size_t at);
/* The first cut from `at` on, good or fine. */
size_t cut_after_fine(const char *text, size_t n, size_t at);

/* Where the paragraph that begins at text ends. It ends at an empty line. If that makes it longer
 * than `most` bytes, it ends with its first line. If that line is too long as well, it ends behind
 * the line's first sentence that a script other than Latin marks by its own signs; a line without
 * one is taken whole. n where nothing ends the paragraph. */
size_t cut_paragraph(const char *text, size_t n, size_t most);

/* Whether a text is prose, which consists of letters, unlike tables, tables of contents, listings
 * of numbers, addresses and rules. ascii says that the text is mostly ASCII: letters of other
 * scripts in it stem from formulas then, and do not count. Otherwise letters of any script
 * count. */
bool is_prose(const char *text, size_t n, bool ascii);
