/* Capacities of references: values of the published rules on the lengths and budgets that they were
 * published for, and what every rule promises. */
#include "judge/policies/rules/window_attention.h"
#include "judge/policies/rules/rule.h"
#include "tests/unit/golden.h"

static void allot(policy_kind kind, allot_ask a, uint32_t *c) {
    policy_rule_of(kind)->allot(&a, c);
}

/* Of layers of one head. */
static void pyramid(uint32_t L, uint32_t B, uint32_t T, uint32_t *c) {
    allot(POLICY_PYRAMIDKV, (allot_ask){.n_layers = L, .n_heads = 1, .n_tokens = T, .budget = B},
          c);
}

/* Preferences of four layers of two heads, each of which gets what is wanted. */
static void cake(const double preference[4], uint32_t B, uint32_t T, const uint32_t want[4]) {
    layer_sums layer[4];
    uint32_t heads[8];
    for (int l = 0; l < 4; l++) {
        layer[l] = (layer_sums){.entropy = preference[l] * 4, .variance = 0.25};
    }
    allot(POLICY_CAKE,
          (allot_ask){.n_layers = 4, .n_heads = 2, .n_tokens = T, .budget = B, .layer = layer},
          heads);
    for (int u = 0; u < 8; u++) { assert_int_equal(heads[u], want[u / 2]); }
}

/* Of one layer of n heads. */
static void by_share(policy_kind kind, uint32_t n, const double *share, uint32_t B, uint32_t T,
                     uint32_t *c) {
    allot(kind,
          (allot_ask){
              .n_layers = 1, .n_heads = n, .n_tokens = T, .budget = B, .share = share, .least = 10},
          c);
}

static void of_four(policy_kind kind, const double share[4], uint32_t B, uint32_t T,
                    const uint32_t want[4]) {
    uint32_t c[4];
    by_share(kind, 4, share, B, T, c);
    assert_memory_equal(c, want, sizeof c);
}

static double sum_of(const uint32_t *c, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) { sum += c[i]; }
    return sum;
}

/* The transcribed formulas on 32 layers: first, last and mean tokens with the window of 8. */
TEST(pyramid) {
    enum { L = 32, W = 8 };
    static const struct {
        uint32_t B, T, first, last;
        double mean;
    } cases[] = {{64, 8192, 118, 25, 71.5},
                 {128, 8192, 242, 25, 133.5},
                 {256, 8192, 492, 27, 259.5},
                 {512, 8192, 991, 61, 526},
                 {1024, 8192, 1990, 68, 1029},
                 {2048, 8192, 3986, 111, 2048.5},
                 {1024, 2000, 1024, 1024, 1024},
                 {1024, 900, 900, 900, 900},
                 {6, 900, 6, 6, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t c[L];
        pyramid(L, cases[i].B, cases[i].T, c);
        assert_int_equal(c[0], cases[i].first);
        assert_int_equal(c[L - 1], cases[i].last);
        assert_true(sum_of(c, L) / L == cases[i].mean);
        for (int l = 2; l < L; l++) { assert_int_equal(c[l - 1] - c[l], c[0] - c[1]); }
    }
    uint32_t c[L];
    pyramid(L, 512, 1009, c); /* the lowest layer would keep 991 of 1,001 before the window */
    assert_int_equal(c[0], 991);
    pyramid(L, 1024, 2034, c); /* 2032 - 50 = 1982 before the window's 8 */
    assert_int_equal(c[0], 1990);
    pyramid(4, 100, 185, c); /* M = 180 is over T - W = 177; then m = 7, steps of 56 */
    assert_int_equal(c[0], 185);
    assert_int_equal(c[3], 177 - 3 * 56 + W);
    pyramid(1, 64, 8192, c);
    assert_int_equal(c[0], 64);
}

TEST(cake) {
    /* 4 x (48 - 32) = 64 by 1:2:4:1, the window besides */
    cake((double[]){1, 2, 4, 1}, 48, 124, (uint32_t[]){40, 48, 64, 40});
    /* Rounding leaves 64 - (21 + 21 + 21 + 0) = 1: to the first. */
    cake((double[]){1, 1, 1, 0}, 48, 124, (uint32_t[]){54, 53, 53, 32});
    /* Of 64, 60 are over the 22 of T - W: 38 to three, 12 each and 2 one each. */
    cake((double[]){2, 60, 1, 1}, 48, 54, (uint32_t[]){47, 54, 46, 45});
    /* What is handed out fills one, whose surplus goes on. */
    cake((double[]){20, 44, 0, 0}, 48, 53, (uint32_t[]){53, 53, 44, 42});
    cake((double[]){0, 0, 0, 0}, 48, 124, (uint32_t[]){48, 48, 48, 48});
    cake((double[]){1, 2, 4, 1}, 32, 124, (uint32_t[]){32, 32, 32, 32}); /* the window alone */
    /* what a layer is preferred by: a position that no row sees adds nothing, in place of a NaN */
    float a[40] = {[0] = 1}, none[40] = {0};
    double x[40], scratch[80];
    layer_sums layer = {0};
    const prefill_head h = {
        .group = 1, .n_tokens = 40, .head_dim = 2, .n_rows = 1, .attention = a, .keys = none};
    const head_score score = policy_rule_of(POLICY_CAKE)->score;
    score.on_head(&score, &h, &(head_output){.s = x, .layer = &layer, .scratch = scratch});
    assert_true(fabs(layer.entropy) < 1e-9 && layer.variance == 0);
}

/* HeadKV's shipped tables: the largest capacity before the window, mean tokens that are kept. */
TEST(headkv) {
    static const struct {
        const char *file;
        uint32_t B, T;
        double mean;
    } cases[] = {
        {"retrieval_reasoning_heads", 512, 2000, 410},  {"retrieval_heads", 512, 2000, 262},
        {"retrieval_reasoning_heads", 512, 4000, 493},  {"retrieval_heads", 512, 4000, 347},
        {"retrieval_reasoning_heads", 512, 8000, 512},  {"retrieval_heads", 512, 8000, 434},
        {"retrieval_reasoning_heads", 1024, 2000, 581}, {"retrieval_heads", 1024, 2000, 351},
        {"retrieval_reasoning_heads", 1024, 8000, 986}, {"retrieval_heads", 1024, 8000, 691}};
    enum { HEADS = 32 * 32 };
    /* b = 92, 91 of it by share: 4 x 91 x (0.5, 0.25, 0.25, 0), and 1 and the window to each. */
    of_four(POLICY_HEADKV, (double[]){2, 1, 1, 0}, 100, 1000, (uint32_t[]){191, 100, 100, 9});
    of_four(POLICY_HEADKV, (double[]){2, 1, 1, 0}, 100, 150, (uint32_t[]){150, 100, 100, 9});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[80];
        double score[HEADS] = {0};
        uint32_t c[HEADS], n = 0, most = 0;
        const char *key;
        json_t *list, *value;
        size_t k;
        snprintf(name, sizeof name, "Meta-Llama-3-8B-Instruct_%s.json", cases[i].file);
        json_auto_t *o = golden_read(shared_data("reference-heads/headkv", name));
        json_object_foreach(o, key, list) {
            json_array_foreach(list, k, value) { score[n] += json_number_value(value); }
            score[n++] /= (double)json_array_size(list);
        }
        assert_int_equal(n, HEADS);
        by_share(POLICY_HEADKV, HEADS, score, cases[i].B, cases[i].T, c);
        /* the means are given whole, and their heads rounded otherwise: 0.55 is seen */
        assert_true(fabs(sum_of(c, HEADS) / HEADS - cases[i].mean) < 0.6);
        by_share(POLICY_HEADKV, HEADS, score, cases[i].B, UINT32_MAX, c);
        for (int h = 0; h < HEADS; h++) { most = c[h] > most ? c[h] : most; }
        if (cases[i].B == 512) {
            assert_int_equal(most - 8, cases[i].file[10] == 'r' ? 7696 : 26035);
        }
    }
}

TEST(full_heads) {
    const double share[4] = {1, 3, 3, 0}; /* 200: 40 and 90 and 70 */
    of_four(POLICY_DUOATTENTION, share, 50, 100, (uint32_t[]){10, 100, 80, 10});
    of_four(POLICY_DUOATTENTION, share, 5, 100, (uint32_t[]){5, 5, 5, 5});
    of_four(POLICY_DUOATTENTION, share, 200, 100, (uint32_t[]){100, 100, 100, 100});
}

/* Against a plain statement: after the floors, again and again the best that is left. */
TEST(by_rank) {
    enum { N = 5, T = 40 };
    static double s[N * T];
    static uint64_t scratch[N * T];
    ckvc_rng rng = rng_of(3, 1, 0);
    for (int round = 0; round < 300; round++) {
        const uint32_t B = (uint32_t)ckvc_rng_below(&rng, T + 4),
                       least = (uint32_t)ckvc_rng_below(&rng, B + 3);
        uint32_t c[N], want[N] = {0};
        bool taken[N * T] = {false};
        for (int i = 0; i < N * T; i++) { /* few values: many are equal; some are none */
            const double x = (double)ckvc_rng_below(&rng, round % 2 ? 12 : 100000) - 5;
            s[i] = x == 0 ? -INFINITY : x == 1 ? INFINITY : x == -1 ? -0.0 : x * 1e-3;
        }
        uint32_t left = N * (B < T ? B : T);
        for (int pass = 0; pass < 2; pass++) { /* floors, then all of them */
            for (int i = 0; i < N || (pass && left); i++) {
                const int from = pass ? 0 : i * T, to = pass ? N * T : (i + 1) * T;
                for (uint32_t k = 0; left && k < (pass ? 1 : least); k++) {
                    int best = -1;
                    for (int j = from; j < to; j++) {
                        if (!taken[j] && (best < 0 || s[j] > s[best])) { best = j; }
                    }
                    if (best < 0 || want[best / T] >= (pass ? T : B)) { break; }
                    taken[best] = true;
                    want[best / T]++;
                    left--;
                }
            }
        }
        allot_by_rank(N, T, s, B, least, c, scratch);
        assert_memory_equal(c, want, sizeof c);
    }
}

/* Before the window, where what an early layer has dropped binds later, but in the first four rows.
 * Expected: dynamickv of tests/golden/policies/policies.py on these scores, no two of them equal.
 */
TEST(dynamickv) {
    enum { MOST_L = 12, G = 2, T = 60 };
    static const struct {
        uint32_t L, base, seed, want[MOST_L];
    } cases[] = {{3, 20, 1, {34, 7, 19}},
                 {4, 11, 3, {9, 18, 3, 14}},
                 {5, 26, 2, {24, 37, 9, 19, 41}},
                 {6, 26, 0, {45, 15, 24, 36, 9, 27}},
                 {5, 28, 0, {45, 13, 25, 40, 16}},
                 {9, 7, 0, {14, 0, 3, 8, 0, 0, 3, 14, 18}},
                 {9, 22, 1, {32, 3, 12, 20, 37, 7, 16, 32, 37}},
                 {9, 35, 0, {52, 19, 32, 45, 13, 25, 39, 52, 37}},
                 {9, 48, 1, {47, 38, 47, 47, 47, 44, 47, 47, 52}},
                 {10, 14, 0, {27, 3, 9, 21, 0, 3, 15, 27, 3, 29}},
                 {10, 49, 1, {51, 39, 51, 51, 51, 40, 51, 51, 40, 52}},
                 {11, 42, 5, {30, 41, 51, 28, 41, 51, 51, 30, 41, 51, 45}},
                 {12, 3, 1, {0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 30}},
                 {12, 15, 2, {12, 24, 3, 12, 20, 0, 4, 12, 24, 4, 12, 52}},
                 {12, 20, 1, {26, 4, 10, 15, 31, 5, 10, 26, 5, 10, 15, 52}},
                 {12, 37, 2, {39, 49, 19, 29, 39, 18, 19, 39, 49, 19, 39, 52}}};
    static double s[MOST_L * G * T];
    static uint64_t keys[MOST_L * G * T];
    uint32_t c[MOST_L * G], scratch[MOST_L * (G + 1)];
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const uint32_t L = cases[k].L, seed = cases[k].seed;
        for (uint32_t i = 0; i < L * G * T; i++) { /* layers are flatter and steeper */
            const uint32_t l = i / (G * T), x = (i % (G * T) * 7919 + l * 501 + seed) % 1009;
            s[i] = i % T < T - 8
                       ? pow((x + 0.5 + l / 64.0) / 1010, exp2((l * 5 + seed) % 7 / 2.0 - 1.5))
                       : INFINITY;
        }
        allot(POLICY_DYNAMICKV,
              (allot_ask){.n_layers = L,
                          .n_heads = G,
                          .n_tokens = T,
                          .budget = cases[k].base + 8,
                          .s = s,
                          .keys = keys,
                          .scratch = scratch},
              c);
        for (uint32_t u = 0; u < L * G; u++) { assert_int_equal(c[u], cases[k].want[u / G] + 8); }
    }
}

/* No head keeps more than there is, and a rule that says so keeps just as many as it is told. */
TEST(promises) {
    enum { L = 5, G = 2, T = 70, ROUNDS = 200 };
    static double s[L * G * T], share[L * G];
    static layer_sums layer[L];
    static uint64_t keys[L * G * T];
    ckvc_rng rng = rng_of(8, 1, 0);
    uint32_t n_rules = 0;
    for (int kind = 0; kind < POLICY_KIND_COUNT; kind++) {
        const policy_rule *r = policy_rule_of((policy_kind)kind);
        if (!r || !r->allot) { continue; }
        n_rules++;
        for (int round = 0; round < ROUNDS; round++) {
            const uint32_t n = 1 + (uint32_t)ckvc_rng_below(&rng, T),
                           B = 1 + (uint32_t)ckvc_rng_below(&rng, n);
            uint32_t c[L * G], scratch[L * (G + 1)];
            uint64_t sum = 0;
            for (uint32_t i = 0; i < L * G; i++) { share[i] = pow(ckvc_rng_double(&rng), 3); }
            for (uint32_t i = 0; i < L; i++) {
                layer[i] = (layer_sums){ckvc_rng_double(&rng), ckvc_rng_double(&rng),
                                        ckvc_rng_double(&rng)};
            }
            for (uint32_t i = 0; i < L * G * n; i++) {
                const bool forced = i % n < r->score.first || i % n + r->score.last >= n;
                s[i] = forced ? INFINITY : ckvc_rng_double(&rng);
            }
            r->allot(&(allot_ask){.n_layers = L,
                                  .n_heads = G,
                                  .n_tokens = n,
                                  .budget = B,
                                  .s = s,
                                  .layer = layer,
                                  .share = share,
                                  .least = B / 2,
                                  .keys = keys,
                                  .scratch = scratch},
                     c);
            for (uint32_t i = 0; i < L * G; i++) {
                assert_in_range(c[i], 0, n);
                sum += c[i];
            }
            if (policy_properties_of((policy_kind)kind)->exact) {
                assert_int_equal(sum, (uint64_t)L * G * B);
            }
        }
    }
    assert_int_equal(n_rules, 13);
}

RUN_TESTS(NULL, NULL)
