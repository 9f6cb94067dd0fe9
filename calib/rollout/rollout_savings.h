/* How much merging equal kept sets saves (method.md section 4): logged actions against the distinct
 * rollouts behind them.
 *
 * An action's loss is free when it keeps the baseline's set or one that another action asked for.
 * Per side, since a side is logged by itself as well as with the other; a set that both sides ask
 * for counts in both, though it is rolled out once.
 */
#ifndef CKVC_ROLLOUT_SAVINGS_H
#define CKVC_ROLLOUT_SAVINGS_H

#include <jansson.h>
#include <stdint.h>

#include "calib/actions/variants.h"
#include "lib/base/buffer.h"

typedef struct savings_count {
    uint64_t actions, at_baseline; /* logged; of these, at the baseline's set */
    uint64_t distinct;             /* other sets, each once a prompt */
} savings_count;

typedef struct rollout_savings {
    uint32_t n_layers;
    uint64_t prompts; /* with logged actions */
    uint64_t least[2],
        most[2]; /* over prompts: actions, distinct rollouts of both sides (each set once) */
    uint64_t actions, distinct;            /* the same, summed */
    savings_count *sides[CKVC_SIDE_COUNT]; /* [L] */
} rollout_savings;

ckvc_status savings_create(uint32_t n_layers, rollout_savings **out, ckvc_err *err) CKVC_MUST_CHECK;
void savings_free(rollout_savings *m);
void savings_add(rollout_savings *m,
                 const variant_list *v); /* one prompt; does not allocate. None logged: left out. */
/* Lines for people: per prompt, per side and, where layers differ, per layer. */
void savings_text(const rollout_savings *m, ckvc_buffer *out);
/* {"prompts":...,"head":{"actions":[L],"at_baseline":[L],"distinct":[L]},...}; a side that logged
 * nothing is left out. New reference. */
json_t *savings_json(const rollout_savings *m);

#endif
