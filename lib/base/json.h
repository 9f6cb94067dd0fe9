/* JSON through jansson, with our rules. Duplicate keys, trailing bytes and too deep nesting are
 * refused with file, line and column. Canonical output is that of docs/formats.md: keys sorted by
 * bytes, no spaces, integers as integers and other numbers as %.17g. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

/* A growing byte buffer. It is the writer's side of bytes.h, and builds texts such as HTML, SVG,
 * CSV and JSON lines.
 *
 * Appending cannot fail (memory.h). Where data is not NULL a NUL follows its size bytes.
 * Zero-initialise a buffer; ckvc_buffer_fini frees it, also as CKVC_AUTO(ckvc_buffer_fini). */
typedef struct ckvc_buffer {
    uint8_t *data;
    size_t size;
    size_t capacity;
} ckvc_buffer;

void ckvc_buffer_fini(ckvc_buffer *b);
void ckvc_buffer_append(ckvc_buffer *b, const void *data, size_t n);
void ckvc_buffer_text(ckvc_buffer *b, const char *text); /* without its NUL */
void ckvc_buffer_printf(ckvc_buffer *b, const char *fmt, ...) CKVC_PRINTF(2, 3);
void ckvc_buffer_u8(ckvc_buffer *b, uint8_t v);
void ckvc_buffer_u16(ckvc_buffer *b, uint16_t v); /* little-endian, like the next two */
void ckvc_buffer_u32(ckvc_buffer *b, uint32_t v);
void ckvc_buffer_u64(ckvc_buffer *b, uint64_t v);

/* ckvc_json_read parses a file of at most cap bytes, ckvc_json_parse a text of n bytes that
 * messages call `where`. *out is a new reference (json_decref), or NULL after a failure.
 * CKVC_E_DATA for what is no JSON; ckvc_json_read also has the errors of ckvc_file_read and
 * ckvc_download_check. */
ckvc_status ckvc_json_read(const char *path, size_t cap, json_t **out,
                           ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status ckvc_json_parse(const char *text, size_t n, const char *where, json_t **out,
                            ckvc_err *err) CKVC_MUST_CHECK;

/* Returns the canonical text of a value, which must not be NULL. The caller frees it. */
char *ckvc_json_canonical(const json_t *value);
/* Appends one value in canonical form to b. A real that is not finite is written as null, which is
 * the rule of score lines (formats/lines/scores.md). */
void ckvc_json_append(ckvc_buffer *b, const json_t *value);
/* Does the same, but leaves the keys of objects in the order in which they were set. */
void ckvc_json_append_as_given(ckvc_buffer *b, const json_t *value);
/* A JSON real, or null where v is not finite. New reference. */
json_t *ckvc_json_real(double v);
/* Sets a number; leaves a NaN or an infinity, which JSON does not have, out. */
void ckvc_json_set_real(json_t *o, const char *key, double v);
/* An array of n reals, texts or whole numbers. New reference. */
json_t *ckvc_json_reals(const double *v, size_t n);
json_t *ckvc_json_texts(const char *const *v, size_t n);
json_t *ckvc_json_u32s(const uint32_t *v, size_t n);
/* Sets members of o to numbers: null where a number is not finite, and a JSON integer where it is
 * whole. Returns o, so that it can be written as JSON_NUMBERS(json_object(), {"prompts", n},
 * {"seconds", s}). */
typedef struct ckvc_json_number {
    const char *key;
    double value;
} ckvc_json_number;
json_t *ckvc_json_set_numbers(json_t *o, const ckvc_json_number *numbers);
#define JSON_NUMBERS(o, ...)                                                                       \
    ckvc_json_set_numbers(o, (const ckvc_json_number[]){__VA_ARGS__, {NULL, 0}})

/* Rules that readers share: whether v is a whole number from 0 to `most`; whether it is a text of
 * exactly so many lower-case hexadecimal digits; whether it is a finite number. All are false of
 * NULL. */
bool ckvc_json_is_count(const json_t *v, uint64_t most);
bool ckvc_json_is_hex(const json_t *v, size_t digits);
bool ckvc_json_is_finite(const json_t *v);
/* Puts the member `key` of o into *out if it is a count. */
bool ckvc_json_get_count(const json_t *o, const char *key, uint64_t most, uint64_t *out);
