/* Allocation that cannot fail, release at the end of a scope, and the guard that forbids allocation
 * in hot loops of debug builds.
 *
 * Memory that is out, or a product of sizes that overflows, ends the process: ckvc_out_of_memory
 * says so in one line, exit code 71. What a run has published stays, and --resume goes on from it.
 * So nobody tests these results. lib/policy, which engines embed, has none of this; --memory is a
 * limit of its own, and running into that is a CKVC_E_MEMORY.
 *
 * Memory is the caller's: free() it. n * size == 0 gives a unique pointer. */
#pragma once

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/status.h"

_Noreturn void ckvc_out_of_memory(size_t n, size_t size);
void *ckvc_alloc(size_t n, size_t size);
void *ckvc_calloc(size_t n, size_t size);        /* zeroed */
void *ckvc_alloc_aligned(size_t n, size_t size); /* 64-byte aligned, not zeroed */
void *ckvc_realloc_array(void *old, size_t n, size_t size);
void *ckvc_copy(const void *from, size_t n, size_t size);
char *ckvc_strdup(const char *text);
char *ckvc_text_copy(const char *text, size_t n); /* n bytes, which may hold NULs; a NUL behind */
char *ckvc_format(const char *fmt, ...) CKVC_PRINTF(1, 2); /* asprintf */

/* Makes room for at least `need` elements in a growing array (doubling); `capacity` counts
 * elements: CKVC_GROW(list, cap, n + 1); list[n++] = ... */
#define CKVC_GROW(array, capacity, need)                                                           \
    ((array) = ckvc_grown((array), &(capacity), (need), sizeof *(array)))
void *ckvc_grown(void *array, size_t *capacity, size_t need, size_t size);

/* A variable declared CKVC_AUTO(release) is released when it leaves its scope, on every way out:
 * `release` is called with its address. CKVC_AUTO_FREE is that of malloc's pointers; for a type
 * whose release takes the pointer itself CKVC_AUTO_OF makes one: CKVC_AUTO_OF(shard, shard_free)
 * declares shard_free_at, and `CKVC_AUTO(shard_free_at) shard *s = NULL;`. Always initialise it;
 * ckvc_take(&p) hands the pointer on and leaves NULL. json_t has jansson's json_auto_t. */
#define CKVC_AUTO(release) __attribute__((cleanup(release)))
#define CKVC_AUTO_FREE     CKVC_AUTO(ckvc_free_at)
#define CKVC_AUTO_OF(type, release)                                                                \
    static inline void release##_at(type **p) { release(*p); }
static inline void *ckvc_take(void *pointer_at) {
    void *p, *none = NULL;
    memcpy(&p, pointer_at, sizeof p);
    memcpy(pointer_at, &none, sizeof none);
    return p;
}
static inline void ckvc_free_at(void *pointer_at) { free(ckvc_take(pointer_at)); }

/* Takes the const off, for callees that only look and forgot to say so. */
static inline void *ckvc_unconst(const void *p) {
    void *q;
    memcpy(&q, &p, sizeof q);
    return q;
}

/* free() of each, of const ones too: CKVC_FREE(list, names, map.slots). */
#define CKVC_FREE(...)                                                                             \
    ckvc_free_all((const void *const[]){__VA_ARGS__},                                              \
                  sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *))
static inline void ckvc_free_all(const void *const *list, size_t n) {
    for (size_t i = 0; i < n; i++) { free(ckvc_unconst(list[i])); }
}

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
static inline void ckvc_alloc_forbid(const char *where) { (void)where; }
static inline void ckvc_alloc_permit(void) {}
#endif
