/* Byte-pair merging over a vocabulary of pieces: the model part of a tokenizer. Private to
 * lib/token.
 *
 * A word is split into its smallest symbols. Then the adjacent pair with the lowest merge rank (the
 * leftmost of equals) is joined, until no pair can be joined. Short words scan for this pair; long
 * ones keep the pairs in a heap, so that a word of n symbols costs O(n log n). */
#pragma once

#include "lib/token/token_spec.h"

typedef struct bpe bpe;

typedef struct id_list { /* begin with {0}; free(ids) */
    int32_t *ids;
    size_t n, capacity;
} id_list;
static inline void id_list_push(id_list *list, int32_t id) {
    if (list->n == list->capacity) { CKVC_GROW(list->ids, list->capacity, list->n + 1); }
    list->ids[list->n++] = id;
}

/* Memory that one caller uses for its calls. A bpe may be shared between threads; each thread needs
 * a bpe_scratch of its own. Begin with {0}, and release it with bpe_scratch_fini. */
typedef struct bpe_scratch {
    struct bpe_symbol *symbols;
    size_t symbol_capacity;
    struct bpe_candidate *heap;
    size_t heap_capacity;
} bpe_scratch;
void bpe_scratch_fini(bpe_scratch *scratch);

/* Builds the tables. The spec is borrowed and must outlive the result, which the caller frees.
 * Under byte_level, words and pieces are compared as raw bytes. Pieces and merges mean what they
 * mean in tokenizers' models/bpe/model.rs (vocab, merges, unk_token, fuse_unk, byte_fallback,
 * ignore_merges); under merge_by_score what they mean in google/sentencepiece's src/bpe_model.cc.
 * CKVC_E_DATA names the part of the file `name` that is wrong. */
ckvc_status bpe_build(const token_spec *spec, const char *name, bpe **out,
                      ckvc_err *err) CKVC_MUST_CHECK;
void bpe_free(bpe *b);
/* The id of a whole piece as the file spells it, or -1. */
int32_t bpe_piece_id(const bpe *b, const char *text, size_t n);
/* Appends the ids of one word to out, as tokenizers' BPE::merge_word and Word::merge_all do
 * (models/bpe/model.rs, word.rs), or SentencePiece's Model::SampleEncode without sampling
 * (src/bpe_model.cc). A character without a piece becomes byte pieces, or the unknown piece. When
 * the vocabulary has neither it becomes nothing, as in the reference implementation. */
ckvc_status bpe_encode(const bpe *b, bpe_scratch *scratch, const char *word, size_t n, id_list *out,
                       ckvc_err *err) CKVC_MUST_CHECK;

/* Returns the bytes of the text's first part that merging never joins with what follows, so that a
 * text that has no other places to split it may be merged part by part. No reference has this
 * function: it follows from the rules above. A part ends before a U+2581 which no piece holds after
 * the character that stands in front of it. n is the bytes of the whole text, n >= 1. */
size_t bpe_part(const bpe *b, const char *text, size_t n);
