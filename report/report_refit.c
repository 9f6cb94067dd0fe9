/* How far the agreement of two tables is fixed by the prompts that they were fitted from.
 *
 * `lo`, `hi`: 2.5% and 97.5% points over bootstrap refits of both tables. `split_half_a`, `_b`: the
 * same measure between refits from two random halves of one table's own prompts, mean and 2.5%
 * and 97.5% points over splits; for Spearman, corrected to the whole corpus by Spearman and Brown.
 * `ceiling`: what two corpora of one truth can reach with these reliabilities, the root of their
 * product.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cql/stats/rank.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "report/report_internal.h"

#define MEASURES_MAX 65 /* overall and 64 groups of layers; or the gate's three */

/* One pair at one budget: how to measure the agreement of two columns of entries. */
typedef struct comparison {
    const report *r;
    const report_table *t[2];
    size_t b[2]; /* index of the budget in either table */
    int side;
    size_t X, n, n_measures; /* entries of a layer; of the column */
    const uint8_t *mask;     /* gate: [n] cells that count */
    double *x, *y;           /* [n] */
} comparison;

/* Column of one replicate; a state without records keeps what the fit keeps. */
static void column(const comparison *c, int which, const report_side *s, const uint16_t *choices,
                   uint32_t replicate, double *out) {
    size_t nB = c->t[which]->f->table->n_budgets, S = s->logged->n_states;
    for (size_t i = 0; i < c->n; i++) {
        size_t state = i * nB + c->b[which];
        uint16_t a = choices[(size_t)replicate * S + state];
        out[i] = s->of.grid[a == CQL_NO_CHOICE ? s->incoming[state] : a];
    }
}

/* Head: Spearman overall, then per group of layers. Gate, on the masked cells: Spearman, mean
 * |difference|, share equal. */
static void measure(const comparison *c, double *out) {
    if (c->side == CKVC_SIDE_HEAD) {
        rank_layers ranks;
        rank_by_layer(c->x, c->y, c->n / c->X, c->X, c->n_measures - 1, &ranks);
        out[0] = ranks.overall;
        memcpy(out + 1, ranks.bins, (c->n_measures - 1) * sizeof *out);
        return;
    }
    size_t k = 0;
    double difference = 0, equal = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->mask[i]) {
            double dx = c->x[i], dy = c->y[i];
            difference += fabs(dx - dy);
            equal += dx == dy;
            c->x[k] = dx; /* the columns are made anew for the next replicate */
            c->y[k++] = dy;
        }
    }
    out[0] = rank_spearman(c->x, c->y, k);
    out[1] = k ? difference / (double)k : NAN;
    out[2] = k ? equal / (double)k : NAN;
}

/* values [measures][n] of bootstrap pairs, or of the halves of table `which` (which >= 0). */
static void replicate_measures(const comparison *c, int which, uint32_t n, double *values) {
    double one[MEASURES_MAX];
    for (uint32_t i = 0; i < n; i++) {
        for (int k = 0; k < 2; k++) {
            const report_side *s = &c->t[which < 0 ? k : which]->sides[c->side];
            const uint16_t *choices = which < 0 ? s->boot_choices : s->half_choices;
            column(c, which < 0 ? k : which, s, choices, which < 0 ? i : 2 * i + (uint32_t)k,
                   k ? c->y : c->x);
        }
        measure(c, one);
        for (size_t m = 0; m < c->n_measures; m++) {
            values[m * n + i] = one[m];
        }
    }
}

static json_t *spread_json(const stability_spread *s) {
    return json_pack("{s:o, s:o, s:o, s:I}", "mean", ckvc_json_real(s->mean), "lo",
                     ckvc_json_real(s->lo), "hi", ckvc_json_real(s->hi), "defined",
                     (json_int_t)s->n);
}

/* {spearman: {lo, hi, split_half_a, split_half_b, ceiling}, ...} into `o` by the name of each
 * measure. */
static ckvc_status compare(const comparison *c, json_t *o, const char *const *names,
                           ckvc_err *err) {
    const report_side *sa = &c->t[0]->sides[c->side], *sb = &c->t[1]->sides[c->side];
    uint32_t boots = sa->n_boot < sb->n_boot ? sa->n_boot : sb->n_boot,
             halves[2] = {sa->n_halves / 2, sb->n_halves / 2};
    uint32_t most = boots > REPORT_SPLITS ? boots : REPORT_SPLITS;
    double *values = ckvc_alloc((size_t)most * c->n_measures, sizeof *values);
    stability_spread *spreads = ckvc_alloc(3 * c->n_measures, sizeof *spreads);
    ckvc_status rc = values && spreads
                         ? CKVC_OK
                         : ckvc_fail_memory(err, "report", most * c->n_measures * sizeof *values);
    for (int which = -1; which < 2 && rc == CKVC_OK; which++) {
        uint32_t n = which < 0 ? boots : halves[which];
        replicate_measures(c, which, n, values);
        for (size_t m = 0; m < c->n_measures && rc == CKVC_OK; m++) {
            spreads[(size_t)(which + 1) * c->n_measures + m] =
                stability_spread_of(values + m * n, n);
        }
    }
    for (size_t m = 0; m < c->n_measures && rc == CKVC_OK; m++) {
        const stability_spread *boot = &spreads[m];
        stability_spread *a = &spreads[c->n_measures + m], *b = &spreads[2 * c->n_measures + m];
        bool spearman = c->side == CKVC_SIDE_HEAD || m == 0;
        if (spearman) { /* a half has half of the prompts: corrected to all of them */
            stability_correct(a);
            stability_correct(b);
        }
        json_t *of = json_object();
        json_object_set_new(of, "lo", ckvc_json_real(boot->lo));
        json_object_set_new(of, "hi", ckvc_json_real(boot->hi));
        json_object_set_new(of, "replicates", json_integer((json_int_t)boots));
        json_object_set_new(of, "replicates_defined", json_integer((json_int_t)boot->n));
        json_object_set_new(of, "split_half_a", spread_json(a));
        json_object_set_new(of, "split_half_b", spread_json(b));
        json_object_set_new(of, "ceiling",
                            ckvc_json_real(spearman ? stability_ceiling(a->mean, b->mean) : NAN));
        if (names) {
            json_object_set_new(o, names[m], of);
        } else {
            json_array_append_new(o, of);
        }
    }
    free(values);
    free(spreads);
    return rc;
}

static size_t budget_index(const ckvc_table *k, double budget) {
    size_t b = 0;
    while (b + 1 < k->n_budgets && k->budgets[b] != budget) {
        b++;
    }
    return b;
}

/* Why a side of this pair has no refits; NULL when it has. */
static const char *missing(const report *r, const report_table *const t[2], int side) {
    if (r->o->replicates < 2) { return "no refits were asked for"; }
    return *t[0]->sides[side].why   ? t[0]->sides[side].why
           : *t[1]->sides[side].why ? t[1]->sides[side].why
                                    : NULL;
}

static comparison begin(const report *r, const report_table *const t[2], int side, double budget,
                        double *x, double *y) {
    const ckvc_table *k = t[0]->f->table;
    bool head = side == CKVC_SIDE_HEAD;
    comparison c = {.r = r, .t = {t[0], t[1]}, .side = side, .x = x, .y = y};
    c.b[0] = budget_index(k, budget);
    c.b[1] = budget_index(t[1]->f->table, budget);
    c.X = side_of_table(k, (ckvc_side)side).X;
    c.n = k->n_layers * c.X;
    size_t bins = r->o->layer_bins < k->n_layers ? r->o->layer_bins : k->n_layers;
    c.n_measures = head ? 1 + bins : 3;
    return c;
}

static ckvc_status refit_heads(const report *r, const report_table *const t[2], json_t *heads,
                               double *x, double *y, ckvc_err *err) {
    const char *why = missing(r, t, CKVC_SIDE_HEAD);
    ckvc_status rc = CKVC_OK;
    for (size_t i = 0; i < json_array_size(heads) && rc == CKVC_OK; i++) {
        json_t *o = json_array_get(heads, i), *each = json_array();
        json_object_set_new(o, "interval_missing", why ? json_string(why) : json_null());
        if (!why) {
            comparison c = begin(r, t, CKVC_SIDE_HEAD, report_num(o, "budget"), x, y);
            rc = compare(&c, each, NULL, err);
            json_object_set(o, "interval", json_array_get(each, 0));
            json_array_remove(each, 0);
            json_object_set(o, "bin_intervals", each);
        }
        json_decref(each);
    }
    return rc;
}

static ckvc_status refit_gates(const report *r, const report_table *const t[2], json_t *gates,
                               double *x, double *y, uint8_t *mask, ckvc_err *err) {
    static const char *const names[3] = {"spearman", "mean_abs_difference", "share_equal"};
    const ckvc_table *k = t[0]->f->table;
    const char *why = missing(r, t, CKVC_SIDE_GATE);
    ckvc_status rc = CKVC_OK;
    for (size_t i = 0; i < json_array_size(gates) && rc == CKVC_OK; i++) {
        json_t *o = json_array_get(gates, i), *of = json_object_get(o, "binding");
        if (!json_is_object(of)) { continue; }
        json_object_set_new(of, "interval_missing", why ? json_string(why) : json_null());
        if (why || !(report_num(of, "cells") > 0)) { continue; }
        comparison c = begin(r, t, CKVC_SIDE_GATE, report_num(o, "budget"), x, y);
        for (size_t n = 0; n < c.n; n++) {
            size_t l = n / c.X, e = n % c.X / k->n_ppl_bins, p = n % k->n_ppl_bins;
            mask[n] = report_gate_supported(t[0], l, e, p, c.b[0]) &&
                      report_gate_supported(t[1], l, e, p, c.b[1]) &&
                      report_binds(r, t[0], c.b[0], l, e, p) &&
                      report_binds(r, t[1], c.b[1], l, e, p);
        }
        c.mask = mask;
        json_t *intervals = json_object();
        rc = compare(&c, intervals, names, err);
        json_object_set_new(of, "intervals", intervals);
    }
    return rc;
}

ckvc_status report_refit(report *r, size_t a, size_t b, json_t *heads, json_t *gates,
                         ckvc_err *err) {
    const report_table *t[2] = {&r->tables[a], &r->tables[b]};
    const ckvc_table *k = t[0]->f->table;
    size_t cells = (size_t)k->n_entropy_bins * k->n_ppl_bins,
           n = k->n_layers * (cells > k->n_heads ? cells : k->n_heads);
    double *x = ckvc_alloc(n, sizeof *x), *y = ckvc_alloc(n, sizeof *y);
    uint8_t *mask = ckvc_alloc(n, 1);
    ckvc_status rc = x && y && mask ? CKVC_OK : ckvc_fail_memory(err, "report", n * 2 * sizeof *x);
    if (rc == CKVC_OK) { rc = refit_heads(r, t, heads, x, y, err); }
    if (rc == CKVC_OK) { rc = refit_gates(r, t, gates, x, y, mask, err); }
    free(x);
    free(y);
    free(mask);
    return rc;
}
