/* The interface of formats/model: reads what lies at a path, a Hugging Face model directory
 * (config.json and safetensors) or a GGUF file, as plain data. */
#pragma once

#include "lib/model/model_spec.h"

/* Reads shape and weights. The caller frees *out (model_spec_free) or hands it to model_open.
 * Headers and metadata are read and checked; the weights are mapped. CKVC_E_NOINPUT where there is
 * nothing. For a path that looks like a Hub id the message says how to download it, and for a
 * folder of GGUF files to name one of them. */
ckvc_status model_files_read(const char *path, model_spec **out, ckvc_err *err) CKVC_MUST_CHECK;
/* Reads the shape alone. */
ckvc_status model_files_shape(const char *path, model_shape *out, ckvc_err *err) CKVC_MUST_CHECK;
/* Gives these two messages alone: CKVC_OK where the path is neither. */
ckvc_status model_path_check(const char *path, ckvc_err *err) CKVC_MUST_CHECK;
