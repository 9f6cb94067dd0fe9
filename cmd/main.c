/* The program ckvc: the list of verbs, and what the process needs around them. Data goes to
 * stdout and talk to stderr; exit codes are listed in docs/cli.md. */
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cmd/verbs.h"
#include "lib/base/files.h"
#include "lib/base/memory.h"

#define HEADING(text)                                                                              \
    &(const verb) { .about = (text) }
static const verb *const verbs[] = {
    HEADING("prompts"),
    &verb_manifest,
    &verb_manifest_build,
    &verb_manifest_check,
    &verb_tokenize,
    HEADING("the compiler"),
    &verb_scan,
    &verb_calibrate,
    &verb_merge,
    &verb_status,
    &verb_fit,
    &verb_compile,
    &verb_transfer,
    &verb_tables,
    HEADING("looking"),
    &verb_score,
    &verb_generate,
    &verb_eval,
    &verb_report,
    &verb_perplexity,
    &verb_inspect,
    &verb_verify,
    HEADING("this program"),
    &verb_version,
    NULL,
};

static void warn_on_stderr(const char *line) { say("warning: %s\n", line); }

/* jansson allocates with this function: like our own code, the code that makes JSON does not
 * test whether it got memory. */
static void *allocate(size_t n) { return ckvc_alloc(n, 1); }

/* Ends the process without exit handlers. OpenBLAS's handler (0.3.21) joins its own worker
 * threads, and a worker that the system refuses memory tries to get it for ever (seen under
 * ulimit -d). All that is ours is written and closed before. Sanitisers look for leaks in an
 * exit handler, so their builds keep the handlers. */
static _Noreturn void end_process(int rc) {
    fflush(stderr);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    exit(rc);
#else
    _exit(rc);
#endif
}

/* Closes standard output. A failed write shows in the stream, whichever flush it came with; the
 * last flush is ours to ask for. Without a standard output, either nothing was to be written
 * there, or writing it has failed already. */
static int close_output(int rc) {
    const bool failed_before = ferror(stdout) != 0;
    if (fflush(stdout) != 0 || failed_before) {
        say("ckvc: writing to standard output failed%s%s\n", failed_before ? "" : ": ",
            failed_before ? "" : strerror(errno));
        return 74;
    }
    if (fclose(stdout) != 0 && errno != EBADF) {
        say("ckvc: writing to standard output failed: %s\n", strerror(errno));
        return 74;
    }
    return rc;
}

typedef struct program {
    int argc, rc;
    char **argv;
} program;

static void *run_program(void *arg) {
    program *p = arg;
    p->rc = verbs_run(verbs, p->argc, p->argv);
    return NULL;
}

/* Does the work on a stack of a known size; workers get as much. Fits keep some hundred KB
 * there, and `ulimit -s` may leave less. */
static int run_on_own_stack(program *p) {
    enum { STACK_BYTES = 8 << 20 };
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_setattr_default_np(&attributes);
    const int problem = pthread_create(&thread, &attributes, run_program, p);
    if (problem != 0) {
        say("ckvc: no stack of %d MB can be had: %s\n", STACK_BYTES >> 20, strerror(problem));
        return 71;
    }
    pthread_join(thread, NULL);
    return p->rc;
}

/* Handles the signal that a mapped file has become shorter, or that its disk does not answer. */
static void on_lost_page(int sig, siginfo_t *info, void *context) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    (void)sig, (void)context;
    while (atomic_flag_test_and_set(&said)) { pause(); } /* one of several threads says it */
    const char *path = ckvc_map_at(info->si_addr);
    say("ckvc: %s: became shorter while it was being read, or cannot be read any more; what is on "
        "disk stays, and a run goes on with --resume\n",
        path ? path : "a mapped file");
    _exit(74);
}

/* Begins the program again without OpenBLAS's worker threads. As it is loaded, OpenBLAS (0.3.21)
 * starts one for each core, and each tries for 128 MiB until it has them. A fork() waits for
 * them, so under a limit of addresses (ulimit -v) it waits for ever. Only our own threads call
 * OpenBLAS, so it needs no threads of its own; but it reads the environment before main, which
 * is why the program must begin again. */
static void begin_without_blas_threads(char **argv) {
    const char *name = "OPENBLAS_NUM_THREADS", *n = getenv(name);
    if ((!n || strcmp(n, "1") != 0) && setenv(name, "1", true) == 0) {
        execv("/proc/self/exe", argv); /* where there is no /proc all goes on as it is */
    }
}

static void on_end(int sig) { _exit(128 + sig); }

/* Lets signals end the program. Process 1, as in a container, has no default action, so that
 * signals which no verb handles would be ignored. */
static void end_by_signals(void) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; getpid() == 1 && i < sizeof signals / sizeof *signals; i++) {
        if (signal(signals[i], on_end) == SIG_IGN) { signal(signals[i], SIG_IGN); }
    }
}

int main(int argc, char **argv) {
    begin_without_blas_threads(argv);
    prctl(PR_SET_NAME, program_invocation_short_name); /* which is "exe" since */
    end_by_signals();
    const struct sigaction lost = {.sa_sigaction = on_lost_page, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &lost, NULL);
    ckvc_warn_set(warn_on_stderr);
    json_set_alloc_funcs(allocate, free);
    signal(SIGXFSZ, SIG_IGN); /* `ulimit -f`: the write fails, and says so */
    end_process(close_output(run_on_own_stack(&(program){argc, 0, argv})));
}
