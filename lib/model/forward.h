/* Private to lib/model: the one layer loop, for prefill, continuations and decoding. */
#pragma once

#include "lib/model/model_weights.h"

/* So many rows at a time go through the part of a layer that follows attention. The values of their
 * MLP are still in a processor's caches when they are read again, and few of them exist at a
 * time. */
#define FORWARD_ROWS ((int64_t)1024)

typedef struct activations {   /* the rows are padded to whole tiles */
    be_buf *x;                 /* [rows][M] the residual stream, normed after the loop */
    be_buf *norm;              /* [rows][M] the normed copy that a layer reads */
    be_buf *q, *mix;           /* [rows][H*D] */
    be_buf *k, *v;             /* [rows][G*D] */
    be_buf *gate, *up;         /* [at most FORWARD_ROWS][MLP] */
    be_buf *x_part, *mix_part; /* views of FORWARD_ROWS rows or fewer of x and mix */
    bool beside;               /* all buffers but x belong to another one */
    /* The buffers that hold the rows of several passes, one pass behind the other
     * (activations_behind), or NULL. x to v above are then views of one pass's part. */
    const struct activations *all;
} activations;

/* Creates buffers for x_rows rows of x and `rows` rows of the others, in whole tiles, from the
 * model's backend. Free them with activations_fini. */
void activations_init(activations *act, const model *m, size_t x_rows, size_t rows);
/* For a pass that goes beside that of `first`, with as many rows: it has its own x and uses the
 * other buffers of `first`, as nothing in them lasts from one layer to the next. */
void activations_beside(activations *act, const model *m, size_t rows, const activations *first);
/* For a pass whose rows have a place in `all` among those of other passes: in a prefill they go
 * through a layer's products together. `all` holds the rows of as many passes as go together. */
void activations_behind(activations *act, const model *m, const activations *all);
void activations_fini(activations *act, backend *be);

/* Called after the attention of layer `layer`, with queries and cache in place. q's first row is
 * the position row0. For continuations, q and cache hold the queries and own keys of every lane.
 * The function may read everything and must change nothing. */
typedef ckvc_status (*layer_tap)(void *ctx, int32_t layer, const be_buf *q, int64_t row0,
                                 const be_cache *cache, ckvc_err *err);

/* The rows are positions 0 ... n_rows-1 of a prompt. */
typedef struct prefill_rows {
    const be_cache *cache; /* [L], written by the pass */
    /* The first row whose result is read. The last layer does no more for earlier tiles than to
     * compute their keys and values. */
    int64_t first_row;
    /* Called for the last layer with the queries of all rows, where those of the rows before
     * first_row are not in the tap's; its context is the tap's. NULL: nobody wants them. */
    layer_tap all_queries;
} prefill_rows;

/* The rows of every lane are the positions n_prompt ... after a prompt. */
typedef struct continuation_rows {
    const be_cache *prompt; /* [L], only read */
    const be_cache *fitted; /* [L] its entries as sets of fitted entries have them, only read */
    const float *key_means; /* [L][G][D] for formats that take means out of keys */
    int64_t n_prompt;
    const be_cache *own;       /* one layer's cache for every lane, used by each layer in turn */
    const rollout_lane *lanes; /* [n_lanes], in the order that rollout_job requires */
    int64_t n_lanes;
    be_lane *order; /* [n_lanes] scratch */
    /* tap_attends: the tap takes the place of attention_kept and fills act->mix. ends_at_tap:
     * nothing is computed after the tap of the last layer. */
    bool tap_attends, ends_at_tap;
} continuation_rows;

/* The formats in which a lane's layer is held. */
static inline cache_formats lane_formats(const rollout_lane *lane, int32_t layer) {
    const kept_set *kept = lane->parent >= 0 ? lane->kept : lane->sets ? &lane->sets[layer] : NULL;
    return kept ? kept->formats : (cache_formats){0};
}

typedef enum pass_kind { PASS_PREFILL, PASS_CONTINUATION, PASS_STEP } pass_kind;

typedef struct forward_pass {
    model *m;
    const activations *act;
    const int32_t *tokens; /* [n_rows] on the host, inside the vocabulary */
    int64_t n_rows;
    pass_kind kind;
    union {
        prefill_rows prefill;
        continuation_rows continuation;
        /* [2], indexed by layer_base: one token of each sequence that is decoded; `held` is
         * [L][n_rows] */
        const be_step *step;
    };
    /* For a prefill or a continuation: rope_frequencies for prompt and continuation together; a
     * tap, or NULL. */
    const double *inv_freq;
    layer_tap tap;
    void *tap_ctx;
} forward_pass;

/* LlamaModel.forward (modeling_*.py, see model.h): embed_tokens, the layers in the order of
 * LlamaDecoderLayer.forward, norm. It leaves the normed top rows in act->x: a prefill's from
 * forward_top_row on, a continuation's lane by lane, a step's row by row. The n <=
 * SESSIONS_TOGETHER passes belong to one model; each has an act->x of its own, or all are parts of
 * one act->all. All of them go through a layer before the next layer is acquired, and no pass
 * changes another's bits. */
ckvc_status forward(const forward_pass *passes, int64_t n, ckvc_err *err) CKVC_MUST_CHECK;
/* The position of the first row that act->x holds after a prefill. */
static inline int64_t forward_top_row(const forward_pass *p) {
    return p->prefill.first_row / BE_ROW_TILE * BE_ROW_TILE;
}

/* lm_head of LlamaForCausalLM and the loss of ForCausalLMLoss (loss/loss_utils.py): the backend's
 * head_nll, head_logits and head_greedy with the model's head. The head is acquired for the call
 * only, as it is a model's largest matrix. */
typedef struct head_rows {
    const be_buf *x; /* normed rows */
    be_rows at;
} head_rows;
typedef struct head_losses {
    head_rows rows;
    be_losses out;
    /* receives the distributions of the first lane's rows before `out` is filled; or NULL */
    const be_distributions *keep;
} head_losses;
ckvc_status model_head_nll(model *m, const head_losses *of, int64_t n,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* What follows rows of one lane each, one behind the other: `logits` [rows][V] or, where these are
 * NULL, the likeliest tokens `next` [rows], whose logits stay with the backend. */
ckvc_status model_head_next(model *m, const head_rows *of, int64_t n, float *logits,
                            be_greedy *next, ckvc_err *err) CKVC_MUST_CHECK;

/* Reserves what the backend needs for calls within `most`, with the angles of both rotary bases:
 * inv_freq [2][D/2] are rope_frequencies. */
void model_reserve(model *m, const double *inv_freq, const be_extent *most);

/* The cache of the prompt that a session has prefilled, for a caller that copies what is kept of
 * it. It is borrowed from the session until its next prefill. */
typedef struct prompt_cache {
    model *m;
    const be_cache *layers;    /* [L] */
    const be_cache *fitted;    /* [L] for sets of fitted entries */
    const float *key_means;    /* [L][G][D] once session_key_means was called for this prompt */
    int64_t n_tokens, n_total; /* T; the length that the frequencies are for (prefill_input) */
    const double *inv_freq;    /* rope_frequencies */
} prompt_cache;
prompt_cache session_prompt(const session *s);
