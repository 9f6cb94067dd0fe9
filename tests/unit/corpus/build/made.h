/* Finds what the prompts of a built manifest were made from. */
#pragma once

#include "corpus/build/documents.h"
#include "corpus/build/manifest_build.h"
#include "tests/unit/unit.h"

/* Returns options of a build. Lengths are in characters, or in tokens of tok; retrieval is the
 * share of prompts that ask for facts. */
static inline build_options build_of(const tokenizer *tok, int64_t prompts, int64_t min_length,
                                     int64_t max_length, int64_t continuation, double retrieval,
                                     uint64_t seed) {
    return (build_options){.tok = tok,
                           .prompts = prompts,
                           .min_length = min_length,
                           .max_length = max_length,
                           .continuation = continuation,
                           .retrieval = retrieval,
                           .retrieval_source = "facts",
                           .split_rest = "fit",
                           .seed = seed};
}

/* Returns the one document in which a prompt's text and its continuation stand one behind the
 * other. */
static inline const corpus_document *only_document(const corpus *c, const manifest_entry *e) {
    const corpus_document *found = NULL;
    char *whole = malloc(e->text_size + e->continuation_size + 1);
    sprintf(whole, "%s%s", e->text, e->continuation);
    for (size_t d = 0; d < c->n_documents; d++) {
        if (!strstr(c->documents[d].text, whole)) { continue; }
        assert_null(found);
        found = &c->documents[d];
    }
    assert_non_null(found);
    free(whole);
    return found;
}
