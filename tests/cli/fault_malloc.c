/* A malloc, preloaded, for which memory is out: of the calls that ask for at least FAULT_SIZE
 * bytes, number FAULT_AT and all after it get NULL. The number of such calls so far stands in the
 * file FAULT_COUNT. Built and used by memory.bats. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t n);

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static void tell(long calls) {
    static int file = -2;
    char text[24];
    if (file == -2) {
        const char *path = getenv("FAULT_COUNT");
        file = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    }
    const int n = snprintf(text, sizeof text, "%-12ld\n", calls);
    if (file >= 0 && pwrite(file, text, (size_t)n, 0) != n) { abort(); }
}

static int is_out(size_t bytes) {
    static atomic_long calls;
    static long least, first;
    if (!least) {
        least = number("FAULT_SIZE", 65536);
        first = number("FAULT_AT", -1);
    }
    if (bytes < (size_t)least) { return 0; }
    const long at = ++calls;
    tell(at);
    if (first < 0 || at < first) { return 0; }
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n) { return is_out(n) ? NULL : __libc_malloc(n); }

void *calloc(size_t n, size_t size) { return is_out(n * size) ? NULL : __libc_calloc(n, size); }

void *realloc(void *old, size_t n) { return is_out(n) ? NULL : __libc_realloc(old, n); }
