/* See svg.h. */
#include "report/draw/svg.h"

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
    ".h{paint-order:stroke;stroke:#fff;stroke-width:3;stroke-linejoin:round}"
    ".t{fill:#1b1f24}.m{fill:#59626d}.ax{stroke:#59626d;stroke-width:1;fill:none}.gr{stroke:#"
    "e4e7eb;stroke-width:1;fill:none}"
    ".ref{stroke:#1b1f24;stroke-width:1;stroke-dasharray:4 3;fill:none}.em{fill:#f0f1f3}"
    ".ha{stroke:#9aa3ad;stroke-width:1;fill:none}.hw{stroke:#fff;stroke-width:2.4;stroke-opacity:."
    "75;fill:none}"
    ".hk{stroke:#000;stroke-width:1;fill:none}.da{stroke-dasharray:5 "
    "4}.ba{fill-opacity:.18}.fr{fill:none;stroke:#c9ced6}"
    ".f0{fill:#0072b2}.f1{fill:#d55e00}.f2{fill:#00825f}.f3{fill:#b4558c}.f4{fill:#a87900}.f5{fill:"
    "#4a4e57}"
    ".s0,.s1,.s2,.s3,.s4,.s5{stroke-width:2;fill:none}"
    ".s0{stroke:#0072b2}.s1{stroke:#d55e00}.s2{stroke:#00825f}.s3{stroke:#b4558c}.s4{stroke:#"
    "a87900}.s5{stroke:#4a4e57}";

void svg_init(svg *s, double width) {
    memset(s, 0, sizeof *s);
    s->width = width;
}

void svg_fini(svg *s) {
    ckvc_buffer_fini(&s->body);
    free(s->title);
    s->title = NULL;
}

/* Two decimals of a viewBox unit are beyond what a screen shows; zeros behind the point are
 * dropped. */
static const char *coordinate(char out[32], double v) {
    snprintf(out, 32, "%.2f", isfinite(v) ? v : 0.0);
    char *end = out + strlen(out);
    while (end[-1] == '0') {
        *--end = 0;
    }
    if (end[-1] == '.') { *--end = 0; }
    return strcmp(out, "-0") == 0 ? "0" : out;
}

static void attribute(svg *s, const char *name, double v) {
    char text[32];
    ckvc_buffer_printf(&s->body, " %s=\"%s\"", name, coordinate(text, v));
}

void svg_render(const svg *s, bool standalone, ckvc_buffer *out) {
    char w[32], h[32];
    const char *width = coordinate(w, s->width), *height = coordinate(h, s->height);
    if (standalone) { ckvc_buffer_text(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"); }
    ckvc_buffer_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %s %s\"",
                       width, height);
    if (standalone) { ckvc_buffer_printf(out, " width=\"%s\" height=\"%s\"", width, height); }
    ckvc_buffer_text(out, " role=\"img\" aria-label=\"");
    html_text(out, s->title);
    ckvc_buffer_text(out, "\">\n");
    if (standalone) {
        ckvc_buffer_text(out, "<title>");
        html_text(out, s->title);
        ckvc_buffer_printf(
            out,
            "</title>\n<style>%s</style>\n<rect width=\"%s\" height=\"%s\" fill=\"#ffffff\"/>\n",
            standalone_style, width, height);
    }
    ckvc_buffer_append(out, s->body.data, s->body.size);
    ckvc_buffer_text(out, "</svg>\n");
}

void svg_line(svg *s, double x1, double y1, double x2, double y2, const char *cls) {
    ckvc_buffer_text(&s->body, "<line");
    attribute(s, "x1", x1);
    attribute(s, "y1", y1);
    attribute(s, "x2", x2);
    attribute(s, "y2", y2);
    ckvc_buffer_printf(&s->body, " class=\"%s\"/>\n", cls);
}

static void close_shape(svg *s, const char *element, const char *tip) {
    if (tip) {
        ckvc_buffer_text(&s->body, "><title>");
        html_text(&s->body, tip);
        ckvc_buffer_printf(&s->body, "</title></%s>\n", element);
    } else {
        ckvc_buffer_text(&s->body, "/>\n");
    }
}

static void rect_open(svg *s, double x, double y, double w, double h) {
    ckvc_buffer_text(&s->body, "<rect");
    attribute(s, "x", x);
    attribute(s, "y", y);
    attribute(s, "width", fmax(w, 0));
    attribute(s, "height", fmax(h, 0));
}

void svg_rect(svg *s, double x, double y, double w, double h, const char *cls, const char *tip) {
    rect_open(s, x, y, w, h);
    ckvc_buffer_printf(&s->body, " class=\"%s\"", cls);
    close_shape(s, "rect", tip);
}

void svg_rect_rgb(svg *s, double x, double y, double w, double h, uint32_t rgb, const char *tip) {
    rect_open(s, x, y, w, h);
    ckvc_buffer_printf(&s->body, " fill=\"#%06x\"", rgb & 0xFFFFFFu);
    close_shape(s, "rect", tip);
}

void svg_marker(svg *s, int shape, double x, double y, double r, int series, const char *tip) {
    char ax[32], ay[32], d[32];
    const char *px = coordinate(ax, x), *py = coordinate(ay, y);
    if (shape % SVG_SERIES == 0) {
        ckvc_buffer_printf(&s->body, "<circle cx=\"%s\" cy=\"%s\" r=\"%s\"", px, py,
                           coordinate(d, r));
        ckvc_buffer_printf(&s->body, " class=\"f%d\"", series % SVG_SERIES);
        close_shape(s, "circle", tip);
        return;
    }
    /* Unit outlines, scaled to about the circle's area. */
    static const char *const outline[SVG_SERIES] = {
        NULL,
        "M-.9-.9H.9V.9H-.9Z",
        "M0-1.25L1.25 0 0 1.25-1.25 0Z",
        "M0-1.2L1.2.9H-1.2Z",
        "M-1-.6L-.6-1 0-.4.6-1 1-.6.4 0 1 .6.6 1 0 .4-.6 1-1 .6-.4 0Z",
        "M-.35-1.2H.35V-.35H1.2V.35H.35V1.2H-.35V.35H-1.2V-.35H-.35Z"};
    ckvc_buffer_printf(&s->body,
                       "<path d=\"%s\" transform=\"translate(%s %s) scale(%s)\" class=\"f%d\"",
                       outline[shape % SVG_SERIES], px, py, coordinate(d, r), series % SVG_SERIES);
    close_shape(s, "path", tip);
}

static void points(svg *s, size_t n, const double *x, const double *y, bool backwards) {
    for (size_t k = 0; k < n; k++) {
        size_t i = backwards ? n - 1 - k : k;
        char a[2][32];
        ckvc_buffer_printf(&s->body, "%s%s %s", k > 0 || backwards ? "L" : "M",
                           coordinate(a[0], x[i]), coordinate(a[1], y[i]));
    }
}

void svg_polyline(svg *s, size_t n, const double *x, const double *y, int series, bool dashed) {
    ckvc_buffer_printf(&s->body, "<path class=\"s%d%s\" d=\"", series % SVG_SERIES,
                       dashed ? " da" : "");
    points(s, n, x, y, false);
    ckvc_buffer_text(&s->body, "\"/>\n");
}

void svg_band(svg *s, size_t n, const double *x, const double *lo, const double *hi, int series) {
    ckvc_buffer_printf(&s->body, "<path class=\"f%d ba\" d=\"", series % SVG_SERIES);
    points(s, n, x, lo, false);
    points(s, n, x, hi, true);
    ckvc_buffer_text(&s->body, "Z\"/>\n");
}

void svg_hatch_begin(svg *s, bool over_colour) {
    s->hatch = over_colour ? s->body.size : SIZE_MAX;
    ckvc_buffer_printf(&s->body, "<path class=\"%s\" d=\"M0 0", over_colour ? "hw" : "ha");
}

void svg_hatch_cell(svg *s, double x, double y, double w, double h) {
    /* Diagonals x + y = const, 6 units apart over the whole drawing so that neighbours join. */
    double first = ceil((x + y) / 6) * 6;
    for (double k = first; k < x + y + w + h; k += 6) {
        double x1 = fmax(x, k - (y + h)), x2 = fmin(x + w, k - y);
        char a[4][32];
        if (x2 > x1) {
            ckvc_buffer_printf(&s->body, "M%s %s", coordinate(a[0], x1), coordinate(a[1], k - x1));
            ckvc_buffer_printf(&s->body, "L%s %s", coordinate(a[2], x2), coordinate(a[3], k - x2));
        }
    }
}

void svg_hatch_end(svg *s) {
    ckvc_buffer_text(&s->body, "\"/>\n");
    if (s->hatch != SIZE_MAX &&
        !s->body.failed) { /* once more, narrower and dark: legible on light and on dark fills */
        size_t n = s->body.size - s->hatch;
        char *again = ckvc_alloc(n, 1);
        if (!again) {
            s->body.failed = true;
            return;
        }
        memcpy(again, s->body.data + s->hatch, n);
        memcpy(strstr(again, "hw"), "hk", 2);
        ckvc_buffer_append(&s->body, again, n);
        free(again);
    }
}

static const char *anchor_name(svg_anchor a) {
    return a == SVG_START ? "start" : a == SVG_MIDDLE ? "middle" : "end";
}

static void text_open(svg *s, double x, double y, double size, svg_anchor anchor) {
    ckvc_buffer_text(&s->body, "<text");
    attribute(s, "x", x);
    attribute(s, "y", y);
    attribute(s, "font-size", size);
    if (anchor != SVG_START) {
        ckvc_buffer_printf(&s->body, " text-anchor=\"%s\"", anchor_name(anchor));
    }
}

void svg_label(svg *s, double x, double y, double size, svg_anchor anchor, const char *cls,
               const char *text) {
    text_open(s, x, y, size, anchor);
    ckvc_buffer_printf(&s->body, " class=\"%s\">", cls);
    html_text(&s->body, text);
    ckvc_buffer_text(&s->body, "</text>\n");
}

void svg_label_rgb(svg *s, double x, double y, double size, svg_anchor anchor, uint32_t rgb,
                   const char *text) {
    text_open(s, x, y, size, anchor);
    ckvc_buffer_printf(&s->body, " fill=\"#%06x\">", rgb & 0xFFFFFFu);
    html_text(&s->body, text);
    ckvc_buffer_text(&s->body, "</text>\n");
}

void svg_label_up(svg *s, double x, double y, double size, const char *cls, const char *text) {
    char ax[32], ay[32], as[32];
    ckvc_buffer_printf(&s->body,
                       "<text transform=\"translate(%s %s) rotate(-90)\" font-size=\"%s\" "
                       "text-anchor=\"middle\" class=\"%s\">",
                       coordinate(ax, x), coordinate(ay, y), coordinate(as, size), cls);
    html_text(&s->body, text);
    ckvc_buffer_text(&s->body, "</text>\n");
}

static bool starts_character(char c) {
    return ((unsigned char)c & 0xC0) != 0x80;
}

double svg_text_width(const char *text, double size) {
    double units = 0;
    for (const char *p = text; *p; p++) {
        if (!starts_character(*p)) { continue; }
        /* Widths of a wide sans serif (DejaVu Sans), in em. Beyond Latin: a full em, for CJK. */
        units += (unsigned char)*p >= 0xE3          ? 1.0
                 : strchr("iljftI.,:;'|!()[] ", *p) ? 0.42
                 : strchr("mwMW@%", *p)             ? 0.95
                                                    : 0.64;
    }
    return units * size;
}

double svg_paragraph(svg *s, double x, double y, double width, double size, bool bold,
                     const char *cls, const char *text) {
    const char *p = text;
    while (*p) {
        /* The longest run of whole words that fits; a single word that does not is cut between
         * characters. */
        size_t fit = 0, n = 0;
        char line[512];
        double used = 0;
        while (p[n] && n < sizeof line - 8) {
            char one[8] = {0};
            size_t k = 0;
            do {
                one[k] = p[n + k];
                k++;
            } while (p[n + k] && !starts_character(p[n + k]) && k < sizeof one - 1);
            used += svg_text_width(one, size) * (bold ? 1.06 : 1.0);
            if (used > width && n > 0) { break; }
            n += k;
            if (p[n] == ' ' || p[n] == 0) { fit = n; }
        }
        size_t take = p[n] == 0 ? n : fit ? fit : n;
        memcpy(line, p, take);
        line[take] = 0;
        text_open(s, x, y, size, SVG_START);
        ckvc_buffer_printf(&s->body, "%s class=\"%s\">", bold ? " font-weight=\"600\"" : "", cls);
        html_text(&s->body, line);
        ckvc_buffer_text(&s->body, "</text>\n");
        y += size * 1.28;
        p += take;
        while (*p == ' ') {
            p++;
        }
    }
    return y;
}

size_t svg_ticks(double lo, double hi, size_t want, double ticks[SVG_TICKS_MAX], int *decimals) {
    *decimals = 0;
    if (!isfinite(lo) || !isfinite(hi) || hi < lo || want == 0) { return 0; }
    double span = hi - lo;
    if (span <= fmax(fabs(lo), fabs(hi)) * 1e-12) {
        ticks[0] = lo;
        return 1;
    }
    double raw = span / (double)want, power = pow(10, floor(log10(raw)));
    double f = raw / power, unit = f <= 1.0001 ? 1 : f <= 2.0001 ? 2 : f <= 5.0001 ? 5 : 10;
    double step = unit * power;
    int digits = (int)ceil(-log10(step) - 1e-9);
    *decimals = digits > 0 ? digits : 0;
    size_t n = 0;
    double first = ceil(lo / step - 1e-9);
    for (double k = first; k * step <= hi + step * 1e-9 && n < SVG_TICKS_MAX; k++) {
        ticks[n++] = k == 0 ? 0.0 : k * step; /* never -0 */
    }
    return n;
}

static uint32_t mix(const uint32_t *stops, size_t n, double t) {
    t = isfinite(t) ? fmin(fmax(t, 0), 1) : 0;
    double at = t * (double)(n - 1);
    size_t i = (size_t)at;
    if (i >= n - 1) { return stops[n - 1]; }
    double f = at - (double)i;
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
