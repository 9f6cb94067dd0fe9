/* Whole charts on a drawing (svg.h): heat maps, intervals, curves. Each lays itself
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
    size_t marked;       /* bytes from a value to a bool: a dot in its corner; 0: nothing has one */
    const char *marked_label;
} chart_heat_spec;
void chart_heat(svg *s, const chart_heat_spec *c);

/* One line a thing: label, marker with interval, remark. */
typedef struct chart_interval_row {
    const char *heading;        /* printed before the row when not NULL */
    const char *label, *remark; /* remark may be NULL */
    double mean, lo, hi;        /* NaN bounds: no interval; a row without mean is left out */
    int series;
    double limit; /* a mark of its own on the row; NaN: none */
} chart_interval_row;
typedef struct chart_interval_spec {
    const char *title, *x_label;
    const char *reference_label; /* of the line at 0, which the axis always holds */
    const char *remark_label;    /* of the remarks' column; NULL: none */
    size_t n;
    const chart_interval_row *rows;
    const char *limit_label; /* what the rows' limits are; NULL without */
} chart_interval_spec;
void chart_intervals(svg *s, const chart_interval_spec *c);

/* Lines through points in order of x, over linear or logarithmic axes. Points that a logarithmic
 * axis cannot show are left out. */
enum { CURVE_BAND = 1, CURVE_DASHED = 2, CURVE_DOTS = 4 };
typedef struct chart_curve {
    const char *name;
    size_t n, stride;
    const double *x, *y; /* with a band its ends follow y */
    int flags, series;
} chart_curve;
enum { CHART_X_LOG = 1, CHART_Y_LOG = 2, CHART_ZERO_LINE = 4 };
void chart_curves(svg *s, chart_text text, const chart_curve *curves, size_t n, int flags);
