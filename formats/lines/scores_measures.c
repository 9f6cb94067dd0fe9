/* See scores_measures.h; what the keys mean is in scores.md. */
#include "formats/lines/scores_measures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"

/* Numbers went through text and back, and the measurement itself is right to about 1e-6. */
#define SLACK 1e-5

static const char *const attention_keys[SCORE_ATTENTION_KEYS] = {
    "attention_epsilon", "attention_bound", "attention_error", "attention_drift"};

bool scores_is_measure(const char *key) {
    for (size_t i = 0; i < SCORE_ATTENTION_KEYS; i++) {
        if (strcmp(key, attention_keys[i]) == 0) { return true; }
    }
    return strcmp(key, "alpha_quantiles") == 0 || strcmp(key, "utility_quantiles") == 0;
}

static bool number_at(const json_t *list, size_t i, double *out) {
    const json_t *v = json_array_get(list, i);
    *out = json_is_number(v) ? json_number_value(v) : NAN;
    return isfinite(*out);
}

static ckvc_status read_attention(const json_t *line, const char *path, score_row *row,
                                  ckvc_err *err) {
    size_t given = 0, null = 0;
    for (size_t i = 0; i < SCORE_ATTENTION_KEYS; i++) {
        given += json_object_get(line, attention_keys[i]) != NULL;
        null += json_is_null(json_object_get(line, attention_keys[i]));
    }
    if (given == 0 || null == SCORE_ATTENTION_KEYS) { return CKVC_OK; }
    const size_t L = row->n_layers;
    for (size_t i = 0; i < SCORE_ATTENTION_KEYS; i++) {
        const json_t *list = json_object_get(line, attention_keys[i]);
        CKVC_FAIL_IF(!json_is_array(list) || json_array_size(list) != L || row->n_continuation < 2,
                     err, CKVC_E_DATA,
                     "%s:%u: \"%s\" is no list of %zu numbers (one per layer) beside C of "
                     "at least 2, wanted all of "
                     "attention_epsilon, _bound, _error, _drift or none",
                     path, row->line, attention_keys[i], L);
    }
    row->attention = ckvc_alloc(L * SCORE_ATTENTION_KEYS, sizeof *row->attention);
    const double rows = (double)row->n_continuation - 1;
    for (size_t l = 0; l < L; l++) {
        double v[SCORE_ATTENTION_KEYS];
        for (size_t i = 0; i < SCORE_ATTENTION_KEYS; i++) {
            CKVC_FAIL_IF(!number_at(json_object_get(line, attention_keys[i]), l, &v[i]) || v[i] < 0,
                         err, CKVC_E_DATA, "%s:%u: \"%s\"[%zu] is no number of at least 0", path,
                         row->line, attention_keys[i], l);
            row->attention[i * L + l] = v[i];
        }
        const double bound = 2 * sqrt(rows) * v[0];
        CKVC_FAIL_IF(v[0] > 1 + SLACK || fabs(v[1] - bound) > 1e-9 * fmax(1, bound), err,
                     CKVC_E_DATA,
                     "%s:%u: layer %zu: attention_epsilon is %.10g and attention_bound "
                     "%.10g, wanted at most 1 and "
                     "2 sqrt(C - 1) times it, %.10g",
                     path, row->line, l, v[0], v[1], bound);
        CKVC_FAIL_IF(v[2] > v[1] * (1 + SLACK) + SLACK || v[3] > sqrt(2 * rows) * (1 + SLACK), err,
                     CKVC_E_DATA,
                     "%s:%u: layer %zu: attention_error is %.10g and attention_drift "
                     "%.10g, wanted at most the bound, %.10g, "
                     "and sqrt(2 (C - 1)), %.10g",
                     path, row->line, l, v[2], v[3], v[1], sqrt(2 * rows));
    }
    return CKVC_OK;
}

static ckvc_status read_quantiles(const json_t *list, const char *what, const char *path,
                                  uint32_t line, double *out, ckvc_err *err) {
    bool ok = json_is_array(list) && json_array_size(list) == SCORE_QUANTILE_COUNT;
    for (size_t i = 0; ok && i < SCORE_QUANTILE_COUNT; i++) {
        ok = number_at(list, i, &out[i]) && out[i] >= (i ? out[i - 1] : 0);
    }
    return ok ? CKVC_OK
              : ckvc_fail(err, CKVC_E_DATA,
                          "%s:%u: \"%s\" has a place that is no ascending list of %d numbers of at "
                          "least 0",
                          path, line, what, SCORE_QUANTILE_COUNT);
}

static ckvc_status read_utilities(const json_t *line, const char *path, score_row *row,
                                  ckvc_err *err) {
    const json_t *alpha = json_object_get(line, "alpha_quantiles"),
                 *layers = json_object_get(line, "utility_quantiles");
    if (!alpha && !layers) { return CKVC_OK; }
    const size_t L = row->n_layers, G = json_array_size(json_array_get(layers, 0));
    CKVC_FAIL_IF(!alpha || !json_is_array(layers) || json_array_size(layers) != L || G == 0 ||
                     G > 65535,
                 err, CKVC_E_DATA,
                 "%s:%u: \"utility_quantiles\" is no list of %zu layers of heads beside "
                 "\"alpha_quantiles\"",
                 path, row->line, L);
    for (size_t l = 0; l < L; l++) { /* before room is made for them: as many as the line holds */
        CKVC_FAIL_IF(json_array_size(json_array_get(layers, l)) != G, err, CKVC_E_DATA,
                     "%s:%u: \"utility_quantiles\": layer %zu has %zu heads, layer 0 has %zu", path,
                     row->line, l, json_array_size(json_array_get(layers, l)), G);
    }
    row->n_heads = (uint32_t)G;
    row->utility = ckvc_alloc((L * G + 1) * SCORE_QUANTILE_COUNT, sizeof *row->utility);
    ckvc_status st = read_quantiles(alpha, "alpha_quantiles", path, row->line,
                                    row->utility + L * G * SCORE_QUANTILE_COUNT, err);
    for (size_t i = 0; st == CKVC_OK && i < L * G; i++) {
        st = read_quantiles(json_array_get(json_array_get(layers, i / G), i % G),
                            "utility_quantiles", path, row->line,
                            row->utility + i * SCORE_QUANTILE_COUNT, err);
    }
    return st;
}

ckvc_status scores_read_measures(const json_t *line, const char *path, score_row *row,
                                 ckvc_err *err) {
    ckvc_status st = read_attention(line, path, row, err);
    return st ? st : read_utilities(line, path, row, err);
}

void scores_free_measures(score_row *row) {
    free(row->attention);
    free(row->utility);
}
