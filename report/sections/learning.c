/* The figures of trust: learning curves, sorted advantages, the calibration bound, scores of tables
 * of several sizes. */
#include <math.h>
#include <stdlib.h>

#include "lib/base/order.h"
#include "report/sections/sections.h"

enum { BAND = CURVE_BAND | CURVE_DOTS };

/* Lines "table,what,x,...,mean,lo,hi" of the csv; rollouts: a column of them behind x; ends: those
 * of the band follow y, drawn or not. */
static void curve_csv(ckvc_buffer *csv, const side_trust *t, const char *what, const chart_curve *c,
                      const double *rollouts, bool ends) {
    for (size_t i = 0; i < c->n; i++) {
        double row[5];
        size_t k = 0;
        row[k++] = chart_at(c->x, c->stride, i);
        if (rollouts) { row[k++] = chart_at(rollouts, c->stride, i); }
        for (int y = 0; y < 3; y++) {
            row[k++] = y && !ends ? NAN : chart_at(c->y + y, c->stride, i);
        }
        csv_text(csv, t->title);
        csv_text(csv, what);
        csv_numbers(csv, row, k);
    }
}

/* A curve a table, against the prompts behind a choice: how alike two tables of that size are, or
 * (gain) the advantage on prompts left out. */
static void draw_prompts(const report_numbers *n, view *v, ckvc_side side, bool gain,
                         const char *name, chart_text text, const char *caption) {
    chart_curve *curves = NEW(n, n->n_tables, chart_curve);
    size_t k = 0;
    figure_begin(v, "table,what,prompts,rollouts,mean,lo,hi");
    EACH(table_numbers, t, n->tables, n->n_tables) {
        const side_trust *s = &t->trust[side];
        const side_refits *f = &s->refits;
        const left_out_point *p = f->left_out;
        const curve_point *c = f->curve;
        if ((gain ? f->n_left_out : f->n_curve) == 0) { continue; }
        chart_curve *o = &curves[k++];
        *o = gain ? (chart_curve){NULL, f->n_left_out, sizeof *p, &p->prompts, &p->gain.mean, BAND}
                  : (chart_curve){NULL, f->n_curve, sizeof *c, &c->prompts, &c->rho.mean, BAND};
        o->name = room_text(&n->in->room, "%s: %.0f rollouts a prompt", s->title,
                            s->rollouts / (double)s->prompts);
        curve_csv(&v->csv, s, gain ? "advantage" : "two tables of this size", o,
                  gain ? &p->rollouts : &c->rollouts, true);
    }
    if (k == 0) {
        figure_drop(v);
        return;
    }
    chart_curves(&v->s, text, curves, k, CHART_X_LOG | CHART_ZERO_LINE);
    figure_end(v, name, caption);
}

/* ---- scores of tables of several sizes ---- */

static double fitted_prompts(const table_numbers *t) {
    const json_t *head = json_object_get(json_object_get(t->f.meta, "counts"), "head"),
                 *prompts = json_object_get(head, "prompts");
    return json_is_number(prompts) ? json_number_value(prompts) : NAN;
}

/* Against identity, by the prompts that a table was fitted from: where tables of at least two sizes
 * were scored under one setting. */
static void draw_sizes(const report_numbers *n, view *v) {
    const comparison_list *list = &n->scores.lists[AGAINST_IDENTITY];
    size_t k = 0, sizes = 0;
    chart_point *points = NEW(n, list->n * n->n_tables, chart_point);
    figure_begin(v, "table,budget,prompts,head_rollouts,difference_nats_per_token,lo,hi");
    EACH(comparison, c, list->of, list->n) {
        EACH(table_numbers, t, n->tables, n->n_tables) {
            const side_trust *head = &t->trust[CKVC_SIDE_HEAD];
            const interval d = c->all.d;
            const double x = fitted_prompts(t), rollouts = head->known ? head->rollouts : NAN;
            if (strcmp(c->of.title, t->title) != 0 || !(x > 0)) { continue; }
            sizes += k == 0 || points[k - 1].x != x;
            points[k++] = (chart_point){x, d.mean, d.lo, d.hi, .tip = t->title};
            csv_text(&v->csv, t->title);
            figure_line(v, c->of.budget, x, rollouts, d.mean, d.lo, d.hi);
        }
    }
    if (sizes < 2) {
        figure_drop(v);
        return;
    }
    figure_scatter(v,
                   .text = {"Scored gain against identity, by prompts of the table",
                            "prompts that the table was fitted from",
                            "reward against identity, nats/token"},
                   .n = k, .points = points, .zero_line = true);
    figure_end(v, "scores-by-prompts",
               "Whole tables on held-out prompts, with 95% intervals: what the one-change "
               "advantages add up to.");
}

void draw_learning(const report_numbers *n, view *v) {
    draw_sizes(n, v);
    draw_prompts(n, v, CKVC_SIDE_HEAD, false, "learning-agreement",
                 (chart_text){"How alike are two head tables from n prompts each?",
                              "prompts of each table", "Spearman's ρ"},
                 "Mean over random disjoint sets of prompts of one run; bands hold 95% of the "
                 "draws. Beyond half of the prompts: halves, corrected (Spearman and Brown). Flat "
                 "at 0: the order of heads is noise. Still rising: more prompts help. Rollouts: "
                 "distinct ones, the mean of a prompt.");
    draw_prompts(n, v, CKVC_SIDE_HEAD, true, "learning-gain-head",
                 (chart_text){"Head weights: one-change advantage on prompts left out",
                              "prompts that the choices come from", "advantage, nats per token"},
                 "What one chosen weight brings on prompts that did not choose it, mean over "
                 "heads; bands are 95% intervals over prompts. Not the gain of a whole table: "
                 "changes are measured one at a time.");
    draw_prompts(n, v, CKVC_SIDE_GATE, true, "learning-gain-gate",
                 (chart_text){"Thresholds: one-change advantage on prompts left out",
                              "prompts that the choices come from", "advantage, nats per token"},
                 "The same for one threshold, its penalty included: few prompts leave most risk "
                 "cells without records, which bring 0.");
}

static void draw_rollouts(view *v, const side_trust *t) {
    const size_t n = t->refits.n_curve, size = sizeof(curve_point);
    const curve_point *c = t->refits.curve, *thin = t->refits.thinned;
    if (n == 0) { return; }
    const chart_curve curves[3] = {{"fewer prompts", n, size, &c->rollouts, &c->rho.mean, BAND},
                                   {"all prompts, fewer states of each", t->refits.n_thinned, size,
                                    &thin->rollouts, &thin->rho.mean, CURVE_DOTS},
                                   {"fewer prompts, against the table of all", n, size,
                                    &c->rollouts, &c->to_full.mean, CURVE_DASHED | CURVE_DOTS}};
    figure_begin(v, "table,what,rollouts,mean,lo,hi");
    for (size_t k = 0; k < 3; k++) {
        curve_csv(&v->csv, t, curves[k].name, &curves[k], NULL, true);
    }
    figure_curves(v, curves, 3, CHART_X_LOG | CHART_ZERO_LINE,
                  say("%s: agreement of head tables against rollouts", t->title),
                  "distinct rollouts behind a table", "Spearman's ρ");
    figure_end(
        v, say("learning-rollouts-%s", t->tag),
        "The same number of rollouts spent on fewer prompts, or on fewer states of every prompt. "
        "The first point of the dashed line is one prompt alone against the whole table.");
}

/* ---- sorted advantages, the bound ---- */

static void draw_ranks(view *v, const side_trust *t) {
    const rank_point *r = t->ranks;
    if (!t->known || t->rank_states == 0) { return; }
    const chart_curve curves[2] = {
        {"on the prompts that ranked them", t->n_ranks, sizeof *r, &r->rank, &r->same, BAND},
        {"on other prompts", t->n_ranks, sizeof *r, &r->rank, &r->other,
         CURVE_DASHED | CURVE_DOTS}};
    figure_begin(v, "table,what,rank,advantage,lo,hi");
    curve_csv(&v->csv, t, "same prompts", &curves[0], NULL, true);
    curve_csv(&v->csv, t, "other prompts", &curves[1], NULL, false);
    figure_curves(v, curves, 2, CHART_ZERO_LINE,
                  say("%s: advantage of %s actions by rank", t->title, t->name),
                  "rank of the action in its state, best first", "mean advantage, nats per token");
    figure_end(
        v, say("ranks-%s-%s", t->name, t->tag),
        "Mean over states, band: their quartiles. Where the dashed line is flat, ranks on one half "
        "of the prompts say nothing about the other half: the slope of the other line is luck.");
}

/* The defined numbers of a member of bounded entries, ascending, against the share of states below.
 */
static chart_curve sorted_curve(const report_numbers *n, const side_trust *t, const double *first,
                                const char *name, int flags) {
    double *x = NEW(n, t->states, double), *y = NEW(n, t->states, double);
    size_t k = 0;
    for (size_t i = 0; i < t->states; i++) {
        y[k] = chart_at(first, sizeof(entry), i);
        k += t->entries[i].bounded && isfinite(y[k]);
    }
    qsort(y, k, sizeof *y, ckvc_order_double);
    for (size_t i = 0; i < k; i++) { x[i] = 100.0 * ((double)i + 0.5) / (double)k; }
    return (chart_curve){name, k, sizeof *x, x, y, CURVE_DOTS | flags};
}

TABLE(cell_columns, entry, CSV(layer), CSV_AS(entropy, "entropy_bin"),
      CSV_AS(perplexity, "perplexity_bin"), CSV(budget), INCLUDE(bound_entry_columns));
TABLE(head_columns, entry, CSV(layer), CSV(head), CSV(budget), INCLUDE(bound_entry_columns));

static void draw_bound(const report_numbers *n, view *v, const side_trust *t) {
    if (!t->known || t->bound.states == 0) { return; }
    const entry *e = t->entries;
    columns_of *place = t->kind->axis == SIDE_OF_HEADS ? head_columns : cell_columns;
    const chart_curve curves[3] = {
        sorted_curve(n, t, &e->bound.spread, "spread of the actions' mean rewards", 0),
        sorted_curve(n, t, &e->excess, "bound on the excess, advantages", 0),
        sorted_curve(n, t, &e->excess_raw, "bound on the excess, raw rewards", CURVE_DASHED)};
    figure_table(v, place, NULL, 0);
    EACH(entry, x, e, t->states) {
        if (!x->bounded) { continue; }
        csv_row(&v->csv, place, x);
    }
    figure_curves(v, curves, 3, CHART_Y_LOG,
                  say("%s: the paper's calibration bound, %s side", t->title, t->name),
                  "states, sorted, per cent", "nats per token");
    figure_end(v, say("bound-%s-%s", t->name, t->tag),
               "Each line sorted by itself. Only where a bound lies below the spread does it say "
               "that the chosen action is better than the worst one.");
}

void draw_learning_more(const report_numbers *n, view *v) {
    EACH(table_numbers, t, n->tables, n->n_tables) { draw_rollouts(v, &t->trust[CKVC_SIDE_HEAD]); }
    EACH(side_trust, t, n->trust, n->n_trust) {
        draw_ranks(v, t);
        draw_bound(n, v, t);
    }
}
