/* Decoding from caches that hold only what is kept: against session_continue under the same sets,
 * which is held against transformers elsewhere; alone and in a batch. */
#include "lib/base/hash.h"
#include "lib/model/decoder.h"
#include "tests/unit/golden_model.h"
#include "tests/unit/unit.h"

enum { C = 70, MOST_T = 180, MAX_L = 8, MAX_G = 8, PROMPTS = 3 };

/* Prompts of other lengths and ids. */
static void fill_ids(int32_t *ids, int64_t n, int step, int32_t vocab) {
    for (int64_t i = 0; i < n; i++) { ids[i] = (int32_t)((i * step + i * i * 7) % vocab); }
}

/* What one sequence keeps: head g of layer l about one position in 2 + (l + g) % 4, one head of
 * each layer none; `shared`: the heads of a layer together. */
typedef struct some_sets {
    uint32_t offsets[MAX_L][MAX_G + 1], *positions[MAX_L];
    kept_set sets[MAX_L];
    int64_t entries;
} some_sets;

static void sets_fill(some_sets *s, const model_shape *shape, int64_t T, bool shared) {
    ckvc_rng rng;
    const int32_t n_sets = shared ? 1 : shape->n_kv_heads;
    ckvc_rng_init(&rng, 5, (uint64_t)T, shared);
    *s = (some_sets){0};
    for (int32_t l = 0; l < shape->n_layers; l++) {
        uint32_t n = 0;
        s->positions[l] = ckvc_alloc((size_t)(n_sets * T), sizeof(uint32_t));
        for (int32_t g = 0; g < n_sets; g++) {
            for (uint32_t t = 0; t < T && (shared || g != l % n_sets); t++) {
                if (ckvc_rng_below(&rng, (uint64_t)(2 + (l + g) % 4)) == 0) {
                    s->positions[l][n++] = t;
                }
            }
            s->offsets[l][g + 1] = n;
        }
        s->sets[l] = (kept_set){n_sets, s->offsets[l], s->positions[l]};
        s->entries += shared ? (int64_t)n * shape->n_kv_heads : n;
    }
}

static void sets_fini(some_sets *s) {
    for (int l = 0; l < MAX_L; l++) { free(s->positions[l]); }
}

/* -log softmax(logits)[target], in double. */
static double loss(const float *logits, int32_t n, int32_t target) {
    double top = -INFINITY, sum = 0;
    for (int32_t v = 0; v < n; v++) { top = (double)logits[v] > top ? (double)logits[v] : top; }
    for (int32_t v = 0; v < n; v++) { sum += exp((double)logits[v] - top); }
    return log(sum) + top - (double)logits[target];
}

/* A model and PROMPTS sequences that hold what is kept of their prompts, with the losses of their
 * continuations as session_continue has them. */
typedef struct scene {
    bench b;
    model *m;
    const model_shape *shape;
    sequence *sequences[PROMPTS];
    int32_t ids[PROMPTS][MOST_T + C];
    double nll[PROMPTS][C];
    float *first; /* [PROMPTS][V] logits behind the prompts */
} scene;

static const int64_t prompt_tokens[PROMPTS] = {MOST_T, 97, 150};

static void scene_open(scene *s, const char *kind, const char *path, int n_threads) {
    session *one;
    *s = (scene){.b = bench_open_kind(kind, n_threads)};
    OK(model_open_path(path, s->b.be, &s->m, &err));
    s->shape = model_get_shape(s->m);
    const session_limits limits = {.max_prompt = MOST_T, .max_continuation = C, .max_window = 8};
    OK(sessions_create(s->m, limits, 1, &one, &err));
    s->first = ckvc_alloc((size_t)(PROMPTS * s->shape->vocab), sizeof *s->first);
    for (int i = 0; i < PROMPTS; i++) {
        const int64_t T = prompt_tokens[i];
        some_sets kept;
        prefill_stats stats;
        fill_ids(s->ids[i], T + C, 13 + 2 * i, s->shape->vocab);
        sets_fill(&kept, s->shape, T, i == 1);
        const kept_set *sets = i == 2 ? NULL : kept.sets;
        const prefill_input in = {.tokens = s->ids[i], .n = T, .n_total = T + C, .window = 8};
        OK(sessions_prefill(&(prefill_job){one, in, &stats}, 1, &err));
        OK(sessions_next_logits(&one, 1, s->first + i * s->shape->vocab, &err));
        OK(session_continue(one, s->ids[i] + T, C, sets, s->nll[i], &err));
        OK(sequence_create(one, sets, C, &s->sequences[i], &err));
        const int64_t units = (int64_t)s->shape->n_layers * s->shape->n_kv_heads,
                      entries = sets ? kept.entries : units * T;
        assert_int_equal(sequence_entries(s->sequences[i]), entries);
        assert_int_equal(sequence_bytes(s->sequences[i]),
                         (size_t)((entries + units * C) * 2 * s->shape->head_dim) * sizeof(float));
        sets_fini(&kept);
    }
    session_destroy(one); /* what is kept is the sequences' own */
}

static void scene_close(scene *s) {
    for (int i = 0; i < PROMPTS; i++) { sequence_free(s->sequences[i]); }
    free(s->first);
    model_close(s->m);
    bench_close(&s->b);
}

/* Feeds the continuations of sequences from ... from + n - 1 side by side; logits [n][C][V], the
 * first those behind the prompt. */
static void decode(scene *s, int from, int n, float *logits) {
    decoder *d;
    const size_t V = (size_t)s->shape->vocab;
    CKVC_AUTO_FREE float *step = ckvc_alloc((size_t)n * V, sizeof *step);
    OK(decoder_create(s->m, n, &d, &err));
    for (int i = 0; i < n; i++) {
        memcpy(logits + (size_t)i * C * V, s->first + (size_t)(from + i) * V, V * sizeof *logits);
    }
    for (int c = 0; c + 1 < C; c++) {
        int32_t tokens[PROMPTS];
        for (int i = 0; i < n; i++) { tokens[i] = s->ids[from + i][prompt_tokens[from + i] + c]; }
        OK(decoder_step(d, s->sequences + from, tokens, n, step, &err));
        for (int i = 0; i < n; i++) {
            memcpy(logits + ((size_t)i * C + (size_t)c + 1) * V, step + (size_t)i * V,
                   V * sizeof *logits);
        }
    }
    decoder_destroy(d);
}

/* Losses from the logits are session_continue's: the logits are the same bits with kernels of ours,
 * and the sum over the vocabulary is in double here and by pieces in float there, some 1e-7. With
 * OpenBLAS other shapes of calls round otherwise. */
static void against_continue(const char *kind, const char *path, double tolerance) {
    scene s;
    worst w = {"nll", 0};
    scene_open(&s, kind, path, 2);
    const size_t V = (size_t)s.shape->vocab;
    CKVC_AUTO_FREE float *logits = ckvc_alloc(PROMPTS * C * V, sizeof *logits);
    decode(&s, 0, PROMPTS, logits);
    for (int i = 0; i < PROMPTS; i++) {
        for (int c = 0; c < C; c++) {
            const int32_t target = s.ids[i][prompt_tokens[i] + c];
            compare(&w, loss(logits + ((size_t)i * C + (size_t)c) * V, (int32_t)V, target),
                    s.nll[i][c], tolerance);
        }
    }
    worst_print(s.b.be->kernel, &w, 1);
    scene_close(&s);
}

TEST(continuation) {
    against_continue("cpu", "models/ckvc-tiny-4l", 2e-6);
    against_continue("openblas", "models/ckvc-tiny-4l", 2e-5);
}

/* Windows of other lengths than the prompt's hide kept positions, then the sequence's own. */
TEST(sliding_window) {
    against_continue("cpu", "tests/golden/models/mistral-swa", 2e-6);
    against_continue("cpu", "tests/golden/models/qwen2", 2e-6);
}

TEST(batches) {
    float *logits[3];
    size_t size = 0;
    for (int way = 0; way < 3; way++) { /* one thread, all together; three threads; one by one */
        scene s;
        scene_open(&s, "cpu", "models/ckvc-tiny-4l", way == 1 ? 3 : 1);
        const size_t each = (size_t)C * (size_t)s.shape->vocab;
        size = PROMPTS * each * sizeof(float);
        logits[way] = ckvc_alloc(size, 1);
        if (way < 2) {
            decode(&s, 0, PROMPTS, logits[way]);
        } else {
            for (int i = 0; i < PROMPTS; i++) { decode(&s, i, 1, logits[way] + (size_t)i * each); }
        }
        scene_close(&s);
    }
    assert_memory_equal(logits[0], logits[1], size);
    assert_memory_equal(logits[0], logits[2], size);
    for (int way = 0; way < 3; way++) { free(logits[way]); }
}

enum { MANY = 130, STEPS = 2, SESSIONS = 3 };

/* Greedy tokens and their losses of sequences from ... from + n - 1, side by side; sequence i holds
 * what is kept of session i % 3's prompt. */
static void decode_greedy(model *m, session *const *sessions, int from, int n,
                          double out[][STEPS][2]) {
    decoder *d;
    sequence *sequences[MANY];
    int32_t tokens[MANY];
    be_greedy next[MANY];
    for (int i = 0; i < n; i++) {
        const int id = from + i;
        some_sets kept;
        sets_fill(&kept, model_get_shape(m), prompt_tokens[id % SESSIONS], id % 2);
        OK(sequence_create(sessions[id % SESSIONS], kept.sets, STEPS, &sequences[i], &err));
        sets_fini(&kept);
        tokens[i] = 5 + 3 * id;
    }
    OK(decoder_create(m, n, &d, &err));
    for (int step = 0; step < STEPS; step++) {
        OK(decoder_step_greedy(d, sequences, tokens, n, next, &err));
        for (int i = 0; i < n; i++) {
            tokens[i] = next[i].id;
            out[i][step][0] = next[i].id;
            out[i][step][1] = next[i].nll;
        }
    }
    for (int i = 0; i < n; i++) { sequence_free(sequences[i]); }
    decoder_destroy(d);
}

/* A sequence's tokens and losses are the same bits alone and beside up to 129 others, in another
 * place; and a continuation's losses in a session made for longer prompts than one tile. */
TEST(any_batch) {
    static const struct { int from, n; } runs[] = {{65, 65}, {0, 64}, {57, 16}, {3, 1}, {129, 1}};
    static double all[MANY][STEPS][2], some[MANY][STEPS][2];
    bench b = bench_open(2);
    model *m;
    session *sessions[SESSIONS], *small;
    prefill_stats stats;
    int32_t ids[MOST_T + 8];
    double nll[2][8];
    OK(model_open_path("models/ckvc-tiny-4l", b.be, &m, &err));
    session_limits limits = {.max_prompt = MOST_T, .max_continuation = 8, .max_window = 8};
    for (int i = 0; i < SESSIONS; i++) {
        const int64_t T = prompt_tokens[i];
        fill_ids(ids, T, 13 + 2 * i, model_get_shape(m)->vocab);
        const prefill_input in = {.tokens = ids, .n = T, .n_total = T + STEPS, .window = 8};
        OK(sessions_create(m, limits, 1, &sessions[i], &err));
        OK(sessions_prefill(&(prefill_job){sessions[i], in, &stats}, 1, &err));
    }
    decode_greedy(m, sessions, 0, MANY, all);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        decode_greedy(m, sessions, runs[i].from, runs[i].n, some);
        assert_memory_equal(some, all + runs[i].from, (size_t)runs[i].n * sizeof *some);
    }

    limits.max_prompt = 40;
    OK(sessions_create(m, limits, 1, &small, &err));
    fill_ids(ids, 48, 11, model_get_shape(m)->vocab);
    const prefill_input in = {.tokens = ids, .n = 40, .n_total = 48, .window = 8};
    session *const both[] = {small, sessions[0]};
    for (int i = 0; i < 2; i++) {
        OK(sessions_prefill(&(prefill_job){both[i], in, &stats}, 1, &err));
        OK(session_continue(both[i], ids + 40, 8, NULL, nll[i], &err));
    }
    assert_memory_equal(nll[0], nll[1], sizeof nll[0]);
    for (int i = 0; i < SESSIONS; i++) { session_destroy(sessions[i]); }
    session_destroy(small);
    model_close(m);
    bench_close(&b);
}

/* The sets [L][1 or G][...] of a golden case. */
static void sets_read(some_sets *s, const json_t *sets) {
    const json_t *layer, *head;
    size_t l, g, i;
    *s = (some_sets){0};
    json_array_foreach(sets, l, layer) {
        uint32_t n = 0;
        json_array_foreach(layer, g, head) {
            s->offsets[l][g + 1] = n += (uint32_t)json_array_size(head);
        }
        s->positions[l] = ckvc_alloc(n, sizeof(uint32_t));
        n = 0;
        json_array_foreach(layer, g, head) {
            for (i = 0; i < json_array_size(head); i++) {
                s->positions[l][n++] = (uint32_t)json_integer_value(json_array_get(head, i));
            }
        }
        s->sets[l] = (kept_set){(int32_t)json_array_size(layer), s->offsets[l], s->positions[l]};
    }
}

/* Greedy tokens are those of transformers with a cache that was pruned by hand to the same sets,
 * full, by layers and by heads (tests/golden/decode); losses in float32 there and here. */
static void transformers(const char *name) {
    worst w = {"nll", 0};
    bench b = bench_open(2);
    model *m;
    decoder *d;
    char path[64], file[64];
    snprintf(path, sizeof path, "models/%s", name);
    snprintf(file, sizeof file, "tests/golden/decode/%s.json", name);
    OK(model_open_path(path, b.be, &m, &err));
    OK(decoder_create(m, 1, &d, &err));
    json_t *root = golden_read(file);
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, one) {
        int64_t T, n;
        CKVC_AUTO_FREE int32_t *prompt = golden_ids(json_object_get(one, "prompt"), &T);
        CKVC_AUTO_FREE int32_t *tokens = golden_ids(json_object_get(one, "tokens"), &n);
        some_sets kept;
        session *s;
        sequence *q;
        prefill_stats stats;
        sets_read(&kept, json_object_get(one, "sets"));
        const session_limits limits = {.max_prompt = T, .max_window = 1};
        const prefill_input in = {.tokens = prompt, .n = T, .n_total = T + n, .window = 1};
        OK(sessions_create(m, limits, 1, &s, &err));
        OK(sessions_prefill(&(prefill_job){s, in, &stats}, 1, &err));
        OK(sequence_create(s, kept.positions[0] ? kept.sets : NULL, n - 1, &q, &err));
        be_greedy next;
        OK(sessions_next_greedy(&s, 1, &next, &err));
        for (int64_t t = 0; t < n; t++) {
            assert_int_equal(next.id, tokens[t]);
            compare(&w, next.nll,
                    json_real_value(json_array_get(json_object_get(one, "nll"), (size_t)t)), 5e-5);
            if (t + 1 < n) { OK(decoder_step_greedy(d, &q, &next.id, 1, &next, &err)); }
        }
        sequence_free(q);
        session_destroy(s);
        sets_fini(&kept);
    }
    assert_true(i == 4);
    worst_print(name, &w, 1);
    json_decref(root);
    decoder_destroy(d);
    model_close(m);
    bench_close(&b);
}

TEST(golden) {
    transformers("ckvc-tiny-4l");
    transformers("ckvc-tiny-8l");
}

/* The context ends: room that does not fit is refused, and so is a token that is none. */
TEST(limits) {
    bench b = bench_open(1);
    model *m;
    session *s;
    prefill_stats stats;
    int32_t ids[20];
    sequence *q;
    decoder *d;
    OK(model_open_path("models/ckvc-tiny-4l", b.be, &m, &err));
    const model_shape *shape = model_get_shape(m);
    const int64_t context = model_shape_context(shape);
    CKVC_AUTO_FREE float *logits = ckvc_alloc((size_t)shape->vocab, sizeof *logits);
    fill_ids(ids, 20, 3, shape->vocab);
    OK(sessions_create(m, (session_limits){.max_prompt = 20, .max_window = 8}, 1, &s, &err));
    const prefill_input in = {.tokens = ids, .n = 20, .n_total = 20, .window = 8};
    OK(sessions_prefill(&(prefill_job){s, in, &stats}, 1, &err));
    FAILS(sequence_create(s, NULL, context - 19, &q, &err), CKVC_E_DATA);
    assert_non_null(strstr(err.text, "go beyond the model's context"));
    OK(sequence_create(s, NULL, 1, &q, &err));
    OK(decoder_create(m, 1, &d, &err));
    FAILS(decoder_step(d, &q, &(int32_t){shape->vocab}, 1, logits, &err), CKVC_E_DATA);
    assert_non_null(strstr(err.text, "outside the model's vocabulary"));
    OK(decoder_step(d, &q, &(int32_t){7}, 1, logits, &err));
    decoder_destroy(d);
    sequence_free(q);
    session_destroy(s);
    model_close(m);
    bench_close(&b);
}

RUN_TESTS(NULL, NULL)
