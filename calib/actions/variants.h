/* Which actions of a prompt are logged (the behaviour policy, paper.md section 5), and the distinct
 * kept sets to which they lead (section 4). An action that keeps the same set as the baseline costs
 * no rollout, and actions with equal sets share one. */
#pragma once

#include "calib/actions/prompt_sets.h"
#include "lib/base/names.h"
#include "lib/base/status.h"
#include "formats/shard/shard.h"
#include "lib/base/hash.h"

/* The behaviour policy of the probe `epsilon-greedy` (paper.md section 7) chooses actions while it
 * logs, by the running mean advantage of what was tried before.
 *
 * What a prompt tries depends on the prompts before it in the plan's order. So a resumed pass first
 * learns from the records that exist, in that order, which gives the same sums again. */
#define EPSILON_FIRST 0.3
#define EPSILON_LAST  0.05

typedef struct epsilon_greedy epsilon_greedy;

/* Makes the policy for the states of a table, which is borrowed and whose entries are the actions
 * to begin with. The caller frees it with epsilon_greedy_free. */
epsilon_greedy *epsilon_greedy_create(const ckvc_table *table, const bool sides[CKVC_SIDE_COUNT]);
void epsilon_greedy_free(epsilon_greedy *g);
/* Returns the probability of a random choice at logged prompt i of n, which falls linearly from
 * EPSILON_FIRST to EPSILON_LAST. */
double epsilon_greedy_share(size_t i, size_t n);
/* Begins a prompt: sets the probability of a random choice and the prompt's risk cell, and forgets
 * which actions were tried. */
void epsilon_greedy_begin(epsilon_greedy *g, double share, uint32_t bin_entropy, uint32_t bin_ppl);
/* Picks an action of a state (in this block of the table) that this prompt has not tried. With
 * probability `share` it is any of them; else it is the one with the best running mean among those
 * that earlier prompts tried (of equal ones the lowest), or the table's own action where none was
 * tried. Where the table's own is no longer free, it is any. Returns -1 when the prompt has tried
 * them all. It does not allocate. */
int epsilon_greedy_pick(epsilon_greedy *g, const prompt_state *s, uint32_t block, ckvc_rng *rng);
/* Adds the advantages of logged records to the running means. */
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
    int64_t limit; /* distinct rollouts per prompt and side; below 0: all */
    uint64_t seed; /* with the prompt's id it determines all random numbers */
    /* What an epsilon-greedy pass has learnt, begun for the prompt in hand; borrowed; else NULL. */
    epsilon_greedy *greedy;
} behaviour_policy;

#define VARIANT_NONE UINT32_MAX /* the baseline's own set */

typedef struct variant {
    /* The budget of the first action that led here. Under any other budget of the same group, whose
     * baseline agrees in every layer, it is the same rollout. */
    uint32_t budget;
    uint32_t layer;
    uint32_t offsets[2]; /* 0 and |S|, as a kept_set wants them */
    size_t first;        /* its positions are [first, first + |S|) of the list's */
    uint64_t key;        /* hash of (baseline group, layer, positions) */
    /* The number, from 1, of the take by which a side first asked for this set; 0 where it never
     * did. */
    uint32_t first_use[CKVC_SIDE_COUNT];
    double loss; /* filled by the rollouts */
} variant;

typedef struct taken_action {
    uint8_t side, action;
    uint16_t layer, head, budget; /* head is CKVC_NO_HEAD on the gate side */
    uint32_t variant;             /* VARIANT_NONE where it keeps the baseline's set */
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
    /* How many rollouts each side asks for. A set that both sides use counts in both. */
    uint32_t distinct[CKVC_SIDE_COUNT];
    /* Of each budget the first one whose baseline agrees with its own in every layer. */
    uint32_t group[PROMPT_SETS_MAX_BUDGETS];
    uint32_t *slots; /* hash table of variant numbers + 1 */
    size_t n_slots;
    uint8_t *key_bytes; /* scratch of variants_set_hash */
    size_t cap_key;
    uint32_t *order; /* the states in the order in which they are taken */
    size_t cap_order;
    uint32_t *set; /* one action's positions */
    size_t cap_set;
} variant_list;

/* The largest sizes that a list can reach, which follow from the options alone. */
typedef struct variant_extent {
    size_t n_actions, n_variants, n_positions;
    uint32_t max_kept, max_tokens, max_states;
} variant_extent;

/* Returns the extent for prompts of at most max_tokens under a table's shape and budgets.
 * layer_budgets [L] are as for prompt_sets_by_layer; with them there is one budget, under which
 * each layer keeps at most its own. */
variant_extent variants_extent(const ckvc_table *table, const double *layer_budgets,
                               uint32_t max_tokens, const behaviour_policy *how);
/* Returns how many bytes variants_reserve allocates for that extent. */
size_t variants_bytes(const variant_extent *most);
/* Makes room for that extent, so that variants_build does not allocate. */
void variants_reserve(variant_list *v, const variant_extent *most);
void variants_fini(variant_list *v);

/* Rebuilds the list for the prompt that `k` holds. The prompt's id and how->seed determine all
 * random numbers. */
void variants_build(variant_list *v, prompt_sets *k, const behaviour_policy *how,
                    const char *prompt_id);
/* Returns the kept set of variant i, whose positions are the list's. */
static inline kept_set variant_set(const variant_list *v, size_t i) {
    return (kept_set){1, v->items[i].offsets, v->positions + v->items[i].first, false, {0}};
}
/* Returns how many distinct rollouts the prompt needs: that of the full cache, one baseline for
 * each group of its n_budgets budgets, and the variants. */
size_t variants_rollouts(const variant_list *v, uint32_t n_budgets);
/* Returns the hash of a kept set of n positions: XXH64 with seed 0 over the budget's index, the
 * layer and the ascending positions, each as a little-endian u32. The list lends scratch for it. */
uint64_t variants_set_hash(variant_list *v, uint32_t budget, uint32_t layer,
                           const uint32_t *positions, uint32_t n);
