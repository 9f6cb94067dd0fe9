/* What a fit is asked for, and what comes out of it beside the table. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "budgets/budgets.h"
#include "cql/fit/fit_side.h"
#include "formats/lines/leak_record.h"
#include "formats/table/table_file.h"
#include "lib/base/memory.h"
#include "lib/base/names.h"

typedef struct fit_options {
    cql_options cql;         /* options of the paper's tables, which are fitted to rewards */
    budgets_options budgets; /* options of the recommended tables, which are fitted to demand */
    /* with a bootstrap, the table gets the shares of its replicates' choices */
    resampling resampled;
    /* the number of the pass that is read of every run; 0: the last complete one of each side */
    int pass;
    /* Only prompts of these splits enter; with none, those of all splits do. Held-out prompts never
     * enter. */
    const char *const *splits;
    size_t n_splits;
    const char *label;          /* NULL stands for the model's name */
    size_t memory_max;          /* the most bytes of statistics */
    const table_file *incoming; /* NULL stands for the shards' start tables */
    /* what META says as its probe; NULL: it follows from the sides that were fitted */
    const char *probe;
    /* Leak checks of manifests, beside those that runs hold. Borrowed. */
    const leak_record *leak_checks;
    size_t n_leak_checks;
} fit_options;
/* Returns the options with their built-in values. */
fit_options fit_defaults(void);

typedef struct fit_result {
    table_file *table; /* owned; the caller adds PROV */
    fitted_side sides[CKVC_SIDE_COUNT];
    fitted_demand demand;
    fitted_learned learned;
    fitted_bank bank;
    uint32_t n_replicates;                        /* of the bootstrap; 0: none was asked for */
    uint64_t n_heldout, n_filtered, n_duplicates; /* counts of prompts that were left out */
} fit_result;

void fit_result_free(fit_result *r);
CKVC_AUTO_OF(fit_result, fit_result_free)

/* Returns what META says under "diagnostics": an object for each side, and what it says about
 * demand. A new reference. */
json_t *fit_diagnostics(const fit_result *r);
/* Returns the same and what else people ask for, as one object for `ckvc fit --json`. A new
 * reference. */
json_t *fit_describe(const fit_result *r);
