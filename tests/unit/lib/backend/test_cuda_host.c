/* The CUDA backend's host side, where there is a device, or the emulation of one: weights that take
 * turns in device memory, the bf16 values that it keeps of rows, device memory that is out, how
 * often a prompt takes some. What is computed with them is test_backend_cuda's. */
#include "lib/model/decoder.h"
#include "tests/unit/lib/backend/on_backend.h"

/* Of the emulation alone: the order of what has none, and whether copies are early or late. */
void emulation_set_seed(uint64_t seed) __attribute__((weak));
uint64_t emulation_allocations(void) __attribute__((weak));

static ckvc_pool *pool;

/* NULL: no device. */
static backend *device(ckvc_compute compute) {
    backend *be;
    ckvc_err err = {0};
    return backend_create("cuda", compute, pool, &be, &err) == CKVC_OK ? be : NULL;
}

enum { N_LAYERS = 6, ROUNDS = 3, ROWS = 64, WIDTH = 72 };

/* x goes ROUNDS times through N_LAYERS weights, of which `limit` bytes hold some; 0: no limit. */
static float *rounds(ckvc_compute compute, size_t limit, const float *data, const float *x) {
    CKVC_AUTO(end_backend_at) backend *be = device(compute);
    be_weight *w[N_LAYERS];
    if (limit) { be->ops->weight_limit(be, limit); }
    be_buf *from = buffer(be, ROWS * WIDTH, x), *to = buffer(be, ROWS * WIDTH, NULL);
    for (int i = 0; i < N_LAYERS; i++) {
        const be_matrix m = {.bytes = data + i * WIDTH * WIDTH,
                             .rows = WIDTH,
                             .cols = WIDTH,
                             .row_bytes = WIDTH * sizeof *data};
        OK(be->ops->weight_create(be, &m, &w[i], &err));
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < N_LAYERS; i++) {
            OK(be->ops->weight_acquire(be, w[i], &err));
            be->ops->weight_prefetch(be, w[(i + 1) % N_LAYERS]);
            be->ops->matmul(be, w[i], NULL, from, &(be_product_rows){.n = ROWS}, false, to);
            be->ops->copy_rows(be, to, 0, from, 0, ROWS, WIDTH);
            be->ops->weight_release(be, w[i]);
        }
    }
    float *got = contents(be, from, ROWS * WIDTH);
    for (int i = 0; i < N_LAYERS; i++) { be->ops->weight_free(be, w[i]); }
    return got;
}

/* The same bytes whether all weights stay, three, or none (a limit below the workspace alone). */
TEST(weights_take_turns) {
    const size_t others = ((size_t)64 << 20) + 2 * ROWS * WIDTH * sizeof(float) + 65536;
    backend *be = device(CKVC_COMPUTE_F32);
    if (!be) { skip(); }
    end_backend(be);
    CKVC_AUTO_FREE float *data = values(N_LAYERS * WIDTH * WIDTH, 0.2),
                         *x = values(ROWS * WIDTH, 1);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const ckvc_compute compute = bf16 ? CKVC_COMPUTE_BF16 : CKVC_COMPUTE_F32;
        const size_t one = WIDTH * WIDTH * (bf16 ? sizeof(uint16_t) : sizeof(float));
        CKVC_AUTO_FREE float *all = rounds(compute, 0, data, x);
        for (uint64_t seed = 0; seed < 3; seed++) {
            if (emulation_set_seed) { emulation_set_seed(seed); }
            CKVC_AUTO_FREE float *three = rounds(compute, others + 3 * one, data, x),
                                 *none = rounds(compute, 1, data, x);
            assert_memory_equal(three, all, ROWS * WIDTH * sizeof *all);
            assert_memory_equal(none, all, ROWS * WIDTH * sizeof *all);
        }
        if (emulation_set_seed) { emulation_set_seed(0); }
    }
}

/* Whoever writes rows after they were rounded for a product has the next product see it: the host,
 * a copy, a product onto them, a write through a view. */
TEST(rounded_rows_are_forgotten) {
    enum { BYTES = ROWS * WIDTH * sizeof(float) };
    CKVC_AUTO(end_backend_at) backend *be = device(CKVC_COMPUTE_BF16);
    if (!be) { skip(); }
    CKVC_AUTO_FREE float *data = values(WIDTH * WIDTH, 0.2), *x = values(ROWS * WIDTH, 1),
                         *other = values(ROWS * WIDTH, 1);
    be_weight *w = weight(be, data, WIDTH, WIDTH), *norm = weight(be, other, WIDTH, 1);
    be_buf *rows = buffer(be, ROWS * WIDTH, NULL), *from = buffer(be, ROWS * WIDTH, other),
           *to = buffer(be, ROWS * WIDTH, NULL), *view = buffer(be, 0, NULL);
    be->ops->matmul(be, w, NULL, from, &(be_product_rows){.n = ROWS}, false, to);
    CKVC_AUTO_FREE float *want = contents(be, to, ROWS * WIDTH);
    for (int way = 0; way < 4; way++) {
        be->ops->write(be, rows, 0, x, ROWS * WIDTH);
        if (way % 2) { be->ops->rmsnorm(be, rows, ROWS, norm, 1e-6f, false, rows); }
        be->ops->matmul(be, w, NULL, rows, &(be_product_rows){.n = ROWS}, false, to);
        switch (way) {
        case 0: be->ops->write(be, rows, 0, other, ROWS * WIDTH); break;
        case 1: be->ops->copy_rows(be, from, 0, rows, 0, ROWS, WIDTH); break;
        case 2:
            be->ops->buf_view(be, view, rows, 0, ROWS * WIDTH / 2);
            be->ops->write(be, view, 0, other, ROWS * WIDTH / 2);
            be->ops->buf_view(be, view, rows, ROWS * WIDTH / 2, ROWS * WIDTH / 2);
            be->ops->write(be, view, 0, other + ROWS * WIDTH / 2, ROWS * WIDTH / 2);
            break;
        default: /* 0 * W + other */
            be->ops->write(be, rows, 0, other, ROWS * WIDTH);
            to = buffer(be, ROWS * WIDTH, NULL);
            be->ops->matmul(be, w, NULL, to, &(be_product_rows){.n = ROWS}, true, rows);
        }
        be->ops->matmul(be, w, NULL, rows, &(be_product_rows){.n = ROWS}, false, to);
        CKVC_AUTO_FREE float *got = contents(be, to, ROWS * WIDTH);
        if (memcmp(got, want, BYTES) != 0) { fail_msg("way %d: the rows from before", way); }
    }
}

/* A buffer that no device holds: one line that says what to lower, nothing computed until it was
 * handed out, and a backend that goes on behind it. */
TEST(memory_is_out) {
    CKVC_AUTO(end_backend_at) backend *be = device(CKVC_COMPUTE_F32);
    if (!be) { skip(); }
    CKVC_AUTO_FREE float *x = values(ROWS * WIDTH, 1), *same = NULL;
    be_buf *small = buffer(be, ROWS * WIDTH, x), *huge = buffer(be, be->memory_bytes / 2, NULL);
    be->ops->copy_rows(be, huge, 0, small, 0, ROWS, WIDTH);
    SAYS(be->ops->sync(be, &err), CKVC_E_MEMORY, "is out of memory");
    assert_non_null(strstr(err.text, "lower --max-tokens"));
    OK(be->ops->sync(be, &err));
    same = contents(be, small, ROWS * WIDTH);
    assert_memory_equal(same, x, ROWS * WIDTH * sizeof *x);
}

/* A prompt of T tokens through all that a run does with one; how often it took device memory. */
static uint64_t allocations_of(session *s, decoder *d, int64_t T) {
    enum { C = 6 };
    int32_t ids[128];
    double nll[C];
    CKVC_AUTO(sequence_free_at) sequence *q = NULL;
    be_greedy next;
    const uint64_t before = emulation_allocations();
    for (int i = 0; i < 128; i++) { ids[i] = i * 7 % 400 + 5; }
    prefill_of(s, ids, T, T + C, 8);
    OK(session_continue(s, ids + T, C, NULL, nll, &err));
    OK(sessions_next(&s, 1, NULL, &next, &err));
    OK(sequence_create(s, NULL, C, &q, &err));
    for (int i = 0; i < 3; i++) { OK(decoder_step(d, &q, &next.id, 1, NULL, &next, &err)); }
    return emulation_allocations() - before;
}

/* A prompt takes its sequence's memory alone, once: the first and a longer, float32 and bf16. */
TEST(prompts_allocate_once) {
    if (!emulation_allocations) { skip(); }
    for (int bf16 = 0; bf16 < 2; bf16++) {
        CKVC_AUTO(end_bench)
        bench b = {.be = device(bf16 ? CKVC_COMPUTE_BF16 : CKVC_COMPUTE_F32)};
        CKVC_AUTO(decoder_destroy_at) decoder *d = NULL;
        bench_load(&b, "models/ckvc-tiny-4l", limits_of(90, 6, 8, 0));
        OK(decoder_create(b.m, 1, &d, &err));
        assert_int_equal(allocations_of(b.s, d, 40), 1);
        assert_int_equal(allocations_of(b.s, d, 90), 1);
    }
}

int main(void) {
    ckvc_err err = {0};
    if (ckvc_pool_create(2, &pool, &err) != CKVC_OK) { return 1; }
    const int failed = unit_run(NULL, NULL);
    ckvc_pool_destroy(pool);
    return failed;
}
