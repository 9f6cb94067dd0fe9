/* A manifest as a whole: repeated prompts, lengths in tokens. A line's rules are manifest_read's.
 */
#pragma once

#include "formats/lines/manifest.h"
#include "lib/token/tokenizer.h"

typedef struct check_group {    /* prompts of one source and split */
    const char *source, *split; /* borrowed from the manifest; "" where absent */
    size_t n;
    int64_t shortest, longest, total; /* prompt lengths */
} check_group;

typedef struct manifest_facts {
    check_group *groups; /* in order of first appearance */
    size_t n_groups;
    bool *repeats;                 /* [n_entries] such a prompt */
    size_t n_repeated;             /* prompts whose text or tokens an earlier line has */
    size_t n_short;                /* prompts below min_length */
    check_group all;               /* source and split NULL */
    int64_t shortest_continuation; /* -1 where none is given */
    uint32_t first_repeated, first_original, first_short; /* lines, 0: none */
    size_t n_split_documents;          /* whose prompts stand in several splits */
    uint32_t first_split, first_other; /* lines of the first of them, 0: none */
} manifest_facts;

/* Lengths are tokens with tok, of messages as `chat` (NULL: without tok) renders them; else
 * characters (and a prompt given as tokens counts its ids). A token id beyond the vocabulary and
 * messages that the template refuses are CKVC_E_DATA. min_length 0: nothing is too short. */
ckvc_status manifest_look(const manifest *m, const tokenizer *tok, const chat_template *chat,
                          int64_t min_length, manifest_facts *out, ckvc_err *err) CKVC_MUST_CHECK;
void manifest_facts_fini(manifest_facts *facts);

/* A manifest without some of its prompts: its other lines byte for byte, in their order. Reads the
 * file again, one line at a time. */
/* Before any work: may the lines go to path? CKVC_E_CREATE where it is in the way; CKVC_E_USAGE
 * where it is the manifest or one of `read` [n_read], or where lines name files relative to another
 * folder. */
ckvc_status manifest_clean_ready(const manifest *m, const char *const *read, size_t n_read,
                                 const char *path, bool force, ckvc_err *err) CKVC_MUST_CHECK;
/* left_out [n_entries]. CKVC_E_DATA, and no file, when no line is left or the manifest changed
 * since it was read. */
ckvc_status manifest_clean_write(const manifest *m, const bool *left_out, const char *path,
                                 bool force, ckvc_err *err) CKVC_MUST_CHECK;
