/* What a report is made from, in memory: tables and score files whole, and of runs sums, for
 * which one shard is read at a time. Only loading can fail; everything after it is arithmetic on
 * what is loaded.
 *
 * inputs_load reads, and inputs_free releases. What the rest of a report allocates comes from
 * `arena`, too. */
#pragma once

#include <string.h>

#include "cql/solve/logged.h"
#include "lib/stats/gate_binding.h"
#include "cql/solve/stability.h"
#include "formats/run/run_status.h"
#include "formats/run/run_dir.h"
#include "formats/shard/shard_rows.h"
#include "formats/table/table_file.h"
#include "lib/base/names.h"
#include "report/load/report_options.h"
#include "lib/base/memory.h"
#include "formats/lines/answers.h"
#include "formats/lines/policy_kind.h"
#include "formats/lines/scores.h"
#include "formats/setting/setting.h"

/* A series: the rows of the score files that count and are of one policy or table in one
 * setting. */
typedef struct score_series {
    const char *title, *model, *policy;
    const char *table; /* content id; "": none */
    policy_kind kind;  /* of the policy; POLICY_KIND_COUNT: unknown here */
    double budget;
    uint64_t layer_budgets; /* says which budgets by layer; 0: none */
    uint32_t continuation;
    setting setting;
    /* [n_taus] the thresholds of a matched control, ascending. There are several when several
     * runs of `ckvc score` each found their own. */
    double *taus;
    size_t n_taus;
    const score_row **rows; /* [n] by prompt, each once */
    size_t n;
} score_series;

typedef struct score_files {
    scores **files;
    size_t n_files;
    score_series *series;
    size_t n_series, n_rows;
    /* How many rows were dropped: because a run took records from their prompts, because of their
     * split, and because another file gave them already. */
    size_t dropped_seen, dropped_split, dropped_twice;
    /* How many rows are used, because there is nothing else, although a run took records from their
     * prompts. */
    size_t used_seen;
    size_t n_marked; /* rows in use that are marked as held out */
    /* [n_utilities] The rows with utilities, each model and prompt once, in the order of models.
     * All rows of a model have the same layers and heads. */
    const score_row **utilities;
    size_t n_utilities;
} score_files;

/* Tells whether both are of one model, one budget and one C. */
static inline bool score_same_budget(const score_series *a, const score_series *b) {
    return strcmp(a->model, b->model) == 0 && a->budget == b->budget &&
           a->layer_budgets == b->layer_budgets && a->continuation == b->continuation;
}

/* Tells whether both are of one setting, as far as it decides sets and losses. */
static inline bool score_same_setting(const score_series *a, const score_series *b) {
    return setting_compare(&a->setting, &b->setting, SETTING_SCORE | SETTING_CACHE) == 0 &&
           a->setting.compress_after == b->setting.compress_after;
}

/* Orders rows by manifest, then by id. */
static inline int score_compare_prompts(const score_row *a, const score_row *b) {
    int c = strcmp(a->manifest, b->manifest);
    return c ? c : strcmp(a->id, b->id);
}

/* The rows of the answers files, in the order in which they are counted (answer_rows.c). */
typedef struct answer_files {
    answers **files;
    size_t n_files;
    const answer_row **rows;      /* [n_rows] each once, ordered by bench, series, task and item */
    size_t n_rows, dropped_twice; /* the last: rows that another file gave already */
} answer_files;

/* Rows are of one bench, and may stand in one column, if they are of one model and the question
 * was seen, or was not, in both. */
int answer_compare_benches(const answer_row *a, const answer_row *b);
/* Rows are of one series if they are of one policy or table in one setting at one budget. The
 * full cache comes first; then budgets fall, shares of T before numbers of tokens. */
int answer_compare_series(const answer_row *a, const answer_row *b);
int answer_compare_items(const answer_row *a, const answer_row *b); /* by task, then id */

/* The memory of a report. It is given piece by piece and released at once when the report is
 * done, so that what is computed needs no destructors. */
typedef struct arena {
    void **pieces;
    size_t n, cap;
} arena;

/* Keeps a piece that malloc gave, and releases it with the rest. */
static inline void *arena_keep(arena *r, void *piece) {
    CKVC_GROW(r->pieces, r->cap, r->n + 1);
    return r->pieces[r->n++] = piece;
}

/* Returns n zeroed elements of `size` bytes. */
static inline void *arena_alloc(arena *r, size_t n, size_t size) {
    return arena_keep(r, ckvc_calloc(n, size));
}
#define arena_text(r, ...) ((const char *)arena_keep(r, ckvc_format(__VA_ARGS__)))

static inline void arena_fini(arena *r) {
    for (size_t i = 0; i < r->n; i++) { free(r->pieces[i]); }
    free(r->pieces);
    *r = (arena){0};
}

/* A pass that is pooled with others. A pool is a set of passes that together may be all records
 * of one side of a table: at most one of each run, sorted as a fit reads them. */
typedef struct pooled_pass {
    const struct input_run *run;
    const run_pass *pass;
    uint64_t start; /* hash of its start tables: only passes that share them are pooled */
} pooled_pass;
typedef struct pass_pool {
    pooled_pass *of;
    size_t n;
} pass_pool;
/* A table's own records of one side, and its refits from resampled prompts (own_records.c). */
typedef struct own_records {
    const char *why;        /* why the records are not here; NULL: they are */
    struct side of;         /* the table's */
    cql_logged *logged;     /* NULL with a why */
    const pass_pool *from;  /* the passes whose records these are; NULL: not known */
    cql_fit fit;            /* as the table's META says */
    int *incoming;          /* [S] what a state without records gets */
    int *chosen;            /* [S] the table's own actions */
    int neutral;            /* its side_neutral */
    double rollouts;        /* the number of distinct rollouts behind the records */
    uint32_t n_boot;        /* replicates; 0: none asked for */
    uint8_t *boot;          /* [n_boot][prompts] weights */
    uint16_t *boot_choices; /* [n_boot][S] */
    uint32_t n_halves;      /* two for each random split */
    uint16_t *half_choices; /* [n_halves][S] */
} own_records;
#define OWN_SPLITS 200 /* random halves of the prompts */

typedef struct input_table {
    table_file *f;
    const char *tag, *name; /* T1; the label, else the file's name without its ending */
    const char *title;      /* "T1 technical" */
    const char *file;       /* last part of the path */
    /* [n_runs] The runs that META names. A table made by hand may have one for each side, and a
     * pooled table has several. */
    const struct input_run **runs;
    size_t n_runs;
    own_records sides[CKVC_SIDE_COUNT];
} input_table;

typedef struct input_prompt {
    const char *id;
    size_t source; /* of the run's sources */
    uint32_t n_tokens;
    bool heldout;
    uint64_t token_hash;
    double r_struct, r_sem;
    uint16_t bin_entropy, bin_ppl;
} input_prompt;

typedef struct input_source {
    const char *name;
    gate_binding *sums; /* [nB] over all layers */
} input_source;

/* Counts of the logged actions of one side and layer: all of them; those that keep the
 * baseline's tokens, so that their loss is the baseline's, bit for bit; and the distinct sets of
 * the others, each once for a prompt. The hash of a set names the budget, so where budgets share
 * rollouts, each budget counts them. */
typedef struct rollout_counts {
    uint64_t actions, at_baseline, distinct;
} rollout_counts;

/* What a record's loss was measured on: one set of one layer of one prompt. The struct has no
 * padding, because it is compared byte by byte. */
typedef struct rollout {
    uint64_t set, side;
    uint32_t prompt;
    uint16_t layer, budget;
} rollout;
static inline rollout rollout_of(const struct shard_record *r) {
    return (rollout){r->set_hash, r->side, r->prompt, r->layer, r->budget};
}
/* Sorts rollouts and leaves one of those that are equal. Returns how many stay. */
size_t rollouts_distinct(rollout *list, size_t n);

typedef struct input_run {
    run_dir *dir;
    const char *tag, *name, *title; /* R1 */
    const run_pass *pass;           /* the last pass with baselines; NULL: there is only a scan */
    const run_pass *scan;           /* a scan, or without one a pass of demand or score */
    bool taken;       /* whether something may be fitted from its prompts; false for a scan alone */
    shard *head;      /* the header, without rows, of a shard of pass, else of scan */
    shard_header h;   /* head's */
    uint64_t *starts; /* [passes] hash of the tables that each started from */
    input_prompt *prompts;
    size_t n_prompts, cap_prompts;
    input_source *sources;
    size_t n_sources, cap_sources;
    gate_binding *cells;     /* [nB][L][E][P], over the baseline rows */
    rollout_counts *savings; /* [CKVC_SIDE_COUNT][L] */
    uint64_t n_records;
    bool binned;       /* whether bins were assigned, which a bare scan does not do */
    coverage coverage; /* zero: not known */
} input_run;

typedef struct inputs {
    const report_options *o;
    arena arena;
    input_table *tables;
    size_t n_tables;
    input_run *runs;
    size_t n_runs;
    score_files scores;
    answer_files answers;
} inputs;

/* Loads everything. The caller calls inputs_free, also after an error. */
ckvc_status inputs_load(inputs *in, const report_options *o, ckvc_err *err) CKVC_MUST_CHECK;
void inputs_free(inputs *in);

/* Returns the index of a cell in input_run.cells. h must be the run's header; all other arguments
 * must be below its sizes, except that b may be n_budgets, which gives the number of cells. */
static inline size_t input_cell(const shard_header *h, size_t b, size_t l, size_t e, size_t p) {
    return ((b * h->n_layers + l) * h->n_entropy_bins + e) * h->n_ppl_bins + p;
}
/* Returns the table of this content id; NULL: it is not among the inputs. */
const input_table *input_table_of(const inputs *in, const char *content_id);
/* Returns the tags of the table's runs, such as "R1, R2", cut off after 63 bytes. */
const char *input_run_tags(inputs *in, const input_table *t);

/* Reads the score files (score_rows.c). */
ckvc_status score_rows_load(inputs *in, ckvc_err *err) CKVC_MUST_CHECK;

/* Both are in answer_rows.c. The first reads the answers files; the second takes the rows of
 * files that have been read. */
ckvc_status answer_rows_load(inputs *in, ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status answer_rows_take(inputs *in, ckvc_err *err) CKVC_MUST_CHECK;

/* Fills the sides of the tables (own_records.c). It is no error if the records of a table are
 * not here, or are not its own. */
ckvc_status own_records_load(inputs *in, ckvc_err *err) CKVC_MUST_CHECK;
void own_records_free(own_records *s);
/* Returns what stability.h needs of a side, whose records must be here. */
stability_fit own_stability(const input_table *t, int side);

/* ---- fitted_from.c: which runs, and which of their passes, a table was fitted from ---- */

/* Reads the first shard of every pass of a run to fill run->starts. */
ckvc_status fitted_starts(inputs *in, input_run *run, ckvc_err *err) CKVC_MUST_CHECK;
void fitted_from(inputs *in, input_table *t); /* fills t->runs */
/* Tells whether the records of the table's gate are of that run. */
bool fitted_gate_from(const input_table *t, const input_run *run);
/* Finds all sets of passes that may be the records of a side, and returns their number. First
 * comes every pass of the side alone, the last of a run first; then those of several runs that
 * were logged under the same tables. */
size_t fitted_pools(inputs *in, const input_table *t, int side, pass_pool **out);
