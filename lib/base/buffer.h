/* A growing byte buffer: the writer's side of bytes.h, and a string builder for text (HTML, SVG,
 * CSV, JSON lines).
 *
 * Appending cannot fail (memory.h). data is always NUL-terminated behind size when not NULL.
 * Zero-initialise; ckvc_buffer_fini frees, also as CKVC_AUTO(ckvc_buffer_fini). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

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
