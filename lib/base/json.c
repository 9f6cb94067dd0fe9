/* JSON with our rules: see json.h. */
#include "lib/base/json.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

#include "lib/base/files.h"
#include "lib/base/memory.h"
#include "lib/base/order.h"
#include "lib/base/bytes.h"
#include "lib/base/sizes.h"

ckvc_status ckvc_json_parse(const char *text, size_t n, const char *where, json_t **out,
                            ckvc_err *err) {
    json_error_t problem;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &problem);
    CKVC_FAIL_IF(!*out, err, CKVC_E_DATA, "%s:%d:%d: not valid JSON: %s", where, problem.line,
                 problem.column, problem.text);
    return CKVC_OK;
}

ckvc_status ckvc_json_read(const char *path, size_t cap, json_t **out, ckvc_err *err) {
    CKVC_AUTO_FREE char *text = NULL;
    size_t n;
    *out = NULL;
    CKVC_TRY(ckvc_file_read(path, cap, &text, &n, err));
    CKVC_TRY(ckvc_download_check(path, text, n, err));
    return ckvc_json_parse(text, n, path, out, err);
}

static void append_string(ckvc_buffer *b, const char *s, size_t n) {
    ckvc_buffer_u8(b, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\') {
            ckvc_buffer_u8(b, '\\');
            ckvc_buffer_u8(b, c);
        } else if (c < 0x20) {
            ckvc_buffer_printf(b, "\\u%04x", c);
        } else {
            ckvc_buffer_u8(b, c);
        }
    }
    ckvc_buffer_u8(b, '"');
}

typedef struct json_style {
    bool null_for_nonfinite, keys_as_given;
} json_style;

static void append_value(ckvc_buffer *b, const json_t *v, json_style style) {
    switch (json_typeof(v)) {
    case JSON_OBJECT: {
        size_t n = json_object_size(v), i = 0;
        const char **keys = ckvc_alloc(n, sizeof *keys);
        const char *key;
        json_t *value;
        json_object_foreach(ckvc_unconst(v), key, value) { keys[i++] = key; }
        if (!style.keys_as_given) { qsort(keys, n, sizeof *keys, ckvc_order_text); }
        ckvc_buffer_u8(b, '{');
        for (i = 0; i < n; i++) {
            if (i) { ckvc_buffer_u8(b, ','); }
            append_string(b, keys[i], strlen(keys[i]));
            ckvc_buffer_u8(b, ':');
            append_value(b, json_object_get(v, keys[i]), style);
        }
        ckvc_buffer_u8(b, '}');
        free(keys);
        break;
    }
    case JSON_ARRAY:
        ckvc_buffer_u8(b, '[');
        for (size_t i = 0; i < json_array_size(v); i++) {
            if (i) { ckvc_buffer_u8(b, ','); }
            append_value(b, json_array_get(v, i), style);
        }
        ckvc_buffer_u8(b, ']');
        break;
    case JSON_STRING: append_string(b, json_string_value(v), json_string_length(v)); break;
    case JSON_INTEGER: ckvc_buffer_printf(b, "%lld", (long long)json_integer_value(v)); break;
    case JSON_REAL:
        if (isfinite(json_real_value(v))) {
            ckvc_buffer_printf(b, "%.17g", json_real_value(v));
        } else if (style.null_for_nonfinite) {
            ckvc_buffer_text(b, "null");
        } else {
            /* jansson cannot hold such a number */
            assert(!"a number that is not finite in canonical JSON");
        }
        break;
    case JSON_TRUE: ckvc_buffer_text(b, "true"); break;
    case JSON_FALSE: ckvc_buffer_text(b, "false"); break;
    case JSON_NULL: ckvc_buffer_text(b, "null"); break;
    }
}

char *ckvc_json_canonical(const json_t *value) {
    ckvc_buffer b = {0};
    append_value(&b, value, (json_style){0});
    return (char *)b.data;
}

void ckvc_json_append(ckvc_buffer *b, const json_t *value) {
    append_value(b, value, (json_style){.null_for_nonfinite = true});
}

void ckvc_json_append_as_given(ckvc_buffer *b, const json_t *value) {
    append_value(b, value, (json_style){.null_for_nonfinite = true, .keys_as_given = true});
}

json_t *ckvc_json_real(double v) { return isfinite(v) ? json_real(v) : json_null(); }

void ckvc_json_set_real(json_t *o, const char *key, double v) {
    if (isfinite(v)) { json_object_set_new(o, key, json_real(v)); }
}

json_t *ckvc_json_reals(const double *v, size_t n) {
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++) { json_array_append_new(array, ckvc_json_real(v[i])); }
    return array;
}

json_t *ckvc_json_texts(const char *const *v, size_t n) {
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++) { json_array_append_new(array, json_string(v[i])); }
    return array;
}

json_t *ckvc_json_u32s(const uint32_t *v, size_t n) {
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++) { json_array_append_new(array, json_integer(v[i])); }
    return array;
}

bool ckvc_json_is_count(const json_t *v, uint64_t most) {
    return json_is_integer(v) && json_integer_value(v) >= 0 &&
           (uint64_t)json_integer_value(v) <= most;
}

bool ckvc_json_is_hex(const json_t *v, size_t digits) {
    return json_is_string(v) && json_string_length(v) == digits &&
           strspn(json_string_value(v), "0123456789abcdef") == digits;
}

bool ckvc_json_is_finite(const json_t *v) {
    return json_is_number(v) && isfinite(json_number_value(v));
}

bool ckvc_json_get_count(const json_t *o, const char *key, uint64_t most, uint64_t *out) {
    const json_t *v = json_object_get(o, key);
    if (!ckvc_json_is_count(v, most)) { return false; }
    *out = (uint64_t)json_integer_value(v);
    return true;
}

json_t *ckvc_json_set_numbers(json_t *o, const ckvc_json_number *numbers) {
    for (const ckvc_json_number *n = numbers; n->key; n++) {
        const double v = n->value;
        const bool whole = fabs(v) < 9e15 && v == floor(v);
        json_object_set_new(o, n->key, whole ? json_integer((json_int_t)v) : ckvc_json_real(v));
    }
    return o;
}

/* Makes room for n more bytes and a NUL. */
static void reserve(ckvc_buffer *b, size_t n) {
    size_t need;
    if (n < b->capacity - b->size) { return; }
    if (!ckvc_add_size(b->size, n, &need) || !ckvc_add_size(need, 1, &need)) {
        ckvc_out_of_memory(b->size, n);
    }
    CKVC_GROW(b->data, b->capacity, need);
}

void ckvc_buffer_fini(ckvc_buffer *b) {
    free(b->data);
    *b = (ckvc_buffer){0};
}

void ckvc_buffer_append(ckvc_buffer *b, const void *data, size_t n) {
    reserve(b, n);
    if (n) { memcpy(b->data + b->size, data, n); }
    b->size += n;
    b->data[b->size] = 0;
}

void ckvc_buffer_text(ckvc_buffer *b, const char *text) {
    ckvc_buffer_append(b, text, strlen(text));
}

void ckvc_buffer_printf(ckvc_buffer *b, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    assert(n >= 0);
    reserve(b, (size_t)n);
    vsnprintf((char *)b->data + b->size, (size_t)n + 1, fmt, again);
    b->size += (size_t)n;
    va_end(again);
}

void ckvc_buffer_u8(ckvc_buffer *b, uint8_t v) { ckvc_buffer_append(b, &v, 1); }

#define APPEND(type, suffix)                                                                       \
    void ckvc_buffer_##suffix(ckvc_buffer *b, type v) {                                            \
        uint8_t bytes[sizeof v];                                                                   \
        ckvc_put_##suffix(bytes, v);                                                               \
        ckvc_buffer_append(b, bytes, sizeof bytes);                                                \
    }
APPEND(uint16_t, u16)
APPEND(uint32_t, u32)
APPEND(uint64_t, u64)
