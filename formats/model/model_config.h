/* config.json of a Hugging Face model directory -> the shape that the runtime runs.
 *
 * Families (model_type): llama, mistral, qwen2 as transformers' configuration_*.py and
 * modeling_*.py of these names have them, and internlm2 as the configuration_internlm2.py and
 * modeling_internlm2.py that its directories carry (transformers has no class for it).
 */
#ifndef CKVC_MODEL_CONFIG_H
#define CKVC_MODEL_CONFIG_H

#include "lib/base/status.h"
#include "lib/model/model_shape.h"

/* Reads dir/config.json, old or new style keys (rope_theta and rope_scaling, or rope_parameters;
 * torch_dtype or dtype). Defaults of missing keys are the config classes' own (configuration_*.py).
 * What we do not run is refused by name. Every field is within the caps of model_shape.h. */
ckvc_status model_config_read(const char *dir, model_shape *out, ckvc_err *err) CKVC_MUST_CHECK;

#endif
