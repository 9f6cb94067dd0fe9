/* What is decided while a pass is logged: epsilon-greedy's choices, and when the pass ends. */
#include "cql/rounds/stable.h"
#include "tests/unit/sets_fixture.h"

enum { L = 3, G = 4, A = CKVC_HEAD_ACTIONS };

static ckvc_table *new_table(void) {
    const double budgets[1] = {64};
    return new_start_table(L, G, 2, 2, budgets, 1, 16, NULL);
}

static shard *new_rows(void) {
    shard *s = shard_create();
    assert_non_null(s);
    s->h.n_layers = L;
    s->h.n_kv_heads = G;
    s->h.n_budgets = 1;
    return s;
}

static size_t new_prompt(shard *s, int number) {
    struct shard_prompt p = {.line = (uint32_t)number + 1};
    snprintf(p.id, sizeof p.id, "p%d", number);
    return shard_add_prompt(s, &p);
}

/* Number n of all actions of all heads, and the best of its head. */
static struct shard_record record_of(size_t prompt, int n) {
    return (struct shard_record){.prompt = (uint32_t)prompt,
                                 .side = CKVC_SIDE_HEAD,
                                 .layer = (uint16_t)(n / A / G),
                                 .head = (uint16_t)(n / A % G),
                                 .action = (uint8_t)(n % A),
                                 .baseline = -1.0};
}
static int best_of(int n) { return 7 * (n / A) % A; }

/* A prompt that tried every action of every head, the best one `noise` deep in the dark. */
static void add_prompt(shard *s, int number, double noise) {
    const size_t at = new_prompt(s, number);
    ckvc_rng rng = rng_of(7, (uint64_t)number, 0);
    for (int n = 0; n < L * G * A; n++) {
        struct shard_record r = record_of(at, n);
        r.reward = -1.0 - 0.01 * abs(n % A - best_of(n)) + noise * (ckvc_rng_double(&rng) - 0.5);
        shard_add_record(s, &r);
    }
}

static double judged(const shard *rows, double alpha, fit_reward reward, uint64_t seed) {
    CKVC_AUTO(ckvc_table_free_at) ckvc_table *t = new_table();
    stable *s;
    double out;
    OK(stable_create(t, alpha, reward, seed, (size_t)1 << 30, &s, &err));
    OK(stable_add(s, rows, &err));
    OK(stable_reliability(s, &out, &err));
    stable_free(s);
    return out;
}

static double reliability(int n_prompts, double noise, uint64_t seed) {
    CKVC_AUTO(shard_free_at) shard *rows = new_rows();
    for (int i = 0; i < n_prompts; i++) { add_prompt(rows, i, noise); }
    return judged(rows, REWARD_CQL_ALPHA, FIT_ADVANTAGE, seed);
}

TEST(halves_of_a_clear_truth_agree) {
    assert_true(reliability(12, 0.001, 1) > 0.999);
    double noisy = reliability(12, 0.5, 1), more = reliability(96, 0.5, 1),
           nothing = reliability(12, 1000.0, 1);
    assert_true(noisy < 0.98);
    assert_true(more > noisy); /* more prompts, a stabler table */
    assert_true(fabs(nothing) < 0.7);
    assert_true(reliability(12, 0.5, 1) == noisy); /* the same bits again */
    assert_true(reliability(12, 0.5, 2) != noisy); /* other halves */
    assert_true(isnan(reliability(1, 0.001, 1)));  /* one half is empty */
}

/* Where actions are logged unequally often, alpha decides for the frequent ones; where prompts log
 * different actions, raw rewards follow the prompts' own levels. */
TEST(the_fit_to_come_is_what_is_judged) {
    enum { PROMPTS = 24 };
    const double alpha = REWARD_CQL_ALPHA;
    CKVC_AUTO(shard_free_at) shard *frequent = new_rows(), *levels = new_rows();
    for (int i = 0; i < PROMPTS; i++) {
        const size_t at = new_prompt(frequent, i);
        assert_int_equal(new_prompt(levels, i), at);
        ckvc_rng rng = rng_of(9, (uint64_t)i, 0);
        const double level = -1.0 - 8.0 * ckvc_rng_double(&rng);
        for (int n = 0; n < L * G * A; n++) {
            const int off = abs(n % A - best_of(n));
            struct shard_record r = record_of(at, n);
            r.reward = -1.0 + ckvc_rng_double(&rng);
            for (int times = off ? 1 : 9; times > 0; times--) { shard_add_record(frequent, &r); }
            r.baseline = level;
            r.reward = level - 0.01 * off;
            if (ckvc_rng_double(&rng) < 0.5) { shard_add_record(levels, &r); }
        }
    }
    assert_true(judged(frequent, 5.0, FIT_ADVANTAGE, 1) > 0.99);
    assert_true(fabs(judged(frequent, 0.0, FIT_ADVANTAGE, 1)) < 0.7);
    assert_true(judged(levels, alpha, FIT_ADVANTAGE, 1) > 0.95);
    assert_true(judged(levels, alpha, FIT_RAW, 1) < 0.5);
}

TEST(the_share_of_chance_falls_linearly) {
    assert_true(epsilon_greedy_share(0, 11) == 0.3);
    assert_true(fabs(epsilon_greedy_share(10, 11) - 0.05) < 1e-15);
    assert_true(fabs(epsilon_greedy_share(5, 11) - 0.175) < 1e-15);
    assert_true(epsilon_greedy_share(0, 1) == 0.3);
}

static int pick(epsilon_greedy *g, uint32_t layer, uint32_t head, ckvc_rng *rng) {
    const prompt_state s = {.side = CKVC_SIDE_HEAD, .layer = layer, .head = head};
    return epsilon_greedy_pick(g, &s, 0, rng);
}

TEST(the_best_running_mean_is_tried_first) {
    const bool sides[CKVC_SIDE_COUNT] = {true, false};
    CKVC_AUTO(ckvc_table_free_at) ckvc_table *t = new_table();
    ckvc_rng rng = rng_of(1, 2, 3);
    epsilon_greedy *g = epsilon_greedy_create(t, sides);
    epsilon_greedy_begin(g, 0.0, 0, 0);
    assert_int_equal(pick(g, 1, 2, &rng), CKVC_HEAD_NEUTRAL); /* the table's own */

    CKVC_AUTO(shard_free_at) shard *rows = new_rows();
    add_prompt(rows, 0, 0.0);
    epsilon_greedy_learn(g, rows);
    epsilon_greedy_begin(g, 0.0, 1, 1);
    bool seen[A] = {false};
    const int best = 7 * (1 * G + 2) % A;
    assert_int_equal(pick(g, 1, 2, &rng), best);
    seen[best] = true;
    for (int i = 1; i < A; i++) { /* then the next best; each once */
        int a = pick(g, 1, 2, &rng);
        assert_true(a >= 0 && a < A && !seen[a]);
        if (i <= 2) { assert_true(a == best - 1 || a == best + 1); }
        seen[a] = true;
    }
    assert_int_equal(pick(g, 1, 2, &rng), -1);

    int chance = 0; /* with a share of 1 the best is one of 29 */
    for (int i = 0; i < 290; i++) {
        epsilon_greedy_begin(g, 1.0, 0, 0);
        chance += pick(g, 0, 0, &rng) == 0;
    }
    assert_in_range(chance, 1, 30);
    epsilon_greedy_free(g);
}

RUN_TESTS(NULL, NULL)
