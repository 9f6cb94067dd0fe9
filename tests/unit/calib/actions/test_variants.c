/* Kept sets, distinct variants and the behaviour policy on made-up prompts: what is logged is
 * exactly what the policies promise (paper.md sections 4 and 5), independent of order, with whole
 * grids per state and no rollout for a set that exists already. */
#include "tests/unit/sets_fixture.h"

enum { L = 4, G = 3, T = 96, W = 16 };

typedef struct fixture {
    ckvc_table *table;
    prompt_sets *k;
    float alpha[T], rho[L * G * T];
} fixture;

/* Log-normal-like positive vectors with mean about 1. */
static void make(fixture *f, const double *budgets, uint32_t n_budgets, uint64_t seed) {
    ckvc_rng rng = rng_of(seed, 1, 0);
    for (int t = 0; t < T; t++) {
        double u = ckvc_rng_double(&rng);
        f->alpha[t] = (float)(0.2 + 3.2 * u * u * u);
    }
    for (int i = 0; i < L * G * T; i++) { f->rho[i] = (float)(0.5 + ckvc_rng_double(&rng)); }
    f->table = new_start_table(L, G, 1, 1, budgets, n_budgets, W, NULL);
    OK(prompt_sets_create(f->table, T, &(setting){.window = W}, &f->k, &err));
    build_sets(f->k, T, f->alpha, f->rho);
}

static void drop(fixture *f) {
    prompt_sets_destroy(f->k);
    ckvc_table_free(f->table);
}

/* Every action points at a variant with exactly its set; equal sets share one, but the baseline. */
TEST(full_grid) {
    CKVC_AUTO(drop) fixture f;
    double budgets[] = {12, 24, 0.5};
    make(&f, budgets, 3, 5);
    CKVC_AUTO(variants_fini) variant_list v = {0};
    build_variants(&v, f.k, BEHAVIOUR_BALANCED, -1, 1, "p");
    assert_int_equal(v.n_actions, 3 * L * (G * CKVC_HEAD_ACTIONS + CKVC_GATE_ACTIONS));
    uint32_t set[T], candidates, at_baseline = 0;
    for (size_t i = 0; i < v.n_actions; i++) {
        const taken_action *a = &v.actions[i];
        const prompt_state s = {a->side, a->budget, a->layer, a->head};
        uint32_t n = prompt_sets_action(f.k, &s, a->action, set, &candidates);
        assert_int_equal(a->n_kept, n);
        assert_int_equal(a->n_candidates, candidates);
        const layer_set *base = prompt_sets_at(f.k, a->budget, a->layer);
        bool same = n == base->n_kept && memcmp(set, base->positions, n * sizeof *set) == 0;
        assert_int_equal(same, a->variant == VARIANT_NONE);
        at_baseline += same;
        if (!same) {
            const variant *item = &v.items[a->variant];
            assert_int_equal(item->layer, a->layer);
            assert_int_equal(item->offsets[1], n);
            assert_memory_equal(v.positions + item->first, set, n * sizeof *set);
            assert_int_equal(v.group[item->budget], v.group[a->budget]);
        }
    }
    assert_true(at_baseline > 0);
    assert_true(v.n > 100 && v.n < v.n_actions);
    for (size_t i = 0; i < v.n; i++) {
        for (size_t j = i + 1; j < v.n; j++) {
            const variant *a = &v.items[i], *b = &v.items[j];
            assert_false(a->layer == b->layer && v.group[a->budget] == v.group[b->budget] &&
                         a->offsets[1] == b->offsets[1] &&
                         memcmp(v.positions + a->first, v.positions + b->first,
                                a->offsets[1] * sizeof(uint32_t)) == 0);
        }
    }
}

/* Two budgets over T keep every candidate alike: one group, shared rollouts. */
TEST(budgets_share) {
    fixture f;
    double budgets[] = {20, T, 2 * T};
    make(&f, budgets, 3, 6);
    CKVC_AUTO(variants_fini) variant_list v = {0};
    build_variants(&v, f.k, BEHAVIOUR_BALANCED, -1, 1, "p");
    assert_true(v.group[0] == 0 && v.group[1] == 1 && v.group[2] == 1);
    const size_t n = v.n;
    drop(&f);
    make(&f, budgets, 2, 6);
    build_variants(&v, f.k, BEHAVIOUR_BALANCED, -1, 1, "p");
    assert_int_equal(v.n, n); /* the third budget costs nothing */
    drop(&f);
}

/* Balanced: whole grids, within a side's limit, a prefix of one order; no undone take shows. */
TEST(balanced) {
    CKVC_AUTO(drop) fixture f;
    double budgets[] = {12, 24};
    make(&f, budgets, 2, 7);
    CKVC_AUTO(variants_fini) variant_list all = {0}, v = {0};
    build_variants(&all, f.k, BEHAVIOUR_BALANCED, -1, 3, "prompt");
    size_t before[CKVC_SIDE_COUNT] = {0, 0};
    for (int64_t limit = 1; limit < 200; limit += 7) {
        build_variants(&v, f.k, BEHAVIOUR_BALANCED, limit, 3, "prompt");
        size_t n[CKVC_SIDE_COUNT] = {0, 0}, used[CKVC_SIDE_COUNT] = {0, 0};
        for (size_t i = 0; i < v.n_actions; i++) { n[v.actions[i].side]++; }
        for (size_t i = 0; i < v.n; i++) {
            assert_true(v.items[i].first_use[0] || v.items[i].first_use[1]);
            used[0] += v.items[i].first_use[0] > 0;
            used[1] += v.items[i].first_use[1] > 0;
        }
        const size_t grid[] = {CKVC_HEAD_ACTIONS, CKVC_GATE_ACTIONS};
        for (int s = 0; s < CKVC_SIDE_COUNT; s++) {
            assert_int_equal(used[s], v.distinct[s]);
            assert_int_equal(n[s] % grid[s], 0);
            assert_true(n[s] >= grid[s] && n[s] >= before[s]);
            assert_true(v.distinct[s] <= limit || n[s] == grid[s]);
            before[s] = n[s];
        }
        for (size_t i = 0; i < n[0]; i++) { /* the head side comes first in both lists */
            const taken_action *a = &v.actions[i], *b = &all.actions[i];
            assert_true(a->layer == b->layer && a->head == b->head && a->action == b->action);
            assert_true(a->set_hash == b->set_hash);
        }
    }
    /* Another prompt, another order. */
    build_variants(&v, f.k, BEHAVIOUR_BALANCED, -1, 3, "other");
    size_t differ = 0;
    for (size_t i = 0; i < v.n_actions; i++) {
        differ +=
            v.actions[i].layer != all.actions[i].layer || v.actions[i].head != all.actions[i].head;
    }
    assert_true(differ > v.n_actions / 4);
}

/* Uniform: bounded, within the limit, and with unequal counts, as independent draws have. */
TEST(uniform) {
    CKVC_AUTO(drop) fixture f;
    double budgets[] = {12};
    make(&f, budgets, 1, 8);
    CKVC_AUTO(variants_fini) variant_list v = {0};
    build_variants(&v, f.k, BEHAVIOUR_UNIFORM, 40, 3, "prompt");
    assert_true(v.distinct[0] <= 40 && v.distinct[1] <= 40 && v.distinct[0] > 20);
    build_variants(&v, f.k, BEHAVIOUR_UNIFORM, -1, 3, "prompt");
    assert_int_equal(v.n_actions, L * (G * CKVC_HEAD_ACTIONS + CKVC_GATE_ACTIONS));
    unsigned counts[L * G * CKVC_HEAD_ACTIONS] = {0}, zero = 0, many = 0;
    for (size_t i = 0; i < v.n_actions; i++) {
        const taken_action *a = &v.actions[i];
        if (a->side == CKVC_SIDE_HEAD) {
            counts[(a->layer * G + a->head) * CKVC_HEAD_ACTIONS + a->action]++;
        }
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        zero += counts[i] == 0;
        many += counts[i] > 2;
    }
    assert_true(zero > 50 && many > 5); /* Poisson with mean 1: 37% and 8% of 348 */
}

/* A set's hash is the one that formats.md defines, by hand for a set of two positions. */
TEST(set_hash) {
    CKVC_AUTO(variants_fini) variant_list v = {0};
    const uint32_t positions[] = {1, 258};
    const uint8_t bytes[] = {2, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0};
    assert_true(variants_set_hash(&v, 2, 3, positions, 2) == ckvc_xxh64(bytes, sizeof bytes));
}

RUN_TESTS(NULL, NULL)
