/* Keys that are rounded by the queries that will ask for them. */
#include "lib/policy/rounded_keys.h"

#include <math.h>
#include <string.h>

#include "lib/base/cache_format.h"
#include "lib/base/memory.h"
#include "lib/stats/resample.h"
#include "tests/unit/unit.h"

enum { D = 64, N = 128, KEYS = 50 };

static float draw(ckvc_rng *rng) { return (float)(ckvc_rng_double(rng) * 2 - 1); }

/* Queries that lie near a plane of 8 dimensions, as a head's do. */
static void draw_queries(ckvc_rng *rng, float *q) {
    float axes[8][D];
    for (int i = 0; i < 8; i++) {
        for (int d = 0; d < D; d++) { axes[i][d] = draw(rng); }
    }
    for (int i = 0; i < N; i++) {
        for (int d = 0; d < D; d++) { q[i * D + d] = 0.02f * draw(rng); }
        for (int a = 0; a < 8; a++) {
            const float part = draw(rng);
            for (int d = 0; d < D; d++) { q[i * D + d] += part * axes[a][d]; }
        }
    }
}

/* The sum over queries of the squared change of products with a key. */
static double off_by(const float *q, const float *x, const float *rounded) {
    double sum = 0;
    for (int i = 0; i < N; i++) {
        double product = 0;
        for (int d = 0; d < D; d++) {
            product += (double)q[i * D + d] * ((double)rounded[d] - (double)x[d]);
        }
        sum += product * product;
    }
    return sum;
}

/* Products change far less than where each number is rounded alone, and a cache that is written
 * rounds nothing again. */
TEST(products_change_little) {
    float q[N * D], x[D], near[D], alone[D], again[D];
    CKVC_AUTO_FREE double *u = ckvc_alloc(D * D, sizeof *u),
                          *work = ckvc_alloc(D * D, sizeof *work);
    ckvc_rng rng = rng_of(7, 8, 9);
    double by_queries = 0, by_itself = 0;
    draw_queries(&rng, q);
    assert_true(key_rounding_prepare(q, N, D, u, work));
    for (int k = 0; k < KEYS; k++) {
        for (int d = 0; d < D; d++) { x[d] = 3 * draw(&rng); }
        if (k == 0) { memset(x, 0, 32 * sizeof *x); } /* a block without a scale */
        memcpy(near, x, sizeof x);
        memcpy(alone, x, sizeof x);
        key_rounding_apply(u, D, near);
        cache_round(CACHE_Q4_0, 1, alone, D);
        memcpy(again, near, sizeof near);
        cache_round(CACHE_Q4_0, 1, again, D);
        for (int d = 0; d < D; d++) { assert_true(again[d] == near[d]); } /* 0 may be -0 */
        by_queries += off_by(q, x, near);
        by_itself += off_by(q, x, alone);
    }
    if (!(by_queries < 0.2 * by_itself)) { fail_msg("%g for %g", by_queries, by_itself); }
}

TEST(queries_that_say_nothing) {
    float q[N * D] = {0};
    CKVC_AUTO_FREE double *u = ckvc_alloc(D * D, sizeof *u),
                          *work = ckvc_alloc(D * D, sizeof *work);
    assert_false(key_rounding_prepare(q, N, D, u, work));
    q[6] = 1; /* the ridge makes a system of one query */
    assert_true(key_rounding_prepare(q, N, D, u, work));
    assert_false(key_rounding_prepare(q, N - 1, D, u, work));
    q[5] = NAN;
    assert_false(key_rounding_prepare(q, N, D, u, work));
    q[5] = 0;
    assert_true(key_rounding_prepare(q, N, D, u, work));
    float x[D];
    for (int d = 0; d < D; d++) { x[d] = INFINITY; }
    key_rounding_apply(u, D, x); /* stays as it is, so that losses show it */
    assert_true(isinf(x[0]));
}

RUN_TESTS(NULL, NULL)
