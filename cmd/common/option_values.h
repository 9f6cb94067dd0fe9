/* The values of a verb's options, from every source that they come from, in one list. This header
 * is for verb.c, and for whoever looks for files that come with the program. Verbs read their own
 * structs, and call opts_given. */
#pragma once

#include "cmd/common/options.h"
#include "lib/base/utf8.h"
#include "lib/base/status.h"

typedef enum opt_origin { FROM_DEFAULT, FROM_CONFIG, FROM_ENVIRONMENT, FROM_FLAG } opt_origin;

typedef struct opt_value {
    const opt *o;    /* the row */
    void *at;        /* where the value is kept, in the verb's struct */
    opt_origin from; /* the last source that gave the value */
} opt_value;

enum { OPT_VALUES_MAX = 96 };
typedef struct opt_values {
    opt_value items[OPT_VALUES_MAX]; /* titles, too; of a group its rows */
    size_t n;
    char **kept; /* [n_kept] texts that values point into */
    size_t n_kept, capacity;
} opt_values;

/* Tells whether name [n bytes] is the option's name, or the one that it had in the last release. */
bool opt_is_named(const opt *o, const char *name, size_t n);
/* Tells whether any verb has an option of this name: what a config file or the environment holds
 * may be meant for another verb. If none has, this offers the names of all options to `near`, so
 * that a message can suggest one. */
typedef bool opt_known_fn(const char *name, nearest *near);

/* Adds the rows of a table, whose values are in the zeroed struct at `base`, and sets their
 * presets. The options that are added first are the running verb's. They own the texts that all
 * values point into, until opt_values_fini. */
void opt_values_add(opt_values *v, const opt *table, void *base);
void opt_values_fini(opt_values *v);
/* Returns the path of a file or folder that comes with the program: PREFIX/share/ckvc/NAME beside
 * the installed program's bin, or FOLDER/NAME of the checkout in which it was built. NULL when it
 * is in neither. The caller frees it. */
char *opt_shipped_path(const char *folder, const char *name);
/* Reads a file of lines "option = value", in which # begins a comment. A path without a slash
 * that is no file names one of the configurations that come with the program. */
ckvc_status opt_values_config(opt_values *v, const char *path, opt_known_fn *known,
                              ckvc_err *err) CKVC_MUST_CHECK;
/* Reads the variables CKVC_SOME_OPTION=value, and warns of those that no verb knows. */
ckvc_status opt_values_environment(opt_values *v, opt_known_fn *known,
                                   ckvc_err *err) CKVC_MUST_CHECK;
/* Tells whether the word that follows `word` on a command line is its value, whatever that next
 * word begins with. */
bool opt_values_takes_next(opt_values *v, const char *word);
/* Reads the flags of argv [argc], without argv[0]. Words that are no flags go to args [argc],
 * and *n_args counts them. --config, which is read before, and --print-config are passed over. */
ckvc_status opt_values_flags(opt_values *v, int argc, char **argv, const char **args,
                             size_t *n_args, ckvc_err *err) CKVC_MUST_CHECK;
/* Returns what stands for the option's value in help: "N", "FILE", or "a|b|c" where there are
 * choices. A flag has NULL. */
const char *opt_metavar(const opt *o);
/* Returns the value as it would be written on a command line, for the caller to free, or NULL
 * when it has none. */
char *opt_value_text(const opt_value *v);
