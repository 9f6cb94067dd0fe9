/* See members.h. */
#include "report/numbers/members.h"

#include <math.h>
#include <string.h>

#include "lib/base/memory.h"

json_t *json_add_members(json_t *o, const json_member *members) {
    for (const json_member *m = members; m->key; m++) {
        if (m->value) { json_object_set_new(o, m->key, m->value); }
    }
    return o;
}

json_t *json_of_text(const char *v) {
    json_t *text = v ? json_string(v) : json_null();
    if (text) { return text; }
    CKVC_AUTO_FREE char *ascii = ckvc_strdup(v);
    for (char *c = ascii; *c; c++) { *c = *c & 0x80 ? '?' : *c; }
    return json_string(ascii);
}

json_t *json_rows_of(json_t *list, size_t n) {
    json_t *rows = json_array(), *row = NULL, *value;
    size_t i;
    json_array_foreach(list, i, value) {
        if (i % n == 0) { json_array_append_new(rows, row = json_array()); }
        json_array_append(row, value);
    }
    json_decref(list);
    return rows;
}

json_t *json_add_columns(json_t *o, json_t *list) {
    size_t i;
    json_t *row, *value;
    const char *key;
    json_array_foreach(list, i, row) {
        json_object_foreach(row, key, value) {
            if (i == 0) { json_object_set_new(o, key, json_array()); }
            json_array_append(json_object_get(o, key), value);
        }
    }
    json_decref(list);
    return o;
}

double json_number_of(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}
