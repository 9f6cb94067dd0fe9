/* Memory of a calibration: see memory_plan.h. */
#include "calib/rollout/memory_plan.h"

#include <math.h>
#include <inttypes.h>

#include "calib/rollout/rollouts.h"
#include "lib/base/sizes.h"

static size_t sets_of_one(const memory_request *r) {
    return r->beside +
           (r->table ? prompt_sets_bytes(r->table, r->most.max_tokens) + variants_bytes(&r->most)
                     : 0);
}

/* Returns how many prompts have their rows joined: all of them, where one alone would leave a part
 * of the device idle; else none. */
static int64_t joined_of(const memory_request *r, int64_t prompts) {
    return prompts > 1 && r->limits.max_prompt < r->backend->fill_rows ? prompts : 0;
}

/* Returns the bytes of that many lanes and prompts, beside weights; SIZE_MAX when they do not fit
 * the address space. */
static size_t bytes_with(const memory_request *r, int64_t lanes, int64_t prompts) {
    session_limits limits = r->limits;
    limits.max_lanes = lanes;
    limits.joined = joined_of(r, prompts);
    const rollout_extent extent = {.max_lanes = lanes,
                                   .max_continuation = (uint32_t)limits.max_continuation,
                                   .n_budgets = r->table ? r->table->n_budgets : 0,
                                   .n_layers = (uint32_t)r->shape->n_layers,
                                   .max_variants = r->most.n_variants,
                                   .divergence = limits.divergence};
    size_t total = session_bytes(r->shape, limits);
    bool fits = total != SIZE_MAX && ckvc_add_size(total, r->held, &total) &&
                ckvc_add_size(total, r->once, &total) &&
                ckvc_add_size(total, session_scratch_bytes(r->backend, r->shape, limits), &total);
    for (int64_t i = 0; i < prompts; i++) {
        fits = fits && ckvc_add_size(total, rollout_scratch_bytes(&extent), &total) &&
               ckvc_add_size(total, sets_of_one(r), &total) &&
               (i == 0 || ckvc_add_size(total, session_bytes_beside(r->shape, limits), &total));
    }
    return fits ? total : SIZE_MAX;
}

static bool one_lane(const memory_request *r) {
    return r->plain || !(r->table || r->most_lanes > 1);
}

/* Returns the most rollouts that a prompt has. */
static int64_t rollouts_of(const memory_request *r) {
    const int64_t lanes = r->most_lanes > 1 ? r->most_lanes : 1;
    return r->table                ? (int64_t)r->most.n_variants + r->table->n_budgets + 1
           : r->n_rollouts > lanes ? r->n_rollouts
                                   : lanes;
}

/* Returns the most lanes that fit into so many bytes, or 0 when even the fewest do not fit. It
 * searches by bisection, because bytes grow with the lanes. */
static int64_t lanes_in(const memory_request *r, size_t bytes, int64_t prompts) {
    int64_t lanes = one_lane(r) ? 1 : 2, top = r->table ? rollouts_of(r) : r->most_lanes;
    if (bytes_with(r, lanes, prompts) > bytes) { return 0; }
    if (one_lane(r)) { return 1; }
    for (top = top < SWEEP_MAX_LANES ? top : SWEEP_MAX_LANES; lanes < top;) {
        const int64_t mid = lanes + (top - lanes + 1) / 2;
        if (bytes_with(r, mid, prompts) <= bytes) {
            lanes = mid;
        } else {
            top = mid - 1;
        }
    }
    return lanes;
}

/* Plans leave room for 0 to SHARES parts of the copies of weights; SHARES parts are all of them. */
enum { SHARES = 8 };

/* Makes a plan with so many prompts and this share of the copies. Its `copied` is SIZE_MAX where it
 * does not fit. */
static memory_plan plan_with(const memory_request *r, int64_t prompts, int share) {
    const size_t more = r->weights > r->weights_least ? r->weights - r->weights_least : 0,
                 weights = share == SHARES ? r->weights
                                           : r->weights_least + more / SHARES * (size_t)share;
    const size_t room = r->limit > weights ? r->limit - weights : 0;
    const int64_t lanes = lanes_in(r, room, prompts);
    if (lanes == 0) { return (memory_plan){.copied = SIZE_MAX}; }
    const size_t total = bytes_with(r, lanes, prompts), first = bytes_with(r, 1, prompts),
                 sets = (size_t)prompts * sets_of_one(r) + r->once;
    return (memory_plan){.limit = r->limit,
                         .weights = weights,
                         .prompt = first - sets - r->held,
                         .sets = sets,
                         .batch = total - first,
                         .total = total + weights,
                         .lanes = lanes,
                         .prompts = prompts,
                         .joined = joined_of(r, prompts),
                         .copied = share == SHARES ? 0 : r->weights - (weights - r->weights_least),
                         .passes = 1 + (rollouts_of(r) + lanes - 1) / lanes};
}

/* Returns what a prompt costs, in rows through the layers. These are its own rows or, where they
 * are more, its share of the rows that fill the device; the rows of its rollouts, of which each
 * batch has one more as its start; and the copies, counted as the rows that take as long. */
static double rows_a_prompt(const memory_request *r, const memory_plan *p) {
    const double batches = (double)(p->passes - 1), lanes = (double)rollouts_of(r) + batches,
                 copied = p->copied ? (double)p->copied / (double)r->weights : 0,
                 fill = (double)r->backend->fill_rows / (double)p->prompts;
    return fmax((double)r->limits.max_prompt, fill) + lanes * (double)r->limits.max_continuation +
           copied * (double)r->backend->copy_rows *
               ((double)p->passes / (double)p->prompts + r->steps);
}

ckvc_status memory_plan_make(const memory_request *r, memory_plan *out, ckvc_err *err) {
    const int64_t most = r->most_prompts > 1 && !r->plain ? r->most_prompts : 1;
    *out = (memory_plan){.copied = SIZE_MAX};
    for (int64_t prompts = 1; prompts <= most; prompts++) {
        for (int share = SHARES; share >= 0; share--) {
            const memory_plan p = plan_with(r, prompts, share);
            if (p.copied != SIZE_MAX &&
                (out->copied == SIZE_MAX || rows_a_prompt(r, &p) < rows_a_prompt(r, out))) {
                *out = p;
            }
        }
    }
    if (out->copied != SIZE_MAX) { return CKVC_OK; }
    const size_t needs = bytes_with(r, one_lane(r) ? 1 : 2, 1);
    return ckvc_fail(
        err, CKVC_E_MEMORY,
        "a prompt of %lld + %lld tokens needs %.1f MB at least (weights %.1f, %s %.1f), there are "
        "%.1f: allow more with --memory, or shorten prompts with --max-tokens",
        (long long)r->limits.max_prompt, (long long)r->limits.max_continuation,
        ((double)needs + (double)r->weights_least) / 1e6, (double)r->weights_least / 1e6,
        r->beside ? "scores" : "kept sets", (double)sets_of_one(r) / 1e6, (double)r->limit / 1e6);
}

size_t memory_plan_limit(const backend *be, size_t memory) {
    if (be->memory_bytes) {
        return memory && memory < be->memory_bytes ? memory : be->memory_bytes;
    }
    return memory ? memory : ckvc_available_memory() / 4 * 3;
}

rollout_savings *savings_create(uint32_t n_layers) {
    rollout_savings *m = ckvc_calloc(1, sizeof *m);
    m->n_layers = n_layers;
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        m->sides[i] = ckvc_calloc(n_layers, sizeof *m->sides[i]);
    }
    return m;
}

void savings_free(rollout_savings *m) {
    for (int i = 0; m && i < CKVC_SIDE_COUNT; i++) { free(m->sides[i]); }
    free(m);
}

static void add_to(savings_range *r, uint64_t n, bool first) {
    r->least = first || n < r->least ? n : r->least;
    r->most = n > r->most ? n : r->most;
    r->sum += n;
}

void savings_add(rollout_savings *m, const variant_list *v) {
    if (v->n_actions == 0) { return; }
    for (size_t i = 0; i < v->n_actions; i++) {
        const taken_action *t = &v->actions[i];
        m->sides[t->side][t->layer].actions++;
        m->sides[t->side][t->layer].at_baseline += t->variant == VARIANT_NONE;
    }
    for (size_t i = 0; i < v->n; i++) {
        for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
            m->sides[side][v->items[i].layer].distinct += v->items[i].first_use[side] > 0;
        }
    }
    add_to(&m->actions, v->n_actions, m->prompts == 0);
    add_to(&m->distinct, v->n, m->prompts == 0);
    m->prompts++;
}

static savings_count all_layers(const rollout_savings *m, ckvc_side side) {
    savings_count sum = {0};
    for (uint32_t l = 0; l < m->n_layers; l++) {
        sum.actions += m->sides[side][l].actions;
        sum.at_baseline += m->sides[side][l].at_baseline;
        sum.distinct += m->sides[side][l].distinct;
    }
    return sum;
}

/* Returns the saving in percent; 0 without actions. */
static double saved(uint64_t actions, uint64_t distinct) {
    return actions ? 100 * (1.0 - (double)distinct / (double)actions) : 0.0;
}

void savings_text(const rollout_savings *m, ckvc_buffer *out) {
    const savings_range *a = &m->actions, *d = &m->distinct;
    const double n = (double)m->prompts;
    if (m->prompts == 0) { return; }
    ckvc_buffer_printf(
        out,
        "memo: %.1f%% of the actions cost no rollout; per prompt %.0f actions (%" PRIu64
        " to %" PRIu64 ") in %.0f rollouts (%" PRIu64 " to %" PRIu64 ")\n",
        saved(a->sum, d->sum), (double)a->sum / n, a->least, a->most, (double)d->sum / n, d->least,
        d->most);
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        const savings_count sum = all_layers(m, (ckvc_side)i);
        if (sum.actions == 0) { continue; }
        ckvc_buffer_printf(out, "  %s %.1f%% (%.1f%% at the baseline's set), by layer",
                           ckvc_side_name((ckvc_side)i), saved(sum.actions, sum.distinct),
                           100 * (double)sum.at_baseline / (double)sum.actions);
        for (uint32_t l = 0; l < m->n_layers; l++) {
            const savings_count *c = &m->sides[i][l];
            ckvc_buffer_printf(out, " %.0f", saved(c->actions, c->distinct));
        }
        ckvc_buffer_text(out, "\n");
    }
}

json_t *savings_json(const rollout_savings *m) {
    json_t *o = json_pack("{s:I, s:I, s:I}", "prompts", (json_int_t)m->prompts, "actions",
                          (json_int_t)m->actions.sum, "distinct", (json_int_t)m->distinct.sum);
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        if (all_layers(m, (ckvc_side)i).actions == 0) { continue; }
        json_t *actions = json_array(), *at_baseline = json_array(), *distinct = json_array();
        for (uint32_t l = 0; l < m->n_layers; l++) {
            const savings_count *c = &m->sides[i][l];
            json_array_append_new(actions, json_integer((json_int_t)c->actions));
            json_array_append_new(at_baseline, json_integer((json_int_t)c->at_baseline));
            json_array_append_new(distinct, json_integer((json_int_t)c->distinct));
        }
        json_object_set_new(o, ckvc_side_name((ckvc_side)i),
                            json_pack("{s:o, s:o, s:o}", "actions", actions, "at_baseline",
                                      at_baseline, "distinct", distinct));
    }
    return o;
}
