/* Scratch, rollouts the plain way, sweeps, and the check of a share of them: see rollouts.h. */
#include "calib/rollout/rollouts.h"

#include <math.h>
#include <stdio.h>
#include <assert.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/hash.h"
#include "lib/base/progress.h"

/* The arrays of a scratch w, with their lengths within `most`. A sweep has more arrays. */
#define PLAIN_ARRAYS(X)                                                                            \
    X(w->nll, (size_t)most->max_lanes * most->max_continuation)                                    \
    X(w->kl, most->divergence ? (size_t)most->max_lanes * most->max_continuation : 0)              \
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

rollout_job rollouts_job(const rollout_scratch *w, const rollouts *r, const rollout_lane *lanes,
                         int64_t n) {
    return (rollout_job){.session = r->session,
                         .continuation = r->continuation,
                         .n = r->n_continuation,
                         .lanes = lanes,
                         .n_lanes = n,
                         .nll = w->nll,
                         .kl = w->most.divergence ? w->kl : NULL};
}

double rollouts_loss(const rollout_scratch *w, const rollouts *r, int64_t lane) {
    const double *of = (w->most.by_kl ? w->kl : w->nll) + (size_t)lane * r->n_continuation;
    return nll_mean(of + r->n_later, r->n_continuation - r->n_later);
}

static ckvc_status rollout(rollout_scratch *w, const rollouts *r, const kept_set *sets,
                           double *loss, ckvc_err *err) {
    const rollout_lane alone = {.parent = -1, .sets = sets};
    const rollout_job job = rollouts_job(w, r, &alone, 1);
    CKVC_TRY(sessions_rollouts(&job, 1, err));
    *loss = rollouts_loss(w, r, 0);
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

/* Returns whether the rollout that `key` names falls into the share. This depends on what the
 * rollout is and not on its place, so that the same rollouts are checked in any order of prompts,
 * on any threads, and in any batch. */
static bool is_chosen(const rollouts_sample *of, uint64_t key) {
    uint8_t bytes[24];
    ckvc_put_u64(bytes, of->seed);
    ckvc_put_u64(bytes + 8, ckvc_rng_key(of->prompt_id));
    ckvc_put_u64(bytes + 16, key);
    return (double)(ckvc_xxh64(bytes, sizeof bytes) >> 11) * 0x1p-53 < of->share;
}

/* Compares two losses of one rollout. The status is CKVC_CHECK_FAILED where they differ by more
 * than CHECK_TOLERANCE. */
static ckvc_status check_same_loss(const char *prompt_id, const char *what, double got,
                                   double plain, ckvc_err *err) {
    if (fabs(got - plain) <= CHECK_TOLERANCE || (isnan(got) && isnan(plain)) || got == plain) {
        return CKVC_OK;
    }
    return ckvc_fail(err, CKVC_CHECK_FAILED,
                     "--check-rollouts: prompt \"%s\", %s: loss %.9g, the plain way %.9g, they may "
                     "differ by %g; please report this",
                     prompt_id, what, got, plain, CHECK_TOLERANCE);
}

/* Describes in words the first action that keeps the variant's set. */
static void describe_variant(const variant_list *v, size_t i, char *text, size_t size) {
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
        if (v->group[b] != b || !is_chosen(of, b)) { continue; }
        CKVC_TRY(rollout_baseline(w, r, b, &loss, err));
        snprintf(what, sizeof what, "the baseline of budget %u", b);
        CKVC_TRY(check_same_loss(of->prompt_id, what, r->baseline[b], loss, err));
        ++*n_checked;
    }
    for (size_t i = 0; i < v->n; i++) {
        if (!is_chosen(of, v->items[i].key)) { continue; }
        CKVC_TRY(rollout_variant(w, r, i, &loss, err));
        describe_variant(v, i, what, sizeof what);
        CKVC_TRY(check_same_loss(of->prompt_id, what, v->items[i].loss, loss, err));
        ++*n_checked;
    }
    return CKVC_OK;
}

/* Returns the group of budgets whose baseline the variant starts from. */
static uint32_t variant_group(const variant_list *v, uint32_t i) {
    return v->group[v->items[i].budget];
}

/* Writes the variants to w->order by (group, layer), sorted by counting; those of one key keep the
 * order of the list. */
static void sort_variants(rollout_scratch *w, const rollouts *r) {
    const variant_list *v = r->variants;
    const uint32_t L = r->sets->n_layers;
    const size_t n_keys = (size_t)r->sets->n_budgets * L;
    memset(w->first, 0, (n_keys + 1) * sizeof *w->first);
    for (uint32_t i = 0; i < v->n; i++) {
        w->first[(size_t)variant_group(v, i) * L + v->items[i].layer + 1]++;
    }
    for (size_t i = 0; i < n_keys; i++) { w->first[i + 1] += w->first[i]; }
    for (uint32_t i = 0; i < v->n; i++) {
        w->order[w->first[(size_t)variant_group(v, i) * L + v->items[i].layer]++] = i;
    }
}

/* The rollouts of a batch in the order of work: first the starts (the full cache and the
 * baselines), then the variants, which leave these starts. */
typedef struct batch {
    int64_t n_starts, n_variants;
    int64_t full;                                /* lane of the full cache, or -1 */
    int64_t start[PROMPT_SETS_MAX_BUDGETS];      /* lane of each group's baseline, or -1 */
    uint32_t group[PROMPT_SETS_MAX_BUDGETS + 1]; /* the group of each start */
} batch;

/* What is left for the batches to come. */
typedef struct what_is_left {
    bool full;                          /* the full cache's rollout is still wanted */
    bool done[PROMPT_SETS_MAX_BUDGETS]; /* groups whose baseline has its loss */
    size_t next;                        /* index into w->order */
} what_is_left;

static void add_start(batch *b, what_is_left *left, uint32_t group) {
    b->group[b->n_starts] = group;
    b->start[group] = b->n_starts++;
    left->done[group] = true;
}

/* Fills the batch from what is left: the full cache's rollout, baselines that have no loss yet, and
 * variants with the baselines that they leave. The variants are written to w->item. Returns false
 * when nothing is left. */
static bool next_batch(rollout_scratch *w, const rollouts *r, what_is_left *left, batch *b) {
    const variant_list *v = r->variants;
    *b = (batch){.full = -1};
    for (uint32_t g = 0; g < r->sets->n_budgets; g++) { b->start[g] = -1; }
    if (left->full) { b->full = b->n_starts++; }
    left->full = false;
    for (; left->next < v->n; left->next++) {
        const uint32_t g = variant_group(v, w->order[left->next]);
        const int64_t needs = b->start[g] < 0 ? 2 : 1;
        if (b->n_starts + b->n_variants + needs > w->most.max_lanes) { return true; }
        if (b->start[g] < 0) { add_start(b, left, g); }
        w->item[b->n_variants++] = w->order[left->next];
    }
    for (uint32_t g = 0; /* baselines that no variant leaves */
         g < r->sets->n_budgets && b->n_starts + b->n_variants < w->most.max_lanes; g++) {
        if (v->group[g] == g && !left->done[g]) { add_start(b, left, g); }
    }
    return b->n_starts > 0;
}

/* Makes the lanes of the batch: the starts in front, then the variants by layer. The variants of
 * each group are in that order already. */
static void fill_lanes(rollout_scratch *w, const rollouts *r, const batch *b) {
    const variant_list *v = r->variants;
    int64_t n = 0;
    for (; n < b->n_starts; n++) {
        w->lanes[n] = (rollout_lane){
            .parent = -1, .sets = n == b->full ? NULL : prompt_sets_baseline(r->sets, b->group[n])};
    }
    for (uint32_t l = 0; l < r->sets->n_layers; l++) {
        for (int64_t i = 0; i < b->n_variants; i++) {
            const uint32_t at = w->item[i];
            if (v->items[at].layer != l) { continue; }
            w->of_lane[n] = at;
            w->kept[n] = variant_set(v, at);
            w->lanes[n] = (rollout_lane){.parent = (int32_t)b->start[variant_group(v, at)],
                                         .layer = (int32_t)l,
                                         .kept = &w->kept[n]};
            n++;
        }
    }
    assert(n == b->n_starts + b->n_variants);
}

/* Stores the losses of a batch where they belong. */
static void store_losses(const rollout_scratch *w, rollouts *r, const batch *b) {
    const variant_list *v = r->variants;
    for (int64_t i = 0; i < b->n_starts + b->n_variants; i++) {
        const double loss = rollouts_loss(w, r, i);
        if (i >= b->n_starts) {
            v->items[w->of_lane[i]].loss = loss;
        } else if (i == b->full) {
            r->full = loss;
        } else {
            for (uint32_t budget = 0; budget < r->sets->n_budgets; budget++) {
                if (v->group[budget] == b->group[i]) { r->baseline[budget] = loss; }
            }
        }
    }
}

typedef struct sweep {
    what_is_left left;
    batch b;
    bool under_way;
} sweep;

ckvc_status rollouts_sweep_together(const prompt_rollouts *of, int64_t n, ckvc_err *err) {
    sweep sweeps[SESSIONS_TOGETHER];
    rollout_job jobs[SESSIONS_TOGETHER];
    assert(n >= 1 && n <= SESSIONS_TOGETHER);
    for (int64_t i = 0; i < n; i++) {
        const rollout_extent *most = &of[i].scratch->most;
        assert(of[i].losses->n_continuation <= most->max_continuation && most->max_lanes >= 2);
        sweeps[i].left = (what_is_left){.full = true};
        sort_variants(of[i].scratch, of[i].losses);
    }
    for (;;) {
        int64_t n_jobs = 0, n_lanes = 0;
        for (int64_t i = 0; i < n; i++) {
            rollout_scratch *w = of[i].scratch;
            rollouts *r = of[i].losses;
            batch *b = &sweeps[i].b;
            sweeps[i].under_way = next_batch(w, r, &sweeps[i].left, b);
            if (!sweeps[i].under_way) { continue; }
            fill_lanes(w, r, b);
            jobs[n_jobs] = rollouts_job(w, r, w->lanes, b->n_starts + b->n_variants);
            n_lanes += jobs[n_jobs++].n_lanes;
        }
        if (n_jobs == 0) { return CKVC_OK; }
        CKVC_TRY(sessions_rollouts(jobs, n_jobs, err));
        for (int64_t i = 0; i < n; i++) {
            if (sweeps[i].under_way) { store_losses(of[i].scratch, of[i].losses, &sweeps[i].b); }
        }
        ckvc_progress_step((uint64_t)n_lanes);
    }
}
