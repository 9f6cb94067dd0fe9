/* Whole charts on a drawing (svg.h): heat maps, bars, intervals, points. Each lays itself out below
 * its title, in the width of the drawing, and sets the drawing's height. The default width suits a
 * phone's column and half a sheet of A4.
 */
#ifndef CKVC_SVG_CHART_H
#define CKVC_SVG_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/draw/svg.h"

#define CHART_WIDTH 440.0
#define CHART_CELLS_MAX                                                                            \
    40000 /* a heat map of more cells is not drawn: a note points to the numbers */

typedef struct chart_scale {
    bool diverging; /* blue below `centre`, orange above; else dark to light */
    double lo, hi, centre;
    const char *label; /* what the colour means, with its unit */
    int decimals;      /* of values printed in cells */
} chart_scale;

/* Several panels of one shape and one scale. values[p] is [rows][cols]; a NaN stays blank. */
typedef struct chart_heat_spec {
    const char *title, *x_label, *y_label;
    size_t rows, cols, n_panels;
    const double *const *values;
    const char *const *panel_titles;                 /* NULL: none */
    const char *const *row_names, *const *col_names; /* NULL: 0-based numbers */
    bool y_up;                                       /* row 0 at the bottom */
    chart_scale scale;
    const char *missing; /* meaning of a blank cell; NULL when there is none */
    const uint8_t *const
        *hatched; /* [n_panels] of [rows][cols]: hatched over their colour; NULL: none */
    const char *hatched_label;
} chart_heat_spec;
void chart_heat(svg *s, const chart_heat_spec *c);

/* Grouped bars over n categories. */
typedef struct chart_bars_spec {
    const char *title, *x_label, *y_label;
    size_t n, n_series;
    const char *const *names;    /* [n] */
    const char *const *series;   /* [n_series]; NULL with one series: no legend */
    const double *const *values; /* [n_series][n] */
    long mark;                   /* category with a reference line, -1: none */
    const char *mark_label;
} chart_bars_spec;
void chart_bars(svg *s, const chart_bars_spec *c);

/* One row a thing: label and remark above, marker with interval below. Rows with a NaN mean say
 * `undefined` instead. */
typedef struct chart_interval_row {
    const char *heading;        /* printed before the row when not NULL */
    const char *label, *remark; /* remark may be NULL */
    double mean, lo, hi;        /* NaN bounds: no interval */
    int series;
    double limit; /* a mark of its own on the row, drawn when draw_limit */
    bool draw_limit;
} chart_interval_row;
typedef struct chart_interval_spec {
    const char *title, *x_label, *undefined;
    const char *below, *above; /* words at the ends of the axis, either may be NULL */
    double reference;          /* NaN: none */
    size_t n;
    const chart_interval_row *rows;
    const char *limit_label; /* what the rows' limits are; NULL without */
} chart_interval_spec;
void chart_intervals(svg *s, const chart_interval_spec *c);

typedef struct chart_point {
    double x, y, lo, hi; /* lo, hi: vertical interval, NaN: none */
    double radius;       /* 0: the usual 4 */
    int series;
    const char *tip; /* NULL: none */
} chart_point;
typedef struct chart_scatter_spec {
    const char *title, *x_label, *y_label;
    size_t n, n_series;
    const chart_point *points;
    const char *const *series;       /* [n_series] */
    const double *x_lines, *y_lines; /* thin lines across: bin edges, references */
    size_t n_x_lines, n_y_lines;
    bool diagonal; /* x = y */
    bool square;   /* same range on both axes */
    double height; /* of the plot; 0: 260 */
} chart_scatter_spec;
void chart_scatter(svg *s, const chart_scatter_spec *c);

/* Lines through points in order of x, each with a band, over linear or logarithmic axes. Points
 * with an undefined number are left out; so are those that a logarithmic axis cannot show. */
typedef struct chart_curve {
    const char *name;
    size_t n;
    const double *x, *y;
    const double *lo, *hi; /* NULL: no band */
    bool dashed, dots;
} chart_curve;
typedef struct chart_curves_spec {
    const char *title, *x_label, *y_label;
    size_t n_curves;
    const chart_curve *curves;
    bool x_log, y_log;
    size_t n_y_lines; /* thin lines across */
    const double *y_lines;
    const char *const *y_line_names; /* written on the line; NULL: none */
} chart_curves_spec;
void chart_curves(svg *s, const chart_curves_spec *c); /* svg_curves.c */

#endif
