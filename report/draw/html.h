/* The report page: one HTML file that needs no script and no network, readable on a phone, in the
 * dark and on paper.
 *
 * Output is also well-formed XML, so that a test can parse it whole. Text from outside always
 * passes through html_text, which escapes markup and replaces what XML cannot hold (control
 * characters, broken UTF-8) or what could reorder the line (bidirectional overrides) by U+FFFD.
 * Everything appends to a ckvc_buffer.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/buffer.h"
#include "lib/base/status.h"

/* Escaped, for element content and quoted attributes; NULL is nothing. */
void html_text(ckvc_buffer *b, const char *text);
/* <element class="cls">text</element>; attributes may follow the element's name; cls NULL or "":
 * none; element NULL: the text alone. */
void html_element(ckvc_buffer *b, const char *element, const char *cls, const char *fmt, ...)
    CKVC_PRINTF(4, 5);
#define html_textf(b, ...) html_element(b, NULL, NULL, __VA_ARGS__)

void html_page_begin(ckvc_buffer *b, const char *title);
static inline void html_page_end(ckvc_buffer *b) { ckvc_buffer_text(b, "</body>\n</html>\n"); }

/* Sections: <section><h2>; the id is ours, plain letters. A folded one is opened by the reader, or
 * by a link to its id, which stands inside. */
void html_section_begin(ckvc_buffer *b, const char *id, const char *heading, bool folded);
static inline void html_section_end(ckvc_buffer *b, bool folded) {
    ckvc_buffer_text(b, folded ? "</div></details></section>\n" : "</section>\n");
}
/* A part that is folded until asked for; paper shows it as the reader left it. */
void html_details_begin(ckvc_buffer *b, const char *summary);
static inline void html_details_end(ckvc_buffer *b) { ckvc_buffer_text(b, "</details>\n"); }
void html_heading(ckvc_buffer *b, int level, const char *text); /* 2 or 3 */
/* One paragraph of plain text; cls NULL, "lead", "note" or "warn". */
#define html_paragraph(b, cls, ...)                                                                \
    (html_element(b, "p", cls, __VA_ARGS__), ckvc_buffer_text(b, "\n"))

/* Tables scroll inside their own box when they are wider than the page: begin, heads, body, rows of
 * cells, end. align: 'l' text, 'n' text that stays on one line, 'r' number, 'g' a better one, 'b' a
 * worse one, 'u' one that decides nothing, 0 none. html_group is a row that names the rows below
 * it; html_heads (with the body) and html_row take a letter and a text for each cell. */
void html_table_begin(ckvc_buffer *b, const char *caption);
#define html_head(b, align, ...)                                                                   \
    html_element(b, "th scope=\"col\"", (const char[2]){align}, __VA_ARGS__)
#define html_cell(b, align, ...) html_element(b, "td", (const char[2]){align}, __VA_ARGS__)
#define html_group(b, n_columns, ...)                                                              \
    (ckvc_buffer_printf(b, "<tr class=\"head\"><td class=\"group\" colspan=\"%zu\">",              \
                        (size_t)(n_columns)),                                                      \
     html_textf(b, __VA_ARGS__), ckvc_buffer_text(b, "</td></tr>\n"))
static inline void html_table_body(ckvc_buffer *b) {
    ckvc_buffer_text(b, "</tr></thead>\n<tbody>\n");
}
static inline void html_row_begin(ckvc_buffer *b) { ckvc_buffer_text(b, "<tr>"); }
static inline void html_row_end(ckvc_buffer *b) { ckvc_buffer_text(b, "</tr>\n"); }
static inline void html_table_end(ckvc_buffer *b) {
    ckvc_buffer_text(b, "</tbody></table></div>\n");
}
#define HTML_TEXTS(...)                                                                            \
    (const char *const[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)
#define html_heads(b, align, ...) html_heads_of(b, align, HTML_TEXTS(__VA_ARGS__))
#define html_row(b, align, ...)   html_row_of(b, align, HTML_TEXTS(__VA_ARGS__))
void html_heads_of(ckvc_buffer *b, const char *align, const char *const *texts, size_t n);
void html_row_of(ckvc_buffer *b, const char *align, const char *const *texts, size_t n);

/* Figures stand side by side where there is room. svg is markup (svg_render, not standalone);
 * cls NULL, or "wide": in a row of its own; caption is plain text; picture and numbers lie beside
 * the page as name.svg and name.csv. */
static inline void html_figures_begin(ckvc_buffer *b) {
    ckvc_buffer_text(b, "<div class=\"figs\">\n");
}
void html_figure(ckvc_buffer *b, const char *cls, const ckvc_buffer *svg, const char *caption,
                 const char *name);
static inline void html_figures_end(ckvc_buffer *b) { ckvc_buffer_text(b, "</div>\n"); }
