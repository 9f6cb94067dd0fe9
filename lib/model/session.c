/* A session: the buffers of one prompt at a time, and what can be asked of them (prefill, continue,
 * score). */
#include <assert.h>

#include "lib/model/forward.h"
#include "lib/model/window_stats.h"

_Static_assert((int)MODEL_HEAD_DIM_MAX <= (int)CACHE_HEAD_MAX,
               "rows of caches are copied through arrays");

struct session {
    model *m;
    session_limits limits;
    activations act, all; /* all: that of out[0], where limits.joined sessions go together */
    be_cache *prompt;     /* [L] */
    be_cache *fitted;     /* [L] fitted entries; buffers without values unless limits.fitted */
    be_buf *last;         /* [BE_ROW_TILE][M], row 0: the normed top row of the last token */
    /* The loss of a first continuation token, computed from `last`. It is the same in every
     * rollout, so it is computed once. */
    int32_t first_token;
    bool first_known;
    double first_nll;
    be_cache own;          /* one layer's, for every lane */
    be_cache counted;      /* one layer's, for max_counted positions */
    int64_t *counted_rows; /* [2][G] first and n_kept of the be_held over it */
    be_buf **bufs;         /* [n_bufs] its own among the above, without those of act */
    size_t n_bufs, cap_bufs;
    be_lane *order;           /* [max_lanes] */
    be_row_error *row_errors; /* [H][max_continuation - 1], or NULL until first asked for */
    window_stats stats;
    /* watch is out[0]'s; shown points to the one that shows this session's heads */
    head_watch watch, *shown;
    /* [L] The last rows' queries of the current prompt, where limits.watched_later. */
    be_buf **queries;
    double *nll; /* [max_window] */
    /* [max_continuation - 1] where limits.divergence: the distributions under the latest full cache
     * that divergences were asked for */
    be_distributions full;
    double *inv_freq; /* [2][D/2] rope_frequencies of the current sequence */
    float *key_means; /* [L][G][D] session_key_means */
    bool means_known; /* of the current prompt */
    /* the current prompt; n_prompt 0: there is none */
    int64_t n_prompt, n_total;
};

/* ---- sizes ---- */

/* Rows of queries that are stored to show max_watched of them later: whole tiles. */
static int64_t kept_queries(session_limits l) {
    return l.watched_later ? be_padded_rows(l.max_watched) + BE_ROW_TILE : 0;
}

static int64_t max_lanes(session_limits l) { return l.max_lanes > 1 ? l.max_lanes : 1; }

/* Rows of a lane. The last continuation token needs none, as it predicts nothing. */
static int64_t lane_rows(session_limits l) {
    const int64_t rows = l.max_continuation > 1 ? l.max_continuation - 1 : 1;
    return be_padded_rows(rows > l.max_targets ? rows : l.max_targets);
}

/* Values that session.full takes. */
static size_t distribution_values(const model_shape *s, session_limits l) {
    return l.divergence && l.max_continuation > 1
               ? (size_t)(l.max_continuation - 1) * (size_t)s->vocab
               : 0;
}

/* Together with the limits of model_spec.h this keeps the bytes of a session inside 63 bits. */
#define TOKENS_MAX (INT64_C(1) << 30)

static bool fits_address_space(session_limits l) {
    return l.max_prompt <= TOKENS_MAX && l.max_continuation <= TOKENS_MAX &&
           l.max_targets <= TOKENS_MAX && l.max_counted <= l.max_prompt &&
           l.max_watched <= TOKENS_MAX / l.max_prompt && l.max_lanes <= TOKENS_MAX / lane_rows(l);
}

typedef struct buffer_sizes {
    /* of activations: rows of x in a session, of the other buffers, of the MLP */
    size_t rows, all_rows, mlp_rows;
    size_t prompt_cache, own_cache, counted; /* values of one layer's keys (or values) */
} buffer_sizes;

static buffer_sizes sizes_of(const model_shape *s, session_limits l) {
    const size_t lanes = (size_t)(lane_rows(l) * max_lanes(l)),
                 prompt = (size_t)be_padded_rows(l.max_prompt),
                 per_slot = (size_t)s->n_kv_heads * (size_t)s->head_dim,
                 most = prompt > lanes ? prompt : lanes,
                 /* Never one tile: buffers of one tile belong to decoders (backend.h, buf_create),
                  * and the bits of a prompt would depend on whether all prompts of a session are
                  * that short. */
        rows = most > BE_ROW_TILE ? most : 2 * BE_ROW_TILE, joined = prompt * (size_t)l.joined,
                 all = rows > joined ? rows : joined;
    return (buffer_sizes){.rows = rows,
                          .all_rows = all,
                          .mlp_rows = all < FORWARD_ROWS ? all : FORWARD_ROWS,
                          .prompt_cache = prompt * per_slot,
                          .own_cache = lanes * per_slot,
                          .counted = (size_t)be_padded_rows(l.max_counted) * per_slot};
}

size_t session_bytes_beside(const model_shape *s, session_limits l) {
    if (!fits_address_space(l)) { return SIZE_MAX; }
    const buffer_sizes b = sizes_of(s, l);
    const size_t values = distribution_values(s, l) + (b.rows + BE_ROW_TILE) * (size_t)s->width +
                          ((l.fitted ? 4 : 2) * b.prompt_cache +
                           (size_t)(kept_queries(l) * s->n_heads * s->head_dim)) *
                              (size_t)s->n_layers;
    return values * sizeof(float) + window_stats_bytes(s, l.max_prompt);
}

size_t session_bytes(const model_shape *s, session_limits l) {
    if (!fits_address_space(l)) { return SIZE_MAX; }
    const buffer_sizes b = sizes_of(s, l);
    const size_t heads = (size_t)(s->n_heads + s->n_kv_heads) * (size_t)s->head_dim,
                 values = b.all_rows * ((size_t)s->width + 2 * heads) +
                          2 * (b.mlp_rows * (size_t)s->intermediate + b.own_cache + b.counted);
    return values * sizeof(float) + session_bytes_beside(s, l) +
           head_watch_bytes(s, l.max_prompt, l.max_watched);
}

static be_extent extent_of(const model_shape *shape, session_limits l) {
    const buffer_sizes b = sizes_of(shape, l);
    const size_t heads = (size_t)shape->n_heads * (size_t)shape->head_dim,
                 width = (size_t)shape->width, rows = b.all_rows * (width > heads ? width : heads),
                 mlp = b.mlp_rows * (size_t)shape->intermediate;
    return (be_extent){.product_values = rows > mlp ? rows : mlp,
                       .n_prompt = l.max_prompt,
                       .n_rows = lane_rows(l),
                       .n_lanes = l.max_continuation > 1 || l.max_targets > 0 ? max_lanes(l) : 0,
                       .targets = l.max_targets > 0,
                       .vocab = shape->vocab};
}

size_t session_scratch_bytes(const backend *be, const model_shape *shape, session_limits limits) {
    const be_extent most = extent_of(shape, limits);
    const be_attention_shape s = {
        .n_heads = shape->n_heads, .n_kv_heads = shape->n_kv_heads, .head_dim = shape->head_dim};
    return be->ops->scratch_bytes(be, &s, &most);
}

/* ---- life ---- */

static be_buf *new_buf(session *s, size_t values) {
    CKVC_GROW(s->bufs, s->cap_bufs, s->n_bufs + 1);
    return s->bufs[s->n_bufs++] = s->m->be->ops->buf_create(s->m->be, values);
}

static void create_buffers(session *s, const session *first) {
    const buffer_sizes b = sizes_of(s->m->shape, s->limits);
    const model_shape *shape = s->m->shape;
    const size_t queries = (size_t)(kept_queries(s->limits) * shape->n_heads * shape->head_dim);
    s->prompt = ckvc_alloc((size_t)shape->n_layers, sizeof *s->prompt);
    s->fitted = ckvc_alloc((size_t)shape->n_layers, sizeof *s->fitted);
    s->queries = ckvc_alloc((size_t)shape->n_layers, sizeof *s->queries);
    const size_t fitted = s->limits.fitted ? b.prompt_cache : 0;
    for (int32_t l = 0; l < shape->n_layers; l++) {
        s->queries[l] = new_buf(s, queries);
        s->prompt[l] = (be_cache){new_buf(s, b.prompt_cache),
                                  new_buf(s, b.prompt_cache),
                                  be_padded_rows(s->limits.max_prompt),
                                  {0},
                                  {0}};
        s->fitted[l] =
            (be_cache){new_buf(s, fitted), new_buf(s, fitted), s->prompt[l].capacity, {0}, {0}};
    }
    s->last = new_buf(s, BE_ROW_TILE * (size_t)shape->width);
    s->full.p = new_buf(s, distribution_values(shape, s->limits));
    s->full.log_p = ckvc_calloc((size_t)lane_rows(s->limits), sizeof *s->full.log_p);
    if (first) {
        s->own = first->own;
        s->counted = first->counted;
        if (s->limits.joined) {
            activations_behind(&s->act, s->m, &first->all);
        } else {
            activations_beside(&s->act, s->m, b.rows, &first->act);
        }
    } else {
        s->own = (be_cache){
            new_buf(s, b.own_cache), new_buf(s, b.own_cache), lane_rows(s->limits), {0}, {0}};
        s->counted = (be_cache){new_buf(s, b.counted),
                                new_buf(s, b.counted),
                                be_padded_rows(s->limits.max_counted),
                                {0},
                                {0}};
        if (s->limits.joined) {
            activations_init(&s->all, s->m, b.rows * (size_t)s->limits.joined, b.all_rows);
            activations_behind(&s->act, s->m, &s->all);
        } else {
            activations_init(&s->act, s->m, b.rows, b.rows);
        }
    }
}

static session *new_session(model *m, session_limits limits, const session *first) {
    const model_shape *shape = m->shape;
    session *s = ckvc_calloc(1, sizeof *s);
    s->m = m;
    s->limits = limits;
    s->nll = ckvc_calloc((size_t)limits.max_window, sizeof *s->nll);
    s->order = ckvc_calloc((size_t)max_lanes(limits), sizeof *s->order);
    s->inv_freq = ckvc_calloc((size_t)shape->head_dim, sizeof *s->inv_freq);
    s->counted_rows = ckvc_calloc(2 * (size_t)shape->n_kv_heads, sizeof *s->counted_rows);
    s->key_means =
        ckvc_calloc((size_t)shape->n_layers * means_of_layer(shape), sizeof *s->key_means);
    window_stats_init(&s->stats, shape, limits.max_prompt);
    s->shown = first ? first->shown : &s->watch;
    if (!first) { head_watch_init(s->shown, shape, limits.max_prompt, limits.max_watched); }
    create_buffers(s, first);
    rope_frequencies(shape, limits.max_prompt + limits.max_continuation, s->inv_freq);
    return s;
}

ckvc_status sessions_create(model *m, session_limits limits, int64_t n, session **out,
                            ckvc_err *err) {
    assert(!limits.joined || limits.joined == n);
    assert(n >= 1 && n <= SESSIONS_TOGETHER);
    for (int64_t i = 0; i < n; i++) { out[i] = NULL; }
    CKVC_FAIL_IF(limits.max_prompt < 1 || limits.max_continuation < 0 || limits.max_window < 0 ||
                     limits.max_targets < 0 || limits.max_watched < 0 || limits.max_counted < 0,
                 err, CKVC_E_USAGE,
                 "a session needs a prompt length of at least 1 token and no negative length");
    CKVC_FAIL_IF(!fits_address_space(limits), err, CKVC_E_MEMORY,
                 "a session for prompts of %lld tokens does not fit the address space",
                 (long long)limits.max_prompt);
    for (int64_t i = 0; i < n; i++) { out[i] = new_session(m, limits, i ? out[0] : NULL); }
    const be_extent most = extent_of(m->shape, limits);
    model_reserve(m, out[0]->inv_freq, &most);
    ckvc_status st = model_acquire(m, err);
    if (st == CKVC_OK) { st = m->be->ops->sync(m->be, err); }
    for (int64_t i = 0; i < n && st != CKVC_OK; i++) { session_destroy(ckvc_take(&out[i])); }
    return st;
}

void session_destroy(session *s) {
    if (!s) { return; }
    backend *be = s->m->be;
    for (size_t i = 0; i < s->n_bufs; i++) { be->ops->buf_free(be, s->bufs[i]); }
    activations_fini(&s->act, be);
    if (s->all.x) { activations_fini(&s->all, be); }
    CKVC_FREE(s->bufs, s->prompt, s->fitted, s->queries);
    window_stats_fini(&s->stats);
    head_watch_fini(&s->watch);
    CKVC_FREE(s->row_errors, s->nll, s->full.log_p, s->order, s->inv_freq, s->counted_rows,
              s->key_means, s);
}

/* ---- work ---- */

/* Checks that tokens [n] are inside the vocabulary, and that their sequence of n_total tokens fits
 * the context. */
static ckvc_status check_tokens(const session *s, const char *what, const int32_t *tokens,
                                int64_t n, int64_t n_total, ckvc_err *err) {
    const model_shape *shape = s->m->shape;
    const int64_t context = model_shape_context(shape);
    CKVC_FAIL_IF(n_total > context, err, CKVC_E_DATA,
                 "%lld tokens are more than the model's context of %lld (config.json, "
                 "max_position_embeddings)",
                 (long long)n_total, (long long)context);
    for (int64_t i = 0; i < n; i++) {
        CKVC_FAIL_IF(tokens[i] < 0 || tokens[i] >= shape->vocab, err, CKVC_E_DATA,
                     "%s: token %lld is id %d, outside the model's vocabulary of %d", what,
                     (long long)i, tokens[i], shape->vocab);
    }
    return CKVC_OK;
}

/* A pass over rows 0 ... n-1 of a prompt, of which those from first_row on are read. */
static forward_pass pass_over(session *s, const int32_t *tokens, int64_t n, int64_t first_row) {
    return (forward_pass){.m = s->m,
                          .act = &s->act,
                          .tokens = tokens,
                          .n_rows = n,
                          .kind = PASS_PREFILL,
                          .prefill = {.cache = s->prompt, .first_row = first_row},
                          .inv_freq = s->inv_freq};
}

typedef struct stats_ctx {
    session *s;
    const prefill_input *in;
} stats_ctx;

/* The window of a prompt that may have fewer rows than W; rows is n, or n - 1 where the next token
 * must be there. */
static int64_t window_of(const prefill_input *in, int64_t rows) {
    return in->window < rows ? in->window : rows;
}

/* The position of the first query that is stored; a tile begins there. */
static int64_t first_query(const prefill_watcher *watcher, int64_t n) {
    return head_watch_first_row(watcher, n, n) / BE_ROW_TILE * BE_ROW_TILE;
}

/* Turns a row's queries [H][D] back by the angles of its position. */
static void turn_back(const be_attention_shape *s, const double *inv_freq, int64_t position,
                      float *row) {
    const int32_t half = s->head_dim / 2;
    for (int32_t i = 0; i < half; i++) {
        const double angle = (double)position * inv_freq[i], c = cos(angle), sine = sin(angle);
        for (float *q = row + i; q < row + s->n_heads * s->head_dim; q += s->head_dim) {
            const double x = (double)q[0], y = (double)q[half];
            q[0] = (float)(x * c + y * sine);
            q[half] = (float)(y * c - x * sine);
        }
    }
}

/* Takes the wanted queries of a layer. q has the queries of all rows of the pass, rotated; its
 * first row is position row0. */
static ckvc_status take_queries(session *s, const query_rows *of, int32_t layer, const be_buf *q,
                                int64_t row0, ckvc_err *err) {
    backend *be = s->m->be;
    const be_attention_shape attention = layer_attention(s->m, layer);
    const double *inv_freq = s->inv_freq + layer_base(s->m, layer) * attention.head_dim / 2;
    const size_t width = (size_t)attention.n_heads * (size_t)attention.head_dim;
    for (int64_t i = 0; i < of->n; i++) {
        float *out = of->out + (size_t)(i * s->m->shape->n_layers + layer) * width;
        CKVC_TRY(be->ops->read(be, q, of->rows[i] * width, out, width, err));
        turn_back(&attention, inv_freq, row0 + of->rows[i], out);
    }
    return CKVC_OK;
}

static ckvc_status queries_tap(void *ctx, int32_t layer, const be_buf *q, int64_t row0,
                               const be_cache *cache, ckvc_err *err) {
    const stats_ctx *of = ctx;
    (void)cache;
    return take_queries(of->s, &of->in->queries, layer, q, row0, err);
}

static ckvc_status stats_tap(void *ctx, int32_t layer, const be_buf *q, int64_t row0,
                             const be_cache *cache, ckvc_err *err) {
    const prefill_input *in = ((stats_ctx *)ctx)->in;
    session *s = ((stats_ctx *)ctx)->s;
    backend *be = s->m->be;
    const be_attention_shape attention = layer_attention(s->m, layer);
    const be_window window = {in->n, window_of(in, in->n), row0};
    CKVC_TRY(be->ops->window_mass(be, &attention, &window, q, cache, s->stats.mass, err));
    CKVC_TRY(be->ops->value_norms(be, &attention, in->n, cache, s->stats.norm, err));
    window_stats_layer(&s->stats, layer, in->n, window.window);
    if (row0 == 0) { CKVC_TRY(take_queries(s, &in->queries, layer, q, row0, err)); }
    const layer_seen seen = {layer, in->n, row0, q, cache, s->stats.norm};
    if (!in->watcher) { return CKVC_OK; }
    if (!in->watcher->later) { return head_watch_layer(s->shown, s->m, in->watcher, &seen, err); }
    const int64_t first = first_query(in->watcher, in->n);
    be->ops->copy_rows(be, q, first - row0, s->queries[layer], 0, be_padded_rows(in->n - first),
                       (int64_t)attention.n_heads * attention.head_dim);
    return CKVC_OK;
}

ckvc_status session_show(session *s, const prefill_watcher *watcher, ckvc_err *err) {
    assert(s->n_prompt > 0 && watcher->later);
    for (int32_t l = 0; l < s->m->shape->n_layers; l++) {
        const be_attention_shape attention = layer_attention(s->m, l);
        const layer_seen seen = {l,
                                 s->n_prompt,
                                 first_query(watcher, s->n_prompt),
                                 s->queries[l],
                                 &s->prompt[l],
                                 s->stats.norm};
        CKVC_TRY(s->m->be->ops->value_norms(s->m->be, &attention, s->n_prompt, &s->prompt[l],
                                            s->stats.norm, err));
        CKVC_TRY(head_watch_layer(s->shown, s->m, watcher, &seen, err));
    }
    return CKVC_OK;
}

/* Prepares the pass of a prefill, whose tap gets ctx. */
static ckvc_status prefill_pass(const prefill_job *job, stats_ctx *ctx, forward_pass *out,
                                ckvc_err *err) {
    session *s = job->session;
    const prefill_input *in = &job->in;
    const int64_t n = in->n, window = window_of(in, in->n);
    assert(n <= s->limits.max_prompt && window >= 1 && window <= s->limits.max_window &&
           in->n_total >= n);
    s->n_prompt = 0;
    s->first_known = s->means_known = false;
    CKVC_TRY(check_tokens(s, "prompt", in->tokens, n, in->n_total, err));
    rope_frequencies(s->m->shape, in->n_total, s->inv_freq);
    *ctx = (stats_ctx){s, in};
    int64_t first_row = n - window_of(in, in->n - 1) - 1;
    if (in->watcher) {
        assert(in->watcher->n_rows >= 1 && in->watcher->n_rows <= s->limits.max_watched);
        first_row = head_watch_first_row(in->watcher, n, first_row);
    }
    *out = pass_over(s, in->tokens, n, first_row);
    out->tap = stats_tap;
    out->tap_ctx = ctx;
    if (in->queries.n > 0) { out->prefill.all_queries = queries_tap; }
    return CKVC_OK;
}

ckvc_status sessions_prefill(const prefill_job *jobs, int64_t n, ckvc_err *err) {
    model *m = jobs->session->m;
    const backend_ops *op = m->be->ops;
    forward_pass passes[SESSIONS_TOGETHER];
    stats_ctx ctx[SESSIONS_TOGETHER];
    head_losses losses[SESSIONS_TOGETHER];
    assert(n >= 1 && n <= SESSIONS_TOGETHER);
    for (int64_t i = 0; i < n; i++) {
        CKVC_TRY(prefill_pass(&jobs[i], &ctx[i], &passes[i], err));
        session *s = jobs[i].session;
        const prefill_input *in = &jobs[i].in;
        /* the window's tokens are predicted by rows T-W-1 ... T-2 */
        const int64_t window = window_of(in, in->n - 1),
                      row = in->n - window - 1 - forward_top_row(&passes[i]);
        losses[i] = (head_losses){{s->act.x, {row, window, 1}},
                                  {.target = in->tokens + in->n - window, .nll = s->nll},
                                  NULL};
    }
    CKVC_TRY(forward(passes, n, err));
    CKVC_TRY(model_head_nll(m, losses, n, err));
    for (int64_t i = 0; i < n; i++) {
        session *s = jobs[i].session;
        const prefill_input *in = &jobs[i].in;
        op->copy_rows(m->be, s->act.x, in->n - 1 - forward_top_row(&passes[i]), s->last, 0, 1,
                      m->shape->width);
        window_stats_finish(&s->stats, in->n, window_of(in, in->n), in->alpha_kind, jobs[i].stats);
        jobs[i].stats->r_sem = exp(nll_mean(s->nll, window_of(in, in->n - 1)));
        s->n_prompt = in->n;
        s->n_total = in->n_total;
    }
    return op->sync(m->be, err);
}

/* s->counted as a be_held with n positions of every head. */
static be_held held_counted(session *s, int64_t n) {
    const int64_t n_heads = s->m->shape->n_kv_heads;
    for (int64_t g = 0; g < n_heads; g++) {
        s->counted_rows[g] = g * s->counted.capacity;
        s->counted_rows[n_heads + g] = n;
    }
    return (be_held){.k = s->counted.k,
                     .v = s->counted.v,
                     .first = s->counted_rows,
                     .n_kept = s->counted_rows + n_heads};
}

/* Lane 0 has the full cache, lane 1 the sets. */
static ckvc_status error_tap(void *ctx, int32_t layer, const be_buf *q, int64_t row0,
                             const be_cache *own, ckvc_err *err) {
    const rollout_job *b = ctx;
    session *s = b->session;
    backend *be = s->m->be;
    const int64_t n_rows = b->n - 1;
    const be_attention_shape attention = layer_attention(s->m, layer);
    const be_continuation rows = {
        .n_rows = n_rows, .n_prompt = row0, .q = q, .prompt = s->prompt[layer], .own = *own};
    const be_compared lanes = {.full = 0, .other = 1, .kept = &b->lanes[1].sets[layer]};
    CKVC_TRY(be->ops->attention_error(be, &attention, &rows, &lanes, s->row_errors, err));
    layer_error *out = &b->errors[layer];
    *out = (layer_error){0};
    for (int32_t h = 0; h < attention.n_heads; h++) {
        double mass = 0, restricted = 0, actual = 0;
        for (const be_row_error *r = s->row_errors + h * n_rows;
             r < s->row_errors + (h + 1) * n_rows; r++) {
            mass += r->mass * r->mass;
            restricted += r->restricted;
            actual += r->actual;
        }
        out->epsilon += sqrt(mass / (double)n_rows) / attention.n_heads;
        out->restricted += sqrt(restricted) / attention.n_heads;
        out->actual += sqrt(actual) / attention.n_heads;
    }
    return CKVC_OK;
}

/* Gathers the layer's keys and values at the counted positions, as if the prompt had no others. */
static be_cache gather_counted(session *s, int32_t layer, int64_t n_prompt,
                               const kept_set *counted) {
    const be_attention_shape attention = layer_attention(s->m, layer);
    const be_held to = held_counted(s, counted->offsets[1]);
    s->m->be->ops->cache_keep(s->m->be, &attention, &s->prompt[layer], n_prompt, counted, &to);
    return s->counted;
}

static ckvc_status target_tap(void *ctx, int32_t layer, const be_buf *q, int64_t row0,
                              const be_cache *own, ckvc_err *err) {
    const target_job *job = ctx;
    const target_input *in = &job->in;
    session *s = job->session;
    backend *be = s->m->be;
    const be_attention_shape attention = layer_attention(s->m, layer);
    const be_continuation rows = {
        .n_rows = in->n, .n_prompt = row0, .q = q, .prompt = s->prompt[layer], .own = *own};
    const be_target_rows counted = {in->first_row, in->largest};
    CKVC_TRY(take_queries(s, &in->queries, layer, q, row0, err));
    be_attention_shape seen = attention;
    be_continuation counting = rows;
    if (in->counted) {
        seen.window = 0;
        counting.n_prompt = in->counted->offsets[1];
        counting.prompt = gather_counted(s, layer, row0, in->counted);
    }
    const size_t n = (size_t)attention.n_kv_heads * (size_t)counting.n_prompt;
    double *out = job->out + (size_t)layer * n;
    CKVC_TRY(be->ops->attention_targets(be, &seen, &counting, &counted, s->act.mix, out, err));
    if (in->counted) { /* what the next layer's rows are computed from */
        be->ops->attention_kept(be, &attention, &rows, &(be_lane){0}, 1, s->act.mix);
    }
    const int64_t group = attention.n_heads / attention.n_kv_heads;
    const double behind = (double)((in->n - in->first_row) * group);
    for (size_t i = 0; !in->largest && i < n; i++) { out[i] /= behind; }
    return CKVC_OK;
}

static void tap_targets(forward_pass *pass, target_job *job) {
    pass->continuation.tap_attends = true;
    pass->tap = target_tap;
    pass->tap_ctx = job;
}

static ckvc_status check_rollouts(const rollout_job *b, ckvc_err *err) {
    const session *s = b->session;
    const int64_t n = b->n, n_lanes = b->n_lanes;
    assert(s->n_prompt > 0 && n >= 1 && n <= s->limits.max_continuation && n_lanes >= 1 &&
           n_lanes <= max_lanes(s->limits));
    assert(!b->kl || s->limits.divergence);
    assert(!b->errors || cache_is_plain(lane_formats(b->lanes + 1, 0)));
    assert(s->m->shape->rope != ROPE_DYNAMIC ||
           s->n_prompt + n <= s->n_total); /* the prompt's keys were rotated with the base for
                                              n_total tokens */
    for (int64_t i = 0; i < n_lanes; i++) {
        const rollout_lane *lane = &b->lanes[i];
        assert(lane->parent < 0 ? i == 0 || lane[-1].parent < 0
                                : lane->parent < i && b->lanes[lane->parent].parent < 0);
        assert(lane->parent < 0 || lane[-1].parent < 0 || lane[-1].layer <= lane->layer);
        for (int32_t l = 0; l < s->m->shape->n_layers; l++) {
            const cache_formats f = lane_formats(lane, l), first = lane_formats(b->lanes, l);
            assert(f.keys == first.keys && f.values == first.values);
        }
    }
    return check_tokens(s, "continuation", b->continuation, n, s->n_prompt + n, err);
}

/* A pass of n tokens after the prompt, in n_lanes lanes. */
static forward_pass pass_behind(session *s, const int32_t *tokens, int64_t n,
                                const rollout_lane *lanes, int64_t n_lanes) {
    return (forward_pass){.m = s->m,
                          .act = &s->act,
                          .tokens = tokens,
                          .n_rows = n,
                          .kind = PASS_CONTINUATION,
                          .continuation = {.prompt = s->prompt,
                                           .fitted = s->fitted,
                                           .key_means = s->key_means,
                                           .n_prompt = s->n_prompt,
                                           .own = &s->own,
                                           .lanes = lanes,
                                           .n_lanes = n_lanes,
                                           .order = s->order},
                          .inv_freq = s->inv_freq};
}

/* Fills `losses` with what the head must compute, and returns how many parts that has: the loss of
 * the first token, which depends on the prompt's last row alone, unless it is known; and the losses
 * of the others, which leave room at the front for the first ones. */
static int64_t rollout_losses(const rollout_job *b, head_losses losses[2]) {
    session *s = b->session;
    int64_t n = 0;
    s->first_known = s->first_known && s->first_token == b->continuation[0];
    if (!s->first_known) {
        losses[n++] = (head_losses){
            {s->last, {0, 1, 1}}, {.target = b->continuation, .nll = &s->first_nll}, NULL};
    }
    if (b->n > 1) {
        losses[n++] = (head_losses){{s->act.x, {0, b->n - 1, b->n_lanes}},
                                    {.target = b->continuation + 1,
                                     .nll = b->nll + b->n_lanes,
                                     .kl = b->kl ? b->kl + b->n_lanes : NULL,
                                     .full = &s->full},
                                    b->kl && !b->lanes->sets ? &s->full : NULL};
    }
    return n;
}

/* `of` holds numbers of rows [n_lanes][n - 1], n_lanes places after its beginning. This moves them
 * to [n_lanes][n], with `first` in front of each lane's. */
static void with_first(const rollout_job *b, double first, double *of) {
    for (int64_t i = 0; i < b->n_lanes; i++) {
        of[i * b->n] = first;
        memmove(of + i * b->n + 1, of + b->n_lanes + i * (b->n - 1),
                (size_t)(b->n - 1) * sizeof *of);
    }
}

/* Allocates the scratch of error_tap, once. */
static void take_errors(const rollout_job *b) {
    session *s = b->session;
    const size_t rows = (size_t)s->m->shape->n_heads * (size_t)(s->limits.max_continuation - 1);
    assert(b->n_lanes == 2);
    if (!s->row_errors) { s->row_errors = ckvc_alloc(rows, sizeof *s->row_errors); }
}

ckvc_status sessions_rollouts(const rollout_job *jobs, int64_t n, ckvc_err *err) {
    forward_pass passes[SESSIONS_TOGETHER];
    head_losses losses[2 * SESSIONS_TOGETHER];
    target_job seen[SESSIONS_TOGETHER];
    int64_t n_passes = 0, n_losses = 0;
    assert(n >= 1 && n <= SESSIONS_TOGETHER);
    for (int64_t i = 0; i < n; i++) {
        const rollout_job *b = &jobs[i];
        CKVC_TRY(check_rollouts(b, err));
        for (int32_t l = 0; l < b->session->m->shape->n_layers; l++) {
            if (cache_takes_mean(lane_formats(b->lanes, l))) {
                CKVC_TRY(session_key_means(b->session, NULL, err));
            }
        }
        n_losses += rollout_losses(b, losses + n_losses);
        if (b->n <= 1) { continue; }
        forward_pass *pass = &passes[n_passes++];
        *pass = pass_behind(b->session, b->continuation, b->n - 1, b->lanes, b->n_lanes);
        if (b->errors) {
            take_errors(b);
            pass->tap = error_tap;
            pass->tap_ctx = ckvc_unconst(b);
        }
        if (b->targets) {
            assert(b->n_lanes == 1 && !b->lanes->sets && !b->errors);
            seen[i] =
                (target_job){b->session,
                             {.tokens = b->continuation, .n = b->n - 1, .queries = b->queries},
                             b->targets};
            tap_targets(pass, &seen[i]);
        }
    }
    if (n_passes > 0) { CKVC_TRY(forward(passes, n_passes, err)); }
    if (n_losses > 0) { CKVC_TRY(model_head_nll(jobs->session->m, losses, n_losses, err)); }
    for (const rollout_job *b = jobs; b < jobs + n; b++) {
        session *s = b->session;
        s->first_known = true;
        s->first_token = b->continuation[0];
        with_first(b, s->first_nll, b->nll);
        if (b->kl) { with_first(b, 0, b->kl); }
    }
    return CKVC_OK;
}

ckvc_status sessions_targets(target_job *jobs, int64_t n, ckvc_err *err) {
    static const rollout_lane alone = {.parent = -1};
    forward_pass passes[SESSIONS_TOGETHER];
    assert(n >= 1 && n <= SESSIONS_TOGETHER);
    for (int64_t i = 0; i < n; i++) {
        session *s = jobs[i].session;
        const target_input *in = &jobs[i].in;
        assert(s->n_prompt > 0 && in->n >= 1 && in->n <= s->limits.max_targets &&
               in->first_row >= 0 && in->first_row < in->n);
        assert(!in->counted || (in->counted->n_sets == 1 && in->counted->offsets[0] == 0 &&
                                in->counted->offsets[1] <= s->limits.max_counted));
        assert(s->m->shape->rope != ROPE_DYNAMIC || s->n_prompt + in->n <= s->n_total);
        CKVC_TRY(check_tokens(s, "continuation", in->tokens, in->n, s->n_prompt + in->n, err));
        passes[i] = pass_behind(s, in->tokens, in->n, &alone, 1);
        passes[i].continuation.ends_at_tap = true;
        tap_targets(&passes[i], &jobs[i]);
    }
    return forward(passes, n, err);
}

/* Where a head begins in a layer's cache. */
static size_t head_offset(const session *s, int32_t layer, int32_t head) {
    return (size_t)head * (size_t)s->prompt[layer].capacity * (size_t)s->m->shape->head_dim;
}

static size_t head_values(const session *s) {
    return (size_t)s->n_prompt * (size_t)s->m->shape->head_dim;
}

ckvc_status session_read_head(session *s, int32_t layer, int32_t head, float *keys, float *values,
                              ckvc_err *err) {
    backend *be = s->m->be;
    const size_t at = head_offset(s, layer, head), n = head_values(s);
    assert(s->n_prompt > 0);
    CKVC_TRY(be->ops->read(be, s->prompt[layer].k, at, keys, n, err));
    return be->ops->read(be, s->prompt[layer].v, at, values, n, err);
}

void session_write_fitted(session *s, int32_t layer, int32_t head, const float *keys,
                          const float *values) {
    backend *be = s->m->be;
    const size_t at = head_offset(s, layer, head), n = head_values(s);
    assert(s->n_prompt > 0 && s->limits.fitted);
    be->ops->write(be, s->fitted[layer].k, at, keys, n);
    be->ops->write(be, s->fitted[layer].v, at, values, n);
}

void session_each_head(const session *s, void (*fn)(void *ctx, int64_t head, int worker),
                       void *ctx) {
    ckvc_pool_run(s->m->be->pool, s->m->shape->n_kv_heads, fn, ctx);
}

layer_rule session_layer_rule(const session *s, int32_t layer) {
    const be_attention_shape a = layer_attention(s->m, layer);
    return (layer_rule){s->inv_freq + layer_base(s->m, layer) * a.head_dim / 2, (double)a.scale,
                        (uint32_t)a.window};
}

ckvc_status session_value_norms(session *s, double *out, ckvc_err *err) {
    backend *be = s->m->be;
    assert(s->n_prompt > 0);
    for (int32_t l = 0; l < s->m->shape->n_layers; l++) {
        const be_attention_shape attention = layer_attention(s->m, l);
        CKVC_TRY(be->ops->value_norms(be, &attention, s->n_prompt, &s->prompt[l], out, err));
        out += attention.n_kv_heads * s->n_prompt;
    }
    return CKVC_OK;
}

/* Adds a head's keys before their rotation to sum [D]. */
static ckvc_status add_keys(session *s, int32_t layer, int32_t head, double *sum, ckvc_err *err) {
    be_attention_shape alone = layer_attention(s->m, layer);
    alone.n_heads = 1;
    const double *inv_freq = s->inv_freq + layer_base(s->m, layer) * alone.head_dim / 2;
    float key[MODEL_HEAD_DIM_MAX];
    for (int64_t t = 0; t < s->n_prompt; t++) {
        CKVC_TRY(s->m->be->ops->read(s->m->be, s->prompt[layer].k,
                                     head_offset(s, layer, head) + (size_t)(t * alone.head_dim),
                                     key, (size_t)alone.head_dim, err));
        turn_back(&alone, inv_freq, t, key);
        for (int32_t i = 0; i < alone.head_dim; i++) { sum[i] += (double)key[i]; }
    }
    return CKVC_OK;
}

ckvc_status session_key_means(session *s, const float **out, ckvc_err *err) {
    const model_shape *shape = s->m->shape;
    assert(s->n_prompt > 0);
    if (out) { *out = s->key_means; }
    if (s->means_known) { return CKVC_OK; }
    float *mean = s->key_means;
    for (int32_t i = 0; i < shape->n_layers * shape->n_kv_heads; i++) {
        double sum[MODEL_HEAD_DIM_MAX] = {0};
        CKVC_TRY(add_keys(s, i / shape->n_kv_heads, i % shape->n_kv_heads, sum, err));
        for (int32_t d = 0; d < shape->head_dim; d++) {
            *mean++ = (float)(sum[d] / (double)s->n_prompt);
        }
    }
    s->means_known = true;
    return CKVC_OK;
}

const double *session_key_frequencies(const session *s) { return s->inv_freq; }

ckvc_status session_score(session *s, const int32_t *tokens, int64_t n, double *nll,
                          ckvc_err *err) {
    assert(n >= 1 && n <= s->limits.max_prompt);
    s->n_prompt = 0; /* the cache will hold this sequence, but there are no statistics of it */
    CKVC_TRY(check_tokens(s, "sequence", tokens, n, n, err));
    rope_frequencies(s->m->shape, n, s->inv_freq);
    const forward_pass pass = pass_over(s, tokens, n, 0);
    CKVC_TRY(forward(&pass, 1, err));
    head_losses losses = {{s->act.x, {0, n - 1, 1}}, {.target = tokens + 1}, NULL};
    losses.out.nll = nll;
    return model_head_nll(s->m, &losses, 1, err);
}

ckvc_status session_logits(session *s, int64_t position, float *logits, ckvc_err *err) {
    assert(position >= 0 && position < s->limits.max_prompt);
    const head_rows row = {s->act.x, {position, 1, 1}};
    return model_head_next(s->m, &row, 1, logits, NULL, err);
}

ckvc_status sessions_next(session *const *s, int64_t n, float *logits, be_greedy *next,
                          ckvc_err *err) {
    head_rows rows[SESSIONS_TOGETHER];
    for (int64_t i = 0; i < n; i++) {
        assert(s[i]->n_prompt > 0);
        rows[i] = (head_rows){s[i]->last, {0, 1, 1}};
    }
    return model_head_next(s[0]->m, rows, n, logits, next, err);
}

prompt_cache session_prompt(const session *s) {
    assert(s->n_prompt > 0);
    return (prompt_cache){.m = s->m,
                          .layers = s->prompt,
                          .fitted = s->fitted,
                          .key_means = s->key_means,
                          .n_tokens = s->n_prompt,
                          .n_total = s->n_total,
                          .inv_freq = s->inv_freq};
}

double nll_mean(const double *nll, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) { sum += nll[i]; }
    return n > 0 ? sum / (double)n : NAN;
}

ckvc_status nll_check(const double *nll, int64_t n, const char *prompt, int64_t first,
                      ckvc_err *err) {
    for (int64_t i = 0; i < n; i++) {
        CKVC_FAIL_IF(!isfinite(nll[i]), err, CKVC_E_DATA,
                     "prompt \"%s\", position %lld: the token's loss is not finite: the model's "
                     "weights overflow here; take other weights, or leave the prompt out",
                     prompt, (long long)(first + i));
    }
    return CKVC_OK;
}
