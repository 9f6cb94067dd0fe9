/* See demand_shares.h. */
#include "budgets/demand_shares.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "budgets/length_classes.h"
#include "lib/base/memory.h"
#include "lib/base/order.h"
#include "lib/base/hash.h"

#define REPLICATES 400u /* replicates of the bootstrap where --bootstrap names no number */
#define SPLITS     50u

static size_t head_counts(const shard_header *h) {
    return (size_t)h->n_budgets * h->n_layers * h->n_kv_heads;
}
static size_t layer_counts(const shard_header *h) { return (size_t)h->n_budgets * h->n_layers; }
/* Returns how many counts a prompt has for one weight w. */
static size_t all_counts(const shard_header *h) { return head_counts(h) + 2 * layer_counts(h); }

/* Puts one prompt's counts for one weight behind each other. */
static uint32_t *put_counts(uint32_t *to, const shard_header *h, const uint32_t *heads,
                            const uint32_t *layers, const uint32_t *lengths) {
    const size_t n = layer_counts(h);
    memcpy(to, heads, head_counts(h) * sizeof *to);
    to += head_counts(h);
    memcpy(to, layers, n * sizeof *to);
    memcpy(to + n, lengths, n * sizeof *to);
    return to + 2 * n;
}

ckvc_status demand_records_add(demand_records *d, const shard *s, size_t p, uint64_t hash,
                               size_t memory_max, const char *where, ckvc_err *err) {
    const shard_header *h = &s->h;
    const size_t heads = head_counts(h), layers = layer_counts(h), each = all_counts(h),
                 n_mixes = shard_has_features(h) ? SHARD_N_MIXES : 0;
    /* Beside the counts, the shares of one budget are held for all prompts as doubles. */
    const size_t bytes =
        each * (1 + n_mixes) * sizeof(uint32_t) + heads / h->n_budgets * sizeof(double);
    CKVC_FAIL_IF(d->n_prompts + 1 > memory_max / bytes, err, CKVC_E_MEMORY,
                 "%s: demand of %zu prompts, %zu bytes each, is over --memory", where,
                 d->n_prompts + 1, bytes);
    CKVC_GROW(d->prompts, d->capacity, d->n_prompts + 1);
    uint32_t *counts = ckvc_alloc(each * (1 + n_mixes), sizeof *counts), *to = counts;
    to = put_counts(to, h, s->demand + p * heads, s->layer_demand + p * layers,
                    s->length_demand + p * layers);
    for (size_t i = 0; i < n_mixes; ++i) {
        const size_t row = p * SHARD_N_MIXES + i;
        to = put_counts(to, h, s->mixed_demand + row * heads, s->mixed_layer_demand + row * layers,
                        s->mixed_length_demand + row * layers);
    }
    d->plain |= n_mixes == 0;
    d->without_slots |= s->length_demand[p * layers] == 0;
    d->prompts[d->n_prompts++] =
        (struct demand_prompt){.hash = hash,
                               .key = ckvc_rng_key(shard_prompt_cluster(&s->prompts[p])),
                               .n_tokens = s->prompts[p].n_tokens,
                               .counts = counts};
    return CKVC_OK;
}

/* ---- one budget ---- */

static uint32_t replicates_of(const resampling *r) {
    return r->n_replicates && r->kind == RESAMPLE_BOOTSTRAP ? r->n_replicates : REPLICATES;
}

/* Collects the shares of budget b from the prompts in which it leaves a choice: those that are
 * longer than the budget, which must also give more than the floors take. A share is one of the n
 * counts from `at` on, divided by B. Fills shares [n_prompts][n] and keys [n_prompts], and returns
 * how many prompts they are of. */
static size_t gather(const demand_records *d, uint32_t b, size_t at, size_t n, double *shares,
                     uint64_t *keys) {
    const setting *made = &d->first.setting;
    size_t used = 0;
    for (size_t p = 0; p < d->n_prompts; ++p) {
        const struct demand_prompt *from = &d->prompts[p];
        const uint32_t T = from->n_tokens, B = ckvc_budget_tokens(d->first.budgets[b], T);
        if (B >= T || B <= ckvc_head_floor(made->floor, made->recent, B, T)) { continue; }
        for (size_t i = 0; i < n; ++i) { shares[used * n + i] = (double)from->counts[at + i] / B; }
        keys[used++] = from->key;
    }
    return used;
}

/* Writes the means and intervals of one budget's entries to value [n][nB] and interval [n][nB][2];
 * the latter may be NULL where it is not wanted. */
static void put_entry(const shares_sample *s, const resampling *r, uint32_t b, uint32_t nB,
                      double *value, double *interval, demand_units *out) {
    const size_t n = s->L * s->X;
    const uint32_t R = replicates_of(r);
    CKVC_AUTO_FREE double *mean = ckvc_alloc(3 * n, sizeof *mean);
    double *ends = mean + n;
    shares_mean(s, mean);
    shares_bootstrap(s, R, r->seed, ends);
    for (size_t i = 0; i < n; ++i) {
        value[i * nB + b] = mean[i];
        if (interval) { memcpy(interval + 2 * (i * nB + b), ends + 2 * i, 2 * sizeof *ends); }
    }
    *out = (demand_units){
        .n = n, .undecided = shares_undecided(ends, n), .halves = shares_split(s, SPLITS, r->seed)};
}

/* Finds the index at which a prompt's counts of weight w begin. */
static ckvc_status find_mix(const demand_records *d, double w, size_t *at, ckvc_err *err) {
    size_t i = 0;
    while (w > 0 && i < SHARD_N_MIXES && shard_mixes[i] != w) { i++; }
    CKVC_FAIL_IF(w > 0 && (i == SHARD_N_MIXES || d->plain), err, CKVC_E_DATA,
                 "%s: --mix %g was not logged. This run has %s; choose one, or calibrate again",
                 d->where, w,
                 d->plain ? "0 alone, as an older ckvc logged it" : "0, 0.25, 0.5, 0.75 and 1");
    *at = w > 0 ? (1 + i) * all_counts(&d->first) : 0;
    return CKVC_OK;
}

ckvc_status demand_records_shares(demand_records *d, const budgets_options *o, const resampling *r,
                                  const double *mix, table_file *t, fitted_demand *out,
                                  ckvc_err *err) {
    const shard_header *h = &d->first;
    const uint32_t nB = h->n_budgets;
    const size_t L = h->n_layers, G = h->n_kv_heads;
    *out = (fitted_demand){.fitted = true,
                           .n_prompts = d->n_prompts,
                           .n_replicates = replicates_of(r),
                           .n_splits = SPLITS,
                           .n_blocks = nB,
                           .blocks = ckvc_calloc(nB, sizeof *out->blocks)};
    CKVC_AUTO_FREE double *shares = ckvc_alloc(d->n_prompts * L * G, sizeof *shares);
    CKVC_AUTO_FREE uint64_t *keys = ckvc_alloc(d->n_prompts, sizeof *keys);
    for (size_t p = 0; p < d->n_prompts; ++p) { keys[p] = d->prompts[p].key; }
    out->n_documents = resample_clusters(keys, d->n_prompts, NULL);
    qsort(d->prompts, d->n_prompts, sizeof *d->prompts, ckvc_order_u64);
    for (uint32_t b = 0; b < nB; ++b) {
        demand_block *block = &out->blocks[b];
        shares_sample s = {.L = L, .X = G, .shares = shares, .keys = keys};
        size_t at = 0;
        CKVC_TRY(find_mix(d, block->mix = mix[b], &at, err));
        block->n_prompts = s.n_prompts = gather(d, b, at + b * L * G, L * G, shares, keys);
        put_entry(&s, r, b, nB, t->table->share, t->share_interval, &block->heads);
        s.X = 1;
        gather(d, b, at + head_counts(h) + b * L, L, shares, keys);
        put_entry(&s, r, b, nB, t->table->layer_share, NULL, &block->layers);
        double *lengths = t->table->length_share;
        if (!lengths) { continue; }
        gather(d, b, at + head_counts(h) + layer_counts(h) + b * L, L, shares, keys);
        put_entry(&s, r, b, nB, lengths, NULL, &block->lengths);
        if (o->classes) { length_classes(lengths + b, L, nB, o->classes); }
    }
    return CKVC_OK;
}

ckvc_status demand_records_table(demand_records *d, const budgets_options *o, const resampling *r,
                                 const double *mix, table_file *t, fitted_demand *out,
                                 ckvc_err *err) {
    const shard_header *h = &d->first;
    const size_t entries = head_counts(h);
    ckvc_table *table = t->table;
    CKVC_FAIL_IF(
        o->mode == CKVC_MODE_LENGTHS && d->without_slots, err, CKVC_E_DATA,
        "%s: was logged by an older ckvc, which did not count what --mode lengths divides; "
        "calibrate again, or choose another mode",
        d->where);
    if (ckvc_table_add_shares(table, 1) ||
        (o->mode == CKVC_MODE_LENGTHS && ckvc_table_add_lengths(table))) {
        ckvc_out_of_memory(entries, sizeof(double));
    }
    t->share_interval = ckvc_alloc(2 * entries, sizeof(double));
    for (uint32_t b = 0; b < h->n_budgets; ++b) {
        table->c_min[b] = (ckvc_c_min){fmax(h->setting.floor, o->c_min), h->setting.recent};
        /* learned_score.c sets a learned ranking */
        const bool paper = o->score == CKVC_SCORE_PAPER;
        table->score[b] = ckvc_default_score(paper ? CKVC_SCORE_PAPER : CKVC_SCORE_WINDOW, 0);
        table->score[b].mode = o->mode;
    }
    return demand_records_shares(d, o, r, mix, t, out, err);
}

void demand_records_fini(demand_records *d) {
    for (size_t p = 0; p < d->n_prompts; ++p) { free(d->prompts[p].counts); }
    free(d->prompts);
    free(d->where);
    shard_header_fini(&d->first);
    *d = (demand_records){0};
}
