/* How much memory a calibration takes, known before it starts, and how many rollouts go side by
 * side and how many prompts together within --memory.
 *
 * Where not all copies of weights fit, those that do not stay are made again in every pass through
 * the layers. Prompts that go together share that; rollouts side by side make passes fewer; both
 * take memory from the copies that stay and from each other. Short prompts leave part of a GPU idle
 * (fill_rows): those that go together then have their rows joined. The plan is the one by which a
 * prompt takes least, with copies counted as the backend says (copy_rows). */
#pragma once

#include <jansson.h>

#include "calib/actions/variants.h"
#include "lib/model/model.h"
#include "lib/base/json.h"

typedef struct memory_request {
    const backend *backend;
    const model_shape *shape;
    size_t weights, weights_least; /* float32 copies: all of them, and the least that the backend's
                                      weight_limit can keep to */
    session_limits limits;         /* max_lanes is the plan's to choose */
    const ckvc_table *table;       /* NULL: no rollouts under kept sets (a scan), but for ... */
    int64_t most_lanes;            /* ... who makes these itself, so many side by side at most */
    int64_t n_rollouts;            /* ... and so many of a prompt in all; 0: as most_lanes */
    double steps;                  /* passes beside, a prompt's share of them: decoding */
    int64_t most_prompts;          /* that may go through the layers together; 0: as 1 */
    size_t beside;                 /* what is held for the longest prompt besides */
    size_t once;                   /* and whatever the number of prompts */
    size_t held;                   /* of the backend's memory, by others, whatever the plan */
    variant_extent most;
    bool plain;   /* rollouts one at a time */
    size_t limit; /* what it has to fit into */
} memory_request;

typedef struct memory_plan {
    size_t limit;   /* what it has to fit into */
    size_t weights; /* copies of weights that the file holds in another type, as far as they fit */
    /* the longest prompt, of each that goes together: caches, activations, statistics, and the
     * backend's scratch */
    size_t prompt;
    size_t sets;   /* kept sets: baselines, distinct variants, actions; of a demand pass: scores */
    size_t batch;  /* what the rollouts of a batch take beyond that */
    size_t total;  /* with the request's `held` */
    int64_t lanes; /* rollouts of a batch, its starts included */
    int64_t prompts; /* that go through the layers together; 1 where all copies stay and they fill
                        the device each */
    int64_t joined;  /* prompts, where their rows go through products as one; else 0 */
    size_t copied;   /* bytes of copies that do not stay: made again in a pass through the layers */
    int64_t passes;  /* at most, of prefill and rollouts that are made at once */
} memory_plan;

/* The most lanes that fit and that can be used, at least 2 (1 without a sweep), where all copies
 * fit. CKVC_E_MEMORY when one prompt with the least of both does not fit. */
ckvc_status memory_plan_make(const memory_request *r, memory_plan *out,
                             ckvc_err *err) CKVC_MUST_CHECK;
/* What buffers and copies of weights have to fit into: a GPU's memory, less where --memory asks for
 * less; else --memory, 0 being three quarters of what is free now. */
size_t memory_plan_limit(const backend *be, size_t memory);

/* How much merging equal kept sets saves (paper.md section 4): logged actions against the distinct
 * rollouts behind them.
 *
 * An action's loss is free when it keeps the baseline's set or one that another action asked for.
 * Per side, since a side is logged by itself as well as with the other; a set that both sides ask
 * for counts in both, though it is rolled out once. */
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
/* Adds one prompt, without allocating. A prompt that logged no action is left out. */
void savings_add(rollout_savings *m, const variant_list *v);
/* Lines for people: per prompt, per side and, where layers differ, per layer. */
void savings_text(const rollout_savings *m, ckvc_buffer *out);
/* {"prompts","actions","distinct","head":{"actions":[L],"at_baseline":[L],"distinct":[L]},...}; a
 * side that logged nothing is left out. New reference. */
json_t *savings_json(const rollout_savings *m);
