/* GGUF: see gguf_table.h; the layout is described in formats/model/gguf.c, which reads it. */
#include "formats/export/gguf_table.h"

#include <ctype.h>

#include "formats/model/gguf.h"
#include "lib/base/files.h"
#include "lib/base/json.h"

enum { VERSION = 3, ALIGNMENT = 32, TENSOR_IS_F32 = 0 };

static void append_string(ckvc_buffer *b, const char *text) {
    ckvc_buffer_u64(b, strlen(text));
    ckvc_buffer_text(b, text);
}

static void append_name(ckvc_buffer *b, const char *section) {
    char name[16] = "ckvc.";
    for (size_t i = 0; section[i]; i++) { name[5 + i] = (char)tolower((unsigned char)section[i]); }
    append_string(b, name);
}

static void append_text_key(ckvc_buffer *b, const char *key, const char *text) {
    append_string(b, key);
    ckvc_buffer_u32(b, GGUF_STRING);
    append_string(b, text);
}

static void append_array_key(ckvc_buffer *b, const table_array *a) {
    static const gguf_type types[CKVT_TYPE_COUNT] = {GGUF_U8, GGUF_F32, GGUF_F64, GGUF_U32,
                                                     GGUF_U64};
    append_name(b, a->name);
    ckvc_buffer_u32(b, GGUF_ARRAY);
    ckvc_buffer_u32(b, types[a->type]);
    ckvc_buffer_u64(b, a->bytes / ckvt_type_bytes(a->type));
    ckvc_buffer_append(b, a->data, a->bytes);
}

static void pad(ckvc_buffer *b) {
    while (b->size % ALIGNMENT) { ckvc_buffer_u8(b, 0); }
}

ckvc_status gguf_table_write(table_file *t, const export_options *o, const char *path,
                             ckvc_buffer *note, ckvc_err *err) {
    CKVC_AUTO(table_arrays_fini) table_arrays all;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer keys = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer tensors = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer data = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer file = {0};
    CKVC_AUTO_FREE char *meta = ckvc_json_canonical(t->meta);
    uint64_t n_keys = 3, n_tensors = 0;
    table_file_arrays(t, &all);
    append_text_key(&keys, "general.architecture", "ckvc");
    append_text_key(&keys, "ckvc.content_id", t->content_id);
    append_text_key(&keys, "ckvc.meta", meta);
    for (size_t i = 0; i < all.n; i++) {
        const table_array *a = &all.items[i];
        if (a->evidence || !a->bytes || a->type == CKVT_BYTES) { continue; }
        if (a->type != CKVT_F32) {
            append_array_key(&keys, a);
            n_keys++;
            continue;
        }
        append_name(&tensors, a->name);
        ckvc_buffer_u32(&tensors, a->rank);
        for (unsigned d = a->rank; d-- > 0;) { ckvc_buffer_u64(&tensors, a->dims[d]); }
        ckvc_buffer_u32(&tensors, TENSOR_IS_F32);
        ckvc_buffer_u64(&tensors, data.size);
        ckvc_buffer_append(&data, a->data, a->bytes);
        pad(&data);
        n_tensors++;
    }
    ckvc_buffer_text(&file, "GGUF");
    ckvc_buffer_u32(&file, VERSION);
    ckvc_buffer_u64(&file, n_tensors);
    ckvc_buffer_u64(&file, n_keys);
    ckvc_buffer_append(&file, keys.data, keys.size);
    ckvc_buffer_append(&file, tensors.data, tensors.size);
    pad(&file);
    ckvc_buffer_append(&file, data.data, data.size);
    ckvc_buffer_text(note, "without the evidence");
    return ckvc_publish_bytes(path, file.data, file.size, o->force, err);
}
