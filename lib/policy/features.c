/* The learned ranking: the features of every prompt token, their linear form for each head, and its
 * softmax over the prompt (docs/method.md, section 2).
 *
 * Everything is computed in double and in the order that the header states, so that an engine,
 * Python and this library rank alike. */
#include "lib/policy/retain_many.h"

#include <math.h>
#include <string.h>

const uint32_t ckvc_mean_rows[CKVC_MEANS] = {8, 32, 64, 0, 16};

uint32_t ckvc_features_count(uint32_t version, uint32_t head_dim) {
    if (version != CKVC_FEATURES_1 && version != CKVC_FEATURES_2) { return 0; }
    return CKVC_FEATURES_1_KEY + head_dim + 1 - ckvc_features_first(version);
}

uint32_t ckvc_features_first(uint32_t version) {
    return version == CKVC_FEATURES_2 ? CKVC_FEATURES_OWN : 0;
}

uint32_t ckvc_features_rows(uint32_t version) {
    return version == CKVC_FEATURES_1 ? CKVC_FEATURES_1_ROWS : 0;
}

static double floored_log(double x) { return log(x > 1e-7 ? x : 1e-7); }

/* out[t * stride] is the log of the mean (positions outside the prompt count as 0) or of the
 * maximum of x over k positions around t. */
static void pool_log(uint32_t n, const double *x, uint32_t k, int take_max, uint32_t stride,
                     double *out) {
    for (uint32_t t = 0; t < n; t++) {
        const uint32_t begin = t > k / 2 ? t - k / 2 : 0, end = n - t > k / 2 ? t + k / 2 + 1 : n;
        double sum = 0.0, most = 0.0;
        for (uint32_t j = begin; j < end; j++) {
            sum += x[j];
            most = x[j] > most ? x[j] : most;
        }
        out[(size_t)t * stride] = floored_log(take_max ? most : sum / k);
    }
}

/* a[t] is the mean of the last `rows` attention rows, over all query heads of the group. */
static void mean_rows(const ckvc_head_view *v, uint32_t rows, double *a) {
    const uint32_t n = v->n_tokens, used = rows < v->n_rows ? rows : v->n_rows;
    memset(a, 0, n * sizeof *a);
    for (uint32_t h = 0; h < v->group; h++) {
        const float *row = v->attention + ((size_t)h * v->n_rows + (v->n_rows - used)) * n;
        for (uint32_t r = 0; r < used; r++, row += n) {
            for (uint32_t t = 0; t < n; t++) { a[t] += (double)row[t]; }
        }
    }
    for (uint32_t t = 0; t < n; t++) { a[t] /= (double)used * v->group; }
}

/* a[t] is the largest of the query heads' own means over the last rows. `one` [T] is scratch for
 * the mean of one head. */
static void max_heads(const ckvc_head_view *v, double *a, double *one) {
    ckvc_head_view alone = *v;
    alone.group = 1;
    for (uint32_t h = 0; h < v->group; h++) {
        alone.attention = v->attention + (size_t)h * v->n_rows * v->n_tokens;
        mean_rows(&alone, CKVC_FEATURES_1_ROWS, h ? one : a);
        for (uint32_t t = 0; h && t < v->n_tokens; t++) { a[t] = one[t] > a[t] ? one[t] : a[t]; }
    }
}

/* Undoes the rotation of a key: turns its pairs (i, i + D/2) back by the angle t * inv_freq[i]. */
static void key_features(const ckvc_head_view *v, uint32_t t, const float *key, double *f) {
    const uint32_t half = v->head_dim / 2;
    for (uint32_t i = 0; i < v->head_dim; i++) { f[i] = (double)key[i]; }
    for (uint32_t i = 0; v->inv_freq && i < half; i++) {
        const double angle = (double)t * v->inv_freq[i], c = cos(angle), s = sin(angle);
        f[i] = (double)key[i] * c + (double)key[i + half] * s;
        f[i + half] = (double)key[i + half] * c - (double)key[i] * s;
    }
}

double ckvc_norm(const float *x, uint32_t n) {
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++) { sum += (double)x[i] * (double)x[i]; }
    return sqrt(sum);
}

void ckvc_features_own(const ckvc_head_view *v, uint32_t t, const float *key, const float *value,
                       double *f) {
    const double left = (double)(v->n_tokens - t), near = fmin(left, CKVC_FEATURES_MOST_LEFT),
                 log_near = log(near);
    f[0] = floored_log(ckvc_norm(value, v->head_dim));
    f[1] = floored_log(ckvc_norm(key, v->head_dim));
    f[2] = log(left);
    f[3] = t == 0;
    f[4] = t < 4;
    f[5] = left <= 8;
    f[6] = left <= 32;
    f[7] = left <= 64;
    f[8] = near / 1024.0;
    f[9] = log_near * log_near;
    f += CKVC_FEATURES_1_KEY - CKVC_FEATURES_OWN;
    key_features(v, t, key, f);
    f[v->head_dim] = 1.0;
}

void ckvc_features_late(uint32_t n_tokens, const double *layer_attention, const double *alpha,
                        uint32_t stride, double *f) {
    pool_log(n_tokens, layer_attention, 5, 1, stride, f);
    for (uint32_t t = 0; t < n_tokens; t++) {
        f[(size_t)t * stride + 1] = floored_log(alpha[t] / (double)n_tokens);
    }
}

void ckvc_features_of_mean(uint32_t which, uint32_t n_tokens, const double *mean, uint32_t stride,
                           double *f) {
    if (which == CKVC_MEAN_LARGEST) {
        pool_log(n_tokens, mean, 1, 0, stride, f + 9);
    } else if (which == CKVC_MEAN_16) {
        pool_log(n_tokens, mean, 21, 0, stride, f + 12);
    } else {
        f += 3 * (size_t)which;
        pool_log(n_tokens, mean, 1, 0, stride, f);
        pool_log(n_tokens, mean, 5, 0, stride, f + 1);
        pool_log(n_tokens, mean, 7, 1, stride, f + 2);
    }
}

/* Fills the columns before CKVC_FEATURES_OWN, which are made of the last attention rows. The late
 * ones become 0. */
static void window_features(const ckvc_head_view *v, uint32_t D, double *f, double *scratch) {
    for (uint32_t which = 0; which < CKVC_MEANS; which++) {
        if (which == CKVC_MEAN_LARGEST) {
            max_heads(v, scratch, scratch + v->n_tokens);
        } else {
            mean_rows(v, ckvc_mean_rows[which], scratch);
        }
        ckvc_features_of_mean(which, v->n_tokens, scratch, D, f);
    }
    for (uint32_t t = 0; t < v->n_tokens; t++) {
        f[(size_t)t * D + CKVC_FEATURES_LATE] = f[(size_t)t * D + CKVC_FEATURES_LATE + 1] = 0.0;
    }
}

void ckvc_features(uint32_t version, const ckvc_head_view *v, double *f, double *scratch) {
    const uint32_t D = ckvc_features_count(version, v->head_dim),
                   own = CKVC_FEATURES_OWN - ckvc_features_first(version);
    if (own) { window_features(v, D, f, scratch); }
    for (uint32_t t = 0; t < v->n_tokens; t++) {
        const size_t at = (size_t)t * v->head_dim;
        ckvc_features_own(v, t, v->keys + at, v->values + at, f + (size_t)t * D + own);
    }
}

void ckvc_linear_form(uint32_t n_tokens, uint32_t n_features, const double *f, const float *theta,
                      double *s) {
    for (uint32_t t = 0; t < n_tokens; t++, f += n_features) {
        double sum = 0.0;
        for (uint32_t i = 0; i < n_features; i++) { sum += (double)theta[i] * f[i]; }
        s[t] = sum;
    }
}

void ckvc_score_bank(uint32_t n_tokens, const double *attention, const double *norm, double *s) {
    const double least = CKVC_BANK_LEAST / (double)n_tokens;
    for (uint32_t t = 0; t < n_tokens; t++) {
        const double of_bank = log(fmax(attention[t], least)) + log(norm[t]);
        s[t] = (1.0 - CKVC_BANK_PART) * s[t] + CKVC_BANK_PART * of_bank;
    }
}

void ckvc_score_learned(uint32_t n_tokens, double mass, const double *norm, double *s) {
    double most = -INFINITY, sum = 0.0;
    for (uint32_t t = 0; t < n_tokens; t++) { most = s[t] > most ? s[t] : most; }
    for (uint32_t t = 0; t < n_tokens; t++) { sum += exp(s[t] - most); }
    const double shift = log(mass) - (most + log(sum));
    for (uint32_t t = 0; t < n_tokens; t++) { s[t] += shift + log(norm[t]); }
}
