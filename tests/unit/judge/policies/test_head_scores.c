/* Scores of a KV head on made-up attention, keys and queries, against their rules written out. */
#include "judge/policies/rules/expected.h"
#include "judge/policies/head_scores.h"
#include "tests/unit/unit.h"

enum { T = 41, D = 8, GROUP = 2, ROWS = 16 };

static struct made_up {
    float attention[GROUP][ROWS][T], keys[T][D], queries[GROUP][T][D];
    double norms[T], sums[T], frequencies[D / 2];
    prefill_head head;
} made, *const m = &made;

static int make(void **state) {
    ckvc_rng rng = rng_of(11, 1, 0);
    for (int q = 0; q < GROUP; q++) {
        for (int r = 0; r < ROWS; r++) {
            double sum = 0;
            for (int t = 0; t < T; t++) {
                const double x = t > T - ROWS + r ? 0 : pow(ckvc_rng_double(&rng), 4);
                m->attention[q][r][t] = (float)x;
                sum += x;
            }
            for (int t = 0; t < T; t++) { m->attention[q][r][t] /= (float)sum; }
        }
    }
    for (int t = 0; t < T; t++) {
        m->norms[t] = 0.5 + ckvc_rng_double(&rng);
        m->sums[t] = ckvc_rng_double(&rng);
        for (int i = 0; i < D; i++) {
            m->keys[t][i] = (float)(ckvc_rng_double(&rng) * 4 - 2);
            for (int q = 0; q < GROUP; q++) {
                m->queries[q][t][i] = (float)(ckvc_rng_double(&rng) * 2 - 0.5);
            }
        }
    }
    for (int i = 0; i < D / 2; i++) { m->frequencies[i] = pow(10000, -2.0 * i / D); }
    m->head = (prefill_head){.group = GROUP,
                             .n_tokens = T,
                             .head_dim = D,
                             .n_rows = ROWS,
                             .attention = &m->attention[0][0][0],
                             .keys = &m->keys[0][0],
                             .value_norms = m->norms,
                             .queries = &m->queries[0][0][0],
                             .column_sum = m->sums};
    return 0;
}

/* A rule's score under other numbers. */
static head_score rule_score(score_kind kind, uint32_t window, uint32_t pool, uint32_t last) {
    head_score s = policy_rule_of(kind)->score;
    s.window = window;
    s.pool = pool;
    s.last = last;
    return s;
}

static void score(head_score kind, double *s, double *layer) {
    const size_t n = head_score_scratch(&kind, T, D, GROUP);
    double *scratch = malloc(n * sizeof *scratch); /* of just this length, which asan looks at */
    kind.on_head(&kind, &m->head, &(score_room){m->frequencies, s, layer, scratch});
    head_score_force(kind.first, kind.last, T, s);
    free(scratch);
}

/* Both sides add in double, in orders of their own: 1e-14 is seen. */
static void near(const double *s, const double *want, int from, int to) {
    for (int t = from; t < to; t++) {
        if (!(fabs(s[t] - want[t]) <= 1e-12 * (1e-3 + fabs(want[t])))) {
            fail_msg("position %d: %.15g, wanted %.15g", t, s[t], want[t]);
        }
    }
}

static void forced(const double *s, int from, int to) {
    for (int t = from; t < to; t++) { assert_true(isinf(s[t]) && s[t] > 0); }
}

/* The mean over the last w rows and the group. */
static double mean_of(int w, int t) {
    double sum = 0;
    for (int q = 0; q < GROUP; q++) {
        for (int r = ROWS - w; r < ROWS; r++) { sum += (double)m->attention[q][r][t]; }
    }
    return sum / (w * GROUP);
}

TEST(snapkv) {
    double s[T], want[T] = {0};
    score(rule_score(SCORE_SNAPKV, 8, 7, 8), s, NULL);
    for (int t = 0; t < T - 8; t++) {
        for (int i = t - 3; i <= t + 3; i++) {
            if (i >= 0 && i < T - 8) { want[t] = fmax(want[t], mean_of(8, i)); }
        }
    }
    near(s, want, 0, T - 8);
    forced(s, T - 8, T);
    /* Of a window that is longer than what is shown, what is shown. */
    score(rule_score(SCORE_SNAPKV, 64, 1, 64), s, NULL);
    forced(s, 0, T);
}

TEST(cake) {
    enum { W = 8, PAST = T - W };
    double s[T], each[PAST] = {0}, want[T] = {0}, entropy = 0, variance = 0, got[2] = {0};
    score(rule_score(SCORE_CAKE, W, 5, W), s, got);
    for (int q = 0; q < GROUP; q++) {
        for (int t = 0; t < PAST; t++) {
            double sum = 0, squares = 0;
            for (int r = ROWS - W; r < ROWS; r++) {
                const double a = (double)m->attention[q][r][t];
                sum += a;
                squares += a * a;
                entropy -= a * log(a + 1e-10);
            }
            const double var = (squares - sum * sum / W) / (W - 1);
            variance += var;
            each[t] += (sum / W + 200 * var) / GROUP;
        }
    }
    for (int t = 0; t < PAST; t++) {
        for (int i = t - 2; i <= t + 2; i++) { want[t] += i >= 0 && i < PAST ? each[i] / 5 : 0; }
    }
    near(s, want, 0, PAST);
    forced(s, PAST, T);
    near(got, (const double[]){entropy, variance}, 0, 2);
}

TEST(h2o_and_tova) {
    double heads[2 * T], want[T];
    score(policy_rule_of(SCORE_H2O)->score, heads, NULL);
    near(heads, m->sums, 0, T - 8);
    forced(heads, T - 8, T);
    for (int t = 0; t < T; t++) { want[t] = 2 * GROUP * mean_of(1, t); } /* two heads alike */
    score(policy_rule_of(SCORE_TOVA)->score, heads, NULL);
    m->head.head = 1;
    score(policy_rule_of(SCORE_TOVA)->score, heads + T, NULL);
    m->head.head = 0;
    near(heads, want, 0, T - 1);
    forced(heads, T - 1, T);
}

TEST(keydiff) {
    double s[T], want[T], norm[T] = {0}, anchor[D] = {0};
    score(policy_rule_of(SCORE_KEYDIFF)->score, s, NULL);
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < D; i++) { norm[t] += (double)m->keys[t][i] * (double)m->keys[t][i]; }
        for (int i = 0; i < D; i++) { anchor[i] += (double)m->keys[t][i] / sqrt(norm[t]) / T; }
    }
    for (int t = 0; t < T; t++) {
        double dot = 0;
        for (int i = 0; i < D; i++) { dot += (double)m->keys[t][i] * anchor[i]; }
        want[t] = -dot / sqrt(norm[t]); /* times 1/|anchor|, the same for all, and T */
        s[t] /= T;
    }
    near(s, want, 0, T);
}

/* y = R(p) x, or its transpose: pairs (i, i + D/2) by p times their frequency. */
static void rotate(double p, const double *x, double *y) {
    for (int i = 0; i < D / 2; i++) {
        const double c = cos(p * m->frequencies[i]), s = sin(p * m->frequencies[i]);
        y[i] = c * x[i] - s * x[i + D / 2];
        y[i + D / 2] = s * x[i] + c * x[i + D / 2];
    }
}

TEST(expected) {
    enum { SINKS = 4, AHEAD = 512, N = T - SINKS };
    static double x[N][D];
    double s[T], want[T] = {0}, every[T] = {0}; /* of all positions, without norms */
    score(policy_rule_of(SCORE_EXPECTED_ATTENTION)->score, s, NULL);
    for (int q = 0; q < GROUP; q++) {
        double mean[D] = {0}, cov[D][D] = {{0}}, R[D][D] = {{0}}, mu[D] = {0}, turned[D][D] = {{0}},
               both[D][D] = {{0}}, logit[T], sum = 0, first = 0;
        for (int t = 0; t < N; t++) {
            double row[D];
            for (int i = 0; i < D; i++) { row[i] = (double)m->queries[q][t + SINKS][i]; }
            rotate(-(t + SINKS), row, x[t]);
            for (int i = 0; i < D; i++) { mean[i] += x[t][i] / N; }
        }
        for (int i = 0; i < N * D * D; i++) {
            const int t = i / D / D, a = i / D % D, c = i % D;
            cov[a][c] += (x[t][a] - mean[a]) * (x[t][c] - mean[c]) / N;
        }
        for (int p = 0; p < AHEAD * D; p++) {
            double unit[D] = {0}, column[D];
            unit[p % D] = 1;
            rotate(T + p / D, unit, column);
            for (int i = 0; i < D; i++) { R[i][p % D] += column[i] / AHEAD; }
        }
        for (int i = 0; i < D * D; i++) { mu[i / D] += R[i / D][i % D] * mean[i % D]; }
        for (int i = 0; i < D * D * D; i++) {
            turned[i / D / D][i / D % D] += R[i / D / D][i % D] * cov[i % D][i / D % D];
        }
        for (int i = 0; i < D * D * D; i++) {
            both[i / D / D][i / D % D] += turned[i / D / D][i % D] * R[i / D % D][i % D];
        }
        for (int t = 0; t < T; t++) {
            const float *k = m->keys[t];
            logit[t] = 0;
            for (int i = 0; i < D; i++) { logit[t] += (double)k[i] * mu[i] / sqrt(D); }
            for (int i = 0; i < D * D; i++) {
                logit[t] += (double)k[i / D] * both[i / D][i % D] * (double)k[i % D] / (2 * D);
            }
            *(t < SINKS ? &first : &sum) += exp(logit[t]);
        }
        for (int t = SINKS; t < T; t++) { want[t] += exp(logit[t]) / sum / GROUP * m->norms[t]; }
        for (int t = 0; t < T; t++) { every[t] += exp(logit[t]) / (sum + first) / GROUP; }
    }
    near(s, want, SINKS, T);
    forced(s, 0, SINKS);
    double scratch[T + D * (D + 1) * GROUP + 3 * D];
    assert_int_equal(expected_attention_scratch(T, D, GROUP), sizeof scratch / sizeof *scratch);
    expected_attention(&m->head, m->frequencies, 0, NULL, s, scratch);
    near(s, every, 0, T);
}

/* Equal scores are one, and know what the prefill has to show. */
TEST(shared) {
    CKVC_AUTO(head_scores_fini) head_scores h = {0};
    const head_score kvzip = policy_rule_of(SCORE_KVZIP)->score,
                     snapkv = policy_rule_of(SCORE_SNAPKV)->score;
    assert_int_equal(head_scores_add(&h, kvzip), 0);
    assert_int_equal(h.wanted.n_rows, 0);
    assert_int_equal(head_scores_add(&h, snapkv), 1);
    assert_int_equal(head_scores_add(&h, policy_rule_of(SCORE_TOVA)->score), 2);
    assert_int_equal(h.wanted.n_rows, 32);
    assert_int_equal(head_scores_add(&h, snapkv), 1);
    assert_false(h.wanted.queries || h.wanted.column_sum);
    assert_int_equal(head_scores_add(&h, policy_rule_of(SCORE_EXPECTED_ATTENTION)->score), 3);
    assert_int_equal(head_scores_add(&h, policy_rule_of(SCORE_H2O)->score), 4);
    assert_true(h.wanted.queries && h.wanted.column_sum);
}

RUN_TESTS(make, NULL)
