/* Makes a table in one run directory. There are two ways to do so, each in a file that is read from
 * top to bottom:
 *
 * compile_by_budgets.c is the recommended way (docs/method.md). It logs what heads ask for, and
 * fits shares and a learned ranking. It tries rankings and floors on the prompts of split `select`,
 * and takes the best for each budget. Then it judges the table on the other held-out prompts.
 *
 * compile_by_rounds.c is the paper's way (docs/paper.md, section 7). It logs heads, fits and
 * judges; then it logs the gate under these heads, fits and judges; and so again, until nothing
 * changes or nothing is gained.
 *
 * Every pass is a checkpoint. Its shards (or the lines of select/pass-02.jsonl, for a choice), its
 * table (tables/pass-01.ckvt) and, where it is judged, its held-out scores (heldout/pass-01.jsonl)
 * are published and journaled one after the other. Each is a function of those before it, so a run
 * that was stopped anywhere ends with the same bytes. A pass carries the plan of the one
 * `calibrate` that logs the same: its shards are that run's shards, and its table is the one that
 * `fit --tables` makes of them. */
#pragma once

#include <stdbool.h>

#include "budgets/select.h"
#include "calib/log/calibrate.h"
#include "calib/log/plan.h"
#include "compile/byte_budgets.h"
#include "cql/rounds/alternation.h"
#include "fit/fit_result.h"
#include "formats/lines/policy_kind.h"
#include "lib/base/names.h"
#include "lib/stats/rank.h"

typedef enum pass_kind {
    PASS_HEAD = CKVC_SIDE_HEAD, /* logs rewards of a side's actions, and fits its table */
    PASS_GATE = CKVC_SIDE_GATE,
    /* logs what heads ask for, and fits shares; logs targets and features, and fits a learned
     * ranking */
    PASS_DEMAND,
    /* measures losses of rankings and floors, and chooses what each budget recommends */
    PASS_SELECT,
    PASS_KINDS
} pass_kind;
const char *pass_kind_name(pass_kind kind); /* "head", ... */

typedef struct compile_pass {
    char name[32]; /* "pass-01-head" */
    pass_kind kind;
    /* Counts of the side's entries, where the pass is of a side: those that differ from the table
     * before, those with records, and all. */
    size_t changed, supported, states;
    char content_id[CKVC_SHA256_HEX];
    size_t n_heldout;     /* how many held-out prompts judge; with 0 what follows is not measured */
    rank_interval reward; /* the table's reward, in nats per token */
    /* By kind of policy. over[POLICY_TABLE] is empty (n = 0), as is that of policies that were not
     * scored. */
    /* the table's reward less the policy's, paired by prompt */
    rank_interval over[POLICY_KIND_COUNT];
    double kept[POLICY_KIND_COUNT]; /* kept tokens per layer or per KV head */
} compile_pass;

/* What a table is worth at one of its budgets, on the held-out prompts, in nats per token. */
typedef struct budget_verdict {
    double budget, bytes; /* bytes: the share of the whole cache's that it was made of, or 0 */
    rank_interval loss;   /* what the model loses more than with its whole cache */
    rank_interval kl;     /* the divergence from what it predicts with its whole cache */
    /* The policy with the least KL beside the table, of those that are no controls, and how much
     * larger than the table's it is. n 0: there is none. As in the report, the KL decides. */
    policy_kind rule;
    rank_interval more;
} budget_verdict;

typedef struct compile_result {
    compile_pass passes[2 * ALTERNATION_MAX_ROUNDS + PASS_KINDS];
    size_t n_passes;
    alternation_round rounds[ALTERNATION_MAX_ROUNDS]; /* the recommended way has one round */
    size_t last_pass[ALTERNATION_MAX_ROUNDS]; /* index into passes of the last pass of each round */
    size_t n_rounds, best; /* best is the index of the round whose table goes out */
    stop_rule stop;
    /* The losses by which the table's ranking and floor were chosen; NULL: nothing was chosen. */
    select_losses *select;
    /* [n_verdicts] of the recommended way's table, in the order of its budgets; none where no
     * prompt judges */
    budget_verdict *verdicts;
    uint32_t n_verdicts;
} compile_result;
void compile_result_free(compile_result *r);
CKVC_AUTO_OF(compile_result, compile_result_free)

typedef struct compile_options {
    /* The plan of the calibration that makes pass 1. Its options are those of every pass, except
     * for what a pass logs. */
    const plan *plan;
    const fit_options *fit;    /* the members pass, incoming and probe are set here */
    const byte_budgets *bytes; /* the plan's budgets, where they are in bytes; or NULL */
    /* The four members from here on are used by rounds alone. `probe` says what is fitted. */
    probe_kind probe;
    uint32_t rounds;          /* the most rounds */
    const ckvc_table *start;  /* the table with which the rounds start, with its edges set */
    const table_file *tables; /* the file of --tables, whose table `start` then is; or NULL */
    /* The first is called after each pass and the second after each round, as they come, and also
     * for those that a resume finds done. `counts` are those of the logging; they are all zero
     * where the pass's table was there already. With NULL nobody is told. */
    void (*on_pass)(void *ctx, const compile_pass *pass, const pass_counts *counts);
    void (*on_round)(void *ctx, const compile_result *so_far, stop_rule stop);
    void *ctx;
} compile_options;

typedef struct compile_way {
    const char *name; /* "demand" for the recommended way; NULL stands for the probe's name */
    /* Returns run.json of the whole run, a new reference. */
    json_t *(*plan_json)(const compile_options *o);
    /* Called before the scan. What is logged from then on carries pass 1's plan. */
    void (*begin)(run_dir *run, const compile_options *o);
    /* Makes all passes and ends with RUN/table.ckvt. The status is CKVC_E_STOPPED after a clean
     * stop, which is at a checkpoint. */
    ckvc_status (*run)(run_dir *run, const compile_options *o, compile_result *result,
                       ckvc_err *err) CKVC_MUST_CHECK;
} compile_way;
extern const compile_way compile_by_budgets, compile_by_rounds;

/* What the hours of a way are computed from, beside those of its passes: what its longest prompt
 * took, and counts (docs/cost.md). The hours are upper bounds. */
typedef struct compile_load {
    /* seconds of a prefill and of a continuation of the longest prompt */
    double prefill_s, single_s;
    /* how many prompts are held out, and how many of these choose */
    size_t n_heldout, n_select, n_budgets;
    size_t n_whole; /* formats in which the whole cache is scored beside the table */
} compile_load;

/* Returns the hours of a round of the paper's way on held-out prompts. For each prompt these are
 * two prefills, and one continuation each of the full cache and of three policies at every budget.
 */
double compile_round_hours(const compile_load *l);

/* The hours that the recommended way takes on held-out prompts. For each prompt these are a
 * prefill, one continuation of the full cache and, for each budget, one of every candidate that is
 * still tried (select) or of everything that the table is compared with (heldout). Fitting entries
 * is not counted. That budgets of one byte share drop candidates together is not counted either. */
typedef struct budgets_hours {
    double select, heldout;
} budgets_hours;
/* Computes these hours. `asked` are the options of the fit, and `made` are those of the demand
 * pass, whose floor and mixes limit what is tried. */
budgets_hours compile_budgets_hours(const budgets_options *asked, const calibrate_options *made,
                                    const compile_load *l);
