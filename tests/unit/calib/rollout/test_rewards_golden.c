/* From a prompt's ids to rewards, against an independent PyTorch reference: sets, candidate counts,
 * losses, rewards and advantages of every head and gate action that the golden files list, on the
 * embedded 4-layer model and, where shared data is at hand, on a TinyStories model.
 *
 * Tolerances, from tests/golden/method/README.md: sets and counts exact (margins are 5e-5 and
 * more); losses and rewards 2e-5 nats, advantages 5e-6 (another order of summation in float32; the
 * reference's own is within 1.6e-6 and 1.1e-6 of float64). */
#include "formats/side/reward.h"
#include "tests/unit/golden_model.h"
#include "tests/unit/sets_fixture.h"

static const double LOSS_TOLERANCE = 2e-5, ADVANTAGE_TOLERANCE = 5e-6;

/* A block's tables as a ckvc_table with one budget and one cell. */
static ckvc_table *block_table(const json_t *block, uint32_t L, uint32_t G, uint32_t W) {
    const double budget = golden_number(block, "B");
    CKVC_AUTO_FREE double *weight = golden_numbers(json_object_get(block, "W_head")),
                          *tau = golden_numbers(json_object_get(block, "tau"));
    ckvc_table *t = new_start_table(L, G, 1, 1, &budget, 1, W, NULL);
    for (uint32_t i = 0; i < L * G; i++) { t->weight[i] = (float)weight[i]; }
    for (uint32_t l = 0; l < L; l++) { t->tau[l] = (float)tau[l]; }
    return t;
}

/* A prompt's continuation, its loss with a full cache, and under a block's own sets. */
typedef struct golden_prompt {
    const int32_t *next;
    uint32_t C;
    double full, base;
} golden_prompt;

/* The reward of a set of so many candidates. */
static double reward_at(const prompt_sets *k, ckvc_side side, uint32_t n_candidates,
                        const golden_prompt *p, double loss) {
    return reward_of(
        p->full, loss, CKVC_LOSS_MEAN, 1,
        reward_penalty(side_beta_bud(side, 1.0), k->n_tokens, n_candidates, k->budget[0]));
}

/* One perturbation: its set, count, loss, reward and advantage. */
static void check_action(session *s, prompt_sets *k, ckvc_side side, const json_t *a,
                         const json_t *block, const golden_prompt *p, worst *w) {
    uint32_t l = (uint32_t)golden_number(a, "l"), n_candidates, set[1024];
    const layer_set *base = prompt_sets_at(k, 0, l);
    const uint32_t head = side == CKVC_SIDE_HEAD ? (uint32_t)golden_number(a, "g") : CKVC_NO_HEAD,
                   n = prompt_sets_action(k, &(prompt_state){side, 0, l, head},
                                          (uint32_t)golden_number(a, "a"), set, &n_candidates);
    bool same = n == base->n_kept && memcmp(set, base->positions, n * sizeof *set) == 0;
    assert_int_equal(n, (uint32_t)golden_number(a, "S_size"));
    assert_int_equal(n_candidates, (uint32_t)golden_number(a, "n_cand"));
    assert_int_equal(same, json_is_true(json_object_get(a, "same_S")));
    if (!same) { /* S[l] without `removed` and with `added` is the perturbed set */
        const json_t *removed = json_object_get(a, "removed"), *added = json_object_get(a, "added");
        assert_int_equal(n, base->n_kept - json_array_size(removed) + json_array_size(added));
        int in[1024] = {0}; /* times */
        size_t i;
        json_t *t;
        for (uint32_t j = 0; j < base->n_kept; j++) { in[base->positions[j]]++; }
        json_array_foreach(added, i, t) { in[json_integer_value(t)]++; }
        json_array_foreach(removed, i, t) { in[json_integer_value(t)]--; }
        for (uint32_t j = 0; j < n; j++) { assert_int_equal(in[set[j]], 1); }
    }
    kept_set sets[64];
    uint32_t offsets[2] = {0, n};
    memcpy(sets, k->sets, k->n_layers * sizeof *sets);
    sets[l] = (kept_set){1, offsets, set, false, {0}};
    const double loss = continued(s, p->next, p->C, sets),
                 reward = reward_at(k, side, n_candidates, p, loss),
                 r0 = reward_at(k, side, base->n_candidates, p, p->base),
                 want = golden_number(a, "reward"),
                 r0_want = side == CKVC_SIDE_HEAD ? golden_number(block, "r0_head")
                                                  : golden_at(json_object_get(block, "r0_gate"), l);
    /* The baseline is rolled out like everything else: equal sets must give the very same loss. */
    if (same) { assert_true(loss == p->base); }
    compare(&w[0], loss, golden_number(a, "L_comp"), LOSS_TOLERANCE);
    compare(&w[0], reward, want, LOSS_TOLERANCE);
    compare(&w[0], r0, r0_want, LOSS_TOLERANCE);
    compare(&w[1], reward - r0, want - r0_want, ADVANTAGE_TOLERANCE);
}

static void run_golden(const char *golden, const char *dir) {
    json_auto_t *root = golden_read(golden);
    CKVC_AUTO(bench_close) bench b = bench_open_kind("cpu", 2);
    uint32_t T = (uint32_t)golden_number(root, "T"), C = (uint32_t)golden_number(root, "C"),
             W = (uint32_t)golden_number(root, "W");
    bench_load(&b, dir, (session_limits){.max_prompt = T, .max_continuation = C, .max_window = W});
    uint32_t L = (uint32_t)model_get_shape(b.m)->n_layers,
             G = (uint32_t)model_get_shape(b.m)->n_kv_heads;
    worst w[] = {{"losses and rewards", 0}, {"advantages", 0}};
    size_t n_actions = 0, i, j;
    const json_t *p, *block, *a;
    json_array_foreach(json_object_get(root, "prompts"), i, p) {
        int64_t n_ids;
        CKVC_AUTO_FREE int32_t *ids = golden_ids(json_object_get(p, "ids"), &n_ids);
        assert_int_equal(n_ids, T + C);
        const prefill_stats stats = prefill_of(b.s, ids, T, T + C, W);
        golden_prompt of = {.next = ids + T, .C = C};
        of.full = continued(b.s, of.next, C, NULL);
        compare(&w[0], of.full, golden_number(p, "L_full"), LOSS_TOLERANCE);
        json_array_foreach(json_object_get(p, "blocks"), j, block) {
            ckvc_table *t = block_table(block, L, G, W);
            prompt_sets *k;
            OK(prompt_sets_create(t, T, &(setting){.window = W}, &k, &err));
            prompt_sets_build(k, &stats);
            for (uint32_t l = 0; l < L; l++) {
                const layer_set *at = prompt_sets_at(k, 0, l);
                int64_t n_kept;
                CKVC_AUTO_FREE int32_t *set =
                    golden_ids(json_array_get(json_object_get(block, "S"), l), &n_kept);
                assert_int_equal(at->n_candidates, golden_at(json_object_get(block, "n_cand"), l));
                assert_int_equal(at->n_kept, n_kept);
                assert_memory_equal(at->positions, set, at->n_kept * sizeof *set);
            }
            of.base = continued(b.s, of.next, C, k->sets);
            compare(&w[0], of.base, golden_number(block, "L_comp"), LOSS_TOLERANCE);
            for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
                size_t n;
                json_array_foreach(json_object_get(block, side ? "gate" : "head"), n, a) {
                    check_action(b.s, k, (ckvc_side)side, a, block, &of, w);
                    n_actions++;
                }
            }
            prompt_sets_destroy(k);
            ckvc_table_free(t);
        }
    }
    worst_print(golden, w, 2);
    assert_true(n_actions > 100);
}

TEST(embedded) { run_golden("tests/golden/method/ckvc-tiny-4l.json", "models/ckvc-tiny-4l"); }

TEST(tinystories) {
    run_golden("tests/golden/method/tinystories.json", shared_data("models", "tinystories-656k"));
}

RUN_TESTS(NULL, NULL)
