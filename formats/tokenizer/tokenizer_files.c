/* Which tokenizer files a model has. */
#include "formats/tokenizer/tokenizer_files.h"

#include <stdlib.h>
#include <string.h>

#include "formats/model/gguf.h"
#include "formats/tokenizer/sentencepiece.h"
#include "formats/tokenizer/tiktoken.h"
#include "formats/tokenizer/tokenizer_gguf.h"
#include "formats/tokenizer/tokenizer_json.h"
#include "formats/tokenizer/vocab_merges.h"
#include "lib/base/files.h"
#include "lib/base/memory.h"

/* tokenizer.model is SentencePiece's name, which Llama-3 kept for its tiktoken file. */
static ckvc_status read_either(const char *model_dir, const char *path, token_spec **out,
                               ckvc_err *err) {
    ckvc_map map;
    ckvc_status status = ckvc_map_open(path, &map, err);
    if (status != CKVC_OK) { return status; }
    bool ranks = tiktoken_looks_like(map.data, map.size);
    ckvc_map_close(&map);
    return ranks ? tiktoken_read(model_dir, out, err) : sentencepiece_read(model_dir, out, err);
}

/* A GGUF file holds its tokenizer in its metadata. */
static ckvc_status read_gguf(const char *file, token_spec **out, char **path, ckvc_err *err) {
    *path = ckvc_strdup(file);
    if (!*path) { return ckvc_fail_memory(err, "a path", strlen(file)); }
    ckvc_status status = tokenizer_gguf_read(file, out, err);
    if (status != CKVC_OK) {
        free(*path);
        *path = NULL;
    }
    return status;
}

ckvc_status tokenizer_files_read(const char *model_dir, token_spec **out, char **path,
                                 ckvc_err *err) {
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "vocab.json"};
    *out = NULL;
    *path = NULL;
    if (gguf_is_file(model_dir)) { return read_gguf(model_dir, out, path, err); }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *file = ckvc_path_join(model_dir, names[i]);
        if (!ckvc_file_exists(file)) {
            free(file);
            continue;
        }
        ckvc_status status = i == 0   ? tokenizer_json_read(model_dir, out, err)
                             : i == 1 ? read_either(model_dir, file, out, err)
                                      : vocab_merges_read(model_dir, out, err);
        if (status != CKVC_OK) {
            free(file);
            return status;
        }
        *path = file;
        return CKVC_OK;
    }
    return ckvc_fail(err, CKVC_E_NOINPUT,
                     "%s: no tokenizer.json, tokenizer.model or vocab.json; give prompts as "
                     "\"tokens\", or a model directory with a "
                     "tokenizer",
                     model_dir);
}
