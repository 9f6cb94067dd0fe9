/* The measurement behind the paper's Proposition: the backend's operation against a naive loop in
 * double, the identity
 * ||p - p'||_1 = 2 m on the loop's rows with the operation's m, and a session's per-layer numbers
 * on a whole model.
 *
 * Tolerance: float32 scores of size up to about 10 give probabilities right to about 1e-6 relative.
 */
#include "tests/unit/lib/backend/on_backend.h"
#include "tests/unit/unit.h"

enum { LANES = 3, FULL = 2, OTHER = 1 };

typedef struct rows_case {
    be_attention_shape s;
    int64_t n_prompt, n_rows, capacity, own_capacity;
    float *q, *k, *own_k;
} rows_case;

/* p [n_prompt + r + 1]: row r of head h in a lane, over the positions that it sees and `kept` has
 * (NULL: all); zeros elsewhere. */
static void naive_row(const rows_case *c, int lane, int64_t h, int64_t r, const kept_set *kept,
                      double *p) {
    const int64_t d = c->s.head_dim, g = h / (c->s.n_heads / c->s.n_kv_heads),
                  n = c->n_prompt + r + 1;
    const int64_t lo = c->s.window && n > c->s.window ? n - c->s.window : 0,
                  set = kept && kept->n_sets > 1 ? g : 0;
    const float *q = c->q + ((lane * c->own_capacity + r) * c->s.n_heads + h) * d;
    double max = -INFINITY, sum = 0;
    for (int64_t t = 0; t < n; t++) {
        const float *k =
            t < c->n_prompt
                ? c->k + (g * c->capacity + t) * d
                : c->own_k + ((lane * c->s.n_kv_heads + g) * c->own_capacity + t - c->n_prompt) * d;
        bool sees = t >= lo && (!kept || t >= c->n_prompt);
        for (uint32_t i = kept ? kept->offsets[set] : 0;
             kept && t >= lo && i < kept->offsets[set + 1]; i++) {
            sees |= (int64_t)kept->positions[i] == t;
        }
        p[t] = 0;
        for (int64_t i = 0; i < d; i++) { p[t] += (double)q[i] * (double)k[i]; }
        p[t] = sees ? p[t] * (double)c->s.scale : -INFINITY;
        max = fmax(max, p[t]);
    }
    for (int64_t t = 0; t < n; t++) { sum += p[t] = exp(p[t] - max); }
    for (int64_t t = 0; t < n; t++) { p[t] /= sum; }
}

static double worst_ratio;

static void close_to(const char *what, double got, double want) {
    const double ratio = fabs(got - want) / (2e-5 * fabs(want) + 1e-10);
    worst_ratio = fmax(worst_ratio, ratio);
    if (!(ratio <= 1)) { fail_msg("%s: got %.9g, wanted %.9g", what, got, want); }
}

static void check_rows(const rows_case *c, const kept_set *kept, const be_row_error *got) {
    const int64_t most = c->n_prompt + c->n_rows;
    double *p = ckvc_alloc((size_t)most, sizeof *p),
           *restricted = ckvc_alloc((size_t)most, sizeof *p),
           *actual = ckvc_alloc((size_t)most, sizeof *p);
    for (int64_t h = 0; h < c->s.n_heads; h++) {
        for (int64_t r = 0; r < c->n_rows; r++) {
            const be_row_error *e = &got[h * c->n_rows + r];
            double mass = 0, l1 = 0, l2 = 0, drift = 0;
            naive_row(c, FULL, h, r, NULL, p);
            naive_row(c, FULL, h, r, kept, restricted);
            naive_row(c, OTHER, h, r, kept, actual);
            for (int64_t t = 0; t < c->n_prompt + r + 1; t++) {
                mass += restricted[t] == 0 ? p[t] : 0;
                l1 += fabs(p[t] - restricted[t]);
                l2 += (p[t] - restricted[t]) * (p[t] - restricted[t]);
                drift += (p[t] - actual[t]) * (p[t] - actual[t]);
            }
            close_to("mass", e->mass, mass);
            close_to("||p - p'||^2", e->restricted, l2);
            close_to("||p - p\"||^2", e->actual, drift);
            assert_true(fabs(l1 - 2 * mass) < 1e-12); /* the Proposition's identity, row by row */
            close_to("||p - p'||_1 / 2", e->mass, l1 / 2);
            assert_true(sqrt(e->restricted) <= 2 * e->mass + 1e-6);
        }
    }
    free(p), free(restricted), free(actual);
}

/* The operation's numbers of a case, whose arrays hold n_q, n_k and n_own values. */
static void measure(backend *be, const rows_case *c, size_t n_q, size_t n_k, size_t n_own,
                    const kept_set *kept, be_row_error *out) {
    be_buf *q = buffer(be, n_q, c->q), *k = buffer(be, n_k, c->k),
           *own = buffer(be, n_own, c->own_k);
    const be_continuation rows = {.n_rows = c->n_rows,
                                  .n_prompt = c->n_prompt,
                                  .q = q,
                                  .prompt = {.k = k, .capacity = c->capacity},
                                  .own = {.k = own, .capacity = c->own_capacity}};
    const be_compared lanes = {.full = FULL, .other = OTHER, .kept = kept};
    OK(be->ops->attention_error(be, &c->s, &rows, &lanes, out, &err));
    be->ops->buf_free(be, q), be->ops->buf_free(be, k), be->ops->buf_free(be, own);
}

TEST(rows) {
    static const struct {
        int32_t n_heads, n_kv, d, window;
        int64_t n_prompt, n_rows;
    } cases[] = {
        {1, 1, 2, 0, 1, 1},     {3, 3, 16, 0, 63, 5}, {8, 2, 10, 0, 64, 64}, {5, 1, 12, 0, 130, 70},
        {6, 3, 6, 24, 130, 30}, {4, 4, 8, 1, 70, 9},  {2, 1, 8, 64, 90, 66}, {2, 2, 4, 7, 20, 90},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rows_case c = {.s = {cases[i].n_heads, cases[i].n_kv, cases[i].d, cases[i].window,
                             (float)(1 / sqrt((double)cases[i].d))},
                       .n_prompt = cases[i].n_prompt,
                       .n_rows = cases[i].n_rows,
                       .capacity = be_padded_rows(cases[i].n_prompt) + 64,
                       .own_capacity = be_padded_rows(cases[i].n_rows)};
        const size_t n_q = (size_t)(LANES * c.own_capacity * c.s.n_heads * c.s.head_dim);
        const size_t n_k = (size_t)(c.s.n_kv_heads * c.capacity * c.s.head_dim);
        const size_t n_own = (size_t)(LANES * c.s.n_kv_heads * c.own_capacity * c.s.head_dim);
        c.q = values(n_q, 4), c.k = values(n_k, 2), c.own_k = values(n_own, 2);
        const int32_t G = c.s.n_kv_heads;
        uint32_t *some = ckvc_alloc((size_t)c.n_prompt, sizeof *some);
        uint32_t *each = ckvc_alloc((size_t)(c.n_prompt * G), sizeof *each);
        uint32_t one[2] = {0, 0}, none[2] = {0, 0}, per_head[9] = {0};
        for (int64_t t = 0; t < c.n_prompt; t++) {
            if (ckvc_rng_below(&rng, 3) == 0) { some[one[1]++] = (uint32_t)t; }
        }
        for (int32_t g = 0; g < G; g++) {
            per_head[g + 1] = per_head[g];
            for (int64_t t = g; g != 1 && t < c.n_prompt; t += g + 2) {
                each[per_head[g + 1]++] = (uint32_t)t;
            }
        }
        const kept_set sets[3] = {{1, one, some}, {1, none, some}, {G, per_head, each}};
        be_row_error *got = ckvc_alloc((size_t)(c.s.n_heads * c.n_rows), sizeof *got);
        be_row_error *again = ckvc_alloc((size_t)(c.s.n_heads * c.n_rows), sizeof *again);
        for (int set = -1; set < 3; set++) {
            const kept_set *kept = set < 0 ? NULL : &sets[set];
            for (int run = 0; run < 4; run++) { /* both kinds of products, on 1 and 3 threads */
                bench b = bench_open_kind(run < 2 ? "cpu" : "openblas", run % 2 ? 3 : 1);
                measure(b.be, &c, n_q, n_k, n_own, kept, run % 2 ? again : got);
                bench_close(&b);
                if (run % 2) {
                    check_rows(&c, kept, got);
                    assert_memory_equal(got, again, (size_t)(c.s.n_heads * c.n_rows) * sizeof *got);
                }
            }
        }
        free(c.q), free(c.k), free(c.own_k), free(some), free(each), free(got), free(again);
    }
    printf("attention_error: share of the tolerance used: %.3f\n", worst_ratio);
}

/* All that is left has a weight that a float cannot hold beside the largest: the restricted row is
 * still a distribution. */
TEST(nearly_all_mass_lost) {
    bench b = bench_open(1);
    rows_case c = {
        .s = {1, 1, 2, 0, 1.0f}, .n_prompt = 2, .n_rows = 1, .capacity = 64, .own_capacity = 64};
    c.q = ckvc_calloc(LANES * 64 * 2, sizeof *c.q), c.k = ckvc_calloc(64 * 2, sizeof *c.k);
    c.own_k = ckvc_calloc(LANES * 64 * 2, sizeof *c.own_k);
    for (int lane = 0; lane < LANES; lane++) {
        c.q[lane * 128] = 1.0f;
        c.own_k[lane * 128] = -400.0f;
    }
    c.k[0] = 400.0f;
    const uint32_t offsets[2] = {0, 0};
    const kept_set none = {1, offsets, offsets};
    be_row_error e;
    measure(b.be, &c, LANES * 128, 128, LANES * 128, &none, &e);
    assert_true(e.mass == 1.0 && e.restricted == 2.0 &&
                e.actual == 2.0); /* from one corner of the simplex to another */
    free(c.q), free(c.k), free(c.own_k);
    bench_close(&b);
}

TEST(layers) {
    enum { T = 150, C = 70, KEPT = 40, MAX_LAYERS = 8 };
    bench b = bench_open(2);
    model *m;
    OK(model_open_path("models/ckvc-tiny-4l", b.be, &m, &err));
    const model_shape *shape = model_get_shape(m);
    const int32_t L = shape->n_layers;
    assert_true(L <= MAX_LAYERS);
    session *s;
    const session_limits limits = {
        .max_prompt = T, .max_continuation = C, .max_window = 16, .max_lanes = 2};
    OK(sessions_create(m, limits, 1, &s, &err));
    int32_t ids[T + C];
    for (int t = 0; t < T + C; t++) {
        ids[t] = (int32_t)ckvc_rng_below(&rng, t % 3 ? (uint64_t)shape->vocab : 9);
    }
    prefill_stats stats;
    OK(sessions_prefill(
        &(prefill_job){s, (prefill_input){.tokens = ids, .n = T, .n_total = T + C, .window = 16},
                       &stats},
        1, &err));

    uint32_t all[T], few[KEPT];
    const uint32_t all_offsets[2] = {0, T}, few_offsets[2] = {0, KEPT};
    for (uint32_t t = 0; t < T; t++) { all[t] = t; }
    for (uint32_t i = 0; i < KEPT; i++) { few[i] = i < 2 ? i : T - KEPT + i; }
    kept_set whole[MAX_LAYERS], sets[MAX_LAYERS];
    for (int32_t l = 0; l < L; l++) {
        whole[l] = (kept_set){1, all_offsets, all};
        sets[l] = (kept_set){1, few_offsets, few};
    }
    double nll[2 * C], full[C], compressed[C];
    layer_error e[MAX_LAYERS];
    OK(sessions_rollouts(
        &(rollout_job){s, ids + T, C,
                       (const rollout_lane[]){{.parent = -1}, {.parent = -1, .sets = whole}}, 2,
                       nll, e},
        1, &err));
    for (int32_t l = 0; l < L; l++) {
        assert_true(e[l].epsilon == 0 && e[l].restricted < 1e-6 && e[l].actual < 1e-5);
    }
    OK(sessions_rollouts(
        &(rollout_job){s, ids + T, C,
                       (const rollout_lane[]){{.parent = -1}, {.parent = -1, .sets = sets}}, 2, nll,
                       e},
        1, &err));
    OK(session_continue(s, ids + T, C, NULL, full, &err));
    OK(session_continue(s, ids + T, C, sets, compressed, &err));
    assert_memory_equal(nll, full, sizeof full); /* measuring changes no loss */
    assert_memory_equal(nll + C, compressed, sizeof compressed);
    for (int32_t l = 0; l < L; l++) {
        printf("layer %d: epsilon %.4f, bound %.4f, restricted %.4f, actual %.4f\n", l,
               e[l].epsilon, 2 * sqrt(C - 1.0) * e[l].epsilon, e[l].restricted, e[l].actual);
        assert_true(e[l].epsilon > 0.01 && e[l].epsilon < 1);
        assert_true(e[l].restricted > 0 && e[l].restricted <= 2 * sqrt(C - 1.0) * e[l].epsilon);
    }
    /* Nothing has moved yet below the first layer; above it the compressed rollout has queries of
     * its own. */
    assert_true(fabs(e[0].actual - e[0].restricted) < 1e-6);
    assert_true(fabs(e[L - 1].actual - e[L - 1].restricted) > 1e-3);
    session_destroy(s);
    model_close(m);
    bench_close(&b);
}

int main(void) {
    ckvc_rng_init(&rng, 20, 6, 10);
    return unit_run(NULL, NULL);
}
