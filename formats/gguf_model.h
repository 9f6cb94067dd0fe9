/* A GGUF file as a model: its metadata as a model_shape. Its tensors come through weights.h. */
#ifndef CKVC_GGUF_MODEL_H
#define CKVC_GGUF_MODEL_H

#include "formats/model_config.h"
#include "lib/base/status.h"

/* Architectures llama and qwen2. What we do not run is refused by the name of its key or tensor. */
ckvc_status gguf_shape_read(const char *path, model_shape *out, ckvc_err *err) CKVC_MUST_CHECK;

#endif
