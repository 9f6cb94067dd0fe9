/* What a report says, as numbers: each section computes its own from the inputs and puts them into
 * report.json (members.h). The structs here are what a later section computes with; an undefined
 * number is NaN. All but the JSON lives in the inputs' arena. */
#pragma once

#include "cql/solve/stability.h"
#include "report/load/inputs.h"
#include "report/numbers/members.h"

typedef struct report_numbers report_numbers;

typedef struct interval {
    double mean, lo, hi;
} interval;

/* ---- tables (table_numbers.c; of their own records trust_numbers.c) ---- */

/* One entry of a table's side: a head's weight, or a risk cell's threshold, at one budget. */
typedef struct entry {
    double layer, entropy, perplexity, budget; /* a weight's bins are 0 */
    int action;                                /* of the grid; -1: not on it */
    double value;                              /* NaN: not known */
    bool supported; /* has records, or there are no counts and all is shown */
} entry;

/* ---- whether to deploy a table (verdict_numbers.c) ---- */

typedef struct verdict_need {    /* one condition of the rule, as a table was scored */
    const struct comparison *by; /* that it is judged by; NULL: there is none */
    double prompts; /* more that it needs, about; 0: it holds; NaN: more would not make it hold */
} verdict_need;

/* At one budget, under the score that the table recommends where that was scored. */
typedef struct verdict_at {
    const score_series *of;
    double budget;
    const char *word;             /* "deploy", "do not deploy", "needs more prompts" */
    double prompts, needed;       /* scored; more, the larger need; NaN: that would not help */
    verdict_need gain, reference; /* better than identity; not worse than the best simple one */
    interval loss, kl;            /* over the full cache, nats per token */
} verdict_at;

typedef struct verdict_numbers { /* of a table: the worst of all budgets */
    const char *word;            /* or "no verdict": it was not scored */
    double needed;
    bool leak_passed, held_out;
    verdict_at *budgets;
    size_t n_budgets;
} verdict_numbers;
extern const char verdict_deploy[];

typedef struct table_numbers {
    const input_table *in;
    const table_file *f;
    const ckvc_table *shape;
    bool shares_alone; /* budgets of heads or layers; neither weights nor thresholds were fitted */
    size_t n_budgets, n_entries[CKVC_SIDE_COUNT];
    entry *entries[CKVC_SIDE_COUNT];
    verdict_numbers verdict;
    json_t *json; /* its object in report.json */
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
    score_numbers scores;
    transfer_row *transfers;
    size_t n_tables, n_transfers;
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
void loss_numbers_make(report_numbers *n); /* fills the list of the scores' losses */
void verdict_numbers_make(report_numbers *n);
void answer_numbers_make(report_numbers *n);
void attention_numbers_make(report_numbers *n);
void diagnostic_numbers_make(report_numbers *n);
void transfer_numbers_make(report_numbers *n);

json_t *spread_json(const sample_spread *s); /* {mean, lo, hi, defined} */
/* Names in byte order, each once; has room for another. */
void add_sorted(const char **names, size_t *n, const char *name);

#define NEW(n, count, T) ((T *)arena_alloc(&(n)->in->arena, (count), sizeof(T)))
/* For each x of list [n]. */
#define EACH(T, x, list, n) for (const T *x = (list), *x##_end = x + (n); x < x##_end; x++)
