/* One file of score lines, written and read back, for the tests of their reader. */
#pragma once

#include <unistd.h>

#include "formats/lines/scores.h"
#include "tests/unit/unit.h"

static char path[] = "/tmp/ckvc-scores-XXXXXX";

static inline int setup(void **state) {
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static inline int teardown(void **state) { return unlink(path); }

static inline ckvc_status read_text(const char *text, scores **out, ckvc_err *err) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(fwrite(text, 1, strlen(text), f) == strlen(text));
    assert_int_equal(fclose(f), 0);
    memset(err, 0, sizeof *err);
    return scores_read(path, out, err);
}
