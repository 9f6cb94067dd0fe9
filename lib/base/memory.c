/* Allocation with checked sizes: see memory.h. */
#include "lib/base/memory.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/sizes.h"

/* ---- the guard ---- */

#ifdef CKVC_DEBUG
static atomic_int forbidden;
static const char *_Atomic forbidden_where;

void ckvc_alloc_forbid(const char *where) {
    atomic_store(&forbidden_where, where);
    atomic_fetch_add(&forbidden, 1);
}

void ckvc_alloc_permit(void) {
    atomic_fetch_sub(&forbidden, 1);
}

static void check_allowed(size_t n, size_t size) {
    if (atomic_load(&forbidden) > 0) {
        fprintf(stderr, "ckvc: bug: %zu x %zu bytes allocated in %s\n", n, size,
                atomic_load(&forbidden_where));
        abort();
    }
}
#else
static void check_allowed(size_t n, size_t size) {
    (void)n;
    (void)size;
}
#endif

/* ---- allocation ---- */

void *ckvc_alloc(size_t n, size_t size) {
    size_t bytes;
    check_allowed(n, size);
    return ckvc_mul_size(n, size, &bytes) ? malloc(bytes ? bytes : 1) : NULL;
}

void *ckvc_calloc(size_t n, size_t size) {
    check_allowed(n, size);
    return n && size ? calloc(n, size) : calloc(1, 1);
}

void *ckvc_alloc_aligned(size_t n, size_t size) {
    size_t bytes;
    check_allowed(n, size);
    if (!ckvc_mul_size(n, size, &bytes) || bytes > SIZE_MAX - 64) { return NULL; }
    return aligned_alloc(64, bytes ? (bytes + 63) / 64 * 64 : 64);
}

void *ckvc_realloc_array(void *old, size_t n, size_t size) {
    size_t bytes;
    check_allowed(n, size);
    return ckvc_mul_size(n, size, &bytes) ? realloc(old, bytes ? bytes : 1) : NULL;
}

char *ckvc_strdup(const char *text) {
    size_t n = strlen(text) + 1;
    check_allowed(n, 1);
    char *copy = malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

char *ckvc_format(const char *fmt, ...) {
    va_list args;
    check_allowed(1, strlen(fmt));
    va_start(args, fmt);
    char *text = NULL;
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    return n < 0 ? NULL : text;
}

ckvc_status ckvc_grow(void **array, size_t *capacity, size_t need, size_t size, ckvc_err *err) {
    if (need <= *capacity) { return CKVC_OK; }
    size_t wanted = *capacity < 8 ? 8 : *capacity;
    while (wanted < need) {
        if (wanted > SIZE_MAX / 2) {
            wanted = need;
            break;
        }
        wanted *= 2;
    }
    void *grown = ckvc_realloc_array(*array, wanted, size);
    if (!grown) { return ckvc_fail_memory(err, "a growing list", need * size); }
    *array = grown;
    *capacity = wanted;
    return CKVC_OK;
}

/* "NAME:   N kB" of /proc/meminfo in bytes, or SIZE_MAX. */
static size_t meminfo(const char *name) {
    char line[256];
    unsigned long long kb;
    size_t found = SIZE_MAX;
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && found == SIZE_MAX && fgets(line, sizeof line, f)) {
        size_t n = strlen(name);
        if (strncmp(line, name, n) == 0 && sscanf(line + n, ": %llu kB", &kb) == 1) {
            found = (size_t)kb * 1024;
        }
    }
    if (f) { fclose(f); }
    return found;
}

/* The number that a control group's file holds; "max", or no such file, is SIZE_MAX. */
static size_t cgroup_number(const char *path) {
    unsigned long long n;
    FILE *f = fopen(path, "re");
    const bool read = f && fscanf(f, "%llu", &n) == 1;
    if (f) { fclose(f); }
    return read && n < SIZE_MAX ? (size_t)n : SIZE_MAX;
}

size_t ckvc_available_memory(void) {
    size_t available = meminfo("MemAvailable");
    if (available == SIZE_MAX) { available = meminfo("MemFree"); }
    const size_t limit = cgroup_number("/sys/fs/cgroup/memory.max"),
                 used = cgroup_number("/sys/fs/cgroup/memory.current");
    if (limit != SIZE_MAX && used != SIZE_MAX) {
        const size_t left = limit > used ? limit - used : 0;
        available = left < available ? left : available;
    }
    return available == SIZE_MAX ? (size_t)1 << 30 : available;
}

ckvc_status ckvc_fail_memory(ckvc_err *err, const char *what, size_t bytes) {
    return ckvc_fail(err, CKVC_E_MEMORY, "out of memory: %s needs %zu bytes", what, bytes);
}
