/* See prompt_records.h. */
#include "cql/fit/prompt_records.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"

#define MAX_PAIRS ((size_t)1 << 26) /* prompts x budgets of one shard: 512 MiB of losses */

static ckvc_status read_losses(prompt_records *x, const char *where, ckvc_err *err) {
    const shard *s = x->s;
    const size_t pairs = s->n_prompts * s->h.n_budgets;
    x->losses = ckvc_alloc(pairs, sizeof *x->losses);
    for (size_t i = 0; i < pairs; ++i) { x->losses[i] = NAN; }
    for (size_t i = 0; i < s->n_baselines; ++i) {
        const struct shard_baseline *b = &s->baselines[i];
        double *loss = &x->losses[(size_t)b->prompt * s->h.n_budgets + b->budget];
        CKVC_FAIL_IF(!isnan(*loss), err, CKVC_E_DATA,
                     "%s: /baseline row %zu: prompt %u, budget %u is there a second time", where, i,
                     b->prompt, b->budget);
        *loss = b->loss;
    }
    return CKVC_OK;
}

ckvc_status prompt_records_open(prompt_records *x, const shard *s, const char *where,
                                ckvc_err *err) {
    *x = (prompt_records){.s = s};
    CKVC_FAIL_IF(s->n_records > UINT32_MAX, err, CKVC_E_DATA,
                 "%s: %zu records in one shard, at most 4294967295 are read", where, s->n_records);
    CKVC_FAIL_IF(s->n_prompts > MAX_PAIRS / s->h.n_budgets, err, CKVC_E_DATA,
                 "%s: %zu prompts with %u budgets in one shard, their product may be at most %zu",
                 where, s->n_prompts, s->h.n_budgets, MAX_PAIRS);
    for (int i = 0; i < CKVC_SIDE_COUNT; ++i) { x->sides[i] = shard_side_of(&s->h, (ckvc_side)i); }
    /* a stable counting sort; each entry then moves on to its successor's start */
    x->first = ckvc_calloc(s->n_prompts + 1, sizeof *x->first);
    x->order = ckvc_alloc(s->n_records, sizeof *x->order);
    for (size_t i = 0; i < s->n_records; ++i) { x->first[s->records[i].prompt + 1]++; }
    for (size_t i = 0; i < s->n_prompts; ++i) { x->first[i + 1] += x->first[i]; }
    for (size_t i = 0; i < s->n_records; ++i) {
        x->order[x->first[s->records[i].prompt]++] = (uint32_t)i;
    }
    memmove(x->first + 1, x->first, s->n_prompts * sizeof *x->first);
    x->first[0] = 0;
    return read_losses(x, where, err);
}

void prompt_records_fini(prompt_records *x) {
    free(x->first);
    free(x->order);
    free(x->losses);
    *x = (prompt_records){0};
}
