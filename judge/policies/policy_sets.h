/* What the policies of `ckvc score` keep of a prompt: the set of every layer, or of every KV head
 * of every layer, under one budget.
 *
 * A policy says how many positions each set keeps (its capacities), and what positions are ranked
 * by. One set for each layer (mode `shared`) is kept by the paper's tables, by their controls, and
 * by the references that rank positions once for all heads. Tables with shares keep sets in the
 * mode that they recommend, or in the one that is asked for. References that rank positions for
 * each head keep one set for each head.
 *
 * What a table keeps is what engines keep with it, as the library chooses the sets
 * (table_in_use.h). A reference is a file of rules/. A reference that is given a table keeps as
 * many positions in each layer or head as the table does: the same capacities under another
 * score. One that is given a table's bank keeps its own sets, and their entries are fitted by it.
 */
#pragma once

#include "calib/actions/prompt_sets.h"
#include "calib/prompt/prompts.h"
#include "judge/policies/controls.h"
#include "judge/policies/table_in_use.h"
#include "calib/rollout/worker.h"

typedef struct policy_sets policy_sets;

/* What one policy keeps; valid until the next decision. */
typedef struct policy_kept {
    ckvc_mode mode;
    ckvc_score_kind score;
    /* The least part of B that a set has, where a table's shares give the capacities; elsewhere
     * 0. */
    double floor;
    double ridge;           /* the largest ridge by which its entries are fitted; 0: they are not */
    uint32_t n_sets;        /* sets of a layer: 1 or G */
    kept_set *sets;         /* [L] with the formats in which they are held */
    uint32_t *n_candidates; /* [L] for layers with one set */
    /* The prompt is no longer than the window, so every policy keeps all of it. */
    bool whole;
    uint64_t entries; /* number of kept (layer, KV head, position) */
    /* tokens that a second pass was fed to choose the sets; 0: there was none */
    uint32_t repeat_tokens;
    /* The table whose risk cell decided, and the cell below it; NULL where no cell decided. */
    const ckvc_table *risk;
    uint32_t bin_entropy, bin_ppl;
} policy_kept;

/* Creates what the policies of `choice`, which is borrowed, need for prompts up to the longest of
 * `prompts`. The caller frees *out with policy_sets_free. The status is CKVC_E_MISMATCH where a
 * table lacks the block of a budget, or the shares that a mode or a policy needs. It is
 * CKVC_E_USAGE where budgets by layer meet a policy that has capacities of its own, and where the
 * model's heads do not go into a format. */
ckvc_status policy_sets_create(const policy_choice *choice, const model_shape *shape,
                               const prompt_list *prompts, policy_sets **out,
                               ckvc_err *err) CKVC_MUST_CHECK;
void policy_sets_free(policy_sets *k);
CKVC_AUTO_OF(policy_sets, policy_sets_free)
/* Sets in `limits` what sessions need for the policies, besides prompts and continuations:
 * max_watched, max_targets, max_counted and fitted. */
void policy_sets_need(const policy_sets *k, session_limits *limits);
/* Prefills a prompt in `s` and fills `stats`. It is then the current prompt of the functions below,
 * and must stay where it is, as must `stats`, until the next one. */
ckvc_status policy_sets_prefill(policy_sets *k, session *s, const prompt *p, prefill_stats *stats,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* Decides what policy `i` keeps of the current prompt under budget number b, and fits the entries
 * of a table that says so. *out is the object's and is valid until the next decision. The function
 * does not allocate. The status is CKVC_E_DATA where the budget is below what the heads must
 * keep. */
ckvc_status policy_sets_decide(policy_sets *k, size_t i, uint32_t b, const policy_kept **out,
                               ckvc_err *err) CKVC_MUST_CHECK;
/* Returns the most entries that KV heads keep beyond their budget, as a mean over a prompt's heads.
 * pyramidkv's steps from layer to layer are whole tokens, which gives (L - 2) / 2; chunkkv has at
 * least a chunk of 10; headkv rounds. The others keep no more than they are given. */
static inline double policy_sets_beyond(uint32_t n_layers) {
    return n_layers > 22 ? (n_layers - 2) / 2.0 : 10;
}
/* Returns the bytes that the object holds for the longest prompt. */
size_t policy_sets_bytes(const policy_sets *k);
/* For POLICY_MATCHED, before its sets are asked for: policy_sets_count adds k's current prompt to
 * the counts of `sum`, which has the same policies; policy_sets_match then finds the thresholds of
 * k from the counts of `of`; policy_sets_tau returns that of policy i under budget number b. */
ckvc_status policy_sets_count(policy_sets *k, policy_sets *sum, ckvc_err *err) CKVC_MUST_CHECK;
void policy_sets_match(policy_sets *k, const policy_sets *of);
double policy_sets_tau(const policy_sets *k, size_t i, uint32_t b);

/* Workers whose prompts go through the layers together, each with what policies keep of its prompt.
 * Where copies of weights do not stay in memory, one copy then serves all of them. What is kept,
 * and every loss, has the same bits for any number of workers. */
typedef struct policy_workers {
    workers all;
    worker *w[SESSIONS_TOGETHER];         /* [all.n] its items */
    policy_sets *sets[SESSIONS_TOGETHER]; /* [all.n] */
} policy_workers;

/* Checks that this model and backend can hold caches in formats f. The status is CKVC_E_DEVICE
 * where the backend holds caches in float32 alone and f asks for another format, and CKVC_E_USAGE
 * where the model's heads do not go into a format. */
ckvc_status policy_check_formats(cache_formats f, const calibrate_inputs *in,
                                 ckvc_err *err) CKVC_MUST_CHECK;
/* Opens as many workers as the memory plan says (all.items->plan). o says what is asked of the
 * prompts otherwise; what the policies need is added to it. `choice` is borrowed and may have no
 * policies. Close the workers even after an error. */
ckvc_status policy_workers_open(policy_workers *p, const calibrate_inputs *in,
                                const policy_choice *choice, worker_options o,
                                ckvc_err *err) CKVC_MUST_CHECK;
void policy_workers_close(policy_workers *p);
/* Does policy_sets_prefill for n <= all.n prompts together, one for each worker, whose stats it
 * fills. Does not allocate. The prompts must stay where they are until the next call. */
ckvc_status policy_workers_prefill(policy_workers *p, const prompt *const *prompts, int64_t n,
                                   ckvc_err *err) CKVC_MUST_CHECK;
