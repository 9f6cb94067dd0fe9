/* Intervals and curves: see svg_chart.h. */
#include "report/draw/svg_axis.h"

#include <stdio.h>

#include "lib/base/memory.h"

/* "0.5 (0.25 to 0.75)" */
static void say_interval_tip(char *tip, size_t size, double mean, double lo, double hi) {
    const int used = snprintf(tip, size, "%.6g", mean);
    if (isfinite(lo) && isfinite(hi)) {
        snprintf(tip + used, size - (size_t)used, " (%.6g to %.6g)", lo, hi);
    }
}

/* The marker of a row with its interval and its limit, at the height `at`. */
static void draw_interval(svg *s, const svg_axis *x, const chart_interval_row *r, double at) {
    char tip[200];
    if (isfinite(r->limit)) {
        svg_rect(s, svg_axis_place(x, r->limit) - 1.5, at - 6, 3, 12, "f6", NULL);
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

/* Lines that a label takes in a column. */
static double lines_of(const char *label, double width) {
    CKVC_AUTO(svg_fini) svg measured;
    svg_init(&measured, width);
    return svg_paragraph(&measured, 0, 0, width, row_font, label) / svg_leading(row_font);
}

void chart_intervals(svg *s, const chart_interval_spec *c) {
    enum { ROW = 19, HEADING = 24 };
    const double top = svg_title(s, c->title) + 18;
    double labels = 0, remarks = c->remark_label ? svg_text_width(c->remark_label, TICK_SIZE) : 0,
           bottom = top, y = top;
    svg_range range = {0, 0};
    for (size_t i = 0; i < c->n; i++) {
        const chart_interval_row *r = &c->rows[i];
        labels = fmax(labels, svg_text_width(r->label, LABEL_SIZE));
        remarks = fmax(remarks, r->remark ? svg_text_width(r->remark, TICK_SIZE) : 0);
        svg_widen(&range, r->mean);
        svg_widen(&range, r->lo);
        svg_widen(&range, r->hi);
        svg_widen(&range, r->limit);
    }
    labels = fmin(labels + 1, 0.38 * s->width);
    for (size_t i = 0; i < c->n; i++) { /* the same steps as below: the grid goes under all */
        const chart_interval_row *r = &c->rows[i];
        bottom += (r->heading ? HEADING : 0) + ROW +
                  svg_leading(row_font) * (lines_of(r->label, labels) - 1);
    }
    const double left = PAD + labels + 12, right = s->width - PAD - remarks - 12;
    const svg_axis x = svg_axis_over(range.lo, range.hi, 0.04, left, right, 4);
    const double zero = svg_axis_place(&x, 0);
    svg_axis_draw_x(s, &x, top, bottom, c->x_label);
    svg_line(s, zero, top, zero, bottom, "ref");
    svg_label(s, zero, top - 4, SVG_MIDDLE, note_font, c->reference_label);
    if (c->remark_label) {
        svg_label(s, s->width - PAD, top - 4, SVG_END, note_font, c->remark_label);
    }
    for (size_t i = 0; i < c->n; i++) {
        const chart_interval_row *r = &c->rows[i];
        if (r->heading) {
            svg_label(s, PAD, y + 17, SVG_START, heading_font, r->heading);
            y += HEADING;
        }
        draw_interval(s, &x, r, y + ROW / 2.0);
        if (r->remark) { svg_label(s, s->width - PAD, y + 13, SVG_END, remark_font, r->remark); }
        svg_paragraph(s, PAD, y + 13, labels, row_font, r->label);
        y += ROW + svg_leading(row_font) * (lines_of(r->label, labels) - 1);
    }
    s->height = bottom + 36;
    if (c->limit_label) {
        svg_rect(s, PAD + 6, s->height - 1, 3, 14, "f6", NULL);
        s->height = svg_paragraph(s, PAD + 16, s->height + 10, s->width - 2 * PAD - 16, note_font,
                                  c->limit_label);
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

static void draw_curve(svg *s, const chart_curve *k, const svg_plot *plot, int flags,
                       const curve_point *points, size_t n) {
    const int series = k->series;
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
    for (size_t k = 0; k < n; k++) { all += curves[k].n; }
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
    if (n > 1) { top = svg_legend(s, top + 8, curves, n) + 4; }
    const svg_plot p = svg_plot_begin(s, text, top, xs, ys, flags);
    for (size_t k = 0; k < n; k++) {
        draw_curve(s, &curves[k], &p, flags, points, points_of(&curves[k], flags, points));
    }
}
