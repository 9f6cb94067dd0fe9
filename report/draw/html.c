/* See html.h. The style sheet is the page's only one; svg.h names the classes that figures use. */
#include "report/draw/html.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/base/utf8.h"

#define REPLACEMENT "\xEF\xBF\xBD"

/* Length of the character at p [n] that XML 1.0 may hold and that does not reorder the line, 0 when
 * there is none. */
static size_t allowed(const char *p, size_t n) {
    const size_t size = ckvc_utf8_step(p, n, NULL);
    uint32_t c = size > 1 ? (unsigned char)p[0] & 0x7Fu >> size : (unsigned char)p[0];
    for (size_t i = 1; i < size; i++) { c = c << 6 | ((unsigned char)p[i] & 0x3Fu); }
    bool control = (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || (c >= 0x7F && c < 0xA0),
         reorders = (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
    return control || reorders || (c & 0xFFFE) == 0xFFFE ? 0 : size;
}

void html_text(ckvc_buffer *b, const char *text) {
    static const char *const entities[] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;", ['\''] = "&#39;"};
    const char *end = text ? text + strlen(text) : text;
    for (const char *p = text; p < end;) {
        const size_t n = allowed(p, (size_t)(end - p)), c = (unsigned char)*p;
        const char *entity = c < sizeof entities / sizeof *entities ? entities[c] : NULL;
        if (n == 0 || entity) {
            ckvc_buffer_text(b, n ? entity : REPLACEMENT);
        } else {
            ckvc_buffer_append(b, p, n);
        }
        p += n ? n : 1; /* a replacement for each byte that is none */
    }
}

void html_element(ckvc_buffer *b, const char *element, const char *cls, const char *fmt, ...) {
    CKVC_AUTO_FREE char *text = NULL;
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0) { ckvc_out_of_memory(1, strlen(fmt)); }
    va_end(args);
    if (element) {
        ckvc_buffer_printf(b, cls && *cls ? "<%s class=\"%s\">" : "<%s>", element, cls);
    }
    html_text(b, text);
    if (element) { ckvc_buffer_printf(b, "</%.*s>", (int)strcspn(element, " "), element); }
}

/* Light, dark (screens only) and paper differ in the variables alone. No '<' and no '&' in here:
 * the page is XML too. Series colours are Okabe and Ito's, lightened for the dark page. */
static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--card:#f7f7f5;--fg:#1b1f24;--muted:#59626d;"
    "--line:#c9ced6;--grid:#e4e7eb;--accent:#0060a8;--warn:#8a3b00;--warnbg:#fff3e6;"
    "--empty:#f0f1f3;--yes:#1a7f37;--no:#b42318;--more:#8a5a00;--c0:#0072b2;--c1:#7a52c7;"
    "--c2:#00828f;--c3:#c2478f;--c4:#7d5a3c;--c5:#737a00;--c6:#6b7280}\n"
    "@media screen and (prefers-color-scheme:dark){:root{--bg:#14171b;--card:#1c2026;--fg:#e8eaed;"
    "--muted:#a4adb8;--line:#49515c;--grid:#2b3138;--accent:#74bdf5;--warn:#ffb86b;"
    "--warnbg:#33271a;--empty:#22272e;--yes:#4ac26b;--no:#ff7b72;--more:#e3b341;--c0:#5ab4f0;"
    "--c1:#b79cf5;--c2:#3ec7d3;--c3:#f08fc4;--c4:#c9a27e;--c5:#c3cc4a;--c6:#8f98a3}}\n"
    "*{box-sizing:border-box}\n"
    "html{-webkit-text-size-adjust:100%}\n"
    "body{margin:0 auto;max-width:1180px;padding:1.25rem clamp(.9rem,3vw,2rem) 3rem;"
    "background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,"
    "'Noto Sans','DejaVu Sans',sans-serif}\n"
    "h1{font-size:1.7rem;line-height:1.2;margin:.2rem 0 .4rem}\n"
    "h2{font-size:1.3rem;line-height:1.25;margin:2.4rem 0 .6rem;padding-top:.5rem;border-top:1px "
    "solid var(--line)}\n"
    "h3{font-size:1.05rem;margin:1.5rem 0 .4rem}\n"
    "p{margin:.5rem 0;max-width:75ch}\n"
    ".lead{font-size:1.05rem;max-width:none;padding-left:.2rem}\n"
    ".note{color:var(--muted);font-size:.92rem}\n"
    ".warn{color:var(--warn);background:var(--warnbg);padding:.45rem .7rem;border-left:4px solid "
    "var(--warn);border-radius:3px}\n"
    ".banners{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr));"
    "gap:1rem;margin:.9rem 0}\n"
    ".banner{background:var(--card);border:1px solid var(--line);border-left:7px solid var(--now);"
    "border-radius:8px;padding:.7rem 1rem;min-width:0}\n"
    ".banner .word{color:var(--now);font-size:1.3rem;font-weight:700;line-height:1.2;margin:0}\n"
    ".banner .word::first-letter{text-transform:uppercase}.banner h3{margin:.1rem 0 .4rem}"
    ".banner p{max-width:none;font-size:.94rem;line-height:1.42;overflow-wrap:break-word}\n"
    ".yes{--now:var(--yes)}.no{--now:var(--no)}.more{--now:var(--more)}"
    "td.g{color:var(--yes)}td.b{color:var(--no)}td.u{color:var(--muted)}"
    "td.g,td.b,td.u{text-align:right;white-space:nowrap}td.g,td.b{font-weight:600}\n"
    ".fold>details{margin:0}.fold>details>summary h2{display:inline}"
    ".fold{border-top:1px solid var(--line);padding:.35rem 0}.fold h2{border:0;font-size:1.1rem;"
    "margin:0;padding:0}.fold>details>summary h2{color:var(--fg)}"
    "[id]{scroll-margin-top:4rem}\n"
    "a{color:var(--accent)}\n"
    "nav a{margin-right:1rem;white-space:nowrap;display:inline-block;padding:.15rem 0}\n"
    ".scroll{overflow-x:auto;margin:.7rem 0 1.1rem;max-width:100%}\n"
    "table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}\n"
    "caption{text-align:left;font-weight:600;padding-bottom:.35rem;max-width:calc(100vw - 2rem)}\n"
    "th,td{padding:.28rem .65rem;border-bottom:1px solid var(--grid);vertical-align:top}\n"
    "th{border-bottom:1px solid var(--line);color:var(--muted);font-weight:600;"
    "vertical-align:bottom;text-align:left}\n"
    ".r{text-align:right}td.r,.n{white-space:nowrap}th.r{min-width:5.5rem}td.group{font-weight:600;"
    "padding-top:.7rem}\n"
    "td.l{overflow-wrap:anywhere;min-width:6.5rem}\n"
    "tr td:first-child,tr th:first-child{padding-left:0}\n"
    ".figs{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr));"
    "gap:1.2rem;align-items:start;margin:1rem 0}\n"
    "figure{margin:0;padding:.7rem;border:1px solid var(--grid);border-radius:8px;min-width:0}\n"
    "figure svg{display:block;width:100%;height:auto;max-width:600px;margin:0 auto}\n"
    ".wide{grid-column:1/-1}figure.wide svg{max-width:700px;margin:0}.wide figcaption{"
    "max-width:75ch}\n"
    "figcaption{color:var(--muted);font-size:.86rem;line-height:1.4;margin-top:.5rem}\n"
    "code{font-size:.92em;overflow-wrap:anywhere}\n"
    "details{margin:.8rem 0}summary{cursor:pointer;color:var(--accent);font-weight:600;"
    "padding:.2rem 0}\n";
/* The classes of figures (svg.c gives files of their own the same ones with fixed colours). */
static const char figure_style[] =
    "svg{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',"
    "sans-serif}\n"
    ".h{paint-order:stroke;stroke:var(--bg);stroke-width:3;stroke-linejoin:round}.t{fill:var(--fg)}"
    ".m{fill:var(--muted)}.ax{stroke:var(--muted);stroke-width:1;fill:none}.gr{stroke:var(--grid);"
    "stroke-width:1;fill:none}.ref{stroke:var(--fg);stroke-width:1;stroke-dasharray:4 3;fill:none}"
    ".da{stroke-dasharray:5 4}.ba{fill-opacity:.18}.em{fill:var(--empty)}"
    ".fr{fill:none;stroke:var(--line)}\n"
    ".f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}"
    ".f4{fill:var(--c4)}.f5{fill:var(--c5)}.f6{fill:var(--c6)}\n"
    ".s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}"
    ".s4{stroke:var(--c4)}.s5{stroke:var(--c5)}.s6{stroke:var(--c6)}\n"
    ".s0,.s1,.s2,.s3,.s4,.s5,.s6{stroke-width:2;fill:none}\n";
/* Paper cannot scroll: cells wrap (numbers too) and figures stand below each other, none taller
 * than a page with its caption. Folds stay as the reader left them: opened, they more than double
 * the pages. */
static const char print_style[] =
    "@media print{@page{size:A4;margin:14mm}body{max-width:none;padding:0;font-size:10pt}"
    "summary{color:var(--fg)}*{-webkit-print-color-adjust:exact;print-color-adjust:exact}"
    "nav{display:none}h2,h3,caption,thead,.head{break-after:avoid}p{orphans:3;widows:3}figure,tr,"
    ".banner,.warn{break-inside:avoid}.scroll{overflow:visible}.figs{display:block}"
    "figure{margin-bottom:4mm}figure svg{max-width:110mm;max-height:230mm}table{font-size:7.5pt}th,"
    "td{padding:.15rem .3rem}td.r,.n{white-space:normal}td.l{min-width:0;overflow-wrap:break-word}"
    ".lead{font-size:10pt}.note{font-size:9pt}figcaption{font-size:8pt}}\n";

void html_page_begin(ckvc_buffer *b, const char *title) {
    /* The policy forbids what the page does not need anyway: scripts, fetches, frames. */
    ckvc_buffer_text(b,
                     "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n"
                     "<head>\n<meta charset=\"utf-8\"/>\n"
                     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                     "style-src 'unsafe-inline'\"/>\n"
                     "<meta name=\"color-scheme\" content=\"light dark\"/>\n");
    html_element(b, "title", NULL, "%s", title);
    ckvc_buffer_printf(b, "\n<style>\n%s%s%s</style>\n</head>\n<body>\n", style, figure_style,
                       print_style);
}

void html_section_begin(ckvc_buffer *b, const char *id, const char *heading, bool folded) {
    ckvc_buffer_printf(
        b, folded ? "<section class=\"fold\"><details><summary>\n" : "<section id=\"%s\">\n", id);
    html_heading(b, 2, heading);
    if (folded) { ckvc_buffer_printf(b, "</summary><div id=\"%s\">\n", id); }
}

void html_details_begin(ckvc_buffer *b, const char *summary) {
    ckvc_buffer_text(b, "<details>");
    html_element(b, "summary", NULL, "%s", summary);
    ckvc_buffer_text(b, "\n");
}

void html_heading(ckvc_buffer *b, int level, const char *text) {
    html_element(b, level == 2 ? "h2" : "h3", NULL, "%s", text);
    ckvc_buffer_text(b, "\n");
}

void html_table_begin(ckvc_buffer *b, const char *caption) {
    ckvc_buffer_text(b, "<div class=\"scroll\" tabindex=\"0\"><table>");
    if (caption) { html_element(b, "caption", NULL, "%s", caption); }
    ckvc_buffer_text(b, "<thead><tr>");
}

void html_heads_of(ckvc_buffer *b, const char *align, const char *const *texts, size_t n) {
    assert(strlen(align) == n);
    for (size_t i = 0; i < n; i++) { html_head(b, align[i], "%s", texts[i]); }
    html_table_body(b);
}

void html_row_of(ckvc_buffer *b, const char *align, const char *const *texts, size_t n) {
    assert(strlen(align) == n);
    html_row_begin(b);
    for (size_t i = 0; i < n; i++) { html_cell(b, align[i], "%s", texts[i]); }
    html_row_end(b);
}

static void html_link(ckvc_buffer *b, const char *before, const char *name, const char *ending,
                      const char *words) {
    ckvc_buffer_printf(b, "%s<a href=\"", before);
    html_textf(b, "%s.%s", name, ending);
    ckvc_buffer_printf(b, "\">%s</a>", words);
}

void html_figure(ckvc_buffer *b, const char *cls, const ckvc_buffer *svg, const char *caption,
                 const char *name) {
    ckvc_buffer_printf(b, "<figure class=\"%s\">\n", cls ? cls : "");
    ckvc_buffer_append(b, svg->data, svg->size);
    ckvc_buffer_text(b, "<figcaption>");
    html_text(b, caption);
    html_link(b, " ", name, "svg", "picture");
    html_link(b, " · ", name, "csv", "numbers");
    ckvc_buffer_text(b, "</figcaption>\n</figure>\n");
}
