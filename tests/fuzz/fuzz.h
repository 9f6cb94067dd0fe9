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

/* FUZZ { ... } is a target: what is done with one input, `err` empty before it. */
#define FUZZ                                                                                       \
    static void fuzz_one(const uint8_t *data, size_t size, ckvc_err *err);                         \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {                                 \
        fuzz_one(data, size, &(ckvc_err){0});                                                      \
        return 0;                                                                                  \
    }                                                                                              \
    static void fuzz_one(const uint8_t *data, size_t size, ckvc_err *err)

static inline void must_hold(int holds, const char *what, const char *file, int line) {
    if (holds) { return; }
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}
#define must(what) must_hold((what) ? 1 : 0, #what, __FILE__, __LINE__)

/* One line that says something. */
static inline bool fuzz_one_line(const char *text) { return *text && !strpbrk(text, "\n\r"); }

/* Whether a step took its input. What every refusal has: a status, and one line that says it; err
 * is empty again behind it. */
static inline bool fuzz_took(ckvc_status status, ckvc_err *err) {
    if (status == CKVC_OK) { return true; }
    must(err->status == status && fuzz_one_line(err->text));
    must(status != CKVC_E_BUG);
    *err = (ckvc_err){0};
    return false;
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
        below = below ? below : "/tmp";
        snprintf(fuzz_folder_name, sizeof fuzz_folder_name, "%s/ckvc-fuzz-XXXXXX", below);
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
    must(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
    return path;
}

/* An input of several texts, NUL bytes between them: each into the file of its name. */
#define fuzz_parts(data, size, ...)                                                                \
    fuzz_put_parts(data, size, (const char *const[]){__VA_ARGS__, NULL})
static inline void fuzz_put_parts(const uint8_t *data, size_t size, const char *const *names) {
    for (size_t at = 0; *names; names++) {
        unlink(fuzz_path(*names));
        if (at > size) { continue; }
        const uint8_t *end = at < size ? memchr(data + at, 0, size - at) : NULL;
        const size_t n = (end ? (size_t)(end - data) : size) - at;
        fuzz_file(*names, data + at, n);
        at += n + 1;
    }
}

/* Reads every byte: what lies outside of a mapping or a block is found by it. */
static inline unsigned fuzz_touch(const void *bytes, size_t n) {
    static volatile unsigned seen;
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++) { sum += ((const uint8_t *)bytes)[i]; }
    return seen = sum;
}
