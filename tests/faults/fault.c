/* A C library, preloaded, one of whose calls fails; campaign.py and memory.bats use it.
 *
 * - FAULT_CALL: open, write, close, fsync, rename, unlink, mkdir, mmap, malloc; any: all but malloc
 * - FAULT_AT: which of these calls, from 1; of malloc it and all after it
 * - FAULT_HOW: an errno (28); short: half of a write, or of a file that is mapped; kill: SIGKILL
 * - FAULT_COUNT: a file that gets the number of such calls
 * - FAULT_SIZE: of malloc, calls for so many bytes or more (65536)
 * - FAULT_BELOW: the folder on whose files calls are counted
 * - FAULT_CLOCK: seconds by which the wall clock jumps forth and back at every look at it;
 *   FAULT_CALL "clock" counts them
 * - FAULT_DISK: a folder that gets what a disk would have after a power cut: a file's bytes as they
 *   were when it was synced, under its inode's number, a folder's names when that was
 *
 * open stands for fopen, openat and opendir too, write for pwrite, fwrite and ftruncate, close for
 * fclose, rename for link and renameat2, unlink for unlinkat, mmap for maps of files, malloc for
 * calloc, realloc and aligned_alloc from main on. What libc calls inside of itself is not seen. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t n);
void *__libc_memalign(size_t alignment, size_t n);
int __libc_start_main(int (*main)(int, char **, char **), int n, char **args, void (*init)(void),
                      void (*fini)(void), void (*end)(void), void *stack);

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static _Thread_local int busy; /* in a call of ours: what that calls is nobody's */

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

/* One more call of this kind: is it one to fail? */
static int call(const char *kind) {
    static atomic_long calls;
    static int file = -2;
    const char *wanted = getenv("FAULT_CALL");
    const int is_malloc = strcmp(kind, "malloc") == 0;
    if (!wanted || (strcmp(wanted, kind) != 0 && (is_malloc || strcmp(wanted, "any") != 0))) {
        return 0;
    }
    const long n = ++calls, at = number("FAULT_AT", -1);
    busy = 1;
    if (file == -2) {
        const char *path = getenv("FAULT_COUNT");
        file = path ? REAL(open)(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    }
    if (file >= 0) {
        char text[24];
        const int size = snprintf(text, sizeof text, "%-12ld\n", n);
        /* what a child calls that may not write is of no interest, but fails like the rest */
        if (REAL(pwrite)(file, text, (size_t)size, 0) != size && errno != EPERM) { abort(); }
    }
    busy = 0;
    return at > 0 && (n == at || (is_malloc && n > at));
}

/* Does a call of this kind on this path fail? *is_short: half of it does not. */
static int fails(const char *kind, const char *path, int *is_short) {
    const char *below = getenv("FAULT_BELOW"), *how = getenv("FAULT_HOW");
    char cwd[PATH_MAX];
    if (busy || !path || !below || !getcwd(cwd, sizeof cwd)) { return 0; }
    const char *from = path[0] == '/' ? path : cwd; /* a relative path lies below where we are */
    if (strncmp(from, below, strlen(below)) != 0) { return 0; }
    if (!call(kind) || !how) { return 0; }
    if (strcmp(how, "kill") == 0) {
        raise(SIGKILL);
        _exit(137); /* process 1 of a container gets no signal from within */
    }
    if (strcmp(how, "short") == 0) {
        if (is_short) { *is_short = 1; }
        return 0;
    }
    errno = atoi(how);
    return 1;
}

/* The path of an open file, "/" where it is none of interest. */
static const char *path_of(int fd, char path[PATH_MAX]) {
    char link[40];
    struct stat s;
    strcpy(path, "/");
    if (fd <= 2 || fstat(fd, &s) != 0 || !(S_ISREG(s.st_mode) || S_ISDIR(s.st_mode))) {
        return path;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n > 0 ? n : 1] = '\0';
    return path;
}

static int fails_fd(const char *kind, int fd, int *is_short) {
    char path[PATH_MAX];
    return !busy && fails(kind, path_of(fd, path), is_short);
}

/* ---- the disk ---- */

static void put_names(int fd, FILE *to) {
    DIR *dir = fdopendir(REAL(openat)(fd, ".", O_RDONLY));
    for (struct dirent *d; dir && (d = readdir(dir)) != NULL;) {
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0) {
            fprintf(to, "%lu %d %s\n", (unsigned long)d->d_ino, d->d_type == DT_DIR, d->d_name);
        }
    }
    if (dir) { closedir(dir); }
}

static void put_bytes(int fd, FILE *to) {
    char piece[65536], self[40];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    const int from = REAL(open)(self, O_RDONLY); /* the file may be open for writing alone */
    for (ssize_t n; (n = read(from, piece, sizeof piece)) > 0;) {
        if (REAL(fwrite)(piece, 1, (size_t)n, to) != (size_t)n) { abort(); }
    }
    close(from);
}

static void keep(int fd) {
    const char *disk = getenv("FAULT_DISK");
    struct stat s;
    if (!disk || busy || fstat(fd, &s) != 0) { return; }
    busy = 1;
    char path[PATH_MAX], whole[PATH_MAX];
    snprintf(path, sizeof path, "%s/part", disk);
    snprintf(whole, sizeof whole, "%s/%lu%s", disk, (unsigned long)s.st_ino,
             S_ISDIR(s.st_mode) ? ".names" : ""); /* a number may be a removed file's */
    FILE *to = fopen(path, "w");
    if (!to) { abort(); }
    (S_ISDIR(s.st_mode) ? put_names : put_bytes)(fd, to);
    if (fclose(to) != 0 || REAL(rename)(path, whole) != 0) { abort(); }
    busy = 0;
}

/* ---- the calls ---- */

int open(const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    return fails("open", path, NULL) ? -1 : REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open"), nonnull(1)));

int openat(int at, const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    return fails_fd("open", at, NULL) ? -1 : REAL(openat)(at, path, flags, mode);
}

DIR *opendir(const char *path) { return fails("open", path, NULL) ? NULL : REAL(opendir)(path); }

FILE *fopen(const char *path, const char *how) {
    return fails("open", path, NULL) ? NULL : REAL(fopen)(path, how);
}

ssize_t write(int fd, const void *data, size_t n) {
    int half = 0;
    return fails_fd("write", fd, &half) ? -1 : REAL(write)(fd, data, half && n > 1 ? n / 2 : n);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    int half = 0;
    return fails_fd("write", fd, &half) ? -1
                                        : REAL(pwrite)(fd, data, half && n > 1 ? n / 2 : n, at);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off_t at) __attribute__((alias("pwrite")));

size_t fwrite(const void *data, size_t size, size_t n, FILE *f) {
    int half = 0;
    const int fd = fileno(f);
    const int failed = fails_fd("write", fd, &half);
    const size_t put = failed ? 0 : REAL(fwrite)(data, size, half ? n / 2 : n, f);
    if (failed || half) { f->_flags |= 0x20; } /* glibc's _IO_ERR_SEEN: ferror() has to see it */
    return put;
}

/* It is closed all the same, as Linux has it. */
#define CLOSES(name, type, fd)                                                                     \
    int name(type it) {                                                                            \
        const int failed = fails_fd("close", fd, NULL), why = errno, result = REAL(name)(it);      \
        if (failed) { errno = why; }                                                               \
        return failed ? -1 : result;                                                               \
    }
CLOSES(close, int, it)
CLOSES(fclose, FILE *, fileno(it))

int fsync(int fd) {
    if (fails_fd("fsync", fd, NULL)) { return -1; }
    const int result = REAL(fsync)(fd);
    if (result == 0) { keep(fd); }
    return result;
}

#define CALL(name, parameters, failed, ...)                                                        \
    int name parameters { return failed ? -1 : REAL(name)(__VA_ARGS__); }
CALL(rename, (const char *from, const char *to), fails("rename", to, NULL), from, to)
CALL(renameat2, (int in, const char *from, int into, const char *to, unsigned how),
     fails("rename", to, NULL), in, from, into, to, how)
CALL(link, (const char *from, const char *to), fails("rename", to, NULL), from, to)
CALL(unlink, (const char *path), fails("unlink", path, NULL), path)
CALL(unlinkat, (int at, const char *path, int flags), fails_fd("unlink", at, NULL), at, path, flags)
CALL(mkdir, (const char *path, mode_t mode), fails("mkdir", path, NULL), path, mode)
CALL(ftruncate, (int fd, off_t n), fails_fd("write", fd, NULL), fd, n)

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
    int half = 0;
    char path[PATH_MAX];
    if (fd >= 0 && fails_fd("mmap", fd, &half)) { return MAP_FAILED; }
    void *map = REAL(mmap)(at, n, prot, flags, fd, offset);
    if (half && truncate(path_of(fd, path), (off_t)(n / 2)) != 0) { abort(); }
    return map;
}

int clock_gettime(clockid_t clock, struct timespec *t) {
    static atomic_long looks;
    const int result = REAL(clock_gettime)(clock, t);
    const long by = clock == CLOCK_REALTIME && !busy ? number("FAULT_CLOCK", 0) : 0;
    if (result == 0 && by) {
        call("clock");
        t->tv_sec += looks++ % 2 ? by : -by;
    }
    return result;
}

time_t time(time_t *to) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (to) { *to = t.tv_sec; }
    return t.tv_sec;
}

static int in_main; /* what libraries ask for before it is nobody's */

static int is_out(size_t bytes) {
    static long least;
    if (!least) { least = number("FAULT_SIZE", 65536); }
    if (busy || !in_main || bytes < (size_t)least) { return 0; }
    const int it_is = call("malloc");
    if (it_is) { errno = ENOMEM; }
    return it_is;
}

void *malloc(size_t n) { return is_out(n) ? NULL : __libc_malloc(n); }

void *calloc(size_t n, size_t size) { return is_out(n * size) ? NULL : __libc_calloc(n, size); }

void *realloc(void *old, size_t n) { return is_out(n) ? NULL : __libc_realloc(old, n); }

void *aligned_alloc(size_t alignment, size_t n) {
    return is_out(n) ? NULL : __libc_memalign(alignment, n);
}

/* ---- main ---- */

static int (*real_main)(int, char **, char **);

static int our_main(int n, char **args, char **environment) {
    in_main = 1;
    return real_main(n, args, environment);
}

int __libc_start_main(int (*main)(int, char **, char **), int n, char **args, void (*init)(void),
                      void (*fini)(void), void (*end)(void), void *stack) {
    real_main = main;
    return REAL(__libc_start_main)(our_main, n, args, init, fini, end, stack);
}
