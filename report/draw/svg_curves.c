/* Curves with bands: see svg_chart.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "report/draw/svg_axis.h"
#include "report/draw/svg_chart.h"
#include "lib/base/memory.h"

static bool can_show(const chart_curves_spec *c, const chart_curve *k, size_t i) {
    return isfinite(k->x[i]) && isfinite(k->y[i]) && (!c->x_log || k->x[i] > 0) &&
           (!c->y_log || k->y[i] > 0);
}

/* A band's bounds at point i; where they are undefined, or no logarithm exists, the line itself. */
static double bound(const chart_curves_spec *c, const chart_curve *k, const double *of, size_t i) {
    return of && isfinite(of[i]) && (!c->y_log || of[i] > 0) ? of[i] : k->y[i];
}

typedef struct range {
    double lo, hi;
} range;

static void widen(range *r, double v) {
    r->lo = fmin(r->lo, v);
    r->hi = fmax(r->hi, v);
}

/* One curve through the points that can be shown; at: room for 4 n places. */
static void draw_curve(svg *s, const chart_curves_spec *c, const chart_curve *k, int series,
                       const svg_axis *x, const svg_axis *y, double *at) {
    size_t n = 0;
    double *px = at, *py = at + k->n, *lo = at + 2 * k->n, *hi = at + 3 * k->n;
    for (size_t i = 0; i < k->n; i++) {
        if (can_show(c, k, i)) {
            px[n] = svg_axis_place(x, k->x[i]);
            py[n] = svg_axis_place(y, k->y[i]);
            lo[n] = svg_axis_place(y, bound(c, k, k->lo, i));
            hi[n++] = svg_axis_place(y, bound(c, k, k->hi, i));
        }
    }
    if (k->lo && n > 1) { svg_band(s, n, px, lo, hi, series); }
    if (n > 1) { svg_polyline(s, n, px, py, series, k->dashed); }
    for (size_t i = 0, shown = 0; (k->dots || n == 1) && i < k->n; i++) {
        if (!can_show(c, k, i)) { continue; }
        char tip[160];
        int used = snprintf(tip, sizeof tip, "%g: %.6g", k->x[i], k->y[i]);
        if (k->lo && isfinite(k->lo[i]) && isfinite(k->hi[i])) {
            snprintf(tip + used, sizeof tip - (size_t)used, " (%.6g to %.6g)", k->lo[i], k->hi[i]);
        }
        svg_marker(s, svg_series_shape(series), px[shown], py[shown], 3.4, series, tip);
        shown++;
    }
}

void chart_curves(svg *s, const chart_curves_spec *c) {
    double top = svg_title(s, c->title) + 6, height = 230;
    range xs = {INFINITY, -INFINITY}, ys = {INFINITY, -INFINITY};
    size_t most = 0;
    const char **names = ckvc_alloc(c->n_curves, sizeof *names);
    for (size_t k = 0; k < c->n_curves; k++) {
        const chart_curve *curve = &c->curves[k];
        most = curve->n > most ? curve->n : most;
        if (names) { names[k] = curve->name; }
        for (size_t i = 0; i < curve->n; i++) {
            if (can_show(c, curve, i)) {
                widen(&xs, curve->x[i]);
                widen(&ys, curve->y[i]);
                widen(&ys, bound(c, curve, curve->lo, i));
                widen(&ys, bound(c, curve, curve->hi, i));
            }
        }
    }
    double *at = ckvc_alloc(4 * most, sizeof *at);
    if (!names || !at) {
        s->body.failed = true;
        goto done;
    }
    if (!(ys.hi >= ys.lo)) {
        s->height = svg_paragraph(s, PAD, top + 10, s->width - 2 * PAD, LABEL_SIZE, false, "m",
                                  "Nothing to draw.");
        goto done;
    }
    for (size_t i = 0; i < c->n_y_lines; i++) {
        if (isfinite(c->y_lines[i])) { widen(&ys, c->y_lines[i]); }
    }
    if (c->n_curves > 1) { top = svg_legend(s, top + 8, names, c->n_curves) + 4; }
    svg_axis y = c->y_log ? svg_axis_over_log(ys.lo, ys.hi, 0.05, top + height, top, 6)
                          : svg_axis_over(ys.lo, ys.hi, 0.05, top + height, top, 6);
    double left = PAD + LABEL_SIZE + 8 + svg_axis_tick_width(&y) + 5, right = s->width - PAD - 8;
    svg_axis x = c->x_log ? svg_axis_over_log(xs.lo, xs.hi, 0.03, left, right, 6)
                          : svg_axis_over(xs.lo, xs.hi, 0.03, left, right, 6);
    svg_axis_draw_y(s, &y, left, right, c->y_label);
    svg_axis_draw_x(s, &x, y.to, y.from, c->x_label);
    for (size_t i = 0; i < c->n_y_lines; i++) {
        if (isfinite(c->y_lines[i])) {
            svg_line(s, left, svg_axis_place(&y, c->y_lines[i]), right,
                     svg_axis_place(&y, c->y_lines[i]), "ref");
        }
    }
    for (size_t k = 0; k < c->n_curves; k++) {
        draw_curve(s, c, &c->curves[k], (int)k, &x, &y, at);
    }
    for (size_t i = 0; c->y_line_names && i < c->n_y_lines; i++) {
        if (isfinite(c->y_lines[i]) && c->y_line_names[i]) {
            svg_label(s, right - 3, svg_axis_place(&y, c->y_lines[i]) - 4, TICK_SIZE, SVG_END,
                      "m h", c->y_line_names[i]);
        }
    }
    s->height = y.from + 36;
done:
    free(names);
    free(at);
}
