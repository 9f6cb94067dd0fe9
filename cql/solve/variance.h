/* Says where rewards vary (between prompts, between actions, the rest), what the paper's
 * calibration bound gives for a run's own numbers, and how many choices random counts would turn
 * (docs/paper.md, sections 5 and 10). */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#include "cql/solve/logged.h"
#include "lib/stats/rank.h"
#include "lib/base/names.h"

/* Two-way analysis of variance without replication per state, over the prompts that logged every
 * action of it, pooled over states with at least two such prompts:
 *   y_pa = m + prompt_p + action_a + rest_pa
 *   SS_prompt = A sum_p (y_p. - y..)^2,  SS_action = N sum_a (y_.a - y..)^2,
 *   SS_rest = SS_total - both,           MS = sum of SS / sum of degrees of freedom
 *   action = (MS_action - MS_rest) / mean N,  prompt = (MS_prompt - MS_rest) / A,  rest = MS_rest
 * These are unbiased components of variance, in squared nats per token; they may come out below 0,
 * which means 0. */
typedef struct variance_split {
    size_t n_states;   /* how many states entered; with 0 the other members are NaN */
    double n_prompts;  /* mean number of prompts of a state */
    double prompt_raw; /* of raw rewards, while the other components are of advantages */
    double prompt, action, rest;
    /* shares of sums of squares: here of raw rewards, then of advantages */
    double share_prompt_raw;
    double share_prompt, share_action, share_rest;
    /* The share of a mean profile of actions that is common to prompts: action / (action + rest /
     * n), for one prompt and for n_prompts. */
    double common_one, common_all;
    /* The t interval of `action` over a delete-a-group jackknife of prompts, in which those of one
     * document are in one group. */
    rank_interval action_interval;
} variance_split;
/* Splits the variance. `reward` is CQL_ADVANTAGE or CQL_LOSS_PART; with the latter prompt_raw is
 * that of the raw reward's loss part plus baseline. */
variance_split variance_of(const cql_logged *l, cql_reward reward);

typedef struct variance_bound {
    /* how many prompts logged the action that fewest logged; 0 where the state has no record */
    size_t n_prompts;
    size_t n_actions; /* how many actions have records */
    /* The largest less the smallest advantage that was seen of one prompt and action. */
    double width, bound; /* variance_bounds says what the bound is */
    double spread;       /* the largest less the smallest mean advantage of an action */
} variance_bound;
/* Computes the paper's uniform calibration bound for every state: width sqrt(log(2 A / delta) / (2
 * N)). Twice that bounds the excess of the empirical best. of [S] is written. */
void variance_bounds(const cql_logged *l, double delta, variance_bound *of);

/* Returns the share of `draws` in which the choice would be another if the state's records had been
 * drawn uniformly over the logged actions, the means [A] being what they are. This is what random
 * counts alone would do. It is NaN without records, with 0 draws, or where the solver fails. */
double variance_count_noise(const cql_fit *fit, const uint64_t *n, const double *mean,
                            uint32_t draws, uint64_t seed, uint64_t state);

/* What decided the choices of one side: the rewards' means, the conservative term, or the penalty.
 * It is computed here alone, both for a fit and for a table that is read, from plain arrays, which
 * are borrowed. A state is [l][x][b], so S = L * X * nB. */
typedef struct decided_from {
    size_t S, X, nB;
    ckvc_actions actions;
    const uint64_t *n;      /* [S][A] counts */
    const double *q, *mean; /* [S][A], read where n > 0 */
    const double *part;     /* [S][A] mean loss parts; NULL where no penalty is paid */
    double cql_alpha;
    /* Whether q is the exact solver's. Where it is not, the loss part's choice is compared with the
     * exact one, like with like: how far q stopped from the minimum is not the penalty's doing. */
    bool exact;
} decided_from;

/* Counts of states. */
typedef struct decided_split {
    size_t supported;
    /* in these the loss part alone would choose the same; in the others the penalty decided */
    size_t by_loss;
    size_t flat; /* in these the loss part is the same for all logged actions */
} decided_split;

typedef struct decided {
    size_t X, nB;
    int *chosen;          /* [S] by q; -1: no records */
    bool *by_loss, *flat; /* [S], all layers of [nB][X]; NULL without part */
    decided_split *split; /* [nB][X] */
    size_t n_supported;   /* states with records */
    uint64_t *records;    /* [n_supported] how many records each of them has, ascending */
    double median;        /* the median of these numbers; NaN without any */
    size_t n_alpha;       /* how many choices the plain mean would not make */
    /* Spearman's rho over logged actions, between being chosen and the action's share of its
     * state's records; NaN: all counts are equal. */
    double correlation;
    size_t n_failed; /* in how many states the solver failed: a bug, or unsound evidence */
} decided;

/* Computes what decided. The caller releases the result with decided_fini. */
decided decided_of(const decided_from *from);
void decided_fini(decided *d);
/* Returns the sums of budget b, or with b = nB those of all budgets. */
decided_split decided_sum(const decided *d, size_t b);
