/* What a tokenizer is, as plain data: readers of tokenizer.json, SentencePiece, tiktoken and GGUF
 * files fill it, lib/token builds a tokenizer from it. A field means what the field of that name
 * means in Hugging Face `tokenizers` (tokenizer.json's schema: BPE in models/bpe/model.rs,
 * AddedToken in tokenizer/added_vocabulary.rs, Metaspace in pre_tokenizers/metaspace.rs, ByteLevel
 * in pre_tokenizers/byte_level.rs, the files of normalizers/) unless it says otherwise. No files
 * here. All strings are UTF-8 with explicit lengths, as they may hold NUL. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/memory.h"

#define TOKEN_SPACE_MARK                                                                           \
    "\xE2\x96\x81" /* U+2581, which stands for a space in SentencePiece's pieces */

typedef struct token_text {
    char *bytes; /* owned by the spec, NUL behind size */
    size_t size;
} token_text;

/* Kinds matter under merge_by_score alone: NORMAL pieces are what merging makes; RESERVED ones
 * (control, unknown, byte) it never makes; WHOLE ones (SentencePiece's user-defined symbols) are
 * found in the normalised text, longest first, and left as they are. */
typedef enum token_piece_kind {
    TOKEN_PIECE_NORMAL,
    TOKEN_PIECE_RESERVED,
    TOKEN_PIECE_WHOLE
} token_piece_kind;

typedef struct token_piece {
    token_text text; /* under byte_level in GPT-2's alphabet */
    int32_t id;
    token_piece_kind kind;
    float score; /* merge_by_score: higher is joined first */
} token_piece;

typedef struct token_added { /* found in the text before anything else */
    token_text text;
    int32_t id;
    bool special, lstrip, rstrip, single_word, normalized;
} token_added;

/* SQUEEZE is SentencePiece's remove_extra_whitespaces: none at the ends (U+2581 at the right too),
 * runs become one. */
typedef enum token_normalizer_kind {
    TOKEN_NORM_PREPEND,
    TOKEN_NORM_REPLACE,
    TOKEN_NORM_NFC,
    TOKEN_NORM_SQUEEZE
} token_normalizer_kind;

typedef struct token_normalizer {
    token_normalizer_kind kind;
    token_text from, to; /* replace: both; prepend: to */
} token_normalizer;

typedef enum token_prefix {
    TOKEN_PREFIX_NEVER,
    TOKEN_PREFIX_FIRST,
    TOKEN_PREFIX_ALWAYS
} token_prefix;

typedef struct token_pair {
    token_text left, right;
} token_pair;

typedef struct token_spec {
    /* model: BPE */
    token_piece *pieces;
    size_t n_pieces;
    token_pair *merges; /* by rank */
    size_t n_merges;
    /* No merges are listed: any two neighbours join whose text together is a piece, the highest
     * score first, leftmost of equals (SentencePiece's BPE; tiktoken with score = -rank). Unknown
     * characters become bytes only after merging. */
    bool merge_by_score;
    int32_t unk_id; /* -1: none */
    bool ignore_merges, byte_fallback, fuse_unk;
    /* added tokens */
    token_added *added;
    size_t n_added;
    /* An added token may take a piece's id: the piece encodes to it, the id decodes to the token.
     */
    bool added_over_pieces;
    /* text -> words */
    token_normalizer *normalizers;
    size_t n_normalizers;
    /* Metaspace, on what is left between added tokens: spaces become this text (size 0: no
     * Metaspace), which is also put in front of what does not begin with it, of the first or of all
     * of them. */
    token_text metaspace;
    token_prefix metaspace_prefix;
    bool byte_level;       /* words are spelled in GPT-2's byte alphabet */
    bool add_prefix_space; /* byte level: a space is put in front */
    /* PCRE2 patterns, applied in turn, matches isolated; none: the text is one word */
    token_text *splits;
    size_t n_splits;
    uint32_t
        costly_splits; /* bit i: pattern i may take any time, and is looked at within a match */
    /* put in front of the ids when special tokens are asked for (TemplateProcessing "single"); what
     * that puts behind them ends a text, and a prompt goes on: it is left out */
    int32_t *prefix_ids;
    size_t n_prefix;
    /* The text of the model's own chat template, and what it calls bos_token and eos_token; bytes
     * are NULL where the files state none. They decide no id: the fingerprint leaves them out. */
    token_text chat_template, bos, eos;
    /* ids -> text: byte level undoes the alphabet, and has none of these; otherwise replace
     * from->to, then strip one leading space */
    token_text decode_from, decode_to;
    bool decode_strip_left;
} token_spec;

/* Spells n bytes in GPT-2's alphabet, which pieces under byte_level are written in
 * (pre_tokenizers/byte_level.rs, bytes_char; bytes_to_unicode in GPT-2's encoder.py); out has room
 * for 2 n. Returns the size. */
size_t token_spell_bytes(const unsigned char *raw, size_t n, char *out);
/* Undoes it: raw has room for n bytes; false when a character is not of the alphabet. */
bool token_unspell_bytes(const char *text, size_t n, char *raw, size_t *raw_size);
void token_spec_free(token_spec *spec); /* the spec and all it owns; NULL is fine */
CKVC_AUTO_OF(token_spec, token_spec_free)
