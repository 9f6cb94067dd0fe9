/* Memo rates: see rollout_savings.h. */
#include "calib/rollout/rollout_savings.h"

#include <inttypes.h>
#include <stdlib.h>

#include "lib/base/memory.h"

ckvc_status savings_create(uint32_t n_layers, rollout_savings **out, ckvc_err *err) {
    rollout_savings *m = *out = ckvc_calloc(1, sizeof *m);
    bool all = m != NULL;
    for (int i = 0; all && i < CKVC_SIDE_COUNT; i++) {
        m->sides[i] = ckvc_calloc(n_layers, sizeof *m->sides[i]);
        all = m->sides[i] != NULL;
    }
    if (!all) {
        savings_free(m);
        *out = NULL;
        return ckvc_fail_memory(err, "memo rates", n_layers * sizeof **m->sides);
    }
    m->n_layers = n_layers;
    return CKVC_OK;
}

void savings_free(rollout_savings *m) {
    if (m) {
        for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
            free(m->sides[i]);
        }
        free(m);
    }
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
    const uint64_t here[2] = {v->n_actions, v->n};
    for (int i = 0; i < 2; i++) {
        m->least[i] = m->prompts == 0 || here[i] < m->least[i] ? here[i] : m->least[i];
        m->most[i] = here[i] > m->most[i] ? here[i] : m->most[i];
    }
    m->actions += v->n_actions;
    m->distinct += v->n;
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

/* 0 without actions. */
static double rate(uint64_t actions, uint64_t distinct) {
    return actions ? 1.0 - (double)distinct / (double)actions : 0.0;
}

void savings_text(const rollout_savings *m, ckvc_buffer *out) {
    if (m->prompts == 0) { return; }
    ckvc_buffer_printf(
        out,
        "memo: %.1f%% of the actions cost no rollout; per prompt %.0f actions (%" PRIu64
        " to %" PRIu64 ") in %.0f rollouts (%" PRIu64 " to %" PRIu64 ")\n",
        100 * rate(m->actions, m->distinct), (double)m->actions / (double)m->prompts, m->least[0],
        m->most[0], (double)m->distinct / (double)m->prompts, m->least[1], m->most[1]);
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        const ckvc_side side = (ckvc_side)i;
        const savings_count sum = all_layers(m, side);
        if (sum.actions == 0) { continue; }
        ckvc_buffer_printf(out, "  %s %.1f%% (%.1f%% at the baseline's set), by layer",
                           ckvc_side_name(side), 100 * rate(sum.actions, sum.distinct),
                           100 * (double)sum.at_baseline / (double)sum.actions);
        for (uint32_t l = 0; l < m->n_layers; l++) {
            const savings_count *c = &m->sides[side][l];
            ckvc_buffer_printf(out, " %.0f", 100 * rate(c->actions, c->distinct));
        }
        ckvc_buffer_text(out, "\n");
    }
}

json_t *savings_json(const rollout_savings *m) {
    json_t *o = json_pack("{s:I, s:I, s:I}", "prompts", (json_int_t)m->prompts, "actions",
                          (json_int_t)m->actions, "distinct", (json_int_t)m->distinct);
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
