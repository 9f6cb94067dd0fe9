/* The next token: the nucleus against its definition, the draw's frequencies, its stream. */
#include "judge/generate/generate.h"
#include "tests/unit/unit.h"

enum { V = 6, N = 20000 };
/* probabilities 0.4, 0.25, 0.25, 0.06, 0.03, 0.01, in another order */
static const double p[V] = {0.25, 0.03, 0.4, 0.01, 0.25, 0.06};

/* How often each token is drawn, of N. */
static void draw(const token_choice *how, int count[V]) {
    ckvc_rng rng;
    float logits[V];
    token_weight scratch[V];
    ckvc_rng_init(&rng, 1, 2, 3);
    for (int i = 0; i < V; i++) {
        logits[i] = (float)(log(p[i]) + 3);
        count[i] = 0;
    }
    for (int i = 0; i < N; i++) {
        double nll;
        const int32_t id = token_draw(how, logits, V, &rng, scratch, &nll);
        assert_true(fabs(nll + log(p[id])) < 1e-6); /* at temperature 1, whatever it is drawn at */
        count[id]++;
    }
}

/* Within five standard deviations of a binomial. */
static void about(int count, double share) {
    assert_true(fabs(count - share * N) <= 5 * sqrt(N * share * (1 - share)));
}

TEST(nucleus) {
    int count[V];
    draw(&(token_choice){.temperature = 1, .top_p = 1}, count);
    for (int i = 0; i < V; i++) { about(count[i], p[i]); }
    /* 0.4 + 0.25 reach 0.6; of the two with 0.25 the lower id */
    draw(&(token_choice){.temperature = 1, .top_p = 0.6}, count);
    about(count[2], 0.4 / 0.65);
    assert_int_equal(count[0] + count[2], N);
    /* a token alone */
    draw(&(token_choice){.temperature = 1, .top_p = 0.39}, count);
    assert_int_equal(count[2], N);
    /* at half the temperature probabilities are squared */
    double sum = 0;
    for (int i = 0; i < V; i++) { sum += p[i] * p[i]; }
    draw(&(token_choice){.temperature = 0.5, .top_p = 1}, count);
    for (int i = 0; i < V; i++) { about(count[i], p[i] * p[i] / sum); }
}

RUN_TESTS(NULL, NULL)
