/* What charts share: title, legend, axes with nice ticks (linear or logarithmic). For svg_chart.c
 * and svg_curves.c alone. */
#ifndef CKVC_SVG_AXIS_H
#define CKVC_SVG_AXIS_H

#include <stdbool.h>
#include <stddef.h>

#include "report/draw/svg.h"

/* Text sizes and margin, viewBox units. */
#define TITLE_SIZE 13.5
#define LABEL_SIZE 11.0
#define TICK_SIZE  10.0
#define PAD        6.0

double svg_title(svg *s, const char *title); /* y below it */
/* Colour and shape repeat out of step, so that up to 36 series differ in one or the other. */
int svg_series_shape(int series);
/* Entries flow in lines; returns the y below. */
double svg_legend(svg *s, double y, const char *const *names, size_t n);

typedef struct svg_axis {
    double lo, hi, from, to; /* value (its decimal logarithm when log) and place of both ends */
    double ticks[SVG_TICKS_MAX];
    size_t n;
    int decimals;
    bool log;
} svg_axis;
/* An axis with `margin` (share of its length) beyond lo and hi; hi < lo is an axis over nothing. */
svg_axis svg_axis_over(double lo, double hi, double margin, double from, double to, size_t want);
/* The same for positive values on a logarithmic scale: ticks at 1, 2, 5 or at powers of ten,
 * whatever fits. */
svg_axis svg_axis_over_log(double lo, double hi, double margin, double from, double to,
                           size_t want);
double svg_axis_place(const svg_axis *a, double v);
double svg_axis_tick_width(const svg_axis *a);
void svg_axis_draw_x(svg *s, const svg_axis *a, double top, double bottom, const char *label);
void svg_axis_draw_y(svg *s, const svg_axis *a, double left, double right, const char *label);

#endif
