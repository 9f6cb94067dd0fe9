/* Rollouts saved: see rollout_savings.h. */
#include "calib/rollout/rollout_savings.h"

#include <inttypes.h>

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

/* In percent; 0 without actions. */
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
