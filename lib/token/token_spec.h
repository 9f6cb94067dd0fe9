/* What a tokenizer is, as plain data. Readers of tokenizer.json, SentencePiece, tiktoken and GGUF
 * files fill it, and lib/token builds a tokenizer from it. A field means what the field of that
 * name means in Hugging Face `tokenizers` (tokenizer.json's schema: BPE in models/bpe/model.rs,
 * AddedToken in tokenizer/added_vocabulary.rs, Metaspace in pre_tokenizers/metaspace.rs, ByteLevel
 * in pre_tokenizers/byte_level.rs, the files of normalizers/), unless its comment says otherwise.
 * Nothing here opens a file. All strings are UTF-8 with explicit lengths, as they may contain
 * NUL. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/memory.h"

#define TOKEN_SPACE_MARK                                                                           \
    "\xE2\x96\x81" /* U+2581, which stands for a space in SentencePiece's pieces */

typedef struct token_text {
    char *bytes; /* owned by the spec, with a NUL after size bytes */
    size_t size;
} token_text;

/* Kinds matter only under merge_by_score. Merging makes NORMAL pieces and never RESERVED ones
 * (control, unknown, byte). WHOLE pieces (SentencePiece's user-defined symbols) are found in the
 * normalised text, the longest first, and stay as they are. */
typedef enum token_piece_kind {
    TOKEN_PIECE_NORMAL,
    TOKEN_PIECE_RESERVED,
    TOKEN_PIECE_WHOLE
} token_piece_kind;

typedef struct token_piece {
    token_text text; /* under byte_level in GPT-2's alphabet */
    int32_t id;
    token_piece_kind kind;
    float score; /* under merge_by_score: the higher is joined first */
} token_piece;

typedef struct token_added { /* found in the text before anything else */
    token_text text;
    int32_t id;
    bool special, lstrip, rstrip, single_word, normalized;
} token_added;

/* SQUEEZE is SentencePiece's remove_extra_whitespaces: it cuts spaces at the ends (at the right
 * also U+2581) and makes runs of spaces one. */
typedef enum token_normalizer_kind {
    TOKEN_NORM_PREPEND,
    TOKEN_NORM_REPLACE,
    TOKEN_NORM_NFC,
    TOKEN_NORM_SQUEEZE
} token_normalizer_kind;

typedef struct token_normalizer {
    token_normalizer_kind kind;
    token_text from, to; /* replace has both; prepend has only `to` */
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
    /* The model, BPE: */
    token_piece *pieces;
    size_t n_pieces;
    token_pair *merges; /* in the order of their ranks */
    size_t n_merges;
    /* The file lists no merges. Any two neighbours whose joined text is a piece are joined, first
     * those with the highest score, and of equals the leftmost (SentencePiece's BPE; tiktoken,
     * where score = -rank). Unknown characters become bytes only after merging. */
    bool merge_by_score;
    int32_t unk_id; /* -1: there is none */
    bool ignore_merges, byte_fallback, fuse_unk;
    /* Added tokens: */
    token_added *added;
    size_t n_added;
    /* An added token may have the id of a piece: the piece encodes to this id, and the id decodes
     * to the token. */
    bool added_over_pieces;
    /* From text to words: */
    token_normalizer *normalizers;
    size_t n_normalizers;
    /* Metaspace, applied to what is left between added tokens: spaces become this text (size 0: no
     * Metaspace). It is also put in front of the first such text, or of all of them, if they do not
     * begin with it. */
    token_text metaspace;
    token_prefix metaspace_prefix;
    bool byte_level;       /* words are spelled in GPT-2's byte alphabet */
    bool add_prefix_space; /* under byte_level: a space is put in front */
    /* PCRE2 patterns, which are applied one after the other; each match becomes a word. Without
     * patterns the text is one word. */
    token_text *splits;
    size_t n_splits;
    /* Bit i is set where nothing bounds the time that pattern i takes. Such a pattern is compiled
     * so that the time is looked at within a match, too. */
    uint32_t costly_splits;
    /* The ids that stand in front when special tokens are asked for (TemplateProcessing "single").
     * What that template puts after the text ends it; a prompt goes on, so this is left out. */
    int32_t *prefix_ids;
    size_t n_prefix;
    /* The text of the model's own chat template, and what that calls bos_token and eos_token; bytes
     * are NULL where the files state none. They decide no id, so the fingerprint leaves them
     * out. */
    token_text chat_template, bos, eos;
    /* From ids to text. Under byte_level the alphabet is undone, and the members below are not
     * set. Otherwise decode_from is replaced by decode_to, and then one leading space is cut where
     * decode_strip_left is set. */
    token_text decode_from, decode_to;
    bool decode_strip_left;
} token_spec;

/* Spells n bytes in GPT-2's alphabet, in which pieces under byte_level are written
 * (pre_tokenizers/byte_level.rs, bytes_char; bytes_to_unicode in GPT-2's encoder.py). out has room
 * for 2 n bytes. Returns their number. */
size_t token_spell_bytes(const unsigned char *raw, size_t n, char *out);
/* Undoes it: raw has room for n bytes. Returns false when a character is not in the alphabet. */
bool token_unspell_bytes(const char *text, size_t n, char *raw, size_t *raw_size);
void token_spec_free(token_spec *spec); /* frees the spec and all it owns; does nothing with NULL */
CKVC_AUTO_OF(token_spec, token_spec_free)
