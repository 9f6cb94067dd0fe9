/* From text to ids and from ids to text, as Hugging Face `tokenizers` does it for the families that
 * we support.
 *
 * A tokenizer does not change once it is built, and any number of threads may use it. Work is
 * bounded by the sizes of file and text (README.md, last part). Running into a bound is a
 * CKVC_E_DATA that names the part of the file; it never hangs. */
#pragma once

#include "lib/token/token_spec.h"

typedef struct tokenizer tokenizer;

/* Builds a tokenizer from a spec, which it takes over (it is freed in every case). The caller frees
 * the tokenizer. `name` stands for the file in messages. Paths below are those of Hugging Face
 * `tokenizers`, tokenizers/src; token_spec.h says what each field of a spec means there. */
ckvc_status tokenizer_build(token_spec *spec, const char *name, tokenizer **out,
                            ckvc_err *err) CKVC_MUST_CHECK;
void tokenizer_free(tokenizer *t);
CKVC_AUTO_OF(tokenizer, tokenizer_free)
/* The largest id + 1, which is get_vocab_size(with_added_tokens) where ids have no gaps. */
int32_t tokenizer_vocab_size(const tokenizer *t);
/* Checks that a model with embeddings for ids 0 ... vocab-1 can take everything that ordinary text
 * becomes; else CKVC_E_DATA. An added token beyond these is not an error (Llama-2's "<pad>" is
 * 32,000 in a vocabulary of 32,000): only a text that spells it out gives this id, and that text is
 * then refused. */
ckvc_status tokenizer_fits(const tokenizer *t, int32_t vocab, ckvc_err *err) CKVC_MUST_CHECK;
/* The spec that it was built from; borrowed. */
const token_spec *tokenizer_spec(const tokenizer *t);
/* The SHA-256 of everything that decides ids (pieces, merges, rules), 64 hex digits; borrowed. */
const char *tokenizer_fingerprint(const tokenizer *t);
/* A digest of the texts of its ids, which is the same for tokenizer.json and GGUF
 * (lib/base/sketch.h). */
uint64_t tokenizer_words(const tokenizer *t);

/* Computes the ids of a text of n bytes, as Tokenizer.encode does: added tokens
 * (tokenizer/added_vocabulary.rs), normalizer, pre_tokenizer, model. With add_special the
 * template's special tokens stand in front (processors/template.rs, "single": BOS), and none after.
 * Invalid UTF-8 is replaced by U+FFFD, as by Python's decoder with errors="replace". The caller
 * frees *ids. CKVC_E_DATA where a bound is reached. */
ckvc_status tokenizer_encode(const tokenizer *t, const char *text, size_t n, bool add_special,
                             int32_t **ids, size_t *n_ids, ckvc_err *err) CKVC_MUST_CHECK;
/* Computes the text of ids, as Tokenizer.decode does (decoders/byte_level.rs, byte_fallback.rs,
 * fuse.rs, strip.rs, in the file's order). With skip_special, special tokens are left out
 * (skip_special_tokens). The caller frees *text, which has a NUL after *n bytes. */
ckvc_status tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n_ids,
                             bool skip_special, char **text, size_t *n,
                             ckvc_err *err) CKVC_MUST_CHECK;
