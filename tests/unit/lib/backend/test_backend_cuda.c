/* The CUDA backend beside the CPU's, operation by operation, where there is a device, or the
 * emulation of one (tests/emulation): head dimensions 64 ... 256, groups of 1 ... 8 query heads,
 * odd numbers of heads, sliding windows, lengths that are a multiple of nothing. Each operation's
 * normalised error, sum (got - want)^2 / sum want^2, has a bound of its own (`bounds`); the same
 * bytes from run to run, in whatever order threads and blocks run. */
#include "tests/unit/lib/backend/on_backend.h"

/* Of the emulation alone: the order of what has none. */
void emulation_set_seed(uint64_t seed) __attribute__((weak));

/* float32 against float32 differs by the order of sums and by exp: a float32 sum of n terms errs by
 * about sqrt(n) 2^-24, so 1e-13 ... 1e-12 squared; 1e-11 as in test_backend_cpu.c. Rounding to bf16
 * errs by 2^-7 / sqrt 12 of a mantissa in 1 ... 2, whose square is 7/3 on average: 2.2e-6 squared.
 * A product has two such factors: 4.4e-6, bound 1e-5. Attention rounds queries, keys, values and
 * weights: scores of about 0.75 here err by 1.6e-3, so their exps by 2.5e-6 squared (window mass,
 * targets), outputs by 4.4e-6 more: 7e-6, bound 2e-5. The error of
 * attention itself (attention_error) is a difference of rows, in float32 also with bf16. What only
 * moves or turns rows is the same in both. */
static const struct bound {
    const char *part;
    double f32, bf16;
} bounds[] = {
    {"rope", 1e-11, 1e-11},
    {"cache k", 1e-11, 1e-11},
    {"cache v", 0, 0},
    {"value norms", 1e-11, 1e-11},
    {"causal", 1e-11, 2e-5},
    {"causal, last tile", 1e-11, 2e-5},
    {"window mass", 1e-11, 2e-5},
    {"window rows", 1e-11, 2e-5},
    {"kept", 1e-11, 2e-5},
    {"targets", 1e-11, 2e-5},
    {"largest targets", 1e-11, 2e-5},
    {"targets' rows", 1e-11, 2e-5},
    {"mass left out", 1e-11, 1e-11},
    {"restricted", 1e-11, 1e-11},
    {"actual", 1e-11, 1e-11},
    {"held q", 1e-11, 1e-11},
    {"held k", 1e-11, 1e-11},
    {"held", 1e-11, 2e-5},
    {"embed", 0, 0},
    {"rmsnorm", 1e-11, 1e-11},
    {"silu", 1e-11, 1e-11},
    {"gelu", 1e-11, 1e-11},
    {"added rmsnorm", 1e-11, 1e-11},
    {"product", 1e-11, 1e-5},
    {"product with bias", 1e-11, 1e-5},
    {"added product", 1e-11, 1e-5},
    {"losses", 1e-11, 1e-5},
    {"logits", 1e-11, 1e-5},
    {"greedy losses", 1e-11, 1e-5},
    {"copied rows", 0, 0},
};

typedef struct outcome {
    const char *part;
    double *v;
    size_t n;
} outcome;
typedef struct outcomes {
    outcome all[32];
    int n;
} outcomes;

static double *put(outcomes *o, const char *part, size_t n) {
    o->all[o->n] = (outcome){part, ckvc_calloc(n, sizeof(double)), n};
    return o->all[o->n++].v;
}
static void put_floats(outcomes *o, const char *part, const float *v, size_t n) {
    double *to = put(o, part, n);
    for (size_t i = 0; i < n; i++) { to[i] = (double)v[i]; }
}
static void put_buffer(outcomes *o, const char *part, backend *be, const be_buf *b, size_t from,
                       size_t n) {
    CKVC_AUTO_FREE float *v = contents_from(be, b, from, n);
    put_floats(o, part, v, n);
}
static void outcomes_free(outcomes *o) {
    for (int i = 0; i < o->n; i++) { free(o->all[i].v); }
}

typedef struct shape_case {
    int32_t n_heads, n_kv, d, window;
    int64_t n, n_own;
} shape_case;
enum { LANES = 3 };

/* What both backends get: the same numbers, drawn from the case alone. */
typedef struct inputs {
    be_attention_shape s;
    int64_t n, n_own, rows, own_rows, capacity; /* rows, own_rows: whole tiles of n, n_own */
    double inv_freq[128];
    float *q, *k, *v, *own_q, *own_k, *own_v; /* [rows][H*D] ...; own: of LANES lanes */
    kept_sets *kept;
    const kept_set *sets[2]; /* one for all heads, one a head */
} inputs;

static inputs inputs_create(const shape_case *c) {
    const int64_t d = c->d, h = c->n_heads, g = c->n_kv;
    inputs in = {.s = {c->n_heads, c->n_kv, c->d, c->window, (float)(1 / sqrt((double)d))},
                 .n = c->n,
                 .n_own = c->n_own,
                 .rows = be_padded_rows(c->n),
                 .own_rows = be_padded_rows(c->n_own)};
    in.capacity = in.rows + 64;
    ckvc_rng_init(&rng, (uint64_t)d, (uint64_t)h, (uint64_t)c->n);
    for (int64_t i = 0; i < d / 2; i++) {
        in.inv_freq[i] = pow(10000.0, -2.0 * (double)i / (double)d);
    }
    in.q = values(in.rows * h * d, 1.5), in.k = values(in.rows * g * d, 1.5);
    in.v = values(in.rows * g * d, 1);
    in.own_q = values(LANES * in.own_rows * h * d, 1.5);
    in.own_k = values(LANES * in.own_rows * g * d, 1.5);
    in.own_v = values(LANES * in.own_rows * g * d, 1);
    in.kept = kept_sets_of(in.n, c->n_kv);
    in.sets[0] = &in.kept->sets[0], in.sets[1] = &in.kept->sets[2];
    return in;
}
static void inputs_free(inputs *in) {
    CKVC_FREE(in->q, in->k, in->v, in->own_q, in->own_k, in->own_v, in->kept);
}

/* ---- attention ---- */

/* A step of decoding: two sequences that hold what is kept, a set or one a head, and a row each. */
static void run_held(backend *be, const inputs *in, const be_cache *prompt, outcomes *o) {
    const be_attention_shape *s = &in->s;
    const int64_t d = s->head_dim, n_g = s->n_kv_heads, width = s->n_heads * d;
    held_case cases[2];
    be_held held[2];
    float cos_of[2 * 128], sin_of[2 * 128];
    for (int i = 0; i < 2; i++) {
        cases[i].means = (be_key_means){0};
        hold(be, s, prompt, in->n, in->sets[i], (cache_formats){0}, 0, &cases[i]);
        held[i] = cases[i].held;
        for (int64_t x = 0; x < d / 2; x++) {
            cos_of[i * d / 2 + x] = (float)cos((double)in->n * in->inv_freq[x]);
            sin_of[i * d / 2 + x] = (float)sin((double)in->n * in->inv_freq[x]);
        }
    }
    be_buf *q = buffer(be, BE_ROW_TILE * width, NULL), *out = buffer(be, BE_ROW_TILE * width, NULL),
           *k = buffer(be, BE_ROW_TILE * n_g * d, NULL),
           *v = buffer(be, BE_ROW_TILE * n_g * d, NULL);
    be->ops->write(be, q, 0, in->own_q, (size_t)(2 * width));
    be->ops->write(be, k, 0, in->own_k, (size_t)(2 * n_g * d));
    be->ops->write(be, v, 0, in->own_v, (size_t)(2 * n_g * d));
    const be_step step = {2, q, k, v, held, cos_of, sin_of};
    be->ops->held_rows(be, s, &step);
    be->ops->attention_held(be, s, &step, out);
    put_buffer(o, "held q", be, q, 0, 2 * width);
    put_buffer(o, "held k", be, held[1].k, 0, cases[1].n_entries * d);
    put_buffer(o, "held", be, out, 0, 2 * width);
}

static void run_continuation(backend *be, const inputs *in, const be_cache *prompt, be_buf *out,
                             outcomes *o) {
    const be_attention_shape *s = &in->s;
    const int64_t d = s->head_dim, width = s->n_heads * d, kv = s->n_kv_heads * d;
    const size_t n_own = (size_t)(LANES * in->own_rows);
    const be_rows rows = {in->n, in->n_own, LANES};
    be_buf *q = buffer(be, n_own * width, in->own_q), *k = buffer(be, n_own * kv, in->own_k),
           *v = buffer(be, n_own * kv, in->own_v);
    const be_cache own = {
        buffer(be, n_own * kv, NULL), buffer(be, n_own * kv, NULL), in->own_rows, {0}, {0}};
    be->ops->rope(be, s, in->inv_freq, &rows, q);
    be->ops->cache_rows(be, s, in->inv_freq, &rows, k, v, &own);
    const be_continuation c = {in->n_own, in->n, q, *prompt, own};
    const be_lane lanes[LANES] = {{0, 0, in->sets[0]}, {1, 1, in->sets[1]}, {0, 2, NULL}};
    be->ops->attention_kept(be, s, &c, lanes, LANES, out);
    for (int i = 0; i < LANES; i++) {
        put_buffer(o, "kept", be, out, i * in->own_rows * width, in->n_own * width);
    }
    const size_t columns = (size_t)(s->n_kv_heads * in->n);
    for (int largest = 0; largest < 2; largest++) {
        OK(be->ops->attention_targets(be, s, &c, &(be_target_rows){in->n_own / 3, largest}, out,
                                      put(o, largest ? "largest targets" : "targets", columns),
                                      &err));
    }
    put_buffer(o, "targets' rows", be, out, 0, in->n_own * width);
    const size_t n_errors = (size_t)(s->n_heads * in->n_own);
    CKVC_AUTO_FREE be_row_error *errors = ckvc_calloc(n_errors, sizeof *errors);
    OK(be->ops->attention_error(be, s, &c, &(be_compared){0, 1, in->sets[1]}, errors, &err));
    double *mass = put(o, "mass left out", n_errors), *restricted = put(o, "restricted", n_errors),
           *actual = put(o, "actual", n_errors);
    for (size_t i = 0; i < n_errors; i++) {
        mass[i] = errors[i].mass;
        restricted[i] = errors[i].restricted;
        actual[i] = errors[i].actual;
    }
    run_held(be, in, prompt, o);
}

static void run_attention(backend *be, const inputs *in, outcomes *o) {
    const be_attention_shape *s = &in->s;
    const int64_t d = s->head_dim, width = s->n_heads * d, kv = s->n_kv_heads * d,
                  most = in->rows > LANES * in->own_rows ? in->rows : LANES * in->own_rows,
                  window = in->n < 17 ? in->n : 17,
                  row0 = (in->n - window) / BE_ROW_TILE * BE_ROW_TILE;
    const size_t cache = (size_t)(in->capacity * kv);
    const be_rows rows = {0, in->n, 1};
    be_buf *q = buffer(be, in->rows * width, in->q), *k = buffer(be, in->rows * kv, in->k),
           *v = buffer(be, in->rows * kv, in->v), *out = buffer(be, most * width, NULL),
           *tail = buffer(be, 0, NULL);
    const be_cache prompt = {
        buffer(be, cache, NULL), buffer(be, cache, NULL), in->capacity, {0}, {0}};
    be->ops->rope(be, s, in->inv_freq, &rows, q);
    be->ops->cache_rows(be, s, in->inv_freq, &rows, k, v, &prompt);
    put_buffer(o, "rope", be, q, 0, in->n * width);
    put_buffer(o, "cache k", be, prompt.k, 0, cache);
    put_buffer(o, "cache v", be, prompt.v, 0, cache);
    const size_t columns = (size_t)(s->n_kv_heads * in->n);
    OK(be->ops->value_norms(be, s, in->n, &prompt, put(o, "value norms", columns), &err));
    be->ops->attention_causal(be, s, 0, in->n, q, &prompt, out);
    put_buffer(o, "causal", be, out, 0, in->n * width);
    be->ops->buf_view(be, tail, q, (size_t)(row0 * width), (size_t)((in->rows - row0) * width));
    be->ops->attention_causal(be, s, row0, in->n - row0, tail, &prompt, out);
    put_buffer(o, "causal, last tile", be, out, 0, (in->n - row0) * width);
    OK(be->ops->window_mass(be, s, &(be_window){in->n, window, row0}, tail, &prompt,
                            put(o, "window mass", columns), &err));
    const size_t n_rows = (size_t)(s->n_heads * window * in->n);
    CKVC_AUTO_FREE float *own = ckvc_alloc(n_rows, sizeof *own);
    OK(be->ops->window_rows(be, s, &(be_window){in->n, window, 0}, q, &prompt, own, &err));
    put_floats(o, "window rows", own, n_rows);
    run_continuation(be, in, &prompt, out, o);
}

/* ---- rows and products ---- */

/* n rows of n_in values; matrices of n_out rows, a vocabulary of 3 n_out. */
static void run_rows(backend *be, const shape_case *c, outcomes *o) {
    const int64_t n = c->n, n_in = c->n_heads * c->d + 1 - c->n_heads % 2, n_out = 2 * c->d + 3,
                  vocab = 3 * n_out, rows = be_padded_rows(n);
    ckvc_rng_init(&rng, (uint64_t)n, (uint64_t)n_in, 5);
    float *x = values(rows * n_in, 2), *w = values(vocab * n_in, 0.1), *bias = values(n_out, 1),
          *scale = values(n_in, 1), *sums = values(rows * n_out, 1);
    be_buf *bx = buffer(be, rows * n_in, x), *by = buffer(be, rows * n_in, NULL),
           *out = buffer(be, rows * n_out, sums);
    be_weight *matrix = weight(be, w, n_out, n_in), *head = weight(be, w, vocab, n_in),
              *vector = weight(be, bias, n_out, 1), *norm = weight(be, scale, n_in, 1);
    const int64_t n_y = n * n_out, n_x = n * n_in;
    int32_t *target = ckvc_alloc((size_t)rows, sizeof *target);
    be_greedy *next = ckvc_alloc((size_t)n, sizeof *next);
    for (int64_t i = 0; i < rows; i++) { target[i] = (int32_t)(i * 31 % vocab); }
    be->ops->matmul(be, matrix, NULL, bx, &(be_product_rows){.n = n}, true, out);
    put_buffer(o, "added product", be, out, 0, n_y);
    be->ops->matmul(be, matrix, NULL, bx, &(be_product_rows){.n = n}, false, out);
    put_buffer(o, "product", be, out, 0, n_y);
    be->ops->matmul(be, matrix, vector, bx, &(be_product_rows){.n = 3}, false, out);
    put_buffer(o, "product with bias", be, out, 0, 3 * n_out);
    OK(head_nll(be, head, bx, (be_rows){0, n, 1}, target, put(o, "losses", n)));
    float *logits = ckvc_alloc((size_t)(2 * vocab), sizeof *logits);
    OK(be->ops->head_logits(be, head, bx, n / 2, 2, logits, &err));
    put_floats(o, "logits", logits, 2 * vocab);
    OK(be->ops->head_greedy(be, head, bx, 0, n, next, &err));
    double *to = put(o, "greedy losses", n);
    for (int64_t i = 0; i < n; i++) { to[i] = next[i].nll; }
    be->ops->rmsnorm(be, bx, n, norm, 1e-5f, false, by);
    put_buffer(o, "rmsnorm", be, by, 0, n_x);
    be->ops->gate_mul(be, false, bx, by, n, n_in, by);
    put_buffer(o, "silu", be, by, 0, n_x);
    be->ops->gate_mul(be, true, bx, by, n, n_in, by);
    put_buffer(o, "gelu", be, by, 0, n_x);
    be->ops->rmsnorm(be, bx, n, norm, 1e-5f, true, by);
    put_buffer(o, "added rmsnorm", be, by, 0, n_x);
    be->ops->copy_rows(be, bx, 2, by, 1, n - 2, n_in);
    put_buffer(o, "copied rows", be, by, n_in, (n - 2) * n_in);
    be->ops->embed(be, head, target, n, by);
    put_buffer(o, "embed", be, by, 0, n_x);
    free(x), free(w), free(bias), free(scale), free(sums), free(target), free(logits), free(next);
}

/* ---- beside the CPU ---- */

static ckvc_pool *pool;

static ckvc_compute compute_of(bool bf16) { return bf16 ? CKVC_COMPUTE_BF16 : CKVC_COMPUTE_F32; }

static outcomes run(const char *kind, bool bf16, const shape_case *c) {
    outcomes o = {0};
    backend *be;
    inputs in = inputs_create(c);
    OK(backend_create(kind, compute_of(bf16), pool, &be, &err));
    run_attention(be, &in, &o);
    run_rows(be, c, &o);
    OK(be->ops->sync(be, &err));
    end_backend(be);
    inputs_free(&in);
    return o;
}

static bool is_device(void) {
    backend *be;
    ckvc_err err = {0};
    if (backend_create("cuda", CKVC_COMPUTE_F32, pool, &be, &err) == CKVC_OK) {
        end_backend(be);
        return true;
    }
    assert_int_equal(err.status, CKVC_E_DEVICE);
    printf("skipped: %s\n", err.text);
    return false;
}

static const shape_case cases[] = {
    {1, 1, 64, 0, 66, 5},     {3, 3, 64, 40, 130, 70}, {5, 1, 80, 0, 200, 33},
    {6, 3, 128, 0, 129, 65},  {8, 1, 96, 64, 191, 20}, {14, 2, 64, 0, 75, 30},
    {2, 1, 256, 100, 140, 9}, {6, 3, 34, 0, 100, 64},
};
enum { N_CASES = sizeof cases / sizeof *cases, N_BOUNDS = sizeof bounds / sizeof *bounds };

TEST(beside_the_cpu) {
    double seen[2][N_BOUNDS] = {{0}};
    bool met[N_BOUNDS] = {false};
    int wrong = 0;
    if (!is_device()) { skip(); }
    for (int i = 0; i < N_CASES; i++) {
        outcomes want = run("cpu", false, &cases[i]);
        for (int bf16 = 0; bf16 < 2; bf16++) {
            outcomes got = run("cuda", bf16, &cases[i]);
            for (int j = 0; j < want.n; j++) {
                const outcome *w = &want.all[j], *g = &got.all[j];
                double error = 0, size = 0;
                int b = 0;
                while (strcmp(bounds[b].part, w->part) != 0) { b++; }
                for (size_t x = 0; x < w->n; x++) {
                    error += (g->v[x] - w->v[x]) * (g->v[x] - w->v[x]);
                    size += w->v[x] * w->v[x];
                }
                error = error == 0 ? 0 : error / size;
                met[b] = true;
                if (!(error <= seen[bf16][b])) { seen[bf16][b] = error; }
                if (!(error <= (bf16 ? bounds[b].bf16 : bounds[b].f32))) {
                    print_error("%s, %s, %d heads of %d, %d for keys, window %d, %d + %d rows: "
                                "error %.3g\n",
                                w->part, bf16 ? "bf16" : "f32", cases[i].n_heads, cases[i].d,
                                cases[i].n_kv, cases[i].window, (int)cases[i].n,
                                (int)cases[i].n_own, error);
                    wrong++;
                }
            }
            outcomes_free(&got);
        }
        outcomes_free(&want);
    }
    for (int b = 0; b < N_BOUNDS; b++) {
        assert_true(met[b]);
        printf("%-20s f32 %.1e of %.0e   bf16 %.1e of %.0e\n", bounds[b].part, seen[0][b],
               bounds[b].f32, seen[1][b], bounds[b].bf16);
    }
    assert_int_equal(wrong, 0);
}

/* Again, and in the emulation in other orders of threads and blocks. */
TEST(same_bytes) {
    if (!is_device()) { skip(); }
    for (int i = 1; i < N_CASES; i += 3) {
        for (int bf16 = 0; bf16 < 2; bf16++) {
            outcomes first = {0};
            for (uint64_t seed = 0; seed < 3; seed++) {
                if (emulation_set_seed) { emulation_set_seed(seed); }
                outcomes o = run("cuda", bf16, &cases[i]);
                for (int j = 0; seed && j < o.n; j++) {
                    if (memcmp(o.all[j].v, first.all[j].v, o.all[j].n * sizeof(double)) != 0) {
                        fail_msg("%s, case %d, bf16 %d, order %d: other bytes", o.all[j].part, i,
                                 bf16, (int)seed);
                    }
                }
                if (seed) {
                    outcomes_free(&o);
                } else {
                    first = o;
                }
            }
            outcomes_free(&first);
        }
    }
    if (emulation_set_seed) { emulation_set_seed(0); }
}

/* A row of attention has the same bytes whatever lies beside it: rows, other lanes, more of them
 * than go side by side. Three query heads a group: a block's two are of two tiles of rows. */
TEST(rows_beside_others) {
    enum { MANY = 70, WIDTH = 6 * 80, FEW = 70 };
    static const shape_case shape = {6, 2, 80, 60, 150, 20};
    if (!is_device()) { skip(); }
    for (int bf16 = 0; bf16 < 2; bf16++) {
        backend *be;
        inputs in = inputs_create(&shape);
        const int64_t own_rows = in.own_rows, kv = 2 * 80;
        float *k = values(in.capacity * kv, 1.5), *v = values(in.capacity * kv, 1);
        OK(backend_create("cuda", compute_of(bf16), pool, &be, &err));
        be_buf *q = buffer(be, in.rows * WIDTH, in.q),
               *out = buffer(be, MANY * own_rows * WIDTH, NULL),
               *own_q = buffer(be, LANES * own_rows * WIDTH, in.own_q);
        const be_cache prompt = {buffer(be, in.capacity * kv, k),
                                 buffer(be, in.capacity * kv, v),
                                 in.capacity,
                                 {0},
                                 {0}},
                       own = {buffer(be, LANES * own_rows * kv, in.own_k),
                              buffer(be, LANES * own_rows * kv, in.own_v),
                              own_rows,
                              {0},
                              {0}};
        be->ops->attention_causal(be, &in.s, 0, in.n, q, &prompt, out);
        float *all = contents(be, out, FEW * WIDTH);
        be->ops->attention_causal(be, &in.s, 0, FEW, q, &prompt, out);
        float *few = contents(be, out, FEW * WIDTH);
        assert_memory_equal(all, few, FEW * WIDTH * sizeof *all);
        free(all), free(few);

        const be_continuation c = {in.n_own, in.n, own_q, prompt, own};
        const size_t lane = (size_t)(own_rows * WIDTH);
        be_lane lanes[MANY];
        for (int i = 0; i < MANY; i++) { lanes[i] = (be_lane){i / 2 % 3, i, in.sets[i / 3 % 2]}; }
        be->ops->attention_kept(be, &in.s, &c, lanes, MANY, out);
        all = contents(be, out, MANY * lane);
        for (int i = 0; i < MANY; i++) { /* every way to have a set and rows once, and the last */
            if (i >= 12 && i < MANY - 2) { continue; }
            be->ops->attention_kept(be, &in.s, &c, &(be_lane){lanes[i].from, 0, lanes[i].kept}, 1,
                                    out);
            few = contents(be, out, lane);
            assert_memory_equal(all + (size_t)i * lane, few, lane * sizeof *all);
            free(few);
        }
        free(all), free(k), free(v);
        end_backend(be);
        inputs_free(&in);
    }
}

int main(void) {
    ckvc_err err = {0};
    if (ckvc_pool_create(2, &pool, &err) != CKVC_OK) { return 1; }
    const int failed = unit_run(NULL, NULL);
    ckvc_pool_destroy(pool);
    return failed;
}
