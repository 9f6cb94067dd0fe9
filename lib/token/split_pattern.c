/* Oniguruma's dialect to PCRE2's: see split_pattern.h. */
#include "lib/token/split_pattern.h"

#include <stdio.h>

#include "lib/base/buffer.h"

enum { MAX_PATTERN_BYTES = 16384, MAX_PATTERN_NESTING = 64 };

/* White_Space of Unicode, which Oniguruma's \s is; PCRE2's also takes U+180E. Spelled with and
 * without its class brackets. */
#define SPACE_SET                                                                                  \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"

static ckvc_status refuse(ckvc_err *err, const char *where, size_t at, const char *what) {
    return ckvc_fail(err, CKVC_E_DATA, "%s: character %zu: %s", where, at, what);
}

/* Rewrites \s and \S, and refuses what both dialects spell alike and mean differently. */
static ckvc_status translate_pattern(const token_text *from, const char *where, ckvc_buffer *out,
                                     ckvc_err *err) {
    const char *p = from->bytes;
    size_t n = from->size;
    bool in_class = false;
    size_t class_start = 0;
    for (size_t i = 0; i < n; i++) {
        const char c = p[i], next = p[i + 1]; /* NUL behind the text */
        if (c == '\\') {
            if (next == 's' || (next == 'S' && !in_class)) {
                ckvc_buffer_text(out, in_class ? "" : next == 's' ? "[" : "[^");
                ckvc_buffer_text(out, SPACE_SET);
                ckvc_buffer_text(out, in_class ? "" : "]");
            } else if (next == 'h' || next == 'H' || next == 'C' || next == 'R' || next == 'X' ||
                       next == 'G' || next == 'K') {
                return refuse(err, where, i,
                              "\\h, \\H, \\C, \\R, \\X, \\G and \\K are not supported");
            } else if (next == 'p' || next == 'P') {
                /* \p{L}, \p{Lu}, \p{^N}: general categories mean the same on both sides */
                const char *close =
                    i + 2 < n && p[i + 2] == '{' ? memchr(p + i + 3, '}', n - i - 3) : NULL;
                size_t length = close ? (size_t)(close - (p + i + 3)) : 0;
                if (length < 1 || length > 2 + (p[i + 3] == '^')) {
                    return refuse(
                        err, where, i,
                        "only general categories such as \\p{L} and \\p{Nd} are supported");
                }
                ckvc_buffer_append(out, p + i, length + 4);
                i += length + 2;
            } else {
                ckvc_buffer_append(out, p + i, i + 1 < n ? 2 : 1);
            }
            i++;
            continue;
        }
        if (in_class && c == '[' && next != ':') {
            return refuse(err, where, i,
                          "a set inside a set is not supported (write \\[ for the bracket itself)");
        }
        if (in_class && c == '&' && next == '&') {
            return refuse(err, where, i, "&& inside a set is not supported");
        }
        if (in_class && c == '[') { /* [:alpha:] */
            const char *close = memmem(p + i, n - i, ":]", 2);
            if (!close) { return refuse(err, where, i, "[: without :]"); }
            ckvc_buffer_append(out, p + i, (size_t)(close - (p + i)) + 2);
            i = (size_t)(close - p) + 1;
            continue;
        }
        if (!in_class && c == '[') {
            in_class = true;
            class_start = next == '^' ? i + 2 : i + 1;
        } else if (in_class && c == ']' && i > class_start) {
            in_class = false;
        } else if (!in_class && c == '(' && next == '*') {
            return refuse(err, where, i, "(*VERB) is not supported");
        }
        ckvc_buffer_u8(out, (uint8_t)c);
    }
    return CKVC_OK;
}

static void context_fini(pcre2_compile_context **context) { pcre2_compile_context_free(*context); }

ckvc_status split_pattern_compile(const token_text *pattern, const char *name, size_t index,
                                  pcre2_code **out, ckvc_err *err) {
    char where[320];
    snprintf(where, sizeof where, "%.250s: pre_tokenizer: pattern %zu", name, index);
    *out = NULL;
    CKVC_FAIL_IF(pattern->size > MAX_PATTERN_BYTES, err, CKVC_E_DATA,
                 "%s: %zu bytes; at most %d are read", where, pattern->size, MAX_PATTERN_BYTES);
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    ckvc_buffer_text(&text, ""); /* bytes to point at, also for an empty pattern */
    CKVC_TRY(translate_pattern(pattern, where, &text, err));
    CKVC_AUTO(context_fini) pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) { ckvc_out_of_memory(1, sizeof(void *)); }
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_set_parens_nest_limit(context, MAX_PATTERN_NESTING);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    *out = pcre2_compile(text.data, text.size,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code,
                         &at, context);
    if (!*out) {
        PCRE2_UCHAR reason[160];
        pcre2_get_error_message(code, reason, sizeof reason);
        return ckvc_fail(err, CKVC_E_DATA, "%s: character %zu: %s", where, (size_t)at,
                         (const char *)reason);
    }
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); /* where it cannot, the interpreter matches */
    return CKVC_OK;
}
