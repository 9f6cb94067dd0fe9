/* Byte-pair merging over a vocabulary of pieces: the model part of a tokenizer. Private to
 * lib/token.
 *
 * A word is split into its smallest symbols and the adjacent pair with the lowest merge rank
 * (leftmost of equals) is joined until none is left. Short words scan for it; long ones keep the
 * pairs in a heap, so that a word of n symbols costs O(n log n). */
#pragma once

#include "lib/token/token_spec.h"

typedef struct bpe bpe;

typedef struct id_list { /* zero-initialise; free(ids) */
    int32_t *ids;
    size_t n, capacity;
} id_list;
static inline void id_list_push(id_list *list, int32_t id) {
    if (list->n == list->capacity) { CKVC_GROW(list->ids, list->capacity, list->n + 1); }
    list->ids[list->n++] = id;
}

/* One a caller: a bpe is shared between threads, this is not. Zero-initialise, bpe_scratch_fini. */
typedef struct bpe_scratch {
    struct bpe_symbol *symbols;
    size_t symbol_capacity;
    struct bpe_candidate *heap;
    size_t heap_capacity;
} bpe_scratch;
void bpe_scratch_fini(bpe_scratch *scratch);

/* Borrows the spec, which must outlive the result. Under byte_level words and pieces are compared
 * as raw bytes. Pieces and merges mean what they do in tokenizers' models/bpe/model.rs (vocab,
 * merges, unk_token, fuse_unk, byte_fallback, ignore_merges); under merge_by_score in
 * google/sentencepiece's src/bpe_model.cc. */
ckvc_status bpe_build(const token_spec *spec, const char *name, bpe **out,
                      ckvc_err *err) CKVC_MUST_CHECK;
void bpe_free(bpe *b);
/* Id of a whole piece as spelled in the file, or -1. */
int32_t bpe_piece_id(const bpe *b, const char *text, size_t n);
/* Ids of one word, appended to out: tokenizers' BPE::merge_word and Word::merge_all
 * (models/bpe/model.rs, word.rs), or SentencePiece's Model::SampleEncode without sampling
 * (src/bpe_model.cc). A character without a piece becomes byte pieces, the unknown piece, or (as in
 * the reference implementation, when the vocabulary has neither) nothing. */
ckvc_status bpe_encode(const bpe *b, bpe_scratch *scratch, const char *word, size_t n, id_list *out,
                       ckvc_err *err) CKVC_MUST_CHECK;

/* No one's convention but a consequence of those above: bytes of the text's first part that merging
 * never joins with what follows, so that a text without other places to split it may be merged part
 * by part: up to a U+2581 that no piece holds behind this character. n: the whole text. n >= 1. */
size_t bpe_part(const bpe *b, const char *text, size_t n);
