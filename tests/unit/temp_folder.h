/* A folder of a test program's own: cmocka's group setup and teardown, or of one test. Removed with
 * all that lies in it. Below TMPDIR, else /tmp. */
#pragma once

#include <ftw.h>
#include <unistd.h>

#include "tests/unit/unit.h"

static char temp_folder[256];

static inline int temp_folder_make(void **state) {
    const char *below = getenv("TMPDIR");
    snprintf(temp_folder, sizeof temp_folder, "%s/ckvc-test-XXXXXX", below ? below : "/tmp");
    return mkdtemp(temp_folder) ? 0 : -1;
}

static inline int temp_folder_remove_one(const char *path, const struct stat *info, int kind,
                                         struct FTW *at) {
    return remove(path);
}

static inline int temp_folder_remove(void **state) {
    return nftw(temp_folder, temp_folder_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The path of `name` in it, in one of eight buffers that take turns. */
static inline const char *in_temp_folder(const char *name) {
    static char paths[8][512];
    static unsigned turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", temp_folder, name);
    return path;
}
