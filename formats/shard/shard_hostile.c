/* Shards are read in a forked child, those of a run as well as those of other producers.
 *
 * HDF5 is not made for crafted files: its CVE lists are long, and edits of a good file are enough
 * to make it crash or spin. It therefore meets files in a process that may die. That process has
 * the file's bytes and a pipe, but no open file and no terminal; its CPU time and memory are
 * limited, and so is its time on the wall clock; of system calls it has only those for memory and
 * the one to write to the pipe. What comes back through the pipe is our own plain encoding, which
 * the parent reads as bytes from outside and checks again.
 *
 * The message through the pipe is a u8 kind (0 rows, 1 error), a u64 length, and then for an error
 * a u32 status and a text, for rows the header and the rows. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/shard/shard_h5.h"
#include "formats/shard/shard_rows.h"
#include "formats/shard/shard_codec.h"
#include "lib/base/files.h"
#include "lib/base/progress.h"

#define MAX_FILE_BYTES ((size_t)2 << 30)
/* how much address space the child may have beyond the file and what the parent has mapped */
#define CHILD_BYTES ((uint64_t)4 << 30)
#define MAX_MESSAGE ((uint64_t)3 << 30)
#define PIPE        3 /* the child's only open file besides /dev/null */

#if defined(__x86_64__)
#define OWN_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN_ARCH AUDIT_ARCH_AARCH64
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* a sanitizer maps terabytes of shadow memory, so that a limit on address space would end the child
 * at once */
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static void limit(int what, uint64_t soft, uint64_t hard) {
    struct rlimit now, wanted = {(rlim_t)soft, (rlim_t)hard};
    if (getrlimit(what, &now) == 0) { /* a limit that is set already may be tighter */
        if (now.rlim_max < wanted.rlim_max) { wanted.rlim_max = now.rlim_max; }
        if (wanted.rlim_cur > wanted.rlim_max) { wanted.rlim_cur = wanted.rlim_max; }
        setrlimit(what, &wanted);
    }
}

static uint64_t mapped_bytes(void) {
    char text[64] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) { close(fd); }
    return n > 0 ? strtoull(text, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : (uint64_t)1 << 30;
}

static void put_all(int fd, const uint8_t *data, size_t n) {
    while (n) {
        ssize_t put = write(fd, data, n);
        if (put < 0 && errno == EINTR) { continue; }
        if (put <= 0) { return; /* the parent then sees a message that is cut short */ }
        data += put;
        n -= (size_t)put;
    }
}

/* ---- the child ---- */

/* From here on any system call except these few only fails, with EPERM. */
static void allow_few_calls(void) {
#ifdef OWN_ARCH
#define LOAD(member) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member))
#define ALLOW        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define REFUSE       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
#define IF_NOT(test, x)                                                                            \
    BPF_JUMP(BPF_JMP | (test) | BPF_K, x, 1, 0) /* take the next line, else skip it */
#define ALLOW_CALL(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), ALLOW
    static struct sock_filter calls[] = {
        LOAD(arch),
        IF_NOT(BPF_JEQ, OWN_ARCH),
        REFUSE,
        LOAD(nr),
        ALLOW_CALL(write),
        ALLOW_CALL(brk),
        ALLOW_CALL(munmap),
        ALLOW_CALL(mremap),
        ALLOW_CALL(madvise),
        ALLOW_CALL(exit_group),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mmap, 2, 0),
        IF_NOT(BPF_JEQ, __NR_mprotect),
        REFUSE,
        LOAD(args[2]), /* for both calls: they may make no page executable */
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        REFUSE,
        ALLOW,
    };
    const struct sock_fprog program = {sizeof calls / sizeof *calls, calls};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) {
        /* it fails where the kernel has no seccomp */
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    }
#endif
}

/* Confines the child to what the top of this file says. */
static void confine(int out, unsigned cpu_s, size_t file_bytes) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    static const int standing[] = {SIGPIPE, SIGXCPU}, parents[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < 2; i++) { signal(standing[i], SIG_DFL); }
    /* the parent gets these signals, and its end is ours */
    for (size_t i = 0; i < 3; i++) { signal(parents[i], SIG_IGN); }
    dup2(out, PIPE);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; null >= 0 && fd < PIPE; fd++) { dup2(null, fd); }
    limit(RLIMIT_CORE, 0, 0);
    limit(RLIMIT_CPU, cpu_s, cpu_s + 1);
    if (!SANITIZED) { /* HDF5 makes two copies of the file */
        const uint64_t most = mapped_bytes() + CHILD_BYTES + 2 * (uint64_t)file_bytes;
        limit(RLIMIT_AS, most, most);
    }
    closefrom(PIPE + 1);
#ifndef CKVC_UNCONFINED
    limit(RLIMIT_FSIZE, 0, 0);
    allow_few_calls();
#endif
}

/* Never returns: it ends by _exit, which leaves the parent's exit handlers and unflushed streams
 * alone. */
static _Noreturn void child(const shard_bytes *file, int out, unsigned cpu_s) {
    confine(out, cpu_s, file->size);
    ckvc_err err = {0};
    shard *s = NULL;
    ckvc_buffer body = {0};
    uint8_t head[9] = {0};
    const ckvc_status st = shard_h5_read_here(file, &s, &err);
    if (st == CKVC_OK) {
        shard_header_encode(&s->h, &body);
        /* which stand in no encoded header, because they are no part of a header's hash */
        ckvc_buffer_append(&body, s->h.sketch, SKETCH_TEXT);
        ckvc_buffer_u32(&body, s->h.setting.queries);
        shard_encode(s, &body);
    } else {
        head[0] = 1;
        ckvc_buffer_u32(&body, (uint32_t)st);
        ckvc_buffer_text(&body, err.text);
    }
    ckvc_put_u64(head + 1, body.size);
    put_all(PIPE, head, sizeof head);
    put_all(PIPE, body.data, body.size);
    _exit(0);
}

/* ---- the parent ---- */

/* Reads n bytes, or fewer when the deadline, the end or an error comes first. Returns how many. */
static size_t get_all(int fd, uint8_t *data, size_t n, double deadline) {
    size_t got = 0;
    while (got < n) {
        double left = deadline - ckvc_now_s();
        struct pollfd p = {fd, POLLIN, 0};
        int ready = left > 0 ? poll(&p, 1, left > 1000 ? 1000000 : (int)(left * 1000) + 1) : 0;
        if (ready < 0 && errno == EINTR) { continue; }
        if (ready <= 0) { break; }
        ssize_t more = read(fd, data + got, n - got);
        if (more < 0 && errno == EINTR) { continue; }
        if (more <= 0) { break; }
        got += (size_t)more;
    }
    return got;
}

/* What came through the pipe. */
typedef struct message {
    uint8_t kind, *body;
    size_t size;
    bool complete;
} message;

static void message_fini(message *m) { free(m->body); }

/* Receives the child's message into memory that grows with what arrives. */
static ckvc_status receive(int fd, const char *path, double deadline, message *m, ckvc_err *err) {
    uint8_t head[9];
    if (get_all(fd, head, sizeof head, deadline) != sizeof head) { return CKVC_OK; }
    m->kind = head[0];
    const uint64_t n = ckvc_get_u64(head + 1);
    CKVC_FAIL_IF(n > MAX_MESSAGE, err, CKVC_E_DATA,
                 "%s: unfolds to %llu bytes, at most %llu are read", path, (unsigned long long)n,
                 (unsigned long long)MAX_MESSAGE);
    for (size_t room = (size_t)1 << 20; m->size < n; room *= 2) {
        room = room > n ? (size_t)n : room;
        m->body = ckvc_realloc_array(m->body, room, 1);
        m->size += get_all(fd, m->body + m->size, room - m->size, deadline);
        if (m->size < room) { return CKVC_OK; }
    }
    m->complete = true;
    return CKVC_OK;
}

static ckvc_status decode_shard(const message *m, const char *path, shard **out, ckvc_err *err) {
    CKVC_AUTO(shard_free_at) shard *s = shard_create();
    ckvc_cursor c = {m->body, m->size, 0, false};
    CKVC_TRY(shard_header_decode(&s->h, &c, err));
    const uint8_t *sketch = ckvc_cursor_take(&c, SKETCH_TEXT);
    if (sketch) { memcpy(s->h.sketch, sketch, SKETCH_TEXT); }
    s->h.setting.queries = ckvc_cursor_u32(&c);
    CKVC_TRY(shard_header_check(&s->h, path, err));
    CKVC_TRY(shard_decode(s, m->body + c.pos, m->size - (size_t)c.pos, err));
    CKVC_TRY(shard_rows_check(s, path, err));
    *out = ckvc_take(&s);
    return CKVC_OK;
}

/* Takes the child's error as our own. Only a few codes are accepted from it; any other becomes
 * CKVC_E_DATA. */
static ckvc_status take_error(const message *m, ckvc_err *err) {
    const uint32_t code = m->size >= 4 ? ckvc_get_u32(m->body) : 0;
    const bool known = code == CKVC_E_NOINPUT || code == CKVC_E_MEMORY || code == CKVC_E_SYSTEM ||
                       code == CKVC_E_IO;
    return ckvc_fail(err, known ? (ckvc_status)code : CKVC_E_DATA, "%.*s",
                     m->size > 4 ? (int)(m->size - 4) : 0,
                     m->size > 4 ? (const char *)m->body + 4 : "");
}

ckvc_status shard_h5_read_bytes(const shard_bytes *file, unsigned cpu_s, unsigned wall_s,
                                shard **out, ckvc_err *err) {
    const char *path = file->path;
    *out = NULL;
    int ends[2];
    CKVC_TRY(h5_begin(err)); /* called once here, instead of in every child */
    CKVC_FAIL_ERRNO_IF(pipe2(ends, O_CLOEXEC) != 0, err, CKVC_E_SYSTEM,
                       "%s: no pipe for the reading process", path);
    const pid_t pid = fork();
    if (pid < 0) {
        const ckvc_status failed =
            ckvc_fail_errno(err, CKVC_E_SYSTEM, "%s: no process for reading", path);
        close(ends[0]);
        close(ends[1]);
        return failed;
    }
    if (pid == 0) { child(file, ends[1], cpu_s); }
    close(ends[1]);
    CKVC_AUTO(message_fini) message m = {.kind = 1};
    const double deadline = ckvc_now_s() + wall_s;
    const ckvc_status st = receive(ends[0], path, deadline, &m, err);
    const bool late = !m.complete && ckvc_now_s() >= deadline;
    close(ends[0]);
    if (late || st != CKVC_OK) { kill(pid, SIGKILL); }
    int how = 0;
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR) {}
    CKVC_TRY(st);
    CKVC_FAIL_IF(late, err, CKVC_E_DATA,
                 "%s: HDF5 did not finish reading it within %u s; the file is damaged or crafted",
                 path, wall_s);
    CKVC_FAIL_IF(!m.complete && WIFEXITED(how) && WEXITSTATUS(how) == ckvc_exit_code(CKVC_E_MEMORY),
                 err, CKVC_E_MEMORY, "%s: reading it needs more memory than is to be had", path);
    if (!m.complete) {
        const bool signalled = WIFSIGNALED(how);
        return ckvc_fail(
            err, CKVC_E_DATA,
            "%s: the reading process ended early (%s %d%s); the file is damaged or crafted, or "
            "memory was short",
            path, signalled ? "signal" : "exit", signalled ? WTERMSIG(how) : WEXITSTATUS(how),
            signalled && WTERMSIG(how) == SIGXCPU ? ", over its CPU time" : "");
    }
    return m.kind == 0 ? decode_shard(&m, path, out, err) : take_error(&m, err);
}

ckvc_status shard_h5_read(const char *path, bool foreign, shard **out, ckvc_err *err) {
    CKVC_AUTO_FREE char *bytes = NULL;
    size_t n;
    *out = NULL;
    CKVC_TRY(ckvc_file_read(path, MAX_FILE_BYTES, &bytes, &n, err));
    const shard_bytes file = {path, (const uint8_t *)bytes, n, foreign};
    return shard_h5_read_bytes(&file, SHARD_CPU_S, SHARD_WALL_S, out, err);
}
