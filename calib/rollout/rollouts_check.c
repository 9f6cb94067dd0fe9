/* Rollouts checked against the plain way: see rollouts_check.h. */
#include "calib/rollout/rollouts_check.h"

#include <math.h>
#include <stdio.h>

#include "calib/rollout/rollouts_plain.h"
#include "lib/base/bytes.h"
#include "lib/base/hash.h"
#include "lib/base/rng.h"

/* By identity, not by place: the same rollouts in any order of prompts, on any threads, in any
 * batch. */
static bool chosen(double share, uint64_t seed, uint64_t prompt, uint64_t key) {
    uint8_t bytes[24];
    ckvc_put_u64(bytes, seed);
    ckvc_put_u64(bytes + 8, prompt);
    ckvc_put_u64(bytes + 16, key);
    return (double)(ckvc_xxh64(bytes, sizeof bytes) >> 11) * 0x1p-53 < share;
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

ckvc_status rollouts_check(double share, uint64_t seed, const char *prompt_id, session *s,
                           const prompt_sets *k, const variant_list *v, const double *baseline,
                           const int32_t *continuation, uint32_t C, kept_set *sets, double *nll,
                           uint64_t *n_checked, ckvc_err *err) {
    const uint64_t prompt = ckvc_rng_key(prompt_id);
    char what[128];
    double loss;
    ckvc_status st = CKVC_OK;
    for (uint32_t b = 0; st == CKVC_OK && b < k->n_budgets; b++) {
        if (v->group[b] == b && chosen(share, seed, prompt, b)) {
            st = rollout_baseline(s, k, b, continuation, C, nll, &loss, err);
            snprintf(what, sizeof what, "the baseline of budget %u", b);
            if (st == CKVC_OK) { st = compare(prompt_id, what, baseline[b], loss, err); }
            ++*n_checked;
        }
    }
    for (size_t i = 0; st == CKVC_OK && i < v->n; i++) {
        if (chosen(share, seed, prompt, v->items[i].key)) {
            st = rollout_variant(s, k, v, i, continuation, C, sets, nll, &loss, err);
            describe(v, i, what, sizeof what);
            if (st == CKVC_OK) { st = compare(prompt_id, what, v->items[i].loss, loss, err); }
            ++*n_checked;
        }
    }
    return st;
}
