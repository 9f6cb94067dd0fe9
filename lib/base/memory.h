/* Allocation with checked sizes, and the guard that forbids allocation in hot loops of debug
 * builds.
 *
 * ckvc_alloc and ckvc_calloc return NULL for an overflowing product or when memory is out; n*size
 * == 0 gives a unique pointer. Memory is the caller's: free() it. ckvc_realloc_array keeps the old
 * block when it fails.
 */
#ifndef CKVC_BASE_MEMORY_H
#define CKVC_BASE_MEMORY_H

#include <stddef.h>

#include "lib/base/status.h"

void *ckvc_alloc(size_t n, size_t size);
void *ckvc_calloc(size_t n, size_t size);        /* zeroed */
void *ckvc_alloc_aligned(size_t n, size_t size); /* 64-byte aligned, not zeroed; free() it */
void *ckvc_realloc_array(void *old, size_t n, size_t size);
char *ckvc_strdup(const char *text);
char *ckvc_format(const char *fmt, ...)
    CKVC_PRINTF(1, 2); /* asprintf that returns NULL on failure */

/* Makes room for at least `need` elements in a growing array (doubling); *capacity counts elements.
 */
ckvc_status ckvc_grow(void **array, size_t *capacity, size_t need, size_t size,
                      ckvc_err *err) CKVC_MUST_CHECK;

/* Bytes that can be had without swapping: what the kernel calls available, and no more than the
 * control group's limit leaves. */
size_t ckvc_available_memory(void);

/* The guard: between forbid and permit (they nest) none of the functions above may be called by any
 * thread. Debug builds (CKVC_DEBUG) end the process with `where` and the caller's size; others do
 * nothing. It keeps the loops over prompts and rollouts free of allocation. */
#ifdef CKVC_DEBUG
void ckvc_alloc_forbid(const char *where);
void ckvc_alloc_permit(void);
#else
static inline void ckvc_alloc_forbid(const char *where) {
    (void)where;
}
static inline void ckvc_alloc_permit(void) {
}
#endif

/* The usual line for memory that is out: "out of memory: WHAT needs N bytes". */
ckvc_status ckvc_fail_memory(ckvc_err *err, const char *what, size_t bytes);

#endif
