/* Targets and features of a prompt: see position_sampler.h. */
#include "calib/demand/position_sampler.h"

#include <math.h>

#include "lib/base/hash.h"
#include "lib/policy/policy_parts.h"

#define DRAW_STAGE 0x5C000000u /* stage of the random numbers; the head's number is added */

static size_t count_heads(const model_shape *shape) {
    return (size_t)shape->n_layers * (size_t)shape->n_kv_heads;
}

uint32_t score_features(const model_shape *shape) {
    return ckvc_features_count(CKVC_FEATURES_1, (uint32_t)shape->head_dim);
}

/* The arrays of a sampler and their lengths, where T is the number of tokens. */
#define ARRAYS(X)                                                                                  \
    X(target, heads *T)                                                                            \
    X(layer_attention, (size_t)shape->n_layers *T)                                                 \
    X(f, T *score_features(shape))                                                                 \
    X(scratch, 2 * T)                                                                              \
    X(sample, heads *positions)                                                                    \
    X(others, T)                                                                                   \
    X(order, T)

void position_sampler_need(uint32_t positions, const calibrate_inputs *in, worker_options *w) {
    const model_shape *shape = model_get_shape(in->model);
    const size_t heads = count_heads(shape), T = in->prompts->max_tokens;
#define ADD(member, n) w->once += (n) * sizeof *((position_sampler *)0)->member;
    ARRAYS(ADD)
    w->max_watched = CKVC_FEATURES_1_ROWS;
    w->watched_later = true;
}

static void see_head(void *ctx, const prefill_head *h);

void position_sampler_open(position_sampler *s, uint32_t positions, const calibrate_inputs *in) {
    const model_shape *shape = model_get_shape(in->model);
    const size_t heads = count_heads(shape), T = in->prompts->max_tokens;
    *s = (position_sampler){
        .shape = shape,
        .positions = positions,
        .n_features = score_features(shape),
        .watcher = {.n_rows = CKVC_FEATURES_1_ROWS, .later = true, .on_head = see_head, .ctx = s}};
#define TAKE(member, n) s->member = ckvc_calloc(n, sizeof *s->member);
    ARRAYS(TAKE)
}

void position_sampler_close(position_sampler *s) {
#define FREE(member, n) free(s->member);
    ARRAYS(FREE)
    *s = (position_sampler){0};
}

/* Returns the head's index in arrays [rows][L][G]. */
static size_t head_row(const position_sampler *s, size_t head) {
    return s->row * count_heads(s->shape) + head;
}

/* Writes to `sample` which positions of a head are logged, and returns how many they are. The
 * positions at both ends are always among them: few positions have a feature of their own, and
 * these do. What the fit weighs such a feature by must not depend on a draw that leaves them out.
 */
static uint32_t draw_positions(position_sampler *s, size_t head, uint32_t *sample) {
    const uint32_t T = s->p->n_tokens, P = s->positions;
    if (T <= P) {
        for (uint32_t t = 0; t < T; t++) { sample[t] = t; }
        return T;
    }
    double *rank = s->scratch;
    for (uint32_t t = 0; t < T; t++) {
        rank[t] = t < 4 || T - t <= 8 ? INFINITY : s->target[head * T + t];
    }
    const uint32_t top = ckvc_retain_head(T, rank, 0, P / 2, sample, s->order);
    uint32_t n = 0;
    for (uint32_t t = 0, i = 0; t < T; t++) {
        if (i < top && sample[i] == t) {
            i++;
        } else {
            s->others[n++] = t;
        }
    }
    ckvc_rng r;
    ckvc_rng_init(&r, s->w->o.setting.seed, ckvc_rng_key(s->p->entry->id),
                  DRAW_STAGE + (uint32_t)head);
    for (uint32_t i = top; i < P; i++) {
        const uint32_t k = (uint32_t)ckvc_rng_below(&r, n);
        sample[i] = s->others[k];
        s->others[k] = s->others[--n];
    }
    return P;
}

static ckvc_head_view view_of(const prefill_head *h, const double *frequencies) {
    return (ckvc_head_view){.n_tokens = (uint32_t)h->n_tokens,
                            .head_dim = (uint32_t)h->head_dim,
                            .group = (uint32_t)h->group,
                            .n_rows = (uint32_t)h->n_rows,
                            .attention = h->attention,
                            .keys = h->keys,
                            .values = h->values,
                            .inv_freq = frequencies};
}

/* Adds the head to its layer's attention [T], which ckvc_features_late needs: the mean over the
 * rows that features look at, and over the query heads of all n_heads KV heads. Head 0 sets the
 * array to 0 first. */
static void add_attention(const prefill_head *h, uint32_t n_heads, double *layer) {
    const int64_t T = h->n_tokens,
                  rows = CKVC_FEATURES_1_ROWS < h->n_rows ? CKVC_FEATURES_1_ROWS : h->n_rows;
    const double share = 1.0 / ((double)(rows * h->group) * n_heads);
    if (h->head == 0) { memset(layer, 0, (size_t)T * sizeof *layer); }
    for (int32_t q = 0; q < h->group; q++) {
        const float *a = h->attention + ((int64_t)q * h->n_rows + h->n_rows - rows) * T;
        for (int64_t r = 0; r < rows; r++, a += T) {
            for (int64_t t = 0; t < T; t++) { layer[t] += share * (double)a[t]; }
        }
    }
}

/* Takes a head as the session shows it, and logs all of its features but the late ones. */
static void see_head(void *ctx, const prefill_head *h) {
    position_sampler *s = ctx;
    const uint32_t T = (uint32_t)h->n_tokens, F = s->n_features, P = s->positions,
                   G = (uint32_t)s->shape->n_kv_heads;
    const size_t head = (size_t)h->layer * G + (size_t)h->head, at = head_row(s, head);
    const ckvc_head_view v = view_of(h, session_key_frequencies(s->w->session));
    add_attention(h, G, s->layer_attention + (size_t)h->layer * T);
    ckvc_features(CKVC_FEATURES_1, &v, s->f, s->scratch);
    const double *y = s->target + head * T;
    double *sum = s->rows->target_features + at * F;
    for (uint32_t t = 0; t < T; t++) {
        for (uint32_t k = 0; k < F; k++) { sum[k] += y[t] * s->f[(size_t)t * F + k]; }
    }
    uint32_t *sample = s->sample + head * P;
    const uint32_t n = draw_positions(s, head, sample);
    for (uint32_t i = 0; i < n; i++) {
        const double *from = s->f + (size_t)sample[i] * F;
        float *to = s->rows->features + (at * P + i) * F;
        for (uint32_t k = 0; k < F; k++) { to[k] = (float)from[k]; }
    }
}

/* Adds the late features of all heads, once all layers are known. */
static void add_late(position_sampler *s) {
    const uint32_t T = s->p->n_tokens, F = s->n_features, P = s->positions, n = T < P ? T : P;
    const size_t G = (size_t)s->shape->n_kv_heads;
    for (size_t head = 0; head < count_heads(s->shape); head++) {
        const size_t at = head_row(s, head);
        double *late = s->scratch, *sum = s->rows->target_features + at * F + CKVC_FEATURES_LATE;
        if (head % G == 0) {
            ckvc_features_late(T, s->layer_attention + head / G * T, s->w->stats.alpha, 2, late);
        }
        for (uint32_t t = 0; t < T; t++) {
            for (int k = 0; k < 2; k++) { sum[k] += s->target[head * T + t] * late[2 * t + k]; }
        }
        for (uint32_t i = 0; i < n; i++) {
            float *to = s->rows->features + (at * P + i) * F + CKVC_FEATURES_LATE;
            const double *from = late + 2 * s->sample[head * P + i];
            for (int k = 0; k < 2; k++) { to[k] = (float)from[k]; }
        }
    }
}

/* Adds one kind of target, divided by its sum over the head's positions, to `target`. Returns the
 * sum. */
static double add_target(const double *y, uint32_t n, double *target) {
    double sum = 0.0;
    for (uint32_t t = 0; t < n; t++) { sum += y[t]; }
    for (uint32_t t = 0; t < n && sum > 0.0; t++) { target[t] += y[t] / sum; }
    return sum;
}

/* Makes the targets of all heads. The mass is the sum of the repeat pass's attention; without a
 * repeat pass it is that of the continuation's. */
static void make_targets(position_sampler *s, const demand_meter *m) {
    const uint32_t T = s->p->n_tokens;
    for (size_t head = 0; head < count_heads(s->shape); head++) {
        const size_t at = head_row(s, head);
        double *target = s->target + head * T;
        memset(target, 0, T * sizeof *target);
        const double of_c = add_target(m->y_c + head * T, T, target),
                     of_r = add_target(m->y_r + head * T, T, target);
        s->rows->mass[at] = m->o.n_instruction ? of_r : of_c;
        s->rows->target[at] = 0.0;
        for (uint32_t t = 0; t < T; t++) { s->rows->target[at] += target[t]; }
    }
}

static bool all_finite(const position_sampler *s) {
    const size_t heads = count_heads(s->shape), at = head_row(s, 0);
    double sum = 0.0; /* not finite where any summand is not */
    for (size_t i = at; i < at + heads; i++) { sum += s->rows->mass[i] + s->rows->target[i]; }
    for (size_t i = at * s->n_features; i < (at + heads) * s->n_features; i++) {
        sum += s->rows->target_features[i];
        const float *f = s->rows->features + i * s->positions;
        for (uint32_t k = 0; k < s->positions; k++) { sum += (double)f[k]; }
    }
    return isfinite(sum);
}

ckvc_status position_sampler_measure(position_sampler *s, const measured_prompt *of, shard *rows,
                                     size_t row, bool *finite, ckvc_err *err) {
    s->w = of->w;
    s->p = of->p;
    s->rows = rows;
    s->row = row;
    make_targets(s, of->m);
    CKVC_TRY(session_show(s->w->session, &s->watcher, err));
    add_late(s);
    *finite = all_finite(s);
    return CKVC_OK;
}
