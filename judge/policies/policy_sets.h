/* What the policies of `ckvc score` keep of a prompt: the set of every layer, or of every KV head
 * of every layer, under one budget.
 *
 * A policy says how many positions each set keeps (its capacities), and by what positions are
 * ranked. The paper's tables, their controls and the references that rank positions once for all
 * heads have one set a layer (mode `shared`); tables with shares have what they recommend or what
 * is asked for; references that rank by head have one set a head.
 *
 * What a table keeps is what engines keep by it: the library chooses (table_in_use.h). A reference
 * is a file of rules/. Beside a table references keep as many as the table does in each layer or
 * head: the same capacities under another score. */
#pragma once

#include "calib/actions/prompt_sets.h"
#include "calib/prompt/prompts.h"
#include "judge/policies/controls.h"
#include "judge/policies/table_in_use.h"
#include "calib/rollout/worker.h"

typedef struct policy_sets policy_sets;

/* What one policy keeps; valid until the next. */
typedef struct policy_kept {
    ckvc_mode mode;
    ckvc_score_kind score;
    /* The least part of B that a set has, where a table's shares give the capacities; elsewhere
     * 0. */
    double floor;
    uint32_t n_sets;        /* of a layer: 1 or G */
    kept_set *sets;         /* [L] */
    uint32_t *n_candidates; /* [L], of layers with one set */
    bool whole;       /* the prompt is no longer than the window: every policy keeps all of it */
    uint64_t entries; /* kept (layer, KV head, position) */
    uint32_t repeat_tokens; /* that a second pass was fed to choose them; 0: none */
    /* The table whose risk cell decided, and below the cell; NULL where none did. */
    const ckvc_table *risk;
    uint32_t bin_entropy, bin_ppl;
} policy_kept;

/* CKVC_E_MISMATCH where a table lacks a budget's block, or the shares that a mode or policy needs;
 * CKVC_E_USAGE where budgets by layer meet capacities that are not theirs. */
ckvc_status policy_sets_create(const policy_choice *choice, const model_shape *shape,
                               const prompt_list *prompts, policy_sets **out,
                               ckvc_err *err) CKVC_MUST_CHECK;
void policy_sets_free(policy_sets *k);
CKVC_AUTO_OF(policy_sets, policy_sets_free)
/* Sets in `limits` what sessions have to hold beside prompts and continuations: max_watched,
 * max_targets and max_counted. */
void policy_sets_need(const policy_sets *k, session_limits *limits);
/* Prefills a prompt, which then is the prompt in hand for the functions below. */
ckvc_status policy_sets_prefill(policy_sets *k, session *s, const prompt *p, prefill_stats *stats,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* What policy `i` keeps of it under budget number b. CKVC_E_DATA where the budget is below what the
 * heads must keep. */
ckvc_status policy_sets_decide(policy_sets *k, size_t i, uint32_t b, const policy_kept **out,
                               ckvc_err *err) CKVC_MUST_CHECK;
/* Entries that a KV head keeps beyond its budget, in the mean over all heads of a prompt, at most:
 * pyramidkv's steps from layer to layer are whole tokens, (L - 2) / 2; chunkkv has a chunk of 10 at
 * least; headkv rounds. The others keep as many as they are given or fewer. */
static inline double policy_sets_beyond(uint32_t n_layers) {
    return n_layers > 22 ? (n_layers - 2) / 2.0 : 10;
}
/* Bytes that it holds for the longest prompt. */
size_t policy_sets_bytes(const policy_sets *k);
/* SCORE_MATCHED, before its sets are asked for: counts k's prompt in hand into the counts of `sum`,
 * of the same policies; then finds the thresholds by the counts of `of`. */
ckvc_status policy_sets_count(policy_sets *k, policy_sets *sum, ckvc_err *err) CKVC_MUST_CHECK;
void policy_sets_match(policy_sets *k, const policy_sets *of);
double policy_sets_tau(const policy_sets *k, size_t i, uint32_t b);

/* Workers whose prompts go through the layers together, each with what policies keep of its prompt:
 * where copies of weights do not stay, one of each serves all of them. What is kept and every loss
 * are the same bits for any number of them. */
typedef struct policy_workers {
    workers all;
    worker *w[SESSIONS_TOGETHER];         /* [all.n] its items */
    policy_sets *sets[SESSIONS_TOGETHER]; /* [all.n] */
} policy_workers;

/* o says what its prompts are asked besides; what the policies need is added. Of `choice`
 * (borrowed) there may be none. As many as the memory plan says, all.items->plan. Close it even
 * after an error. */
ckvc_status policy_workers_open(policy_workers *p, const calibrate_inputs *in,
                                const policy_choice *choice, worker_options o,
                                ckvc_err *err) CKVC_MUST_CHECK;
void policy_workers_close(policy_workers *p);
/* policy_sets_prefill of n <= all.n prompts together, a worker's each -> its stats. They stay where
 * they are until the next. */
ckvc_status policy_workers_prefill(policy_workers *p, const prompt *const *prompts, int64_t n,
                                   ckvc_err *err) CKVC_MUST_CHECK;
