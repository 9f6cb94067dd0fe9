/* What a model is, as plain data: its shape and its weights by name. Readers in formats/model fill
 * it, model_open runs it. No files here: the bytes of the weights belong to the reader that
 * mapped them, who leaves with the spec what releases them.
 *
 * Names are those of Hugging Face's modules: of InternLM2's own for that family, of Llama's and
 * Qwen2's for all others. Every rule of the file's format is checked before a spec is handed out;
 * that the tensors fit the shape is checked when it is opened (model_tensors.h). */
#ifndef CKVC_MODEL_SPEC_H
#define CKVC_MODEL_SPEC_H

#include "lib/base/memory.h"
#include "lib/base/status.h"
#include "lib/model/model_shape.h"
#include "lib/model/tensor.h"

typedef struct model_spec {
    char *path; /* of the folder or file, for messages */
    char *name; /* its last component, without .gguf */
    model_shape shape;
    const char *fingerprint_kind; /* first line of the fingerprint: its scheme (formats.md) */
    /* [n_tensors]; names are owned, stored names and files are the source's. Unordered, and not to
     * be found by name, until model_spec_order. */
    tensor_view *tensors;
    size_t n_tensors, cap_tensors;
    const tensor_view **by_name; /* [n_tensors] in byte order of names */
    /* What the views look into, released with the spec. */
    void *source;
    void (*release)(void *source);
} model_spec;

model_spec *model_spec_create(const char *path); /* without tensors */
void model_spec_free(model_spec *spec);          /* the spec and all it owns; NULL is fine */
/* One tensor more: t under this name, which is copied; stored NULL: that is the stored one too. */
void model_spec_add(model_spec *spec, const char *name, const tensor_view *t);
/* The last step of a reader: puts the tensors into byte order of their stored names; a name that is
 * there twice is refused. */
ckvc_status model_spec_order(model_spec *spec, ckvc_err *err) CKVC_MUST_CHECK;
const tensor_view *model_spec_find(const model_spec *spec, const char *name); /* NULL: not there */

CKVC_AUTO_OF(model_spec, model_spec_free)

#endif
