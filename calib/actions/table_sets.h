/* What a table keeps of a prompt, chosen by the library that engines embed (ckvc_prefill): fed from
 * the runtime's prefill head by head, and asked for one budget after the other. */
#pragma once

#include "lib/base/status.h"
#include "lib/model/model.h"
#include "lib/policy/policy_parts.h"

typedef struct table_sets_options {
    const ckvc_table *table; /* borrowed, as the budgets are */
    const double *budgets;   /* [n_budgets] */
    uint32_t n_budgets;
    /* In place of what the table recommends; CKVC_MODE_COUNT, CKVC_SCORE_COUNT: as it does. */
    ckvc_mode mode;
    ckvc_score_kind score;
} table_sets_options;

/* Made by table_sets_keep, valid until the next. */
typedef struct table_kept {
    ckvc_mode mode;
    ckvc_score_kind score;
    uint32_t n_sets;        /* of a layer: 1 or G */
    kept_set *sets;         /* [L] */
    uint32_t *n_candidates; /* [L] */
} table_kept;

typedef struct table_sets {
    table_sets_options o;
    uint32_t L, G, H, D, max_tokens;
    ckvc_score *scores;     /* [nB] that the table's blocks rank by, as asked */
    void **workspace;       /* [nB], of the first block of each score; NULL: of others */
    ckvc_prefill **prefill; /* [nB] of the prompt in hand; NULL: its score is not wanted */
    size_t bytes;
    const char *prompt; /* its name, for refusals */
    uint32_t n_tokens;
    table_kept kept;
    uint32_t *positions; /* [L][G * max_tokens] */
    uint32_t *offsets;   /* [L][G + 1] */
    uint32_t *scratch;   /* [max_tokens] */
    double *of_layer;    /* [max_tokens] */
} table_sets;

/* What a block ranks by, and in which mode, as asked. */
ckvc_score table_sets_score(const table_sets_options *o, uint32_t block);
/* For prompts of up to max_tokens. Close it after an error, too. CKVC_E_MISMATCH: the library
 * refuses the table for this model. */
ckvc_status table_sets_open(table_sets *s, const table_sets_options *o, const model_shape *shape,
                            uint32_t max_tokens, ckvc_err *err) CKVC_MUST_CHECK;
void table_sets_close(table_sets *s);
/* Last rows of a prompt's attention that table_sets_see reads. */
uint32_t table_sets_rows(const table_sets *s);

/* A prompt (its name is borrowed until the next) of n_tokens, longer than the table's window, whose
 * keys are rotated by inv_freq [D/2]. CKVC_E_DATA: a budget is below what every head must keep. */
ckvc_status table_sets_begin(table_sets *s, const char *prompt, uint32_t n_tokens,
                             const double *inv_freq, ckvc_err *err) CKVC_MUST_CHECK;
/* Every head of every layer in order, as a prefill_watcher is shown them. */
void table_sets_see(table_sets *s, const prefill_head *head);
/* After the prefill, with its statistics: the sets under budget number b. floor: of the budget,
 * what every set by shares has at least; NULL: the table's. */
ckvc_status table_sets_keep(table_sets *s, uint32_t b, const double *floor,
                            const prefill_stats *stats, const table_kept **out,
                            ckvc_err *err) CKVC_MUST_CHECK;

/* Of the budget whose sets were made last: the log scores of a head, [T], until the next call. */
const double *table_sets_scores(table_sets *s, uint32_t b, uint32_t layer, uint32_t head);
/* What a set would hold if it held `capacity` positions: ascending; how many. */
uint32_t table_sets_unit(table_sets *s, uint32_t b, uint32_t layer, uint32_t set, uint32_t capacity,
                         uint32_t *positions);
/* How many positions of it a threshold on its scores over their mean leaves (ckvc_count_above). */
uint32_t table_sets_above(table_sets *s, uint32_t b, uint32_t layer, uint32_t set, double tau);
/* The table's own such threshold in a prompt's risk cell; 0: it has none. */
double table_sets_threshold(const table_sets *s, uint32_t b, uint32_t layer,
                            const prefill_stats *stats);
