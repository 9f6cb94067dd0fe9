/* Status codes and error text: how a failure travels from the place that saw it to the one line
 * that a user reads.
 *
 * A function that outside conditions can make fail returns a ckvc_status and takes a `ckvc_err
 * *err` as its last argument. The first error wins: it fills err->text with one whole line (file,
 * place, got, wanted, what to do), and later failures on the way out leave that line alone.
 * CKVC_TRY runs one step after the other; what a function owns is released as it leaves (memory.h,
 * CKVC_AUTO). Our own bugs are assert()s. The library never prints, and it never exits, except when
 * memory runs out. A ckvc_err belongs to one thread at a time. err may be NULL where nobody needs
 * the text. */
#pragma once

#include <stdarg.h>

#define CKVC_MUST_CHECK                   __attribute__((warn_unused_result))
#define CKVC_PRINTF(fmt_index, first_arg) __attribute__((format(printf, fmt_index, first_arg)))
/* For loops that the compiler turns into vector code: it emits versions of the function for
 * AVX-512, AVX2 and the baseline, and the loader picks one. The loader chooses before the
 * sanitizers are initialised, so with them there is only the baseline. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CKVC_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CKVC_CLONES
#endif

/* The codes of one kind share a ten, so that a new code finds a place beside its kind. Each comment
 * begins with the exit code of the command line, which ckvc_exit_code gives. */
typedef enum ckvc_status {
    CKVC_OK = 0,
    CKVC_CHECK_FAILED = 1,   /* 1: the work was done; a check that was asked for failed */
    CKVC_E_USAGE = 10,       /* 64: an option or argument makes no sense */
    CKVC_E_CONFIG = 11,      /* 78: a configuration file or environment value makes no sense */
    CKVC_E_DATA = 20,        /* 65: bytes from outside break their format, or values their range */
    CKVC_E_MISMATCH = 30,    /* 65: two good inputs do not belong together */
    CKVC_E_NOINPUT = 40,     /* 66: an input file is missing or not readable */
    CKVC_E_DEVICE = 50,      /* 69: a device or library that was asked for is missing or wrong */
    CKVC_E_MEMORY = 60,      /* 71: no memory */
    CKVC_E_SYSTEM = 61,      /* 71: another refusal of the operating system */
    CKVC_E_BUSY = 62,        /* 75: another process is using it; the same command will work later */
    CKVC_E_CREATE = 70,      /* 73: an output cannot be created */
    CKVC_E_IO = 71,          /* 74: reading or writing failed half way */
    CKVC_E_STOPPED = 80,     /* 75: stopped on request; a valid checkpoint is on disk */
    CKVC_E_INTERRUPTED = 81, /* 130: stopped on request; there is nothing to resume from */
    CKVC_E_BUG = 90          /* 70: an invariant of ours does not hold */
} ckvc_status;

typedef struct ckvc_err {
    ckvc_status status; /* CKVC_OK while nothing has failed */
    char text[1536];    /* one line, no trailing newline */
} ckvc_err;

/* Records a failure in err unless an earlier one is there already. It always returns `status`, so
 * that `return ckvc_fail(err, CKVC_E_DATA, "%s: ...", path);` is one step. The text becomes one
 * line that can be shown anywhere (ckvc_utf8_tame). */
ckvc_status ckvc_fail(ckvc_err *err, ckvc_status status, const char *fmt, ...) CKVC_PRINTF(3, 4);

/* Does the same for a failed system call, and appends ": " and strerror(errno). */
ckvc_status ckvc_fail_errno(ckvc_err *err, ckvc_status status, const char *fmt, ...)
    CKVC_PRINTF(3, 4);

/* The analyzer sees one file at a time, so here it is told that these return `status`, which is
 * never OK. */
#ifdef __clang_analyzer__
#define ckvc_fail(err, status, ...) ((void)ckvc_fail(err, status, __VA_ARGS__), (status))
#define ckvc_fail_errno(err, status, ...)                                                          \
    ((void)ckvc_fail_errno(err, status, __VA_ARGS__), (status))
#endif

/* Runs one step of a function that returns a ckvc_status, and returns from the function if the step
 * fails. */
#define CKVC_TRY(step)                                                                             \
    do {                                                                                           \
        const ckvc_status try_status = (step);                                                     \
        if (try_status != CKVC_OK) { return try_status; }                                          \
    } while (0)

/* States a rule: the function returns with a failure where `condition` holds. `...` is the format
 * of the message and its arguments. The second macro appends strerror(errno). */
#define CKVC_FAIL_IF(condition, err, status, ...)                                                  \
    do {                                                                                           \
        if (condition) { return ckvc_fail(err, status, __VA_ARGS__); }                             \
    } while (0)
#define CKVC_FAIL_ERRNO_IF(condition, err, status, ...)                                            \
    do {                                                                                           \
        if (condition) { return ckvc_fail_errno(err, status, __VA_ARGS__); }                       \
    } while (0)

/* States a rule of a file or of a place in one. The message begins with "WHERE: ", and the status
 * is CKVC_E_DATA. */
ckvc_status ckvc_refuse(ckvc_err *err, const char *where, const char *fmt, ...) CKVC_PRINTF(3, 4);
#define CKVC_REFUSE_IF(condition, err, where, ...)                                                 \
    do {                                                                                           \
        if (condition) {                                                                           \
            ckvc_refuse(err, where, __VA_ARGS__);                                                  \
            return CKVC_E_DATA;                                                                    \
        }                                                                                          \
    } while (0)

/* Warnings are about things that did not stop the work but that a person should know. The program
 * decides where they go; with NULL, the library's default, they are dropped. */
typedef void (*ckvc_warn_fn)(const char *line);
void ckvc_warn_set(ckvc_warn_fn fn);
void ckvc_warn(const char *fmt, ...) CKVC_PRINTF(1, 2);

/* The process exit code of a status (the list is in docs/cli.md). */
int ckvc_exit_code(ckvc_status status);
