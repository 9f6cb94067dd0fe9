/* A prefill that goes on with some of its rows: with all of them it is the prefill; in the last
 * layer alone it is the last rows as a continuation behind the others, under sets of that layer.
 * From a layer in the middle on: tests/unit/calib/policies, against transformers. */
#include "lib/model/decoder.h"
#include "tests/unit/golden_model.h"
#include "tests/unit/unit.h"

enum { T = 150, TAIL = 70, SHORT = T - TAIL, C = 6, L = 4, G = 3, D = 32, V = 4096, ROWS = 8 };

typedef struct rig {
    bench b;
    model *m;
    session *s;
    int32_t ids[T + C];
} rig;

/* What a watcher has seen of the last layer's head 0. */
typedef struct watched {
    float attention[ROWS][T], keys[T][D];
    int64_t n;
    int n_heads;
} watched;

static void see(void *ctx, const prefill_head *head) {
    watched *w = ctx;
    w->n_heads++;
    w->n = head->n_tokens;
    if (head->layer < L - 1 || head->head > 0) { return; }
    memcpy(w->attention, head->attention, sizeof(float) * ROWS * (size_t)w->n);
    memcpy(w->keys, head->keys, sizeof w->keys[0] * (size_t)w->n);
}

/* Prefills the first n ids in a session whose second pass chooses from layer `from` on. */
static void begin(rig *r, int64_t n, int32_t from, watched *w) {
    ckvc_err err = {0};
    prefill_stats stats;
    const session_limits limits = {.max_prompt = T,
                                   .max_continuation = T + C - SHORT,
                                   .max_window = 1,
                                   .max_watched = ROWS,
                                   .max_among = from ? T : 0,
                                   .propagate_from = from};
    const prefill_watcher watcher = {.n_rows = ROWS, .see = see, .ctx = w};
    const prefill_input in = {
        .tokens = r->ids, .n = n, .n_total = T + C, .window = 1, .watcher = w ? &watcher : NULL};
    assert_int_equal(session_create(r->m, limits, &r->s, &err), CKVC_OK);
    if (session_prefill(r->s, &in, &stats, &err) != CKVC_OK) { fail_msg("%s", err.text); }
}

static void propagate(rig *r, const kept_set *rows, watched *w) {
    ckvc_err err = {0};
    const prefill_watcher watcher = {.n_rows = ROWS, .see = see, .ctx = w};
    const propagate_input in = {r->ids, rows, &watcher};
    if (session_propagate(r->s, &in, &err) != CKVC_OK) { fail_msg("%s", err.text); }
}

static void next_logits(session *s, float *logits) {
    ckvc_err err = {0};
    assert_int_equal(session_next_logits(s, logits, &err), CKVC_OK);
}

static void losses(session *s, const int32_t *tokens, int64_t n, const kept_set *sets,
                   double *nll) {
    ckvc_err err = {0};
    if (session_continue(s, tokens, n, sets, nll, &err) != CKVC_OK) { fail_msg("%s", err.text); }
}

static rig open_rig(void) {
    rig r = {.b = bench_open(2)};
    ckvc_err err = {0};
    assert_int_equal(model_open_path("models/ckvc-tiny-4l", r.b.be, &r.m, &err), CKVC_OK);
    for (int i = 0; i < T + C; i++) { r.ids[i] = (i * 31 + i * i * 7) % V; }
    return r;
}

static void close_rig(rig *r) {
    model_close(r->m);
    bench_close(&r->b);
}

/* The same bits: logits, losses, what the watcher sees. */
static void all_rows(void **state) {
    static watched whole, again;
    static float logits[2][V];
    double nll[2][C];
    uint32_t positions[T];
    const uint32_t offsets[] = {0, T};
    const kept_set rows = {1, offsets, positions};
    rig r = open_rig();
    for (uint32_t t = 0; t < T; t++) { positions[t] = t; }
    begin(&r, T, 2, &whole);
    propagate(&r, &rows, &again);
    assert_int_equal(again.n_heads, (L - 2) * G);
    assert_memory_equal(again.attention, whole.attention, sizeof whole.attention);
    assert_memory_equal(again.keys, whole.keys, sizeof whole.keys);
    for (int turned = 0; turned < 2; turned++) {
        session_turn(r.s, turned);
        next_logits(r.s, logits[turned]);
        losses(r.s, r.ids + T, C, NULL, nll[turned]);
    }
    assert_memory_equal(logits[1], logits[0], sizeof logits[0]);
    assert_memory_equal(nll[1], nll[0], sizeof nll[0]);
    session_destroy(r.s);
    close_rig(&r);
}

/* Every third position, and the last TAIL. */
static uint32_t choose(uint32_t *positions) {
    uint32_t n = 0;
    for (uint32_t t = 0; t < T; t++) {
        if (t % 3 == 1 || t >= SHORT) { positions[n++] = t; }
    }
    return n;
}

/* The last layer's rows of the tail see what they would see behind a prompt without the tail of
 * which that layer keeps the other chosen positions: the same losses behind the prompt, from the
 * session and from a sequence that is decoded, and the prefill's keys at the chosen positions, but
 * for float32 (1e-5, of which an eighth is used). */
static void last_layer(void **state) {
    static watched whole, chosen;
    static float logits[V];
    ckvc_err err = {0};
    worst w = {"losses", 0}, keys = {"keys", 0};
    double nll[C], before[C], after[C], want[TAIL + C];
    uint32_t positions[T], all[T];
    const uint32_t n = choose(positions), of_all[] = {0, T}, of_rows[] = {0, n},
                   of_short[] = {0, n - TAIL}, of_whole[] = {0, SHORT};
    for (uint32_t t = 0; t < T; t++) { all[t] = t; }
    const kept_set rows = {1, of_rows, positions}, behind = {1, of_all, all},
                   sets[L] = {behind, behind, behind, rows}, most = {1, of_whole, all},
                   shorter[L] = {most, most, most, {1, of_short, positions}};
    rig r = open_rig();
    begin(&r, SHORT, 0, NULL);
    losses(r.s, r.ids + SHORT, TAIL + C, shorter, want);
    session_destroy(r.s);

    begin(&r, T, L - 1, &whole);
    losses(r.s, r.ids + T, C, NULL, before);
    propagate(&r, &rows, &chosen);
    assert_int_equal(chosen.n, n);
    assert_int_equal(chosen.n_heads, G);
    for (uint32_t i = 0; i < n * D; i++) {
        compare(&keys, (double)chosen.keys[i / D][i % D],
                (double)whole.keys[positions[i / D]][i % D], 1e-5);
    }
    session_turn(r.s, true);
    losses(r.s, r.ids + T, C, sets, nll);
    for (int i = 0; i < C; i++) { compare(&w, nll[i], want[TAIL + i], 1e-5); }
    assert_true(fabs(nll[0] - before[0]) > 1e-3); /* or there is nothing to tell apart */

    sequence *q;
    decoder *d;
    assert_int_equal(sequence_create(r.s, sets, 1, &q, &err), CKVC_OK);
    assert_int_equal(sequence_entries(q), G * ((L - 1) * T + (int64_t)n));
    assert_int_equal(decoder_create(r.m, 1, &d, &err), CKVC_OK);
    assert_int_equal(decoder_step(d, &q, r.ids + T, 1, logits, &err), CKVC_OK);
    sequence_free(q);
    decoder_destroy(d);
    double sum = 0;
    for (int v = 0; v < V; v++) { sum += exp((double)logits[v]); }
    compare(&w, log(sum) - (double)logits[r.ids[T + 1]], nll[1], 1e-5);

    session_turn(r.s, false);
    losses(r.s, r.ids + T, C, NULL, after);
    assert_memory_equal(after, before, sizeof before);
    worst_print(r.b.be->kernel, (worst[]){w, keys}, 2);
    session_destroy(r.s);
    close_rig(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_rows),
        cmocka_unit_test(last_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
