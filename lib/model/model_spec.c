/* A spec's life and its list of tensors: see model_spec.h. */
#include "lib/model/model_spec.h"

#include "lib/base/files.h"

model_spec *model_spec_create(const char *path) {
    model_spec *spec = ckvc_calloc(1, sizeof *spec);
    spec->path = ckvc_strdup(path);
    spec->name = ckvc_path_name(path);
    const size_t n = strlen(spec->name);
    if (n > 5 && strcmp(spec->name + n - 5, ".gguf") == 0) { spec->name[n - 5] = '\0'; }
    return spec;
}

void model_spec_free(model_spec *spec) {
    if (!spec) { return; }
    for (size_t i = 0; i < spec->n_tensors; i++) { CKVC_FREE(spec->tensors[i].name); }
    if (spec->release) { spec->release(spec->source); }
    CKVC_FREE(spec->by_name, spec->tensors, spec->path, spec->name, spec);
}

void model_spec_add(model_spec *spec, const char *name, const tensor_view *t) {
    CKVC_GROW(spec->tensors, spec->cap_tensors, spec->n_tensors + 1);
    tensor_view *own = &spec->tensors[spec->n_tensors++];
    *own = *t;
    own->name = ckvc_strdup(name);
    if (!own->stored) { own->stored = own->name; }
}

static int by_stored_name(const void *a, const void *b) {
    return strcmp(((const tensor_view *)a)->stored, ((const tensor_view *)b)->stored);
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(const tensor_view *const *)a)->name, (*(const tensor_view *const *)b)->name);
}

ckvc_status model_spec_order(model_spec *spec, ckvc_err *err) {
    const size_t n = spec->n_tensors;
    spec->by_name = ckvc_alloc(n, sizeof *spec->by_name);
    if (n) { qsort(spec->tensors, n, sizeof *spec->tensors, by_stored_name); }
    for (size_t i = 0; i < n; i++) { spec->by_name[i] = &spec->tensors[i]; }
    qsort(spec->by_name, n, sizeof *spec->by_name, by_name);
    for (size_t i = 1; i < n; i++) {
        const tensor_view *a = spec->by_name[i - 1], *b = spec->by_name[i];
        CKVC_FAIL_IF(strcmp(a->name, b->name) == 0, err, CKVC_E_DATA,
                     "%s: tensor \"%s\" is in %s too", b->file, b->stored, a->file);
    }
    return CKVC_OK;
}

const tensor_view *model_spec_find(const model_spec *spec, const char *name) {
    const tensor_view wanted = {.name = name}, *key = &wanted;
    const tensor_view *const *hit =
        bsearch(&key, spec->by_name, spec->n_tensors, sizeof *spec->by_name, by_name);
    return hit ? *hit : NULL;
}
