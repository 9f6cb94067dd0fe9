/* A prompt's demand against an independent float64 program (tests/golden/budgets/README.md): the
 * embedded 4-layer model, from ids to entries of every head. */
#include "calib/demand/demand_meter.h"
#include "tests/unit/golden_rig.h"
#include "tests/unit/load_tokenizer.h"

enum { L = 4, G = 3, N_BUDGETS = 3 };

/* Of a prompt, budgets that the file has entries for. */
static const double budgets[N_BUDGETS] = {12, 24, 48};

/* With so many threads. */
static void open_case(int threads) {
    rig_open(bench_open_kind("cpu", threads), "models/ckvc-tiny-4l",
             "tests/golden/budgets/ckvc-tiny-4l.json");
}

typedef struct measured {
    uint32_t heads[N_BUDGETS][L][G], layers[N_BUDGETS][L], lengths[N_BUDGETS][L];
} measured;

/* Entries of heads with a weight w are those of the scores that the header says. */
static void check_mixed(demand_meter *m, uint32_t n, double w) {
    const size_t all = (size_t)L * G * n;
    CKVC_AUTO_FREE double *score = ckvc_alloc(all, sizeof *score);
    CKVC_AUTO(demand_ranks_fini) demand_ranks ranks;
    static uint32_t got[N_BUDGETS][L * G], layers[2][N_BUDGETS][L], want[L * G];
    double of_c = 0, of_r = 0;
    for (size_t i = 0; i < all; i++) {
        of_c += m->y_c[i];
        of_r += m->y_r[i];
    }
    for (size_t i = 0; i < all; i++) {
        score[i] = w / of_c * m->y_c[i] + (1 - w) / of_r * m->y_r[i];
    }
    demand_ranks_init(&ranks, L * G, n);
    demand_rank(&ranks, score, L * G, n);
    demand_entries(m, n, w, got[0], layers[0][0], layers[1][0]);
    for (int b = 0; b < N_BUDGETS; b++) {
        demand_count(&ranks, (uint32_t)budgets[b], 0.2, 8, want);
        int off = 0; /* two rounded scores may be taken for equal */
        for (int i = 0; i < L * G; i++) { off += abs((int)want[i] - (int)got[b][i]); }
        assert_true(off <= 2);
    }
}

/* All prompts, one by one on one worker -> out [prompts]; of their repetition or continuation. */
static void measure(const prompt_list *list, bool repeat, measured *out) {
    const calibrate_inputs in = {.model = rig.m, .backend = rig.b.be, .prompts = list};
    setting s = setting_neutral();
    s.window = 16;
    s.floor = 0.2;
    s.recent = 8;
    s.budgets = (setting_list){budgets, N_BUDGETS};
    const demand_options o = {s, rig.instruction, repeat ? (uint32_t)rig.n_instruction : 0};
    worker_options options = {.setting = s};
    demand_meter m, *meter = &m;
    worker w, *one = &w;
    demand_need(&o, &in, &options);
    OK(worker_open(&w, &in, &options, NULL, &err));
    OK(demand_meter_open(&m, &o, &in, &err));
    for (size_t i = 0; i < list->n; i++) {
        const prompt *p = &list->items[i];
        if (!repeat && p->n_continuation < 2) { continue; }
        bool finite;
        OK(demand_measure(&meter, &one, &p, 1, &err));
        OK(demand_weigh(&m, &w, &finite, &err));
        assert_true(finite);
        const uint32_t n = p->n_tokens;
        const double *y = repeat ? m.y_r : m.y_c;
        CKVC_AUTO_FREE double *most = ckvc_calloc((size_t)L * n, sizeof *most);
        for (size_t k = 0; k < (size_t)L * G * n; k++) { /* of each layer's heads */
            double *of = &most[k / (G * n) * n + k % n];
            *of = y[k] > *of ? y[k] : *of;
        }
        for (int k = 1; repeat && p->n_continuation > 1 && k < 4; k++) {
            check_mixed(&m, n, k / 4.0);
        }
        demand_entries(&m, n, 0, &out[i].heads[0][0][0], &out[i].layers[0][0],
                       &out[i].lengths[0][0]);
        CKVC_AUTO(demand_ranks_fini) demand_ranks layers;
        demand_ranks_init(&layers, L, n);
        demand_rank(&layers, most, L, n);
        for (int b = 0; b < N_BUDGETS; b++) {
            uint32_t want[L];
            demand_count(&layers, (uint32_t)budgets[b], 0.2, 8, want);
            assert_memory_equal(want, out[i].layers[b], sizeof want);
        }
    }
    demand_meter_close(&m);
    worker_close(&w);
}

/* Entries, exactly but for positions whose scores differ by less than float32 can tell: at most
 * two entries, so four heads one off, of all prompts and budgets. */
TEST(golden) {
    measured got[MOST_PROMPTS];
    uint32_t off = 0;
    bool differ = false; /* lengths from layers */
    open_case(2);
    measure(rig.prompts, true, got);
    for (size_t i = 0; i < rig.prompts->n; i++) {
        for (int b = 0; b < N_BUDGETS; b++) {
            CKVC_AUTO_FREE double *want =
                golden_numbers(of_budget(of_prompt(i, "demand"), budgets[b]));
            uint32_t sum = 0, of_layers = 0, of_slots = 0;
            for (size_t l = 0; l < L; l++) {
                of_layers += got[i].layers[b][l];
                of_slots += got[i].lengths[b][l];
            }
            for (size_t h = 0; h < L * G; h++) {
                const uint32_t n = got[i].heads[b][h / G][h % G];
                assert_true(want[h] > 0);
                sum += n;
                off += (uint32_t)fabs(want[h] - n);
            }
            assert_int_equal(sum, L * G * budgets[b]);
            assert_int_equal(of_layers, L * budgets[b]);
            assert_int_equal(of_slots, L * budgets[b]);
            differ |= memcmp(got[i].lengths[b], got[i].layers[b], sizeof got[i].layers[b]) != 0;
        }
    }
    assert_in_range(off, 0, 4);
    assert_true(differ);
    rig_close();
}

/* One thread or three, one prompt or several: the same entries; and another target gives others. */
TEST(same) {
    enum { N = MOST_PROMPTS };
    measured one[N] = {0}, three[N] = {0}, alone[1] = {0}, next[N] = {0};
    open_case(1);
    measure(rig.prompts, true, one);
    measure(rig.prompts, false, next);
    prompt_list first = {.items = rig.items};
    prompts_add(&first);
    measure(&first, true, alone);
    rig_close();
    open_case(3);
    measure(rig.prompts, true, three);
    assert_memory_equal(one, three, sizeof one);
    assert_memory_equal(one, alone, sizeof *one);
    assert_memory_not_equal(one, next, sizeof *one);
    assert_int_equal(next[2].heads[0][0][0], 0); /* a continuation of one token has no row */
    rig_close();
}

/* What the program puts before a prompt's repetition is what the other program put there. */
TEST(instruction) {
    static const char text[] = "\n\nRepeat the previous context exactly.";
    CKVC_AUTO(tokenizer_free_at) tokenizer *tok = NULL;
    CKVC_AUTO_FREE int32_t *ids = NULL;
    size_t n;
    open_case(1);
    OK(load_tokenizer("models/ckvc-tiny-4l", &tok, &err));
    OK(tokenizer_encode(tok, text, strlen(text), false, &ids, &n, &err));
    assert_int_equal(n, rig.n_instruction);
    assert_memory_equal(ids, rig.instruction, n * sizeof *ids);
    rig_close();
}

TEST(longest) {
    assert_int_equal(repeat_longest(2048, 9), 1019);  /* twice, and the instruction */
    assert_int_equal(repeat_longest(5300, 10), 3242); /* in chunks of 2,048 */
    assert_true(repeat_longest(8, 9) < 1);
}

RUN_TESTS(NULL, NULL)
