/* What caches cost: bytes, time to the first token, time a token at batch 1 to 16, memory, what a
 * policy adds and what a table's lookup takes; the full cache and each policy in one run, so that
 * they stand beside each other as ratios.
 *
 * Of each length that items were made for the longest one is measured (of items of files the
 * longest of all), every policy by itself, with the statistics that it alone asks for. Times are
 * the least of three prefills, decisions and lookups and of sixteen steps: what the machine adds by
 * chance is never less than nothing. */
#pragma once

#include "calib/eval/eval.h"

/* Appends CSV, its head first: a row a length x policy x budget x batch, the full cache first.
 *
 *   length       T of the prompt
 *   cache_bytes  keys and values of what is kept, float32, of one prompt; entries are how many
 *   peak_bytes   at most: the last prompt's session, what its policy holds, all sequences of the
 *                batch; without the weights (counted: see below)
 *   prefill_s    with the statistics that the policy asks for (of the full cache: with none), and
 *                with kvzip's second pass and fastkv's, which in FastKV is instead of the first
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
