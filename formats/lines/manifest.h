/* The prompt manifest (JSONL; formats/lines/manifest.md), its reader and its writer. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/status.h"
#include "lib/token/chat_template.h"

/* The keys of a line. */
/* clang-format off */
#define MANIFEST_KEYS(X) \
    X(id) X(source) X(document) X(split) X(text) X(tokens) X(file) X(offset) X(bytes) X(messages) \
    X(continuation) X(continuation_tokens)
/* clang-format on */
#define X(name) MANIFEST_KEY_##name,
typedef enum manifest_key { MANIFEST_KEYS(X) MANIFEST_KEY_COUNT } manifest_key;
#undef X
manifest_key manifest_key_of(const char *word); /* MANIFEST_KEY_COUNT when it is none of them */

typedef struct manifest_entry {
    uint32_t line;                        /* 1-based */
    char *id, *source, *document, *split; /* all but id may be NULL */
    /* Exactly one of these is there: text (read from "text" or from "file"), tokens, or messages
     * (n_messages > 0). The others are NULL. */
    char *text;
    size_t text_size;
    int32_t *tokens;
    size_t n_tokens;
    bool has_file; /* the text was read from "file" */
    /* A conversation. `text` is then "role LF content LF" of each message, which is what the checks
     * of repeats, leaks and lengths look at. */
    chat_message *messages;
    size_t n_messages;
    /* At most one of these is there. When both are NULL, the last C ids of the prompt are the
     * continuation. */
    char *continuation;
    size_t continuation_size;
    int32_t *continuation_tokens;
    size_t n_continuation_tokens;
} manifest_entry;

typedef struct manifest {
    char *path;
    char sha256[CKVC_SHA256_HEX]; /* hash of the JSONL file's bytes */
    manifest_entry *entries;
    size_t n_entries;
} manifest;

/* Returns how many messages there are up to and with the first of the user, or all when the user
 * has none. */
static inline size_t manifest_first_turn(const manifest_entry *e) {
    size_t n = 0;
    while (n < e->n_messages && strcmp(e->messages[n++].role, "user") != 0) {}
    return n;
}

/* Reads and checks every line. Unknown or duplicate keys, duplicate ids, lines over 64 MiB, bad
 * UTF-8, text and tokens both or neither, and files outside the manifest's folder are CKVC_E_DATA
 * "FILE:LINE: ...". Entries keep the file's order. The texts of "file" entries are read at once. */
ckvc_status manifest_read(const char *path, manifest **out, ckvc_err *err) CKVC_MUST_CHECK;
/* Reads one line by the same rules, except that its id is not compared with others; this serves
 * streams. `path` is the file that the line stands in. *out is to be freed with manifest_entry_fini
 * in every case. */
ckvc_status manifest_read_line(const char *path, uint32_t line, const char *text, size_t n,
                               manifest_entry *out, ckvc_err *err) CKVC_MUST_CHECK;
void manifest_entry_fini(manifest_entry *e);
void manifest_free(manifest *m);
CKVC_AUTO_OF(manifest, manifest_free)
/* Makes a canonical manifest line without its newline, for builders of manifests. The caller frees
 * it. */
char *manifest_line(const manifest_entry *e);
