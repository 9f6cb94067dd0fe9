/* Writes the page: see page.h. page.html has two marks: where the plain tables go, and where the
 * JSON goes. */
#include "report/page/page.h"

#include <stdint.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/base/utf8.h"

#define REPLACEMENT "\xEF\xBF\xBD"

/* page.html as it is, with a 0 at its end. */
__asm__(".section .rodata\n"
        "page_template:\n"
        ".incbin \"report/page/page.html\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char page_template[] __attribute__((visibility("hidden")));

/* Returns the length of the character at p [n] if a page may hold it and it does not reorder the
 * line; 0 means that it may not stand there. */
static size_t allowed(const char *p, size_t n) {
    const size_t size = ckvc_utf8_step(p, n, NULL);
    uint32_t c = size > 1 ? (unsigned char)p[0] & 0x7Fu >> size : (unsigned char)p[0];
    for (size_t i = 1; i < size; i++) { c = c << 6 | ((unsigned char)p[i] & 0x3Fu); }
    bool control = (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || (c >= 0x7F && c < 0xA0),
         reorders = (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
    return control || reorders || (c & 0xFFFE) == 0xFFFE ? 0 : size;
}

/* Appends text as the content of an element. */
static void put_text(ckvc_buffer *b, const char *text) {
    static const char *const entities[] = {['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;"};
    const char *end = text + strlen(text);
    for (const char *p = text; p < end;) {
        const size_t n = allowed(p, (size_t)(end - p)), c = (unsigned char)*p;
        const char *entity = c < sizeof entities / sizeof *entities ? entities[c] : NULL;
        if (n == 0 || entity) {
            ckvc_buffer_text(b, n ? entity : REPLACEMENT);
        } else {
            ckvc_buffer_append(b, p, n);
        }
        p += n ? n : 1; /* each byte that is not allowed has a replacement */
    }
}

static bool is_plain(const json_t *v) { return !json_is_object(v) && !json_is_array(v); }

static void put_value(ckvc_buffer *b, const json_t *v) {
    if (json_is_string(v)) {
        put_text(b, json_string_value(v));
    } else if (json_is_number(v)) {
        ckvc_buffer_printf(b, "%.6g", json_number_value(v));
    } else if (json_is_array(v)) {
        size_t i;
        const json_t *x;
        json_array_foreach(v, i, x) {
            ckvc_buffer_text(b, i ? ", " : "");
            put_value(b, x);
        }
    } else {
        ckvc_buffer_text(b, json_is_true(v) ? "yes" : json_is_false(v) ? "no" : "undefined");
    }
}

/* Appends one row: with `heads` the names as heads (th), else the values as cells. The members
 * of a member that is an object stand among them. */
static void put_row(ckvc_buffer *b, json_t *object, const char *prefix, bool heads) {
    const char *name;
    json_t *v;
    json_object_foreach(object, name, v) {
        if (is_plain(v)) {
            ckvc_buffer_text(b, heads ? "<th>" : "<td>");
            put_text(b, heads ? prefix : "");
            if (heads) { put_text(b, name); }
            if (!heads) { put_value(b, v); }
            ckvc_buffer_text(b, heads ? "</th>" : "</td>");
        } else if (json_is_object(v) && !*prefix) {
            CKVC_AUTO_FREE char *of = ckvc_format("%s.", name);
            put_row(b, v, of, heads);
        }
    }
}

static void put_table(ckvc_buffer *b, json_t *list) {
    enum { ROWS = 1000 };
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer before = {0};
    size_t i;
    json_t *row;
    ckvc_buffer_text(b, "<div class=\"scroll\"><table>\n");
    json_array_foreach(list, i, row) {
        ckvc_buffer heads = {0};
        if (i == ROWS) { break; }
        put_row(&heads, row, "", true);
        ckvc_buffer_u8(&heads, 0); /* rows with the same members have one row of heads */
        if (!before.data || strcmp((char *)heads.data, (char *)before.data) != 0) {
            ckvc_buffer_printf(b, "<tr>%s</tr>\n", (const char *)heads.data);
        }
        ckvc_buffer_fini(&before);
        before = heads;
        ckvc_buffer_text(b, "<tr>");
        put_row(b, row, "", false);
        ckvc_buffer_text(b, "</tr>\n");
    }
    ckvc_buffer_text(b, "</table></div>\n");
    if (json_array_size(list) > ROWS) {
        ckvc_buffer_printf(b, "<p>The first %d of %zu: all are in report.json.</p>\n", ROWS,
                           json_array_size(list));
    }
}

/* Appends a table for everything that is a list of objects, each with its own lists below it.
 * Lists of numbers are only in report.json. */
static void put_tables(ckvc_buffer *b, const char *path, json_t *v) {
    const char *name;
    json_t *of;
    size_t i;
    if (json_is_array(v) && json_is_object(json_array_get(v, 0))) {
        ckvc_buffer_text(b, "<h3>");
        put_text(b, path);
        ckvc_buffer_text(b, "</h3>\n");
        put_table(b, v);
    }
    json_array_foreach(v, i, of) {
        CKVC_AUTO_FREE char *at = ckvc_format("%s[%zu]", path, i);
        put_tables(b, at, of);
    }
    json_object_foreach(v, name, of) {
        CKVC_AUTO_FREE char *at = ckvc_format("%s%s%s", path, *path ? "." : "", name);
        put_tables(b, at, of);
    }
}

/* Appends the JSON. Inside a script element nothing may look like the element's end. */
static void put_json(ckvc_buffer *b, const json_t *report) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    ckvc_json_append(&text, report);
    for (size_t i = 0; i < text.size; i++) {
        const char *c = (const char *)text.data + i;
        if (*c == '<') {
            ckvc_buffer_text(b, "\\u003c");
        } else {
            ckvc_buffer_append(b, c, 1);
        }
    }
}

void page_write(ckvc_buffer *html, json_t *report) {
    static const char tables[] = "<!--TABLES-->", json[] = "<!--JSON-->";
    const char *at = strstr(page_template, tables), *then = strstr(page_template, json);
    ckvc_buffer_append(html, page_template, (size_t)(at - page_template));
    put_tables(html, "", report);
    at += sizeof tables - 1;
    ckvc_buffer_append(html, at, (size_t)(then - at));
    put_json(html, report);
    ckvc_buffer_text(html, then + sizeof json - 1);
}
