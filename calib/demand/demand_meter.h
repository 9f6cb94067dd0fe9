/* A prompt's demand: what reading it again attends to, and so how many entries each head and each
 * layer asks for under each budget.
 *
 * y is the largest attention that a position gets in the repeat pass (repeat_pass.h), 0 for the
 * first 4 positions. Without an instruction y is the mean attention of the continuation's rows. A
 * head's scores are y times the norms of its values, a layer's the largest of its heads'. */
#pragma once

#include "calib/demand/demand.h"
#include "calib/demand/repeat_pass.h"
#include "calib/rollout/worker.h"

typedef struct demand_options {
    setting setting;            /* budgets, floor, recent; borrows */
    const int32_t *instruction; /* [n_instruction], borrowed; none: no repeat pass */
    uint32_t n_instruction;
} demand_options;

typedef struct demand_meter {
    demand_options o;
    const model_shape *shape;
    repeat_pass repeat;
    double *y, *more; /* [L][G][T] */
    bool finite;      /* the measured prompt's scores are */
    demand_ranks ranks;
} demand_meter;

/* What a worker of these prompts has to hold for it. */
void demand_need(const demand_options *o, const calibrate_inputs *in, worker_options *w);
/* For these prompts; CKVC_E_DATA where one has more entries than are counted in 32 bits. */
ckvc_status demand_meter_open(demand_meter *m, const demand_options *o, const calibrate_inputs *in,
                              ckvc_err *err) CKVC_MUST_CHECK;
void demand_meter_close(demand_meter *m);

/* One prompt: prefill and full-cache loss (w's stats and losses), targets y -> m->y [L][G][T]. No
 * allocation. What it was made for must have a row to look at: an instruction, or a continuation
 * of 2 tokens. */
ckvc_status demand_targets(demand_meter *m, worker *w, const prompt *p,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* The same, and the scores, of n prompts through the layers together where they are more than one,
 * each with a meter of its own and a worker, the workers of one workers_open. */
ckvc_status demand_measure(demand_meter *const *m, worker *const *w, const prompt *const *p,
                           int64_t n, ckvc_err *err) CKVC_MUST_CHECK;
/* What the measured prompt of T tokens asks for: heads [nB][L][G], layers [nB][L]. It uses up the
 * scores. Budgets as demand_count wants them. */
void demand_entries(demand_meter *m, uint32_t n_tokens, uint32_t *heads, uint32_t *layers);
