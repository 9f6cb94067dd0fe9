/* ckvc: the list of verbs, and what the process needs around them. stdout is data, stderr is talk;
 * exit codes are listed in README.md. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/verbs.h"
#include "lib/base/memory.h"

#define HEADING(text)                                                                              \
    &(const verb) {                                                                                \
        .about = text                                                                              \
    }
static const verb *const verbs[] = {
    HEADING("prompts"),   &verb_manifest,  &verb_manifest_build,
    &verb_manifest_check, &verb_tokenize,  HEADING("the compiler"),
    &verb_scan,           &verb_calibrate, &verb_fit,
    &verb_compile,        &verb_transfer,  HEADING("looking"),
    &verb_score,          &verb_report,    &verb_perplexity,
    &verb_inspect,        &verb_verify,    HEADING("this program"),
    &verb_bench,          &verb_version,
};

static void warn_on_stderr(const char *line) {
    fflush(stdout);
    fprintf(stderr, "warning: %s\n", line);
}

/* jansson's malloc: JSON values are as little tested for memory as ours. */
static void *allocate(size_t n) {
    return ckvc_alloc(n, 1);
}

/* Ends the process without exit handlers: OpenBLAS's (0.3.21) joins worker threads of its own, and
 * one that the system refuses memory tries for ever (seen under ulimit -d). All that is ours is
 * written and closed before. The sanitisers look for leaks in an exit handler, so they keep theirs.
 */
static _Noreturn void leave(int rc) {
    fflush(stderr);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    exit(rc);
#else
    _exit(rc);
#endif
}

int main(int argc, char **argv) {
    ckvc_warn_set(warn_on_stderr);
    json_set_alloc_funcs(allocate, free);
    int rc = verbs_run((verb_list){verbs, sizeof verbs / sizeof *verbs}, argc, argv);
    /* A full disk shows when buffered output is flushed: the last chance to notice. */
    if ((fflush(stdout) != 0 || fclose(stdout) != 0) && errno != EBADF && rc == 0) {
        fprintf(stderr, "ckvc: writing to standard output failed: %s\n", strerror(errno));
        rc = 74;
    }
    leave(rc);
}
