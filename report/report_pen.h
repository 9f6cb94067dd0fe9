/* What functions that draw figures work with: the drawing under way, its csv, and the first
 * failure.
 *
 * Draw with pen_begin, the charts of report/draw/svg_chart.h on p->s, pen_csv_*, pen_finish.
 * Nothing here fails: p->rc keeps the first error, and what follows it does no harm.
 */
#ifndef CKVC_REPORT_PEN_H
#define CKVC_REPORT_PEN_H

#include "report/draw/svg_chart.h"
#include "report/report_internal.h"

typedef struct report_pen {
    report *r;
    ckvc_err *err;
    ckvc_status rc;
    svg s;
    ckvc_buffer csv;
    ckvc_buffer texts; /* pointers that pen_text gave */
} report_pen;

char *pen_text(report_pen *p, const char *fmt, ...) CKVC_PRINTF(2, 3); /* lives until pen_fini */
void *pen_room(report_pen *p, size_t n,
               size_t size); /* zeroed, the caller's to free; NULL when memory is out */
void pen_begin(report_pen *p);
/* Files the drawing as figure `name` of a section of the page: the pen is free for the next. */
void pen_finish(report_pen *p, const char *section, const char *name, const char *title,
                const char *caption);
void pen_csv_text(report_pen *p, const char *value, char after); /* quoted as in RFC 4180 */
void pen_csv_number(report_pen *p, double v,
                    char after); /* an undefined number is an empty field */
ckvc_status pen_fini(report_pen *p);

void report_draw_tables(report_pen *p);   /* report_table_figures.c */
void report_draw_coverage(report_pen *p); /* report_coverage.c */
void report_draw_binding(report_pen *p);  /* report_binding.c */
/* report_stats_figures.c */
void report_draw_spearman(report_pen *p);
void report_draw_stats(report_pen *p);

#endif
