/* Fills forms: see form.h. */
#include "lib/base/form.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/base/progress.h"
#include "lib/base/utf8_step.h"

/* The item that a # has reached, and in `outer` the item around it. The outermost scopes are the
 * values that the form is filled from; they have no name and no number. */
typedef struct scope {
    const json_t *at, *name; /* the item, and its key in an object or its number in a list */
    size_t number;           /* which of the items it is, counted from 1 */
    const struct scope *outer;
} scope;

static const json_t *member_of(const json_t *v, const char *name, size_t n, size_t number) {
    if (json_is_array(v) && *name == '@') { return json_array_get(v, number - 1); }
    if (json_is_array(v) && isdigit((unsigned char)*name)) {
        return json_array_get(v, (size_t)strtoul(name, NULL, 10));
    }
    CKVC_AUTO_FREE char *key = ckvc_format("%.*s", (int)n, name);
    return json_object_get(v, key);
}

/* Looks a name up in the scope and in those around it. Returns NULL where nothing has that name. */
static const json_t *find(const scope *s, const char *name, size_t n) {
    const json_t *v = NULL;
    if (n == 1 && *name == '@') { return s->name; }
    if (n == 1 && *name == '.') { return s->at; }
    for (const scope *from = s; from && !v; from = from->outer) {
        v = from->at;
        for (size_t i = 0; v && i < n;) {
            const char *dot = memchr(name + i, '.', n - i);
            const size_t size = dot ? (size_t)(dot - name) - i : n - i;
            v = member_of(v, name + i, size, s->number);
            i += size + 1;
        }
    }
    return v;
}

static bool is_there(const json_t *v) {
    if (json_is_integer(v)) { return json_integer_value(v) != 0; }
    if (json_is_string(v)) { return *json_string_value(v) != 0; }
    if (json_is_array(v) || json_is_object(v)) { return json_array_size(v) + json_object_size(v); }
    return v && !json_is_null(v) && !json_is_false(v);
}

char *ckvc_form_text(const json_t *v) {
    if (!v || json_is_null(v)) { return ckvc_strdup("-"); }
    if (json_is_boolean(v)) { return ckvc_strdup(json_is_true(v) ? "yes" : "no"); }
    if (json_is_real(v)) { return ckvc_format("%.6g", json_real_value(v)); }
    char *text = json_is_string(v)
                     ? ckvc_strdup(json_string_value(v))
                     : json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    ckvc_utf8_tame(text, "");
    return text;
}

/* Returns how many characters at the beginning of the text belong to a name. */
static size_t name_size(const char *text, size_t n) {
    size_t size = 0;
    while (size < n && (isalnum((unsigned char)text[size]) || strchr("_.@", text[size]))) {
        size++;
    }
    return size;
}

/* Multiplies and divides x as a text such as "*100/of" says. *n is the size of the text, and
 * becomes the number of its characters that were used. */
static double scaled(double x, const char *text, size_t *n, const scope *s) {
    size_t i = 0;
    while (i < *n && (text[i] == '*' || text[i] == '/')) {
        const char *name = text + i + 1;
        const size_t size = name_size(name, *n - i - 1);
        const double by = isdigit((unsigned char)*name) ? strtod(name, NULL)
                                                        : json_number_value(find(s, name, size));
        x = text[i] == '*' ? x * by : by == 0 ? 0 : x / by;
        i += 1 + size;
    }
    *n = i;
    return x;
}

/* Appends a value. `spec` is what stands behind its name, such as "*100:+8.3f" or nothing. */
static void put(ckvc_buffer *out, const json_t *v, const char *spec, size_t n, const scope *s) {
    size_t scale = n;
    const double x = scaled(json_number_value(v), spec, &scale, s);
    char conversion = scale < n ? spec[n - 1] : 's', *at = ckvc_unconst(spec + scale);
    const bool sign = scale + 1 < n && at[1] == '+';
    at += scale < n ? 1 + sign : 0;
    const int width = scale < n ? (int)strtol(at, &at, 10) : 0; /* below 0: to the left */
    const int precision = scale < n && *at == '.' ? (int)strtol(at + 1, NULL, 10) : -1;
    if (!json_is_number(v) && strchr("dfgt", conversion)) { conversion = 'S'; }
    CKVC_AUTO_FREE char *text =
        conversion == 'j' ? json_dumps(v, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : ckvc_form_text(v);
    char duration[CKVC_DURATION];
    switch (conversion) {
    case 'd': ckvc_buffer_printf(out, "%*lld", width, (long long)x); return;
    case 'g': ckvc_buffer_printf(out, "%*.*g", width, precision, x); return;
    case 'f': ckvc_buffer_printf(out, sign ? "%+*.*f" : "%*.*f", width, precision, x); return;
    case 't':
        ckvc_duration(x, duration);
        ckvc_buffer_printf(out, "%*s", width, duration);
        return;
    default:
        ckvc_buffer_printf(out, "%*.*s", width, conversion == 's' ? precision : -1,
                           text ? text : "-");
    }
}

static void fill(ckvc_buffer *out, const char *form, size_t n, const scope *s);

static void fill_item(ckvc_buffer *out, const char *form, size_t n, const json_t *at, json_t *name,
                      scope *s) {
    s->at = at;
    s->name = name;
    s->number++;
    fill(out, form, n, s);
    json_decref(name);
}

/* Fills the form once for each item of a list or member of an object. */
static void fill_each(ckvc_buffer *out, const char *form, size_t n, const json_t *v,
                      const scope *outer) {
    scope s = {.outer = outer};
    const char *key;
    json_t *value;
    json_object_foreach(ckvc_unconst(v), key, value) {
        fill_item(out, form, n, value, json_string(key), &s);
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        fill_item(out, form, n, json_array_get(v, i), json_integer((json_int_t)i + 1), &s);
    }
}

/* Fills a form, and puts the result into a field. `form` begins with the field's width. */
static void fill_width(ckvc_buffer *out, const char *form, size_t n, const scope *s) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer inner = {0};
    char *text;
    const int width = (int)strtol(form, &text, 10);
    ckvc_buffer_text(&inner, "");
    fill(&inner, text + 1, n - (size_t)(text - form) - 1, s);
    ckvc_buffer_printf(out, "%*s", width, (char *)inner.data);
}

/* Whether v is the word (how is '='), or a number below ('<') or above ('>') the one that it
 * spells. */
static bool compares(const json_t *v, char how, const char *word, size_t n) {
    CKVC_AUTO_FREE char *text = ckvc_form_text(v);
    if (how == '=') { return strlen(text) == n && memcmp(text, word, n) == 0; }
    const double x = json_number_value(v), limit = strtod(word, NULL);
    return json_is_number(v) && (how == '<' ? x < limit : x > limit);
}

/* Appends what a field, which is the text between two braces, stands for. */
static void fill_field(ckvc_buffer *out, const char *field, size_t n, const scope *s) {
    size_t i = name_size(field, n);
    const json_t *v = i ? find(s, field, i) : NULL;
    bool holds = is_there(v);
    if (i < n && strchr("=<>", field[i])) {
        const size_t size = strcspn(field + i + 1, "?!");
        holds = compares(v, field[i], field + i + 1, size);
        i += 1 + size;
    }
    const char what = i < n ? field[i] : ':', *text = field + i + 1;
    const size_t n_text = n - i - (i < n);
    if (what == '#') {
        fill_each(out, text, n_text, v, s);
    } else if (what == '&') {
        if (holds) { fill(out, text, n_text, &(scope){v, s->name, s->number, s}); }
    } else if (what == '~') {
        fill_width(out, text, n_text, s);
    } else if (!strchr(",?!|&", what)) {
        put(out, v, field + i, n - i, s);
    } else if (what == ',' ? s->number > 1 : holds == (what == '?')) {
        fill(out, text, n_text, s);
    } else if (what == '|') {
        put(out, v, "", 0, s);
    }
}

static void fill(ckvc_buffer *out, const char *form, size_t n, const scope *s) {
    for (size_t i = 0, end; i < n; i = end) {
        const char *open = memchr(form + i, '{', n - i);
        const size_t start = open ? (size_t)(open - form) : n;
        ckvc_buffer_append(out, form + i, start - i);
        end = start + (open != NULL);
        for (int depth = open != NULL; depth > 0; end++) {
            if (end == n) { abort(); }
            depth += (form[end] == '{') - (form[end] == '}');
        }
        if (open) { fill_field(out, open + 1, end - start - 2, s); }
    }
}

void ckvc_form_fill(ckvc_buffer *out, const char *form, const json_t *value, const json_t *beside) {
    fill(out, form, strlen(form), &(scope){.at = value, .outer = &(scope){.at = beside}});
}
