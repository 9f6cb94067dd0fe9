/* Allocation that cannot fail: see memory.h. */
#include "lib/base/memory.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "lib/base/sizes.h"

/* ---- the guard ---- */

#ifdef CKVC_DEBUG
static atomic_int forbidden;
static const char *_Atomic forbidden_where;

void ckvc_alloc_forbid(const char *where) {
    atomic_store(&forbidden_where, where);
    atomic_fetch_add(&forbidden, 1);
}

void ckvc_alloc_permit(void) { atomic_fetch_sub(&forbidden, 1); }

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

void ckvc_out_of_memory(size_t n, size_t size) {
    dprintf(STDERR_FILENO,
            "ckvc: out of memory: %zu x %zu bytes are not to be had; what is on disk stays, and a "
            "run goes on with --resume\n",
            n, size);
    _exit(ckvc_exit_code(CKVC_E_MEMORY));
}

static size_t checked_bytes(size_t n, size_t size) {
    size_t bytes;
    check_allowed(n, size);
    if (!ckvc_mul_size(n, size, &bytes) || bytes > PTRDIFF_MAX - 64) {
        ckvc_out_of_memory(n, size);
    }
    return bytes ? bytes : 1;
}

static void *checked(void *memory, size_t n, size_t size) {
    if (!memory) { ckvc_out_of_memory(n, size); }
    return memory;
}

void *ckvc_alloc(size_t n, size_t size) { return checked(malloc(checked_bytes(n, size)), n, size); }

void *ckvc_calloc(size_t n, size_t size) {
    return checked(calloc(checked_bytes(n, size), 1), n, size);
}

void *ckvc_alloc_aligned(size_t n, size_t size) {
    return checked(aligned_alloc(64, (checked_bytes(n, size) + 63) / 64 * 64), n, size);
}

void *ckvc_realloc_array(void *old, size_t n, size_t size) {
    return checked(realloc(old, checked_bytes(n, size)), n, size);
}

void *ckvc_copy(const void *from, size_t n, size_t size) {
    void *copy = ckvc_alloc(n, size);
    if (n) { memcpy(copy, from, n * size); }
    return copy;
}

char *ckvc_text_copy(const char *text, size_t n) {
    char *copy = ckvc_alloc(n + 1, 1);
    if (n) { memcpy(copy, text, n); }
    copy[n] = '\0';
    return copy;
}

char *ckvc_strdup(const char *text) { return ckvc_text_copy(text, strlen(text)); }

char *ckvc_format(const char *fmt, ...) {
    va_list args;
    char *text = NULL;
    check_allowed(1, strlen(fmt));
    va_start(args, fmt);
    const int n = vasprintf(&text, fmt, args);
    va_end(args);
    if (n < 0) { ckvc_out_of_memory(1, strlen(fmt)); }
    return text;
}

void *ckvc_grown(void *array, size_t *capacity, size_t need, size_t size) {
    if (need <= *capacity) { return array; }
    size_t wanted = *capacity < 8 ? 8 : *capacity;
    while (wanted < need) { wanted = wanted > SIZE_MAX / 2 ? need : 2 * wanted; }
    *capacity = wanted;
    return ckvc_realloc_array(array, wanted, size);
}

/* Reads a file of the kernel's and returns the number after `name`, at the beginning of a line
 * ("MemFree:  N kB"), multiplied by `unit`. SIZE_MAX where there is no number ("max", or no such
 * file). */
static size_t kernel_number(const char *path, const char *name, size_t unit) {
    char line[256];
    size_t found = SIZE_MAX;
    FILE *f = fopen(path, "re");
    while (f && found == SIZE_MAX && fgets(line, sizeof line, f)) {
        const size_t n = strlen(name);
        if (strncmp(line, name, n) != 0) { continue; }
        char *end;
        const unsigned long long v = strtoull(line + n, &end, 10);
        if (end != line + n && v < SIZE_MAX / unit) { found = (size_t)v * unit; }
    }
    if (f) { fclose(f); }
    return found;
}

size_t ckvc_available_memory(void) {
    size_t available = kernel_number("/proc/meminfo", "MemAvailable:", 1024);
    if (available == SIZE_MAX) { available = kernel_number("/proc/meminfo", "MemFree:", 1024); }
    const size_t limit = kernel_number("/sys/fs/cgroup/memory.max", "", 1),
                 used = kernel_number("/sys/fs/cgroup/memory.current", "", 1);
    if (limit != SIZE_MAX && used != SIZE_MAX) {
        const size_t left = limit > used ? limit - used : 0;
        available = left < available ? left : available;
    }
    return available == SIZE_MAX ? (size_t)1 << 30 : available;
}
