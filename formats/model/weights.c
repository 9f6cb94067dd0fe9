/* The list of weights, whichever reader filled it. */
#include "formats/model/weights.h"

#include <stdlib.h>
#include <string.h>

#include "formats/model/weights_list.h"
#include "lib/base/memory.h"

static int by_stored_name(const void *a, const void *b) {
    return strcmp(((const tensor_view *)a)->stored, ((const tensor_view *)b)->stored);
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(const tensor_view *const *)a)->name, (*(const tensor_view *const *)b)->name);
}

ckvc_status weights_sort(weights *w, ckvc_err *err) {
    w->by_name = ckvc_alloc(w->n_tensors, sizeof *w->by_name);
    if (w->n_tensors > 1) { qsort(w->tensors, w->n_tensors, sizeof *w->tensors, by_stored_name); }
    for (size_t i = 0; i < w->n_tensors; i++) {
        w->by_name[i] = &w->tensors[i];
    }
    if (w->n_tensors > 1) { qsort(w->by_name, w->n_tensors, sizeof *w->by_name, by_name); }
    for (size_t i = 1; i < w->n_tensors; i++) {
        const tensor_view *a = w->by_name[i - 1], *b = w->by_name[i];
        if (strcmp(a->name, b->name) == 0) {
            return ckvc_fail(err, CKVC_E_DATA, "%s: tensor \"%s\" is in %s too", b->file, b->stored,
                             a->file);
        }
    }
    return CKVC_OK;
}

ckvc_status weights_open(const char *path, weights **out, ckvc_err *err) {
    *out = NULL;
    weights *w = ckvc_calloc(1, sizeof *w);
    ckvc_status st = gguf_is_file(path) ? gguf_load(path, w, err) : safetensors_load(path, w, err);
    if (st != CKVC_OK) {
        weights_close(w);
        return st;
    }
    *out = w;
    return CKVC_OK;
}

void weights_close(weights *w) {
    if (w == NULL) { return; }
    for (size_t i = 0; i < w->n_tensors; i++) {
        free((char *)(uintptr_t)w->tensors[i].name);
    }
    for (size_t i = 0; i < w->n_files; i++) {
        ckvc_map_close(&w->files[i].map);
        free(w->files[i].path);
    }
    gguf_close(w->container);
    free(w->by_name);
    free(w->tensors);
    free(w->files);
    free(w);
}

size_t weights_count(const weights *w) {
    return w->n_tensors;
}

const tensor_view *weights_at(const weights *w, size_t i) {
    return &w->tensors[i];
}

const char *weights_fingerprint_kind(const weights *w) {
    return w->container ? "ckvc-model-gguf-1\n" : "ckvc-model-1\n";
}

static int name_against(const void *name, const void *entry) {
    return strcmp(name, (*(const tensor_view *const *)entry)->name);
}

const tensor_view *weights_find(const weights *w, const char *name) {
    const tensor_view *const *hit =
        w->n_tensors ? bsearch(name, w->by_name, w->n_tensors, sizeof *w->by_name, name_against)
                     : NULL;
    return hit ? *hit : NULL;
}
