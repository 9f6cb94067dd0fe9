/* How much merging equal kept sets saves (method.md section 4): logged actions against the distinct
 * rollouts behind them.
 *
 * An action's loss is free when it keeps the baseline's set or one that another action asked for.
 * Per side, since a side is logged by itself as well as with the other; a set that both sides ask
 * for counts in both, though it is rolled out once. */
#pragma once

#include <jansson.h>

#include "calib/actions/variants.h"
#include "lib/base/buffer.h"

typedef struct savings_count {
    uint64_t actions, at_baseline; /* logged; of these, at the baseline's set */
    uint64_t distinct;             /* other sets, each once a prompt */
} savings_count;

/* Over prompts: of one, of all. */
typedef struct savings_range {
    uint64_t least, most, sum;
} savings_range;

typedef struct rollout_savings {
    uint32_t n_layers;
    uint64_t prompts;                      /* with logged actions */
    savings_range actions, distinct;       /* of both sides, each set once */
    savings_count *sides[CKVC_SIDE_COUNT]; /* [L] */
} rollout_savings;

rollout_savings *savings_create(uint32_t n_layers);
void savings_free(rollout_savings *m);
/* One prompt; does not allocate. None logged: left out. */
void savings_add(rollout_savings *m, const variant_list *v);
/* Lines for people: per prompt, per side and, where layers differ, per layer. */
void savings_text(const rollout_savings *m, ckvc_buffer *out);
/* {"prompts","actions","distinct","head":{"actions":[L],"at_baseline":[L],"distinct":[L]},...}; a
 * side that logged nothing is left out. New reference. */
json_t *savings_json(const rollout_savings *m);
