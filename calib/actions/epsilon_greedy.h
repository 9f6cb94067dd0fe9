/* The probe `epsilon-greedy` (method.md section 7): actions chosen online, from the running mean
 * advantage of what was tried before.
 *
 * What a prompt tries depends on the prompts before it in the plan's order, so a resumed pass first
 * learns from the records that are there; sums are made in that order, and the same again. */
#pragma once

#include "calib/actions/prompt_sets.h"
#include "formats/shard/shard.h"
#include "lib/base/rng.h"

#define EPSILON_FIRST 0.3
#define EPSILON_LAST  0.05

typedef struct epsilon_greedy epsilon_greedy;

/* For the states of a table, which gives the action to begin with; borrowed. */
epsilon_greedy *epsilon_greedy_create(const ckvc_table *table, const bool sides[CKVC_SIDE_COUNT]);
void epsilon_greedy_free(epsilon_greedy *g);
/* The share of random choices at logged prompt i of n: from EPSILON_FIRST to EPSILON_LAST. */
double epsilon_greedy_share(size_t i, size_t n);
/* A prompt begins: its share of random choices, its cell, and no action tried yet. */
void epsilon_greedy_begin(epsilon_greedy *g, double share, uint32_t bin_entropy, uint32_t bin_ppl);
/* An action of a state (in this block of the table) that this prompt has not tried: with
 * probability `share` any, else the best running mean among those tried before (of equal ones the
 * lowest), and where none was the table's own action. -1 when the prompt has tried them all. No
 * allocation. */
int epsilon_greedy_pick(epsilon_greedy *g, const prompt_state *s, uint32_t block, ckvc_rng *rng);
/* Advantages of logged records. */
void epsilon_greedy_learn(epsilon_greedy *g, const shard *rows);
