/* A GGUF file: as a model (shape and tensors, decoded), and as a tokenizer. */
#include "formats/model/model_files.h"
#include "tests/fuzz/fuzz_tokens.h"

FUZZ {
    const char *path = fuzz_file("model.gguf", data, size);
    fuzz_tokens(path, err);
    CKVC_AUTO(model_spec_free_at) model_spec *spec = NULL;
    if (!fuzz_took(model_files_read(path, &spec, err), err)) { return; }
    must(spec->shape.n_layers > 0 && spec->shape.n_layers <= MODEL_LAYERS_MAX);
    must(model_shape_context(&spec->shape) > 0 && model_shape_parameters(&spec->shape) > 0);
    for (size_t i = 0; i < spec->n_tensors; i++) {
        const tensor_view *t = &spec->tensors[i];
        const tensor_block block = tensor_block_of(t->type);
        float values[TENSOR_BLOCK_VALUES];
        fuzz_touch(t->data, t->bytes);
        must(block.values <= TENSOR_BLOCK_VALUES);
        if (block.values) {
            must(t->bytes >= block.bytes && t->bytes % block.bytes == 0);
            tensor_decode(t, (int64_t)(t->bytes / block.bytes - 1) * block.values, block.values,
                          values);
        }
    }
}
