/* See form.h. */
#include "lib/base/form.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/base/progress.h"
#include "lib/base/utf8_step.h"

/* An item that a # has reached, inside the items around it. */
typedef struct scope {
    const json_t *at;
    const char *key; /* of a member; NULL: an item of a list */
    size_t number;   /* from 1 on */
    const struct scope *outer;
} scope;

static json_t *member_of(const json_t *v, const char *name, size_t n) {
    if (json_is_array(v) && isdigit((unsigned char)*name)) {
        return json_array_get(v, (size_t)strtoul(name, NULL, 10));
    }
    CKVC_AUTO_FREE char *key = ckvc_format("%.*s", (int)n, name);
    return json_object_get(v, key);
}

/* A new reference, NULL where nothing has that name. */
static json_t *find(const scope *s, const char *name, size_t n) {
    if (n == 1 && *name == '.') { return json_incref(ckvc_unconst(s->at)); }
    if (n == 1 && *name == '@') {
        return s->key ? json_string(s->key) : json_integer((json_int_t)s->number);
    }
    for (const scope *from = s; from; from = from->outer) {
        const json_t *v = from->at;
        for (size_t i = 0; v && i < n;) {
            const size_t part = strcspn(name + i, ".");
            const size_t size = part < n - i ? part : n - i;
            v = size == 1 && name[i] == '@' ? json_array_get(v, s->number - 1)
                                            : member_of(v, name + i, size);
            i += size + 1;
        }
        if (v) { return json_incref(ckvc_unconst(v)); }
    }
    return NULL;
}

static bool is_there(const json_t *v) {
    if (json_is_integer(v)) { return json_integer_value(v) != 0; }
    if (json_is_string(v)) { return *json_string_value(v) != 0; }
    if (json_is_array(v) || json_is_object(v)) { return json_array_size(v) + json_object_size(v); }
    return v && !json_is_null(v) && !json_is_false(v);
}

/* The caller frees. */
static char *text_of(const json_t *v) {
    if (!v || json_is_null(v)) { return ckvc_strdup("-"); }
    if (json_is_boolean(v)) { return ckvc_strdup(json_is_true(v) ? "yes" : "no"); }
    if (json_is_real(v)) { return ckvc_format("%.6g", json_real_value(v)); }
    if (!json_is_string(v)) { return json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY); }
    char *text = ckvc_strdup(json_string_value(v));
    ckvc_utf8_tame(text, "");
    return text;
}

/* The characters of a name, as many as there are. */
static size_t name_size(const char *text, size_t n) {
    size_t size = 0;
    while (size < n && (isalnum((unsigned char)text[size]) || strchr("_.@", text[size]))) {
        size++;
    }
    return size;
}

/* x times or divided by what "*100/of" names; *n: of these n characters, those that are read. */
static double scaled(double x, const char *text, size_t *n, const scope *s) {
    size_t i = 0;
    while (i < *n && (text[i] == '*' || text[i] == '/')) {
        const char *name = text + i + 1;
        char *end = NULL;
        double by = isdigit((unsigned char)*name) ? strtod(name, &end) : 0;
        const size_t size = end ? (size_t)(end - name) : name_size(name, *n - i - 1);
        if (!end) {
            json_auto_t *v = find(s, name, size);
            by = json_number_value(v);
        }
        x = text[i] == '*' ? x * by : by == 0 ? 0 : x / by;
        i += 1 + size;
    }
    *n = i;
    return x;
}

/* Appends a value; spec: what stands behind its name, "*100:+8.3f" or nothing. */
static void put(ckvc_buffer *out, const json_t *v, const char *spec, size_t n, const scope *s) {
    size_t scale = n;
    const double x = scaled(json_number_value(v), spec, &scale, s);
    const char conversion = scale < n ? spec[n - 1] : 's';
    char *at = scale < n ? ckvc_unconst(spec + scale + 1) : NULL;
    const bool sign = at && *at == '+', number = json_is_number(v);
    at += sign;
    const int width = at ? (int)strtol(at, &at, 10) : 0; /* below 0: to the left */
    const int precision = at && *at == '.' ? (int)strtol(at + 1, NULL, 10) : -1;
    CKVC_AUTO_FREE char *text = text_of(v);
    if (number && conversion == 'd') {
        ckvc_buffer_printf(out, "%*lld", width, (long long)x);
    } else if (number && conversion == 'g') {
        ckvc_buffer_printf(out, "%*.*g", width, precision, x);
    } else if (number && conversion == 'f') {
        ckvc_buffer_printf(out, sign ? "%+*.*f" : "%*.*f", width, precision, x);
    } else if (number && conversion == 't') {
        char duration[CKVC_DURATION];
        ckvc_duration(x, duration);
        ckvc_buffer_printf(out, "%*s", width, duration);
    } else if (conversion == 'j') {
        CKVC_AUTO_FREE char *quoted = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
        ckvc_buffer_text(out, quoted ? quoted : "\"?\"");
    } else {
        ckvc_buffer_printf(out, "%*.*s", width, conversion == 's' ? precision : -1, text);
    }
}

static void fill(ckvc_buffer *out, const char *form, size_t n, const scope *s);

/* The form for each item of a list or member of an object. */
static void fill_each(ckvc_buffer *out, const char *form, size_t n, const json_t *v,
                      const scope *s) {
    const char *key;
    json_t *value;
    size_t number = 0;
    json_object_foreach(ckvc_unconst(v), key, value) {
        fill(out, form, n, &(scope){value, key, ++number, s});
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        fill(out, form, n, &(scope){json_array_get(v, i), NULL, i + 1, s});
    }
}

/* Whether v is `than`, or below or above the number that it begins with. */
static bool compares(const json_t *v, char how, const char *than, size_t n) {
    CKVC_AUTO_FREE char *text = text_of(v);
    if (how == '=') { return strlen(text) == n && memcmp(text, than, n) == 0; }
    const double x = json_number_value(v), limit = strtod(than, NULL);
    return json_is_number(v) && (how == '<' ? x < limit : x > limit);
}

/* What stands between two braces. */
static void fill_field(ckvc_buffer *out, const char *field, size_t n, const scope *s) {
    size_t i = name_size(field, n);
    json_auto_t *v = i ? find(s, field, i) : NULL;
    bool holds = is_there(v);
    char what = i < n ? field[i] : ':';
    if (strchr("=<>", what)) {
        const size_t size = strcspn(field + i + 1, "?!");
        holds = compares(v, what, field + i + 1, size);
        i += 1 + size;
        what = field[i];
    }
    const char *text = field + i + 1;
    const size_t n_text = n - i - (i < n);
    if (what == '#') {
        fill_each(out, text, n_text, v, s);
    } else if (what == '~') {
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer inner = {0};
        char *end;
        const int width = (int)strtol(text, &end, 10);
        const size_t skipped = (size_t)(end - text) + 1;
        fill(&inner, text + skipped, n_text - skipped, s);
        ckvc_buffer_printf(out, "%*s", width, inner.data ? (char *)inner.data : "");
    } else if ((what == ',' && s->number > 1) || (what == '?' && holds) ||
               (strchr("!|", what) && !holds)) {
        fill(out, text, n_text, s);
    } else if (!strchr(",?!", what)) {
        put(out, v, field + i, what == '|' ? 0 : n - i, s);
    }
}

static void fill(ckvc_buffer *out, const char *form, size_t n, const scope *s) {
    for (size_t i = 0; i < n;) {
        const char *open = memchr(form + i, '{', n - i);
        const size_t start = open ? (size_t)(open - form) : n;
        ckvc_buffer_append(out, form + i, start - i);
        if (!open) { return; }
        size_t end = start + 1;
        for (int depth = 1; depth > 0; end++) {
            if (end == n) { abort(); }
            depth += (form[end] == '{') - (form[end] == '}');
        }
        fill_field(out, form + start + 1, end - start - 2, s);
        i = end;
    }
}

void ckvc_form_fill(ckvc_buffer *out, const char *form, const json_t *value, const json_t *beside) {
    const scope outer = {.at = beside};
    fill(out, form, strlen(form), &(scope){.at = value, .outer = &outer});
}
