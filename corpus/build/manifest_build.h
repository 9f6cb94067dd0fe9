/* Makes prompts out of documents. They are disjoint spans of drawn length, each with the text that
 * follows it as its continuation; some become retrieval prompts, which use further spans as filler.
 * Conversations are taken whole. The same documents and options give the same manifest, byte for
 * byte. */
#pragma once

#include "corpus/build/documents.h"
#include "formats/lines/manifest.h"
#include "lib/base/json.h"
#include "lib/token/tokenizer.h"

enum {
    BUILD_MAX_SPLITS = 8,
    /* the most prompts that are made where no number is asked for */
    BUILD_PROMPTS = 100,
    BUILD_MAX_LENGTHS = 8
};

typedef struct build_options {
    const tokenizer *tok; /* NULL: lengths are in characters */
    chat_template chat;   /* with tok: for conversations, whose lengths count what it adds */
    /* how many in all, retrieval prompts included; 0: as many as the text gives, up to `most` */
    int64_t prompts, most; /* most 0: BUILD_PROMPTS, or all conversations */
    /* of a prompt, counting special tokens; a length is drawn uniformly between the two */
    int64_t min_length, max_length;
    /* Where there are such lengths, prompts take them in turn in place of min_length and
     * max_length: one has at most its length, and at least four fifths of it. */
    int64_t lengths[BUILD_MAX_LENGTHS];
    size_t n_lengths;
    /* The least length of a continuation, in tokens or characters. That of a retrieval prompt may
     * be shorter. */
    int64_t continuation;
    double retrieval;             /* which share of the prompts are retrieval prompts */
    const char *retrieval_source; /* the name of their source */
    bool unseen;                  /* they end before their first question, not inside it */
    /* Each split gets a share of the documents, or of their parts, with all prompts that are cut
     * from them; the rest goes to split_rest. A document's place is a number from 0 to 1, (first 8
     * bytes, big-endian, of SHA-256(seed as decimal, LF, source, LF, name)) / 2^64. If that leaves
     * a split empty whose share is above 0, prompts are dealt instead, by their ids in the same
     * way: each split gets its share of them and at least one. */
    struct {
        const char *name;
        double share;
    } splits[BUILD_MAX_SPLITS];
    int n_splits;
    const char *split_rest;
    /* In place of that number, the documents of a source get evenly spread ones, in the order in
     * which they are taken, so that few documents of each of several sources lie in all splits:
     * the fractions of 1/2 + i times the golden ratio, sources 2/5 apart. */
    bool even_splits;
    uint64_t seed;
} build_options;

typedef struct built_manifest {
    manifest_entry *entries; /* shuffled; their `line` is 0 */
    size_t n_entries, capacity;
    size_t n_retrieval, n_junk; /* junk: spans passed over, such as tables, listings, addresses */
    size_t n_other_lengths;     /* conversations passed over */
    size_t n_repeated;          /* prompts that were left out because an equal one was there */
    int64_t shortest, longest;  /* prompt lengths */
    bool dealt;                 /* whether prompts of one document may stand in several splits */
} built_manifest;

/* Makes the prompts. If there is too little text for the number asked for, it is CKVC_E_DATA, and
 * the message says how many there were. */
ckvc_status manifest_build(const corpus *c, const build_options *o, built_manifest *out,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* Appends the manifest's JSON lines to out. */
void built_manifest_write(const built_manifest *m, ckvc_buffer *out);
void built_manifest_fini(built_manifest *m);
