/* See svg_axis.h. */
#include "report/draw/svg_axis.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/base/memory.h"

double svg_title(svg *s, const char *title) {
    free(s->title);
    s->title = ckvc_strdup(title);
    return svg_paragraph(s, PAD, TITLE_SIZE + 3, s->width - 2 * PAD, title_font, title);
}

#define SAMPLE 24.0 /* length of a line in the legend */

double svg_legend(svg *s, double y, const chart_curve *curves, size_t n) {
    double x = PAD;
    for (size_t i = 0; i < n; i++) {
        const double w = SAMPLE + 6 + svg_text_width(curves[i].name, TICK_SIZE) + 12;
        if (x > PAD && x + w > s->width - PAD) {
            x = PAD;
            y += 16;
        }
        const double from = x + SAMPLE + 4;
        svg_polyline(s, 2, (const double[]){x, x + SAMPLE}, (const double[]){y - 3.5, y - 3.5},
                     curves[i].series, curves[i].flags & CURVE_DASHED);
        svg_marker(s, curves[i].series, x + SAMPLE / 2, y - 3.5, 3.4, NULL);
        if (w > s->width - PAD - x) { /* one name wider than the drawing */
            y = svg_paragraph(s, from, y, s->width - PAD - from, tick_font, curves[i].name) -
                TICK_SIZE * 1.28;
        } else {
            svg_label(s, from, y, SVG_START, tick_font, curves[i].name);
        }
        x += w;
    }
    return y + 10;
}

size_t svg_thin(double need, double have) {
    static const size_t steps[] = {1, 2, 4, 5};
    for (size_t power = 1; power < 1000000; power *= 10) {
        for (size_t i = 0; i < 4; i++) {
            if ((double)(steps[i] * power) * have >= need) { return steps[i] * power; }
        }
    }
    return 1000000;
}

double svg_axis_place(const svg_axis *a, double v) {
    v = a->log ? log10(v) : v;
    return a->hi > a->lo ? a->from + (v - a->lo) / (a->hi - a->lo) * (a->to - a->from)
                         : (a->from + a->to) / 2;
}

svg_axis svg_axis_over(double lo, double hi, double margin, double from, double to, size_t want) {
    svg_axis a = {.from = from, .to = to};
    if (!(hi >= lo)) {
        lo = 0;
        hi = 1;
    }
    double pad = (hi - lo) * margin;
    if (hi - lo <= fmax(fabs(lo), fabs(hi)) * 1e-9) { pad = lo == 0 ? 1 : fabs(lo) * 0.1; }
    a.lo = lo - pad;
    a.hi = hi + pad;
    a.n = svg_ticks(a.lo, a.hi, want, a.ticks, &a.decimals);
    return a;
}

/* The same on a logarithmic scale, of positive values: ticks at 1, 2, 5 or at powers of ten,
 * whatever fits. */
static svg_axis over_log(double lo, double hi, double margin, double from, double to, size_t want) {
    static const double steps[3] = {1, 2, 5};
    bool any = lo > 0 && hi >= lo && isfinite(hi);
    svg_axis a = svg_axis_over(any ? log10(lo) : 0, any ? log10(hi) : 1, margin, from, to, 0);
    a.log = true;
    a.n = 0;
    int first = (int)floor(a.lo), last = (int)ceil(a.hi), stride = 1;
    double decades = a.hi - a.lo;
    size_t per = 3 * decades <= (double)want + 1 ? 3 : 1;
    while (decades / stride > (double)want) { stride++; }
    for (int e = first; e <= last; e += stride) {
        for (size_t k = 0; k < per && a.n < SVG_TICKS_MAX; k++) {
            double v = steps[k] * pow(10, e);
            if (log10(v) >= a.lo - 1e-9 && log10(v) <= a.hi + 1e-9) { a.ticks[a.n++] = v; }
        }
    }
    return a;
}

/* Large counts read better as 12k than as 12000. */
static const char *tick_text(const svg_axis *a, double v, char text[32]) {
    const double top = fmax(fabs(a->lo), fabs(a->hi)), size = fabs(v);
    const char *sign = v < 0 ? "\u2212" : ""; /* as in the page's other numbers */
    if (a->log) {
        snprintf(text, 32, v >= 1e4 || v < 1e-3 ? "%.0e" : "%g", v);
    } else if (top >= 1e6) {
        snprintf(text, 32, "%s%gM", sign, size / 1e6);
    } else if (top >= 1e4) {
        snprintf(text, 32, "%s%gk", sign, size / 1e3);
    } else if (a->decimals > 6) {
        snprintf(text, 32, "%s%.3g", sign, size);
    } else {
        snprintf(text, 32, "%s%.*f", sign, a->decimals, size);
    }
    return text;
}

static double tick_width(const svg_axis *a) {
    char text[32];
    double w = 0;
    for (size_t i = 0; i < a->n; i++) {
        w = fmax(w, svg_text_width(tick_text(a, a->ticks[i], text), TICK_SIZE));
    }
    return w;
}

void svg_axis_draw_x(svg *s, const svg_axis *a, double top, double bottom, const char *label) {
    char text[32];
    for (size_t i = 0; i < a->n; i++) {
        double x = svg_axis_place(a, a->ticks[i]);
        svg_line(s, x, top, x, bottom, "gr");
        svg_label(s, x, bottom + 13, SVG_MIDDLE, tick_font, tick_text(a, a->ticks[i], text));
    }
    svg_line(s, a->from, bottom, a->to, bottom, "ax");
    svg_label(s, (a->from + a->to) / 2, bottom + 28, SVG_MIDDLE, axis_font, label);
}

static void draw_y(svg *s, const svg_axis *a, double left, double right, const char *label) {
    char text[32];
    for (size_t i = 0; i < a->n; i++) {
        double y = svg_axis_place(a, a->ticks[i]);
        svg_line(s, left, y, right, y, "gr");
        svg_label(s, left - 5, y + 3.5, SVG_END, tick_font, tick_text(a, a->ticks[i], text));
    }
    svg_line(s, left, a->from, left, a->to, "ax");
    svg_label_up(s, PAD + LABEL_SIZE - 2, (a->from + a->to) / 2, axis_font, label);
}

svg_plot svg_plot_begin(svg *s, chart_text text, double top, svg_range xs, svg_range ys,
                        int flags) {
    enum { HEIGHT = 230 };
    svg_plot p;
    p.y =
        (flags & CHART_Y_LOG ? over_log : svg_axis_over)(ys.lo, ys.hi, 0.05, top + HEIGHT, top, 6);
    const double left = PAD + LABEL_SIZE + 8 + tick_width(&p.y) + 5, right = s->width - PAD - 8;
    p.x = (flags & CHART_X_LOG ? over_log : svg_axis_over)(xs.lo, xs.hi, 0.03, left, right, 6);
    draw_y(s, &p.y, left, right, text.y);
    svg_axis_draw_x(s, &p.x, p.y.to, p.y.from, text.x);
    if (flags & CHART_ZERO_LINE && p.y.lo < 0 && p.y.hi > 0) {
        const double zero = svg_axis_place(&p.y, 0);
        svg_line(s, left, zero, right, zero, "ref");
    }
    s->height = p.y.from + 36;
    return p;
}
