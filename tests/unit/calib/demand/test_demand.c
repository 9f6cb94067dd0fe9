/* Demand: counts against the rule done naively, ties, edges of the budget. */
#include "calib/demand/demand_meter.h"
#include "lib/base/order.h"
#include "lib/policy/policy_parts.h"
#include "tests/unit/unit.h"

enum { UNITS = 7, TOKENS = 61 };

/* The best that is left: by score, the lower unit, the later position. only: a unit, or -1. */
static size_t best(const double *s, const bool *taken, uint32_t T, int only) {
    size_t found = SIZE_MAX;
    for (uint32_t u = 0; u < UNITS; u++) {
        for (uint32_t t = T; t-- > 0;) {
            const size_t i = (size_t)u * T + t;
            if (taken[i] || (only >= 0 && u != (uint32_t)only)) { continue; }
            if (found == SIZE_MAX || s[i] > s[found]) { found = i; }
        }
    }
    return found;
}

static void naive(const double *s, uint32_t T, uint32_t B, double f, uint32_t recent,
                  uint32_t *count) {
    bool taken[UNITS * TOKENS] = {false};
    const uint32_t m = ckvc_head_floor(f, recent, B, T);
    uint32_t n = 0;
    for (uint32_t u = 0; u < UNITS; u++) {
        count[u] = 0;
        for (uint32_t t = 0; t < T; t++) {
            taken[u * T + t] = t == 0 || t + recent >= T;
            count[u] += taken[u * T + t];
        }
        for (; count[u] < m; count[u]++) { taken[best(s, taken, T, (int)u)] = true; }
        n += count[u];
    }
    for (; n < UNITS * B; n++) {
        const size_t i = best(s, taken, T, -1);
        taken[i] = true;
        count[i / T]++;
    }
}

TEST(counts) {
    ckvc_rng rng = rng_of(1, 2, 3);
    CKVC_AUTO(demand_ranks_fini) demand_ranks r;
    double s[UNITS * TOKENS];
    uint32_t got[UNITS], want[UNITS];
    demand_ranks_init(&r, UNITS, TOKENS);
    for (int round = 0; round < 200; round++) {
        const uint32_t T = 10 + (uint32_t)ckvc_rng_below(&rng, TOKENS - 9);
        for (size_t i = 0; i < UNITS * T; i++) {
            /* a third of the rounds has few values, so that most entries are tied */
            const double x = ckvc_rng_double(&rng);
            s[i] = round % 3 ? x * x * x * (double)(1 + i / T) : (double)(int)(x * 4);
        }
        demand_rank(&r, s, UNITS, T);
        for (uint32_t B = 9; B <= T; B += 5) {
            const double f = round % 5 * 0.25;
            naive(s, T, B, f, 8, want); /* its sum is UNITS * B */
            demand_count(&r, B, f, 8, got);
            assert_memory_equal(got, want, sizeof got);
        }
    }
}

/* Slots against a sort of every head, and their count against all slots put into one order. */
TEST(slots) {
    enum { LAYERS = 2, HEADS = 3, RECENT = 4 };
    ckvc_rng rng = rng_of(1, 2, 4);
    CKVC_AUTO(demand_ranks_fini) demand_ranks r;
    double s[LAYERS * HEADS * TOKENS], slots[LAYERS * TOKENS], want[LAYERS * TOKENS];
    demand_ranks_init(&r, LAYERS * HEADS, TOKENS);
    for (int round = 0; round < 100; round++) {
        const uint32_t T = 1 + (uint32_t)ckvc_rng_below(&rng, TOKENS),
                       forced = T > RECENT ? RECENT + 1 : T;
        for (size_t i = 0; i < LAYERS * HEADS * T; i++) {
            const double x = ckvc_rng_double(&rng);
            s[i] = round % 3 ? x * x * x * (double)(1 + i / T) : (double)(int)(x * 4);
        }
        demand_rank(&r, s, LAYERS * HEADS, T);
        demand_slots(&r, s, HEADS, RECENT, slots);
        memset(want, 0, sizeof want);
        for (uint32_t u = 0; u < LAYERS * HEADS; u++) {
            double own[TOKENS];
            if (T > 1) { memcpy(own, s + (size_t)u * T + 1, (T - 1) * sizeof *own); }
            qsort(own, T - forced, sizeof *own, ckvc_order_double);
            double dropped = 0;
            for (uint32_t j = T - forced; j > 0; j--) { /* own ascends: slot j has the j-th last */
                const double before = dropped;
                dropped += own[T - forced - j];
                want[u / HEADS * T + j] += pow(dropped, 3) - pow(before, 3);
            }
        }
        for (uint32_t i = 0; i < LAYERS * T; i++) {
            /* the naive difference of cubes loses digits of the larger one */
            assert_float_equal(slots[i], want[i], 1e-9 * (1 + want[i]));
        }
        demand_rank(&r, slots, LAYERS, T);
        for (uint32_t B = forced; B <= T; B += 7) {
            /* the j-th slot of one layer beside the i-th of the other: as long as the one that is
             * taken is worth at least as much as the one that is not, no slot should change */
            uint32_t c[LAYERS];
            demand_count(&r, B, 0, RECENT, c);
            assert_int_equal(c[0] + c[1], LAYERS * B);
            for (uint32_t l = 0; l < LAYERS; l++) {
                const double *own = slots + (size_t)l * T, *other = slots + (size_t)(1 - l) * T;
                const uint32_t taken = c[l] - forced, next = c[1 - l] - forced;
                if (taken > 0 && c[1 - l] < T) {
                    assert_true(own[taken] >= (1 - 1e-12) * other[next + 1]);
                }
            }
        }
    }
}

/* Whatever the budget is beyond T, all; where the floor is all of the budget, the same for all. */
TEST(edges) {
    static const struct {
        uint32_t B;
        double f;
        uint32_t recent, want[2];
    } cases[] = {
        {40, 0.2, 8, {12, 12}}, {9, 0.2, 8, {9, 9}},   {11, 1, 8, {11, 11}},
        {3, 0, 2, {3, 3}},      {10, 0.2, 8, {11, 9}}, /* of three free positions a unit, the
                                                          first's have scores */
    };
    demand_ranks r;
    double s[2 * 12] = {0, 5, -0.0, 1e-300, 1e300};
    uint32_t got[2];
    demand_ranks_init(&r, 2, 12);
    demand_rank(&r, s, 2, 12);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        demand_count(&r, cases[i].B, cases[i].f, cases[i].recent, got);
        assert_memory_equal(got, cases[i].want, sizeof got);
    }
    demand_ranks_fini(&r);
    demand_ranks_init(&r, 1, 3);
    demand_rank(&r, s, 1, 3);
    demand_count(&r, 40, 0.2, 8, got);
    assert_int_equal(got[0], 3);
    demand_ranks_fini(&r);
}

RUN_TESTS(NULL, NULL)
