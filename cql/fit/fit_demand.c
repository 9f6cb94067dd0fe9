/* See fit_demand.h. */
#include "cql/fit/fit_demand.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/base/order.h"
#include "lib/base/rng.h"

#define REPLICATES 400u /* of the bootstrap, where --bootstrap names no number */
#define SPLITS     50u

static size_t head_counts(const shard_header *h) {
    return (size_t)h->n_budgets * h->n_layers * h->n_kv_heads;
}
static size_t layer_counts(const shard_header *h) { return (size_t)h->n_budgets * h->n_layers; }

ckvc_status fit_demand_add(fit_demand *d, const shard *s, size_t p, uint64_t hash,
                           size_t memory_max, const char *where, ckvc_err *err) {
    const shard_header *h = &s->h;
    const size_t heads = head_counts(h), layers = layer_counts(h);
    /* beside the counts, one budget's shares of all prompts as doubles */
    const size_t bytes =
        (heads + layers) * sizeof(uint32_t) + heads / h->n_budgets * sizeof(double);
    CKVC_FAIL_IF(d->n_prompts + 1 > memory_max / bytes, err, CKVC_E_MEMORY,
                 "%s: demand of %zu prompts, %zu bytes each, is over --memory", where,
                 d->n_prompts + 1, bytes);
    CKVC_GROW(d->prompts, d->capacity, d->n_prompts + 1);
    uint32_t *counts = ckvc_alloc(heads + layers, sizeof *counts);
    memcpy(counts, s->demand + p * heads, heads * sizeof *counts);
    memcpy(counts + heads, s->layer_demand + p * layers, layers * sizeof *counts);
    d->prompts[d->n_prompts++] =
        (struct fit_demand_prompt){.hash = hash,
                                   .key = ckvc_rng_key(shard_prompt_cluster(&s->prompts[p])),
                                   .n_tokens = s->prompts[p].n_tokens,
                                   .counts = counts};
    return CKVC_OK;
}

/* ---- one budget ---- */

static uint32_t replicates_of(const fit_options *o) {
    return o->replicates && o->resample == CQL_RESAMPLE_BOOTSTRAP ? o->replicates : REPLICATES;
}

/* Shares of budget b, of prompts in which it leaves a choice: longer than it, and with more than
 * floors to give. Counts from `at` on, n of them, over B.
 * shares [n_prompts][n] and keys [n_prompts] are filled. */
static size_t gather(const fit_demand *d, uint32_t b, size_t at, size_t n, double *shares,
                     uint64_t *keys) {
    const setting *made = &d->first.setting;
    size_t used = 0;
    for (size_t p = 0; p < d->n_prompts; ++p) {
        const struct fit_demand_prompt *from = &d->prompts[p];
        const uint32_t T = from->n_tokens, B = ckvc_budget_tokens(d->first.budgets[b], T);
        if (B >= T || B <= ckvc_head_floor(made->floor, made->recent, B, T)) { continue; }
        for (size_t i = 0; i < n; ++i) { shares[used * n + i] = (double)from->counts[at + i] / B; }
        keys[used++] = from->key;
    }
    return used;
}

/* value [n][nB] and interval [n][nB][2] (NULL: not wanted) of one budget's entries. */
static void put(const shares_sample *s, const fit_options *o, uint32_t b, uint32_t nB,
                double *value, double *interval, demand_units *out) {
    const size_t n = s->L * s->X;
    const uint32_t R = replicates_of(o);
    CKVC_AUTO_FREE double *mean = ckvc_alloc(3 * n, sizeof *mean);
    double *ends = mean + n;
    shares_mean(s, mean);
    shares_bootstrap(s, R, o->seed, ends);
    for (size_t i = 0; i < n; ++i) {
        value[i * nB + b] = mean[i];
        if (interval) { memcpy(interval + 2 * (i * nB + b), ends + 2 * i, 2 * sizeof *ends); }
    }
    *out = (demand_units){
        .n = n, .undecided = shares_undecided(ends, n), .halves = shares_split(s, SPLITS, o->seed)};
}

void fit_demand_table(fit_demand *d, const fit_options *o, table_file *t, fitted_demand *out) {
    const shard_header *h = &d->first;
    const uint32_t nB = h->n_budgets;
    const size_t L = h->n_layers, G = h->n_kv_heads;
    ckvc_table *table = t->table;
    if (ckvc_table_add_shares(table, 1)) { ckvc_out_of_memory(L * G * nB, sizeof(double)); }
    t->share_interval = ckvc_alloc(2 * L * G * nB, sizeof(double));
    *out = (fitted_demand){.fitted = true,
                           .n_prompts = d->n_prompts,
                           .n_replicates = replicates_of(o),
                           .n_splits = SPLITS,
                           .n_blocks = nB,
                           .blocks = ckvc_calloc(nB, sizeof *out->blocks)};
    CKVC_AUTO_FREE double *shares = ckvc_alloc(d->n_prompts * L * G, sizeof *shares);
    CKVC_AUTO_FREE uint64_t *keys = ckvc_alloc(d->n_prompts, sizeof *keys);
    for (size_t p = 0; p < d->n_prompts; ++p) { keys[p] = d->prompts[p].key; }
    out->n_documents = cql_clusters(keys, d->n_prompts, NULL);
    qsort(d->prompts, d->n_prompts, sizeof *d->prompts, ckvc_order_u64);
    for (uint32_t b = 0; b < nB; ++b) {
        demand_block *block = &out->blocks[b];
        shares_sample s = {.L = L, .X = G, .shares = shares, .keys = keys};
        block->n_prompts = s.n_prompts = gather(d, b, b * L * G, L * G, shares, keys);
        put(&s, o, b, nB, table->share, t->share_interval, &block->heads);
        s.X = 1;
        gather(d, b, head_counts(h) + b * L, L, shares, keys);
        put(&s, o, b, nB, table->layer_share, NULL, &block->layers);
        table->c_min[b] = (ckvc_c_min){fmax(h->setting.floor, o->c_min), h->setting.recent};
        const bool paper = o->score == CKVC_SCORE_PAPER; /* a learned one: fit_learned.h */
        table->score[b] = ckvc_default_score(paper ? CKVC_SCORE_PAPER : CKVC_SCORE_WINDOW, 0);
        table->score[b].mode = o->mode;
    }
}

void fit_demand_fini(fit_demand *d) {
    for (size_t p = 0; p < d->n_prompts; ++p) { free(d->prompts[p].counts); }
    free(d->prompts);
    free(d->where);
    shard_header_fini(&d->first);
    *d = (fit_demand){0};
}
