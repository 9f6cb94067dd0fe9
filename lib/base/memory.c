/* Allocation with checked sizes: see memory.h. */
#include "lib/base/memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/sizes.h"

void *ckvc_alloc(size_t n, size_t size)
{
    size_t bytes;
    return ckvc_mul_size(n, size, &bytes) ? malloc(bytes ? bytes : 1) : NULL;
}

void *ckvc_calloc(size_t n, size_t size)
{
    return n && size ? calloc(n, size) : calloc(1, 1);
}

void *ckvc_alloc_aligned(size_t n, size_t size)
{
    size_t bytes;
    if (!ckvc_mul_size(n, size, &bytes) || bytes > SIZE_MAX - 64) {
        return NULL;
    }
    return aligned_alloc(64, bytes ? (bytes + 63) / 64 * 64 : 64);
}

void *ckvc_realloc_array(void *old, size_t n, size_t size)
{
    size_t bytes;
    return ckvc_mul_size(n, size, &bytes) ? realloc(old, bytes ? bytes : 1) : NULL;
}

char *ckvc_strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

char *ckvc_format(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = NULL;
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    return n < 0 ? NULL : text;
}

ckvc_status ckvc_grow(void **array, size_t *capacity, size_t need, size_t size, ckvc_err *err)
{
    if (need <= *capacity) {
        return CKVC_OK;
    }
    size_t wanted = *capacity < 8 ? 8 : *capacity;
    while (wanted < need) {
        if (wanted > SIZE_MAX / 2) {
            wanted = need;
            break;
        }
        wanted *= 2;
    }
    void *grown = ckvc_realloc_array(*array, wanted, size);
    if (!grown) {
        return ckvc_fail_memory(err, "a growing list", need * size);
    }
    *array = grown;
    *capacity = wanted;
    return CKVC_OK;
}

ckvc_status ckvc_fail_memory(ckvc_err *err, const char *what, size_t bytes)
{
    return ckvc_fail(err, CKVC_E_MEMORY, "out of memory: %s needs %zu bytes", what, bytes);
}
