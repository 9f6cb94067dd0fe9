/* The normalisers of a token_spec, as Hugging Face `tokenizers` has them (normalizers/replace.rs,
 * prepend.rs, unicode.rs), and SentencePiece's removal of spaces. Private to lib/token. */
#pragma once

#include "lib/base/json.h"
#include "lib/token/token_spec.h"

/* Appends text with rule->to for every rule->from. Stops where out is beyond `most` bytes. */
void token_replace(const token_normalizer *rule, const char *text, size_t n, size_t most,
                   ckvc_buffer *out);
/* text (UTF-8) under all rules of the spec in turn; `name` stands for the file in messages. *out is
 * empty on entry and the caller's to ckvc_buffer_fini. CKVC_E_DATA when a rule makes more than
 * `most` bytes. */
ckvc_status token_normalize(const token_spec *spec, const char *name, const char *text, size_t n,
                            size_t most, ckvc_buffer *out, ckvc_err *err) CKVC_MUST_CHECK;
/* How many bytes normalisation and Metaspace may make of n, in all: 64 for each and a MiB. NFC
 * makes three of one at most, a Replace as many as it says. */
size_t token_growth_limit(size_t n);

/* Split patterns, written for Oniguruma, compiled for PCRE2. Private to lib/token. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* pattern: number `index` of the file that `name` stands for in messages. costly: with callouts, so
 * that a match can be ended from within; they take a half to three times a match's own time. *out
 * is the caller's to pcre2_code_free, NULL on failure. CKVC_E_DATA for a pattern that PCRE2 does
 * not take, and for the few things that the two dialects spell alike and mean differently. */
ckvc_status split_pattern_compile(const token_text *pattern, const char *name, size_t index,
                                  bool costly, pcre2_code **out, ckvc_err *err) CKVC_MUST_CHECK;
