/* The measurement behind the paper's Proposition: the backend's operation against a naive loop in
 * double, the identity ||p - p'||_1 = 2 m on its rows, a session's numbers per layer on a whole
 * model. Tolerance: float32 scores up to about 10 give probabilities right to 1e-6 relative. */
#include "tests/unit/lib/backend/on_backend.h"

enum { FULL = 2, OTHER = 1 };

static double worst_ratio;

static void near(const char *what, double got, double want) {
    const double ratio = fabs(got - want) / (2e-5 * fabs(want) + 1e-10);
    worst_ratio = fmax(worst_ratio, ratio);
    if (!(ratio <= 1)) { fail_msg("%s: got %.9g, wanted %.9g", what, got, want); }
}

PLAIN_LOOP static void check_rows(const attention_case *c, const kept_set *kept,
                                  const be_row_error *got) {
    double *p[3]; /* the full row, restricted to what is kept, and that of the other lane */
    for (int i = 0; i < 3; i++) { p[i] = ckvc_alloc(c->n + c->n_own, sizeof *p[i]); }
    for (int32_t h = 0; h < c->s.n_heads; h++) {
        for (int64_t r = 0; r < c->n_own; r++) {
            const be_row_error *e = &got[h * c->n_own + r];
            double mass = 0, l1 = 0, l2 = 0, drift = 0;
            for (int i = 0; i < 3; i++) {
                const int lane = i < 2 ? FULL : OTHER;
                naive_row(c, c->q + (lane * c->own_capacity + r) * c->width, lane, h, c->n + r,
                          i ? kept : NULL, p[i], NULL);
            }
            for (int64_t t = 0; t < c->n + r + 1; t++) {
                mass += p[1][t] == 0 ? p[0][t] : 0;
                l1 += fabs(p[0][t] - p[1][t]);
                l2 += (p[0][t] - p[1][t]) * (p[0][t] - p[1][t]);
                drift += (p[0][t] - p[2][t]) * (p[0][t] - p[2][t]);
            }
            near("mass", e->mass, mass);
            near("||p - p'||^2", e->restricted, l2);
            near("||p - p\"||^2", e->actual, drift);
            assert_true(fabs(l1 - 2 * mass) < 1e-12); /* the Proposition's identity, row by row */
            assert_true(sqrt(e->restricted) <= 2 * e->mass + 1e-6);
        }
    }
    free(p[0]), free(p[1]), free(p[2]);
}

/* The operation's numbers of a case. */
static void measure(backend *be, const attention_case *c, const kept_set *kept, be_row_error *out) {
    be_buf *q = buffer(be, c->rows * c->width, c->q), *k = buffer(be, c->cache, c->k),
           *own = buffer(be, c->own, c->own_k);
    const be_continuation rows = {c->n_own,
                                  c->n,
                                  q,
                                  {.k = k, .capacity = c->capacity},
                                  {own, NULL, c->own_capacity, {0}, {0}}};
    const be_compared lanes = {.full = FULL, .other = OTHER, .kept = kept};
    OK(be->ops->attention_error(be, &c->s, &rows, &lanes, out, &err));
}

TEST(rows) {
    of_the_cpu_alone();
    static const struct {
        int32_t n_heads, n_kv, d, window;
        int64_t n_prompt, n_rows;
    } cases[] = {
        {1, 1, 2, 0, 1, 1},     {3, 3, 16, 0, 63, 5}, {8, 2, 10, 0, 64, 64}, {5, 1, 12, 0, 130, 70},
        {6, 3, 6, 24, 130, 30}, {4, 4, 8, 1, 70, 9},  {2, 1, 8, 64, 90, 66}, {2, 2, 4, 7, 20, 90},
    };
    bench b[2][2]; /* of products, on 1 and 3 threads */
    for (int i = 0; i < 4; i++) {
        b[i / 2][i % 2] = bench_open_kind(i / 2 ? "openblas" : "cpu", i % 2 ? 3 : 1);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CKVC_AUTO(attention_free)
        attention_case c = attention_create(cases[i].n_heads, cases[i].n_kv, cases[i].d,
                                            cases[i].window, cases[i].n_prompt, cases[i].n_rows);
        const size_t n = (size_t)(c.s.n_heads * c.n_own);
        CKVC_AUTO_FREE be_row_error *got = ckvc_alloc(n, sizeof *got),
                                    *again = ckvc_alloc(n, sizeof *again);
        for (int set = -1; set < 3; set++) {
            const kept_set *kept = set < 0 ? NULL : &c.kept->sets[set];
            for (int kind = 0; kind < 2; kind++) {
                measure(b[kind][0].be, &c, kept, got);
                measure(b[kind][1].be, &c, kept, again);
                check_rows(&c, kept, got);
                assert_memory_equal(got, again, n * sizeof *got);
            }
        }
    }
    for (int i = 0; i < 4; i++) { end_bench(&b[i / 2][i % 2]); }
    printf("attention_error: share of the tolerance used: %.3f\n", worst_ratio);
}

/* What is left has weights that a float cannot hold beside the largest: still a distribution. */
TEST(nearly_all_mass_lost) {
    of_the_cpu_alone();
    CKVC_AUTO(end_bench) bench b = bench_open(1);
    CKVC_AUTO(attention_free) attention_case c = attention_create(1, 1, 2, 0, 2, 1);
    c.s.scale = 1;
    memset(c.q, 0, (size_t)(c.rows * c.width) * sizeof *c.q);
    memset(c.k, 0, c.cache * sizeof *c.k), memset(c.own_k, 0, c.own * sizeof *c.own_k);
    for (int lane = 0; lane < CASE_LANES; lane++) {
        c.q[lane * 128] = 1.0f;
        c.own_k[lane * 128] = -400.0f;
    }
    c.k[0] = 400.0f;
    be_row_error e;
    measure(b.be, &c, &c.kept->sets[1], &e);                              /* none */
    assert_true(e.mass == 1.0 && e.restricted == 2.0 && e.actual == 2.0); /* corner to corner */
}

TEST(layers) {
    enum { T = 150, C = 70, KEPT = 40 };
    CKVC_AUTO(end_bench) bench b = bench_open(2);
    bench_load(&b, "models/ckvc-tiny-4l", limits_of(T, C, 16, 2));
    const model_shape *shape = model_get_shape(b.m);
    const int32_t L = shape->n_layers;
    assert_true(L <= MAX_L);
    int32_t ids[T + C];
    ckvc_rng_init(&rng, 1, 0, 0);
    for (int t = 0; t < T + C; t++) {
        ids[t] = (int32_t)ckvc_rng_below(&rng, t % 3 ? (uint64_t)shape->vocab : 9);
    }
    prefill_of(b.s, ids, T, T + C, 16);
    uint32_t all[T], few[KEPT];
    const uint32_t all_offsets[2] = {0, T}, few_offsets[2] = {0, KEPT};
    for (uint32_t t = 0; t < T; t++) { all[t] = t; }
    for (uint32_t i = 0; i < KEPT; i++) { few[i] = i < 2 ? i : T - KEPT + i; }
    kept_set whole[MAX_L], sets[MAX_L];
    for (int32_t l = 0; l < L; l++) {
        whole[l] = (kept_set){1, all_offsets, all, false, {0}};
        sets[l] = (kept_set){1, few_offsets, few, false, {0}};
    }
    rollout_lane lanes[] = {{.parent = -1}, {.parent = -1, .sets = whole}};
    double nll[2 * C], full[C], compressed[C];
    layer_error e[MAX_L];
    const rollout_job job = {.session = b.s,
                             .continuation = ids + T,
                             .n = C,
                             .lanes = lanes,
                             .n_lanes = 2,
                             .nll = nll,
                             .errors = e};
    OK(sessions_rollouts(&job, 1, &err));
    for (int32_t l = 0; l < L; l++) {
        assert_true(e[l].epsilon == 0 && e[l].restricted < 1e-6 && e[l].actual < 1e-5);
    }
    lanes[1].sets = sets;
    OK(sessions_rollouts(&job, 1, &err));
    OK(session_continue(b.s, ids + T, C, NULL, full, &err));
    OK(session_continue(b.s, ids + T, C, sets, compressed, &err));
    assert_memory_equal(nll, full, sizeof full); /* measuring changes no loss */
    assert_memory_equal(nll + C, compressed, sizeof compressed);
    for (int32_t l = 0; l < L; l++) {
        printf("layer %d: epsilon %.4f, bound %.4f, restricted %.4f, actual %.4f\n", l,
               e[l].epsilon, 2 * sqrt(C - 1.0) * e[l].epsilon, e[l].restricted, e[l].actual);
        assert_true(e[l].epsilon > 0.01 && e[l].epsilon < 1);
        assert_true(e[l].restricted > 0 && e[l].restricted <= 2 * sqrt(C - 1.0) * e[l].epsilon);
    }
    /* Nothing has moved below the first layer; above it the compressed rollout's queries differ. */
    assert_true(fabs(e[0].actual - e[0].restricted) < 1e-6);
    assert_true(fabs(e[L - 1].actual - e[L - 1].restricted) > 1e-3);
}

int main(void) {
    ckvc_rng_init(&rng, 20, 6, 10);
    return unit_run(NULL, NULL);
}
