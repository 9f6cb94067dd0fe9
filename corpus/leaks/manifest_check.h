/* What can be said of a manifest as a whole: its repeated prompts, and its lengths in tokens. The
 * rules that a single line must keep are checked by manifest_read. */
#pragma once

#include <jansson.h>

#include "formats/lines/manifest.h"
#include "lib/token/tokenizer.h"

typedef struct check_group {    /* the prompts of one source and split */
    const char *source, *split; /* borrowed from the manifest; "" where absent */
    size_t n;
    int64_t shortest, longest, total; /* prompt lengths */
} check_group;

typedef struct manifest_facts {
    check_group *groups; /* in order of first appearance */
    size_t n_groups;
    json_t
        *group_at; /* {split, LF, source: the group's index}; each line may name another source */
    bool *repeats; /* [n_entries] whether an earlier line has its text or tokens */
    size_t n_repeated;             /* how many of these prompts there are */
    size_t n_short;                /* prompts below min_length */
    check_group all;               /* over all prompts; source and split are NULL */
    int64_t shortest_continuation; /* -1 where no prompt has one */
    uint32_t first_repeated, first_original, first_short; /* line numbers; 0 where there is none */
    /* documents whose prompts stand in several splits */
    size_t n_split_documents;
    /* lines of two prompts of the first such document; 0 where there is none */
    uint32_t first_split, first_other;
} manifest_facts;

/* Counts the manifest's prompts, their repeats and their lengths. With tok, lengths are in tokens,
 * and messages are rendered by `chat` first (NULL without tok). Without tok, lengths are in
 * characters, and of a prompt that is given as tokens its ids are counted. A token id beyond the
 * vocabulary and messages that the template refuses are CKVC_E_DATA. With min_length 0 nothing is
 * too short. */
ckvc_status manifest_look(const manifest *m, const tokenizer *tok, const chat_template *chat,
                          int64_t min_length, manifest_facts *out, ckvc_err *err) CKVC_MUST_CHECK;
void manifest_facts_fini(manifest_facts *facts);

/* The next two functions write a manifest without some of its prompts. Its other lines stay byte
 * for byte, in their order. The file is read again for this, one line at a time. */
/* Says before any work whether the lines may go to path: CKVC_E_CREATE where something is in the
 * way; CKVC_E_USAGE where path is the manifest itself or one of `read` [n_read], or where lines
 * name files relative to another folder than path's. */
ckvc_status manifest_clean_ready(const manifest *m, const char *const *read, size_t n_read,
                                 const char *path, bool force, ckvc_err *err) CKVC_MUST_CHECK;
/* Writes all lines but those marked in left_out [n_entries]. When no line is left, or the manifest
 * has changed since it was read, it is CKVC_E_DATA and no file is written. */
ckvc_status manifest_clean_write(const manifest *m, const bool *left_out, const char *path,
                                 bool force, ckvc_err *err) CKVC_MUST_CHECK;
