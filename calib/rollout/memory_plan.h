/* How much memory a calibration takes, which is known before it starts; and how many rollouts go
 * side by side and how many prompts go together within --memory.
 *
 * Where not all copies of weights fit, those that do not stay are made again in every pass through
 * the layers. Prompts that go together share this cost, and rollouts side by side make the passes
 * fewer. Both take memory from the copies that stay and from each other. Short prompts leave a part
 * of a GPU idle (fill_rows), so those that go together then have their rows joined. The plan that
 * is chosen is the one by which a prompt costs the least, with copies counted as the backend says
 * (copy_rows). */
#pragma once

#include <jansson.h>

#include "calib/actions/variants.h"
#include "lib/model/model.h"
#include "lib/base/json.h"

typedef struct memory_request {
    const backend *backend;
    const model_shape *shape;
    /* Bytes of float32 copies: of all of them, and the least to which the backend's weight_limit
     * can keep. */
    size_t weights, weights_least;
    session_limits limits; /* the plan chooses max_lanes */
    /* NULL where the calibration makes no rollouts under kept sets (a scan). */
    const ckvc_table *table;
    /* Without a table, for callers that make rollouts themselves: how many go side by side at most.
     */
    int64_t most_lanes;
    /* Likewise, how many rollouts a prompt has in all; 0: as many as most_lanes. */
    int64_t n_rollouts;
    /* Passes through the layers that come on top, such as those of decoding, as one prompt's share
     * of them. */
    double steps;
    int64_t most_prompts; /* how many may go through the layers together; 0 counts as 1 */
    size_t beside;        /* bytes that are held besides for the longest prompt */
    size_t once;          /* bytes that are held besides whatever the number of prompts */
    size_t held;          /* bytes of the backend's memory that others hold, whatever the plan */
    variant_extent most;  /* of the kept sets of a prompt, where there is a table */
    bool plain;           /* rollouts go one at a time */
    size_t limit;         /* bytes into which everything has to fit */
} memory_request;

typedef struct memory_plan {
    size_t limit; /* bytes into which everything has to fit */
    /* bytes of copies of weights that the file holds in another type, as far as they fit */
    size_t weights;
    /* Bytes of the longest prompt, for each prompt that goes together: caches, activations,
     * statistics, and the backend's scratch. */
    size_t prompt;
    /* bytes of kept sets (baselines, distinct variants, actions); in a demand pass, of scores */
    size_t sets;
    size_t batch;  /* bytes that the rollouts of a batch take beyond that */
    size_t total;  /* bytes in all, the request's `held` included */
    int64_t lanes; /* rollouts of a batch, including those from which its variants start */
    /* How many prompts go through the layers together. This is 1 where all copies stay and a prompt
     * fills the device by itself. */
    int64_t prompts;
    int64_t joined; /* how many prompts have their rows joined in the products; 0: none */
    /* Bytes of copies that do not stay: they are made again in every pass through the layers. */
    size_t copied;
    int64_t passes; /* how many passes prefill and rollouts take at most */
} memory_plan;

/* Makes the plan. Where all copies fit, it has as many lanes as fit and can be used, and at least 2
 * (1 without a sweep). The status is CKVC_E_MEMORY when one prompt does not fit with the fewest
 * lanes and the fewest copies. */
ckvc_status memory_plan_make(const memory_request *r, memory_plan *out,
                             ckvc_err *err) CKVC_MUST_CHECK;
/* Returns the bytes into which buffers and copies of weights have to fit. On a GPU this is its
 * memory, or less where --memory asks for less. Elsewhere it is --memory, where 0 stands for three
 * quarters of what is free now. */
size_t memory_plan_limit(const backend *be, size_t memory);

/* How much is saved by merging equal kept sets (paper.md section 4): the logged actions are
 * compared with the distinct rollouts behind them.
 *
 * An action's loss is free when the action keeps the baseline's set, or one that another action
 * asked for. Counts are kept by side, since a side is logged by itself as well as with the other. A
 * set for which both sides ask counts in both, though it is rolled out once. */
typedef struct savings_count {
    uint64_t actions, at_baseline; /* logged actions; how many of them keep the baseline's set */
    uint64_t distinct;             /* other sets, each counted once in a prompt */
} savings_count;

/* Counts of prompts: the least and the most of one prompt, and the sum over all. */
typedef struct savings_range {
    uint64_t least, most, sum;
} savings_range;

typedef struct rollout_savings {
    uint32_t n_layers;
    uint64_t prompts;                      /* how many prompts logged actions */
    savings_range actions, distinct;       /* of both sides together, each set counted once */
    savings_count *sides[CKVC_SIDE_COUNT]; /* [L] */
} rollout_savings;

/* Returns savings of no prompts, which the caller frees with savings_free. */
rollout_savings *savings_create(uint32_t n_layers);
void savings_free(rollout_savings *m);
/* Adds one prompt, without allocating. A prompt that logged no action is left out. */
void savings_add(rollout_savings *m, const variant_list *v);
/* Writes lines for people: per prompt, per side and, where layers differ, per layer. */
void savings_text(const rollout_savings *m, ckvc_buffer *out);
/* Returns
 * {"prompts","actions","distinct","head":{"actions":[L],"at_baseline":[L],"distinct":[L]},...}, a
 * new reference. A side that logged nothing is left out. */
json_t *savings_json(const rollout_savings *m);
