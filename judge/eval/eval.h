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

/* The lines of an item: first the full cache's, then one for each policy and budget. */
size_t eval_ways(const policy_choice *choice);
/* Appends the lines of the items that are not done yet, unless o->keep takes them. CKVC_E_MEMORY,
 * before anything is done, where `memory` does not hold the longest item; CKVC_E_STOPPED after a
 * clean stop. */
ckvc_status eval_answers(const eval_options *o, ckvc_buffer *lines, ckvc_err *err) CKVC_MUST_CHECK;

/* What all items cost, measured on the longest one by its prefill, its decisions and some steps: an
 * upper bound. */
typedef struct eval_forecast {
    memory_plan memory; /* its `prompts` are the items that are prefilled together */
    size_t n_items, n_ways;
    uint32_t n_tokens; /* tokens of the longest prompt */
    /* Its prefill; the decisions of all policies and budgets together; one step of all
     * sequences. */
    double prefill_s, decide_s, step_s;
    /* of a pass: making copies of weights that do not stay; a prefill without these */
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
 * because disturbances by the machine only ever add time. */
/* Appends CSV, its header first: one row for each length, policy, budget and batch, the full cache
 * first.
 *
 *   length       T of the prompt
 *   cache_bytes  bytes of the kept keys and values, float32, of one prompt; entries counts them
 *   peak_bytes   the most memory: the last prompt's session, what its policy holds, all sequences
 * of the batch; without the weights (it is counted: see below) prefill_s    with the statistics
 * that the policy needs (the full cache needs none), and with kvzip's second pass decide_s     from
 * the statistics to the sets; first_s: from the beginning to the first token, with the copying of
 * what is kept token_s      a step of the whole batch lookup_ns    looking up a table's entries for
 * a prompt: its block, its risk cell, one number for each head and layer; empty without a table
 *   *_ratio      the ratio to the full cache at the same length and batch
 *
 * Memory is counted, not measured: resident memory depends on what the allocator kept from the
 * policy before, and on pages that are not touched yet. It was compared once with VmHWM, reset
 * before each policy (8 layers, T = 987, batch 1 to 16): sequences are at most 0.4% below what is
 * counted, sessions 7% to 53%.
 *
 * Batches that `memory` does not hold are left out with a warning; CKVC_E_MEMORY where it does not
 * hold one prompt. */
ckvc_status eval_cost(const eval_options *o, ckvc_buffer *csv, ckvc_err *err) CKVC_MUST_CHECK;
