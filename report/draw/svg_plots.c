/* Bars, intervals, points and curves: see svg_chart.h. */
#include "report/draw/svg_axis.h"

#include <stdio.h>

#include "lib/base/memory.h"

void chart_bars(svg *s, const chart_bars_spec *c) {
    const struct chart_rows *rows = &c->rows;
    const double scale = c->scale > 0 ? c->scale : 1;
    double y = svg_title(s, c->text.title) + 6, hi = 0, widest = 0;
    size_t n = 0;
    char text[160];
    for (; n < CHART_BARS && c->values[n]; n++) {
        for (size_t i = 0; i < rows->n; i++) {
            const double v = chart_at(c->values[n], rows->stride, i) * scale;
            hi = fmax(hi, isfinite(v) ? v : 0);
        }
    }
    for (size_t i = 0; i < rows->n; i++) {
        snprintf(text, sizeof text, "%g", chart_at(rows->categories, rows->stride, i));
        widest = fmax(widest, svg_text_width(text, TICK_SIZE));
    }
    if (c->series[0]) { y = svg_legend(s, y + 8, c->series, n) + 2; }
    if (c->mark) { y += 12; }
    const svg_axis v = svg_axis_over(0, hi > 0 ? hi * 1.04 : 1, 0, y + 190, y, 5);
    const double left = PAD + LABEL_SIZE + 8 + svg_axis_tick_width(&v) + 5, right = s->width - PAD,
                 slot = (right - left) / (double)(rows->n ? rows->n : 1),
                 bar = slot * 0.8 / (double)(n ? n : 1);
    svg_axis_draw_y(s, &v, left, right, c->text.y);
    for (size_t k = 0; k < n; k++) {
        for (size_t i = 0; i < rows->n; i++) {
            const double value = chart_at(c->values[k], rows->stride, i) * scale,
                         top = svg_axis_place(&v, value);
            if (!(isfinite(value) && value > 0)) { continue; }
            snprintf(text, sizeof text, "%g: %.6g", chart_at(rows->categories, rows->stride, i),
                     value);
            svg_rect(s, left + slot * ((double)i + 0.1) + bar * (double)k, top, bar, v.from - top,
                     svg_fill[k], text);
        }
    }
    svg_line(s, left, v.from, right, v.from, "ax");
    if (c->mark) {
        const double x = left + slot * ((double)(c->mark - 1) + 0.5);
        svg_line(s, x, y - 2, x, v.from, "ref");
        svg_label(s, x, y - 6, SVG_MIDDLE, note_font, c->mark_label);
    }
    for (size_t i = 0; i < rows->n; i += svg_thin(widest + 5, slot)) {
        snprintf(text, sizeof text, "%g", chart_at(rows->categories, rows->stride, i));
        svg_label(s, left + slot * ((double)i + 0.5), v.from + 13, SVG_MIDDLE, tick_font, text);
    }
    svg_label(s, (left + right) / 2, v.from + 28, SVG_MIDDLE, axis_font, c->text.x);
    s->height = v.from + 36;
}

/* ---- intervals ---- */

/* Label and remark share a line where they fit side by side. */
static bool remark_below(const chart_interval_row *r, double width) {
    return r->remark &&
           svg_text_width(r->label, LABEL_SIZE) + svg_text_width(r->remark, TICK_SIZE) + 8 > width;
}

/* "0.5 (0.25 to 0.75)" */
static void say_interval_tip(char *tip, size_t size, double mean, double lo, double hi) {
    const int used = snprintf(tip, size, "%.6g", mean);
    if (isfinite(lo) && isfinite(hi)) {
        snprintf(tip + used, size - (size_t)used, " (%.6g to %.6g)", lo, hi);
    }
}

/* The marker of a row with its interval and its limit, at the height `at`. */
static void draw_interval(svg *s, const chart_interval_spec *c, const svg_axis *x,
                          const chart_interval_row *r, double at) {
    char tip[200];
    if (r->draw_limit && isfinite(r->limit)) {
        svg_rect(s, svg_axis_place(x, r->limit) - 1.5, at - 8, 3, 16, "f1", NULL);
    }
    if (!isfinite(r->mean)) {
        svg_label(s, x->from, at + 3, SVG_START, note_font,
                  c->undefined ? c->undefined : "undefined");
        return;
    }
    if (isfinite(r->lo) && isfinite(r->hi)) {
        const double lo = svg_axis_place(x, r->lo), hi = svg_axis_place(x, r->hi);
        const char *look = svg_stroke[r->series % SVG_SERIES];
        svg_line(s, lo, at, hi, at, look);
        svg_line(s, lo, at - 3.5, lo, at + 3.5, look);
        svg_line(s, hi, at - 3.5, hi, at + 3.5, look);
    }
    say_interval_tip(tip, sizeof tip, r->mean, r->lo, r->hi);
    svg_marker(s, r->series, svg_axis_place(x, r->mean), at, 4.2, tip);
}

void chart_intervals(svg *s, const chart_interval_spec *c) {
    const double left = PAD + 14, right = s->width - PAD - 14, top = svg_title(s, c->title) + 4;
    double bottom = top, y = top;
    svg_range range = SVG_NO_RANGE;
    svg_widen(&range, c->reference);
    for (size_t i = 0; i < c->n;
         i++) { /* the same steps as below: grid lines go under everything */
        const chart_interval_row *r = &c->rows[i];
        svg_widen(&range, r->mean);
        svg_widen(&range, r->lo);
        svg_widen(&range, r->hi);
        svg_widen(&range, r->draw_limit ? r->limit : NAN);
        bottom += (r->heading ? 22 : 0) + (remark_below(r, right - left) ? 44 : 32);
    }
    const svg_axis x = svg_axis_over(range.lo, range.hi, 0.06, left, right, 5);
    svg_axis_draw_x(s, &x, top, bottom, c->x_label);
    if (isfinite(c->reference)) {
        const double at = svg_axis_place(&x, c->reference);
        svg_line(s, at, top, at, bottom, "ref");
    }
    for (size_t i = 0; i < c->n; i++) {
        const chart_interval_row *r = &c->rows[i];
        if (r->heading) {
            svg_paragraph(s, PAD, y + 15, s->width - 2 * PAD, heading_font, r->heading);
            y += 22;
        }
        svg_label(s, left, y + 12, SVG_START, row_font, r->label);
        if (r->remark && !remark_below(r, right - left)) {
            svg_label(s, right, y + 12, SVG_END, remark_font, r->remark);
        } else if (r->remark) {
            svg_label(s, left, y + 24, SVG_START, remark_font, r->remark);
            y += 12;
        }
        draw_interval(s, c, &x, r, y + 23);
        y += 32;
    }
    if (c->below) { svg_label(s, left, bottom + 42, SVG_START, note_font, c->below); }
    if (c->above) { svg_label(s, right, bottom + 42, SVG_END, note_font, c->above); }
    s->height = bottom + (c->below || c->above ? 50 : 36);
    if (c->limit_label) {
        svg_rect(s, left + 6, s->height - 1, 3, 14, "f1", NULL);
        s->height = svg_paragraph(s, left + 16, s->height + 10, right - left - 16, note_font,
                                  c->limit_label);
    }
}

/* ---- points ---- */

void chart_scatter(svg *s, const chart_scatter_spec *c) {
    double y = svg_title(s, c->text.title) + 6;
    svg_range xs = SVG_NO_RANGE, ys = SVG_NO_RANGE;
    for (size_t i = 0; i < c->n; i++) {
        const chart_point *p = &c->points[i];
        if (!isfinite(p->x) || !isfinite(p->y)) { continue; }
        svg_widen(&xs, p->x);
        svg_widen(&ys, p->y);
        svg_widen(&ys, p->lo);
        svg_widen(&ys, p->hi);
    }
    for (size_t i = 0; i < c->n_y_lines; i++) { svg_widen(&ys, c->y_lines[i]); }
    if (c->zero_line) { svg_widen(&ys, 0); }
    if (c->square) { xs = ys = (svg_range){fmin(xs.lo, ys.lo), fmax(xs.hi, ys.hi)}; }
    if (c->series && c->n_series > 0) { y = svg_legend(s, y + 8, c->series, c->n_series) + 4; }
    const svg_plot p = svg_plot_begin(s, &(svg_plot_spec){.text = c->text,
                                                          .top = y,
                                                          .height = c->height > 0 ? c->height : 260,
                                                          .x_margin = 0.05,
                                                          .xs = xs,
                                                          .ys = ys});
    for (size_t i = 0; i < c->n_x_lines; i++) { svg_plot_x(s, &p, c->x_lines[i]); }
    for (size_t i = 0; i < c->n_y_lines; i++) { svg_plot_y(s, &p, c->y_lines[i]); }
    if (c->zero_line) { svg_plot_y(s, &p, 0); }
    const double a = fmax(p.x.lo, p.y.lo), b = fmin(p.x.hi, p.y.hi);
    if (c->diagonal && b > a) {
        svg_line(s, svg_axis_place(&p.x, a), svg_axis_place(&p.y, a), svg_axis_place(&p.x, b),
                 svg_axis_place(&p.y, b), "ref");
    }
    for (size_t i = 0; i < c->n; i++) {
        const chart_point *q = &c->points[i];
        const double x = svg_axis_place(&p.x, q->x);
        if (!isfinite(q->x) || !isfinite(q->y)) { continue; }
        if (isfinite(q->lo) && isfinite(q->hi)) {
            svg_line(s, x, svg_axis_place(&p.y, q->lo), x, svg_axis_place(&p.y, q->hi),
                     svg_stroke[q->series % SVG_SERIES]);
        }
        svg_marker(s, q->series, x, svg_axis_place(&p.y, q->y), q->radius > 0 ? q->radius : 4,
                   q->tip);
    }
}

/* ---- curves ---- */

typedef struct curve_point {
    double x, y, lo, hi;
} curve_point;

/* The points of a curve that can be shown; where an end of the band is undefined, or has no
 * logarithm, the line itself. Returns how many. */
static size_t points_of(const chart_curve *k, int flags, curve_point *out) {
    size_t n = 0;
    for (size_t i = 0; i < k->n; i++) {
        const double x = chart_at(k->x, k->stride, i), y = chart_at(k->y, k->stride, i);
        const bool band = k->flags & CURVE_BAND;
        if (isfinite(x) && isfinite(y) && (!(flags & CHART_X_LOG) || x > 0) &&
            (!(flags & CHART_Y_LOG) || y > 0)) {
            out[n++] = (curve_point){x, y, band ? chart_at(k->y + 1, k->stride, i) : NAN,
                                     band ? chart_at(k->y + 2, k->stride, i) : NAN};
        }
    }
    return n;
}

static double end_of(int flags, const curve_point *p, double v) {
    return isfinite(v) && (!(flags & CHART_Y_LOG) || v > 0) ? v : p->y;
}

static void draw_curve(svg *s, const chart_curve *k, int series, const svg_plot *plot, int flags,
                       const curve_point *points, size_t n) {
    CKVC_AUTO_FREE double *at = ckvc_alloc(4 * n, sizeof *at);
    double *px = at, *py = at + n, *lo = at + 2 * n, *hi = at + 3 * n;
    for (size_t i = 0; i < n; i++) {
        px[i] = svg_axis_place(&plot->x, points[i].x);
        py[i] = svg_axis_place(&plot->y, points[i].y);
        lo[i] = svg_axis_place(&plot->y, end_of(flags, &points[i], points[i].lo));
        hi[i] = svg_axis_place(&plot->y, end_of(flags, &points[i], points[i].hi));
    }
    if (k->flags & CURVE_BAND && n > 1) { svg_band(s, n, px, lo, hi, series); }
    if (n > 1) { svg_polyline(s, n, px, py, series, k->flags & CURVE_DASHED); }
    for (size_t i = 0; (k->flags & CURVE_DOTS || n == 1) && i < n; i++) {
        char tip[160];
        const int used = snprintf(tip, sizeof tip, "%g: ", points[i].x);
        say_interval_tip(tip + used, sizeof tip - (size_t)used, points[i].y, points[i].lo,
                         points[i].hi);
        svg_marker(s, series, px[i], py[i], 3.4, tip);
    }
}

void chart_curves(svg *s, chart_text text, const chart_curve *curves, size_t n, int flags) {
    double top = svg_title(s, text.title) + 6;
    svg_range xs = SVG_NO_RANGE, ys = SVG_NO_RANGE;
    size_t all = 0;
    CKVC_AUTO_FREE const char **names = ckvc_alloc(n, sizeof *names);
    for (size_t k = 0; k < n; k++) {
        names[k] = curves[k].name;
        all += curves[k].n;
    }
    CKVC_AUTO_FREE curve_point *points = ckvc_alloc(all, sizeof *points);
    for (size_t k = 0; k < n; k++) {
        const size_t shown = points_of(&curves[k], flags, points);
        for (size_t i = 0; i < shown; i++) {
            svg_widen(&xs, points[i].x);
            svg_widen(&ys, points[i].y);
            svg_widen(&ys, end_of(flags, &points[i], points[i].lo));
            svg_widen(&ys, end_of(flags, &points[i], points[i].hi));
        }
    }
    if (!(ys.hi >= ys.lo)) {
        s->height =
            svg_paragraph(s, PAD, top + 10, s->width - 2 * PAD, axis_font, "Nothing to draw.");
        return;
    }
    if (flags & CHART_ZERO_LINE) { svg_widen(&ys, 0); }
    if (n > 1) { top = svg_legend(s, top + 8, names, n) + 4; }
    const svg_plot p = svg_plot_begin(s, &(svg_plot_spec){.text = text,
                                                          .top = top,
                                                          .height = 230,
                                                          .x_margin = 0.03,
                                                          .xs = xs,
                                                          .ys = ys,
                                                          .flags = flags});
    if (flags & CHART_ZERO_LINE) { svg_plot_y(s, &p, 0); }
    for (size_t k = 0; k < n; k++) {
        draw_curve(s, &curves[k], (int)k, &p, flags, points, points_of(&curves[k], flags, points));
    }
}
