/* Answers to items of tasks from the full cache and from what policies keep: the lines of `ckvc
 * eval` (formats/lines/answers.md).
 *
 * A prompt is prefilled once, several together where copies of weights do not stay in memory. The
 * full cache and every policy under every budget take over what they keep of it, each as a sequence
 * of its own, and all sequences of some items go through the decoder side by side: first the tokens
 * of a question that nobody had seen, then greedily a token each until the answer has ended. An
 * item's lines depend on the item, the model and the policies alone. */
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
    policy_choice choice; /* none, or each under each of its setting's budgets */
    uint32_t batch;       /* items side by side */
    size_t memory;        /* bytes that all may take, the weights' copies included */
    run_part part;        /* every part.count-th item alone; count 0: all */
    size_t n_done;        /* of these, whose lines are there already */
    /* Takes each item's lines as they come, which nobody holds then; NULL: none does. */
    ckvc_status (*keep)(void *ctx, const void *lines, size_t size, ckvc_err *err);
    void *keep_ctx;
} eval_options;

/* Lines of an item: the full cache's, then policy by policy and budget by budget. */
size_t eval_ways(const policy_choice *choice);
/* Appends the lines of the items that are not done, without those that o->keep takes.
 * CKVC_E_MEMORY, before anything is done, where `memory` does not hold the longest item;
 * CKVC_E_STOPPED after a clean stop. */
ckvc_status eval_answers(const eval_options *o, ckvc_buffer *lines, ckvc_err *err) CKVC_MUST_CHECK;

/* What all items cost, from the longest one's prefill, decisions and some steps: an upper bound. */
typedef struct eval_forecast {
    memory_plan memory; /* prompts: items that are prefilled together */
    size_t n_items, n_ways;
    uint32_t n_tokens;                  /* of the longest prompt */
    double prefill_s, decide_s, step_s; /* of it; of all ways together; a step of all of them */
    double copy_s, compute_s; /* of copies that do not stay, a pass; of a prefill without them */
    double hours, disk_bytes;
} eval_forecast;
ckvc_status eval_forecast_make(const eval_options *o, eval_forecast *out,
                               ckvc_err *err) CKVC_MUST_CHECK;

/* What caches cost: bytes, time to the first token, time a token at batch 1 to 16, memory, what a
 * policy adds and what a table's lookup takes; the full cache and each policy in one run, so that
 * they stand beside each other as ratios.
 *
 * Of each length that items were made for the longest one is measured (of items of files the
 * longest of all), every policy by itself, with the statistics that it alone asks for. Times are
 * the least of three prefills, decisions and lookups and of sixteen steps: what the machine adds by
 * chance is never less than nothing. */
/* Appends CSV, its head first: a row a length x policy x budget x batch, the full cache first.
 *
 *   length       T of the prompt
 *   cache_bytes  keys and values of what is kept, float32, of one prompt; entries are how many
 *   peak_bytes   at most: the last prompt's session, what its policy holds, all sequences of the
 *                batch; without the weights (counted: see below)
 *   prefill_s    with the statistics that the policy asks for (of the full cache: with none), and
 *                with kvzip's second pass
 *   decide_s     from them to the sets; first_s: from the beginning to the first token, with the
 *                taking over of what is kept
 *   token_s      a step of the whole batch
 *   lookup_ns    of a table's entries for a prompt: its block, its risk cell, a number a head and
 *                layer; empty without a table
 *   *_ratio      to the full cache's at the same length and batch
 *
 * Memory is counted, as what is resident depends on what the allocator kept of the policy before
 * and on pages not touched yet. Held once against VmHWM, reset before each (8 layers, T = 987,
 * batch 1 to 16): sequences are at most 0.4% below what is counted, sessions 7% to 53%.
 *
 * Batches that `memory` does not hold are left out, and that is warned of; CKVC_E_MEMORY where it
 * does not hold one prompt. */
ckvc_status eval_cost(const eval_options *o, ckvc_buffer *csv, ckvc_err *err) CKVC_MUST_CHECK;
