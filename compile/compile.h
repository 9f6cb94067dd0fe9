/* A table in one run directory. There are two ways to one, each a file that is read from top to
 * bottom:
 *
 * compile_by_budgets.c, the recommended way (docs/method.md): log what heads ask for, fit shares
 * and a learned ranking; try rankings and floors on the prompts of split `select`, take the best of
 * each budget; judge the table on the other held-out prompts.
 *
 * compile_by_rounds.c, the paper's (docs/paper.md, section 7): log heads, fit, judge; log the gate
 * under them, fit, judge; again, until nothing changes or nothing is gained.
 *
 * Every pass is a checkpoint: its shards (of a choice the lines of select/pass-02.jsonl), its table
 * (tables/pass-01.ckvt) and, where it is judged, its held-out scores (heldout/pass-01.jsonl) are
 * published and journaled one after the other, each a function of those before it, so a run that
 * was stopped anywhere ends with the same bytes. A pass carries the plan of the one `calibrate`
 * that logs the same: its shards are that run's shards, its table the one that `fit --tables` makes
 * of them. */
#pragma once

#include <stdbool.h>

#include "budgets/select.h"
#include "calib/log/calibrate.h"
#include "calib/log/plan.h"
#include "cql/rounds/alternation.h"
#include "fit/fit_result.h"
#include "formats/lines/policy_kind.h"
#include "lib/base/names.h"
#include "lib/stats/rank.h"

typedef enum pass_kind {
    PASS_HEAD = CKVC_SIDE_HEAD, /* rewards of a side's actions -> its table */
    PASS_GATE = CKVC_SIDE_GATE,
    PASS_DEMAND, /* what heads ask for -> shares; targets and features -> a learned ranking */
    PASS_SELECT, /* losses of scores and floors -> what each budget recommends */
    PASS_KINDS
} pass_kind;

typedef struct compile_pass {
    char name[32]; /* "pass-01-head" */
    pass_kind kind;
    /* of a side, its entries: that differ from the table before; with records; all */
    size_t changed, supported, states;
    char content_id[CKVC_SHA256_HEX];
    size_t n_heldout;     /* held-out prompts; 0: the rest is not measured */
    rank_interval reward; /* of the table, nats per token */
    /* By kind of policy; over[POLICY_TABLE] and where n is 0: none. */
    rank_interval over[POLICY_KIND_COUNT]; /* the table's reward over theirs, paired */
    double kept[POLICY_KIND_COUNT];        /* tokens per layer, or KV head */
} compile_pass;

typedef struct compile_result {
    compile_pass passes[2 * ALTERNATION_MAX_ROUNDS + PASS_KINDS];
    size_t n_passes;
    alternation_round rounds[ALTERNATION_MAX_ROUNDS]; /* the recommended way has one */
    size_t last_pass[ALTERNATION_MAX_ROUNDS];         /* of each round, index into passes */
    size_t n_rounds, best;                            /* best: the round whose table goes out */
    stop_rule stop;
    select_losses *select; /* what the table's ranking and floor were chosen by; NULL: nothing */
} compile_result;
void compile_result_free(compile_result *r);
CKVC_AUTO_OF(compile_result, compile_result_free)

typedef struct compile_options {
    const plan *plan;         /* of the calibration that pass 1 is; its options are those of every
                                 pass but for what it logs */
    const fit_options *fit;   /* pass, incoming and probe are set here */
    probe_kind probe;         /* these four are of rounds alone: what is fitted, */
    uint32_t rounds;          /* how many times at most, */
    const ckvc_table *start;  /* from which table on, with its edges set, */
    const table_file *tables; /* and --tables, which start is the table of; or NULL */
    /* Each is called after each pass and each round, as they come, and also for those that a resume
     * finds there. counts: of the logging, all zero where the pass's table was there already.
     * NULL: nobody is told. */
    void (*on_pass)(void *ctx, const compile_pass *pass, const pass_counts *counts);
    void (*on_round)(void *ctx, const compile_result *so_far, stop_rule stop);
    void *ctx;
} compile_options;

typedef struct compile_way {
    const char *name; /* of the recommended way "demand"; NULL: the probe's name */
    /* run.json of the whole run. New reference. */
    json_t *(*plan_json)(const compile_options *o);
    /* Called before the scan: what is logged from here on carries pass 1's plan. */
    void (*begin)(run_dir *run, const compile_options *o);
    /* Ends with RUN/table.ckvt. CKVC_E_STOPPED after a clean stop, at a checkpoint. */
    ckvc_status (*run)(run_dir *run, const compile_options *o, compile_result *result,
                       ckvc_err *err) CKVC_MUST_CHECK;
} compile_way;
extern const compile_way compile_by_budgets, compile_by_rounds;

/* What a way takes beside its passes, by what its longest prompt took (docs/cost.md): upper bounds,
 * in hours. */
typedef struct compile_load {
    double prefill_s, single_s; /* of the longest prompt: a prefill, a continuation */
    /* prompts that are held out, and of these those that choose */
    size_t n_heldout, n_select, n_budgets;
} compile_load;

/* A round of the paper's way on held-out prompts: two prefills, and one continuation each of the
 * full cache and of three policies at every budget. */
double compile_round_hours(const compile_load *l);

/* The recommended way: a prefill of each held-out prompt, and one continuation each of the full
 * cache and, at every budget, of all that is tried (none dropped) or of what the table is held
 * against. */
typedef struct budgets_hours {
    double select, heldout;
} budgets_hours;
/* asked: of the fit; made: of the demand pass, whose floor and mixes bound what is tried. */
budgets_hours compile_budgets_hours(const budgets_options *asked, const calibrate_options *made,
                                    const compile_load *l);
