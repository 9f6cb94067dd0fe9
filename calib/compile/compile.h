/* A table in one run directory, in rounds of passes. By demand (policy.md section 3) one round: ask
 * what heads want, fit; log what a learned score is fitted to, fit; try scores and floors on the
 * prompts of split `select`, take the best of each budget; score the table on the other held-out
 * prompts; then, where they are asked for, rounds of rewards: log losses under other shares, fit,
 * score; under thresholds below them, fit, score; again. By rewards, the alternating loop
 * (method.md section 7): log heads, fit, score; log the gate under them, fit, score; again.
 *
 * Every pass is a checkpoint: its shards (of a choice the lines of select/pass-03.jsonl), its table
 * (tables/pass-01.ckvt) and, of the loop's passes and a round's last, its held-out scores
 * (heldout/pass-01.jsonl) are published and journaled one after the other, each a function of those
 * before it, so a run that was stopped anywhere ends with the same bytes. A pass carries the plan
 * of the one `calibrate` that logs the same: its shards are that run's shards, its table the one
 * that `fit --tables` makes of them. */
#pragma once

#include "calib/compile/alternation.h"
#include "calib/log/calibrate.h"
#include "calib/log/plan.h"
#include "formats/lines/score_kind.h"
#include "cql/fit/fit_result.h"
#include "cql/fit/fit_select.h"

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
    uint32_t rounds;          /* of the loop at most; by demand of rewards, 0: none */
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
