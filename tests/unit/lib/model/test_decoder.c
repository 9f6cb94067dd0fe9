/* Decoding from caches that hold only what is kept: against session_continue under the same sets,
 * which is held against transformers elsewhere; alone and in a batch. */
#include "lib/model/decoder.h"
#include "tests/unit/golden_model.h"

enum { C = 70, MOST_T = 180, PROMPTS = 3 };

/* What one sequence keeps: head g of layer l about one position in 2 + (l + g) % 4, one head of
 * each layer none; `shared`: the heads of a layer together. */
static void sets_fill(some_sets *s, const model_shape *shape, int64_t T, bool shared) {
    const int32_t n_sets = shared ? 1 : shape->n_kv_heads;
    ckvc_rng rng = rng_of(5, (uint64_t)T, shared);
    *s = (some_sets){0};
    for (int32_t l = 0; l < shape->n_layers; l++) {
        uint32_t n = 0;
        for (int32_t g = 0; g < n_sets; g++) {
            for (uint32_t t = 0; t < T && (shared || g != l % n_sets); t++) {
                if (ckvc_rng_below(&rng, (uint64_t)(2 + (l + g) % 4)) == 0) {
                    s->positions[l][n++] = t;
                }
            }
            s->offsets[l][g + 1] = n;
        }
        s->sets[l] = (kept_set){n_sets, s->offsets[l], s->positions[l], false, {0}};
        s->entries += shared ? (int64_t)n * shape->n_kv_heads : n;
    }
}

/* A model and PROMPTS sequences that hold what is kept of their prompts, with the losses of their
 * continuations as session_continue has them. */
typedef struct scene {
    bench b;
    const model_shape *shape;
    sequence *sequences[PROMPTS];
    int32_t ids[PROMPTS][MOST_T + C];
    double nll[PROMPTS][C];
    float *first; /* [PROMPTS][V] logits behind the prompts */
} scene;

static const int64_t prompt_tokens[PROMPTS] = {MOST_T, 97, 150};

static void scene_open(scene *s, const char *kind, const char *path, int n_threads) {
    *s = (scene){.b = bench_open_kind(kind, n_threads)};
    bench_load(&s->b, path, limits_of(MOST_T, C, 8, 0));
    session *one = s->b.s;
    s->shape = model_get_shape(s->b.m);
    s->first = ckvc_alloc(PROMPTS * s->shape->vocab, sizeof *s->first);
    for (int i = 0; i < PROMPTS; i++) {
        const int64_t T = prompt_tokens[i];
        some_sets kept;
        fill_ids(s->ids[i], T + C, 13 + 2 * i, s->shape->vocab);
        sets_fill(&kept, s->shape, T, i == 1);
        const kept_set *sets = i == 2 ? NULL : kept.sets;
        prefill_of(one, s->ids[i], T, T + C, 8);
        OK(sessions_next(&one, 1, s->first + i * s->shape->vocab, NULL, &err));
        OK(session_continue(one, s->ids[i] + T, C, sets, s->nll[i], &err));
        OK(sequence_create(one, sets, C, &s->sequences[i], &err));
        const int64_t units = (int64_t)s->shape->n_layers * s->shape->n_kv_heads,
                      entries = sets ? kept.entries : units * T;
        assert_int_equal(sequence_entries(s->sequences[i]), entries);
        const size_t values =
            (size_t)((entries + units * C) * 2 * s->shape->head_dim) * sizeof(float);
        assert_in_range(sequence_bytes(s->sequences[i]), values, /* windows need positions, too */
                        values + (size_t)(s->shape->sliding_window ? entries : 0) * 4);
    }
    session_destroy(one); /* what is kept is the sequences' own */
    s->b.s = NULL;
}

static void scene_close(scene *s) {
    for (int i = 0; i < PROMPTS; i++) { sequence_free(s->sequences[i]); }
    free(s->first);
    bench_close(&s->b);
}

/* Feeds continuations from ... from + n - 1 side by side; logits [n][C][V], first of prompts. */
static void decode(scene *s, int from, int n, float *logits) {
    CKVC_AUTO(decoder_destroy_at) decoder *d = NULL;
    const size_t V = (size_t)s->shape->vocab;
    CKVC_AUTO_FREE float *step = ckvc_alloc(n * V, sizeof *step);
    OK(decoder_create(s->b.m, n, &d, &err));
    for (int i = 0; i < n; i++) {
        memcpy(logits + i * C * V, s->first + (from + i) * V, V * sizeof *logits);
    }
    for (int c = 0; c + 1 < C; c++) {
        int32_t tokens[PROMPTS];
        for (int i = 0; i < n; i++) { tokens[i] = s->ids[from + i][prompt_tokens[from + i] + c]; }
        OK(decoder_step(d, s->sequences + from, tokens, n, step, NULL, &err));
        for (int i = 0; i < n; i++) {
            memcpy(logits + (i * C + c + 1) * V, step + i * V, V * sizeof *logits);
        }
    }
}

/* Losses from the logits are session_continue's: the logits are the same bits with kernels of ours,
 * and the sum over the vocabulary is in double here and by pieces in float there, some 1e-7. With
 * OpenBLAS other shapes of calls round otherwise. */
static void against_continue(const char *kind, const char *path, double tolerance) {
    CKVC_AUTO(scene_close) scene s;
    worst w = {"nll", 0};
    scene_open(&s, kind, path, 2);
    const size_t V = (size_t)s.shape->vocab;
    CKVC_AUTO_FREE float *logits = ckvc_alloc(PROMPTS * C * V, sizeof *logits);
    decode(&s, 0, PROMPTS, logits);
    for (int i = 0; i < PROMPTS; i++) {
        for (int c = 0; c < C; c++) {
            const int32_t target = s.ids[i][prompt_tokens[i] + c];
            compare(&w, logits_loss(logits + (i * C + c) * V, (int32_t)V, target), s.nll[i][c],
                    tolerance);
        }
    }
    worst_print(s.b.be->kernel, &w, 1);
}

TEST(continuation) {
    of_the_cpu_alone();
    against_continue("cpu", "models/ckvc-tiny-4l", 2e-6);
    against_continue("cpu", "tests/golden/models/qwen3", 2e-6);
    against_continue("openblas", "models/ckvc-tiny-4l", 2e-5);
}

/* Stores entries beside the prompt's own: keys k + shift and values v * factor. */
static void write_fitted(session *s, const model_shape *shape, int64_t T, float shift,
                         float factor) {
    const size_t n = (size_t)(T * shape->head_dim);
    CKVC_AUTO_FREE float *k = ckvc_alloc(n, sizeof *k), *v = ckvc_alloc(n, sizeof *v);
    for (int32_t l = 0; l < shape->n_layers; l++) {
        for (int32_t g = 0; g < shape->n_kv_heads; g++) {
            OK(session_read_head(s, l, g, k, v, &err));
            for (size_t i = 0; i < n; i++) {
                k[i] += shift;
                v[i] *= factor;
            }
            session_write_fitted(s, l, g, k, v);
        }
    }
}

/* Rollouts and sequences read fitted entries where a set says so. Fitted entries that are the
 * prompt's own change no bit. */
TEST(fitted) {
    of_the_cpu_alone();
    enum { T = 120 };
    session_limits limits = limits_of(T, C, 8, 0);
    limits.fitted = true;
    CKVC_AUTO(bench_close) bench b = bench_open(2);
    bench_load(&b, "models/ckvc-tiny-4l", limits);
    const model_shape *shape = model_get_shape(b.m);
    int32_t ids[T + C];
    double plain[C], own[C], fitted[C];
    some_sets kept;
    fill_ids(ids, T + C, 13, shape->vocab);
    sets_fill(&kept, shape, T, false);
    prefill_of(b.s, ids, T, T + C, 8);
    OK(session_continue(b.s, ids + T, C, kept.sets, plain, &err));
    for (int32_t l = 0; l < shape->n_layers; l++) { kept.sets[l].fitted = true; }
    write_fitted(b.s, shape, T, 0, 1);
    OK(session_continue(b.s, ids + T, C, kept.sets, own, &err));
    assert_memory_equal(own, plain, sizeof plain);
    write_fitted(b.s, shape, T, 0.25f, 0.5f);
    OK(session_continue(b.s, ids + T, C, kept.sets, fitted, &err));
    CKVC_AUTO(sequence_free_at) sequence *q = NULL;
    CKVC_AUTO(decoder_destroy_at) decoder *d = NULL;
    CKVC_AUTO_FREE float *logits = ckvc_alloc((size_t)shape->vocab, sizeof *logits);
    OK(sequence_create(b.s, kept.sets, C, &q, &err));
    OK(decoder_create(b.m, 1, &d, &err));
    double moved = 0;
    for (int c = 0; c + 1 < C; c++) {
        OK(decoder_step(d, &q, ids + T + c, 1, logits, NULL, &err));
        const double nll = logits_loss(logits, shape->vocab, ids[T + c + 1]);
        assert_float_equal(nll, fitted[c + 1], 2e-6); /* as in against_continue */
        moved += fabs(nll - plain[c + 1]);
    }
    assert_true(moved > 0.1);
    /* sets that do not say so still have the prompt's own */
    for (int32_t l = 0; l < shape->n_layers; l++) { kept.sets[l].fitted = false; }
    OK(session_continue(b.s, ids + T, C, kept.sets, own, &err));
    assert_memory_equal(own, plain, sizeof plain);
}

/* Rollouts and sequences hold what is kept in the formats of each layer's set: with the same
 * losses, in as many bytes as the formats take. The whole cache in 8 bits loses next to nothing. */
TEST(formats) {
    of_the_cpu_alone();
    enum { T = 120 };
    static const cache_formats of_layers[] = {{CACHE_Q8_0, CACHE_Q4_0},
                                              {CACHE_FP8, CACHE_BF16},
                                              {CACHE_Q4_0_MEAN, CACHE_Q8_0},
                                              {CACHE_F16, CACHE_F32}};
    CKVC_AUTO(bench_close) bench b = bench_open(2);
    bench_load(&b, "models/ckvc-tiny-4l", limits_of(T, C, 8, 0));
    const model_shape *shape = model_get_shape(b.m);
    int32_t ids[T + C];
    double plain[C], rounded[C], again[C];
    some_sets kept;
    fill_ids(ids, T + C, 13, shape->vocab);
    sets_fill(&kept, shape, T, false);
    prefill_of(b.s, ids, T, T + C, 8);
    OK(session_continue(b.s, ids + T, C, kept.sets, plain, &err));
    size_t bytes = 0, kept_bytes = 0;
    for (int32_t l = 0; l < shape->n_layers; l++) {
        const size_t entry = cache_entry_bytes(of_layers[l], shape->head_dim);
        kept.sets[l].formats = of_layers[l];
        kept_bytes += kept.offsets[l][shape->n_kv_heads] * entry;
        bytes += (size_t)(shape->n_kv_heads * C) * /* later tokens' positions are known */
                 (cache_bytes(of_layers[l].keys, (size_t)shape->head_dim) +
                  cache_bytes(of_layers[l].values, (size_t)shape->head_dim));
    }
    OK(session_continue(b.s, ids + T, C, kept.sets, rounded, &err));
    CKVC_AUTO(sequence_free_at) sequence *q = NULL;
    CKVC_AUTO(decoder_destroy_at) decoder *d = NULL;
    CKVC_AUTO_FREE float *logits = ckvc_alloc((size_t)shape->vocab, sizeof *logits);
    OK(sequence_create(b.s, kept.sets, C, &q, &err));
    OK(decoder_create(b.m, 1, &d, &err));
    assert_int_equal(sequence_kept_bytes(q), kept_bytes);
    assert_in_range(sequence_bytes(q), bytes + kept_bytes, bytes + kept_bytes + 8 * 4);
    double moved = 0;
    for (int c = 0; c + 1 < C; c++) {
        OK(decoder_step(d, &q, ids + T + c, 1, logits, NULL, &err));
        const double nll = logits_loss(logits, shape->vocab, ids[T + c + 1]);
        assert_float_equal(nll, rounded[c + 1], 2e-6); /* as in against_continue */
        moved += fabs(nll - plain[c + 1]);
    }
    assert_true(moved > 0.01 && moved < 0.1 * C);
    /* the session still has its prompt in float32 */
    for (int32_t l = 0; l < shape->n_layers; l++) { kept.sets[l].formats = (cache_formats){0}; }
    OK(session_continue(b.s, ids + T, C, kept.sets, again, &err));
    assert_memory_equal(again, plain, sizeof plain);
    uint32_t all[T], whole[] = {0, T};
    for (uint32_t t = 0; t < T; t++) { all[t] = t; }
    for (int32_t l = 0; l < shape->n_layers; l++) {
        kept.sets[l] = (kept_set){1, whole, all, false, {CACHE_Q8_0, CACHE_Q8_0}};
    }
    OK(session_continue(b.s, ids + T, C, NULL, plain, &err));
    OK(session_continue(b.s, ids + T, C, kept.sets, rounded, &err));
    assert_float_equal(nll_mean(rounded, C), nll_mean(plain, C), 5e-3);
    assert_true(nll_mean(rounded, C) != nll_mean(plain, C));
}

/* Windows of other lengths than the prompt's hide kept positions, then the sequence's own. */
TEST(sliding_window) {
    of_the_cpu_alone();
    against_continue("cpu", "tests/golden/models/mistral-swa", 2e-6);
    against_continue("cpu", "tests/golden/models/qwen2", 2e-6);
    against_continue("cpu", "tests/golden/models/phi3", 2e-6);
    against_continue("cpu", "tests/golden/models/gemma3", 2e-6);
}

TEST(batches) {
    of_the_cpu_alone();
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
    CKVC_AUTO(decoder_destroy_at) decoder *d = NULL;
    sequence *sequences[MANY];
    int32_t tokens[MANY];
    be_greedy next[MANY];
    for (int i = 0; i < n; i++) {
        const int id = from + i;
        some_sets kept;
        sets_fill(&kept, model_get_shape(m), prompt_tokens[id % SESSIONS], id % 2);
        OK(sequence_create(sessions[id % SESSIONS], kept.sets, STEPS, &sequences[i], &err));
        tokens[i] = 5 + 3 * id;
    }
    OK(decoder_create(m, n, &d, &err));
    for (int step = 0; step < STEPS; step++) {
        OK(decoder_step(d, sequences, tokens, n, NULL, next, &err));
        for (int i = 0; i < n; i++) {
            tokens[i] = next[i].id;
            out[i][step][0] = next[i].id;
            out[i][step][1] = next[i].nll;
        }
    }
    for (int i = 0; i < n; i++) { sequence_free(sequences[i]); }
}

/* A sequence's tokens and losses are the same bits alone and beside up to 129 others, in another
 * place; and a continuation's losses in a session made for longer prompts than one tile. */
TEST(any_batch) {
    static const struct { int from, n; } runs[] = {{65, 65}, {0, 64}, {57, 16}, {3, 1}, {129, 1}};
    static double all[MANY][STEPS][2], some[MANY][STEPS][2];
    CKVC_AUTO(bench_close) bench b = bench_open(2);
    session *sessions[SESSIONS];
    int32_t ids[MOST_T + 8];
    double nll[2][8];
    session_limits limits = {.max_prompt = 40, .max_continuation = 8, .max_window = 8};
    bench_load(&b, "models/ckvc-tiny-4l", limits);
    const int32_t vocab = model_get_shape(b.m)->vocab;
    limits.max_prompt = MOST_T;
    for (int i = 0; i < SESSIONS; i++) {
        const int64_t T = prompt_tokens[i];
        fill_ids(ids, T, 13 + 2 * i, vocab);
        OK(sessions_create(b.m, limits, 1, &sessions[i], &err));
        prefill_of(sessions[i], ids, T, T + STEPS, 8);
    }
    decode_greedy(b.m, sessions, 0, MANY, all);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        decode_greedy(b.m, sessions, runs[i].from, runs[i].n, some);
        assert_memory_equal(some, all + runs[i].from, (size_t)runs[i].n * sizeof *some);
    }

    fill_ids(ids, 48, 11, vocab);
    session *const both[] = {b.s, sessions[0]};
    for (int i = 0; i < 2; i++) {
        prefill_of(both[i], ids, 40, 48, 8);
        OK(session_continue(both[i], ids + 40, 8, NULL, nll[i], &err));
    }
    assert_memory_equal(nll[0], nll[1], sizeof nll[0]);
    for (int i = 0; i < SESSIONS; i++) { session_destroy(sessions[i]); }
}

/* Greedy tokens are those of transformers with a cache that was pruned by hand to the same sets,
 * full, by layers and by heads (tests/golden/decode); losses in float32 there and here. */
static void transformers(const char *name) {
    worst w = {"nll", 0};
    CKVC_AUTO(bench_close) bench b = bench_open(2);
    CKVC_AUTO(decoder_destroy_at) decoder *d = NULL;
    CKVC_AUTO_FREE char *path = ckvc_format("models/%s", name);
    CKVC_AUTO_FREE char *file = ckvc_format("tests/golden/decode/%s.json", name);
    OK(model_open_path(path, b.be, &b.m, &err));
    OK(decoder_create(b.m, 1, &d, &err));
    json_auto_t *root = golden_read(file);
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, one) {
        int64_t T, n;
        CKVC_AUTO_FREE int32_t *prompt = golden_ids(json_object_get(one, "prompt"), &T);
        CKVC_AUTO_FREE int32_t *tokens = golden_ids(json_object_get(one, "tokens"), &n);
        some_sets kept;
        session *s;
        sequence *q;
        golden_sets(&kept, json_object_get(one, "sets"));
        OK(sessions_create(b.m, limits_of(T, 0, 1, 0), 1, &s, &err));
        prefill_of(s, prompt, T, T + n, 1);
        OK(sequence_create(s, kept.sets[0].n_sets ? kept.sets : NULL, n - 1, &q, &err));
        be_greedy next;
        OK(sessions_next(&s, 1, NULL, &next, &err));
        for (int64_t t = 0; t < n; t++) {
            assert_int_equal(next.id, tokens[t]);
            compare(&w, next.nll, golden_at(json_object_get(one, "nll"), t), 5e-5);
            if (t + 1 < n) { OK(decoder_step(d, &q, &next.id, 1, NULL, &next, &err)); }
        }
        sequence_free(q);
        session_destroy(s);
    }
    assert_true(i == 4);
    worst_print(name, &w, 1);
}

TEST(golden) {
    transformers("ckvc-tiny-4l");
    transformers("ckvc-tiny-8l");
}

/* The context ends: room that does not fit is refused, and so is a token that is none. */
TEST(limits) {
    CKVC_AUTO(bench_close) bench b = bench_open(1);
    int32_t ids[20];
    CKVC_AUTO(sequence_free_at) sequence *q = NULL;
    CKVC_AUTO(decoder_destroy_at) decoder *d = NULL;
    bench_load(&b, "models/ckvc-tiny-4l", limits_of(20, 0, 8, 0));
    const model_shape *shape = model_get_shape(b.m);
    CKVC_AUTO_FREE float *logits = ckvc_alloc((size_t)shape->vocab, sizeof *logits);
    fill_ids(ids, 20, 3, shape->vocab);
    prefill_of(b.s, ids, 20, 20, 8);
    SAYS(sequence_create(b.s, NULL, model_shape_context(shape) - 19, &q, &err), CKVC_E_DATA,
         "go beyond the model's context");
    OK(sequence_create(b.s, NULL, 1, &q, &err));
    OK(decoder_create(b.m, 1, &d, &err));
    SAYS(decoder_step(d, &q, &(int32_t){shape->vocab}, 1, logits, NULL, &err), CKVC_E_DATA,
         "outside the model's vocabulary");
    OK(decoder_step(d, &q, &(int32_t){7}, 1, logits, NULL, &err));
}

RUN_TESTS(NULL, NULL)
