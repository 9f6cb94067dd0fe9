/* The leak check of `manifest check --against`: its options, its work and its text. */
#pragma once

#include <jansson.h>

#include "cmd/common/options.h"
#include "corpus/leaks/leak_check.h"
#include "formats/lines/manifest.h"
#include "lib/token/tokenizer.h"
#include "cmd/common/opened_inputs.h"
#include "formats/table/table_file.h"

typedef struct leaks_cli {
    opt_list against;
    const char *out, *clean;
    leak_options find; /* its tokenizer is opened later */
    double holdout;
    uint64_t seed;
    bool force;
} leaks_cli;

extern const opt opts_leaks[]; /* rows of leaks_cli */

/* Compares the manifest with the evaluation files. With --clean it writes the clean manifest, which
 * also lacks the prompts that `repeats` [n_entries] marks (NULL: none), and compares that one. With
 * --out it writes the record, which is of the clean manifest where there is one. With `talk` the
 * findings are also printed as text. The status is CKVC_CHECK_FAILED where the manifest that the
 * record is of shares text or ids with an evaluation file, or has near-duplicates of its own.
 * *found becomes {findings, record, clean}, a new reference, also in that case. */
ckvc_status manifest_leaks(const leaks_cli *c, const manifest *m, const tokenizer *tok,
                           const bool *repeats, bool talk, json_t **found,
                           ckvc_err *err) CKVC_MUST_CHECK;

/* ---- outside `manifest check`: the record that goes into a plan, and what a table's record says
 * about a score ---- */

/* Reads the record at `path` for a plan. *out is a new reference, or NULL if path is NULL. A record
 * of another manifest, or of fewer prompts than this run takes, is CKVC_E_MISMATCH. A record that
 * has leaks brings a warning. */
ckvc_status leak_guard_plan(const char *path, const opened_inputs *e, json_t **out,
                            ckvc_err *err) CKVC_MUST_CHECK;
/* Prints a line on stderr unless the prompts of the table were compared with those scored here and
 * share nothing with them. */
void leak_guard_warn(const table_file *t, const char *path, const char *scored_manifest);
