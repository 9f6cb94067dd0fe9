/* Whole models against Hugging Face transformers (tests/golden/models/README.md says how those
 * numbers were made), and the malformed models, each of which must be refused by name. */
#include "tests/unit/golden_model.h"

#define MODELS "tests/golden/models/"

enum { LOGIT, NLL, MEAN, ALPHA, RHO, STRUCT, SEM, N_WORST };

static double row_max(const json_t *row) {
    double max = 0;
    for (size_t i = 0; i < json_array_size(row); i++) { max = fmax(max, fabs(golden_at(row, i))); }
    return max;
}

static void check_stats(session *s, const int32_t *ids, int64_t n, const json_t *want, worst *w) {
    const prefill_stats got = prefill_of(s, ids, n, n, (int64_t)golden_number(want, "window"));
    const json_t *alpha = json_object_get(want, "alpha"), *rho = json_object_get(want, "rho"),
                 *layer, *row;
    double mean = 0, rho_max = 0;
    size_t l, g;
    compare_row(&w[ALPHA], got.alpha, alpha, n, 2e-4 * row_max(alpha));
    for (int64_t t = 0; t < n; t++) { mean += got.alpha[t] / (double)n; }
    assert_true(fabs(mean - 1.0) < 1e-6);
    json_array_foreach(rho, l, layer) {
        json_array_foreach(layer, g, row) { rho_max = fmax(rho_max, row_max(row)); }
    }
    const float *at = got.rho;
    json_array_foreach(rho, l, layer) {
        json_array_foreach(layer, g, row) {
            for (int64_t t = 0; t < n; t++) {
                compare(&w[RHO], (double)*at++, golden_at(row, (size_t)t), 2e-4 * rho_max);
            }
        }
    }
    compare(&w[STRUCT], got.r_struct, golden_number(want, "r_struct"), 1e-4);
    compare(&w[SEM], got.r_sem, golden_number(want, "r_sem"), 5e-4 * golden_number(want, "r_sem"));
}

static void check_model(const char *name) {
    worst w[N_WORST] = {{"logit", 0}, {"nll", 0},      {"mean_nll", 0}, {"alpha", 0},
                        {"rho", 0},   {"r_struct", 0}, {"r_sem", 0}};
    CKVC_AUTO(bench_close) bench b = bench_open(2);
    CKVC_AUTO_FREE char *path = ckvc_format(MODELS "%s", name);
    CKVC_AUTO_FREE char *file = ckvc_format(MODELS "%s/expected.json", name);
    bench_load(&b, path, limits_of(128, 8, 16, 0));
    assert_string_equal(model_name(b.m), name);
    json_auto_t *root = golden_read(file);
    const json_t *q, *position;
    const size_t vocab = (size_t)model_get_shape(b.m)->vocab;
    CKVC_AUTO_FREE float *got = ckvc_alloc(vocab, sizeof *got);
    size_t i, k;
    json_array_foreach(json_object_get(root, "sequences"), i, q) {
        const json_t *logits = json_object_get(q, "logits");
        int64_t n;
        CKVC_AUTO_FREE int32_t *ids = golden_ids(json_object_get(q, "ids"), &n);
        CKVC_AUTO_FREE double *nll = ckvc_alloc((size_t)n, sizeof *nll);
        double max = 0;
        OK(session_score(b.s, ids, n, nll, &err));
        json_array_foreach(json_object_get(logits, "positions"), k, position) {
            const json_t *row = json_array_get(json_object_get(logits, "values"), k);
            const double row_top = row_max(row);
            max = fmax(max, row_top);
            OK(session_logits(b.s, json_integer_value(position), got, &err));
            for (size_t v = 0; v < vocab; v++) {
                compare(&w[LOGIT], (double)got[v], golden_at(row, v), 2e-4 * row_top);
            }
        }
        assert_in_range(k, 1, 16);
        compare_row(&w[NLL], nll, json_object_get(q, "nll"), n - 1, 2e-4 * max);
        compare(&w[MEAN], nll_mean(nll, n - 1), golden_number(q, "mean_nll"), 2e-4 * max);
        if (json_object_get(q, "stats")) {
            check_stats(b.s, ids, n, json_object_get(q, "stats"), w);
        }
    }
    assert_true(i >= 2);
    worst_print(name, w, N_WORST);
}

TEST(llama_mha) { check_model("llama-mha"); }
TEST(llama3_gqa) { check_model("llama3-gqa"); }
TEST(llama31_scaled) { check_model("llama31-scaled"); }
TEST(llama_newstyle) { check_model("llama-newstyle"); }

TEST(mistral) { check_model("mistral"); }
TEST(mistral_swa) { check_model("mistral-swa"); }
TEST(qwen2) { check_model("qwen2"); }
TEST(qwen2_untied) { check_model("qwen2-untied"); }
TEST(qwen3) { check_model("qwen3"); }
TEST(phi3) { check_model("phi3"); }
TEST(gemma3) { check_model("gemma3"); }
TEST(internlm2) { check_model("internlm2"); }

/* One malformed model a row, and the words that its message must have. */
static const struct {
    const char *dir, *words[3];
} bad_models[] = {
    {"truncated", {"model.safetensors", "data_offsets", NULL}},
    {"header-length-past-end", {"model.safetensors", "past the end", NULL}},
    {"header-length-huge", {"model.safetensors", "18446744073709551615", NULL}},
    {"header-not-json", {"model.safetensors", "not a JSON object", NULL}},
    {"overlapping-offsets", {"model.layers.0.mlp.up_proj.weight", "overlaps", "gate_proj"}},
    {"offsets-past-end", {"lm_head.weight", "outside the file", NULL}},
    {"wrong-shape", {"model.layers.0.mlp.down_proj.weight", "[27,16]", "[16,27]"}},
    {"missing-tensor", {"model.layers.0.post_attention_layernorm.weight", "missing", NULL}},
    {"unknown-dtype", {"model.norm.weight", "F12", NULL}},
    {"duplicate-key", {"model.safetensors", "duplicate", "model.norm.weight"}},
    {"duplicate-key-same-range", {"model.safetensors", "duplicate", "model.norm.weight"}},
    {"config-no-layers", {"config.json", "num_hidden_layers", "missing"}},
    {"heads-not-divisible", {"num_attention_heads=4", "num_key_value_heads=3", NULL}},
    {"unsupported-model-type", {"gpt_neox", "supported: \"llama\"", NULL}},
    {"unsupported-rope-scaling", {"yarn", "not supported", NULL}},
    {"index-path-traversal",
     {"model.safetensors.index.json", "../control/model.safetensors", "plain names"}},
    {"nan-weight", {"model.safetensors", "up_proj.weight[1][2] is NaN", NULL}},
};

TEST(bad_models_are_refused) {
    CKVC_AUTO(bench_close) bench b = bench_open(2);
    for (size_t i = 0; i < sizeof bad_models / sizeof *bad_models; i++) {
        ckvc_err again = {0};
        CKVC_AUTO_FREE char *path = ckvc_format(MODELS "bad/%s", bad_models[i].dir);
        FAILS(model_open_path(path, b.be, &b.m, &err), CKVC_E_DATA);
        assert_null(b.m);
        for (int k = 0; k < 3 && bad_models[i].words[k]; k++) {
            if (strstr(err.text, bad_models[i].words[k]) == NULL) {
                fail_msg("%s: the message \"%s\" does not say \"%s\"", path, err.text,
                         bad_models[i].words[k]);
            }
        }
        assert_int_equal(model_verify_path(path, &again), CKVC_E_DATA);
        assert_string_equal(again.text, err.text);
    }
    SAYS(model_open_path(MODELS "no-such-model", b.be, &b.m, &err), CKVC_E_NOINPUT,
         "no-such-model");
    OK(model_open_path(MODELS "bad/control", b.be, &b.m, &err));
    OK(model_verify_path(MODELS "bad/control", &err));
}

/* Prompts that a session must refuse rather than read outside its tables. */
TEST(bad_tokens) {
    CKVC_AUTO(bench_close) bench b = bench_open(1);
    prefill_stats stats;
    int32_t ids[20] = {0};
    double nll[20];
    prefill_input in = {.tokens = ids, .n = 20, .n_total = 20, .window = 16};
    bench_load(&b, MODELS "llama-mha", limits_of(300, 8, 16, 0));
    ids[7] = 257;
    SAYS(sessions_prefill(&(prefill_job){b.s, in, &stats}, 1, &err), CKVC_E_DATA,
         "token 7 is id 257");
    ids[7] = -1;
    SAYS(session_score(b.s, ids, 20, nll, &err), CKVC_E_DATA, "token 7 is id -1");
    ids[7] = 256;
    in.n_total = 257;
    SAYS(sessions_prefill(&(prefill_job){b.s, in, &stats}, 1, &err), CKVC_E_DATA, "context of 256");
}

RUN_TESTS(NULL, NULL)
