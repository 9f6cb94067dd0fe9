/* Losses of a prompt under other capacities than a table's shares give (docs/method.md,
 * section 10): of side head when one KV head's share of the budget is multiplied (mode
 * `layers`: one layer's), of side gate when a layer's sets are cut by a threshold; all others as
 * the table has them.
 *
 *   unit   of side head a KV head, or a layer in mode `layers`; of side gate a layer: U a layer
 *   state  budget, layer, unit
 *   action of side head a factor, 1/4 to 4: as many entries as ckvc_share_capacities says, less
 *          what the table's own threshold cuts; of side gate a threshold, 0 to 8 mean scores, in
 *          place of the table's, which that side leaves out: as many as ckvc_count_above says
 *
 * What is tried: whole states in an order drawn from (seed, id), until the next one's rollouts
 * would be over the limit; the first always. Actions of a state that keep equally many keep the
 * same set and cost one rollout, those that keep the table's none. Each rollout of a sweep is the
 * same bits as the plain way's, whatever the batches.
 */
#pragma once

#include "calib/actions/table_sets.h"
#include "calib/rollout/worker.h"
#include "formats/shard/shard.h"

enum { SHARE_FACTORS = 7, SHARE_THRESHOLDS = 9 };

typedef struct share_rollouts_options {
    const table_file *table; /* with shares of its mode, the same in all blocks; borrowed */
    ckvc_side side;
    setting setting; /* budgets the table's; borrows */
    int64_t limit;   /* rollouts a prompt; < 0: all */
    double check;    /* share of them that is done again the plain way */
} share_rollouts_options;

typedef struct share_rollouts {
    share_rollouts_options o;
    ckvc_mode mode;
    ckvc_table plain;      /* the table, of side gate without thresholds; its arrays are borrowed */
    const double *actions; /* [A] */
    uint32_t A, neutral;   /* neutral: the action that the table's own sets are */
    uint32_t L, U, S;      /* S: sets of a layer */
    uint32_t n_budgets, max_tokens;
    table_sets table; /* what `plain` keeps of the prompt in hand */
    prefill_watcher watcher;
    uint32_t *order;     /* [nB][L][U] states as they are drawn */
    bool *taken;         /* of each */
    uint32_t *entries;   /* [nB][L][U][A] of the prompt in hand */
    uint32_t *scratch;   /* [L][S] */
    kept_set *base;      /* [L]: the plain way's */
    uint32_t most_lanes; /* of a batch, the table's own included */
    rollout_lane *lanes;
    kept_set *kept;      /* of each lane ... */
    uint32_t *offsets;   /* [lanes][S + 1] */
    uint32_t *positions; /* [lanes][S * max T] */
    struct share_lane {  /* whose loss a lane is */
        size_t action;   /* its place in the row of losses, and of as many ... */
        uint32_t n;      /* ... that keep the same */
    } * of_lane;
    uint64_t n_rollouts, n_checked; /* so far */
} share_rollouts;

/* CKVC_E_MISMATCH where the table's blocks have not one mode (not `shared`), or lack its shares. */
ckvc_status share_rollouts_open(share_rollouts *s, const share_rollouts_options *o,
                                const calibrate_inputs *in, worker_options *w, ckvc_err *err)
    CKVC_MUST_CHECK; /* adds what the worker has to hold */
void share_rollouts_close(share_rollouts *s);
/* One prompt: prefill, full-cache loss, and into its row of a share shard the losses under all that
 * is tried; of one that is held out the table's own alone. *finite: all are. No
 * allocation. CKVC_E_DATA where a budget is below what the units must keep. */
ckvc_status share_rollouts_measure(share_rollouts *s, worker *w, const prompt *p, shard *rows,
                                   size_t row, bool *finite, ckvc_err *err) CKVC_MUST_CHECK;
