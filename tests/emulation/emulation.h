/* The device side of lib/backend/cuda/device.cuh on the CPU: README.md. Every thread of a block is
 * a fiber; blocks run one after the other, on one OS thread at a time, so plain globals hold what
 * belongs to the running one. */
#pragma once

#include <cuda_runtime.h>
#include <functional>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <tuple>
#include <type_traits>

#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
/* In a section of their own, which the emulator fills with NaN before every block. */
#define __shared__           static __attribute__((section("cuda_shared")))
#define DYNAMIC_SHARED(name) unsigned char *const name = emulation::dynamic_shared

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

/* The order of blocks, warps, lanes and copies: 0 as they are numbered, else drawn; odd ones let
 * each warp run ahead. CKVC_EMULATED_SEED before the first kernel. */
extern "C" void emulation_set_seed(uint64_t seed);
/* How often device memory or pinned memory was taken so far. */
extern "C" uint64_t emulation_allocations(void);

namespace emulation {
extern unsigned char *dynamic_shared;

/* Where in the source a thread waits. */
struct site {
    const char *what, *file;
    int line;
};
#define HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

[[noreturn]] void stop(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Gives `mine` and waits for the other lanes; the last one runs `all` on what every lane gave. */
void together(site where, void *mine, void (*all)(void **lanes));
void barrier(site where);
void copy_later(void *shared, const void *global, bool valid);
void commit_copies();
void wait_copies(int groups);
/* That p ... p + n - 1 lie in the block's shared memory, aligned to n. */
void check_shared(const char *what, const void *p, size_t n);
void check_argument(const void *value, size_t n, bool is_pointer);

struct launch_shape {
    const char *kernel;
    dim3 grid, block;
    size_t shared_bytes;
};
void enqueue_kernel(const launch_shape &shape, cudaStream_t stream, std::function<void()> thread);

template <class... P>
void launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
            cudaStream_t stream, std::type_identity_t<P>... args) {
    (check_argument(&args, sizeof args, std::is_pointer<P>::value), ...);
    std::tuple<P...> kept(args...);
    enqueue_kernel({name, grid, block, shared_bytes}, stream,
                   [kernel, kept] { std::apply(kernel, kept); });
}

template <class T> T shuffle(site where, T x, int mask) {
    struct one {
        T x;
        int mask;
        T got;
    } mine = {x, mask, x};
    together(where, &mine, [](void **lanes) {
        for (int i = 0; i < 32; i++) {
            one *o = (one *)lanes[i];
            o->got = ((one *)lanes[(i ^ o->mask) & 31])->x;
        }
    });
    return mine.got;
}
static inline void full(unsigned mask, const char *what) {
    if (mask != 0xffffffffu) {
        stop("%s with mask %08x: the emulation knows whole warps", what, mask);
    }
}
} // namespace emulation

#define LAUNCH(kernel, ...) emulation::launch(#kernel, kernel, __VA_ARGS__)

static inline void __syncthreads(HERE) { emulation::barrier({"__syncthreads", file, line}); }
static inline void __syncwarp(unsigned mask = 0xffffffffu, HERE) {
    emulation::full(mask, "__syncwarp");
    emulation::together({"__syncwarp", file, line}, nullptr, [](void **) {});
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T x, int step, HERE) {
    emulation::full(mask, "__shfl_xor_sync");
    return emulation::shuffle({"__shfl_xor_sync", file, line}, x, step);
}

static inline float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline float exp2_of(float x) { return x < -126.0f ? 0.0f : exp2f(x); }
static inline uint32_t bf16_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}
static inline uint32_t pack_bf16(float lo, float hi) { return bf16_bits(lo) | bf16_bits(hi) << 16; }

static inline void cp_async_16(void *shared, const void *global, bool valid) {
    emulation::copy_later(shared, global, valid);
}
static inline void cp_async_commit() { emulation::commit_copies(); }
template <int N> static inline void cp_async_wait() { emulation::wait_copies(N); }

void mma_bf16_16816(float d[4], const uint32_t a[4], const uint32_t b[2], HERE);
void ldmatrix_x4(uint32_t r[4], const void *row, HERE);
void ldmatrix_x4_trans(uint32_t r[4], const void *row, HERE);
