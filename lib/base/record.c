/* Reads and writes the members of a struct by their description. See record.h. */
#include "lib/base/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/utf8.h"

/* ---- names ---- */

const char *record_name_at(const char *names, uint32_t place, size_t *n) {
    for (; place && names; place--) {
        names = strchr(names, '|');
        names += names != NULL;
    }
    *n = names ? strcspn(names, "|") : 0;
    return names;
}

int record_place_of(const char *names, const char *name) {
    size_t n;
    for (uint32_t i = 0; (names = record_name_at(names, i > 0, &n)); i++) {
        if (strlen(name) == n && memcmp(name, names, n) == 0) { return (int)i; }
    }
    return -1;
}

/* ---- one member ---- */

static const void *value_of(const record_member *m, const void *record) {
    return (const char *)record + m->at;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a number begins with its low bytes");
static uint64_t whole_of(const record_member *m, const void *record) {
    uint64_t v = 0;
    memcpy(&v, value_of(m, record), m->size);
    return v;
}

double record_number(const record_member *m, const void *record) {
    const void *at = value_of(m, record);
    switch (m->type) {
    case RECORD_REAL: return *(const double *)at;
    case RECORD_BIN: return *(const int32_t *)at;
    case RECORD_TEXT:
    case RECORD_HEX: return (double)strlen(at);
    default: return (double)whole_of(m, record);
    }
}

bool record_set_number(const record_member *m, void *record, double v) {
    void *at = (char *)record + m->at;
    const bool real = m->type == RECORD_REAL;
    if (!(v >= m->least && v <= m->most) || !isfinite(v) || (!real && v != floor(v))) {
        return false;
    }
    const uint64_t whole = real ? 0 : (uint64_t)v;
    memcpy(at, real ? (const void *)&v : &whole, m->size);
    return true;
}

bool record_set_text(const record_member *m, void *record, const char *text) {
    const size_t n = strlen(text);
    char *at = (char *)record + m->at;
    if (m->type == RECORD_NAME) {
        return record_set_number(m, record, record_place_of(m->names, text));
    }
    if (m->type == RECORD_OWNED) {
        *(char **)(void *)at = ckvc_strdup(text);
        return true;
    }
    const bool digits = strspn(text, "0123456789abcdef") == n && n + 1 == m->size;
    if (n >= m->size || !(m->type == RECORD_HEX ? digits : ckvc_utf8_is_line(text, n))) {
        return false;
    }
    memset(at, 0, m->size);
    memcpy(at, text, n + 1);
    return true;
}

/* Tells whether the member has the value that stands for none. A type without such a value is none
 * at 0. */
static bool is_none(const record_member *m, const void *record) {
    switch (m->type) {
    case RECORD_OWNED: return !*(char *const *)value_of(m, record);
    case RECORD_REAL: return isnan(record_number(m, record));
    case RECORD_BIN: return record_number(m, record) < 0;
    default: return record_number(m, record) == 0;
    }
}

static void set_none(const record_member *m, void *record) {
    void *at = (char *)record + m->at;
    memset(at, m->type == RECORD_BIN ? 0xff : 0, m->size);
    if (m->type == RECORD_REAL) { *(double *)at = NAN; }
}

bool record_read(const record_member *m, const json_t *v, void *record) {
    if (v ? m->need && json_is_null(v) : m->need == RECORD_IF_ANY) {
        set_none(m, record);
        return true;
    }
    if (m->type >= RECORD_NAME) {
        return json_is_string(v) && record_set_text(m, record, json_string_value(v));
    }
    if (m->type == RECORD_REAL) {
        return json_is_number(v) && record_set_number(m, record, json_number_value(v));
    }
    const json_int_t whole = json_integer_value(v);
    const bool fits = json_is_integer(v) && record_set_number(m, record, (double)whole);
    /* a double holds whole numbers only up to 2^53 */
    if (fits) { memcpy((char *)record + m->at, &whole, m->size); }
    return fits;
}

json_t *record_json(const record_member *m, const void *record) {
    const char *text = value_of(m, record);
    size_t n;
    if (m->need && is_none(m, record)) { return m->need == RECORD_OR_NULL ? json_null() : NULL; }
    switch (m->type) {
    case RECORD_OWNED: return json_string(*(char *const *)value_of(m, record));
    case RECORD_TEXT:
    case RECORD_HEX: return json_string(text);
    case RECORD_NAME:
        text = record_name_at(m->names, (uint32_t)record_number(m, record), &n);
        return json_stringn(text, n);
    /* adding 0.0 makes 0 of -0 */
    case RECORD_REAL: return ckvc_json_real(record_number(m, record) + 0.0);
    default: return json_integer((json_int_t)whole_of(m, record));
    }
}

/* ---- all members ---- */

void record_write(const record_member *members, size_t n, const void *record, json_t *o) {
    for (size_t i = 0; i < n; i++) {
        json_t *v = members[i].type < RECORD_OTHER ? record_json(&members[i], record) : NULL;
        if (v) { json_object_set_new(o, members[i].name, v); }
    }
}

void record_fini(const record_member *members, size_t n, void *record) {
    for (size_t i = 0; i < n; i++) {
        if (members[i].type == RECORD_OWNED) { ckvc_free_at((char *)record + members[i].at); }
    }
}
