/* What a table keeps of a prompt, as the library that engines embed decides it (ckvc_prefill). The
 * library is fed head by head from our own prefill, and is then asked for one budget after the
 * other. */
#pragma once

#include "lib/base/status.h"
#include "lib/model/model.h"
#include "lib/policy/policy_parts.h"

typedef struct table_sets_options {
    const ckvc_table *table; /* borrowed, like the budgets */
    const double *budgets;   /* [n_budgets] */
    uint32_t n_budgets;
    /* Used in place of what the table recommends. CKVC_MODE_COUNT and CKVC_SCORE_COUNT mean that
     * the table's recommendation holds. */
    ckvc_mode mode;
    ckvc_score_kind score;
} table_sets_options;

/* What table_sets_keep returns; valid until its next call. */
typedef struct table_kept {
    ckvc_mode mode;
    ckvc_score_kind score;
    uint32_t n_sets;        /* of each layer: 1 or G */
    kept_set *sets;         /* [L] */
    uint32_t *n_candidates; /* [L] */
} table_kept;

typedef struct table_sets {
    table_sets_options o;
    uint32_t L, G, H, D, max_tokens;
    ckvc_attending *attending; /* [L] how the layers attend, for the prompt in hand */
    ckvc_score *scores;        /* [nB] by what each block of the table ranks positions */
    /* [nB] memory for the library. Blocks that rank by the same score share that of the first of
     * them; the others have NULL. */
    void **workspace;
    /* [nB] the library's state for the prompt in hand, at the first block of each score that its
     * budgets need; NULL elsewhere. */
    ckvc_prefill **prefill;
    size_t bytes;
    const char *prompt; /* the name of the prompt in hand, for error messages */
    uint32_t n_tokens;
    table_kept kept;
    uint32_t *positions; /* [L][G * max_tokens] */
    uint32_t *offsets;   /* [L][G + 1] */
} table_sets;

/* Returns the score by which a block ranks positions and the mode in which it keeps them, after the
 * options have replaced what the table recommends. */
ckvc_score table_sets_score(const table_sets_options *o, uint32_t block);
/* Opens *s for prompts of at most max_tokens. The caller closes it with table_sets_close, even
 * after an error. CKVC_E_MISMATCH says that the library refuses the table for this model. */
ckvc_status table_sets_open(table_sets *s, const table_sets_options *o, const model_shape *shape,
                            uint32_t max_tokens, ckvc_err *err) CKVC_MUST_CHECK;
void table_sets_close(table_sets *s);
/* Returns how many of the last rows of a prompt's attention table_sets_see reads, which is what the
 * prefill must show. */
uint32_t table_sets_rows(const table_sets *s);

/* Begins a prompt of n_tokens, which must be longer than the table's window. Its name is borrowed
 * until the next prompt begins; `from` is the session that prefills it. The status is CKVC_E_DATA
 * where a budget is below what every head must keep. */
ckvc_status table_sets_begin(table_sets *s, const char *prompt, uint32_t n_tokens,
                             const session *from, ckvc_err *err) CKVC_MUST_CHECK;
/* Takes one head. Call it for every head of every layer in order, as a prefill_watcher sees
 * them. */
void table_sets_see(table_sets *s, const prefill_head *head);
/* Decides the sets under budget number b, after the prefill and with its statistics. *floor is the
 * part of the budget that every set by shares has at least; NULL takes the table's. *out is the
 * object's and is valid until the next call. */
ckvc_status table_sets_keep(table_sets *s, uint32_t b, const double *floor,
                            const prefill_stats *stats, const table_kept **out,
                            ckvc_err *err) CKVC_MUST_CHECK;

/* Returns the log scores [T] of a head under budget number b, whose sets must be those that were
 * made last. They are valid until the next call. */
const double *table_sets_scores(table_sets *s, uint32_t b, uint32_t layer, uint32_t head);
