/* When to stop logging (--until-stable): the split-half reliability of the head table from the
 * shards published so far.
 *
 * Prompts are halved at random, SPLITS times, by (seed, prompt id) alone; each half is fitted
 * exactly, with the alpha and the rewards of the fit to come; Spearman's rho of the two halves'
 * weights over the states that both support, mean over budgets and splits, corrected to the whole
 * by Spearman-Brown: 2 rho / (1 + rho). Sums are exact, so threads, resumes and the order of
 * prompts never show. */
#pragma once

#include "calib/log/calibrate.h"
#include "lib/base/memory.h"

#define STABLE_SPLITS 20

typedef struct stable stable;

/* table: of what is logged; borrowed. cql_alpha, reward: as in fit_options. memory_max:
 * bytes for the statistics, CKVC_E_MEMORY when they do not fit. */
ckvc_status stable_create(const ckvc_table *table, double cql_alpha, fit_reward reward,
                          uint64_t seed, size_t memory_max, stable **out,
                          ckvc_err *err) CKVC_MUST_CHECK;
void stable_free(stable *s);
CKVC_AUTO_OF(stable, stable_free)
/* The head records of a published shard; held-out prompts have none. */
ckvc_status stable_add(stable *s, const shard *rows, ckvc_err *err) CKVC_MUST_CHECK;
/* -> *out, NaN where undefined: a split and budget counts when both halves support at least half of
 * its states, and half of them all must count. */
ckvc_status stable_reliability(const stable *s, double *out, ckvc_err *err) CKVC_MUST_CHECK;

/* What calibrate_options.watch takes. Short of the target the last shard ends the pass; where it
 * ends is journaled (run_pass_stable). */
extern const pass_watch stable_watch;
