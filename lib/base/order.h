/* Comparison functions for qsort and bsearch: numbers ascending, texts in byte order. They also
 * order structs by their first member, if it has the function's type. */
#pragma once

#include <stdint.h>
#include <string.h>

/* Neither double may be NaN. */
static inline int ckvc_order_double(const void *pa, const void *pb) {
    const double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}

static inline int ckvc_order_u32(const void *pa, const void *pb) {
    const uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
    return (a > b) - (a < b);
}

static inline int ckvc_order_u64(const void *pa, const void *pb) {
    const uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;
    return (a > b) - (a < b);
}

static inline int ckvc_order_text(const void *pa, const void *pb) {
    return strcmp(*(const char *const *)pa, *(const char *const *)pb);
}
