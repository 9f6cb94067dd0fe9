/* GGUF files: a sound one, one malformed file a rule, whole models both ways (damage at random:
 * tests/fuzz). */
#include <sys/stat.h>

#include "formats/model/gguf.h"
#include "lib/model/model_weights.h"
#include "tests/unit/formats/refusal.h"
#include "tests/unit/golden_model.h"
#include "tests/unit/load_tokenizer.h"
#include "tests/unit/quantised_blocks.h"
#include "tests/unit/temp_folder.h"

static const char *path; /* of the file that each test writes */
static ckvc_rng rng;

static void put(gguf_maker *g) {
    size_t n;
    CKVC_AUTO_FREE uint8_t *bytes = g_end(g, &n);
    write_bytes(path, bytes, n);
}

/* ---- the model of most tests: 2 layers, 4 heads on 2 KV heads of 4, width 32, 64 tokens ---- */
enum { LAYERS = 2, HEADS = 4, KV = 2, DIM = 4, WIDTH = 32, MLP = 64, VOCAB = 64 };

struct int_key {
    const char *name;
    int64_t v;
};
/* A key whose value is another one; -1: left out; -2: a string. */
static struct int_key odd;
static bool is_odd(const char *name) { return odd.name && strcmp(odd.name, name) == 0; }
static void arch_float(gguf_maker *g, const char *arch, const char *name, float v) {
    char key[64];
    snprintf(key, sizeof key, "%s.%s", arch, name);
    v = is_odd(name) ? (float)odd.v : v;
    if (v >= 0) { g_f32(g, key, v); }
}

static void arch_keys(gguf_maker *g, const char *arch, const struct int_key *ints, size_t n,
                      float eps, float theta) {
    char key[64];
    if (!is_odd("architecture")) { g_string(g, "general.architecture", arch); }
    for (size_t i = 0; i < n; i++) {
        const int64_t v = is_odd(ints[i].name) ? odd.v : ints[i].v;
        snprintf(key, sizeof key, "%s.%s", arch, ints[i].name);
        if (v >= 0) { g_u32(g, key, (uint32_t)v); }
        if (v == -2) { g_string(g, key, "2"); }
    }
    arch_float(g, arch, "attention.layer_norm_rms_epsilon", eps);
    arch_float(g, arch, "rope.freq_base", theta);
}

static void tiny_keys(gguf_maker *g, const char *arch) {
    static const struct int_key ints[] = {
        {"block_count", LAYERS},         {"context_length", 128},
        {"embedding_length", WIDTH},     {"feed_forward_length", MLP},
        {"attention.head_count", HEADS}, {"attention.head_count_kv", KV},
        {"attention.key_length", DIM},   {"attention.value_length", DIM},
        {"rope.dimension_count", DIM},   {"vocab_size", VOCAB}};
    arch_keys(g, arch, ints, sizeof ints / sizeof *ints, 1e-5f, 10000.0f);
}

/* Where set, matrices are random blocks of this type, or the float32 values of these blocks. */
static size_t blocks_of = N_QUANTISED;
static bool blocks_decoded, blocks_in_vectors;

static void random_tensor(gguf_maker *g, const char *name, const uint64_t dims[2], size_t values) {
    const size_t per_block = quantised[blocks_of].values, size = quantised[blocks_of].bytes,
                 n = values / per_block;
    CKVC_AUTO_FREE uint8_t *blocks = ckvc_alloc(n, size);
    CKVC_AUTO_FREE float *decoded = ckvc_alloc(values, sizeof *decoded);
    for (size_t b = 0; b < n; b++) { random_block(&rng, blocks_of, blocks + b * size); }
    for (size_t i = 0; i < values; i++) {
        decoded[i] = (float)quantised_value(quantised[blocks_of].type,
                                            blocks + i / per_block * size, (int)(i % per_block));
    }
    if (blocks_decoded) {
        g_tensor(g, name, G_TYPE_F32, dims, decoded, values * 4);
    } else {
        g_tensor(g, name, quantised[blocks_of].ggml, dims, blocks, n * size);
    }
}

/* Values by name and row in half-split order. pairwise: rows of a head of DIM stored 2i, 2i+1. */
static void tiny_tensor(gguf_maker *g, const char *name, uint64_t cols, uint64_t rows,
                        bool pairwise) {
    static float values[VOCAB * MLP];
    const uint64_t n_rows = rows ? rows : cols, n_cols = rows ? cols : 1, key = ckvc_rng_key(name);
    for (uint64_t r = 0; r < n_rows; r++) {
        const uint64_t in_head = r % DIM,
                       from = pairwise ? r - in_head + in_head / 2 + in_head % 2 * (DIM / 2) : r;
        for (uint64_t c = 0; c < n_cols; c++) {
            ckvc_rng value = rng_of(from * n_cols + c, key, 7);
            values[r * n_cols + c] = (float)((double)ckvc_rng_below(&value, 2001) - 1000) * 3e-4f +
                                     (strstr(name, "norm") ? 1.0f : 0.0f);
        }
    }
    const uint64_t dims[2] = {cols, rows}, n = n_rows * n_cols;
    if (blocks_of < N_QUANTISED && (rows || blocks_in_vectors) &&
        cols % quantised[blocks_of].values == 0) {
        random_tensor(g, name, dims, n);
    } else {
        g_tensor(g, name, G_TYPE_F32, dims, values, n * 4);
    }
}

/* All but the embedding. */
static void tiny_layers(gguf_maker *g, bool pairwise, bool biases) {
    char name[64];
    tiny_tensor(g, "output_norm.weight", WIDTH, 0, false);
    for (int l = 0; l < LAYERS; l++) {
        const struct {
            const char *name;
            uint64_t cols, rows;
            bool rotary, bias;
        } t[] = {{"attn_norm.weight", WIDTH, 0, false, false},
                 {"attn_q.weight", WIDTH, HEADS * DIM, true, false},
                 {"attn_k.weight", WIDTH, KV * DIM, true, false},
                 {"attn_v.weight", WIDTH, KV * DIM, false, false},
                 {"attn_q.bias", HEADS * DIM, 0, true, true},
                 {"attn_k.bias", KV * DIM, 0, true, true},
                 {"attn_v.bias", KV * DIM, 0, false, true},
                 {"attn_output.weight", HEADS * DIM, WIDTH, false, false},
                 {"ffn_norm.weight", WIDTH, 0, false, false},
                 {"ffn_gate.weight", WIDTH, MLP, false, false},
                 {"ffn_up.weight", WIDTH, MLP, false, false},
                 {"ffn_down.weight", MLP, WIDTH, false, false}};
        for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
            snprintf(name, sizeof name, "blk.%d.%s", l, t[i].name);
            if (biases || !t[i].bias) {
                tiny_tensor(g, name, t[i].cols, t[i].rows, pairwise && t[i].rotary);
            }
        }
    }
}

static void tiny_tensors(gguf_maker *g, bool pairwise, bool biases) {
    tiny_tensor(g, "token_embd.weight", WIDTH, VOCAB, false);
    tiny_layers(g, pairwise, biases);
}

/* A file of keys and tensors alone. */
static void put_tiny(const char *arch, bool pairwise, bool biases) {
    gguf_maker g = g_begin();
    tiny_keys(&g, arch);
    tiny_tensors(&g, pairwise, biases);
    put(&g);
}

/* A tokenizer of the 64 printable characters from '!' on, two merges and a control token. */
static void tiny_tokenizer(gguf_maker *g) {
    g_string(g, "tokenizer.ggml.model", "gpt2");
    g_string(g, "tokenizer.ggml.pre", "smollm");
    g_array(g, "tokenizer.ggml.tokens", G_STRING, VOCAB);
    for (int i = 0; i < VOCAB; i++) {
        static const char *const last[] = {"AB", "ABC", "<end>"};
        const char one[] = {(char)('!' + i), 0}, *text = i < 61 ? one : last[i - 61];
        g_text(&g->keys, text, strlen(text));
    }
    g_array(g, "tokenizer.ggml.token_type", G_I32, VOCAB);
    for (int i = 0; i < VOCAB; i++) { ckvc_buffer_u32(&g->keys, i == 63 ? 3 : 1); }
    g_array(g, "tokenizer.ggml.merges", G_STRING, 2);
    g_text(&g->keys, "A B", 3);
    g_text(&g->keys, "AB C", 4);
    g_u32(g, "tokenizer.ggml.bos_token_id", 63);
    g_u32(g, "tokenizer.ggml.eos_token_id", 63);
    g_bool(g, "tokenizer.ggml.add_bos_token", 1);
}

static gguf_maker tiny(void) {
    gguf_maker g = g_begin();
    tiny_keys(&g, "llama");
    tiny_tokenizer(&g);
    return g;
}

/* ---- sound files ---- */
TEST(sound_file) {
    for (uint32_t version = 2; version <= 3; version++) {
        gguf_maker g = tiny();
        g.version = version;
        g.alignment = 64;
        g_u32(&g, "general.alignment", 64);
        g_key(&g, "test.i64", G_I64);
        ckvc_buffer_u64(&g.keys, (uint64_t)-5);
        tiny_tensors(&g, true, false);
        put(&g);
        gguf *f;
        OK(gguf_open(path, &f, &err));
        int64_t v = 0;
        OK(gguf_int(f, "test.i64", -10, 10, &v, &err));
        assert_int_equal(v, -5);
        OK(gguf_int(f, "not.there", 0, 1, &v, &err));
        assert_int_equal(v, -5);
        assert_true(gguf_string_is(gguf_find(f, "general.architecture"), "llama"));
        const tensor_view *t = gguf_find_tensor(f, "blk.1.ffn_down.weight");
        assert_true(t && t->dims[1] == MLP && (t->data - f->map.data) % 64 == 0);
        gguf_close(f);

        model_shape s;
        OK(model_files_shape(path, &s, &err));
        assert_string_equal(s.family, "llama");
        assert_true(s.n_layers == LAYERS && s.n_heads == HEADS && s.n_kv_heads == KV);
        assert_true(s.head_dim == DIM && s.vocab == VOCAB && s.max_positions == 128);
        assert_true(s.n_stop_ids == 1 && s.stop_ids[0] == 63);
        assert_true(s.tied && !s.qkv_bias && !s.output_bias && !s.mlp_bias);

        model_spec *w;
        OK(model_files_read(path, &w, &err));
        assert_int_equal(w->n_tensors, 2 + 9 * LAYERS);
        const tensor_view *q = model_spec_find(w, "model.layers.1.self_attn.q_proj.weight");
        assert_non_null(q);
        assert_string_equal(q->stored, "blk.1.attn_q.weight");
        assert_string_equal(q->dtype, "F32");
        assert_true(q->pairwise == DIM && q->dims[0] == HEADS * DIM && q->dims[1] == WIDTH);
        assert_int_equal(model_spec_find(w, "model.layers.1.self_attn.v_proj.weight")->pairwise, 0);
        model_spec_free(w);
        OK(model_verify_path(path, &err));
    }
}

/* ---- malformed files ---- */
static void must_refuse(const char *word) {
    model_spec *w;
    REFUSES(model_files_read(path, &w, &err), path, word);
}

TEST(headers) {
    gguf_maker g = tiny();
    size_t n;
    tiny_tensors(&g, true, false);
    CKVC_AUTO_FREE uint8_t *sound = g_end(&g, &n), *bytes = ckvc_alloc(n + 64, 1);
    const struct {
        size_t at;
        uint64_t v;
        int width;
        const char *word;
    } edits[] = {
        {0, 0x46554746, 4, "byte 0: does not begin with \"GGUF\""},
        {4, 1, 4, "byte 4: GGUF version 1;"},
        {4, 4, 4, "byte 4: GGUF version 4;"},
        {4, 3u << 24, 4, "a big-endian file?"},
        {8, UINT64_MAX, 8, "byte 8: 18446744073709551615 tensors"},
        {8, GGUF_MAX_TENSORS + 1, 8, "byte 8: 65537 tensors"},
        {8, n / 33 + 1, 8, "byte 8: "},
        {8, 1, 8, "belong to none"},
        {16, UINT64_MAX / 8, 8, "byte 16: 2305843009213693951 keys"},
        {16, n / 14 + 1, 8, "byte 16: "},
        {24, UINT64_MAX, 8, "byte 24: key 0 has a name of 18446744073709551615 bytes"},
        {24, 0, 8, "byte 24: key 0 has a name of 0 bytes"},
        {24, 256, 8, "byte 24: key 0 has a name of 256 bytes"},
        {32, 0x0A, 1, "byte 32: the name of key 0 holds the byte 0x0A"},
        {52, 13, 4, "byte 52: key general.architecture has the unknown type 13"},
        {56, UINT64_MAX - 8, 8,
         "byte 56: key general.architecture is a string of 18446744073709551607 bytes"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        memcpy(bytes, sound, n);
        for (int b = 0; b < edits[i].width; b++) {
            bytes[edits[i].at + (size_t)b] = (uint8_t)(edits[i].v >> 8 * b);
        }
        write_bytes(path, bytes, n);
        must_refuse(edits[i].word);
    }
    for (size_t cut = 0; cut < n; cut += cut < 2000 ? 1 : 97) { /* each prefix */
        write_bytes(path, sound, cut);
        must_refuse("");
    }
    memcpy(bytes, sound, n);
    memset(bytes + n, 0, 64);
    write_bytes(path, bytes, n + 32);
    must_refuse("32 bytes behind the last tensor belong to none");
}

/* A tensor of the directory alone. */
static void tensor_info(gguf_maker *g, const char *name, uint64_t d0, uint64_t d1, uint32_t type,
                        uint64_t offset) {
    const uint64_t all[] = {d0, d1, offset};
    g->n_tensors++;
    g_text(&g->infos, name, strlen(name));
    ckvc_buffer_u32(&g->infos, 2);
    for (int i = 0; i < 3; i++) {
        if (i == 2) { ckvc_buffer_u32(&g->infos, type); }
        ckvc_buffer_u64(&g->infos, all[i]);
    }
}
/* Where the next tensor begins. */
#define NEXT ((g->data.size + 31) / 32 * 32)
/* A sound file with one thing more. */
#define WITH(word, ...)                                                                            \
    do {                                                                                           \
        gguf_maker made = tiny(), *g = &made;                                                      \
        tiny_tensors(g, true, false);                                                              \
        __VA_ARGS__;                                                                               \
        put(g);                                                                                    \
        must_refuse(word);                                                                         \
    } while (0)

#define INFO(word, ...) WITH("tensor \"x\"" word, tensor_info(g, "x", __VA_ARGS__))

TEST(one_thing_wrong) {
    const uint32_t f32 = G_TYPE_F32;
    const uint64_t big = UINT64_C(1) << 48;
    WITH("key llama.block_count is there twice", g_u32(g, "llama.block_count", 2));
    WITH("key x.flag is a bool of value 2", g_bool(g, "x.flag", 2));
    WITH("key x.list claims 16777216 items of f64", g_array(g, "x.list", G_F64, GGUF_MAX_ITEMS));
    WITH("key x.list is an array of 18446744073709551615 items",
         g_array(g, "x.list", G_U8, UINT64_MAX));
    WITH("key x.list is an array of type 9 (array)", g_array(g, "x.list", G_ARRAY, 1);
         ckvc_buffer_u32(&g->keys, G_U8); ckvc_buffer_u64(&g->keys, 0));
    WITH("key x.list is an array of type 99", g_array(g, "x.list", 99, 0));
    WITH("string 1 of 2 of key x.list runs past the end", g_array(g, "x.list", G_STRING, 2);
         g_text(&g->keys, "ab", 2); ckvc_buffer_u64(&g->keys, UINT64_MAX - 3));
    WITH("key general.alignment is string; want u32", g_string(g, "general.alignment", "32"));
    WITH("key general.alignment is 48", g_u32(g, "general.alignment", 48));
    WITH("key general.alignment is 0", g_u32(g, "general.alignment", 0));
    WITH("key general.alignment is 2147483648", g_u32(g, "general.alignment", 1u << 31));
    WITH("no multiple of general.alignment 256", g_u32(g, "general.alignment", 256));
    WITH("tensor \"blk.0.attn_v.weight\" is there twice",
         tiny_tensor(g, "blk.0.attn_v.weight", WIDTH, KV * DIM, false));
    WITH(
        "tensor \"x\" has rank 5", g->n_tensors++; g_text(&g->infos, "x", 1);
        ckvc_buffer_u32(&g->infos, 5);
        for (int i = 0; i < 7; i++) { ckvc_buffer_u64(&g->infos, 1); });
    INFO(": dimension 0 is 0", 0, 4, f32, NEXT);
    INFO(": dimension 0 is 281474976710657", big + 1, 1, f32, NEXT);
    INFO(": F32 [281474976710656,281474976710656] overflows", big, big, f32, NEXT);
    WITH("overflows", tensor_info(g, "x", big / 2, 1 << 15, f32, NEXT));
    INFO(" is 4398046511104 bytes at", 1 << 20, 1 << 20, f32, NEXT);
    INFO(" is Q4_0 [48,4]: rows of 48 values are no whole blocks of 32", 48, 4, G_TYPE_Q4_0, NEXT);
    INFO(" has the unknown type 4", 32, 4, 4, NEXT);
    WITH("has type Q5_K, which is not supported",
         tensor_info(g, "blk.0.ffn_up.weight", 256, 4, G_TYPE_Q5_K, NEXT));
    WITH("no multiple of general.alignment 32", tensor_info(g, "x", 8, 1, f32, NEXT + 4));
    WITH("behind bytes of no tensor", tensor_info(g, "x", 8, 1, f32, NEXT + 32));
    INFO(" begins at 0 of the data, inside the tensor before it", 8, 1, f32, 0);
    INFO(" begins at 18446744073709551584 of the data", 8, 1, f32, UINT64_MAX - 31);
    WITH("tensor \"blk.0.attn_q_norm.weight\" is none of a llama model of 2 layers",
         tiny_tensor(g, "blk.0.attn_q_norm.weight", DIM, 0, false));
    WITH("tensor \"blk.2.attn_norm.weight\" is none of a llama model of 2 layers",
         tiny_tensor(g, "blk.2.attn_norm.weight", WIDTH, 0, false));
    WITH("tensor \"blk.00.attn_norm.weight\" is none",
         tiny_tensor(g, "blk.00.attn_norm.weight", WIDTH, 0, false));
    WITH("llama.expert_count (8) is not supported: a mixture of experts",
         g_u32(g, "llama.expert_count", 8));
    WITH("key llama.rope.scaling.type is \"yarn\"", g_string(g, "llama.rope.scaling.type", "yarn"));
    WITH("key llama.rope.scale_linear is NaN", g_f32(g, "llama.rope.scale_linear", NAN));
    WITH("key llama.attention.sliding_window is 64",
         g_u32(g, "llama.attention.sliding_window", 64));
    WITH("tensor \"blk.0.post_ffw_norm.weight\" is none of a llama model",
         tiny_tensor(g, "blk.0.post_ffw_norm.weight", WIDTH, 0, false));
    WITH("llama.attention.causal (0) is not supported: attention to later tokens",
         g_bool(g, "llama.attention.causal", false));
    WITH("llama.use_parallel_residual (1) is not", g_bool(g, "llama.use_parallel_residual", true));
    WITH("llama.attention.output_scale (nan) is", g_string(g, "llama.attention.output_scale", "1"));
    WITH("key llama.attention.key_length_swa is 8, the head dimension 4",
         g_u32(g, "llama.attention.key_length_swa", 8));
    WITH("key general.type is \"adapter\": no language model",
         g_string(g, "general.type", "adapter"));
    WITH("llama.attn_logit_softcapping (30) is not",
         g_f32(g, "llama.attn_logit_softcapping", 30.0f));
    WITH("key split.count is 3", g_key(g, "split.count", G_U16); ckvc_buffer_u16(&g->keys, 3));
    WITH("key general.quantization_version is 1", g_u32(g, "general.quantization_version", 1));
    WITH("tensor \"rope_freqs.weight\"[0] is 3", const float f[DIM / 2] = {3, 5};
         g_tensor(g, "rope_freqs.weight", f32, (uint64_t[2]){DIM / 2, 0}, f, sizeof f));
}

static char warned[512];
static int n_warnings;
static void take_warning(const char *line) {
    n_warnings++;
    snprintf(warned, sizeof warned, "%s", line);
}

/* Neutral values and other programs' keys are passed over; what no rule knows is named once. */
TEST(unknown_keys) {
    ckvc_warn_set(take_warning);
    for (int unknown = 0; unknown < 2; unknown++) {
        gguf_maker g = tiny();
        g_bool(&g, "llama.attention.causal", true);
        g_f32(&g, "llama.logit_scale", 1.0f);
        g_string(&g, "general.type", "model");
        g_string(&g, "quantize.imatrix.file", "x");
        g_string(&g, "llamas.key", "x");
        if (unknown) {
            g_u32(&g, "llama.key_of_tomorrow", 1);
            g_string(&g, "llama.attention.b c", "x");
        }
        tiny_tensors(&g, true, false);
        put(&g);
        model_shape s;
        OK(model_files_shape(path, &s, &err));
        assert_int_equal(n_warnings, unknown);
    }
    assert_non_null(strstr(warned, path));
    assert_non_null(strstr(warned, ": llama.attention.b c, llama.key_of_tomorrow; "));
    ckvc_warn_set(NULL);
}

/* Keys that decide the shape, one left out or given another value. */
TEST(shape_keys) {
    const struct {
        const char *key;
        int64_t v;
        const char *word;
    } cases[] = {
        {"block_count", -1, "key llama.block_count is missing"},
        {"block_count", 0, "key llama.block_count is 0; want 1 ... 1024"},
        {"block_count", 2000000000, "key llama.block_count is 2000000000"},
        {"block_count", -2, "key llama.block_count is string; want an integer"},
        {"block_count", 1, "tensor \"blk.1."},
        {"embedding_length", -1, "key llama.embedding_length is missing"},
        {"attention.head_count", 0, "key llama.attention.head_count is 0"},
        {"attention.head_count_kv", 3, "head_count is 4, no multiple of head_count_kv 3"},
        {"attention.key_length", 5, "heads of 5 dimensions"},
        {"attention.value_length", 8, "is 8, the head dimension 4"},
        {"rope.dimension_count", 2, "a partial rotary embedding"},
        {"vocab_size", 65, "key llama.vocab_size is 65, token_embd.weight has 64 rows"},
        {"context_length", -1, "key llama.context_length is missing"},
        {"attention.layer_norm_rms_epsilon", -1, "rms_epsilon is missing"},
        {"rope.freq_base", 0, "key llama.rope.freq_base is 0; want a number above"},
        {"architecture", -1, "key general.architecture is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        odd = (struct int_key){cases[i].key, cases[i].v};
        put_tiny("llama", true, false);
        must_refuse(cases[i].word);
    }
    odd.name = NULL;
    put_tiny("falcon", true, false);
    must_refuse("key general.architecture is \"falcon\", which is not supported");
}

/* Shapes that tensors do not have, and values that are not finite, are the loader's to refuse. */
TEST(tensors_against_shape) {
    gguf_maker g = tiny();
    tiny_tensor(&g, "token_embd.weight", WIDTH, VOCAB, false);
    put(&g);
    REFUSES(model_verify_path(path, &err), path, "model.norm.weight");

    g = tiny();
    uint8_t blocks[18 * WIDTH / 32 * VOCAB] = {0};
    blocks[18 * 5 + 1] = 0x7E; /* the scale of row 5 is NaN */
    g_tensor(&g, "token_embd.weight", G_TYPE_Q4_0, (uint64_t[2]){WIDTH, VOCAB}, blocks,
             sizeof blocks);
    tiny_layers(&g, true, false);
    put(&g);
    REFUSES(model_verify_path(path, &err), path, "token_embd.weight[5][0] is NaN");
}

/* ---- whole models ---- */
static size_t copies_limit; /* bytes of weights' copies; 0: no limit */

/* Losses and last logits of a fixed sequence, [n-1] and [vocab]. */
static void run_model(const char *model_path, int64_t n, int32_t vocab, double *nll,
                      float *logits) {
    bench b = bench_open(2);
    model *m = NULL;
    session *s = NULL;
    int32_t ids[64];
    assert_true(n <= 64);
    for (int64_t i = 0; i < n; i++) { ids[i] = (int32_t)((i * 37 + 11) % vocab); }
    b.be->ops->weight_limit(b.be, copies_limit);
    OK(model_open_path(model_path, b.be, &m, &err) != CKVC_OK ||
       sessions_create(m, (session_limits){.max_prompt = n, .max_window = 8}, 1, &s, &err) !=
           CKVC_OK ||
       session_score(s, ids, n, nll, &err) != CKVC_OK || session_logits(s, n - 1, logits, &err));
    session_destroy(s), model_close(m);
    bench_close(&b);
}

/* A directory's bfloat16 weights as a converter writes them: for llama the rows of q and k in
 * pairs, for gemma3 the norms' weights plus 1, in float32. */
static const struct converted {
    const char *ours, *theirs;
    const char *arch; /* of this one alone; or NULL */
} converted[] = {
    {"input_layernorm", "attn_norm", NULL},
    {"self_attn.q_proj", "attn_q", NULL},
    {"self_attn.k_proj", "attn_k", NULL},
    {"self_attn.v_proj", "attn_v", NULL},
    {"self_attn.o_proj", "attn_output", NULL},
    {"mlp.gate_proj", "ffn_gate", NULL},
    {"mlp.up_proj", "ffn_up", NULL},
    {"mlp.down_proj", "ffn_down", NULL},
    {"self_attn.q_norm", "attn_q_norm", NULL},
    {"self_attn.k_norm", "attn_k_norm", NULL},
    {"post_attention_layernorm", "ffn_norm", "llama"},
    {"post_attention_layernorm", "ffn_norm", "qwen3"},
    {"post_attention_layernorm", "post_attention_norm", "gemma3"},
    {"pre_feedforward_layernorm", "ffn_norm", "gemma3"},
    {"post_feedforward_layernorm", "post_ffw_norm", "gemma3"},
};

static void write_tensor(gguf_maker *g, const char *name, const tensor_view *t, bool as_f32,
                         size_t pairs_of) {
    const size_t rows = (size_t)t->dims[0], cols = t->rank > 1 ? (size_t)t->dims[1] : 1,
                 size = as_f32 || t->plus > 0 ? 4 : 2, half = pairs_of / 2;
    CKVC_AUTO_FREE uint8_t *bytes = ckvc_alloc(rows * cols, size);
    if (t->plus > 0) { tensor_read_rows(t, 0, t->dims[0], (float *)(void *)bytes); }
    for (size_t r = 0; r < rows && !(t->plus > 0); r++) {
        const size_t in_head = half ? r % pairs_of : 0,
                     from = half ? r - in_head + in_head / 2 + in_head % 2 * half : r;
        for (size_t c = 0; c < cols; c++) { /* bfloat16 is the upper half of a float32 */
            uint8_t *to = bytes + (r * cols + c) * size;
            memset(to, 0, size);
            memcpy(to + size - 2, t->data + (from * cols + c) * 2, 2);
        }
    }
    g_tensor(g, name, size == 4 ? G_TYPE_F32 : G_TYPE_BF16,
             (uint64_t[2]){t->rank > 1 ? cols : rows, t->rank > 1 ? rows : 0}, bytes,
             rows * cols * size);
}

static void write_directory(const char *model_dir, const char *arch, bool as_f32) {
    CKVC_AUTO(model_spec_free_at) model_spec *w = NULL;
    OK(model_files_read(model_dir, &w, &err));
    const model_shape s = w->shape;
    gguf_maker g = g_begin();
    const struct int_key ints[] = {
        {"block_count", s.n_layers},           {"context_length", s.max_positions},
        {"embedding_length", s.width},         {"feed_forward_length", s.intermediate},
        {"attention.head_count", s.n_heads},   {"attention.head_count_kv", s.n_kv_heads},
        {"rope.dimension_count", s.head_dim},  {"attention.key_length", s.head_dim},
        {"attention.value_length", s.head_dim}};
    arch_keys(&g, arch, ints, sizeof ints / sizeof *ints, (float)s.rms_eps, (float)s.rope_theta);
    if (s.rope_local_theta > 0) {
        g_u32(&g, "gemma3.attention.sliding_window", (uint32_t)s.sliding_window);
        g_u32(&g, "gemma3.attention.sliding_window_pattern", 3);
        g_f32(&g, "gemma3.rope.freq_base_swa", (float)s.rope_local_theta);
        g_string(&g, "gemma3.rope.scaling.type", "linear");
        g_f32(&g, "gemma3.rope.scaling.factor", (float)s.rope_factor);
    }
    const tensor_view *embedding = model_spec_find(w, "model.embed_tokens.weight");
    if (!embedding) { embedding = model_spec_find(w, "lm_head.weight"); }
    write_tensor(&g, "token_embd.weight", embedding, as_f32, 0);
    write_tensor(&g, "output_norm.weight", model_spec_find(w, "model.norm.weight"), as_f32, 0);
    for (int32_t l = 0; l < s.n_layers; l++) {
        for (size_t i = 0; i < sizeof converted / sizeof *converted; i++) {
            const struct converted *c = &converted[i];
            char theirs[96], ours[96];
            if (c->arch ? strcmp(c->arch, arch) != 0
                        : strstr(c->ours, "attn.") && !s.qk_norm && strstr(c->ours, "norm")) {
                continue;
            }
            snprintf(theirs, sizeof theirs, "blk.%d.%s.weight", l, c->theirs);
            snprintf(ours, sizeof ours, "model.layers.%d.%s.weight", l, c->ours);
            const tensor_view *t = model_spec_find(w, ours);
            assert_true(t && t->type == TENSOR_BF16);
            write_tensor(&g, theirs, t, as_f32,
                         (i == 1 || i == 2) && strcmp(arch, "llama") == 0 ? (size_t)s.head_dim : 0);
        }
    }
    put(&g);
}

/* The golden Gemma 3 with the scale of queries that llama.cpp gives to all but the 27B. */
static const char *gemma_folder(void) {
    CKVC_AUTO_FREE char *weights = realpath("tests/golden/models/gemma3/model.safetensors", NULL);
    json_t *config = json_load_file("tests/golden/models/gemma3/config.json", 0, NULL);
    assert_true(config && weights);
    json_object_set_new(config, "query_pre_attn_scalar", json_integer(8));
    char *text = json_dumps(config, 0);
    assert_int_equal(mkdir(in_temp_folder("gemma"), 0777), 0);
    put_text("gemma/config.json", text);
    assert_int_equal(symlink(weights, in_temp_folder("gemma/model.safetensors")), 0);
    free(text), json_decref(config);
    return in_temp_folder("gemma");
}

/* Of a model that was not opened with its tokenizer. */
static void sketch_of(const char *from, char out[SKETCH_TEXT]) {
    CKVC_AUTO(model_spec_free_at) model_spec *spec = NULL;
    OK(model_files_read(from, &spec, &err));
    model_sketch(spec, out);
}

TEST(same_logits_as_directory) {
    enum { N = 48, V_MAX = 4096 };
    const char *gemma = gemma_folder();
    const struct {
        const char *dir, *arch;
        int32_t vocab;
    } models[] = {{"models/ckvc-tiny-4l", "llama", V_MAX},
                  {"tests/golden/models/qwen3", "qwen3", 83},
                  {gemma, "gemma3", 79}};
    static float want[V_MAX], got[V_MAX];
    char of_folder[SKETCH_TEXT], of_file[SKETCH_TEXT], why[SKETCH_TEXT];
    double want_nll[N], got_nll[N];
    for (size_t i = 0; i < 2 * sizeof models / sizeof *models; i++) {
        const size_t k = i / 2;
        run_model(models[k].dir, N, models[k].vocab, want_nll, want);
        write_directory(models[k].dir, models[k].arch, i % 2);
        run_model(path, N, models[k].vocab, got_nll, got);
        assert_memory_equal(got_nll, want_nll, (N - 1) * sizeof *got_nll);
        assert_memory_equal(got, want, (size_t)models[k].vocab * sizeof *got);
        sketch_of(models[k].dir, of_folder);
        sketch_of(path, of_file);
        assert_memory_equal(of_file, i % 2 ? "1 0000" : "1 000f",
                            6); /* what float32 and BF16 round */
        assert_string_equal(of_file + 6, of_folder + 6);
    }
    sketch_of("models/ckvc-tiny-8l", of_folder);
    sketch_of("models/ckvc-tiny-4l", of_file);
    assert_false(sketch_same(of_folder, of_file, why));
    assert_string_equal(why, "their shapes differ");
}

/* Matrices in blocks and the values that these stand for are one model, another draw's are not. */
TEST(sketch_of_blocks) {
    char sketch[3][SKETCH_TEXT], why[SKETCH_TEXT];
    for (size_t k = 0; k < N_QUANTISED; k++) {
        if (quantised[k].values > WIDTH) { continue; }
        for (uint64_t i = 0; i < 3; i++) {
            ckvc_rng_init(&rng, 99 + i / 2, k, 1);
            blocks_of = k;
            blocks_decoded = i == 1;
            put_tiny("llama", true, false);
            blocks_of = N_QUANTISED;
            sketch_of(path, sketch[i]);
        }
        assert_string_equal(sketch[0] + 6, sketch[1] + 6);
        assert_memory_not_equal(sketch[0], sketch[1], 6);
        assert_true(sketch_same(sketch[0], sketch[1], why));
        assert_false(sketch_same(sketch[0], sketch[2], why));
        assert_non_null(strstr(why, "norms differ by 0.0000 and their matrices by "));
    }
}

/* The same network as qwen2 (rows as they are) and as llama (rows of q and k, and their biases, in
 * pairs); and with quantised matrices as with the float32 values that these stand for. */
TEST(rows_and_biases) {
    enum { N = 40 };
    float logits[3][VOCAB];
    double nll[3][N];
    for (int k = 0; k < 2; k++) {
        put_tiny(k ? "qwen2" : "llama", !k, true);
        run_model(path, N, VOCAB, nll[k], logits[k]);
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    assert_memory_equal(nll[0], nll[1], (N - 1) * sizeof *nll[0]);
    put_tiny("qwen2", false, false);
    REFUSES(model_verify_path(path, &err), path, "self_attn.q_proj.bias\" is missing");
}

/* And the same where no copy of a layer stays. */
TEST(quantised_model) {
    enum { N = 40 };
    float logits[3][VOCAB];
    double nll[3][N];
    for (size_t k = 0; k < N_QUANTISED; k++) {
        if (quantised[k].values > WIDTH) { continue; }
        for (int as_f32 = 0; as_f32 < 2; as_f32++) {
            ckvc_rng_init(&rng, 99, k, 1); /* the same blocks both times */
            blocks_of = k;
            blocks_decoded = as_f32;
            put_tiny("llama", true, false);
            blocks_of = N_QUANTISED;
            run_model(path, N, VOCAB, nll[as_f32], logits[as_f32]);
            if (as_f32) { continue; }
            copies_limit = 1;
            run_model(path, N, VOCAB, nll[2], logits[2]);
            copies_limit = 0;
        }
        for (int i = 1; i < 3; i++) {
            assert_memory_equal(logits[0], logits[i], sizeof logits[0]);
            assert_memory_equal(nll[0], nll[i], (N - 1) * sizeof *nll[0]);
        }
    }
}

TEST(quantised_vectors) {
    blocks_of = 0;
    blocks_decoded = false;
    blocks_in_vectors = true;
    put_tiny("llama", true, false);
    blocks_of = N_QUANTISED;
    blocks_in_vectors = false;
    REFUSES(model_verify_path(path, &err), path, "vectors are read as F32, F16 and BF16");
}

/* What a converter writes for Llama 3.1: by 8, low 1, high 4, original 8,192. */
TEST(llama3_rope) {
    enum { D = 64 };
    for (int factor = 8; factor <= 32; factor *= 4) {
        float freqs[D / 2];
        for (int i = 0; i < D / 2; i++) {
            const double wave = 2 * 3.14159265358979323846 * pow(500000.0, 2.0 * i / D);
            const double smooth = (8192 / wave - 1) / (4 - 1);
            freqs[i] = (float)(wave < 8192.0 / 4   ? 1
                               : wave > 8192.0 / 1 ? factor
                                                   : 1 / ((1 - smooth) / factor + smooth));
        }
        gguf_maker g = g_begin();
        static const struct int_key ints[] = {{"block_count", 1},
                                              {"context_length", 131072},
                                              {"embedding_length", D},
                                              {"feed_forward_length", D},
                                              {"attention.head_count", 1}};
        arch_keys(&g, "llama", ints, 5, 1e-5f, 500000.0f);
        g_tensor(&g, "rope_freqs.weight", G_TYPE_F32, (uint64_t[2]){D / 2, 0}, freqs, sizeof freqs);
        static const float embedding[D * 2];
        g_tensor(&g, "token_embd.weight", G_TYPE_F32, (uint64_t[2]){D, 2}, embedding,
                 sizeof embedding);
        put(&g);
        model_shape s;
        OK(model_files_shape(path, &s, &err));
        assert_int_equal(s.rope, ROPE_LLAMA3);
        assert_true(s.rope_factor == factor && s.rope_low_freq == 1 && s.rope_high_freq == 4);
        assert_int_equal(s.rope_original_positions, 8192);
    }
}

TEST(linear_rope) {
    for (int legacy = 0; legacy < 2; legacy++) {
        gguf_maker g = tiny();
        if (legacy) {
            g_f32(&g, "llama.rope.scale_linear", 4.0f);
        } else {
            g_string(&g, "llama.rope.scaling.type", "linear");
            g_f32(&g, "llama.rope.scaling.factor", 4.0f);
        }
        tiny_tensors(&g, true, false);
        put(&g);
        model_shape s;
        OK(model_files_shape(path, &s, &err));
        assert_true(s.rope == ROPE_LINEAR && s.rope_factor == 4);
    }
}

/* ---- tokenizers ---- */
/* What the tokenizer of the file that `g` makes gives, as a text of its own. */
static void ids_are(gguf_maker g, const char *text, size_t n, const int32_t *want) {
    int32_t *ids;
    size_t n_ids;
    tokenizer *t;
    put(&g);
    OK(load_tokenizer(path, &t, &err));
    OK(tokenizer_encode(t, text, strlen(text), true, &ids, &n_ids, &err));
    assert_int_equal(n_ids, n);
    assert_memory_equal(ids, want, n * sizeof *want);
    free(ids);
    OK(tokenizer_encode(t, text, 1, false, &ids, &n_ids, &err)); /* without what begins a text */
    assert_true(n_ids == 1 && ids[0] != want[0]);
    free(ids), tokenizer_free(t);
}

TEST(tiny_ids) {
    ids_are(tiny(), "ABCA<end>B12", 7,
            (int32_t[]){63, 62, 'A' - '!', 63, 'B' - '!', '1' - '!', '2' - '!'});
}

/* The embedded models' tokenizer in GGUF metadata cuts and merges as tokenizer.json does. */
TEST(same_ids_as_directory) {
    token_spec *spec;
    char *name;
    OK(tokenizer_files_read("models/ckvc-tiny-4l", &spec, &name, &err));
    free(name);
    gguf_maker g = g_begin();
    g_string(&g, "tokenizer.ggml.model", "gpt2");
    g_string(&g, "tokenizer.ggml.pre", "llama-bpe");
    g_array(&g, "tokenizer.ggml.tokens", G_STRING, spec->n_pieces);
    for (size_t id = 0; id < spec->n_pieces; id++) {
        for (size_t i = 0; i < spec->n_pieces; i++) {
            if (spec->pieces[i].id == (int32_t)id) {
                g_text(&g.keys, spec->pieces[i].text.bytes, spec->pieces[i].text.size);
            }
        }
    }
    g_array(&g, "tokenizer.ggml.token_type", G_I32, spec->n_pieces);
    for (size_t id = 0; id < spec->n_pieces; id++) {
        uint32_t type = 1;
        for (size_t i = 0; i < spec->n_added; i++) {
            type = spec->added[i].id == (int32_t)id ? 3 : type;
        }
        ckvc_buffer_u32(&g.keys, type);
    }
    g_array(&g, "tokenizer.ggml.merges", G_STRING, spec->n_merges);
    for (size_t i = 0; i < spec->n_merges; i++) {
        char both[512];
        const int n = snprintf(both, sizeof both, "%s %s", spec->merges[i].left.bytes,
                               spec->merges[i].right.bytes);
        g_text(&g.keys, both, (size_t)n);
    }
    g_u32(&g, "tokenizer.ggml.bos_token_id", 0);
    token_spec_free(spec);
    put(&g);
    tokenizer *ours, *theirs;
    OK(load_tokenizer(path, &ours, &err));
    OK(load_tokenizer("models/ckvc-tiny-4l", &theirs, &err));
    static const char text[] = "The year 1984, she'LL say:\n\n  \"naïve café\" 12345 "
                               "\xF0\x9F\x98\x80 <|end_of_text|>\tx = y+1;  \n";
    int32_t *a, *b;
    size_t n_a, n_b;
    OK(tokenizer_encode(ours, text, sizeof text - 1, true, &a, &n_a, &err));
    OK(tokenizer_encode(theirs, text, sizeof text - 1, true, &b, &n_b, &err));
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a * sizeof *a);
    char *back;
    size_t size;
    OK(tokenizer_decode(ours, a, n_a, false, &back, &size, &err));
    assert_memory_equal(back + strlen("<|begin_of_text|>"), text, sizeof text - 1);
    free(a), free(b), free(back), tokenizer_free(ours), tokenizer_free(theirs);
}

#define MARK "\xE2\x96\x81"

/* SentencePiece's merging: the best score goes first; what is unknown is one id. */
static void score_keys(gguf_maker *g, uint64_t n_scores, bool unknown) {
    static const char *const pieces[] = {"<unk>", "<s>", MARK, "a", "b", MARK "a", "ab", MARK "ab"};
    static const float scores[] = {0, 0, -5, -6, -7, -1, -2, -3};
    enum { N = sizeof pieces / sizeof *pieces };
    g_string(g, "tokenizer.ggml.model", "llama");
    g_array(g, "tokenizer.ggml.tokens", G_STRING, N);
    for (int i = 0; i < N; i++) { g_text(&g->keys, pieces[i], strlen(pieces[i])); }
    g_array(g, "tokenizer.ggml.scores", G_F32, n_scores);
    for (uint64_t i = 0; i < n_scores; i++) {
        uint32_t pattern;
        memcpy(&pattern, &scores[i], 4);
        ckvc_buffer_u32(&g->keys, pattern);
    }
    g_array(g, "tokenizer.ggml.token_type", G_I32, N);
    for (int i = 0; i < N; i++) {
        ckvc_buffer_u32(&g->keys, i == 0 && unknown ? 2 : i == 1 ? 3 : 1);
    }
    g_u32(g, "tokenizer.ggml.bos_token_id", 1);
}

/* Mark a joins before a b (-1 over -2), then with b; behind the unknown a and b join. */
TEST(score_ids) {
    gguf_maker g = g_begin();
    score_keys(&g, 8, true);
    ids_are(g, "ab xyab<s>b", 8, (int32_t[]){1, 7, 2, 0, 6, 1, 2, 4});
    g = g_begin(); /* a key names it, as Gemma's files do */
    score_keys(&g, 8, false);
    g_u32(&g, "tokenizer.ggml.unknown_token_id", 0);
    ids_are(g, "ab xyab<s>b", 8, (int32_t[]){1, 7, 2, 0, 6, 1, 2, 4});
}

/* A tokenizer of one piece. */
static void token_keys(gguf_maker *g, const char *model, const char *piece, size_t size) {
    g_string(g, "tokenizer.ggml.model", model);
    g_array(g, "tokenizer.ggml.tokens", G_STRING, 1);
    g_text(&g->keys, piece, size);
}

TEST(tokenizer_refusals) {
#define TOKENS(word, ...)                                                                          \
    do {                                                                                           \
        gguf_maker made = g_begin(), *g = &made;                                                   \
        token_spec *spec;                                                                          \
        char *name;                                                                                \
        __VA_ARGS__;                                                                               \
        put(g);                                                                                    \
        REFUSES(tokenizer_files_read(path, &spec, &name, &err), path, word);                       \
    } while (0)
    TOKENS("key tokenizer.ggml.model is \"bert\", which is not supported",
           g_string(g, "tokenizer.ggml.model", "bert"));
    TOKENS("key tokenizer.ggml.pre is \"tekken\", which is not supported",
           g_string(g, "tokenizer.ggml.model", "gpt2");
           g_string(g, "tokenizer.ggml.pre", "tekken"));
    TOKENS("key tokenizer.ggml.tokens is missing", g_string(g, "tokenizer.ggml.model", "gpt2"));
    TOKENS("key tokenizer.ggml.token_type has 0 items, tokenizer.ggml.tokens 1",
           token_keys(g, "gpt2", "a", 1);
           g_array(g, "tokenizer.ggml.token_type", G_I32, 0));
    TOKENS("token_type of token 0 is 7", token_keys(g, "gpt2", "a", 1);
           g_array(g, "tokenizer.ggml.token_type", G_I32, 1); ckvc_buffer_u32(&g->keys, 7));
    TOKENS("token 0 is not valid UTF-8", token_keys(g, "gpt2", "a\xFF", 2));
    TOKENS("token 0 is empty", token_keys(g, "gpt2", "", 0));
    TOKENS("key tokenizer.ggml.tokens is an array of u8; want an array of string",
           g_string(g, "tokenizer.ggml.model", "gpt2");
           g_array(g, "tokenizer.ggml.tokens", G_U8, 1); ckvc_buffer_u8(&g->keys, 1));
    TOKENS("merge 0 is \"ab\"; want two parts", token_keys(g, "gpt2", "a", 1);
           g_array(g, "tokenizer.ggml.merges", G_STRING, 1); g_text(&g->keys, "ab", 2));
    TOKENS("key tokenizer.ggml.scores has 7 items, tokenizer.ggml.tokens 8",
           score_keys(g, 7, true));
    TOKENS("no token is of the type unknown", score_keys(g, 8, false));
    TOKENS("key tokenizer.ggml.unknown_token_id is 8", score_keys(g, 8, false);
           g_u32(g, "tokenizer.ggml.unknown_token_id", 8));
    TOKENS("1 tokens are of the type byte; want 0 or 256", token_keys(g, "llama", "<0x-1>", 6);
           g_array(g, "tokenizer.ggml.scores", G_F32, 1); ckvc_buffer_u32(&g->keys, 0);
           g_array(g, "tokenizer.ggml.token_type", G_I32, 1); ckvc_buffer_u32(&g->keys, 6));
    TOKENS("a character map is not supported", score_keys(g, 8, true);
           g_array(g, "tokenizer.ggml.precompiled_charsmap", G_U8, 1); ckvc_buffer_u8(&g->keys, 1));
    TOKENS("key tokenizer.ggml.bos_token_id names, and there is none",
           token_keys(g, "gpt2", "a", 1);
           g_array(g, "tokenizer.ggml.merges", G_STRING, 0);
           g_bool(g, "tokenizer.ggml.add_bos_token", 1));
}

static int make_path(void **state) {
    ckvc_rng_init(&rng, 1, 2, 3);
    if (temp_folder_make(state) != 0) { return -1; }
    path = in_temp_folder("model.gguf");
    return 0;
}

RUN_TESTS(make_path, temp_folder_remove)
