/* What a learned ranking is fitted to (docs/method.md, section 5): for one prompt and each KV head,
 * the attention that its positions will get, and the features of a sample of them.
 *
 * The target of a head is y[t] = y_c[t] / sum y_c + y_r[t] / sum y_r (demand_meter.h), where the
 * sums are those of the head. A part that is 0 everywhere, or was not asked for, adds nothing.
 * Features are logged of at most P positions. P/2 of these are the first 4, the last 8 and those
 * with the highest targets (of equal targets the later position). As many more are drawn from the
 * other positions, whatever their targets are. A prompt of P tokens or fewer has all of its
 * positions logged. The sum of the features weighted by the targets is over all T positions. */
#pragma once

#include "calib/demand/demand_meter.h"
#include "formats/shard/shard.h"

typedef struct position_sampler {
    uint32_t positions, n_features; /* P, F */
    double *target;                 /* [L][G][T] */
    /* [L][T] mean over the last rows that features look at, and over all query heads */
    double *layer_attention;
    double *f, *scratch; /* [T][F] */
    /* [L][G][P] the sampled positions of each head, of which there are min(P, T) */
    uint32_t *sample;
    uint32_t *others, *order; /* [T] scratch */
    prefill_watcher watcher;
    const model_shape *shape;
    /* The prompt in hand: */
    const worker *w;
    const prompt *p;
    shard *rows;
    size_t row;
} position_sampler;

/* Returns F, the number of features of version 1 for a model. */
uint32_t score_features(const model_shape *shape);
/* Adds to `w` what workers of these prompts have to hold for a sampler, beside what demand_need
 * asks for. */
void position_sampler_need(uint32_t positions, const calibrate_inputs *in, worker_options *w);
/* Opens a sampler. It must not be moved afterwards, because it points to itself. */
void position_sampler_open(position_sampler *s, uint32_t positions, const calibrate_inputs *in);
void position_sampler_close(position_sampler *s);
/* A prompt that m and w have measured (demand_measure), while w->watcher was the sampler's watcher.
 */
typedef struct measured_prompt {
    const demand_meter *m;
    const worker *w;
    const prompt *p;
} measured_prompt;
/* Writes one prompt into row `row` of the arrays that a score shard has. *finite says whether all
 * that is logged is finite. */
ckvc_status position_sampler_measure(position_sampler *s, const measured_prompt *of, shard *rows,
                                     size_t row, bool *finite, ckvc_err *err) CKVC_MUST_CHECK;
