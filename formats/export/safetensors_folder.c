/* The folder of safetensors: see safetensors_folder.h. The format is the one that
 * formats/model/safetensors.c reads. */
#include "formats/export/safetensors_folder.h"

#include "formats/model/model_readers.h"
#include "lib/base/files.h"
#include "lib/base/json.h"

static const char *const dtypes[CKVT_TYPE_COUNT] = {"U8", "F32", "F64", "U32", "U64"};

/* Wide types first, and the header a multiple of 8: readers that view the mapped file as numbers
 * want each array at a multiple of its type's size. */
static void append_file(ckvc_buffer *b, const table_arrays *all, const char *content_id) {
    json_auto_t *header = json_object();
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer data = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    json_object_set_new(header, "__metadata__",
                        json_pack("{s:s, s:s}", "format", "pt", "content_id", content_id));
    for (size_t width = 8; width; width /= 2) {
        for (size_t i = 0; i < all->n; i++) {
            const table_array *a = &all->items[i];
            if (ckvt_type_bytes(a->type) != width) { continue; }
            const size_t end = data.size + a->bytes;
            json_t *shape = json_array();
            for (unsigned d = 0; d < a->rank; d++) {
                json_array_append_new(shape, json_integer((json_int_t)a->dims[d]));
            }
            json_object_set_new(header, a->name,
                                json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtypes[a->type], "shape",
                                          shape, "data_offsets", (json_int_t)data.size,
                                          (json_int_t)end));
            if (a->bytes) { ckvc_buffer_append(&data, a->data, a->bytes); }
        }
    }
    ckvc_json_append_as_given(&text, header);
    while (text.size % 8) { ckvc_buffer_u8(&text, ' '); }
    ckvc_buffer_u64(b, text.size);
    ckvc_buffer_append(b, text.data, text.size);
    ckvc_buffer_append(b, data.data, data.size);
}

ckvc_status export_into(const char *folder, const char *name, const ckvc_buffer *text,
                        const export_options *o, ckvc_err *err) {
    CKVC_AUTO_FREE char *path = ckvc_path_join(folder, name);
    CKVC_TRY(ckvc_make_dirs(folder, err));
    return ckvc_publish_bytes(path, text->data, text->size, o->force, err);
}

/* What a program needs to know before it reads the arrays. */
static void append_config(ckvc_buffer *b, const table_file *t) {
    json_auto_t *all = table_file_describe(t, false), *o = json_object();
    static const char *const keys[] = {"content_id", "shape", "budgets", "score", "c_min", "meta"};
    json_object_set_new(o, "model_type", json_string("ckvc-table"));
    json_object_set_new(o, "operator", json_string(ckvc_operator_name(t->table->op)));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(all, keys[i]);
        if (value) { json_object_set(o, keys[i], value); }
    }
    ckvc_json_append_as_given(b, o);
    ckvc_buffer_text(b, "\n");
}

ckvc_status safetensors_folder_write(table_file *t, const export_options *o, const char *path,
                                     ckvc_buffer *note, ckvc_err *err) {
    (void)note;
    CKVC_AUTO(table_arrays_fini) table_arrays all;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer file = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer config = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer card = {0};
    table_file_arrays(t, &all);
    append_file(&file, &all, t->content_id);
    append_config(&config, t);
    CKVC_TRY(model_card(t, o->report, &card, err));
    CKVC_TRY(export_into(path, "model.safetensors", &file, o, err));
    CKVC_TRY(export_into(path, "config.json", &config, o, err));
    CKVC_TRY(export_into(path, "README.md", &card, o, err));
    CKVC_AUTO_FREE char *name = ckvc_path_join(path, "table.ckvt");
    json_decref(t->prov); /* the command line and the host are nobody's business on a hub */
    t->prov = NULL;
    return table_file_write(t, name, o->force, err);
}

ckvc_status safetensors_folder_read(const char *path, const import_options *o, table_file **out,
                                    ckvc_err *err) {
    (void)o;
    CKVC_AUTO(model_spec_free_at) model_spec *spec = model_spec_create(path);
    table_array items[TABLE_ARRAYS_MAX] = {0};
    CKVC_TRY(safetensors_read(path, spec, err));
    CKVC_REFUSE_IF(spec->n_tensors > TABLE_ARRAYS_MAX, err, path,
                   "%zu arrays, a table has at most %d", spec->n_tensors, TABLE_ARRAYS_MAX);
    for (size_t i = 0; i < spec->n_tensors; i++) {
        const tensor_view *v = &spec->tensors[i];
        table_array *a = &items[i];
        CKVC_REFUSE_IF(strlen(v->name) >= sizeof a->name, err, path,
                       "array \"%.40s\" is no section of a table", v->name);
        snprintf(a->name, sizeof a->name, "%s", v->name);
        while (a->type < CKVT_TYPE_COUNT && strcmp(v->dtype, dtypes[a->type]) != 0) { a->type++; }
        CKVC_REFUSE_IF(a->type == CKVT_TYPE_COUNT, err, path,
                       "array %s is of %s, a table's are of U8, F32, F64, U32 and U64", a->name,
                       v->dtype);
        a->rank = (uint16_t)v->rank;
        for (int d = 0; d < v->rank; d++) { a->dims[d] = (uint64_t)v->dims[d]; }
        a->data = v->data;
        a->bytes = v->bytes;
    }
    return table_file_from_arrays(path, items, spec->n_tensors, out, err);
}
