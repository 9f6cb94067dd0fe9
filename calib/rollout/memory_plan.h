/* How much memory a calibration takes, known before it starts, and how many rollouts go side by
 * side within --memory. */
#pragma once

#include "calib/actions/variants.h"
#include "lib/model/model.h"

typedef struct memory_request {
    const backend *backend;
    const model_shape *shape;
    size_t weights, weights_least; /* float32 copies: all of them, and the least that the backend's
                                      weight_limit can keep to */
    session_limits limits;         /* max_lanes is the plan's to choose */
    const ckvc_table *table;       /* NULL: no rollouts under kept sets (a scan), but for ... */
    int64_t most_lanes;            /* ... who makes these itself, so many side by side at most */
    size_t beside;                 /* what is held for the longest prompt besides */
    variant_extent most;
    bool plain;   /* rollouts one at a time */
    size_t limit; /* what it has to fit into */
} memory_request;

typedef struct memory_plan {
    size_t limit;   /* what it has to fit into */
    size_t weights; /* float32 copies of weights that the file holds in another type */
    size_t prompt;  /* the longest prompt: caches, activations, statistics, the backend's scratch */
    size_t sets;    /* kept sets: baselines, distinct variants, actions; of a demand pass: scores */
    size_t batch;   /* what the rollouts of a batch take beyond that */
    size_t total;
    int64_t lanes; /* rollouts of a batch, its starts included */
} memory_plan;

/* The most lanes that fit and that can be used, at least 2 (1 without a sweep). Where all float32
 * copies do not fit, the least is counted. CKVC_E_MEMORY when the least does not fit. */
ckvc_status memory_plan_make(const memory_request *r, memory_plan *out,
                             ckvc_err *err) CKVC_MUST_CHECK;
/* What buffers and copies of weights have to fit into: a GPU's memory, less where --memory asks for
 * less; else --memory, 0 being three quarters of what is free now. */
size_t memory_plan_limit(const backend *be, size_t memory);
