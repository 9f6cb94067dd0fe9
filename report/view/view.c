/* See view.h. */
#include "report/view/view.h"

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

void figure_begin(view *v, const char *csv_names) {
    svg_init(&v->s, CHART_WIDTH);
    v->csv = (ckvc_buffer){0};
    if (csv_names) { ckvc_buffer_printf(&v->csv, "%s\n", csv_names); }
}

void figure_end(view *v, const char *name, const char *caption) {
    ckvc_buffer picture = {0};
    figure f = {.name = ckvc_strdup(name), .csv = v->csv};
    svg_render(&v->s, false, &picture);
    svg_render(&v->s, true, &f.svg);
    svg_fini(&v->s);
    if (!v->in_figures) { html_figures_begin(&v->html); }
    v->in_figures = true;
    html_figure(&v->html, &picture, caption, name);
    ckvc_buffer_fini(&picture);
    CKVC_GROW(v->figures, v->cap_figures, v->n_figures + 1);
    v->figures[v->n_figures++] = f;
}

void figure_drop(view *v) {
    svg_fini(&v->s);
    ckvc_buffer_fini(&v->csv);
}

void figures_end(view *v) {
    if (v->in_figures) { html_figures_end(&v->html); }
    v->in_figures = false;
}

void finding_aside(view *v, const char *verdict, const char *line) {
    ckvc_buffer_printf(&v->summary, "%s%s%s\n", verdict ? verdict : "", verdict ? ": " : "", line);
}

void finding(view *v, const char *verdict, const char *line) {
    ckvc_buffer_text(&v->html, "<p class=\"lead\">");
    if (verdict) {
        ckvc_buffer_text(&v->html, "<strong>");
        html_textf(&v->html, "%c%s.", verdict[0] - 'a' + 'A', verdict + 1);
        ckvc_buffer_text(&v->html, "</strong> ");
    }
    html_text(&v->html, line);
    ckvc_buffer_text(&v->html, "</p>\n");
    finding_aside(v, verdict, line);
}
