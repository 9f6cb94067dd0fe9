/* Drawing into SVG: shapes with classes, text that is measured before it is placed, nice ticks, two
 * colour scales.
 *
 * A drawing is made once and rendered twice: inline, where the page's style sheet gives the classes
 * their colours (light, dark, paper), and as a file of its own, which carries fixed colours for
 * every viewer, also those without CSS variables. Coordinates are the viewBox's; 0,0 is top left.
 * Elements use no ids, so any number of drawings share one page.
 *
 * A look is a colour (svg_rgb) or classes: t text, m muted text, h beside them: a halo over lines
 * below, ax axis, gr grid line, ref reference line, em empty cell, fr frame, da dashed, ba band, f0
 * ... f6 fill of a series, s0 ... s6 its stroke.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buffer.h"

#define SVG_SERIES    7 /* the last is grey */
#define SVG_TICKS_MAX 32

typedef struct svg {
    ckvc_buffer body;
    char *title; /* what a screen reader says; svg_title writes it above the drawing, too */
    double width, height; /* height may be set at the end */
} svg;

void svg_init(svg *s, double width);
void svg_fini(svg *s);
/* standalone: XML declaration, own colours, white ground. */
void svg_render(const svg *s, bool standalone, ckvc_buffer *out);

const char *svg_rgb(uint32_t rgb); /* valid for the next seven calls */
void svg_line(svg *s, double x1, double y1, double x2, double y2, const char *look);
/* tip: shown by the browser over the shape; NULL: none. */
void svg_rect(svg *s, double x, double y, double w, double h, const char *look, const char *tip);
/* In the colour of a series and a shape (circle, square, diamond, triangle, cross, plus) that
 * repeats out of step with it, so that up to 42 series differ in one or the other. */
void svg_marker(svg *s, int series, double x, double y, double r, const char *tip);
extern const char *const svg_stroke[SVG_SERIES]; /* the looks of their lines */
/* A line through n points, and the area between two lines, in the colour of a series. */
void svg_polyline(svg *s, size_t n, const double *x, const double *y, int series, bool dashed);
void svg_band(svg *s, size_t n, const double *x, const double *lo, const double *hi, int series);
void svg_dot(svg *s, double x, double y, double r, const char *look);

typedef struct svg_font {
    double size;
    const char *look;
    bool bold;
} svg_font;
static inline double svg_leading(svg_font f) { return f.size * 1.28; }
typedef enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END } svg_anchor;
void svg_label(svg *s, double x, double y, svg_anchor anchor, svg_font font, const char *text);
void svg_label_up(svg *s, double x, double y, svg_font font, const char *text); /* from below */
/* Breaks text into lines no wider than `width`; returns the y of the line after the last. */
double svg_paragraph(svg *s, double x, double y, double width, svg_font font, const char *text);
/* Upper estimate: no font is at hand. Counts characters, not bytes. */
double svg_text_width(const char *text, double size);

/* Ticks at multiples of 1, 2 or 5 times a power of ten inside [lo, hi], about `want` of them;
 * returns their number and the decimals that tell them apart. None when a bound is not finite. */
size_t svg_ticks(double lo, double hi, size_t want, double ticks[SVG_TICKS_MAX], int *decimals);

/* Colours that colour-blind people can order: t in [0, 1] on viridis (dark to light); t in [-1, 1]
 * on blue - white - orange. */
uint32_t svg_sequential(double t);
uint32_t svg_diverging(double t);
uint32_t svg_text_on(uint32_t rgb); /* black or white, whichever reads better on it */
