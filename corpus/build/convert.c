/* Makes plain text of marked-up text: see convert.h. */
#include "corpus/build/convert.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "lib/base/memory.h"
#include "lib/base/text_lines.h"
#include "lib/base/utf8.h"

/* A text counts as ASCII when at least this share of its characters is. */
#define MOSTLY_ASCII 0.97

static bool contains(const char *text, size_t n, const char *what) {
    return memmem(text, n, what, strlen(what)) != NULL;
}

bool text_is_markup(const char *text, size_t n) {
    const size_t head = n < 4096 ? n : 4096;
    size_t at = n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    while (at < head && isspace((unsigned char)text[at])) { at++; }
    const char *begin = text + at;
    return contains(text, head, "\x1f\nFile: ") ||
           (*begin == '<' &&
            (strncasecmp(begin, "<!doctype html", 14) == 0 || strncasecmp(begin, "<html", 5) == 0 ||
             (begin[1] == '?' && contains(text, head, "<html")))) ||
           ((*begin == '.' || *begin == '\'') &&
            (strncmp(begin, ".TH ", 4) == 0 || contains(text, head, "\n.TH ") ||
             contains(text, head, "\n.SH ")));
}

static bool is_rule(const char *line, size_t n) {
    for (size_t i = 1; i < n; i++) {
        if (line[i] != line[0]) { return false; }
    }
    return n >= 3 && ispunct((unsigned char)line[0]);
}

static void rst_text(const char *text, size_t n, ckvc_buffer *out) {
    for (ckvc_lines l = ckvc_lines_of(text, n); ckvc_next_line(&l);) {
        const char *line = l.text;
        const size_t length = l.n;
        size_t indent = 0;
        while (indent < length && line[indent] == ' ') { indent++; }
        if ((length - indent >= 3 && memcmp(line + indent, ".. ", 3) == 0) ||
            is_rule(line, length) ||
            (indent < length && line[indent] == ':' &&
             memchr(line + indent + 1, ':', length - indent - 1))) {
            continue; /* directives and their options, underlines of titles */
        }
        for (size_t k = 0; k < length; k++) {
            if (line[k] != '`') { ckvc_buffer_u8(out, (uint8_t)line[k]); }
        }
        ckvc_buffer_u8(out, '\n');
    }
}

/* Returns what replaces a character beyond ASCII, or NULL where the character stays. */
static const char *plain_character(const char *p, size_t step, bool typographic) {
    static const char *const pairs[][2] = {
        {"\u00A0", " "},  {"\u00AD", ""},    {"\uFEFF", ""}, /* in every text; the others: */
        {"\u2018", "'"},  {"\u2019", "'"},   {"\u201C", "\""}, {"\u201D", "\""}, {"\u2013", "-"},
        {"\u2014", "--"}, {"\u2026", "..."}, {"\u2022", "*"},  {"\u2192", "->"}, {"\u21D2", "=>"},
        {"\u2010", "-"},  {"\u2011", "-"},   {"\u2212", "-"},  {"\u200B", ""},   {"\u22A3", "-|"}};
    for (size_t i = 0; i < (typographic ? sizeof pairs / sizeof *pairs : 3); i++) {
        if (strlen(pairs[i][0]) == step && memcmp(pairs[i][0], p, step) == 0) {
            return pairs[i][1];
        }
    }
    return NULL;
}

/* Takes the last character off `out`, unless it ends a line. */
static void strike_back(ckvc_buffer *out) {
    if (out->size == 0 || out->data[out->size - 1] == '\n') { return; }
    while (--out->size > 0 && (out->data[out->size] & 0xC0) == 0x80) {}
}

/* Where the blanks at the end of `out` begin; SIZE_MAX if there are none. */
static size_t trailing_blanks(const ckvc_buffer *out) {
    size_t from = out->size;
    while (from > 0 && (out->data[from - 1] == ' ' || out->data[from - 1] == '\t')) { from--; }
    return from < out->size ? from : SIZE_MAX;
}

static void tidy(const char *text, size_t n, bool typographic, ckvc_buffer *out) {
    size_t newlines = 0, blanks_from = SIZE_MAX, step;
    out->size = 0;
    for (size_t i = 0; i < n; i += step) {
        const char c = text[i];
        step = 1;
        if ((uint8_t)c >= 0x80) {
            step = ckvc_utf8_step(text + i, n - i, NULL);
            const char *ascii = step > 1 ? plain_character(text + i, step, typographic) : NULL;
            ckvc_buffer_append(out, ascii ? ascii : text + i, ascii ? strlen(ascii) : step);
            step = step ? step : 1;
            newlines = 0;
            blanks_from = SIZE_MAX;
        } else if (c == '\b') { /* overstrike: X BS X is a bold X */
            strike_back(out);
            blanks_from = trailing_blanks(out);
        } else if (c == '\n') {
            if (blanks_from != SIZE_MAX) { out->size = blanks_from; /* at the end of the line */ }
            blanks_from = SIZE_MAX;
            if (++newlines <= 2 && out->size > 0) { ckvc_buffer_u8(out, '\n'); }
        } else if (c == ' ' || c == '\t') {
            if (blanks_from == SIZE_MAX) { blanks_from = out->size; }
            ckvc_buffer_u8(out, (uint8_t)c);
        } else if ((uint8_t)c > 0x20 && c != 0x7F) {
            ckvc_buffer_u8(out, (uint8_t)c);
            newlines = 0;
            blanks_from = SIZE_MAX;
        }
    }
    while (out->size > 0 && isspace(out->data[out->size - 1])) { out->size--; }
    ckvc_buffer_append(out, "", 0); /* sets the NUL again */
}

static bool is_mostly_ascii(const ckvc_buffer *text) {
    size_t chars = 0, ascii = 0;
    for (size_t i = 0; i < text->size; i++) {
        chars += (text->data[i] & 0xC0) != 0x80;
        ascii += text->data[i] < 0x80;
    }
    return (double)ascii >= MOSTLY_ASCII * (double)chars;
}

bool text_convert(bool rst, const char *text, size_t n, ckvc_buffer *out) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer raw = {0};
    if (rst) {
        ckvc_buffer_text(&raw, "");
        rst_text(text, n, &raw);
        text = (const char *)raw.data;
        n = raw.size;
    }
    tidy(text, n, true, out);
    const bool ascii = is_mostly_ascii(out);
    if (!ascii) { tidy(text, n, false, out); }
    return ascii;
}
