/* What the files of report/ share: the inputs in memory, the JSON that all numbers go through, the
 * figures. */
#ifndef CKVC_REPORT_INTERNAL_H
#define CKVC_REPORT_INTERNAL_H

#include <jansson.h>

#include "cql/stats/gate_binding.h"
#include "cql/solve/logged.h"
#include "cql/stats/stability.h"
#include "formats/run/run_dir.h"
#include "formats/lines/scores.h"
#include "formats/shard/shard_side.h"
#include "formats/table/table_file.h"
#include "lib/base/buffer.h"
#include "lib/base/names.h"
#include "report/report.h"

#define REPORT_UNDEFINED "undefined"

/* A table's own records of one side, and its refits from resampled prompts (report_records.c). */
typedef struct report_side {
    char why[256];          /* not empty: why the records are not here */
    cql_logged *logged;     /* NULL with a why */
    size_t *runs, n_runs;   /* whose records these are: indices of the runs, one or, of a pooled
                               table, several */
    cql_fit fit;            /* as the table's META says */
    struct side of;         /* the table's */
    int *incoming;          /* [S] what a state without records gets */
    int *chosen;            /* [S] the table's own actions */
    int neutral;            /* side_neutral */
    double rollouts;        /* distinct ones behind the records */
    uint32_t n_boot;        /* replicates; 0: none asked for */
    uint8_t *boot;          /* [n_boot][prompts] weights */
    uint16_t *boot_choices; /* [n_boot][S] */
    uint32_t n_halves;      /* two for each random split */
    uint16_t *half_choices; /* [n_halves][S] */
} report_side;
#define REPORT_SPLITS 200 /* random halves of the prompts */

typedef struct report_table {
    table_file *f;
    char tag[16]; /* T1 */
    char *name;   /* label, else the file's name without its ending */
    char *title;  /* "T1 technical" */
    char *file;   /* last part of the path */
    size_t *runs; /* indices of the runs that its META names: of a table made by hand one for each
                     side, of a pooled one several */
    size_t n_runs;
    report_side sides[CKVC_SIDE_COUNT];
} report_table;

/* One prompt of a run. */
typedef struct report_prompt {
    char *id;
    uint32_t source; /* index into the run's sources */
    uint32_t n_tokens;
    bool heldout;
    uint64_t token_hash;
    double r_struct, r_sem;
    uint16_t bin_entropy, bin_ppl;
} report_prompt;

/* Logged actions of one side and layer (report_memo.c). */
typedef struct report_memo {
    uint64_t actions, at_baseline, distinct;
} report_memo;

/* What a pass was logged under, from its first shard's header; of a compiled run each pass has its
 * own. */
typedef struct report_origin {
    char plan[CKVC_SHA256_HEX];
    uint64_t start; /* hash of the start tables: only passes that share them are pooled */
} report_origin;

typedef struct report_run {
    run_dir *dir;
    char tag[16]; /* R1 */
    char *name, *title;
    const run_pass *pass; /* the last pass with baselines; NULL: only a scan */
    const run_pass *scan;
    shard_header h;         /* of pass, else of scan */
    report_origin *origins; /* [passes] */
    report_prompt *prompts;
    size_t n_prompts, cap_prompts;
    char **sources;
    size_t n_sources, cap_sources;
    gate_binding *cells;       /* [nB][L][E][P], over the baseline rows */
    gate_binding *sources_sum; /* [n_sources][nB], all layers */
    report_memo *memo;         /* [2][L]; NULL: no records */
    uint64_t n_records;
    bool binned; /* bins were assigned: not a bare scan */
} report_run;

typedef struct report_figure {
    const char *section;
    char *name, *caption; /* files: name.svg, name.csv */
    ckvc_buffer inline_svg, file_svg, csv;
} report_figure;

typedef struct report {
    const report_options *o;
    report_table *tables;
    size_t n_tables;
    report_run *runs;
    size_t n_runs;
    scores **scores;
    size_t n_scores;
    json_t *json;
    report_figure *figures;
    size_t n_figures, cap_figures;
} report;

/* report_data.c */
ckvc_status report_load(report *r, ckvc_err *err) CKVC_MUST_CHECK;
void report_unload(report *r);
size_t report_cell(const shard_header *h, size_t b, size_t l, size_t e,
                   size_t p); /* index into cells */
bool report_gate_supported(const report_table *t, size_t l, size_t e, size_t p, size_t b);
bool report_head_supported(const report_table *t, size_t l, size_t g, size_t b);

/* report_records.c: fills the tables' sides. A table whose records are not here, or are not its
 * own, is no error. */
ckvc_status report_records(report *r, ckvc_err *err) CKVC_MUST_CHECK;
void report_records_free(report_side *s);
/* report_origins.c: which runs, and which of their passes, a table was fitted from. Tables name the
 * plans of their passes. */
ckvc_status report_origins(report_run *run, ckvc_err *err) CKVC_MUST_CHECK; /* fills run->origins */
ckvc_status report_fitted_from(report *r, report_table *t,
                               ckvc_err *err) CKVC_MUST_CHECK; /* fills t->runs */
#define REPORT_TAGS 64
void report_run_tags(const report *r, const size_t *runs, size_t n,
                     char out[REPORT_TAGS]); /* "R1, R2", cut off where it is full */
bool report_gate_from(const report *r, const report_table *t,
                      size_t run); /* its gate's records are of that run */
/* A set of passes that may be all records of one side of a table: at most one of a run, sorted as a
 * fit reads them. */
typedef struct report_pool {
    size_t n;
    struct report_pooled {
        size_t run;
        const run_pass *pass;
    } * of; /* the caller's to free */
} report_pool;
/* The k-th such set, 0 ...: every pass of the side alone, the last of a run first, then those of
 * several runs that were logged under the same tables. of NULL: there are no more. */
ckvc_status report_pool_nth(const report *r, const report_table *t, int side, size_t k,
                            report_pool *out, ckvc_err *err) CKVC_MUST_CHECK;
stability_fit report_stability_fit(const report_table *t, int side);

/* Each fills one member of r->json. */
ckvc_status report_tables_json(report *r, ckvc_err *err) CKVC_MUST_CHECK; /* report_tables.c */
ckvc_status report_pairs_json(report *r, ckvc_err *err) CKVC_MUST_CHECK;  /* report_pairs.c */
ckvc_status report_runs_json(report *r, ckvc_err *err) CKVC_MUST_CHECK;   /* report_runs.c */
ckvc_status report_scores_json(report *r, ckvc_err *err) CKVC_MUST_CHECK; /* report_scores.c */
/* Adds members to those of the runs. */
ckvc_status report_coverage_json(report *r, ckvc_err *err) CKVC_MUST_CHECK; /* report_coverage.c */
ckvc_status report_binding_json(report *r, ckvc_err *err) CKVC_MUST_CHECK;  /* report_binding.c */
/* The same two files: sections of the page. */
void report_coverage_section(const report *r, ckvc_buffer *html);
void report_binding_section(const report *r, ckvc_buffer *html);

ckvc_status report_stats_json(report *r, ckvc_err *err)
    CKVC_MUST_CHECK; /* report_stats.c: "statistics" of every table */
ckvc_status report_leaks_json(report *r, ckvc_err *err)
    CKVC_MUST_CHECK; /* report_leaks.c: "leak_check" of every table */

/* report_refit.c: agreement of two tables over resampled prompts. Adds intervals, split halves and
 * ceilings to the pair's entries of each budget when the records of both tables are here, else
 * "interval_missing": why. */
ckvc_status report_refit(report *r, size_t a, size_t b, json_t *heads, json_t *gates,
                         ckvc_err *err) CKVC_MUST_CHECK;
bool report_binds(const report *r, const report_table *t, size_t b, size_t l, size_t e,
                  size_t p); /* report_pairs.c */

/* report_transfer.c: transferred tables against compiled ones, from the comparisons of
 * report_scores.c. */
ckvc_status report_transfer_json(report *r, ckvc_err *err) CKVC_MUST_CHECK;
bool report_has_transfers(const report *r);
void report_transfer_section(const report *r, ckvc_buffer *html);

/* report_memo.c: a shard's records into run->memo; the run's member "memo"; the page's section of
 * all runs. */
ckvc_status report_take_memo(report_run *run, const shard *s, ckvc_err *err) CKVC_MUST_CHECK;
json_t *report_memo_json(const report_run *run);
void report_memo_section(const report *r, ckvc_buffer *html);

/* report_figures.c, report_page.c */
ckvc_status report_draw(report *r, ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status report_page(const report *r, ckvc_buffer *html, ckvc_buffer *summary,
                        ckvc_err *err) CKVC_MUST_CHECK;

/* Members of the JSON, NaN or "" when missing. */
double report_num(const json_t *o, const char *key);
const char *report_str(const json_t *o, const char *key);
/* Numbers as text, in one of a few static buffers (the reports are made by one thread): undefined
 * when not finite. */
const char *report_fixed(double v, int decimals);
const char *report_signed(double v, int decimals);
const char *report_share(double v); /* 37.5% */
const char *report_interval(double mean, double lo, double hi,
                            int decimals); /* +0.0031 (-0.0004 to +0.0066) */
const char *report_budget(double budget);  /* "96 tokens", "25% of T" */
#define REPORT_REFITS 1000                 /* fewer than this behind an interval stand beside it */
const char *report_few_refits(
    double n, bool brackets); /* ", 312 refits", " (312 refits)", nothing where they are not few */
const char *report_more_tokens(double ratio); /* "2.9% more tokens", "4.0% fewer tokens" */

#endif
