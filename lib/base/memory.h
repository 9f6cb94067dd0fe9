/* Allocation that cannot fail, release at the end of a scope, and the guard that forbids allocation
 * in hot loops of debug builds.
 *
 * When memory runs out, or a product of sizes overflows, the process ends: ckvc_out_of_memory says
 * so in one line, and the exit code is 71. What a run has published stays, and --resume continues
 * from it. So no caller tests these results. Two places are exceptions: lib/policy, which engines
 * embed, uses nothing of this; and --memory is a limit of its own, where exceeding it is a
 * CKVC_E_MEMORY.
 *
 * The caller owns the memory and frees it with free(). Where n * size is 0 the pointer is still a
 * unique one. */
#pragma once

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/status.h"

/* Everywhere below, n is a number of elements and `size` the bytes of one of them. In
 * ckvc_out_of_memory they serve the message. */
_Noreturn void ckvc_out_of_memory(size_t n, size_t size);
void *ckvc_alloc(size_t n, size_t size);         /* not zeroed */
void *ckvc_calloc(size_t n, size_t size);        /* zeroed */
void *ckvc_alloc_aligned(size_t n, size_t size); /* 64-byte aligned, not zeroed */
/* Makes an array from the functions above, except the aligned one, n elements long. `old` may be
 * NULL; its elements are kept as far as there is room. */
void *ckvc_realloc_array(void *old, size_t n, size_t size);
void *ckvc_copy(const void *from, size_t n, size_t size); /* a copy of n elements */
char *ckvc_strdup(const char *text);
/* Copies n bytes, which may hold NULs, and puts a NUL behind them. */
char *ckvc_text_copy(const char *text, size_t n);
char *ckvc_format(const char *fmt, ...) CKVC_PRINTF(1, 2); /* asprintf */

/* Grows an array by doubling until it has room for at least `need` elements; `capacity` counts
 * elements: CKVC_GROW(list, cap, n + 1); list[n++] = ... */
#define CKVC_GROW(array, capacity, need)                                                           \
    ((array) = ckvc_grown((array), &(capacity), (need), sizeof *(array)))
void *ckvc_grown(void *array, size_t *capacity, size_t need, size_t size);

/* A variable declared CKVC_AUTO(release) is released on every way out of its scope: `release` is
 * called with its address. CKVC_AUTO_FREE does this for pointers from malloc. For a type whose
 * release function takes the pointer itself, CKVC_AUTO_OF makes one that takes its address:
 * CKVC_AUTO_OF(shard, shard_free) declares shard_free_at, for `CKVC_AUTO(shard_free_at) shard *s =
 * NULL;`. Always initialise such a variable. ckvc_take(&p) hands the pointer on and leaves NULL in
 * p. For a json_t use jansson's json_auto_t. */
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

/* Takes the const off a pointer, for functions that only read but are not declared so. */
static inline void *ckvc_unconst(const void *p) {
    void *q;
    memcpy(&q, &p, sizeof q);
    return q;
}

/* Frees each of the pointers, const ones too: CKVC_FREE(list, names, map.slots). */
#define CKVC_FREE(...)                                                                             \
    ckvc_free_all((const void *const[]){__VA_ARGS__},                                              \
                  sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *))
static inline void ckvc_free_all(const void *const *list, size_t n) {
    for (size_t i = 0; i < n; i++) { free(ckvc_unconst(list[i])); }
}

/* The bytes that can be allocated without swapping: what the kernel calls available, but no more
 * than the control group's limit leaves. */
size_t ckvc_available_memory(void);

/* The guard. Between ckvc_alloc_forbid and ckvc_alloc_permit, which may be nested, no thread may
 * call any of the functions above. Debug builds (CKVC_DEBUG) then end the process with `where` and
 * the size that was asked for; other builds check nothing. It keeps the loops over prompts and
 * rollouts free of allocation. */
#ifdef CKVC_DEBUG
void ckvc_alloc_forbid(const char *where);
void ckvc_alloc_permit(void);
#else
static inline void ckvc_alloc_forbid(const char *where) { (void)where; }
static inline void ckvc_alloc_permit(void) {}
#endif
