/* Answers to items of tasks, from the full cache and from what policies keep: the lines of `ckvc
 * eval` (formats/lines/answers.md).
 *
 * A prompt is prefilled once, together with others where copies of weights do not stay in memory.
 * The full cache, and every policy under every budget, become sequences of their own that hold what
 * is kept. All sequences of some items are decoded side by side: first they are fed the tokens of
 * the question, if it was not part of the prompt, and then each gets one greedy token in every step
 * until its answer has ended. The lines of an item depend on the item, the model and the policies
 * alone. */
#pragma once

#include "judge/eval/eval_items.h"
#include "judge/policies/policy_sets.h"
#include "formats/run/run_dir.h"
#include "lib/base/json.h"

typedef struct eval_options {
    model *model;
    backend *be;
    const tokenizer *tok;
    const eval_items *items;
    policy_choice choice; /* no policy, or each policy under each of its setting's budgets */
    uint32_t batch;       /* items that are decoded side by side */
    size_t memory;        /* bytes that may be used in all, copies of weights included */
    run_part part;        /* only every part.count-th item; count 0: all */
    size_t n_done;        /* items of these whose lines exist already */
    /* Takes each item's lines as they come, so that they are not held in memory; NULL: they are
     * held. */
    ckvc_status (*keep)(void *ctx, const void *lines, size_t size, ckvc_err *err);
    void *keep_ctx;
} eval_options;

/* Returns how many lines an item gets: one of the full cache, which comes first, then one for each
 * policy and budget. */
size_t eval_ways(const policy_choice *choice);
/* Answers the items that are not done yet and appends their lines to `lines`, unless o->keep takes
 * them. The status is CKVC_E_MEMORY, before anything is done, where o->memory does not hold the
 * longest item, and CKVC_E_STOPPED after a clean stop. */
ckvc_status eval_answers(const eval_options *o, ckvc_buffer *lines, ckvc_err *err) CKVC_MUST_CHECK;

/* What all items cost. It is measured on the longest item, by its prefill, its decisions and some
 * steps, so that it is an upper bound. */
typedef struct eval_forecast {
    memory_plan memory; /* its `prompts` are the items that are prefilled together */
    size_t n_items, n_ways;
    uint32_t n_tokens; /* tokens of the longest prompt */
    /* Its prefill; the decisions of all policies and budgets together; one step of all
     * sequences. */
    double prefill_s, decide_s, step_s;
    /* Seconds of one pass through the layers: copy_s makes the copies of weights that do not stay,
     * compute_s is what a prefill takes without them. */
    double copy_s, compute_s;
    double hours, disk_bytes;
} eval_forecast;
ckvc_status eval_forecast_make(const eval_options *o, eval_forecast *out,
                               ckvc_err *err) CKVC_MUST_CHECK;

/* What caches cost: bytes, the time to the first token, the time for a token at batch 1 to 16,
 * memory, what a policy adds, and what looking up a table takes. The full cache and each policy are
 * measured in one run, so that their ratios are comparable.
 *
 * For each length that items were made for, the longest item is measured (for items from files, the
 * longest of all). Every policy is measured by itself, with the statistics that it needs and no
 * others. Times are the least of three prefills, decisions and lookups and of sixteen steps,
 * because disturbances by the machine only ever add time.
 *
 * The result is appended as CSV, its header first, with one row for each length, policy, budget and
 * batch. The full cache comes first. Times are seconds unless the name says otherwise.
 *
 *   length          T, the tokens of the prompt
 *   entries         how many (layer, KV head, position) of one prompt are kept
 *   cache_bytes     the bytes of their keys and values, in the formats in which they are held
 *   peak_bytes      the most memory that is held without the weights: the last prompt's session,
 *                   what its policy holds, and all sequences of the batch
 *   prefill_s       a prefill with the statistics that the policy needs (the full cache needs
 *                   none), and with kvzip's second pass
 *   decide_s        from the statistics to the sets
 *   first_s         from the beginning to the first token, with the copying of what is kept
 *   token_s         one step of the whole batch
 *   lookup_ns       nanoseconds to look up a table's entries for a prompt: its block, its risk
 *                   cell, and one number for each head and layer; empty without a table
 *   *_ratio         the ratio to the full cache at the same length and batch
 *   repeat_tokens   tokens that a second pass fed to choose the sets; 0 without one
 *
 * Memory is counted, not measured: resident memory depends on what the allocator kept from the
 * policy before, and on pages that are not touched yet. It was compared once with VmHWM, reset
 * before each policy (8 layers, T = 987, batch 1 to 16): sequences are at most 0.4% below what is
 * counted, sessions 7% to 53%.
 *
 * Batches that o->memory does not hold are left out with a warning. The status is CKVC_E_MEMORY
 * where it does not hold one prompt. */
ckvc_status eval_cost(const eval_options *o, ckvc_buffer *csv, ckvc_err *err) CKVC_MUST_CHECK;
