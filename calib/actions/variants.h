/* Which actions of a prompt are logged (the behaviour policy, paper.md section 5), and the
 * distinct kept sets that they amount to (section 4): an action that keeps the baseline's set costs
 * no rollout, equal sets cost one. */
#pragma once

#include "calib/actions/prompt_sets.h"
#include "lib/base/names.h"
#include "lib/base/status.h"
#include "formats/shard/shard.h"
#include "lib/base/hash.h"

/* The probe `epsilon-greedy` (paper.md section 7): actions chosen online, from the running mean
 * advantage of what was tried before.
 *
 * What a prompt tries depends on the prompts before it in the plan's order, so a resumed pass first
 * learns from the records that are there; sums are made in that order, and the same again. */
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

typedef enum behaviour_kind {
    BEHAVIOUR_BALANCED,
    BEHAVIOUR_UNIFORM,
    BEHAVIOUR_EPSILON_GREEDY
} behaviour_kind;
const char *behaviour_name(behaviour_kind behaviour); /* "balanced", ... */

/* The behaviour policy of a pass. */
typedef struct behaviour_policy {
    behaviour_kind kind;
    bool sides[CKVC_SIDE_COUNT];
    int64_t limit;          /* distinct rollouts per prompt and side; < 0: the full grid */
    uint64_t seed;          /* names the random stream together with the prompt's id */
    epsilon_greedy *greedy; /* BEHAVIOUR_EPSILON_GREEDY: what the pass has learnt, begun for the
                               prompt in hand; borrowed */
} behaviour_policy;

#define VARIANT_NONE UINT32_MAX /* the baseline's own set */

typedef struct variant {
    uint32_t budget; /* the first that it came from: any that shares its baseline in every layer is
                        the same rollout */
    uint32_t layer;
    uint32_t offsets[2];                 /* of its kept set: 0, |S| */
    size_t first;                        /* positions[first ... first + |S|) of the list */
    uint64_t key;                        /* hash of (baseline group, layer, positions) */
    uint32_t first_use[CKVC_SIDE_COUNT]; /* the take of the side that asked for it first, from 1;
                                            0: none did */
    double loss;                         /* filled by the rollouts */
} variant;

typedef struct taken_action {
    uint8_t side, action;
    uint16_t layer, head, budget; /* head CKVC_NO_HEAD on the gate side */
    uint32_t variant;             /* VARIANT_NONE: equals the baseline */
    uint32_t n_candidates, n_kept;
    uint64_t set_hash; /* formats.md: XXH64 over budget index, layer, positions */
} taken_action;

typedef struct variant_list {
    variant *items;
    size_t n, capacity;
    uint32_t *positions;
    size_t n_positions, cap_positions;
    taken_action *actions;
    size_t n_actions, cap_actions;
    uint32_t distinct[CKVC_SIDE_COUNT]; /* rollouts that a side asks for (a set that both use counts
                                           in both) */
    uint32_t group[PROMPT_SETS_MAX_BUDGETS]; /* first budget whose baseline agrees in every layer */
    uint32_t *slots;                         /* hash table of variant numbers + 1 */
    size_t n_slots;
    uint8_t *key_bytes; /* scratch of variants_set_hash */
    size_t cap_key;
    uint32_t *order; /* states as they are drawn */
    size_t cap_order;
    uint32_t *set; /* one action's positions */
    size_t cap_set;
} variant_list;

/* What a list can grow to, from the options alone. */
typedef struct variant_extent {
    size_t n_actions, n_variants, n_positions;
    uint32_t max_kept, max_tokens, max_states;
} variant_extent;

/* The extent for prompts of at most max_tokens under a table's shape and budgets, or with budgets
 * by layer ([L], prompt_sets.h; NULL: none): one budget, whose layers keep at most their own. */
variant_extent variants_extent(const ckvc_table *table, const double *layer_budgets,
                               uint32_t max_tokens, const behaviour_policy *how);
size_t variants_bytes(const variant_extent *most);
/* Makes room for that extent, so that variants_build does not allocate. */
void variants_reserve(variant_list *v, const variant_extent *most);
void variants_fini(variant_list *v);

/* Rebuilds the list for the prompt that `k` holds. */
void variants_build(variant_list *v, prompt_sets *k, const behaviour_policy *how,
                    const char *prompt_id);
/* The kept set of variant i; valid while the list is. */
static inline kept_set variant_set(const variant_list *v, size_t i) {
    return (kept_set){1, v->items[i].offsets, v->positions + v->items[i].first};
}
/* Distinct rollouts of the prompt in all: the full cache's, a baseline's for each group of its
 * n_budgets budgets, the variants'. */
size_t variants_rollouts(const variant_list *v, uint32_t n_budgets);
/* XXH64, seed 0, over u32 budget index, u32 layer, ascending u32 positions (all little-endian). */
uint64_t variants_set_hash(variant_list *v, uint32_t budget, uint32_t layer,
                           const uint32_t *positions, uint32_t n);
