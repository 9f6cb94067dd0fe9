/* See svg_chart.h. Sizes are in viewBox units; at the usual width one unit is about one CSS pixel.
 */
#include "report/draw/svg_axis.h"
#include "report/draw/svg_chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A step of 1, 2, 4, 5 times a power of ten so that labels of `need` units fit on cells of `have`
 * units. 4 is there for grids of fortieths: 0.8, 0.9, 1 ... */
static size_t thin(double need, double have) {
    static const size_t steps[] = {1, 2, 4, 5};
    for (size_t power = 1; power < 1000000; power *= 10) {
        for (size_t i = 0; i < 4; i++) {
            if ((double)(steps[i] * power) * have >= need) { return steps[i] * power; }
        }
    }
    return 1000000;
}

static const char *name_of(const char *const *names, size_t i, char number[32]) {
    if (names) { return names[i]; }
    snprintf(number, 32, "%zu", i);
    return number;
}

/* As labels of an axis. */
static double widest(const char *const *names, size_t n) {
    char number[32];
    double w = 0;
    for (size_t i = 0; i < n; i++) {
        w = fmax(w, svg_text_width(name_of(names, i, number), TICK_SIZE));
    }
    return w;
}

static uint32_t scale_colour(const chart_scale *c, double v) {
    if (!c->diverging) {
        return svg_sequential(c->hi > c->lo ? (v - c->lo) / (c->hi - c->lo) : 0.5);
    }
    double side = v < c->centre ? c->centre - c->lo : c->hi - c->centre;
    return svg_diverging(side > 0 ? (v - c->centre) / side : 0);
}

static double colour_bar(svg *s, double x, double y, double w, const chart_scale *scale) {
    enum { STEPS = 60 };
    bool flat = !(scale->hi > scale->lo);
    for (int i = 0; i < STEPS; i++) {
        double v = scale->lo + (scale->hi - scale->lo) * (i + 0.5) / STEPS;
        /* overlapping by half a unit: no seams between the steps */
        svg_rect_rgb(s, x + w * i / STEPS, y, w / STEPS + (i < STEPS - 1 ? 0.5 : 0), 9,
                     scale_colour(scale, v), NULL);
    }
    double ticks[SVG_TICKS_MAX];
    int decimals;
    size_t n = svg_ticks(scale->lo, scale->hi, 5, ticks, &decimals);
    for (size_t i = 0; i < n; i++) {
        char text[32];
        double at = flat ? x + w / 2 : x + w * (ticks[i] - scale->lo) / (scale->hi - scale->lo);
        snprintf(text, sizeof text, "%.*f", flat ? scale->decimals : decimals, ticks[i]);
        svg_line(s, at, y + 9, at, y + 12, "ax");
        svg_label(s, at, y + 22, TICK_SIZE, SVG_MIDDLE, "t", text);
    }
    return svg_paragraph(s, x, y + 36, s->width - PAD - x, LABEL_SIZE, false, "m", scale->label);
}

static bool any_missing(const chart_heat_spec *c) {
    for (size_t p = 0; p < c->n_panels; p++) {
        for (size_t i = 0; i < c->rows * c->cols; i++) {
            if (!isfinite(c->values[p][i])) { return true; }
        }
    }
    return false;
}

/* boxed: on a ground of the cell's colour, which keeps it legible over hatching. */
static void print_value(svg *s, const chart_heat_spec *c, double value, double x, double y,
                        double size, bool boxed) {
    char text[32];
    uint32_t rgb = scale_colour(&c->scale, value);
    snprintf(text, sizeof text, "%.*f", c->scale.decimals, value);
    if (boxed) {
        double w = svg_text_width(text, size) * 0.98 + 2;
        svg_rect_rgb(s, x - w / 2, y - size * 0.5, w, size, rgb, NULL);
    }
    svg_label_rgb(s, x, y + size * 0.36, size, SVG_MIDDLE, svg_text_on(rgb), text);
}

static void heat_panel(svg *s, const chart_heat_spec *c, size_t p, double x0, double y0, double cw,
                       double ch) {
    const double *v = c->values[p];
    char longest[32] = "", text[96], a[32], b[32];
    for (size_t i = 0; i < c->rows * c->cols; i++) {
        if (isfinite(v[i])) {
            snprintf(text, sizeof text, "%.*f", c->scale.decimals, v[i]);
            if (strlen(text) > strlen(longest) && strlen(text) < sizeof longest) {
                strcpy(longest, text);
            }
        }
    }
    /* Digits are narrower than the general estimate; below 7 units nobody reads them. */
    double per_unit = svg_text_width(longest, 1.0) * 0.98;
    double size = fmin(fmin(11, ch - 3), per_unit > 0 ? (cw - 3) / per_unit : 0);
    bool print = size >= 7, tips = c->rows * c->cols * c->n_panels <= 4096;
    double gap = fmin(cw, ch) >= 8 ? 1 : 0;
    for (size_t r = 0; r < c->rows; r++) {
        for (size_t k = 0; k < c->cols; k++) {
            double value = v[r * c->cols + k];
            double x = x0 + cw * (double)k, y = y0 + ch * (double)(c->y_up ? c->rows - 1 - r : r);
            if (!isfinite(value)) {
                svg_rect(s, x, y, cw - gap, ch - gap, "em", NULL);
                continue;
            }
            uint32_t rgb = scale_colour(&c->scale, value);
            snprintf(text, sizeof text, "%s %s, %s %s: %.6g", c->y_label,
                     name_of(c->row_names, r, a), c->x_label, name_of(c->col_names, k, b), value);
            svg_rect_rgb(s, x, y, cw - gap, ch - gap, rgb, tips ? text : NULL);
            if (print) {
                print_value(s, c, value, x + (cw - gap) / 2, y + (ch - gap) / 2, size, false);
            }
        }
    }
    if (c->hatched) {
        svg_hatch_begin(s, true);
        for (size_t i = 0; i < c->rows * c->cols; i++) {
            if (isfinite(v[i]) && c->hatched[p][i]) {
                size_t r = c->y_up ? c->rows - 1 - i / c->cols : i / c->cols;
                svg_hatch_cell(s, x0 + cw * (double)(i % c->cols), y0 + ch * (double)r, cw - gap,
                               ch - gap);
            }
        }
        svg_hatch_end(s);
        for (size_t i = 0; print && i < c->rows * c->cols;
             i++) { /* the number above its hatching */
            if (isfinite(v[i]) && c->hatched[p][i]) {
                size_t r = c->y_up ? c->rows - 1 - i / c->cols : i / c->cols;
                print_value(s, c, v[i], x0 + cw * (double)(i % c->cols) + (cw - gap) / 2,
                            y0 + ch * (double)r + (ch - gap) / 2, size, true);
            }
        }
    }
    svg_rect(s, x0 - 0.5, y0 - 0.5, cw * (double)c->cols - gap + 1, ch * (double)c->rows - gap + 1,
             "fr", NULL);
}

void chart_heat(svg *s, const chart_heat_spec *c) {
    double y = svg_title(s, c->title) + 2;
    if (c->rows == 0 || c->cols == 0 || c->n_panels == 0 || c->rows > CHART_CELLS_MAX / c->cols ||
        c->rows * c->cols > CHART_CELLS_MAX / c->n_panels) {
        s->height = svg_paragraph(s, PAD, y + 10, s->width - 2 * PAD, LABEL_SIZE, false, "m",
                                  c->rows && c->cols && c->n_panels
                                      ? "Too many cells to draw; the numbers are in the csv file."
                                      : "Nothing to draw.");
        return;
    }
    size_t across = c->n_panels >= 3 ? 2 : 1;
    double row_text = fmin(widest(c->row_names, c->rows), 120),
           left = PAD + LABEL_SIZE + 6 + row_text + 5;
    double gap = 14, width = (s->width - left - PAD - gap * (double)(across - 1)) / (double)across;
    double cw = fmin(width / (double)c->cols, 64),
           ch = fmin(fmax(fmin(cw * 0.6, 28), 15), 380.0 / (double)c->rows);
    ch = fmax(ch, (svg_text_width(c->y_label, LABEL_SIZE) + 2) /
                      (double)c->rows); /* few rows: room for the svg_axis name */
    double panel_w = cw * (double)c->cols, panel_h = ch * (double)c->rows;
    size_t x_step = thin(widest(c->col_names, c->cols) + 5, cw), y_step = thin(TICK_SIZE + 1.5, ch);
    char number[32];
    for (size_t p = 0; p < c->n_panels; p++) {
        size_t column = p % across;
        double x0 = left + (panel_w + gap) * (double)column, y0 = y;
        if (c->panel_titles) {
            y0 += LABEL_SIZE + 4;
            svg_label(s, x0, y0 - 3, LABEL_SIZE, SVG_START, "t", c->panel_titles[p]);
            y0 += 3;
        } else {
            y0 += 4;
        }
        heat_panel(s, c, p, x0, y0, cw, ch);
        for (size_t r = 0; column == 0 && r < c->rows; r += y_step) {
            double at = y0 + ch * ((double)(c->y_up ? c->rows - 1 - r : r) + 0.5);
            svg_label(s, x0 - 5, at + 3.5, TICK_SIZE, SVG_END, "t",
                      name_of(c->row_names, r, number));
        }
        if (column == 0) {
            svg_label_up(s, PAD + LABEL_SIZE - 2, y0 + panel_h / 2, LABEL_SIZE, "m", c->y_label);
        }
        bool last_of_column = p + across >= c->n_panels;
        for (size_t k = 0; last_of_column && k < c->cols; k += x_step) {
            svg_label(s, x0 + cw * ((double)k + 0.5), y0 + panel_h + 13, TICK_SIZE, SVG_MIDDLE, "t",
                      name_of(c->col_names, k, number));
        }
        if (column == across - 1 || p == c->n_panels - 1) { y = y0 + panel_h + 8; }
        if (last_of_column) {
            svg_label(s, x0 + panel_w / 2, y0 + panel_h + 27, LABEL_SIZE, SVG_MIDDLE, "m",
                      c->x_label);
        }
    }
    double bar = fmin(s->width - left - PAD, 300);
    y = colour_bar(s, left, y + 36, bar, &c->scale);
    if (c->missing && any_missing(c)) {
        svg_rect(s, left, y - 7, 18, 11, "em", NULL);
        svg_rect(s, left, y - 7, 18, 11, "fr", NULL);
        y = svg_paragraph(s, left + 24, y + 2, s->width - left - 24 - PAD, TICK_SIZE, false, "m",
                          c->missing);
    }
    if (c->hatched && c->hatched_label) {
        svg_hatch_begin(s, true);
        svg_hatch_cell(s, left, y - 7, 18, 11);
        svg_hatch_end(s);
        svg_rect(s, left, y - 7, 18, 11, "fr", NULL);
        y = svg_paragraph(s, left + 24, y + 2, s->width - left - 24 - PAD, TICK_SIZE, false, "m",
                          c->hatched_label);
    }
    s->height = y + 2;
}

void chart_bars(svg *s, const chart_bars_spec *c) {
    double y = svg_title(s, c->title) + 6, height = 190;
    double hi = 0;
    for (size_t k = 0; k < c->n_series; k++) {
        for (size_t i = 0; i < c->n; i++) {
            hi = fmax(hi, isfinite(c->values[k][i]) ? c->values[k][i] : 0);
        }
    }
    if (c->series) { y = svg_legend(s, y + 8, c->series, c->n_series) + 2; }
    if (c->mark >= 0) { y += 12; }
    svg_axis v = svg_axis_over(0, hi > 0 ? hi * 1.04 : 1, 0, y + height, y, 5);
    double left = PAD + LABEL_SIZE + 8 + svg_axis_tick_width(&v) + 5, right = s->width - PAD;
    svg_axis_draw_y(s, &v, left, right, c->y_label);
    double slot = (right - left) / (double)(c->n ? c->n : 1),
           bar = slot * 0.8 / (double)(c->n_series ? c->n_series : 1);
    char tip[160];
    for (size_t k = 0; k < c->n_series; k++) {
        char cls[4];
        snprintf(cls, sizeof cls, "f%d", (int)(k % SVG_SERIES));
        for (size_t i = 0; i < c->n; i++) {
            double value = c->values[k][i], top = svg_axis_place(&v, value);
            if (isfinite(value) && value > 0) {
                snprintf(tip, sizeof tip, "%s: %.6g", c->names[i], value);
                svg_rect(s, left + slot * ((double)i + 0.1) + bar * (double)k, top, bar,
                         v.from - top, cls, tip);
            }
        }
    }
    svg_line(s, left, v.from, right, v.from, "ax");
    if (c->mark >= 0) {
        double x = left + slot * ((double)c->mark + 0.5);
        svg_line(s, x, y - 2, x, v.from, "ref");
        svg_label(s, x, y - 6, TICK_SIZE, SVG_MIDDLE, "m", c->mark_label);
    }
    size_t step = thin(widest(c->names, c->n) + 5, slot);
    for (size_t i = 0; i < c->n; i += step) {
        svg_label(s, left + slot * ((double)i + 0.5), v.from + 13, TICK_SIZE, SVG_MIDDLE, "t",
                  c->names[i]);
    }
    svg_label(s, (left + right) / 2, v.from + 28, LABEL_SIZE, SVG_MIDDLE, "m", c->x_label);
    s->height = v.from + 36;
}

/* Label and remark share a line where they fit side by side. */
static bool remark_below(const chart_interval_row *r, double width) {
    return r->remark &&
           svg_text_width(r->label, LABEL_SIZE) + svg_text_width(r->remark, TICK_SIZE) + 8 > width;
}

void chart_intervals(svg *s, const chart_interval_spec *c) {
    double y = svg_title(s, c->title) + 2, lo = c->reference, hi = c->reference;
    for (size_t i = 0; i < c->n; i++) {
        const double all[4] = {c->rows[i].mean, c->rows[i].lo, c->rows[i].hi,
                               c->rows[i].draw_limit ? c->rows[i].limit : NAN};
        for (int k = 0; k < 4; k++) {
            if (isfinite(all[k])) {
                lo = isnan(lo) ? all[k] : fmin(lo, all[k]);
                hi = isnan(hi) ? all[k] : fmax(hi, all[k]);
            }
        }
    }
    double left = PAD + 14, right = s->width - PAD - 14;
    svg_axis x = svg_axis_over(lo, hi, 0.06, left, right, 5);
    double top = y + 2, bottom = top;
    for (size_t i = 0; i < c->n;
         i++) { /* the same steps as below: grid lines go under everything */
        bottom +=
            (c->rows[i].heading ? 22 : 0) + (remark_below(&c->rows[i], right - left) ? 44 : 32);
    }
    svg_axis_draw_x(s, &x, top, bottom, c->x_label);
    if (isfinite(c->reference)) {
        svg_line(s, svg_axis_place(&x, c->reference), top, svg_axis_place(&x, c->reference), bottom,
                 "ref");
    }
    y = top;
    for (size_t i = 0; i < c->n; i++) {
        const chart_interval_row *r = &c->rows[i];
        char cls[4], tip[200];
        if (r->heading) {
            svg_paragraph(s, PAD, y + 15, s->width - 2 * PAD, LABEL_SIZE, true, "t h", r->heading);
            y += 22;
        }
        svg_label(s, left, y + 12, LABEL_SIZE, SVG_START, "t h", r->label);
        if (r->remark && !remark_below(r, right - left)) {
            svg_label(s, right, y + 12, TICK_SIZE, SVG_END, "m h", r->remark);
        } else if (r->remark) {
            svg_label(s, left, y + 24, TICK_SIZE, SVG_START, "m h", r->remark);
            y += 12;
        }
        y += 18;
        double at = y + 5;
        if (r->draw_limit && isfinite(r->limit)) {
            double limit = svg_axis_place(&x, r->limit);
            svg_rect(s, limit - 1.5, at - 8, 3, 16, "f1", NULL);
        }
        if (isfinite(r->mean)) {
            snprintf(cls, sizeof cls, "s%d", r->series % SVG_SERIES);
            if (isfinite(r->lo) && isfinite(r->hi)) {
                svg_line(s, svg_axis_place(&x, r->lo), at, svg_axis_place(&x, r->hi), at, cls);
                svg_line(s, svg_axis_place(&x, r->lo), at - 3.5, svg_axis_place(&x, r->lo),
                         at + 3.5, cls);
                svg_line(s, svg_axis_place(&x, r->hi), at - 3.5, svg_axis_place(&x, r->hi),
                         at + 3.5, cls);
            }
            int used = snprintf(tip, sizeof tip, "%.6g", r->mean);
            if (isfinite(r->lo) && isfinite(r->hi)) {
                snprintf(tip + used, sizeof tip - (size_t)used, " (%.6g to %.6g)", r->lo, r->hi);
            }
            svg_marker(s, svg_series_shape(r->series), svg_axis_place(&x, r->mean), at, 4.2,
                       r->series, tip);
        } else {
            svg_label(s, left, at + 3, TICK_SIZE, SVG_START, "m",
                      c->undefined ? c->undefined : "undefined");
        }
        y += 14;
    }
    if (c->below) { svg_label(s, left, bottom + 42, TICK_SIZE, SVG_START, "m", c->below); }
    if (c->above) { svg_label(s, right, bottom + 42, TICK_SIZE, SVG_END, "m", c->above); }
    s->height = bottom + (c->below || c->above ? 50 : 36);
    if (c->limit_label) {
        svg_rect(s, left + 6, s->height - 1, 3, 14, "f1", NULL);
        s->height = svg_paragraph(s, left + 16, s->height + 10, right - left - 16, TICK_SIZE, false,
                                  "m", c->limit_label);
    }
}

void chart_scatter(svg *s, const chart_scatter_spec *c) {
    double y = svg_title(s, c->title) + 6;
    double lo[2] = {INFINITY, INFINITY}, hi[2] = {-INFINITY, -INFINITY};
    for (size_t i = 0; i < c->n; i++) {
        const chart_point *p = &c->points[i];
        const double vertical[3] = {p->y, p->lo, p->hi};
        if (!isfinite(p->x) || !isfinite(p->y)) { continue; }
        lo[0] = fmin(lo[0], p->x);
        hi[0] = fmax(hi[0], p->x);
        for (int k = 0; k < 3; k++) {
            if (isfinite(vertical[k])) {
                lo[1] = fmin(lo[1], vertical[k]);
                hi[1] = fmax(hi[1], vertical[k]);
            }
        }
    }
    for (size_t i = 0; i < c->n_y_lines; i++) {
        lo[1] = fmin(lo[1], c->y_lines[i]);
        hi[1] = fmax(hi[1], c->y_lines[i]);
    }
    if (c->square) {
        lo[0] = lo[1] = fmin(lo[0], lo[1]);
        hi[0] = hi[1] = fmax(hi[0], hi[1]);
    }
    if (c->series && c->n_series > 0) { y = svg_legend(s, y + 8, c->series, c->n_series) + 4; }
    double height = c->height > 0 ? c->height : 260;
    svg_axis v = svg_axis_over(lo[1], hi[1], 0.05, y + height, y, 6);
    double left = PAD + LABEL_SIZE + 8 + svg_axis_tick_width(&v) + 5, right = s->width - PAD - 8;
    svg_axis x = svg_axis_over(lo[0], hi[0], 0.05, left, right, 6);
    svg_axis_draw_y(s, &v, left, right, c->y_label);
    svg_axis_draw_x(s, &x, v.to, v.from, c->x_label);
    for (size_t i = 0; i < c->n_x_lines; i++) {
        if (c->x_lines[i] > x.lo && c->x_lines[i] < x.hi) {
            svg_line(s, svg_axis_place(&x, c->x_lines[i]), v.to, svg_axis_place(&x, c->x_lines[i]),
                     v.from, "ref");
        }
    }
    for (size_t i = 0; i < c->n_y_lines; i++) {
        if (c->y_lines[i] > v.lo && c->y_lines[i] < v.hi) {
            svg_line(s, left, svg_axis_place(&v, c->y_lines[i]), right,
                     svg_axis_place(&v, c->y_lines[i]), "ref");
        }
    }
    if (c->diagonal) {
        double a = fmax(x.lo, v.lo), b = fmin(x.hi, v.hi);
        if (b > a) {
            svg_line(s, svg_axis_place(&x, a), svg_axis_place(&v, a), svg_axis_place(&x, b),
                     svg_axis_place(&v, b), "ref");
        }
    }
    for (size_t i = 0; i < c->n; i++) {
        const chart_point *p = &c->points[i];
        if (!isfinite(p->x) || !isfinite(p->y)) { continue; }
        if (isfinite(p->lo) && isfinite(p->hi)) {
            char cls[4];
            snprintf(cls, sizeof cls, "s%d", p->series % SVG_SERIES);
            svg_line(s, svg_axis_place(&x, p->x), svg_axis_place(&v, p->lo),
                     svg_axis_place(&x, p->x), svg_axis_place(&v, p->hi), cls);
        }
        svg_marker(s, svg_series_shape(p->series), svg_axis_place(&x, p->x),
                   svg_axis_place(&v, p->y), p->radius > 0 ? p->radius : 4, p->series, p->tip);
    }
    s->height = v.from + 36;
}
