/* The weights of a Hugging Face model directory: model.safetensors, or several files through
 * model.safetensors.index.json (SAFE_WEIGHTS_NAME and SAFE_WEIGHTS_INDEX_NAME of transformers'
 * utils). Memory-mapped. */
#ifndef CKVC_SAFETENSORS_H
#define CKVC_SAFETENSORS_H

#include "lib/model/model_spec.h"

/* Adds the tensors to a spec that has none yet. Refused is what breaks a rule of the format: a
 * header over 100 MB, duplicate keys, spans that do not cover the file from the header to its end
 * without hole or overlap, shape x type != span, names in the index that are no plain file names.
 */
ckvc_status safetensors_read(const char *dir, model_spec *spec, ckvc_err *err) CKVC_MUST_CHECK;

#endif
