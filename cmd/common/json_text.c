/* JSON on standard output: see json_text.h. */
#include "cmd/common/json_text.h"

#include <ctype.h>
#include <string.h>

#include "lib/base/memory.h"

static void print_line(ckvc_buffer *line, json_t *o) {
    ckvc_buffer_u8(line, '\n');
    fwrite(line->data, 1, line->size, stdout);
    ckvc_buffer_fini(line);
    json_decref(o);
}

void json_print(json_t *o) {
    ckvc_buffer line = {0};
    ckvc_json_append(&line, o);
    print_line(&line, o);
}

void json_print_as_given(json_t *o) {
    ckvc_buffer line = {0};
    ckvc_json_append_as_given(&line, o);
    print_line(&line, o);
}

enum { LIST_WHOLE = 8, LIST_HEAD = 3, ROWS_MAX = 24, CELL_MAX = 512 };

static bool is_scalar(const json_t *v) { return !json_is_object(v) && !json_is_array(v); }

/* One value as text, cut to CELL_MAX; valid until the next call. What comes from a file must not
 * reach the terminal as control bytes. */
static const char *cell(const json_t *v) {
    static char text[CELL_MAX];
    if (!v || json_is_null(v)) { return "-"; }
    if (json_is_boolean(v)) { return json_is_true(v) ? "yes" : "no"; }
    CKVC_AUTO_FREE char *dump =
        json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    snprintf(text, sizeof text, "%s", json_is_string(v) ? json_string_value(v) : dump);
    if (json_is_real(v)) { snprintf(text, sizeof text, "%.6g", json_real_value(v)); }
    for (char *p = text; *p; p++) {
        if (iscntrl((unsigned char)*p)) { *p = '?'; }
    }
    return text;
}

/* A list of scalars on one line: all of a short one, beginning and end of a long one. */
static void print_list(const json_t *list) {
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        if (n > LIST_WHOLE && i >= LIST_HEAD && i + 1 < n) {
            if (i == LIST_HEAD) { printf(" ..."); }
            continue;
        }
        printf("%s%s", i ? " " : "", cell(json_array_get(list, i)));
    }
    if (n > LIST_WHOLE) { printf("  (%zu)", n); }
    printf(n ? "\n" : "none\n");
}

/* Objects of one kind as rows; the first one's keys are the columns. */
static void print_table(const json_t *list, int indent) {
    size_t n = json_array_size(list), n_columns = 0;
    json_t *first = json_array_get(list, 0);
    const char *columns[32];
    int widths[32];
    const char *key;
    json_t *value;
    json_object_foreach(first, key, value) {
        if (n_columns == sizeof columns / sizeof *columns) { break; }
        int width = (int)strlen(key);
        for (size_t i = 0; i < n && i < ROWS_MAX; i++) {
            const int n_text = (int)strlen(cell(json_object_get(json_array_get(list, i), key)));
            width = n_text > width ? n_text : width;
        }
        columns[n_columns] = key;
        widths[n_columns++] = json_is_number(value) ? width : -width;
    }
    for (size_t row = 0; row <= n && row <= ROWS_MAX; row++) {
        printf("%*s", indent, "");
        for (size_t c = 0; c < n_columns; c++) {
            const json_t *object = row ? json_array_get(list, row - 1) : NULL;
            /* the last column is not padded, so that lines have no trailing blanks */
            int width = c + 1 == n_columns && widths[c] < 0 ? 0 : widths[c];
            printf("%s%*s", c ? "  " : "", width,
                   row ? cell(json_object_get(object, columns[c])) : columns[c]);
        }
        putchar('\n');
    }
    if (n > ROWS_MAX) { printf("%*s... %zu more\n", indent, "", n - ROWS_MAX); }
}

static bool is_object(const json_t *v) { return json_is_object(v); }

static bool all(const json_t *list, bool (*is)(const json_t *v)) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!is(json_array_get(list, i))) { return false; }
    }
    return true;
}

/* Rows that hold objects of their own do not fit into columns. */
static bool are_rows(const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *key;
        json_t *value;
        json_object_foreach(json_array_get(list, i), key, value) {
            if (json_is_object(value) || (json_array_size(value) && all(value, is_object))) {
                return false;
            }
        }
    }
    return true;
}

void json_text(json_t *object, int indent) {
    const char *key;
    json_t *value;
    int width = 0;
    json_object_foreach(object, key, value) {
        if (is_scalar(value) || json_is_array(value)) {
            width = (int)strlen(key) > width ? (int)strlen(key) : width;
        }
    }
    json_object_foreach(object, key, value) {
        if (json_is_object(value)) {
            printf("%*s%s:%s\n", indent, "", key, json_object_size(value) ? "" : " none");
            json_text(value, indent + 2);
        } else if (json_is_array(value) && json_array_size(value) && all(value, is_object)) {
            printf("%*s%s:\n", indent, "", key);
            if (are_rows(value)) {
                print_table(value, indent + 2);
                continue;
            }
            for (size_t i = 0; i < json_array_size(value); i++) {
                printf("%*s%zu:\n", indent + 2, "", i + 1);
                json_text(json_array_get(value, i), indent + 4);
            }
        } else {
            printf("%*s%s:%*s", indent, "", key, width - (int)strlen(key) + 1, "");
            if (json_is_array(value) && all(value, is_scalar)) {
                print_list(value);
            } else {
                printf("%s\n", cell(value));
            }
        }
    }
}
