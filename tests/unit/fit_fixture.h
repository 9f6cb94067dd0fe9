/* Fits of shards in the test's temporary folder. */
#pragma once

#include "cql/fit/fit_records.h"
#include "formats/shard/shard_h5.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/unit.h"

/* Writes the shard and frees it; its path. */
static inline const char *fit_shard(shard *s, const char *name) {
    const char *path = in_temp_folder(name);
    ckvc_err err = {0};
    if (shard_h5_write(s, path, &err) != CKVC_OK) { fail_msg("%s", err.text); }
    shard_free(s);
    return path;
}

static inline fit_result *fit_paths(const char *const *paths, size_t n, const fit_options *o) {
    fit_result *r = NULL;
    ckvc_err err = {0};
    if (fit_records(paths, n, o, &r, &err) != CKVC_OK) { fail_msg("%s", err.text); }
    return r;
}

static inline fit_result *fit_one(const char *path, const fit_options *o) {
    return fit_paths(&path, 1, o);
}

static inline void fit_refused(const char *const *paths, size_t n, const fit_options *o,
                               ckvc_status status, const char *words) {
    fit_result *r = NULL;
    ckvc_err err = {0};
    assert_int_equal(fit_records(paths, n, o, &r, &err), status);
    assert_null(r);
    if (!strstr(err.text, words)) { fail_msg("wanted \"%s\" in: %s", words, err.text); }
}
