/* Makes a folder of a test program's own, by cmocka's setup and teardown of the group or of one
 * test. It is removed with all that lies in it. It lies below TMPDIR, or else in memory where
 * the system has such a place, because many tests sync. */
#pragma once

#include <ftw.h>
#include <unistd.h>

#include "lib/base/files.h"
#include "tests/unit/unit.h"

static char temp_folder[256];

static inline int temp_folder_make(void **state) {
    const char *below = getenv("TMPDIR"), *memory = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    snprintf(temp_folder, sizeof temp_folder, "%s/ckvc-test-XXXXXX", below ? below : memory);
    return mkdtemp(temp_folder) ? 0 : -1;
}

static inline int temp_folder_remove_one(const char *path, const struct stat *info, int kind,
                                         struct FTW *at) {
    return remove(path);
}

static inline int temp_folder_remove(void **state) {
    return nftw(temp_folder, temp_folder_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Returns the path of `name` in the folder, which stays valid as long as the program runs. */
static inline const char *in_temp_folder(const char *name) {
    static char paths[1 << 24];
    static size_t used;
    char *path = paths + used;
    used += (size_t)snprintf(path, sizeof paths - used, "%s/%s", temp_folder, name) + 1;
    assert_true(used <= sizeof paths);
    return path;
}

/* Writes a file at a path. The file is always a new one, because some file systems flush to disk
 * what is truncated and written again. */
static inline void write_bytes(const char *path, const void *bytes, size_t n) {
    unlink(path);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) { fail_msg("cannot write %s", path); }
}

/* Writes a text into the folder. Returns its path. */
static inline const char *put_text(const char *name, const char *text) {
    const char *path = in_temp_folder(name);
    write_bytes(path, text, strlen(text));
    return path;
}

/* Returns a file's bytes with a NUL behind them, which the caller frees. n receives their
 * number; it may be NULL. */
static inline void *file_bytes(const char *path, size_t *n) {
    char *bytes = NULL;
    size_t size;
    OK(ckvc_file_read(path, (size_t)1 << 28, &bytes, n ? n : &size, &err));
    return bytes;
}

/* Runs a command that must succeed. */
static inline void shell(const char *format, ...) {
    char command[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    if (system(command) != 0) { fail_msg("%s", command); }
}
