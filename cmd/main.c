/* ckvc: dispatch and help from one table of verbs. stdout is data, stderr is talk; exit codes are
 * listed in README.md. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/verbs.h"
#include "lib/base/memory.h"
#include "lib/base/names.h"
#include "lib/base/status.h"

typedef struct verb {
    const char *name; /* NULL: a heading */
    int (*run)(int argc, char **argv);
    const char *help;
} verb;

static const verb verbs[] = {
    {NULL, NULL, "prompts"},
    {"manifest", cmd_manifest, "build prompt manifests from text, check them"},
    {"tokenize", cmd_tokenize, "text to ids, ids to text"},
    {NULL, NULL, "the compiler"},
    {"scan", cmd_scan, "statistics of prompts and risk-bin edges (pass 0)"},
    {"calibrate", cmd_calibrate, "try retention actions on prompts, log records"},
    {"fit", cmd_fit, "records to tables: horizon-1 conservative Q-learning"},
    {"compile", cmd_compile,
     "the loop: calibrate heads, fit, calibrate the gate, fit, until it is done"},
    {"transfer", cmd_transfer, "map a table to another model by relative depth"},
    {NULL, NULL, "looking"},
    {"score", cmd_score, "losses of prompts under tables and reference policies"},
    {"report", cmd_report, "stability and truth of tables, as a page"},
    {"perplexity", cmd_perplexity, "teacher-forced losses: is the runtime right for my model?"},
    {"inspect", cmd_inspect, "say what a file, model or run is"},
    {"verify", cmd_verify, "check a file, model or run whole"},
    {NULL, NULL, "this program"},
    {"bench", cmd_bench, "what this machine reaches, as CSV"},
    {"version", cmd_version, "build flags, libraries, BLAS kernel"},
};
enum { VERB_COUNT = sizeof verbs / sizeof *verbs };

static void print_verbs(FILE *f) {
    fprintf(f,
            "ckvc %s: compiles KV-cache eviction policies offline\n\nusage: ckvc VERB [options]    "
            "  ckvc help VERB\n",
            CKVC_VERSION);
    for (int i = 0; i < VERB_COUNT; i++) {
        if (verbs[i].name) {
            fprintf(f, "  %-12s %s\n", verbs[i].name, verbs[i].help);
        } else {
            fprintf(f, "\n%s\n", verbs[i].help);
        }
    }
}

static const verb *find_verb(const char *name) {
    for (int i = 0; i < VERB_COUNT; i++) {
        if (verbs[i].name && strcmp(verbs[i].name, name) == 0) { return &verbs[i]; }
    }
    return NULL;
}

/* The verb that shares the longest beginning with a mistyped name, if it shares two letters. */
static const char *near_verb(const char *name) {
    const char *best = NULL;
    size_t best_n = 1;
    for (int i = 0; i < VERB_COUNT; i++) {
        size_t n = 0;
        while (verbs[i].name && verbs[i].name[n] && verbs[i].name[n] == name[n]) {
            n++;
        }
        if (n > best_n) {
            best_n = n;
            best = verbs[i].name;
        }
    }
    return best;
}

static void warn_on_stderr(const char *line) {
    fflush(stdout);
    fprintf(stderr, "warning: %s\n", line);
}

/* jansson's malloc: JSON values are as little tested for memory as ours. */
static void *allocate(size_t n) {
    return ckvc_alloc(n, 1);
}

static int run_verb(int argc, char **argv) {
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
        (strcmp(name, "help") == 0 && argc == 2)) {
        print_verbs(stdout);
        return 0;
    }
    if (strcmp(name, "--version") == 0) {
        printf("ckvc %s\n", CKVC_VERSION);
        return 0;
    }
    if (strcmp(name, "help") == 0) {
        const verb *v = find_verb(argv[2]);
        char help[] = "--help";
        char *help_argv[] = {argv[2], help, NULL};
        if (v) { return v->run(2, help_argv); }
        name = argv[2];
    } else {
        const verb *v = find_verb(name);
        if (v) { return v->run(argc - 1, argv + 1); }
    }
    const char *near = near_verb(name);
    fprintf(stderr, "ckvc: unknown verb '%s'%s%s%s; `ckvc help` lists them\n", name,
            near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
    return 64;
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
    if (argc < 2) {
        print_verbs(stderr);
        leave(64);
    }
    int rc = run_verb(argc, argv);
    /* A full disk shows when buffered output is flushed: the last chance to notice. */
    if ((fflush(stdout) != 0 || fclose(stdout) != 0) && errno != EBADF && rc == 0) {
        fprintf(stderr, "ckvc: writing to standard output failed: %s\n", strerror(errno));
        rc = 74;
    }
    leave(rc);
}
