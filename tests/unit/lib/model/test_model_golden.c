/* Whole models against Hugging Face transformers (tests/golden/models/README.md says how those
 * numbers were made), and the malformed models, each of which must be refused by name. */
#include "tests/unit/golden_model.h"
#include "tests/unit/unit.h"

#define MODELS "tests/golden/models/"

enum { LOGIT, NLL, MEAN, ALPHA, RHO, STRUCT, SEM, N_WORST };

static double row_max(const json_t *row) {
    double max = 0;
    for (size_t i = 0; i < json_array_size(row); i++) {
        max = fmax(max, fabs(json_number_value(json_array_get(row, i))));
    }
    return max;
}

static void check_stats(session *s, const int32_t *ids, int64_t n, const json_t *want, worst *w) {
    prefill_stats got;
    const int64_t window = (int64_t)golden_number(want, "window");
    OK(sessions_prefill(
        &(prefill_job){s, (prefill_input){.tokens = ids, .n = n, .n_total = n, .window = window},
                       &got},
        1, &err));
    const json_t *alpha = json_object_get(want, "alpha"), *rho = json_object_get(want, "rho");
    const double alpha_max = row_max(alpha);
    double mean = 0;
    for (int64_t t = 0; t < n; t++) {
        compare(&w[ALPHA], got.alpha[t], json_number_value(json_array_get(alpha, (size_t)t)),
                2e-4 * alpha_max);
        mean += got.alpha[t] / (double)n;
    }
    assert_true(fabs(mean - 1.0) < 1e-6);
    double rho_max = 0;
    for (size_t l = 0; l < json_array_size(rho); l++) {
        for (size_t g = 0; g < json_array_size(json_array_get(rho, l)); g++) {
            rho_max = fmax(rho_max, row_max(json_array_get(json_array_get(rho, l), g)));
        }
    }
    size_t at = 0;
    for (size_t l = 0; l < json_array_size(rho); l++) {
        for (size_t g = 0; g < json_array_size(json_array_get(rho, l)); g++) {
            const json_t *row = json_array_get(json_array_get(rho, l), g);
            for (size_t t = 0; t < (size_t)n; t++) {
                compare(&w[RHO], (double)got.rho[at++], json_number_value(json_array_get(row, t)),
                        2e-4 * rho_max);
            }
        }
    }
    compare(&w[STRUCT], got.r_struct, golden_number(want, "r_struct"), 1e-4);
    compare(&w[SEM], got.r_sem, golden_number(want, "r_sem"), 5e-4 * golden_number(want, "r_sem"));
}

static void check_model(const char *name) {
    worst w[N_WORST] = {{"logit", 0}, {"nll", 0},      {"mean_nll", 0}, {"alpha", 0},
                        {"rho", 0},   {"r_struct", 0}, {"r_sem", 0}};
    char path[256];
    bench b = bench_open(2);
    model *m;
    snprintf(path, sizeof path, MODELS "%s", name);
    OK(model_open_path(path, b.be, &m, &err));
    assert_string_equal(model_name(m), name);
    session *s;
    OK(sessions_create(m,
                       (session_limits){.max_prompt = 128, .max_continuation = 8, .max_window = 16},
                       1, &s, &err));
    snprintf(path, sizeof path, MODELS "%s/expected.json", name);
    json_t *root = golden_read(path);
    const json_t *sequences = json_object_get(root, "sequences");
    const size_t vocab = (size_t)model_get_shape(m)->vocab;
    assert_true(json_array_size(sequences) >= 2);
    for (size_t i = 0; i < json_array_size(sequences); i++) {
        const json_t *q = json_array_get(sequences, i), *logits = json_object_get(q, "logits"),
                     *want_nll = json_object_get(q, "nll");
        int64_t n, positions[16];
        int32_t *ids = golden_ids(json_object_get(q, "ids"), &n);
        const size_t n_positions = json_array_size(json_object_get(logits, "positions"));
        assert_in_range(n_positions, 1, 16);
        for (size_t k = 0; k < n_positions; k++) {
            positions[k] =
                json_integer_value(json_array_get(json_object_get(logits, "positions"), k));
        }
        double *nll = ckvc_alloc((size_t)n, sizeof *nll), max = 0;
        float *got = ckvc_alloc(n_positions * vocab, sizeof *got);
        OK(session_score(s, ids, n, nll, &err));
        for (size_t k = 0; k < n_positions; k++) {
            OK(session_logits(s, positions[k], got + k * vocab, &err));
        }
        for (size_t k = 0; k < n_positions; k++) {
            const json_t *row = json_array_get(json_object_get(logits, "values"), k);
            const double row_top = row_max(row);
            max = fmax(max, row_top);
            for (size_t v = 0; v < vocab; v++) {
                compare(&w[LOGIT], (double)got[k * vocab + v],
                        json_number_value(json_array_get(row, v)), 2e-4 * row_top);
            }
        }
        for (int64_t k = 0; k < n - 1; k++) {
            compare(&w[NLL], nll[k], json_number_value(json_array_get(want_nll, (size_t)k)),
                    2e-4 * max);
        }
        compare(&w[MEAN], nll_mean(nll, n - 1), golden_number(q, "mean_nll"), 2e-4 * max);
        if (json_object_get(q, "stats")) { check_stats(s, ids, n, json_object_get(q, "stats"), w); }
        free(ids);
        free(nll);
        free(got);
    }
    worst_print(name, w, N_WORST);
    json_decref(root);
    session_destroy(s);
    model_close(m);
    bench_close(&b);
}

TEST(llama_mha) { check_model("llama-mha"); }
TEST(llama3_gqa) { check_model("llama3-gqa"); }
TEST(llama31_scaled) { check_model("llama31-scaled"); }
TEST(llama_newstyle) { check_model("llama-newstyle"); }

TEST(mistral) { check_model("mistral"); }
TEST(mistral_swa) { check_model("mistral-swa"); }
TEST(qwen2) { check_model("qwen2"); }
TEST(qwen2_untied) { check_model("qwen2-untied"); }
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
    bench b = bench_open(2);
    for (size_t i = 0; i < sizeof bad_models / sizeof *bad_models; i++) {
        ckvc_err err = {0}, again = {0};
        model *m;
        char path[256];
        snprintf(path, sizeof path, MODELS "bad/%s", bad_models[i].dir);
        ckvc_status rc = model_open_path(path, b.be, &m, &err);
        if (rc != CKVC_E_DATA || m != NULL) {
            fail_msg("%s: status %d, wanted %d", path, (int)rc, (int)CKVC_E_DATA);
        }
        for (int k = 0; k < 3 && bad_models[i].words[k]; k++) {
            if (strstr(err.text, bad_models[i].words[k]) == NULL) {
                fail_msg("%s: the message \"%s\" does not say \"%s\"", path, err.text,
                         bad_models[i].words[k]);
            }
        }
        assert_int_equal(model_verify_path(path, &again), CKVC_E_DATA);
        assert_string_equal(again.text, err.text);
    }
    ckvc_err err = {0};
    model *m;
    OK(model_open_path(MODELS "bad/control", b.be, &m, &err));
    model_close(m);
    OK(model_verify_path(MODELS "bad/control", &err));
    bench_close(&b);
}

TEST(missing_directory) {
    bench b = bench_open(1);
    model *m;
    FAILS(model_open_path(MODELS "no-such-model", b.be, &m, &err), CKVC_E_NOINPUT);
    assert_non_null(strstr(err.text, "no-such-model"));
    bench_close(&b);
}

/* Prompts that a session must refuse rather than read outside its tables. */
TEST(bad_tokens) {
    bench b = bench_open(1);
    model *m;
    session *s;
    prefill_stats stats;
    int32_t ids[20] = {0};
    double nll[20];
    OK(model_open_path(MODELS "llama-mha", b.be, &m, &err));
    OK(sessions_create(m,
                       (session_limits){.max_prompt = 300, .max_continuation = 8, .max_window = 16},
                       1, &s, &err));
    ids[7] = 257;
    FAILS(sessions_prefill(
              &(prefill_job){
                  s, (prefill_input){.tokens = ids, .n = 20, .n_total = 20, .window = 16}, &stats},
              1, &err),
          CKVC_E_DATA);
    assert_non_null(strstr(err.text, "token 7 is id 257"));
    ids[7] = -1;
    FAILS(session_score(s, ids, 20, nll, &err), CKVC_E_DATA);
    assert_non_null(strstr(err.text, "token 7 is id -1"));
    ids[7] = 256;
    FAILS(sessions_prefill(
              &(prefill_job){
                  s, (prefill_input){.tokens = ids, .n = 20, .n_total = 257, .window = 16}, &stats},
              1, &err),
          CKVC_E_DATA);
    assert_non_null(strstr(err.text, "context of 256"));
    session_destroy(s);
    model_close(m);
    bench_close(&b);
}

RUN_TESTS(NULL, NULL)
