/* Macros that make JSON of what has just been computed, member by member:
 *
 *   OBJECT({"mean", J(sum / n)}, {"rows", rows}, M(n), OF(s, title))
 *   ADD_MEMBERS(o, M(lo), M(hi))
 *
 * M(n) is the variable n under its own name, OF(s, title) the member s->title.
 *
 * This is not done by a record (lib/base/record.h), whose table pays where a struct is read as
 * well as written. Nothing reads report.json back into a struct, and most of its numbers are in
 * none: they are written where they are computed. A table would need a struct first, and would name
 * everything twice. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "lib/base/json.h"

typedef struct json_member {
    const char *key;
    json_t *value; /* a new reference, which the object takes; NULL: the member is left out */
} json_member;

/* Adds members up to the first key that is NULL. Returns o. */
json_t *json_add_members(json_t *o, const json_member *members);
#define ADD_MEMBERS(o, ...) json_add_members(o, (const json_member[]){__VA_ARGS__, {NULL, NULL}})
#define OBJECT(...)         ADD_MEMBERS(json_object(), __VA_ARGS__)
/* Appends an object to a list. */
#define APPEND_OBJECT(list, ...) json_array_append_new(list, OBJECT(__VA_ARGS__))

/* Makes JSON of a value, a new reference; of JSON it makes a copy. The result is null for a
 * number that is not finite, for a text or JSON that is NULL, and for -1 in a signed char, which
 * says yes, no or not known. An int does not compile, because it may be a comparison that was
 * meant as yes or no. */
#define J(v)                                                                                       \
    _Generic((v), double: ckvc_json_real, float: ckvc_json_real, unsigned long: json_integer,      \
             unsigned: json_integer, bool: json_of_flag, signed char: json_of_maybe,               \
             const char *: json_of_text, char *: json_of_text, json_t *: json_copy_of,             \
             const json_t *: json_copy_of)(v)
#define M(name)                                                                                    \
    { #name, J(name) }
#define OF(s, name)                                                                                \
    { #name, J((s)->name) }
static inline json_t *json_of_flag(bool v) { return json_boolean(v); }
static inline json_t *json_of_maybe(signed char v) { return v < 0 ? json_null() : json_boolean(v); }
static inline json_t *json_copy_of(const json_t *v) { return v ? json_deep_copy(v) : json_null(); }
/* '?' stands for bytes that are no UTF-8, as a file's name may hold */
json_t *json_of_text(const char *v);

/* Groups the elements of a list into lists of n each. Takes the list. */
json_t *json_rows_of(json_t *list, size_t n);
/* Makes lists of lists from reals [n][columns]. */
#define json_grid(x, n, columns) json_rows_of(ckvc_json_reals(x, (n) * (columns)), columns)
/* Turns rows into columns: for each member of the objects of `list`, o gets the list of that
 * member's values. Takes the list, returns o. */
json_t *json_add_columns(json_t *o, json_t *list);

/* Returns the number of a member, NaN where it is null or not there. */
double json_number_of(const json_t *o, const char *key);
static inline const char *json_text_of(const json_t *o, const char *key) {
    return json_string_value(json_object_get(o, key));
}
static inline bool json_flag_of(const json_t *o, const char *key) {
    return json_is_true(json_object_get(o, key));
}
