/* A growing byte buffer: see buffer.h. */
#include "lib/base/buffer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/memory.h"
#include "lib/base/sizes.h"

/* Room for n more bytes and a NUL. */
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
