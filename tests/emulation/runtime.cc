/* CUDA's runtime on the CPU. Device memory lies between guard zones and begins as NaN; nothing that
 * is enqueued happens before somebody waits for it; a host pointer where a device pointer belongs,
 * or the other way round, ends the process with a message. */
#include <deque>
#include <map>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

#include "device_memory.h"
#include "emulation.h"

namespace {
enum { ZONE = 256 };
const size_t TOTAL = (size_t)8 << 30;

struct allocation {
    size_t n, padded; /* asked for; a multiple of ZONE */
};
std::map<uintptr_t, allocation> device, pinned;
size_t in_use;
uint64_t n_allocations; /* ever */
std::recursive_mutex lock;
int running; /* nested: queues are being worked off */
using guard = std::lock_guard<std::recursive_mutex>;

bool inside(const std::map<uintptr_t, allocation> &of, const void *p, size_t n) {
    auto it = of.upper_bound((uintptr_t)p);
    return it != of.begin() && (--it, (uintptr_t)p + n <= it->first + it->second.n);
}
void open_to_reading(bool on) {
    for (const auto &a : device) {
        if (on) {
            UNPOISON((void *)a.first, a.second.n);
        } else {
            POISON((void *)a.first, a.second.n);
        }
    }
}
} // namespace

struct CUstream_st {
    std::deque<std::function<void()>> work;
    uint64_t issued, done;
    bool non_blocking;
};
struct CUevent_st {
    cudaStream_t stream;
    uint64_t at;
};

namespace {
std::vector<cudaStream_t> streams;
CUstream_st null_stream;

void drain(cudaStream_t s, uint64_t until) {
    if (!running++) { open_to_reading(true); }
    while (s->done < until) {
        const std::function<void()> next = std::move(s->work.front());
        s->work.pop_front();
        next();
        s->done++;
    }
    if (!--running) { open_to_reading(false); }
}
cudaError_t drain_all(bool non_blocking_too) {
    const guard held(lock);
    drain(&null_stream, null_stream.issued);
    for (cudaStream_t s : streams) {
        if (non_blocking_too || !s->non_blocking) { drain(s, s->issued); }
    }
    return cudaSuccess;
}
cudaError_t wait_for(cudaStream_t s) {
    const guard held(lock);
    if (s) {
        drain(s, s->issued);
    } else {
        drain_all(false);
    }
    return cudaSuccess;
}
void check_range(const char *what, const void *p, size_t n, bool on_device) {
    if (n && inside(device, p, n) != on_device) {
        emulation::stop("%s: %p, %zu bytes, %s device memory", what, p, n,
                        on_device ? "is not within one allocation of" : "is");
    }
}
} // namespace

uint64_t emulation_allocations(void) {
    const guard held(lock);
    return n_allocations;
}
void emulation::enqueue(cudaStream_t stream, std::function<void()> work) {
    const guard held(lock);
    cudaStream_t s = stream ? stream : &null_stream;
    s->work.push_back(std::move(work));
    s->issued++;
}
static cudaError_t enqueued(cudaStream_t s, std::function<void()> work) {
    return emulation::enqueue(s, std::move(work)), cudaSuccess;
}
bool emulation::in_device_memory(const void *p, size_t n) { return inside(device, p, n); }
void emulation::check_guards(const char *after) {
    for (const auto &a : device) {
        unsigned char *p = (unsigned char *)a.first, *end = p + a.second.n;
        const size_t behind = a.second.padded - a.second.n + ZONE;
        UNPOISON(p - ZONE, ZONE);
        UNPOISON(end, behind);
        if (!zone_is_whole(p - ZONE, ZONE) || !zone_is_whole(end, behind)) {
            stop("%s has written outside of an allocation of %zu bytes", after, a.second.n);
        }
        POISON(p - ZONE, ZONE);
        POISON(end, behind);
    }
}
void emulation::check_argument(const void *value, size_t n, bool is_pointer) {
    const void *p = nullptr;
    if (is_pointer && n == sizeof p) { memcpy(&p, value, n); }
    const guard held(lock);
    if (p && !inside(device, p, 1)) { stop("a kernel's argument %p is no device memory", p); }
}

/* ---- memory ---- */

cudaError_t cudaMalloc(void **p, size_t n) {
    const guard held(lock);
    const size_t padded = (n + ZONE - 1) / ZONE * ZONE;
    if (in_use + padded > TOTAL) { return cudaErrorMemoryAllocation; }
    unsigned char *memory = (unsigned char *)aligned_alloc(ZONE, padded + 2 * ZONE);
    if (!memory) { return cudaErrorMemoryAllocation; }
    emulation::fill_zone(memory, padded + 2 * ZONE);
    memset(memory + ZONE, 0xff, n);
    POISON(memory, padded + 2 * ZONE);
    *p = n ? memory + ZONE : nullptr;
    device[(uintptr_t)memory + ZONE] = {n, padded};
    in_use += padded;
    n_allocations++;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p) {
    if (!p) { return cudaSuccess; }
    cudaDeviceSynchronize();
    const guard held(lock);
    auto it = device.find((uintptr_t)p);
    if (it == device.end()) { emulation::stop("cudaFree: %p is no device memory", p); }
    in_use -= it->second.padded;
    unsigned char *memory = (unsigned char *)p - ZONE;
    UNPOISON(memory, it->second.padded + 2 * ZONE);
    memset(memory, 0xff, it->second.padded + 2 * ZONE);
    device.erase(it);
    return free(memory), cudaSuccess;
}
cudaError_t cudaMallocHost(void **p, size_t n) {
    const guard held(lock);
    *p = malloc(n ? n : 1);
    if (!*p) { return cudaErrorMemoryAllocation; }
    memset(*p, 0xff, n);
    pinned[(uintptr_t)*p] = {n, n};
    n_allocations++;
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p) {
    if (!p) { return cudaSuccess; }
    cudaDeviceSynchronize();
    const guard held(lock);
    if (!pinned.erase((uintptr_t)p)) { emulation::stop("cudaFreeHost: %p was not pinned", p); }
    return free(p), cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    return *free_bytes = TOTAL - in_use, *total = TOTAL, cudaSuccess;
}

/* ---- copies ---- */

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind,
                            cudaStream_t s) {
    const guard held(lock);
    if (!n) { return cudaSuccess; }
    const bool down = kind == cudaMemcpyDeviceToHost, up = kind == cudaMemcpyHostToDevice;
    check_range("copy to", to, n, !down);
    check_range("copy from", from, n, !up);
    /* Of pageable memory the call takes its copy; pinned memory is read when its turn comes. */
    const size_t n_staged = up && !inside(pinned, from, n) ? n : 0;
    emulation::enqueue(s, [=, staged = std::string((const char *)from, n_staged)] {
        memcpy(to, n_staged ? staged.data() : from, n);
    });
    return down && !inside(pinned, to, n) ? wait_for(s) : cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind kind) {
    const guard held(lock);
    drain_all(false);
    cudaMemcpyAsync(to, from, n, kind, nullptr);
    return wait_for(nullptr);
}
cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t s) {
    const guard held(lock);
    check_range("cudaMemset", p, n, true);
    return enqueued(s, [=] { memset(p, byte, n); });
}
cudaError_t cudaMemset(void *p, int byte, size_t n) {
    const guard held(lock);
    drain_all(false);
    return cudaMemsetAsync(p, byte, n, nullptr);
}

/* ---- streams and events ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
    const guard held(lock);
    *s = new CUstream_st();
    (*s)->non_blocking = flags & cudaStreamNonBlocking;
    streams.push_back(*s);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    const guard held(lock);
    drain(s, s->issued);
    std::erase(streams, s);
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return wait_for(s); }
cudaError_t cudaDeviceSynchronize(void) { return drain_all(true); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) {
    return *e = new CUevent_st(), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) { return delete e, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    const guard held(lock);
    e->stream = s ? s : &null_stream, e->at = e->stream->issued;
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
    const CUevent_st now = *e;
    return now.stream ? enqueued(s, [now] { drain(now.stream, now.at); }) : cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *ctx) {
    return enqueued(s, [=] { fn(ctx); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    const guard held(lock);
    if (e->stream) { drain(e->stream, e->at); }
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    const guard held(lock);
    return e->stream && e->stream->done < e->at ? cudaErrorNotReady : cudaSuccess;
}

/* ---- the device ---- */

cudaError_t cudaGetDeviceCount(int *n) { return *n = 1, cudaSuccess; }
cudaError_t cudaSetDevice(int i) { return i ? cudaErrorInvalidDevice : cudaSuccess; }
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int i) {
    *p = {"emulated", TOTAL, 8, 9};
    return cudaSetDevice(i);
}
cudaError_t cudaDriverGetVersion(int *version) { return *version = 13000, cudaSuccess; }
/* Errors of kernels end the process here, so none waits. */
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorName(cudaError_t e) {
    return e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaError";
}
const char *cudaGetErrorString(cudaError_t e) {
    return e == cudaErrorMemoryAllocation ? "out of memory" : "error";
}
