/* Looks into the JSON that a program gives. */
#pragma once

#include <jansson.h>

#include "tests/unit/unit.h"

/* Returns what stands at a path such as "key.0.key", in which numbers are places in arrays. */
static inline json_t *at(json_t *o, const char *path) {
    char copy[160];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *p = strtok(copy, "."); p && o; p = strtok(NULL, ".")) {
        o = *p >= '0' && *p <= '9' ? json_array_get(o, (size_t)atoi(p)) : json_object_get(o, p);
    }
    if (!o) { fail_msg("the JSON has no %s", path); }
    return o;
}

static inline void is(json_t *o, const char *path, double want) {
    json_t *v = at(o, path);
    if (!json_is_number(v) || fabs(json_number_value(v) - want) > 1e-12) {
        fail_msg("%s is %.17g, wanted %.17g", path, json_is_number(v) ? json_number_value(v) : NAN,
                 want);
    }
}

static inline const char *text_at(json_t *o, const char *path) {
    return json_string_value(at(o, path));
}

/* Requires that all of `want` stands at `path`: of an object its members, whose keys are paths,
 * and of an array each element. */
static inline void is_json(json_t *o, const char *path, json_t *want) {
    json_t *got = at(o, path), *v;
    const char *key;
    size_t i;
    if (json_is_object(want)) {
        json_object_foreach(want, key, v) { is_json(got, key, v); }
    } else if (json_is_array(want)) {
        if (json_array_size(got) != json_array_size(want)) { fail_msg("%s has others", path); }
        json_array_foreach(want, i, v) { is_json(json_array_get(got, i), "", v); }
    } else if (json_is_number(want)) {
        is(o, path, json_number_value(want));
    } else if (!json_equal(got, want)) {
        fail_msg("%s: %s", path, json_dumps(got, JSON_ENCODE_ANY));
    }
}

/* The same, where `want` is JSON text with ' for ". */
static inline void holds(json_t *o, const char *path, const char *want) {
    char copy[2048];
    snprintf(copy, sizeof copy, "%s", want);
    for (char *c = copy; *c; c++) { *c = *c == '\'' ? '"' : *c; }
    json_error_t wrong;
    json_auto_t *v = json_loads(copy, JSON_DECODE_ANY, &wrong);
    if (!v) { fail_msg("%s: %s", path, wrong.text); }
    is_json(o, path, v);
}

static inline void has(const char *text, const char *part) {
    if (!strstr(text, part)) { fail_msg("\"%s\" is not in:\n%s", part, text); }
}
