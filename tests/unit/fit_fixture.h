/* Makes fits from shards in the test's temporary folder. */
#pragma once

#include "fit/fit_records.h"
#include "tests/unit/shard_fixture.h"

/* Writes the shard and frees it. Returns its path. */
static inline const char *fit_shard(shard *s, const char *name) {
    const char *path = in_temp_folder(name);
    write_shard(s, path);
    shard_free(s);
    return path;
}

/* The options with which a test fits. They are the defaults again before each test if a main
 * sets before_each to the function below. */
static fit_options o;
static inline int begin_with_defaults(void **state) {
    o = fit_defaults();
    return 0;
}

static inline fit_result *fit_paths(const char *const *paths, size_t n) {
    fit_result *r = NULL;
    OK(fit_records(paths, n, &o, &r, &err));
    return r;
}

static inline fit_result *fit_one(const char *path) { return fit_paths(&path, 1); }

/* Fits anew, in place of *r. */
static inline void refit(fit_result **r, const char *path) {
    fit_result_free(*r);
    *r = fit_one(path);
}

static inline void fit_refused(const char *const *paths, size_t n, ckvc_status status,
                               const char *words) {
    fit_result *r = NULL;
    SAYS(fit_records(paths, n, &o, &r, &err), status, words);
    assert_null(r);
}
