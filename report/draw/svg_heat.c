/* Heat maps: see svg_chart.h. Sizes are in viewBox units; at the usual width one unit is about one
 * CSS pixel. */
#include "report/draw/svg_axis.h"

#include <stdio.h>

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

/* Of a panel: its own above it, the axis' below. */
static double widest_title(const chart_heat_spec *c) {
    double w = svg_text_width(c->text.x, LABEL_SIZE);
    for (size_t p = 0; c->panel_titles && p < c->grid.panels; p++) {
        w = fmax(w, svg_text_width(c->panel_titles[p], LABEL_SIZE));
    }
    return w;
}

static double scaled(const chart_scale *c, double v) { return c->log ? log2(fmax(v, c->lo)) : v; }

static uint32_t scale_colour(const chart_scale *c, double v) {
    const double lo = scaled(c, c->lo), hi = scaled(c, c->hi), centre = scaled(c, c->centre);
    v = scaled(c, v);
    if (!c->diverging) { return svg_sequential(hi > lo ? (v - lo) / (hi - lo) : 0.5); }
    double side = v < centre ? centre - lo : hi - centre;
    return svg_diverging(side > 0 ? (v - centre) / side : 0);
}

/* Powers of two, every one or every other ...: log2 of them. */
static size_t log_ticks(double lo, double hi, double ticks[SVG_TICKS_MAX]) {
    const int stride = (int)fmax(ceil((hi - lo) / 7), 1), last = (int)floor(hi / stride);
    size_t n = 0;
    for (int e = (int)ceil(lo / stride); e <= last && n < SVG_TICKS_MAX; e++) {
        ticks[n++] = e * stride;
    }
    return n;
}

static double colour_bar(svg *s, double x, double y, double w, const chart_scale *scale) {
    enum { STEPS = 60 };
    const double lo = scaled(scale, scale->lo), hi = scaled(scale, scale->hi);
    bool flat = !(hi > lo);
    for (int i = 0; i < STEPS; i++) {
        double v = lo + (hi - lo) * (i + 0.5) / STEPS;
        v = scale->log ? exp2(v) : v;
        /* overlapping by half a unit: no seams between the steps */
        svg_rect(s, x + w * i / STEPS, y, w / STEPS + (i < STEPS - 1 ? 0.5 : 0), 9,
                 svg_rgb(scale_colour(scale, v)), NULL);
    }
    double ticks[SVG_TICKS_MAX];
    int decimals;
    size_t n = scale->log ? log_ticks(lo, hi, ticks) : svg_ticks(lo, hi, 5, ticks, &decimals);
    for (size_t i = 0; i < n; i++) {
        char text[32];
        double at = flat ? x + w / 2 : x + w * (ticks[i] - lo) / (hi - lo);
        if (scale->log) {
            snprintf(text, sizeof text, "%g", exp2(ticks[i]));
        } else {
            snprintf(text, sizeof text, "%.*f", flat ? scale->decimals : decimals, ticks[i]);
        }
        svg_line(s, at, y + 9, at, y + 12, "ax");
        svg_label(s, at, y + 22, SVG_MIDDLE, tick_font, text);
    }
    return svg_paragraph(s, x, y + 36, s->width - PAD - x, axis_font, scale->label);
}

/* Where the value of cell i of a panel, row by row, lies. */
static const char *cell_at(const chart_heat_spec *c, size_t p, size_t i) {
    return (const char *)c->values[p] + i / c->grid.cols * c->grid.row_stride +
           i % c->grid.cols * c->grid.col_stride;
}

/* NaN: blank. */
static double value_of(const chart_heat_spec *c, size_t p, size_t i) {
    const double v = *(const double *)(const void *)cell_at(c, p, i);
    return !isfinite(v) || (c->zero_is_blank && v == 0) ? NAN : v;
}

static bool is_marked(const chart_heat_spec *c, size_t p, size_t i) {
    return c->marked && *(const bool *)(cell_at(c, p, i) + c->marked);
}

static bool any(const chart_heat_spec *c, bool blank) {
    for (size_t p = 0; p < c->grid.panels; p++) {
        for (size_t i = 0; i < c->grid.rows * c->grid.cols; i++) {
            if (blank ? isnan(value_of(c, p, i)) : is_marked(c, p, i)) { return true; }
        }
    }
    return false;
}

/* The cells of all panels: sizes with and without the gap between them, size of the text in them.
 */
typedef struct heat_cells {
    double w, h, gap, text;
    bool print, tips;
} heat_cells;

static void print_value(svg *s, const chart_heat_spec *c, const heat_cells *z, double value,
                        double x0, double y0) {
    char text[32];
    uint32_t rgb = scale_colour(&c->scale, value);
    double x = x0 + (z->w - z->gap) / 2, y = y0 + (z->h - z->gap) / 2;
    snprintf(text, sizeof text, "%.*f", c->scale.decimals, value);
    svg_label(s, x, y + z->text * 0.36, SVG_MIDDLE,
              (svg_font){.size = z->text, .look = svg_rgb(svg_text_on(rgb))}, text);
}

/* Digits are narrower than the general estimate; below 7 units nobody reads them. */
static void size_text(const chart_heat_spec *c, size_t p, heat_cells *z) {
    double per_unit = 0;
    for (size_t i = 0; i < c->grid.rows * c->grid.cols; i++) {
        char text[32];
        const double v = value_of(c, p, i);
        const int n = snprintf(text, sizeof text, "%.*f", c->scale.decimals, v);
        if (!isnan(v) && n < (int)sizeof text) {
            per_unit = fmax(per_unit, svg_text_width(text, 1.0) * 0.98);
        }
    }
    z->text = fmin(fmin(11, z->h - 3), per_unit > 0 ? (z->w - 3) / per_unit : 0);
    z->print = z->text >= 7;
}

/* In the upper right corner of a cell, clear of its number. */
static void draw_mark(svg *s, double right, double top, double size, double v,
                      const chart_heat_spec *c) {
    const double r = fmin(2.4, size / 4);
    svg_dot(s, right - r - 1.2, top + r + 1.2, r, svg_rgb(svg_text_on(scale_colour(&c->scale, v))));
}

static void heat_panel(svg *s, const chart_heat_spec *c, size_t p, double x0, double y0,
                       heat_cells z) {
    char text[96], a[32], b[32];
    size_text(c, p, &z);
    for (size_t i = 0; i < c->grid.rows * c->grid.cols; i++) {
        const size_t r = i / c->grid.cols, k = i % c->grid.cols;
        const double v = value_of(c, p, i), x = x0 + z.w * (double)k,
                     y = y0 + z.h * (double)(c->y_up ? c->grid.rows - 1 - r : r);
        if (isnan(v)) {
            svg_rect(s, x, y, z.w - z.gap, z.h - z.gap, "em", NULL);
            continue;
        }
        snprintf(text, sizeof text, "%s %s, %s %s: %.6g", c->text.y, name_of(c->row_names, r, a),
                 c->text.x, name_of(c->col_names, k, b), v);
        svg_rect(s, x, y, z.w - z.gap, z.h - z.gap, svg_rgb(scale_colour(&c->scale, v)),
                 z.tips ? text : NULL);
        if (z.print) { print_value(s, c, &z, v, x, y); }
        if (is_marked(c, p, i)) { draw_mark(s, x + z.w - z.gap, y, fmin(z.w, z.h), v, c); }
    }
    svg_rect(s, x0 - 0.5, y0 - 0.5, z.w * (double)c->grid.cols - z.gap + 1,
             z.h * (double)c->grid.rows - z.gap + 1, "fr", NULL);
}

/* A swatch of the legend with its words; the y below. */
static double legend_line(svg *s, double left, double y, bool marked, const char *words) {
    svg_rect(s, left, y - 7, 18, 11, "em", NULL);
    if (marked) { svg_dot(s, left + 14, y - 3.4, 2.4, "t"); }
    svg_rect(s, left, y - 7, 18, 11, "fr", NULL);
    return svg_paragraph(s, left + 24, y + 2, s->width - left - 24 - PAD, note_font, words);
}

void chart_heat(svg *s, const chart_heat_spec *spec) {
    chart_heat_spec copy = *spec;
    const chart_heat_spec *c = &copy;
    double y = svg_title(s, c->text.title) + 2;
    if (c->grid.rows == 0 || c->grid.cols == 0 || c->grid.panels == 0 ||
        c->grid.rows > CHART_CELLS_MAX / c->grid.cols ||
        c->grid.rows * c->grid.cols > CHART_CELLS_MAX / c->grid.panels) {
        s->height = svg_paragraph(s, PAD, y + 10, s->width - 2 * PAD, axis_font,
                                  c->grid.rows && c->grid.cols && c->grid.panels
                                      ? "Too many cells to draw; the numbers are in the csv file."
                                      : "Nothing to draw.");
        return;
    }
    if (!any(c, false)) { copy.marked = 0; }
    const bool narrow = c->grid.cols <= 6;
    const size_t across = c->grid.panels >= 3 || (c->grid.panels == 2 && narrow) ? 2 : 1;
    const double row_text = fmin(widest(c->row_names, c->grid.rows), 120),
                 left = PAD + LABEL_SIZE + 6 + row_text + 5, gap = 14,
                 width = (s->width - left - PAD - gap * (double)(across - 1)) / (double)across;
    heat_cells z = {.w = fmin(width / (double)c->grid.cols, 64),
                    .tips = c->grid.rows * c->grid.cols * c->grid.panels <= 4096};
    z.h = fmin(fmax(fmin(z.w * 0.6, 28), 15), 380.0 / (double)c->grid.rows);
    /* few rows: room for the axis' name */
    z.h = fmax(z.h, (svg_text_width(c->text.y, LABEL_SIZE) + 2) / (double)c->grid.rows);
    z.gap = fmin(z.w, z.h) >= 8 ? 1 : 0;
    const double panel_w = z.w * (double)c->grid.cols, panel_h = z.h * (double)c->grid.rows,
                 pitch = gap + fmin(fmax(panel_w, widest_title(c)), width);
    const size_t x_step = svg_thin(widest(c->col_names, c->grid.cols) + 5, z.w),
                 y_step = svg_thin(TICK_SIZE + 1.5, z.h);
    char number[32];
    for (size_t p = 0; p < c->grid.panels; p++) {
        const size_t column = p % across;
        const double x0 = left + pitch * (double)column;
        double y0 = y + 4;
        if (c->panel_titles) {
            y0 += LABEL_SIZE;
            svg_label(s, x0, y0 - 3, SVG_START, panel_font, c->panel_titles[p]);
            y0 += 3;
        }
        heat_panel(s, c, p, x0, y0, z);
        for (size_t r = 0; column == 0 && r < c->grid.rows; r += y_step) {
            double at = y0 + z.h * ((double)(c->y_up ? c->grid.rows - 1 - r : r) + 0.5);
            svg_label(s, x0 - 5, at + 3.5, SVG_END, tick_font, name_of(c->row_names, r, number));
        }
        if (column == 0) {
            svg_label_up(s, PAD + LABEL_SIZE - 2, y0 + panel_h / 2, axis_font, c->text.y);
        }
        const bool last_of_column = p + across >= c->grid.panels;
        for (size_t k = 0; last_of_column && k < c->grid.cols; k += x_step) {
            svg_label(s, x0 + z.w * ((double)k + 0.5), y0 + panel_h + 13, SVG_MIDDLE, tick_font,
                      name_of(c->col_names, k, number));
        }
        if (column == across - 1 || p == c->grid.panels - 1) { y = y0 + panel_h + 8; }
        if (last_of_column) {
            svg_label(s, x0 + panel_w / 2, y0 + panel_h + 27, SVG_MIDDLE, axis_font, c->text.x);
        }
    }
    y = colour_bar(s, left, y + 36, fmin(s->width - left - PAD, 300), &c->scale);
    if (c->missing && any(c, true)) { y = legend_line(s, left, y, false, c->missing); }
    if (c->marked) { y = legend_line(s, left, y, true, c->marked_label); }
    s->height = y + 2;
}
