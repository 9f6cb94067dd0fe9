/* What a learned ranking is fitted to (docs/method.md, section 5): of one prompt and each KV head
 * the attention that its positions will get, and features of a sample of them.
 *
 * The target of a head is y[t] = y_c[t] / sum y_c + y_r[t] / sum y_r (demand_meter.h), the sums of
 * the head; what is 0 everywhere, or was not asked for, adds nothing. Of P positions at most
 * features are logged: the first 4, the last 8 and those with the highest targets (of equal ones
 * the later), P/2 together, and as many of the others, drawn whatever their target is. A prompt of
 * P tokens or fewer has all. The sum of features weighted by the targets is of all T. */
#pragma once

#include "calib/demand/demand_meter.h"
#include "formats/shard/shard.h"

typedef struct position_sampler {
    uint32_t positions, n_features; /* P, F */
    double *target;                 /* [L][G][T] */
    double *layer_attention;        /* [L][T] mean over the last rows and all query heads */
    double *f, *scratch;            /* [T][F] */
    uint32_t *sample;               /* [L][G][P] positions, min(P, T) of them */
    uint32_t *others, *order;       /* [T] scratch */
    prefill_watcher watcher;
    const model_shape *shape;
    /* the prompt in hand */
    const worker *w;
    const prompt *p;
    shard *rows;
    size_t row;
} position_sampler;

/* F of version 1 for a model. */
uint32_t score_features(const model_shape *shape);
/* What workers of these prompts have to hold for it, beside demand_need's. */
void position_sampler_need(uint32_t positions, const calibrate_inputs *in, worker_options *w);
/* It stays where it was opened. */
void position_sampler_open(position_sampler *s, uint32_t positions, const calibrate_inputs *in);
void position_sampler_close(position_sampler *s);
/* A prompt that m and w have measured (demand_measure), s->watcher being the worker's. */
typedef struct measured_prompt {
    const demand_meter *m;
    const worker *w;
    const prompt *p;
} measured_prompt;
/* One prompt into row `row` of the arrays that a score shard has. *finite: all that is logged is.
 */
ckvc_status position_sampler_measure(position_sampler *s, const measured_prompt *of, shard *rows,
                                     size_t row, bool *finite, ckvc_err *err) CKVC_MUST_CHECK;
