/* The record of a leak check (manifest.md, "Leaks"): which texts were compared, by hash, and what
 * was found. `manifest check --out` makes it, it is copied into plans and tables, and it is read
 * back from all three. The second half of this header is what a table says of all manifests that it
 * was fitted from. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/hash.h"
#include "lib/base/status.h"

enum { LEAK_RECORD_MAX_AGAINST = 256 };

typedef struct leak_against { /* what was found in one evaluation file */
    char sha256[CKVC_SHA256_HEX];
    uint64_t bytes, lines, texts, words;
    uint64_t spans, near;    /* spans that are shared; texts that are near to a prompt */
    uint64_t ids;            /* lines whose id is that of a prompt */
    uint64_t leaked_lines;   /* lines with any of these */
    uint64_t leaked_prompts; /* prompts of the manifest with any of these */
} leak_against;

typedef struct leak_record {
    char manifest[CKVC_SHA256_HEX];
    /* prompts that were compared; prompts that were left out because no fit sees them */
    uint64_t prompts, held_out;
    /* the fraction that is drawn besides the manifest's own split "heldout" */
    double holdout;
    uint64_t seed;
    unsigned ngram, shingle; /* lengths in words */
    double near;
    uint64_t near_within;    /* prompts that are near to an earlier prompt */
    uint64_t leaked_prompts; /* prompts that share anything with any file */
    leak_against *against;
    size_t n_against;
} leak_record;

/* Makes the record's JSON; a new reference. */
json_t *leak_record_json(const leak_record *r);
/* Reads a record and checks every member; messages begin with `where`. *out is to be freed with
 * leak_record_fini. */
ckvc_status leak_record_parse(const json_t *o, const char *where, leak_record *out,
                              ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status leak_record_read(const char *path, leak_record *out, ckvc_err *err) CKVC_MUST_CHECK;
void leak_record_fini(leak_record *r);
/* Returns the evaluation file of that hash, or NULL when it was not compared. */
const leak_against *leak_record_find(const leak_record *r, const char *sha256);

typedef struct table_leaks {
    json_t *checks, *unchecked; /* the records; the hashes of manifests without one */
} table_leaks;

/* Adds one source that a table was fitted from. `plan` is that of a run, or NULL for a bare shard
 * of `manifest`. records [n] are checks that were made after the run; they may contain checks of
 * other manifests. */
ckvc_status table_leaks_add(table_leaks *l, const json_t *plan, const char *manifest,
                            const leak_record *records, size_t n, const char *where,
                            ckvc_err *err) CKVC_MUST_CHECK;
/* Makes META's "leak_check", a new reference. It is NULL when nothing was checked, and META then
 * says nothing. */
json_t *table_leaks_meta(const table_leaks *l);
void table_leaks_fini(table_leaks *l);
