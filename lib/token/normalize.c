/* Normalisers: see normalize.h. */
#include "lib/token/normalize.h"

#include <assert.h>
#include <stdio.h>

#include "lib/base/utf8.h"
#include "lib/token/chars.h"
#include "lib/base/json.h"

enum { GROWTH = 64, GROWTH_FREE = 1 << 20 };

void token_replace(const token_normalizer *rule, const char *text, size_t n, size_t most,
                   ckvc_buffer *out) {
    const char *end = text + n;
    while (text < end && out->size <= most) {
        const char *hit = memmem(text, (size_t)(end - text), rule->from.bytes, rule->from.size);
        ckvc_buffer_append(out, text, (size_t)((hit ? hit : end) - text));
        if (!hit) { break; }
        ckvc_buffer_append(out, rule->to.bytes, rule->to.size);
        text = hit + rule->from.size;
    }
}

size_t token_growth_limit(size_t n) {
    return n > (SIZE_MAX - GROWTH_FREE) / GROWTH ? SIZE_MAX : n * GROWTH + GROWTH_FREE;
}

/* Cuts spaces at the ends and makes runs of them one space. Whether U+2581 at the right end is cut
 * does not depend on what a later rule puts in front. */
static void squeeze_spaces(const char *text, size_t n, ckvc_buffer *out) {
    for (;;) {
        if (n >= 1 && text[n - 1] == ' ') {
            n--;
        } else if (n >= 3 && memcmp(text + n - 3, TOKEN_SPACE_MARK, 3) == 0) {
            n -= 3;
        } else {
            break;
        }
    }
    bool after_space = true;
    for (size_t i = 0; i < n; i++) {
        if (text[i] != ' ' || !after_space) { ckvc_buffer_u8(out, (uint8_t)text[i]); }
        after_space = text[i] == ' ';
    }
}

/* Marks that came after Unicode 9, which is the version of the tables in Hugging Face's NFC. There
 * they are characters like any other, which neither move nor compose. They were found by comparing
 * its NFC (tokenizers 0.23) with utf8proc's of Unicode 15 for every code point. */
static bool is_young_mark(int32_t c) {
    static const int32_t ranges[][2] = {
        {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
        {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
        {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10D27},
        {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
        {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
        {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
        {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
        {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F},
        {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}};
    size_t low = 0, high = sizeof ranges / sizeof *ranges;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c > ranges[middle][1]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < sizeof ranges / sizeof *ranges && c >= ranges[low][0];
}

/* Returns the end of the stretch at text that NFC may change: characters from U+0300 on, and those
 * that directly precede one. A character below U+0300 never joins with what stands in front of it,
 * so stretches are independent. *young: the stretch is ended by a young mark. */
static size_t nfc_stretch(const char *text, size_t n, bool *young) {
    size_t at = 0;
    *young = false;
    while (at < n) {
        size_t step = ckvc_utf8_step(text + at, n - at, NULL);
        if ((uint8_t)text[at] < 0xCC) {
            if (at + step >= n || (uint8_t)text[at + step] < 0xCC) { return at; }
        } else if ((*young = is_young_mark(char_at(text + at, n - at)))) {
            return at;
        }
        at += step;
    }
    return n;
}

/* Canonical ordering: sorts every run of marks by their class, stably, by counting. utf8proc
 * exchanges neighbours, which takes time with the square of a run's length. */
static void order_marks(utf8proc_int32_t *c, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t end = i, count[257] = {0};
        bool sorted = true;
        int before = 0;
        for (; end < n; end++) {
            const int class = utf8proc_get_property(c[end])->combining_class;
            if (class == 0) { break; }
            sorted = sorted && class >= before;
            before = class;
            count[class + 1]++;
        }
        if (!sorted) {
            CKVC_AUTO_FREE utf8proc_int32_t *run = ckvc_copy(c + i, end - i, sizeof *run);
            for (int k = 1; k < 257; k++) { count[k] += count[k - 1]; }
            for (size_t k = 0; k < end - i; k++) {
                c[i + count[utf8proc_get_property(run[k])->combining_class]++] = run[k];
            }
        }
        i = end + (end == i);
    }
}

/* Writes the NFC of a stretch. The text is UTF-8 by now, so no step can fail. */
static void compose_stretch(const char *text, size_t n, ckvc_buffer *out) {
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    /* two bytes become three characters at most, three bytes become four */
    const size_t room = 2 * n + 8;
    CKVC_AUTO_FREE utf8proc_int32_t *c = ckvc_alloc(room + 1, sizeof *c);
    utf8proc_ssize_t used = 0, got;
    for (size_t at = 0; at < n; at += ckvc_utf8_step(text + at, n - at, NULL)) {
        got = utf8proc_decompose_char(char_at(text + at, n - at), c + used,
                                      (utf8proc_ssize_t)room - used, options, NULL);
        assert(got >= 0 && got <= (utf8proc_ssize_t)room - used);
        used += got;
    }
    order_marks(c, (size_t)used);
    got = utf8proc_reencode(c, used, options);
    assert(got >= 0);
    ckvc_buffer_append(out, c, (size_t)got);
}

static void compose(const char *text, size_t n, ckvc_buffer *out) {
    for (size_t at = 0; at < n;) {
        size_t plain = at; /* lead bytes from 0xCC on begin the characters from U+0300 on */
        while (plain < n && ((uint8_t)text[plain] < 0xCC)) { plain++; }
        if (plain < n && plain > at) { /* the character before it is its base */
            plain = at + char_before(text + at, plain - at);
        }
        ckvc_buffer_append(out, text + at, plain - at);
        at = plain;
        bool young;
        size_t size = nfc_stretch(text + at, n - at, &young);
        if (size) { compose_stretch(text + at, size, out); }
        at += size;
        if (young) {
            size_t step = ckvc_utf8_step(text + at, n - at, NULL);
            ckvc_buffer_append(out, text + at, step);
            at += step;
        }
    }
}

ckvc_status token_normalize(const token_spec *spec, const char *name, const char *text, size_t n,
                            size_t most, ckvc_buffer *out, ckvc_err *err) {
    ckvc_buffer_append(out, text, n);
    for (size_t i = 0; i < spec->n_normalizers; i++) {
        const token_normalizer *rule = &spec->normalizers[i];
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer now = *out;
        const char *bytes = now.data ? (const char *)now.data : "";
        *out = (ckvc_buffer){0};
        switch (rule->kind) {
        case TOKEN_NORM_PREPEND:
            if (now.size) { ckvc_buffer_append(out, rule->to.bytes, rule->to.size); }
            ckvc_buffer_append(out, bytes, now.size);
            break;
        case TOKEN_NORM_REPLACE: token_replace(rule, bytes, now.size, most, out); break;
        case TOKEN_NORM_NFC: compose(bytes, now.size, out); break;
        case TOKEN_NORM_SQUEEZE: squeeze_spaces(bytes, now.size, out); break;
        }
        CKVC_FAIL_IF(out->size > most, err, CKVC_E_DATA,
                     "%s: normalizer: the text grows too much (over %zu bytes)", name, most);
    }
    return CKVC_OK;
}

enum { MAX_PATTERN_BYTES = 16384, MAX_PATTERN_NESTING = 64 };

/* Sets without their brackets: Unicode's White_Space, which is Oniguruma's \s (PCRE2's also has
 * U+180E), and all other characters. */
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

/* Returns why a pattern is refused whose rest is `text`, if it begins with something, other than an
 * escape, that the dialects spell alike but understand differently; else NULL. in_set says that the
 * text is inside of a set. translate_pattern looks at escapes itself. */
static const char *ambiguous_syntax(const char *text, bool in_set) {
    static const struct {
        const char *text, *why;
        bool in_set;
    } list[] = {
        {"[",
         "a set inside a set, or [:name:], is not supported (write \\[ for the bracket itself)",
         true},
        {"&&", "&& inside a set is not supported", true},
        {"(*", "(*VERB) is not supported", false},
        /* PCRE2 10.42 takes these for characters */
        {"{,", "{,n} is not supported; write {0,n}", false},
        {"}+", "{n,m}+ is not supported; write (?:...{n,m})+", false}, /* possessive in PCRE2 */
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (list[i].in_set == in_set && strncmp(text, list[i].text, strlen(list[i].text)) == 0) {
            return list[i].why;
        }
    }
    const bool options = !in_set && strncmp(text, "(?", 2) == 0;
    return options && memchr(text + 2, 'm', strspn(text + 2, "imx-"))
               ? "the option m is not supported" /* Oniguruma: a dot also matches a line end */
               : NULL;
}

/* Appends the pattern to `out` as PCRE2 spells it, which changes \s and \S alone. It refuses what
 * both dialects spell alike but understand differently (CKVC_E_DATA). */
static ckvc_status translate_pattern(const token_text *from, const char *where, ckvc_buffer *out,
                                     ckvc_err *err) {
    const char *p = from->bytes;
    size_t n = from->size, set_start = 0;
    bool in_set = false;
    for (size_t i = 0; i < n; i++) {
        const char c = p[i], next = p[i + 1]; /* a NUL follows the text */
        const char *why = ambiguous_syntax(p + i, in_set);
        if (c == '\\') {
            const char *close =
                i + 2 < n && p[i + 2] == '{' ? memchr(p + i + 3, '}', n - i - 3) : NULL;
            const size_t length = close ? (size_t)(close - (p + i + 3)) : 0;
            if (next == 's' || next == 'S') {
                ckvc_buffer_text(out, in_set ? "" : next == 's' ? "[" : "[^");
                ckvc_buffer_text(out, in_set && next == 'S' ? OTHERS_SET : SPACE_SET);
                ckvc_buffer_text(out, in_set ? "" : "]");
            } else if (next && strchr("bBCEGhHKNQRvwWX", next)) {
                return refuse(err, where, i,
                              "\\b, \\B, \\C, \\E, \\G, \\h, \\H, \\K, \\N, \\Q, \\R, \\v, \\w, "
                              "\\W and \\X are not supported");
            } else {
                /* \p{L}, \p{Lu}, \p{^N}: general categories mean the same in both dialects */
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
                                  bool costly, pcre2_code **out, ckvc_err *err) {
    char where[320];
    snprintf(where, sizeof where, "%.250s: pre_tokenizer: pattern %zu", name, index);
    *out = NULL;
    CKVC_FAIL_IF(pattern->size > MAX_PATTERN_BYTES, err, CKVC_E_DATA,
                 "%s: %zu bytes; at most %d are read", where, pattern->size, MAX_PATTERN_BYTES);
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    ckvc_buffer_text(&text, ""); /* so that there are bytes to point at even for an empty pattern */
    CKVC_TRY(translate_pattern(pattern, where, &text, err));
    CKVC_AUTO(context_fini) pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) { ckvc_out_of_memory(1, sizeof(void *)); }
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_set_parens_nest_limit(context, MAX_PATTERN_NESTING);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    *out = pcre2_compile(text.data, text.size,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C |
                             (costly ? PCRE2_AUTO_CALLOUT : 0),
                         &code, &at, context);
    if (!*out) {
        PCRE2_UCHAR reason[160];
        pcre2_get_error_message(code, reason, sizeof reason);
        return ckvc_fail(err, CKVC_E_DATA, "%s: character %zu: %s", where, (size_t)at,
                         (const char *)reason);
    }
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); /* where this fails the interpreter matches */
    return CKVC_OK;
}
