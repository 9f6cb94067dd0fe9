/* Documents to prompts: disjoint spans of drawn length, each with the text that follows it as its
 * continuation, and retrieval prompts that use further spans as filler; conversations whole. The
 * same documents and options give the same manifest, byte for byte. */
#pragma once

#include "corpus/build/documents.h"
#include "formats/lines/manifest.h"
#include "lib/base/json.h"
#include "lib/token/tokenizer.h"

enum {
    BUILD_MAX_SPLITS = 8,
    BUILD_PROMPTS = 100 /* at most, where no number is asked for */
};

typedef struct build_options {
    const tokenizer *tok; /* NULL: lengths are in characters */
    chat_template chat;   /* with tok: of conversations, whose lengths count what it adds */
    int64_t prompts;      /* how many in all, retrieval included; 0: as many as the text gives */
    int64_t min_length, max_length; /* of a prompt, special tokens counted; drawn evenly between */
    /* At least so many tokens or characters follow; a retrieval prompt's may be shorter. */
    int64_t continuation;
    double retrieval;             /* share of the prompts */
    const char *retrieval_source; /* their source */
    /* share of the documents or parts (and of all prompts cut from them) that go to a split; the
     * rest to split_rest. A document's place is (first 8 bytes, big-endian, of SHA-256(seed as
     * decimal, LF, source, LF, name)) / 2^64. Where that leaves a split of some share empty,
     * prompts are dealt in the same way, by id, each split its share of them and at least one. */
    struct {
        const char *name;
        double share;
    } splits[BUILD_MAX_SPLITS];
    int n_splits;
    const char *split_rest;
    uint64_t seed;
} build_options;

typedef struct built_manifest {
    manifest_entry *entries; /* shuffled; line is 0 */
    size_t n_entries, capacity;
    size_t n_retrieval, n_junk; /* spans passed over: tables, listings, addresses */
    size_t n_other_lengths;     /* conversations passed over */
    size_t n_repeated;          /* prompts that were there already */
    int64_t shortest, longest;  /* prompt lengths */
    bool dealt;                 /* prompts of one document may stand in several splits */
} built_manifest;

/* Too little text for the prompts asked for is CKVC_E_DATA that says how many there were. */
ckvc_status manifest_build(const corpus *c, const build_options *o, built_manifest *out,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* Appends the JSONL bytes. */
void built_manifest_write(const built_manifest *m, ckvc_buffer *out);
void built_manifest_fini(built_manifest *m);
