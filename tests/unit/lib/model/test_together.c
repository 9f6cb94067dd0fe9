/* Prompts that go through the layers together: the same bits as each alone, whatever stays in
 * memory of the weights, on any threads; and each layer is taken once for all of them. */
#include "tests/unit/golden_model.h"

enum { N = 3, C = 20, W = 16, T = 136, LANES = 3 };

static const int64_t n_tokens[N] = {T, 17, 64}, n_continuation[N] = {C, 1, 7};
static int32_t ids[N][T + C];
static const uint32_t offsets[2] = {0, 8}, positions[8] = {0, 2, 4, 6, 8, 10, 12, 14};

typedef struct outcome {
    prefill_stats stats;
    double r_sem, r_struct, alpha[T];
    float rho[4 * 3 * T];
    double nll[LANES * C], again[LANES * C];
    double targets[4 * 3 * T];
} outcome;

typedef struct rig {
    bench b;
    session *s[N];
    kept_set kept[N];
    rollout_lane lanes[N][LANES];
} rig;

/* together: 0 sessions of their own, 1 of one sessions_create, 2 with prompts' rows joined */
static void rig_open(rig *r, int threads, size_t limit, int together) {
    *r = (rig){.b = bench_open(threads)};
    bench_count_acquired(&r->b);
    if (limit) { r->b.be->ops->weight_limit(r->b.be, limit); }
    OK(model_open_path("models/ckvc-tiny-4l", r->b.be, &r->b.m, &err));
    const session_limits limits = {.max_prompt = T,
                                   .max_continuation = C,
                                   .max_window = W,
                                   .max_lanes = LANES,
                                   .max_targets = T,
                                   .joined = together == 2 ? N : 0};
    for (int i = 0; i < N && !together; i++) {
        OK(sessions_create(r->b.m, limits, 1, &r->s[i], &err));
    }
    if (together) { OK(sessions_create(r->b.m, limits, N, r->s, &err)); }
    for (int i = 0; i < N; i++) {
        r->kept[i] = (kept_set){1, offsets, positions, false, {0}};
        r->lanes[i][0] = (rollout_lane){.parent = -1};
        for (int k = 1; k < LANES; k++) { /* of each prompt at other layers */
            r->lanes[i][k] =
                (rollout_lane){.parent = 0, .layer = (i + k) % 2 + k - 1, .kept = &r->kept[i]};
        }
    }
}

static void rig_close(rig *r) {
    for (int i = 0; i < N; i++) { session_destroy(r->s[i]); }
    bench_close(&r->b);
}

static void keep(outcome *o, const model_shape *s, int64_t n) {
    o->r_sem = o->stats.r_sem;
    o->r_struct = o->stats.r_struct;
    memcpy(o->alpha, o->stats.alpha, (size_t)n * sizeof *o->alpha);
    const size_t n_rho = (size_t)s->n_layers * (size_t)s->n_kv_heads * (size_t)n;
    assert_true(n_rho <= sizeof o->rho / sizeof *o->rho);
    memcpy(o->rho, o->stats.rho, n_rho * sizeof *o->rho);
    memset(&o->stats, 0, sizeof o->stats); /* pointers */
}

/* All prompts from tokens to losses: `at_once` of them together. */
static void run(rig *r, int64_t at_once, outcome *out) {
    prefill_job prefills[N];
    rollout_job rollouts[N];
    target_job targets[N];
    memset(out, 0, N * sizeof *out);
    for (int i = 0; i < N; i++) {
        prefills[i] = (prefill_job){r->s[i],
                                    {.tokens = ids[i],
                                     .n = n_tokens[i],
                                     .n_total = n_tokens[i] + n_continuation[i],
                                     .window = W},
                                    &out[i].stats};
        rollouts[i] = (rollout_job){.session = r->s[i],
                                    .continuation = ids[i] + n_tokens[i],
                                    .n = n_continuation[i],
                                    .lanes = r->lanes[i],
                                    .n_lanes = LANES,
                                    .nll = out[i].nll};
        targets[i] = (target_job){
            r->s[i], {.tokens = ids[i], .n = n_tokens[i], .largest = true}, out[i].targets};
    }
    for (int64_t i = 0; i < N; i += at_once) {
        OK(sessions_prefill(prefills + i, at_once, &err));
        for (int64_t k = i; k < i + at_once; k++) {
            keep(&out[k], model_get_shape(r->b.m), n_tokens[k]);
        }
        OK(sessions_rollouts(rollouts + i, at_once, &err));
        OK(sessions_targets(targets + i, at_once, &err));
        for (int64_t k = i; k < i + at_once; k++) { rollouts[k].nll = out[k].again; }
        OK(sessions_rollouts(rollouts + i, at_once, &err));
    }
}

TEST(same_bits) {
    static outcome alone[N], together[N];
    rig r;
    rig_open(&r, 1, 0, 0);
    run(&r, 1, alone);
    for (int i = 0; i < N; i++) {
        const size_t n = (size_t)n_continuation[i];
        assert_memory_equal(alone[i].nll, alone[i].again, sizeof alone[i].nll);
        assert_true(alone[i].targets[0] > 0 && alone[i].targets[n_tokens[i] - 1] > 0);
        assert_true(alone[i].nll[0] > 0 && (n == 1 || alone[i].nll[n + 1] != alone[i].nll[1]));
    }
    rig_close(&r);
    const bool slow = getenv("CKVC_TEST_BACKEND") != NULL; /* emulated, perhaps */
    for (int joined = 0; joined < 2; joined++) {
        /* no limit; one below everything, so that nothing stays; and what some copies fit into */
        for (int low = 0; low < (slow ? 1 : 3); low++) {
            rig_open(&r, slow || (joined + low) % 2 ? 1 : 3, low ? 1 : 0, 1 + joined);
            if (low == 2) { r.b.be->ops->weight_limit(r.b.be, 17000000); }
            run(&r, N, together);
            assert_memory_equal(together, alone, sizeof alone);
            ckvc_alloc_forbid("prompts that go together");
            run(&r, N, together);
            ckvc_alloc_permit();
            assert_memory_equal(together, alone, sizeof alone);
            run(&r, 1, together); /* one at a time in what they share */
            assert_memory_equal(together, alone, sizeof alone);
            rig_close(&r);
        }
    }
}

/* N prompts take as many weights as one: layers and norm four times, the head three times. */
TEST(each_layer_once) {
    enum { PASS = 4 * 9 + 1 };
    static outcome out[N];
    CKVC_AUTO(rig_close) rig r;
    rig_open(&r, 1, 1, 1);
    acquired.n = 0;
    run(&r, N, out);
    assert_int_equal(acquired.n, 4 * PASS + 3);
    acquired.n = 0;
    run(&r, 1, out);
    /* the continuation of one token runs no rows, and its loss is known the second time */
    assert_int_equal(acquired.n, 3 * (4 * PASS + 3) - 2 * PASS - 1);
}

int main(void) {
    uint32_t x = 1;
    for (int i = 0; i < N; i++) {
        for (int t = 0; t < T + C; t++) {
            ids[i][t] = (int32_t)((x = x * 1664525 + 1013904223) >> 20);
        }
    }
    return unit_run(NULL, NULL);
}
