/* Statistics and losses of compressed caches on trained models, against an independent PyTorch
 * reference (tests/golden/method/README.md): the kept sets are made by hand, empty and whole ones
 * among them. Those of actions are test_rewards_golden's. */
#include "tests/unit/golden_model.h"

enum { ALPHA, RHO, STRUCT, SEM, FULL, COMP, N_WORST };

static void check_stats(const json_t *p, const prefill_stats *got, int32_t n_kv_heads, worst *w) {
    const size_t n = (size_t)got->n_tokens;
    const json_t *layer, *row;
    size_t i, g;
    for (size_t t = 0; t < n; t++) {
        const double want = golden_at(json_object_get(p, "alpha"), t);
        compare(&w[ALPHA], got->alpha[t], want, 1e-6 + 1e-5 * fabs(want));
    }
    json_array_foreach(json_object_get(p, "rho"), i, layer) {
        const size_t l = (size_t)golden_at(json_object_get(p, "rho_layers"), i);
        json_array_foreach(layer, g, row) {
            const float *rho = got->rho + (l * (size_t)n_kv_heads + g) * n;
            for (size_t t = 0; t < n; t++) {
                const double want = golden_at(row, t);
                compare(&w[RHO], (double)rho[t], want, 1e-6 + 1e-5 * fabs(want));
            }
        }
        assert_int_equal(g, n_kv_heads);
    }
    assert_int_equal(i, json_array_size(json_object_get(p, "rho_layers")));
    compare(&w[STRUCT], got->r_struct, golden_number(p, "r_struct"), 1e-6);
    compare(&w[SEM], got->r_sem, golden_number(p, "r_sem"), 1e-5 * golden_number(p, "r_sem"));
}

static void check_file(const char *name, const char *golden, const char *dir) {
    worst w[N_WORST] = {{"alpha", 0}, {"rho", 0},    {"r_struct", 0},
                        {"r_sem", 0}, {"L_full", 0}, {"L_comp", 0}};
    CKVC_AUTO(bench_close) bench b = bench_open(2);
    json_auto_t *root = golden_read(golden);
    const int64_t n_tokens = (int64_t)golden_number(root, "T"),
                  n = (int64_t)golden_number(root, "C"), window = (int64_t)golden_number(root, "W");
    bench_load(&b, dir, limits_of(n_tokens, n, window, 0));
    const model_shape *shape = model_get_shape(b.m);
    some_sets kept;
    size_t n_sets = 0, i, k;
    const json_t *given, *one;
    assert_true(shape->n_layers <= MAX_L);
    json_array_foreach(json_object_get(root, "prompts"), i, given) {
        int64_t total;
        CKVC_AUTO_FREE int32_t *ids = golden_ids(json_object_get(given, "ids"), &total);
        assert_int_equal(total, n_tokens + n);
        const prefill_stats stats = prefill_of(b.s, ids, n_tokens, total, window);
        check_stats(given, &stats, shape->n_kv_heads, w);
        compare(&w[FULL], continued(b.s, ids + n_tokens, n, NULL), golden_number(given, "L_full"),
                2e-5);
        json_array_foreach(json_object_get(given, "explicit"), k, one) {
            golden_sets(&kept, json_object_get(one, "S"));
            compare(&w[COMP], continued(b.s, ids + n_tokens, n, kept.sets),
                    golden_number(one, "L_comp"), 2e-5);
            n_sets++;
        }
    }
    assert_true(n_sets > 10);
    worst_print(name, w, N_WORST);
}

TEST(embedded_model) {
    check_file("ckvc-tiny-4l", "tests/golden/method/ckvc-tiny-4l.json", "models/ckvc-tiny-4l");
}

/* A model that others trained: read where it lies, never copied. */
TEST(outside_model) {
    check_file("tinystories", "tests/golden/method/tinystories.json",
               shared_data("models", "tinystories-656k"));
}

/* Identities on the larger embedded model: alpha has mean 1, `visible` too; T = W + 1 works. */
TEST(alpha_identities) {
    CKVC_AUTO(bench_close) bench b = bench_open(2);
    const int64_t n = 150, windows[] = {1, 32, 64, 149};
    bench_load(&b, "models/ckvc-tiny-8l", limits_of(n, 1, n, 0));
    int32_t ids[150];
    for (int i = 0; i < 150; i++) { ids[i] = i == 0 ? 0 : (i * 37 + i * i * 11) % 4096; }
    for (size_t k = 0; k < 4; k++) {
        const int64_t window = windows[k];
        prefill_stats st = prefill_of(b.s, ids, n, n + 1, window);
        double paper[150], sum = 0, recent = 0;
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

        const prefill_input in = {.tokens = ids,
                                  .n = n,
                                  .n_total = n + 1,
                                  .window = window,
                                  .alpha_kind = CKVC_ALPHA_VISIBLE};
        OK(sessions_prefill(&(prefill_job){b.s, in, &st}, 1, &err));
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
}

/* The same bytes on any threads, whatever ran before in the session, however long it may get. */
TEST(same_bytes) {
    enum { T = 131, C = 20 };
    double first[C], first_alpha[T];
    float first_rho[8 * 3 * T];
    int32_t ids[T + C];
    fill_ids(ids, T + C, 53, 4096);
    const uint32_t offsets[2] = {0, 4}, positions[4] = {0, 17, 90, 130};
    kept_set kept[8];
    for (int l = 0; l < 8; l++) { kept[l] = (kept_set){1, offsets, positions, false, {0}}; }
    for (int run = 0; run < 4; run++) {
        bench b = bench_open(run % 3 + 1);
        double nll[C];
        bench_load(&b, "models/ckvc-tiny-8l", limits_of(T + 100 * run, C + 30 * run, 32, 0));
        if (run > 1) { /* leave another prompt's rows in every buffer */
            int32_t other[T + 100];
            for (int i = 0; i < T + 100; i++) { other[i] = (i * 97) % 4096; }
            prefill_of(b.s, other, T + 100, T + 150, 32);
            double wide[C + 30];
            OK(session_continue(b.s, other, C + 30, NULL, wide, &err));
        }
        const prefill_stats st = prefill_of(b.s, ids, T, T + C, 32);
        OK(session_continue(b.s, ids + T, C, kept, nll, &err));
        if (run == 0) {
            memcpy(first, nll, sizeof first);
            memcpy(first_alpha, st.alpha, sizeof first_alpha);
            memcpy(first_rho, st.rho, sizeof first_rho);
        }
        assert_memory_equal(first, nll, sizeof first);
        assert_memory_equal(first_alpha, st.alpha, sizeof first_alpha);
        assert_memory_equal(first_rho, st.rho, sizeof first_rho);
        bench_close(&b);
    }
}

/* Continuing from the full cache is scoring prompt and continuation in one piece. */
TEST(continuation_equals_one_piece) {
    enum { T = 100, C = 70 };
    CKVC_AUTO(bench_close) bench b = bench_open(2);
    int32_t ids[T + C];
    double whole[T + C], nll[C];
    for (int i = 0; i < T + C; i++) { ids[i] = (i * 41 + i * i * 13) % 4096; }
    bench_load(&b, "models/ckvc-tiny-8l", limits_of(T + C, C, 16, 0));
    OK(session_score(b.s, ids, T + C, whole, &err));
    prefill_stats st = prefill_of(b.s, ids, T, T + C, 16);
    OK(session_continue(b.s, ids + T, C, NULL, nll, &err));
    assert_true(fabs(st.r_sem - exp(nll_mean(whole + T - 17, 16))) < 1e-9 * st.r_sem);
    /* float32, logits up to about 20: rounding in another order */
    for (int i = 0; i < C; i++) { assert_true(fabs(nll[i] - whole[T - 1 + i]) < 1e-4); }
    /* a set a KV head that is the same for all heads equals the shared set, bit for bit */
    const uint32_t shared_offsets[2] = {0, 3}, shared[3] = {0, 50, 99};
    const uint32_t offsets[4] = {0, 3, 6, 9}, positions[9] = {0, 50, 99, 0, 50, 99, 0, 50, 99};
    kept_set one[8], per_head[8];
    double nll_one[C], nll_head[C];
    for (int l = 0; l < 8; l++) {
        one[l] = (kept_set){1, shared_offsets, shared, false, {0}};
        per_head[l] = (kept_set){3, offsets, positions, false, {0}};
    }
    OK(session_continue(b.s, ids + T, C, one, nll_one, &err));
    OK(session_continue(b.s, ids + T, C, per_head, nll_head, &err));
    assert_memory_equal(nll_one, nll_head, sizeof nll_one);
    assert_true(nll_one[0] == nll[0]); /* predicted before compression matters */
    assert_true(nll_one[1] != nll[1]);
    /* a prompt of no more tokens than the window: statistics over the rows that are there */
    for (int n = 1; n <= 16; n += n < 3 ? 1 : 13) {
        double sum = 0;
        st = prefill_of(b.s, ids, n, n + C, 16);
        for (int t = 0; t < n; t++) { sum += st.alpha[t]; }
        assert_true(fabs(sum - n) < 1e-5 && st.r_struct >= 0);
        assert_true(n > 1 ? fabs(st.r_sem - exp(nll_mean(whole, n - 1))) < 1e-4 * st.r_sem
                          : isnan(st.r_sem) && st.r_struct == 0);
        OK(session_continue(b.s, ids + n, C, NULL, nll, &err));
        for (int i = 0; i < C; i++) { assert_true(fabs(nll[i] - whole[n - 1 + i]) < 1e-4); }
    }
}

RUN_TESTS(NULL, NULL)
