/* Finds out which files a model has: see model_files.h. */
#include "formats/model/model_files.h"

#include "formats/model/gguf.h"
#include "formats/model/model_readers.h"
#include "lib/base/files.h"

/* Whether a path looks like "meta-llama/Llama-3.2-1B": an owner that is not a folder here, and a
 * name, of the characters that the Hub allows. */
static bool looks_like_hub_id(const char *path) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    CKVC_AUTO_FREE char *owner = ckvc_path_dir(path);
    const size_t n = strspn(path, allowed);
    const char *name = path + n + 1;
    return n > 0 && path[n] == '/' && *name && name[strspn(name, allowed)] == '\0' &&
           !strstr(name, ".gguf") && !ckvc_is_dir(owner);
}

ckvc_status model_path_check(const char *path, ckvc_err *err) {
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer.model",
                                        "vocab.json"};
    bool has_own = false; /* some callers need only a tokenizer */
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        CKVC_AUTO_FREE char *file = ckvc_path_join(path, files[i]);
        has_own = has_own || ckvc_file_exists(file);
    }
    CKVC_AUTO_FREE char *held = has_own ? ckvc_strdup("") : model_folder_holds(path);
    CKVC_FAIL_IF(*held, err, CKVC_E_NOINPUT, "%s: a folder without config.json%s", path, held);
    if (ckvc_file_exists(path)) { return CKVC_OK; }
    CKVC_FAIL_IF(!looks_like_hub_id(path), err, CKVC_E_NOINPUT,
                 "%s: no such folder or file; want a Hugging Face model folder or a GGUF file",
                 path);
    return ckvc_fail(err, CKVC_E_NOINPUT,
                     "%s: no such folder or file; a model of the Hugging Face Hub is downloaded "
                     "first: hf download %s --local-dir DIR, then --model DIR",
                     path, path);
}

ckvc_status model_files_shape(const char *path, model_shape *out, ckvc_err *err) {
    CKVC_TRY(model_path_check(path, err));
    if (!gguf_is_file(path)) { return model_config_read(path, out, err); }
    CKVC_AUTO(gguf_close_at) gguf *g = NULL;
    CKVC_TRY(gguf_open(path, &g, err));
    return gguf_shape(g, out, err);
}

/* Marks what the rows and values of a family's tensors are, as their file does not say it. */
static void mark_tensors(model_spec *spec) {
    const model_shape *s = &spec->shape;
    for (tensor_view *t = spec->tensors; t < spec->tensors + spec->n_tensors; t++) {
        if (s->rope_dims && strstr(t->name, ".qkv_proj.")) {
            t->partial =
                (struct partial_rows){.rows = (int64_t)(s->n_heads + s->n_kv_heads) * s->head_dim,
                                      .head = s->head_dim,
                                      .rotated = s->rope_dims};
        }
        /* Gemma3RMSNorm.forward multiplies by 1 + weight; GGUF files store the sum */
        const size_t n = strlen(t->name);
        if (s->post_norms && n > 11 && strcmp(t->name + n - 11, "norm.weight") == 0) {
            t->plus = 1.0f;
        }
    }
}

ckvc_status model_files_read(const char *path, model_spec **out, ckvc_err *err) {
    *out = NULL;
    CKVC_TRY(model_path_check(path, err));
    CKVC_AUTO(model_spec_free_at) model_spec *spec = model_spec_create(path);
    if (gguf_is_file(path)) {
        CKVC_TRY(gguf_model_read(path, spec, err));
    } else {
        CKVC_TRY(model_config_read(path, &spec->shape, err));
        CKVC_TRY(safetensors_read(path, spec, err));
        mark_tensors(spec);
    }
    *out = ckvc_take(&spec);
    return CKVC_OK;
}
