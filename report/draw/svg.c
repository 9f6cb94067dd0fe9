/* See svg.h. */
#include "report/draw/svg.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/draw/html.h"
#include "lib/base/memory.h"

/* The colours of a file that stands alone: html.c's light page, written out because image viewers
 * and word processors that read SVG do not know CSS variables. */
static const char standalone_style[] =
    "text{font-family:'Helvetica Neue',Arial,'Liberation Sans','DejaVu Sans',sans-serif}"
    ".h{paint-order:stroke;stroke:#fff;stroke-width:3;stroke-linejoin:round}.t{fill:#1b1f24}"
    ".m{fill:#59626d}.ax{stroke:#59626d;stroke-width:1;fill:none}.gr{stroke:#e4e7eb;stroke-width:1;"
    "fill:none}.ref{stroke:#1b1f24;stroke-width:1;stroke-dasharray:4 3;fill:none}.em{fill:#f0f1f3}"
    ".da{stroke-dasharray:5 "
    "4}.ba{fill-opacity:.18}.fr{fill:none;stroke:#c9ced6}.f0{fill:#0072b2}.f1{fill:#7a52c7}"
    ".f2{fill:#00828f}.f3{fill:#c2478f}.f4{fill:#7d5a3c}.f5{fill:#737a00}.f6{fill:#6b7280}.s0,.s1,."
    "s2,.s3,.s4,"
    ".s5,.s6{stroke-width:2;fill:none}.s0{stroke:#0072b2}.s1{stroke:#7a52c7}.s2{stroke:#00828f}"
    ".s3{stroke:#c2478f}.s4{stroke:#7d5a3c}.s5{stroke:#737a00}.s6{stroke:#6b7280}";

void svg_init(svg *s, double width) { *s = (svg){.width = width}; }

void svg_fini(svg *s) {
    ckvc_buffer_fini(&s->body);
    free(ckvc_take(&s->title));
}

/* Two decimals of a viewBox unit are beyond what a screen shows; zeros behind the point are
 * dropped. In one of eight buffers that take turns. */
static const char *coordinate(double v) {
    static char slots[8][32];
    static unsigned turn;
    char *out = slots[turn++ % 8];
    snprintf(out, sizeof slots[0], "%.2f", isfinite(v) ? v : 0.0);
    char *end = out + strlen(out);
    while (end[-1] == '0') { *--end = 0; }
    if (end[-1] == '.') { *--end = 0; }
    return strcmp(out, "-0") == 0 ? "0" : out;
}

#define PUT(s, ...) ckvc_buffer_printf(&(s)->body, __VA_ARGS__)

const char *svg_rgb(uint32_t rgb) {
    static char slots[8][8];
    static unsigned turn;
    char *out = slots[turn++ % 8];
    snprintf(out, sizeof slots[0], "#%06x", rgb & 0xFFFFFFu);
    return out;
}

/* The attribute that says it. */
static const char *look_of(const char *look) { return *look == '#' ? "fill" : "class"; }

void svg_render(const svg *s, bool standalone, ckvc_buffer *out) {
    const char *width = coordinate(s->width), *height = coordinate(s->height);
    if (standalone) { ckvc_buffer_text(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"); }
    ckvc_buffer_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %s %s\"",
                       width, height);
    if (standalone) { ckvc_buffer_printf(out, " width=\"%s\" height=\"%s\"", width, height); }
    ckvc_buffer_text(out, " role=\"img\" aria-label=\"");
    html_text(out, s->title);
    ckvc_buffer_text(out, "\">\n");
    if (standalone) {
        html_element(out, "title", NULL, "%s", s->title);
        ckvc_buffer_printf(
            out, "\n<style>%s</style>\n<rect width=\"%s\" height=\"%s\" fill=\"#ffffff\"/>\n",
            standalone_style, width, height);
    }
    ckvc_buffer_append(out, s->body.data, s->body.size);
    ckvc_buffer_text(out, "</svg>\n");
}

void svg_line(svg *s, double x1, double y1, double x2, double y2, const char *look) {
    PUT(s, "<line x1=\"%s\" y1=\"%s\" x2=\"%s\" y2=\"%s\" class=\"%s\"/>\n", coordinate(x1),
        coordinate(y1), coordinate(x2), coordinate(y2), look);
}

static void close_shape(svg *s, const char *element, const char *tip) {
    PUT(s, tip ? ">" : "/>\n");
    if (!tip) { return; }
    html_element(&s->body, "title", NULL, "%s", tip);
    PUT(s, "</%s>\n", element);
}

void svg_rect(svg *s, double x, double y, double w, double h, const char *look, const char *tip) {
    PUT(s, "<rect x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" %s=\"%s\"", coordinate(x),
        coordinate(y), coordinate(fmax(w, 0)), coordinate(fmax(h, 0)), look_of(look), look);
    close_shape(s, "rect", tip);
}

void svg_dot(svg *s, double x, double y, double r, const char *look) {
    PUT(s, "<circle cx=\"%s\" cy=\"%s\" r=\"%s\" %s=\"%s\"/>\n", coordinate(x), coordinate(y),
        coordinate(r), look_of(look), look);
}

const char *const svg_stroke[SVG_SERIES] = {"s0", "s1", "s2", "s3", "s4", "s5", "s6"};
static const char *const fills[SVG_SERIES] = {"f0", "f1", "f2", "f3", "f4", "f5", "f6"};

void svg_marker(svg *s, int series, double x, double y, double r, const char *tip) {
    /* Unit outlines, scaled to about the circle's area. */
    enum { SHAPES = 6 };
    static const char *const outlines[SHAPES] = {
        NULL,
        "M-.9-.9H.9V.9H-.9Z",
        "M0-1.25L1.25 0 0 1.25-1.25 0Z",
        "M0-1.2L1.2.9H-1.2Z",
        "M-1-.6L-.6-1 0-.4.6-1 1-.6.4 0 1 .6.6 1 0 .4-.6 1-1 .6-.4 0Z",
        "M-.35-1.2H.35V-.35H1.2V.35H.35V1.2H-.35V.35H-1.2V-.35H-.35Z"};
    const char *outline = outlines[(series + series / SVG_SERIES) % SHAPES],
               *fill = fills[series % SVG_SERIES];
    if (outline) {
        PUT(s, "<path d=\"%s\" transform=\"translate(%s %s) scale(%s)\" class=\"%s\"", outline,
            coordinate(x), coordinate(y), coordinate(r), fill);
    } else {
        PUT(s, "<circle cx=\"%s\" cy=\"%s\" r=\"%s\" class=\"%s\"", coordinate(x), coordinate(y),
            coordinate(r), fill);
    }
    close_shape(s, outline ? "path" : "circle", tip);
}

static void points(svg *s, size_t n, const double *x, const double *y, bool backwards) {
    for (size_t k = 0; k < n; k++) {
        const size_t i = backwards ? n - 1 - k : k;
        PUT(s, "%s%s %s", k > 0 || backwards ? "L" : "M", coordinate(x[i]), coordinate(y[i]));
    }
}

void svg_polyline(svg *s, size_t n, const double *x, const double *y, int series, bool dashed) {
    PUT(s, "<path class=\"%s%s\" d=\"", svg_stroke[series % SVG_SERIES], dashed ? " da" : "");
    points(s, n, x, y, false);
    PUT(s, "\"/>\n");
}

void svg_band(svg *s, size_t n, const double *x, const double *lo, const double *hi, int series) {
    PUT(s, "<path class=\"%s ba\" d=\"", fills[series % SVG_SERIES]);
    points(s, n, x, lo, false);
    points(s, n, x, hi, true);
    PUT(s, "Z\"/>\n");
}

void svg_label(svg *s, double x, double y, svg_anchor anchor, svg_font font, const char *text) {
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    PUT(s, "<text x=\"%s\" y=\"%s\" font-size=\"%s\"%s%s %s=\"%s\">", coordinate(x), coordinate(y),
        coordinate(font.size), anchors[anchor], font.bold ? " font-weight=\"600\"" : "",
        look_of(font.look), font.look);
    html_text(&s->body, text);
    PUT(s, "</text>\n");
}

void svg_label_up(svg *s, double x, double y, svg_font font, const char *text) {
    PUT(s,
        "<text transform=\"translate(%s %s) rotate(-90)\" font-size=\"%s\" text-anchor=\"middle\" "
        "class=\"%s\">",
        coordinate(x), coordinate(y), coordinate(font.size), font.look);
    html_text(&s->body, text);
    PUT(s, "</text>\n");
}

static bool starts_character(char c) { return ((unsigned char)c & 0xC0) != 0x80; }

/* Of the character that c begins, in em: a wide sans serif (DejaVu Sans); beyond Latin a full em,
 * for CJK. */
static double width_of(char c) {
    return !starts_character(c)              ? 0
           : (unsigned char)c >= 0xE3        ? 1.0
           : strchr("iljftI.,:;'|!()[] ", c) ? 0.42
           : strchr("mwMW@%", c)             ? 0.95
                                             : 0.64;
}

double svg_text_width(const char *text, double size) {
    double units = 0;
    for (; *text; text++) { units += width_of(*text); }
    return units * size;
}

double svg_paragraph(svg *s, double x, double y, double width, svg_font font, const char *text) {
    const char *p = text;
    while (*p) {
        /* The longest run of whole words that fits, or of their parts up to a hyphen; a single one
         * that does not is cut between characters. */
        size_t fit = 0, n = 0;
        char line[512];
        double used = 0;
        while (p[n] && n < sizeof line - 8) {
            used += width_of(p[n]) * font.size * (font.bold ? 1.06 : 1.0);
            if (used > width && n > 0) { break; }
            do { n++; } while (p[n] && !starts_character(p[n]) && n < sizeof line - 1);
            const bool hyphen = n > 1 && p[n - 1] == '-' && isalnum((unsigned char)p[n - 2]);
            if (p[n] == ' ' || p[n] == 0 || hyphen) { fit = n; }
        }
        const size_t take = p[n] == 0 || !fit ? n : fit;
        snprintf(line, sizeof line, "%.*s", (int)take, p);
        svg_label(s, x, y, SVG_START, font, line);
        y += svg_leading(font);
        p += take;
        while (*p == ' ') { p++; }
    }
    return y;
}

size_t svg_ticks(double lo, double hi, size_t want, double ticks[SVG_TICKS_MAX], int *decimals) {
    *decimals = 0;
    if (!isfinite(lo) || !isfinite(hi) || hi < lo || want == 0) { return 0; }
    if (hi - lo <= fmax(fabs(lo), fabs(hi)) * 1e-12) {
        ticks[0] = lo;
        return 1;
    }
    const double raw = (hi - lo) / (double)want, power = pow(10, floor(log10(raw))),
                 f = raw / power,
                 unit = f <= 1.0001   ? 1
                        : f <= 2.0001 ? 2
                        : f <= 5.0001 ? 5
                                      : 10,
                 step = unit * power, first = ceil(lo / step - 1e-9);
    const int digits = (int)ceil(-log10(step) - 1e-9);
    *decimals = digits > 0 ? digits : 0;
    size_t n = 0;
    for (double k; n < SVG_TICKS_MAX && (k = first + (double)n) * step <= hi + step * 1e-9; n++) {
        ticks[n] = k == 0 ? 0.0 : k * step; /* never -0 */
    }
    return n;
}

static uint32_t mix(const uint32_t *stops, size_t n, double t) {
    const double at = (isfinite(t) ? fmin(fmax(t, 0), 1) : 0) * (double)(n - 1);
    const size_t i = (size_t)at;
    if (i >= n - 1) { return stops[n - 1]; }
    const double f = at - (double)i;
    uint32_t out = 0;
    for (int shift = 16; shift >= 0; shift -= 8) {
        double a = (double)(stops[i] >> shift & 0xFF), b = (double)(stops[i + 1] >> shift & 0xFF);
        out |= (uint32_t)(a + (b - a) * f + 0.5) << shift;
    }
    return out;
}

uint32_t svg_sequential(double t) {
    /* viridis (matplotlib, CC0), ten stops */
    static const uint32_t stops[] = {0x440154, 0x482878, 0x3e4989, 0x31688e, 0x26828e,
                                     0x1f9e89, 0x35b779, 0x6ece58, 0xb5de2b, 0xfde725};
    return mix(stops, sizeof stops / sizeof *stops, t);
}

uint32_t svg_diverging(double t) {
    static const uint32_t stops[] = {0x0b4a8b, 0x3b82bf, 0xa5cce6, 0xf6f6f3,
                                     0xfcca8d, 0xe8862f, 0x9c4700};
    return mix(stops, sizeof stops / sizeof *stops, (t + 1) / 2);
}

uint32_t svg_text_on(uint32_t rgb) {
    /* Relative luminance of sRGB (WCAG 2); above 0.18 black has the higher contrast ratio. */
    double channel[3];
    for (int i = 0; i < 3; i++) {
        double c = (double)(rgb >> (16 - 8 * i) & 0xFF) / 255.0;
        channel[i] = c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4);
    }
    return 0.2126 * channel[0] + 0.7152 * channel[1] + 0.0722 * channel[2] > 0.18 ? 0x000000
                                                                                  : 0xffffff;
}
