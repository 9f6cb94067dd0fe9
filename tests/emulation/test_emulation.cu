/* device.cuh's vocabulary against plain loops: on the CPU the emulation's reading of it, on a GPU
 * the instructions themselves. Emulated, also that what would be wrong on a GPU is found. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
extern "C" {
#include "tests/unit/unit.h"
}

#include "lib/backend/cuda/device.cuh"

static void *device(size_t n) {
    void *p = NULL;
    assert_int_equal(cudaMalloc(&p, n), cudaSuccess);
    return p;
}
static void up(void *to, const void *from, size_t n) {
    assert_int_equal(cudaMemcpy(to, from, n, cudaMemcpyHostToDevice), cudaSuccess);
}
static void down(void *to, const void *from, size_t n) {
    assert_int_equal(cudaMemcpy(to, from, n, cudaMemcpyDeviceToHost), cudaSuccess);
}

/* ---- products ---- */

/* D[16][16] = A[16][16] B[16][16], B as it is and transposed, one warp; by ldmatrix or by hand. */
__global__ void product(bool by_ldmatrix, const uint16_t *a, float *d) {
    const uint16_t *const b = a + 256, *const bt = b + 256;
    float *const d_of_bt = d + 256;
    __shared__ __align__(16) uint16_t as[16][24], bs[16][24], bts[16][24]; /* rows of 48 bytes */
    const int lane = threadIdx.x, g = lane / 4, t = 2 * (lane % 4);
    for (int i = lane; i < 256; i += 32) {
        as[i / 16][i % 16] = a[i], bs[i / 16][i % 16] = b[i], bts[i / 16][i % 16] = bt[i];
    }
    __syncwarp();
    uint32_t fa[4], fb[4], fbt[4];
    if (by_ldmatrix) {
        ldmatrix_x4(fa, &as[lane % 16][lane / 16 * 8]);
        ldmatrix_x4_trans(fb, &bs[lane % 16][lane / 16 * 8]);
        ldmatrix_x4(fbt, &bts[lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8]);
    } else {
        for (int r = 0; r < 4; r++) {
            const int row = g + r % 2 * 8, k = t + r / 2 * 8;
            fa[r] = as[row][k] | (uint32_t)as[row][k + 1] << 16;
            const int kb = t + r % 2 * 8, n = g + r / 2 * 8;
            fb[r] = bs[kb][n] | (uint32_t)bs[kb + 1][n] << 16;
            fbt[r] = bts[n][kb] | (uint32_t)bts[n][kb + 1] << 16;
        }
    }
    for (int half = 0; half < 2; half++) {
        float sum[4] = {0, 0, 0, 0}, sum_of_bt[4] = {1, 1, 1, 1};
        mma_bf16_16816(sum, fa, fb + 2 * half);
        mma_bf16_16816(sum_of_bt, fa, fbt + 2 * half);
        for (int r = 0; r < 4; r++) {
            const int at = (g + r / 2 * 8) * 16 + half * 8 + t + r % 2;
            d[at] = sum[r], d_of_bt[at] = sum_of_bt[r];
        }
    }
}

/* Factors are multiples of 1/8 below 8, so that every product and sum is exact. */
TEST(products) {
    uint16_t bits[3][256]; /* of a, b and b transposed */
    float fa[256], fb[256], got[2][256];
    srand(7);
    for (int i = 0; i < 256; i++) {
        fa[i] = (float)(rand() % 127 - 63) / 8, fb[i] = (float)(rand() % 127 - 63) / 8;
        memcpy(&bits[0][i], (char *)&fa[i] + 2, 2), memcpy(&bits[1][i], (char *)&fb[i] + 2, 2);
        bits[2][i % 16 * 16 + i / 16] = bits[1][i];
    }
    uint16_t *factors = (uint16_t *)device(sizeof bits);
    float *sums = (float *)device(sizeof got);
    up(factors, bits, sizeof bits);
    for (int how = 0; how < 2; how++) {
        LAUNCH(product, 1, 32, 0, NULL, how == 1, factors, sums);
        down(got, sums, sizeof got);
        for (int i = 0; i < 256; i++) {
            float want = 0;
            for (int k = 0; k < 16; k++) { want += fa[i / 16 * 16 + k] * fb[k * 16 + i % 16]; }
            if (got[0][i] != want || got[1][i] != want + 1) {
                fail_msg("[%d] of way %d: %g, %g, want %g", i, how, got[0][i], got[1][i] - 1, want);
            }
        }
    }
    cudaFree(factors), cudaFree(sums);
}

/* ---- rows, blocks, copies ---- */

/* y[r] = sum and largest of row r of n, a block a row; columns through shared memory by cp.async in
 * turns of two buffers, 128 at a time. */
__global__ void row_sums(const float *x, int n, float2 *y) {
    DYNAMIC_SHARED(memory);
    __shared__ float sums[4], tops[4];
    float(*buffer)[128] = (float(*)[128])memory;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, tiles = (n + 127) / 128;
    const float *row = x + (int64_t)blockIdx.x * n;
    float sum = 0, top = -INFINITY;
    for (int tile = -1; tile < tiles; tile++) {
        const int column = (tile + 1) * 128 + 4 * (int)threadIdx.x;
        if (tile + 1 < tiles && threadIdx.x < 32) {
            cp_async_16(&buffer[(tile + 1) % 2][4 * threadIdx.x], row + column, column < n);
        }
        cp_async_commit();
        if (tile < 0) { continue; }
        cp_async_wait<1>();
        __syncthreads();
        sum += buffer[tile % 2][threadIdx.x];
        top = fmaxf(top, buffer[tile % 2][threadIdx.x]);
        __syncthreads();
    }
    sum = warp_sum(sum), top = warp_max(top);
    if (lane == 0) { sums[warp] = sum, tops[warp] = top; }
    __syncthreads();
    if (threadIdx.x == 0) {
        y[blockIdx.x] = make_float2(sums[0] + sums[1] + sums[2] + sums[3],
                                    fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3])));
    }
}

TEST(rows) {
    enum { ROWS = 5, N = 388 };
    float x[ROWS][N];
    float2 y[ROWS];
    for (int i = 0; i < ROWS * N; i++) { x[i / N][i % N] = (float)((i * 37) % 101) - 20; }
    float *dx = (float *)device(sizeof x);
    float2 *dy = (float2 *)device(sizeof y);
    up(dx, x, sizeof x);
    for (uint64_t seed = 0; seed < 6; seed++) {
#ifdef CKVC_CUDA_EMULATED
        emulation_set_seed(seed);
#endif
        LAUNCH(row_sums, ROWS, 128, 2 * 128 * sizeof(float), NULL, dx, N, dy);
        down(y, dy, sizeof y);
        for (int r = 0; r < ROWS; r++) {
            float sum = 0, top = -1e9f;
            for (int i = 0; i < N; i++) { sum += x[r][i], top = fmaxf(top, x[r][i]); }
            assert_true(y[r].x == sum && y[r].y == top);
        }
    }
    cudaFree(dx), cudaFree(dy);
}

__global__ void conversions(const float *x, uint32_t *packed, float *back) {
    packed[threadIdx.x] = pack_bf16(x[threadIdx.x], 1.0f);
    back[threadIdx.x] =
        bf16_lo(packed[threadIdx.x]) + bf16_to_float(bf16_of(bf16_hi(packed[0]))) - 1;
}

/* Nearest, ties to even, infinities kept, past the largest to infinity. */
TEST(bf16) {
    const uint32_t in[32] = {0x3f808000, 0x3f818000, 0x3f808001,
                             0x7f7fffff, 0xff800000, 0x80000000},
                   want[6] = {0x3f80, 0x3f82, 0x3f81, 0x7f80, 0xff80, 0x8000};
    uint32_t got[32];
    void *x = device(sizeof in), *packed = device(sizeof in), *back = device(sizeof in);
    up(x, in, sizeof in);
    LAUNCH(conversions, 1, 32, 0, NULL, (float *)x, (uint32_t *)packed, (float *)back);
    down(got, packed, sizeof got);
    for (int i = 0; i < 6; i++) { assert_int_equal(got[i], want[i] | 0x3f800000u); }
    cudaFree(x), cudaFree(packed), cudaFree(back);
}

#ifdef CKVC_CUDA_EMULATED
/* ---- what must be found ---- */

__global__ void divergent_barrier(float *x) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        x[0] = 1;
        __syncthreads();
    }
}
__global__ void lonely_shuffle(float *x) {
    if (threadIdx.x < 31) { x[threadIdx.x] = __shfl_xor_sync(ALL_LANES, 1.0f, 1); }
}
__global__ void past_the_end(float *x) { x[threadIdx.x] = 0; }
__global__ void past_shared(float *x) {
    DYNAMIC_SHARED(memory);
    ((volatile float *)memory)[threadIdx.x + 1] = x[0];
}
__global__ void off_the_row(uint32_t *x) {
    __shared__ __align__(16) uint32_t rows[32 * 4];
    uint32_t r[4];
    ldmatrix_x4(r, rows + 4 * threadIdx.x + 2);
    x[threadIdx.x] = r[0];
}
static const struct {
    const char *message;
    void (*make)(float *x);
} mistakes[] = {
    {"divergent barrier", [](float *x) { LAUNCH(divergent_barrier, 1, 64, 0, NULL, x); }},
    {"not all lanes come", [](float *x) { LAUNCH(lonely_shuffle, 1, 32, 0, NULL, x); }},
    {"outside of an allocation", [](float *x) { LAUNCH(past_the_end, 1, 64, 0, NULL, x + 1); }},
    {"dynamic shared memory", [](float *x) { LAUNCH(past_shared, 1, 32, 128, NULL, x); }},
    {"16 aligned bytes", [](float *x) { LAUNCH(off_the_row, 1, 32, 0, NULL, (uint32_t *)x); }},
    {"no device memory",
     [](float *) {
         float host[64];
         LAUNCH(past_the_end, 1, 32, 0, NULL, host);
     }},
    {"whole warps", [](float *x) { LAUNCH(past_the_end, 1, 33, 0, NULL, x); }},
    {"within one allocation", [](float *x) { cudaMemset(x + 1, 0, 256); }},
};

TEST(mistakes_are_named) {
    float *x = (float *)device(256);
    for (const auto &mistake : mistakes) {
        int status;
        char text[4096] = "";
        FILE *said = tmpfile();
        const pid_t child = fork();
        if (child == 0) {
            dup2(fileno(said), 2);
            signal(SIGABRT, SIG_DFL);
            mistake.make(x);
            cudaDeviceSynchronize();
            _exit(0);
        }
        waitpid(child, &status, 0);
        assert_true(pread(fileno(said), text, sizeof text - 1, 0) >= 0);
        fclose(said);
        /* AddressSanitizer is the first to see what is written beside an allocation. */
        if (!strstr(text, mistake.message) && !strstr(text, "use-after-poison")) {
            fail_msg("%s: exit %d, said: %s", mistake.message, status, text);
        }
    }
    cudaFree(x);
}

/* x[i] = shared[63 - i], with its barrier or without. */
__global__ void reversed(bool barrier, float *x) {
    __shared__ float there[64];
    there[threadIdx.x] = (float)threadIdx.x;
    if (barrier) { __syncthreads(); }
    x[threadIdx.x] = there[63 - threadIdx.x];
}
__global__ void unwaited(const float *from, float *x) {
    __shared__ __align__(16) float there[128];
    cp_async_16(there + 4 * threadIdx.x, from, true);
    cp_async_commit();
    x[threadIdx.x] = there[4 * threadIdx.x];
}

TEST(races_and_missing_waits_show) {
    float *x = (float *)device(256), first[2][64], again[64];
    int differs[2] = {0, 0}, missing = 0;
    for (uint64_t seed = 0; seed < 4; seed++) {
        emulation_set_seed(seed);
        for (int barrier = 0; barrier < 2; barrier++) {
            LAUNCH(reversed, 1, 64, 0, NULL, barrier == 1, x);
            down(again, x, sizeof again);
            if (seed == 0) { memcpy(first[barrier], again, sizeof again); }
            differs[barrier] |= memcmp(first[barrier], again, sizeof again) != 0;
        }
        cudaMemset(x, 0, 256);
        LAUNCH(unwaited, 1, 32, 0, NULL, x + 32, x);
        down(again, x, sizeof again);
        for (int i = 0; i < 32; i++) { missing |= isnan(again[i]); }
    }
    assert_true(differs[0] && !differs[1] && missing);
    for (int i = 0; i < 64; i++) { assert_true(first[1][i] == (float)(63 - i)); }
    emulation_set_seed(0);
    cudaFree(x);
}

/* Work is done when it is waited for: pinned memory is read then, pageable memory at the call, and
 * another stream's work only behind its event. */
TEST(streams_do_not_hurry) {
    cudaStream_t a, b;
    cudaEvent_t e;
    float *x = (float *)device(16), *pinned, plain = 1, got[2] = {0, 0};
    cudaMallocHost((void **)&pinned, 8);
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
    pinned[0] = 2;
    cudaMemcpyAsync(x, &plain, 4, cudaMemcpyHostToDevice, a);
    cudaMemcpyAsync(x + 1, pinned, 4, cudaMemcpyHostToDevice, a);
    plain = 10, pinned[0] = 20; /* too early for the pinned one */
    cudaStreamSynchronize(b);
    cudaMemcpy(got, x, 8, cudaMemcpyDeviceToHost);
    assert_true(isnan(got[0]) && isnan(got[1]));
    cudaEventRecord(e, a);
    cudaStreamWaitEvent(b, e, 0);
    cudaStreamSynchronize(b);
    cudaMemcpy(got, x, 8, cudaMemcpyDeviceToHost);
    assert_true(got[0] == 1 && got[1] == 20);
    cudaStreamDestroy(a), cudaStreamDestroy(b), cudaEventDestroy(e);
    cudaFree(x), cudaFreeHost(pinned);
}
#endif

RUN_TESTS(NULL, NULL)
