/* Behaviour policy and distinct variants: see variants.h. */
#include "calib/actions/variants.h"

#include <assert.h>

#include "lib/base/bytes.h"
#include "lib/base/hash.h"
#include "formats/shard/shard_rows.h"

/* Which of a prompt's random streams is used (`stage` of ckvc_rng_init); the side is added to
 * it. */
enum { STAGE_ORDER = 1, STAGE_UNIFORM = 3, STAGE_GREEDY = 5 }; /* + side */

const char *behaviour_name(behaviour_kind behaviour) {
    static const char *const names[] = {"balanced", "uniform", "epsilon-greedy"};
    return names[behaviour];
}

/* The arrays of a list that grow: the array, its capacity, and how many elements a variant_extent
 * asks for. */
#define ARRAYS(X, v, most)                                                                         \
    X((v)->items, (v)->capacity, (most)->n_variants)                                               \
    X((v)->positions, (v)->cap_positions, (most)->n_positions)                                     \
    X((v)->actions, (v)->cap_actions, (most)->n_actions)                                           \
    X((v)->key_bytes, (v)->cap_key, 8 + (size_t)(most)->max_kept * 4)                              \
    X((v)->order, (v)->cap_order, (size_t)(most)->max_states)                                      \
    X((v)->set, (v)->cap_set, (size_t)(most)->max_tokens)

void variants_fini(variant_list *v) {
#define FREE(array, cap, need) free(array);
    ARRAYS(FREE, v, v)
    free(v->slots);
    *v = (variant_list){0};
}

uint64_t variants_set_hash(variant_list *v, uint32_t budget, uint32_t layer,
                           const uint32_t *positions, uint32_t n) {
    CKVC_GROW(v->key_bytes, v->cap_key, 8 + (size_t)n * 4);
    ckvc_put_u32(v->key_bytes, budget);
    ckvc_put_u32(v->key_bytes + 4, layer);
    for (uint32_t i = 0; i < n; i++) {
        ckvc_put_u32(v->key_bytes + 8 + (size_t)i * 4, positions[i]);
    }
    return ckvc_xxh64(v->key_bytes, 8 + (size_t)n * 4);
}

static bool same_positions(const uint32_t *a, uint32_t n_a, const uint32_t *b, uint32_t n_b) {
    return n_a == n_b && (n_a == 0 || memcmp(a, b, n_a * sizeof *a) == 0);
}

/* Puts budgets whose baselines keep the same set in every layer into one group, which shares
 * rollouts. */
static void group_budgets(variant_list *v, const prompt_sets *k) {
    for (uint32_t b = 0; b < k->n_budgets; b++) {
        v->group[b] = b;
        for (uint32_t c = 0; c < b && v->group[b] == b; c++) {
            const layer_set *x = prompt_sets_at(k, b, 0), *y = prompt_sets_at(k, c, 0);
            uint32_t l = 0;
            while (l < k->n_layers &&
                   same_positions(x[l].positions, x[l].n_kept, y[l].positions, y[l].n_kept)) {
                l++;
            }
            if (l == k->n_layers) { v->group[b] = v->group[c]; }
        }
    }
}

size_t variants_rollouts(const variant_list *v, uint32_t n_budgets) {
    size_t n = 1 + v->n;
    for (uint32_t b = 0; b < n_budgets; b++) { n += v->group[b] == b; }
    return n;
}

/* ---- the hash table ---- */

/* The slot that holds variant `index`, or the empty one into which it belongs. */
static size_t find_slot(const variant_list *v, uint32_t index) {
    size_t at = (size_t)v->items[index].key & (v->n_slots - 1);
    while (v->slots[at] && v->slots[at] != index + 1) { at = (at + 1) & (v->n_slots - 1); }
    return at;
}

static size_t slots_for(size_t n_variants) {
    size_t n = 1024;
    while (n / 2 < n_variants + 1) { n *= 2; }
    return n;
}

/* Grows the hash table, so that it is at most half full with n_variants. */
static void grow_slots(variant_list *v, size_t n_variants) {
    if (v->n_slots && n_variants < v->n_slots / 2) { return; }
    free(v->slots);
    v->n_slots = slots_for(n_variants);
    v->slots = ckvc_calloc(v->n_slots, sizeof *v->slots);
    for (uint32_t i = 0; i < v->n; i++) { v->slots[find_slot(v, i)] = i + 1; }
}

/* ---- how large it can get ---- */

variant_extent variants_extent(const ckvc_table *table, const double *layer_budgets,
                               uint32_t max_tokens, const behaviour_policy *how) {
    variant_extent most = {.max_tokens = max_tokens};
    /* either budgets that hold in every layer, or one budget for each layer */
    const double *budgets = layer_budgets ? layer_budgets : table->budgets;
    const uint32_t n_budgets = layer_budgets ? table->n_layers : table->n_budgets;
    size_t kept_all = 0; /* positions that all actions together keep at most */
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        if (!how->sides[i]) { continue; }
        const struct side side = side_of_table(table, (ckvc_side)i);
        const size_t n_grid = side.actions.n, per_layer = side_of_prompt(&side),
                     per_budget = layer_budgets ? per_layer : per_layer * table->n_layers,
                     n_states = per_budget * n_budgets, all = n_states * n_grid,
                     limit = how->limit < 0 ? all : (size_t)how->limit;
        for (uint32_t b = 0; b < n_budgets; b++) {
            const uint32_t tokens = ckvc_budget_tokens(budgets[b], max_tokens),
                           kept = tokens < max_tokens ? tokens : max_tokens;
            kept_all += per_budget * n_grid * kept;
            most.max_kept = kept > most.max_kept ? kept : most.max_kept;
        }
        most.n_actions += all;
        /* The first state is taken whatever the limit is, and a state that exceeds the limit is
         * undone only after all its actions were added. So a list holds up to n_grid variants
         * more. */
        most.n_variants += limit + n_grid > all ? all : limit + n_grid;
        most.max_states = n_states > most.max_states ? (uint32_t)n_states : most.max_states;
    }
    const size_t positions = most.n_variants * most.max_kept;
    most.n_positions = positions < kept_all ? positions : kept_all;
    return most;
}

size_t variants_bytes(const variant_extent *most) {
    const variant_list *v = NULL;
    size_t bytes = slots_for(most->n_variants) * sizeof *v->slots;
#define ADD(array, cap, need) bytes += (need) * sizeof *(array);
    ARRAYS(ADD, v, most)
    return bytes;
}

void variants_reserve(variant_list *v, const variant_extent *most) {
    v->n = v->n_positions = v->n_actions = 0;
    /* Allocates exactly as many as are needed. CKVC_GROW doubles, and could take twice as much. */
#define RESERVE(array, cap, need)                                                                  \
    if ((need) > (cap)) { (array) = ckvc_realloc_array((array), (cap) = (need), sizeof *(array)); }
    ARRAYS(RESERVE, v, most)
    grow_slots(v, most->n_variants);
}

/* ---- building ---- */

/* What is needed to choose the actions of one side of a prompt. */
typedef struct draw {
    variant_list *v;
    prompt_sets *k;
    const behaviour_policy *how;
    ckvc_side side;
    uint32_t n_states, n_grid;
    ckvc_rng rng;
} draw;

/* Finds or adds the variant of the set v->set [n], which differs from the baseline's. Sets are
 * compared in full; an equal hash alone is not enough. */
static uint32_t find_or_add(variant_list *v, const prompt_state *s, uint32_t n) {
    const uint64_t key = variants_set_hash(v, v->group[s->budget], s->layer, v->set, n);
    grow_slots(v, v->n);
    for (size_t at = (size_t)key & (v->n_slots - 1); v->slots[at];
         at = (at + 1) & (v->n_slots - 1)) {
        const variant *have = &v->items[v->slots[at] - 1];
        if (have->key == key && have->layer == s->layer &&
            v->group[have->budget] == v->group[s->budget] &&
            same_positions(v->positions + have->first, have->offsets[1], v->set, n)) {
            return v->slots[at] - 1;
        }
    }
    CKVC_GROW(v->items, v->capacity, v->n + 1);
    CKVC_GROW(v->positions, v->cap_positions, v->n_positions + n);
    if (n) { memcpy(v->positions + v->n_positions, v->set, n * sizeof *v->set); }
    v->items[v->n] = (variant){.budget = s->budget,
                               .layer = s->layer,
                               .offsets = {0, n},
                               .first = v->n_positions,
                               .key = key};
    v->n_positions += n;
    const uint32_t index = (uint32_t)v->n++;
    v->slots[find_slot(v, index)] = index + 1;
    return index;
}

/* Adds one action of a state, as part of take number `number`. A variant that is new to this side
 * is counted in v->distinct. */
static void add_action(draw *d, const prompt_state *s, uint32_t action, uint32_t number) {
    variant_list *v = d->v;
    const layer_set *base = prompt_sets_at(d->k, s->budget, s->layer);
    taken_action t = {.side = (uint8_t)d->side,
                      .action = (uint8_t)action,
                      .layer = (uint16_t)s->layer,
                      .budget = (uint16_t)s->budget,
                      .head = (uint16_t)s->head,
                      .variant = VARIANT_NONE};
    t.n_kept = prompt_sets_action(d->k, s, action, v->set, &t.n_candidates);
    t.set_hash = variants_set_hash(v, base->block, s->layer, v->set, t.n_kept);
    if (!same_positions(v->set, t.n_kept, base->positions, base->n_kept)) {
        t.variant = find_or_add(v, s, t.n_kept);
        if (!v->items[t.variant].first_use[d->side]) {
            v->items[t.variant].first_use[d->side] = number;
            v->distinct[d->side]++;
        }
    }
    CKVC_GROW(v->actions, v->cap_actions, v->n_actions + 1);
    v->actions[v->n_actions++] = t;
}

/* Performs take number `number` (from 1), which adds actions [first, first + n) of a state. The
 * first take always succeeds. A later one that would need more rollouts than the limit is undone:
 * its actions, its first uses and the variants that it added are removed, and false says that the
 * list is complete. The added variants are the newest, so removing them in reverse order leaves the
 * hash table as it was. */
static bool take_states(draw *d, uint32_t state, uint32_t first, uint32_t n, uint32_t number) {
    variant_list *v = d->v;
    const size_t n_actions = v->n_actions, n_variants = v->n, n_positions = v->n_positions;
    const prompt_state s = prompt_sets_state(d->k, d->side, state);
    for (uint32_t a = first; a < first + n; a++) { add_action(d, &s, a, number); }
    if (d->how->limit < 0 || number == 1 || v->distinct[d->side] <= d->how->limit) { return true; }
    for (size_t i = n_actions; i < v->n_actions; i++) {
        const uint32_t at = v->actions[i].variant;
        if (at != VARIANT_NONE && v->items[at].first_use[d->side] == number) {
            v->items[at].first_use[d->side] = 0;
            v->distinct[d->side]--;
        }
    }
    while (v->n > n_variants) {
        const size_t at = find_slot(v, (uint32_t)--v->n);
        v->slots[at] = 0;
    }
    v->n_positions = n_positions;
    v->n_actions = n_actions;
    return false;
}

/* Shuffles the states by (seed, id). */
static void draw_order(draw *d, uint64_t id) {
    variant_list *v = d->v;
    ckvc_rng rng;
    CKVC_GROW(v->order, v->cap_order, d->n_states);
    for (uint32_t i = 0; i < d->n_states; i++) { v->order[i] = i; }
    ckvc_rng_init(&rng, d->how->seed, id, STAGE_ORDER + (uint32_t)d->side);
    ckvc_rng_shuffle_u32(&rng, v->order, d->n_states);
}

static void take_balanced(draw *d, uint64_t id) {
    draw_order(d, id);
    for (uint32_t i = 0; i < d->n_states && take_states(d, d->v->order[i], 0, d->n_grid, i + 1);
         i++) {}
}

/* Draws (state, action) independently and uniformly until a draw would need a rollout beyond the
 * limit. There are at most as many draws as the side has pairs of state and action, because draws
 * that equal the baseline cost nothing and might never end. With limit < 0 there are exactly as
 * many. */
static void take_uniform(draw *d, uint64_t id) {
    ckvc_rng_init(&d->rng, d->how->seed, id, STAGE_UNIFORM + (uint32_t)d->side);
    bool more = true;
    for (uint32_t i = 0; more && i < d->n_states * d->n_grid; i++) {
        const uint32_t s = (uint32_t)ckvc_rng_below(&d->rng, d->n_states),
                       a = (uint32_t)ckvc_rng_below(&d->rng, d->n_grid);
        more = take_states(d, s, a, 1, i + 1);
    }
}

/* Goes through the states in an order drawn from (seed, id), again and again, and takes one action
 * of each, chosen by what earlier prompts gave. It ends when the rollouts reach the limit, which is
 * the same as in a balanced pass, or when every action was tried. */
static void take_greedy(draw *d, uint64_t id) {
    draw_order(d, id);
    ckvc_rng_init(&d->rng, d->how->seed, id, STAGE_GREEDY + (uint32_t)d->side);
    bool more = true;
    for (uint32_t i = 0; more && i < d->n_states * d->n_grid; i++) {
        const uint32_t index = d->v->order[i % d->n_states];
        const prompt_state s = prompt_sets_state(d->k, d->side, index);
        const int action = epsilon_greedy_pick(
            d->how->greedy, &s, prompt_sets_at(d->k, s.budget, s.layer)->block, &d->rng);
        assert(action >= 0); /* n_grid rounds try each action exactly once */
        more = take_states(d, index, (uint32_t)action, 1, i + 1);
    }
}

void variants_build(variant_list *v, prompt_sets *k, const behaviour_policy *how,
                    const char *prompt_id) {
    static void (*const takes[])(draw *, uint64_t) = {take_balanced, take_uniform, take_greedy};
    const uint64_t id = ckvc_rng_key(prompt_id);
    v->n = v->n_positions = v->n_actions = 0;
    if (v->n_slots) { memset(v->slots, 0, v->n_slots * sizeof *v->slots); }
    group_budgets(v, k);
    CKVC_GROW(v->set, v->cap_set, k->n_tokens);
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        const ckvc_side side = (ckvc_side)i;
        v->distinct[side] = 0;
        if (!how->sides[side]) { continue; }
        draw d = {.v = v,
                  .k = k,
                  .how = how,
                  .side = side,
                  .n_states = prompt_sets_states(k, side),
                  .n_grid = (uint32_t)k->sides[side].actions.n};
        takes[how->kind](&d, id);
    }
}

typedef struct greedy_side {
    struct side side;
    double *sum; /* [states][A] sums of advantages; NULL: the side is not logged */
    uint32_t *n;
    /* [L][states of a prompt per layer][nB][A] whether the prompt in hand has tried the action. */
    uint8_t *tried;
    size_t n_tried; /* bytes of `tried` */
} greedy_side;

struct epsilon_greedy {
    greedy_side sides[CKVC_SIDE_COUNT];
    double share;
    uint32_t bin_entropy, bin_ppl;
};

epsilon_greedy *epsilon_greedy_create(const ckvc_table *t, const bool sides[CKVC_SIDE_COUNT]) {
    epsilon_greedy *g = ckvc_calloc(1, sizeof *g);
    g->share = EPSILON_FIRST;
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        greedy_side *s = &g->sides[i];
        s->side = side_of_table(t, (ckvc_side)i);
        if (!sides[i]) { continue; }
        const size_t entries = s->side.n_states * s->side.actions.n;
        s->n_tried = entries / s->side.X * side_of_prompt(&s->side);
        s->sum = ckvc_calloc(entries, sizeof *s->sum);
        s->n = ckvc_calloc(entries, sizeof *s->n);
        s->tried = ckvc_calloc(s->n_tried, 1);
    }
    return g;
}

void epsilon_greedy_free(epsilon_greedy *g) {
    for (int i = 0; g && i < CKVC_SIDE_COUNT; i++) {
        CKVC_FREE(g->sides[i].sum, g->sides[i].n, g->sides[i].tried);
    }
    free(g);
}

double epsilon_greedy_share(size_t i, size_t n) {
    return n > 1 ? EPSILON_FIRST + (EPSILON_LAST - EPSILON_FIRST) * ((double)i / (double)(n - 1))
                 : EPSILON_FIRST;
}

void epsilon_greedy_begin(epsilon_greedy *g, double share, uint32_t bin_entropy, uint32_t bin_ppl) {
    g->share = share;
    g->bin_entropy = bin_entropy;
    g->bin_ppl = bin_ppl;
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        if (g->sides[i].tried) { memset(g->sides[i].tried, 0, g->sides[i].n_tried); }
    }
}

int epsilon_greedy_pick(epsilon_greedy *g, const prompt_state *p, uint32_t block, ckvc_rng *rng) {
    greedy_side *s = &g->sides[p->side];
    const size_t state = side_state(&s->side, p->layer, p->head, g->bin_entropy, g->bin_ppl, block),
                 A = s->side.actions.n;
    const double *sum = s->sum + state * A;
    const uint32_t *n = s->n + state * A;
    uint8_t *tried = s->tried + side_prompt_state(&s->side, p->layer, p->head, block) * A;
    int best = -1;
    uint32_t open = 0;
    for (size_t a = 0; a < A; a++) {
        if (tried[a]) { continue; }
        open++;
        if (n[a] > 0 && (best < 0 || sum[a] / n[a] > sum[best] / n[best])) { best = (int)a; }
    }
    if (open == 0) { return -1; }
    if (best < 0) {
        const int own = side_action(&s->side, s->side.entries[state]);
        best = own >= 0 && !tried[own] ? own : -1;
    }
    if (ckvc_rng_double(rng) < g->share || best < 0) {
        uint64_t skip = ckvc_rng_below(rng, open);
        best = -1;
        for (int a = 0; best < 0; a++) {
            if (!tried[a] && skip-- == 0) { best = a; }
        }
    }
    tried[best] = 1;
    return best;
}

void epsilon_greedy_learn(epsilon_greedy *g, const shard *rows) {
    for (size_t i = 0; i < rows->n_records; i++) {
        const struct shard_record *r = &rows->records[i];
        greedy_side *s = &g->sides[r->side];
        const size_t at =
            shard_state(&s->side, r, &rows->prompts[r->prompt]) * s->side.actions.n + r->action;
        s->sum[at] += r->reward - r->baseline;
        s->n[at]++;
    }
}
