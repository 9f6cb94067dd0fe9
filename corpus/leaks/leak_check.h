/* The leak guard finds what a manifest shares with evaluation files, and which of its own prompts
 * are near-duplicates (manifest.md, "Leaks").
 *
 * Of the manifest it looks at what a fit may see: prompts and continuations that are not held out.
 * Of the evaluation files it looks at every string value of every line, at any depth, except keys
 * and ids. If such a line is a manifest's, the text of its "file" and its decoded "tokens" count,
 * too. If an evaluation file is the manifest itself, its held-out prompts are what the others are
 * compared with. */
#pragma once

#include "formats/lines/leak_record.h"
#include "formats/lines/manifest.h"
#include "lib/token/tokenizer.h"

typedef struct leak_options {
    double near; /* from which Jaccard index on prompts are near-duplicates */
    /* decodes prompts that are given as tokens; where it is NULL, such prompts are an error */
    const tokenizer *tok;
    const bool *held_out; /* [n_entries] of the manifest */
    size_t max_findings;  /* how many are kept; the others are only counted */
} leak_options;

typedef enum leak_kind { LEAK_SPAN, LEAK_NEAR, LEAK_ID, LEAK_WITHIN, LEAK_KIND_COUNT } leak_kind;
const char *leak_kind_name(leak_kind kind); /* span, near-duplicate, id, near-duplicate-within */

typedef struct leak_finding {
    leak_kind kind;
    const manifest_entry *entry; /* borrowed */
    size_t against;              /* number of the evaluation file; unused by LEAK_WITHIN */
    /* the line of that file; LEAK_WITHIN: the line of the manifest that has the earlier prompt */
    uint64_t line;
    /* as the file has them, cut to 64 bytes, or ""; a NULL field means the line itself */
    char *id, *field;
    size_t n_words; /* of the span, or of the manifest's prompt */
    double jaccard; /* 1 for spans and ids */
    /* normalised words: those of the span, or else the prompt's beginning */
    char *text;
} leak_finding;

typedef struct leak_result {
    leak_record record; /* the counts */
    /* [n_entries] whether a prompt of the manifest shares anything with any file, or is near to an
     * earlier prompt */
    bool *shares;
    leak_finding *findings;
    size_t n_findings, cap_findings;
} leak_result;

/* Compares the manifest with paths [n_paths], JSONL files that may be packed as .gz. A file that
 * cannot be read whole is an error, because a check that skipped lines would prove nothing. */
ckvc_status leak_check(const manifest *m, const char *const *paths, size_t n_paths,
                       const leak_options *o, leak_result *out, ckvc_err *err) CKVC_MUST_CHECK;
void leak_result_fini(leak_result *r);

/* A manifest entry's prompt or its continuation, so that both can be handled by the same code. */
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
