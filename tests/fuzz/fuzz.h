/* What the fuzz targets share: the entry that libFuzzer and replay.c call, and a folder of the
 * process's own for readers that take paths. Below TMPDIR, else /tmp; removed at exit.
 *
 * A reader may refuse any input, but in one line; what it accepts must keep its promises, which a
 * target holds with `must`. */
#pragma once

#include <ftw.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/memory.h"
#include "lib/base/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void must_hold(int holds, const char *what, const char *file, int line) {
    if (holds) { return; }
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}
#define must(what) must_hold((what) ? 1 : 0, #what, __FILE__, __LINE__)

/* What every failure has: a status, and one line that says it. */
static inline void must_refuse_well(ckvc_status status, const ckvc_err *err) {
    must(err->status == status && *err->text && !strpbrk(err->text, "\n\r"));
    must(status != CKVC_E_BUG);
}

static char fuzz_folder_name[256];

static inline int fuzz_remove_one(const char *path, const struct stat *info, int kind,
                                  struct FTW *at) {
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static inline void fuzz_folder_remove(void) {
    (void)nftw(fuzz_folder_name, fuzz_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline const char *fuzz_folder(void) {
    if (!*fuzz_folder_name) {
        const char *below = getenv("TMPDIR");
        snprintf(fuzz_folder_name, sizeof fuzz_folder_name, "%s/ckvc-fuzz-XXXXXX",
                 below ? below : "/tmp");
        must(mkdtemp(fuzz_folder_name));
        atexit(fuzz_folder_remove);
    }
    return fuzz_folder_name;
}

/* The path of a file or folder in it, in one of four buffers that take turns. */
static inline const char *fuzz_path(const char *name) {
    static char paths[4][512];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", fuzz_folder(), name);
    return path;
}

static inline const char *fuzz_file(const char *name, const void *data, size_t size) {
    const char *path = fuzz_path(name);
    FILE *f = fopen(path, "wb");
    must(f && fwrite(data, 1, size, f) == size);
    must(fclose(f) == 0);
    return path;
}

/* An input of several texts: the one that begins at *at, up to a NUL byte or the end; *at moves
 * behind it. False: there is none left. */
static inline bool fuzz_part(const uint8_t *data, size_t size, size_t *at, const uint8_t **part,
                             size_t *n) {
    if (*at > size) { return false; }
    const uint8_t *end = *at < size ? memchr(data + *at, 0, size - *at) : NULL;
    *part = data + *at;
    *n = (end ? (size_t)(end - data) : size) - *at;
    *at += *n + 1;
    return true;
}

/* Reads every byte: what lies outside of a mapping or a block is found by it. */
static inline unsigned fuzz_touch(const void *bytes, size_t n) {
    static volatile unsigned seen;
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++) { sum += ((const uint8_t *)bytes)[i]; }
    return seen = sum;
}
