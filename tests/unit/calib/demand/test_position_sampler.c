/* What a score pass logs, on the embedded 4-layer model and the prompts of tests/golden/budgets. */
#include "calib/demand/position_sampler.h"
#include "tests/unit/golden_rig.h"

enum { L = 4, G = 3, HEADS = L * G, F = 56, ALL = 512, FEW = 32 };

/* A prompt's row under P positions, and who was logged. */
typedef struct measured {
    shard *rows;
    uint32_t sample[HEADS][ALL];
    double target[HEADS][ALL];
} measured;

static void measure(measured *out, const calibrate_inputs *in, const prompt *p,
                    const demand_options *o, uint32_t positions) {
    worker w = {0};
    demand_meter meter = {0}, *m = &meter;
    worker *one = &w;
    position_sampler s;
    worker_options options = {.setting = o->setting};
    bool finite = false;
    demand_need(o, in, &options);
    position_sampler_need(positions, in, &options);
    OK(worker_open(&w, in, &options, NULL, &err));
    OK(demand_meter_open(&meter, o, in, &err));
    position_sampler_open(&s, positions, in);
    assert_int_equal(s.n_features, F);
    out->rows = shard_create();
    shard_header *h = &out->rows->h;
    h->n_layers = L;
    h->n_heads = 2 * G;
    h->n_kv_heads = G;
    h->setting.positions = positions;
    h->setting.n_features = F;
    snprintf(h->pass, sizeof h->pass, "score");
    const struct shard_prompt none = {.id = "p"};
    shard_add_prompt(out->rows, &none);
    shard_add_prompt(out->rows, &none); /* the second row is the one that is filled */
    w.watcher = &s.watcher;
    OK(demand_measure(&m, &one, &p, 1, &err));
    OK(position_sampler_measure(&s, &(measured_prompt){m, &w, p}, out->rows, 1, &finite, &err));
    assert_true(finite);
    for (int i = 0; i < HEADS; i++) {
        memcpy(out->sample[i], s.sample + (size_t)i * positions, positions * sizeof(uint32_t));
        memcpy(out->target[i], s.target + (size_t)i * p->n_tokens, p->n_tokens * sizeof(double));
    }
    position_sampler_close(&s);
    demand_meter_close(&meter);
    worker_close(&w);
}

static const float *logged(const measured *m, int head, uint32_t i) {
    const uint32_t P = m->rows->h.setting.positions;
    return m->rows->features + (((size_t)HEADS + (size_t)head) * P + i) * F;
}

/* Every position logged: targets are the sum of the file's two, and the sums of features theirs. */
static void check_all(const measured *m, size_t prompt, uint32_t T) {
    const bool both = json_array_size(of_prompt(prompt, "continuation")) > 1;
    for (int head = 0; head < HEADS; head++) {
        double want[ALL] = {0}, mass = 0;
        for (int kind = 0; kind < 1 + both; kind++) {
            const json_t *of = of_prompt(prompt, kind ? "y_c" : "y_r");
            CKVC_AUTO_FREE double *y = golden_numbers(cell_of(of, head / G, head % G));
            double sum = 0;
            for (uint32_t t = 0; t < T; t++) { sum += y[t]; }
            for (uint32_t t = 0; t < T; t++) { want[t] += y[t] / sum; }
            mass = kind ? mass : sum;
        }
        const size_t at = HEADS + (size_t)head;
        assert_true(fabs(m->rows->mass[at] - mass) <= 4e-6 * T); /* a y's, test_targets */
        assert_true(fabs(m->rows->target[at] - (1 + both)) <= 1e-12);
        double sums[F] = {0};
        for (uint32_t t = 0; t < T; t++) {
            assert_int_equal(m->sample[head][t], t);
            /* of two shares of sums from 0.08 up, whose terms have up to 4e-6; 8e-7 is seen */
            assert_true(fabs(m->target[head][t] - want[t]) <= 2e-5);
            for (int k = 0; k < F; k++) {
                sums[k] += m->target[head][t] * (double)logged(m, head, t)[k];
            }
        }
        for (int k = 0; k < F; k++) { /* those are of features in double */
            const double got = m->rows->target_features[at * F + (size_t)k];
            assert_true(fabs(got - sums[k]) <= 1e-6 * (1 + fabs(sums[k])));
        }
    }
}

/* Few positions: the highest targets first, then others, none twice; each with its own features. */
static void check_few(const measured *few, const measured *all, uint32_t T) {
    for (int head = 0; head < HEADS; head++) {
        bool seen[ALL] = {false};
        double least = 2, most = 0;
        int n_ends = 0;
        for (uint32_t i = 0; i < FEW; i++) {
            const uint32_t t = few->sample[head][i];
            const double y = few->target[head][t];
            assert_true(t < T && !seen[t]);
            seen[t] = true;
            const bool at_end = t < 4 || T - t <= 8;
            if (i < FEW / 2 && !at_end) { least = y < least ? y : least; }
            n_ends += i < FEW / 2 && at_end;
            if (i >= FEW / 2) { most = y > most ? y : most; }
            assert_memory_equal(logged(few, head, i), logged(all, head, t), F * sizeof(float));
        }
        /* nobody who was left out is higher */
        for (uint32_t t = 0; t < T; t++) { assert_true(seen[t] || few->target[head][t] <= least); }
        assert_true(n_ends == 12 && most <= least);
    }
    assert_memory_equal(few->rows->target_features + HEADS * F,
                        all->rows->target_features + HEADS * F, HEADS * F * sizeof(double));
}

TEST(golden) {
    rig_open(bench_open_kind("cpu", 2), "models/ckvc-tiny-4l",
             "tests/golden/budgets/ckvc-tiny-4l.json");
    for (size_t i = 0; i < rig.prompts->n; i++) {
        prompt_list list = {.items = &rig.items[i]};
        prompts_add(&list);
        const calibrate_inputs in = {.model = rig.m, .backend = rig.b.be, .prompts = &list};
        const demand_options o = {.setting = {.window = 64, .seed = 5},
                                  .instruction = rig.instruction,
                                  .n_instruction = (uint32_t)rig.n_instruction};
        static measured all, few, again;
        measure(&all, &in, list.items, &o, ALL);
        check_all(&all, i, list.max_tokens);
        measure(&few, &in, list.items, &o, FEW);
        check_few(&few, &all, list.max_tokens);
        measure(&again, &in, list.items, &o, FEW);
        assert_memory_equal(few.sample, again.sample, sizeof few.sample);
        shard_free(all.rows), shard_free(few.rows), shard_free(again.rows);
    }
    rig_close();
}

RUN_TESTS(NULL, NULL)
