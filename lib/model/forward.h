/* Inside of lib/model: the one layer loop, for prefill, continuations and decoding. */
#pragma once

#include "lib/model/model_weights.h"

/* Rows that go through what follows attention together: their MLP's values are then still in a
 * processor's caches when they are read again, and few of them exist at a time. */
#define FORWARD_ROWS ((int64_t)1024)

typedef struct activations {   /* rows padded to whole tiles */
    be_buf *x;                 /* [rows][M]: the residual stream; after the loop normed */
    be_buf *norm;              /* [rows][M]: a layer's normed copy of it */
    be_buf *q, *mix;           /* [rows][H*D] */
    be_buf *k, *v;             /* [rows][G*D] */
    be_buf *gate, *up;         /* [at most FORWARD_ROWS][MLP] */
    be_buf *x_part, *mix_part; /* views of FORWARD_ROWS rows or fewer of x and mix */
    bool beside;               /* all but x are another's */
    /* of passes whose rows stand one behind the other (activations_behind), or NULL: what holds all
     * of them; x to v above are views of a pass's part */
    const struct activations *all;
} activations;

/* For x_rows rows of x and `rows` of the others (whole tiles) of the model; buffers are those of
 * `act`, to be freed by _fini. */
void activations_init(activations *act, const model *m, size_t x_rows, size_t rows);
/* For a pass that goes beside those of `first`, with as many rows: only x is not first's, for
 * nothing else lasts from one layer to the next. */
void activations_beside(activations *act, const model *m, size_t rows, const activations *first);
/* For a pass whose rows have a place among those of other passes in `all`: in a prefill these go
 * through a layer's products as one. `all` holds the rows of as many passes as go together. */
void activations_behind(activations *act, const model *m, const activations *all);
void activations_fini(activations *act, backend *be);

/* Called after the attention of layer `layer` with queries and cache in place; q's first row is
 * position row0. Of continuations the queries and own caches of every lane. May read, never changes
 * anything. */
typedef ckvc_status (*layer_tap)(void *ctx, int32_t layer, const be_buf *q, int64_t row0,
                                 const be_cache *cache, ckvc_err *err);

/* The rows are positions 0 ... n_rows-1 of a prompt. */
typedef struct prefill_rows {
    const be_cache *cache; /* [L], written */
    /* What is read of the top rows begins here: the last layer leaves earlier tiles at their keys
     * and values. */
    int64_t first_row;
} prefill_rows;

/* Every lane's rows are positions n_prompt ... behind a prompt. */
typedef struct continuation_rows {
    const be_cache *prompt; /* [L], read */
    int64_t n_prompt;
    const be_cache *own;       /* one layer's, of every lane, used by each layer in turn */
    const rollout_lane *lanes; /* [n_lanes], in the order that rollout_job asks for */
    int64_t n_lanes;
    be_lane *order; /* [n_lanes] scratch */
    /* The tap stands in for attention_kept and fills act->mix; and nothing follows the last one. */
    bool tap_attends, ends_at_tap;
} continuation_rows;

typedef enum pass_kind { PASS_PREFILL, PASS_CONTINUATION, PASS_STEP } pass_kind;

typedef struct forward_pass {
    model *m;
    const activations *act;
    const int32_t *tokens; /* [n_rows], host, inside the vocabulary */
    int64_t n_rows;
    pass_kind kind;
    union {
        prefill_rows prefill;
        continuation_rows continuation;
        /* [2], by layer_base: a token each of sequences that are decoded; `held` is [L][n_rows] */
        const be_step *step;
    };
    /* Of a prefill and a continuation: rope_frequencies of both together; a tap, or NULL. */
    const double *inv_freq;
    layer_tap tap;
    void *tap_ctx;
} forward_pass;

/* LlamaModel.forward (modeling_*.py, see model.h): embed_tokens, the layers in the order of
 * LlamaDecoderLayer.forward, norm. Leaves the normed top rows in act->x: a prefill's from
 * forward_top_row on, a continuation's lane by lane, a step's row by row. n <=
 * SESSIONS_TOGETHER passes of one model, each with an act->x of its own, or all of one act->all:
 * all of them go through a layer before the next one is acquired, and none changes another's bits.
 */
ckvc_status forward(const forward_pass *passes, int64_t n, ckvc_err *err) CKVC_MUST_CHECK;
/* The position of act->x's first row after a prefill. */
static inline int64_t forward_top_row(const forward_pass *p) {
    return p->prefill.first_row / BE_ROW_TILE * BE_ROW_TILE;
}

/* lm_head of LlamaForCausalLM and the loss of ForCausalLMLoss (loss/loss_utils.py): the backend's
 * head_nll, head_logits and head_greedy with the model's head, which is acquired for the call
 * alone: it is a model's largest matrix. */
typedef struct head_rows {
    const be_buf *x; /* normed */
    be_rows at;
} head_rows;
typedef struct head_losses {
    head_rows rows;
    be_losses out;
    const be_distributions *keep; /* filled from the first lane's rows, before `out` is; or NULL */
} head_losses;
ckvc_status model_head_nll(model *m, const head_losses *of, int64_t n,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* [rows][V] of one lane each, one behind the other. */
ckvc_status model_head_logits(model *m, const head_rows *of, int64_t n, float *logits,
                              ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status model_head_greedy(model *m, const head_rows *of, int64_t n, be_greedy *next,
                              ckvc_err *err) CKVC_MUST_CHECK;

/* The cache of the prompt that a session has prefilled, for who takes over what is kept of it.
 * Borrowed from the session until its next prefill. */
typedef struct prompt_cache {
    model *m;
    const be_cache *layers;    /* [L] */
    int64_t n_tokens, n_total; /* T; what the frequencies are for (prefill_input) */
    const double *inv_freq;    /* rope_frequencies */
} prompt_cache;
prompt_cache session_prompt(const session *s);
