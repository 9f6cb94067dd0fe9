/* The page under way: its markup, the verdict as plain text, and the figures that stand beside it.
 *
 * A figure is figure_begin, a chart of svg_chart.h on v->s, its numbers in v->csv (columns.h), and
 * figure_end, which puts it into the page, beside those before it, and keeps picture and numbers as
 * files. figures_end closes the group.
 */
#ifndef CKVC_REPORT_VIEW_H
#define CKVC_REPORT_VIEW_H

#include "report/draw/html.h"
#include "report/draw/svg_chart.h"
#include "report/view/columns.h"
#include "report/view/say.h"

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

void figure_begin(view *v, const char *csv_names); /* "a,b,c", or NULL: columns name them */
void figure_end(view *v, const char *name, const char *caption);
void figure_drop(view *v); /* nothing to show after all */
void figures_end(view *v);

/* One finding: a paragraph of the page and a line of the summary, its verdict (may be NULL) in
 * front; finding_aside: of the summary alone. */
void finding(view *v, const char *verdict, const char *line);
void finding_aside(view *v, const char *verdict, const char *line);

#endif
