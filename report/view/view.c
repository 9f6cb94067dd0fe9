/* See view.h. */
#include "report/view/view.h"

#include <stdarg.h>
#include <stdlib.h>

#include "lib/base/memory.h"

void view_fini(view *v) {
    for (size_t i = 0; i < v->n_figures; i++) {
        free(v->figures[i].name);
        ckvc_buffer_fini(&v->figures[i].svg);
        ckvc_buffer_fini(&v->figures[i].csv);
    }
    free(v->figures);
    ckvc_buffer_fini(&v->html);
    ckvc_buffer_fini(&v->summary);
    *v = (view){0};
}

ckvc_buffer *page(view *v) {
    if (v->in_figures) { html_figures_end(&v->html); }
    v->in_figures = false;
    return &v->html;
}

void figure_begin(view *v, const char *csv_names) {
    svg_init(&v->s, CHART_WIDTH);
    v->csv = (ckvc_buffer){0};
    if (csv_names) { ckvc_buffer_printf(&v->csv, "%s\n", csv_names); }
}

void figure_table(view *v, columns_of *of, const void *rows, size_t n) {
    figure_begin(v, NULL);
    csv_table(&v->csv, of, rows, n);
}

void figure_end_as(view *v, const char *cls, const char *name, const char *caption) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer picture = {0};
    figure f = {.name = ckvc_strdup(name), .csv = v->csv};
    svg_render(&v->s, false, &picture);
    svg_render(&v->s, true, &f.svg);
    svg_fini(&v->s);
    if (!v->in_figures) { html_figures_begin(&v->html); }
    v->in_figures = true;
    html_figure(&v->html, cls, &picture, caption, f.name);
    CKVC_GROW(v->figures, v->cap_figures, v->n_figures + 1);
    v->figures[v->n_figures++] = f;
}

void figure_drop(view *v) {
    svg_fini(&v->s);
    ckvc_buffer_fini(&v->csv);
}

void finding_aside(view *v, const char *verdict, const char *line) {
    ckvc_buffer_printf(&v->summary, "%s%s", verdict ? verdict : "", verdict ? ": " : "");
    plain_text(&v->summary, line);
    ckvc_buffer_text(&v->summary, "\n");
}

void finding(view *v, const char *verdict, const char *fmt, ...) {
    ckvc_buffer *b = page(v);
    va_list args;
    va_start(args, fmt);
    const char *line = say_list(fmt, args);
    va_end(args);
    ckvc_buffer_text(b, "<p class=\"lead\">");
    if (verdict) {
        ckvc_buffer_text(b, "<strong>");
        html_textf(b, "%c%s.", verdict[0] - 'a' + 'A', verdict + 1);
        ckvc_buffer_text(b, "</strong> ");
    }
    html_text(b, line);
    ckvc_buffer_text(b, "</p>\n");
    finding_aside(v, verdict, line);
}
