/* The reference runtime: an open model, and sessions that prefill a prompt and score
 * continuations from kept caches.
 *
 * A model is immutable once open and shared; a session owns the buffers of one prompt at a time (KV
 * cache, activations), sized when it is created, so that nothing on the per-prompt path allocates.
 * One thread drives a session; the work inside is cut over the backend's pool.
 *
 * What a layer computes is LlamaDecoderLayer of transformers (models/llama/modeling_llama.py:
 * LlamaRMSNorm, LlamaAttention with repeat_kv and rotate_half, LlamaMLP) with the differences of
 * modeling_mistral.py, modeling_qwen2.py and modeling_qwen3.py beside it and of the
 * modeling_internlm2.py that InternLM2's directories carry; "modeling_*.py" below means these. */
#pragma once

#include "lib/backend/backend.h"
#include "lib/base/names.h"
#include "lib/model/model_spec.h"

typedef struct model model;
typedef struct session session;

/* Opens a model from a spec (formats/model reads one), which it takes over: it is freed with the
 * model, and when opening fails. Every tensor of the family's state dict (modeling_*.py; GGUF:
 * TENSOR_NAMES of llama.cpp's gguf-py/gguf/constants.py) must be there with the shape that
 * config.json asks for, and finite (the same pass computes the fingerprint). The head is
 * lm_head.weight, or the embedding under tie_word_embeddings. The backend is borrowed and must
 * outlive the model. */
ckvc_status model_open(model_spec *spec, backend *be, model **out, ckvc_err *err) CKVC_MUST_CHECK;
void model_close(model *m);
CKVC_AUTO_OF(model, model_close)
const model_shape *model_get_shape(const model *m);
const char *model_fingerprint(const model *m); /* 64 hex digits, formats.md "Model fingerprint" */
const char *model_get_sketch(const model *m);  /* lib/base/sketch.h */
const char *model_name(const model *m);        /* last component of the path, without .gguf */

typedef struct session_limits {
    int64_t max_prompt;       /* T */
    int64_t max_continuation; /* C; 0: prefill only */
    int64_t max_window;       /* W */
    int64_t max_lanes;        /* rollouts side by side in a rollout_job; 0: as 1 */
    int64_t max_targets;      /* tokens of a target_job; 0: there is none */
    int64_t max_counted;      /* positions of its `counted`; 0: there are none */
    int64_t max_watched;      /* rows that a prefill_watcher is shown; 0: nobody watches */
    bool watched_later;       /* by session_show, too */
    bool divergence;          /* rollouts are held against a full cache: rollout_job.kl */
    /* sessions of one sessions_create whose prompts' rows go through a layer's products as one,
     * which takes activations for all; 0: each by itself */
    int64_t joined;
} session_limits;
/* n <= SESSIONS_TOGETHER sessions -> out [n], for prompts that go through the layers together: what
 * no prompt needs from one layer to the next is out[0]'s and the others work in it, until it is
 * destroyed. One thread drives all of them. What is asked of several (sessions_prefill and so on)
 * goes through a layer for all of them before the next one is taken: weights that take turns in
 * memory are copied once. Results are the same bits for any number. */
#define SESSIONS_TOGETHER 64
ckvc_status sessions_create(model *m, session_limits limits, int64_t n, session **out,
                            ckvc_err *err) CKVC_MUST_CHECK;
void session_destroy(session *s);
CKVC_AUTO_OF(session, session_destroy)
/* Bytes that a session of these limits takes (activations, caches), for --dry-run and inspect.
 * Besides them come the backend's scratch (session_scratch_bytes) and copies of weights where the
 * file has another type than is multiplied (model_converted_bytes). All of it is there when
 * sessions_create returns: nothing after it allocates. */
size_t session_bytes(const model_shape *shape, session_limits limits);
size_t session_bytes_beside(const model_shape *shape, session_limits limits); /* of out[1] ... */
size_t session_scratch_bytes(const backend *be, const model_shape *shape, session_limits limits);
size_t model_converted_bytes(const model *m);
/* However low the backend's weight_limit: the copies of the largest layer and of the head. */
size_t model_converted_least(const model *m);
/* Acquires every weight once: what a backend copies is copied before the first pass, and again
 * where copies do not stay. The head, the largest, comes first, while there is room beside it. */
ckvc_status model_acquire(model *m, ckvc_err *err) CKVC_MUST_CHECK;

/* Statistics of one prompt (paper.md section 1). Arrays are the session's, until its next prefill.
 */
typedef struct prefill_stats {
    int64_t n_tokens, window; /* T, W */
    const double *alpha;      /* [T], mean 1; as the paper has it, or `visible` */
    const float *alpha_f32;   /* [T], alpha rounded: what the retention operator takes */
    const float *rho;         /* [L][G][T] */
    const double *rho_sd;     /* [L][G] population standard deviation of rho over t */
    /* [L][G], of the head group's window attention: the share that falls on the window's positions,
     * and the entropy (nats) of its mean over t */
    const double *own_recent, *own_entropy;
    double r_struct; /* nats, of alpha as used */
    double r_sem;    /* perplexity of the window's tokens; of one token NaN */
} prefill_stats;

/* What a prefill shows of one KV head of one layer: H/G query heads on the keys and values of T
 * positions. The arrays are the session's, until the watcher returns. */
typedef struct prefill_head {
    int32_t layer, head, group;         /* head: which of the G; group: H/G */
    int64_t n_tokens, head_dim, n_rows; /* T, D, rows shown */
    const float *attention;             /* [group][n_rows][T]: the prompt's last n_rows rows, */
                                        /* softmax over what a row sees, 0 elsewhere */
    const float *keys, *values;         /* [T][D], as cached: keys after the rotation */
    const double *value_norms;          /* [T], Euclidean */
    const float *queries;               /* [group][T][D] after the rotation, or NULL */
    const double *column_sum;           /* [T] of all T rows' attention and the group, or NULL */
} prefill_head;

typedef struct prefill_watcher {
    int64_t n_rows; /* 1 ... max_watched; of a shorter prompt all T rows are shown */
    /* What costs more than the window: the last layer goes through all rows for either. */
    bool queries, column_sum;
    /* Not in the prefill, which keeps what session_show needs: neither of the two above. */
    bool later;
    /* From the thread that drives the session, heads of a layer in order, layers in order. */
    void (*on_head)(void *ctx, const prefill_head *head);
    void *ctx;
} prefill_watcher;

typedef struct prefill_input {
    const int32_t *tokens; /* [n] */
    int64_t n;             /* T */
    /* T + C, the seq_len that dynamic rope scaling looks at (modeling_rope_utils.py,
     * dynamic_frequency_update, would change the base as the sequence grows; paper.md has one for
     * both) */
    int64_t n_total;
    int64_t window; /* W; of a prompt of T <= W the statistics are over what rows there are */
    ckvc_alpha_kind alpha_kind;
    const prefill_watcher *watcher; /* or NULL; statistics are the same bits with one */
} prefill_input;
typedef struct prefill_job {
    session *session;
    prefill_input in;
    prefill_stats *stats;
} prefill_job;
/* Prefills each job's tokens and fills its stats. After it the session holds the prompt's KV cache.
 * The pass is LlamaModel.forward with use_cache on positions 0 ... T-1 (modeling_*.py), keys cached
 * after the rotation, as past_key_values has them. */
ckvc_status sessions_prefill(const prefill_job *jobs, int64_t n, ckvc_err *err) CKVC_MUST_CHECK;

/* One rollout of a batch. Either it starts at layer 0 (parent -1) under sets of its own in every
 * layer, or it is a start's rollout with one layer's set changed: it leaves the start at that layer
 * and is under the start's sets above. */
typedef struct rollout_lane {
    int32_t parent;       /* -1, or a start's place in the batch */
    int32_t layer;        /* with a parent: the layer whose set is its own */
    const kept_set *sets; /* a start's [L]; NULL: the full cache */
    const kept_set *kept; /* with a parent: what it keeps at `layer` */
} rollout_lane;

/* The Proposition of the paper on one layer (paper.md section 10): A the rows of the C-1
 * continuation queries under the full cache. */
typedef struct layer_error {
    /* mean over query heads h of sqrt(mean over rows j of m[h][j]^2), m the mass on prompt
     * positions outside the set */
    double epsilon;
    /* mean over h of ||A[h] - A'[h]||_F, A' the rows restricted to the kept set and renormalised */
    double restricted;
    /* the same with the rows of the compressed rollout, whose hidden states have moved too: beyond
     * the Proposition */
    double actual;
} layer_error;

/* Losses of a continuation (nats per token) teacher-forced after the prefilled prompt, in n_lanes
 * <= max_lanes rollouts: layer l attends to a lane's set of the prompt's positions and to the
 * continuation itself (paper.md section 4). One pass over the layers, starts first, the others in
 * order of their layers; a rollout's losses are the same bits in any batch. They are what
 * transformers gives with a cache whose dropped positions are gone (as kvpress prunes one) and
 * position_ids that go on at T: causal among themselves, the family's sliding window by position
 * (masking_utils.py, create_sliding_window_causal_mask), ForCausalLMLoss (loss/loss_utils.py: row
 * t-1 predicts token t, in float32) before its mean. */
typedef struct rollout_job {
    session *session;
    const int32_t *continuation; /* [n] */
    int64_t n;
    const rollout_lane *lanes; /* [n_lanes] */
    int64_t n_lanes;
    double *nll; /* [n_lanes][n]; the first comes from the prompt's last row */
    /* [L] or NULL: of two lanes, the first of which has the full cache; left alone for n 1. Their
     * scratch [H][C-1] is there from the first use on. */
    layer_error *errors;
    /* [L][G][T] or NULL: what its rows attend to (sessions_targets, the mean), of one lane that has
     * the full cache; left alone for n 1. */
    double *targets;
    /* [n_lanes][n] or NULL: KL(full || lane), nats, over the vocabulary, of what the row before
     * each token predicts; of the first, which the prompt's last row does, 0. `full` is the first
     * lane where that has the full cache, else what it was last so for this continuation. Wants
     * limits.divergence. */
    double *kl;
} rollout_job;
ckvc_status sessions_rollouts(const rollout_job *jobs, int64_t n, ckvc_err *err) CKVC_MUST_CHECK;

/* Tokens that are fed after the prefilled prompt on its full cache, at positions T ...: n <=
 * max_targets. */
typedef struct target_input {
    const int32_t *tokens; /* [n] */
    int64_t n;
    int64_t first_row; /* rows of earlier tokens are fed and not counted */
    bool largest;      /* the largest over the rows and the group in place of the mean */
    /* The prompt's positions that are counted, n <= max_counted of them in one set; NULL: all T. */
    const kept_set *counted;
} target_input;
/* What later rows attend to (docs/method.md, section 3): a job's out [L][G][T] = mean over the rows
 * of tokens first_row ... n-1 and the group's query heads of A[h][row][t] for prompt positions t. A
 * row's softmax is over all keys that it sees, the fed tokens' among them; 0 where a sliding window
 * hides t. With `counted` out is [L][G][n], the softmax over these positions and the fed tokens
 * alone, no window hides any, and the rows' hidden states are what the full cache makes of them.
 * The session is as before it: losses and targets may follow in any order. */
typedef struct target_job {
    session *session;
    target_input in;
    double *out; /* [L][G][T], or [L][G][n] of `counted` */
} target_job;
ckvc_status sessions_targets(target_job *jobs, int64_t n, ckvc_err *err) CKVC_MUST_CHECK;
/* What a prefill with this watcher, who is `later`, has put off: its heads, after whatever has
 * followed it. */
ckvc_status session_show(session *s, const prefill_watcher *watcher, ckvc_err *err) CKVC_MUST_CHECK;
/* ||v|| [L][G][T] of the prefilled prompt. */
ckvc_status session_value_norms(session *s, double *out, ckvc_err *err) CKVC_MUST_CHECK;
/* [D/2]: the key of position t is rotated by the angles t * frequency (pairs i and i + D/2), until
 * the next prefill. */
const double *session_key_frequencies(const session *s);

/* Teacher-forced losses of a whole sequence: nll [n-1] (loss/loss_utils.py, ForCausalLMLoss). */
ckvc_status session_score(session *s, const int32_t *tokens, int64_t n, double *nll,
                          ckvc_err *err) CKVC_MUST_CHECK;
/* After session_score: the logits of one of its rows, [V], as LlamaForCausalLM.forward returns them
 * (modeling_llama.py: lm_head over the final norm). */
ckvc_status session_logits(session *s, int64_t position, float *logits,
                           ckvc_err *err) CKVC_MUST_CHECK;

/* After sessions_prefill: the logits of the token behind each prompt, [n][V]; or the likeliest such
 * tokens, next [n], whose logits stay with the backend. */
ckvc_status sessions_next_logits(session *const *s, int64_t n, float *logits,
                                 ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status sessions_next_greedy(session *const *s, int64_t n, be_greedy *next,
                                 ckvc_err *err) CKVC_MUST_CHECK;

/* Mean of n losses, accumulated in double in order: the reduction of paper.md section 3. */
double nll_mean(const double *nll, int64_t n);
/* CKVC_E_DATA where one of n losses is not finite, as of weights that overflow; names the prompt,
 * and the position of the token, that of the first one being `first`. Calibrations leave such a
 * prompt out (--max-failures). */
ckvc_status nll_check(const double *nll, int64_t n, const char *prompt, int64_t first,
                      ckvc_err *err) CKVC_MUST_CHECK;
