/* Matching heads between models: assignment by brute force, rank and signature on known layers. */
#include "cql/transfer/transfer.h"
#include "tests/unit/unit.h"

/* ---- assignment ---- */
static double least_total(uint32_t n, uint32_t m, const double *cost, uint32_t row, unsigned used) {
    if (row == n) { return 0; }
    double best = INFINITY;
    for (uint32_t j = 0; j < m; j++) {
        if (!(used >> j & 1)) {
            double total = cost[row * m + j] + least_total(n, m, cost, row + 1, used | 1u << j);
            best = total < best ? total : best;
        }
    }
    return best;
}

TEST(assignment_brute_force) {
    ckvc_rng rng = rng_of(9, 0, 0);
    for (int round = 0; round < 600; round++) {
        uint32_t n = 1 + (uint32_t)ckvc_rng_below(&rng, 7),
                 m = n + (uint32_t)ckvc_rng_below(&rng, 8 - n), column[7];
        double cost[49];
        for (uint32_t i = 0; i < n * m;
             i++) { /* whole numbers: ties, and sums that are exact; also negative ones */
            cost[i] = round % 2 ? (double)ckvc_rng_below(&rng, 6) - 2 : ckvc_rng_double(&rng);
        }
        assignment_solve(n, m, cost, column);
        unsigned used = 0;
        double total = 0;
        for (uint32_t i = 0; i < n; i++) {
            assert_true(column[i] < m && !(used >> column[i] & 1));
            used |= 1u << column[i];
            total += cost[i * m + column[i]];
        }
        assert_float_equal(total, least_total(n, m, cost, 0, 0), 1e-12);
    }
}

TEST(assignment_large) {
    enum { N = 200 };
    CKVC_AUTO_FREE double *cost = malloc(N * N * sizeof *cost);
    uint32_t column[N];
    for (uint32_t i = 0; i < N; i++) { /* the only zero of row i is column 7 i + 3 mod N */
        for (uint32_t j = 0; j < N; j++) {
            cost[i * N + j] = j == (7 * i + 3) % N ? 0 : 1 + (i * 31 + j * 17) % 11;
        }
    }
    assignment_solve(N, N, cost, column);
    for (uint32_t i = 0; i < N; i++) { assert_int_equal(column[i], (7 * i + 3) % N); }
}

/* ---- rank ---- */
TEST(rank) {
    const double source[2][4] = {{9, 0, 28, 4}, {5, 5, 1, 7}}; /* ascending: 0 4 9 28, 1 5 5 7 */
    const double spread[3][4] = {{0.3, 0.1, 0.4, 0.2}, {1, 1, 1, 1}, {4, 3, 2, 1}};
    const uint32_t want[3][4] = {
        {9, 0, 28, 4},
        {0, 4, 7, 17},
        {7, 5, 5, 1}}; /* middle: halves of 1, 9, 14, 35, down; by position */
    double got[12];
    transfer_heads_rank(2, 4, source[0], 3, 4, spread[0], got);
    for (int i = 0; i < 12; i++) { assert_int_equal(transfer_index(got[i]), want[i / 4][i % 4]); }
    /* two heads of four: the least and the greatest */
    const double two[2] = {0.9, 0.2};
    double pair[2];
    transfer_heads_rank(1, 4, source[0], 1, 2, two, pair);
    assert_int_equal(pair[0], 28);
    assert_int_equal(pair[1], 0);
    const double rising[2][4] = {{3, 1, 4, 2}, {1, 1, 1, 1}}, falling[1][4] = {{1, 9, 0, 2}};
    assert_float_equal(transfer_rank_agreement(2, 4, source[0], rising[0]), 1.0, 1e-12);
    assert_float_equal(transfer_rank_agreement(1, 4, source[0], falling[0]), -1.0, 1e-12);
    assert_true(isnan(transfer_rank_agreement(1, 4, source[0], rising[1])));
}

/* ---- signature ---- */
enum { HEADS = 6 };

static void random_signature(ckvc_rng *rng, size_t n, double *s) {
    for (size_t i = 0; i < n * TRANSFER_STATS; i++) { s[i] = 5 * ckvc_rng_double(rng); }
}

/* A target of the source's layers with heads shuffled and other units: every head finds its own. */
TEST(signature_finds_shuffled_heads) {
    ckvc_rng rng = rng_of(21, 0, 0);
    for (int round = 0; round < 50; round++) {
        enum { L = 4 };
        double source[L * HEADS * TRANSFER_STATS], target[L * HEADS * TRANSFER_STATS];
        double index[L * HEADS], want[L * HEADS], got[L * HEADS];
        uint32_t order[HEADS];
        random_signature(&rng, L * HEADS, source);
        for (uint32_t l = 0; l < L; l++) {
            for (uint32_t g = 0; g < HEADS; g++) {
                order[g] = g;
                index[l * HEADS + g] = (double)ckvc_rng_below(&rng, 29);
            }
            ckvc_rng_shuffle_u32(&rng, order, HEADS);
            for (uint32_t g = 0; g < HEADS; g++) {
                want[l * HEADS + g] = index[l * HEADS + order[g]];
                for (int s = 0; s < TRANSFER_STATS; s++) {
                    target[(l * HEADS + g) * TRANSFER_STATS + s] =
                        100 + 0.01 * (s + 1) * source[(l * HEADS + order[g]) * 3 + s];
                }
            }
        }
        CKVC_AUTO(transfer_pairing_fini)
        transfer_pairing p = {.L = L, .G = HEADS, .L2 = L, .G2 = HEADS};
        OK(transfer_pair(&p, source, target, NULL));
        transfer_heads_paired(&p, index, got);
        assert_memory_equal(got, want, sizeof want);
        for (uint32_t l = 0; l < L; l++) {
            const uint32_t *heads;
            assert_int_equal(transfer_nearest(&p, l, &heads), l);
            assert_true(p.cost[l] < 1e-12);
            assert_true(index[l * HEADS + heads[2]] == want[l * HEADS + 2]);
        }
    }
}

/* Least squared distance by trying every way; more and fewer heads, and between layers. */
TEST(signature_brute_force) {
    ckvc_rng rng = rng_of(22, 0, 0);
    static const uint32_t shapes[][2] = {{5, 5}, {6, 3}, {3, 6}, {2, 5}, {1, 3}, {4, 1}};
    for (int round = 0; round < 120; round++) {
        uint32_t G = shapes[round % 6][0], G2 = shapes[round % 6][1], times = (G2 + G - 1) / G,
                 m = G * times;
        double source[2 * 6 * TRANSFER_STATS], target[3 * 6 * TRANSFER_STATS];
        double index[12], got[18];
        random_signature(&rng, 2 * G, source);
        random_signature(&rng, 3 * G2, target);
        for (uint32_t i = 0; i < 2 * G; i++) { index[i] = (double)ckvc_rng_below(&rng, 29); }
        CKVC_AUTO(transfer_pairing_fini) transfer_pairing p = {.L = 2, .G = G, .L2 = 3, .G2 = G2};
        OK(transfer_pair(&p, source, target, NULL));
        transfer_heads_paired(&p, index, got);
        /* steps: layer 0 from source 0; layer 1 from 0 and 1; layer 2 from source 1 */
        static const uint32_t from[4] = {0, 0, 1, 1}, to[4] = {0, 1, 1, 2};
        for (int step = 0; step < 4; step++) {
            double z[6][3], z2[6][3], cost[49];
            const double *both[2] = {source + from[step] * G * 3, target + to[step] * G2 * 3};
            for (int side = 0; side < 2; side++) {
                uint32_t n = side ? G2 : G;
                for (int s = 0; s < 3; s++) {
                    double mean = 0, var = 0;
                    for (uint32_t g = 0; g < n; g++) { mean += both[side][g * 3 + s] / n; }
                    for (uint32_t g = 0; g < n; g++) {
                        var += pow(both[side][g * 3 + s] - mean, 2) / n;
                    }
                    for (uint32_t g = 0; g < n; g++) {
                        (side ? z2 : z)[g][s] =
                            n > 1 ? (both[side][g * 3 + s] - mean) / sqrt(var) : 0;
                    }
                }
            }
            double total = 0;
            uint32_t taken[6] = {0};
            for (uint32_t i = 0; i < G2; i++) {
                for (uint32_t j = 0; j < m; j++) {
                    cost[i * m + j] = 0;
                    for (int s = 0; s < 3; s++) {
                        cost[i * m + j] += pow(z2[i][s] - z[j % G][s], 2);
                    }
                }
                uint32_t head = p.head[(uint32_t)step * G2 + i];
                assert_true(head < G && taken[head]++ < times);
                total += cost[i * m + head];
            }
            assert_float_equal(total, least_total(G2, m, cost, 0, 0), 1e-9);
        }
        for (uint32_t g = 0; g < G2; g++) {
            assert_true(got[g] == index[p.head[g]]);
            const double sum = index[p.head[G2 + g]] + index[G + p.head[2 * G2 + g]];
            assert_true(got[G2 + g] == sum / 2);
            assert_int_equal(transfer_index(got[G2 + g]), (uint32_t)sum / 2); /* halves down */
            assert_true(got[2 * G2 + g] == index[G + p.head[3 * G2 + g]]);
        }
    }
}

/* A target layer is the mean over source layers' pairings; what has no spread decides nothing. */
TEST(signature_one_layer) {
    const double source[3][2][3] = {
        {{1, 7, 7}, {2, 7, 7}}, {{2, 7, 7}, {1, 7, 7}}, {{1, 7, 7}, {2, 7, 7}}};
    const double target[1][2][3] = {{{20, 0, 0}, {10, 0, 0}}};
    const double index[3][2] = {{1, 10}, {11, 2}, {3, 13}};
    double got[2];
    CKVC_AUTO(transfer_pairing_fini) transfer_pairing p = {.L = 3, .G = 2, .L2 = 1, .G2 = 2};
    OK(transfer_pair(&p, source[0][0], target[0][0], NULL));
    transfer_heads_paired(&p, index[0], got);
    assert_int_equal(transfer_index(got[0]), 11); /* 10, 11, 13: 34/3 */
    assert_int_equal(transfer_index(got[1]), 2);
    transfer_pairing_fini(&p);
    p = (transfer_pairing){.L = 1, .G = ASSIGNMENT_MAX + 1, .L2 = 1, .G2 = 2};
    FAILS(transfer_pair(&p, source[0][0], target[0][0], &err), CKVC_E_DATA);
}

RUN_TESTS(NULL, NULL)
