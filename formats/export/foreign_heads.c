/* Heads of other programs' formats: see foreign_heads.h. */
#include "formats/export/foreign_heads.h"

#include "formats/model/model_files.h"
#include "lib/base/files.h"

ckvc_status model_heads_read(const char *path, model_heads *out, ckvc_err *err) {
    model_shape shape;
    *out = (model_heads){.path = path};
    if (!path) { return CKVC_OK; }
    CKVC_TRY(model_files_shape(path, &shape, err));
    out->n_layers = (uint32_t)shape.n_layers;
    out->n_query_heads = (uint32_t)shape.n_heads;
    out->n_kv_heads = (uint32_t)shape.n_kv_heads;
    memcpy(out->family, shape.family, sizeof out->family);
    return CKVC_OK;
}

ckvc_status model_heads_check(const model_heads *m, const char *path, uint64_t n_layers,
                              uint64_t n_heads, bool query, ckvc_err *err) {
    const uint32_t want = query ? m->n_query_heads : m->n_kv_heads;
    CKVC_FAIL_IF(m->path && (n_layers != m->n_layers || n_heads != want), err, CKVC_E_MISMATCH,
                 "%s: %llu layers of %llu %s heads, the model %s has %u of %u", path,
                 (unsigned long long)n_layers, (unsigned long long)n_heads, query ? "query" : "KV",
                 m->path, m->n_layers, want);
    return CKVC_OK;
}

ckvc_status expanded_check(const ckvc_table *t, const char *path, ckvc_err *err) {
    const uint64_t most = 1 << 24, n = (uint64_t)t->n_layers * t->n_query_heads * t->n_budgets;
    CKVC_REFUSE_IF(n > most, err, path,
                   "%u layers of %u query heads at %u budgets are more than %llu numbers",
                   t->n_layers, t->n_query_heads, t->n_budgets, (unsigned long long)most);
    return CKVC_OK;
}

void note_expanded(ckvc_buffer *note, const ckvc_table *t) {
    if (t->n_heads == t->n_query_heads) { return; }
    ckvc_buffer_printf(note,
                       "rows are query heads there: each of %u KV heads stands %u times, "
                       "once for every query head that reads it",
                       t->n_heads, t->n_query_heads / t->n_heads);
}

ckvc_status table_of_import(ckvc_table *table, const char *path, const char *format,
                            const model_heads *m, table_file **out, ckvc_err *err) {
    char breach[256];
    CKVC_AUTO(table_file_free_at) table_file *t = table_file_around(table, false);
    CKVC_AUTO_FREE char *name = m->path ? ckvc_path_name(m->path) : NULL;
    CKVC_REFUSE_IF(ckvc_table_check(t->table, breach, sizeof breach), err, path, "section %s",
                   breach);
    json_object_update_new(t->meta,
                           json_pack("{s:s, s:s?, s:s?, s:n, s:s, s:i}", "label", "imported",
                                     "model_name", name, "family", m->path ? m->family : NULL,
                                     "fingerprint", "alpha_kind", "paper", "keep_window", 0));
    json_object_set_new(t->meta, "imported_from", json_string(format));
    *out = ckvc_take(&t);
    return CKVC_OK;
}
