/* What later rows attend to, and what a prefill shows: against an independent float64 program
 * (tests/golden/budgets), and against each other. */
#include "tests/unit/golden_model.h"

/* got against want [L][G][T] in nested arrays; the first n_zero positions are zero in the file by
 * definition. 2e-6 but for one value in four hundred: in the last layer scores have gone through
 * four layers in float32, and a maximum over all rows finds those that rounding moved most (each
 * kind of kernel others; scores in double do not help). */
static void compare_targets(worst *w, const double *got, const json_t *want, size_t n_zero) {
    const json_t *layer, *head, *number;
    size_t l, g, t, i = 0, n_off = 0;
    json_array_foreach(want, l, layer) {
        json_array_foreach(layer, g, head) {
            json_array_foreach(head, t, number) {
                const double value = t < n_zero ? 0 : got[i], expected = json_number_value(number);
                n_off += fabs(value - expected) > 2e-6;
                compare(w, value, expected, 4e-6);
                i++;
            }
        }
    }
    assert_true(i > 0 && n_off <= i / 400);
}

/* y_c: the mean over the continuation's fed rows. y_r: the maximum over the repetition's. */
static void golden(const char *kind) {
    worst w[] = {{"y_c", 0}, {"y_r", 0}};
    CKVC_AUTO(bench_close) bench b = bench_open_kind(kind, 2);
    OK(model_open_path("models/ckvc-tiny-4l", b.be, &b.m, &err));
    const model_shape *shape = model_get_shape(b.m);
    json_auto_t *root = golden_read("tests/golden/budgets/ckvc-tiny-4l.json");
    int64_t n_instruction;
    CKVC_AUTO_FREE int32_t *instruction =
        golden_ids(json_object_get(root, "instruction"), &n_instruction);
    const json_t *p;
    size_t i;
    json_array_foreach(json_object_get(root, "prompts"), i, p) {
        int64_t n, c;
        CKVC_AUTO_FREE int32_t *tokens = golden_ids(json_object_get(p, "tokens"), &n);
        CKVC_AUTO_FREE int32_t *continuation = golden_ids(json_object_get(p, "continuation"), &c);
        const int64_t repeated = n_instruction + n;
        const session_limits limits = {
            .max_prompt = n, .max_continuation = c, .max_window = 1, .max_targets = repeated};
        CKVC_AUTO_FREE double *out =
            ckvc_alloc((size_t)(shape->n_layers * shape->n_kv_heads * n), sizeof *out);
        CKVC_AUTO_FREE int32_t *again = ckvc_alloc((size_t)repeated, sizeof *again);
        memcpy(again, instruction, (size_t)n_instruction * sizeof *again);
        memcpy(again + n_instruction, tokens, (size_t)n * sizeof *again);
        CKVC_AUTO(session_destroy_at) session *s = NULL;
        OK(sessions_create(b.m, limits, 1, &s, &err));
        prefill_of(s, tokens, n, n + repeated, 1);
        if (c > 1) {
            const target_input fed = {.tokens = continuation, .n = c - 1};
            OK(sessions_targets(&(target_job){s, fed, out}, 1, &err));
            compare_targets(&w[0], out, json_object_get(p, "y_c"), 0);
        }
        const target_input repeat = {
            .tokens = again, .n = repeated, .first_row = n_instruction, .largest = true};
        OK(sessions_targets(&(target_job){s, repeat, out}, 1, &err));
        compare_targets(&w[1], out, json_object_get(p, "y_r"), 4);
    }
    worst_print(b.be->kernel, w, 2);
}

TEST(golden_own_kernels) { golden("cpu"); }

TEST(golden_openblas) { golden("openblas"); }

enum { T = 150, C = 90, L = 4, G = 3, GROUP = 2, D = 32, ROWS = 40 };

/* What a watcher has seen of all heads. */
typedef struct watched {
    float attention[L][G][GROUP][ROWS][T], keys[L][G][T][D], queries[L][G][GROUP][T][D];
    double column_sum[L][G][T], norms[L][G][T];
    int n_heads;
} watched;

static void see(void *ctx, const prefill_head *head) {
    watched *w = ctx;
    const int32_t l = head->layer, g = head->head;
    assert_int_equal(l * G + g, w->n_heads++);
    assert_int_equal(head->group, GROUP);
    assert_int_equal(head->n_tokens, T);
    assert_int_equal(head->head_dim, D);
    assert_int_equal(head->n_rows, ROWS);
    memcpy(w->attention[l][g], head->attention, sizeof w->attention[l][g]);
    memcpy(w->keys[l][g], head->keys, sizeof w->keys[l][g]);
    memcpy(w->norms[l][g], head->value_norms, sizeof w->norms[l][g]);
    if (head->queries) { memcpy(w->queries[l][g], head->queries, sizeof w->queries[l][g]); }
    if (head->column_sum) {
        memcpy(w->column_sum[l][g], head->column_sum, sizeof w->column_sum[l][g]);
    }
    for (int t = 0; t < T; t++) {
        double squares = 0;
        for (int d = 0; d < D; d++) {
            squares += (double)head->values[t * D + d] * (double)head->values[t * D + d];
        }
        assert_true(fabs(sqrt(squares) - head->value_norms[t]) < 1e-12);
    }
}

/* A watcher sees what the statistics and queries times keys say. */
TEST(watcher) {
    CKVC_AUTO(bench_close) bench b = bench_open(2);
    int32_t ids[T];
    double alpha[T], norms[L * G * T];
    CKVC_AUTO_FREE watched *w = ckvc_calloc(1, sizeof *w);
    const prefill_watcher watch = {
        .n_rows = ROWS, .queries = true, .column_sum = true, .on_head = see, .ctx = w};
    fill_ids(ids, T, 41, 4096);
    bench_load(
        &b, "models/ckvc-tiny-4l",
        (session_limits){
            .max_prompt = T + 9, .max_continuation = 2, .max_window = ROWS, .max_watched = ROWS});
    prefill_stats stats = prefill_of(b.s, ids, T, T + 2, ROWS);
    memcpy(alpha, stats.alpha, sizeof alpha);
    const double r_sem = stats.r_sem;
    const prefill_input in = {
        .tokens = ids, .n = T, .n_total = T + 2, .window = ROWS, .watcher = &watch};
    OK(sessions_prefill(&(prefill_job){b.s, in, &stats}, 1, &err));
    assert_int_equal(w->n_heads, L * G);
    assert_memory_equal(alpha, stats.alpha, sizeof alpha); /* watching changes nothing */
    assert_true(r_sem == stats.r_sem);
    OK(session_value_norms(b.s, norms, &err));
    assert_memory_equal(norms, w->norms, sizeof norms);

    /* all heads' rows are alpha; a row from its queries and keys */
    double sum[T] = {0};
    for (int i = 0; i < L * G * GROUP * ROWS; i++) {
        const float *row = &w->attention[0][0][0][0][0] + (size_t)i * T;
        const int j = T - ROWS + i % ROWS, head = i / ROWS;
        const float *q = &w->queries[0][0][0][0][0] + ((size_t)head * T + (size_t)j) * D,
                    *k = &w->keys[0][0][0][0] + (size_t)(head / GROUP) * T * D;
        double e[T], all = 0;
        for (int t = 0; t <= j; t++) {
            e[t] = 0;
            for (int d = 0; d < D; d++) { e[t] += (double)q[d] * (double)k[t * D + d]; }
            all += e[t] = exp(e[t] / sqrt(D));
        }
        for (int t = 0; t < T; t++) {
            sum[t] += (double)row[t];
            /* scores are sums of 32 products in float32: 1e-6 is seen */
            assert_true(t <= j ? fabs((double)row[t] - e[t] / all) < 1e-5 : row[t] == 0);
        }
    }
    for (int t = 0; t < T; t++) {
        const double mean = sum[t] / (L * G * GROUP * ROWS) * T;
        assert_true(fabs(mean - alpha[t]) < 1e-7 + 1e-7 * alpha[t]); /* rows rounded: 6e-9 */
    }
    /* every row sums to 1 (1e-13 is seen), and the first sees itself alone */
    for (int i = 0; i < L * G; i++) {
        const double *column = &w->column_sum[0][0][0] + (size_t)i * T;
        double all = 0;
        for (int t = 0; t < T; t++) { all += column[t]; }
        assert_true(fabs(all - GROUP * T) < 1e-6 && column[0] >= GROUP);
    }
}

/* Compares wanted rows, [n][L][H][D], with a watcher's queries after they are rotated as it saw
 * them. */
static double furthest(const session *s, const query_rows *of, int64_t position, const watched *w) {
    const double *frequencies = session_key_frequencies(s);
    double worst = 0;
    for (int64_t i = 0; i < of->n * L * G * GROUP; i++) {
        const int64_t row = of->rows[i / (L * G * GROUP)], head = i % (L * G * GROUP);
        const float *q = of->out + i * D,
                    *want = &w->queries[0][0][0][0][0] + (head * T + position + row) * D;
        for (int k = 0; k < D / 2; k++) {
            const double angle = (double)(position + row) * frequencies[k], x = (double)q[k],
                         y = (double)q[k + D / 2],
                         got[2] = {x * cos(angle) - y * sin(angle),
                                   x * sin(angle) + y * cos(angle)};
            worst = fmax(worst, fabs(got[0] - (double)want[k]));
            worst = fmax(worst, fabs(got[1] - (double)want[k + D / 2]));
        }
    }
    return worst;
}

/* Queries of a prefill's rows and of a continuation's, in all layers, against those that a watcher
 * sees of a prefill of both; and nothing else notices that they are wanted. */
TEST(queries) {
    enum { N = T - C, BEHIND = C - 1 }; /* what is watched is prompt and continuation */
    static const uint32_t rows[3] = {0, 7, N - 1}, behind[2] = {0, BEHIND - 1};
    static float out[3 * L * G * GROUP * D], out_behind[2 * L * G * GROUP * D];
    CKVC_AUTO(bench_close) bench b = bench_open(2);
    CKVC_AUTO_FREE watched *w = ckvc_calloc(1, sizeof *w);
    const prefill_watcher watch = {.n_rows = ROWS, .queries = true, .on_head = see, .ctx = w};
    static const rollout_lane full = {.parent = -1};
    int32_t ids[T];
    double alpha[N], nll[2][C], targets[2][L * G * N];
    prefill_stats stats;
    fill_ids(ids, T, 43, 4096);
    bench_load(&b, "models/ckvc-tiny-4l",
               (session_limits){.max_prompt = T,
                                .max_continuation = C,
                                .max_window = 8,
                                .max_targets = BEHIND,
                                .max_watched = ROWS});
    prefill_input in = {.tokens = ids, .n = T, .n_total = T, .window = 8, .watcher = &watch};
    OK(sessions_prefill(&(prefill_job){b.s, in, &stats}, 1, &err));
    for (int wanted = 0; wanted < 2; wanted++) {
        in = (prefill_input){.tokens = ids, .n = N, .n_total = T, .window = 8};
        rollout_job job = {.session = b.s,
                           .continuation = ids + N,
                           .n = C,
                           .lanes = &full,
                           .n_lanes = 1,
                           .nll = nll[wanted],
                           .targets = targets[wanted]};
        if (wanted) {
            in.queries = (query_rows){rows, 3, out};
            job.queries = (query_rows){behind, 2, out_behind};
        }
        OK(sessions_prefill(&(prefill_job){b.s, in, &stats}, 1, &err));
        if (!wanted) { memcpy(alpha, stats.alpha, sizeof alpha); }
        assert_memory_equal(alpha, stats.alpha, sizeof alpha);
        OK(sessions_rollouts(&job, 1, &err));
    }
    assert_memory_equal(nll[0], nll[1], sizeof nll[0]);
    assert_memory_equal(targets[0], targets[1], sizeof targets[0]);
    /* a turn there and back moves a float32 of about 4 by 2e-7; behind a prompt attention is also
     * summed in another order, in four layers: 2e-6 is seen */
    const double of_prompt = furthest(b.s, &(query_rows){rows, 3, out}, 0, w),
                 of_continuation = furthest(b.s, &(query_rows){behind, 2, out_behind}, N, w);
    printf("queries: %.1e %.1e\n", of_prompt, of_continuation);
    assert_true(of_prompt < 4e-6 && of_continuation < 2e-5);
}

/* The same bytes on any number of threads, whatever came before in the session and however much it
 * may hold; a continuation's losses do not notice. */
TEST(same_bytes) {
    static double first[2][L * G * T], out[L * G * T];
    double first_nll[C], nll[C];
    int32_t ids[T + C];
    fill_ids(ids, T + C, 53, 4096);
    for (int run = 0; run < 3; run++) {
        CKVC_AUTO(bench_close) bench b = bench_open(run + 1);
        bench_load(&b, "models/ckvc-tiny-4l",
                   (session_limits){.max_prompt = T + 100 * run,
                                    .max_continuation = C,
                                    .max_window = 32,
                                    .max_targets = C + 70 * run});
        prefill_of(b.s, ids, T, T + C, 32);
        for (int k = 0; k < 4; k++) {
            const bool largest = (k + run) % 2;
            const target_input targets = {
                .tokens = ids + T, .n = C, .first_row = largest ? 20 : 0, .largest = largest};
            OK(sessions_targets(&(target_job){b.s, targets, out}, 1, &err));
            if (run == 0 && k < 2) { memcpy(first[largest], out, sizeof out); }
            assert_memory_equal(first[largest], out, sizeof out);
        }
        OK(session_continue(b.s, ids + T, C, NULL, nll, &err));
        if (run == 0) { memcpy(first_nll, nll, sizeof nll); }
        assert_memory_equal(first_nll, nll, sizeof nll);
    }
}

/* KL from the full cache, which a rollout keeps: 0 of the full cache itself and of the first token,
 * the same bits for a lane alone and in a batch, and no change to any loss. */
TEST(divergence) {
    CKVC_AUTO(bench_close) bench b = bench_open(2);
    int32_t ids[T + C];
    const uint32_t offsets[2] = {0, 4}, positions[4] = {0, 5, 9, T - 1};
    const kept_set four = {1, offsets, positions, false, {0}}, sets[L] = {four, four, four, four};
    const rollout_lane lanes[2] = {{.parent = -1}, {.parent = -1, .sets = sets}};
    double nll[2][C], kl[2][C], alone[C], alone_kl[C], plain[C];
    fill_ids(ids, T + C, 59, 4096);
    session_limits limits = limits_of(T, C, 32, 2);
    limits.divergence = true;
    bench_load(&b, "models/ckvc-tiny-4l", limits);
    prefill_of(b.s, ids, T, T + C, 32);
    rollouts_of(b.s, ids + T, C, lanes, 2, nll[0], kl[0]);
    rollouts_of(b.s, ids + T, C, lanes + 1, 1, alone, alone_kl);
    OK(session_continue(b.s, ids + T, C, sets, plain, &err));
    assert_memory_equal(alone_kl, kl[1], sizeof alone_kl);
    assert_memory_equal(alone, nll[1], sizeof alone);
    assert_memory_equal(plain, nll[1], sizeof plain);
    assert_true(kl[1][0] == 0);
    for (int i = 0; i < C; i++) {
        assert_true(kl[0][i] >= 0 && kl[0][i] < 2e-6);
        assert_true(i == 0 || kl[1][i] > 1e-4);
    }
}

/* Sets of different lengths for the KV heads of a layer: a sweep's lanes, which join at their
 * layer, have the bits of the plain way. */
TEST(ragged_sets) {
    CKVC_AUTO(bench_close) bench b = bench_open(2);
    int32_t ids[T + C];
    uint32_t offsets[2][G + 1] = {{0}}, positions[2][G * T];
    fill_ids(ids, T + C, 59, 4096);
    for (uint32_t which = 0; which < 2; which++) {
        for (uint32_t g = 0; g < G; g++) {
            uint32_t n = offsets[which][g];
            for (uint32_t t = g; t < T; t += 1 + which + 5 * g * g) { positions[which][n++] = t; }
            offsets[which][g + 1] = n;
        }
    }
    const kept_set base = {G, offsets[0], positions[0], false, {0}},
                   other = {G, offsets[1], positions[1], false, {0}};
    const kept_set bases[L] = {base, base, base, base};
    rollout_lane lanes[1 + L] = {{.parent = -1, .sets = bases}};
    for (int32_t l = 0; l < L; l++) {
        lanes[1 + l] = (rollout_lane){.parent = 0, .layer = l, .kept = &other};
    }
    bench_load(&b, "models/ckvc-tiny-4l", limits_of(T, C, 32, 1 + L));
    prefill_of(b.s, ids, T, T + C, 32);
    double swept[1 + L][C], plain[C];
    rollouts_of(b.s, ids + T, C, lanes, 1 + L, swept[0], NULL);
    for (int32_t i = 0; i < 1 + L; i++) {
        kept_set sets[L] = {base, base, base, base};
        if (i > 0) { sets[i - 1] = other; }
        OK(session_continue(b.s, ids + T, C, sets, plain, &err));
        assert_memory_equal(swept[i], plain, sizeof plain);
        assert_true(i == 0 || memcmp(swept[0], swept[i], sizeof plain) != 0);
    }
}

RUN_TESTS(NULL, NULL)
