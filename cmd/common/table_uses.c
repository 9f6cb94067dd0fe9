/* Lines that use a table: see table_uses.h. */
#include "cmd/common/table_uses.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "cmd/common/json_text.h"
#include "cmd/common/shipped_tables.h"
#include "lib/base/files.h"

/* The lines hold braces and quotes, so they are put in as texts. */
static const char bytes_form[] =
    "bytes: the table has {table/1000000:.1f} MB; of a prompt's cache, {token/1000:.1f} kB a token "
    "in 16 bits, it keeps{keeps#{,,} {.}}\n",
                  lines_form[] =
                      "\n# in Python, a whole program (python/README.md)\n{python#{.}\n}"
                      "{vllm&\n# in vLLM (docs/vllm.md)\n{.}\n}"
                      "{llama?\n# in llama.cpp, a whole program; it needs the C library, "
                      "export CKVC_LIBRARY=build/release/libckvc_policy.so "
                      "(python/README.md#llamacpp)\n}{llama#{.}\n}"
                      "{other&\n# {.}\n}\n";

/* Whether what block b of the table recommends reads no attention, as engines need that have
 * none. */
static bool reads_no_attention(const ckvc_table *t, uint32_t b) {
    return t->score && t->theta && ckvc_score_learns(t->score[b].kind) && t->score[b].features == 2;
}

/* Whether all heads of a layer keep as many positions, as vLLM's pages hold them. */
static bool fits_pages(const ckvc_table *t, uint32_t b) {
    return t->score[b].mode == CKVC_MODE_LENGTHS || (t->c_min && t->c_min[b].floor >= 1.0);
}

/* The block whose lines are given. The largest budget loses the least, so it is tried first. */
static uint32_t largest_budget(const ckvc_table *t) {
    uint32_t largest = 0;
    for (uint32_t b = 1; b < t->n_budgets; b++) {
        largest = t->budgets[b] > t->budgets[largest] ? b : largest;
    }
    return largest;
}

/* A number in ten digits or, where they are not read back as it, in more: an engine knows a block
 * by its very budget, and budgets of --bytes are no round numbers. The caller frees it. */
static char *exact_number(double x) {
    char *text = NULL;
    for (int digits = 10; digits <= 17 && !(text && strtod(text, NULL) == x); digits++) {
        free(text);
        text = ckvc_format("%.*g", digits, x);
    }
    return text;
}

/* What block b keeps of a prompt's cache. A token's keys and values have token_bytes bytes; 0: this
 * is not known. The caller frees it. */
static char *what_is_kept(const table_file *f, uint32_t b, double token_bytes) {
    const double budget = f->table->budgets[b],
                 bytes = f->table->byte_share ? f->table->byte_share[b] : 0,
                 share = bytes > 0 ? bytes : budget;
    CKVC_AUTO_FREE char *size = token_bytes > 0 && share < 1
                                    ? ckvc_format(" (%.3g kB a token)", share * token_bytes / 1000)
                                    : ckvc_strdup("");
    char formats[CACHE_FORMATS_TEXT];
    if (bytes > 0) {
        return ckvc_format("a share of %.10g%s: %.3g of the entries, in %s", bytes, size, budget,
                           cache_formats_name(table_file_held(f, b), formats));
    }
    return budget < 1 ? ckvc_format("a share of %g%s", budget, size)
                      : ckvc_format("%g tokens in every layer", budget);
}

static bool is_gguf(const char *model) {
    const size_t n = strlen(model);
    return n > 5 && strcmp(model + n - 5, ".gguf") == 0;
}

/* The lines of a program that writes under the table at `path`, by a budget or a share of the
 * bytes. transformers names a GGUF file apart from its folder. New reference. */
static json_t *python_program(const char *model, const char *path, const char *what,
                              const char *number) {
    CKVC_AUTO_FREE char *folder = ckvc_path_dir(model), *file = ckvc_path_name(model),
                        *of = is_gguf(model) ? ckvc_format("\"%s\", gguf_file=\"%s\"", folder, file)
                                             : ckvc_format("\"%s\"", model),
                        *load = ckvc_format("model = AutoModelForCausalLM.from_pretrained(%s)", of),
                        *words = ckvc_format("tokenizer = AutoTokenizer.from_pretrained(%s)", of),
                        *with = ckvc_format("with ckvc.hf.compress(model, \"%s\", %s=%s):", path,
                                            what, number);
    return json_pack("[s, s, s, s, s, s, s, s]", "import ckvc.hf",
                     "from transformers import AutoModelForCausalLM, AutoTokenizer", load, words,
                     "prompt = tokenizer(open(\"prompt.txt\").read(), return_tensors=\"pt\")", with,
                     "    out = model.generate(**prompt, max_new_tokens=100)",
                     "print(tokenizer.decode(out[0, prompt[\"input_ids\"].shape[1]:]))");
}

/* The same in llama.cpp, by a budget. New reference. */
static json_t *llama_program(const char *model, const char *path, const char *budget) {
    CKVC_AUTO_FREE char *load = ckvc_format("llm = llama_cpp.Llama(\"%s\", n_ctx=0, verbose=False)",
                                            is_gguf(model) ? model : "MODEL.gguf"),
                        *cut = ckvc_format("print(ckvc.llama.compact(llm, 0, \"%s\", budget=%s))",
                                           path, budget);
    return json_pack("[s, s, s, s, s, s, s]", "import ckvc.llama", "import llama_cpp", load,
                     "tokens = llm.tokenize(open(\"prompt.txt\", \"rb\").read())",
                     "llm.eval(tokens)", cut,
                     "print(llm.create_completion(tokens, max_tokens=100)"
                     "[\"choices\"][0][\"text\"])");
}

/* What table_uses returns, for tokens of this size. */
static json_t *uses_of(const table_file *f, const char *path, const char *model,
                       double token_bytes) {
    const ckvc_table *t = f->table;
    const uint32_t b = largest_budget(t);
    const bool bare = reads_no_attention(t, b);
    json_t *o = json_object(), *keeps = json_array();
    for (uint32_t i = 0; i < t->n_budgets; i++) {
        CKVC_AUTO_FREE char *kept = what_is_kept(f, i, token_bytes);
        json_array_append_new(keeps, json_string(kept));
    }
    const double bytes = t->byte_share ? t->byte_share[b] : 0;
    CKVC_AUTO_FREE char *budget = exact_number(t->budgets[b]), *share = exact_number(bytes),
                        *vllm = ckvc_format("vllm serve %s --additional-config '{\"ckvc\": "
                                            "{\"table\": \"%s\", \"budget\": %s}}'",
                                            is_gguf(model) ? "DIR" : model, path, budget);
    CKVC_AUTO_FREE char *beside = shipped_table_beside(f->content_id);
    CKVC_AUTO_FREE char *other = ckvc_format(
        "%s: %s%scompile again with %s--mode lengths --classes 2",
        bare ? "vLLM holds one length per layer" : "vLLM and llama.cpp show no attention",
        beside ? beside : "", beside ? " comes along for this, or " : "",
        bare ? "" : "--features 2 ");
    json_object_set_new(o, "keeps", keeps);
    json_object_set_new(
        o, "python",
        python_program(model, path, bytes > 0 ? "bytes" : "budget", bytes > 0 ? share : budget));
    if (bare && fits_pages(t, b)) {
        json_object_set_new(o, "vllm", json_string(vllm));
    } else {
        json_object_set_new(o, "other", json_string(other));
    }
    if (bare) { json_object_set_new(o, "llama", llama_program(model, path, budget)); }
    return o;
}

json_t *table_uses(const table_file *f, const char *path, const char *model) {
    return uses_of(f, path, model, 0);
}

void table_uses_print(FILE *to, const json_t *uses) { form_print(to, lines_form, uses, NULL); }

void table_uses_say(const table_file *f, const char *path, const char *model, double token_bytes) {
    struct stat info = {0};
    if (stat(path, &info) != 0) { info.st_size = 0; }
    json_auto_t *said = JSON_NUMBERS(uses_of(f, path, model, token_bytes),
                                     {"table", (double)info.st_size}, {"token", token_bytes});
    form_print(stderr, bytes_form, said, NULL);
    table_uses_print(stderr, said);
}
