/* JSON on standard output: one line for programs, or text for people. */
#ifndef CKVC_JSON_TEXT_H
#define CKVC_JSON_TEXT_H

#include <jansson.h>
#include <stdio.h>

/* Sets numbers, null where one is not finite; a whole one is printed as such. Returns o:
 * JSON_NUMBERS(json_object(), {"prompts", n}, {"seconds", s}) */
typedef struct json_number {
    const char *key;
    double value;
} json_number;
json_t *json_set_numbers(json_t *o, const json_number *numbers);
#define JSON_NUMBERS(o, ...) json_set_numbers(o, (const json_number[]){__VA_ARGS__, {NULL, 0}})

/* One canonical line; takes the reference. */
void json_print(json_t *o);
/* The same with keys in the order in which they were set. */
void json_print_as_given(json_t *o);
/* Aligned keys, short lists on one line, lists of objects as small tables. */
void json_text(FILE *out, json_t *object, int indent);

#endif
