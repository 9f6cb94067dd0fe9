/* A table in one run directory, in rounds of passes. By demand (docs/method.md) one round: ask
 * what heads want, fit; log what a learned score is fitted to, fit; try scores and floors on the
 * prompts of split `select`, take the best of each budget; score the table on the other held-out
 * prompts. By rewards, the alternating loop (paper.md section 7): log heads, fit, score; log the
 * gate under them, fit, score; again.
 *
 * Every pass is a checkpoint: its shards (of a choice the lines of select/pass-03.jsonl), its table
 * (tables/pass-01.ckvt) and, of the loop's passes and a round's last, its held-out scores
 * (heldout/pass-01.jsonl) are published and journaled one after the other, each a function of those
 * before it, so a run that was stopped anywhere ends with the same bytes. A pass carries the plan
 * of the one `calibrate` that logs the same: its shards are that run's shards, its table the one
 * that `fit --tables` makes of them. */
#pragma once

#include <stdbool.h>

#include "calib/log/calibrate.h"
#include "calib/log/plan.h"
#include "formats/lines/score_kind.h"
#include "fit/fit_result.h"
#include "budgets/select.h"
#include "lib/stats/rank.h"
#include "lib/base/names.h"

/* The alternating loop's decisions (paper.md section 7): which pass comes next under a probe, when
 * a round was the last one, which round's table goes out. Numbers in, decisions out. */
#define ALTERNATION_MAX_ROUNDS 49 /* two passes each; a pass has two digits */

typedef enum probe_kind {
    PROBE_JOINT,
    PROBE_HEAD_ONLY,
    PROBE_GATE_ONLY,
    PROBE_INDEPENDENT,
    PROBE_ALPHA_0,
    PROBE_NO_UTILITY,
    PROBE_NO_THRESHOLD,
    PROBE_MEAN_GATE,
    PROBE_MEAN_POOL,
    PROBE_GRID_SEARCH,
    PROBE_EPSILON_GREEDY,
    PROBE_DEMAND, /* what heads ask for, a learned score, a choice */
    PROBE_COUNT
} probe_kind;
/* In the kinds' order: an option of them is the place of its word. Demand is a mode's. */
#define PROBE_NAMES                                                                                \
    "joint|head-only|gate-only|independent|alpha-0|no-utility|no-threshold|mean-gate|mean-pool|"   \
    "grid-search|epsilon-greedy"

const char *probe_name(probe_kind probe);
/* Sides of a round of the loop, in order; returns how many: 1 or 2. */
int probe_sides(probe_kind probe, ckvc_side sides[CKVC_SIDE_COUNT]);

typedef enum pass_kind {
    PASS_HEAD = CKVC_SIDE_HEAD, /* rewards of a side's actions -> its table */
    PASS_GATE = CKVC_SIDE_GATE,
    PASS_DEMAND, /* what heads ask for -> shares; targets and features -> a learned score */
    PASS_SELECT, /* losses of scores and floors -> what each budget recommends */
    PASS_KINDS
} pass_kind;
const char *pass_kind_name(pass_kind kind); /* "head", ... */
/* Passes of a round, in order; returns how many. select: of PROBE_DEMAND, prompts are there that
 * choose. */
int probe_passes(probe_kind probe, bool select, pass_kind passes[PASS_KINDS]);
/* Rounds at most: `rounds`, or 1 where the probe never returns to a side, and by demand. */
uint32_t probe_rounds(probe_kind probe, uint32_t rounds);

typedef enum stop_rule {
    STOP_NOT,
    STOP_CONVERGED, /* fewer than max(1 entry, 1%) of the supported entries changed in the round */
    STOP_HELDOUT,   /* the held-out objective did not rise by more than one paired standard error */
    STOP_ROUNDS,    /* the rounds that were asked for */
    STOP_ONCE       /* the probe's one round */
} stop_rule;
const char *stop_name(stop_rule rule); /* "converged", "held-out", "rounds", "one round" */

typedef struct alternation_round {
    size_t changed, supported; /* entries of the sides that the round fitted */
    rank_interval gain; /* held-out reward over that of the round before (the start table for the
                           first); n = 0: not measured */
    double reward;      /* held-out objective: mean over prompts of the mean over budgets; NaN: not
                           measured */
} alternation_round;

/* After round `number` (from 1) of a probe. The held-out rule needs two prompts: one has no
 * standard error. */
stop_rule alternation_stop(const alternation_round *round, uint32_t number, probe_kind probe,
                           uint32_t rounds);
/* Index of the round whose table goes out: the highest held-out objective, of equal ones the later;
 * the last round where nothing was measured. n >= 1. */
size_t alternation_best(const alternation_round *rounds, size_t n);

typedef struct compile_pass {
    char name[32]; /* "pass-01-head" */
    pass_kind kind;
    /* of a side, its entries: that differ from the table before; with records; all */
    size_t changed, supported, states;
    char content_id[CKVC_SHA256_HEX];
    size_t n_heldout;     /* held-out prompts; 0: the rest is not measured */
    rank_interval reward; /* of the table, nats per token */
    /* By kind of policy; over[SCORE_TABLE] and where n is 0: none. */
    rank_interval over[SCORE_KIND_COUNT]; /* the table's reward over theirs, paired */
    double kept[SCORE_KIND_COUNT];        /* tokens per layer, or KV head */
} compile_pass;

typedef struct compile_result {
    compile_pass passes[2 * ALTERNATION_MAX_ROUNDS + PASS_KINDS];
    size_t n_passes;
    alternation_round rounds[ALTERNATION_MAX_ROUNDS];
    size_t last_pass[ALTERNATION_MAX_ROUNDS]; /* of each round, index into passes */
    size_t n_rounds, best;                    /* best: the round whose table goes out */
    stop_rule stop;
    select_losses *select; /* what the table's score and floor were chosen by; NULL: nothing */
} compile_result;
void compile_result_free(compile_result *r);
CKVC_AUTO_OF(compile_result, compile_result_free)

typedef struct compile_options {
    probe_kind probe;
    uint32_t rounds;          /* of the loop at most */
    const plan *plan;         /* of the calibration that pass 1 is; its options are those of every
                                 pass but for sides */
    const ckvc_table *start;  /* with its edges set; NULL: none, by demand */
    const table_file *tables; /* --tables, which start is the table of; or NULL */
    const fit_options *fit;   /* pass, incoming and probe are the loop's own */
    /* After each pass and each round, as they come (found again after a resume too). counts: of the
     * logging, all zero where its table was there already. NULL: not told. */
    void (*on_pass)(void *ctx, const compile_pass *pass, const pass_counts *counts);
    void (*on_round)(void *ctx, const compile_result *so_far, stop_rule stop);
    void *ctx;
} compile_options;

/* run.json of the whole run. New reference. */
json_t *compile_plan_json(const compile_options *o);
/* Called before the scan: what is logged from here on carries pass 1's plan. */
void compile_begin(run_dir *run, const compile_options *o);
/* The loop. Ends with RUN/table.ckvt, the best round's table. CKVC_E_STOPPED after a clean stop, at
 * a checkpoint. */
ckvc_status compile_run(run_dir *run, const compile_options *o, compile_result *result,
                        ckvc_err *err) CKVC_MUST_CHECK;

/* What it takes beside its passes, by what its longest prompt took (docs/cost.md): upper bounds, in
 * hours. */
typedef struct compile_load {
    double prefill_s, single_s; /* of the longest prompt: a prefill, a continuation */
    /* prompts that are held out, and of these those that choose */
    size_t n_heldout, n_select, n_budgets;
} compile_load;

/* A round of the paper's loop on held-out prompts: two prefills, and one continuation each of the
 * full cache and of three policies at every budget. */
double loop_heldout_hours(const compile_load *l);

/* By demand: a prefill of each held-out prompt, and one continuation each of the full cache and, at
 * every budget, of all that is tried (none dropped) or of what the table is held against. */
typedef struct demand_plan {
    ckvc_score_kind score;
    uint32_t features; /* of a learned one */
    double floor, c_min;
    bool mixes; /* of demand: prompts are continued and repeated */
} demand_plan;
typedef struct demand_cost {
    double select, heldout;
} demand_cost;
/* Is demand measured with weights that differ? Of a continuation or a repetition alone all are one.
 */
bool compile_has_mixes(const calibrate_options *o);
demand_cost demand_cost_of(const demand_plan *p, const compile_load *l);
