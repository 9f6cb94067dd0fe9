/* Fitted entries of a prompt: see fitted_entries.h. */
#include "judge/policies/fitted_entries.h"

#include <string.h>

#include "lib/base/memory.h"
#include "lib/policy/cache_rows.h"

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
}

void entry_fitter_close(entry_fitter *f) {
    CKVC_FREE(f->whole, f->known, f->keys, f->values, f->fitted_keys, f->fitted_values, f->scratch);
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

/* Fits one head of the open layer, and puts its entries at their positions. */
static void fit_head(void *ctx, int64_t g, int worker) {
    const entry_fitter *f = ctx;
    const size_t D = (size_t)f->shape->head_dim, at = (size_t)g * f->of->n_tokens * D,
                 head = f->layer * (size_t)f->shape->n_kv_heads + (size_t)g;
    const kept_set *kept = &f->of->sets[f->layer];
    const uint32_t *offsets = kept->offsets + (kept->n_sets > 1 ? g : 0);
    float *k = f->fitted_keys + at, *v = f->fitted_values + at;
    (void)worker;
    const ckvc_fit fit = {
        .n_tokens = f->of->n_tokens,
        .head_dim = (uint32_t)D,
        .keys = float_rows(f->keys + at, (uint32_t)D),
        .values = float_rows(f->values + at, (uint32_t)D),
        .kept = kept->positions + offsets[0],
        .n_kept = offsets[1] - offsets[0],
        .ridge = f->ridge,
        .whole = f->whole + head * f->n_whole,
        .known = f->known + head,
        .hold = {.format = kept->formats.keys,
                 .mean = cache_takes_mean(kept->formats) ? f->key_means + head * D : NULL},
        .attending = {
            .inv_freq = f->rule.inv_freq, .scale = f->rule.scale, .window = f->rule.window}};
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
