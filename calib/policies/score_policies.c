/* Controls and references of `ckvc score`: see score_policies.h. */
#include "calib/policies/score_policies.h"

#include <assert.h>

#include "calib/actions/start_table.h"
#include "lib/base/names.h"
#include "lib/base/rng.h"

enum { STAGE_RANDOM = 16, SINKS = 4, POOL_SIDE = 3 };

/* ---- controls ---- */

/* The grid's value nearest to x. */
static double snap(const double *grid, uint32_t n, double x) {
    return grid[ckvc_grid_nearest(grid, n, x)];
}

/* One threshold per layer and block: the mean of its cells, added in their order. */
static void flatten_gate(ckvc_table *t) {
    const uint32_t cells = t->n_entropy_bins * t->n_ppl_bins;
    for (uint32_t l = 0; l < t->n_layers; l++) {
        for (uint32_t b = 0; b < t->n_budgets; b++) {
            float *of_layer = t->tau + ckvc_tau_index(t, l, 0, 0, b);
            double sum = 0.0;
            for (uint32_t c = 0; c < cells; c++) {
                const int a = ckvc_grid_index(t->gate_grid, t->n_gate_actions,
                                              of_layer[(size_t)c * t->n_budgets]);
                assert(a >= 0);
                sum += t->gate_grid[a];
            }
            const float mean = (float)snap(t->gate_grid, t->n_gate_actions, sum / cells);
            for (uint32_t c = 0; c < cells; c++) { of_layer[(size_t)c * t->n_budgets] = mean; }
        }
    }
}

static void fill(float *values, size_t n, double value) {
    for (size_t i = 0; i < n; i++) { values[i] = (float)value; }
}

ckvc_table *score_control_table(score_kind control, const ckvc_table *from) {
    ckvc_table *t = start_table_copy(from);
    switch (control) {
    case SCORE_NO_UTILITY: t->op = CKVC_OPERATOR_NO_UTILITY; break;
    case SCORE_NO_THRESHOLD: t->op = CKVC_OPERATOR_NO_THRESHOLD; break;
    case SCORE_MEAN_POOL: t->op = CKVC_OPERATOR_MEAN_POOL; break;
    case SCORE_MEAN_GATE: flatten_gate(t); break;
    case SCORE_HEAD_ONLY:
        fill(t->tau, ckvc_tau_index(t, t->n_layers, 0, 0, 0),
             snap(t->gate_grid, t->n_gate_actions, ckvc_gate_action(CKVC_GATE_START)));
        break;
    default:
        assert(control == SCORE_GATE_ONLY);
        fill(t->weight, ckvc_weight_index(t, t->n_layers, 0, 0),
             snap(t->head_grid, t->n_head_actions, ckvc_head_action(CKVC_HEAD_NEUTRAL)));
    }
    return t;
}

/* ---- references ---- */

void score_ranking(score_kind reference, uint32_t n_tokens, uint32_t window, const float *alpha,
                   uint64_t seed, const char *prompt_id, double *rank) {
    const uint32_t T = n_tokens, before_window = window < T ? T - window : 0;
    ckvc_rng rng;
    ckvc_rng_init(&rng, seed, ckvc_rng_key(prompt_id), STAGE_RANDOM);
    for (uint32_t t = 0; t < T; t++) {
        switch (reference) {
        case SCORE_RECENT: rank[t] = t; break;
        case SCORE_SINK_RECENT:
        case SCORE_STREAMINGLLM:
        case SCORE_DUOATTENTION: /* of the first four the first: with room for fewer they are what
                                   is kept */
            rank[t] = t < SINKS ? 2.0 * T - t : t;
            break;
        case SCORE_RANDOM: rank[t] = ckvc_rng_double(&rng); break;
        case SCORE_WINDOW: rank[t] = (double)alpha[t]; break;
        default:
            assert(reference == SCORE_WINDOW_POOLED);
            if (t >= before_window) {
                rank[t] = INFINITY;
                break;
            }
            rank[t] = 0.0; /* alpha is not negative */
            for (uint32_t i = t > POOL_SIDE ? t - POOL_SIDE : 0;
                 i <= t + POOL_SIDE && i < before_window; i++) {
                rank[t] = (double)alpha[i] > rank[t] ? (double)alpha[i] : rank[t];
            }
        }
    }
}
