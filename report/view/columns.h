/* What a section shows of a struct, as one list: the members of its JSON, the fields of its csv
 * file and the columns of its table on the page come from the same lines, each with offset and
 * type, so that a name that is not there does not compile.
 *
 *   TABLE(head_columns, head,                         of struct head, for this file
 *         SHOWN(budget, "budget", BUDGET),            JSON and page
 *         MEMBERS(n, n_heads),                        JSON; up to ten
 *         BOTH(mean, "mean_weight"),                  JSON and csv
 *         JSON(weight, BY(n_layers, n_heads)),        nested arrays
 *         OBJECT(ends, end_columns));                 a struct with its own list
 */
#pragma once

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

/* A list is a function, so that its columns can name its struct `row`. */
typedef const struct columns *columns_of(void);

typedef struct column {
    const char *json, *csv, *page; /* its name in each; NULL: not there */
    column_type type;
    size_t at, size; /* of the member in the struct; size 0: the struct itself */
    size_t n[3];     /* of a list: 1 + offsets of its counts (size_t), outermost first */
    column_as as;
    /* Of structs. One that is no list has these columns among those of the list, on the page and in
     * the csv, and without a JSON name in the JSON, too. */
    columns_of *of;
    size_t when; /* 1 + offset of a bool: false, and there is no value */
    bool omit;   /* no value: the JSON leaves it out; else it is null */
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
/* A list for this file, or one that sections.h declares for others. */
#define TABLE(name, T, ...) static SHARED_TABLE(name, T, __VA_ARGS__)
#define SHARED_TABLE(name, T, ...)                                                                 \
    const columns *name(void) {                                                                    \
        typedef T row;                                                                             \
        static const column list[] = {__VA_ARGS__};                                                \
        static const columns all = {list, sizeof list / sizeof *list, sizeof(row)};                \
        return &all;                                                                               \
    }                                                                                              \
    struct columns /* for the semicolon */
/* What .say and .make name: text, or JSON, of the row `o`. */
#define SAY(name, T, text)  static const char *name(const void *row) { const T *o = row; return text; }
#define MAKE(name, T, json) static json_t *name(const void *row) { const T *o = row; return json; }
/* Where a member is shown; what follows its names is said by the words below. */
#define MEMBERS(...)        PASTE(M, COUNT(__VA_ARGS__))(__VA_ARGS__) /* JSON, as they are named */
#define JSON(m, ...)        { FIELD(m), .json = #m, __VA_ARGS__ }
#define JSON_AS(m, ...)     { FIELD(m), .json = __VA_ARGS__ }
#define CSV(m)              { FIELD(m), .csv = #m }
#define CSV_AS(m, ...)      { FIELD(m), .csv = __VA_ARGS__ }
#define BOTH(m, in_csv)     { FIELD(m), .json = #m, .csv = in_csv }
#define PAGE(m, ...)        { FIELD(m), .page = __VA_ARGS__ }
#define SHOWN(m, ...)       { FIELD(m), .json = #m, .page = __VA_ARGS__ } /* JSON and page */
#define SHOWN_AS(m, name, ...)  { FIELD(m), .json = name, .page = __VA_ARGS__ }
#define KEY(m)              { FIELD(m) } /* first, of a list that stands AS_MEMBERS */
/* Structs, with their columns: as an object, an array of them, an object of arrays; their columns
 * among those of the list. GROUP and INCLUDE: other columns of the struct itself. */
#define OBJECT(m, columns)     { FIELD(m), .json = #m, .of = columns }
#define OBJECTS(m, n, columns) { FIELD(m), .json = #m, .of = columns, BY(n) }
#define ARRAYS(m, n, ...)       { FIELD(m), BY(n), .as = AS_ARRAYS, .of = __VA_ARGS__ }
#define MERGE(m, columns)      { FIELD(m), .of = columns }
#define GROUP(name, columns)   { .json = name, .of = columns }
#define INCLUDE(...)           { .of = __VA_ARGS__ }
#define OF(columns) .of = columns
#define BY(...)    .n = { PASTE(N, COUNT(__VA_ARGS__))(__VA_ARGS__) }
#define WHEN(m)    .when = 1 + offsetof(row, m)
#define FIXED(d)     .form = FORM_FIXED, .decimals = d
#define SIGNED(d)    .form = FORM_SIGNED, .decimals = d
#define SHARE        .form = FORM_SHARE
#define NEAR_ONE     .form = FORM_NEAR_ONE
#define BUDGET       .form = FORM_BUDGET
#define INTERVAL(d)  .form = FORM_INTERVAL, .decimals = d
#define SPREAD(d)    .form = FORM_SPREAD, .decimals = d
#define ELSE(text)   .none = text
#define ABSENT(text) .absent = text
#define PASTE(a, b)  PASTED(a, b)
#define PASTED(a, b) a##b
#define COUNT(...)   TENTH(__VA_ARGS__, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define TENTH(a, b, c, d, e, f, g, h, i, j, n, ...) n
#define N1(a)        1 + offsetof(row, a)
#define N2(a, b)     N1(a), N1(b)
#define N3(a, b, c)  N1(a), N1(b), N1(c)
#define M1(m)        { FIELD(m), .json = #m }
#define M2(m, ...)   M1(m), M1(__VA_ARGS__)
#define M3(m, ...)   M1(m), M2(__VA_ARGS__)
#define M4(m, ...)   M1(m), M3(__VA_ARGS__)
#define M5(m, ...)   M1(m), M4(__VA_ARGS__)
#define M6(m, ...)   M1(m), M5(__VA_ARGS__)
#define M7(m, ...)   M1(m), M6(__VA_ARGS__)
#define M8(m, ...)   M1(m), M7(__VA_ARGS__)
#define M9(m, ...)   M1(m), M8(__VA_ARGS__)
#define M10(m, ...)  M1(m), M9(__VA_ARGS__)
#define FIELD(m)                                                                                   \
    .type = COLUMN_TYPE(((row *)0)->m), .at = offsetof(row, m),                                    \
    .size = sizeof(__typeof__(((row *)0)->m))
#define COLUMN_TYPE(v)                                                                             \
    _Generic((v), double: TYPE_REAL, double *: TYPE_REAL, const double *: TYPE_REAL,               \
             unsigned long: TYPE_U64, unsigned long *: TYPE_U64, unsigned: TYPE_U32,               \
             bool: TYPE_FLAG, signed char: TYPE_MAYBE, char *: TYPE_TEXT, const char *: TYPE_TEXT, \
             const char **: TYPE_TEXT, char **: TYPE_TEXT, json_t *: TYPE_JSON,                    \
             const json_t *: TYPE_JSON, default: TYPE_ROWS)
/* clang-format on */

/* New references. */
json_t *columns_json(columns_of *of, const void *row);
json_t *column_json(const column *c, const void *row);

/* Lines of csv, and fields before them: texts are quoted as in RFC 4180, an undefined number is an
 * empty field. */
void csv_names(ckvc_buffer *csv, columns_of *of);
void csv_row(ckvc_buffer *csv, columns_of *of, const void *row);
void csv_table(ckvc_buffer *csv, columns_of *of, const void *rows, size_t n);
void csv_numbers(ckvc_buffer *csv, const double *v, size_t n);
void csv_text(ckvc_buffer *csv, const char *value); /* a field */
void csv_number(ckvc_buffer *csv, double v);

/* The page: header and rows of a table whose columns are those with a page name. */
size_t columns_on_page(columns_of *of);
void columns_table_begin(ckvc_buffer *html, const char *caption, columns_of *of);
void columns_row(ckvc_buffer *html, columns_of *of, const void *row);
void columns_rows(ckvc_buffer *html, columns_of *of, const void *rows, size_t n);
/* A whole table of rows [n]. */
void columns_table(ckvc_buffer *html, const char *caption, columns_of *of, const void *rows,
                   size_t n);

/* Text from outside for a terminal: control characters, which it would obey, are '?'. */
void plain_text(ckvc_buffer *text, const char *words);
/* The same table as plain text, in columns. */
void columns_text(ckvc_buffer *text, columns_of *of, const void *rows, size_t n);
