/* Oniguruma's dialect to PCRE2's: see split_pattern.h. */
#include "lib/token/split_pattern.h"

#include <stdio.h>

#include "lib/base/buffer.h"

enum { MAX_PATTERN_BYTES = 16384, MAX_PATTERN_NESTING = 64 };

/* White_Space of Unicode, which Oniguruma's \s is (PCRE2's also takes U+180E), and all else;
 * without the brackets of a set. */
#define SPACE_SET                                                                                  \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define OTHERS_SET                                                                                 \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"                   \
    "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}"                 \
    "\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"

static ckvc_status refuse(ckvc_err *err, const char *where, size_t at, const char *what) {
    return ckvc_fail(err, CKVC_E_DATA, "%s: character %zu: %s", where, at, what);
}

/* What the dialects spell alike and mean differently beside escapes; NULL: text begins with nothing
 * of the kind. */
static const char *unlike(const char *text, bool in_set) {
    static const struct {
        const char *text, *why;
        bool in_set;
    } list[] = {
        {"[",
         "a set inside a set, or [:name:], is not supported (write \\[ for the bracket itself)",
         true},
        {"&&", "&& inside a set is not supported", true},
        {"(*", "(*VERB) is not supported", false},
        {"{,", "{,n} is not supported; write {0,n}", false}, /* PCRE2 10.42: these characters */
        {"}+", "{n,m}+ is not supported; write (?:...{n,m})+", false}, /* PCRE2: possessive */
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (list[i].in_set == in_set && strncmp(text, list[i].text, strlen(list[i].text)) == 0) {
            return list[i].why;
        }
    }
    const bool options = !in_set && strncmp(text, "(?", 2) == 0;
    return options && memchr(text + 2, 'm', strspn(text + 2, "imx-"))
               ? "the option m is not supported" /* Oniguruma: a dot is a line end, too */
               : NULL;
}

/* Rewrites \s and \S, and refuses what both dialects spell alike and mean differently. */
static ckvc_status translate_pattern(const token_text *from, const char *where, ckvc_buffer *out,
                                     ckvc_err *err) {
    const char *p = from->bytes;
    size_t n = from->size, set_start = 0;
    bool in_set = false;
    for (size_t i = 0; i < n; i++) {
        const char c = p[i], next = p[i + 1]; /* NUL behind the text */
        const char *why = unlike(p + i, in_set);
        if (c == '\\') {
            const char *close =
                i + 2 < n && p[i + 2] == '{' ? memchr(p + i + 3, '}', n - i - 3) : NULL;
            const size_t length = close ? (size_t)(close - (p + i + 3)) : 0;
            if (next == 's' || next == 'S') {
                ckvc_buffer_text(out, in_set ? "" : next == 's' ? "[" : "[^");
                ckvc_buffer_text(out, in_set && next == 'S' ? OTHERS_SET : SPACE_SET);
                ckvc_buffer_text(out, in_set ? "" : "]");
            } else if (next && strchr("bBCGhHKRwWX", next)) {
                return refuse(err, where, i,
                              "\\b, \\B, \\C, \\G, \\h, \\H, \\K, \\R, \\w, \\W and \\X are not "
                              "supported");
            } else {
                /* \p{L}, \p{Lu}, \p{^N}: general categories mean the same on both sides */
                const bool property = next == 'p' || next == 'P';
                if (property && (length < 1 || length > 2 + (p[i + 3] == '^'))) {
                    return refuse(
                        err, where, i,
                        "only general categories such as \\p{L} and \\p{Nd} are supported");
                }
                const size_t size = close && (property || next == 'x') ? length + 4
                                    : i + 1 < n                        ? 2
                                                                       : 1;
                ckvc_buffer_append(out, p + i, size);
                i += size > 2 ? size - 2 : 0;
            }
            i++;
            continue;
        }
        if (why) { return refuse(err, where, i, why); }
        if (!in_set && c == '[') {
            in_set = true;
            set_start = next == '^' ? i + 2 : i + 1;
        } else if (in_set && c == ']' && i > set_start) {
            in_set = false;
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
