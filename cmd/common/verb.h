/* A verb of the program. Each verb is one constant, listed in main.c; dispatch, help and the
 * work go by it. */
#pragma once

#include "cmd/common/options.h"
#include "lib/base/status.h"

typedef struct verb_call {
    void *options;            /* the verb's own struct */
    const char *const *items; /* positional arguments */
    size_t n;
    int argc; /* the command line from the verb's name on */
    char **argv;
} verb_call;

typedef struct verb {
    const char *name;     /* "fit", "manifest build"; NULL: a heading of the list of verbs */
    const char *about;    /* in the list of verbs; a heading's text; NULL: not listed */
    const char *summary;  /* in its own help; NULL: `about` */
    const char *usage;    /* "ckvc fit RUN... --out T.ckvt [options]" */
    const char *examples; /* two or three lines, each "  ckvc ...\n" */
    void (*more)(void);   /* prints what its help says behind the examples, or NULL */
    const char *common;   /* names of the options that its help shows, " model out "; NULL, where
                             there are few: all of them. `--help all` shows all in any case */
    const opt *options;   /* rows of a struct of `size` bytes: VERB_OPTIONS */
    size_t size;
    ckvc_status (*work)(const verb_call *call, ckvc_err *err);
    const char *instead; /* the verb takes no arguments, and this says where its inputs are named */
    const char *each;    /* the verb needs arguments, and `work` gets one after the other, whatever
                            became of the one before; this names them: "a table or run" */
    bool reads_args;     /* its arguments are paths that it reads */
} verb;

#define VERB_OPTIONS(rows) .options = rows, .size = sizeof(OPTIONS_OF)

/* Runs what argv asks for. `all` has all verbs and headings in the order of the list of verbs,
 * and NULL at its end. An error is one line "ckvc VERB: ..." on stderr, and with --json also an
 * object. Returns the exit code. */
int verbs_run(const verb *const *all, int argc, char **argv);
/* Fills a verb's struct as it is without flags: with built-in values, the configuration's and
 * the environment's. A verb that does another one's work uses this. */
ckvc_status verb_values(const verb *v, void *options, ckvc_err *err) CKVC_MUST_CHECK;
