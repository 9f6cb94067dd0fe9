/* See fields.h. */
#include "report/fields/fields.h"

#include "lib/base/json.h"

static const void *value_at(const field *c, const void *row) { return (const char *)row + c->at; }

static const char *text_of(const field *c, const void *place) {
    return c->size == sizeof(char *) ? *(const char *const *)place : place;
}

static size_t size_of(const field *c) {
    switch (c->type) {
    case TYPE_ROWS: return c->of()->size;
    case TYPE_U32: return sizeof(uint32_t);
    case TYPE_FLAG:
    case TYPE_MAYBE: return 1;
    default: return 8;
    }
}

/* Where a member's values begin: in the struct, or behind the pointer that it is. */
static const char *values_at(const field *c, const void *row) {
    bool pointer = (c->n[0] || c->of) && c->size == sizeof(void *);
    return pointer ? *(const char *const *)value_at(c, row) : value_at(c, row);
}

static size_t count_of(const field *c, const void *row, size_t dim) {
    return *(const size_t *)(const void *)((const char *)row + c->n[dim] - 1);
}

static bool is_there(const field *c, const void *row) {
    return (!c->when || *((const bool *)row + c->when - 1)) &&
           (!c->of || c->n[0] || values_at(c, row)) &&
           (c->type != TYPE_TEXT || c->n[0] || text_of(c, value_at(c, row))) &&
           (c->type != TYPE_JSON || *(json_t *const *)value_at(c, row));
}

static void set_members(json_t *o, fields_of *of, const void *row);
static json_t *field_json(const field *c, const void *row);

static json_t *value_of(const field *c, const void *place) {
    switch (c->type) {
    case TYPE_ROWS: return fields_json(c->of, place);
    case TYPE_TEXT: return text_of(c, place) ? json_string(text_of(c, place)) : json_null();
    case TYPE_JSON: return json_incref(*(json_t *const *)place);
    case TYPE_REAL: return ckvc_json_real(*(const double *)place);
    case TYPE_FLAG:
    case TYPE_MAYBE:
        return *(const signed char *)place < 0 ? json_null()
                                               : json_boolean(*(const signed char *)place);
    case TYPE_U32: return json_integer(*(const uint32_t *)place);
    default: return json_integer(*(const json_int_t *)place);
    }
}

static json_t *nested(const field *c, const void *row, size_t dim, const char **place) {
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

/* Of structs [n]: a member of o for each of their fields, an array each. */
static void set_arrays(json_t *o, fields_of *of, const char *rows, size_t n) {
    const fields *c = of();
    for (size_t k = 0; k < c->n; k++) {
        json_t *list = c->list[k].name ? json_array() : NULL;
        for (size_t i = 0; list && i < n; i++) {
            json_array_append_new(list, field_json(&c->list[k], rows + i * c->size));
        }
        if (list) { json_object_set_new(o, c->list[k].name, list); }
    }
}

static json_t *field_json(const field *c, const void *row) {
    if (c->make) { return c->make(row); }
    if (!is_there(c, row)) { return json_null(); }
    const char *place = values_at(c, row);
    if (!c->n[0]) { return value_of(c, place); }
    if (c->as == AS_OBJECTS) { return nested(c, row, 0, &place); }
    json_t *o = json_object();
    const size_t n = count_of(c, row, 0);
    if (c->as == AS_ARRAYS) { set_arrays(o, c->of, place, n); }
    for (size_t i = 0; c->as == AS_MEMBERS && i < n; i++) {
        const field *first = c->of()->list;
        const char *one = place + i * size_of(c), *key = text_of(first, value_at(first, one));
        if (key) { json_object_set_new(o, key, fields_json(c->of, one)); }
    }
    return o;
}

static void set_members(json_t *o, fields_of *of, const void *row) {
    const fields *c = of();
    for (size_t i = 0; i < c->n; i++) {
        const field *k = &c->list[i];
        const bool there = k->make || k->fill || is_there(k, row);
        if (k->fill) {
            k->fill(o, row);
        } else if (k->name) {
            if (there || !k->omit) { json_object_set_new(o, k->name, field_json(k, row)); }
        } else if (k->of && there && k->as == AS_ARRAYS) {
            set_arrays(o, k->of, values_at(k, row), count_of(k, row, 0));
        } else if (k->of && there) {
            set_members(o, k->of, values_at(k, row));
        }
    }
}

json_t *fields_json(fields_of *of, const void *row) {
    json_t *o = json_object();
    set_members(o, of, row);
    return o;
}
