/* What tells the families apart, beside the golden models: rotary scaling and windows by
 * configuration (against transformers), kept sets under a sliding window (against plain loops), the
 * fused matrix with biases, one rotary base for both parts, weights that do not stay in memory. */
#include "tests/unit/golden_model.h"
#include "tests/unit/naive_model.h"
#include "tests/unit/temp_folder.h"

#define MODELS "tests/golden/models/"

/* The folder becomes golden model `base` with the keys of patch replaced; "-" takes a key out. */
static void patched_model(const char *base, const json_t *patch) {
    char path[256];
    snprintf(path, sizeof path, MODELS "%s/config.json", base);
    json_t *config = golden_read(path), *v;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)patch, key, v) {
        if (json_is_string(v) && strcmp(json_string_value(v), "-") == 0) {
            json_object_del(config, key);
        } else {
            json_object_set(config, key, v);
        }
    }
    CKVC_AUTO_FREE char *text = json_dumps(config, 0);
    put_text("config.json", text);
    json_decref(config);
    snprintf(path, sizeof path, MODELS "%s/model.safetensors", base);
    CKVC_AUTO_FREE char *resolved = realpath(path, NULL);
    assert_non_null(resolved);
    unlink(in_temp_folder("model.safetensors"));
    assert_int_equal(symlink(resolved, in_temp_folder("model.safetensors")), 0);
}

static bench open_model(const char *path, int n_threads, size_t memory) {
    bench b = bench_open(n_threads);
    b.be->ops->weight_limit(b.be, memory);
    bench_load(&b, path, limits_of(128, 32, 16, 0));
    return b;
}

/* The losses of a sequence on a backend that was opened for it alone. */
static void score_alone(const char *path, int n_threads, size_t memory, const int32_t *ids,
                        int64_t n, double *nll) {
    bench b = open_model(path, n_threads, memory);
    OK(session_score(b.s, ids, n, nll, &err));
    bench_close(&b);
}

/* prefill of n_prompt ids, then the n - n_prompt others under sets: losses -> nll [n - n_prompt] */
static void continue_after(session *s, const int32_t *ids, int64_t n_prompt, int64_t n,
                           const kept_set *sets, double *nll) {
    prefill_of(s, ids, n_prompt, n, 16);
    OK(session_continue(s, ids + n_prompt, n - n_prompt, sets, nll, &err));
}

/* The longest sequence of a golden model; the caller frees. */
static int32_t *longest(const char *name, int64_t *n) {
    CKVC_AUTO_FREE char *path = ckvc_format(MODELS "%s/expected.json", name);
    json_auto_t *root = golden_read(path);
    const json_t *sequences = json_object_get(root, "sequences"), *best = NULL;
    for (size_t i = 0; i < json_array_size(sequences); i++) {
        const json_t *ids = json_object_get(json_array_get(sequences, i), "ids");
        best = json_array_size(ids) > json_array_size(best) ? ids : best;
    }
    int32_t *out = golden_ids(best, n);
    return out;
}

TEST(configurations) {
    json_auto_t *root = golden_read("tests/golden/model-variants/expected.json");
    const json_t *cases = json_object_get(root, "cases");
    assert_true(json_array_size(cases) >= 8);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i), *want = json_object_get(c, "nll");
        worst w = {json_string_value(json_object_get(c, "name")), 0};
        patched_model(json_string_value(json_object_get(c, "base")), json_object_get(c, "patch"));
        int64_t n;
        CKVC_AUTO_FREE int32_t *ids = golden_ids(json_object_get(c, "ids"), &n);
        CKVC_AUTO_FREE double *nll = ckvc_alloc((size_t)n, sizeof *nll);
        score_alone(temp_folder, 2, 0, ids, n, nll);
        compare_row(&w, nll, want, n - 1, 2e-4 * golden_number(c, "max_logit"));
        worst_print("tolerance", &w, 1);
    }
}

/* ---- kept sets under a sliding window ---- */

typedef struct view {
    const model_shape *shape;
    int64_t n_prompt;
    const kept_set *sets; /* [L] */
} view;

/* Prompt rows see what the window shows; continuation rows what was kept of it, and each other. */
static bool sees(const void *ctx, int32_t layer, int64_t j, int64_t t) {
    const view *v = ctx;
    const int32_t window = model_shape_window(v->shape, layer);
    if (window > 0 && j - t >= window) { return false; }
    if (j < v->n_prompt || t >= v->n_prompt) { return true; }
    const kept_set *s = &v->sets[layer];
    for (uint32_t i = 0; i < s->offsets[1]; i++) {
        if (s->positions[i] == (uint32_t)t) { return true; }
    }
    return false;
}

/* Sets with members inside, at the edge of and far outside the continuation's window; none. */
static void check_kept(const char *path, const int32_t *ids, int64_t n, int64_t n_prompt) {
    CKVC_AUTO(bench_close) bench b = open_model(path, 2, 0);
    const model_shape *shape = model_get_shape(b.m);
    uint32_t positions[8][128], offsets[8][2] = {{0}};
    kept_set sets[8];
    ckvc_rng rng = rng_of(7, ckvc_rng_key("kept"), 0);
    assert_in_range(shape->n_layers, 1, 8);
    for (int turn = 0; turn < 3; turn++) {
        for (int32_t l = 0; l < shape->n_layers; l++) {
            offsets[l][1] = 0;
            for (uint32_t t = 0; t < (uint32_t)n_prompt; t++) {
                if (!(turn == 1 && l == 1) && (turn == 2 || ckvc_rng_below(&rng, 3) == 0)) {
                    positions[l][offsets[l][1]++] = t;
                }
            }
            sets[l] = (kept_set){1, offsets[l], positions[l], false, {0}};
        }
        double got[128], want[128];
        const view v = {shape, n_prompt, sets};
        worst w = {"kept sets under a window", 0};
        continue_after(b.s, ids, n_prompt, n, sets, got);
        naive_losses(path, ids, n, sees, &v, want);
        for (int64_t i = 0; i < n - n_prompt; i++) {
            compare(&w, got[i], want[n_prompt - 1 + i], 2e-4);
        }
        worst_print(path, &w, 1);
    }
}

TEST(kept_under_window) {
    int64_t n;
    CKVC_AUTO_FREE int32_t *mistral = longest("mistral-swa", &n);
    /* window 24: the last rows see no prompt position at all */
    check_kept(MODELS "mistral-swa", mistral, n, n - 30);
    CKVC_AUTO_FREE int32_t *qwen = longest("qwen2", &n);
    json_auto_t *patch = json_pack("{s:b, s:i, s:i}", "use_sliding_window", true, "sliding_window",
                                   20, "max_window_layers", 2);
    patched_model("qwen2", patch);
    check_kept(temp_folder, qwen, n, n - 32);
}

/* Normed queries and keys of lanes, and the last layer's. */
TEST(kept_of_normed_heads) {
    int64_t n;
    CKVC_AUTO_FREE int32_t *ids = longest("qwen3", &n);
    check_kept(MODELS "qwen3", ids, n, n - 30);
}

/* Of each family's own parts: what follows a prompt whose cache is whole, as in one piece. */
TEST(whole_cache) {
    static const char *const names[] = {"qwen3", "phi3", "gemma3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int64_t n;
        double whole[128], tail[128];
        worst w = {"whole cache", 0};
        CKVC_AUTO_FREE char *path = ckvc_format(MODELS "%s", names[i]);
        CKVC_AUTO_FREE int32_t *ids = longest(names[i], &n);
        CKVC_AUTO(bench_close) bench b = open_model(path, 2, 0);
        OK(session_score(b.s, ids, n, whole, &err));
        continue_after(b.s, ids, n - 30, n, NULL, tail);
        for (int64_t k = 0; k < 30; k++) { compare(&w, tail[k], whole[n - 31 + k], 1e-4); }
        worst_print(names[i], &w, 1);
    }
}

/* ---- internlm2: the fused matrix ---- */

typedef struct tensor_out {
    const char *name;
    int64_t rows, cols;
    const float *data;
} tensor_out;

static void write_model(const char *config, const tensor_out *t, size_t n) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer header = {0}, file = {0};
    size_t offset = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t end = offset + (size_t)(t[i].rows * t[i].cols) * sizeof(float);
        ckvc_buffer_printf(&header, "%c\"%s\":{\"dtype\":\"F32\",\"shape\":[%d", i ? ',' : '{',
                           t[i].name, (int)t[i].rows);
        if (t[i].cols > 1) { ckvc_buffer_printf(&header, ",%d", (int)t[i].cols); }
        ckvc_buffer_printf(&header, "],\"data_offsets\":[%zu,%zu]}", offset, end);
        offset = end;
    }
    ckvc_buffer_text(&header, "}");
    ckvc_buffer_u64(&file, header.size);
    ckvc_buffer_append(&file, header.data, header.size);
    for (size_t i = 0; i < n; i++) {
        ckvc_buffer_append(&file, t[i].data, (size_t)(t[i].rows * t[i].cols) * sizeof(float));
    }
    write_bytes(in_temp_folder("model.safetensors"), file.data, file.size);
    put_text("config.json", config);
}

/* One layer, H = 6, G = 2, D = 4, with biases: as InternLM2 stores it, and as a Llama does. */
TEST(fused_with_biases) {
    enum { M = 24, H = 6, G = 2, D = 4, GROUP = H / G, F = 14, V = 30 };
    enum { FUSED = (H + 2 * G) * D, N = 40 };
    static float wqkv[FUSED * M], bqkv[FUSED], wo[M * H * D], bo[M], w1[F * M], w2[M * F],
        w3[F * M], ends[2 * V * M], norms[3 * M];
    static float q[H * D * M], k[G * D * M], v[G * D * M], qb[H * D], kb[G * D], vb[G * D];
    const struct {
        float *data;
        size_t n;
        float scale, centre;
    } fill[] = {{wqkv, FUSED * M, 0.7f, 0}, {bqkv, FUSED, 1.5f, 0},     {wo, M * H * D, 0.4f, 0},
                {bo, M, 0.5f, 0},           {w1, F * M, 0.5f, 0},       {w2, M * F, 0.5f, 0},
                {w3, F * M, 0.5f, 0},       {ends, 2 * V * M, 1.0f, 0}, {norms, 3 * M, 0.3f, 1}};
    ckvc_rng rng = rng_of(11, ckvc_rng_key("fused"), 0);
    for (size_t i = 0; i < sizeof fill / sizeof *fill; i++) {
        for (size_t j = 0; j < fill[i].n; j++) {
            fill[i].data[j] =
                fill[i].centre + fill[i].scale * (float)(2 * ckvc_rng_double(&rng) - 1);
        }
    }
    for (int g = 0; g < G; g++) {
        for (int part = 0; part < GROUP + 2; part++) {
            const int from = (g * (GROUP + 2) + part) * D,
                      head = part < GROUP ? g * GROUP + part : g;
            float *const to[][2] = {{q, qb}, {k, kb}, {v, vb}};
            float *const *of = to[part < GROUP ? 0 : 1 + part - GROUP];
            memcpy(of[0] + head * D * M, wqkv + from * M, D * M * sizeof(float));
            memcpy(of[1] + head * D, bqkv + from, D * sizeof(float));
        }
    }
#define SHAPE                                                                                      \
    "\"num_hidden_layers\":1,\"num_attention_heads\":6,\"num_key_value_heads\":2,"                 \
    "\"hidden_size\":24,\"intermediate_size\":14,\"vocab_size\":30,"                               \
    "\"max_position_embeddings\":128}"
    int32_t ids[N];
    double fused[N], split[N];
    for (int i = 0; i < N; i++) { ids[i] = (int32_t)ckvc_rng_below(&rng, V); }
    const tensor_out internlm2[] = {
        {"model.tok_embeddings.weight", V, M, ends},
        {"output.weight", V, M, ends + V * M},
        {"model.norm.weight", M, 1, norms},
        {"model.layers.0.attention_norm.weight", M, 1, norms + M},
        {"model.layers.0.ffn_norm.weight", M, 1, norms + 2 * M},
        {"model.layers.0.attention.wqkv.weight", FUSED, M, wqkv},
        {"model.layers.0.attention.wqkv.bias", FUSED, 1, bqkv},
        {"model.layers.0.attention.wo.weight", M, H * D, wo},
        {"model.layers.0.attention.wo.bias", M, 1, bo},
        {"model.layers.0.feed_forward.w1.weight", F, M, w1},
        {"model.layers.0.feed_forward.w3.weight", F, M, w3},
        {"model.layers.0.feed_forward.w2.weight", M, F, w2},
    };
    const tensor_out llama[] = {
        {"model.embed_tokens.weight", V, M, ends},
        {"lm_head.weight", V, M, ends + V * M},
        {"model.norm.weight", M, 1, norms},
        {"model.layers.0.input_layernorm.weight", M, 1, norms + M},
        {"model.layers.0.post_attention_layernorm.weight", M, 1, norms + 2 * M},
        {"model.layers.0.self_attn.q_proj.weight", H * D, M, q},
        {"model.layers.0.self_attn.q_proj.bias", H * D, 1, qb},
        {"model.layers.0.self_attn.k_proj.weight", G * D, M, k},
        {"model.layers.0.self_attn.k_proj.bias", G * D, 1, kb},
        {"model.layers.0.self_attn.v_proj.weight", G * D, M, v},
        {"model.layers.0.self_attn.v_proj.bias", G * D, 1, vb},
        {"model.layers.0.self_attn.o_proj.weight", M, H * D, wo},
        {"model.layers.0.self_attn.o_proj.bias", M, 1, bo},
        {"model.layers.0.mlp.gate_proj.weight", F, M, w1},
        {"model.layers.0.mlp.up_proj.weight", F, M, w3},
        {"model.layers.0.mlp.down_proj.weight", M, F, w2},
    };
    write_model("{\"model_type\":\"internlm2\"," SHAPE, internlm2,
                sizeof internlm2 / sizeof *internlm2);
    score_alone(temp_folder, 2, 0, ids, N, fused);
    write_model("{\"model_type\":\"llama\",\"attention_bias\":true," SHAPE, llama,
                sizeof llama / sizeof *llama);
    score_alone(temp_folder, 2, 0, ids, N, split);
    for (int i = 0; i < N - 1; i++) { assert_true(fused[i] == split[i] && isfinite(fused[i])); }
}

/* ---- one base for prompt and continuation ---- */

/* Dynamic scaling takes its base from T + C: prompt and continuation are the sequence in one piece.
 * T alone fits the configured positions (104), so a base from T would be another. */
TEST(dynamic_base) {
    int64_t n;
    CKVC_AUTO_FREE int32_t *ids = longest("internlm2", &n);
    CKVC_AUTO(bench_close) bench b = open_model(MODELS "internlm2", 2, 0);
    assert_true(n > 104 && model_get_shape(b.m)->max_positions == 104);
    double whole[128], tail[128], inside[128];
    worst w = {"one base", 0};
    OK(session_score(b.s, ids, n, whole, &err));
    continue_after(b.s, ids, n - 30, n, NULL, tail);
    for (int64_t i = 0; i < 30; i++) { compare(&w, tail[i], whole[n - 31 + i], 1e-4); }
    /* a shorter sequence afterwards has the plain base again */
    OK(session_score(b.s, ids, 100, inside, &err));
    continue_after(b.s, ids, 80, 100, NULL, tail);
    for (int64_t i = 0; i < 20; i++) { compare(&w, tail[i], inside[79 + i], 1e-4); }
    assert_true(fabs(inside[98] - whole[98]) > 1e-3);
}

/* ---- weights that do not stay in memory ---- */

/* Limits from nothing to everything, and other numbers of threads: the same bytes. */
TEST(memory_limits) {
    static const char *const names[] = {"llama31-scaled", "internlm2", "qwen2",
                                        "qwen3",          "phi3",      "gemma3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int64_t n;
        double want[128], got[128];
        CKVC_AUTO_FREE char *path = ckvc_format(MODELS "%s", names[i]);
        CKVC_AUTO_FREE int32_t *ids = longest(names[i], &n);
        score_alone(path, 2, 0, ids, n, want);
        static const size_t limits[] = {1, 2u << 20, 4u << 20, 1u << 30};
        for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
            CKVC_AUTO(bench_close) bench b = open_model(path, k % 2 ? 1 : 3, limits[k]);
            for (int turn = 0; turn < 3; turn++) {
                OK(session_score(b.s, ids, n, got, &err));
                assert_memory_equal(got, want, (size_t)(n - 1) * sizeof *got);
            }
        }
    }
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
