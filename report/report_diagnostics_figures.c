/* Figures of the diagnostics: scores by prompt and by head, damage over the risk cells, the worst
 * tenth on the plane of risk. */
#include <math.h>
#include <stdlib.h>

#include "formats/lines/scores.h"
#include "lib/base/order.h"
#include "report/report_diagnostics.h"

static double at(const json_t *list, size_t i) {
    const json_t *v = json_array_get(list, i);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* Quantiles of alpha, each sorted over the prompts on its own: three distribution curves. */
static void draw_prompts(report_pen *p, const json_t *o, size_t number) {
    static const struct {
        const char *name;
        size_t quantile;
    } of[] = {{"median position", 2},
              {"95% of positions below", 4},
              {"largest", SCORE_QUANTILE_COUNT - 1}};
    enum { CURVES = sizeof of / sizeof *of };
    const json_t *prompts = json_object_get(o, "alpha_quantiles");
    size_t n = json_array_size(prompts);
    double *values = pen_room(p, (CURVES + 1) * n, sizeof *values);
    if (!values) { return; }
    chart_curve curves[CURVES];
    pen_begin(p);
    ckvc_buffer_text(&p->csv, "share_of_prompts,alpha_median,alpha_95,alpha_largest\n");
    for (size_t i = 0; i < n; i++) {
        values[i] = 100 * ((double)i + 0.5) / (double)n;
        for (size_t k = 0; k < CURVES; k++) {
            values[(k + 1) * n + i] = at(json_array_get(prompts, i), of[k].quantile);
        }
    }
    for (size_t k = 0; k < CURVES; k++) {
        qsort(values + (k + 1) * n, n, sizeof *values, ckvc_order_double);
        curves[k] =
            (chart_curve){.name = of[k].name, .n = n, .x = values, .y = values + (k + 1) * n};
    }
    for (size_t i = 0; i < n; i++) {
        pen_csv_number(p, values[i], ',');
        for (size_t k = 0; k < CURVES; k++) {
            pen_csv_number(p, values[(k + 1) * n + i], k + 1 == CURVES ? '\n' : ',');
        }
    }
    const char *title = pen_text(p, "Scores α by prompt, model %.12s", report_str(o, "model"));
    chart_curves(&p->s, &(chart_curves_spec){.title = title,
                                             .x_label = "prompts, from the lowest, per cent",
                                             .y_label = "α (mean over positions is 1)",
                                             .n_curves = CURVES,
                                             .curves = curves,
                                             .y_log = true});
    pen_finish(p, "diagnostics", pen_text(p, "scores-prompts-%zu", number), title,
               "Flat curves: the score is distributed alike in all prompts. Each curve is sorted "
               "on its own.");
    free(values);
}

static void draw_heads(report_pen *p, const json_t *o, size_t number) {
    const json_t *layers = json_object_get(o, "spread_by_head");
    size_t L = json_array_size(layers), G = json_array_size(json_array_get(layers, 0));
    double *values = pen_room(p, L * G, sizeof *values), lo = INFINITY, hi = -INFINITY;
    if (!values) { return; }
    pen_begin(p);
    ckvc_buffer_text(&p->csv, "layer,head,spread\n");
    for (size_t i = 0; i < L * G; i++) {
        values[i] = at(json_array_get(layers, i / G), i % G);
        lo = fmin(lo, values[i]);
        hi = fmax(hi, values[i]);
        pen_csv_number(p, (double)(i / G), ',');
        pen_csv_number(p, (double)(i % G), ',');
        pen_csv_number(p, values[i], '\n');
    }
    const double *panel = values;
    const char *title =
        pen_text(p, "Spread of utility scores by head, model %.12s", report_str(o, "model"));
    chart_heat(&p->s,
               &(chart_heat_spec){.title = title,
                                  .x_label = "KV head",
                                  .y_label = "layer",
                                  .rows = L,
                                  .cols = G,
                                  .n_panels = 1,
                                  .values = &panel,
                                  .scale = {false, lo, hi, 0,
                                            "ln(95% quantile / median) of α·ρ over positions", 2},
                                  .missing = "undefined"});
    pen_finish(p, "diagnostics", pen_text(p, "scores-heads-%zu", number), title,
               "Mean over prompts. A head of wide range decides the maximum over heads more often "
               "at equal weights.");
    free(values);
}

static void draw_cells(report_pen *p, const json_t *o, size_t number) {
    const json_t *cells = json_object_get(o, "cells");
    size_t E = json_array_size(cells), Q = json_array_size(json_array_get(cells, 0));
    double *values = pen_room(p, E * Q, sizeof *values), lo = INFINITY, hi = -INFINITY;
    const char **names = pen_room(p, E + Q, sizeof *names);
    if (values && names) {
        pen_begin(p);
        ckvc_buffer_text(&p->csv, "entropy_cell,perplexity_cell,prompts,damage_nats_per_token\n");
        for (size_t e = 0; e < E; e++) {
            for (size_t q = 0; q < Q; q++) {
                const json_t *c = json_array_get(json_array_get(cells, e), q);
                double v = report_num(c, "damage");
                values[q * E + e] = v;
                lo = fmin(lo, v);
                hi = fmax(hi, v);
                pen_csv_number(p, (double)e, ',');
                pen_csv_number(p, (double)q, ',');
                pen_csv_number(p, report_num(c, "n"), ',');
                pen_csv_number(p, v, '\n');
            }
        }
        for (size_t i = 0; i < E + Q; i++) {
            size_t k = i < E ? i : i - E;
            names[i] = k == 0 ? "low" : k + 1 == (i < E ? E : Q) ? "high" : "";
        }
        const double *panel = values;
        const char *title = pen_text(p, "Damage by risk: %s, budget %s", report_str(o, "title"),
                                     report_budget(report_num(o, "budget")));
        chart_heat(&p->s,
                   &(chart_heat_spec){.title = title,
                                      .x_label = "attention entropy, quarters of these prompts",
                                      .y_label = "perplexity, quarters",
                                      .rows = Q,
                                      .cols = E,
                                      .n_panels = 1,
                                      .values = &panel,
                                      .row_names = names + E,
                                      .col_names = names,
                                      .y_up = true,
                                      .scale = {false, lo, hi, 0, "mean damage, nats per token", 3},
                                      .missing = "no prompts"});
        pen_finish(p, "diagnostics", pen_text(p, "damage-%zu", number), title,
                   "Mean rise of the continuation's loss when every prompt is compressed alike. If "
                   "the risks told who is hurt, "
                   "damage would "
                   "rise to the upper right.");
    }
    free(values);
    free(names);
}

static void draw_worst(report_pen *p, const json_t *o, size_t number) {
    const json_t *prompts = json_object_get(o, "prompts");
    size_t n = json_array_size(prompts),
           worst = (size_t)report_num(json_object_get(o, "worst_tenth"), "n_worst");
    chart_point *points = pen_room(p, n, sizeof *points);
    double *sorted = pen_room(p, n, sizeof *sorted);
    if (points && sorted) {
        static const char *const names[] = {"other prompts", "worst tenth"};
        const json_t *entropy = json_object_get(o, "edges_entropy"),
                     *perplexity = json_object_get(o, "edges_perplexity");
        double x_line = at(entropy, json_array_size(entropy) / 2),
               y_line = at(perplexity, json_array_size(perplexity) / 2);
        for (size_t i = 0; i < n; i++) {
            sorted[i] = report_num(json_array_get(prompts, i), "damage");
        }
        qsort(sorted, n, sizeof *sorted, ckvc_order_double);
        double limit = sorted[n - worst];
        size_t equal = 0; /* how many of those at the limit belong to the worst: the first */
        for (size_t i = n - worst; i < n; i++) {
            equal += sorted[i] <= limit;
        }
        pen_begin(p);
        ckvc_buffer_text(&p->csv,
                         "id,r_struct_nats,r_sem_perplexity,T,damage_nats_per_token,worst\n");
        for (size_t i = 0, low = 0, high = n - worst; i < n;
             i++) { /* the worst on top of the others */
            const json_t *v = json_array_get(prompts, i);
            const double damage = report_num(v, "damage");
            const bool is_worst = damage > limit || (damage >= limit && equal > 0);
            equal -= is_worst && damage <= limit;
            points[is_worst ? high++ : low++] = (chart_point){
                report_num(v, "r_struct"),
                report_num(v, "r_sem"),
                NAN,
                NAN,
                is_worst ? 5 : 3,
                is_worst,
                n <= 2000 ? pen_text(p, "%s: %s", report_str(v, "id"), report_signed(damage, 3))
                          : NULL};
            pen_csv_text(p, report_str(v, "id"), ',');
            pen_csv_number(p, report_num(v, "r_struct"), ',');
            pen_csv_number(p, report_num(v, "r_sem"), ',');
            pen_csv_number(p, report_num(v, "T"), ',');
            pen_csv_number(p, damage, ',');
            pen_csv_number(p, is_worst, '\n');
        }
        const char *title = pen_text(p, "The worst tenth: %s, budget %s", report_str(o, "title"),
                                     report_budget(report_num(o, "budget")));
        chart_scatter(&p->s, &(chart_scatter_spec){.title = title,
                                                   .x_label = "attention entropy R_struct, nats",
                                                   .y_label = "window perplexity R_sem",
                                                   .n = n,
                                                   .n_series = 2,
                                                   .points = points,
                                                   .series = names,
                                                   .x_lines = &x_line,
                                                   .y_lines = &y_line,
                                                   .n_x_lines = 1,
                                                   .n_y_lines = 1});
        pen_finish(
            p, "diagnostics", pen_text(p, "damage-worst-%zu", number), title,
            "Dashed lines are the medians; low risk is the lower left quarter of the plane.");
    }
    free(points);
    free(sorted);
}

void report_diagnostics_draw(report_pen *p) {
    const json_t *of = json_object_get(p->r->json, "diagnostics"),
                 *utilities = json_object_get(of, "utilities"),
                 *damage = json_object_get(of, "damage");
    for (size_t i = 0; i < json_array_size(utilities); i++) {
        draw_prompts(p, json_array_get(utilities, i), i + 1);
        draw_heads(p, json_array_get(utilities, i), i + 1);
    }
    for (size_t i = 0; i < json_array_size(damage); i++) {
        draw_cells(p, json_array_get(damage, i), i + 1);
        draw_worst(p, json_array_get(damage, i), i + 1);
    }
}
