/* Online action choice: see epsilon_greedy.h. */
#include "calib/actions/epsilon_greedy.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"

typedef struct greedy_side {
    uint32_t n_actions;
    double *sum; /* [states][A]; states as in a fit: [l][g][b], [l][e][p][b]; NULL: side not asked
                    for */
    uint32_t *n;
    uint8_t *tried; /* [states of one prompt][A]: [l][g][b], [l][b] */
    size_t n_tried; /* its size */
} greedy_side;

struct epsilon_greedy {
    const ckvc_table *table;
    greedy_side sides[CKVC_SIDE_COUNT];
    double share;
    uint32_t bin_entropy, bin_ppl;
};

epsilon_greedy *epsilon_greedy_create(const ckvc_table *t, const bool sides[CKVC_SIDE_COUNT]) {
    epsilon_greedy *g = ckvc_calloc(1, sizeof *g);
    g->table = t;
    g->share = EPSILON_FIRST;
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        greedy_side *s = &g->sides[i];
        const bool head = i == CKVC_SIDE_HEAD;
        const size_t one = (size_t)t->n_layers * t->n_budgets * (head ? t->n_heads : 1);
        const size_t states = head ? one : one * t->n_entropy_bins * t->n_ppl_bins;
        s->n_actions = head ? t->n_head_actions : t->n_gate_actions;
        if (!sides[i]) { continue; }
        s->n_tried = one * s->n_actions;
        s->sum = ckvc_calloc(states * s->n_actions, sizeof *s->sum);
        s->n = ckvc_calloc(states * s->n_actions, sizeof *s->n);
        s->tried = ckvc_calloc(s->n_tried, 1);
    }
    return g;
}

void epsilon_greedy_free(epsilon_greedy *g) {
    for (int i = 0; g && i < CKVC_SIDE_COUNT; i++) {
        free(g->sides[i].sum);
        free(g->sides[i].n);
        free(g->sides[i].tried);
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

static size_t state_of(const ckvc_table *t, ckvc_side side, uint32_t layer, uint32_t head,
                       uint32_t budget, uint32_t e, uint32_t p) {
    return side == CKVC_SIDE_HEAD ? ckvc_weight_index(t, layer, head, budget)
                                  : ckvc_tau_index(t, layer, e, p, budget);
}

int epsilon_greedy_pick(epsilon_greedy *g, ckvc_side side, uint32_t layer, uint32_t head,
                        uint32_t budget, ckvc_rng *rng) {
    const ckvc_table *t = g->table;
    greedy_side *s = &g->sides[side];
    const size_t state = state_of(t, side, layer, head, budget, g->bin_entropy, g->bin_ppl),
                 A = s->n_actions;
    const double *sum = s->sum + state * A;
    const uint32_t *n = s->n + state * A;
    uint8_t *tried =
        s->tried + A * (side == CKVC_SIDE_HEAD ? state : (size_t)layer * t->n_budgets + budget);
    int best = -1;
    uint32_t open = 0;
    for (size_t a = 0; a < A; a++) {
        if (tried[a]) { continue; }
        open++;
        if (n[a] > 0 && (best < 0 || sum[a] / n[a] > sum[best] / n[best])) { best = (int)a; }
    }
    if (open == 0) { return -1; }
    if (best < 0) {
        const bool is_head = side == CKVC_SIDE_HEAD;
        int own = ckvc_grid_index(is_head ? t->head_grid : t->gate_grid, (uint32_t)A,
                                  is_head ? t->weight[state] : t->tau[state]);
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
        const struct shard_prompt *p = &rows->prompts[r->prompt];
        greedy_side *s = &g->sides[r->side];
        size_t at = state_of(g->table, (ckvc_side)r->side, r->layer, r->head, r->budget,
                             p->bin_entropy, p->bin_ppl) *
                        s->n_actions +
                    r->action;
        s->sum[at] += r->reward - r->baseline;
        s->n[at]++;
    }
}
