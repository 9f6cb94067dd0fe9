/* Split patterns, written for Oniguruma, compiled for PCRE2. Private to lib/token. */
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "lib/token/token_spec.h"

/* pattern: number `index` of the file that `name` stands for in messages. *out is the caller's to
 * pcre2_code_free, NULL on failure. CKVC_E_DATA for a pattern that PCRE2 does not take, and for the
 * few things that the two dialects spell alike and mean differently. */
ckvc_status split_pattern_compile(const token_text *pattern, const char *name, size_t index,
                                  pcre2_code **out, ckvc_err *err) CKVC_MUST_CHECK;
