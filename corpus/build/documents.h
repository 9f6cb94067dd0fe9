/* Reading text files into documents: folders walked in byte order of names, gzip undone, markup
 * converted, junk and repeated paragraphs left out. The same files give the same documents,
 * whatever the file system's order. */
#ifndef CKVC_CORPUS_DOCUMENTS_H
#define CKVC_CORPUS_DOCUMENTS_H

#include <stddef.h>

#include "lib/base/status.h"

typedef struct corpus_document {
    char *source; /* what the user called it */
    char *name; /* path below the folder that was given, or the file's own name; "#N" behind it for
                   part N of a long one */
    char *text; /* plain, NUL behind size */
    size_t size;
} corpus_document;

typedef struct corpus {
    corpus_document *documents;
    size_t n_documents, capacity;
    /* what was left out, for the last line of the build */
    size_t n_files, n_binary, n_short, n_foreign, n_repeated_paragraphs;
    struct paragraph_set *seen;
} corpus;

enum {
    CORPUS_MIN_CHARS = 400,   /* shorter documents make no prompt */
    CORPUS_MIN_PARAGRAPH = 60 /* shorter ones ("See also") may repeat */
};
#define CORPUS_MIN_ASCII                                                                           \
    0.97 /* share of ASCII characters; below: another language, or binary in disguise */

/* Adds a file, or every file below a folder (symbolic links inside are not followed). */
ckvc_status corpus_add(corpus *c, const char *source, const char *path,
                       ckvc_err *err) CKVC_MUST_CHECK;
void corpus_fini(corpus *c);

#endif
