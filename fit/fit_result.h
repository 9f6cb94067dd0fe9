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
    cql_options cql;         /* of the paper's tables, from rewards */
    budgets_options budgets; /* of ours, from demand */
    resampling resampled;    /* of a bootstrap the table gets the choices' shares */
    int pass;                /* of every run; 0: the last complete one of each side */
    /* Only prompts of these; none: of all splits. Held-out prompts never enter. */
    const char *const *splits;
    size_t n_splits;
    const char *label;              /* NULL: the model's name */
    size_t memory_max;              /* bytes for statistics */
    const table_file *incoming;     /* NULL: the shards' start tables */
    const char *probe;              /* META's probe; NULL: by the sides that were fitted */
    const leak_record *leak_checks; /* of manifests, beside those that runs hold; borrowed */
    size_t n_leak_checks;
} fit_options;
fit_options fit_defaults(void);

typedef struct fit_result {
    table_file *table; /* owned; PROV is the caller's to add */
    fitted_side sides[CKVC_SIDE_COUNT];
    fitted_demand demand;
    fitted_learned learned;
    uint32_t n_replicates;
    uint64_t n_heldout, n_filtered, n_duplicates; /* prompts left out */
} fit_result;

void fit_result_free(fit_result *r);
CKVC_AUTO_OF(fit_result, fit_result_free)

/* What META says under "diagnostics": an object a side; what it says of demand. New reference. */
json_t *fit_diagnostics(const fit_result *r);
/* The same and what else people ask for, as one object: for `ckvc fit --json`. New reference. */
json_t *fit_describe(const fit_result *r);
