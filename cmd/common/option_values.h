/* The values of a verb's options: every source that they come from, in one list. Used by verb.c
 * alone; verbs read their structs, and opts_given. */
#pragma once

#include "cmd/common/options.h"
#include "lib/base/utf8.h"
#include "lib/base/status.h"

typedef enum opt_origin { FROM_DEFAULT, FROM_CONFIG, FROM_ENVIRONMENT, FROM_FLAG } opt_origin;

typedef struct opt_value {
    const opt *o;
    void *at;
    opt_origin from;
} opt_value;

enum { OPT_VALUES_MAX = 96 };
typedef struct opt_values {
    opt_value items[OPT_VALUES_MAX]; /* titles too; groups as their rows */
    size_t n;
    char **kept; /* [n_kept] texts that values point into */
    size_t n_kept, capacity;
} opt_values;

/* Is this the option's name, or the one that it had in the last release? */
bool opt_is_named(const opt *o, const char *name, size_t n);
/* Tells whether some verb has an option of this name, and else offers all names of options to a
 * near miss: what a config file or the environment holds may be meant for another verb. */
typedef bool opt_known_fn(const char *name, nearest *near);

/* Adds a table's rows, whose values are in the zeroed struct at `base`, with their presets. The
 * first that are added are the running verb's, which hold the texts of all until they end. */
void opt_values_add(opt_values *v, const opt *table, void *base);
void opt_values_fini(opt_values *v);
/* "option = value" lines, # comments. A path without a slash that is no file is one of the
 * configurations that come with the program. */
ckvc_status opt_values_config(opt_values *v, const char *path, opt_known_fn *known,
                              ckvc_err *err) CKVC_MUST_CHECK;
/* CKVC_SOME_OPTION=value; one that no verb knows is warned of. */
ckvc_status opt_values_environment(opt_values *v, opt_known_fn *known,
                                   ckvc_err *err) CKVC_MUST_CHECK;
/* Is the word behind this one its value, whatever that begins with? */
bool opt_values_takes_next(opt_values *v, const char *word);
/* Flags of argv [argc], argv[0] left out; what is no flag goes to args [argc], counted in *n_args.
 * --config, which is read before, and --print-config are passed over. */
ckvc_status opt_values_flags(opt_values *v, int argc, char **argv, const char **args,
                             size_t *n_args, ckvc_err *err) CKVC_MUST_CHECK;
/* "N", "FILE"; "a|b|c" of choices; NULL of a flag. */
const char *opt_metavar(const opt *o);
/* The value as it would be written on a command line; the caller frees. NULL: it has none. */
char *opt_value_text(const opt_value *v);
