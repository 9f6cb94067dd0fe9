/* Computes the attention that compression leaves out, layer by layer: what was measured on
 * held-out prompts, against the Proposition's bound. */
#include <math.h>

#include "lib/base/memory.h"
#include "lib/stats/partial.h"
#include "lib/stats/rank.h"
#include "report/numbers/numbers.h"

static double attention_of(const score_row *row, int what, size_t l) {
    return row->attention[(size_t)what * row->n_layers + l];
}

/* Collects the rows of a series that were measured and have the layers of the first such row. */
static size_t measured(const score_series *of, const score_row **out) {
    size_t n = 0;
    for (size_t i = 0; i < of->n; i++) {
        const score_row *row = of->rows[i];
        if (row->attention && (n == 0 || row->n_layers == out[0]->n_layers)) { out[n++] = row; }
    }
    return n;
}

/* The numbers that are said of a layer, and of the mean over layers. */
enum { EPSILON, BOUND, ERROR, DRIFT, ABOVE, ERROR_OF_BOUND, MOST_OF_BOUND, VALUES };

static json_t *values_json(const double v[VALUES]) {
    return OBJECT({"epsilon", J(v[EPSILON])}, {"bound", J(v[BOUND])}, {"error", J(v[ERROR])},
                  {"drift", J(v[DRIFT])}, {"drift_above_bound", J(v[ABOVE])},
                  {"error_of_bound", J(v[ERROR_OF_BOUND])},
                  {"most_error_of_bound", J(v[MOST_OF_BOUND])});
}

static void summarise_layer(const score_row *const *rows, size_t n, size_t l, double v[VALUES]) {
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
    v[EPSILON] = mean[SCORE_EPSILON];
    v[BOUND] = mean[SCORE_BOUND];
    v[ERROR] = mean[SCORE_ERROR];
    v[DRIFT] = mean[SCORE_DRIFT];
    v[ABOVE] = beyond / (double)n;
    v[ERROR_OF_BOUND] = v[ERROR] / v[BOUND];
    v[MOST_OF_BOUND] = closest;
}

/* Sets the numbers of every layer and of their mean. For the mean, the most error of a bound is
 * the largest of the layers. */
static void set_layers(json_t *o, const score_row *const *rows, size_t n) {
    double mean[VALUES] = {0}, most = NAN, v[VALUES];
    const uint32_t L = rows[0]->n_layers;
    json_t *layers = json_array();
    for (size_t l = 0; l < L; l++) {
        summarise_layer(rows, n, l, v);
        for (size_t k = 0; k < VALUES; k++) { mean[k] += v[k]; }
        most = fmax(most, v[MOST_OF_BOUND]);
        json_array_append_new(layers, values_json(v));
    }
    for (size_t k = 0; k < VALUES; k++) { mean[k] /= L; }
    mean[ERROR_OF_BOUND] = mean[ERROR] / mean[BOUND];
    mean[MOST_OF_BOUND] = most;
    ADD_MEMBERS(o, {"mean", values_json(mean)}, {"layers", layers});
}

/* Does a measure say which prompts are hurt? This is Spearman's correlation of a prompt's mean
 * over layers with its damage. */
static json_t *with_damage(const report_numbers *n, const score_row *const *rows, size_t n_rows,
                           int what, uint64_t stream) {
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
    const partial_result of =
        partial_correlation(&c, true, n->in->o->replicates, n->in->o->seed, stream);
    return OBJECT({"spearman", J(of.r)}, {"lo", J(of.lo)}, {"hi", J(of.hi)});
}

void attention_numbers_make(report_numbers *n) {
    const score_files *f = &n->in->scores;
    const score_row **rows = NEW(n, f->n_rows, const score_row *);
    json_t *list = json_array();
    for (size_t s = 0; s < f->n_series; s++) {
        const size_t n_rows = measured(&f->series[s], rows);
        if (n_rows == 0) { continue; }
        json_t *o = series_named(&f->series[s]);
        ADD_MEMBERS(o, {"n", J(n_rows)},
                    {"bound_with_damage", with_damage(n, rows, n_rows, SCORE_BOUND, s)},
                    {"error_with_damage", with_damage(n, rows, n_rows, SCORE_ERROR, s)},
                    {"drift_with_damage", with_damage(n, rows, n_rows, SCORE_DRIFT, s)});
        set_layers(o, rows, n_rows);
        json_array_append_new(list, o);
    }
    json_object_set_new(n->json, "attention", list);
}
