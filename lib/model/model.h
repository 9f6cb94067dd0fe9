/* The reference runtime: an open model, and sessions that prefill a prompt and score continuations
 * from kept caches.
 *
 * An open model does not change and may be shared. A session owns the buffers of one prompt at a
 * time (KV cache, activations). It gets them when it is created, so that nothing that is done for
 * each prompt allocates. One thread drives a session; the work is divided among the threads of the
 * backend's pool.
 *
 * A layer computes LlamaDecoderLayer of transformers (models/llama/modeling_llama.py: LlamaRMSNorm,
 * LlamaAttention with repeat_kv and rotate_half, LlamaMLP), with the differences that
 * modeling_mistral.py, modeling_qwen2.py and modeling_qwen3.py have, and those of the
 * modeling_internlm2.py that InternLM2's directories contain. "modeling_*.py" below means these
 * files. */
#pragma once

#include "lib/backend/backend.h"
#include "lib/base/names.h"
#include "lib/model/model_spec.h"

typedef struct model model;
typedef struct session session;

/* Opens a model from a spec (formats/model reads one). The model takes the spec over: it is freed
 * with the model, and also when opening fails. Every tensor of the family's state dict
 * (modeling_*.py; GGUF: TENSOR_NAMES of llama.cpp's gguf-py/gguf/constants.py) must be there with
 * the shape that config.json implies, and must be finite; the pass that checks this also computes
 * the fingerprint. The head is lm_head.weight, or the embedding under tie_word_embeddings. The
 * backend is borrowed and must outlive the model. CKVC_E_DATA names file and tensor. */
ckvc_status model_open(model_spec *spec, backend *be, model **out, ckvc_err *err) CKVC_MUST_CHECK;
void model_close(model *m);
CKVC_AUTO_OF(model, model_close)
const model_shape *model_get_shape(const model *m);
/* These three texts belong to the model. The fingerprint has 64 hex digits (formats.md, "Model
 * fingerprint"), the sketch is that of lib/base/sketch.h, and the name is the last component of the
 * model's path, without .gguf. */
const char *model_fingerprint(const model *m);
const char *model_get_sketch(const model *m);
const char *model_name(const model *m);

typedef struct session_limits {
    int64_t max_prompt;       /* T */
    int64_t max_continuation; /* C; 0: the session only prefills */
    int64_t max_window;       /* W */
    int64_t max_lanes;        /* rollouts side by side in one rollout_job; 0 counts as 1 */
    int64_t max_targets;      /* tokens of a target_job; 0: no target_job */
    int64_t max_counted;      /* positions of a target_job's `counted`; 0: none */
    int64_t max_watched;      /* rows that a prefill_watcher is shown; 0: no watcher */
    bool watched_later;       /* session_show may show them later, too */
    bool fitted;              /* there may be sets of fitted entries (session_write_fitted) */
    bool divergence;          /* rollouts may be compared with a full cache: rollout_job.kl */
    /* How many sessions of one sessions_create send the rows of their prompts through a layer's
     * products together, which takes activations for all of them; 0: each by itself. */
    int64_t joined;
} session_limits;
/* Creates n <= SESSIONS_TOGETHER sessions, out [n], whose prompts go through the layers together.
 * What no prompt needs from one layer to the next belongs to out[0], and the others use it: none of
 * them may be used after out[0] is destroyed. One thread drives all of them. Functions that take
 * several sessions (sessions_prefill and so on) take one layer for all of them before the next one,
 * so that weights that do not stay in memory are copied once. Results have the same bits for any
 * number of sessions.
 *
 * The model is borrowed and must outlive the sessions. Free each with session_destroy. After a
 * failure all of `out` is NULL. CKVC_E_USAGE for limits that are below what they must be,
 * CKVC_E_MEMORY where there is no memory for them. */
#define SESSIONS_TOGETHER 64
ckvc_status sessions_create(model *m, session_limits limits, int64_t n, session **out,
                            ckvc_err *err) CKVC_MUST_CHECK;
void session_destroy(session *s);
CKVC_AUTO_OF(session, session_destroy)
/* The bytes that a session with these limits takes (activations and caches), for --dry-run and
 * inspect; SIZE_MAX where they are too many. To these come the backend's scratch
 * (session_scratch_bytes), and copies of weights where the file's type is not the one that is
 * multiplied (model_converted_bytes). All of it is allocated when sessions_create returns; nothing
 * later allocates. */
size_t session_bytes(const model_shape *shape, session_limits limits);
/* the same for each of out[1] ... */
size_t session_bytes_beside(const model_shape *shape, session_limits limits);
size_t session_scratch_bytes(const backend *be, const model_shape *shape, session_limits limits);
size_t model_converted_bytes(const model *m);
/* The least bytes that copies of weights take, however low the backend's weight_limit is: those of
 * the largest layer and of the head. */
size_t model_converted_least(const model *m);
/* Acquires every weight once, so that what a backend copies is copied before the first pass (and
 * again later, where copies do not stay). The head is the largest and comes first, while there is
 * room beside it. */
ckvc_status model_acquire(model *m, ckvc_err *err) CKVC_MUST_CHECK;

/* The statistics of one prompt (paper.md section 1). The arrays belong to the session and are valid
 * until its next prefill. */
typedef struct prefill_stats {
    int64_t n_tokens, window; /* T, W */
    const double *alpha;      /* [T], mean 1; the paper's, or `visible` */
    const float *alpha_f32;   /* [T] alpha rounded to float32, as the retention operator takes it */
    const float *rho;         /* [L][G][T] */
    const double *rho_sd;     /* [L][G] population standard deviation of rho over t */
    /* [L][G] of the window attention of the head's group: the share that falls on the window's own
     * positions, and the entropy (nats) of its mean over t */
    const double *own_recent, *own_entropy;
    double r_struct; /* in nats, of alpha as it is used */
    double r_sem;    /* perplexity of the window's tokens; NaN for a prompt of one token */
} prefill_stats;

/* What a prefill shows of one KV head of one layer: its H/G query heads, and the keys and values of
 * T positions. The arrays belong to the session and are valid until the watcher returns. */
typedef struct prefill_head {
    int32_t layer, head, group;         /* head: which of the G; group: H/G */
    int64_t n_tokens, head_dim, n_rows; /* T, D, number of rows shown */
    /* [group][n_rows][T] The prompt's last n_rows rows: the softmax over what a row sees, 0
     * elsewhere. */
    const float *attention;
    /* [T][D] as they lie in the cache: keys after the rotation */
    const float *keys, *values;
    const double *value_norms; /* [T] Euclidean norms */
    const float *queries;      /* [group][T][D] after the rotation, or NULL */
    const double *column_sum;  /* [T] sum over all T rows and the group, or NULL */
} prefill_head;

typedef struct prefill_watcher {
    int64_t n_rows; /* 1 ... max_watched; of a shorter prompt all T rows are shown */
    /* These two cost more than the window's rows do: for either, all rows go through the last
     * layer. */
    bool queries, column_sum;
    /* Nothing is shown during the prefill, which stores what session_show needs. This excludes the
     * two above. */
    bool later;
    /* Called from the thread that drives the session, for every head in order, layer by layer. */
    void (*on_head)(void *ctx, const prefill_head *head);
    void *ctx;
} prefill_watcher;

/* Rows of a pass whose queries are wanted, and where they go. A query is given before the rotation:
 * it is the vector whose pairs (i, i + D/2), turned at position t by the angles t * frequency
 * (session_key_frequencies), are what the model multiplies with cached keys. So it contains the
 * family's bias and query norm, and not the scale of the product. The rotated float32 vector is
 * turned back in double, because the values beside it have seen no other. */
typedef struct query_rows {
    const uint32_t *rows; /* [n] counted from the pass's first row */
    int64_t n;            /* 0: none are wanted */
    float *out;           /* [n][L][H][D] */
} query_rows;

typedef struct prefill_input {
    const int32_t *tokens; /* [n] */
    int64_t n;             /* T */
    /* T + C, the seq_len that dynamic rope scaling depends on. transformers
     * (modeling_rope_utils.py, dynamic_frequency_update) would change the base as the sequence
     * grows; paper.md has one base for prompt and continuation. */
    int64_t n_total;
    int64_t window; /* W; for a prompt of T <= W the statistics use the rows that there are */
    ckvc_alpha_kind alpha_kind;
    /* or NULL; the statistics have the same bits with and without one */
    const prefill_watcher *watcher;
    /* of positions; for them the last layer computes the queries of all rows, and nothing else */
    query_rows queries;
} prefill_input;
typedef struct prefill_job {
    session *session;
    prefill_input in;
    prefill_stats *stats;
} prefill_job;
/* Prefills the tokens of each of n jobs and fills its stats. Afterwards each session holds the KV
 * cache of its prompt. The pass is LlamaModel.forward with use_cache on positions 0 ... T-1
 * (modeling_*.py); keys are cached after the rotation, as in past_key_values. CKVC_E_DATA for a
 * token outside the vocabulary and for a prompt beyond the model's context. */
ckvc_status sessions_prefill(const prefill_job *jobs, int64_t n, ckvc_err *err) CKVC_MUST_CHECK;

/* One rollout of a batch. Either it is a start: it begins at layer 0 (parent -1) and has sets of
 * its own in every layer. Or it is a start's rollout with one layer's set changed: it leaves the
 * start at that layer, and has the start's sets in all others. */
typedef struct rollout_lane {
    int32_t parent; /* -1, or the place of its start in the batch */
    int32_t layer;  /* with a parent: the layer whose set differs */
    /* of a start: [L]; NULL: the full cache, in float32. In a layer all lanes have the same
     * formats. */
    const kept_set *sets;
    const kept_set *kept; /* with a parent: the set at `layer` */
} rollout_lane;

/* The quantities of the paper's Proposition on one layer (paper.md section 10). A holds the
 * attention rows of the C-1 continuation queries under the full cache. */
typedef struct layer_error {
    /* Mean over query heads h of sqrt(mean over rows j of m[h][j]^2), where m is the attention mass
     * on prompt positions outside the set. */
    double epsilon;
    /* Mean over h of ||A[h] - A'[h]||_F, where A' has the rows restricted to the kept set and
     * renormalised. */
    double restricted;
    /* The same with the rows of the compressed rollout, whose hidden states have changed too; this
     * is beyond the Proposition. */
    double actual;
} layer_error;

/* Computes the losses (nats per token) of a continuation that is teacher-forced after the prefilled
 * prompt, in n_lanes <= max_lanes rollouts. In layer l a lane attends to its set of the prompt's
 * positions and to the continuation itself (paper.md section 4). One pass goes over the layers.
 * Starts stand first in `lanes`, then the others in the order of their layers. A rollout's losses
 * have the same bits in every batch.
 *
 * The losses are those that transformers computes with a cache from which the dropped positions
 * were removed (as kvpress prunes one) and with position_ids that go on at T: causal among the
 * continuation's tokens, the family's sliding window by position (masking_utils.py,
 * create_sliding_window_causal_mask), ForCausalLMLoss (loss/loss_utils.py: row t-1 predicts token
 * t, in float32) before its mean. */
typedef struct rollout_job {
    session *session;
    const int32_t *continuation; /* [n] */
    int64_t n;
    const rollout_lane *lanes; /* [n_lanes] */
    int64_t n_lanes;
    double *nll; /* [n_lanes][n]; the first loss of a lane comes from the prompt's last row */
    /* [L] or NULL: the errors between two lanes, of which the first has the full cache. It is not
     * written for n = 1. Its scratch [H][C-1] is allocated when it is first used, and stays. */
    layer_error *errors;
    /* [L][G][T] or NULL: what the continuation's rows attend to (sessions_targets, the mean), for a
     * single lane that has the full cache. It is not written for n = 1. */
    double *targets;
    /* [n_lanes][n] or NULL: KL(full || lane) over the vocabulary, in nats, between what the row
     * before each token predicts under the full cache and in the lane. It is 0 for the first token,
     * which the prompt's last row predicts. `full` is the first lane where that lane has the full
     * cache; else it is the latest such lane for this continuation. Needs limits.divergence. */
    double *kl;
    query_rows queries; /* row i is position T + i; only together with `targets` */
} rollout_job;
ckvc_status sessions_rollouts(const rollout_job *jobs, int64_t n, ckvc_err *err) CKVC_MUST_CHECK;

/* Tokens that are fed after the prefilled prompt on its full cache, at the positions T ...: n <=
 * max_targets. */
typedef struct target_input {
    const int32_t *tokens; /* [n] */
    int64_t n;
    int64_t first_row; /* the rows of earlier tokens are fed but not counted */
    bool largest;      /* take the largest over the rows and the group, not the mean */
    /* The prompt's positions that are counted: one set, n <= max_counted; NULL: all T. */
    const kept_set *counted;
    query_rows queries; /* row i is position T + i */
} target_input;
/* Computes what later rows attend to (docs/method.md, section 3). A job's out [L][G][T] is the mean
 * over the rows of tokens first_row ... n-1 and over the group's query heads of A[h][row][t], for
 * prompt positions t. A row's softmax runs over all keys that it sees, the fed tokens' included; A
 * is 0 where a sliding window hides t. With `counted`, out is [L][G][n], the softmax runs over
 * these positions and the fed tokens only, no window hides any, and the rows' hidden states are
 * still those under the full cache. The session stays as it was: losses and targets may be asked
 * for in any order. */
typedef struct target_job {
    session *session;
    target_input in;
    double *out; /* [L][G][T], or [L][G][n] with `counted` */
} target_job;
ckvc_status sessions_targets(target_job *jobs, int64_t n, ckvc_err *err) CKVC_MUST_CHECK;
/* Shows the heads that a prefill with this watcher, whose `later` is set, has put off. Other calls
 * may have come in between. */
ckvc_status session_show(session *s, const prefill_watcher *watcher, ckvc_err *err) CKVC_MUST_CHECK;
/* Reads keys and values [T][D] of one head of the prefilled prompt, keys after the rotation. */
ckvc_status session_read_head(session *s, int32_t layer, int32_t head, float *keys, float *values,
                              ckvc_err *err) CKVC_MUST_CHECK;
/* Stores fitted entries of one head beside its own, keys and values [T][D]. Sets that say `fitted`
 * then stand for these, in rollouts and sequences, until they are written again. Needs
 * limits.fitted. */
void session_write_fitted(session *s, int32_t layer, int32_t head, const float *keys,
                          const float *values);
/* Runs fn(ctx, head, worker) for every KV head, on the threads of the session's backend, and
 * returns when all are done. fn must not call the session. */
void session_each_head(const session *s, void (*fn)(void *ctx, int64_t head, int worker),
                       void *ctx);
/* How a layer attends to the prompt. */
typedef struct layer_rule {
    const double *inv_freq; /* [D/2], valid until the next prefill */
    double scale;           /* of the logits */
    uint32_t window;        /* 0: every position is seen */
} layer_rule;
layer_rule session_layer_rule(const session *s, int32_t layer);
/* Writes the norms ||v|| [L][G][T] of the prefilled prompt's values. */
ckvc_status session_value_norms(session *s, double *out, ckvc_err *err) CKVC_MUST_CHECK;
/* [D/2] The key of position t is rotated by the angles t * frequency (pairs i and i + D/2). Valid
 * until the next prefill. */
const double *session_key_frequencies(const session *s);
/* The mean keys of the current prompt's heads before their rotation by position, [L][G][D], added
 * up in double: what formats with "+mean" take out of keys (cache_format.h). They are computed at
 * the first call for a prompt. *out is the session's until its next prefill; out may be NULL. */
ckvc_status session_key_means(session *s, const float **out, ckvc_err *err) CKVC_MUST_CHECK;

/* Computes the teacher-forced losses of a whole sequence, nll [n-1] (loss/loss_utils.py,
 * ForCausalLMLoss). */
ckvc_status session_score(session *s, const int32_t *tokens, int64_t n, double *nll,
                          ckvc_err *err) CKVC_MUST_CHECK;
/* After session_score: the logits [V] of one of its rows, as LlamaForCausalLM.forward returns them
 * (modeling_llama.py: lm_head over the final norm). */
ckvc_status session_logits(session *s, int64_t position, float *logits,
                           ckvc_err *err) CKVC_MUST_CHECK;

/* After sessions_prefill: the logits of the token behind each prompt, [n][V], or where `logits` is
 * NULL the likeliest such tokens, next [n], whose logits stay with the backend. */
ckvc_status sessions_next(session *const *s, int64_t n, float *logits, be_greedy *next,
                          ckvc_err *err) CKVC_MUST_CHECK;

/* The mean of n losses, added in double in their order: the reduction of paper.md section 3. NaN
 * for n = 0. */
double nll_mean(const double *nll, int64_t n);
/* Returns CKVC_E_DATA where one of n losses is not finite, which happens when weights overflow. The
 * message names the prompt and the token's position; the first loss has the position `first`.
 * Calibrations leave such a prompt out (--max-failures). */
ckvc_status nll_check(const double *nll, int64_t n, const char *prompt, int64_t first,
                      ckvc_err *err) CKVC_MUST_CHECK;
