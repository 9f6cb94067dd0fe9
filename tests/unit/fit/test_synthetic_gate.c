/* The gate's side of a made-up calibration, through whole fits of shards: loss and penalty, risk
 * cells of very different sizes, cells without a prompt, unequal counts between actions.
 *
 * 2 layers, 3 x 2 risk cells, 3 budgets (the shards' fixture), 21 thresholds. Cell c has prompts[c]
 * prompts, the last none. An action's loss is a parabola around the state's best threshold; below
 * action 12 a threshold also pays for its candidates beyond the budget. What can act differs by
 * budget, as in a model: under the smallest no threshold changes a kept set (the loss is flat and
 * the penalty alone chooses), under the middle one both speak, under the largest there is nothing
 * to pay. Seeds are fixed: the rates below are exact. */
#include "tests/unit/cql/cql_fixture.h"
#include "tests/unit/fit_fixture.h"
#include "tests/unit/shard_fixture.h"

enum { L = 2, E = 3, P = 2, CELLS = E * P, NB = 3, A = CKVC_GATE_ACTIONS, FREE = 12, WORLDS = 6 };
enum { FLAT, BOTH, LOSS }; /* the budgets */

static const int prompts[CELLS] = {48, 30, 18, 14, 10, 0};
static const double effect = 0.01, /* nats between the best threshold and one 10 steps away */
    price = 0.001,                 /* nats per step below FREE */
    slope = 0.004,                 /* deviation over prompts of the value of 10 steps */
    noise = 0.002;                 /* of one record */

/* ---- the truth ---- */

static int state_of(int l, int cell, int b) { return (l * CELLS + cell) * NB + b; }

static int best_loss(int world, int state) {
    ckvc_rng rng = rng_of(200 + (uint64_t)world, (uint64_t)state, 1);
    return (int)ckvc_rng_below(&rng, A);
}

static double loss_gain(int world, int state, int a) {
    double off = (a - best_loss(world, state)) / 10.0;
    return state % NB == FLAT ? 0.0 : -effect * off * off;
}

static double penalty(int state, int a) {
    return state % NB != LOSS && a < FREE ? price * (FREE - a) : 0.0;
}

static double reward(int world, int state, int a) {
    return loss_gain(world, state, a) - penalty(state, a);
}

static int best(int world, int state) {
    int top = 0;
    for (int a = 1; a < A; a++) {
        top = reward(world, state, a) > reward(world, state, top) ? a : top;
    }
    return top;
}

/* ---- its shard ---- */

static void add_record(shard *s, int world, uint32_t prompt, int l, int cell, int b, int a,
                       double tilt, double base, ckvc_rng *rng) {
    int state = state_of(l, cell, b),
        start = ckvc_grid_index(s->h.side[CKVC_SIDE_GATE].actions, A,
                                s->h.side[CKVC_SIDE_GATE].start[state]);
    double gain = 0; /* what keeps the start's threshold, or cannot act, keeps the set */
    if (b != FLAT && a != start) {
        gain = loss_gain(world, state, a) - loss_gain(world, state, start) +
               tilt * (a - start) / 10 + noise * gauss(rng);
    }
    struct shard_record r = {.prompt = prompt,
                             .side = CKVC_SIDE_GATE,
                             .layer = (uint16_t)l,
                             .head = CKVC_NO_HEAD,
                             .budget = (uint16_t)b,
                             .action = (uint8_t)a,
                             .loss = base - gain,
                             .baseline = -(base - 2) - penalty(state, start)};
    r.reward = -(r.loss - 2) - penalty(state, a);
    shard_add_record(s, &r);
}

/* uniform: as many records of a state, of actions drawn at random, instead of its whole grid. */
static void write_world(int world, bool uniform, const char *path) {
    CKVC_AUTO(shard_free_at) shard *s = shard_create();
    uint32_t number = 0;
    assert_non_null(s);
    fixture_header(&s->h, "gate");
    for (int cell = 0; cell < CELLS; cell++) {
        for (int i = 0; i < prompts[cell]; i++, number++) {
            struct shard_prompt p = {.line = number + 1,
                                     .n_tokens = 100,
                                     .n_continuation = 16,
                                     .token_hash = number,
                                     .r_struct = 3,
                                     .r_sem = 10,
                                     .loss_full = 2,
                                     .bin_entropy = (uint16_t)(cell / P),
                                     .bin_ppl = (uint16_t)(cell % P)};
            ckvc_rng rng;
            snprintf(p.id, sizeof p.id, "w%d-%u", world, number);
            ckvc_rng_init(&rng, 300 + (uint64_t)world, number, 2);
            const size_t at = shard_add_prompt(s, &p);
            for (int b = 0; b < NB; b++) {
                struct shard_baseline base = {.prompt = (uint32_t)at,
                                              .budget = (uint16_t)b,
                                              .loss = 2 + 0.3 * fabs(gauss(&rng))};
                shard_add_baseline(s, &base);
                for (int l = 0; l < L; l++) {
                    double tilt = slope * gauss(&rng);
                    for (int a = 0; a < A; a++) {
                        int of = uniform ? (int)ckvc_rng_below(&rng, A) : a;
                        add_record(s, world, (uint32_t)at, l, cell, b, of, tilt, base.loss, &rng);
                    }
                }
            }
        }
    }
    write_shard(s, path);
}

static fit_result *fit_world(int world, bool uniform) {
    const fit_options o = fit_defaults();
    const char *path = in_temp_folder("world.h5");
    fit_result *r = NULL;
    remove(path);
    write_world(world, uniform, path);
    OK(fit_records(&path, 1, &o, &r, &err));
    return r;
}

static int action_of(const fit_result *r, int l, int cell, int b) {
    const ckvc_table *t = r->table->table;
    return ckvc_grid_index(t->gate_grid, A, t->tau[state_of(l, cell, b)]);
}

/* ---- rates ---- */

typedef struct tally {
    int n[NB], near[NB];
    double lost[NB], possible[NB]; /* of the reward between the best threshold and the one of a
                                      table that knows nothing */
} tally;

static void count(const fit_result *r, int world, tally *t) {
    for (int l = 0; l < L; l++) {
        for (int cell = 0; cell + 1 < CELLS; cell++) {
            for (int b = 0; b < NB; b++) {
                int state = state_of(l, cell, b), a = action_of(r, l, cell, b),
                    top = best(world, state);
                t->n[b]++;
                t->near[b] += abs(a - top) <= 3;
                t->lost[b] += reward(world, state, top) - reward(world, state, a);
                t->possible[b] += reward(world, state, top) - reward(world, state, CKVC_GATE_START);
            }
        }
    }
}

/* Balanced logs: the penalty's own answer exactly where it alone speaks, elsewhere the best of
 * both. Measured: 60 of 60 in each, of the reward 0, 5.7% and 4.8% lost. */
TEST(the_best_thresholds_are_found) {
    tally t = {0};
    for (int world = 0; world < WORLDS; world++) {
        CKVC_AUTO(fit_result_free_at) fit_result *r = fit_world(world, false);
        const fitted_side *gate = &r->sides[CKVC_SIDE_GATE];
        assert_int_equal(gate->why.n_supported, L * (CELLS - 1) * NB);
        assert_int_equal(gate->why.n_alpha, 0);
        for (int l = 0; l < L; l++) {
            for (int cell = 0; cell + 1 < CELLS; cell++) {
                assert_int_equal(action_of(r, l, cell, FLAT), FREE); /* the lowest that is free */
                for (int a = 0; a < A; a++) {
                    size_t at = (size_t)state_of(l, cell, BOTH) * A + (size_t)a;
                    assert_int_equal(r->table->evidence[CKVC_SIDE_GATE].n[at], prompts[cell]);
                }
            }
        }
        assert_int_equal(decided_sum(&gate->why, FLAT).flat, L * (CELLS - 1));
        assert_int_equal(decided_sum(&gate->why, FLAT).by_loss, 0);
        assert_int_equal(decided_sum(&gate->why, LOSS).by_loss, L * (CELLS - 1));
        assert_int_equal(decided_sum(&gate->why, BOTH).flat + decided_sum(&gate->why, LOSS).flat,
                         0);
        assert_true(decided_sum(&gate->why, BOTH).by_loss < L * (CELLS - 1));
        count(r, world, &t);
    }
    for (int b = 0; b < NB; b++) {
        print_message("budget %d: within 3 steps of the best %d of %d, %.3f of the reward lost\n",
                      b, t.near[b], t.n[b], t.lost[b] / t.possible[b]);
    }
    for (int b = BOTH; b <= LOSS; b++) {
        assert_true(t.near[b] >= t.n[b] * 85 / 100);
        assert_true(t.lost[b] <= 0.10 * t.possible[b]);
    }
}

/* As many records drawn uniformly, 10 +- 3 an action of the smallest cell. Where only the penalty
 * speaks, counts alone miss the best in half of the cells. Measured within 3 steps: 32, 57, 56 of
 * 60; of the reward 5%, 13% and 14% lost; 140 of 180 choices by alpha. */
TEST(unequal_counts_cost_rewards) {
    tally t = {0};
    size_t by_alpha = 0;
    for (int world = 0; world < WORLDS; world++) {
        CKVC_AUTO(fit_result_free_at) fit_result *r = fit_world(world, true);
        by_alpha += r->sides[CKVC_SIDE_GATE].why.n_alpha;
        assert_true(r->sides[CKVC_SIDE_GATE].count_noise > 0);
        count(r, world, &t);
    }
    for (int b = 0; b < NB; b++) {
        print_message(
            "uniform, budget %d: within 3 steps of the best %d of %d, %.3f of the reward lost\n", b,
            t.near[b], t.n[b], t.lost[b] / t.possible[b]);
    }
    print_message("by alpha: %zu of %d\n", by_alpha, 3 * t.n[0]);
    assert_true(by_alpha >= (size_t)(3 * t.n[0] / 4));
    assert_true(t.near[FLAT] <= t.n[FLAT] * 3 / 4);
    for (int b = BOTH; b <= LOSS; b++) {
        assert_true(t.near[b] >= t.n[b] * 85 / 100);
        assert_true(t.lost[b] >= 0.08 * t.possible[b] && t.lost[b] <= 0.25 * t.possible[b]);
    }
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
