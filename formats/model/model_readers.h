/* Private to formats/model: its readers. What we do not run is refused by the name of its key or
 * tensor. */
#pragma once

#include "lib/model/model_spec.h"
#include "lib/base/bytes.h"
#include "lib/base/json.h"
#include "lib/base/status.h"

/* A file that is being read, and the way in which all readers of formats/model and
 * formats/tokenizer refuse it. */
typedef struct reading {
    const char *path; /* borrowed */
    ckvc_err *err;
    ckvc_cursor c; /* the file's bytes, or the current part of them; not used for config.json */
    /* The status of the first failure. Functions that read single values do nothing after it, so it
     * is tested once. */
    ckvc_status status;
} reading;
#define NO_PLACE UINT64_MAX
/* Fails with CKVC_E_DATA and the line "PATH: ..." or "PATH: byte AT: ...". */
ckvc_status refuse_at(reading *r, uint64_t at, const char *fmt, ...) CKVC_PRINTF(3, 4);
#define refuse(r, ...) refuse_at((r), NO_PLACE, __VA_ARGS__)
/* States a rule of the format. The function, which must return a ckvc_status, returns with a
 * failure where the rule does not hold. After an earlier failure, whose text stays, it may look at
 * values that were never read. */
#define MUST_AT(r, at, holds, ...)                                                                 \
    do {                                                                                           \
        if (!(holds)) { return refuse_at((r), (at), __VA_ARGS__); }                                \
    } while (0)
#define MUST(r, holds, ...) MUST_AT((r), NO_PLACE, holds, __VA_ARGS__)

/* What keys of a file mean. why NULL: they are read, or no loss depends on them. Else `why` says in
 * what a network with this key differs from those we run, unless the value is `plain`. keys: words
 * with a space before and after each. NULL ends the table. */
typedef struct key_rule {
    const char *keys;
    double plain;
    const char *why;
} key_rule;
/* Refuses a key by the rule that has the word for it; a key without a rule is added to `unknown`.
 * value is in the form of `plain`, NaN where it has none; text is the value for the message. */
ckvc_status key_check(reading *r, const key_rule *rules, const char *key, const char *word,
                      double value, const char *text, ckvc_buffer *unknown) CKVC_MUST_CHECK;
void warn_of_keys(const reading *r, const ckvc_buffer *unknown); /* in one line, if there are any */

/* Reads config.json of a Hugging Face model directory into a shape. The families (model_type) are
 * llama, mistral, qwen2, qwen3, phi3 and gemma3_text, as transformers' configuration_*.py and
 * modeling_*.py of these names have them, and internlm2 as in the configuration_internlm2.py and
 * modeling_internlm2.py that its directories contain (transformers has no class for it). Keys may
 * be of the old or the new style (rope_theta and rope_scaling, or rope_parameters; torch_dtype or
 * dtype); missing keys have the config classes' own defaults. Every field is within the limits of
 * model_spec.h. */
ckvc_status model_config_read(const char *dir, model_shape *out, ckvc_err *err) CKVC_MUST_CHECK;

/* Returns "; it holds FILE, WHAT IT IS" for a folder whose model we do not read, or "", to be
 * appended to a message that a file is missing. The caller frees it. */
char *model_folder_holds(const char *folder);

/* Reads the weights of a directory into a spec without tensors: model.safetensors, or several files
 * through model.safetensors.index.json (SAFE_WEIGHTS_NAME and SAFE_WEIGHTS_INDEX_NAME of
 * transformers' utils), mapped. It refuses whatever breaks a rule of the format: a header over 100
 * MB, duplicate keys, spans that do not cover the file from the header to its end without hole or
 * overlap, shape x type != span, names in the index that are not plain file names. */
ckvc_status safetensors_read(const char *dir, model_spec *spec, ckvc_err *err) CKVC_MUST_CHECK;

/* Reads the metadata of a GGUF file into a shape: the keys "llama.*", "qwen2.*", "qwen3.*" and
 * "gemma3.*" of ggml's docs/gguf.md and llama.cpp's gguf-py/gguf/constants.py. Their numbers mean
 * what llama.cpp's convert_hf_to_gguf.py wrote. */
struct gguf; /* see gguf.h, whose reader refuses in the way defined above */
ckvc_status gguf_shape(const struct gguf *g, model_shape *out, ckvc_err *err) CKVC_MUST_CHECK;
/* Opens the file and fills a spec's shape and tensors. */
ckvc_status gguf_model_read(const char *path, model_spec *spec, ckvc_err *err) CKVC_MUST_CHECK;
