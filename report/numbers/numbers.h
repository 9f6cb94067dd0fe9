/* What a report says, as numbers. Each section computes its own numbers from the inputs and puts
 * them into report.json (members.h). The structs here hold what a later section computes with.
 * An undefined number is NaN. Everything but the JSON lives in the inputs' arena. */
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
    int action;                                /* its place on the grid; -1: not on it */
    double value;                              /* NaN: not known */
    /* Whether there are records. Where a table has no counts, this is true of all entries. */
    bool supported;
} entry;

/* ---- whether to deploy a table (verdict_numbers.c) ---- */

typedef struct verdict_need {    /* A condition of the rule, as a table's scores meet it. */
    const struct comparison *by; /* what it is judged by; NULL: there is none */
    /* about how many more prompts it needs; 0: it holds; NaN: more would not make it hold */
    double prompts;
} verdict_need;

/* What a table takes in bytes at one budget, and how it stands against the whole cache in the
 * fewest bytes. Shares are of what the whole cache takes in 16 bits. */
typedef struct byte_verdict byte_verdict;

/* The verdict at one budget, under the score that the table recommends if that was scored. */
typedef struct verdict_at {
    const score_series *of;
    double budget;
    const char *word; /* "deploy", "do not deploy", "needs more prompts" */
    /* prompts that were scored, and the larger of the two needs for more; NaN: more would not
     * help */
    double prompts, needed;
    /* The two conditions: better than identity, and not worse than the best simple reference. */
    verdict_need gain, reference;
    const struct comparison *unfitted; /* with the same entries as they were; NULL: not scored */
    interval loss, kl;                 /* over the full cache, nats per token */
    byte_verdict *bytes;               /* NULL: it was scored in float32 */
} verdict_at;

typedef struct verdict_numbers { /* The verdict on a table is the worst of those at its budgets. */
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
    /* it has only budgets of heads or layers: neither weights nor thresholds were fitted */
    bool shares_alone;
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

/* The rewards of one series less those of another on the same prompts, in nats per token. */
typedef struct difference {
    interval d;
    interval kl;  /* KL from the full cache, of the other less that of the one: above 0 is better */
    double kl_of; /* the mean KL of the one */
    /* Whether every row has a KL. Then the KL decides which is better, because it varies less. */
    bool by_kl;
    /* Which prompts these are: those of a source, or of the kind "text" or "retrieval"; NULL:
     * any. */
    const char *source, *kind;
    bool has_lengths, has_bootstrap, equal_tokens;
    /* Whether both keep as many entries in each prompt, and in each layer of each prompt. */
    bool equal_prompts, equal_layers;
    uint32_t T_lo, T_hi; /* with has_lengths: prompts from T_lo to T_hi tokens */
    /* n_documents counts several prompts of one document once, and any other prompt for itself */
    size_t n, n_documents, undefined;
    /* largest_share is the largest part that one prompt has of the sum */
    double standard_error, median, largest_share;
    bootstrap_ends bootstrap;
    double reward, reward_base, kept, kept_base, kept_ratio; /* kept: tokens per layer */
} difference;

typedef struct comparison {
    score_series of, base;
    bool one_score; /* whether both are under the same score */
    /* Over all prompts, then over those of each kind, source and length. The three arrays lie one
     * behind the other. */
    difference all, *kinds, *sources, *lengths;
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

/* A part of the prompts is called better or worse if it has at least so many. */
#define PART_MIN 10
/* Returns the interval that decides, kl or d. */
const interval *difference_deciding(const difference *of);
/* Returns "better", "worse", "no difference shown" or "too few prompts to tell", by the
 * interval. */
const char *difference_judged(const difference *of);
/* Tells whether it is shown to be better or worse, on PART_MIN prompts or more. */
bool difference_decided(const difference *of);
/* Returns where both keep as many entries: "in each layer of each prompt", "in each prompt" or
 * "on average"; NULL: nowhere. */
const char *difference_equal_in(const difference *of);
json_t *difference_json(const difference *of);
/* Computes the difference of series a from series b on all prompts of both; false: there are none.
 */
bool series_difference(report_numbers *n, const score_series *a, const score_series *b,
                       difference *out);
/* The first tells whether both are of one model, budget and C. The second tells whether they are
 * also of one table or policy. */
bool series_of_one_setting(const score_series *a, const score_series *b);
bool series_alike(const score_series *a, const score_series *b);
/* Tells whether y is what x would be with its entries as they were: both have the same table's
 * sets, and x's entries are fitted. */
bool series_is_unfitted(const score_series *y, const score_series *x);
/* Tells whether the policy read the prompts a second time before it kept anything. */
bool series_reads_twice(const score_series *s);
/* Returns an object with the title, policy, model, budget and C of a series. */
json_t *series_named(const score_series *s);
/* Returns the loss over the full cache: minus the reward, or the KL. */
interval series_loss(const score_series *s, bool kl);
/* Both are of the formats in which the series was scored: the first tells whether they are others
 * than float32, the second returns their names. */
static inline bool series_has_formats(const score_series *s) {
    return !cache_is_plain(setting_formats(&s->setting));
}
const char *series_formats(const report_numbers *n, const score_series *s);
/* Returns the comparison that says what the table of c brings. This is the one with its own
 * matched control, if there is one, else c, which is with plain identity. */
const comparison *comparison_gain(const score_numbers *s, const comparison *c);

/* ---- losses (loss_numbers.c) ---- */

/* Tells whether the series is of a table, identity or a reference, of which a page shows what they
 * lose. */
bool series_is_shown(const score_series *s);
const table_numbers *series_table(const report_numbers *n, const score_series *s); /* or NULL */
/* Returns what a series is called where nothing but policies differ. */
const char *series_label(const report_numbers *n, const score_series *s);

/* ---- bytes (byte_numbers.c) ---- */

/* The cache of a request under a series, as means over prompts; NaN: not known. What an entry costs
 * is stated, not measured: a key and a value of head_dim numbers in their formats. Numbers in
 * float32 stand for those that an engine holds in 16 bits, and count so. */
typedef struct cache_size {
    double layers, kv_heads, head_dim, tokens;
    double entries, all_entries, bytes, all_bytes; /* all_bytes: of the whole cache in 16 bits */
} cache_size;
cache_size series_cache(const score_series *s);

struct byte_verdict {
    double asked;          /* the byte share that the table says of the budget; NaN: none */
    double share, entries; /* what is kept, of the bytes and of the entries */
    const char *formats;
    const score_series *whole; /* the whole cache; NULL: none was scored */
    const char *whole_formats;
    double whole_share;
    difference by; /* the table's losses less those of the whole cache, where there is one */
};

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

/* Computes every number. The caller calls numbers_free, also after an error. */
ckvc_status numbers_make(report_numbers *n, inputs *in, ckvc_err *err) CKVC_MUST_CHECK;
void numbers_free(report_numbers *n);
/* The parts of numbers_make, in the order in which they run: each needs those before. */
void table_numbers_make(report_numbers *n);
ckvc_status trust_numbers_make(report_numbers *n, ckvc_err *err) CKVC_MUST_CHECK;
void pair_numbers_make(report_numbers *n);
void run_numbers_make(report_numbers *n);
void score_numbers_make(report_numbers *n);
void loss_numbers_make(report_numbers *n); /* fills the list of the scores' losses */
void verdict_numbers_make(report_numbers *n);
void byte_numbers_make(report_numbers *n); /* adds what is lost by bytes, where formats differ */
void answer_numbers_make(report_numbers *n);
void attention_numbers_make(report_numbers *n);
void diagnostic_numbers_make(report_numbers *n);
void transfer_numbers_make(report_numbers *n);

json_t *spread_json(const sample_spread *s); /* {mean, lo, hi, defined} */
/* Adds a name to a list that is in byte order and has each name once. The list must have room
 * for another. */
void add_sorted(const char **names, size_t *n, const char *name);

/* Returns `count` zeroed elements of type T from the arena of report_numbers n. */
#define NEW(n, count, T) ((T *)arena_alloc(&(n)->in->arena, (count), sizeof(T)))
/* Goes through list [n], with x at each element. */
#define EACH(T, x, list, n) for (const T *x = (list), *x##_end = x + (n); x < x##_end; x++)
