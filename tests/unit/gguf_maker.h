/* Writes GGUF files for tests, sound ones and others. It shares nothing with the reader. */
#pragma once

#include "lib/base/json.h"
#include "tests/unit/unit.h"

typedef struct gguf_maker {
    uint32_t version;
    uint64_t n_keys, n_tensors;
    uint32_t alignment;
    ckvc_buffer keys, infos, data;
} gguf_maker;

enum { G_U8, G_I8, G_U16, G_I16, G_U32, G_I32, G_F32, G_BOOL, G_STRING, G_ARRAY };
enum { G_U64 = 10, G_I64, G_F64 };
enum { G_TYPE_F32 = 0, G_TYPE_F16, G_TYPE_Q4_0, G_TYPE_Q4_1 };
enum { G_TYPE_Q5_0 = 6, G_TYPE_Q5_1, G_TYPE_Q8_0 };
enum { G_TYPE_Q4_K = 12, G_TYPE_Q5_K, G_TYPE_Q6_K, G_TYPE_BF16 = 30 };

static inline void g_text(ckvc_buffer *b, const char *text, size_t n) {
    ckvc_buffer_u64(b, n);
    ckvc_buffer_append(b, text, n);
}

static inline void g_key(gguf_maker *g, const char *key, uint32_t type) {
    g->n_keys++;
    g_text(&g->keys, key, strlen(key));
    ckvc_buffer_u32(&g->keys, type);
}

static inline void g_u32(gguf_maker *g, const char *key, uint32_t v) {
    g_key(g, key, G_U32);
    ckvc_buffer_u32(&g->keys, v);
}

static inline void g_f32(gguf_maker *g, const char *key, float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    g_key(g, key, G_F32);
    ckvc_buffer_u32(&g->keys, bits);
}

static inline void g_bool(gguf_maker *g, const char *key, uint8_t v) {
    g_key(g, key, G_BOOL);
    ckvc_buffer_u8(&g->keys, v);
}

static inline void g_string(gguf_maker *g, const char *key, const char *v) {
    g_key(g, key, G_STRING);
    g_text(&g->keys, v, strlen(v));
}

static inline void g_array(gguf_maker *g, const char *key, uint32_t item, uint64_t n) {
    g_key(g, key, G_ARRAY);
    ckvc_buffer_u32(&g->keys, item);
    ckvc_buffer_u64(&g->keys, n);
}

static inline void g_pad(ckvc_buffer *b, uint64_t alignment) {
    while (b->size % alignment) { ckvc_buffer_u8(b, 0); }
}

/* Adds a tensor. dims are in the file's order, the contiguous one first; dims[1] == 0 means rank
 * 1. */
static inline void g_tensor(gguf_maker *g, const char *name, uint32_t type, const uint64_t dims[2],
                            const void *bytes, size_t n) {
    g->n_tensors++;
    g_pad(&g->data, g->alignment);
    g_text(&g->infos, name, strlen(name));
    ckvc_buffer_u32(&g->infos, dims[1] ? 2 : 1);
    ckvc_buffer_u64(&g->infos, dims[0]);
    if (dims[1]) { ckvc_buffer_u64(&g->infos, dims[1]); }
    ckvc_buffer_u32(&g->infos, type);
    ckvc_buffer_u64(&g->infos, g->data.size);
    ckvc_buffer_append(&g->data, bytes, n);
}

static inline gguf_maker g_begin(void) { return (gguf_maker){.version = 3, .alignment = 32}; }

/* Returns the file's bytes, which the caller frees. The maker is spent. */
static inline uint8_t *g_end(gguf_maker *g, size_t *size) {
    ckvc_buffer b = {0};
    ckvc_buffer_append(&b, "GGUF", 4);
    ckvc_buffer_u32(&b, g->version);
    ckvc_buffer_u64(&b, g->n_tensors);
    ckvc_buffer_u64(&b, g->n_keys);
    ckvc_buffer_append(&b, g->keys.data, g->keys.size);
    ckvc_buffer_append(&b, g->infos.data, g->infos.size);
    if (g->n_tensors) { g_pad(&b, g->alignment); }
    ckvc_buffer_append(&b, g->data.data, g->data.size);
    if (g->n_tensors) { g_pad(&b, g->alignment); }
    ckvc_buffer_fini(&g->keys), ckvc_buffer_fini(&g->infos), ckvc_buffer_fini(&g->data);
    *size = b.size;
    return b.data;
}
