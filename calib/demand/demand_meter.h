/* A prompt's demand is how many of its entries each head and each layer asks for under each budget.
 * It is measured by what the prompt's continuation attends to, and what the model attends to when
 * it reads the prompt again.
 *
 * y_r is the largest attention that a position gets in the repeat pass, 0 for the first 4
 * positions; y_c the mean attention of the continuation's rows. A head's scores are
 * w y_c ||v|| / sum y_c ||v|| + (1 - w) y_r ||v|| / sum y_r ||v||, v its values and both sums over
 * all heads and positions; where one is 0 everywhere or was not asked for the other stands for
 * both. A layer's are the largest of its heads'. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "calib/rollout/worker.h"
#include "calib/prompt/prompts.h"
#include "lib/model/model.h"

/* The repeat pass: a prompt once more behind an instruction, on the prompt's own full cache, and
 * what it attends to there.
 *
 * Where twice the prompt does not fit the context it is repeated in chunks of 2,048 tokens, each
 * behind the instruction. */
#define REPEAT_TEXT "Repeat the previous context exactly." /* behind a blank line */

/* The longest prompt that a model with this context can repeat behind n_instruction tokens; less
 * than 1 where it is none. */
int64_t repeat_longest(int64_t context, uint32_t n_instruction);

/* How demand is counted. A unit is a (layer, KV head), in order of l, then g; or it is a layer. An
 * entry is a (unit, position). All units compete for N = n_units * B entries, which go to the
 * highest scores after every unit has got its least.
 *
 * Position 0 and the last `recent` are every unit's (forced); with its best others each has at
 * least m = ckvc_head_floor(f, recent, B, T). The rest of N goes by rank over all units. Of equal
 * scores the lower unit comes first, then the later position. */
/* A prompt's entries from the highest score to the lowest. */
typedef struct demand_ranks {
    uint32_t n_units, n_tokens;
    uint32_t *order; /* [n_units * n_tokens] unit * T + (T - 1 - position): as ties are broken */
    uint32_t *other; /* scratch of `order` */
    uint64_t *keys[2];
    uint32_t *seen; /* [n_units] scratch */
} demand_ranks;

#define DEMAND_MAX_ENTRIES UINT32_MAX /* units * tokens */
/* Sized for so many; n_units * n_tokens <= DEMAND_MAX_ENTRIES. */
void demand_ranks_init(demand_ranks *r, uint32_t n_units, uint32_t n_tokens);
void demand_ranks_fini(demand_ranks *r);

/* Ranks score [n_units][n_tokens]: finite, none negative. No more of either than it is sized for.
 */
void demand_rank(demand_ranks *r, const double *score, uint32_t n_units, uint32_t n_tokens);
/* Entries of each unit under a budget of B tokens -> count [n_units]. B >= m, which holds where B >
 * recent; at B >= T every unit has all. */
void demand_count(const demand_ranks *r, uint32_t budget, double f, uint32_t recent,
                  uint32_t *count);

typedef struct demand_options {
    setting setting;            /* budgets, floor, recent; borrows */
    const int32_t *instruction; /* [n_instruction], borrowed; none: no repeat pass */
    uint32_t n_instruction;
} demand_options;

typedef struct demand_meter {
    demand_options o;
    const model_shape *shape;
    int32_t *fed;             /* instruction, chunk; sized for the longest prompt */
    double *y_r, *y_c, *more; /* [L][G][T] */
    demand_ranks ranks;
} demand_meter;

/* Sets in `w` what a worker of these prompts has to hold for a meter: max_targets and the bytes of
 * `beside`. */
void demand_need(const demand_options *o, const calibrate_inputs *in, worker_options *w);
/* For these prompts; CKVC_E_DATA where one has more entries than are counted in 32 bits. */
ckvc_status demand_meter_open(demand_meter *m, const demand_options *o, const calibrate_inputs *in,
                              ckvc_err *err) CKVC_MUST_CHECK;
void demand_meter_close(demand_meter *m);

/* n prompts through the layers together, each with a meter of its own and a worker, the workers of
 * one workers_open: prefill and full-cache loss (w's stats and losses), m->y_r and y_c [L][G][T].
 * No allocation. Each must have a row to look at: an instruction, or a continuation of 2 tokens. */
ckvc_status demand_measure(demand_meter *const *m, worker *const *w, const prompt *const *p,
                           int64_t n, ckvc_err *err) CKVC_MUST_CHECK;
/* Takes the measured targets times the norms of their values, in place. *finite: all are. */
ckvc_status demand_weigh(demand_meter *m, const worker *w, bool *finite,
                         ckvc_err *err) CKVC_MUST_CHECK;
/* What the weighed prompt of T tokens asks for at weight w: heads [nB][L][G], layers [nB][L].
 * Budgets as demand_count wants them. */
void demand_entries(demand_meter *m, uint32_t n_tokens, double w, uint32_t *heads,
                    uint32_t *layers);
