/* The page under way: its markup, the verdict as plain text, and the figures that stand beside it.
 *
 * Sections append to the page by page_... , or by html_... on page(v). A figure is figure_begin or
 * figure_table, which give its numbers (v->csv, columns.h), one chart, and figure_end, which puts
 * it beside the figure before it and keeps picture and numbers as files. */
#pragma once

#include "report/draw/html.h"
#include "report/draw/svg_chart.h"
#include "report/view/columns.h"
#include "report/view/say.h"

/* One colour, one meaning, on the whole page: a table has its own in every figure (svg.h, series of
 * a drawing), grey is what needs no table. */
#define VIEW_REFERENCE (SVG_SERIES - 1)
static inline int view_series(size_t table) {
    const size_t own = SVG_SERIES - 1;
    return (int)(table / own * SVG_SERIES + table % own);
}

typedef struct figure {
    char *name; /* of its files, name.svg and name.csv */
    ckvc_buffer svg, csv;
} figure;

typedef struct view {
    ckvc_buffer html, summary;
    figure *figures;
    size_t n_figures, cap_figures;
    bool in_figures;
    svg s; /* of the figure under way */
    ckvc_buffer csv;
} view;

void view_fini(view *v);

/* The markup, to go on behind the figures so far. */
ckvc_buffer *page(view *v);
/* Paragraphs: format and arguments; text that is folded; a table of columns (columns.h). */
#define page_text(v, ...)        html_paragraph(page(v), NULL, __VA_ARGS__)
#define page_note(v, ...)        html_paragraph(page(v), "note", __VA_ARGS__)
#define page_warn(v, ...)        html_paragraph(page(v), "warn", __VA_ARGS__)
#define page_fold(v, summary)    html_details_begin(page(v), summary)
#define page_fold_end(v)         html_details_end(page(v))
#define page_table(v, ...)       columns_table(page(v), __VA_ARGS__)
#define page_table_begin(v, ...) columns_table_begin(page(v), __VA_ARGS__)
#define page_table_end(v)        html_table_end(page(v))
#define page_row(v, ...)         columns_row(page(v), __VA_ARGS__)
#define page_rows(v, ...)        columns_rows(page(v), __VA_ARGS__)
/* Caption, letters and heads (html.h) of a table whose rows follow. */
#define page_heads(v, caption, ...)                                                                \
    (html_table_begin(page(v), caption), html_heads(&(v)->html, __VA_ARGS__))
/* A line above the rows of such a table that follow. */
#define page_group(v, columns, ...) html_group(page(v), columns_on_page(columns), __VA_ARGS__)

/* csv_names: "a,b,c", or NULL: columns name them. */
void figure_begin(view *v, const char *csv_names);
void figure_table(view *v, columns_of *of, const void *rows, size_t n);
/* The (rest of the) line of numbers in its csv. */
#define figure_line(v, ...) csv_numbers(&(v)->csv, FIGURE_NUMBERS(__VA_ARGS__))
#define FIGURE_NUMBERS(...)                                                                        \
    (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double)
/* The members of a chart's spec (svg_chart.h); of curves: title and labels of the axes. */
#define figure_heat(v, ...)      chart_heat(&(v)->s, &(chart_heat_spec){__VA_ARGS__})
#define figure_intervals(v, ...) chart_intervals(&(v)->s, &(chart_interval_spec){__VA_ARGS__})
#define figure_curves(v, curves, n, flags, ...)                                                    \
    chart_curves(&(v)->s, (chart_text){__VA_ARGS__}, curves, n, flags)
#define figure_end(v, name, caption) figure_end_as(v, NULL, name, caption)
void figure_end_as(view *v, const char *cls, const char *name, const char *caption);
void figure_drop(view *v); /* nothing to show after all */

/* One finding: a paragraph of the page and a line of the summary, its verdict (may be NULL) in
 * front; finding_aside: of the summary alone. */
void finding(view *v, const char *verdict, const char *fmt, ...) CKVC_PRINTF(3, 4);
void finding_aside(view *v, const char *verdict, const char *line);
