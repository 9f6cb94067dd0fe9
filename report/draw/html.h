/* The report page: one HTML file that needs no script and no network, readable on a phone, in the
 * dark and on paper.
 *
 * Output is also well-formed XML, so that a test can parse it whole. Text from outside always
 * passes through html_text, which escapes markup and replaces what XML cannot hold (control
 * characters, broken UTF-8) or what could reorder the line (bidirectional overrides) by U+FFFD.
 * Everything appends to a ckvc_buffer; test its `failed` once at the end.
 */
#ifndef CKVC_HTML_H
#define CKVC_HTML_H

#include <stddef.h>

#include "lib/base/buffer.h"
#include "lib/base/status.h"

void html_text(
    ckvc_buffer *b,
    const char *text); /* escaped, for element content and quoted attributes; NULL is nothing */
void html_textf(ckvc_buffer *b, const char *fmt, ...) CKVC_PRINTF(2, 3);

void html_page_begin(ckvc_buffer *b, const char *title);
void html_page_end(ckvc_buffer *b);

/* Sections: <section id=...><h2>; the id is ours, plain letters. */
void html_section_begin(ckvc_buffer *b, const char *id, const char *heading);
void html_section_end(ckvc_buffer *b);
/* A part that is folded until asked for; paper shows it as the reader left it. */
void html_details_begin(ckvc_buffer *b, const char *summary);
void html_details_end(ckvc_buffer *b);
void html_heading(ckvc_buffer *b, int level, const char *text);
/* One paragraph of plain text; cls NULL, "lead", "note" or "warn". */
void html_paragraph(ckvc_buffer *b, const char *cls, const char *fmt, ...) CKVC_PRINTF(3, 4);

/* Tables scroll inside their own box when they are wider than the page: begin, heads, body, rows of
 * cells, end. align: 'l' text, 'n' text that stays on one line, 'r' number, 0 none. html_group is a
 * row that names the rows below it. */
void html_table_begin(ckvc_buffer *b, const char *caption);
void html_head(ckvc_buffer *b, char align, const char *fmt, ...) CKVC_PRINTF(3, 4);
/* All heads, a letter and a text each, and the body. */
#define html_heads(b, align, ...) html_heads_of(b, align, HTML_TEXTS(__VA_ARGS__))
#define HTML_TEXTS(...)                                                                            \
    (const char *const[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)
void html_heads_of(ckvc_buffer *b, const char *align, const char *const *texts, size_t n);
void html_table_body(ckvc_buffer *b);
/* A row of texts, a letter and a text each. */
#define html_row(b, align, ...) html_row_of(b, align, HTML_TEXTS(__VA_ARGS__))
void html_row_of(ckvc_buffer *b, const char *align, const char *const *texts, size_t n);
void html_row_begin(ckvc_buffer *b);
void html_cell(ckvc_buffer *b, char align, const char *fmt, ...) CKVC_PRINTF(3, 4);
void html_group(ckvc_buffer *b, size_t n_columns, const char *fmt, ...) CKVC_PRINTF(3, 4);
void html_row_end(ckvc_buffer *b);
void html_table_end(ckvc_buffer *b);

/* Figures stand side by side where there is room. svg is markup (svg_render, not standalone);
 * caption is plain text; picture and numbers lie beside the page as name.svg and name.csv. */
void html_figures_begin(ckvc_buffer *b);
void html_figure(ckvc_buffer *b, const ckvc_buffer *svg, const char *caption, const char *name);
void html_figures_end(ckvc_buffer *b);

#endif
