/* A prompt's demand is how many of its entries each head and each layer asks for under each budget.
 * It is measured by what the prompt's continuation attends to, and by what the model attends to
 * when it reads the prompt again.
 *
 * y_r is the largest attention that a position gets in the repeat pass, and 0 for the first 4
 * positions. y_c is the mean attention that it gets from the rows of the continuation. The scores
 * of a head are
 *   w y_c ||v|| / sum y_c ||v|| + (1 - w) y_r ||v|| / sum y_r ||v||
 * where v are its values and both sums are over all heads and positions. Where one of the two is 0
 * everywhere or was not asked for, the other stands for both. The scores of a layer are the largest
 * of its heads' scores, position by position.
 *
 * A third count is for caches in which each head has a set of its own but the heads of a layer have
 * one length. Slot j of a layer then holds the j-th best entry of every one of its heads. Of a head
 * that keeps j entries, d_j is the sum of the scores that it drops. The slot's score is the sum
 * over the layer's heads of d_(j-1)^3 - d_j^3. A layer asks for as many slots as win against those
 * of all layers. The third power makes what a head loses grow faster than what it drops; the first
 * power, which is the sum of the heads' scores, gave the layers of the highest scores too much. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "calib/rollout/worker.h"
#include "calib/prompt/prompts.h"
#include "lib/model/model.h"

/* In the repeat pass the prompt is fed once more behind an instruction, on the prompt's own full
 * cache. What it attends to there is measured.
 *
 * Where twice the prompt does not fit the context, the prompt is repeated in chunks of 2,048
 * tokens, each behind the instruction. */
#define REPEAT_TEXT "Repeat the previous context exactly." /* stands behind a blank line */

/* Returns the length in tokens of the longest prompt that a model with this context can repeat
 * behind n_instruction tokens. The result is less than 1 where the model can repeat none. */
int64_t repeat_longest(int64_t context, uint32_t n_instruction);

/* How demand is counted. A unit is a (layer, KV head), in order of the layer and then of the head;
 * or it is a whole layer, whose entries are its positions or its slots. An entry is a (unit,
 * position). All units compete for N = n_units * B entries. Every unit gets its least first, and
 * the rest goes to the highest scores.
 *
 * Every unit has position 0 and the last `recent` positions, which are forced. Together with the
 * best of its other positions it has at least m = ckvc_head_floor(f, recent, B, T) entries. The
 * rest of N is given out in the order of the scores over all units. Of equal scores the one of the
 * lower unit comes first, and within a unit the later position.
 *
 * demand_ranks holds a prompt's entries from the highest score to the lowest. */
typedef struct demand_ranks {
    uint32_t n_units, n_tokens;
    /* [n_units * n_tokens] each is unit * T + (T - 1 - position), an order that breaks ties */
    uint32_t *order;
    uint32_t *other; /* [n_units * n_tokens] scratch for sorting `order` */
    uint64_t *keys[2];
    uint32_t *seen;  /* [n_units] scratch */
    double *dropped; /* [n_units] scratch */
} demand_ranks;

#define DEMAND_MAX_ENTRIES UINT32_MAX /* the most units * tokens that are ranked */
/* Allocates ranks for so many units and tokens, where n_units * n_tokens <= DEMAND_MAX_ENTRIES. */
void demand_ranks_init(demand_ranks *r, uint32_t n_units, uint32_t n_tokens);
void demand_ranks_fini(demand_ranks *r);

/* Ranks score [n_units][n_tokens], whose numbers are finite and not negative. There must be no more
 * units and tokens than `r` is sized for. */
void demand_rank(demand_ranks *r, const double *score, uint32_t n_units, uint32_t n_tokens);
/* Writes how many entries each unit gets under a budget of B tokens to count [n_units]. B must be
 * at least m, which holds where B > recent. At B >= T every unit has all of its entries. */
void demand_count(const demand_ranks *r, uint32_t budget, double f, uint32_t recent,
                  uint32_t *count);

typedef struct demand_options {
    setting setting;            /* budgets, floor and recent are read; lists are borrowed */
    const int32_t *instruction; /* [n_instruction], borrowed; without any there is no repeat pass */
    uint32_t n_instruction;
} demand_options;

typedef struct demand_meter {
    demand_options o;
    const model_shape *shape;
    int32_t *fed; /* the instruction and a chunk behind it; sized for the longest prompt */
    double *y_r, *y_c, *more; /* [L][G][T] */
    double *slots;            /* [L][T] */
    demand_ranks ranks;
} demand_meter;

/* Sets in `w` what a worker of these prompts has to hold for a meter: max_targets, and the bytes of
 * `beside`. */
void demand_need(const demand_options *o, const calibrate_inputs *in, worker_options *w);
/* Opens a meter for these prompts. The status is CKVC_E_DATA where a prompt has more entries than
 * can be counted in 32 bits. */
ckvc_status demand_meter_open(demand_meter *m, const demand_options *o, const calibrate_inputs *in,
                              ckvc_err *err) CKVC_MUST_CHECK;
void demand_meter_close(demand_meter *m);

/* Takes n prompts through the layers together, each with a meter of its own and a worker of its
 * own. The workers are those of one workers_open. It computes the prefill and the full-cache loss
 * (in w's stats and losses), and m->y_r and m->y_c, [L][G][T]. It does not allocate. Each prompt
 * must have a row that can be looked at: there is an instruction, or its continuation has at least
 * 2 tokens. */
ckvc_status demand_measure(demand_meter *const *m, worker *const *w, const prompt *const *p,
                           int64_t n, ckvc_err *err) CKVC_MUST_CHECK;
/* Multiplies the measured y_r and y_c by the norms of the positions' values, in place. *finite says
 * whether all products are finite. */
ckvc_status demand_weigh(demand_meter *m, const worker *w, bool *finite,
                         ckvc_err *err) CKVC_MUST_CHECK;
/* Counts what the weighed prompt of T tokens asks for where the continuation's attention has weight
 * w: heads [nB][L][G] counts entries of heads, layers [nB][L] positions of layers, and lengths
 * [nB][L] slots of layers. Budgets must be as demand_count wants them. */
void demand_entries(demand_meter *m, uint32_t n_tokens, double w, uint32_t *heads, uint32_t *layers,
                    uint32_t *lengths);
/* Writes the slots' scores of all layers to slots [L][T], from the scores [L * G][T] of which `r`
 * is the ranking. The forced positions' slots come at position 0 and at the last `recent`
 * positions, as demand_count expects, with score 0; the others come between, from the highest score
 * to the lowest. What a head drops is summed from its lowest score on. */
void demand_slots(const demand_ranks *r, const double *score, uint32_t n_heads, uint32_t recent,
                  double *slots);
