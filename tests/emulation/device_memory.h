/* Between emulation.cc and runtime.cc: what lies in device memory, and what a stream has to do. */
#pragma once

#include <cuda_runtime.h>
#include <functional>
#include <stdint.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

namespace emulation {
[[noreturn]] void stop(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool in_device_memory(const void *p, size_t n);
/* What lies beside allocations: NaN as float and as bf16, and not the NaN that memory begins as. */
static inline unsigned char zone_byte(const unsigned char *at) {
    return (uintptr_t)at & 1 ? 0xff : 0xf5;
}
static inline void fill_zone(unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++) { p[i] = zone_byte(p + i); }
}
static inline bool zone_is_whole(const unsigned char *p, size_t n) {
    size_t i = 0;
    while (i < n && p[i] == zone_byte(p + i)) { i++; }
    return i == n;
}
/* That nothing was written beside an allocation. */
void check_guards(const char *after);
/* Does it when somebody waits for the stream, or for an event behind it, and not before. */
void enqueue(cudaStream_t stream, std::function<void()> work);
} // namespace emulation
