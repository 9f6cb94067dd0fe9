/* Decides when to stop logging (--until-stable), by the split-half reliability of the head table
 * that is fitted to the shards published so far.
 *
 * Prompts are halved at random, STABLE_SPLITS times, by (seed, prompt id) alone. Each half is
 * fitted exactly, with the alpha and the rewards of the fit to come. The measure is Spearman's rho
 * of the two halves' weights over the states that both support, as the mean over budgets and
 * splits, corrected to the whole by Spearman-Brown: 2 rho / (1 + rho). Sums are exact, so threads,
 * resumes and the order of prompts never show. */
#pragma once

#include "calib/log/calibrate.h"
#include "lib/base/memory.h"

#define STABLE_SPLITS 20

typedef struct stable stable;

/* `table` is the one under which rewards are logged, borrowed. cql_alpha and reward are as in
 * fit_options. memory_max is in bytes; the status is CKVC_E_MEMORY when the statistics do not fit
 * into it. stable_free frees *out. */
ckvc_status stable_create(const ckvc_table *table, double cql_alpha, fit_reward reward,
                          uint64_t seed, size_t memory_max, stable **out,
                          ckvc_err *err) CKVC_MUST_CHECK;
void stable_free(stable *s);
CKVC_AUTO_OF(stable, stable_free)
/* Adds the head records of a published shard. Held-out prompts have none. */
ckvc_status stable_add(stable *s, const shard *rows, ckvc_err *err) CKVC_MUST_CHECK;
/* Writes the reliability to *out, or NaN where it is undefined. A split and budget count when both
 * halves support at least half of the budget's states, and at least half of all splits and budgets
 * must count. */
ckvc_status stable_reliability(const stable *s, double *out, ckvc_err *err) CKVC_MUST_CHECK;

/* What calibrate_options.watch takes. Where the target is not reached, the last shard ends the
 * pass. Where the pass ends is journaled (run_pass_stable). */
extern const pass_watch stable_watch;
