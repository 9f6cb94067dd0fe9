/* Figures of report_stats.c and report_refit.c: rank agreement with its limits, learning curves,
 * sorted advantages, the calibration bound. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/report_page.h"
#include "lib/base/order.h"
#include "report/report_pen.h"

/* ---- rank agreement ---- */

static void agreement_row(report_pen *p, chart_interval_row *row, const json_t *of, double rho,
                          const char *heading, const char *label) {
    double limit = report_num(of, "ceiling"), refits = report_num(of, "replicates");
    const bool few = refits < REPORT_REFITS;
    *row = (chart_interval_row){.heading = heading,
                                .label = label,
                                .remark =
                                    pen_text(p, few ? "%s, limit %s, %.0f refits" : "%s, limit %s",
                                             report_fixed(rho, 2), report_fixed(limit, 2), refits),
                                .mean = rho,
                                .lo = report_num(of, "lo"),
                                .hi = report_num(of, "hi"),
                                .limit = limit,
                                .draw_limit = isfinite(limit)};
    pen_csv_number(p, rho, ',');
    pen_csv_number(p, row->lo, ',');
    pen_csv_number(p, row->hi, ',');
    pen_csv_number(p, report_num(json_object_get(of, "split_half_a"), "mean"), ',');
    pen_csv_number(p, report_num(json_object_get(of, "split_half_b"), "mean"), ',');
    pen_csv_number(p, limit, '\n');
}

static void pair_csv(report_pen *p, const json_t *pair, double budget, const char *layers) {
    pen_csv_text(p, report_str(pair, "a"), ',');
    pen_csv_text(p, report_str(pair, "b"), ',');
    pen_csv_number(p, budget, ',');
    pen_csv_text(p, layers, ',');
}

/* All pairs and budgets in one figure: all heads, then each group of layers, every row with its
 * interval and its limit. */
void report_draw_spearman(report_pen *p) {
    const json_t *pairs = json_object_get(p->r->json, "pairs");
    size_t n = 0, i, k;
    json_t *pair, *head;
    json_array_foreach(pairs, i, pair) {
        json_array_foreach(json_object_get(pair, "head"), k, head) {
            n += 1 + json_array_size(json_object_get(head, "bins"));
        }
    }
    chart_interval_row *rows = n ? pen_room(p, n, sizeof *rows) : NULL;
    if (!rows) { return; }
    pen_begin(p);
    ckvc_buffer_text(&p->csv, "a,b,budget,layers,spearman,lo,hi,split_half_a,split_half_b,limit\n");
    n = 0;
    json_array_foreach(pairs, i, pair) {
        json_array_foreach(json_object_get(pair, "head"), k, head) {
            double budget = report_num(head, "budget");
            const json_t *bins = json_object_get(head, "bins"),
                         *ends = json_object_get(head, "bin_layers");
            const json_t *intervals = json_object_get(head, "bin_intervals");
            pair_csv(p, pair, budget, "all");
            agreement_row(p, &rows[n++], json_object_get(head, "interval"),
                          report_num(head, "overall"),
                          pen_text(p, "%s and %s, budget %s", report_str(pair, "a"),
                                   report_str(pair, "b"), report_budget(budget)),
                          "all heads");
            for (size_t g = 0; g < json_array_size(bins); g++) {
                const json_t *v = json_array_get(bins, g), *range = json_array_get(ends, g);
                const char *layers =
                    pen_text(p, "%d to %d", (int)json_integer_value(json_array_get(range, 0)),
                             (int)json_integer_value(json_array_get(range, 1)));
                pair_csv(p, pair, budget, layers);
                agreement_row(p, &rows[n++], json_array_get(intervals, g),
                              json_is_number(v) ? json_number_value(v) : NAN, NULL,
                              pen_text(p, "layers %s", layers));
            }
        }
    }
    const char *title = "Rank agreement of head weights between tables";
    chart_intervals(
        &p->s,
        &(chart_interval_spec){
            title, "Spearman's ρ", "undefined: one side is constant", "opposite order",
            "same order", 0.0, n, rows,
            "limit: what two corpora of one truth can reach when each is only as sure of itself"});
    pen_finish(p, "agreement", "spearman", title,
               "Lines are 95% intervals over refits from resampled prompts. The limit is the root "
               "of the product of both corpora's "
               "reliabilities: ρ between random halves of a corpus's own prompts, corrected for "
               "their length (Spearman and Brown).");
    free(rows);
}

/* ---- learning curves ---- */

static const json_t *side_of(const json_t *table, bool head) {
    return json_object_get(json_object_get(table, "statistics"),
                           ckvc_side_name(head ? CKVC_SIDE_HEAD : CKVC_SIDE_GATE));
}

typedef struct series {
    double *x, *y, *lo, *hi;
    size_t n;
} series;

static series series_room(report_pen *p, size_t n) {
    series s = {.x = pen_room(p, 4 * n, sizeof *s.x)};
    s.y = s.x ? s.x + n : NULL;
    s.lo = s.x ? s.x + 2 * n : NULL;
    s.hi = s.x ? s.x + 3 * n : NULL;
    return s;
}

/* x: a member of each point; y: a spread below `of` (NULL: the point itself). */
static series series_from(report_pen *p, const json_t *points, const char *x, const char *of) {
    series s = series_room(p, json_array_size(points));
    for (size_t i = 0; s.x && i < json_array_size(points); i++) {
        const json_t *point = json_array_get(points, i),
                     *y = of ? json_object_get(point, of) : point;
        s.x[s.n] = report_num(point, x);
        s.y[s.n] = report_num(y, "mean");
        s.lo[s.n] = report_num(y, "lo");
        s.hi[s.n++] = report_num(y, "hi");
    }
    return s;
}

static void series_csv(report_pen *p, const char *name, const char *what, const series *s) {
    for (size_t i = 0; i < s->n; i++) {
        pen_csv_text(p, name, ',');
        pen_csv_text(p, what, ',');
        pen_csv_number(p, s->x[i], ',');
        pen_csv_number(p, s->y[i], ',');
        pen_csv_number(p, s->lo[i], ',');
        pen_csv_number(p, s->hi[i], '\n');
    }
}

static chart_curve curve_of(const char *name, const series *s, bool band, bool dashed) {
    return (chart_curve){name,   s->n, s->x, s->y, band ? s->lo : NULL, band ? s->hi : NULL,
                         dashed, true};
}

/* Every table with records: a curve against prompts from one of its lists of points. */
typedef struct curve_plan {
    bool head;
    const char *list, *of; /* as series_from */
    const char *what;      /* word of the csv */
} curve_plan;

static void plan_csv(report_pen *p, const char *name, const char *what, const json_t *points,
                     const series *s) {
    for (size_t i = 0; i < s->n; i++) {
        pen_csv_text(p, name, ',');
        pen_csv_text(p, what, ',');
        pen_csv_number(p, s->x[i], ',');
        pen_csv_number(p, report_num(json_array_get(points, i), "rollouts"), ',');
        pen_csv_number(p, s->y[i], ',');
        pen_csv_number(p, s->lo[i], ',');
        pen_csv_number(p, s->hi[i], '\n');
    }
}

static size_t plan_curves(report_pen *p, const curve_plan *plan, series *all, chart_curve *curves) {
    size_t n = 0;
    for (size_t t = 0; t < p->r->n_tables; t++) {
        const json_t *table = json_array_get(json_object_get(p->r->json, "tables"), t);
        const json_t *side = side_of(table, plan->head),
                     *points = json_object_get(side, plan->list);
        if (json_array_size(points) == 0) { continue; }
        all[n] = series_from(p, points, "prompts", plan->of);
        curves[n] = curve_of(pen_text(p, "%s: %.0f rollouts a prompt", p->r->tables[t].title,
                                      report_num(side, "rollouts") / report_num(side, "prompts")),
                             &all[n], true, false);
        plan_csv(p, p->r->tables[t].title, plan->what, points, &all[n]);
        n++;
    }
    return n;
}

static void draw_plan(report_pen *p, curve_plan plan, const char *name, chart_curves_spec spec,
                      const char *caption) {
    series *all = pen_room(p, p->r->n_tables, sizeof *all);
    chart_curve *curves = pen_room(p, p->r->n_tables, sizeof *curves);
    if (all && curves) {
        pen_begin(p);
        ckvc_buffer_text(&p->csv, "table,what,prompts,rollouts,mean,lo,hi\n");
        spec.n_curves = plan_curves(p, &plan, all, curves);
        spec.curves = curves;
        if (spec.n_curves > 0) {
            chart_curves(&p->s, &spec);
            pen_finish(p, "trust", name, spec.title, caption);
        } else {
            svg_fini(&p->s);
            ckvc_buffer_fini(&p->csv);
        }
        for (size_t i = 0; i < spec.n_curves; i++) {
            free(all[i].x);
        }
    }
    free(all);
    free(curves);
}

static void draw_learning(report_pen *p) {
    static const double zero[1] = {0.0};
    draw_plan(p, (curve_plan){true, "curve", "rho", "two tables of this size"},
              "learning-agreement",
              (chart_curves_spec){.title = "How alike are two head tables from n prompts each?",
                                  .x_label = "prompts of each table",
                                  .y_label = "Spearman's ρ",
                                  .x_log = true,
                                  .n_y_lines = 1,
                                  .y_lines = zero},
              "Mean over random disjoint sets of prompts of one run; bands hold 95% of the draws. "
              "Beyond half of the prompts: "
              "halves, corrected (Spearman and Brown). Flat at 0: the order of heads is noise. "
              "Still rising: more prompts help. "
              "Rollouts: distinct ones, the mean of a prompt.");
    for (int head = 1; head >= 0; head--) {
        draw_plan(
            p, (curve_plan){head, "left_out", NULL, "advantage"},
            head ? "learning-gain-head" : "learning-gain-gate",
            (chart_curves_spec){.title =
                                    head ? "Head weights: one-change advantage on prompts left out"
                                         : "Thresholds: one-change advantage on prompts left out",
                                .x_label = "prompts that the choices come from",
                                .y_label = "advantage, nats per token",
                                .x_log = true,
                                .n_y_lines = 1,
                                .y_lines = zero},
            head
                ? "What one chosen weight brings on prompts that did not choose it, mean over "
                  "heads; bands are 95% intervals "
                  "over prompts. Not the gain of a whole table: changes are measured one at a time."
                : "The same for one threshold, its penalty included: few prompts leave most risk "
                  "cells without records, "
                  "which bring 0.");
    }
    for (size_t t = 0; t < p->r->n_tables; t++) {
        const json_t *side =
            side_of(json_array_get(json_object_get(p->r->json, "tables"), t), true);
        const json_t *whole = json_object_get(side, "curve"),
                     *thin = json_object_get(side, "curve_fewer_states");
        if (json_array_size(whole) == 0) { continue; }
        series s[3] = {series_from(p, whole, "rollouts", "rho"),
                       series_from(p, thin, "rollouts", "rho"),
                       series_from(p, whole, "rollouts", "to_full")};
        static const char *const names[3] = {"fewer prompts", "all prompts, fewer states of each",
                                             "fewer prompts, against the table of all"};
        chart_curve curves[3];
        pen_begin(p);
        ckvc_buffer_text(&p->csv, "table,what,rollouts,mean,lo,hi\n");
        for (size_t k = 0; k < 3; k++) {
            curves[k] = curve_of(names[k], &s[k], k < 1, k == 2);
            series_csv(p, p->r->tables[t].title, names[k], &s[k]);
        }
        const char *title =
            pen_text(p, "%s: agreement of head tables against rollouts", p->r->tables[t].title);
        chart_curves(&p->s, &(chart_curves_spec){.title = title,
                                                 .x_label = "distinct rollouts behind a table",
                                                 .y_label = "Spearman's ρ",
                                                 .n_curves = 3,
                                                 .curves = curves,
                                                 .x_log = true,
                                                 .n_y_lines = 1,
                                                 .y_lines = zero});
        pen_finish(p, "trust-more", pen_text(p, "learning-rollouts-%s", p->r->tables[t].tag), title,
                   "The same number of rollouts spent on fewer prompts, or on fewer states of "
                   "every prompt. The first point of the "
                   "dashed line is one prompt alone against the whole table.");
        for (size_t k = 0; k < 3; k++) {
            free(s[k].x);
        }
    }
}

/* ---- sorted advantages, the bound ---- */

/* y: an array of numbers; x: 1 ... n, or 0 ... 100 when they are shares of states. */
static series series_of(report_pen *p, const json_t *y, const json_t *lo, const json_t *hi) {
    size_t n = json_array_size(y);
    series s = series_room(p, n);
    for (size_t i = 0; s.x && i < n; i++) {
        s.x[i] = (double)i + 1;
        s.y[i] =
            json_is_number(json_array_get(y, i)) ? json_number_value(json_array_get(y, i)) : NAN;
        s.lo[i] = lo ? json_number_value(json_array_get(lo, i)) : NAN;
        s.hi[i] = hi ? json_number_value(json_array_get(hi, i)) : NAN;
    }
    s.n = s.x ? n : 0;
    return s;
}

static void draw_ranks(report_pen *p, const report_table *t, const json_t *side, bool head) {
    static const double zero[1] = {0.0};
    const json_t *o = json_object_get(side, "ranks");
    if (!(report_num(o, "states") > 0)) { return; }
    series s[2] = {series_of(p, json_object_get(o, "same"), json_object_get(o, "lo"),
                             json_object_get(o, "hi")),
                   series_of(p, json_object_get(o, "other"), NULL, NULL)};
    const chart_curve curves[2] = {curve_of("on the prompts that ranked them", &s[0], true, false),
                                   curve_of("on other prompts", &s[1], false, true)};
    pen_begin(p);
    ckvc_buffer_text(&p->csv, "table,what,rank,advantage,lo,hi\n");
    series_csv(p, t->title, "same prompts", &s[0]);
    series_csv(p, t->title, "other prompts", &s[1]);
    const char *title =
        pen_text(p, "%s: advantage of %s actions by rank", t->title, head ? "head" : "gate");
    chart_curves(&p->s,
                 &(chart_curves_spec){.title = title,
                                      .x_label = "rank of the action in its state, best first",
                                      .y_label = "mean advantage, nats per token",
                                      .n_curves = 2,
                                      .curves = curves,
                                      .n_y_lines = 1,
                                      .y_lines = zero});
    pen_finish(p, "trust-more", pen_text(p, "ranks-%s-%s", head ? "head" : "gate", t->tag), title,
               "Mean over states, band: their quartiles. Where the dashed line is flat, ranks on "
               "one half of the prompts say nothing "
               "about the other half: the slope of the other line is luck.");
    free(s[0].x);
    free(s[1].x);
}

/* The defined numbers of a list, ascending, against the share of states below. */
static series sorted_series(report_pen *p, const json_t *list) {
    series s = series_room(p, json_array_size(list));
    for (size_t i = 0; s.x && i < json_array_size(list); i++) {
        if (json_is_number(json_array_get(list, i))) {
            s.y[s.n++] = json_number_value(json_array_get(list, i));
        }
    }
    if (s.n) { qsort(s.y, s.n, sizeof *s.y, ckvc_order_double); }
    for (size_t i = 0; i < s.n; i++) {
        s.x[i] = 100.0 * ((double)i + 0.5) / (double)s.n;
        s.lo[i] = s.hi[i] = NAN;
    }
    return s;
}

/* Every state with records: where it is, and its own numbers. */
static void bound_csv(report_pen *p, const report_table *t, const json_t *bound, bool head) {
    static const char *const keys[] = {"n_prompts", "n_actions", "width",      "width_raw",
                                       "uniform",   "excess",    "excess_raw", "spread"};
    enum { KEYS = sizeof keys / sizeof *keys };
    const ckvc_table *k = t->f->table;
    const size_t B = k->n_budgets, P = k->n_ppl_bins,
                 X = head ? k->n_heads : (size_t)k->n_entropy_bins * P;
    ckvc_buffer_printf(
        &p->csv,
        "layer,%s,budget,prompts,actions,width,width_raw_rewards,uniform_bound,excess_bound,"
        "excess_bound_raw_rewards,spread_of_means\n",
        head ? "head" : "entropy_bin,perplexity_bin");
    for (size_t i = 0; i < json_array_size(json_object_get(bound, "n_prompts")); i++) {
        if (!json_is_number(json_array_get(json_object_get(bound, "n_prompts"), i))) { continue; }
        size_t x = i / B % X;
        pen_csv_number(p, (double)(i / B / X), ',');
        pen_csv_number(p, (double)(head ? x : x / P), ',');
        if (!head) { pen_csv_number(p, (double)(x % P), ','); }
        pen_csv_number(p, k->budgets[i % B], ',');
        for (size_t c = 0; c < KEYS; c++) {
            pen_csv_number(p, json_number_value(json_array_get(json_object_get(bound, keys[c]), i)),
                           c + 1 < KEYS ? ',' : '\n');
        }
    }
}

static void draw_bound(report_pen *p, const report_table *t, const json_t *side, bool head) {
    static const char *const keys[3] = {"spread", "excess", "excess_raw"};
    static const char *const names[3] = {"spread of the actions' mean rewards",
                                         "bound on the excess, advantages",
                                         "bound on the excess, raw rewards"};
    const json_t *o = json_object_get(side, "bound");
    if (!(report_num(o, "states") > 0)) { return; }
    series s[3];
    chart_curve curves[3];
    pen_begin(p);
    bound_csv(p, t, o, head);
    for (size_t k = 0; k < 3; k++) {
        s[k] = sorted_series(p, json_object_get(o, keys[k]));
        curves[k] = curve_of(names[k], &s[k], false, k == 2);
    }
    const char *title =
        pen_text(p, "%s: the paper's calibration bound, %s side", t->title, head ? "head" : "gate");
    chart_curves(&p->s, &(chart_curves_spec){.title = title,
                                             .x_label = "states, sorted, per cent",
                                             .y_label = "nats per token",
                                             .n_curves = 3,
                                             .curves = curves,
                                             .y_log = true});
    pen_finish(p, "trust-more", pen_text(p, "bound-%s-%s", head ? "head" : "gate", t->tag), title,
               "Each line sorted by itself. Only where a bound lies below the spread does it say "
               "that the chosen action is better "
               "than the worst one.");
    for (size_t k = 0; k < 3; k++) {
        free(s[k].x);
    }
}

/* ---- scores of tables of several sizes ---- */

/* Against identity, by the prompts that a table was fitted from: where tables of at least two sizes
 * were scored under one setting. */
static void draw_sizes(report_pen *p) {
    const json_t *list = json_object_get(json_object_get(p->r->json, "scores"), "against_identity"),
                 *o;
    size_t n = 0, sizes = 0;
    chart_point *points = pen_room(p, json_array_size(list), sizeof *points);
    pen_begin(p);
    ckvc_buffer_text(&p->csv,
                     "table,budget,prompts,head_rollouts,difference_nats_per_token,lo,hi\n");
    for (size_t i = 0; points && i < json_array_size(list); i++) {
        o = json_array_get(list, i);
        for (size_t t = 0; t < p->r->n_tables; t++) {
            const json_t *meta = p->r->tables[t].f->meta, *all = json_object_get(o, "all");
            double prompts =
                report_num(json_object_get(json_object_get(meta, "counts"), "head"), "prompts");
            if (strcmp(report_str(o, "title"), p->r->tables[t].title) != 0 || !(prompts > 0)) {
                continue;
            }
            bool other = n > 0 && points[n - 1].x != prompts;
            sizes += n == 0 || other;
            points[n] = (chart_point){prompts,
                                      report_num(all, "difference"),
                                      report_num(all, "lo"),
                                      report_num(all, "hi"),
                                      0,
                                      0,
                                      p->r->tables[t].title};
            pen_csv_text(p, p->r->tables[t].title, ',');
            pen_csv_number(p, report_num(o, "budget"), ',');
            const json_t *side =
                side_of(json_array_get(json_object_get(p->r->json, "tables"), t), true);
            const double row[] = {points[n].x, report_num(side, "rollouts"), points[n].y,
                                  points[n].lo, points[n].hi};
            enum { COLUMNS = sizeof row / sizeof *row };
            for (size_t c = 0; c < COLUMNS; c++) {
                pen_csv_number(p, row[c], c + 1 == COLUMNS ? '\n' : ',');
            }
            n++;
        }
    }
    if (sizes < 2) {
        svg_fini(&p->s);
        ckvc_buffer_fini(&p->csv);
    } else {
        static const double zero[1] = {0.0};
        const char *title = "Scored gain against identity, by prompts of the table";
        chart_scatter(&p->s,
                      &(chart_scatter_spec){.title = title,
                                            .x_label = "prompts that the table was fitted from",
                                            .y_label = "reward against identity, nats/token",
                                            .n = n,
                                            .points = points,
                                            .y_lines = zero,
                                            .n_y_lines = 1});
        pen_finish(p, "trust", "scores-by-prompts", title,
                   "Whole tables on held-out prompts, with 95% intervals: what the one-change "
                   "advantages add up to.");
    }
    free(points);
}

void report_draw_stats(report_pen *p) {
    draw_sizes(p);
    draw_learning(p);
    for (size_t t = 0; t < p->r->n_tables; t++) {
        for (int head = 1; head >= 0; head--) {
            const json_t *side =
                side_of(json_array_get(json_object_get(p->r->json, "tables"), t), head);
            draw_ranks(p, &p->r->tables[t], side, head);
            draw_bound(p, &p->r->tables[t], side, head);
        }
    }
}
