/* Budgets for heads and layers: capacities against golden/budgets and their own definition, the
 * scores by hand, a head's set against ranks, and what a table must hold. */
#include "lib/policy/retain_many.h"
#include "tests/unit/golden.h"

enum { UNITS_MAX = 64, TOKENS_MAX = 64 };

TEST(golden_capacities) {
    json_auto_t *root = golden_read("tests/golden/budgets/ckvc-tiny-4l.json");
    uint32_t n_refused = 0, got[UNITS_MAX];
    json_t *c;
    size_t i;
    json_array_foreach(json_object_get(root, "capacities"), i, c) {
        const json_t *capacities = json_object_get(c, "capacities"),
                     *shares = json_object_get(c, "share");
        CKVC_AUTO_FREE double *share = golden_numbers(shares);
        const uint32_t n = json_array_size(shares) * json_array_size(json_array_get(shares, 0)),
                       B = golden_number(c, "B"), T = golden_number(c, "T"),
                       recent = golden_number(c, "recent"),
                       floor = ckvc_head_floor(golden_number(c, "f"), recent, B, T);
        assert_in_range(n, 1, UNITS_MAX);
        if (json_is_null(capacities)) {
            assert_int_equal(floor, recent + 1);
            assert_int_equal(ckvc_capacities(share, n, 1, B, T, floor, got), -1);
            n_refused++;
            continue;
        }
        CKVC_AUTO_FREE double *want = golden_numbers(capacities);
        assert_int_equal(ckvc_capacities(share, n, 1, B, T, floor, got), 0);
        for (uint32_t u = 0; u < n; u++) { assert_int_equal(got[u], want[u]); }
    }
    assert_int_equal(n_refused, 1);
    assert_in_range(i, 8, 100);
}

/* Whatever the shares: every floor met, nothing above T, the sum N where units with a share can
 * hold it, never more; a larger share never gets less; other strides and scales give the same. */
TEST(capacities_hold) {
    ckvc_rng rng = rng_of(5, 0, 0);
    for (int round = 0; round < 3000; round++) {
        const uint32_t n = 1 + ckvc_rng_below(&rng, UNITS_MAX), T = 1 + ckvc_rng_below(&rng, 300),
                       B = 1 + ckvc_rng_below(&rng, T + 20), recent = ckvc_rng_below(&rng, 9);
        const double f = ckvc_rng_below(&rng, 5) / 4.0;
        double share[UNITS_MAX], spread[2 * UNITS_MAX];
        uint32_t c[UNITS_MAX], again[UNITS_MAX], n_positive = 0;
        for (uint32_t i = 0; i < n; i++) { /* equal ones and zeros are common */
            share[i] = ckvc_rng_below(&rng, 8) ? exp2((double)ckvc_rng_below(&rng, 40) / 5 - 4) : 0;
            spread[2 * i] = 4.0 * share[i];
            n_positive += share[i] > 0.0;
        }
        if (!n_positive) { continue; }
        const uint32_t m = ckvc_head_floor(f, recent, B, T);
        const uint64_t N = (uint64_t)n * B;
        assert_int_equal(m, fmin(fmax(recent + 1, floor(f * B)), T));
        if (m > B) {
            assert_int_equal(ckvc_capacities(share, n, 1, B, T, m, c), -1);
            assert_int_equal(
                ckvc_capacities(share, n, 1, m, T, ckvc_head_floor(f, recent, m, T), c), 0);
            continue;
        }
        assert_int_equal(ckvc_capacities(share, n, 1, B, T, m, c), 0);
        uint64_t sum = 0, room = 0;
        for (uint32_t i = 0; i < n; i++) {
            assert_in_range(c[i], m, T);
            sum += c[i];
            room += B < T && share[i] == 0.0 ? m : T;
            for (uint32_t j = 0; j < n; j++) {
                if (share[i] > share[j]) { assert_true(c[i] >= c[j]); }
            }
        }
        assert_int_equal(sum, room < N ? room : N);
        assert_int_equal(ckvc_capacities(spread, n, 2, B, T, m, again), 0);
        assert_memory_equal(c, again, n * sizeof *c);
        /* of equal shares: the least; no more than one class loses, and each of it one */
        ckvc_even_lengths(spread, n, 2, again);
        double losing = -1;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t least = c[i];
            for (uint32_t j = 0; j < n; j++) {
                if (share[j] == share[i] && c[j] < least) { least = c[j]; }
            }
            assert_int_equal(again[i], least);
            if (again[i] == c[i]) { continue; }
            assert_true(losing < 0 || share[i] == losing);
            assert_int_equal(again[i] + 1, c[i]);
            losing = share[i];
        }
    }
}

TEST(scores_by_hand) {
    const float alpha[3] = {2.0f, 0.5f, 0.0f}, rho[3] = {0.75f, 4.0f, 1.0f};
    const double attention[6] = {0.125, 0.5, 0.25, 0.0, 0.0, 0.0625}, norm[6] = {2, 2, 2, 2, 4, 0};
    double s[6];
    ckvc_score_paper(3, alpha, rho, 0.5, s);
    assert_true(s[0] == log(0.75) && s[1] == log(1.0) && s[2] == -INFINITY);
    ckvc_score_window(6, attention, 1, NULL, s);
    assert_true(s[0] == log(0.125) && s[3] == -INFINITY && s[5] == log(0.0625));
    ckvc_score_window(6, attention, 3, norm, s);
    assert_true(s[0] == log(1.0) && s[1] == log(1.0) && s[2] == log(1.0) && s[3] == log(0.5) &&
                s[4] == log(0.25) && s[5] == -INFINITY);
    ckvc_score_window(6, attention, 7, NULL, s);
    assert_true(s[0] == log(0.5) && s[4] == log(0.5) && s[5] == log(0.25));
    ckvc_score_window(1, attention, 7, NULL, s);
    assert_true(s[0] == log(0.125));
}

/* The first `capacity` by a rank that counts who comes before. */
TEST(head_against_ranks) {
    ckvc_rng rng = rng_of(6, 0, 0);
    for (int round = 0; round < 5000; round++) {
        const uint32_t T = 1 + ckvc_rng_below(&rng, TOKENS_MAX - 1),
                       recent = ckvc_rng_below(&rng, 12), capacity = ckvc_rng_below(&rng, T + 3);
        double s[TOKENS_MAX], rank[TOKENS_MAX];
        uint32_t want[TOKENS_MAX], n = 0, kept[TOKENS_MAX], scratch[TOKENS_MAX];
        for (uint32_t t = 0; t < T; t++) { /* ties, -infinity and NaN are common */
            const uint32_t draw = ckvc_rng_below(&rng, 9);
            s[t] = draw == 0 ? NAN : draw == 1 ? -INFINITY : log(draw);
            rank[t] = t == 0 || t + recent >= T ? INFINITY : draw == 0 ? -INFINITY : s[t];
        }
        for (uint32_t t = 0; t < T; t++) {
            uint32_t before = 0;
            for (uint32_t k = 0; k < T; k++) {
                before += rank[k] > rank[t] || (rank[k] == rank[t] && k > t);
            }
            if (before < capacity) { want[n++] = t; }
        }
        assert_int_equal(ckvc_retain_head(T, s, recent, capacity, kept, scratch), n);
        assert_memory_equal(kept, want, n * sizeof *kept);
    }
}

/* Two layers, two heads, two budgets; the paper's numbers all 1. */
static ckvc_table *table_with_shares(int with_layers) {
    ckvc_table *t = ckvc_table_create(2, 2, 1, 1, 2, 1, 1);
    assert_non_null(t);
    assert_int_equal(ckvc_table_add_shares(t, with_layers), 0);
    t->window = 16;
    t->budgets[0] = 0.25;
    t->budgets[1] = 64;
    t->head_grid[0] = t->gate_grid[0] = 1.0;
    for (int i = 0; i < 8; i++) {
        t->weight[i] = 1.0f;
        t->share[i] = i % 2 ? 0.25 * i : 1.0; /* of budget 1: 0.25, 0.75, 1.25, 1.75 */
    }
    for (int i = 0; i < 4; i++) { t->tau[i] = 1.0f; }
    for (int b = 0; b < 2; b++) {
        t->c_min[b] = (ckvc_c_min){0.25, 8};
        t->score[b] = (ckvc_score){
            .kind = CKVC_SCORE_WINDOW, .window = 32, .pool = 7, .norm = 1, .mode = CKVC_MODE_HEADS};
        if (with_layers) { t->layer_share[b] = t->layer_share[2 + b] = 1.0; }
    }
    return t;
}

/* The same with a learned ranking of keys of two numbers, which block 0 recommends. */
static ckvc_table *table_with_theta(void) {
    ckvc_table *t = table_with_shares(1);
    assert_int_equal(ckvc_table_add_learned(t, ckvc_features_count(CKVC_FEATURES_1, 2)), 0);
    for (uint32_t i = 0; i < 4 * t->n_features; i++) { t->theta[i] = 0.5f - (float)i / 64; }
    for (int i = 0; i < 4; i++) { t->mass[i] = 0.5 * i; }
    t->score[0] = (ckvc_score){CKVC_SCORE_LEARNED, CKVC_FEATURES_1_ROWS, 0, 0,
                               CKVC_FEATURES_1,    CKVC_MODE_HEADS};
    t->score[1].features = CKVC_FEATURES_1;
    return t;
}

TEST(table) {
    ckvc_table *t = table_with_shares(1), *plain = ckvc_table_create(1, 1, 1, 1, 1, 1, 1);
    const double *share = t->share + 1, *layer_share = t->layer_share + 1; /* block 1 */
    uint32_t c[4],
        least = ckvc_head_floor(t->c_min[1].floor, (uint32_t)t->c_min[1].recent, 64, 100);
    char message[256] = "";
    assert_int_equal(ckvc_table_check(t, message, sizeof message), 0);
    assert_int_equal(ckvc_capacities(share, 4, 2, 64, 100, least, c), 0);
    /* x = 16 z, 48 z, 80 z and 100: z ends where the third would get its 88th */
    assert_true(c[0] == 17 && c[1] == 52 && c[2] == 87 && c[3] == 100);
    assert_int_equal(ckvc_capacities(layer_share, 2, 2, 64, 100, least, c), 0);
    assert_true(c[0] == 64 && c[1] == 64);
    least = ckvc_head_floor(t->c_min[0].floor, (uint32_t)t->c_min[0].recent, 8, 100);
    assert_int_equal(ckvc_capacities(t->share, 4, 2, 8, 100, least, c), -1);
    assert_int_equal(least, 9);
    assert_int_equal(ckvc_table_score(t, 1).pool, 7);
    assert_int_equal(ckvc_table_score(plain, 0).mode, CKVC_MODE_SHARED);
    assert_int_equal(ckvc_table_score(plain, 0).kind, CKVC_SCORE_PAPER);

    ckvc_table *bare = ckvc_table_clone(plain), *shares = ckvc_table_clone(t),
               *learned = table_with_theta(), *clone = ckvc_table_clone(learned);
    assert_true(!bare->share && !shares->theta);
    assert_int_equal(clone->n_features, 26);
    assert_memory_equal(clone->share, learned->share, 8 * sizeof(double));
    assert_memory_equal(clone->layer_share, learned->layer_share, 4 * sizeof(double));
    assert_memory_equal(clone->c_min, learned->c_min, 2 * sizeof *t->c_min);
    assert_memory_equal(clone->score, learned->score, 2 * sizeof *t->score);
    assert_memory_equal(clone->theta, learned->theta, 4 * sizeof(float) * 26);
    assert_memory_equal(clone->mass, learned->mass, 4 * sizeof(double));
    ckvc_table *const all[] = {t, plain, bare, shares, learned, clone};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) { ckvc_table_free(all[i]); }
    assert_string_equal(ckvc_mode_name(CKVC_MODE_HEADS), "heads");
    assert_string_equal(ckvc_mode_name(CKVC_MODE_LENGTHS), "lengths");
    assert_string_equal(ckvc_score_name(CKVC_SCORE_WINDOW), "window");
}

/* What test_table_file's share_refusals and learned_refusals leave; each change is undone. */
TEST(table_check) {
    ckvc_table *t = table_with_shares(0);
    char message[256] = "";
    assert_int_equal(ckvc_table_check(t, message, sizeof message), 0);
#define BREACH(lvalue, bad, text)                                                                  \
    do {                                                                                           \
        __typeof__(lvalue) keep = (lvalue);                                                        \
        (lvalue) = (bad);                                                                          \
        assert_int_equal(ckvc_table_check(t, message, sizeof message), -1);                        \
        assert_memory_equal(message, text, strlen(text));                                          \
        assert_int_equal(ckvc_table_check(t, NULL, 0), -1);                                        \
        (lvalue) = keep;                                                                           \
    } while (0)
    BREACH(t->share[3], INFINITY, "SHARE[3] is inf");
    BREACH(t->c_min[1].floor, -0.25, "CMIN[1]");
    BREACH(t->c_min[1].floor, NAN, "CMIN[1]");
    BREACH(t->c_min[1].recent, -1, "CMIN[1]");
    BREACH(t->c_min[1].recent, INFINITY, "CMIN[1]");
    BREACH(t->score[0].features, 9, "SCORE[0]: features of version 9");
    BREACH(t->score[0].pool, 4, "SCORE[0]: window 32, pool 4");
    BREACH(t->score[0].norm, 2, "SCORE[0]: window 32, pool 7, norm 2");
    BREACH(t->score[0].kind, CKVC_SCORE_PAPER, "SCORE[0]: window 32, pool 7, norm 1: the paper's");
    for (int i = 0; i < 8; i += 2) { t->share[i] = 0.0; }
    assert_int_equal(ckvc_table_check(t, message, sizeof message), -1);
    assert_string_equal(message, "SHARE: no share of budget 0 is above 0");
    ckvc_table_free(t);
    t = table_with_shares(1);
    BREACH(t->layer_share[2], -1.0, "SHARELAY[2] is -1");
    BREACH(t->score[0].mode, CKVC_MODE_LENGTHS, "SCORE[0]: mode lengths, but section SHARELEN is");
    assert_int_equal(ckvc_table_add_lengths(t), 0);
    for (int i = 0; i < 4; i++) { t->length_share[i] = 1.0; }
    t->score[0].mode = CKVC_MODE_LENGTHS;
    assert_int_equal(ckvc_table_check(t, message, sizeof message), 0);
    BREACH(t->length_share[2], -1.0, "SHARELEN[2] is -1");
    ckvc_table *clone = ckvc_table_clone(t);
    assert_memory_equal(clone->length_share, t->length_share, 4 * sizeof(double));
    ckvc_table_free(clone);
    ckvc_table_free(t);
    t = table_with_theta();
    assert_int_equal(ckvc_table_check(t, message, sizeof message), 0);
    BREACH(t->score[0].features, 0, "SCORE[0]: features of version 0 are none that this reader");
    BREACH(t->score[0].pool, 7, "SCORE[0]: window 64, pool 7, norm 0: features of version 1 need");
    BREACH(t->score[0].norm, 1, "SCORE[0]: window 64, pool 0, norm 1: features of version 1 need");
    BREACH(t->n_features, 24, "THETA: 24 features, version 1 has 24 and those of a key of even");
    BREACH(t->theta[0], -INFINITY, "THETA[0] is -inf");
    BREACH(t->mass[3], INFINITY, "MASS[3] is inf, want a finite value from 0 up");
    ckvc_table_free(t);
}

/* What test_table_file's value_refusals leave; each change is undone after its check. */
TEST(paper_table_check) {
    ckvc_table *t = ckvc_table_create(2, 3, 4, 2, 2, 29, 21);
    char message[256] = "";
    assert_non_null(t);
    t->window = 8;
    for (int a = 0; a < 29; a++) { t->head_grid[a] = (32 + a) / 40.0; }
    for (int a = 0; a < 21; a++) { t->gate_grid[a] = (80 + a) / 100.0; }
    t->budgets[0] = 0.25;
    t->budgets[1] = 64;
    for (int i = 0; i < 12; i++) { t->weight[i] = (float)t->head_grid[i]; }
    for (int i = 0; i < 32; i++) { t->tau[i] = (float)t->gate_grid[i % 21]; }
    assert_int_equal(ckvc_table_check(t, message, sizeof message), 0);
    BREACH(t->n_query_heads, 0, "SHAPE[1]");
    BREACH(t->budgets[1], 0.0, "BUDGET[1]");
    BREACH(t->budgets[1], 64.5, "BUDGET[1]");
    BREACH(t->head_grid[28], INFINITY, "GRIDHEAD[28]");
    BREACH(t->head_grid[0], -0.5, "GRIDHEAD[0]");
    BREACH(t->gate_grid[3], t->gate_grid[2], "GRIDGATE[3]");
    BREACH(t->edges_entropy[2], -1.0, "EDGEENT[2]");
    assert_int_equal(ckvc_table_check(t, message, sizeof message), 0);
    ckvc_table_free(t);
    assert_null(ckvc_table_create(0, 1, 1, 1, 1, 1, 1));
    assert_null(ckvc_table_create(1, 70000, 1, 1, 1, 1, 1));
    assert_null(ckvc_table_create(1, 1, 1, 1, 1, 5000, 1));
    ckvc_table_free(NULL);
}

RUN_TESTS(NULL, NULL)
