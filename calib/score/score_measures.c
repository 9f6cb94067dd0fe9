/* Measures beside the losses: see score_measures.h. */
#include "calib/score/score_measures.h"

#include <math.h>

#include "cql/stats/rank.h"
#include "formats/lines/scores.h"
#include "lib/base/json.h"

void score_measures_init(score_measures *m, const model_shape *shape, uint32_t max_tokens,
                         bool attention, bool utilities) {
    *m = (score_measures){.attention = attention,
                          .utilities = utilities,
                          .n_layers = shape->n_layers,
                          .n_heads = shape->n_heads,
                          .n_kv_heads = shape->n_kv_heads};
    if (attention) { m->layers = ckvc_calloc((size_t)shape->n_layers, sizeof *m->layers); }
    if (utilities) { m->u = ckvc_calloc(max_tokens, sizeof *m->u); }
}

void score_measures_fini(score_measures *m) {
    free(m->layers);
    free(m->u);
    *m = (score_measures){0};
}

rollout_job score_measures_rollout(score_measures *m, session *s, const int32_t *continuation,
                                   int64_t n, const policy_kept *kept, double *nll) {
    const bool measured = m->attention && n >= 2 && !kept->propagated;
    m->n_rows = measured ? n - 1 : 0;
    m->lanes[0] = (rollout_lane){.parent = -1};
    m->lanes[measured] = (rollout_lane){.parent = -1, .sets = kept->sets};
    return (rollout_job){.session = s,
                         .continuation = continuation,
                         .n = n,
                         .lanes = m->lanes,
                         .n_lanes = measured ? 2 : 1,
                         .nll = nll,
                         .errors = measured ? m->layers : NULL};
}

/* One number of every layer, times `scale`. */
static void add_layers(const score_measures *m, json_t *line, const char *key, size_t offset,
                       double scale) {
    json_t *list = m->n_rows ? json_array() : json_null();
    for (int64_t l = 0; m->n_rows && l < m->n_layers; l++) {
        const char *at = (const char *)&m->layers[l] + offset;
        json_array_append_new(list, ckvc_json_real(scale * *(const double *)(const void *)at));
    }
    json_object_set_new(line, key, list);
}

void score_measures_attention(const score_measures *m, json_t *line) {
    if (!m->attention) { return; }
    add_layers(m, line, "attention_epsilon", offsetof(layer_error, epsilon), 1);
    add_layers(m, line, "attention_bound", offsetof(layer_error, epsilon),
               2 * sqrt((double)m->n_rows));
    add_layers(m, line, "attention_error", offsetof(layer_error, restricted), 1);
    add_layers(m, line, "attention_drift", offsetof(layer_error, actual), 1);
}

static json_t *quantiles_of(const double *x, size_t n) {
    static const double shares[SCORE_QUANTILE_COUNT] = {0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1};
    double q[SCORE_QUANTILE_COUNT];
    rank_quantile(x, n, shares, SCORE_QUANTILE_COUNT, q);
    return ckvc_json_reals(q, SCORE_QUANTILE_COUNT);
}

void score_measures_utilities(score_measures *m, const prefill_stats *stats, json_t *line) {
    if (!m->utilities) { return; }
    const size_t T = (size_t)stats->n_tokens;
    json_t *layers = json_array();
    json_object_set_new(line, "alpha_quantiles", quantiles_of(stats->alpha, T));
    json_object_set_new(line, "utility_quantiles", layers);
    for (int64_t l = 0; l < m->n_layers; l++) {
        json_t *heads = json_array();
        json_array_append_new(layers, heads);
        for (int64_t g = 0; g < m->n_kv_heads; g++) {
            const float *rho = stats->rho + (size_t)(l * m->n_kv_heads + g) * T;
            for (size_t t = 0; t < T; t++) { m->u[t] = stats->alpha[t] * (double)rho[t]; }
            json_array_append_new(heads, quantiles_of(m->u, T));
        }
    }
}
