/* A GGUF file as a model: its metadata as a shape, its tensors under the runtime's names. */
#ifndef CKVC_GGUF_MODEL_H
#define CKVC_GGUF_MODEL_H

#include "formats/model/gguf.h"
#include "lib/model/model_spec.h"

/* Keys "llama.*" and "qwen2.*" of ggml's docs/gguf.md and llama.cpp's gguf-py/gguf/constants.py;
 * what their numbers mean is what llama.cpp's convert_hf_to_gguf.py wrote there. What we do not run
 * is refused by the name of its key or tensor. */
ckvc_status gguf_shape(const gguf *g, model_shape *out, ckvc_err *err) CKVC_MUST_CHECK;
/* Opens the file, and fills the spec's shape and tensors. */
ckvc_status gguf_model_read(const char *path, model_spec *spec, ckvc_err *err) CKVC_MUST_CHECK;

#endif
