/* The record of a leak check (manifest.md, "Leaks"): what was compared with what, by hash, and what
 * was found. It is made by `manifest check --out`, goes into plans and tables, and is read back
 * from all three. Below: what a table says of all manifests that it was fitted from. */
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

typedef struct table_leaks {
    json_t *checks, *unchecked; /* records; manifests' hashes without one */
} table_leaks;

/* One source. plan: of a run, or NULL for a bare shard of `manifest`. records [n]: checks made
 * after the run (may hold others). */
ckvc_status table_leaks_add(table_leaks *l, const json_t *plan, const char *manifest,
                            const leak_record *records, size_t n, const char *where,
                            ckvc_err *err) CKVC_MUST_CHECK;
/* META's "leak_check", a new reference; NULL when nothing was checked (then META says nothing). */
json_t *table_leaks_meta(const table_leaks *l);
void table_leaks_fini(table_leaks *l);
