/* model.safetensors of a directory: the header, and that every tensor lies in the file. */
#include "formats/model/model_readers.h"
#include "tests/fuzz/fuzz.h"

FUZZ {
    fuzz_file("model.safetensors", data, size);
    CKVC_AUTO(model_spec_free_at) model_spec *spec = model_spec_create(fuzz_folder());
    if (!fuzz_took(safetensors_read(fuzz_folder(), spec, err), err)) { return; }
    uint64_t bytes = 0;
    for (size_t i = 0; i < spec->n_tensors; i++) {
        const tensor_view *t = &spec->tensors[i];
        char dims[TENSOR_DIMS_TEXT];
        must(model_spec_find(spec, t->name) && *tensor_dims(t->dims, t->rank, dims) == '[');
        fuzz_touch(t->data, t->bytes);
        bytes += t->bytes;
    }
    must(bytes < size);
}
