/* See learned_score.h. */
#include "budgets/learned_score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "budgets/softmax_regression.h"
#include "lib/base/memory.h"
#include "lib/base/order.h"
#include "lib/base/hash.h"

#define RIDGE 1e-3 /* acts on standardised features, per unit of target */

static size_t count_heads(const shard_header *h) { return (size_t)h->n_layers * h->n_kv_heads; }

ckvc_status learned_records_add(learned_records *l, const shard *s, size_t p, uint64_t hash,
                                size_t memory_max, const char *where, ckvc_err *err) {
    const bool heldout = strcmp(s->prompts[p].split, "heldout") == 0;
    const size_t H = count_heads(&s->h), F = s->h.setting.n_features, P = s->h.setting.positions,
                 n_double = H * (3 + F), n_float = H * P * F,
                 bytes = n_double * sizeof(double) + n_float * sizeof(float);
    CKVC_FAIL_IF(s->h.setting.features != CKVC_FEATURES_1, err, CKVC_E_DATA,
                 "%s: has features of version %u, wanted are those of version %u", where,
                 s->h.setting.features, CKVC_FEATURES_1);
    CKVC_FAIL_IF(
        l->n_prompts + 1 > memory_max / bytes, err, CKVC_E_MEMORY,
        "%s: the features of %zu prompts take %zu bytes each, which --memory does not hold", where,
        l->n_prompts + 1, bytes);
    /* The features of the first head's first position. This is position 0, whose column OWN + 8 is
     * its distance d from the end, as d / 1024. */
    const float *f = s->features + p * n_float;
    CKVC_FAIL_IF(f[CKVC_FEATURES_OWN + 8] > CKVC_FEATURES_MOST_LEFT / 1024.0f, err, CKVC_E_DATA,
                 "%s: has features that an older ckvc logged, with distances beyond %d: log its "
                 "prompts again",
                 where, CKVC_FEATURES_MOST_LEFT);
    const uint32_t T = s->prompts[p].n_tokens, top = (uint32_t)P / 2;
    struct learned_prompt to = {.hash = hash,
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

/* Sorts the prompts that are fitted before those that are held out, and each part by hash, so that
 * the order of shards does not matter. */
static int by_hash(const void *a, const void *b) {
    const struct learned_prompt *x = a, *y = b;
    return x->heldout != y->heldout ? x->heldout - y->heldout : ckvc_order_u64(&x->hash, &y->hash);
}

/* Drops those held-out prompts that another run has among the fitted ones. The prompts are sorted.
 */
static void drop_fitted(learned_records *l) {
    size_t n = l->n_fitted;
    for (size_t k = n; k < l->n_prompts; ++k) {
        struct learned_prompt *p = &l->prompts[k];
        if (bsearch(p, l->prompts, l->n_fitted, sizeof *p, ckvc_order_u64)) {
            CKVC_FREE(p->mass, p->features);
        } else {
            l->prompts[n++] = *p;
        }
    }
    l->n_prompts = n;
}

/* Returns how many positions each logged position stands for, [n_prompts][P]. This is the same for
 * every head. */
static double *weights_of(const learned_records *l) {
    const size_t P = l->first.setting.positions;
    double *weights = ckvc_alloc(l->n_prompts * P, sizeof *weights);
    for (size_t k = 0; k < l->n_prompts; ++k) {
        for (size_t i = 0; i < P; ++i) {
            weights[k * P + i] = i < P / 2 ? 1.0 : l->prompts[k].drawn;
        }
    }
    return weights;
}

/* Collects a head's part of all prompts, with features from column `first` on. */
static void head_prompts(const learned_records *l, size_t head, uint32_t first,
                         const double *weights, softmax_prompt *out) {
    const size_t H = count_heads(&l->first), F = l->first.setting.n_features,
                 P = l->first.setting.positions;
    for (size_t k = 0; k < l->n_prompts; ++k) {
        const struct learned_prompt *p = &l->prompts[k];
        out[k] = (softmax_prompt){.n = p->n_positions,
                                  .f = p->features + head * P * F + first,
                                  .stride = F,
                                  .weight = weights + k * P,
                                  .yf = p->mass + 2 * H + head * F + first,
                                  .y = p->mass[H + head]};
    }
}

/* Adds a head's loss on prompts [n], weighted by the sum of its targets. */
static void add_loss(const softmax_prompt *prompts, size_t n, uint32_t F, const double *theta,
                     double *loss) {
    double y = 0.0;
    for (size_t k = 0; k < n; ++k) { y += prompts[k].y; }
    *loss += y * softmax_loss(prompts, n, F, theta);
}

/* Returns the number to which a head's scores add up, where heads have sets of their own. Heads of
 * a layer that share a set count alike; else the set would be that of the head that asks for most.
 */
static double mass_of(const learned_records *l, size_t head, ckvc_mode mode) {
    double mass = 0.0;
    if (!ckvc_mode_by_head(mode)) { return 1.0; }
    for (size_t k = 0; k < l->n_fitted; ++k) {
        mass += l->prompts[k].mass[head] / (double)l->n_fitted;
    }
    return mass;
}

void learned_records_table(learned_records *l, const budgets_options *o, ckvc_table *t,
                           fitted_learned *out) {
    const uint32_t P = l->first.setting.positions, first = ckvc_features_first(o->features),
                   F = l->first.setting.n_features - first;
    const size_t H = count_heads(&l->first);
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
        if (o->score == CKVC_SCORE_LEARNED || ckvc_score_learns(t->score[b].kind)) {
            t->score[b] = ckvc_default_score(CKVC_SCORE_LEARNED, o->features);
        }
        t->score[b].mode = mode;
    }
}

void learned_records_fini(learned_records *l) {
    for (size_t k = 0; k < l->n_prompts; ++k) {
        CKVC_FREE(l->prompts[k].mass, l->prompts[k].features);
    }
    CKVC_FREE(l->prompts, l->where);
    shard_header_fini(&l->first);
    *l = (learned_records){0};
}
