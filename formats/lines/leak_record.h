/* The record of a leak check (manifest.md, "Leaks"): what was compared with what, by hash, and what
 * was found. It is made by `manifest check --out`, goes into plans and tables, and is read back
 * from all three. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/hash.h"
#include "lib/base/status.h"

enum { LEAK_RECORD_MAX_AGAINST = 256 };

typedef struct leak_against { /* one evaluation file */
    char sha256[CKVC_SHA256_HEX];
    uint64_t bytes, lines, texts, words;
    uint64_t spans, near;    /* shared spans; texts near to a prompt */
    uint64_t ids;            /* lines whose id a prompt has */
    uint64_t leaked_lines;   /* with any of them */
    uint64_t leaked_prompts; /* of the manifest */
} leak_against;

typedef struct leak_record {
    char manifest[CKVC_SHA256_HEX];
    uint64_t prompts, held_out; /* compared; left out because no fit sees them */
    double holdout;             /* drawn besides the manifest's own split "heldout" */
    uint64_t seed;
    unsigned ngram, shingle; /* words */
    double near;
    uint64_t near_within;    /* prompts that are near to an earlier one */
    uint64_t leaked_prompts; /* with anything shared with any file */
    leak_against *against;
    size_t n_against;
} leak_record;

/* New reference. */
json_t *leak_record_json(const leak_record *r);
/* Checks every member; `where` begins the message. *out is to be freed with leak_record_fini. */
ckvc_status leak_record_parse(const json_t *o, const char *where, leak_record *out,
                              ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status leak_record_read(const char *path, leak_record *out, ckvc_err *err) CKVC_MUST_CHECK;
void leak_record_fini(leak_record *r);
/* The evaluation file of that hash; NULL: it was not compared. */
const leak_against *leak_record_find(const leak_record *r, const char *sha256);
