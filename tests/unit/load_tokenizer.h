/* Loads the tokenizer of a model directory or GGUF file. *err is cleared first, and *out is NULL
 * after a failure. */
#pragma once

#include <stdlib.h>

#include "formats/tokenizer/tokenizer_files.h"
#include "lib/token/tokenizer.h"

static inline ckvc_status load_tokenizer(const char *dir, tokenizer **out, ckvc_err *err) {
    token_spec *spec;
    char *path;
    *err = (ckvc_err){0};
    *out = NULL;
    ckvc_status status = tokenizer_files_read(dir, &spec, &path, err);
    if (status == CKVC_OK) { status = tokenizer_build(spec, path, out, err); }
    free(path);
    return status;
}
