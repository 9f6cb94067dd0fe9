/* A prompt's demand against an independent float64 program (tests/golden/budgets/README.md): the
 * embedded 4-layer model, from ids to entries of every head. */
#include "calib/demand/demand_meter.h"
#include "tests/unit/golden_model.h"
#include "tests/unit/load_tokenizer.h"

enum { L = 4, G = 3, N_BUDGETS = 3 };

/* Of a prompt, budgets that the file has entries for. */
static const double budgets[N_BUDGETS] = {12, 24, 48};

typedef struct golden_case {
    bench b;
    json_t *root;
    int32_t *instruction;
    int64_t n_instruction;
} golden_case;

static golden_case open_case(int threads) {
    golden_case c = {.b = bench_open_kind("cpu", threads)};
    OK(model_open_path("models/ckvc-tiny-4l", c.b.be, &c.b.m, &err));
    c.root = golden_read("tests/golden/budgets/ckvc-tiny-4l.json");
    c.instruction = golden_ids(json_object_get(c.root, "instruction"), &c.n_instruction);
    return c;
}

static void close_case(golden_case *c) {
    free(c->instruction);
    json_decref(c->root);
    bench_close(&c->b);
}

/* The prompts of the file, longest first or last: a worker is sized for the longest. */
static prompt_list *prompts_of(const golden_case *c) {
    const json_t *from = json_object_get(c->root, "prompts"), *p;
    prompt_list *list = ckvc_calloc(1, sizeof *list);
    list->items = ckvc_calloc(json_array_size(from), sizeof *list->items);
    size_t i;
    json_array_foreach(from, i, p) {
        int64_t T, C;
        int32_t *tokens = golden_tokens(p, &T, &C);
        list->items[i] =
            (prompt){.tokens = tokens, .n_tokens = (uint32_t)T, .n_continuation = (uint32_t)C};
        prompts_add(list);
    }
    return list;
}

typedef struct measured {
    uint32_t heads[N_BUDGETS][L][G], layers[N_BUDGETS][L];
} measured;

/* Entries of heads with a weight w are those of the scores that the header says. */
static void check_mixed(demand_meter *m, uint32_t n, double w) {
    const size_t all = (size_t)L * G * n;
    CKVC_AUTO_FREE double *score = ckvc_alloc(all, sizeof *score);
    CKVC_AUTO(demand_ranks_fini) demand_ranks ranks;
    static uint32_t got[N_BUDGETS][L * G], layers[N_BUDGETS][L], want[L * G];
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
    demand_entries(m, n, w, got[0], layers[0]);
    for (int b = 0; b < N_BUDGETS; b++) {
        demand_count(&ranks, (uint32_t)budgets[b], 0.2, 8, want);
        int off = 0; /* two rounded scores may be taken for equal */
        for (int i = 0; i < L * G; i++) { off += abs((int)want[i] - (int)got[b][i]); }
        assert_true(off <= 2);
    }
}

/* All prompts, one by one on one worker -> out [prompts]; of their repetition or continuation. */
static void measure(golden_case *c, const prompt_list *list, bool repeat, measured *out) {
    const calibrate_inputs in = {.model = c->b.m, .backend = c->b.be, .prompts = list};
    setting s = setting_neutral();
    s.window = 16;
    s.floor = 0.2;
    s.recent = 8;
    s.budgets = (setting_list){budgets, N_BUDGETS};
    const demand_options o = {s, c->instruction, repeat ? (uint32_t)c->n_instruction : 0};
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
        demand_entries(&m, n, 0, &out[i].heads[0][0][0], &out[i].layers[0][0]);
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
    CKVC_AUTO(close_case) golden_case c = open_case(2);
    CKVC_AUTO(prompts_free_at) prompt_list *list = prompts_of(&c);
    measured got[8];
    uint32_t off = 0;
    assert_in_range(list->n, 1, 8);
    measure(&c, list, true, got);
    for (size_t i = 0; i < list->n; i++) {
        const json_t *demand =
            json_object_get(json_array_get(json_object_get(c.root, "prompts"), i), "demand");
        for (int b = 0; b < N_BUDGETS; b++) {
            char key[8];
            snprintf(key, sizeof key, "%.0f", budgets[b]);
            CKVC_AUTO_FREE double *want = golden_numbers(json_object_get(demand, key));
            uint32_t sum = 0, of_layers = 0;
            for (size_t l = 0; l < L; l++) { of_layers += got[i].layers[b][l]; }
            for (size_t h = 0; h < L * G; h++) {
                const uint32_t n = got[i].heads[b][h / G][h % G];
                assert_true(want[h] > 0);
                sum += n;
                off += (uint32_t)fabs(want[h] - n);
            }
            assert_int_equal(sum, L * G * budgets[b]);
            assert_int_equal(of_layers, L * budgets[b]);
        }
    }
    assert_in_range(off, 0, 4);
}

/* One thread or three, one prompt or several: the same entries; and another target gives others. */
TEST(same) {
    measured one[8] = {0}, three[8] = {0}, alone[8] = {0}, next[8] = {0};
    golden_case c = open_case(1);
    CKVC_AUTO(prompts_free_at) prompt_list *list = prompts_of(&c);
    measure(&c, list, true, one);
    measure(&c, list, false, next);
    prompt_list first = *list;
    first.n = 1;
    first.max_tokens = list->items[0].n_tokens;
    first.max_continuation = list->items[0].n_continuation;
    measure(&c, &first, true, alone);
    close_case(&c);
    c = open_case(3);
    measure(&c, list, true, three);
    assert_memory_equal(one, three, sizeof one);
    assert_memory_equal(one, alone, sizeof *one);
    assert_memory_not_equal(one, next, sizeof *one);
    assert_int_equal(next[2].heads[0][0][0], 0); /* a continuation of one token has no row */
    close_case(&c);
}

/* What the program puts before a prompt's repetition is what the other program put there. */
TEST(instruction) {
    static const char text[] = "\n\nRepeat the previous context exactly.";
    CKVC_AUTO(close_case) golden_case c = open_case(1);
    CKVC_AUTO(tokenizer_free_at) tokenizer *tok = NULL;
    CKVC_AUTO_FREE int32_t *ids = NULL;
    size_t n;
    OK(load_tokenizer("models/ckvc-tiny-4l", &tok, &err));
    OK(tokenizer_encode(tok, text, strlen(text), false, &ids, &n, &err));
    assert_int_equal(n, c.n_instruction);
    assert_memory_equal(ids, c.instruction, n * sizeof *ids);
}

TEST(longest) {
    assert_int_equal(repeat_longest(2048, 9), 1019);  /* twice, and the instruction */
    assert_int_equal(repeat_longest(5300, 10), 3242); /* in chunks of 2,048 */
    assert_true(repeat_longest(8, 9) < 1);
}

RUN_TESTS(NULL, NULL)
