/* Fitted entries of a prompt: see fitted_entries.h. */
#include "judge/policies/fitted_entries.h"

#include <math.h>
#include <string.h>

#include "judge/policies/rounded_keys.h"
#include "lib/base/memory.h"

static void *reserve(entry_fitter *f, size_t n, size_t size) {
    f->bytes += n * size;
    return ckvc_calloc(n, size);
}

void entry_fitter_open(entry_fitter *f, const model_shape *shape, uint32_t max_tokens,
                       const ckvc_table *most) {
    const size_t G = (size_t)shape->n_kv_heads, L = (size_t)shape->n_layers,
                 D = (size_t)shape->head_dim, numbers = G * max_tokens * D;
    *f = (entry_fitter){.shape = shape,
                        .scratch_bytes = ckvc_bank_fit_bytes(most, most->n_bank),
                        .n_whole = ckvc_bank_references(most, most->n_bank) * (D + 1)};
    f->whole = reserve(f, L * G * f->n_whole, sizeof *f->whole);
    f->known = reserve(f, L * G, sizeof *f->known);
    f->keys = reserve(f, numbers, sizeof *f->keys);
    f->values = reserve(f, numbers, sizeof *f->values);
    f->fitted_keys = reserve(f, numbers, sizeof *f->fitted_keys);
    f->fitted_values = reserve(f, numbers, sizeof *f->fitted_values);
    f->scratch = reserve(f, G, f->scratch_bytes);
    f->n_queries = ckvc_bank_references(most, most->n_bank);
    f->queries = reserve(f, G * f->n_queries * D, sizeof *f->queries);
    f->query_positions = reserve(f, G * f->n_queries, sizeof *f->query_positions);
    f->rounding = reserve(f, G * 2 * D * D, sizeof *f->rounding);
}

void entry_fitter_close(entry_fitter *f) {
    CKVC_FREE(f->whole, f->known, f->keys, f->values, f->fitted_keys, f->fitted_values, f->scratch,
              f->queries, f->query_positions, f->rounding);
    *f = (entry_fitter){0};
}

void entry_fitter_forget(entry_fitter *f) { f->bank = NULL; }

/* Forgets what is known of the prompt, unless it was found by the queries that are asked for. */
static void ask_by(entry_fitter *f, const ckvc_table *t, ckvc_bank_use use) {
    const ckvc_table *b = f->bank;
    const bool same =
        b && b->n_bank == t->n_bank && memcmp(&f->use, &use, sizeof use) == 0 &&
        memcmp(b->bank, t->bank, ckvc_bank_index(t, t->n_layers, 0, 0) * sizeof *t->bank) == 0;
    if (!same) { memset(f->known, 0, (size_t)t->n_layers * t->n_heads); }
    f->bank = t;
    f->use = use;
}

/* A head of the open layer whose entries are fitted. */
typedef struct head_fit {
    const entry_fitter *f;
    size_t g;
    const uint32_t *kept;
    const float *mean; /* [D] of its keys, where the format takes it out; else NULL */
} head_fit;

/* Prepares the rounding of a head's keys by the bank. NULL: they are rounded one number at a time,
 * as formats of more bits are. */
static const double *rounding_of(const head_fit *h, cache_formats as) {
    const entry_fitter *f = h->f;
    const ckvc_table *t = f->of->table;
    const size_t D = (size_t)f->shape->head_dim,
                 n = ckvc_bank_references(t, t->bank_use[f->of->block].n_queries),
                 head = f->layer * (size_t)f->shape->n_kv_heads + h->g;
    if (as.keys < CACHE_Q4_0) { return NULL; }
    float *queries = f->queries + h->g * f->n_queries * D;
    double *u = f->rounding + h->g * 2 * D * D;
    ckvc_bank_queries(t, f->of->block, head, f->of->n_tokens, f->rule.inv_freq, queries,
                      f->query_positions + h->g * f->n_queries);
    cache_rotate(queries, n * D, cache_key_rotation(as, (int32_t)D));
    return key_rounding_prepare(queries, n, D, u, u + D * D) ? u : NULL;
}

/* key [D] += factor R(p) c for the head's mean key c. */
static void add_mean(const head_fit *h, uint32_t p, float factor, float *key) {
    float cosine[CACHE_HEAD_MAX / 2], sine[CACHE_HEAD_MAX / 2];
    const int32_t d = h->f->shape->head_dim;
    for (int32_t i = 0; i < d / 2; i++) {
        const double angle = (double)p * h->f->rule.inv_freq[i];
        cosine[i] = (float)cos(angle);
        sine[i] = (float)sin(angle);
    }
    cache_add_mean(h->mean, cosine, sine, d, factor, key);
}

/* Rounds the keys of what is kept as the open layer will be held. */
static void hold_keys(void *ctx, uint32_t n, float *keys) {
    const head_fit *h = ctx;
    const size_t d = (size_t)h->f->shape->head_dim;
    const cache_formats as = h->f->of->sets[h->f->layer].formats;
    const int32_t rotation = cache_key_rotation(as, (int32_t)d);
    const double *u = rounding_of(h, as);
    for (uint32_t i = 0; i < n; i++, keys += d) {
        if (h->mean) { add_mean(h, h->kept[i], -1, keys); }
        if (u) {
            cache_rotate(keys, d, rotation);
            key_rounding_apply(u, d, keys);
            cache_rotate(keys, d, rotation);
        }
        cache_round(as.keys, rotation, keys, d);
        if (h->mean) { add_mean(h, h->kept[i], 1, keys); }
    }
}

/* Fits one head of the open layer, and puts its entries at their positions. */
static void fit_head(void *ctx, int64_t g, int worker) {
    const entry_fitter *f = ctx;
    const size_t D = (size_t)f->shape->head_dim, at = (size_t)g * f->of->n_tokens * D,
                 head = f->layer * (size_t)f->shape->n_kv_heads + (size_t)g;
    const kept_set *kept = &f->of->sets[f->layer];
    const uint32_t *offsets = kept->offsets + (kept->n_sets > 1 ? g : 0);
    float *k = f->fitted_keys + at, *v = f->fitted_values + at;
    (void)worker;
    head_fit h = {f, (size_t)g, kept->positions + offsets[0],
                  cache_takes_mean(kept->formats) ? f->key_means + head * D : NULL};
    const ckvc_fit fit = {.n_tokens = f->of->n_tokens,
                          .head_dim = (uint32_t)D,
                          .keys = f->keys + at,
                          .values = f->values + at,
                          .kept = h.kept,
                          .n_kept = offsets[1] - offsets[0],
                          .ridge = f->ridge,
                          .whole = f->whole + head * f->n_whole,
                          .known = f->known + head,
                          .hold_keys = kept->formats.keys == CACHE_F32 ? NULL : hold_keys,
                          .ctx = &h,
                          .attending = {.inv_freq = f->rule.inv_freq,
                                        .scale = f->rule.scale,
                                        .window = f->rule.window}};
    ckvc_bank_fit(f->of->table, f->of->block, head, fit, f->scratch + (size_t)g * f->scratch_bytes,
                  k, v);
    for (size_t i = fit.n_kept; i-- > 0;) { /* positions ascend, so that none is overwritten */
        memmove(k + fit.kept[i] * D, k + i * D, D * sizeof *k);
        memmove(v + fit.kept[i] * D, v + i * D, D * sizeof *v);
    }
}

ckvc_status entry_fitter_fit(entry_fitter *f, const fit_request *r, ckvc_err *err) {
    const ckvc_table *t = r->table;
    const size_t T = r->n_tokens, D = (size_t)f->shape->head_dim;
    const int32_t G = f->shape->n_kv_heads;
    f->of = r;
    ask_by(f, t, t->bank_use[r->block]);
    for (uint32_t l = 0; l < t->n_layers; l++) {
        f->ridge = r->ridge ? *r->ridge : t->ridge[(size_t)l * t->n_budgets + r->block];
        r->sets[l].fitted = f->ridge > 0;
        if (!r->sets[l].fitted) { continue; }
        f->layer = l;
        if (cache_takes_mean(r->sets[l].formats)) {
            CKVC_TRY(session_key_means(r->session, &f->key_means, err));
        }
        f->rule = session_layer_rule(r->session, (int32_t)l);
        for (int32_t g = 0; g < G; g++) {
            const size_t at = (size_t)g * T * D;
            CKVC_TRY(
                session_read_head(r->session, (int32_t)l, g, f->keys + at, f->values + at, err));
        }
        session_each_head(r->session, fit_head, f);
        for (int32_t g = 0; g < G; g++) {
            const size_t at = (size_t)g * T * D;
            session_write_fitted(r->session, (int32_t)l, g, f->fitted_keys + at,
                                 f->fitted_values + at);
        }
    }
    return CKVC_OK;
}
