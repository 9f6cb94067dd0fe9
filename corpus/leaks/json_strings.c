/* Down through one JSON text: see json_strings.h. */
#include "corpus/leaks/json_strings.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

typedef struct scanner {
    const char *text, *at, *end, *where;
    json_scratch *scratch;
    json_leaf_fn fn;
    void *ctx;
    ckvc_err *err;
} scanner;

void json_scratch_fini(json_scratch *scratch) {
    ckvc_buffer_fini(&scratch->text);
    ckvc_buffer_fini(&scratch->field);
}

static ckvc_status wrong(const scanner *s, const char *wanted) {
    return ckvc_fail(s->err, CKVC_E_DATA, "%s: byte %zu: not valid JSON: %s", s->where,
                     (size_t)(s->at - s->text), wanted);
}

/* The next character that is no white space; NUL (which stands nowhere in JSON) at the end. */
static char peek(scanner *s) {
    while (s->at < s->end && *s->at && strchr(" \t\r\n", *s->at)) { s->at++; }
    return (char)(s->at < s->end ? *s->at : '\0');
}

/* The code unit of \uXXXX at `at`; -1: there is none. */
static int32_t code_unit(const scanner *s, const char *at) {
    char digits[5] = "";
    if (s->end - at < 6 || at[0] != '\\' || at[1] != 'u') { return -1; }
    for (int i = 0; i < 4; i++) {
        if (!isxdigit((unsigned char)at[2 + i])) { return -1; }
        digits[i] = at[2 + i];
    }
    return (int32_t)strtol(digits, NULL, 16);
}

/* \uXXXX, with the low half behind a high one; a lone half becomes U+FFFD. */
static ckvc_status take_unicode(scanner *s, ckvc_buffer *out) {
    int32_t code = code_unit(s, s->at), low = code_unit(s, s->at + (code < 0 ? 0 : 6));
    if (code < 0) { return wrong(s, "\\u wants four hexadecimal digits"); }
    s->at += 6;
    if (code >= 0xD800 && code <= 0xDBFF && low >= 0xDC00 && low <= 0xDFFF) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        s->at += 6;
    }
    if (code >= 0xD800 && code <= 0xDFFF) { code = 0xFFFD; }
    utf8proc_uint8_t utf8[4];
    ckvc_buffer_append(out, utf8, (size_t)utf8proc_encode_char(code, utf8));
    return CKVC_OK;
}

/* A string into out; s->at stands on its first quote. */
static ckvc_status take_string(scanner *s, ckvc_buffer *out) {
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    out->size = 0;
    ckvc_buffer_text(out, ""); /* a NUL also behind an empty one */
    s->at++;
    for (;;) {
        const char *plain = s->at;
        while (s->at < s->end && *s->at != '"' && *s->at != '\\') { s->at++; }
        ckvc_buffer_append(out, plain, (size_t)(s->at - plain));
        if (s->at < s->end && *s->at == '"') { break; }
        if (s->end - s->at < 2) { return wrong(s, "a string without its end"); }
        const char c = s->at[1], *found = c ? strchr(escapes, c) : NULL;
        if (c == 'u') {
            CKVC_TRY(take_unicode(s, out));
        } else if (found) {
            ckvc_buffer_append(out, meant + (found - escapes), 1);
            s->at += 2;
        } else {
            return wrong(s, "an unknown escape");
        }
    }
    s->at++;
    return CKVC_OK;
}

static ckvc_status give(scanner *s, size_t depth, bool is_string, const char *text, size_t n) {
    if (!is_string && depth != 1) { return CKVC_OK; }
    return s->fn(s->ctx,
                 &(json_leaf){(const char *)s->scratch->field.data, depth, is_string, text, n},
                 s->err);
}

static ckvc_status take_value(scanner *s, size_t depth);

/* The members of a container, s->at behind its opening; depth is theirs. */
static ckvc_status take_members(scanner *s, char open, size_t depth) {
    const char close = open == '{' ? '}' : ']';
    for (bool first = true; !first || peek(s) != close; first = false) {
        if (open == '{') {
            if (peek(s) != '"') { return wrong(s, "wanted a key"); }
            CKVC_TRY(take_string(s, depth == 1 ? &s->scratch->field : &s->scratch->text));
            if (peek(s) != ':') { return wrong(s, "wanted a colon behind a key"); }
            s->at++;
        }
        CKVC_TRY(take_value(s, depth));
        if (peek(s) == close) { break; }
        if (peek(s) != ',') { return wrong(s, "wanted a comma or an end"); }
        s->at++;
    }
    s->at++;
    return CKVC_OK;
}

static ckvc_status take_value(scanner *s, size_t depth) {
    const char c = peek(s), *start = s->at;
    if (c == '"') {
        CKVC_TRY(take_string(s, &s->scratch->text));
        return give(s, depth, true, (const char *)s->scratch->text.data, s->scratch->text.size);
    }
    if (c == '{' || c == '[') {
        if (depth == JSON_STRINGS_MAX_DEPTH) { return wrong(s, "nested too deep"); }
        CKVC_TRY(give(s, depth, false, s->at++, 1));
        return take_members(s, c, depth + 1);
    }
    while (s->at < s->end && *s->at && (isalnum((unsigned char)*s->at) || strchr("+-.", *s->at))) {
        s->at++;
    }
    return s->at > start ? give(s, depth, false, start, (size_t)(s->at - start))
                         : wrong(s, s->at == s->end ? "cut off" : "wanted a value");
}

ckvc_status json_strings_scan(const char *line, size_t n, const char *where, json_scratch *scratch,
                              json_leaf_fn fn, void *ctx, ckvc_err *err) {
    scanner s = {.text = line,
                 .at = line,
                 .end = line + n,
                 .where = where,
                 .scratch = scratch,
                 .fn = fn,
                 .ctx = ctx,
                 .err = err};
    scratch->field.size = 0;
    ckvc_buffer_text(&scratch->field, "");
    CKVC_TRY(take_value(&s, 0));
    peek(&s);
    return s.at == s.end ? CKVC_OK : wrong(&s, "something behind the value");
}
