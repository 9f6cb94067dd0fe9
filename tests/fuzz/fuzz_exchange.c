/* What `ckvc import` reads of other programs: the first byte says which format, and the rest is its
 * file; of a folder the one file that is hardest to read, beside good others. What is accepted is
 * written as a table and read again. */
#include "formats/export/export.h"
#include "formats/export/npy.h"
#include "tests/fuzz/fuzz.h"

static const char config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":8,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"num_hidden_layers\":2,\"vocab_size\":8,"
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"hidden_act\":\"silu\"}";
static const char manifest[] =
    "{\"budget_values\":[8],\"entropy_edges\":[],\"ppl_edges\":[2],\"ckvc\":{\"n_kv_heads\":1}}";

static void write_array(const char *name, const uint64_t *dims, unsigned rank) {
    static const double ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer b = {0};
    npy_append_f32(&b, ones, dims, rank);
    (void)fuzz_file(name, b.data, b.size);
}

/* The files of CompilerKV's folder, all good. */
static void write_compilerkv(void) {
    write_array("W_head.npy", (uint64_t[]){1, 2, 2}, 3);
    write_array("T_gate.npy", (uint64_t[]){1, 2, 1, 2}, 4);
    (void)fuzz_file("manifest.json", manifest, sizeof manifest - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct {
        const char *format, *file;
        bool folder;
    } inputs[] = {{"npz", "x", false},
                  {"safetensors", "model.safetensors", true},
                  {"compilerkv", "manifest.json", true},
                  {"compilerkv", "W_head.npy", true},
                  {"duo-attention", "full_attention_heads.tsv", true},
                  {"headkv", "x", false},
                  {"kvzip", "x", false}};
    const double budgets[] = {8};
    ckvc_err err = {0};
    CKVC_AUTO(table_file_free_at) table_file *t = NULL;
    CKVC_AUTO(table_file_free_at) table_file *again = NULL;
    if (!size || *data >= sizeof inputs / sizeof *inputs) { return 0; }
    size_t f = 0;
    while (strcmp(exchange_formats[f].name, inputs[*data].format) != 0) { f++; }
    write_compilerkv();
    (void)fuzz_file("config.json", config, sizeof config - 1);
    const char *path = fuzz_file(inputs[*data].file, data + 1, size - 1);
    const import_options o = {.model = *data > 3 ? fuzz_folder() : NULL,
                              .budgets = budgets,
                              .n_budgets = 1,
                              .c_min = 0.2};
    const ckvc_status st =
        exchange_formats[f].read(inputs[*data].folder ? fuzz_folder() : path, &o, &t, &err);
    if (st != CKVC_OK) {
        must_refuse_well(st, &err);
        return 0;
    }
    must(table_file_write(t, fuzz_path("t.ckvt"), true, &err) == CKVC_OK);
    must(table_file_read(fuzz_path("t.ckvt"), &again, &err) == CKVC_OK);
    must(strcmp(again->content_id, t->content_id) == 0);
    return 0;
}
