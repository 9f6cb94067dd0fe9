/* What a report says, as numbers: computed once from the inputs, shown by the sections. An
 * undefined number is NaN. Members are named as in report.json where they can be, and what a
 * section names stands in the struct that it shows. All of it lives in the inputs' room. */
#pragma once

#include "lib/stats/partial.h"
#include "lib/stats/rank.h"
#include "cql/solve/stability.h"
#include "cql/solve/variance.h"
#include "report/load/inputs.h"
#include "report/numbers/members.h"

typedef struct report_numbers report_numbers;

typedef struct interval {
    double mean, lo, hi;
} interval;

/* ---- tables (table_numbers.c) ---- */

/* One entry of a table's side: a head's weight, or a risk cell's threshold, at one budget. */
typedef struct entry {
    double layer, entropy, perplexity, budget; /* a weight's bins are 0 */
    int action;                                /* of the grid; -1: not on it */
    double value;                              /* NaN: not known */
    double records;                            /* behind it; NaN: the table carries no counts */
    bool supported;                 /* has records, or there are no counts and all is shown */
    signed char by_loss, loss_flat; /* the loss alone would choose it; is the same for all actions;
                                       -1: not known, or no penalty is paid */
    const char *verdict;     /* "no records", "neutral", "undecided", "decided"; "": not known */
    bool undecided, bounded; /* has a bound */
    double agree, advantage, lower_bound; /* share of refits; gain over the neutral action */
    variance_bound bound;
    double excess; /* twice the bound */
} entry;

typedef struct weight_numbers { /* at one budget */
    double budget, mean, min, max, share_at_1;
    size_t n_layers, n_heads, n_actions, n, supported;
    double *weight, *histogram; /* [L][G]; [A] heads */
} weight_numbers;

/* Neighbouring cells along one risk that both have records: higher risk should not raise the
 * threshold. */
typedef struct monotone {
    size_t pairs;
    double non_increasing, non_decreasing, equal;
} monotone;

typedef struct threshold_numbers { /* at one budget */
    double budget, mean_tau;
    size_t n_layers, n_entropy, n_perplexity, n_actions, cells, supported;
    double *tau, *histogram; /* [L][E][P]; [A] cells with records */
    monotone along_entropy, along_perplexity;
} threshold_numbers;

typedef struct action_count {
    double action, logged, chosen;
} action_count;

/* What thresholds rest on: numbers of them, or shares of those with records. */
typedef struct rests {
    double supported, by_loss, by_penalty, loss_flat;
} rests;
typedef struct budget_rests {
    double budget;
    rests all;    /* shares */
    rests *cells; /* [E][P] numbers of layers */
    size_t n_entropy, n_perplexity;
} budget_rests;

/* What the choices of a side rest on. */
typedef struct side_evidence {
    const char *name;
    struct side side;
    entry *entries;
    size_t states, supported;
    double records, min, median, mean, max; /* all; of a state that has any */
    action_count *actions;
    size_t n_actions;
    double alpha_decided, count_correlation, count_percentile, choice_stability;
    bool penalty; /* is paid beside the loss: then the rest is known */
    rests all;    /* shares */
    budget_rests *budgets;
    size_t n_budgets;
} side_evidence;

/* ---- how far to trust a side, by its own records (trust_numbers.c) ---- */

typedef struct curve_point {
    double prompts, records, rollouts, supported;
    stability_spread rho, to_full;
    bool corrected;
} curve_point;
typedef struct left_out_point { /* advantage on prompts left out, of choices from so many prompts */
    rank_interval gain;
    double prompts, records, rollouts;
} left_out_point;
typedef struct alpha_point { /* another weight of conservatism */
    double alpha, changed_from_default, changed_from_0, mean_entry;
    rank_interval left_out;
} alpha_point;
typedef struct bound_sums {
    double delta, mean_prompts, mean_width;
    size_t states, actions, informative;
} bound_sums;
typedef struct side_refits {
    size_t decided, undecided, neutral, without_records, replicates, curve_repeats;
    double neutral_choice, agree;
    curve_point *curve;
    left_out_point *left_out;
    size_t n_curve, n_left_out;
} side_refits;

typedef struct side_trust {
    const char *name; /* "head" */
    const side_kind *kind;
    const char *missing; /* why the rest is not known; NULL: it is */
    bool known, has_refits, even_counts;
    entry *entries;
    size_t states, prompts;
    uint64_t records;
    double rollouts;
    variance_split variance;
    bound_sums bound;
    alpha_point *alphas;
    size_t n_alphas;
    side_refits refits;
} side_trust;

typedef struct leak_numbers { /* sums over the checks of a table's manifests (table_numbers.c) */
    const char *state;        /* "passed", "shared", "in part", "not compared", "not checked",
                                 "not readable" */
    uint64_t prompts, files, leaked_prompts, leaked_in_scored; /* the last: at least so many */
    size_t scored_manifests, scored_not_compared;
    unsigned ngram;
} leak_numbers;

/* ---- whether to deploy a table (verdict_numbers.c) ---- */

typedef struct verdict_need {    /* one condition of the rule, as a table was scored */
    const struct comparison *by; /* that it is judged by; NULL: there is none */
    double prompts; /* more that it needs, about; 0: it holds; NaN: more would not make it hold */
} verdict_need;

/* What an entry costs is stated, not measured: a key and a value of head_dim numbers each. */
#define CACHE_BYTES 2          /* of a number: float16, bfloat16 */
typedef struct cache_numbers { /* of a request, means over prompts; NaN: not known */
    double tokens, layers, kv_heads, head_dim, entries, all_entries, bytes, all_bytes, saved_bytes;
} cache_numbers;

/* At one budget, under the score that the table recommends where that was scored. */
typedef struct verdict_at {
    const score_series *of;
    double budget;
    const char *word;             /* "deploy", "do not deploy", "needs more prompts" */
    double prompts, needed;       /* scored; more, the larger need; NaN: that would not help */
    verdict_need gain, reference; /* better than identity; not worse than the best simple one */
    interval loss, kl;            /* over the full cache, nats per token */
    cache_numbers cache;
} verdict_at;

typedef struct verdict_numbers { /* of a table: the worst of all budgets */
    const char *word;            /* or "no verdict": it was not scored */
    const char *objection;       /* what no score can outweigh; "": nothing (words.h) */
    double needed;
    bool leak_passed, held_out;
    verdict_at *budgets;
    size_t n_budgets;
} verdict_numbers;
extern const char verdict_deploy[];

typedef struct table_numbers {
    const input_table *in;
    const char *tag, *name, *title, *file;
    table_file f;    /* borrowed */
    const char *run; /* "R1, R2" that it was fitted from; NULL: not among the inputs */
    const ckvc_table *shape;
    bool shares_alone; /* budgets of heads or layers; neither weights nor thresholds were fitted */
    size_t n_budgets, n_sides, n_entries[CKVC_SIDE_COUNT];
    weight_numbers *head;    /* [nB] */
    threshold_numbers *gate; /* [nB] */
    entry *entries[CKVC_SIDE_COUNT];
    side_evidence evidence[CKVC_SIDE_COUNT];
    side_trust *trust; /* [CKVC_SIDE_COUNT] */
    leak_numbers leaks;
    verdict_numbers verdict;
} table_numbers;

/* ---- scores (score_numbers.c) ---- */

typedef struct bootstrap_ends {
    double lo, hi;
    size_t replicates;
} bootstrap_ends;

/* Rewards of one series less those of another on the same prompts, nats per token. */
typedef struct difference {
    interval d;
    interval kl; /* KL from the full cache of the other less that of the one: above 0 is better */
    bool by_kl;  /* every row has it; what is decided then is decided by it, as it varies less */
    const char *source, *kind; /* which prompts: of a source, "text" or "retrieval"; NULL: any */
    bool has_lengths, has_bootstrap, equal_tokens;
    bool equal_prompts, equal_layers; /* as many entries in each prompt, in each layer of it */
    uint32_t T_lo, T_hi;              /* with lengths: prompts from T_lo to T_hi tokens */
    size_t n, n_documents, undefined; /* documents: of several prompts one, else each its own */
    double standard_error, median, largest_share; /* the last: of the sum, one prompt's */
    bootstrap_ends bootstrap;
    double reward, reward_base, kept, kept_base, kept_ratio; /* kept: tokens per layer */
} difference;

typedef struct comparison {
    score_series of, base;
    bool one_score;                             /* both under the same */
    difference all, *kinds, *sources, *lengths; /* one behind the other */
    size_t n_kinds, n_sources, n_lengths;
} comparison;

/* The lists of comparisons, in the order of the page. */
enum {
    AT_EQUAL_TOKENS,
    AT_OTHER_TOKENS,
    AGAINST_CONTROLS,
    BETWEEN_TABLES,
    BETWEEN_SCORES,
    AGAINST_MATCHED,
    AGAINST_IDENTITY,
    SCORE_LISTS
};
typedef struct comparison_list {
    comparison *of;
    size_t n, cap;
} comparison_list;

typedef struct score_numbers {
    score_series *series; /* tables, their controls, references */
    size_t n_series;
    bool held_out_checked;
    comparison_list lists[SCORE_LISTS];
} score_numbers;

#define PART_MIN 10 /* prompts from which on a part of them is called better or worse */
const interval *difference_deciding(const difference *of); /* kl, or d */
/* "better", "worse", "no difference shown", "too few prompts to tell": by the interval. */
const char *difference_judged(const difference *of);
bool difference_decided(const difference *of); /* better or worse, from PART_MIN prompts on */
/* Where both keep as many entries: "in each layer of each prompt", "in each prompt", "on average";
 * NULL: they do not. */
const char *difference_equal_in(const difference *of);
json_t *difference_json(const difference *of);
json_t *losses_json(const report_numbers *n); /* loss_numbers.c */
/* One model, budget and C; one table or policy under them, too. */
bool series_of_one_setting(const score_series *a, const score_series *b);
bool series_alike(const score_series *a, const score_series *b);
/* Its title, policy, model, budget and C. */
json_t *series_named(const score_series *s);
/* Over the full cache: minus reward, or KL. */
interval series_loss(const score_series *s, bool kl);
/* What says what the table of a comparison brings: that with its own matched control, else this
 * one, which is with plain identity. */
const comparison *comparison_gain(const score_numbers *s, const comparison *c);

/* ---- transfer (transfer_numbers.c) ---- */

typedef struct transfer_row {
    const char *source_model, *target_model, *heads, *transferred, *compiled;
    double budget, kept_ratio;
    uint32_t C;
    difference against_compiled; /* its interval and n */
    const difference *transferred_against_identity, *compiled_against_identity; /* or NULL */
} transfer_row;

/* ---- all ---- */

struct report_numbers {
    inputs *in;
    table_numbers *tables;
    side_trust *trust; /* those of all tables */
    score_numbers scores;
    transfer_row *transfers;
    size_t n_tables, n_trust, n_transfers;
    json_t *json; /* report.json so far */
};

/* numbers_free also after an error. */
ckvc_status numbers_make(report_numbers *n, inputs *in, ckvc_err *err) CKVC_MUST_CHECK;
void numbers_free(report_numbers *n);
/* Its parts, in this order: each needs those before. */
void table_numbers_make(report_numbers *n);
ckvc_status trust_numbers_make(report_numbers *n, ckvc_err *err) CKVC_MUST_CHECK;
void pair_numbers_make(report_numbers *n);
void run_numbers_make(report_numbers *n);
void score_numbers_make(report_numbers *n);
void verdict_numbers_make(report_numbers *n);
void answer_numbers_make(report_numbers *n);
void transfer_numbers_make(report_numbers *n);
void attention_numbers_make(report_numbers *n);
void diagnostic_numbers_make(report_numbers *n);

json_t *spread_json(const stability_spread *s); /* {mean, lo, hi, defined} */
/* Names in byte order, each once; has room for another. */
void add_sorted(const char **names, size_t *n, const char *name);

#define NEW(n, count, T) ((T *)room_for(&(n)->in->room, (count), sizeof(T)))
/* For each x of list [n]. */
#define EACH(T, x, list, n) for (const T *x = (list), *x##_end = x + (n); x < x##_end; x++)
