/* Scratch, one continuation per distinct kept set, and what is checked by it: see rollouts.h. */
#include "calib/rollout/rollouts.h"

#include <math.h>
#include <stdio.h>

#include "lib/base/bytes.h"
#include "lib/base/hash.h"
#include "lib/base/progress.h"
#include "lib/base/rng.h"

/* The arrays of a scratch w within `most`; a sweep has more. */
#define PLAIN_ARRAYS(X)                                                                            \
    X(w->nll, (size_t)most->max_lanes * most->max_continuation)                                    \
    X(w->sets, most->n_layers)
#define SWEEP_ARRAYS(X)                                                                            \
    X(w->order, most->max_variants)                                                                \
    X(w->first, (size_t)most->n_budgets * most->n_layers + 1)                                      \
    X(w->item, (size_t)most->max_lanes)                                                            \
    X(w->of_lane, (size_t)most->max_lanes)                                                         \
    X(w->lanes, (size_t)most->max_lanes)                                                           \
    X(w->kept, (size_t)most->max_lanes)

size_t rollout_scratch_bytes(const rollout_extent *most) {
    const rollout_scratch *w = NULL;
    size_t bytes = 0;
#define ADD(array, n) bytes += (n) * sizeof *(array);
    PLAIN_ARRAYS(ADD)
    if (most->max_lanes >= 2) { SWEEP_ARRAYS(ADD) }
    return bytes;
}

void rollout_scratch_init(rollout_scratch *w, const rollout_extent *most) {
    *w = (rollout_scratch){.most = *most};
#define TAKE(array, n) (array) = ckvc_alloc((n), sizeof *(array));
    PLAIN_ARRAYS(TAKE)
    if (most->max_lanes >= 2) { SWEEP_ARRAYS(TAKE) }
}

void rollout_scratch_fini(rollout_scratch *w) {
#define FREE(array, n) free(array);
    PLAIN_ARRAYS(FREE)
    SWEEP_ARRAYS(FREE)
    *w = (rollout_scratch){0};
}

static ckvc_status rollout(rollout_scratch *w, const rollouts *r, const kept_set *sets,
                           double *loss, ckvc_err *err) {
    CKVC_TRY(session_continue(r->session, r->continuation, r->n_continuation, sets, w->nll, err));
    *loss = nll_mean(w->nll, r->n_continuation);
    ckvc_progress_step(1);
    return CKVC_OK;
}

ckvc_status rollout_baseline(rollout_scratch *w, const rollouts *r, uint32_t budget, double *loss,
                             ckvc_err *err) {
    return rollout(w, r, prompt_sets_baseline(r->sets, budget), loss, err);
}

ckvc_status rollout_variant(rollout_scratch *w, const rollouts *r, size_t i, double *loss,
                            ckvc_err *err) {
    const variant *item = &r->variants->items[i];
    memcpy(w->sets, prompt_sets_baseline(r->sets, item->budget),
           r->sets->n_layers * sizeof *w->sets);
    w->sets[item->layer] = variant_set(r->variants, i);
    return rollout(w, r, w->sets, loss, err);
}

ckvc_status rollouts_plain(rollout_scratch *w, rollouts *r, ckvc_err *err) {
    const variant_list *v = r->variants;
    CKVC_TRY(rollout(w, r, NULL, &r->full, err));
    for (uint32_t b = 0; b < r->sets->n_budgets; b++) {
        if (v->group[b] == b) {
            CKVC_TRY(rollout_baseline(w, r, b, &r->baseline[b], err));
        } else { /* budgets of one group share the rollout */
            r->baseline[b] = r->baseline[v->group[b]];
        }
    }
    for (size_t i = 0; i < v->n; i++) {
        CKVC_TRY(rollout_variant(w, r, i, &v->items[i].loss, err));
    }
    return CKVC_OK;
}

/* ---- a share of them checked ---- */

bool rollouts_chosen(const rollouts_sample *of, uint64_t key) {
    uint8_t bytes[24];
    ckvc_put_u64(bytes, of->seed);
    ckvc_put_u64(bytes + 8, ckvc_rng_key(of->prompt_id));
    ckvc_put_u64(bytes + 16, key);
    return (double)(ckvc_xxh64(bytes, sizeof bytes) >> 11) * 0x1p-53 < of->share;
}

ckvc_status rollouts_compare(const char *prompt_id, const char *what, double got, double plain,
                             ckvc_err *err) {
    if (fabs(got - plain) <= CHECK_TOLERANCE || (isnan(got) && isnan(plain)) || got == plain) {
        return CKVC_OK;
    }
    return ckvc_fail(err, CKVC_CHECK_FAILED,
                     "--check-rollouts: prompt \"%s\", %s: loss %.9g, the plain way %.9g, they may "
                     "differ by %g; please report this",
                     prompt_id, what, got, plain, CHECK_TOLERANCE);
}

/* The first action that keeps the variant's set, in words. */
static void describe(const variant_list *v, size_t i, char *text, size_t size) {
    size_t a = 0;
    while (a < v->n_actions && v->actions[a].variant != i) { a++; }
    const taken_action *t = &v->actions[a];
    if (a == v->n_actions) {
        snprintf(text, size, "variant %zu", i);
    } else if (t->side == CKVC_SIDE_HEAD) {
        snprintf(text, size, "head action %u of layer %u, head %u, budget %u", t->action, t->layer,
                 t->head, t->budget);
    } else {
        snprintf(text, size, "gate action %u of layer %u, budget %u", t->action, t->layer,
                 t->budget);
    }
}

ckvc_status rollouts_check(rollout_scratch *w, const rollouts *r, const rollouts_sample *of,
                           uint64_t *n_checked, ckvc_err *err) {
    const variant_list *v = r->variants;
    char what[128];
    double loss;
    for (uint32_t b = 0; b < r->sets->n_budgets; b++) {
        if (v->group[b] != b || !rollouts_chosen(of, b)) { continue; }
        CKVC_TRY(rollout_baseline(w, r, b, &loss, err));
        snprintf(what, sizeof what, "the baseline of budget %u", b);
        CKVC_TRY(rollouts_compare(of->prompt_id, what, r->baseline[b], loss, err));
        ++*n_checked;
    }
    for (size_t i = 0; i < v->n; i++) {
        if (!rollouts_chosen(of, v->items[i].key)) { continue; }
        CKVC_TRY(rollout_variant(w, r, i, &loss, err));
        describe(v, i, what, sizeof what);
        CKVC_TRY(rollouts_compare(of->prompt_id, what, v->items[i].loss, loss, err));
        ++*n_checked;
    }
    return CKVC_OK;
}
