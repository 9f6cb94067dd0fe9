/* Reads golden files: numbers that other programs found, as JSON. */
#pragma once

#include <unistd.h>

#include "lib/base/json.h"
#include "tests/unit/unit.h"

static inline json_t *golden_read(const char *path) {
    ckvc_err err = {0};
    json_t *root = NULL;
    if (ckvc_json_read(path, 64u << 20, &root, &err) != CKVC_OK) { fail_msg("%s", err.text); }
    return root;
}

static inline int32_t *golden_ids(const json_t *array, int64_t *n) {
    *n = (int64_t)json_array_size(array);
    int32_t *ids = ckvc_alloc((size_t)*n, sizeof *ids);
    for (int64_t i = 0; i < *n; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(array, (size_t)i));
    }
    return ids;
}

/* Returns a prompt's tokens, with those of its continuation behind them. */
static inline int32_t *golden_tokens(const json_t *prompt, int64_t *T, int64_t *C) {
    int32_t *tokens = golden_ids(json_object_get(prompt, "tokens"), T),
            *next = golden_ids(json_object_get(prompt, "continuation"), C),
            *both = ckvc_alloc((size_t)(*T + *C), sizeof *both);
    memcpy(both, tokens, (size_t)*T * sizeof *both);
    memcpy(both + *T, next, (size_t)*C * sizeof *both);
    free(tokens), free(next);
    return both;
}

/* Returns the numbers of an array, or of its rows of numbers one after the other. The caller
 * frees them. */
static inline double *golden_numbers(const json_t *array) {
    const size_t wide = json_array_size(json_array_get(array, 0)),
                 n = json_array_size(array) * (wide ? wide : 1);
    double *numbers = ckvc_alloc(n, sizeof *numbers);
    for (size_t i = 0; i < n; i++) {
        const json_t *row = wide ? json_array_get(array, i / wide) : array;
        numbers[i] = json_number_value(json_array_get(row, wide ? i % wide : i));
    }
    return numbers;
}

/* Returns the path of something in the data beside the checkout. Where that is not there, the
 * test is skipped. */
static inline const char *shared_data(const char *below, const char *name) {
    static char path[4096];
    const char *shared = getenv("CKVC_SHARED");
    snprintf(path, sizeof path, "%s/data/%s/%s", shared ? shared : "../shared", below, name);
    if (access(path, R_OK) != 0) {
        printf("skipped: %s is not there (CKVC_SHARED)\n", path);
        skip();
    }
    return path;
}

static inline double golden_number(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    if (!json_is_number(v)) { fail_msg("golden file has no number %s", key); }
    return json_number_value(v);
}
