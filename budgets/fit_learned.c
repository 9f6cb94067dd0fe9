/* See fit_learned.h. */
#include "budgets/fit_learned.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "budgets/softmax_regression.h"
#include "lib/base/memory.h"
#include "lib/base/order.h"
#include "lib/base/hash.h"

#define RIDGE 1e-3 /* on standardised features, per unit of target */

static size_t heads_of(const shard_header *h) { return (size_t)h->n_layers * h->n_kv_heads; }

ckvc_status fit_learned_add(fit_learned *l, const shard *s, size_t p, uint64_t hash,
                            size_t memory_max, const char *where, ckvc_err *err) {
    const bool heldout = strcmp(s->prompts[p].split, "heldout") == 0;
    const size_t H = heads_of(&s->h), F = s->h.setting.n_features, P = s->h.setting.positions,
                 n_double = H * (3 + F), n_float = H * P * F,
                 bytes = n_double * sizeof(double) + n_float * sizeof(float);
    CKVC_FAIL_IF(s->h.setting.features != CKVC_FEATURES_1, err, CKVC_E_DATA,
                 "%s: features of version %u, want those of version %u", where,
                 s->h.setting.features, CKVC_FEATURES_1);
    CKVC_FAIL_IF(l->n_prompts + 1 > memory_max / bytes, err, CKVC_E_MEMORY,
                 "%s: features of %zu prompts, %zu bytes each, are over --memory", where,
                 l->n_prompts + 1, bytes);
    const float *f = s->features + p * n_float; /* of the first head's first position, 0, d/1024 */
    CKVC_FAIL_IF(f[CKVC_FEATURES_OWN + 8] > CKVC_FEATURES_MOST_LEFT / 1024.0f, err, CKVC_E_DATA,
                 "%s: features of an older ckvc, of distances beyond %d: log its prompts again",
                 where, CKVC_FEATURES_MOST_LEFT);
    const uint32_t T = s->prompts[p].n_tokens, top = (uint32_t)P / 2;
    struct fit_learned_prompt to = {.hash = hash,
                                    .heldout = heldout,
                                    .n_positions = T < P ? T : (uint32_t)P,
                                    .drawn = T > P ? (double)(T - top) / (double)(P - top) : 1.0,
                                    .mass = ckvc_alloc(n_double, sizeof(double)),
                                    .features = ckvc_copy(f, n_float, sizeof(float))};
    memcpy(to.mass, s->mass + p * H, H * sizeof(double));
    memcpy(to.mass + H, s->target + p * H, H * sizeof(double));
    memcpy(to.mass + 2 * H, s->target_features + p * H * F, H * F * sizeof(double));
    for (size_t i = 0; i < H; i++) {
        to.mass[H * (2 + F) + i] = s->expected_loss ? s->expected_loss[p * H + i] : 0;
    }
    CKVC_GROW(l->prompts, l->capacity, l->n_prompts + 1);
    l->prompts[l->n_prompts++] = to;
    l->n_fitted += !heldout;
    return CKVC_OK;
}

/* Those that are fitted first, each part in an order that is not the shards'. */
static int by_hash(const void *a, const void *b) {
    const struct fit_learned_prompt *x = a, *y = b;
    return x->heldout != y->heldout ? x->heldout - y->heldout : ckvc_order_u64(&x->hash, &y->hash);
}

/* Drops of the sorted prompts the held-out that another run has among those that are fitted. */
static void drop_fitted(fit_learned *l) {
    size_t n = l->n_fitted;
    for (size_t k = n; k < l->n_prompts; ++k) {
        struct fit_learned_prompt *p = &l->prompts[k];
        if (bsearch(p, l->prompts, l->n_fitted, sizeof *p, ckvc_order_u64)) {
            CKVC_FREE(p->mass, p->features);
        } else {
            l->prompts[n++] = *p;
        }
    }
    l->n_prompts = n;
}

/* What a logged position stands for [n_prompts][P], the same for every head. */
static double *weights_of(const fit_learned *l) {
    const size_t P = l->first.setting.positions;
    double *weights = ckvc_alloc(l->n_prompts * P, sizeof *weights);
    for (size_t k = 0; k < l->n_prompts; ++k) {
        for (size_t i = 0; i < P; ++i) {
            weights[k * P + i] = i < P / 2 ? 1.0 : l->prompts[k].drawn;
        }
    }
    return weights;
}

/* A head's part of all prompts, features from column `first` on. */
static void head_prompts(const fit_learned *l, size_t head, uint32_t first, const double *weights,
                         softmax_prompt *out) {
    const size_t H = heads_of(&l->first), F = l->first.setting.n_features,
                 P = l->first.setting.positions;
    for (size_t k = 0; k < l->n_prompts; ++k) {
        const struct fit_learned_prompt *p = &l->prompts[k];
        out[k] = (softmax_prompt){.n = p->n_positions,
                                  .f = p->features + head * P * F + first,
                                  .stride = F,
                                  .weight = weights + k * P,
                                  .yf = p->mass + 2 * H + head * F + first,
                                  .y = p->mass[H + head]};
    }
}

/* Adds a head's loss on prompts [n], by its targets. */
static void add_loss(const softmax_prompt *prompts, size_t n, uint32_t F, const double *theta,
                     double *loss) {
    double y = 0.0;
    for (size_t k = 0; k < n; ++k) { y += prompts[k].y; }
    *loss += y * softmax_loss(prompts, n, F, theta);
}

/* What a head's scores add up to, of heads that have sets of their own; those of a layer that share
 * one count alike, or it would be that of the head that asks for most. */
static double mass_of(const fit_learned *l, size_t head, ckvc_mode mode) {
    double mass = 0.0;
    if (mode != CKVC_MODE_HEADS) { return 1.0; }
    for (size_t k = 0; k < l->n_fitted; ++k) {
        mass += l->prompts[k].mass[head] / (double)l->n_fitted;
    }
    return mass;
}

void fit_learned_table(fit_learned *l, const fit_options *o, ckvc_table *t, fitted_learned *out) {
    const uint32_t P = l->first.setting.positions, first = ckvc_features_first(o->features),
                   F = l->first.setting.n_features - first;
    const size_t H = heads_of(&l->first);
    qsort(l->prompts, l->n_prompts, sizeof *l->prompts, by_hash);
    drop_fitted(l);
    const size_t n_held = l->n_prompts - l->n_fitted;
    *out = (fitted_learned){.fitted = true,
                            .gradient = SOFTMAX_CERTIFICATE,
                            .n_prompts = l->n_fitted,
                            .n_heldout = n_held,
                            .positions = P};
    if (ckvc_table_add_learned(t, F)) { ckvc_out_of_memory(H * F, sizeof(float)); }
    CKVC_AUTO_FREE softmax_prompt *prompts = ckvc_alloc(l->n_prompts, sizeof *prompts);
    CKVC_AUTO_FREE double *weights = weights_of(l);
    CKVC_AUTO_FREE double *theta = ckvc_alloc(F, sizeof *theta);
    double y = 0.0, y_held = 0.0;
    static const double one = 1.0;
    for (size_t head = 0; head < H; ++head) {
        head_prompts(l, head, first, weights, prompts);
        const softmax_fit fit = softmax_regression(prompts, l->n_fitted, F, RIDGE, theta);
        out->gradient = fmax(out->gradient, fit.gradient);
        t->mass[head] = mass_of(l, head, t->score[0].mode);
        for (size_t k = 0; k < l->n_fitted; ++k) { y += prompts[k].y; }
        for (uint32_t k = 0; k < F; ++k) {
            t->theta[head * F + k] = (float)theta[k];
            theta[k] = (double)t->theta[head * F + k];
        }
        for (size_t k = l->n_fitted; k < l->n_prompts; ++k) {
            const double expected =
                l->prompts[k].mass[H * (2 + l->first.setting.n_features) + head];
            y_held += prompts[k].y;
            out->heldout_expected += expected > 0.0 || prompts[k].y == 0.0 ? expected : NAN;
        }
        add_loss(prompts, l->n_fitted, F, theta, &out->loss);
        add_loss(prompts + l->n_fitted, n_held, F, theta, &out->heldout);
        head_prompts(l, head, CKVC_FEATURES_WINDOW, weights, prompts);
        add_loss(prompts + l->n_fitted, n_held, 1, &one, &out->heldout_window);
    }
    out->loss /= y;
    out->heldout = y_held > 0.0 ? out->heldout / y_held : NAN;
    out->heldout_window = y_held > 0.0 ? out->heldout_window / y_held : NAN;
    out->heldout_expected = y_held > 0.0 ? out->heldout_expected / y_held : NAN;
    for (uint32_t b = 0; b < t->n_budgets; ++b) {
        const uint32_t mode = t->score[b].mode;
        t->score[b].features = o->features;
        if (o->score == CKVC_SCORE_LEARNED || t->score[b].kind == CKVC_SCORE_LEARNED) {
            t->score[b] = ckvc_default_score(CKVC_SCORE_LEARNED, o->features);
        }
        t->score[b].mode = mode;
    }
}

void fit_learned_fini(fit_learned *l) {
    for (size_t k = 0; k < l->n_prompts; ++k) {
        CKVC_FREE(l->prompts[k].mass, l->prompts[k].features);
    }
    CKVC_FREE(l->prompts, l->where);
    shard_header_fini(&l->first);
    *l = (fit_learned){0};
}

#define REPLICATES 400u /* of the bootstrap, where --bootstrap names no number */
#define SPLITS     50u

static size_t head_counts(const shard_header *h) {
    return (size_t)h->n_budgets * h->n_layers * h->n_kv_heads;
}
static size_t layer_counts(const shard_header *h) { return (size_t)h->n_budgets * h->n_layers; }

ckvc_status fit_demand_add(fit_demand *d, const shard *s, size_t p, uint64_t hash,
                           size_t memory_max, const char *where, ckvc_err *err) {
    const shard_header *h = &s->h;
    const size_t heads = head_counts(h), layers = layer_counts(h), each = heads + layers,
                 n_mixes = shard_has_features(h) ? SHARD_N_MIXES : 0;
    /* beside the counts, one budget's shares of all prompts as doubles */
    const size_t bytes =
        each * (1 + n_mixes) * sizeof(uint32_t) + heads / h->n_budgets * sizeof(double);
    CKVC_FAIL_IF(d->n_prompts + 1 > memory_max / bytes, err, CKVC_E_MEMORY,
                 "%s: demand of %zu prompts, %zu bytes each, is over --memory", where,
                 d->n_prompts + 1, bytes);
    CKVC_GROW(d->prompts, d->capacity, d->n_prompts + 1);
    uint32_t *counts = ckvc_alloc(each * (1 + n_mixes), sizeof *counts), *to = counts;
    memcpy(to, s->demand + p * heads, heads * sizeof *to);
    memcpy(to + heads, s->layer_demand + p * layers, layers * sizeof *to);
    for (size_t i = 0; i < n_mixes; ++i) {
        const size_t row = p * SHARD_N_MIXES + i;
        to += each;
        memcpy(to, s->mixed_demand + row * heads, heads * sizeof *to);
        memcpy(to + heads, s->mixed_layer_demand + row * layers, layers * sizeof *to);
    }
    d->plain |= n_mixes == 0;
    d->prompts[d->n_prompts++] =
        (struct fit_demand_prompt){.hash = hash,
                                   .key = ckvc_rng_key(shard_prompt_cluster(&s->prompts[p])),
                                   .n_tokens = s->prompts[p].n_tokens,
                                   .counts = counts};
    return CKVC_OK;
}

/* ---- one budget ---- */

static uint32_t replicates_of(const fit_options *o) {
    return o->replicates && o->resample == RESAMPLE_BOOTSTRAP ? o->replicates : REPLICATES;
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
static void put_entry(const shares_sample *s, const fit_options *o, uint32_t b, uint32_t nB,
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

/* Where a prompt's counts of weight w begin. */
static ckvc_status find_mix(const fit_demand *d, double w, size_t *at, ckvc_err *err) {
    size_t i = 0;
    while (w > 0 && i < SHARD_N_MIXES && shard_mixes[i] != w) { i++; }
    CKVC_FAIL_IF(w > 0 && (i == SHARD_N_MIXES || d->plain), err, CKVC_E_DATA,
                 "%s: has no demand of --mix %g: there are 0, 0.25, 0.5, 0.75 and 1, of runs by an "
                 "older ckvc 0 alone; calibrate --side demand again, or take one that is there",
                 d->where, w);
    *at = w > 0 ? (1 + i) * (head_counts(&d->first) + layer_counts(&d->first)) : 0;
    return CKVC_OK;
}

ckvc_status fit_demand_shares(fit_demand *d, const fit_options *o, const double *mix, table_file *t,
                              fitted_demand *out, ckvc_err *err) {
    const shard_header *h = &d->first;
    const uint32_t nB = h->n_budgets;
    const size_t L = h->n_layers, G = h->n_kv_heads;
    *out = (fitted_demand){.fitted = true,
                           .n_prompts = d->n_prompts,
                           .n_replicates = replicates_of(o),
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
        put_entry(&s, o, b, nB, t->table->share, t->share_interval, &block->heads);
        s.X = 1;
        gather(d, b, at + head_counts(h) + b * L, L, shares, keys);
        put_entry(&s, o, b, nB, t->table->layer_share, NULL, &block->layers);
    }
    return CKVC_OK;
}

ckvc_status fit_demand_table(fit_demand *d, const fit_options *o, const double *mix, table_file *t,
                             fitted_demand *out, ckvc_err *err) {
    const shard_header *h = &d->first;
    const size_t entries = head_counts(h);
    ckvc_table *table = t->table;
    if (ckvc_table_add_shares(table, 1)) { ckvc_out_of_memory(entries, sizeof(double)); }
    t->share_interval = ckvc_alloc(2 * entries, sizeof(double));
    for (uint32_t b = 0; b < h->n_budgets; ++b) {
        table->c_min[b] = (ckvc_c_min){fmax(h->setting.floor, o->c_min), h->setting.recent};
        const bool paper = o->score == CKVC_SCORE_PAPER; /* a learned one: fit_learned.h */
        table->score[b] = ckvc_default_score(paper ? CKVC_SCORE_PAPER : CKVC_SCORE_WINDOW, 0);
        table->score[b].mode = o->mode;
    }
    return fit_demand_shares(d, o, mix, t, out, err);
}

void fit_demand_fini(fit_demand *d) {
    for (size_t p = 0; p < d->n_prompts; ++p) { free(d->prompts[p].counts); }
    free(d->prompts);
    free(d->where);
    shard_header_fini(&d->first);
    *d = (fit_demand){0};
}
