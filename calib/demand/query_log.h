/* Query vectors of a prompt, from which the bank of a table is made (docs/method.md, "Query
 * vectors"). They are logged of at most N positions of the prompt and of N positions of its
 * continuation, for all layers and query heads. A vector is what the model multiplies with cached
 * keys, before the rotation (query_rows in lib/model/model.h), rounded to float16.
 *
 * The positions are drawn by the seed and the prompt's id alone: those of the prompt from behind
 * its first 200, or from all where it has fewer than 400 tokens; those of the continuation from its
 * rows, which are all of its tokens but the last. */
#pragma once

#include "calib/rollout/worker.h"
#include "formats/shard/shard.h"

/* One prompt's vectors between its measurement and its log. */
typedef struct query_log {
    const model_shape *shape;
    uint32_t n_each; /* N */
    uint32_t *rows;  /* [SHARD_PARTS][N] the drawn rows of each part, ascending */
    float *vectors;  /* [SHARD_PARTS][N][L][H][D] */
} query_log;

/* Adds to `w` what workers of these prompts have to hold for a log of n_each positions a part. */
void query_log_need(uint32_t n_each, const calibrate_inputs *in, worker_options *w);
void query_log_open(query_log *q, uint32_t n_each, const calibrate_inputs *in);
void query_log_close(query_log *q);
/* Returns the most bytes that the rows of one prompt take in a shard. */
size_t query_log_bytes(const query_log *q);
/* Draws the prompt's positions, and asks the worker for their queries in its next prefill and
 * full-cache loss. Of a prompt that is held out it asks for none. */
void query_log_draw(query_log *q, const prompt *p, worker *w);
/* Appends a row for each position that the worker was asked for, of prompt `at` of `rows`. A
 * position that has a number beyond float16 leaves no row. */
void query_log_add(const query_log *q, const worker *w, size_t at, shard *rows);
