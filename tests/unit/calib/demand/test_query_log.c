/* Which positions have their queries logged, and what becomes of their numbers. */
#include "calib/demand/query_log.h"

#include "lib/base/bytes.h"
#include "tests/unit/golden_rig.h"

enum { N = 8, L = 4, H = 6, G = 3, D = 32, WIDTH = L * H * D };

/* Draws for a prompt of T tokens and a continuation of C; returns a worker that was asked. */
static worker drawn(query_log *q, const char *id, uint32_t T, uint32_t C, uint64_t seed) {
    const manifest_entry entry = {.id = ckvc_unconst(id)};
    const prompt p = {.entry = &entry, .n_tokens = T, .n_continuation = C};
    worker w = {.o.setting.seed = seed};
    query_log_draw(q, &p, &w);
    return w;
}

static void check_rows(const query_rows *of, int64_t n, uint32_t first, uint32_t end) {
    assert_int_equal(of->n, n);
    for (int64_t i = 0; i < n; i++) {
        assert_true(of->rows[i] >= (i ? of->rows[i - 1] + 1 : first) && of->rows[i] < end);
    }
}

static void open_rig(query_log *q) {
    rig_open(bench_open_kind("cpu", 1), "models/ckvc-tiny-4l",
             "tests/golden/budgets/ckvc-tiny-4l.json");
    const calibrate_inputs in = {.model = rig.m, .backend = rig.b.be, .prompts = rig.prompts};
    query_log_open(q, N, &in);
}

TEST(positions) {
    static const struct {
        uint32_t T, C, first, end, n, n_behind;
    } cases[] = {{4000, 128, 200, 4000, N, N},
                 {400, 9, 200, 400, N, N},
                 {399, 8, 0, 399, N, 7},
                 {5, 1, 0, 5, 5, 0},
                 {N, 0, 0, N, N, 0}};
    query_log q;
    open_rig(&q);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const worker w = drawn(&q, "p", cases[i].T, cases[i].C, 1);
        check_rows(&w.prompt_queries, cases[i].n, cases[i].first, cases[i].end);
        check_rows(&w.continuation_queries, cases[i].n_behind, 0, cases[i].C);
    }
    /* a position is drawn as often as any other: 2,000 draws of 8 of 40, sd 18 */
    uint32_t seen[40] = {0};
    for (uint64_t seed = 0; seed < 2000; seed++) {
        const worker w = drawn(&q, "p", 40, 0, seed);
        for (int i = 0; i < N; i++) { seen[w.prompt_queries.rows[i]]++; }
    }
    for (int t = 0; t < 40; t++) { assert_in_range(seen[t], 400 - 80, 400 + 80); }
    /* the same for the same seed and id; these numbers are also those of tests/python */
    static const uint32_t golden[2][N] = {{480, 521, 546, 557, 602, 726, 894, 955},
                                          {24, 28, 49, 52, 75, 79, 85, 92}};
    const worker w = drawn(&q, "prompt-7", 1000, 100, 42);
    assert_memory_equal(w.prompt_queries.rows, golden[0], sizeof golden[0]);
    assert_memory_equal(w.continuation_queries.rows, golden[1], sizeof golden[1]);
    query_log_close(&q);
    rig_close();
}

/* Rows are rounded to float16; a position with a number beyond it leaves none. */
TEST(rows) {
    query_log q;
    open_rig(&q);
    worker w = drawn(&q, "p", 1000, 4, 1);
    assert_int_equal(w.continuation_queries.n, 3);
    w.stats.n_tokens = 1000;
    for (int i = 0; i < N * WIDTH; i++) {
        w.prompt_queries.out[i] = (float)i / 7;
        if (i < 3 * WIDTH) { w.continuation_queries.out[i] = -(float)i / 9; }
    }
    w.prompt_queries.out[2 * WIDTH + 5] = 65519.9f; /* rounds to the largest float16 */
    w.prompt_queries.out[3 * WIDTH + 5] = 65520;
    w.continuation_queries.out[2 * WIDTH] = NAN;
    CKVC_AUTO(shard_free_at) shard *s = shard_create();
    s->h = (shard_header){.n_layers = L, .n_heads = H, .n_kv_heads = G, .pass = "demand"};
    s->h.setting.positions = 1;
    s->h.setting.features = CKVC_FEATURES_1;
    s->h.setting.n_features = CKVC_FEATURES_1_KEY + D + 1;
    query_log_add(&q, &w, 2, s);
    assert_int_equal(s->n_queries, N - 1 + 3 - 1);
    for (size_t k = 0; k < s->n_queries; k++) {
        const struct shard_query *row = &s->queries[k];
        const bool behind = k >= N - 1;
        const size_t i = behind ? k - (N - 1) : k + (k >= 3);
        const query_rows *of = behind ? &w.continuation_queries : &w.prompt_queries;
        assert_true(row->prompt == 2 && row->part == behind);
        assert_int_equal(row->position, of->rows[i] + (behind ? 1000 : 0));
        for (size_t j = 0; j < WIDTH; j++) {
            assert_int_equal(s->query_vectors[k * WIDTH + j],
                             ckvc_f16_of_f32(of->out[i * WIDTH + j]));
        }
    }
    query_log_close(&q);
    rig_close();
}

/* A prompt that is held out is asked for nothing. */
TEST(held_out) {
    query_log q;
    open_rig(&q);
    const manifest_entry entry = {.id = ckvc_unconst("p")};
    const prompt p = {.entry = &entry, .n_tokens = 1000, .n_continuation = 50, .heldout = true};
    worker w = {0};
    query_log_draw(&q, &p, &w);
    assert_true(w.prompt_queries.n == 0 && w.continuation_queries.n == 0);
    query_log_close(&q);
    rig_close();
}

RUN_TESTS(NULL, NULL)
