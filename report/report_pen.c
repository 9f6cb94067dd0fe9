/* See report_pen.h. */
#include "report/report_pen.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"

char *pen_text(report_pen *p, const char *fmt, ...) {
    static char none[1];
    va_list args;
    va_start(args, fmt);
    char *out = NULL;
    int n = vasprintf(&out, fmt, args);
    va_end(args);
    if (n < 0) {
        p->rc = p->rc ? p->rc : ckvc_fail_memory(p->err, "report", 128);
        return none;
    }
    ckvc_buffer_append(&p->texts, &out, sizeof out);
    return out;
}

void *pen_room(report_pen *p, size_t n, size_t size) {
    void *out = ckvc_calloc(n + 1, size);
    if (!out) { p->rc = p->rc ? p->rc : ckvc_fail_memory(p->err, "report", n * size); }
    return out;
}

void pen_csv_text(report_pen *p, const char *value, char after) {
    ckvc_buffer_text(&p->csv, "\"");
    for (const char *c = value; *c; c++) {
        ckvc_buffer_append(&p->csv, c, 1);
        if (*c == '"') { ckvc_buffer_text(&p->csv, "\""); }
    }
    ckvc_buffer_printf(&p->csv, "\"%c", after);
}

void pen_csv_number(report_pen *p, double v, char after) {
    if (isfinite(v)) { ckvc_buffer_printf(&p->csv, "%.17g", v); }
    ckvc_buffer_printf(&p->csv, "%c", after);
}

void pen_begin(report_pen *p) {
    svg_init(&p->s, CHART_WIDTH);
    memset(&p->csv, 0, sizeof p->csv);
}

void pen_finish(report_pen *p, const char *section, const char *name, const char *title,
                const char *caption) {
    report *r = p->r;
    report_figure f = {.section = section,
                       .name = ckvc_strdup(name),
                       .caption = ckvc_strdup(caption),
                       .csv = p->csv};
    (void)title;
    svg_render(&p->s, false, &f.inline_svg);
    svg_render(&p->s, true, &f.file_svg);
    svg_fini(&p->s);
    if (p->rc == CKVC_OK) {
        p->rc = ckvc_grow((void **)&r->figures, &r->cap_figures, r->n_figures + 1,
                          sizeof *r->figures, p->err);
    }
    bool failed = !f.name || !f.caption || f.csv.failed || f.inline_svg.failed || f.file_svg.failed;
    if (p->rc == CKVC_OK && failed) {
        p->rc = ckvc_fail_memory(p->err, "report", f.inline_svg.size);
    }
    if (p->rc == CKVC_OK) {
        r->figures[r->n_figures++] = f;
        return;
    }
    free(f.name);
    free(f.caption);
    ckvc_buffer_fini(&f.inline_svg);
    ckvc_buffer_fini(&f.file_svg);
    ckvc_buffer_fini(&f.csv);
}

ckvc_status pen_fini(report_pen *p) {
    if (p->rc == CKVC_OK && p->texts.failed) {
        p->rc = ckvc_fail_memory(p->err, "report", p->texts.size);
    }
    for (size_t i = 0; i + sizeof(char *) <= p->texts.size; i += sizeof(char *)) {
        char *one;
        memcpy(&one, p->texts.data + i, sizeof one);
        free(one);
    }
    ckvc_buffer_fini(&p->texts);
    return p->rc;
}
