/* Rewards of shares, and of thresholds below them (formats/shard/shard.md, /prompt/action_loss), on
 * their way into new ones: docs/method.md, section 10. Each prompt's losses are kept,
 * since the price, its intervals and what is shrunk all come from resampling them. Internal to
 * cql/fit. */
#pragma once

#include "cql/fit/fit_result.h"
#include "formats/shard/shard.h"

typedef struct fit_rewards {
    char *where;        /* the first shard; NULL: none was read */
    shard_header first; /* its header: model, budgets, mode, actions */
    struct fit_rewards_prompt {
        uint64_t hash; /* of id and tokens; first: the order of sums */
        uint64_t key;  /* of the id: resampling */
        uint32_t n_tokens;
        double risk[2];    /* r_struct, r_sem ... */
        uint32_t cell;     /* ... and of thresholds the risk cell that they fall in */
        double *losses;    /* owned [nB][L][U][A] */
        uint32_t *entries; /* owned, the same; 0: not tried */
    } * prompts;
    size_t n_prompts, capacity;
} fit_rewards;

/* Prompt p of a share shard that fit_match found to belong to those before. CKVC_E_MEMORY beyond
 * `memory_max` bytes of losses. */
ckvc_status fit_rewards_add(fit_rewards *w, const shard *s, size_t p, uint64_t hash,
                            size_t memory_max, const char *where, ckvc_err *err) CKVC_MUST_CHECK;
/* Multiplies the table's shares of the records' mode by what the fit chooses, or gives it
 * thresholds below them (o->n_entropy_bins x o->n_ppl_bins risk cells, quantiles of the prompts):
 *
 *   state       a head or layer; of thresholds a layer and risk cell
 *   Q(s, a)     conservative Q-learning on loss(neutral) - loss(a), nats per token over its
 *               deviation; neutral: the factor 1, the threshold 0
 *   cost(s, a)  mean over prompts of the entries that a adds, over all that a prompt may keep
 *   choice      argmax_a Q(s, a) - price * cost(s, a); of equal ones the smaller change
 *   price       of factors the smallest at which the choices of a budget add no entries: 0, or what
 *               bisection finds; of thresholds the one that the table's shares were fitted at
 *
 * Where o->shrink is set, a choice that the bootstrap, each replicate at its own price, does not
 * show to be better than no change is taken back. Shares are then scaled to mean 1; their intervals
 * are those of the replicates, none where there are none. A prompt counts for the budgets shorter
 * than it. CKVC_E_DATA where the records were not logged under these shares, or no price is known,
 * CKVC_E_BUG when the solver fails. */
ckvc_status fit_rewards_table(fit_rewards *w, const fit_options *o, table_file *t,
                              fitted_rewards *out, ckvc_err *err) CKVC_MUST_CHECK;
void fit_rewards_fini(fit_rewards *w);
