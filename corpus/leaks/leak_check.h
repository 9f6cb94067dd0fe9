/* The leak guard: what a manifest shares with evaluation files, and which of its own prompts are
 * near-duplicates (manifest.md, "Leaks").
 *
 * The manifest's side is what a fit may see: prompts and continuations that are not held out. The
 * evaluation's side is every string value of every line, at any depth, keys and ids apart; of a
 * line that is a manifest's also the text of "file" and the decoded "tokens". An evaluation file
 * that is the manifest itself stands for its held-out prompts. */
#pragma once

#include "formats/lines/leak_record.h"
#include "formats/lines/manifest.h"
#include "lib/token/tokenizer.h"

typedef struct leak_options {
    double near;          /* Jaccard threshold */
    const tokenizer *tok; /* for prompts given as tokens; NULL: they are an error */
    const bool *held_out; /* [n_entries] of the manifest */
    size_t max_findings;  /* kept; the others are counted */
} leak_options;

typedef enum leak_kind { LEAK_SPAN, LEAK_NEAR, LEAK_ID, LEAK_WITHIN, LEAK_KIND_COUNT } leak_kind;
const char *leak_kind_name(leak_kind kind); /* span, near-duplicate, id, near-duplicate-within */

typedef struct leak_finding {
    leak_kind kind;
    const manifest_entry *entry; /* borrowed */
    size_t against;              /* number of the evaluation file; LEAK_WITHIN: unused */
    uint64_t line;    /* of that file; LEAK_WITHIN: of the manifest, the earlier prompt */
    char *id, *field; /* as in the file, cut to 64 bytes, or ""; NULL field: the line itself */
    size_t n_words;   /* of the span; of the manifest's prompt */
    double jaccard;   /* 1 for spans and ids */
    char *text;       /* normalised words: the span, else the prompt's beginning */
} leak_finding;

typedef struct leak_result {
    leak_record record; /* the counts */
    bool *shares; /* [n_entries] of the manifest: shares anything with any file, or is near to an
                     earlier prompt */
    leak_finding *findings;
    size_t n_findings, cap_findings;
} leak_result;

/* paths: JSONL files, also .gz. One that cannot be read whole is an error: a check that skips is
 * none. */
ckvc_status leak_check(const manifest *m, const char *const *paths, size_t n_paths,
                       const leak_options *o, leak_result *out, ckvc_err *err) CKVC_MUST_CHECK;
void leak_result_fini(leak_result *r);

/* A manifest entry's prompt or its continuation, looked at in one way. */
typedef struct entry_part { /* borrowed from the entry */
    bool is_ids;
    const char *text;
    size_t size;
    const int32_t *ids;
    size_t n_ids;
} entry_part;

static inline entry_part entry_part_of(const manifest_entry *e, bool continuation) {
    return continuation ? (entry_part){.is_ids = e->continuation_tokens != NULL,
                                       .text = e->continuation,
                                       .size = e->continuation_size,
                                       .ids = e->continuation_tokens,
                                       .n_ids = e->n_continuation_tokens}
                        : (entry_part){.is_ids = e->tokens != NULL,
                                       .text = e->text,
                                       .size = e->text_size,
                                       .ids = e->tokens,
                                       .n_ids = e->n_tokens};
}
