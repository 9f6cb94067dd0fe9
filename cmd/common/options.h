/* Tables of options: what a verb can be told, where it is kept, what help says of it. A table
 * serves flags, `--help`, `--print-config`, CKVC_* variables and --config files (option_values.h).
 *
 * A row belongs to a member of a struct. A file with tables names it before the first one,
 *
 *     #define OPTIONS_OF some_cli
 *     static const opt options[] = {
 *         OPT_GROUP(opts_model, inputs),                        rows of another struct, a member
 *         OPT_TITLE("output"),
 *         OPT_INT("limit", limit, "N", 0, 4e9, "Take at most N prompts; 0 means all."),
 *         OPT_OUTPUT("out", out, "FILE", "where to write", .letter = 'o'),
 *         {0}};
 *
 * and a member of another type than its row's does not compile. Values: command line > environment
 * > config file > the row's preset.
 *
 * An option is no member of a record (lib/base/record.h). A record's type says how a value lies in
 * the struct; an option's type says what may be written on a command line and what becomes of it.
 * Text, choice, input and output are one and the same pointer in the struct, sizes have units,
 * lists are appended to, and every refusal is worded for the place that the value came from. Only
 * the names "a|b|c" are common to both. */
#pragma once

/* What every verb uses. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/setting/setting.h"
#include "lib/base/memory.h"
#include "lib/base/status.h"

/* Text for people goes out here alone: results on stdout, talk on stderr. What came from a file and
 * would move a terminal's cursor or turn its writing round goes out as '?' (ckvc_utf8_tame); line
 * ends and tabs stay. Data (JSON, ids, decoded text) is written as it is. */
#define tell(...) put_text(stdout, __VA_ARGS__)
#define say(...)  put_text(stderr, __VA_ARGS__)
void put_text(FILE *f, const char *fmt, ...) CKVC_PRINTF(2, 3);

/* In a function with an `err`: leaves it with a failure; with one of usage. */
#define FAIL_IF(condition, status, ...) CKVC_FAIL_IF(condition, err, status, __VA_ARGS__)
#define USAGE_IF(condition, ...)        FAIL_IF(condition, CKVC_E_USAGE, __VA_ARGS__)

typedef enum opt_type {
    OPT_IS_TITLE,  /* a heading in --help */
    OPT_IS_GROUP,  /* another table's rows */
    OPT_IS_PRESET, /* another table's built-in values alone: the verb does not offer its options */
    OPT_IS_FLAG,   /* --name, or name = true|false in a config file */
    OPT_IS_INT,    /* min to max */
    OPT_IS_COUNT,  /* the same, of 32 bits */
    OPT_IS_DOUBLE, /* min to max */
    OPT_IS_SIZE,   /* bytes: 1048576, 512M, 2G */
    OPT_IS_TEXT,
    OPT_IS_CHOICE,  /* one of metavar, "a|b|c"; without a preset the first */
    OPT_IS_ENUM,    /* the same, kept as the word's place: an enum that counts them */
    OPT_IS_SETTING, /* the field of a `setting` that has this option; its preset is neutral */
    OPT_IS_INPUT,   /* a path that is read; not "" */
    OPT_IS_OUTPUT,  /* a path that is written: not "", no input, and nothing inside an input */
    OPT_IS_LIST,    /* --name a,b,c; may be repeated, values are appended */
    OPT_IS_INPUTS,  /* the same, of paths that are read */
    OPT_IS_BUDGETS, /* a list of distinct budgets: whole tokens, or shares of a prompt */
    OPT_IS_SHARES,  /* the same, of shares of the bytes of the whole cache, up to 1 */
} opt_type;

typedef struct opt_list {
    const char *items[256];
    size_t n;
} opt_list;

/* From 1 on, an item is a number of whole tokens; below 1, it is a share of the prompt. */
typedef struct budget_list {
    double items[256];
    uint32_t n;
} budget_list;

typedef struct opt {
    const char *name; /* long name without dashes; OPT_IS_TITLE: the heading; NULL ends a table */
    opt_type type;
    size_t at;           /* the offset of the value, or of a group's struct, in the verb's struct */
    const char *metavar; /* "N", "FILE" */
    const char *help;
    double min, max;
    const struct opt *group;
    char letter;                  /* short option or 0 */
    const char *preset;           /* built-in value, as on a command line; NULL: none, 0, false */
    const char *const *preset_at; /* a variable that holds the built-in value; or NULL */
    int (*preset_of)(void);       /* a function that returns it as a whole number; or NULL */
    /* Spellings of the last release, which are still taken, with a line on stderr that says the
     * new one. `was` is the option's former name. For OPT_IS_ENUM, `word_was` is a former word
     * and the word that it became. */
    const char *was, *word_was[2];
} opt;

#define OPT_AT(member, ...)                                                                        \
    (offsetof(OPTIONS_OF, member) +                                                                \
     0 * sizeof(char[_Generic(((OPTIONS_OF *)0)->member, __VA_ARGS__)]))
#define OPT_ROW(kind, c_type, long_name, member, var, ...)                                         \
    {                                                                                              \
        .name = long_name, .type = OPT_IS_##kind, .at = OPT_AT(member, c_type : 1),                \
        .metavar = var, .help = __VA_ARGS__                                                        \
    }
#define OPT_TITLE(text)                                                                            \
    { .name = text, .type = OPT_IS_TITLE }
#define OPT_GROUP(table, member)                                                                   \
    { .name = "", .type = OPT_IS_GROUP, .at = offsetof(OPTIONS_OF, member), .group = table }
#define OPT_ROWS(table) /* of the same struct */                                                   \
    { .name = "", .type = OPT_IS_GROUP, .group = table }
#define OPT_PRESETS(table, member)                                                                 \
    { .name = "", .type = OPT_IS_PRESET, .at = offsetof(OPTIONS_OF, member), .group = table }
#define OPT_FLAG(name, member, ...) OPT_ROW(FLAG, bool, name, member, NULL, __VA_ARGS__)
#define OPT_64                                                                                     \
    int64_t:                                                                                       \
    1, uint64_t /* signed or not: nothing is above 2^63 */
#define OPT_SIZE(name, member, ...) OPT_ROW(SIZE, OPT_64, name, member, "SIZE", __VA_ARGS__)
#define OPT_INT(name, member, var, lo, hi, ...)                                                    \
    OPT_ROW(INT, OPT_64, name, member, var, __VA_ARGS__, .min = lo, .max = hi)
#define OPT_COUNT(name, member, var, lo, hi, ...)                                                  \
    OPT_ROW(COUNT, unsigned, name, member, var, __VA_ARGS__, .min = lo, .max = hi)
#define OPT_DOUBLE(name, member, var, lo, hi, ...)                                                 \
    OPT_ROW(DOUBLE, double, name, member, var, __VA_ARGS__, .min = lo, .max = hi)
#define OPT_TEXT(name, member, var, ...) OPT_ROW(TEXT, const char *, name, member, var, __VA_ARGS__)
#define OPT_CHOICE(name, member, var, ...)                                                         \
    OPT_ROW(CHOICE, const char *, name, member, var, __VA_ARGS__)
#define OPT_ENUM(name, member, var, ...) OPT_ROW(ENUM, unsigned, name, member, var, __VA_ARGS__)
#define OPT_SETTING(name, member, var, lo, hi, ...)                                                \
    OPT_ROW(SETTING, setting, name, member, var, __VA_ARGS__, .min = lo, .max = hi)
#define OPT_SETTING_NAME(name, member, ...) /* one of the field's names */                         \
    OPT_ROW(SETTING, setting, name, member, NULL, __VA_ARGS__)
#define OPT_INPUT(name, member, var, ...)                                                          \
    OPT_ROW(INPUT, const char *, name, member, var, __VA_ARGS__)
#define OPT_OUTPUT(name, member, var, ...)                                                         \
    OPT_ROW(OUTPUT, const char *, name, member, var, __VA_ARGS__)
#define OPT_LIST(name, member, var, ...)   OPT_ROW(LIST, opt_list, name, member, var, __VA_ARGS__)
#define OPT_INPUTS(name, member, var, ...) OPT_ROW(INPUTS, opt_list, name, member, var, __VA_ARGS__)
#define OPT_BUDGETS(member, var, ...)                                                              \
    OPT_ROW(BUDGETS, budget_list, "budget", member, var, __VA_ARGS__, .letter = 'B',               \
            .preset = "0.25")

#define OPT_BYTES(member, var, ...) OPT_ROW(SHARES, budget_list, "bytes", member, var, __VA_ARGS__)

/* Tells whether the running verb's option was given on the command line, in the environment or in a
 * config file. opts_said leaves config files out. */
bool opts_given(const char *name);
bool opts_said(const char *name);
/* Returns the running verb's values as texts by option, without those that are not set, as a new
 * reference. */
json_t *opts_json(void);
