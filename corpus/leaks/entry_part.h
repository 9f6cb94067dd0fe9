/* A manifest entry's prompt or its continuation, looked at in one way. */
#pragma once

#include "formats/lines/manifest.h"

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
