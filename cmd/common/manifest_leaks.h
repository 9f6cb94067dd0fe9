/* The leak guard of `manifest check --against`: options, work and printing. */
#ifndef CKVC_CMD_MANIFEST_LEAKS_H
#define CKVC_CMD_MANIFEST_LEAKS_H

#include <jansson.h>

#include "cmd/common/options.h"
#include "formats/lines/manifest.h"
#include "lib/token/tokenizer.h"

typedef struct leaks_cli {
    opt_list against;
    const char *out, *clean;
    double near, holdout;
    int64_t seed, max_findings;
    bool force;
} leaks_cli;

#define LEAKS_DEFAULTS                                                                             \
    { .near = 0.5, .seed = 1, .max_findings = 20 }

#define OPTS_LEAKS(c)                                                                                \
    {OPT_TITLE, "leaks", 0, NULL, NULL, NULL, 0, 0},                                                 \
        {OPT_LIST,                                                                                   \
         "against",                                                                                  \
         0,                                                                                          \
         &(c).against,                                                                               \
         "EVAL.jsonl,...",                                                                           \
         "evaluation files, also .gz: shared spans and near-duplicates",                             \
         0,                                                                                          \
         0},                                                                                         \
        {OPT_DOUBLE, "near", 0,                                                                      \
         &(c).near,  "J",    "near-duplicates share this much of their 5-word shingles (Jaccard)",   \
         0.01,       1},                                                                             \
        {OPT_DOUBLE, "holdout",                                                                      \
         0,          &(c).holdout,                                                                   \
         "F",        "prompts that this draw holds out are not compared, as in calibrate",           \
         0,          1},                                                                             \
        {OPT_INT, "seed", 0, &(c).seed, "N", "of that draw", 0, 9e15},                               \
        {OPT_INT, "max-findings", 0, &(c).max_findings, "N", "findings printed; all are counted", 0, \
         1e6},                                                                                       \
        {OPT_TEXT, "out", 'o', &(c).out, "CHECK.json", "record of the check, for --leak-check",      \
         0,        0},                                                                               \
        {OPT_TEXT,                                                                                   \
         "clean",                                                                                    \
         0,                                                                                          \
         &(c).clean,                                                                                 \
         "CLEAN.jsonl",                                                                              \
         "the manifest without prompts that share something or repeat",                              \
         0,                                                                                          \
         0},                                                                                         \
    {                                                                                                \
        OPT_FLAG, "force", 'f', &(c).force, NULL, "overwrite CHECK.json and CLEAN.jsonl", 0, 0       \
    }

/* Compares, prints findings (or leaves them in *found as an object, with json), writes the record
 * and the clean manifest (without `repeats` [n_entries], too). CKVC_CHECK_FAILED when anything is
 * shared. */
ckvc_status manifest_leaks(const leaks_cli *c, const manifest *m, const tokenizer *tok,
                           const bool *repeats, bool json, json_t **found, ckvc_err *err);

#endif
