/* What the tests on whole models share: one backend, and tolerances that say how much of them is
 * used. */
#pragma once

#include "formats/model/model_files.h"
#include "lib/model/model_info.h"
#include "tests/unit/golden.h"

/* A backend on n threads, and on it a model and a session once bench_load or a test has put them
 * there. bench_close ends them all. */
typedef struct bench {
    ckvc_pool *pool;
    backend *be;
    model *m;
    session *s;
} bench;

static inline bench bench_open_kind(const char *kind, int n_threads) {
    bench b = {0};
    OK(ckvc_pool_create(n_threads, &b.pool, &err));
    OK(backend_create(kind, CKVC_COMPUTE_F32, b.pool, &b.be, &err));
    return b;
}

/* Opens the CPU's backend, or the one that CKVC_TEST_BACKEND names. */
static inline bench bench_open(int n_threads) {
    const char *kind = getenv("CKVC_TEST_BACKEND");
    return bench_open_kind(kind ? kind : "cpu", n_threads);
}

/* Computes the losses [n] of one continuation under sets [L] of the prompt's positions; NULL
 * means the full cache. */
static inline ckvc_status session_continue(session *s, const int32_t *continuation, int64_t n,
                                           const kept_set *sets, double *nll, ckvc_err *err) {
    const rollout_lane alone = {.parent = -1, .sets = sets};
    rollout_job job = {s, continuation, n, &alone, 1, .nll = nll};
    return sessions_rollouts(&job, 1, err);
}

/* Is called by a test that names its backends itself. Where another backend is asked for, the
 * test has nothing to run and is skipped. */
static inline void of_the_cpu_alone(void) {
    if (getenv("CKVC_TEST_BACKEND")) { skip(); }
}

/* Counts the weights that are acquired after bench_count_acquired was called. A program has one
 * such count. */
static struct {
    const backend_ops *real;
    backend_ops ops;
    int64_t n;
} acquired;
static inline ckvc_status count_acquire(backend *be, be_weight *w, ckvc_err *err) {
    acquired.n++;
    return acquired.real->weight_acquire(be, w, err);
}
static inline void bench_count_acquired(bench *b) {
    acquired.real = b->be->ops;
    acquired.ops = *acquired.real;
    acquired.ops.weight_acquire = count_acquire;
    b->be->ops = &acquired.ops;
}

static inline void bench_close(bench *b) {
    session_destroy(b->s);
    model_close(b->m);
    backend_destroy(b->be);
    ckvc_pool_destroy(b->pool);
}

static inline ckvc_status model_open_path(const char *path, backend *be, model **out,
                                          ckvc_err *err) {
    model_spec *spec;
    *out = NULL;
    CKVC_TRY(model_files_read(path, &spec, err));
    return model_open(spec, be, out, err);
}

/* Returns the limits of a session; 0 rollouts side by side count as 1. */
static inline session_limits limits_of(int64_t prompt, int64_t continuation, int64_t window,
                                       int64_t lanes) {
    return (session_limits){prompt, continuation, window, .max_lanes = lanes};
}

static inline void bench_load(bench *b, const char *path, session_limits limits) {
    OK(model_open_path(path, b->be, &b->m, &err));
    OK(sessions_create(b->m, limits, 1, &b->s, &err));
}

/* Runs the first n of n_total ids through the model of one session. */
static inline prefill_stats prefill_of(session *s, const int32_t *ids, int64_t n, int64_t n_total,
                                       int64_t window) {
    prefill_stats stats;
    const prefill_input in = {.tokens = ids, .n = n, .n_total = n_total, .window = window};
    OK(sessions_prefill(&(prefill_job){s, in, &stats}, 1, &err));
    return stats;
}

/* Runs rollouts of n tokens behind one session's prompt: nll [n_lanes][n]; kl is the same or
 * NULL. */
static inline void rollouts_of(session *s, const int32_t *ids, int64_t n, const rollout_lane *lanes,
                               int64_t n_lanes, double *nll, double *kl) {
    const rollout_job job = {.session = s,
                             .continuation = ids,
                             .n = n,
                             .lanes = lanes,
                             .n_lanes = n_lanes,
                             .nll = nll,
                             .kl = kl};
    OK(sessions_rollouts(&job, 1, &err));
}

/* Room for the kept sets of layers. */
enum { MAX_L = 8, MAX_G = 8, MAX_KEPT = MAX_G * 256 };
typedef struct some_sets {
    uint32_t offsets[MAX_L][MAX_G + 1], positions[MAX_L][MAX_KEPT];
    kept_set sets[MAX_L];
    int64_t entries;
} some_sets;

/* Reads kept sets from a golden file: [L][1 or G] lists, or [L] of one set each. */
static inline void golden_sets(some_sets *s, const json_t *lists) {
    const json_t *layer, *head, *t;
    size_t l, g, i;
    *s = (some_sets){0};
    json_array_foreach(lists, l, layer) {
        const bool by_head = json_is_array(json_array_get(layer, 0));
        uint32_t n = 0;
        for (g = 0; g < (by_head ? json_array_size(layer) : 1); g++) {
            head = by_head ? json_array_get(layer, g) : layer;
            json_array_foreach(head, i, t) {
                assert_true(n < MAX_KEPT);
                s->positions[l][n++] = (uint32_t)json_integer_value(t);
            }
            s->offsets[l][g + 1] = n;
        }
        s->sets[l] = (kept_set){(int32_t)g, s->offsets[l], s->positions[l], false, {0}};
    }
}

/* Returns the mean loss of n tokens behind a session's prompt under kept sets; NULL means all. */
static inline double continued(session *s, const int32_t *ids, int64_t n, const kept_set *kept) {
    double nll[512];
    assert_true(n <= 512);
    OK(session_continue(s, ids, n, kept, nll, &err));
    return nll_mean(nll, n);
}

/* Returns -log softmax(logits [n])[target], computed in double. */
static inline double logits_loss(const float *logits, int32_t n, int32_t target) {
    double sum = 0;
    for (int32_t v = 0; v < n; v++) { sum += exp((double)logits[v] - (double)logits[target]); }
    return log(sum);
}

/* Fills a sequence, whose ids are others for each step. */
static inline void fill_ids(int32_t *ids, int64_t n, int step, int32_t vocab) {
    for (int64_t i = 0; i < n; i++) { ids[i] = (int32_t)((i * step + i * i * 7) % vocab); }
}

static inline ckvc_status model_verify_path(const char *path, ckvc_err *err) {
    CKVC_AUTO(model_spec_free_at) model_spec *spec = NULL;
    char fingerprint[CKVC_SHA256_HEX];
    CKVC_TRY(model_files_read(path, &spec, err));
    return model_verify(spec, fingerprint, err);
}

/* The largest |difference| / tolerance seen of one quantity: how much of the tolerance is used. */
typedef struct worst {
    const char *what;
    double ratio;
} worst;

static inline void compare(worst *w, double got, double want, double tolerance) {
    const double ratio = fabs(got - want) / tolerance;
    if (!(ratio <= w->ratio)) { w->ratio = ratio; }
    if (!(ratio <= 1.0)) {
        fail_msg("%s: got %.9g, wanted %.9g, tolerance %.2g", w->what, got, want, tolerance);
    }
}

static inline double golden_at(const json_t *array, size_t i) {
    assert_true(json_is_number(json_array_get(array, i)));
    return json_number_value(json_array_get(array, i));
}

/* Compares n numbers with an array of the golden file. */
static inline void compare_row(worst *w, const double *got, const json_t *want, int64_t n,
                               double tolerance) {
    for (int64_t i = 0; i < n; i++) { compare(w, got[i], golden_at(want, (size_t)i), tolerance); }
}

static inline void worst_print(const char *name, const worst *w, size_t n) {
    printf("%s: share of the tolerance used:", name);
    for (size_t i = 0; i < n; i++) { printf(" %s %.3f", w[i].what, w[i].ratio); }
    printf("\n");
}
