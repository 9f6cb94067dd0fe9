/* What a table with shares recommends, budget by budget: of several scores, floors and weights of
 * demand the one that costs the least on prompts that nothing else is told of (docs/method.md,
 * section 6). */
#pragma once

#include "lib/stats/rank.h"
#include "formats/table/table_file.h"

typedef struct select_candidate {
    ckvc_score_kind score;
    double floor; /* f, of ckvc_c_min */
    double mix;   /* w of the demand that shares are of */
} select_candidate;

enum { SELECT_MAX = 24 }; /* candidates */

typedef struct select_losses {
    uint32_t n_budgets;  /* nB of the table */
    size_t n_prompts, n; /* candidates */
    select_candidate candidates[SELECT_MAX];
    /* Every line has `kl`, which varies less over prompts than losses do: `loss` is it, else the
     * loss over that of the full cache. */
    bool by_kl;
    /* [n][nB] nats per token, a mean over the prompts that have a finite one under every candidate
     * that is left; NaN: there is none, or it was dropped. */
    double *loss;
    bool *lost;     /* [n][nB] it was dropped, or is decided to lose more than the chosen */
    size_t *chosen; /* [nB] the candidate of the least loss, of equal ones the first; n: none */
    rank_interval *more; /* [nB] that the best of the others loses, paired by prompt */
} select_losses;

/* What a table (features: its learned ranking's version, 0: none; of demand with other weights or
 * without) can be tried under, in the order in which it is preferred: by `score`, with the floor
 * that demand was counted with, and with those of 0.2, 0.4 and c_min that are more; where it is the
 * learned one between the window's and the paper's, with the last floor alone, but alone where it
 * reads no attention: neither do engines that it is for. The window's beside it with a floor of 1,
 * too: what is left where neither shares nor the learned ranking have learned anything. Then
 * `score` with the first and the last of these floors and shares of demand with each of
 * shard_mixes. c_min 1: no floor but that, under which shares do not matter. */
size_t select_candidates(uint32_t features, bool mixes, ckvc_score_kind score, double counted,
                         double c_min, select_candidate out[SELECT_MAX]);
/* The losses of a file of score lines: of policy `table` under the table's budgets and modes. The
 * candidates are those of the first prompt's lines, in their order. CKVC_E_DATA where one is
 * missing or there twice; but with `drops` a candidate may have no lines under a budget from some
 * prompt on: it was dropped there, and is not chosen. */
ckvc_status select_read(const char *path, const ckvc_table *t, bool drops, select_losses **out,
                        ckvc_err *err) CKVC_MUST_CHECK;
void select_free(select_losses *s);
CKVC_AUTO_OF(select_losses, select_free)
/* The weights that were chosen -> mix [nB]; true: one is not 0. */
bool select_mixes(const select_losses *s, double *mix);
/* Every block recommends what was chosen, but for its shares, and META says under "select" what was
 * compared. */
void select_take(const select_losses *s, table_file *t);
/* The same for people: {prompts, by, candidates: [{score, floor, loss or kl}], chosen}. New
 * reference. */
json_t *select_json(const select_losses *s);
