/* What charts share: title, legend, axes with nice ticks (linear or logarithmic). For the charts
 * alone. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "report/draw/svg_chart.h"

/* Fonts and margin, viewBox units. */
#define TITLE_SIZE 13.5
#define LABEL_SIZE 11.0
#define TICK_SIZE  10.0
#define PAD        6.0
static const svg_font title_font = {TITLE_SIZE, "t", true},
                      heading_font = {LABEL_SIZE, "t h", true},
                      row_font = {LABEL_SIZE, "t h", false}, panel_font = {LABEL_SIZE, "t", false},
                      axis_font = {LABEL_SIZE, "m", false}, tick_font = {TICK_SIZE, "t", false},
                      note_font = {TICK_SIZE, "m", false}, remark_font = {TICK_SIZE, "m h", false};

double svg_title(svg *s, const char *title); /* y below it */
/* Entries flow in lines; returns the y below. */
double svg_legend(svg *s, double y, const chart_curve *curves, size_t n);

/* A step of 1, 2, 4, 5 times a power of ten so that labels of `need` units fit on cells of `have`
 * units. 4 is there for grids of fortieths: 0.8, 0.9, 1 ... */
size_t svg_thin(double need, double have);

typedef struct svg_axis {
    double lo, hi, from, to; /* value (its decimal logarithm when log) and place of both ends */
    double ticks[SVG_TICKS_MAX];
    size_t n;
    int decimals;
    bool log;
} svg_axis;
/* An axis with `margin` (share of its length) beyond lo and hi; hi < lo is an axis over nothing. */
svg_axis svg_axis_over(double lo, double hi, double margin, double from, double to, size_t want);
double svg_axis_place(const svg_axis *a, double v);
void svg_axis_draw_x(svg *s, const svg_axis *a, double top, double bottom, const char *label);

/* The range of values seen so far. */
typedef struct svg_range {
    double lo, hi;
} svg_range;
#define SVG_NO_RANGE ((svg_range){INFINITY, -INFINITY})
static inline void svg_widen(svg_range *r, double v) {
    if (isfinite(v)) {
        r->lo = fmin(r->lo, v);
        r->hi = fmax(r->hi, v);
    }
}

/* Two axes over ranges, their lines drawn, in the width of the drawing; with a reference line at 0,
 * where that is inside. flags: CHART_X_LOG, CHART_Y_LOG, CHART_ZERO_LINE. */
typedef struct svg_plot {
    svg_axis x, y;
} svg_plot;
svg_plot svg_plot_begin(svg *s, chart_text text, double top, svg_range xs, svg_range ys, int flags);
