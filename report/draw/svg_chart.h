/* Whole charts on a drawing (svg.h): heat maps, bars, intervals, points, curves. Each lays itself
 * out below its title, in the width of the drawing, and sets the drawing's height. The default
 * width suits a phone's column and half a sheet of A4.
 *
 * Charts read numbers where they lie, members of rows of structs: every array of a spec is that of
 * the first row, the next is `stride` bytes on (0: a plain array). NaN is left out.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "report/draw/svg.h"

#define CHART_WIDTH 440.0
/* A heat map of more cells is not drawn: a note points to the numbers. */
#define CHART_CELLS_MAX 40000

/* Number i of those that begin at `first`. */
static inline double chart_at(const double *first, size_t stride, size_t i) {
    return *(const double *)(const void *)((const char *)first +
                                           i * (stride ? stride : sizeof *first));
}

typedef struct chart_text {
    const char *title, *x, *y; /* the axes' labels */
} chart_text;

typedef struct chart_scale {
    const char *label; /* what the colour means, with its unit */
    int decimals;      /* of values printed in cells */
    double lo, hi, centre;
    bool diverging; /* blue below `centre`, orange above; else dark to light */
    bool log;       /* colours by the logarithm: lo and hi above 0 */
} chart_scale;

/* Several panels of one shape and one scale. A value that is undefined stays blank. */
typedef struct chart_heat_spec {
    chart_text text;
    struct chart_grid {
        size_t rows, cols, row_stride, col_stride, panels;
    } grid;
    const double *const *values; /* [panels] the first of each */
    bool zero_is_blank;
    const char *const *panel_titles;                 /* NULL: none */
    const char *const *row_names, *const *col_names; /* NULL: 0-based numbers */
    bool y_up;                                       /* row 0 at the bottom */
    chart_scale scale;
    const char *missing; /* meaning of a blank cell; NULL when there is none */
    size_t hatched;      /* bytes from a value to a bool: hatched over its colour; 0: nothing is */
    const char *hatched_label;
} chart_heat_spec;
void chart_heat(svg *s, const chart_heat_spec *c);

/* Grouped bars over n categories that are numbers. */
#define CHART_BARS 3
typedef struct chart_bars_spec {
    chart_text text;
    struct chart_rows {
        size_t n, stride;
        const double *categories;
    } rows;
    const double *values[CHART_BARS]; /* of each series; NULL ends them */
    const char *series[CHART_BARS];   /* their names; NULL: no legend */
    double scale;                     /* of the values; 0: as they are */
    size_t mark;                      /* 1 + category with a reference line; 0: none */
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
    const char *title, *x_label;
    const char *below, *above; /* words at the ends of the axis, either may be NULL */
    const char *undefined;
    double reference; /* NaN: none */
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
    chart_text text;
    size_t n, n_series;
    const chart_point *points;
    const char *const *series;       /* [n_series] */
    const double *x_lines, *y_lines; /* thin lines across: bin edges, references */
    size_t n_x_lines, n_y_lines;
    bool zero_line;
    bool diagonal; /* x = y */
    bool square;   /* same range on both axes */
    double height; /* of the plot; 0: 260 */
} chart_scatter_spec;
void chart_scatter(svg *s, const chart_scatter_spec *c);

/* Lines through points in order of x, over linear or logarithmic axes. Points that a logarithmic
 * axis cannot show are left out. */
enum { CURVE_BAND = 1, CURVE_DASHED = 2, CURVE_DOTS = 4 };
typedef struct chart_curve {
    const char *name;
    size_t n, stride;
    const double *x, *y; /* with a band its ends follow y */
    int flags;
} chart_curve;
enum { CHART_X_LOG = 1, CHART_Y_LOG = 2, CHART_ZERO_LINE = 4 };
void chart_curves(svg *s, chart_text text, const chart_curve *curves, size_t n, int flags);
