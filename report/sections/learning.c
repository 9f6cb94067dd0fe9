/* The figures of trust: learning curves. */
#include "report/sections/sections.h"

enum { BAND = CURVE_BAND | CURVE_DOTS };

/* Lines "table,what,prompts,rollouts,mean,lo,hi" of the csv. */
static void curve_csv(view *v, const side_trust *t, const char *what, const chart_curve *c,
                      const double *rollouts) {
    for (size_t i = 0; i < c->n; i++) {
        csv_text(&v->csv, t->title);
        csv_text(&v->csv, what);
        figure_line(v, chart_at(c->x, c->stride, i), chart_at(rollouts, c->stride, i),
                    chart_at(c->y, c->stride, i), chart_at(c->y + 1, c->stride, i),
                    chart_at(c->y + 2, c->stride, i));
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
        *o = gain ? (chart_curve){NULL,          f->n_left_out, sizeof *p, &p->prompts,
                                  &p->gain.mean, BAND,          0}
                  : (chart_curve){NULL, f->n_curve, sizeof *c, &c->prompts, &c->rho.mean, BAND, 0};
        o->name = room_text(&n->in->room, "%s: %.0f rollouts a prompt", s->title,
                            s->rollouts / (double)s->prompts);
        o->series = view_series((size_t)(t - n->tables));
        curve_csv(v, s, gain ? "advantage" : "two tables of this size", o,
                  gain ? &p->rollouts : &c->rollouts);
    }
    if (k == 0) {
        figure_drop(v);
        return;
    }
    chart_curves(&v->s, text, curves, k, CHART_X_LOG | CHART_ZERO_LINE);
    figure_end(v, name, caption);
}

void draw_learning(const report_numbers *n, view *v) {
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
