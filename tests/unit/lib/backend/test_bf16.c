/* Products in bf16, which CPUs without such an instruction emulate, against naive loops whose
 * operands are rounded one by one. And the promises of float32 kept: bits that depend neither on
 * threads, nor on the rows beside a row, nor on the limit of memory; the sweep's losses equal the
 * plain way's. */
#include "lib/backend/cpu/cpu.h"
#include "lib/backend/cpu/cpu_backend.h"
#include "lib/model/model_weights.h"
#include "tests/unit/lib/backend/on_backend.h"

/* To nearest even: of the bf16 numbers around x the nearer one, or that with an even last bit. */
PLAIN_LOOP static float rounded(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t low = bits & 0xFFFF0000, high = low + 0x10000;
    float a, b;
    memcpy(&a, &low, sizeof a);
    memcpy(&b, &high, sizeof b);
    const double below = fabs((double)x - (double)a);
    const double above = isinf(b) ? ldexp(1, 128) - fabs((double)x) : fabs((double)b - (double)x);
    return below < above || (below == above && (low >> 16) % 2 == 0) ? a : b;
}

static bench open_as(bool openblas, int threads) {
    bench b = {0};
    OK(ckvc_pool_create(threads, &b.pool, &err));
    OK(cpu_backend_create(openblas, CKVC_COMPUTE_BF16, b.pool, &b.be, &err));
    return b;
}

static bench open_bf16(int threads) { return open_as(false, threads); }

TEST(rounding) {
    for (int i = 0; i < 300000; i++) {
        uint32_t bits = (uint32_t)ckvc_rng_u64(&rng), got_bits;
        if (i % 4 == 0) { /* ties and their neighbours */
            bits = (bits & 0xFFFF0000) + 0x8000 + (uint32_t)(i / 4 % 3) - 1;
        }
        float x, wide;
        memcpy(&x, &bits, sizeof x);
        kernel_round_bf16(&x, &wide, 1);
        memcpy(&got_bits, &wide, sizeof got_bits);
        assert_int_equal(got_bits & 0xFFFF, 0);
        assert_true(isnan(x) ? isnan(wide) : wide == (isinf(x) ? x : rounded(x)));
    }
}

/* Both sides multiply the same rounded numbers, so what is left is float32 summation, as in
 * test_backend_cpu. Without rounding an operand is off by up to 2^-9, which gives 1e-6 and more. */
TEST(products) {
    /* rows, out, in; out beyond a task's columns, at their edge, and below it */
    static const int64_t shapes[][3] = {
        {1, 2, 2}, {63, 192, 50}, {64, 256, 64}, {65, 257, 33}, {70, 300, 576}};
    for (int openblas = 0; openblas < 2; openblas++) { /* OpenBLAS' is emulated on any CPU */
        CKVC_AUTO(end_bench) bench b = open_as(openblas, 3);
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            check_products(b.be, shapes[k][0], shapes[k][1], shapes[k][2], rounded);
        }
    }
}

/* y = W x for rows of x in the order `place`: row r of y is that of x's row place[r]. */
static void ordered_product(const bench *b, int repeats, const int *place, int64_t n_rows,
                            const float *w, int64_t n_out, int64_t n_in, const float *x, float *y) {
    backend *be = b->be;
    const int64_t rows = be_padded_rows(n_rows), n = n_rows * n_out;
    be_weight *bw = weight(be, w, n_out, n_in);
    be_buf *bx = buffer(be, rows * n_in, NULL), *by = buffer(be, rows * n_out, NULL);
    for (int64_t r = 0; r < n_rows; r++) {
        be->ops->write(be, bx, r * n_in, x + place[r] * n_in, n_in);
    }
    for (int i = 0; i < repeats; i++) {
        be->ops->matmul(be, bw, NULL, bx, &(be_product_rows){.n = n_rows}, false, by);
        float *got = contents(be, by, n);
        if (i == 0) { memcpy(y, got, (size_t)n * sizeof *y); }
        assert_memory_equal(y, got, (size_t)n * sizeof *y);
        free(got);
    }
}

/* A row's bits do not depend on its place among the rows, on what lies beside it, or on how many
 * threads multiply at once, however often. */
TEST(rows_alone) {
    enum { N = 150, OUT = 300 };
    static const int64_t n_ins[] = {33, 256, 577};
    bench on[3] = {open_bf16(1), open_bf16(2), open_bf16(16)};
    for (size_t i = 0; i < sizeof n_ins / sizeof *n_ins; i++) {
        const int64_t n_in = n_ins[i];
        float *w = values(OUT * n_in, 1), *x = values(N * n_in, 1);
        float *y = ckvc_alloc(N * OUT, sizeof *y), *other = ckvc_alloc(N * OUT, sizeof *y);
        int place[N];
        for (int r = 0; r < N; r++) { place[r] = r; }
        ordered_product(&on[0], 1, place, N, w, OUT, n_in, x, y);
        for (int several = 1; several < 3; several++) {
            ordered_product(&on[several], 10, place, N, w, OUT, n_in, x, other);
            assert_memory_equal(y, other, N * OUT * sizeof *y);
        }
        for (int round = 0; round < 3; round++) { /* reversed, mixed, one row many times */
            for (int r = 0; r < N; r++) {
                place[r] = round == 0 ? N - 1 - r : round == 1 ? r * 67 % N : 11;
            }
            ordered_product(&on[0], 1, place, round == 2 ? 64 : N, w, OUT, n_in, x, other);
            for (int r = 0; r < (round == 2 ? 64 : N); r++) {
                assert_memory_equal(other + r * OUT, y + place[r] * OUT, OUT * sizeof *y);
            }
        }
        free(w), free(x), free(y), free(other);
    }
    for (int i = 0; i < 3; i++) { end_bench(&on[i]); }
}

static void widen(const void *source, int64_t row, int64_t n, float *out) {
    const uint16_t *from = (const uint16_t *)source + row * 64;
    for (int64_t i = 0; i < n * 64; i++) {
        const uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

/* A file's bf16, used where it lies or, where it is not aligned, in a copy: the same bytes. */
TEST(in_place) {
    enum { N = 70, OUT = 96, IN = 64 };
    CKVC_AUTO(end_bench) bench b = open_bf16(2);
    _Alignas(4) uint16_t stored[OUT * IN + 1];
    float *x = values(128 * IN, 1), *got[2];
    for (int i = 0; i <= OUT * IN; i++) { stored[i] = 0x3f00 + (uint16_t)(i * 37 % 256); }
    be_buf *bx = buffer(b.be, 128 * IN, x), *by = buffer(b.be, 128 * OUT, NULL);
    for (int odd = 0; odd < 2; odd++) {
        if (odd) { memmove(stored + 1, stored, OUT * IN * sizeof *stored); }
        const be_matrix m = {.bytes = stored + odd,
                             .type = BE_BF16,
                             .rows = OUT,
                             .cols = IN,
                             .row_bytes = IN * sizeof *stored,
                             .read = widen,
                             .source = stored + odd};
        be_weight *w;
        OK(b.be->ops->weight_create(b.be, &m, &w, &err));
        OK(b.be->ops->weight_acquire(b.be, w, &err));
        assert_int_equal(w->own != NULL, odd || !b.be->in_place);
        b.be->ops->matmul(b.be, w, NULL, bx, &(be_product_rows){.n = N}, false, by);
        got[odd] = contents(b.be, by, N * OUT);
        b.be->ops->weight_free(b.be, w);
    }
    assert_memory_equal(got[0], got[1], N * OUT * sizeof *got[0]);
    free(x), free(got[0]), free(got[1]);
}

TEST(head) {
    CKVC_AUTO(end_bench) bench b = open_bf16(2);
    check_head(b.be, rounded, 2e-6);
}

/* ---- a whole model ---- */

enum { T = 200, C = 40, W = 32, LANES = 5 };

typedef struct outcome {
    double full[C], lanes[LANES][C];
    double r_struct, r_sem;
    size_t copies;
} outcome;

static const uint32_t offsets[2] = {0, 50};
static uint32_t kept_positions[LANES][50];

/* One prompt's losses: the full cache, and lanes that leave it at layers 0 ... 3, in both ways. */
static void run(int threads, size_t limit, outcome *o) {
    CKVC_AUTO(end_bench) bench b = open_bf16(threads);
    if (limit) { b.be->ops->weight_limit(b.be, limit); }
    int32_t ids[T + C];
    bench_load(&b, "models/ckvc-tiny-4l", limits_of(T, C, W, LANES));
    assert_int_equal(b.be->compute, CKVC_COMPUTE_BF16);
    o->copies = model_converted_bytes(b.m);
    fill_ids(ids, T + C, 19, model_get_shape(b.m)->vocab);
    ckvc_alloc_forbid("a prompt in bf16");
    const prefill_stats stats = prefill_of(b.s, ids, T, T + C, W);
    OK(session_continue(b.s, ids + T, C, NULL, o->full, &err));
    ckvc_alloc_permit();
    o->r_struct = stats.r_struct;
    o->r_sem = stats.r_sem;
    const int32_t n_layers = model_get_shape(b.m)->n_layers;
    assert_true(n_layers >= LANES - 1);
    static uint32_t everything[T];
    for (uint32_t t = 0; t < T; t++) { everything[t] = t; }
    static const uint32_t all[2] = {0, T};
    kept_set kept[LANES], sets[64];
    rollout_lane lanes[LANES] = {{.parent = -1}};
    for (int i = 1; i < LANES; i++) {
        for (uint32_t t = 0; t < 50; t++) {
            kept_positions[i][t] = 4 * t - (t > 0 ? (uint32_t)i % 4 : 0);
        }
        kept[i] = (kept_set){1, offsets, kept_positions[i], false, {0}};
        lanes[i] = (rollout_lane){.parent = 0, .layer = i - 1, .kept = &kept[i]};
    }
    rollouts_of(b.s, ids + T, C, lanes, LANES, o->lanes[0], NULL);
    assert_memory_equal(o->lanes[0], o->full, sizeof o->full);
    for (int i = 1; i < LANES; i++) {
        double plain[C];
        for (int32_t l = 0; l < n_layers; l++) {
            sets[l] = l == i - 1 ? kept[i] : (kept_set){1, all, everything, false, {0}};
        }
        OK(session_continue(b.s, ids + T, C, sets, plain, &err));
        /* without sets the cache is taken as it lies, not gathered: other last bits */
        for (int c = 0; c < C; c++) { assert_true(fabs(plain[c] - o->lanes[i][c]) < 1e-5); }
        assert_true(nll_mean(plain, C) != nll_mean(o->full, C));
        lanes[0] = (rollout_lane){.parent = -1, .sets = sets};
        rollouts_of(b.s, ids + T, C, lanes, 1, o->lanes[i], NULL);
        assert_memory_equal(plain, o->lanes[i], sizeof plain);
        lanes[0] = (rollout_lane){.parent = -1};
    }
}

TEST(whole_model) {
    static outcome one, three, tight;
    run(1, 0, &one);
    run(3, 0, &three);
    assert_memory_equal(&one, &three, sizeof one);
    run(2, 1, &tight); /* layers take turns */
    assert_memory_equal(&one, &tight, sizeof one);
    for (int i = 0; i < C; i++) { assert_true(isfinite(one.full[i])); }
}

/* Its name, its warning, and the memory that copies take. */
TEST(stated) {
    bench b = bench_open(1);
    assert_int_equal(b.be->compute, CKVC_COMPUTE_F32);
    assert_string_equal(b.be->compute_warning, "");
    assert_null(strstr(b.be->kernel, "bf16"));
    assert_int_equal(b.be->value_bytes, sizeof(float));
    assert_true(b.be->in_place);
    end_bench(&b);
    b = open_as(true, 1);
    assert_non_null(strstr(b.be->kernel, "+bf16-emulated"));
    end_bench(&b);
    b = open_bf16(1);
    assert_non_null(strstr(b.be->kernel, "+bf16"));
    const bool emulated = strstr(b.be->kernel, "-emulated");
    assert_int_equal(!!strstr(b.be->compute_warning, "saves no time"), emulated);
    assert_int_equal(b.be->value_bytes, emulated ? sizeof(float) : sizeof(uint16_t));
    assert_int_equal(b.be->in_place, !emulated);
    OK(model_open_path("models/ckvc-tiny-4l", b.be, &b.m, &err));
    const model_shape *s = model_get_shape(b.m);
    const int64_t q = (int64_t)s->n_heads * s->head_dim, kv = (int64_t)s->n_kv_heads * s->head_dim;
    const int64_t layer = s->width * (2 * q + 2 * kv) + 3LL * s->width * s->intermediate,
                  head = (int64_t)s->vocab * s->width;
    /* every matrix once, unless bf16 is used in place; of the norms, M values each, those not
     * stored as float32 */
    const size_t matrices = emulated ? (size_t)(s->n_layers * layer + head) * sizeof(float) : 0,
                 norms = (size_t)((2 * s->n_layers + 1) * s->width) * 4,
                 got = model_converted_bytes(b.m);
    assert_true(got == matrices || got == matrices + norms);
    /* one that is not aligned, too */
    tensor_view *t =
        ckvc_unconst(model_spec_find(b.m->spec, "model.layers.0.self_attn.q_proj.weight"));
    t->data++;
    assert_int_equal(model_converted_bytes(b.m) - got, emulated ? 0 : q * s->width * 2);
    end_bench(&b);
}

int main(void) {
    ckvc_rng_init(&rng, 5, 0, 0);
    return unit_run(NULL, NULL);
}
