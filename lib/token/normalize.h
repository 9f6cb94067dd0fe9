/* The normalisers of a token_spec, which do what those of Hugging Face `tokenizers` do
 * (normalizers/replace.rs, prepend.rs, unicode.rs), and SentencePiece's removal of spaces. Private
 * to lib/token. */
#pragma once

#include "lib/base/json.h"
#include "lib/token/token_spec.h"

/* Appends text to out, with rule->to in place of every rule->from. It stops when out has more than
 * `most` bytes. */
void token_replace(const token_normalizer *rule, const char *text, size_t n, size_t most,
                   ckvc_buffer *out);
/* Applies all rules of the spec to text (UTF-8), one after the other. `name` stands for the file in
 * messages. *out is empty on entry, and the caller releases it with ckvc_buffer_fini. CKVC_E_DATA
 * when a rule makes more than `most` bytes. */
ckvc_status token_normalize(const token_spec *spec, const char *name, const char *text, size_t n,
                            size_t most, ckvc_buffer *out, ckvc_err *err) CKVC_MUST_CHECK;
/* The most bytes that normalisation and Metaspace together may make of n: 64 for each, and a MiB.
 * NFC makes at most three of one; a Replace makes as many as it says. */
size_t token_growth_limit(size_t n);

/* Split patterns, which are written for Oniguruma and compiled for PCRE2. Private to lib/token. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Compiles a pattern, which is number `index` of the file that `name` stands for in messages. A
 * costly pattern gets callouts, from which a match that takes too long can be ended; they make a
 * match take one and a half to four times as long. The caller frees *out with pcre2_code_free; it
 * is NULL on failure. CKVC_E_DATA for a pattern that PCRE2 does not accept, and for the few things
 * that the two dialects spell alike but understand differently. */
ckvc_status split_pattern_compile(const token_text *pattern, const char *name, size_t index,
                                  bool costly, pcre2_code **out, ckvc_err *err) CKVC_MUST_CHECK;
