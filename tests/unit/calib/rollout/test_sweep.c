/* The sweep against the plain way: the same bits whatever the batch, the threads and the order of
 * prompts; --check-rollouts; and the memory that a run says it will take. */
#include <malloc.h>

#include "calib/rollout/memory_plan.h"
#include "calib/rollout/rollouts.h"
#include "tests/unit/golden_model.h"
#include "tests/unit/sets_fixture.h"

enum { MAX_T = 260, MAX_C = 70, MAX_W = 32, ALL = 80 };

static const behaviour_policy everything = {.sides = {true, true}, .limit = -1};

/* Everything one rollout of losses stands on. */
typedef struct rig {
    bench b;
    ckvc_table *table;
    prompt_sets *k;
    variant_list v;
    rollout_scratch w;
    int32_t ids[MAX_T + MAX_C];
} rig;

static rig *rig_open(const char *dir, int threads, int64_t lanes, const double *budgets,
                     uint32_t n_budgets) {
    rig *r = ckvc_calloc(1, sizeof *r);
    r->b = bench_open(threads);
    bench_load(&r->b, dir, limits_of(MAX_T, MAX_C, MAX_W, lanes));
    const model_shape *s = model_get_shape(r->b.m);
    r->table = new_start_table((uint32_t)s->n_layers, (uint32_t)s->n_kv_heads, 1, 1, budgets,
                               n_budgets, 16, NULL);
    OK(prompt_sets_create(r->table, MAX_T, &(setting){.window = 16}, &r->k, &err));
    const variant_extent most = variants_extent(r->table, NULL, MAX_T, &everything);
    variants_reserve(&r->v, &most);
    const rollout_extent extent = {.max_lanes = lanes,
                                   .max_continuation = MAX_C,
                                   .n_budgets = n_budgets,
                                   .n_layers = (uint32_t)s->n_layers,
                                   .max_variants = most.n_variants};
    rollout_scratch_init(&r->w, &extent);
    return r;
}

static void rig_close(rig *r) {
    rollout_scratch_fini(&r->w);
    variants_fini(&r->v);
    prompt_sets_destroy(r->k);
    ckvc_table_free(r->table);
    bench_close(&r->b);
    free(r);
}
CKVC_AUTO_OF(rig, rig_close)

/* A prompt of T tokens, some of which come back often, prefilled, with its kept sets. */
static void rig_prompt(rig *r, uint64_t seed, uint32_t T, uint32_t C, uint32_t W) {
    ckvc_rng rng = rng_of(seed, 3, 0);
    const uint64_t vocab = (uint64_t)model_get_shape(r->b.m)->vocab;
    for (uint32_t t = 0; t < T + C; t++) {
        r->ids[t] = (int32_t)ckvc_rng_below(&rng, t % 3 ? vocab : 9);
    }
    ckvc_alloc_forbid("a prefill of the test");
    const prefill_stats stats = prefill_of(r->b.s, r->ids, T, T + C, W);
    ckvc_alloc_permit();
    prompt_sets_build(r->k, &stats);
}

typedef struct losses {
    double full, baseline[8], variant[4000];
    size_t n, n_baselines;
} losses;

/* What a prompt of T + C tokens asks for; baselines go to l. */
static rollouts asked(rig *r, uint32_t T, uint32_t C, losses *l) {
    return (rollouts){.session = r->b.s,
                      .sets = r->k,
                      .variants = &r->v,
                      .continuation = r->ids + T,
                      .n_continuation = C,
                      .full = -1,
                      .baseline = l->baseline};
}

static void run(rig *r, uint32_t T, uint32_t C, bool plain, losses *l) {
    rollouts all = asked(r, T, C, l);
    for (size_t i = 0; i < r->v.n; i++) { r->v.items[i].loss = -1; }
    l->baseline[0] = -1;
    ckvc_alloc_forbid("rollouts of the test");
    OK(plain ? rollouts_plain(&r->w, &all, &err)
             : rollouts_sweep_together(&(prompt_rollouts){&r->w, &all}, 1, &err));
    ckvc_alloc_permit();
    assert_true(r->v.n <= 4000);
    l->full = all.full;
    l->n = r->v.n;
    l->n_baselines = r->k->n_budgets;
    for (size_t i = 0; i < r->v.n; i++) { l->variant[i] = r->v.items[i].loss; }
}

static void check_same(const char *what, const losses *a, const losses *b) {
    assert_int_equal(a->n, b->n);
    if (memcmp(&a->full, &b->full, sizeof a->full) != 0 ||
        memcmp(a->baseline, b->baseline, a->n_baselines * sizeof *a->baseline) != 0) {
        fail_msg("%s: full cache or baseline differ: %.17g %.17g, %.17g %.17g", what, a->full,
                 b->full, a->baseline[0], b->baseline[0]);
    }
    for (size_t i = 0; i < a->n; i++) {
        if (memcmp(&a->variant[i], &b->variant[i], sizeof a->variant[i]) != 0) {
            fail_msg("%s: variant %zu: %.17g, %.17g", what, i, a->variant[i], b->variant[i]);
        }
        assert_true(isfinite(a->variant[i]) && a->variant[i] > 0);
    }
}

enum { N_LANES = 4 };
static const int64_t lane_counts[N_LANES] = {2, 3, 8, ALL}; /* batches of 1, 2, 7, all variants */

/* One shape of run: the plain way, and the sweep in two batch sizes, one of them all at once, of
 * the first shape in each, on one to three threads. */
static void check_case(const char *dir, size_t at, const char *what, const double *budgets,
                       uint32_t n_budgets, uint32_t T, uint32_t C, uint32_t W, int64_t limit) {
    static losses plain, got;
    for (size_t i = at % 3; i < N_LANES; i = at ? i / 3 * 3 + 3 : i + 1) {
        CKVC_AUTO(rig_close_at)
        rig *r = rig_open(dir, (int)(i + at) % 3 + 1, lane_counts[i], budgets, n_budgets);
        rig_prompt(r, T + C, T, C, W);
        build_variants(&r->v, r->k, BEHAVIOUR_BALANCED, limit, 1, "p");
        if (i == at % 3) { run(r, T, C, true, &plain); }
        run(r, T, C, false, &got);
        check_same(what, &plain, &got);
    }
}

TEST(cases) {
    static const struct {
        const char *what;
        double budgets[4];
        uint32_t n_budgets, T, C, W;
        int64_t limit;
    } rows[] = {
        {"ordinary", {0.25}, 1, 140, 40, 16, 12},
        {"two whole row tiles of rows", {0.25}, 1, 130, 65, 16, 8},
        {"a row more than a tile", {24}, 1, 129, 66, 16, 8},
        {"one continuation token", {0.25}, 1, 90, 1, 16, 12},
        {"two continuation tokens", {0.25}, 1, 90, 2, 16, 12},
        {"T < W + B", {60}, 1, 70, 12, 32, 12},
        {"B >= T", {500}, 1, 80, 12, 16, 12},
        {"budgets that agree, and one that does not", {90, 400, 24}, 3, 80, 12, 16, 12},
        {"budgets that all differ", {8, 16, 24, 0.5}, 4, 100, 12, 16, 20},
        {"baselines that keep nothing", {0.001}, 1, 100, 12, 16, 12},
        {"shortest prompt", {4}, 1, 17, 5, 16, 12},
        {"whole grids", {24, 0.4}, 2, 40, 4, 16, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_case("models/ckvc-tiny-4l", i, rows[i].what, rows[i].budgets, rows[i].n_budgets,
                   rows[i].T, rows[i].C, rows[i].W, rows[i].limit);
    }
}

TEST(other_models) {
    static const char *const dirs[] = {
        "models/ckvc-tiny-8l", "tests/golden/models/llama-mha", "tests/golden/models/llama3-gqa",
        "tests/golden/models/llama31-scaled", "tests/golden/models/llama-newstyle"};
    const double budget = 12;
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        check_case(dirs[i], i + 1, dirs[i], &budget, 1, 60, 20, 16, 12);
    }
}

/* Variants by hand: sets that no table would keep. */
static void add_variant(variant_list *v, uint32_t layer, const uint32_t *positions, uint32_t n) {
    v->items[v->n] =
        (variant){.layer = layer, .offsets = {0, n}, .first = v->n_positions, .key = v->n};
    memcpy(v->positions + v->n_positions, positions, n * sizeof *positions);
    v->n_positions += n;
    v->n++;
}

TEST(by_hand) {
    static losses plain[6], got, first;
    const double budget = 20;
    const uint32_t T = 75, C = 9, one[] = {74}, some[] = {0, 3, 4, 40, 41, 73};
    uint32_t all[75];
    for (uint32_t t = 0; t < T; t++) { all[t] = t; }
    for (size_t i = 0; i < N_LANES; i++) {
        CKVC_AUTO(rig_close_at)
        rig *r = rig_open("models/ckvc-tiny-4l", 2, lane_counts[i], &budget, 1);
        const uint32_t last = r->k->n_layers - 1;
        for (int shape = 0; shape < 6; shape++) {
            rig_prompt(r, 5, T, C, 16);
            r->v.n = r->v.n_positions = r->v.n_actions = 0;
            r->v.group[0] = 0;
            switch (shape) {
            case 0: /* none: a prompt that is held out */ break;
            case 1: /* one */ add_variant(&r->v, 1, some, 6); break;
            case 2: /* all equal */
                for (int n = 0; n < 17; n++) { add_variant(&r->v, 2, some, 6); }
                break;
            case 3: /* empty sets in every layer, and full ones */
                for (uint32_t l = 0; l <= last; l++) {
                    add_variant(&r->v, last - l, all, 0);
                    add_variant(&r->v, l, all, T);
                }
                break;
            case 4: /* the last layer alone */
                for (uint32_t n = 0; n < 9; n++) { add_variant(&r->v, last, all + n, n * 3); }
                break;
            default: /* the first alone, a single position */ add_variant(&r->v, 0, one, 1);
            }
            if (i == 0) { run(r, T, C, true, &plain[shape]); }
            run(r, T, C, false, &got);
            check_same("by hand", &plain[shape], &got);
            for (size_t n = 1; shape == 2 && n < got.n; n++) {
                assert_true(got.variant[n] == got.variant[0]);
            }
            if (i == 0 && shape == 4) {
                first = got;
            } else if (shape == 4) {
                check_same("another batch", &first, &got);
            }
        }
    }
}

/* A prompt's losses do not depend on the prompts before it. */
TEST(any_order) {
    static losses l[2][3];
    const uint32_t T[3] = {240, 33, 100}, C[3] = {70, 2, 40};
    const double budgets[] = {16, 0.3};
    for (int order = 0; order < 2; order++) {
        CKVC_AUTO(rig_close_at) rig *r = rig_open("models/ckvc-tiny-4l", 2, 24, budgets, 2);
        for (int i = 0; i < 3; i++) {
            const int p = order ? 2 - i : i;
            rig_prompt(r, (uint64_t)p, T[p], C[p], 16);
            build_variants(&r->v, r->k, BEHAVIOUR_BALANCED, 12, 1, "p");
            run(r, T[p], C[p], false, &l[order][p]);
        }
    }
    for (int p = 0; p < 3; p++) { check_same("order", &l[0][p], &l[1][p]); }
}

TEST(check_rollouts) {
    static losses got;
    const double budget = 16;
    const uint32_t T = 90, C = 12;
    uint64_t n = 0, half = 0, again = 0;
    CKVC_AUTO(rig_close_at) rig *r = rig_open("models/ckvc-tiny-4l", 2, 24, &budget, 1);
    rig_prompt(r, 1, T, C, 16);
    build_variants(&r->v, r->k, BEHAVIOUR_BALANCED, 60, 1, "p");
    run(r, T, C, false, &got);
    const rollouts all = asked(r, T, C, &got);
#define CHECK(share, count)                                                                        \
    rollouts_check(&r->w, &all, &(rollouts_sample){share, 7, "the prompt"}, count, &err)
    OK(CHECK(1.0, &n));
    assert_int_equal(n, r->v.n + 1);
    OK(CHECK(0.5, &half));
    OK(CHECK(0.5, &again));
    assert_true(half == again && half > n / 5 && half < n * 4 / 5);
    n = 0;
    OK(CHECK(0.0, &n));
    assert_int_equal(n, 0);
    size_t a = 0;
    while (r->v.actions[a].variant == VARIANT_NONE) { a++; }
    variant *touched = &r->v.items[r->v.actions[a].variant];
    touched->loss += 0.9e-5;
    OK(CHECK(1.0, &n));
    touched->loss += 0.2e-5;
    FAILS(CHECK(1.0, &n), CKVC_CHECK_FAILED);
    char action[64];
    snprintf(action, sizeof action, "action %u of layer %u", r->v.actions[a].action,
             r->v.actions[a].layer);
    assert_non_null(strstr(err.text, "\"the prompt\""));
    assert_non_null(strstr(err.text, action));
    assert_int_equal(ckvc_exit_code(CKVC_CHECK_FAILED), 1);
    touched->loss = NAN;
    FAILS(CHECK(1.0, &n), CKVC_CHECK_FAILED);
    touched->loss = r->v.items[0].loss;
    got.baseline[0] += 1e-4;
    SAYS(CHECK(1.0, &n), CKVC_CHECK_FAILED, "baseline");
#undef CHECK
}

/* ---- memory ---- */
/* The shapes of a model of L layers, H query heads on G KV heads of D. */
static model_shape shape_of(int32_t L, int32_t H, int32_t G, int32_t D, int32_t intermediate,
                            int32_t vocab, int32_t positions) {
    return (model_shape){.family = "llama",
                         .n_layers = L,
                         .n_heads = H,
                         .n_kv_heads = G,
                         .head_dim = D,
                         .width = H * D,
                         .intermediate = intermediate,
                         .vocab = vocab,
                         .max_positions = positions};
}

/* A run with rollouts of a table, limited to so many distinct variants (-1: not limited). */
static memory_request request_of(const bench *b, const model_shape *shape, size_t weights,
                                 size_t weights_least, session_limits limits,
                                 const ckvc_table *table, int64_t most) {
    const behaviour_policy limited = {.sides = {true, true}, .limit = most};
    return (memory_request){
        .backend = b->be,
        .shape = shape,
        .weights = weights,
        .weights_least = weights_least,
        .limits = limits,
        .table = table,
        .most = variants_extent(table, NULL, (uint32_t)limits.max_prompt, &limited)};
}

/* SmolLM2-135M's shapes, a prompt of 32k tokens and 10^5 actions, in 24 GB. */
TEST(plan_of_a_large_prompt) {
    const model_shape shape = shape_of(30, 9, 3, 64, 1536, 49152, 40000);
    const session_limits limits = {.max_prompt = 32768, .max_continuation = 128, .max_window = 64};
    double budgets[31];
    for (int i = 0; i < 31; i++) { budgets[i] = 256 * (i + 1); /* up to 7,936 of 32,768 tokens */ }
    CKVC_AUTO(bench_close) bench b = bench_open(2);
    ckvc_table *table = new_start_table(30, 3, 20, 4, budgets, 31, 64, NULL);
    const size_t weights = (size_t)134515008 * 4, GB = 1000000000;
    memory_request need = request_of(&b, &shape, weights, weights, limits, table, -1);
    const variant_extent most = need.most;
    need.limit = 24 * GB;
    assert_true(most.n_actions >= 100000);
    memory_plan plan, less;
    OK(memory_plan_make(&need, &plan, &err));
    assert_true(plan.total <= 24 * GB && plan.lanes >= 256);
    assert_true(plan.weights + plan.prompt + plan.sets + plan.batch == plan.total);
    /* less memory, smaller batches, until nothing fits */
    need.limit = 4500000000;
    OK(memory_plan_make(&need, &less, &err));
    assert_true(less.lanes < plan.lanes && less.lanes >= 2 && less.total <= 4500000000);
    need.limit = 2 * GB;
    SAYS(memory_plan_make(&need, &less, &err), CKVC_E_MEMORY, "--memory");
    need.table = NULL; /* a scan */
    need.most = (variant_extent){0};
    need.limit = 6 * GB;
    OK(memory_plan_make(&need, &less, &err));
    assert_int_equal(less.lanes, 1);
    /* a limit on distinct variants bounds what they take */
    const variant_extent few = request_of(&b, &shape, 0, 0, limits, table, 256).most;
    assert_true(few.n_variants == 2 * 256 + 29 + 21 &&
                variants_bytes(&few) < variants_bytes(&most) / 10);
    ckvc_table_free(table);
}

/* LLaMA-3-8B's shapes and prompts of 512 tokens: one goes by itself where all copies fit; where
 * they do not, some go together, and a prompt takes fewer copies than by itself. */
TEST(plan_of_prompts_together) {
    const model_shape shape = shape_of(32, 32, 8, 128, 14336, 128256, 8192);
    const double budgets[] = {128};
    const size_t GB = 1000000000;
    CKVC_AUTO(bench_close) bench b = bench_open(1);
    b.be->copy_rows = 14000; /* a device behind a bus */
    ckvc_table *table = new_start_table(32, 8, 1, 1, budgets, 1, 64, NULL);
    const session_limits limits = {.max_prompt = 512, .max_continuation = 128, .max_window = 64};
    memory_request need = request_of(&b, &shape, 32 * GB, 3 * GB, limits, table, 256);
    memory_plan plan, alone;
    int64_t prompts = 0;
    for (size_t limit = 80 * GB; limit >= 10 * GB; limit -= 10 * GB) {
        need.limit = limit;
        need.most_prompts = 40;
        OK(memory_plan_make(&need, &plan, &err));
        need.most_prompts = 1;
        OK(memory_plan_make(&need, &alone, &err));
        assert_true(plan.total <= limit && plan.prompts <= 40 && alone.prompts == 1);
        assert_true(plan.weights + plan.prompt + plan.sets + plan.batch == plan.total);
        if (plan.copied == 0) {
            assert_true(plan.prompts == 1 && plan.weights == 32 * GB && limit > 32 * GB);
            continue;
        }
        assert_true(plan.copied == 32 * GB - (plan.weights - 3 * GB));
        assert_true((double)plan.copied * (double)plan.passes / (double)plan.prompts <
                    (double)alone.copied * (double)alone.passes);
        prompts = plan.prompts;
    }
    assert_true(prompts > 1);
    need.most_prompts = 40;
    /* all copies stay; a prompt of 512 tokens is half of what fills the device, one of 1,024 all */
    need.limit = 80 * GB;
    b.be->fill_rows = 1024;
    OK(memory_plan_make(&need, &plan, &err));
    assert_true(plan.prompts == 2 && plan.joined == 2 && plan.copied == 0);
    need.limits.max_prompt = 1024;
    OK(memory_plan_make(&need, &plan, &err));
    assert_true(plan.prompts == 1 && plan.joined == 0);
    need.plain = true;
    OK(memory_plan_make(&need, &plan, &err));
    assert_int_equal(plan.prompts, 1);
    ckvc_table_free(table);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* whose malloc counts not */
static size_t in_use(void) {
    const struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* What the plan says is what malloc gives out. */
TEST(plan_is_true) {
    const double budgets[] = {0.25, 64};
    for (int64_t lanes = 2; lanes <= 64; lanes *= 2) {
        CKVC_AUTO(bench_close) bench b = bench_open(2);
        prompt_sets *k;
        CKVC_AUTO(variants_fini) variant_list v = {0};
        CKVC_AUTO(rollout_scratch_fini) rollout_scratch w;
        OK(model_open_path("models/ckvc-tiny-8l", b.be, &b.m, &err));
        const model_shape *shape = model_get_shape(b.m);
        const size_t weights = model_converted_bytes(b.m);
        ckvc_table *table = new_start_table(8, 3, 1, 1, budgets, 2, 16, NULL);
        memory_request need =
            request_of(&b, shape, weights, weights, limits_of(MAX_T, MAX_C, MAX_W, 0), table, 100);
        /* the least limit that gives this many lanes */
        memory_plan plan;
        size_t least = 0;
        for (size_t limit = 1 << 20; least == 0; limit += limit / 200) {
            err = (ckvc_err){0};
            need.limit = limit;
            if (memory_plan_make(&need, &plan, &err) == CKVC_OK && plan.lanes >= lanes) {
                least = limit;
            }
        }
        session_limits with = limits_of(MAX_T, MAX_C, MAX_W, plan.lanes);
        const rollout_extent extent = {.max_lanes = plan.lanes,
                                       .max_continuation = MAX_C,
                                       .n_budgets = 2,
                                       .n_layers = 8,
                                       .max_variants = need.most.n_variants};
        const size_t before = in_use();
        OK(sessions_create(b.m, with, 1, &b.s, &err));
        OK(prompt_sets_create(table, MAX_T, &(setting){.window = 16}, &k, &err));
        variants_reserve(&v, &need.most);
        rollout_scratch_init(&w, &extent);
        const double took = (double)(in_use() - before), said = (double)plan.total;
        /* pages and the scratch's rounding to 64 KiB a worker */
        assert_true(fabs(took - said) < 0.02 * said + 500e3);
        session *together[3]; /* weights and scratch are there */
        with.joined = lanes > 4 ? 3 : 0;
        const size_t before_them = in_use();
        OK(sessions_create(b.m, with, 3, together, &err));
        const double they_took = (double)(in_use() - before_them),
                     they_said = (double)(session_bytes(shape, with) +
                                          2 * session_bytes_beside(shape, with));
        assert_true(fabs(they_took - they_said) < 0.02 * they_said + 100e3);
        for (int i = 0; i < 3; i++) { session_destroy(together[i]); }
        prompt_sets_destroy(k);
        ckvc_table_free(table);
    }
}
#endif

RUN_TESTS(NULL, NULL)
