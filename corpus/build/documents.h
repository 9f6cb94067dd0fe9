/* Reading text files into documents: folders walked in byte order of names, gzip undone. Of files
 * of text only prose is used, without typography and repeated paragraphs; code, data and Markdown
 * stay as they stand. The same files give the same documents, whatever the file system's order. Any
 * script will do. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "corpus/texts.h"
#include "formats/lines/manifest.h"

typedef struct corpus_document {
    char *source; /* what the user called it */
    /* Path below the folder that was given, or the file's own name; "#N" behind it for part N of a
     * long one. */
    char *name;
    char *full_name; /* the name without "#N" */
    char *text;      /* plain, NUL behind size */
    size_t size;
    bool ascii; /* mostly */
    bool as_is; /* of a kind that is kept as it stands, whether prose or not */
    /* With `chat`: messages and their continuation; its id is "PATH:LINE"; `text` is the texts of
     * both. Else all NULL. */
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
    LEFT_SHORT,   /* less than CORPUS_MIN_BYTES of text that no document before had */
    LEFT_GARBLED, /* too many characters that mean nothing */
    LEFT_BINARY,
    LEFT_MARKUP,
    CORPUS_REASON_COUNT
} corpus_reason;
extern const struct corpus_reason_name {
    const char *text, *key; /* "short documents", ... / a JSON key */
} corpus_reasons[CORPUS_REASON_COUNT];

typedef struct corpus {
    /* Of files that are no UTF-8, a name that iconv_open knows; NULL: such a file is an error. */
    const char *encoding;
    bool chat;     /* lines of files are conversations; a document is what one begins with */
    bool keep_all; /* files of text stay as they stand, too */
    /* Of texts of twice as many bytes parts are made, so that a book lies in several splits; 0:
     * CORPUS_PART_BYTES. */
    size_t part_bytes;
    size_t n_kept[CORPUS_KIND_COUNT]; /* files that stand in documents as they are */
    corpus_document *documents;
    size_t n_documents, capacity;
    size_t n_files, n_repeated_paragraphs;
    struct {
        size_t n;
        char *first; /* a file's name, as a document's */
    } left_out[CORPUS_REASON_COUNT];
    hash_set seen; /* paragraphs */
} corpus;

/* In bytes: a character of three says as much as a short word. */
enum {
    CORPUS_PART_BYTES = 32768,
    CORPUS_MIN_BYTES = 400,   /* shorter documents make no prompt */
    CORPUS_MIN_PARAGRAPH = 60 /* shorter ones ("See also") may repeat */
};
/* Share of characters that mean something: neither U+FFFD nor unassigned, private or control ones.
 * Below: another encoding, or binary in disguise. */
#define CORPUS_MIN_READABLE 0.97

/* Adds a file, or every file below a folder (symbolic links inside are not followed). CKVC_E_DATA:
 * there is none, or one in another encoding than is known, which the message names with the byte.
 */
ckvc_status corpus_add(corpus *c, const char *source, const char *path,
                       ckvc_err *err) CKVC_MUST_CHECK;
void corpus_fini(corpus *c);

/* Where a text may be cut, and which of it is prose.
 *
 * A cut stands before white space that follows a word, so that both sides are tokenised as the
 * whole would be. Scripts without spaces have cuts of their own: good ones behind the punctuation
 * that ends a clause, and where none is near, fine ones between any two characters that a line may
 * be broken between. Offsets are bytes. Pure functions. */
/* Of ASCII: space, tab, line end. */
bool cut_is_space(char c);
typedef enum cut_kind { CUT_NONE, CUT_FINE, CUT_GOOD } cut_kind;
/* Whether the text [n] may be cut before the byte at `at`; its end is a good cut. */
cut_kind cut_at(const char *text, size_t n, size_t at);
/* The last cut up to `at`, 0 where there is none / the first from `at` on, n at the latest: good
 * ones first, fine ones where they lie more than 256 bytes off. */
size_t cut_before(const char *text, size_t n, size_t at);
size_t cut_after(const char *text, size_t n, size_t at);
/* The next cut of any kind. */
size_t cut_after_fine(const char *text, size_t n, size_t at);

/* Where the paragraph ends that begins at text: at an empty line; of one longer than `most` bytes
 * at the end of its next line, or of its sentence where only scripts with marks of their own say
 * where that is; n where nothing ends it. */
size_t cut_paragraph(const char *text, size_t n, size_t most);

/* Prose is letters: tables, tables of contents, listings of numbers, addresses and rules are not.
 * ascii: of a text that is mostly ASCII, where those of other scripts are formulas' and count as
 * none; else letters of any script. */
bool is_prose(const char *text, size_t n, bool ascii);
