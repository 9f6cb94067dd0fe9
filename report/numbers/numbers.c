/* See numbers.h. */
#include "report/numbers/numbers.h"

#include <math.h>

#include "lib/base/memory.h"

/* The attention that compression leaves out, per layer: what was measured on held-out prompts
 * against the Proposition's bound. */

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

static void attention_numbers_make(report_numbers *n) {
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

/* Transfer (docs/paper.md, section 10): transferred tables against those compiled for the same
 * model, and both against identity, on the same prompts; several source -> target pairs as one
 * matrix. From the comparisons of score_numbers.c. */

static const char *text_in(const json_t *o, const char *key) {
    const char *v = json_string_value(json_object_get(o, key));
    return v ? v : "";
}

static const char *or_unknown(const char *name) { return *name ? name : "unknown"; }

/* The model that a transferred table comes from: by name where it says so, or its source is here.
 */
static const char *source_model(const inputs *in, const input_table *t) {
    const char *name = text_in(t->f->xfer, "source_model");
    const input_table *source = input_table_of(in, text_in(t->f->xfer, "source"));
    return or_unknown(!*name && source ? text_in(source->f->meta, "model_name") : name);
}

/* The table's gain over identity in the setting of `like`; NULL when it was not scored. */
static const difference *against_identity(const report_numbers *n, const input_table *t,
                                          const score_series *like) {
    const comparison_list *list = &n->scores.lists[AGAINST_IDENTITY];
    EACH(comparison, c, list->of, list->n) {
        if (series_of_one_setting(&c->of, like) && c->of.kind == SCORE_TABLE &&
            strcmp(c->of.table, t->f->content_id) == 0) {
            return &c->all;
        }
    }
    return NULL;
}

/* ---- matrices ---- */

static bool same_matrix(const transfer_row *a, const transfer_row *b) {
    return a->budget == b->budget && a->C == b->C && strcmp(a->heads, b->heads) == 0;
}

/* Mean drop (compiled less transferred) over the rows like `first` from one model to another; NaN:
 * there is none. */
static double mean_drop(const report_numbers *n, const transfer_row *first, const char *source,
                        const char *target) {
    double sum = 0, rows = 0;
    EACH(transfer_row, r, n->transfers, n->n_transfers) {
        if (same_matrix(r, first) && strcmp(r->source_model, source) == 0 &&
            strcmp(r->target_model, target) == 0 && isfinite(r->against_compiled.d.mean)) {
            sum -= r->against_compiled.d.mean;
            rows++;
        }
    }
    return sum / rows;
}

static transfer_matrix matrix_of(report_numbers *n, const transfer_row *first) {
    transfer_matrix m = {.budget = first->budget, .C = first->C, .heads = first->heads};
    m.sources = NEW(n, n->n_transfers, const char *);
    m.targets = NEW(n, n->n_transfers, const char *);
    m.least_drop = m.most_drop = NAN;
    EACH(transfer_row, r, n->transfers, n->n_transfers) {
        if (same_matrix(r, first)) {
            add_sorted(m.sources, &m.n_sources, r->source_model);
            add_sorted(m.targets, &m.n_targets, r->target_model);
        }
    }
    double total = 0;
    m.drop = NEW(n, m.n_sources * m.n_targets, double);
    for (size_t i = 0; i < m.n_sources * m.n_targets; i++) {
        const double drop = m.drop[i] =
            mean_drop(n, first, m.sources[i / m.n_targets], m.targets[i % m.n_targets]);
        if (isnan(drop)) { continue; }
        total += drop;
        m.least_drop = fmin(m.least_drop, drop); /* of NaN and a number, the number */
        m.most_drop = fmax(m.most_drop, drop);
        m.pairs++;
    }
    m.mean_drop = total / (double)m.pairs;
    return m;
}

/* ---- rows ---- */

static interval negated(interval d) { return (interval){-d.mean, -d.hi, -d.lo}; }

static void transfer_numbers_make(report_numbers *n) {
    const comparison_list *list = &n->scores.lists[BETWEEN_TABLES];
    n->transfers = NEW(n, list->n, transfer_row);
    EACH(comparison, c, list->of, list->n) {
        const input_table *a = input_table_of(n->in, c->of.table),
                          *b = input_table_of(n->in, c->base.table);
        if (!a || !b || !a->f->xfer == !b->f->xfer || !c->one_score) { continue; }
        const bool other_way = b->f->xfer != NULL;
        const input_table *moved = other_way ? b : a, *compiled = other_way ? a : b;
        transfer_row *r = &n->transfers[n->n_transfers++];
        r->source_model = source_model(n->in, moved);
        r->target_model = or_unknown(text_in(moved->f->meta, "model_name"));
        r->heads = text_in(moved->f->xfer, "heads");
        r->transferred = moved->title;
        r->compiled = compiled->title;
        r->budget = c->of.budget;
        r->C = c->of.continuation;
        r->kept_ratio = other_way ? 1 / c->all.kept_ratio : c->all.kept_ratio;
        r->against_compiled.d = other_way ? negated(c->all.d) : c->all.d;
        r->against_compiled.kl = other_way ? negated(c->all.kl) : c->all.kl;
        r->against_compiled.by_kl = c->all.by_kl;
        r->against_compiled.n = c->all.n;
        r->transferred_against_identity = against_identity(n, moved, &c->of);
        r->compiled_against_identity = against_identity(n, compiled, &c->of);
    }
    n->matrices = NEW(n, n->n_transfers, transfer_matrix);
    for (size_t i = 0; i < n->n_transfers; i++) {
        bool known = false;
        for (size_t k = 0; k < i; k++) { known |= same_matrix(&n->transfers[k], &n->transfers[i]); }
        if (!known) { n->matrices[n->n_matrices++] = matrix_of(n, &n->transfers[i]); }
    }
}

ckvc_status numbers_make(report_numbers *n, inputs *in, ckvc_err *err) {
    *n = (report_numbers){.in = in};
    table_numbers_make(n);
    CKVC_TRY(trust_numbers_make(n, err));
    pair_numbers_make(n);
    run_numbers_make(n);
    score_numbers_make(n);
    verdict_numbers_make(n);
    answer_numbers_make(n);
    transfer_numbers_make(n);
    attention_numbers_make(n);
    diagnostic_numbers_make(n);
    return CKVC_OK;
}
