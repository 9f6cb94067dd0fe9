/* Reads files of result lines. See rows.h. */
#include "formats/lines/rows.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/text_lines.h"

#define LINE_MAX_BYTES ((size_t)64 << 20)

ckvc_status row_wrong(const row_reader *r, const char *key, const char *wanted) {
    static const char *const names[] = {"object", "array", "string", "whole number",
                                        "number", "true",  "false",  "null"};
    const json_t *got = json_object_get(r->o, key);
    return ckvc_fail(r->err, CKVC_E_DATA, "%s:%u: \"%s\" is %s, wanted %s", r->path, r->line, key,
                     got ? names[json_typeof(got)] : "missing", wanted);
}

ckvc_status row_get(const row_reader *r, const record_member *column, void *row) {
    const bool fits = record_read(column, json_object_get(r->o, column->name), row);
    return fits ? CKVC_OK : row_wrong(r, column->name, column->wanted);
}

ckvc_status row_get_setting(const row_reader *r, setting *out) {
    *out = setting_neutral();
    const setting_field *bad = setting_read(r->o, SETTING_LINE, out);
    if (!bad) { return CKVC_OK; }
    char wanted[128], mark;
    const char *key = setting_key(bad, SETTING_LINE, &mark);
    setting_wanted(bad, mark, wanted, sizeof wanted);
    return row_wrong(r, key, wanted);
}

static ckvc_status check_keys(const row_kind *kind, const row_reader *r) {
    const char *key;
    json_t *value;
    json_object_foreach(r->o, key, value) {
        bool known = kind->is_other(key, value);
        for (size_t i = 0; i < kind->n_columns; i++) {
            known |= strcmp(key, kind->columns[i].name) == 0;
        }
        ROW_MUST(r, known, "unknown key \"%s\", wanted a row of `%s`", key, kind->verb);
    }
    return CKVC_OK;
}

ckvc_status rows_read(const row_kind *kind, const char *path, const void *data, size_t n,
                      void *list, ckvc_err *err) {
    ckvc_lines at = ckvc_lines_of(data, n);
    while (ckvc_next_line(&at)) {
        CKVC_AUTO_FREE char *where = ckvc_format("%s:%u", path, at.number);
        json_auto_t *object = NULL;
        CKVC_FAIL_IF(at.n > LINE_MAX_BYTES, err, CKVC_E_DATA,
                     "%s: line of %zu bytes, wanted at most %zu", where, at.n, LINE_MAX_BYTES);
        CKVC_TRY(ckvc_json_parse(at.text, at.n, where, &object, err));
        CKVC_FAIL_IF(!json_is_object(object), err, CKVC_E_DATA,
                     "%s: not an object, wanted one row of `%s`", where, kind->verb);
        const row_reader r = {path, at.number, object, err};
        CKVC_TRY(check_keys(kind, &r));
        CKVC_TRY(kind->read(&r, list));
    }
    CKVC_FAIL_IF(at.number == 0, err, CKVC_E_DATA, "%s: no rows, wanted the output of `%s`", path,
                 kind->verb);
    return CKVC_OK;
}

const char *rows_verb(const char *path) {
    CKVC_AUTO(ckvc_map_close) ckvc_map file = {0};
    json_auto_t *first = NULL;
    if (ckvc_map_open(path, &file, &(ckvc_err){0}) != CKVC_OK) { return NULL; }
    ckvc_lines at = ckvc_lines_of(file.data, (size_t)file.size);
    if (!ckvc_next_line(&at) || at.n > LINE_MAX_BYTES ||
        ckvc_json_parse(at.text, at.n, path, &first, &(ckvc_err){0}) != CKVC_OK) {
        return NULL;
    }
    return json_object_get(first, "loss_comp") ? "score"
           : json_object_get(first, "metric")  ? "eval"
                                               : NULL;
}

bool rows_repeat(const row_kind *kind, const void *rows, size_t n, size_t size,
                 const void *pair[2]) {
    CKVC_AUTO_FREE const void **order = ckvc_alloc(n, sizeof *order);
    for (size_t i = 0; i < n; i++) { order[i] = (const char *)rows + i * size; }
    qsort(order, n, sizeof *order, kind->compare);
    for (size_t i = 1; i < n; i++) {
        const void *a = order[i - 1], *b = order[i];
        if (kind->compare(&a, &b) != 0) { continue; }
        pair[0] = a < b ? a : b;
        pair[1] = a < b ? b : a;
        return true;
    }
    return false;
}
