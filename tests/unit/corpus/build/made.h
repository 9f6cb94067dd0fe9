/* What prompts of a built manifest were made from. */
#pragma once

#include "corpus/build/documents.h"
#include "corpus/build/manifest_build.h"
#include "tests/unit/unit.h"

/* The one document in which a prompt's text and continuation stand one behind the other. */
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
