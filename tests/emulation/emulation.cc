/* Fibers, warps, barriers and the instructions of a warp: README.md. */
#include "emulation.h"

#include <algorithm>
#include <mutex>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <vector>

#include "device_memory.h"

#ifndef __x86_64__
#error "the emulation switches fibers with a few instructions of x86-64"
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
unsigned char *emulation::dynamic_shared;
extern unsigned char section_begin[] __asm__("__start_cuda_shared") __attribute__((weak));
extern unsigned char section_end[] __asm__("__stop_cuda_shared") __attribute__((weak));

/* void emulation_switch(void **from, void *to): what a function must keep stays on the stack that
 * is left, whose pointer goes to *from. */
extern "C" void emulation_switch(void **from, void *to);
__asm__(".text\n.globl emulation_switch\nemulation_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

namespace {
enum { LANES = 32, MOST_THREADS = 1024, STACK = 256 << 10, SHARED_MOST = 99 << 10, ZONE = 256 };
enum state { RUNS, WAITS_WARP, WAITS_BLOCK, DONE };

struct copy {
    void *to;
    const void *from;
    bool valid;
};
struct fiber {
    void *sp;
    unsigned char *stack;
    enum state state;
    uint3 index;
    emulation::site where;
    std::vector<copy> open;                /* copies since the last commit */
    std::vector<std::vector<copy>> groups; /* committed, oldest first */
};
struct warp {
    void *given[LANES];
    int n_given;
};

fiber fibers[MOST_THREADS];
warp warps[MOST_THREADS / LANES];
int n_threads, current = -1;
void *scheduler_sp;
const char *kernel_name;
const std::function<void()> *thread_body;
uint64_t seed = UINT64_MAX, random_state;

uint64_t draw() { /* splitmix64 */
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void leave(enum state s, emulation::site where) {
    fiber &f = fibers[current];
    f.state = s, f.where = where;
    emulation_switch(&f.sp, scheduler_sp);
}

__attribute__((no_sanitize("address"), noreturn)) void fiber_main() {
    (*thread_body)();
    leave(DONE, {"the end", "", 0});
    abort();
}

void prepare(int i) {
    fiber &f = fibers[i];
    if (!f.stack) {
        f.stack = (unsigned char *)mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (f.stack == MAP_FAILED || mprotect(f.stack, 4096, PROT_NONE)) { abort(); }
    }
    UNPOISON(f.stack + STACK - (16 << 10), 16 << 10);
    void **top = (void **)(f.stack + STACK) - 8; /* 6 registers, where to go, a return address */
    memset(top, 0, 8 * sizeof *top);
    top[6] = (void *)fiber_main;
    f.sp = top, f.state = RUNS;
    f.open.clear(), f.groups.clear();
    const unsigned x = blockDim.x, y = blockDim.y;
    f.index = {(unsigned)i % x, (unsigned)i / x % y, (unsigned)i / (x * y)};
}

void resume(int i) {
    current = i;
    threadIdx = fibers[i].index;
    emulation_switch(&scheduler_sp, fibers[i].sp);
    current = -1;
}

/* Nobody can go on: all that are left wait at one barrier, or this is an error. */
void pass_barrier() {
    const fiber *first = nullptr;
    for (current = 0; current < n_threads; current++) {
        fiber &f = fibers[current];
        if (f.state == DONE) { continue; }
        if (f.state == WAITS_WARP) {
            emulation::stop("waits for its warp at %s (%s:%d), where not all lanes come",
                            f.where.what, f.where.file, f.where.line);
        }
        if (first && (f.where.line != first->where.line || f.where.file != first->where.file)) {
            emulation::stop("divergent barrier: at line %d, others at %s:%d", f.where.line,
                            first->where.file, first->where.line);
        }
        first = first ? first : &f;
        f.state = RUNS;
    }
    current = -1;
}

void shuffled(std::vector<int> &v, size_t n) {
    v.resize(n);
    for (size_t i = 0; i < n; i++) { v[i] = (int)i; }
    for (size_t i = n; seed && i > 1; i--) { std::swap(v[i - 1], v[draw() % i]); }
}

/* In passes over all threads, or (an odd seed) each warp as far ahead as it can go alone. */
void run_threads() {
    static std::vector<int> warp_order, lane_order;
    shuffled(warp_order, (size_t)n_threads / LANES);
    shuffled(lane_order, LANES);
    for (int i = 0; i < n_threads; i++) { prepare(i); }
    for (int live = n_threads; live;) {
        bool progress = false;
        for (const int w : warp_order) {
            bool again;
            do {
                again = false;
                for (const int lane : lane_order) {
                    const int i = w * LANES + lane;
                    if (fibers[i].state != RUNS) { continue; }
                    resume(i);
                    live -= fibers[i].state == DONE;
                    again = progress = true;
                }
            } while (again && seed & 1);
        }
        if (!progress) { pass_barrier(); }
    }
}

void run_block(uint3 index, size_t shared_bytes) {
    static unsigned char *memory = (unsigned char *)aligned_alloc(ZONE, SHARED_MOST + 2 * ZONE);
    blockIdx = index;
    emulation::dynamic_shared = memory;
    UNPOISON(memory, SHARED_MOST + 2 * ZONE);
    memset(memory, 0xff, shared_bytes);
    emulation::fill_zone(memory + shared_bytes, ZONE);
    POISON(memory + shared_bytes, SHARED_MOST + 2 * ZONE - shared_bytes);
    if (section_begin) { memset(section_begin, 0xff, (size_t)(section_end - section_begin)); }
    run_threads();
    UNPOISON(memory, SHARED_MOST + 2 * ZONE);
    if (!emulation::zone_is_whole(memory + shared_bytes, ZONE)) {
        emulation::stop("wrote behind its %zu bytes of dynamic shared memory", shared_bytes);
    }
}

void run_kernel(const emulation::launch_shape &s, const std::function<void()> &thread) {
    kernel_name = s.kernel, thread_body = &thread;
    blockDim = s.block, gridDim = s.grid;
    n_threads = (int)(s.block.x * s.block.y * s.block.z);
    static std::vector<int> order;
    shuffled(order, (size_t)s.grid.x * s.grid.y * s.grid.z);
    for (const int b : order) {
        const unsigned i = (unsigned)b, x = s.grid.x, y = s.grid.y;
        run_block({i % x, i / x % y, i / (x * y)}, s.shared_bytes);
    }
    kernel_name = nullptr;
    emulation::check_guards(s.kernel);
}

void perform(const copy &c) { c.valid ? memcpy(c.to, c.from, 16) : memset(c.to, 0, 16); }
} // namespace

void emulation_set_seed(uint64_t value) { seed = random_state = value; }

void emulation::stop(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("emulated CUDA: ", stderr);
    if (kernel_name) {
        fprintf(stderr, "kernel %s, block (%u, %u, %u), ", kernel_name, blockIdx.x, blockIdx.y,
                blockIdx.z);
    }
    if (current >= 0) { fprintf(stderr, "thread %d: ", current); }
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

void emulation::enqueue_kernel(const launch_shape &s, cudaStream_t stream,
                               std::function<void()> thread) {
    const unsigned n = s.block.x * s.block.y * s.block.z;
    if (n == 0 || n > MOST_THREADS || n % LANES || s.block.z > 64) {
        stop("%s: %u threads a block: wanted whole warps, 1024 threads at most", s.kernel, n);
    }
    if (s.grid.x == 0 || s.grid.y == 0 || s.grid.z == 0 || s.grid.x > INT32_MAX ||
        s.grid.y > 65535 || s.grid.z > 65535) {
        stop("%s: a grid of %u x %u x %u", s.kernel, s.grid.x, s.grid.y, s.grid.z);
    }
    if (s.shared_bytes > SHARED_MOST) {
        stop("%s: %zu bytes of shared memory, sm_89 has 99 KB a block", s.kernel, s.shared_bytes);
    }
    if (seed == UINT64_MAX) {
        const char *text = getenv("CKVC_EMULATED_SEED");
        emulation_set_seed(text ? strtoull(text, nullptr, 10) : 0);
    }
    enqueue(stream, [s, thread] { run_kernel(s, thread); });
}

void emulation::together(site where, void *mine, void (*all)(void **lanes)) {
    const int first = current / LANES * LANES;
    warp &w = warps[current / LANES];
    w.given[current % LANES] = mine;
    fibers[current].where = where;
    if (++w.n_given < LANES) { return leave(WAITS_WARP, where); }
    w.n_given = 0;
    for (int i = first; i < first + LANES; i++) {
        const site &s = fibers[i].where;
        if (s.what != where.what || s.line != where.line || s.file != where.file) {
            stop("divergent warp: at %s (%s:%d), thread %d at %s (line %d)", where.what, where.file,
                 where.line, i, s.what, s.line);
        }
    }
    all(w.given);
    for (int i = first; i < first + LANES; i++) { fibers[i].state = RUNS; }
}

void emulation::barrier(site where) { leave(WAITS_BLOCK, where); }

void emulation::check_shared(const char *what, const void *p, size_t n) {
    const unsigned char *at = (const unsigned char *)p;
    const bool in_section = section_begin && at >= section_begin && at + n <= section_end;
    const bool in_dynamic = at >= dynamic_shared && at + n <= dynamic_shared + SHARED_MOST;
    if ((!in_section && !in_dynamic) || (uintptr_t)p % n) {
        stop("%s: %p is not %zu aligned bytes of shared memory", what, p, n);
    }
}

/* A copy may become visible at any time up to its wait: a seed draws at once or as late as can be.
 */
void emulation::copy_later(void *to, const void *from, bool valid) {
    check_shared("cp_async_16", to, 16);
    if (valid && ((uintptr_t)from % 16 || !in_device_memory(from, 16))) {
        stop("cp_async_16: %p is not 16 aligned bytes of device memory", from);
    }
    const copy c = {to, from, valid};
    if (seed && draw() & 1) {
        perform(c);
    } else {
        fibers[current].open.push_back(c);
    }
}

void emulation::commit_copies() {
    fiber &f = fibers[current];
    f.groups.push_back(std::move(f.open));
    f.open.clear();
}

void emulation::wait_copies(int groups) {
    fiber &f = fibers[current];
    while (f.groups.size() > (size_t)groups) {
        for (const copy &c : f.groups.front()) { perform(c); }
        f.groups.erase(f.groups.begin());
    }
}

/* ---- instructions of a warp ---- */

void mma_bf16_16816(float d[4], const uint32_t a[4], const uint32_t b[2], const char *file,
                    int line) {
    struct one {
        float *d;
        const uint32_t *a, *b;
    } mine = {d, a, b};
    emulation::together({"mma", file, line}, &mine, [](void **lanes) {
        float left[16][16], right[16][8], sum[16][8];
        for (int i = 0; i < LANES; i++) {
            const one *o = (const one *)lanes[i];
            const int g = i / 4, t = 2 * (i % 4);
            for (int r = 0; r < 4; r++) {
                float *to = &left[g + r % 2 * 8][t + r / 2 * 8];
                to[0] = float_of_bits(o->a[r] << 16);
                to[1] = float_of_bits(o->a[r] & 0xffff0000u);
                sum[g + r / 2 * 8][t + r % 2] = o->d[r];
            }
            for (int r = 0; r < 2; r++) {
                right[t + r * 8][g] = float_of_bits(o->b[r] << 16);
                right[t + r * 8 + 1][g] = float_of_bits(o->b[r] & 0xffff0000u);
            }
        }
        for (int row = 0; row < 16; row++) {
            for (int k = 0; k < 16; k++) {
                for (int n = 0; n < 8; n++) { sum[row][n] += left[row][k] * right[k][n]; }
            }
        }
        for (int i = 0; i < LANES; i++) {
            for (int r = 0; r < 4; r++) {
                ((one *)lanes[i])->d[r] = sum[i / 4 + r / 2 * 8][2 * (i % 4) + r % 2];
            }
        }
    });
}

namespace {
struct matrix_rows {
    uint32_t *r;
    const void *row;
};
template <bool TRANSPOSED>
void load_matrices(emulation::site where, uint32_t r[4], const void *row) {
    emulation::check_shared(where.what, row, 16);
    matrix_rows mine = {r, row};
    emulation::together(where, &mine, [](void **lanes) {
        for (int i = 0; i < LANES * 4 * 2; i++) {
            const int lane = i / 8, m = i / 2 % 4, half = i % 2;
            int line = lane / 4, column = 2 * (lane % 4) + half;
            if (TRANSPOSED) { std::swap(line, column); }
            const void *from = ((matrix_rows *)lanes[8 * m + line])->row;
            memcpy((uint16_t *)&((matrix_rows *)lanes[lane])->r[m] + half,
                   (const uint16_t *)from + column, 2);
        }
    });
}
} // namespace

void ldmatrix_x4(uint32_t r[4], const void *row, const char *file, int line) {
    load_matrices<false>({"ldmatrix_x4", file, line}, r, row);
}

void ldmatrix_x4_trans(uint32_t r[4], const void *row, const char *file, int line) {
    load_matrices<true>({"ldmatrix_x4_trans", file, line}, r, row);
}
