/* How files, keys and folders are refused: see model_readers.h. */
#include "formats/model/model_readers.h"

#include <dirent.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>

ckvc_status refuse_at(reading *r, uint64_t at, const char *fmt, ...) {
    char place[32] = "", what[sizeof r->err->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (at != NO_PLACE) { snprintf(place, sizeof place, "byte %" PRIu64 ": ", at); }
    if (r->status == CKVC_OK) { r->status = CKVC_E_DATA; }
    return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s%s", r->path, place, what);
}

ckvc_status key_check(reading *r, const key_rule *rules, const char *key, const char *word,
                      double value, const char *text, ckvc_buffer *unknown) {
    CKVC_AUTO_FREE char *spaced = ckvc_format(" %s ", word);
    const key_rule *rule = rules;
    while (rule->keys && (strchr(word, ' ') || !strstr(rule->keys, spaced))) { rule++; }
    MUST(r, !rule->why || value == rule->plain, "%s (%s) is not supported: %s", key, text,
         rule->why);
    if (!rule->keys && unknown->size < 400) { /* keeps the line from becoming too long */
        ckvc_buffer_printf(unknown, "%s%.60s", unknown->size ? ", " : "", key);
    }
    return CKVC_OK;
}

void warn_of_keys(const reading *r, const ckvc_buffer *unknown) {
    if (unknown->size == 0) { return; }
    ckvc_warn("%s: keys that are not known were passed over: %s; where one changes what the model "
              "computes, it is run as another model: compare its losses (ckvc perplexity)",
              r->path, (const char *)unknown->data);
}

#define PYTORCH                                                                                    \
    "PyTorch's weights, which are not read: load them in transformers and save_pretrained(NEW)"
/* Files by which one recognises a folder that holds no model as we read it, in this order, and what
 * to do about it. */
static const char *const in_place[][2] = {
    {"adapter_config.json", "an adapter of another model: merge the two (PEFT: merge_and_unload, "
                            "save_pretrained) and give that folder"},
    {"*.gguf", "a GGUF file: give the file itself as the model"},
    {"snapshots", "the Hub's cache, where the model is a folder in it"},
    {"model_index.json", "a model of images, which is not read"},
    {"pytorch_model*.bin", PYTORCH},
    {"consolidated*.pth", PYTORCH},
    {"*onnx*", "weights in ONNX, which are not read: get the safetensors files"},
};

char *model_folder_holds(const char *folder) {
    struct dirent **names;
    char *said = NULL;
    const int n = scandir(folder, &names, NULL, alphasort);
    for (size_t k = 0; k < sizeof in_place / sizeof *in_place; k++) {
        for (int i = 0; i < n && !said; i++) {
            if (fnmatch(in_place[k][0], names[i]->d_name, 0) == 0) {
                said =
                    ckvc_format("; it holds %s/%s, %s", folder, names[i]->d_name, in_place[k][1]);
            }
        }
    }
    for (int i = 0; i < n; i++) { free(names[i]); }
    if (n >= 0) { free(names); }
    return said ? said : ckvc_strdup("");
}
