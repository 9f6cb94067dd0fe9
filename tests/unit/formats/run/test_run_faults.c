/* A run whose system calls fail, and one whose process dies between them.
 *
 * This program's own write, rename ... stand before libc's and count their calls while they are
 * armed; at the N-th one fails (once, or from there on) or ends the process as a crash would. For
 * every N until a run gets through: the error is one line with exit code 73 or 74, nothing
 * half-written has a final name, and a resume ends with the bytes of an undisturbed run. */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/unit/run_fixture.h"

typedef enum fault { FAULT_NONE, FAULT_ONCE, FAULT_FOR_GOOD, FAULT_SHORT, FAULT_DIE } fault;
static fault armed;
static int calls_left, fault_errno;

/* True when this call is to fail. */
static bool strike(void) {
    if (armed == FAULT_NONE || --calls_left > 0) { return false; }
    if (armed == FAULT_DIE) { _exit(99); }
    if (armed != FAULT_FOR_GOOD) { armed = FAULT_NONE; }
    errno = fault_errno;
    return true;
}

/* Only what goes to a file of the run; pipes and the terminal are cmocka's. */
static bool on_file(int fd) {
    struct stat info;
    return armed != FAULT_NONE && fstat(fd, &info) == 0 &&
           (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode));
}

/* A write that fails has often put a part of its bytes; a dying one as well. At -1: write(2). */
static ssize_t put_at(int fd, const void *data, size_t n, off_t at) {
    return at < 0 ? syscall(SYS_write, fd, data, n) : syscall(SYS_pwrite64, fd, data, n, at);
}
static ssize_t struck_write(int fd, const void *data, size_t n, off_t at) {
    if (on_file(fd)) {
        const bool was_short = armed == FAULT_SHORT;
        const ssize_t put = calls_left <= 1 && n > 1 ? put_at(fd, data, n / 2, at) : 0;
        if (strike()) { return was_short && put > 0 ? put : -1; }
    }
    return put_at(fd, data, n, at);
}

ssize_t write(int fd, const void *data, size_t n) { return struck_write(fd, data, n, -1); }

ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    return struck_write(fd, data, n, at);
}

int fsync(int fd) { return on_file(fd) && strike() ? -1 : (int)syscall(SYS_fsync, fd); }

int ftruncate(int fd, off_t size) {
    return on_file(fd) && strike() ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}

int rename(const char *from, const char *to) {
    return strike() ? -1 : (int)syscall(SYS_rename, from, to);
}

int renameat2(int in, const char *from, int into, const char *to, unsigned how) {
    return strike() ? -1 : (int)syscall(SYS_renameat2, in, from, into, to, how);
}

int link(const char *from, const char *to) {
    return strike() ? -1 : (int)syscall(SYS_link, from, to);
}

int unlink(const char *path) { return strike() ? -1 : (int)syscall(SYS_unlink, path); }

static const char *run, *whole;

static int setup(void **state) {
    const int rc = fixture_whole(state);
    run = in_temp_folder("run");
    whole = in_temp_folder("whole");
    return rc;
}

/* What has a final name is whole: run.json and shard files equal the undisturbed run's. */
static void check_visible(void) {
    static const char *const names[] = {"run.json", RUN_PASS "/shard-00000.h5",
                                        RUN_PASS "/shard-00001.h5", RUN_PASS "/shard-00002.h5"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CKVC_AUTO_FREE char *path = ckvc_path_join(run, names[i]),
                            *of_whole = ckvc_path_join(whole, names[i]), *got = NULL, *want = NULL;
        size_t n_got, n_want;
        if (access(path, F_OK) != 0) { continue; }
        got = file_bytes(path, &n_got), want = file_bytes(of_whole, &n_want);
        assert_int_equal(n_got, n_want);
        assert_memory_equal(got, want, n_got);
    }
}

static int is_visible(const struct dirent *file) { return file->d_name[0] != '.'; }

static int count_files(const char *folder) {
    struct dirent **files;
    const int n = scandir(folder, &files, is_visible, NULL);
    for (int i = 0; i < n; i++) { free(files[i]); }
    if (n >= 0) { free(files); }
    return n;
}

/* It may not be there. */
static void remove_run(void) { nftw(run, temp_folder_remove_one, 16, FTW_DEPTH | FTW_PHYS); }

static void check_resume(int n) {
    unsigned before;
    bool complete;
    ckvc_err err = {0};
    if (fixture_run(run, true, &before, &complete, &err) != CKVC_OK || !complete ||
        run_verify(run, &err) != CKVC_OK) {
        fail_msg("after call %d: %s", n, err.text);
    }
    check_visible();
    /* no log, no temporary file */
    CKVC_AUTO_FREE char *pass = ckvc_path_join(run, RUN_PASS);
    assert_int_equal(count_files(pass), 3);
    assert_int_equal(count_files(run), 4);
}

static ckvc_status struck_run(fault kind, int error, int n, ckvc_err *err) {
    unsigned before;
    bool complete;
    remove_run();
    armed = kind;
    calls_left = n;
    fault_errno = error;
    const ckvc_status st = fixture_run(run, false, &before, &complete, err);
    armed = FAULT_NONE;
    return st;
}

/* Runs with the N-th call failing, N = 1, 1 + step ... until nothing fails any more. */
static void try_all(fault kind, int error, int step) {
    for (int n = 1;; n += step) {
        ckvc_err err = {0};
        const ckvc_status st = struck_run(kind, error, n, &err);
        if (calls_left > 0) {    /* nothing was struck */
            assert_true(n > 40); /* the shims are in the path */
            OK(st);
            return;
        }
        if (st != CKVC_OK) { /* a few calls may fail without harm: the cutting of an old pid */
            int code = ckvc_exit_code(st);
            if ((code != 73 && code != 74) || !strstr(err.text, strerror(error)) ||
                strchr(err.text, '\n')) {
                fail_msg("call %d: exit code %d, \"%s\"", n, code, err.text);
            }
        }
        check_visible();
        check_resume(n);
    }
}

TEST(disk_full) {
    try_all(FAULT_ONCE, ENOSPC, 1);
    try_all(FAULT_FOR_GOOD, ENOSPC, 4);
}

TEST(disk_broken) { try_all(FAULT_FOR_GOOD, EIO, 5); }

/* Short writes are no errors. */
TEST(short_writes) {
    for (int n = 1; n < 120; n += 7) {
        ckvc_err err = {0};
        if (struck_run(FAULT_SHORT, EINTR, n, &err) == CKVC_OK) {
            check_visible();
        } else { /* it struck a call that has no short form: fsync, rename */
            assert_non_null(strstr(err.text, strerror(EINTR)));
        }
        check_resume(n);
    }
}

/* The process dies before its N-th call (in a write: after half of it); so does the one that
 * resumes, a little later, and so on to the end. */
TEST(killed_at_every_step) {
    bool finished = false;
    for (int n = 1; !finished; n++) {
        remove_run();
        for (int session = 0;; session++) {
            pid_t pid = fork();
            if (pid == 0) {
                unsigned before;
                bool complete;
                armed = FAULT_DIE;
                /* later ones: more than a session needs to publish one shard */
                calls_left = session == 0 ? n : n / 2 + 30;
                ckvc_status st = fixture_run(run, true, &before, &complete, NULL);
                _exit(st == CKVC_OK && complete ? 0 : 1);
            }
            int how;
            waitpid(pid, &how, 0);
            assert_true(WIFEXITED(how));
            if (WEXITSTATUS(how) != 99) {
                assert_int_equal(WEXITSTATUS(how), 0);
                finished = session == 0;
                break;
            }
            check_visible();
            assert_true(session < 20); /* every session gets somewhere */
        }
        check_resume(n);
    }
}

RUN_TESTS(setup, temp_folder_remove)
