/* What a table with shares recommends, budget by budget: the one of several rankings, floors and
 * weights of demand that costs the least on prompts that no other part of the fit has seen
 * (docs/method.md, section 6). */
#pragma once

#include "lib/stats/rank.h"
#include "formats/table/table_file.h"

typedef struct select_candidate {
    ckvc_score_kind score;
    double floor; /* the kept floor f, as in ckvc_c_min */
    double mix;   /* the weight w of the demand from which shares are made */
    double ridge; /* lambda, by which kept entries are fitted in all layers; 0: they are not */
} select_candidate;

enum { SELECT_MAX = 40 }; /* the most candidates */

typedef struct select_losses {
    uint32_t n_budgets;  /* nB, the number of the table's budgets */
    size_t n_prompts, n; /* n is the number of candidates */
    select_candidate candidates[SELECT_MAX];
    /* Whether every line has `kl`, which varies less over prompts than losses do. Then `loss` is
     * the KL; else it is the loss over that of the full cache. */
    bool by_kl;
    /* [n][nB] in nats per token: the mean over the prompts that have a finite loss under every
     * candidate that is left. It is NaN where there is no such prompt, or the candidate was
     * dropped. */
    double *loss;
    /* [n][nB] whether the candidate was dropped, or is in the worse half of those that are left (of
     * four and fewer, behind the second) */
    bool *lost;
    /* [nB] the candidate with the least loss, and of equal ones the first; n: there is none */
    size_t *chosen;
    /* [nB] what the best of the others loses more than the chosen one, paired by prompt */
    rank_interval *more;
} select_losses;

/* Lists what a table can be tried under, in the order in which candidates are preferred, and
 * returns how many there are. `features` is the version of the table's learned ranking, or 0 where
 * it has none. `mixes` says whether demand was logged with other weights. `counted` is the demand
 * floor.
 *
 * First comes the ranking `score` with the demand floor, and with those of 0.2, 0.4 and c_min that
 * are higher. Where `score` is the learned ranking, it stands between the window's and the paper's,
 * each of which has the last floor alone. A learned ranking that reads no attention stands without
 * these two, because the engines that it is made for read none either. Where the window's is tried
 * in this way, it is tried with a floor of 1, too: this is what remains where neither shares nor
 * the learned ranking have learned anything.
 *
 * Then comes `score` with the first and the last of these floors, and with shares of demand with
 * each of shard_mixes. With c_min 1 there is no floor but 1, under which shares do not matter.
 *
 * With a bank, each of these floors of `score` is also tried with fitted entries, because which
 * floor is best depends on that: with the ridges 0.1 and 0.5. A learned ranking that fits entries
 * has the bank's attention in it, and with 0.5 it is also tried without it. Shares of other demand
 * are then tried up to w = 0.5, with the first floor and entries fitted with 0.1, with the bank's
 * attention in the ranking and without it. What else can be combined was not chosen where it was
 * tried (docs/findings.md). */
size_t select_candidates(uint32_t features, bool mixes, bool bank, ckvc_score_kind score,
                         double counted, double c_min, select_candidate out[SELECT_MAX]);
/* Reads the losses from a file of score lines: those of policy `table` under the table's budgets
 * and modes. The candidates are those of the first prompt's lines, in their order. The status is
 * CKVC_E_DATA where a line is missing or is there twice. With `drops`, a candidate may have no
 * lines under a budget from some prompt on: it was dropped there, and is not chosen. The caller
 * frees *out with select_free. */
ckvc_status select_read(const char *path, const ckvc_table *t, bool drops, select_losses **out,
                        ckvc_err *err) CKVC_MUST_CHECK;
void select_free(select_losses *s);
CKVC_AUTO_OF(select_losses, select_free)
/* Returns how many of `left` candidates stay: the better half of them, at least two where there are
 * two. */
size_t select_better_half(size_t left);
/* Lets budgets that are ways to spend the same bytes compete. `share` [nB] says which are: those of
 * one byte share. Only the best of them keeps its chosen candidate, of equal ones the first; `lost`
 * then says which are in the worse half of the candidates of all of them. */
void select_across(select_losses *s, const double *share);
/* Writes the weights that were chosen to mix [nB]. Returns true where one of them is not 0. */
bool select_mixes(const select_losses *s, double *mix);
/* Makes every block recommend what was chosen for it; only shares stay as they are. META then says
 * under "select" what was compared. */
void select_take(const select_losses *s, table_file *t);
/* Returns what was compared as {prompts, by, candidates: [{score, floor, loss or kl}], chosen}, a
 * new reference. */
json_t *select_json(const select_losses *s);
