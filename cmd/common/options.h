/* One option table a verb: parsing, --help, --print-config, environment (CKVC_*), --config files,
 * near-miss suggestions. */
#ifndef CKVC_OPTIONS_H
#define CKVC_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

typedef enum opt_type {
    OPT_FLAG,   /* bool *            --name, or name = true|false in a config file   */
    OPT_INT,    /* int64_t *         checked against min..max    */
    OPT_DOUBLE, /* double *          checked against min..max */
    OPT_TEXT,   /* const char **   */
    OPT_CHOICE, /* const char **     one of choices, "a|b|c" */
    OPT_SIZE,   /* int64_t * bytes   1048576, 512M, 2G   */
    OPT_LIST,   /* opt_list *        --name a,b,c ; may be repeated, values are appended   */
    OPT_TITLE   /* a heading in --help   */
} opt_type;

typedef struct opt_list {
    const char *items[256];
    size_t n;
} opt_list;

typedef struct opt {
    opt_type type;
    const char *name; /* long name without dashes; OPT_TITLE: the heading */
    char letter;      /* short option or 0 */
    void *value;      /* holds the built-in default before parsing */
    const char *arg;  /* "N", "FILE" in help; OPT_CHOICE: "a|b|c" */
    const char *help;
    double min, max; /* OPT_INT, OPT_DOUBLE: used when min < max */
} opt;

typedef struct verb_text {
    const char *name;     /* "fit" */
    const char *summary;  /* one line */
    const char *usage;    /* "ckvc fit RUN... --out T.ckvt [options]" */
    const char *examples; /* two or three lines, each "  ckvc ...\n" */
} verb_text;

typedef struct opt_args {
    const char **items; /* positional arguments, borrowed from argv; free(items) */
    int n;
} opt_args;

/* Parses. Returns true when the verb should go on; false when it is over (help or config printed:
 * *rc = 0; or an error, already printed: *rc = exit code). The array ends with {0} (name NULL). */
bool opts_parse(const verb_text *verb, opt *opts, int argc, char **argv, opt_args *args, int *rc);
/* A whole verb without positional arguments: opts are parsed into cli's members, an argument is
 * refused (`instead` says where the inputs are named), work does the rest, its error is printed.
 * Returns the exit code. */
typedef ckvc_status verb_work(void *cli, const opt *opts, ckvc_err *err);
int verb_run(const verb_text *verb, opt *opts, const char *instead, int argc, char **argv,
             verb_work *work, void *cli);
/* True when the option was given on the command line, in the environment or in a config file. */
bool opts_given(const opt *opts, const char *name);

/* Prints err as the one line "ckvc VERB: ..." on stderr (with --json also as an object) and returns
 * its exit code. */
int cmd_fail(const char *verb, const ckvc_err *err);
int cmd_usage(const char *verb, const char *fmt, ...) CKVC_PRINTF(2, 3);

#endif
