/* Computes what transfer brings (docs/paper.md, section 10), from the comparisons of
 * score_numbers.c: transferred tables against those compiled for the same model, and both
 * against identity, on the same prompts. Several pairs of source and target become one matrix. */
#include <math.h>

#include "report/numbers/numbers.h"

static const char *text_in(const json_t *o, const char *key) {
    const char *v = json_string_value(json_object_get(o, key));
    return v ? v : "";
}

static const char *or_unknown(const char *name) { return *name ? name : "unknown"; }

/* Returns the model that a transferred table comes from, by name if the table says it or its
 * source is among the inputs. */
static const char *source_model(const inputs *in, const input_table *t) {
    const char *name = text_in(t->f->xfer, "source_model");
    const input_table *source = input_table_of(in, text_in(t->f->xfer, "source"));
    return or_unknown(!*name && source ? text_in(source->f->meta, "model_name") : name);
}

/* Returns the table's gain over identity in the setting of `like`; NULL when it was not scored. */
static const difference *gain_over_identity(const report_numbers *n, const input_table *t,
                                            const score_series *like) {
    const comparison_list *list = &n->scores.lists[AGAINST_IDENTITY];
    EACH(comparison, c, list->of, list->n) {
        if (series_of_one_setting(&c->of, like) && c->of.kind == POLICY_TABLE &&
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

/* Returns the mean drop (compiled less transferred) over the rows like `first` from one model to
 * another; NaN: there is none. */
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

/* Returns the matrix for one budget, C and way of matching heads: compiled less transferred, by
 * source and target. */
static json_t *transfer_matrix_json(const report_numbers *n, const transfer_row *first) {
    const char **sources = NEW(n, n->n_transfers, const char *),
               **targets = NEW(n, n->n_transfers, const char *);
    size_t n_sources = 0, n_targets = 0, pairs = 0;
    double total = 0, least = NAN, most = NAN;
    json_t *drops = json_array();
    EACH(transfer_row, r, n->transfers, n->n_transfers) {
        if (same_matrix(r, first)) {
            add_sorted(sources, &n_sources, r->source_model);
            add_sorted(targets, &n_targets, r->target_model);
        }
    }
    for (size_t i = 0; i < n_sources * n_targets; i++) {
        const double drop = mean_drop(n, first, sources[i / n_targets], targets[i % n_targets]);
        json_array_append_new(drops, J(drop));
        if (isnan(drop)) { continue; }
        total += drop;
        least = fmin(least, drop); /* of NaN and a number, the number */
        most = fmax(most, drop);
        pairs++;
    }
    return OBJECT(
        OF(first, budget), OF(first, C), OF(first, heads), {"mean_drop", J(total / (double)pairs)},
        {"least_drop", J(least)}, {"most_drop", J(most)}, M(pairs),
        {"sources", ckvc_json_texts(sources, n_sources)},
        {"targets", ckvc_json_texts(targets, n_targets)}, {"drop", json_rows_of(drops, n_targets)});
}

/* ---- rows ---- */

static json_t *gain_json(const difference *of) {
    return of ? OBJECT({"difference", J(of->d.mean)}, {"lo", J(of->d.lo)}, {"hi", J(of->d.hi)},
                       OF(of, n))
              : json_null();
}

static json_t *row_json(const transfer_row *r) {
    return OBJECT(OF(r, source_model), OF(r, target_model), OF(r, heads), OF(r, budget), OF(r, C),
                  OF(r, transferred), OF(r, compiled), OF(r, kept_ratio),
                  {"against_compiled", gain_json(&r->against_compiled)},
                  {"transferred_against_identity", gain_json(r->transferred_against_identity)},
                  {"compiled_against_identity", gain_json(r->compiled_against_identity)});
}

static interval negated(interval d) { return (interval){-d.mean, -d.hi, -d.lo}; }

void transfer_numbers_make(report_numbers *n) {
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
        r->transferred_against_identity = gain_over_identity(n, moved, &c->of);
        r->compiled_against_identity = gain_over_identity(n, compiled, &c->of);
    }
    EACH(table_numbers, t, n->tables, n->n_tables) {
        if (t->f->xfer) { json_object_set_new(t->json, "transfer", J(t->f->xfer)); }
    }
    json_t *rows = json_array(), *matrices = json_array();
    for (size_t i = 0; i < n->n_transfers; i++) {
        const transfer_row *r = &n->transfers[i];
        bool known = false;
        for (size_t k = 0; k < i; k++) { known |= same_matrix(&n->transfers[k], r); }
        json_array_append_new(rows, row_json(r));
        if (!known) { json_array_append_new(matrices, transfer_matrix_json(n, r)); }
    }
    json_t *o = OBJECT({"rows", rows}, {"matrices", matrices});
    json_object_set_new(n->json, "transfers", o);
}
