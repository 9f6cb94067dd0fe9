/* Text -> ids and ids -> text, equal to Hugging Face `tokenizers` for the families that we support.
 *
 * A tokenizer is immutable once built and may be used by any number of threads. Work is bounded by
 * the sizes of file and text (README.md, last part); running into a bound is a CKVC_E_DATA that
 * names the part of the file, never a hang. */
#pragma once

#include "lib/token/token_spec.h"

typedef struct tokenizer tokenizer;

/* Builds from a spec, which it takes over (freed in every case). `name` stands for the file in
 * messages. Paths below are those of Hugging Face `tokenizers`, tokenizers/src; what each field of
 * a spec means there is said in token_spec.h. */
ckvc_status tokenizer_build(token_spec *spec, const char *name, tokenizer **out,
                            ckvc_err *err) CKVC_MUST_CHECK;
void tokenizer_free(tokenizer *t);
CKVC_AUTO_OF(tokenizer, tokenizer_free)
/* Largest id + 1: get_vocab_size(with_added_tokens) where ids have no gaps. */
int32_t tokenizer_vocab_size(const tokenizer *t);
/* Whether a model with embeddings for ids 0 ... vocab-1 can take what ordinary text becomes: else
 * CKVC_E_DATA. An added token beyond is no fault (Llama-2's "<pad>" is 32,000 of a vocabulary of
 * 32,000): only a text that spells it out gives it, and is refused then. */
ckvc_status tokenizer_fits(const tokenizer *t, int32_t vocab, ckvc_err *err) CKVC_MUST_CHECK;
/* What it was built from; borrowed. */
const token_spec *tokenizer_spec(const tokenizer *t);
/* SHA-256 of what decides ids (pieces, merges, rules), 64 hex digits; borrowed. */
const char *tokenizer_fingerprint(const tokenizer *t);
/* A digest of the texts of its ids, the same for tokenizer.json and GGUF (lib/base/sketch.h). */
uint64_t tokenizer_words(const tokenizer *t);

/* Ids of a text of n bytes, as Tokenizer.encode has them: added tokens
 * (tokenizer/added_vocabulary.rs), normalizer, pre_tokenizer, model. add_special: with the
 * template's special tokens in front (processors/template.rs, "single": BOS), none behind. Invalid
 * UTF-8 is replaced by U+FFFD, as Python's decoder with errors="replace" does. *ids is the caller's
 * to free. */
ckvc_status tokenizer_encode(const tokenizer *t, const char *text, size_t n, bool add_special,
                             int32_t **ids, size_t *n_ids, ckvc_err *err) CKVC_MUST_CHECK;
/* Text of ids, as Tokenizer.decode (decoders/byte_level.rs, byte_fallback.rs, fuse.rs, strip.rs, in
 * the file's order); special tokens are left out when skip_special (skip_special_tokens). *text is
 * the caller's to free (NUL behind *n). */
ckvc_status tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n_ids,
                             bool skip_special, char **text, size_t *n,
                             ckvc_err *err) CKVC_MUST_CHECK;
