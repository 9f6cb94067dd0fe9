/* Inside of formats: the list that the readers of weight files fill and weights.c answers from. */
#ifndef CKVC_WEIGHTS_LIST_H
#define CKVC_WEIGHTS_LIST_H

#include "formats/model/gguf.h"
#include "formats/model/weights.h"
#include "lib/base/files.h"

typedef struct weights_file {
    char *path;
    ckvc_map map;
} weights_file;

struct weights {
    weights_file *files; /* of a directory */
    size_t n_files, cap_files;
    gguf *container;      /* of a GGUF file; NULL for a directory */
    tensor_view *tensors; /* names are owned, stored names are these or the container's */
    size_t n_tensors, cap_tensors;
    const tensor_view **by_name; /* [n_tensors] in byte order of names */
};

/* Puts the list in order; a name that is there twice is refused. The last step of a reader. */
ckvc_status weights_sort(weights *w, ckvc_err *err) CKVC_MUST_CHECK;

/* model.safetensors, or several files through model.safetensors.index.json (a header <= 100 MB, no
 * duplicate keys, contiguous spans from 0 to the end of the file, shape x type = span, plain file
 * names in the index). */
ckvc_status safetensors_load(const char *dir, weights *w, ckvc_err *err) CKVC_MUST_CHECK;
/* A GGUF file of an architecture that we run. */
ckvc_status gguf_load(const char *path, weights *w, ckvc_err *err) CKVC_MUST_CHECK;

#endif
