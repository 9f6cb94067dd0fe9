/* How much merging equal kept sets saves (method.md section 4): logged actions against the distinct
 * rollouts behind them.
 *
 * An action's loss is free when it keeps the baseline's set or one that another action asked for.
 * Per side, since a side is logged by itself as well as with the other; a set that both sides ask
 * for counts in both, though it is rolled out once.
 */
#ifndef CKVC_MEMO_H
#define CKVC_MEMO_H

#include <stdint.h>

#include "calib/actions/variants.h"
#include "lib/base/buffer.h"

typedef struct memo_count {
    uint64_t actions, at_baseline; /* logged; of these, at the baseline's set */
    uint64_t distinct;             /* other sets, each once a prompt */
} memo_count;

typedef struct memo {
    uint32_t n_layers;
    uint64_t prompts; /* with logged actions */
    uint64_t least[2],
        most[2]; /* over prompts: actions, distinct rollouts of both sides (each set once) */
    uint64_t actions, distinct;         /* the same, summed */
    memo_count *sides[CKVC_SIDE_COUNT]; /* [L] */
} memo;

ckvc_status memo_create(uint32_t n_layers, memo **out, ckvc_err *err) CKVC_MUST_CHECK;
void memo_free(memo *m);
void memo_add(memo *m,
              const variant_list *v); /* one prompt; does not allocate. None logged: left out. */
/* Lines for people: per prompt, per side and, where layers differ, per layer. */
void memo_text(const memo *m, ckvc_buffer *out);
/* "memo":{"prompts":...,"head":{"actions":[L],"at_baseline":[L],"distinct":[L]},...}, without
 * braces around it; a side that logged nothing is left out. */
void memo_json(const memo *m, ckvc_buffer *out);

#endif
