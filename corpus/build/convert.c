/* HTML, man, info and reStructuredText to plain text, each in one pass; tidy() is the last step of
 * all. */
#include "corpus/build/convert.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <utf8proc.h>

#include "corpus/texts.h"
#include "lib/base/memory.h"
#include "lib/base/text_lines.h"
#include "lib/base/utf8.h"

/* Share of ASCII characters from which on a text counts as ASCII. */
#define MOSTLY_ASCII 0.97

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcasecmp(name + n - m, end) == 0;
}

static bool contains(const char *text, size_t n, const char *what) {
    return memmem(text, n, what, strlen(what)) != NULL;
}

text_kind text_kind_guess(const char *name, const char *text, size_t n) {
    size_t head = n < 4096 ? n : 4096;
    const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name,
               *dot = strrchr(base, '.');
    if (ends_with(base, ".html") || ends_with(base, ".htm") || ends_with(base, ".xhtml")) {
        return TEXT_HTML;
    }
    if (strstr(base, ".info") || contains(text, head, "\x1f\nFile: ")) { return TEXT_INFO; }
    if (ends_with(base, ".rst")) { return TEXT_RST; }
    bool section = dot && dot[1] >= '1' && dot[1] <= '9' && strlen(dot) <= 6;
    if (section && (contains(text, head, "\n.TH ") || contains(text, head, "\n.SH ") ||
                    strncmp(text, ".TH ", 4) == 0)) {
        return TEXT_MAN;
    }
    return contains(text, head, "<!DOCTYPE html") || contains(text, head, "<html") ? TEXT_HTML
                                                                                   : TEXT_PLAIN;
}

/* ---- HTML ---- */
/* Text of the character reference at p ("&amp;"), and its length; 0 when there is none. */
static size_t put_entity(const char *p, size_t n, ckvc_buffer *out) {
    static const struct {
        const char *name, *text;
    } known[] = {{"amp", "&"},      {"lt", "<"},     {"gt", ">"},     {"quot", "\""},
                 {"apos", "'"},     {"nbsp", " "},   {"lsquo", "'"},  {"rsquo", "'"},
                 {"ldquo", "\""},   {"rdquo", "\""}, {"ndash", "-"},  {"mdash", "--"},
                 {"hellip", "..."}, {"rarr", "->"},  {"larr", "<-"},  {"rArr", "=>"},
                 {"bull", "*"},     {"middot", "*"}, {"minus", "-"},  {"le", "<="},
                 {"ge", ">="},      {"ne", "!="},    {"equiv", "=="}, {"times", "x"},
                 {"copy", "(c)"},   {"reg", "(R)"},  {"shy", ""},     {"sdot", "*"},
                 {"prime", "'"},    {"laquo", "\""}, {"raquo", "\""}};
    const char *end = memchr(p, ';', n < 12 ? n : 12);
    if (!end || end < p + 2) { return 0; }
    size_t length = (size_t)(end - p) + 1;
    if (p[1] == '#') {
        bool hex = p[2] == 'x' || p[2] == 'X';
        char *stop;
        unsigned long code = isxdigit((unsigned char)p[hex ? 3 : 2])
                                 ? strtoul(p + (hex ? 3 : 2), &stop, hex ? 16 : 10)
                                 : 0;
        if (code == 0 || stop != end || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
            return 0;
        }
        utf8proc_uint8_t utf8[4];
        ckvc_buffer_append(out, utf8, (size_t)utf8proc_encode_char((utf8proc_int32_t)code, utf8));
        return length;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].name) == length - 2 && memcmp(known[i].name, p + 1, length - 2) == 0) {
            ckvc_buffer_text(out, known[i].text);
            return length;
        }
    }
    return 0;
}

static void end_line(ckvc_buffer *out, int lines) {
    for (size_t at = out->size; at > 0 && out->data[at - 1] == '\n' && lines > 0; at--) { lines--; }
    for (; lines > 0; lines--) { ckvc_buffer_u8(out, '\n'); }
}

static void html_text(const char *text, size_t n, ckvc_buffer *out) {
    /* Dropped with all that is in them. Tables too: cells out of their columns read as noise. */
    static const char dropped[] = " head nav table svg math ", lines[] = " br li dt dd tr hr ",
                      paragraphs[] = " p h1 h2 h3 h4 h5 h6 div pre ul ol dl blockquote ";
    char inside[16] = "";
    int depth = 0, pre = 0;
    for (size_t i = 0; i < n;) {
        if (text[i] == '<') {
            if (n - i >= 4 && memcmp(text + i, "<!--", 4) == 0) {
                const char *end = memmem(text + i, n - i, "-->", 3);
                i = end ? (size_t)(end - text) + 3 : n;
                continue;
            }
            const char *end = memchr(text + i, '>', n - i);
            if (!end) { break; }
            bool closing = i + 1 < n && text[i + 1] == '/', self_closed = end[-1] == '/';
            char name[16];
            size_t length = 0;
            for (const char *p = text + i + 1 + closing;
                 p < end && isalnum((unsigned char)*p) && length < sizeof name - 1; p++) {
                name[length++] = (char)tolower((unsigned char)*p);
            }
            name[length] = '\0';
            i = (size_t)(end - text) + 1;
            if (depth) { /* only the same tag counts: others may be left open */
                depth += strcmp(name, inside) != 0 || self_closed ? 0 : closing ? -1 : 1;
            } else if (!closing && (strcmp(name, "script") == 0 || strcmp(name, "style") == 0)) {
                /* raw text: a '<' in it opens nothing, only the closing tag counts */
                size_t k = strlen(name);
                while (i < n && !(n - i >= k + 2 && text[i] == '<' && text[i + 1] == '/' &&
                                  strncasecmp(text + i + 2, name, k) == 0)) {
                    i++;
                }
            } else if (!closing && !self_closed && word_in_list(name, dropped)) {
                depth = 1;
                memcpy(inside, name, sizeof name);
            } else {
                pre += strcmp(name, "pre") != 0 ? 0 : !closing ? 1 : pre > 0 ? -1 : 0;
                end_line(out, word_in_list(name, paragraphs) ? 2
                              : word_in_list(name, lines) && !(closing && strcmp(name, "dt") == 0)
                                  ? 1
                                  : 0);
            }
            continue;
        }
        if (depth) {
            i++;
            continue;
        }
        size_t entity = text[i] == '&' ? put_entity(text + i, n - i, out) : 0;
        if (entity) {
            i += entity;
        } else if (!pre && isspace((unsigned char)text[i])) {
            if (out->size && out->data[out->size - 1] != ' ' && out->data[out->size - 1] != '\n') {
                ckvc_buffer_u8(out, ' ');
            }
            i++;
        } else {
            ckvc_buffer_u8(out, (uint8_t)text[i++]);
        }
    }
}

/* ---- line by line formats ---- */

static bool begins(const char *line, size_t n, const char *what) {
    return n >= strlen(what) && memcmp(line, what, strlen(what)) == 0;
}

/* The words of a man line: escapes resolved, quotes of macro arguments dropped. */
static void man_words(const char *line, size_t n, bool macro, ckvc_buffer *out) {
    for (size_t i = 0; i < n; i++) {
        if (line[i] == '\\' && i + 1 < n) {
            char c = line[++i];
            if (c == 'f') { /* font: \fB, \f(CW, \f[B] */
                if (i + 1 < n && line[i + 1] == '[') {
                    const char *end = memchr(line + i, ']', n - i);
                    i = end ? (size_t)(end - line) : n;
                } else {
                    i += i + 1 < n && line[i + 1] == '(' ? 3 : 1;
                }
            } else if (c == '(' && i + 2 < n) {
                static const char glyphs[] = "aq'lq\"rq\"oq'cq'dq\"em-en-bu*mi-ha^ti~";
                for (const char *g = glyphs; *g; g += 3) {
                    if (memcmp(g, line + i + 1, 2) == 0) { ckvc_buffer_u8(out, (uint8_t)g[2]); }
                }
                i += 2;
            } else if (c == '-' || c == ' ' || c == '.' || c == '\'') {
                ckvc_buffer_u8(out, (uint8_t)c);
            } else if (c == 'e' || c == '\\') {
                ckvc_buffer_u8(out, '\\');
            } else if (c == '"') {
                return; /* the rest is a comment */
            } else if (c == 's') {
                i += i + 1 < n && (line[i + 1] == '-' || line[i + 1] == '+') ? 2 : 1;
            } /* \& \, \/ \| and the like: nothing */
        } else if (!(macro && line[i] == '"')) {
            ckvc_buffer_u8(out, (uint8_t)line[i]);
        }
    }
}

static void man_text(const char *text, size_t n, ckvc_buffer *out) {
    static const char fonts[] = " B I BR IR RB RI BI IB SM SB OP ",
                      breaks[] = " PP P LP TP IP RS RE sp nf fi CS CE AP ";
    bool defining = false; /* between .de and .. */
    for (ckvc_lines l = ckvc_lines_of(text, n); ckvc_next_line(&l);) {
        const char *line = l.text;
        const size_t length = l.n;
        if (defining || begins(line, length, ".de")) {
            defining = !begins(line, length, "..");
        } else if (length == 0) {
            ckvc_buffer_u8(out, '\n');
        } else if (line[0] != '.' && line[0] != '\'') {
            man_words(line, length, false, out);
            ckvc_buffer_u8(out, '\n');
        } else {
            char name[8];
            size_t k = 0, at = 1;
            for (; at < length && isalpha((unsigned char)line[at]); at++) {
                if (k < sizeof name - 1) { name[k++] = line[at]; }
            }
            name[k] = '\0';
            at += at < length;
            if (strcmp(name, "SH") == 0 || strcmp(name, "SS") == 0) {
                end_line(out, 2);
                man_words(line + at, length - at, true, out);
                end_line(out, 1);
            } else if (word_in_list(name, breaks)) {
                end_line(out, 2);
            } else if (word_in_list(name, fonts) && at < length) {
                man_words(line + at, length - at, true, out);
                ckvc_buffer_u8(out, '\n');
            }
        }
    }
}

/* "*note Title: Node." and "*note Title::" leave "see Title". */
static void info_line(const char *line, size_t n, ckvc_buffer *out) {
    for (size_t i = 0; i < n; i++) {
        if (!begins(line + i, n - i, "*note") && !begins(line + i, n - i, "*Note")) {
            ckvc_buffer_u8(out, (uint8_t)line[i]);
            continue;
        }
        ckvc_buffer_text(out, line[i + 1] == 'N' ? "See" : "see");
        for (i += 5; i < n && line[i] != ':'; i++) { ckvc_buffer_u8(out, (uint8_t)line[i]); }
        if (i + 1 < n && line[i + 1] == ':') {
            i++;
        } else {
            while (i + 1 < n && line[i + 1] != ',' && line[i + 1] != '.') { i++; }
        }
    }
}

static void info_text(const char *text, size_t n, ckvc_buffer *out) {
    bool menu = false;
    for (ckvc_lines l = ckvc_lines_of(text, n); ckvc_next_line(&l);) {
        const char *line = l.text;
        const size_t length = l.n;
        if (length && line[0] == '\x1f') {
            /* a node: its header line follows; the tag tables at the end are no text */
            ckvc_next_line(&l);
            if (begins(l.text, l.n, "Tag Table:") || begins(l.text, l.n, "Indirect:") ||
                begins(l.text, l.n, "Local Variables:") || begins(l.text, l.n, "End Tag Table")) {
                break;
            }
            end_line(out, 2);
            menu = false;
        } else if (begins(line, length, "* Menu:")) {
            menu = true;
        } else if (menu && (length == 0 || line[0] == '*' || line[0] == ' ')) {
            continue;
        } else {
            menu = false;
            info_line(line, length, out);
            ckvc_buffer_u8(out, '\n');
        }
    }
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
        if (begins(line + indent, length - indent, ".. ") || is_rule(line, length) ||
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

/* ---- the common last step ---- */

/* What a character beyond ASCII becomes; NULL: it stays. */
static const char *fold(const char *p, size_t step, bool typographic) {
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

/* The last character of out goes, unless it ends a line. */
static void strike_back(ckvc_buffer *out) {
    if (out->size == 0 || out->data[out->size - 1] == '\n') { return; }
    while (--out->size > 0 && (out->data[out->size] & 0xC0) == 0x80) {}
}

static void tidy(const char *text, size_t n, bool typographic, ckvc_buffer *out) {
    size_t newlines = 0, blanks_from = SIZE_MAX, step;
    out->size = 0;
    for (size_t i = 0; i < n; i += step) {
        const char c = text[i];
        step = 1;
        if ((uint8_t)c >= 0x80) {
            step = ckvc_utf8_step(text + i, n - i, NULL);
            const char *ascii = step > 1 ? fold(text + i, step, typographic) : NULL;
            ckvc_buffer_append(out, ascii ? ascii : text + i, ascii ? strlen(ascii) : step);
            step = step ? step : 1;
            newlines = 0;
            blanks_from = SIZE_MAX;
        } else if (c == '\b') { /* overstrike: X BS X is a bold X */
            strike_back(out);
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

bool text_convert(text_kind kind, const char *text, size_t n, ckvc_buffer *out) {
    static void (*const converters[TEXT_KIND_COUNT])(const char *, size_t,
                                                     ckvc_buffer *) = {[TEXT_HTML] = html_text,
                                                                       [TEXT_MAN] = man_text,
                                                                       [TEXT_INFO] = info_text,
                                                                       [TEXT_RST] = rst_text};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer raw = {0};
    if (converters[kind]) {
        ckvc_buffer_text(&raw, "");
        converters[kind](text, n, &raw);
        text = (const char *)raw.data;
        n = raw.size;
    }
    tidy(text, n, true, out);
    const bool ascii = is_mostly_ascii(out);
    if (!ascii) { tidy(text, n, false, out); }
    return ascii;
}
