/* The door of formats/model: what lies at a path, a Hugging Face model directory (config.json and
 * safetensors) or a GGUF file, as plain data. */
#pragma once

#include "lib/model/model_spec.h"

/* Shape and weights; *out is the caller's (model_spec_free, or handed to model_open). Headers and
 * metadata are read and checked, the weights mapped. CKVC_E_NOINPUT where there is nothing; of what
 * looks like a Hub id the message says how to download it, of a folder of GGUF files to name one.
 */
ckvc_status model_files_read(const char *path, model_spec **out, ckvc_err *err) CKVC_MUST_CHECK;
/* The shape alone. */
ckvc_status model_files_shape(const char *path, model_shape *out, ckvc_err *err) CKVC_MUST_CHECK;
/* Those two messages alone: CKVC_OK where the path is neither. */
ckvc_status model_path_check(const char *path, ckvc_err *err) CKVC_MUST_CHECK;
