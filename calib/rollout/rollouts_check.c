/* Rollouts checked against the plain way: see rollouts_check.h. */
#include "calib/rollout/rollouts_check.h"

#include <math.h>
#include <stdio.h>

#include "lib/base/bytes.h"
#include "lib/base/hash.h"
#include "lib/base/rng.h"

/* By identity, not by place: the same rollouts in any order of prompts, on any threads, in any
 * batch. */
static bool chosen(const rollouts_sample *of, uint64_t key) {
    uint8_t bytes[24];
    ckvc_put_u64(bytes, of->seed);
    ckvc_put_u64(bytes + 8, ckvc_rng_key(of->prompt_id));
    ckvc_put_u64(bytes + 16, key);
    return (double)(ckvc_xxh64(bytes, sizeof bytes) >> 11) * 0x1p-53 < of->share;
}

static ckvc_status compare(const char *prompt_id, const char *what, double got, double plain,
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
    while (a < v->n_actions && v->actions[a].variant != i) {
        a++;
    }
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
        if (v->group[b] != b || !chosen(of, b)) { continue; }
        CKVC_TRY(rollout_baseline(w, r, b, &loss, err));
        snprintf(what, sizeof what, "the baseline of budget %u", b);
        CKVC_TRY(compare(of->prompt_id, what, r->baseline[b], loss, err));
        ++*n_checked;
    }
    for (size_t i = 0; i < v->n; i++) {
        if (!chosen(of, v->items[i].key)) { continue; }
        CKVC_TRY(rollout_variant(w, r, i, &loss, err));
        describe(v, i, what, sizeof what);
        CKVC_TRY(compare(of->prompt_id, what, v->items[i].loss, loss, err));
        ++*n_checked;
    }
    return CKVC_OK;
}
