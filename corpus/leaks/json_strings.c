/* A pull through one JSON text: see json_strings.h. */
#include "corpus/leaks/json_strings.h"

#include <string.h>

typedef struct scanner {
    const char *text, *at, *end, *where;
    ckvc_buffer *scratch, *field;
    json_leaf_fn fn;
    void *ctx;
    ckvc_err *err;
    size_t depth;
    char stack[JSON_STRINGS_MAX_DEPTH]; /* '{' or '[' of every open value */
} scanner;

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
    char utf8[4];
    size_t n = 1;
    if (code < 0x80) {
        utf8[0] = (char)code;
    } else if (code < 0x800) {
        utf8[0] = (char)(0xC0 | code >> 6);
        utf8[1] = (char)(0x80 | (code & 63));
        n = 2;
    } else if (code < 0x10000) {
        utf8[0] = (char)(0xE0 | code >> 12);
        utf8[1] = (char)(0x80 | (code >> 6 & 63));
        utf8[2] = (char)(0x80 | (code & 63));
        n = 3;
    } else {
        utf8[0] = (char)(0xF0 | code >> 18);
        utf8[1] = (char)(0x80 | (code >> 12 & 63));
        utf8[2] = (char)(0x80 | (code >> 6 & 63));
        utf8[3] = (char)(0x80 | (code & 63));
        n = 4;
    }
    ckvc_buffer_append(out, utf8, n);
    return CKVC_OK;
}

/* A string into out; s->at stands on its first quote. */
static ckvc_status take_string(scanner *s, ckvc_buffer *out) {
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    out->size = 0;
    ckvc_buffer_append(out, "", 0); /* a NUL also behind an empty one */
    s->at++;
    for (;;) {
        const char *plain = s->at;
        while (s->at < s->end && *s->at != '"' && *s->at != '\\') {
            s->at++;
        }
        ckvc_buffer_append(out, plain, (size_t)(s->at - plain));
        if (s->at < s->end && *s->at == '"') {
            s->at++;
            return out->failed
                       ? ckvc_fail(s->err, CKVC_E_MEMORY, "%s: out of memory: a string", s->where)
                       : CKVC_OK;
        }
        if (s->end - s->at < 2) { return wrong(s, "a string without its end"); }
        char c = s->at[1];
        s->at += 2;
        if (c == 'u') {
            ckvc_status st = take_unicode(s, out);
            if (st != CKVC_OK) { return st; }
            continue;
        }
        const char *found = c ? strchr(escapes, c) : NULL;
        if (!found) { return wrong(s, "an unknown escape"); }
        ckvc_buffer_append(out, meant + (found - escapes), 1);
    }
}

static ckvc_status give(scanner *s, bool is_string, const char *text, size_t n) {
    if (!is_string && s->depth != 1) { return CKVC_OK; }
    json_leaf leaf = {(const char *)s->field->data, s->depth, is_string, text, n};
    return s->fn(s->ctx, &leaf, s->err);
}

/* A scalar, or the opening of a container. */
static ckvc_status take_value(scanner *s) {
    char c = *s->at;
    if (c == '"') {
        ckvc_status st = take_string(s, s->scratch);
        return st != CKVC_OK ? st : give(s, true, (const char *)s->scratch->data, s->scratch->size);
    }
    if (c == '{' || c == '[') {
        if (s->depth == JSON_STRINGS_MAX_DEPTH) { return wrong(s, "nested too deep"); }
        ckvc_status st = give(s, false, s->at, 1);
        s->stack[s->depth++] = c;
        s->at++;
        return st;
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
    ckvc_status st = take_string(s, s->depth == 1 ? s->field : s->scratch);
    if (st != CKVC_OK) { return st; }
    skip_space(s);
    if (s->at == s->end || *s->at != ':') { return wrong(s, "wanted a colon behind a key"); }
    s->at++;
    skip_space(s);
    return s->at == s->end ? wrong(s, "cut off behind a key") : CKVC_OK;
}

ckvc_status json_strings_scan(const char *line, size_t n, const char *where, ckvc_buffer *scratch,
                              ckvc_buffer *field, json_leaf_fn fn, void *ctx, ckvc_err *err) {
    scanner s = {line, line, line + n, where, scratch, field, fn, ctx, err, 0, {0}};
    field->size = 0;
    ckvc_buffer_append(field, "", 0);
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
        ckvc_status st = inside == '{' ? take_key(&s) : CKVC_OK;
        size_t depth = s.depth;
        st = st != CKVC_OK ? st : take_value(&s);
        if (st != CKVC_OK) { return st; }
        more = fresh = s.depth > depth;
    }
}
