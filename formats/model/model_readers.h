/* Inside of formats/model: its readers. What we do not run is refused by the name of its key or
 * tensor. */
#pragma once

#include "lib/model/model_spec.h"
#include "lib/base/bytes.h"
#include "lib/base/json.h"
#include "lib/base/status.h"

/* A file while it is read, and how all readers of formats/model and formats/tokenizer refuse it. */
typedef struct reading {
    const char *path; /* borrowed */
    ckvc_err *err;
    ckvc_cursor c; /* the file's bytes, or the part of them in hand; unused of config.json */
    /* Of the first failure: readers of single values do nothing after it, and it is tested once. */
    ckvc_status status;
} reading;
#define NO_PLACE UINT64_MAX
/* CKVC_E_DATA with the line "PATH: ..." or "PATH: byte AT: ...". */
ckvc_status refuse_at(reading *r, uint64_t at, const char *fmt, ...) CKVC_PRINTF(3, 4);
#define refuse(r, ...) refuse_at((r), NO_PLACE, __VA_ARGS__)
/* A rule of the format: leaves a function that returns a ckvc_status where it does not hold. After
 * an earlier failure, whose text stays, it may see values that are none. */
#define MUST_AT(r, at, holds, ...)                                                                 \
    do {                                                                                           \
        if (!(holds)) { return refuse_at((r), (at), __VA_ARGS__); }                                \
    } while (0)
#define MUST(r, holds, ...) MUST_AT((r), NO_PLACE, holds, __VA_ARGS__)

/* What keys of a file mean. why NULL: they are read, or no loss depends on them. Else `why` says
 * how a network differs from those we run where the value is not `plain`. keys: words, a space
 * before and behind each; NULL ends the table. */
typedef struct key_rule {
    const char *keys;
    double plain;
    const char *why;
} key_rule;
/* Refuses a key by the rule for the word that names it; one without a rule goes to `unknown`. value
 * as `plain`, NaN where it is no such thing; text: the same for the message. */
ckvc_status key_check(reading *r, const key_rule *rules, const char *key, const char *word,
                      double value, const char *text, ckvc_buffer *unknown) CKVC_MUST_CHECK;
void warn_of_keys(const reading *r, const ckvc_buffer *unknown); /* in one line, if there are any */

/* config.json of a Hugging Face model directory -> shape. Families (model_type): llama, mistral,
 * qwen2, qwen3, phi3, gemma3_text as transformers' configuration_*.py and modeling_*.py of these
 * names have them, and internlm2 as the configuration_internlm2.py and modeling_internlm2.py that
 * its directories carry (transformers has no class for it). Old or new style keys (rope_theta and
 * rope_scaling, or rope_parameters; torch_dtype or dtype); defaults of missing keys are the config
 * classes' own. Every field is within the caps of model_spec.h. */
ckvc_status model_config_read(const char *dir, model_shape *out, ckvc_err *err) CKVC_MUST_CHECK;

/* "; it holds FILE, WHAT IT IS" of a folder whose model we do not read, or "": what a message that
 * a file is missing goes on with. The caller's to free. */
char *model_folder_holds(const char *folder);

/* The weights of a directory -> a spec without tensors: model.safetensors, or several files through
 * model.safetensors.index.json (SAFE_WEIGHTS_NAME and SAFE_WEIGHTS_INDEX_NAME of transformers'
 * utils), mapped. Refused is what breaks a rule of the format: a header over 100 MB, duplicate
 * keys, spans that do not cover the file from the header to its end without hole or overlap, shape
 * x type != span, names in the index that are no plain file names. */
ckvc_status safetensors_read(const char *dir, model_spec *spec, ckvc_err *err) CKVC_MUST_CHECK;

/* Metadata of a GGUF file -> shape: keys "llama.*", "qwen2.*", "qwen3.*" and "gemma3.*" of ggml's
 * docs/gguf.md and llama.cpp's gguf-py/gguf/constants.py; what their numbers mean is what
 * llama.cpp's convert_hf_to_gguf.py wrote there. */
struct gguf; /* gguf.h, whose reader refuses with what is below */
ckvc_status gguf_shape(const struct gguf *g, model_shape *out, ckvc_err *err) CKVC_MUST_CHECK;
/* Opens the file, and fills a spec's shape and tensors. */
ckvc_status gguf_model_read(const char *path, model_spec *spec, ckvc_err *err) CKVC_MUST_CHECK;
