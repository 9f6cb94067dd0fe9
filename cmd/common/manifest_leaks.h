/* The leak guard of `manifest check --against`: options, work and printing. */
#pragma once

#include <jansson.h>

#include "cmd/common/options.h"
#include "corpus/leaks/leak_check.h"
#include "formats/lines/manifest.h"
#include "lib/token/tokenizer.h"

typedef struct leaks_cli {
    opt_list against;
    const char *out, *clean;
    leak_options find; /* without what is opened */
    double holdout;
    uint64_t seed;
    bool force;
} leaks_cli;

extern const opt opts_leaks[]; /* rows of leaks_cli */

/* Compares, prints findings (or leaves them in *found as an object, with json), writes the clean
 * manifest (without `repeats` [n_entries], too), compares that, and writes the record, of the clean
 * one where there is one. CKVC_CHECK_FAILED when anything is shared by what the record is of. */
ckvc_status manifest_leaks(const leaks_cli *c, const manifest *m, const tokenizer *tok,
                           const bool *repeats, bool json, json_t **found,
                           ckvc_err *err) CKVC_MUST_CHECK;
