/* See score_measures.h. */
#include "calib/score/score_measures.h"

#include <math.h>
#include <stdlib.h>

#include "cql/stats/rank.h"
#include "formats/lines/scores.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

static const double quantiles[SCORE_QUANTILE_COUNT] = {0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1};

ckvc_status score_measures_create(score_measures *m, const model_shape *shape,
                                  session_limits limits, bool attention, bool utilities,
                                  ckvc_err *err) {
    *m = (score_measures){.attention = attention,
                          .utilities = utilities,
                          .n_layers = shape->n_layers,
                          .n_heads = shape->n_heads,
                          .n_kv_heads = shape->n_kv_heads};
    if (attention) { m->layers = ckvc_calloc((size_t)shape->n_layers, sizeof *m->layers); }
    if (utilities) { m->u = ckvc_calloc((size_t)limits.max_prompt, sizeof *m->u); }
    (void)err;
    return CKVC_OK;
}

void score_measures_fini(score_measures *m) {
    free(m->layers);
    free(m->u);
    *m = (score_measures){0};
}

ckvc_status score_measures_continue(score_measures *m, session *s, const int32_t *continuation,
                                    int64_t n, const kept_set *sets, double *nll, ckvc_err *err) {
    m->n_rows = 0;
    if (!m->attention || n < 2) { return session_continue(s, continuation, n, sets, nll, err); }
    ckvc_status st = session_attention_error(s, continuation, n, sets, nll, m->layers, err);
    for (int64_t i = 0; st == CKVC_OK && i < n; i++) {
        nll[i] = nll[n + i];
    }
    m->n_rows = n - 1;
    return st;
}

static void add_layers(const score_measures *m, json_t *line, const char *key,
                       double (*of)(const layer_error *, int64_t)) {
    json_t *list = m->n_rows ? json_array() : json_null();
    for (int64_t l = 0; m->n_rows && l < m->n_layers; l++) {
        json_array_append_new(list, ckvc_json_real(of(&m->layers[l], m->n_rows)));
    }
    json_object_set_new(line, key, list);
}

static double epsilon_of(const layer_error *e, int64_t n_rows) {
    (void)n_rows;
    return e->epsilon;
}

static double bound_of(const layer_error *e, int64_t n_rows) {
    return 2 * sqrt((double)n_rows) * e->epsilon;
}

static double error_of(const layer_error *e, int64_t n_rows) {
    (void)n_rows;
    return e->restricted;
}

static double drift_of(const layer_error *e, int64_t n_rows) {
    (void)n_rows;
    return e->actual;
}

void score_measures_attention(const score_measures *m, json_t *line) {
    if (m->attention) {
        add_layers(m, line, "attention_epsilon", epsilon_of);
        add_layers(m, line, "attention_bound", bound_of);
        add_layers(m, line, "attention_error", error_of);
        add_layers(m, line, "attention_drift", drift_of);
    }
}

ckvc_status score_measures_utilities(score_measures *m, const prefill_stats *stats, json_t *line,
                                     ckvc_err *err) {
    if (!m->utilities) { return CKVC_OK; }
    const size_t T = (size_t)stats->n_tokens;
    double q[SCORE_QUANTILE_COUNT];
    rank_quantile(stats->alpha, T, quantiles, SCORE_QUANTILE_COUNT, q);
    json_object_set_new(line, "alpha_quantiles", ckvc_json_reals(q, SCORE_QUANTILE_COUNT));
    json_t *layers = json_array();
    json_object_set_new(line, "utility_quantiles", layers);
    for (int64_t l = 0; l < m->n_layers; l++) {
        json_t *heads = json_array();
        json_array_append_new(layers, heads);
        for (int64_t g = 0; g < m->n_kv_heads; g++) {
            const float *rho = stats->rho + (size_t)(l * m->n_kv_heads + g) * T;
            for (size_t t = 0; t < T; t++) {
                m->u[t] = stats->alpha[t] * (double)rho[t];
            }
            rank_quantile(m->u, T, quantiles, SCORE_QUANTILE_COUNT, q);
            json_array_append_new(heads, ckvc_json_reals(q, SCORE_QUANTILE_COUNT));
        }
    }
    return CKVC_OK;
}
