/* Statistics and losses of compressed caches on trained models, against an independent PyTorch
 * reference (tests/golden/method/README.md): the kept sets are the file's own, so this tests the
 * runtime and not the selection. */
#include "lib/base/files.h"
#include "tests/unit/golden_model.h"
#include "tests/unit/unit.h"

enum { ALPHA, RHO, STRUCT, SEM, FULL, COMP, REWARD, ADVANTAGE, N_WORST };

/* Kept sets of all layers in memory of their own. */
typedef struct sets {
    int32_t n_layers;
    kept_set *layer; /* [L] */
    uint32_t (*offsets)[2];
    uint32_t **positions; /* [L][T] */
} sets;

static sets sets_create(int32_t n_layers, int64_t n_tokens) {
    sets s = {.n_layers = n_layers};
    s.layer = ckvc_calloc((size_t)n_layers, sizeof *s.layer);
    s.offsets = ckvc_calloc((size_t)n_layers, sizeof *s.offsets);
    s.positions = ckvc_calloc((size_t)n_layers, sizeof *s.positions);
    for (int32_t l = 0; l < n_layers; l++) {
        s.positions[l] = ckvc_calloc((size_t)n_tokens, sizeof **s.positions);
        s.layer[l] = (kept_set){1, s.offsets[l], s.positions[l]};
    }
    return s;
}

static void sets_free(sets *s) {
    for (int32_t l = 0; l < s->n_layers; l++) { free(s->positions[l]); }
    free(s->positions);
    free(s->offsets);
    free(s->layer);
}

static bool holds(const json_t *array, int64_t t) {
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (json_integer_value(json_array_get(array, i)) == t) { return true; }
    }
    return false;
}

/* Layer l keeps `base` without `removed` and with `added` (either may be NULL), ascending. */
static void sets_layer(sets *s, int32_t l, int64_t n_tokens, const json_t *base,
                       const json_t *removed, const json_t *added) {
    uint32_t n = 0;
    for (int64_t t = 0; t < n_tokens; t++) {
        if ((holds(base, t) && !holds(removed, t)) || holds(added, t)) {
            s->positions[l][n++] = (uint32_t)t;
        }
    }
    s->offsets[l][1] = n;
}

static void sets_all(sets *s, int64_t n_tokens, const json_t *lists) {
    assert_int_equal(json_array_size(lists), s->n_layers);
    for (int32_t l = 0; l < s->n_layers; l++) {
        sets_layer(s, l, n_tokens, json_array_get(lists, (size_t)l), NULL, NULL);
    }
}

static double loss(session *s, const int32_t *continuation, int64_t n, const kept_set *kept) {
    double nll[256];
    assert_true(n <= 256);
    OK(session_continue(s, continuation, n, kept, nll, &err));
    return nll_mean(nll, n);
}

static double number_at(const json_t *array, size_t i) {
    assert_true(json_is_number(json_array_get(array, i)));
    return json_number_value(json_array_get(array, i));
}

static void check_stats(const json_t *p, const prefill_stats *got, int32_t n_kv_heads, worst *w) {
    const size_t n = (size_t)got->n_tokens;
    for (size_t t = 0; t < n; t++) {
        const double want = number_at(json_object_get(p, "alpha"), t);
        compare(&w[ALPHA], got->alpha[t], want, 1e-6 + 1e-5 * fabs(want));
    }
    const json_t *layers = json_object_get(p, "rho_layers");
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const size_t l = (size_t)json_integer_value(json_array_get(layers, i));
        for (size_t g = 0; g < (size_t)n_kv_heads; g++) {
            const json_t *row = json_array_get(json_array_get(json_object_get(p, "rho"), i), g);
            for (size_t t = 0; t < n; t++) {
                const double want = number_at(row, t);
                compare(&w[RHO], (double)got->rho[(l * (size_t)n_kv_heads + g) * n + t], want,
                        1e-6 + 1e-5 * fabs(want));
            }
        }
    }
    compare(&w[STRUCT], got->r_struct, golden_number(p, "r_struct"), 1e-6);
    compare(&w[SEM], got->r_sem, golden_number(p, "r_sem"), 1e-5 * golden_number(p, "r_sem"));
}

/* The perturbations of one side: their sets are the block's with one layer changed. */
static size_t check_side(session *s, const int32_t *continuation, int64_t n, int64_t n_tokens,
                         const json_t *block, bool gate, double full, double base, sets *kept,
                         worst *w) {
    const json_t *list = json_object_get(block, gate ? "gate" : "head"),
                 *lists = json_object_get(block, "S");
    const double budget = golden_number(block, "B");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *a = json_array_get(list, i);
        const int32_t l = (int32_t)golden_number(a, "l");
        double comp = base;
        if (!json_is_true(json_object_get(a, "same_S"))) {
            sets_layer(kept, l, n_tokens, json_array_get(lists, (size_t)l),
                       json_object_get(a, "removed"), json_object_get(a, "added"));
            assert_int_equal(kept->offsets[l][1], (uint32_t)golden_number(a, "S_size"));
            comp = loss(s, continuation, n, kept->layer);
            sets_layer(kept, l, n_tokens, json_array_get(lists, (size_t)l), NULL, NULL);
        }
        const double penalty =
            gate ? fmax(0.0, golden_number(a, "n_cand") - budget) / (double)n_tokens : 0.0;
        const double base_penalty =
            gate ? fmax(0.0, number_at(json_object_get(block, "n_cand"), (size_t)l) - budget) /
                       (double)n_tokens
                 : 0.0;
        const double reward = -(comp - full) - penalty, want = golden_number(a, "reward");
        const double want_base = gate ? number_at(json_object_get(block, "r0_gate"), (size_t)l)
                                      : golden_number(block, "r0_head");
        compare(&w[COMP], comp, golden_number(a, "L_comp"), 2e-5);
        compare(&w[REWARD], reward, want, 2e-5);
        compare(&w[ADVANTAGE], reward - (-(base - full) - base_penalty), want - want_base, 5e-6);
    }
    return json_array_size(list);
}

static void check_file(const char *name, const char *golden, const char *dir) {
    worst w[N_WORST] = {{"alpha", 0},  {"rho", 0},    {"r_struct", 0}, {"r_sem", 0},
                        {"L_full", 0}, {"L_comp", 0}, {"reward", 0},   {"advantage", 0}};
    bench b = bench_open(2);
    model *m;
    OK(model_open_path(dir, b.be, &m, &err));
    json_t *root = golden_read(golden);
    const int64_t n_tokens = (int64_t)golden_number(root, "T"),
                  n = (int64_t)golden_number(root, "C"), window = (int64_t)golden_number(root, "W");
    const int32_t n_layers = model_get_shape(m)->n_layers;
    session *s;
    OK(sessions_create(
        m, (session_limits){.max_prompt = n_tokens, .max_continuation = n, .max_window = window}, 1,
        &s, &err));
    sets kept = sets_create(n_layers, n_tokens);
    size_t n_actions = 0;
    const json_t *prompts = json_object_get(root, "prompts");
    for (size_t i = 0; i < json_array_size(prompts); i++) {
        const json_t *p = json_array_get(prompts, i);
        int64_t total;
        int32_t *ids = golden_ids(json_object_get(p, "ids"), &total);
        assert_int_equal(total, n_tokens + n);
        prefill_stats stats;
        OK(sessions_prefill(
            &(prefill_job){
                s,
                (prefill_input){.tokens = ids, .n = n_tokens, .n_total = total, .window = window},
                &stats},
            1, &err));
        check_stats(p, &stats, model_get_shape(m)->n_kv_heads, w);
        const int32_t *continuation = ids + n_tokens;
        const double full = loss(s, continuation, n, NULL);
        compare(&w[FULL], full, golden_number(p, "L_full"), 2e-5);

        const json_t *explicit_sets = json_object_get(p, "explicit"),
                     *blocks = json_object_get(p, "blocks");
        for (size_t k = 0; k < json_array_size(explicit_sets); k++) {
            sets_all(&kept, n_tokens, json_object_get(json_array_get(explicit_sets, k), "S"));
            compare(&w[COMP], loss(s, continuation, n, kept.layer),
                    golden_number(json_array_get(explicit_sets, k), "L_comp"), 2e-5);
        }
        for (size_t k = 0; k < json_array_size(blocks); k++) {
            const json_t *block = json_array_get(blocks, k);
            sets_all(&kept, n_tokens, json_object_get(block, "S"));
            const double base = loss(s, continuation, n, kept.layer);
            compare(&w[COMP], base, golden_number(block, "L_comp"), 2e-5);
            compare(&w[REWARD], -(base - full), golden_number(block, "r0_head"), 2e-5);
            n_actions +=
                check_side(s, continuation, n, n_tokens, block, false, full, base, &kept, w);
            n_actions +=
                check_side(s, continuation, n, n_tokens, block, true, full, base, &kept, w);
        }
        free(ids);
    }
    assert_true(n_actions > 0);
    printf("%s: %zu actions\n", name, n_actions);
    worst_print(name, w, N_WORST);
    sets_free(&kept);
    json_decref(root);
    session_destroy(s);
    model_close(m);
    bench_close(&b);
}

TEST(embedded_model) {
    check_file("ckvc-tiny-4l", "tests/golden/method/ckvc-tiny-4l.json", "models/ckvc-tiny-4l");
}

/* A model that others trained: read where it lies, never copied. */
TEST(outside_model) {
    const char *shared = getenv("CKVC_SHARED");
    char *dir = ckvc_format("%s/data/models/tinystories-656k", shared ? shared : "../shared");
    if (!ckvc_is_dir(dir)) {
        printf("skipped: %s is not there (CKVC_SHARED)\n", dir);
        free(dir);
        skip();
        return;
    }
    check_file("tinystories", "tests/golden/method/tinystories.json", dir);
    free(dir);
}

/* The statistics' identities on the larger embedded model: alpha has mean 1, `visible` too; with T
 * = W + 1 it still works. */
TEST(alpha_identities) {
    bench b = bench_open(2);
    model *m;
    session *s;
    OK(model_open_path("models/ckvc-tiny-8l", b.be, &m, &err));
    const int64_t n = 150, windows[] = {1, 32, 64, 149};
    OK(sessions_create(m, (session_limits){.max_prompt = n, .max_continuation = 1, .max_window = n},
                       1, &s, &err));
    int32_t ids[150];
    for (int i = 0; i < 150; i++) { ids[i] = i == 0 ? 0 : (i * 37 + i * i * 11) % 4096; }
    for (size_t k = 0; k < 4; k++) {
        const int64_t window = windows[k];
        prefill_stats st;
        double paper[150], sum = 0, recent = 0;
        OK(sessions_prefill(
            &(prefill_job){
                s, (prefill_input){.tokens = ids, .n = n, .n_total = n + 1, .window = window}, &st},
            1, &err));
        for (int64_t t = 0; t < n; t++) {
            paper[t] = st.alpha[t];
            sum += paper[t];
            recent += t >= n - window ? paper[t] : 0;
            assert_true(st.alpha_f32[t] == (float)st.alpha[t]);
        }
        assert_true(fabs(sum / (double)n - 1.0) < 1e-9);
        double own = 0; /* every head group stands for as many attention rows: the means agree */
        for (int32_t i = 0; i < 8 * 3; i++) {
            own += st.own_recent[i] / (8 * 3);
            assert_true(st.own_entropy[i] >= 0 && st.own_entropy[i] <= log((double)n) &&
                        st.rho_sd[i] > 0);
        }
        assert_true(fabs(own - recent / sum) < 1e-9);

        OK(sessions_prefill(&(prefill_job){s,
                                           (prefill_input){.tokens = ids,
                                                           .n = n,
                                                           .n_total = n + 1,
                                                           .window = window,
                                                           .alpha_kind = CKVC_ALPHA_VISIBLE},
                                           &st},
                            1, &err));
        double visible[150], want_sum = 0;
        for (int64_t t = 0; t < n; t++) {
            const double rows = t < n - window ? (double)window : (double)(n - t);
            visible[t] = paper[t] / (rows / (double)window);
            want_sum += visible[t];
        }
        for (int64_t t = 0; t < n; t++) {
            assert_true(fabs(st.alpha[t] - visible[t] * (double)n / want_sum) <
                        1e-12 * fmax(1.0, st.alpha[t]));
        }
    }
    session_destroy(s);
    model_close(m);
    bench_close(&b);
}

/* A prompt's numbers are the same bytes for any number of threads, whatever ran before in the
 * session, however long it may get. */
TEST(same_bytes) {
    enum { T = 131, C = 20 };
    double first[C], first_alpha[T];
    float first_rho[8 * 3 * T];
    int32_t ids[T + C];
    for (int i = 0; i < T + C; i++) { ids[i] = (i * 53 + i * i * 7) % 4096; }
    const uint32_t offsets[2] = {0, 4}, positions[4] = {0, 17, 90, 130};
    kept_set kept[8];
    for (int l = 0; l < 8; l++) { kept[l] = (kept_set){1, offsets, positions}; }
    for (int run = 0; run < 4; run++) {
        bench b = bench_open(run % 3 + 1);
        model *m;
        session *s;
        prefill_stats st;
        double nll[C];
        OK(model_open_path("models/ckvc-tiny-8l", b.be, &m, &err));
        OK(sessions_create(m,
                           (session_limits){.max_prompt = T + 100 * run,
                                            .max_continuation = C + 30 * run,
                                            .max_window = 32},
                           1, &s, &err));
        if (run > 1) { /* leave another prompt's rows in every buffer */
            int32_t other[T + 100];
            for (int i = 0; i < T + 100; i++) { other[i] = (i * 97) % 4096; }
            OK(sessions_prefill(
                &(prefill_job){s,
                               (prefill_input){
                                   .tokens = other, .n = T + 100, .n_total = T + 150, .window = 32},
                               &st},
                1, &err));
            double wide[C + 30];
            OK(session_continue(s, other, C + 30, NULL, wide, &err));
        }
        OK(sessions_prefill(
            &(prefill_job){
                s, (prefill_input){.tokens = ids, .n = T, .n_total = T + C, .window = 32}, &st},
            1, &err));
        OK(session_continue(s, ids + T, C, kept, nll, &err));
        if (run == 0) {
            memcpy(first, nll, sizeof first);
            memcpy(first_alpha, st.alpha, sizeof first_alpha);
            memcpy(first_rho, st.rho, sizeof first_rho);
        }
        assert_memory_equal(first, nll, sizeof first);
        assert_memory_equal(first_alpha, st.alpha, sizeof first_alpha);
        assert_memory_equal(first_rho, st.rho, sizeof first_rho);
        session_destroy(s);
        model_close(m);
        bench_close(&b);
    }
}

/* Continuing from the full cache is the same network as scoring prompt and continuation in one
 * piece. */
TEST(continuation_equals_one_piece) {
    enum { T = 100, C = 70 };
    bench b = bench_open(2);
    model *m;
    session *s;
    prefill_stats st;
    int32_t ids[T + C];
    double whole[T + C], nll[C];
    for (int i = 0; i < T + C; i++) { ids[i] = (i * 41 + i * i * 13) % 4096; }
    OK(model_open_path("models/ckvc-tiny-8l", b.be, &m, &err));
    OK(sessions_create(
        m, (session_limits){.max_prompt = T + C, .max_continuation = C, .max_window = 16}, 1, &s,
        &err));
    OK(session_score(s, ids, T + C, whole, &err));
    OK(sessions_prefill(
        &(prefill_job){s, (prefill_input){.tokens = ids, .n = T, .n_total = T + C, .window = 16},
                       &st},
        1, &err));
    OK(session_continue(s, ids + T, C, NULL, nll, &err));
    assert_true(fabs(st.r_sem - exp(nll_mean(whole + T - 17, 16))) < 1e-9 * st.r_sem);
    for (int i = 0; i < C; i++) {
        assert_true(fabs(nll[i] - whole[T - 1 + i]) <
                    1e-4); /* float32, logits up to about 20: rounding in another order */
    }
    /* a set a KV head that is the same for all heads equals the shared set, bit for bit */
    const uint32_t shared_offsets[2] = {0, 3}, shared[3] = {0, 50, 99};
    const uint32_t offsets[4] = {0, 3, 6, 9}, positions[9] = {0, 50, 99, 0, 50, 99, 0, 50, 99};
    kept_set one[8], per_head[8];
    double nll_one[C], nll_head[C];
    for (int l = 0; l < 8; l++) {
        one[l] = (kept_set){1, shared_offsets, shared};
        per_head[l] = (kept_set){3, offsets, positions};
    }
    OK(session_continue(s, ids + T, C, one, nll_one, &err));
    OK(session_continue(s, ids + T, C, per_head, nll_head, &err));
    assert_memory_equal(nll_one, nll_head, sizeof nll_one);
    assert_true(nll_one[0] == nll[0]); /* predicted before compression matters */
    assert_true(nll_one[1] != nll[1]);
    /* a prompt of no more tokens than the window: statistics over the rows that are there */
    for (int n = 1; n <= 16; n += n < 3 ? 1 : 13) {
        const prefill_input in = {.tokens = ids, .n = n, .n_total = n + C, .window = 16};
        double sum = 0;
        OK(sessions_prefill(&(prefill_job){s, in, &st}, 1, &err));
        for (int t = 0; t < n; t++) { sum += st.alpha[t]; }
        assert_true(fabs(sum - n) < 1e-5 && st.r_struct >= 0);
        assert_true(n > 1 ? fabs(st.r_sem - exp(nll_mean(whole, n - 1))) < 1e-4 * st.r_sem
                          : isnan(st.r_sem) && st.r_struct == 0);
        OK(session_continue(s, ids + n, C, NULL, nll, &err));
        for (int i = 0; i < C; i++) { assert_true(fabs(nll[i] - whole[n - 1 + i]) < 1e-4); }
    }
    session_destroy(s);
    model_close(m);
    bench_close(&b);
}

RUN_TESTS(NULL, NULL)
