/* Records to a table: pools run directories and bare shards, fits every state, chooses its action,
 * and leaves the evidence in a table_file (method.md sections 5, 6; formats.md, META).
 *
 * Deterministic: the same records give the same content id, in whatever order and number of shards
 * they come.
 */
#ifndef CKVC_FIT_RECORDS_H
#define CKVC_FIT_RECORDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cql/solve/counts.h"
#include "formats/lines/leak_record.h"
#include "formats/table/table_file.h"
#include "lib/base/names.h"
#include "lib/base/status.h"

typedef enum fit_solver { FIT_EXACT, FIT_ADAMW } fit_solver;
typedef enum fit_reward { FIT_ADVANTAGE, FIT_RAW } fit_reward;
typedef enum fit_unsupported { FIT_INCOMING, FIT_SAFEST, FIT_NEIGHBOUR } fit_unsupported;

const char *fit_unsupported_name(fit_unsupported u); /* "incoming", ... */

typedef struct fit_options {
    double cql_alpha;
    fit_solver solver;
    fit_reward reward;
    fit_unsupported unsupported;
    int pass; /* of every run; 0: the last complete one of each side */
    const char *const
        *splits; /* only prompts of these splits; none: all. Held-out prompts never enter. */
    size_t n_splits;
    const char *label; /* NULL: the model's name */
    uint32_t
        replicates; /* 0: no resampling. With CQL_RESAMPLE_BOOTSTRAP the table gets its shares. */
    cql_resample resample;
    bool shrink;       /* what the bootstrap does not show to be better becomes ckvc_neutral_action,
                          unlogged the incoming one */
    uint64_t seed;     /* of the resampling and of AdamW's order */
    size_t memory_max; /* bytes for statistics */
    const table_file *incoming;     /* NULL: the shards' start tables */
    const char *probe;              /* META's probe; NULL: by the sides that were fitted */
    const leak_record *leak_checks; /* of manifests, beside those that runs hold; borrowed */
    size_t n_leak_checks;
} fit_options;
fit_options fit_defaults(void);

typedef struct fit_side {
    bool fitted;  /* had records; otherwise the side is the incoming table's */
    bool carried; /* it is, with its evidence (fit_carry.h) */
    uint64_t n_records, n_prompts;
    size_t n_states, n_supported;
    uint64_t count_min, count_median, count_max; /* records of a supported state */
    double scale;                                /* rewards were divided by it */
    double certificate;       /* worst gradient of a state over max(1, max |mean reward|) */
    size_t n_alpha_decided;   /* supported states whose choice differs from that of the plain mean
                                 reward */
    double count_correlation; /* Spearman, chosen or not against the action's share of its state's
                                 records; NaN: all counts are equal */
    double count_noise;    /* share of supported states that random counts would turn, had as many
                              records been drawn uniformly */
    double adamw_distance; /* largest |Q - exact Q| of a logged action; NaN with the exact solver */
    size_t n_by_loss, n_by_penalty; /* gate, exact solver: the loss part alone would choose the same
                                       action, another one */
    size_t n_flat_loss; /* gate: the loss is the same for all logged actions; the penalty alone
                           decides */
    struct fit_split {
        size_t n_supported, n_by_loss, n_flat_loss;
    } * by_budget; /* [nB], gate: the same per budget; zeros on the head side, NULL where the side
                      was not fitted */
    size_t n_budgets;
    size_t n_shrunk;   /* choices that --shrink took back */
    size_t n_changed;  /* entries that differ from the incoming table */
    uint16_t *choices; /* [replicates][n_states] (NULL without), CQL_NO_CHOICE where undefined */
} fit_side;

typedef struct fit_result {
    table_file *table; /* owned; PROV is the caller's to add */
    fit_side sides[CKVC_SIDE_COUNT];
    uint32_t n_replicates;
    uint64_t n_heldout, n_filtered, n_duplicates; /* prompts left out */
} fit_result;

/* paths: run directories and shard files. Warnings go to ckvc_warn. */
ckvc_status fit_records(const char *const *paths, size_t n_paths, const fit_options *o,
                        fit_result **out, ckvc_err *err) CKVC_MUST_CHECK;
void fit_result_free(fit_result *r);
CKVC_AUTO_OF(fit_result, fit_result_free)
/* The diagnostics as an object. New reference; NULL when memory is out. */
json_t *fit_describe(const fit_result *r);

#endif
