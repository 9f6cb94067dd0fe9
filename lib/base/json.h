/* JSON through jansson, with our rules: duplicate keys, trailing bytes and depth are refused with
 * file, line and column; canonical output is formats.md's (keys sorted by bytes, no spaces,
 * integers as integers, floats %.17g). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

/* A growing byte buffer: the writer's side of bytes.h, and a string builder for text (HTML, SVG,
 * CSV, JSON lines).
 *
 * Appending cannot fail (memory.h). data is always NUL-terminated behind size when not NULL.
 * Zero-initialise; ckvc_buffer_fini frees, also as CKVC_AUTO(ckvc_buffer_fini). */
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
void ckvc_buffer_u16(ckvc_buffer *b, uint16_t v); /* little-endian, like all below */
void ckvc_buffer_u32(ckvc_buffer *b, uint32_t v);
void ckvc_buffer_u64(ckvc_buffer *b, uint64_t v);

/* Parses a file of at most cap bytes / a text. `where` names the text in messages. *out is a new
 * reference (json_decref). */
ckvc_status ckvc_json_read(const char *path, size_t cap, json_t **out,
                           ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status ckvc_json_parse(const char *text, size_t n, const char *where, json_t **out,
                            ckvc_err *err) CKVC_MUST_CHECK;

/* Canonical text; the caller frees. */
char *ckvc_json_canonical(const json_t *value);
/* Appends one canonical value to b (a non-finite real is written as null: the rule of score lines,
 * formats/lines/scores.md). */
void ckvc_json_append(ckvc_buffer *b, const json_t *value);
/* The same with the keys of objects in the order in which they were set. */
void ckvc_json_append_as_given(ckvc_buffer *b, const json_t *value);
/* A JSON real, or null where v is not finite. New reference. */
json_t *ckvc_json_real(double v);
/* An array of n reals / whole numbers. New reference. */
json_t *ckvc_json_reals(const double *v, size_t n);
json_t *ckvc_json_u32s(const uint32_t *v, size_t n);
/* Sets numbers, null where one is not finite; a whole one is printed as such. Returns o:
 * JSON_NUMBERS(json_object(), {"prompts", n}, {"seconds", s}) */
typedef struct ckvc_json_number {
    const char *key;
    double value;
} ckvc_json_number;
json_t *ckvc_json_set_numbers(json_t *o, const ckvc_json_number *numbers);
#define JSON_NUMBERS(o, ...)                                                                       \
    ckvc_json_set_numbers(o, (const ckvc_json_number[]){__VA_ARGS__, {NULL, 0}})

/* Rules that readers share. A whole number of 0 to `most`; so many lower-case hexadecimal digits
 * and nothing else; a number that is finite. False also of NULL. */
bool ckvc_json_is_count(const json_t *v, uint64_t most);
bool ckvc_json_is_hex(const json_t *v, size_t digits);
bool ckvc_json_is_finite(const json_t *v);
/* Of a member: into *out when it is a count. */
bool ckvc_json_get_count(const json_t *o, const char *key, uint64_t most, uint64_t *out);
