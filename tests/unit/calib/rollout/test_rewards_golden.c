/* The whole way from a prompt's ids to rewards, against an independent PyTorch reference
 * (tests/golden/method/README.md): sets, candidate counts, losses, rewards and advantages of every
 * head and gate action that the golden files list, on the embedded 4-layer model and (where shared
 * data is at hand) on a TinyStories model.
 *
 * Tolerances, from that README: sets and counts exact (they are decided by margins of 5e-5 and
 * more); losses and rewards 2e-5 nats, advantages 5e-6 (float32 against float32 in another order of
 * summation; the reference's own float32 is within 1.6e-6 and 1.1e-6 of float64). */
#include "calib/actions/prompt_sets.h"
#include "formats/side/reward.h"
#include "lib/base/files.h"
#include "formats/model/model_files.h"
#include "lib/model/model.h"
#include "tests/unit/golden.h"
#include "tests/unit/sets_fixture.h"
#include "tests/unit/unit.h"

static const double LOSS_TOLERANCE = 2e-5, ADVANTAGE_TOLERANCE = 5e-6;

typedef struct worst {
    double loss, advantage;
} worst;

static double number(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

static uint32_t *read_set(const json_t *array, uint32_t *n) {
    uint32_t *set = ckvc_alloc(json_array_size(array), sizeof *set);
    *n = (uint32_t)json_array_size(array);
    for (uint32_t i = 0; i < *n; i++) {
        set[i] = (uint32_t)json_integer_value(json_array_get(array, i));
    }
    return set;
}

static void check_set(const json_t *expected, const uint32_t *positions, uint32_t n) {
    uint32_t n_expected;
    uint32_t *set = read_set(expected, &n_expected);
    assert_int_equal(n, n_expected);
    assert_memory_equal(positions, set, n * sizeof *set);
    free(set);
}

/* A block's tables as a ckvc_table with one budget and one cell. */
static ckvc_table *block_table(const json_t *block, uint32_t L, uint32_t G, uint32_t W) {
    ckvc_table *t;
    double budget = number(block, "B");
    t = new_start_table(L, G, 1, 1, &budget, 1, W, NULL);
    for (uint32_t l = 0; l < L; l++) {
        for (uint32_t g = 0; g < G; g++) {
            t->weight[l * G + g] = (float)json_number_value(
                json_array_get(json_array_get(json_object_get(block, "W_head"), l), g));
        }
        t->tau[l] = (float)json_number_value(json_array_get(json_object_get(block, "tau"), l));
    }
    return t;
}

/* One perturbation: its set, count, loss, reward and advantage. */
static void check_action(session *s, prompt_sets *k, ckvc_side side, const json_t *a,
                         const json_t *block, double L_full, const int32_t *next, uint32_t C,
                         worst *w) {
    uint32_t l = (uint32_t)number(a, "l"), n_candidates, set[1024];
    const layer_set *base = prompt_sets_at(k, 0, l);
    uint32_t n = side == CKVC_SIDE_HEAD
                     ? head_action(k, 0, l, (uint32_t)number(a, "g"), (uint32_t)number(a, "a"), set,
                                   &n_candidates)
                     : gate_action(k, 0, l, (uint32_t)number(a, "a"), set, &n_candidates);
    bool same = n == base->n_kept && memcmp(set, base->positions, n * sizeof *set) == 0;
    assert_int_equal(n, (uint32_t)number(a, "S_size"));
    assert_int_equal(n_candidates, (uint32_t)number(a, "n_cand"));
    assert_int_equal(same, json_is_true(json_object_get(a, "same_S")));
    if (!same) { /* S[l] without `removed` and with `added` is the perturbed set */
        const json_t *removed = json_object_get(a, "removed"), *added = json_object_get(a, "added");
        assert_int_equal(n, base->n_kept - json_array_size(removed) + json_array_size(added));
        for (uint32_t i = 0; i < n; i++) {
            bool in_base = false, in_added = false;
            for (uint32_t j = 0; j < base->n_kept; j++) { in_base |= base->positions[j] == set[i]; }
            for (size_t j = 0; j < json_array_size(added); j++) {
                in_added |= json_integer_value(json_array_get(added, j)) == set[i];
            }
            for (size_t j = 0; j < json_array_size(removed); j++) {
                assert_int_not_equal(json_integer_value(json_array_get(removed, j)), set[i]);
            }
            assert_true(in_base != in_added);
        }
    }
    kept_set sets[64];
    double nll[512];
    uint32_t offsets[2] = {0, n};
    memcpy(sets, k->sets, k->n_layers * sizeof *sets);
    sets[l] = (kept_set){1, offsets, set};
    OK(session_continue(s, next, C, sets, nll, &err));
    double loss = nll_mean(nll, C);
    double reward = reward_of(
        L_full, loss, CKVC_LOSS_MEAN, 1,
        reward_penalty(side_beta_bud(side, 1.0), k->n_tokens, n_candidates, k->budget[0]));
    /* The baseline is rolled out like everything else: equal sets must give the very same loss. */
    OK(session_continue(s, next, C, k->sets, nll, &err));
    double base_loss = nll_mean(nll, C);
    double r0 = reward_of(
        L_full, base_loss, CKVC_LOSS_MEAN, 1,
        reward_penalty(side_beta_bud(side, 1.0), k->n_tokens, base->n_candidates, k->budget[0]));
    if (same) { assert_true(loss == base_loss); }
    double r0_expected =
        side == CKVC_SIDE_HEAD
            ? number(block, "r0_head")
            : json_number_value(json_array_get(json_object_get(block, "r0_gate"), l));
    w->loss = fmax(w->loss, fabs(loss - number(a, "L_comp")));
    w->loss = fmax(w->loss, fabs(reward - number(a, "reward")));
    w->loss = fmax(w->loss, fabs(r0 - r0_expected));
    w->advantage = fmax(w->advantage, fabs((reward - r0) - (number(a, "reward") - r0_expected)));
}

static void run_golden(const char *golden, const char *dir) {
    json_t *root = golden_read(golden);
    ckvc_pool *pool;
    backend *be;
    model *m;
    session *s;
    uint32_t T = (uint32_t)number(root, "T"), C = (uint32_t)number(root, "C"),
             W = (uint32_t)number(root, "W");
    OK(ckvc_pool_create(2, &pool, &err));
    OK(backend_create("cpu", CKVC_COMPUTE_F32, pool, &be, &err));
    model_spec *spec;
    OK(model_files_read(dir, &spec, &err) != CKVC_OK || model_open(spec, be, &m, &err));
    uint32_t L = (uint32_t)model_get_shape(m)->n_layers,
             G = (uint32_t)model_get_shape(m)->n_kv_heads;
    OK(sessions_create(m, (session_limits){.max_prompt = T, .max_continuation = C, .max_window = W},
                       1, &s, &err));
    worst w = {0, 0};
    size_t n_actions = 0, i, j;
    const json_t *p, *block, *a;
    json_array_foreach(json_object_get(root, "prompts"), i, p) {
        int32_t ids[1024];
        for (uint32_t t = 0; t < T + C; t++) {
            ids[t] = (int32_t)json_integer_value(json_array_get(json_object_get(p, "ids"), t));
        }
        prefill_stats stats;
        double nll[512];
        OK(sessions_prefill(
            &(prefill_job){s, (prefill_input){.tokens = ids, .n = T, .n_total = T + C, .window = W},
                           &stats},
            1, &err));
        OK(session_continue(s, ids + T, C, NULL, nll, &err));
        double L_full = nll_mean(nll, C);
        w.loss = fmax(w.loss, fabs(L_full - number(p, "L_full")));
        json_array_foreach(json_object_get(p, "blocks"), j, block) {
            ckvc_table *t = block_table(block, L, G, W);
            prompt_sets *k;
            OK(prompt_sets_create(t, T, &(setting){.window = W}, &k, &err));
            prompt_sets_build(k, &stats);
            for (uint32_t l = 0; l < L; l++) {
                const layer_set *at = prompt_sets_at(k, 0, l);
                assert_int_equal(at->n_candidates, json_integer_value(json_array_get(
                                                       json_object_get(block, "n_cand"), l)));
                check_set(json_array_get(json_object_get(block, "S"), l), at->positions,
                          at->n_kept);
            }
            size_t n;
            json_array_foreach(json_object_get(block, "head"), n, a) {
                check_action(s, k, CKVC_SIDE_HEAD, a, block, L_full, ids + T, C, &w);
                n_actions++;
            }
            json_array_foreach(json_object_get(block, "gate"), n, a) {
                check_action(s, k, CKVC_SIDE_GATE, a, block, L_full, ids + T, C, &w);
                n_actions++;
            }
            prompt_sets_destroy(k);
            ckvc_table_free(t);
        }
    }
    printf("# %s: %zu actions, largest difference: losses and rewards %.2g (tolerance %.2g), "
           "advantages %.2g (%.2g)\n",
           golden, n_actions, w.loss, LOSS_TOLERANCE, w.advantage, ADVANTAGE_TOLERANCE);
    assert_true(n_actions > 100);
    assert_true(w.loss <= LOSS_TOLERANCE);
    assert_true(w.advantage <= ADVANTAGE_TOLERANCE);
    session_destroy(s);
    model_close(m);
    backend_destroy(be);
    ckvc_pool_destroy(pool);
    json_decref(root);
}

TEST(embedded) { run_golden("tests/golden/method/ckvc-tiny-4l.json", "models/ckvc-tiny-4l"); }

TEST(tinystories) {
    const char *shared = getenv("CKVC_SHARED");
    char *dir = ckvc_path_join(shared ? shared : "../shared", "data/models/tinystories-656k");
    if (!ckvc_is_dir(dir)) {
        printf("skipped: %s is not there\n", dir);
        free(dir);
        skip();
    }
    run_golden("tests/golden/method/tinystories.json", dir);
    free(dir);
}

RUN_TESTS(NULL, NULL)
