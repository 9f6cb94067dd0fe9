/* Every operation of the CPU backend, with its own kernels and with OpenBLAS's (or of the backend
 * that CKVC_TEST_BACKEND names), against a naive loop in double, on shapes that are odd everywhere;
 * and the promise that a row's bits depend neither on the rows beside it nor on the number of
 * threads.
 *
 * Bounds are on the normalised mean square error, sum (got - want)^2 / sum want^2. A float32
 * product of n terms errs by about sqrt(n) * 2^-24 relative to the terms' size, that is 1e-7 ...
 * 1e-6, so a square of 1e-13 ... 1e-12; a wrong pairing, head, mask or position gives 1e-2 and
 * more. 1e-11 leaves a factor of ten over what any BLAS kernel does. */
#include <fcntl.h>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include "lib/backend/cpu/cpu_fma.c" /* instead of the library's own, which has no checks (Makefile) */
#endif
#include "tests/unit/lib/backend/on_backend.h"
#include "tests/unit/temp_folder.h"

static const char *kind; /* of backend */

/* ---- products ---- */

TEST(matmul) {
    const int64_t shapes[][3] = {
        {1, 1, 1}, {63, 192, 50}, {64, 96, 64}, {65, 97, 33}, {130, 2055, 19}}; /* rows, out, in */
    CKVC_AUTO(end_bench) bench b = bench_open_kind(kind, 3);
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        check_products(b.be, shapes[k][0], shapes[k][1], shapes[k][2], NULL);
    }
}

TEST(head) {
    enum { N = 43, IN = 37, VOCAB = 1291 };
    CKVC_AUTO(end_bench) bench b = bench_open_kind(kind, 2);
    check_head(b.be, NULL, 2e-5); /* logits up to 30 in float32 */
    CKVC_AUTO_FREE float *w = values(VOCAB * IN, 2), *x = values(192 * IN, 1);
    be_weight *bw = weight(b.be, w, VOCAB, IN);
    be_buf *bx = buffer(b.be, 192 * IN, x);
    int32_t target[3 * N];
    double lanes[3 * N], alone[N];
    for (int i = 0; i < 3 * N; i++) { target[i] = i * 997 % VOCAB; }
    OK(head_nll(b.be, bw, bx, (be_rows){0, 0, 1}, target, lanes));
    /* three lanes of 50 rows, rows 7 ... 49 asked for: the same rows as three calls of one lane */
    OK(head_nll(b.be, bw, bx, (be_rows){7, N, 3}, target, lanes));
    for (int i = 0; i < 3; i++) {
        be_buf *lane = buffer(b.be, 64 * IN, x + i * 64 * IN);
        OK(head_nll(b.be, bw, lane, (be_rows){7, N, 1}, target, alone));
        assert_memory_equal(alone, lanes + i * N, sizeof alone);
    }
}

/* log softmax of a row's logits, worked out plainly. */
static void naive_log_softmax(const float *w, const float *x, int64_t vocab, int64_t n_in,
                              double *out) {
    double sum = 0;
    naive_product(out, NULL, NULL, w, x, 1, vocab, n_in);
    for (int64_t v = 0; v < vocab; v++) { sum += exp(out[v]); }
    for (int64_t v = 0; v < vocab; v++) { out[v] -= log(sum); }
}

/* Two lanes of 50 rows against the distributions of rows 3 ... 52 of others: the sums worked out
 * plainly, the losses the same bits as without, and 0 against themselves. */
TEST(divergence) {
    enum { N = 50, IN = 37, VOCAB = 1291 };
    CKVC_AUTO(end_bench) bench b = bench_open_kind(kind, 2);
    CKVC_AUTO_FREE float *w = values(VOCAB * IN, 1), *x = values(128 * IN, 1),
                         *other = values(64 * IN, 1);
    be_weight *bw = weight(b.be, w, VOCAB, IN);
    be_buf *bx = buffer(b.be, 128 * IN, x), *full = buffer(b.be, 64 * IN, other);
    double log_p[N], nll[2 * N], alone[2 * N], kl[2 * N], p[VOCAB], q[VOCAB];
    int32_t target[N];
    for (int i = 0; i < N; i++) { target[i] = i * 97 % VOCAB; }
    const be_distributions of = {buffer(b.be, N * VOCAB, NULL), log_p};
    be_losses out = {target, nll, kl, &of};
    OK(b.be->ops->head_distributions(b.be, bw, full, 3, N, &of, &err));
    OK(b.be->ops->head_nll(b.be, bw, bx, &(be_rows){0, N, 2}, &out, &err));
    OK(head_nll(b.be, bw, bx, (be_rows){0, N, 2}, target, alone));
    assert_memory_equal(nll, alone, sizeof nll);
    for (int64_t i = 0; i < 2 * N; i++) {
        double want = 0;
        naive_log_softmax(w, other + (3 + i % N) * IN, VOCAB, IN, p);
        naive_log_softmax(w, x + (i / N * 64 + i % N) * IN, VOCAB, IN, q);
        for (int v = 0; v < VOCAB; v++) { want += exp(p[v]) * (p[v] - q[v]); }
        assert_true(fabs(kl[i] - want) < 2e-5); /* logits up to 20 in float32 */
    }
    OK(b.be->ops->head_nll(b.be, bw, full, &(be_rows){3, N, 1}, &out, &err));
    for (int i = 0; i < N; i++) { assert_true(kl[i] >= 0 && kl[i] < 2e-6); }
}

/* The first of the largest logits wherever equal ones lie: in one piece of the vocabulary or in
 * several, in any row; its loss as from the logits. A NaN has none. */
TEST(head_greedy) {
    enum { ROWS = 70, IN = 5, VOCAB = 3001 };
    CKVC_AUTO(end_bench) bench b = bench_open_kind(kind, 3);
    CKVC_AUTO_FREE float *w = values(VOCAB * IN, 1), *x = ckvc_calloc(128 * IN, sizeof *x);
    CKVC_AUTO_FREE float *logits = ckvc_alloc(ROWS * VOCAB, sizeof *logits);
    be_greedy next[ROWS], alone;
    for (int r = 0; r < ROWS; r++) { x[r * IN + r % IN] = 1; } /* a logit is a weight */
    static const int32_t first[IN] = {0, 17, 500, 2999, 1000},
                         again[IN] = {1, 2900, 501, 3000, 1024};
    for (int i = 0; i < IN; i++) { w[first[i] * IN + i] = w[again[i] * IN + i] = 2.0f + (float)i; }
    for (int nan = 0; nan < 2; nan++) {
        if (nan) { w[700 * IN + 4] = NAN; }
        be_weight *bw = weight(b.be, w, VOCAB, IN);
        be_buf *bx = buffer(b.be, 128 * IN, x);
        OK(b.be->ops->head_logits(b.be, bw, bx, 3, ROWS - 3, logits, &err));
        OK(b.be->ops->head_greedy(b.be, bw, bx, 3, ROWS - 3, next, &err));
        for (int r = 0; r < ROWS - 3; r++) {
            const int i = (r + 3) % IN;
            const float *row = logits + r * VOCAB;
            double sum = 0;
            for (int v = 0; v < VOCAB; v++) { sum += exp((double)row[v] - (double)row[first[i]]); }
            const int32_t id = next[r].id;
            const double nll = next[r].nll; /* exp is float32's on a device: 1e-6 */
            assert_true(nan ? id >= 0 && id < VOCAB : id == first[i]);
            assert_true(nan ? isnan(nll) : fabs(nll - log(sum)) < 1e-6);
        }
        OK(b.be->ops->head_greedy(b.be, bw, bx, 41, 1, &alone, &err));
        assert_true(nan || alone.nll == next[38].nll);
        assert_int_equal(alone.id, next[38].id);
    }
}

/* Targets of probability near 1 and logits that overflow a plain exp. */
TEST(head_extremes) {
    CKVC_AUTO(end_bench) bench b = bench_open_kind(kind, 1);
    float *w = ckvc_calloc(700, sizeof *w), x[64] = {1.0f};
    for (int i = 0; i < 700; i++) { w[i] = -300.0f; }
    w[650] = 400.0f;
    be_weight *bw = weight(b.be, w, 700, 1);
    be_buf *bx = buffer(b.be, 64, x);
    const int32_t target[1] = {650}, other[1] = {2};
    double nll;
    OK(head_nll(b.be, bw, bx, (be_rows){0, 1, 1}, target, &nll));
    assert_true(nll == 0.0);
    OK(head_nll(b.be, bw, bx, (be_rows){0, 1, 1}, other, &nll));
    assert_true(nll == 700.0);
    w[5] = NAN;                   /* a broken model must not get a finite loss */
    bw = weight(b.be, w, 700, 1); /* a device has its own copy */
    OK(head_nll(b.be, bw, bx, (be_rows){0, 1, 1}, other, &nll));
    assert_true(isnan(nll));
    free(w);
}

/* ---- rows ---- */

TEST(norm_silu_embed) {
    const int64_t n = 67, widths[] = {1, 7, 50, 200};
    CKVC_AUTO(end_bench) bench b = bench_open_kind(kind, 2);
    for (size_t k = 0; k < 4; k++) {
        const int64_t m = widths[k];
        const size_t all = (size_t)(be_padded_rows(n) * m), used = (size_t)(n * m);
        float *x = values(all, 3), *w = values(m, 1), *u = values(all, 2);
        /* gates far outside the range of a plain exp */
        for (size_t i = 0; i < used && i < 40; i++) { x[i] *= 60; }
        be_buf *bx = buffer(b.be, all, x), *bu = buffer(b.be, all, u),
               *by = buffer(b.be, all, NULL), *bz = buffer(b.be, all, x);
        be_weight *bw = weight(b.be, w, m, 1);
        double *want = ckvc_alloc(used, sizeof *want);
        b.be->ops->rmsnorm(b.be, bx, n, bw, 1e-3f, false, by);
        float *got = contents(b.be, by, used);
        for (int64_t r = 0; r < n; r++) {
            double sum = 0;
            const float *row = x + r * m;
            for (int64_t i = 0; i < m; i++) { sum += (double)row[i] * (double)row[i]; }
            const double size = sqrt(sum / (double)m + (double)1e-3f);
            for (int64_t i = 0; i < m; i++) {
                want[r * m + i] = (double)row[i] / size * (double)w[i];
            }
        }
        check_nmse("rmsnorm", got, want, used);
        b.be->ops->rmsnorm(b.be, bz, n, bw, 1e-3f, false, bz);
        CKVC_AUTO_FREE float *in_place = contents(b.be, bz, used);
        assert_memory_equal(in_place, got, used * sizeof *got);
        free(got);
        b.be->ops->rmsnorm(b.be, bu, n, bw, 1e-3f, false, by);
        CKVC_AUTO_FREE float *more = contents(b.be, by, used);
        b.be->ops->rmsnorm(b.be, bu, n, bw, 1e-3f, true, bz); /* onto the norm of x */
        got = contents(b.be, bz, used);
        for (size_t i = 0; i < used; i++) {
            assert_true(fabs((double)got[i] - (want[i] + (double)more[i])) <=
                        1e-6 * (fabs(want[i]) + fabs((double)more[i])) + 1e-30);
        }
        free(got);
        b.be->ops->gate_mul(b.be, true, bx, bu, n, m, by);
        got = contents(b.be, by, used);
        for (size_t i = 0; i < used; i++) {
            const double g = (double)x[i],
                         all = g / 2 * (1 + tanh(0.7978845608028654 * (g + 0.044715 * g * g * g))) *
                               (double)u[i];
            /* far below 0, 1 + tanh has few digits left in double, too */
            assert_true(fabs((double)got[i] - all) <=
                        2e-6 * fabs(all) + 1e-15 * fabs(g * (double)u[i]) + 1e-30);
        }
        free(got);
        b.be->ops->gate_mul(b.be, false, bx, bu, n, m, bx); /* in place */
        got = contents(b.be, bx, used);
        for (size_t i = 0; i < used; i++) {
            want[i] = (double)x[i] / (1 + exp(-(double)x[i])) * (double)u[i];
            assert_true(fabs((double)got[i] - want[i]) <= 1e-6 * fabs(want[i]) + 1e-30);
        }
        free(got);
        const int32_t ids[3] = {66, 0, 13};
        be_weight *table = weight(b.be, x, n, m);
        b.be->ops->embed(b.be, table, ids, 3, by);
        got = contents(b.be, by, 64 * m);
        for (int64_t i = 0; i < 64 * m; i++) { /* padding is zero */
            assert_true(got[i] == (i < 3 * m ? x[ids[i / m] * m + i % m] : 0.0f));
        }
        b.be->ops->copy_rows(b.be, by, 1, bu, 5, 2, m);
        free(got);
        got = contents(b.be, bu, 7 * m);
        for (int64_t i = 0; i < m; i++) {
            assert_true(got[5 * m + i] == x[i] && got[6 * m + i] == x[13 * m + i] &&
                        got[4 * m + i] == u[4 * m + i]);
        }
        free(x), free(w), free(u), free(want), free(got);
    }
}

/* How many of a mapping's pages are in memory. */
static size_t resident(void *map, size_t n_pages) {
    unsigned char page[256];
    size_t n = 0;
    assert_true(n_pages <= sizeof page);
    assert_int_equal(mincore(map, n_pages * (size_t)sysconf(_SC_PAGESIZE), page), 0);
    for (size_t i = 0; i < n_pages; i++) { n += page[i] & 1; }
    return n;
}

/* Rows of a packed matrix are their numbers: row r is 1000 r + column. */
static void read_numbers(const void *source, int64_t row, int64_t n, float *out) {
    const int64_t cols = *(const int64_t *)source;
    for (int64_t i = 0; i < n * cols; i++) { out[i] = (float)(1000 * (row + i / cols) + i % cols); }
}

/* A weight whose pages are not in memory, from the middle of a page on: they come by themselves,
 * and none where the copy that is made of them stays. */
TEST(prefetch) {
    of_the_cpu_alone();
    enum { PAGES = 200, ROWS = 128 };
    const size_t size = PAGES * (size_t)sysconf(_SC_PAGESIZE);
    const char *path = in_temp_folder("weights");
    CKVC_AUTO(end_bench) bench b = bench_open_kind(kind, 1);
    CKVC_AUTO_FREE uint8_t *bytes = ckvc_calloc(size, 1);
    write_bytes(path, bytes, size);
    const int file = open(path, O_RDONLY);
    assert_true(file >= 0 && !fsync(file) && !posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED));
    uint8_t *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    if (resident(map, PAGES) > 0) {
        printf("skipped: this file system keeps its files in memory\n");
    } else {
        const be_matrix m = {.bytes = map + 100,
                             .type = BE_PACKED,
                             .rows = ROWS,
                             .cols = 1,
                             .row_bytes = (size - 100) / ROWS,
                             .read = read_numbers,
                             .source = &(int64_t){1}};
        be_weight *w;
        assert_int_equal(madvise(map, size, MADV_RANDOM), 0); /* nothing is read ahead */
        OK(b.be->ops->weight_create(b.be, &m, &w, &err));
        b.be->ops->weight_prefetch(b.be, w);
        for (int i = 0; i < 500 && resident(map, PAGES) < PAGES; i++) { usleep(10000); }
        assert_int_equal(resident(map, PAGES), PAGES);
        OK(b.be->ops->weight_acquire(b.be, w, &err));
        munmap(map, size);
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        map = mmap(map, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
        b.be->ops->weight_prefetch(b.be, w);
        usleep(50000);
        assert_int_equal(resident(map, PAGES), 0);
        b.be->ops->weight_free(b.be, w);
    }
    munmap(map, size);
    close(file);
}

/* A weight that is blocks of a packed matrix, and one of floats that are aligned to nothing. */
TEST(weights_as_they_lie) {
    enum { ROWS = 6, COLS = 5 };
    CKVC_AUTO(end_bench) bench b = bench_open_kind(kind, 2);
    const int64_t cols = COLS;
    const int32_t ids[ROWS] = {0, 1, 2, 3, 4, 5};
    const int rows[ROWS] = {3, 4, 13, 14, 23, 24};
    float want[ROWS * COLS];
    uint8_t bytes[sizeof want + 1];
    for (int i = 0; i < ROWS * COLS; i++) { want[i] = (float)(1000 * rows[i / COLS] + i % COLS); }
    memcpy(bytes + 1, want, sizeof want);
    const be_matrix matrix[] = {
        {.bytes = bytes,
         .type = BE_PACKED,
         .rows = ROWS,
         .cols = COLS,
         .first = 3,
         .block = 2,
         .stride = 10,
         .read = read_numbers,
         .source = &cols},
        {.bytes = bytes + 1, .rows = ROWS, .cols = COLS, .row_bytes = COLS * sizeof(float)}};
    be_buf *x = buffer(b.be, BE_ROW_TILE * COLS, NULL);
    for (int i = 0; i < 2; i++) {
        be_weight *w;
        OK(b.be->ops->weight_create(b.be, &matrix[i], &w, &err));
        b.be->ops->embed(b.be, w, ids, ROWS, x);
        float *got = contents(b.be, x, ROWS * COLS);
        assert_memory_equal(got, want, sizeof want);
        free(got);
        /* and acquired: times the rows of the identity, its columns */
        float eye[BE_ROW_TILE * COLS] = {0};
        for (int r = 0; r < COLS; r++) { eye[r * COLS + r] = 1; }
        be_buf *in = buffer(b.be, BE_ROW_TILE * COLS, eye),
               *y = buffer(b.be, BE_ROW_TILE * ROWS, NULL);
        OK(b.be->ops->weight_acquire(b.be, w, &err));
        b.be->ops->matmul(b.be, w, NULL, in, &(be_product_rows){.n = COLS}, false, y);
        got = contents(b.be, y, COLS * ROWS);
        for (int r = 0; r < COLS * ROWS; r++) {
            assert_true(got[r] == want[r % ROWS * COLS + r / ROWS]);
        }
        free(got);
        b.be->ops->weight_release(b.be, w);
        b.be->ops->weight_free(b.be, w);
    }
}

/* ---- attention ---- */

/* Shares of attention, of numbers or of float32: exactly zero where nothing is seen. */
static void check_share(double got, double want) {
    assert_true(fabs(got - want) <= 1e-5 * want + 1e-9);
    assert_true((want == 0) == (got == 0));
}

/* Rows from row0 on of the prompt, whose attention and window give the very same numbers whichever
 * rows are asked for; window mass and rows. */
static void check_causal(const attention_case *c, backend *be, const be_buf *q,
                         const be_cache *prompt, be_buf *out) {
    const int32_t n_heads = c->s.n_heads, group = n_heads / c->s.n_kv_heads;
    const int64_t n = c->n, window = n > 20 ? 17 : n, first = n - window,
                  row0 = first / BE_ROW_TILE * BE_ROW_TILE, n_tail = n - row0;
    const size_t n_mass = (size_t)(c->s.n_kv_heads * n), n_used = (size_t)(n_tail * c->width);
    CKVC_AUTO_FREE double *want = ckvc_alloc(n * c->width, sizeof *want),
                          *want_mass = ckvc_calloc(n_mass, sizeof *want),
                          *weights = ckvc_calloc(n, sizeof *want),
                          *mass = ckvc_alloc(n_mass, sizeof *want),
                          *mass_tail = ckvc_alloc(n_mass, sizeof *want);
    CKVC_AUTO_FREE float *rows = ckvc_alloc(n_heads * window * n, sizeof *rows);
    be_buf *tail = buffer(be, be_padded_rows(n_tail) * c->width, c->q + row0 * c->width);
    be->ops->attention_causal(be, &c->s, 0, n, q, prompt, out);
    CKVC_AUTO_FREE float *got = contents(be, out, n * c->width);
    OK(be->ops->window_mass(be, &c->s, &(be_window){n, window, 0}, q, prompt, mass, &err));
    OK(be->ops->window_rows(be, &c->s, &(be_window){n, window, 0}, q, prompt, rows, &err));
    for (int64_t j = 0; j < n; j++) {
        for (int32_t h = 0; h < n_heads; h++) {
            naive_row(c, c->q + j * c->width, 0, h, j, NULL, weights,
                      want + j * c->width + h * c->s.head_dim);
            for (int64_t t = 0; j >= first && t < n; t++) {
                const double x = t <= j ? weights[t] : 0;
                want_mass[h / group * n + t] += x;
                check_share((double)rows[(h * window + j - first) * n + t], x);
            }
        }
    }
    check_nmse("attention_causal", got, want, (size_t)(n * c->width));
    for (size_t i = 0; i < n_mass; i++) { check_share(mass[i], want_mass[i]); }
    be->ops->attention_causal(be, &c->s, row0, n_tail, tail, prompt, out);
    CKVC_AUTO_FREE float *got_tail = contents(be, out, n_used);
    assert_memory_equal(got_tail, got + row0 * c->width, n_used * sizeof *got);
    OK(be->ops->window_mass(be, &c->s, &(be_window){n, window, row0}, tail, prompt, mass_tail,
                            &err));
    assert_memory_equal(mass, mass_tail, n_mass * sizeof *mass);
}

/* Own rows of a lane. */
static void naive_kept(const attention_case *c, int64_t lane, const kept_set *kept, double *out) {
    CKVC_AUTO_FREE double *weights = ckvc_alloc(c->n + c->n_own, sizeof *weights);
    for (int64_t r = 0; r < c->n_own; r++) {
        const float *q = c->q + (lane * c->own_capacity + r) * c->width;
        for (int32_t h = 0; h < c->s.n_heads; h++) {
            naive_row(c, q, lane, h, c->n + r, kept, weights,
                      out + r * c->width + h * c->s.head_dim);
        }
    }
}

/* Sum and maximum over all own rows and over the later ones. */
static void check_targets(const attention_case *c, backend *be, const be_continuation *rows,
                          be_buf *out) {
    const int32_t n_heads = c->s.n_heads, group = n_heads / c->s.n_kv_heads;
    const size_t n = (size_t)(c->s.n_kv_heads * c->n), n_out = (size_t)(c->n_own * c->width);
    CKVC_AUTO_FREE double *got = ckvc_alloc(n, sizeof *got), *want = ckvc_alloc(n, sizeof *want),
                          *weights = ckvc_alloc(c->n + c->n_own, sizeof *weights);
    for (int kind_of = 0; kind_of < 4; kind_of++) {
        const bool largest = kind_of % 2;
        const int64_t first = kind_of < 2 ? 0 : c->n_own - (c->n_own + 3) / 4;
        memset(want, 0, n * sizeof *want);
        for (int64_t r = first; r < c->n_own; r++) {
            for (int32_t h = 0; h < n_heads; h++) {
                naive_row(c, c->q + r * c->width, 0, h, c->n + r, NULL, weights, NULL);
                double *to = want + h / group * c->n;
                for (int64_t t = 0; t < c->n; t++) {
                    to[t] = largest ? fmax(to[t], weights[t]) : to[t] + weights[t];
                }
            }
        }
        const be_target_rows counted = {first, largest};
        OK(be->ops->attention_targets(be, &c->s, rows, &counted, out, got, &err));
        float *mixed = contents(be, out, n_out);
        be->ops->attention_kept(be, &c->s, rows, &(be_lane){0}, 1, out);
        float *kept = contents(be, out, n_out);
        assert_memory_equal(mixed, kept, n_out * sizeof *kept);
        free(mixed), free(kept);
        for (size_t i = 0; i < n; i++) { check_share(got[i], want[i]); }
    }
}

/* Two sequences of the same prompt, at own rows n_own - 1 and 0: each holds what is kept and its
 * own rows so far, and attends to what its window shows; want [n_own][H*D] of naive_kept. */
static void check_held(const attention_case *c, backend *be, const be_cache *prompt,
                       const kept_set *kept, const double *want) {
    const int64_t d = c->s.head_dim, width = c->width, row[2] = {c->n_own - 1, 0};
    held_case cases[2];
    be_held held[2];
    be_buf *q = buffer(be, BE_ROW_TILE * width, NULL), *out = buffer(be, BE_ROW_TILE * width, NULL);
    for (int i = 0; i < 2; i++) {
        cases[i].means = (be_key_means){0};
        hold(be, &c->s, prompt, c->n, kept, (cache_formats){0}, row[i], &cases[i]);
        held[i] = cases[i].held;
        for (int32_t g = 0; g < c->s.n_kv_heads; g++) {
            const size_t to = (size_t)((cases[i].first[g] + cases[i].n_kept[g]) * d),
                         size = (size_t)((row[i] + 1) * d);
            be->ops->write(be, held[i].k, to, c->own_k + g * c->own_capacity * d, size);
            be->ops->write(be, held[i].v, to, c->own_v + g * c->own_capacity * d, size);
        }
        be->ops->write(be, q, i * width, c->q + row[i] * width, width);
    }
    be->ops->attention_held(be, &c->s, &(be_step){.n = 2, .q = q, .held = held}, out);
    for (int i = 0; i < 2; i++) {
        check_buffer("attention_held", be, out, i * width, want + row[i] * width, width);
    }
}

TEST(attention) {
    static const struct {
        int32_t n_heads, n_kv, d, window;
        int64_t n, n_own;
    } cases[] = {
        {1, 1, 2, 0, 1, 1},    {3, 3, 16, 0, 63, 5},   {8, 2, 10, 0, 64, 64},
        {6, 3, 32, 0, 65, 63}, {5, 1, 12, 0, 200, 70}, {6, 3, 6, 24, 130, 30},
        {4, 4, 8, 1, 70, 9},   {2, 1, 8, 64, 129, 66}, {4, 2, 20, 100, 90, 40},
        {2, 2, 4, 7, 20, 90},  {4, 2, 6, 0, 100, 700}, {2, 1, 6, 150, 260, 600},
    };
    CKVC_AUTO(end_bench) bench b = bench_open_kind(kind, 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CKVC_AUTO(attention_free)
        attention_case c = attention_create(cases[i].n_heads, cases[i].n_kv, cases[i].d,
                                            cases[i].window, cases[i].n, cases[i].n_own);
        const int64_t d = c.s.head_dim, n_own = c.n_own * c.width, n_norms = c.s.n_kv_heads * c.n;
        be_buf *q = buffer(b.be, c.rows * c.width, c.q),
               *out = buffer(b.be, c.rows * c.width, NULL);
        const be_cache prompt = {buffer(b.be, c.cache, c.k),
                                 buffer(b.be, c.cache, c.v),
                                 c.capacity,
                                 {0},
                                 {0}},
                       own = {buffer(b.be, c.own, c.own_k),
                              buffer(b.be, c.own, c.own_v),
                              c.own_capacity,
                              {0},
                              {0}};
        const be_continuation rows_of = {c.n_own, c.n, q, prompt, own};
        check_causal(&c, b.be, q, &prompt, out);
        check_targets(&c, b.be, &rows_of, out);
        CKVC_AUTO_FREE double *norm = ckvc_alloc(n_norms, sizeof *norm),
                              *want = ckvc_alloc(n_own, sizeof *want);
        OK(b.be->ops->value_norms(b.be, &c.s, c.n, &prompt, norm, &err));
        for (int64_t g = 0; g < c.s.n_kv_heads; g++) {
            for (int64_t t = 0; t < c.n; t++) {
                double sum = 0;
                for (int64_t x = 0; x < d; x++) {
                    sum += pow((double)c.v[(g * c.capacity + t) * d + x], 2);
                }
                assert_true(fabs(norm[g * c.n + t] - sqrt(sum)) < 1e-12);
            }
        }
        const kept_set *sets = c.kept->sets;
        for (int m = -1; m < 3; m++) {
            const kept_set *kept = m < 0 ? NULL : &sets[m];
            b.be->ops->attention_kept(b.be, &c.s, &rows_of, &(be_lane){0, 0, kept}, 1, out);
            naive_kept(&c, 0, kept, want);
            check_buffer("attention_kept", b.be, out, 0, want, n_own);
            check_held(&c, b.be, &prompt, kept, want);
        }
        /* lanes with sets shared and not, one that reads another's queries, one left out */
        const be_lane lanes[] = {{0, 0, &sets[0]}, {3, 3, &sets[0]}, {0, 1, &sets[2]}};
        b.be->ops->attention_kept(b.be, &c.s, &rows_of, lanes, 3, out);
        for (size_t x = 0; x < 3; x++) {
            naive_kept(&c, lanes[x].from, lanes[x].kept, want);
            check_buffer("attention_kept, lanes", b.be, out, lanes[x].to * c.own_capacity * c.width,
                         want, n_own);
        }
    }
}

/* ---- caches in other formats ---- */

/* cos and sin [D/2] of the angles at a position, as the backend has them. */
static void angles_at(const double *inv_freq, int64_t position, int32_t d, float *cosine,
                      float *sine) {
    for (int32_t i = 0; i < d / 2; i++) {
        cosine[i] = (float)cos((double)position * inv_freq[i]);
        sine[i] = (float)sin((double)position * inv_freq[i]);
    }
}

/* Turns a key by the angles of a position: the operations of the backend, one by one. */
static void turn(float *x, const float *cosine, const float *sine, int32_t d) {
    for (int32_t i = 0; i < d / 2; i++) {
        const float a = x[i], b = x[i + d / 2];
        x[i] = a * cosine[i] - b * sine[i];
        x[i + d / 2] = b * cosine[i] + a * sine[i];
    }
}

/* Makes keys of a [G][capacity][D] array, from position `first` on and `own` (still to be turned)
 * or not, what a cache of this format holds of them. */
static void round_keys(cache_formats f, const be_key_means *means, int64_t first, bool own,
                       int64_t capacity, int32_t n_heads, int32_t d, float *keys) {
    float cosine[256], sine[256];
    for (int64_t i = 0; i < n_heads * capacity; i++, keys += d) {
        const float *mean = means->of_head + i / capacity * d;
        angles_at(means->inv_freq, first + i % capacity, d, cosine, sine);
        if (own) { turn(keys, cosine, sine, d); }
        if (cache_takes_mean(f)) { cache_add_mean(mean, cosine, sine, d, -1, keys); }
        cache_round(f.keys, cache_key_rotation(f, d), keys, (size_t)d);
        if (cache_takes_mean(f)) { cache_add_mean(mean, cosine, sine, d, 1, keys); }
    }
}

static void round_values(cache_formats f, float *x, size_t n, int32_t d) {
    for (size_t i = 0; i < n; i += (size_t)d) {
        cache_round(f.values, cache_value_rotation(f, d), x + i, (size_t)d);
    }
}

/* The own rows of lane 0, [n_own][G*D] of an array [G][own_capacity][D]. */
static be_buf *own_rows(const attention_case *c, backend *be, const float *from) {
    const int64_t d = c->s.head_dim, n_kv = c->s.n_kv_heads;
    CKVC_AUTO_FREE float *rows = ckvc_calloc(c->own_capacity * n_kv * d, sizeof *rows);
    for (int64_t i = 0; i < c->n_own * n_kv; i++) {
        memcpy(rows + i * d, from + (i % n_kv * c->own_capacity + i / n_kv) * d, d * sizeof *rows);
    }
    return buffer(be, c->own_capacity * n_kv * d, rows);
}

/* A sequence in these formats that has been given its rows one by one attends as the last of them;
 * want [n_own][H*D]. */
static void check_held_formats(const attention_case *c, backend *be, const be_cache *prompt,
                               const kept_set *kept, const be_cache *own, const double *want) {
    const int64_t width = c->width, kv = (int64_t)c->s.n_kv_heads * c->s.head_dim,
                  last = c->n_own - 1;
    float cosine[256], sine[256];
    be_buf *k = own_rows(c, be, c->own_k), *v = own_rows(c, be, c->own_v),
           *q = buffer(be, BE_ROW_TILE * width, NULL), *out = buffer(be, BE_ROW_TILE * width, NULL),
           *row_k = buffer(be, 0, NULL), *row_v = buffer(be, 0, NULL);
    held_case h = {.means = own->means};
    hold(be, &c->s, prompt, c->n, kept, own->formats, last, &h);
    be->ops->write(be, q, 0, c->q + last * width, (size_t)width);
    be_step step = {
        .n = 1, .q = q, .k = row_k, .v = row_v, .held = &h.held, .cos = cosine, .sin = sine};
    for (h.held.n_own = 1; h.held.n_own <= c->n_own; h.held.n_own++) {
        be->ops->buf_view(be, row_k, k, (size_t)((h.held.n_own - 1) * kv), (size_t)kv);
        be->ops->buf_view(be, row_v, v, (size_t)((h.held.n_own - 1) * kv), (size_t)kv);
        angles_at(own->means.inv_freq, c->n + h.held.n_own - 1, c->s.head_dim, cosine, sine);
        /* queries are turned, too, which want's are not: they are written again below */
        be->ops->held_rows(be, &c->s, &step);
    }
    h.held.n_own = c->n_own;
    be->ops->write(be, q, 0, c->q + last * width, (size_t)width);
    be->ops->attention_held(be, &c->s, &step, out);
    check_buffer("attention_held, formats", be, out, 0, want + last * width, (size_t)width);
}

/* Attention over caches in a format is that over keys and values that were rounded to it. The
 * buffers are no larger than the format needs. */
static void check_formats(backend *be, attention_case *c, cache_formats f) {
    const int32_t d = c->s.head_dim, n_kv = c->s.n_kv_heads;
    const int64_t n_own = c->n_own * c->width;
    const size_t own = (size_t)(c->s.n_kv_heads * c->own_capacity * d), four = sizeof(float);
    double inv_freq[256];
    for (int32_t i = 0; i < d / 2; i++) { inv_freq[i] = pow(100.0, -2.0 * i / d); }
    CKVC_AUTO_FREE float *means = values((size_t)(n_kv * d), 3);
    be_buf *q = buffer(be, c->rows * c->width, c->q), *out = buffer(be, c->rows * c->width, NULL);
    const be_cache prompt = {buffer(be, c->cache, c->k),
                             buffer(be, c->cache, c->v),
                             c->capacity,
                             {0},
                             {0}},
                   cache = {buffer(be, cache_bytes(f.keys, own) / four, NULL),
                            buffer(be, cache_bytes(f.values, own) / four, NULL),
                            c->own_capacity,
                            f,
                            {means, inv_freq}};
    const be_continuation rows_of = {c->n_own, c->n, q, prompt, cache};
    be->ops->cache_rows(be, &c->s, inv_freq, &(be_rows){c->n, c->n_own, 1},
                        own_rows(c, be, c->own_k), own_rows(c, be, c->own_v), &cache);
    attention_case rounded = *c;
    rounded.k = ckvc_copy(c->k, c->cache, four), rounded.v = ckvc_copy(c->v, c->cache, four);
    rounded.own_k = ckvc_copy(c->own_k, own, four), rounded.own_v = ckvc_copy(c->own_v, own, four);
    round_keys(f, &cache.means, 0, false, c->capacity, n_kv, d, rounded.k);
    round_keys(f, &cache.means, c->n, true, c->own_capacity, n_kv, d, rounded.own_k);
    round_values(f, rounded.v, c->cache, d);
    round_values(f, rounded.own_v, own, d);
    CKVC_AUTO_FREE double *want = ckvc_alloc(n_own, sizeof *want);
    for (int m = 0; m < 3; m++) {
        const kept_set *kept = &c->kept->sets[m];
        naive_kept(&rounded, 0, kept, want);
        be->ops->attention_kept(be, &c->s, &rows_of, &(be_lane){0, 0, kept}, 1, out);
        check_buffer("attention_kept, formats", be, out, 0, want, (size_t)n_own);
        check_held_formats(c, be, &prompt, kept, &cache, want);
    }
    CKVC_FREE(rounded.k, rounded.v, rounded.own_k, rounded.own_v);
}

TEST(formats) {
    of_the_cpu_alone();
    static const struct {
        int32_t n_heads, n_kv, d, window;
        int64_t n, n_own;
    } cases[] = {{3, 3, 64, 0, 63, 5},
                 {6, 2, 192, 24, 230, 70},
                 {4, 1, 32, 0, 200, 9},
                 {4, 2, 10, 0, 100, 30}};
    CKVC_AUTO(end_bench) bench b = bench_open_kind(kind, 2);
    int n_checked = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CKVC_AUTO(attention_free)
        attention_case c = attention_create(cases[i].n_heads, cases[i].n_kv, cases[i].d,
                                            cases[i].window, cases[i].n, cases[i].n_own);
        for (int f = 1; f < CACHE_FORMATS + 4; f++) {
            const cache_formats each[] = {{(cache_format)f, (cache_format)f},
                                          {CACHE_Q8_0, CACHE_Q4_0_ROT},
                                          {CACHE_F32, CACHE_FP8},
                                          {CACHE_Q4_0_MEAN, CACHE_Q8_0},
                                          {CACHE_Q4_0_MEAN_ROT, CACHE_Q4_0_ROT}},
                                both = each[f < CACHE_FORMATS ? 0 : f - CACHE_FORMATS + 1];
            if (cases[i].d % cache_format_multiple(both.keys) != 0 ||
                cases[i].d % cache_format_multiple(both.values) != 0 ||
                both.values >= CACHE_Q4_0_MEAN) {
                continue;
            }
            check_formats(b.be, &c, both);
            n_checked++;
        }
    }
    assert_int_equal(n_checked, 15 + 15 + 7 + 4);
}

/* Pairs are (i, i + D/2), not (2i, 2i+1); positions are absolute; K is rotated in the cache, V is
 * not; the slots up to the next tile are zero. */
TEST(rope) {
    enum { H = 4, G = 2, D = 10, N = 70, CAP = 192, POS0 = 900, ROWS = 2 * 128 };
    CKVC_AUTO(end_bench) bench b = bench_open_kind(kind, 2);
    const be_attention_shape s = {H, G, D, 0, 1};
    double inv_freq[D / 2];
    for (int i = 0; i < D / 2; i++) { inv_freq[i] = pow(10000.0, -2.0 * i / D); }
    CKVC_AUTO_FREE float *q = values(ROWS * H * D, 1), *k = values(ROWS * G * D, 1),
                         *v = values(ROWS * G * D, 1), *junk = values(2 * G * CAP * D, 1);
    be_buf *bq = buffer(b.be, ROWS * H * D, q), *bk = buffer(b.be, ROWS * G * D, k),
           *bv = buffer(b.be, ROWS * G * D, v);
    be_buf *ck = buffer(b.be, 2 * G * CAP * D, junk), *cv = buffer(b.be, 2 * G * CAP * D, junk);
    double early[D / 2] = {0};
    b.be->ops->rope(b.be, &s, early, &(be_rows){0, 1, 1}, bq); /* first angle 0: turns nothing */
    const be_rows rows = {POS0, N, 2};
    b.be->ops->rope(b.be, &s, inv_freq, &rows, bq);
    b.be->ops->cache_rows(b.be, &s, inv_freq, &rows, bk, bv, &(be_cache){ck, cv, CAP, {0}, {0}});
    CKVC_AUTO_FREE float *got_q = contents(b.be, bq, ROWS * H * D),
                         *got_k = contents(b.be, ck, 2 * G * CAP * D),
                         *got_v = contents(b.be, cv, 2 * G * CAP * D);
    for (int lane = 0; lane < 2; lane++) {
        for (int r = 0; r < N; r++) {
            for (int h = 0; h < H + G; h++) {
                const int row = lane * 128 + r;
                const float *x = h < H ? q + (row * H + h) * D : k + (row * G + h - H) * D;
                const float *y =
                    h < H ? got_q + (row * H + h) * D : got_k + ((lane * G + h - H) * CAP + r) * D;
                for (int i = 0; i < D / 2; i++) {
                    const double angle = (POS0 + r) * inv_freq[i], a = (double)x[i],
                                 c = (double)x[i + D / 2];
                    assert_true(fabs((double)y[i] - (a * cos(angle) - c * sin(angle))) < 5e-7);
                    assert_true(fabs((double)y[i + D / 2] - (c * cos(angle) + a * sin(angle))) <
                                5e-7);
                }
            }
            for (int g = 0; g < G; g++) {
                assert_memory_equal(got_v + ((lane * G + g) * CAP + r) * D,
                                    v + ((lane * 128 + r) * G + g) * D, D * sizeof(float));
            }
        }
        assert_memory_equal(got_q + (lane * 128 + N) * H * D, q + (lane * 128 + N) * H * D,
                            (128 - N) * H * D * sizeof(float));
    }
    for (int g = 0; g < 2 * G; g++) {
        for (int t = N; t < 128; t++) {
            for (int i = 0; i < D; i++) {
                assert_true(got_k[(g * CAP + t) * D + i] == 0 && got_v[(g * CAP + t) * D + i] == 0);
            }
        }
        assert_true(got_k[(g * CAP + 128) * D] == junk[(g * CAP + 128) * D]);
    }
}

/* ---- the promise ---- */

/* Rows 0 ... 9 of a product, of both attentions and of the head, bit for bit the same when 1, 10,
 * 64, 100 or 300 rows are asked for, on 1, 2 and 3 threads, with junk in the padding. */
TEST(row_does_not_depend_on_batch_or_threads) {
    enum { IN = 192, OUT = 200, VOCAB = 600, MAX = 320, KEEP = 10, H = 6, G = 3, D = 32 };
    const int64_t batches[] = {300, 10, 64, 100, 300};
    CKVC_AUTO_FREE float *w = values(OUT * IN, 1), *head_w = values(VOCAB * IN, 1),
                         *x = values(MAX * IN, 1), *junk = values(MAX * IN, 9);
    CKVC_AUTO_FREE float *k = values(G * MAX * D, 2), *v = values(G * MAX * D, 1);
    float first[3][KEEP * OUT];
    double first_nll[KEEP];
    int32_t target[MAX] = {0};
    uint32_t offsets[2] = {0, 40}, positions[40];
    for (uint32_t i = 0; i < 40; i++) { positions[i] = i * 7; }
    const kept_set kept = {1, offsets, positions, false, {0}};
    const be_lane lane = {0, 0, &kept};
    const be_attention_shape s = {H, G, D, 0, 0.17f};
    bench on[3];
    for (int i = 0; i < 3; i++) { on[i] = bench_open_kind(kind, i + 1); }
    for (int run = 0; run < 10; run++) {
        const bench b = on[run % 3];
        const int64_t n = batches[run % 5];
        be_weight *bw = weight(b.be, w, OUT, IN), *bh = weight(b.be, head_w, VOCAB, IN);
        be_buf *bx = buffer(b.be, MAX * IN, junk), *by = buffer(b.be, MAX * OUT, NULL);
        be_buf *out[2] = {buffer(b.be, MAX * IN, NULL), buffer(b.be, MAX * IN, NULL)};
        const be_cache cache = {
            buffer(b.be, G * MAX * D, k), buffer(b.be, G * MAX * D, v), MAX, {0}, {0}};
        const be_continuation c = {
            .n_rows = n, .n_prompt = 300, .q = bx, .prompt = cache, .own = cache};
        b.be->ops->write(b.be, bx, 0, x, (size_t)(n * IN));
        b.be->ops->matmul(b.be, bw, NULL, bx, &(be_product_rows){.n = n}, false, by);
        b.be->ops->attention_causal(b.be, &s, 0, n, bx, &cache, out[0]);
        b.be->ops->attention_kept(b.be, &s, &c, &lane, 1, out[1]);
        double nll[MAX];
        OK(head_nll(b.be, bh, bx, (be_rows){0, n, 1}, target, nll));
        float *got[3] = {contents(b.be, by, KEEP * OUT), contents(b.be, out[0], KEEP * IN),
                         contents(b.be, out[1], KEEP * IN)};
        for (int i = 0; i < 3; i++) {
            const size_t bytes = (i == 0 ? KEEP * OUT : KEEP * IN) * sizeof(float);
            if (run == 0) { memcpy(first[i], got[i], bytes); }
            assert_memory_equal(first[i], got[i], bytes);
            free(got[i]);
        }
        if (run == 0) { memcpy(first_nll, nll, sizeof first_nll); }
        assert_memory_equal(first_nll, nll, sizeof first_nll);
    }
    for (int i = 0; i < 3; i++) { end_bench(&on[i]); }
}

/* Lanes of a few rows each: the same bytes as if the rows between them counted, from any row on. */
TEST(padding_of_lanes_changes_nothing) {
    enum { LANES = 5, IN = 400, OUT = 70, MOST = LANES * 2 * BE_ROW_TILE };
    CKVC_AUTO_FREE float *w = values(OUT * IN, 1), *bias = values(OUT, 1),
                         *x = values(MOST * IN, 1);
    bench on[2] = {bench_open_kind(kind, 1), bench_open_kind(kind, 2)};
    for (int64_t used = 1; used <= 100; used += 66) {
        const int64_t each = be_padded_rows(used);
        for (int variant = 0; variant < 4; variant++) {
            const int64_t first = variant & 1 ? 32 : 0, n = LANES * each - first;
            const bench b = on[variant / 2];
            be_weight *bw = weight(b.be, w, OUT, IN), *bb = weight(b.be, bias, OUT, 1);
            be_buf *bx = buffer(b.be, MOST * IN, x), *all = buffer(b.be, MOST * OUT, NULL),
                   *lanes = buffer(b.be, MOST * OUT, NULL);
            const be_product_rows rows = {n, first, used, each};
            b.be->ops->matmul(b.be, bw, bb, bx, &(be_product_rows){.n = n}, false, all);
            b.be->ops->matmul(b.be, bw, bb, bx, &rows, false, lanes);
            CKVC_AUTO_FREE float *want = contents(b.be, all, (size_t)(n * OUT)),
                                 *got = contents(b.be, lanes, (size_t)(n * OUT));
            for (int64_t r = 0; r < n; r++) {
                if ((first + r) % each >= used) { continue; }
                assert_memory_equal(got + r * OUT, want + r * OUT, OUT * sizeof *got);
            }
        }
    }
    end_bench(&on[0]), end_bench(&on[1]);
}

TEST(kinds) {
    of_the_cpu_alone();
    ckvc_err err = {0};
    ckvc_pool *pool;
    backend *be;
    OK(ckvc_pool_create(1, &pool, &err));
    /* built in and there (tests/emulation), or an error that names it */
    const bool cuda = backend_create("cuda", CKVC_COMPUTE_F32, pool, &be, &err) == CKVC_OK;
    if (cuda) {
        assert_int_equal(strncmp(be->kernel, "cuda/", 5), 0);
        backend_destroy(be);
    } else {
        assert_int_equal(err.status, CKVC_E_DEVICE);
        assert_non_null(strstr(err.text, "backend cuda: "));
    }
    err = (ckvc_err){0};
    SAYS(backend_create("tpu", CKVC_COMPUTE_F32, pool, &be, &err), CKVC_E_USAGE, "tpu");
    OK(backend_create("auto", CKVC_COMPUTE_F32, pool, &be, &err));
    assert_int_equal(strncmp(be->kernel, cuda ? "cuda/" : "cpu/", 4), 0);
    assert_ptr_equal(be->pool, pool);
    backend_destroy(be);
    OK(backend_create("openblas", CKVC_COMPUTE_F32, pool, &be, &err));
    assert_int_equal(strncmp(be->kernel, "cpu/OpenBLAS-", 13), 0);
    backend_destroy(be);
    ckvc_pool_destroy(pool);
}

int main(void) {
    const char *const asked = getenv("CKVC_TEST_BACKEND");
    const char *const all[] = {asked ? asked : "cpu", "openblas"};
    int failed = 0;
    for (size_t i = 0; i < (asked ? 1 : 2); i++) {
        kind = all[i];
        ckvc_rng_init(&rng, 7, 7, 7);
        failed += unit_run(temp_folder_make, temp_folder_remove);
    }
    return failed;
}
