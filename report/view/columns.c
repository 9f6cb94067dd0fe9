/* See columns.h. */
#include "report/view/columns.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>

#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "report/draw/html.h"
#include "report/view/say.h"

/* ---- members ---- */

static const void *at(const column *c, const void *row) { return (const char *)row + c->at; }

static const char *text_of(const column *c, const void *place) {
    return c->size == sizeof(char *) ? *(const char *const *)place : place;
}

static double number_of(const column *c, const void *place) {
    const signed char maybe = *(const signed char *)place;
    switch (c->type) {
    case TYPE_REAL: return *(const double *)place;
    case TYPE_U64: return (double)*(const uint64_t *)place;
    case TYPE_U32: return *(const uint32_t *)place;
    case TYPE_FLAG:
    case TYPE_MAYBE: return maybe < 0 ? (double)NAN : maybe;
    default: assert(!"a number"); return NAN;
    }
}

static size_t size_of(const column *c) {
    switch (c->type) {
    case TYPE_ROWS: return c->of()->size;
    case TYPE_U32: return sizeof(uint32_t);
    case TYPE_FLAG:
    case TYPE_MAYBE: return 1;
    default: return 8;
    }
}

/* Where a member's values begin: in the struct, or behind the pointer that it is. */
static const char *values_at(const column *c, const void *row) {
    bool pointer = (c->n[0] || c->of) && c->size == sizeof(void *);
    return pointer ? *(const char *const *)at(c, row) : at(c, row);
}

static size_t count_of(const column *c, const void *row, size_t dim) {
    return *(const size_t *)(const void *)((const char *)row + c->n[dim] - 1);
}

/* A struct whose columns stand among those of the list, on the page and in the csv. */
static bool is_merged(const column *c) { return c->of && !c->n[0] && !c->page && !c->csv; }

static bool is_there(const column *c, const void *row) {
    return (!c->when || *((const bool *)row + c->when - 1)) &&
           (!c->of || c->n[0] || values_at(c, row)) &&
           (c->type != TYPE_TEXT || c->n[0] || text_of(c, at(c, row))) &&
           (c->type != TYPE_JSON || *(json_t *const *)at(c, row));
}

/* ---- JSON ---- */

static void set_members(json_t *o, columns_of *of, const void *row);

static json_t *value_of(const column *c, const void *place) {
    switch (c->type) {
    case TYPE_ROWS: return columns_json(c->of, place);
    case TYPE_TEXT: return text_of(c, place) ? json_string(text_of(c, place)) : json_null();
    case TYPE_JSON: return json_incref(*(json_t *const *)place);
    case TYPE_REAL: return ckvc_json_real(*(const double *)place);
    case TYPE_FLAG:
    case TYPE_MAYBE:
        return *(const signed char *)place < 0 ? json_null()
                                               : json_boolean(*(const signed char *)place);
    default: return json_integer((json_int_t)number_of(c, place));
    }
}

static json_t *nested(const column *c, const void *row, size_t dim, const char **place) {
    json_t *list = json_array();
    for (size_t i = 0; i < count_of(c, row, dim); i++) {
        if (dim < 2 && c->n[dim + 1]) {
            json_array_append_new(list, nested(c, row, dim + 1, place));
        } else {
            json_array_append_new(list, value_of(c, *place));
            *place += size_of(c);
        }
    }
    return list;
}

/* Of structs [n]: a member of o for each of their columns, an array each. */
static void set_arrays(json_t *o, columns_of *of, const char *rows, size_t n) {
    const columns *c = of();
    for (size_t k = 0; k < c->n; k++) {
        json_t *list = c->list[k].json ? json_array() : NULL;
        for (size_t i = 0; list && i < n; i++) {
            json_array_append_new(list, column_json(&c->list[k], rows + i * c->size));
        }
        if (list) { json_object_set_new(o, c->list[k].json, list); }
    }
}

json_t *column_json(const column *c, const void *row) {
    if (c->make) { return c->make(row); }
    if (!is_there(c, row)) { return json_null(); }
    const char *place = values_at(c, row);
    if (!c->n[0]) { return value_of(c, place); }
    if (c->as == AS_OBJECTS) { return nested(c, row, 0, &place); }
    json_t *o = json_object();
    const size_t n = count_of(c, row, 0);
    if (c->as == AS_ARRAYS) { set_arrays(o, c->of, place, n); }
    for (size_t i = 0; c->as == AS_MEMBERS && i < n; i++) {
        const column *first = c->of()->list;
        const char *one = place + i * size_of(c), *key = text_of(first, at(first, one));
        if (key) { json_object_set_new(o, key, columns_json(c->of, one)); }
    }
    return o;
}

static void set_members(json_t *o, columns_of *of, const void *row) {
    const columns *c = of();
    for (size_t i = 0; i < c->n; i++) {
        const column *k = &c->list[i];
        const bool there = k->make || k->fill || is_there(k, row);
        if (k->fill) {
            k->fill(o, row);
        } else if (k->json) {
            if (there || !k->omit) { json_object_set_new(o, k->json, column_json(k, row)); }
        } else if (k->of && there && k->as == AS_ARRAYS) {
            set_arrays(o, k->of, values_at(k, row), count_of(k, row, 0));
        } else if (k->of && there) {
            set_members(o, k->of, values_at(k, row));
        }
    }
}

json_t *columns_json(columns_of *of, const void *row) {
    json_t *o = json_object();
    set_members(o, of, row);
    return o;
}

/* ---- of csv and page: every column in order, those of merged structs in their place ---- */

/* row: NULL for the columns alone. */
typedef void visit(ckvc_buffer *to, const column *c, const void *row);

static void each_column(ckvc_buffer *to, columns_of *of, const void *row, visit *each) {
    const columns *c = of();
    for (size_t i = 0; i < c->n; i++) {
        const column *k = &c->list[i];
        if (is_merged(k)) {
            each_column(to, k->of, row ? values_at(k, row) : NULL, each);
        } else {
            each(to, k, row);
        }
    }
}

/* ---- csv ---- */

void csv_text(ckvc_buffer *csv, const char *value) {
    ckvc_buffer_text(csv, "\"");
    for (const char *c = value; *c; c++) {
        ckvc_buffer_append(csv, c, 1);
        if (*c == '"') { ckvc_buffer_text(csv, "\""); }
    }
    ckvc_buffer_text(csv, "\",");
}

void csv_number(ckvc_buffer *csv, double v) {
    if (isfinite(v)) { ckvc_buffer_printf(csv, "%.17g", v); }
    ckvc_buffer_text(csv, ",");
}

static void csv_end(ckvc_buffer *csv) {
    csv->data[csv->size - 1] = '\n'; /* in place of the last comma */
}

void csv_numbers(ckvc_buffer *csv, const double *v, size_t n) {
    for (size_t i = 0; i < n; i++) { csv_number(csv, v[i]); }
    csv_end(csv);
}

static void csv_name(ckvc_buffer *csv, const column *c, const void *row) {
    (void)row;
    if (c->csv) { ckvc_buffer_printf(csv, "%s,", c->csv); }
}

static void csv_field(ckvc_buffer *csv, const column *c, const void *row) {
    if (!c->csv) { return; }
    if (c->say || c->bare) {
        ckvc_buffer_printf(csv, "%s,", c->say ? c->say(row) : text_of(c, at(c, row)));
    } else if (c->type == TYPE_TEXT) {
        csv_text(csv, text_of(c, at(c, row)));
    } else {
        csv_number(csv, number_of(c, at(c, row)));
    }
}

void csv_names(ckvc_buffer *csv, columns_of *of) {
    each_column(csv, of, NULL, csv_name);
    csv_end(csv);
}

void csv_row(ckvc_buffer *csv, columns_of *of, const void *row) {
    each_column(csv, of, row, csv_field);
    csv_end(csv);
}

void csv_table(ckvc_buffer *csv, columns_of *of, const void *rows, size_t n) {
    csv_names(csv, of);
    for (size_t i = 0; i < n; i++) { csv_row(csv, of, (const char *)rows + i * of()->size); }
}

/* ---- page ---- */

static const char *cell_text(const column *c, const void *row) {
    if (c->say) { return c->say(row); }
    if (!is_there(c, row)) { return c->absent ? c->absent : c->none ? c->none : SAY_UNDEFINED; }
    if (c->type == TYPE_TEXT) { return text_of(c, at(c, row)); }
    const double *v = (const double *)(const void *)values_at(c, row),
                 one = c->type == TYPE_ROWS ? v[0] : number_of(c, v);
    if (!isfinite(one) && c->none) { return c->none; }
    switch (c->form) {
    case FORM_SIGNED: return say_signed(one, c->decimals);
    case FORM_SHARE: return say_share(one);
    case FORM_NEAR_ONE: return one > 0.995 ? say("%s%%", say_fixed(100 * one, 2)) : say_share(one);
    case FORM_BUDGET: return say_budget(one);
    case FORM_INTERVAL: return say_interval(v[0], v[1], v[2], c->decimals);
    case FORM_SPREAD: return say_spread(v[0], v[1], v[2], c->decimals);
    default: return say_fixed(one, c->decimals);
    }
}

/* Of the header, or of a cell. */
static char letter(const column *c, bool of_cell) {
    if (c->align) { return c->align[of_cell]; }
    return c->type == TYPE_TEXT || c->form == FORM_BUDGET ? 'l' : 'r';
}

static void head(ckvc_buffer *html, const column *c, const void *row) {
    (void)row;
    if (c->page) { html_head(html, letter(c, false), "%s", c->page); }
}

static void cell(ckvc_buffer *html, const column *c, const void *row) {
    if (c->page) { html_cell(html, letter(c, true), "%s", cell_text(c, row)); }
}

size_t columns_on_page(columns_of *of) {
    const columns *c = of();
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        n += is_merged(&c->list[i]) ? columns_on_page(c->list[i].of) : c->list[i].page != NULL;
    }
    return n;
}

void columns_table_begin(ckvc_buffer *html, const char *caption, columns_of *of) {
    html_table_begin(html, caption);
    each_column(html, of, NULL, head);
    html_table_body(html);
}

void columns_row(ckvc_buffer *html, columns_of *of, const void *row) {
    html_row_begin(html);
    each_column(html, of, row, cell);
    html_row_end(html);
}

void columns_rows(ckvc_buffer *html, columns_of *of, const void *rows, size_t n) {
    for (size_t i = 0; i < n; i++) { columns_row(html, of, (const char *)rows + i * of()->size); }
}

void columns_table(ckvc_buffer *html, const char *caption, columns_of *of, const void *rows,
                   size_t n) {
    columns_table_begin(html, caption, of);
    columns_rows(html, of, rows, n);
    html_table_end(html);
}

/* ---- plain text ---- */

void plain_text(ckvc_buffer *text, const char *words) {
    for (const char *c = words; *c; c++) {
        ckvc_buffer_append(text, (unsigned char)*c < ' ' ? "?" : c, 1);
    }
}

static void plain(ckvc_buffer *text, const char *words) {
    plain_text(text, words);
    ckvc_buffer_append(text, "", 1);
}

static void plain_head(ckvc_buffer *text, const column *c, const void *row) {
    (void)row;
    if (c->page) { plain(text, c->page); }
}

static void plain_cell(ckvc_buffer *text, const column *c, const void *row) {
    if (c->page) { plain(text, cell_text(c, row)); }
}

static void plain_letter(ckvc_buffer *text, const column *c, const void *row) {
    (void)row;
    if (c->page) { ckvc_buffer_append(text, &(char){letter(c, true)}, 1); }
}

/* Columns of a terminal: characters, not bytes. */
static size_t width_of(const char *words) {
    size_t n = 0;
    for (const char *c = words; *c; c++) { n += ((unsigned char)*c & 0xc0) != 0x80; }
    return n;
}

void columns_text(ckvc_buffer *text, columns_of *of, const void *rows, size_t n) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer cells = {0}, letters = {0};
    const size_t across = columns_on_page(of);
    CKVC_AUTO_FREE size_t *width = ckvc_calloc(across, sizeof *width);
    each_column(&letters, of, NULL, plain_letter);
    each_column(&cells, of, NULL, plain_head);
    for (size_t i = 0; i < n; i++) {
        each_column(&cells, of, (const char *)rows + i * of()->size, plain_cell);
    }
    const char *at = (const char *)cells.data;
    assert(at); /* a table has a column */
    for (size_t i = 0; i < across * (n + 1); i++, at += strlen(at) + 1) {
        const size_t w = width_of(at);
        width[i % across] = w > width[i % across] ? w : width[i % across];
    }
    at = (const char *)cells.data;
    for (size_t i = 0; i < across * (n + 1); i++, at += strlen(at) + 1) {
        const size_t k = i % across, blanks = width[k] - width_of(at);
        const bool right = letters.data[k] == 'r', last = k == across - 1;
        ckvc_buffer_printf(text, "%*s%s%*s%s", right ? (int)blanks : 0, "", at,
                           right || last ? 0 : (int)blanks, "", last ? "\n" : "  ");
    }
}
