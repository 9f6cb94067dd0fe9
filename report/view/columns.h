/* What a section shows of a struct, as one list: the members of its JSON, the fields of its csv
 * file and the columns of its table on the page come from the same lines, each with offset and
 * type, so that a name that is not there does not compile.
 *
 *   TABLE(head_columns, head,
 *         SHOWN(head, budget, "budget", BUDGET),                        JSON and page
 *         MEMBERS(head, n, n_heads),                                    JSON; up to eight
 *         COLUMN(head, mean, .json = "mean", .csv = "mean_weight"),     whatever is named
 *         COLUMN(head, weight, .json = "weight", BY2(head, n_layers, n_heads)),  nested arrays
 *         COLUMN(head, ends, .json = "ends", OF(end_columns)));         a struct with its own list
 */
#ifndef CKVC_REPORT_COLUMNS_H
#define CKVC_REPORT_COLUMNS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/base/buffer.h"

typedef enum column_type {
    TYPE_ROWS, /* structs: embedded, or behind a pointer that may be NULL */
    TYPE_REAL, /* double; not finite: undefined */
    TYPE_U64,  /* and size_t */
    TYPE_U32,
    TYPE_FLAG,  /* bool */
    TYPE_MAYBE, /* a bool as signed char; -1: not known */
    TYPE_TEXT,  /* const char *, or an array of char */
    TYPE_JSON   /* json_t * */
} column_type;

/* How the page says it. */
typedef enum column_form {
    FORM_FIXED, /* text as it is, numbers with decimals */
    FORM_SIGNED,
    FORM_SHARE,    /* per cent */
    FORM_NEAR_ONE, /* the same, with decimals where it is close to all */
    FORM_BUDGET,   /* tokens, or a share of T */
    FORM_INTERVAL, /* of a struct that begins with the doubles mean, lo, hi: with signs */
    FORM_SPREAD    /* the same without signs */
} column_form;

/* How the JSON holds a list of structs: as an array of objects; as an object of arrays, one for
 * each column; as an object with a member for each struct, under the text in its first column
 * (NULL: left out). */
typedef enum column_as { AS_OBJECTS, AS_ARRAYS, AS_MEMBERS } column_as;

typedef struct column {
    const char *json, *csv, *page; /* its name in each; NULL: not there */
    column_type type;
    size_t at, size; /* of the member in the struct */
    size_t n[3];     /* of a list: 1 + offsets of its counts (size_t), outermost first */
    column_as as;
    const struct columns *of; /* of structs; without a JSON name these columns stand among those of
                                 the list itself, everywhere */
    size_t when;              /* 1 + offset of a bool: false, and there is no value */
    bool omit;                /* no value: the JSON leaves it out; else it is null */
    column_form form;
    int decimals;
    const char *none;   /* the page's word for an undefined number in place of "undefined" */
    const char *absent; /* and for no value; else the same */
    const char *align;  /* letters of header and cell (html.h) in place of the form's own */
    bool bare;          /* the csv has the text without quotes */
    const char *(*say)(const void *row);      /* what the page says, and the csv as a bare word */
    json_t *(*make)(const void *row);         /* the JSON's value */
    void (*fill)(json_t *o, const void *row); /* nothing else: JSON members that others name */
} column;

typedef struct columns {
    const column *list;
    size_t n, size; /* columns; bytes of a struct */
} columns;

/* clang-format off */
/* A static list, or one that other files use. */
#define TABLE(name, T, ...)        static TABLE_LIST(name, __VA_ARGS__); static TABLE_END(name, T)
#define SHARED_TABLE(name, T, ...) static TABLE_LIST(name, __VA_ARGS__); TABLE_END(name, T)
#define TABLE_LIST(name, ...)      const column name##_list[] = {__VA_ARGS__}
#define TABLE_END(name, T)                                                                         \
    const columns name = {name##_list, sizeof name##_list / sizeof *name##_list, sizeof(T)}
/* What .say and .make name: text, or JSON, of the row `o`. */
#define SAY(name, T, text)                                                                         \
    static const char *name(const void *row) { const T *o = row; return text; }
#define MAKE(name, T, value)                                                                       \
    static json_t *name(const void *row) { const T *o = row; return value; }
#define COLUMN(T, m, ...)     { FIELD(T, m), __VA_ARGS__ }
#define MEMBER(T, m)          { FIELD(T, m), .json = #m }
#define MEMBERS(T, ...)       MEMBERS_OF(__VA_ARGS__, M8, M7, M6, M5, M4, M3, M2, M1, 0)(T, __VA_ARGS__)
#define CSV(T, m)             { FIELD(T, m), .csv = #m }
#define LIST(T, m, ...)       { FIELD(T, m), .json = #m, __VA_ARGS__ }
#define BOTH(T, m, in_csv)    { FIELD(T, m), .json = #m, .csv = in_csv }
#define NAMED(T, m, head)     { FIELD(T, m), .json = #m, .page = head }
#define SHOWN(T, m, head, ...) { FIELD(T, m), .json = #m, .page = head, __VA_ARGS__ }
/* Of the struct itself: columns of another list of it, or those as an object of their own. */
#define INCLUDE(T, columns)   { .size = sizeof(T), .of = &columns }
#define GROUP(T, name, columns) { .size = sizeof(T), .json = name, .of = &columns }
#define OBJECT(T, m, columns) { FIELD(T, m), .json = #m, .of = &columns }
#define OBJECTS(T, m, n, columns) { FIELD(T, m), .json = #m, .of = &columns, BY(T, n) }
#define ARRAYS(T, m, n, columns) { FIELD(T, m), .of = &columns, BY(T, n), .as = AS_ARRAYS }
#define MERGE(T, m, columns)  { FIELD(T, m), .of = &columns }
#define OF(columns)  .of = &columns
#define BY(T, a)              .n = {1 + offsetof(T, a)}
#define BY2(T, a, b)          .n = {1 + offsetof(T, a), 1 + offsetof(T, b)}
#define BY3(T, a, b, c)       .n = {1 + offsetof(T, a), 1 + offsetof(T, b), 1 + offsetof(T, c)}
#define WHEN(T, m)            .when = 1 + offsetof(T, m)
#define FIXED(d)              .form = FORM_FIXED, .decimals = d
#define SIGNED(d)             .form = FORM_SIGNED, .decimals = d
#define SHARE                 .form = FORM_SHARE
#define NEAR_ONE              .form = FORM_NEAR_ONE
#define BUDGET                .form = FORM_BUDGET
#define INTERVAL(d)           .form = FORM_INTERVAL, .decimals = d
#define SPREAD(d)             .form = FORM_SPREAD, .decimals = d
#define ELSE(text)            .none = text
#define ABSENT(text)          .absent = text
#define MEMBERS_OF(a, b, c, d, e, f, g, h, n, ...) n
#define M1(T, m)      MEMBER(T, m)
#define M2(T, m, ...) MEMBER(T, m), M1(T, __VA_ARGS__)
#define M3(T, m, ...) MEMBER(T, m), M2(T, __VA_ARGS__)
#define M4(T, m, ...) MEMBER(T, m), M3(T, __VA_ARGS__)
#define M5(T, m, ...) MEMBER(T, m), M4(T, __VA_ARGS__)
#define M6(T, m, ...) MEMBER(T, m), M5(T, __VA_ARGS__)
#define M7(T, m, ...) MEMBER(T, m), M6(T, __VA_ARGS__)
#define M8(T, m, ...) MEMBER(T, m), M7(T, __VA_ARGS__)
#define FIELD(T, m)                                                                                \
    .type = COLUMN_TYPE(((T *)0)->m), .at = offsetof(T, m), .size = sizeof(((T *)0)->m)
#define COLUMN_TYPE(v)                                                                             \
    _Generic((v), double: TYPE_REAL, double *: TYPE_REAL, const double *: TYPE_REAL,               \
             unsigned long: TYPE_U64, unsigned long *: TYPE_U64, unsigned: TYPE_U32,               \
             bool: TYPE_FLAG, signed char: TYPE_MAYBE, char *: TYPE_TEXT, const char *: TYPE_TEXT, \
             const char **: TYPE_TEXT, char **: TYPE_TEXT, json_t *: TYPE_JSON,                    \
             const json_t *: TYPE_JSON, default: TYPE_ROWS)
/* clang-format on */

/* New references. */
json_t *columns_json(const columns *c, const void *row);
json_t *column_json(const column *c, const void *row);

/* Lines of csv, and fields before them: texts are quoted as in RFC 4180, an undefined number is an
 * empty field. */
void csv_names(ckvc_buffer *csv, const columns *c);
void csv_row(ckvc_buffer *csv, const columns *c, const void *row);
void csv_table(ckvc_buffer *csv, const columns *c, const void *rows, size_t n);
void csv_numbers(ckvc_buffer *csv, const double *v, size_t n);
void csv_text(ckvc_buffer *csv, const char *value); /* a field */
void csv_number(ckvc_buffer *csv, double v);

/* The page: header and rows of a table whose columns are those with a page name. */
size_t columns_on_page(const columns *c);
void columns_table_begin(ckvc_buffer *html, const char *caption, const columns *c);
void columns_row(ckvc_buffer *html, const columns *c, const void *row);
void columns_rows(ckvc_buffer *html, const columns *c, const void *rows, size_t n);
/* Of those rows whose bool at `flag` is set. */
void columns_rows_where(ckvc_buffer *html, const columns *c, const void *rows, size_t n,
                        size_t flag);
/* A whole table of rows [n]. */
void columns_table(ckvc_buffer *html, const char *caption, const columns *c, const void *rows,
                   size_t n);

#endif
