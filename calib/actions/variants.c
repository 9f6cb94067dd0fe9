/* Behaviour policy and distinct variants: see variants.h. */
#include "calib/actions/variants.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/rng.h"

/* Random streams of one prompt (ckvc_rng_init's stage). */
enum { STAGE_ORDER = 1, STAGE_UNIFORM = 3, STAGE_GREEDY = 5 }; /* + side */

const char *behaviour_name(behaviour_kind behaviour) {
    static const char *const names[] = {"balanced", "uniform", "epsilon-greedy"};
    return names[behaviour];
}

typedef struct state {
    uint32_t budget, layer, head;
} state;

void variants_fini(variant_list *v) {
    free(v->items);
    free(v->positions);
    free(v->actions);
    free(v->slots);
    free(v->key_bytes);
    free(v->order);
    free(v->set);
    *v = (variant_list){0};
}

ckvc_status variants_set_hash(variant_list *v, uint32_t budget, uint32_t layer,
                              const uint32_t *positions, uint32_t n, uint64_t *hash,
                              ckvc_err *err) {
    ckvc_status st = ckvc_grow((void **)&v->key_bytes, &v->cap_key, 8 + (size_t)n * 4, 1, err);
    if (st != CKVC_OK) { return st; }
    ckvc_put_u32(v->key_bytes, budget);
    ckvc_put_u32(v->key_bytes + 4, layer);
    for (uint32_t i = 0; i < n; i++) {
        ckvc_put_u32(v->key_bytes + 8 + (size_t)i * 4, positions[i]);
    }
    *hash = ckvc_xxh64(v->key_bytes, 8 + (size_t)n * 4);
    return CKVC_OK;
}

static bool same_positions(const uint32_t *a, uint32_t n_a, const uint32_t *b, uint32_t n_b) {
    return n_a == n_b && (n_a == 0 || memcmp(a, b, n_a * sizeof *a) == 0);
}

/* Budgets whose baselines keep the same set in every layer share rollouts. */
static void group_budgets(variant_list *v, const prompt_sets *k) {
    for (uint32_t b = 0; b < k->n_budgets; b++) {
        v->group[b] = b;
        for (uint32_t c = 0; c < b && v->group[b] == b; c++) {
            uint32_t l = 0;
            while (l < k->n_layers && same_positions(prompt_sets_at(k, b, l)->positions,
                                                     prompt_sets_at(k, b, l)->n_kept,
                                                     prompt_sets_at(k, c, l)->positions,
                                                     prompt_sets_at(k, c, l)->n_kept)) {
                l++;
            }
            if (l == k->n_layers) { v->group[b] = v->group[c]; }
        }
    }
}

static void insert_slot(variant_list *v, uint32_t index) {
    size_t at = (size_t)v->items[index].key & (v->n_slots - 1);
    while (v->slots[at]) {
        at = (at + 1) & (v->n_slots - 1);
    }
    v->slots[at] = index + 1;
}

static size_t slots_for(size_t n_variants) {
    size_t n = 1024;
    while (n / 2 < n_variants + 1) {
        n *= 2;
    }
    return n;
}

/* Keeps the table at most half full. */
static ckvc_status grow_slots(variant_list *v, size_t n_variants, ckvc_err *err) {
    if (v->n_slots && n_variants < v->n_slots / 2) { return CKVC_OK; }
    size_t n = slots_for(n_variants);
    uint32_t *slots = ckvc_calloc(n, sizeof *slots);
    free(v->slots);
    v->slots = slots;
    v->n_slots = n;
    for (uint32_t i = 0; i < v->n; i++) {
        insert_slot(v, i);
    }
    return CKVC_OK;
}

/* ---- how large it can get ---- */

/* budgets [n_budgets]: of every layer, or with by_layer one of each. */
static variant_extent extent_of(const ckvc_table *table, const double *budgets, uint32_t n_budgets,
                                bool by_layer, uint32_t max_tokens,
                                const bool sides[CKVC_SIDE_COUNT], int64_t limit) {
    variant_extent most = {.max_tokens = max_tokens};
    size_t kept_all = 0; /* positions of the full grid */
    for (uint32_t i = 0; i < CKVC_SIDE_COUNT; i++) {
        if (!sides[i]) { continue; }
        const size_t n_grid = i == CKVC_SIDE_HEAD ? table->n_head_actions : table->n_gate_actions;
        const size_t per_layer = i == CKVC_SIDE_HEAD ? table->n_heads : 1,
                     per_budget = by_layer ? per_layer : per_layer * table->n_layers;
        const size_t n_states = per_budget * n_budgets, all = n_states * n_grid;
        for (uint32_t b = 0; b < n_budgets; b++) {
            const uint32_t tokens = ckvc_budget_tokens(budgets[b], max_tokens),
                           kept = tokens < max_tokens ? tokens : max_tokens;
            kept_all += per_budget * n_grid * kept;
            most.max_kept = kept > most.max_kept ? kept : most.max_kept;
        }
        most.n_actions += all;
        /* the first state is taken whatever the limit, and one over the limit is undone only when
         * it is complete */
        most.n_variants += limit < 0 || (size_t)limit + n_grid > all ? all : (size_t)limit + n_grid;
        most.max_states = n_states > most.max_states ? (uint32_t)n_states : most.max_states;
    }
    most.n_positions =
        most.n_variants * most.max_kept < kept_all ? most.n_variants * most.max_kept : kept_all;
    return most;
}

variant_extent variants_extent(const ckvc_table *table, uint32_t max_tokens,
                               const bool sides[CKVC_SIDE_COUNT], int64_t limit) {
    return extent_of(table, table->budgets, table->n_budgets, false, max_tokens, sides, limit);
}

variant_extent variants_extent_by_layer(const ckvc_table *table, const double *layer_budgets,
                                        uint32_t max_tokens, const bool sides[CKVC_SIDE_COUNT],
                                        int64_t limit) {
    return extent_of(table, layer_budgets, table->n_layers, true, max_tokens, sides, limit);
}

size_t variants_bytes(const variant_extent *most) {
    const variant_list *v = NULL;
    return most->n_variants * sizeof *v->items + most->n_positions * sizeof *v->positions +
           most->n_actions * sizeof *v->actions + slots_for(most->n_variants) * sizeof *v->slots +
           8 + (size_t)most->max_kept * 4 + most->max_states * sizeof *v->order +
           most->max_tokens * sizeof *v->set;
}

/* Exactly n elements, where a growing array would take up to twice as much. */
static ckvc_status reserve(void **array, size_t *capacity, size_t n, size_t size, ckvc_err *err) {
    if (n > *capacity) {
        *capacity = n; /* ckvc_grow starts its doubling here */
        free(*array);
        *array = ckvc_alloc(n, size);
        if (!*array) {
            *capacity = 0;
            return ckvc_fail_memory(err, "distinct variants", n * size);
        }
    }
    return CKVC_OK;
}

ckvc_status variants_reserve(variant_list *v, const variant_extent *most, ckvc_err *err) {
    v->n = v->n_positions = v->n_actions = 0;
    ckvc_status st =
        reserve((void **)&v->items, &v->capacity, most->n_variants, sizeof *v->items, err);
    if (st == CKVC_OK) {
        st = reserve((void **)&v->positions, &v->cap_positions, most->n_positions,
                     sizeof *v->positions, err);
    }
    if (st == CKVC_OK) {
        st = reserve((void **)&v->actions, &v->cap_actions, most->n_actions, sizeof *v->actions,
                     err);
    }
    if (st == CKVC_OK) {
        st = reserve((void **)&v->key_bytes, &v->cap_key, 8 + (size_t)most->max_kept * 4, 1, err);
    }
    if (st == CKVC_OK) {
        st = reserve((void **)&v->order, &v->cap_order, most->max_states, sizeof *v->order, err);
    }
    if (st == CKVC_OK) {
        st = reserve((void **)&v->set, &v->cap_set, most->max_tokens, sizeof *v->set, err);
    }
    return st == CKVC_OK ? grow_slots(v, most->n_variants, err) : st;
}

/* ---- building ---- */

/* The variant of a set that differs from its baseline: found or added. The set is compared in full;
 * the hash is a hint. */
static ckvc_status find_or_add(variant_list *v, uint32_t budget, uint32_t layer,
                               const uint32_t *positions, uint32_t n, uint32_t *out,
                               ckvc_err *err) {
    uint64_t key;
    ckvc_status st = variants_set_hash(v, v->group[budget], layer, positions, n, &key, err);
    if (st == CKVC_OK) { st = grow_slots(v, v->n, err); }
    if (st != CKVC_OK) { return st; }
    for (size_t at = (size_t)key & (v->n_slots - 1); v->slots[at];
         at = (at + 1) & (v->n_slots - 1)) {
        const variant *have = &v->items[v->slots[at] - 1];
        if (have->key == key && have->layer == layer &&
            v->group[have->budget] == v->group[budget] &&
            same_positions(v->positions + have->first, have->n_kept, positions, n)) {
            *out = v->slots[at] - 1;
            return CKVC_OK;
        }
    }
    st = ckvc_grow((void **)&v->items, &v->capacity, v->n + 1, sizeof *v->items, err);
    if (st == CKVC_OK) {
        st = ckvc_grow((void **)&v->positions, &v->cap_positions, v->n_positions + n,
                       sizeof *v->positions, err);
    }
    if (st != CKVC_OK) { return st; }
    if (n) { memcpy(v->positions + v->n_positions, positions, n * sizeof *positions); }
    v->items[v->n] = (variant){
        .budget = budget, .layer = layer, .n_kept = n, .first = v->n_positions, .key = key};
    v->n_positions += n;
    *out = (uint32_t)v->n++;
    insert_slot(v, *out);
    return CKVC_OK;
}

/* Adds one action of a state in take number `take` (from 1); a variant that is new to this side
 * counts in distinct. `set` holds T positions of scratch. */
static ckvc_status add_action(variant_list *v, prompt_sets *k, ckvc_side side, state s,
                              uint32_t action, uint32_t take, uint32_t *set, ckvc_err *err) {
    const layer_set *base = prompt_sets_at(k, s.budget, s.layer);
    taken_action t = {.side = (uint8_t)side,
                      .action = (uint8_t)action,
                      .layer = (uint16_t)s.layer,
                      .budget = (uint16_t)s.budget,
                      .head = side == CKVC_SIDE_HEAD ? (uint16_t)s.head : CKVC_NO_HEAD,
                      .variant = VARIANT_NONE};
    t.n_kept =
        side == CKVC_SIDE_HEAD
            ? prompt_sets_head_action(k, s.budget, s.layer, s.head, action, set, &t.n_candidates)
            : prompt_sets_gate_action(k, s.budget, s.layer, action, set, &t.n_candidates);
    ckvc_status st = variants_set_hash(v, base->block, s.layer, set, t.n_kept, &t.set_hash, err);
    if (st == CKVC_OK && !same_positions(set, t.n_kept, base->positions, base->n_kept)) {
        st = find_or_add(v, s.budget, s.layer, set, t.n_kept, &t.variant, err);
    }
    if (st == CKVC_OK) {
        st = ckvc_grow((void **)&v->actions, &v->cap_actions, v->n_actions + 1, sizeof *v->actions,
                       err);
    }
    if (st != CKVC_OK) { return st; }
    if (t.variant != VARIANT_NONE && !v->items[t.variant].first_use[side]) {
        v->items[t.variant].first_use[side] = take;
        v->distinct[side]++;
    }
    v->actions[v->n_actions++] = t;
    return CKVC_OK;
}

/* Undoes take number `take`: its actions, its first uses, and the variants that it added. Those are
 * the newest ones, so removing them in reverse leaves the hash table as it was. */
static void undo_take(variant_list *v, ckvc_side side, uint32_t take, size_t n_actions,
                      size_t n_variants, size_t n_positions) {
    for (size_t i = n_actions; i < v->n_actions; i++) {
        uint32_t at = v->actions[i].variant;
        if (at != VARIANT_NONE && v->items[at].first_use[side] == take) {
            v->items[at].first_use[side] = 0;
            v->distinct[side]--;
        }
    }
    while (v->n > n_variants) {
        v->n--;
        size_t at = (size_t)v->items[v->n].key & (v->n_slots - 1);
        while (v->slots[at] != v->n + 1) {
            at = (at + 1) & (v->n_slots - 1);
        }
        v->slots[at] = 0;
    }
    v->n_positions = n_positions;
    v->n_actions = n_actions;
}

static state state_of(const prompt_sets *k, ckvc_side side, uint32_t index) {
    if (side == CKVC_SIDE_GATE) { return (state){index / k->n_layers, index % k->n_layers, 0}; }
    uint32_t head = index % k->n_heads, rest = index / k->n_heads;
    return (state){rest / k->n_layers, rest % k->n_layers, head};
}

/* The states in an order drawn from (seed, id). */
static ckvc_status draw_order(variant_list *v, ckvc_side side, uint64_t seed, const char *id,
                              uint32_t n_states, ckvc_err *err) {
    ckvc_status st = ckvc_grow((void **)&v->order, &v->cap_order, n_states, sizeof *v->order, err);
    if (st != CKVC_OK) { return st; }
    for (uint32_t i = 0; i < n_states; i++) {
        v->order[i] = i;
    }
    ckvc_rng rng;
    ckvc_rng_init(&rng, seed, ckvc_rng_key(id), STAGE_ORDER + (uint32_t)side);
    ckvc_rng_shuffle_u32(&rng, v->order, n_states);
    return CKVC_OK;
}

static ckvc_status take_balanced(variant_list *v, prompt_sets *k, ckvc_side side, int64_t limit,
                                 uint64_t seed, const char *id, uint32_t n_states, uint32_t n_grid,
                                 uint32_t *set, ckvc_err *err) {
    ckvc_status st = draw_order(v, side, seed, id, n_states, err);
    for (uint32_t i = 0; st == CKVC_OK && i < n_states; i++) {
        size_t n_actions = v->n_actions, n_variants = v->n, n_positions = v->n_positions;
        for (uint32_t a = 0; st == CKVC_OK && a < n_grid; a++) {
            st = add_action(v, k, side, state_of(k, side, v->order[i]), a, i + 1, set, err);
        }
        if (st == CKVC_OK && limit >= 0 && i > 0 && v->distinct[side] > limit) {
            undo_take(v, side, i + 1, n_actions, n_variants, n_positions);
            break;
        }
    }
    return st;
}

/* Independent uniform draws of (state, action) until a draw would need a rollout over the limit,
 * and at most as many draws as the side's grid has entries (draws that equal the baseline cost
 * nothing and would never end). limit < 0: that many draws. */
static ckvc_status take_uniform(variant_list *v, prompt_sets *k, ckvc_side side, int64_t limit,
                                uint64_t seed, const char *id, uint32_t n_states, uint32_t n_grid,
                                uint32_t *set, ckvc_err *err) {
    ckvc_rng rng;
    ckvc_rng_init(&rng, seed, ckvc_rng_key(id), STAGE_UNIFORM + (uint32_t)side);
    uint32_t most = n_states * n_grid;
    ckvc_status st = CKVC_OK;
    for (uint32_t i = 0; st == CKVC_OK && i < most; i++) {
        uint32_t s = (uint32_t)ckvc_rng_below(&rng, n_states),
                 a = (uint32_t)ckvc_rng_below(&rng, n_grid);
        size_t n_actions = v->n_actions, n_variants = v->n, n_positions = v->n_positions;
        st = add_action(v, k, side, state_of(k, side, s), a, i + 1, set, err);
        if (st == CKVC_OK && limit >= 0 && i > 0 && v->distinct[side] > limit) {
            undo_take(v, side, i + 1, n_actions, n_variants, n_positions);
            break;
        }
    }
    return st;
}

/* Turn by turn one action of every state in an order drawn from (seed, id), the action chosen
 * online, until the rollouts reach the limit (as many as a balanced pass may take) or every action
 * was tried. */
static ckvc_status take_greedy(variant_list *v, prompt_sets *k, ckvc_side side, int64_t limit,
                               uint64_t seed, const char *id, uint32_t n_states, uint32_t n_grid,
                               uint32_t *set, ckvc_err *err) {
    ckvc_rng rng;
    ckvc_status st = draw_order(v, side, seed, id, n_states, err);
    ckvc_rng_init(&rng, seed, ckvc_rng_key(id), STAGE_GREEDY + (uint32_t)side);
    for (uint32_t take = 0; st == CKVC_OK && take < n_states * n_grid; take++) {
        const state s = state_of(k, side, v->order[take % n_states]);
        const int action = epsilon_greedy_pick(v->greedy, side, s.layer, s.head,
                                               prompt_sets_at(k, s.budget, s.layer)->block, &rng);
        size_t n_actions = v->n_actions, n_variants = v->n, n_positions = v->n_positions;
        assert(action >= 0); /* n_grid turns try each action once */
        st = add_action(v, k, side, s, (uint32_t)action, take + 1, set, err);
        if (st == CKVC_OK && limit >= 0 && take > 0 && v->distinct[side] > limit) {
            undo_take(v, side, take + 1, n_actions, n_variants, n_positions);
            break;
        }
    }
    return st;
}

ckvc_status variants_build(variant_list *v, prompt_sets *k, const bool sides[CKVC_SIDE_COUNT],
                           behaviour_kind behaviour, int64_t limit, uint64_t seed,
                           const char *prompt_id, ckvc_err *err) {
    v->n = v->n_positions = v->n_actions = 0;
    if (v->n_slots) { memset(v->slots, 0, v->n_slots * sizeof *v->slots); }
    group_budgets(v, k);
    ckvc_status st = ckvc_grow((void **)&v->set, &v->cap_set, k->n_tokens, sizeof *v->set, err);
    for (int i = 0; st == CKVC_OK && i < CKVC_SIDE_COUNT; i++) {
        ckvc_side side = (ckvc_side)i;
        v->distinct[side] = 0;
        if (!sides[side]) { continue; }
        uint32_t n_states = k->n_budgets * k->n_layers * (side == CKVC_SIDE_HEAD ? k->n_heads : 1);
        uint32_t n_grid =
            side == CKVC_SIDE_HEAD ? k->table->n_head_actions : k->table->n_gate_actions;
        st = behaviour == BEHAVIOUR_BALANCED
                 ? take_balanced(v, k, side, limit, seed, prompt_id, n_states, n_grid, v->set, err)
             : behaviour == BEHAVIOUR_UNIFORM
                 ? take_uniform(v, k, side, limit, seed, prompt_id, n_states, n_grid, v->set, err)
                 : take_greedy(v, k, side, limit, seed, prompt_id, n_states, n_grid, v->set, err);
    }
    return st;
}
