/* Memory of a calibration: see memory_plan.h. */
#include "calib/rollout/memory_plan.h"

#include "calib/rollout/rollouts_sweep.h"
#include "lib/base/memory.h"
#include "lib/base/sizes.h"

typedef struct need {
    const backend *be;
    const model_shape *shape;
    session_limits limits;
    uint32_t n_budgets;
    size_t fixed, n_variants; /* fixed: weights and sets */
} need;

/* Bytes with that many lanes; SIZE_MAX when they do not fit the address space. */
static size_t bytes_with(const need *n, int64_t lanes) {
    session_limits limits = n->limits;
    limits.max_lanes = lanes;
    const size_t of_session = session_bytes(n->shape, limits);
    size_t total;
    if (of_session == SIZE_MAX || !ckvc_add_size(of_session, n->fixed, &total) ||
        !ckvc_add_size(total, session_scratch_bytes(n->be, n->shape, limits), &total)) {
        return SIZE_MAX;
    }
    const size_t of_sweep =
        lanes > 1 ? sweep_bytes(lanes, (uint32_t)limits.max_continuation, n->n_budgets,
                                (uint32_t)n->shape->n_layers, n->n_variants)
                  : 0;
    return ckvc_add_size(total, of_sweep, &total) ? total : SIZE_MAX;
}

ckvc_status memory_plan_make(const backend *be, const model_shape *shape, size_t weights,
                             size_t weights_least, session_limits limits, const ckvc_table *table,
                             const variant_extent *most, bool plain, size_t limit, memory_plan *out,
                             ckvc_err *err) {
    need n = {
        .be = be, .shape = shape, .limits = limits, .n_budgets = table ? table->n_budgets : 0};
    *out = (memory_plan){.limit = limit, .weights = weights};
    if (table) {
        out->sets = prompt_sets_bytes(table, most->max_tokens) + variants_bytes(most);
        n.n_variants = most->n_variants;
    }
    n.fixed = weights + out->sets;
    const bool one = plain || !table;
    if (bytes_with(&n, one ? 1 : 2) >
        limit) { /* the backend then converts weights again where they do not stay */
        out->weights = weights_least;
        n.fixed = weights_least + out->sets;
    }
    int64_t least = one ? 1 : 2, lanes = least;
    if (bytes_with(&n, least) > limit) {
        return ckvc_fail(err, CKVC_E_MEMORY,
                         "a prompt of %lld + %lld tokens needs %.1f MB at least (weights %.1f, "
                         "kept sets %.1f), there are %.1f: allow "
                         "more with --memory, or shorten prompts with --max-tokens",
                         (long long)limits.max_prompt, (long long)limits.max_continuation,
                         (double)bytes_with(&n, least) / 1e6, (double)out->weights / 1e6,
                         (double)out->sets / 1e6, (double)limit / 1e6);
    }
    if (!one) { /* bisection: bytes grow with the lanes */
        int64_t top =
            (int64_t)(most->n_variants < SWEEP_MAX_LANES ? most->n_variants : SWEEP_MAX_LANES) +
            n.n_budgets + 1;
        for (top = top < SWEEP_MAX_LANES ? top : SWEEP_MAX_LANES; lanes < top;) {
            const int64_t mid = lanes + (top - lanes + 1) / 2;
            if (bytes_with(&n, mid) <= limit) {
                lanes = mid;
            } else {
                top = mid - 1;
            }
        }
    }
    out->lanes = lanes;
    out->total = bytes_with(&n, lanes);
    out->prompt = bytes_with(&n, 1) - n.fixed;
    out->batch = out->total - out->prompt - n.fixed;
    return CKVC_OK;
}

size_t memory_plan_default(void) {
    return ckvc_available_memory() / 4 * 3;
}
