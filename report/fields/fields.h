/* The members of report.json, struct by struct: lists whose lines are compiled against the structs
 * of numbers/numbers.h (offset and type), so that a name that is not there does not compile.
 *
 *   FIELDS(head_fields, head,                      of struct head, for this file
 *          MEMBERS(n, mean),                       under their own names; up to ten
 *          AS(c_mean, "mean"),                     under another
 *          LIST(weight, BY(n_layers, n_heads)),    nested arrays of numbers
 *          F_OBJECT(ends, end_fields),               a struct with a list of its own
 *          OBJECTS(rows, n_rows, row_fields))      an array of them
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "report/numbers/numbers.h"

typedef enum field_type {
    TYPE_ROWS, /* structs: embedded, or behind a pointer that may be NULL */
    TYPE_REAL, /* double; not finite: null */
    TYPE_U64,  /* and size_t */
    TYPE_U32,
    TYPE_FLAG,  /* bool */
    TYPE_MAYBE, /* a bool as signed char; -1: null */
    TYPE_TEXT,  /* const char *, or an array of char */
    TYPE_JSON   /* json_t * */
} field_type;

/* How a list of structs is held: as an array of objects; as an object of arrays, one for each
 * field; as an object with a member for each struct, under the text in its first field (NULL: left
 * out). */
typedef enum field_as { AS_OBJECTS, AS_ARRAYS, AS_MEMBERS } field_as;

/* A list is a function, so that its lines can name its struct `row`. */
typedef const struct fields *fields_of(void);

typedef struct field {
    const char *name; /* NULL: its members stand among those of the list, or (a key) nowhere */
    field_type type;
    size_t at, size; /* of the member in the struct; size 0: the struct itself */
    size_t n[3];     /* of a list: 1 + offsets of its counts (size_t), outermost first */
    field_as as;
    fields_of *of;                    /* of structs */
    size_t when;                      /* 1 + offset of a bool: false, and there is no value */
    bool omit;                        /* no value: left out; else null */
    json_t *(*make)(const void *row); /* the value */
    void (*fill)(json_t *o, const void *row); /* nothing else: members that others name */
} field;

typedef struct fields {
    const field *list;
    size_t n, size; /* fields; bytes of a struct */
} fields;

/* A new reference. */
json_t *fields_json(fields_of *of, const void *row);

/* clang-format off */
/* A list for this file, or one that is declared below for others. */
#define FIELDS(name, T, ...) static SHARED_FIELDS(name, T, __VA_ARGS__)
#define SHARED_FIELDS(name, T, ...)                                                                \
    const fields *name(void) {                                                                     \
        typedef T row;                                                                             \
        static const field list[] = {__VA_ARGS__};                                                 \
        static const fields all = {list, sizeof list / sizeof *list, sizeof(row)};                 \
        return &all;                                                                               \
    }                                                                                              \
    struct fields /* for the semicolon */
/* A value that is made of the row `o`. */
#define MAKE(name, T, json) static json_t *name(const void *row) { const T *o = row; return json; }
#define MEMBERS(...)         PASTE(M, COUNT(__VA_ARGS__))(__VA_ARGS__)
#define AS(m, ...)           { FIELD(m), .name = __VA_ARGS__ }
#define LIST(m, ...)         { FIELD(m), .name = #m, __VA_ARGS__ }
#define MADE(as, by)         { .name = as, .make = by }
#define F_OBJECT(m, ...)       { FIELD(m), .name = #m, .of = __VA_ARGS__ }
#define OBJECTS(m, n, ...)   { FIELD(m), .name = #m, BY(n), .of = __VA_ARGS__ }
#define ARRAYS(m, n, ...)    { FIELD(m), BY(n), .as = AS_ARRAYS, .of = __VA_ARGS__ }
#define KEY(m)               { FIELD(m) } /* first, of a list that stands AS_MEMBERS */
/* The members of a struct, or of other fields of the struct itself, among those of the list; GROUP:
 * as an object. */
#define MERGE(m, ...)        { FIELD(m), .of = __VA_ARGS__ }
#define INCLUDE(...)         { .of = __VA_ARGS__ }
#define GROUP(as, ...)       { .name = as, .of = __VA_ARGS__ }
#define BY(...)              .n = { PASTE(N, COUNT(__VA_ARGS__))(__VA_ARGS__) }
#define WHEN(m)              .when = 1 + offsetof(row, m)
#define PASTE(a, b)          PASTED(a, b)
#define PASTED(a, b)         a##b
#define COUNT(...)           TENTH(__VA_ARGS__, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define TENTH(a, b, c, d, e, f, g, h, i, j, n, ...) n
#define N1(a)                1 + offsetof(row, a)
#define N2(a, b)             N1(a), N1(b)
#define N3(a, b, c)          N1(a), N2(b, c)
#define M1(m)                { FIELD(m), .name = #m }
#define M2(m, ...)           M1(m), M1(__VA_ARGS__)
#define M3(m, ...)           M1(m), M2(__VA_ARGS__)
#define M4(m, ...)           M1(m), M3(__VA_ARGS__)
#define M5(m, ...)           M1(m), M4(__VA_ARGS__)
#define M6(m, ...)           M1(m), M5(__VA_ARGS__)
#define M7(m, ...)           M1(m), M6(__VA_ARGS__)
#define M8(m, ...)           M1(m), M7(__VA_ARGS__)
#define M9(m, ...)           M1(m), M8(__VA_ARGS__)
#define M10(m, ...)          M1(m), M9(__VA_ARGS__)
#define FIELD(m)                                                                                   \
    .type = TYPE_OF(((row *)0)->m), .at = offsetof(row, m), .size = sizeof(__typeof__(((row *)0)->m))
#define TYPE_OF(v)                                                                                 \
    _Generic((v), double: TYPE_REAL, double *: TYPE_REAL, const double *: TYPE_REAL,               \
             unsigned long: TYPE_U64, unsigned long *: TYPE_U64, unsigned: TYPE_U32,               \
             bool: TYPE_FLAG, signed char: TYPE_MAYBE, char *: TYPE_TEXT, const char *: TYPE_TEXT, \
             const char **: TYPE_TEXT, char **: TYPE_TEXT, json_t *: TYPE_JSON,                    \
             const json_t *: TYPE_JSON, default: TYPE_ROWS)
/* clang-format on */

/* The parts of report.json, a file each. */
fields_of table_fields, rests_fields;
