/* See shard_sums.h. */
#include "report/load/shard_sums.h"

#include <math.h>
#include <stdlib.h>

#include "lib/base/memory.h"

double *shard_baseline_losses(const shard *s) {
    const size_t n = s->n_prompts * s->h.n_budgets;
    double *losses = ckvc_alloc(n, sizeof *losses);
    for (size_t i = 0; i < n; i++) { losses[i] = NAN; }
    for (size_t i = 0; i < s->n_baselines; i++) {
        const struct shard_baseline *b = &s->baselines[i];
        losses[(size_t)b->prompt * s->h.n_budgets + b->budget] = b->loss;
    }
    return losses;
}

static int by_place(const void *pa, const void *pb) {
    const rollout *a = pa, *b = pb;
    if (a->prompt != b->prompt) { return a->prompt < b->prompt ? -1 : 1; }
    if (a->side != b->side) { return a->side < b->side ? -1 : 1; }
    if (a->layer != b->layer) { return a->layer < b->layer ? -1 : 1; }
    if (a->budget != b->budget) { return a->budget < b->budget ? -1 : 1; }
    return (a->set > b->set) - (a->set < b->set);
}

size_t rollouts_distinct(rollout *list, size_t n) {
    size_t kept = 0;
    qsort(list, n, sizeof *list, by_place);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || by_place(&list[kept - 1], &list[i]) != 0) { list[kept++] = list[i]; }
    }
    return kept;
}
