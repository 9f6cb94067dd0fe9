/* Memory of a calibration: see memory_plan.h. */
#include "calib/rollout/memory_plan.h"

#include "calib/rollout/rollouts.h"
#include "lib/base/sizes.h"

/* Bytes with that many lanes, beside weights and sets; SIZE_MAX when they do not fit the address
 * space. */
static size_t bytes_with(const memory_request *r, size_t fixed, int64_t lanes) {
    session_limits limits = r->limits;
    limits.max_lanes = lanes;
    const rollout_extent extent = {.max_lanes = lanes,
                                   .max_continuation = (uint32_t)limits.max_continuation,
                                   .n_budgets = r->table ? r->table->n_budgets : 0,
                                   .n_layers = (uint32_t)r->shape->n_layers,
                                   .max_variants = r->most.n_variants};
    size_t total = session_bytes(r->shape, limits);
    const bool fits =
        total != SIZE_MAX && ckvc_add_size(total, fixed, &total) &&
        ckvc_add_size(total, session_scratch_bytes(r->backend, r->shape, limits), &total) &&
        ckvc_add_size(total, rollout_scratch_bytes(&extent), &total);
    return fits ? total : SIZE_MAX;
}

ckvc_status memory_plan_make(const memory_request *r, memory_plan *out, ckvc_err *err) {
    const bool one = r->plain || !(r->table || r->most_lanes > 1);
    const int64_t least = one ? 1 : 2;
    *out =
        (memory_plan){.limit = r->limit, .weights = r->weights, .sets = r->beside, .lanes = least};
    if (r->table) {
        out->sets += prompt_sets_bytes(r->table, r->most.max_tokens) + variants_bytes(&r->most);
    }
    size_t fixed = r->weights + out->sets;
    if (bytes_with(r, fixed, least) > r->limit) {
        /* the backend then converts weights again where they do not stay */
        out->weights = r->weights_least;
        fixed = r->weights_least + out->sets;
    }
    CKVC_FAIL_IF(bytes_with(r, fixed, least) > r->limit, err, CKVC_E_MEMORY,
                 "a prompt of %lld + %lld tokens needs %.1f MB at least (weights %.1f, "
                 "%s %.1f), there are %.1f: allow "
                 "more with --memory, or shorten prompts with --max-tokens",
                 (long long)r->limits.max_prompt, (long long)r->limits.max_continuation,
                 (double)bytes_with(r, fixed, least) / 1e6, (double)out->weights / 1e6,
                 r->beside ? "scores" : "kept sets", (double)out->sets / 1e6,
                 (double)r->limit / 1e6);
    if (!one) { /* bisection: bytes grow with the lanes */
        int64_t top =
            r->table ? (int64_t)r->most.n_variants + r->table->n_budgets + 1 : r->most_lanes;
        for (top = top < SWEEP_MAX_LANES ? top : SWEEP_MAX_LANES; out->lanes < top;) {
            const int64_t mid = out->lanes + (top - out->lanes + 1) / 2;
            if (bytes_with(r, fixed, mid) <= r->limit) {
                out->lanes = mid;
            } else {
                top = mid - 1;
            }
        }
    }
    out->total = bytes_with(r, fixed, out->lanes);
    out->prompt = bytes_with(r, fixed, 1) - fixed;
    out->batch = out->total - out->prompt - fixed;
    return CKVC_OK;
}

size_t memory_plan_limit(const backend *be, size_t memory) {
    if (be->memory_bytes) {
        return memory && memory < be->memory_bytes ? memory : be->memory_bytes;
    }
    return memory ? memory : ckvc_available_memory() / 4 * 3;
}
