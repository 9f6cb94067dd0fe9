/* Finds out which tokenizer files a model has. */
#include "formats/tokenizer/tokenizer_files.h"

#include "formats/model/gguf.h"
#include "formats/model/model_files.h"
#include "formats/tokenizer/tokenizer_readers.h"
#include "lib/base/files.h"

/* tokenizer.model is SentencePiece's name, which Llama-3 kept for its tiktoken file. */
static ckvc_status model_file_read(token_reader *r) {
    CKVC_AUTO(ckvc_map_close) ckvc_map map = {0};
    CKVC_TRY(ckvc_map_open(r->path, &map, r->err));
    REFUSE_IF(r, map.size > TOKENIZER_MAX_BYTES, "%llu bytes; at most %d are read",
              (unsigned long long)map.size, TOKENIZER_MAX_BYTES);
    return (tiktoken_looks_like(&map) ? tiktoken_read : sentencepiece_read)(r, &map);
}

ckvc_status tokenizer_files_read(const char *model, token_spec **out, char **path, ckvc_err *err) {
    static const struct {
        const char *name;
        ckvc_status (*read)(token_reader *r);
    } files[] = {{"tokenizer.json", tokenizer_json_read},
                 {"tokenizer.model", model_file_read},
                 {"vocab.json", vocab_merges_read}};
    CKVC_AUTO(token_spec_free_at) token_spec *spec = ckvc_calloc(1, sizeof *spec);
    CKVC_AUTO_FREE char *file = gguf_is_file(model) ? ckvc_strdup(model) : NULL;
    ckvc_status (*read)(token_reader * r) = file ? tokenizer_gguf_read : NULL;
    *out = NULL;
    *path = NULL;
    CKVC_TRY(model_path_check(model, err));
    spec->unk_id = -1;
    for (size_t i = 0; !read && i < sizeof files / sizeof *files; i++) {
        free(file);
        file = ckvc_path_join(model, files[i].name);
        read = ckvc_file_exists(file) ? files[i].read : NULL;
    }
    CKVC_FAIL_IF(!read, err, CKVC_E_NOINPUT,
                 "%s: no tokenizer.json, tokenizer.model or vocab.json; give prompts as "
                 "\"tokens\", or a model directory with a tokenizer",
                 model);
    CKVC_AUTO(token_config_fini) token_config config = {0};
    token_reader r = {.model = model, .path = file, .config = &config, .spec = spec, .err = err};
    if (read != tokenizer_gguf_read) {
        CKVC_TRY(token_config_read(&r, &config));
        CKVC_TRY(token_config_chat(&r));
    }
    CKVC_TRY(read(&r));
    *out = ckvc_take(&spec);
    *path = ckvc_take(&file);
    return CKVC_OK;
}
