/* Features of the learned ranking, and the score, against an independent program (golden/budgets).
 */
#include "lib/policy/policy_parts.h"
#include "tests/unit/golden_model.h"

enum { MAX_T = 256, HEAD_DIM = 32, D = CKVC_FEATURES_1_KEY + HEAD_DIM + 1, G = 3, ROWS = 64 };

/* Of the heads that the file shows. */
typedef struct seen {
    const session *s;
    int32_t layer, head;
    bool rotated; /* keys go in as cached */
    double f[MAX_T][D], layer_attention[MAX_T];
} seen;

static void see(void *ctx, const prefill_head *h) {
    seen *w = ctx;
    const uint32_t T = (uint32_t)h->n_tokens, n_rows = (uint32_t)h->n_rows;
    if (h->layer != w->layer) { return; }
    for (uint32_t r = 0; r < (uint32_t)h->group * n_rows; r++) {
        for (uint32_t t = 0; t < T; t++) {
            w->layer_attention[t] +=
                (double)h->attention[(size_t)r * T + t] / ((double)h->group * n_rows * G);
        }
    }
    if (h->head != w->head) { return; }
    static float plain[MAX_T * HEAD_DIM];
    static double scratch[2 * MAX_T];
    static double few[MAX_T][D - CKVC_FEATURES_OWN];
    const double *inv_freq = session_key_frequencies(w->s);
    for (uint32_t t = 0; t < T; t++) {
        for (uint32_t i = 0; i < HEAD_DIM / 2; i++) {
            const float a = h->keys[t * HEAD_DIM + i], b = h->keys[t * HEAD_DIM + i + HEAD_DIM / 2];
            const double c = cos(t * inv_freq[i]), s = sin(t * inv_freq[i]);
            plain[t * HEAD_DIM + i] = (float)((double)a * c + (double)b * s);
            plain[t * HEAD_DIM + i + HEAD_DIM / 2] = (float)((double)b * c - (double)a * s);
        }
    }
    ckvc_head_view v = {.n_tokens = T,
                        .head_dim = HEAD_DIM,
                        .group = (uint32_t)h->group,
                        .n_rows = n_rows,
                        .attention = h->attention,
                        .keys = w->rotated ? h->keys : plain,
                        .values = h->values,
                        .inv_freq = w->rotated ? inv_freq : NULL};
    ckvc_features(CKVC_FEATURES_1, &v, w->f[0], scratch);
    v.attention = NULL; /* version 2 does without */
    ckvc_features(CKVC_FEATURES_2, &v, few[0], NULL);
    for (uint32_t t = 0; t < T; t++) {
        assert_memory_equal(few[t], w->f[t] + CKVC_FEATURES_OWN, sizeof few[t]);
    }
}

/* 2e-4 where what stands under the log is above 1e-5; else the value itself, 1e-9 (the file's
 * README). Columns 0 ... 12 are logs of attention. */
static void compare_features(const double *got, const json_t *want) {
    assert_int_equal(json_array_size(want), D);
    for (size_t i = 0; i < D; i++) {
        const double expected = json_number_value(json_array_get(want, i));
        const bool small = i < 13 && expected < log(1e-5);
        const double off = small ? fabs(exp(got[i]) - exp(expected)) : fabs(got[i] - expected);
        if (!(off <= (small ? 1e-9 : 2e-4))) {
            fail_msg("feature %zu: got %.9g, wanted %.9g", i + 1, got[i], expected);
        }
    }
}

static void golden(bool rotated) {
    CKVC_AUTO(bench_close) bench b = bench_open_kind("cpu", 2);
    CKVC_AUTO(model_close_at) model *m = NULL;
    OK(model_open_path("models/ckvc-tiny-4l", b.be, &m, &err));
    json_auto_t *root = golden_read("tests/golden/budgets/ckvc-tiny-4l.json");
    json_t *p, *head, *f;
    size_t i, n_compared = 0;
    const char *name, *at;
    json_array_foreach(json_object_get(root, "prompts"), i, p) {
        int64_t n;
        CKVC_AUTO_FREE int32_t *tokens = golden_ids(json_object_get(p, "tokens"), &n);
        const session_limits limits = {.max_prompt = n, .max_window = 64, .max_watched = ROWS};
        CKVC_AUTO(session_destroy_at) session *s = NULL;
        prefill_stats stats;
        OK(sessions_create(m, limits, 1, &s, &err));
        json_object_foreach(json_object_get(p, "features"), name, head) {
            static seen w;
            memset(&w, 0, sizeof w);
            w.s = s;
            w.rotated = rotated;
            assert_int_equal(sscanf(name, "%d,%d", &w.layer, &w.head), 2);
            const prefill_watcher watcher = {.n_rows = ROWS, .on_head = see, .ctx = &w};
            const prefill_input in = {
                .tokens = tokens, .n = n, .n_total = n, .window = 64, .watcher = &watcher};
            OK(sessions_prefill(&(prefill_job){s, in, &stats}, 1, &err));
            ckvc_features_late((uint32_t)n, w.layer_attention, stats.alpha, D,
                               &w.f[0][CKVC_FEATURES_LATE]);
            json_object_foreach(head, at, f) {
                compare_features(w.f[atoi(at)], f);
                n_compared++;
            }
        }
    }
    assert_true(n_compared > 10);
}

TEST(golden_keys_as_cached) { golden(true); }

TEST(golden_keys_before_rotation) { golden(false); }

TEST(unknown_versions_have_no_features) {
    static const uint32_t counts[] = {0, 88, 75, 0}; /* by version */
    for (uint32_t v = 0; v < 4; v++) { assert_int_equal(ckvc_features_count(v, 64), counts[v]); }
}

/* By the formula, with a form so large that exp alone would overflow. */
TEST(score_is_mass_times_softmax_times_norm) {
    const float theta[2] = {2.0f, -1.0f};
    const double f[3][2] = {{500, 100}, {500.5, 100}, {499, 100}}, norm[3] = {1.0, 0.5, 3.0};
    double s[3], z = 0.0;
    ckvc_linear_form(3, 2, f[0], theta, s);
    assert_true(s[0] == 900.0 && s[1] == 901.0 && s[2] == 898.0);
    ckvc_score_learned(3, 0.25, norm, s);
    for (int t = 0; t < 3; t++) { z += exp(2.0 * f[t][0] - 1000.0); }
    for (int t = 0; t < 3; t++) {
        const double want = 0.25 * exp(2.0 * f[t][0] - 1000.0) / z * norm[t];
        assert_true(fabs(exp(s[t]) - want) <= 1e-12);
    }
}

/* Two features of distance end at 1,280, about the length of prompts that tables are made of. */
TEST(distance_ends) {
    enum { T = 3000, AT = T - 1280 };
    static float cache[T][2];
    static double scratch[2 * T], f[T][CKVC_FEATURES_1_KEY - CKVC_FEATURES_OWN + 3];
    const ckvc_head_view v = {T, 2, 1, 0, NULL, cache[0], cache[0], NULL};
    ckvc_features(CKVC_FEATURES_2, &v, f[0], scratch);
    assert_true(f[5][2] == log(T - 5) && f[AT][2] == log(1280));
    assert_true(f[5][8] == 1.25 && f[AT][8] == 1.25 && f[AT + 1][8] < 1.25);
    assert_true(f[5][9] == f[AT][9] && f[AT][9] == log(1280) * log(1280) && f[AT + 1][9] < f[5][9]);
}

/* The column that stands for the window's score is the one that tables have by default. */
TEST(one_column_is_the_default_window_score) {
    enum { T = 50, ALL = 40 };
    static float attention[2][ALL][T], cache[T][2];
    static double mean[T], s[T], scratch[2 * T], f[T][CKVC_FEATURES_1_KEY + 3];
    const ckvc_score window = ckvc_default_score(CKVC_SCORE_WINDOW, 0);
    for (uint32_t q = 0; q < 2; q++) {
        for (uint32_t r = 0; r < ALL; r++) {
            for (uint32_t t = 0; t < T; t++) {
                attention[q][r][t] = (float)(1 + (7 * t + 13 * r + 5 * q) % 31) / 1024;
                if (r >= ALL - window.window) { mean[t] += (double)attention[q][r][t]; }
            }
        }
    }
    for (uint32_t t = 0; t < T; t++) { mean[t] /= 2.0 * window.window; }
    const ckvc_head_view v = {T, 2, 2, ALL, attention[0][0], cache[0], cache[0], NULL};
    ckvc_features(CKVC_FEATURES_1, &v, f[0], scratch);
    ckvc_score_window(T, mean, window.pool, NULL, s);
    for (uint32_t t = 0; t < T; t++) { assert_true(s[t] == f[t][CKVC_FEATURES_WINDOW]); }
    assert_true(s[0] != s[T / 2]);
}

RUN_TESTS(NULL, NULL)
