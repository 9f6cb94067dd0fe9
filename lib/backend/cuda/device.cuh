/* What kernels are written with: launches, the sums of a warp, bf16, and the three instructions for
 * which C++ has no words (mma, ldmatrix, cp.async), as inline PTX. With CKVC_CUDA_EMULATED the same
 * names run on the CPU (tests/emulation). Therefore kernels use only what is defined here;
 * threadIdx, blockIdx, blockDim, gridDim, __shared__, __syncthreads, __syncwarp; __shfl_xor_sync
 * with all 32 lanes; and plain C++.
 *
 * Fragments of mma.m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"), where g = lane / 4 and
 * t = lane % 4, with the lower half of a register first:
 *
 *   a[0] = A[g][2t, 2t+1]          a[1] = A[g+8][2t, 2t+1]
 *   a[2] = A[g][2t+8, 2t+9]        a[3] = A[g+8][2t+8, 2t+9]
 *   b[0] = B[2t, 2t+1][g]          b[1] = B[2t+8, 2t+9][g]
 *   d[0], d[1] = D[g][2t, 2t+1]    d[2], d[3] = D[g+8][2t, 2t+1] */
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

#ifdef CKVC_CUDA_EMULATED
#include <emulation.h>
#else

/* The types of the arguments are deduced from the kernel alone. */
template <class T> struct same_type { using type = T; };

/* An error (too many threads, too much shared memory) is left in cudaGetLastError. */
template <class... P>
static void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                   cudaStream_t stream, typename same_type<P>::type... args) {
    if (shared_bytes > 48 * 1024) {
        const cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
        if (cudaFuncSetAttribute((const void *)kernel, most, (int)shared_bytes)) { return; }
    }
    kernel<<<grid, block, shared_bytes, stream>>>(args...);
}
/* LAUNCH(kernel, grid, block, shared_bytes, stream, args...); a kernel with several template
 * arguments in parentheses: LAUNCH((kernel<64, true>), ...) */
#define LAUNCH(...)          launch(__VA_ARGS__)

/* The launch's shared_bytes, as an array of bytes. */
#define DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]

static __device__ __forceinline__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* d += A B, with bf16 factors and float32 sums. All lanes must call it. */
static __device__ __forceinline__ void mma_bf16_16816(float d[4], const uint32_t a[4],
                                                      const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Loads four 8 x 8 matrices of 16-bit values from shared memory. Lane i gives the address of row i
 * % 8 of matrix i / 8 (16 bytes, aligned); r[m] = M_m[lane / 4][2 (lane % 4), + 1]. */
static __device__ __forceinline__ void ldmatrix_x4(uint32_t r[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
/* Does the same, transposed: r[m] = M_m[2 (lane % 4), + 1][lane / 4]. */
static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t r[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* Copies 16 bytes, both sides aligned to 16. They have arrived after this thread's cp_async_wait
 * (for other threads after a barrier behind it). Where not valid it writes zeros and does not read
 * `global`. */
static __device__ __forceinline__ void cp_async_16(void *shared, const void *global, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
                 : "memory");
}
static __device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most N of this thread's groups are under way. */
template <int N> static __device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Rounds two floats to bf16, to nearest even, with `lo` in the lower half. */
static __device__ __forceinline__ uint32_t pack_bf16(float lo, float hi) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(hi), "f"(lo));
    return packed;
}
static __device__ __forceinline__ float float_of_bits(uint32_t bits) {
    return __uint_as_float(bits);
}
/* 2^x by one instruction, at most 2 ulp off; results below 2^-126 are 0. */
static __device__ __forceinline__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

static __device__ __forceinline__ float bf16_lo(uint32_t packed) {
    return float_of_bits(packed << 16);
}
static __device__ __forceinline__ float bf16_hi(uint32_t packed) {
    return float_of_bits(packed & 0xffff0000u);
}
static __device__ __forceinline__ uint16_t bf16_of(float x) { return (uint16_t)pack_bf16(x, 0.0f); }
static __device__ __forceinline__ float bf16_to_float(uint16_t x) {
    return float_of_bits((uint32_t)x << 16);
}

#define ALL_LANES 0xffffffffu
/* The sum over the warp, with the same bits in every lane: float addition commutes, so both sides
 * of each exchange compute the same value. */
template <class T> static __device__ __forceinline__ T warp_sum(T x) {
    for (int step = 16; step; step /= 2) { x += __shfl_xor_sync(ALL_LANES, x, step); }
    return x;
}
template <class T> static __device__ __forceinline__ T warp_max(T x) {
    for (int step = 16; step; step /= 2) {
        const T other = __shfl_xor_sync(ALL_LANES, x, step);
        x = other > x ? other : x;
    }
    return x;
}
/* Returns the sum over a block of N threads to each of them, adding warps in their order. All calls
 * in a kernel use the same shared memory, so a __syncthreads must stand between two of them. */
template <int N> static __device__ __forceinline__ double block_sum(double x) {
    __shared__ double warps[N / 32];
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) { warps[threadIdx.x / 32] = x; }
    __syncthreads();
    double sum = 0;
    for (int i = 0; i < N / 32; i++) { sum += warps[i]; }
    return sum;
}
