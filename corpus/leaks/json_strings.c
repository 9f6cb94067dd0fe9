/* A pull through one JSON text: see json_strings.h. */
#include "corpus/leaks/json_strings.h"

#include <string.h>
#include <utf8proc.h>

typedef struct scanner {
    const char *text, *at, *end, *where;
    json_scratch *scratch;
    json_leaf_fn fn;
    void *ctx;
    ckvc_err *err;
    size_t depth;
    char stack[JSON_STRINGS_MAX_DEPTH]; /* '{' or '[' of every open value */
} scanner;

void json_scratch_fini(json_scratch *scratch) {
    ckvc_buffer_fini(&scratch->text);
    ckvc_buffer_fini(&scratch->field);
}

static ckvc_status wrong(scanner *s, const char *wanted) {
    return ckvc_fail(s->err, CKVC_E_DATA, "%s: byte %zu: not valid JSON: %s", s->where,
                     (size_t)(s->at - s->text), wanted);
}

static void skip_space(scanner *s) {
    while (s->at < s->end &&
           (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n')) {
        s->at++;
    }
}

static int hex4(const char *p) {
    int value = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) { return -1; }
        value = value * 16 + digit;
    }
    return value;
}

/* \uXXXX, with the low half behind a high one; a lone half becomes U+FFFD. s->at stands behind
 * "\u". */
static ckvc_status take_unicode(scanner *s, ckvc_buffer *out) {
    int c = s->end - s->at >= 4 ? hex4(s->at) : -1;
    if (c < 0) { return wrong(s, "\\u wants four hexadecimal digits"); }
    s->at += 4;
    unsigned code = (unsigned)c;
    if (code >= 0xD800 && code <= 0xDBFF && s->end - s->at >= 6 && s->at[0] == '\\' &&
        s->at[1] == 'u') {
        int low = hex4(s->at + 2);
        if (low >= 0xDC00 && low <= 0xDFFF) {
            code = 0x10000 + ((code - 0xD800) << 10) + ((unsigned)low - 0xDC00);
            s->at += 6;
        }
    }
    if (code >= 0xD800 && code <= 0xDFFF) { code = 0xFFFD; }
    utf8proc_uint8_t utf8[4];
    ckvc_buffer_append(out, utf8, (size_t)utf8proc_encode_char((utf8proc_int32_t)code, utf8));
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
        while (s->at < s->end && *s->at != '"' && *s->at != '\\') {
            s->at++;
        }
        ckvc_buffer_append(out, plain, (size_t)(s->at - plain));
        if (s->at < s->end && *s->at == '"') {
            s->at++;
            return CKVC_OK;
        }
        if (s->end - s->at < 2) { return wrong(s, "a string without its end"); }
        const char c = s->at[1], *found = c ? strchr(escapes, c) : NULL;
        s->at += 2;
        if (c == 'u') {
            CKVC_TRY(take_unicode(s, out));
        } else if (found) {
            ckvc_buffer_append(out, meant + (found - escapes), 1);
        } else {
            return wrong(s, "an unknown escape");
        }
    }
}

static ckvc_status give(scanner *s, bool is_string, const char *text, size_t n) {
    if (!is_string && s->depth != 1) { return CKVC_OK; }
    return s->fn(s->ctx,
                 &(json_leaf){(const char *)s->scratch->field.data, s->depth, is_string, text, n},
                 s->err);
}

/* A scalar, or the opening of a container. */
static ckvc_status take_value(scanner *s) {
    char c = *s->at;
    if (c == '"') {
        CKVC_TRY(take_string(s, &s->scratch->text));
        return give(s, true, (const char *)s->scratch->text.data, s->scratch->text.size);
    }
    if (c == '{' || c == '[') {
        if (s->depth == JSON_STRINGS_MAX_DEPTH) { return wrong(s, "nested too deep"); }
        CKVC_TRY(give(s, false, s->at, 1));
        s->stack[s->depth++] = c;
        s->at++;
        return CKVC_OK;
    }
    const char *start = s->at;
    while (s->at < s->end &&
           ((*s->at >= '0' && *s->at <= '9') || (*s->at >= 'a' && *s->at <= 'z') ||
            (*s->at >= 'A' && *s->at <= 'Z') || *s->at == '+' || *s->at == '-' || *s->at == '.')) {
        s->at++;
    }
    if (s->at == start) { return wrong(s, "wanted a value"); }
    return give(s, false, start, (size_t)(s->at - start));
}

static ckvc_status take_key(scanner *s) {
    if (*s->at != '"') { return wrong(s, "wanted a key"); }
    CKVC_TRY(take_string(s, s->depth == 1 ? &s->scratch->field : &s->scratch->text));
    skip_space(s);
    if (s->at == s->end || *s->at != ':') { return wrong(s, "wanted a colon behind a key"); }
    s->at++;
    skip_space(s);
    return s->at == s->end ? wrong(s, "cut off behind a key") : CKVC_OK;
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
    bool more = true;   /* a value is due (else: a comma or an end) */
    bool fresh = false; /* the container in hand is empty so far */
    for (;;) {
        skip_space(&s);
        if (s.at == s.end) { return s.depth || more ? wrong(&s, "cut off") : CKVC_OK; }
        char inside = s.depth ? s.stack[s.depth - 1] : 0, close = inside == '{' ? '}' : ']';
        if (inside && *s.at == close && (!more || fresh)) {
            s.at++;
            s.depth--;
            more = fresh = false;
            continue;
        }
        if (!more) {
            if (!inside || *s.at != ',') {
                return wrong(&s,
                             inside ? "wanted a comma or an end" : "something behind the value");
            }
            s.at++;
            more = true;
            continue;
        }
        const size_t depth = s.depth;
        if (inside == '{') { CKVC_TRY(take_key(&s)); }
        CKVC_TRY(take_value(&s));
        more = fresh = s.depth > depth;
    }
}
