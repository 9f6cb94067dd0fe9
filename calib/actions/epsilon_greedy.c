/* Online action choice: see epsilon_greedy.h. */
#include "calib/actions/epsilon_greedy.h"

#include "formats/shard/shard_side.h"

typedef struct greedy_side {
    struct side side;
    double *sum; /* [states][A]; NULL: side not asked for */
    uint32_t *n;
    uint8_t *tried; /* [L][x of a prompt][nB][A] */
    size_t n_tried; /* its size */
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
