/* The attention that compression leaves out, per layer: what was measured on held-out prompts
 * against the Proposition's bound. */
#include <math.h>

#include "lib/base/memory.h"
#include "report/numbers/numbers.h"

static double attention_of(const score_row *row, int what, size_t l) {
    return row->attention[(size_t)what * row->n_layers + l];
}

/* Rows of a series that were measured, with the layers of the first. */
static size_t measured(const score_series *of, const score_row **out) {
    size_t n = 0;
    for (size_t i = 0; i < of->n; i++) {
        const score_row *row = of->rows[i];
        if (row->attention && (n == 0 || row->n_layers == out[0]->n_layers)) { out[n++] = row; }
    }
    return n;
}

static attention_layer layer_of(const score_row *const *rows, size_t n, size_t l) {
    double mean[SCORE_ATTENTION_KEYS] = {0}, closest = 0, beyond = 0;
    for (size_t i = 0; i < n; i++) {
        for (int k = 0; k < SCORE_ATTENTION_KEYS; k++) {
            mean[k] += attention_of(rows[i], k, l) / (double)n;
        }
        const double bound = attention_of(rows[i], SCORE_BOUND, l),
                     error = attention_of(rows[i], SCORE_ERROR, l);
        closest = bound > 0 ? fmax(closest, error / bound) : closest;
        beyond += attention_of(rows[i], SCORE_DRIFT, l) > bound;
    }
    return (attention_layer){mean[SCORE_EPSILON],
                             mean[SCORE_BOUND],
                             mean[SCORE_ERROR],
                             mean[SCORE_DRIFT],
                             mean[SCORE_ERROR] / mean[SCORE_BOUND],
                             closest,
                             beyond / (double)n};
}

static attention_layer mean_of(const attention_layer *layers, size_t n) {
    attention_layer m = {.most_error_of_bound = NAN};
    EACH(attention_layer, l, layers, n) {
        m.epsilon += l->epsilon;
        m.bound += l->bound;
        m.error += l->error;
        m.drift += l->drift;
        m.drift_above_bound += l->drift_above_bound;
        m.most_error_of_bound = fmax(m.most_error_of_bound, l->most_error_of_bound);
    }
    const double L = (double)n;
    m.epsilon /= L;
    m.bound /= L;
    m.error /= L;
    m.drift /= L;
    m.drift_above_bound /= L;
    m.error_of_bound = m.error / m.bound;
    return m;
}

/* Does a measure say which prompts are hurt? Spearman of the prompt's mean over layers with its
 * damage. */
static partial_result with_damage(const report_numbers *n, const score_row *const *rows,
                                  size_t n_rows, int what, uint64_t stream) {
    CKVC_AUTO_FREE double *x = ckvc_calloc(n_rows, sizeof *x);
    CKVC_AUTO_FREE double *y = ckvc_calloc(n_rows, sizeof *y);
    CKVC_AUTO_FREE const char **documents = ckvc_alloc(n_rows, sizeof *documents);
    CKVC_AUTO_FREE size_t *cluster = ckvc_alloc(n_rows, sizeof *cluster);
    size_t m = 0;
    for (size_t i = 0; i < n_rows; i++) {
        if (isnan(rows[i]->reward)) { continue; }
        y[m] = -rows[i]->reward;
        for (size_t l = 0; l < rows[i]->n_layers; l++) {
            x[m] += attention_of(rows[i], what, l) / rows[i]->n_layers;
        }
        documents[m++] = rows[i]->document;
    }
    rank_clusters(documents, m, cluster);
    const partial_columns c = {.x = x, .y = y, .n = m, .cluster = cluster};
    return partial_correlation(&c, true, n->in->o->replicates, n->in->o->seed, stream);
}

void attention_numbers_make(report_numbers *n) {
    const score_files *f = &n->in->scores;
    const score_row **rows = NEW(n, f->n_rows, const score_row *);
    n->attention = NEW(n, f->n_series, attention_numbers);
    for (size_t s = 0; s < f->n_series; s++) {
        const size_t n_rows = measured(&f->series[s], rows);
        if (n_rows == 0) { continue; }
        attention_numbers *o = &n->attention[n->n_attention++];
        *o = (attention_numbers){.of = f->series[s], .n = n_rows, .n_layers = rows[0]->n_layers};
        o->layers = NEW(n, o->n_layers, attention_layer);
        o->bound_with_damage = with_damage(n, rows, n_rows, SCORE_BOUND, s);
        o->error_with_damage = with_damage(n, rows, n_rows, SCORE_ERROR, s);
        o->drift_with_damage = with_damage(n, rows, n_rows, SCORE_DRIFT, s);
        for (size_t l = 0; l < o->n_layers; l++) { o->layers[l] = layer_of(rows, n_rows, l); }
        o->mean = mean_of(o->layers, o->n_layers);
    }
}
