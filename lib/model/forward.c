/* The layer loop. L times it computes x -> x + O(attention(rope(QKV(norm x)))) and then x -> x +
 * down(silu(gate) * up)(norm x); the final norm comes last. Some families also norm queries and
 * keys, or norm what is added to x.
 *
 * One loop serves every family, and prompts, any number of continuations, and sequences that are
 * decoded one token at a time. These differ in the cache that the rows' keys go to, and in the keys
 * that the rows look at. In the last layer a prefill goes on with only those rows whose results are
 * read.
 *
 * Continuations are lanes of one batch (paper.md section 4). A lane that differs from another in
 * one layer's kept set equals it up to that layer, so it joins there: it takes over the other's
 * hidden state, queries, keys and values, attends to its own set, and from then on goes along with
 * the batch. Lanes lie in the order in which they join, so that the active rows are always the
 * first ones.
 *
 * Passes of several prompts go through one layer, one after the other, before the next layer is
 * taken: weights that do not stay in memory are then copied once for all of them. The rows of short
 * prompts can stand one behind the other, so that products have enough rows to fill a GPU. Each
 * prompt still attends by itself, and it goes through the last layer by itself. */
#include <assert.h>

#include "lib/base/progress.h"
#include "lib/model/forward.h"

void activations_init(activations *act, const model *m, size_t x_rows, size_t rows) {
    const model_shape *s = m->shape;
    const size_t width = (size_t)s->width, q = (size_t)s->n_heads * (size_t)s->head_dim,
                 kv = (size_t)s->n_kv_heads * (size_t)s->head_dim,
                 mlp = (rows < FORWARD_ROWS ? rows : FORWARD_ROWS) * (size_t)s->intermediate;
    be_buf *(*const create)(backend *, size_t) = m->be->ops->buf_create;
    *act = (activations){.x = create(m->be, x_rows * width),
                         .norm = create(m->be, rows * width),
                         .q = create(m->be, rows * q),
                         .mix = create(m->be, rows * q),
                         .k = create(m->be, rows * kv),
                         .v = create(m->be, rows * kv),
                         .gate = create(m->be, mlp),
                         .up = create(m->be, mlp),
                         .x_part = create(m->be, 0),
                         .mix_part = create(m->be, 0)};
}

void activations_beside(activations *act, const model *m, size_t rows, const activations *first) {
    *act = *first;
    act->x = m->be->ops->buf_create(m->be, rows * (size_t)m->shape->width);
    act->beside = true;
}

void activations_behind(activations *act, const model *m, const activations *all) {
    be_buf **const views[] = {&act->x, &act->norm, &act->q, &act->mix, &act->k, &act->v};
    *act = *all;
    act->all = all;
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        *views[i] = m->be->ops->buf_create(m->be, 0);
    }
}

void activations_fini(activations *act, backend *be) {
    be_buf *const all[] = {act->x, act->norm, act->q,  act->mix,    act->k,
                           act->v, act->gate, act->up, act->x_part, act->mix_part};
    const size_t n = act->all ? 6 : act->beside ? 1 : sizeof all / sizeof *all;
    for (size_t i = 0; i < n; i++) { be->ops->buf_free(be, all[i]); }
    *act = (activations){0};
}

void model_reserve(model *m, const double *inv_freq, const be_extent *most) {
    const be_attention_shape attention = layer_attention(m, 0);
    m->be->ops->reserve(m->be, &attention, inv_freq, most);
    if (m->shape->rope_local_theta > 0.0) {
        m->be->ops->reserve(m->be, &attention, inv_freq + m->shape->head_dim / 2, most);
    }
}

/* How far a pass has come: the active rows, the active lanes, the position of the first row. */
typedef struct progress {
    be_product_rows rows;
    int64_t n_lanes, row0;
} progress;

/* Computes queries, keys or values y of normed rows. Queries and keys are normed head by head where
 * the family does so (Qwen3Attention.forward). */
static void project(model *m, int32_t il, layer_part part, const be_buf *norm,
                    const be_product_rows *rows, be_buf *y) {
    be_weight *const *w = m->layers[il], *bias = w[W_Q_BIAS + (part - W_Q)],
                     *by = part == W_V ? NULL : w[part == W_Q ? W_Q_NORM : W_K_NORM];
    const int64_t heads = part == W_Q ? m->shape->n_heads : m->shape->n_kv_heads;
    m->be->ops->matmul(m->be, w[part], bias, norm, rows, false, y);
    if (by) {
        m->be->ops->rmsnorm(m->be, y, rows->n * heads, by, (float)m->shape->rms_eps, false, y);
    }
}

static const double *frequencies(const forward_pass *p, int32_t il) {
    return p->inv_freq + layer_base(p->m, il) * p->m->shape->head_dim / 2;
}

static void rotate_queries(const forward_pass *p, int32_t il, const progress *at) {
    const be_attention_shape s = layer_attention(p->m, il);
    const be_rows rows = {at->row0, at->rows.n, 1};
    p->m->be->ops->rope(p->m->be, &s, frequencies(p, il), &rows, p->act->q);
}

/* Attention of a prompt's active rows, whose queries are computed and whose keys are cached. */
static ckvc_status prompt_attends(const forward_pass *p, int32_t il, const progress *at,
                                  ckvc_err *err) {
    model *m = p->m;
    const activations *a = p->act;
    const be_cache *cache = &p->prefill.cache[il];
    const be_attention_shape s = layer_attention(m, il);
    rotate_queries(p, il, at);
    m->be->ops->attention_causal(m->be, &s, at->row0, at->rows.n, a->q, cache, a->mix);
    return p->tap ? p->tap(p->tap_ctx, il, a->q, at->row0, cache, err) : CKVC_OK;
}

static void cache_prompt(const forward_pass *p, int32_t il) {
    const be_attention_shape s = layer_attention(p->m, il);
    const be_rows rows = {.n_rows = p->n_rows, .n_lanes = 1};
    p->m->be->ops->cache_rows(p->m->be, &s, frequencies(p, il), &rows, p->act->k, p->act->v,
                              &p->prefill.cache[il]);
}

static ckvc_status prompt_attention(const forward_pass *p, int32_t il, progress *at,
                                    ckvc_err *err) {
    model *m = p->m;
    const backend_ops *op = m->be->ops;
    const activations *a = p->act;

    cache_prompt(p, il);
    if (il == m->shape->n_layers - 1 && forward_top_row(p) > 0) {
        if (p->prefill.all_queries) {
            project(m, il, W_Q, a->norm, &at->rows, a->q);
            rotate_queries(p, il, at);
            CKVC_TRY(p->prefill.all_queries(p->tap_ctx, il, a->q, 0, &p->prefill.cache[il], err));
        }
        /* whole tiles are dropped, so that the bits of the other rows stay the same */
        at->row0 = forward_top_row(p);
        at->rows.n = p->n_rows - at->row0;
        op->copy_rows(m->be, a->x, at->row0, a->x, 0, be_padded_rows(at->rows.n), m->shape->width);
        op->copy_rows(m->be, a->norm, at->row0, a->norm, 0, be_padded_rows(at->rows.n),
                      m->shape->width);
    }
    project(m, il, W_Q, a->norm, &at->rows, a->q);
    return prompt_attends(p, il, at, err);
}

/* Lists the lanes in the order in which they attend: first the active lanes, those of one start
 * together, as they share its set; then the lanes that join at this layer. Returns how many they
 * are. */
static int64_t attention_order(const continuation_rows *c, int32_t il, int64_t n_lanes,
                               int64_t n_joined) {
    int64_t n = 0;
    for (int64_t start = 0; start < n_lanes && c->lanes[start].parent < 0; start++) {
        const kept_set *shared = c->lanes[start].sets ? &c->lanes[start].sets[il] : NULL;
        for (int64_t i = start; i < n_lanes; i++) {
            if (i == start || c->lanes[i].parent == start) {
                c->order[n++] = (be_lane){(int32_t)i, (int32_t)i, shared};
            }
        }
    }
    for (int64_t i = n_lanes; i < n_joined; i++) {
        c->order[n++] = (be_lane){c->lanes[i].parent, (int32_t)i, c->lanes[i].kept};
    }
    return n;
}

static bool is_fitted(const kept_set *kept) { return kept && kept->fitted; }

/* Attention of n lanes in their order. Lanes of fitted entries, and the others, read another cache,
 * so that they go one after the other. */
static void lanes_attend(const forward_pass *p, int32_t il, be_continuation *attended, int64_t n) {
    const continuation_rows *c = &p->continuation;
    const be_attention_shape s = layer_attention(p->m, il);
    for (int64_t i = 0, end; i < n; i = end) {
        const bool fitted = is_fitted(c->order[i].kept);
        for (end = i + 1; end < n && is_fitted(c->order[end].kept) == fitted;) { end++; }
        attended->prompt = fitted ? c->fitted[il] : c->prompt[il];
        p->m->be->ops->attention_kept(p->m->be, &s, attended, c->order + i, end - i, p->act->mix);
    }
}

static ckvc_status lane_attention(const forward_pass *p, int32_t il, progress *at, ckvc_err *err) {
    model *m = p->m;
    const backend_ops *op = m->be->ops;
    const activations *a = p->act;
    const be_attention_shape attention = layer_attention(m, il), *s = &attention;
    const continuation_rows *c = &p->continuation;
    const int64_t lane_rows = be_padded_rows(p->n_rows);
    const be_rows rows = {c->n_prompt, p->n_rows, at->n_lanes};
    be_cache own = *c->own;
    own.formats = lane_formats(c->lanes, il);
    own.means =
        (be_key_means){c->key_means + (size_t)il * means_of_layer(m->shape), frequencies(p, il)};
    be_continuation attended = {
        .n_rows = p->n_rows, .n_prompt = c->n_prompt, .q = a->q, .own = own};

    project(m, il, W_Q, a->norm, &at->rows, a->q);
    op->rope(m->be, s, frequencies(p, il), &rows, a->q);
    op->cache_rows(m->be, s, frequencies(p, il), &rows, a->k, a->v, &own);
    int64_t joined = at->n_lanes;
    while (joined < c->n_lanes && c->lanes[joined].layer == il) { joined++; }
    const int64_t n = attention_order(c, il, at->n_lanes, joined);
    if (!c->tap_attends) { lanes_attend(p, il, &attended, n); }
    for (int64_t i = at->n_lanes; i < joined; i++) {
        op->copy_rows(m->be, a->x, c->lanes[i].parent * lane_rows, a->x, i * lane_rows, lane_rows,
                      m->shape->width);
    }
    at->n_lanes = joined;
    at->rows.n = joined * lane_rows;
    return p->tap ? p->tap(p->tap_ctx, il, a->q, c->n_prompt, &own, err) : CKVC_OK;
}

static void held_attention(const forward_pass *p, int32_t il) {
    backend *be = p->m->be;
    const backend_ops *op = be->ops;
    const activations *a = p->act;
    const be_attention_shape attention = layer_attention(p->m, il), *s = &attention;
    be_step rows = p->step[layer_base(p->m, il)];
    rows.held += il * p->n_rows;
    project(p->m, il, W_Q, a->norm, &(be_product_rows){.n = p->n_rows}, a->q);
    op->held_rows(be, s, &rows);
    op->attention_held(be, s, &rows, a->mix);
}

/* Adds W from, or the norm of it (Gemma3DecoderLayer.forward), to x, for these rows; a->norm may be
 * overwritten. */
static void add_product(model *m, const activations *a, be_weight *const product[2],
                        const be_weight *by, const be_buf *from, const be_product_rows *rows) {
    m->be->ops->matmul(m->be, product[0], product[1], from, rows, !by, by ? a->norm : a->x_part);
    if (by) {
        m->be->ops->rmsnorm(m->be, a->norm, rows->n, by, (float)m->shape->rms_eps, true, a->x_part);
    }
}

/* The output product of attention and the MLP, for these rows of a. */
static void behind_attention(model *m, const activations *a, be_weight *const *w,
                             const be_product_rows *rows) {
    backend *be = m->be;
    const backend_ops *op = be->ops;
    const int64_t width = m->shape->width, heads = (int64_t)m->shape->n_heads * m->shape->head_dim;
    const size_t row = (size_t)rows->first, padded = (size_t)be_padded_rows(rows->n);
    op->buf_view(be, a->x_part, a->x, row * (size_t)width, padded * (size_t)width);
    op->buf_view(be, a->mix_part, a->mix, row * (size_t)heads, padded * (size_t)heads);
    add_product(m, a, (be_weight *[]){w[W_O], w[W_O_BIAS]}, w[W_POST_ATTENTION_NORM], a->mix_part,
                rows);
    op->rmsnorm(be, a->x_part, rows->n, w[W_MLP_NORM], (float)m->shape->rms_eps, false, a->norm);
    op->matmul(be, w[W_GATE], w[W_GATE_BIAS], a->norm, rows, false, a->gate);
    op->matmul(be, w[W_UP], w[W_UP_BIAS], a->norm, rows, false, a->up);
    op->gate_mul(be, m->shape->gelu, a->gate, a->up, rows->n, m->shape->intermediate, a->gate);
    add_product(m, a, (be_weight *[]){w[W_DOWN], w[W_DOWN_BIAS]}, w[W_POST_MLP_NORM], a->gate,
                rows);
}

static void rows_behind_attention(model *m, const activations *a, be_weight *const *w,
                                  const be_product_rows *rows) {
    be_product_rows part = *rows;
    for (part.first = 0; part.first < rows->n; part.first += FORWARD_ROWS) {
        const int64_t rest = rows->n - part.first;
        part.n = rest < FORWARD_ROWS ? rest : FORWARD_ROWS;
        behind_attention(m, a, w, &part);
        ckvc_progress_layer((double)part.n / (double)rows->n);
    }
}

static bool ends_at_tap(const forward_pass *p) {
    return p->kind == PASS_CONTINUATION && p->continuation.ends_at_tap;
}

static ckvc_status layer(const forward_pass *p, int32_t il, progress *at, ckvc_err *err) {
    model *m = p->m;
    backend *be = m->be;
    const backend_ops *op = be->ops;
    const activations *a = p->act;
    be_weight *const *w = m->layers[il];
    const float eps = (float)m->shape->rms_eps;

    op->rmsnorm(be, a->x, at->rows.n, w[W_ATTENTION_NORM], eps, false, a->norm);
    project(m, il, W_K, a->norm, &at->rows, a->k);
    project(m, il, W_V, a->norm, &at->rows, a->v);
    switch (p->kind) {
    case PASS_PREFILL: CKVC_TRY(prompt_attention(p, il, at, err)); break;
    case PASS_CONTINUATION: CKVC_TRY(lane_attention(p, il, at, err)); break;
    case PASS_STEP: held_attention(p, il); break;
    }
    if (ends_at_tap(p) && il == m->shape->n_layers - 1) { return CKVC_OK; }
    rows_behind_attention(m, a, w, &at->rows);
    return CKVC_OK;
}

/* The most rows that a pass has in work, padding included. */
static int64_t most_rows(const forward_pass *p) {
    return be_padded_rows(p->n_rows) * (p->kind == PASS_CONTINUATION ? p->continuation.n_lanes : 1);
}

/* Gives each pass its place in the buffers that hold all of them. Every pass has rows of x of its
 * own. Where the passes are joined each has rows of its own in the other buffers too; else all of
 * them use the same. Returns the number of all rows. */
static int64_t place_passes(const forward_pass *passes, int64_t n, bool joined) {
    const model_shape *s = passes->m->shape;
    backend *be = passes->m->be;
    const size_t heads = (size_t)s->n_heads * (size_t)s->head_dim,
                 kv = (size_t)s->n_kv_heads * (size_t)s->head_dim;
    size_t row = 0;
    for (const forward_pass *p = passes; p < passes + n; p++) {
        const activations *a = p->act, *all = a->all;
        const size_t rows = (size_t)most_rows(p), behind = joined ? row : 0;
        const struct {
            be_buf *view, *of;
            size_t row, width;
        } parts[] = {{a->x, all->x, row, (size_t)s->width},
                     {a->norm, all->norm, behind, (size_t)s->width},
                     {a->q, all->q, behind, heads},
                     {a->mix, all->mix, behind, heads},
                     {a->k, all->k, behind, kv},
                     {a->v, all->v, behind, kv}};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            be->ops->buf_view(be, parts[i].view, parts[i].of, parts[i].row * parts[i].width,
                              rows * parts[i].width);
        }
        row += rows;
    }
    return (int64_t)row;
}

/* One layer for several prompts, all of whose n_rows rows stand one behind the other and are
 * active. */
static ckvc_status layer_joined(const forward_pass *passes, int64_t n, int32_t il, int64_t n_rows,
                                ckvc_err *err) {
    model *m = passes->m;
    const backend_ops *op = m->be->ops;
    const activations *a = passes->act->all;
    be_weight *const *w = m->layers[il];
    const be_product_rows rows = {.n = n_rows};
    op->rmsnorm(m->be, a->x, n_rows, w[W_ATTENTION_NORM], (float)m->shape->rms_eps, false, a->norm);
    project(m, il, W_K, a->norm, &rows, a->k);
    project(m, il, W_V, a->norm, &rows, a->v);
    project(m, il, W_Q, a->norm, &rows, a->q);
    for (const forward_pass *p = passes; p < passes + n; p++) {
        cache_prompt(p, il);
        CKVC_TRY(prompt_attends(p, il, &(progress){.rows.n = p->n_rows}, err));
    }
    rows_behind_attention(m, a, w, &rows);
    return CKVC_OK;
}

/* Embeds the tokens; a continuation's rows are copied once for every start. */
static progress embed_rows(const forward_pass *p) {
    model *m = p->m;
    const backend_ops *op = m->be->ops;
    const int64_t lane_rows = be_padded_rows(p->n_rows);
    progress at = {.rows.n = p->n_rows};
    op->embed(m->be, m->embedding, p->tokens, p->n_rows, p->act->x);
    if (p->kind != PASS_CONTINUATION) { return at; }
    const continuation_rows *c = &p->continuation;
    while (at.n_lanes < c->n_lanes && c->lanes[at.n_lanes].parent < 0) { at.n_lanes++; }
    at.rows.n = at.n_lanes * lane_rows;
    if (p->n_rows < lane_rows) { at.rows.used = p->n_rows, at.rows.each = lane_rows; }
    for (int64_t i = 1; i < at.n_lanes; i++) {
        op->copy_rows(m->be, p->act->x, 0, p->act->x, i * lane_rows, lane_rows, m->shape->width);
    }
    return at;
}

/* One layer for all passes. `joined` is the number of rows that stand one behind the other; with 0
 * each prompt goes by itself. */
static ckvc_status layer_of_all(const forward_pass *passes, int64_t n, int32_t il, int64_t joined,
                                progress *at, ckvc_err *err) {
    model *m = passes->m;
    CKVC_TRY(layer_acquire(m, il, err));
    /* after the last layer, layer 0 for the next passes */
    layer_prefetch(m, (il + 1) % m->shape->n_layers);
    if (joined > 0 && il < m->shape->n_layers - 1) {
        return layer_joined(passes, n, il, joined, err);
    }
    for (int64_t i = 0; i < n; i++) { CKVC_TRY(layer(&passes[i], il, &at[i], err)); }
    return CKVC_OK;
}

ckvc_status forward(const forward_pass *passes, int64_t n, ckvc_err *err) {
    model *m = passes->m;
    const backend_ops *op = m->be->ops;
    progress at[SESSIONS_TOGETHER];
    assert(n >= 1 && n <= SESSIONS_TOGETHER);
    const bool together = passes->act->all && passes->kind == PASS_PREFILL;
    const int64_t placed = passes->act->all ? place_passes(passes, n, together) : 0,
                  joined = together ? placed : 0;
    for (int64_t i = 0; i < n; i++) { at[i] = embed_rows(&passes[i]); }
    for (int32_t il = 0; il < m->shape->n_layers; il++) {
        const ckvc_status st = layer_of_all(passes, n, il, joined, at, err);
        layer_release(m, il);
        CKVC_TRY(st);
    }
    CKVC_TRY(op->weight_acquire(m->be, m->final_norm, err));
    for (int64_t i = 0; i < n; i++) {
        if (ends_at_tap(&passes[i])) { continue; }
        be_buf *x = passes[i].act->x;
        op->rmsnorm(m->be, x, at[i].rows.n, m->final_norm, (float)m->shape->rms_eps, false, x);
    }
    op->weight_release(m->be, m->final_norm);
    return op->sync(m->be, err);
}

ckvc_status model_head_nll(model *m, const head_losses *of, int64_t n, ckvc_err *err) {
    const backend_ops *op = m->be->ops;
    CKVC_TRY(op->weight_acquire(m->be, m->head, err));
    ckvc_status st = CKVC_OK;
    for (int64_t i = 0; i < n && st == CKVC_OK; i++) {
        const be_rows *at = &of[i].rows.at;
        if (!at->n_rows) { continue; }
        if (of[i].keep) {
            st = op->head_distributions(m->be, m->head, of[i].rows.x, at->row0, at->n_rows,
                                        of[i].keep, err);
        }
        if (st == CKVC_OK) { st = op->head_nll(m->be, m->head, of[i].rows.x, at, &of[i].out, err); }
    }
    op->weight_release(m->be, m->head);
    return st;
}

ckvc_status model_head_next(model *m, const head_rows *of, int64_t n, float *logits,
                            be_greedy *next, ckvc_err *err) {
    const backend_ops *op = m->be->ops;
    CKVC_TRY(op->weight_acquire(m->be, m->head, err));
    ckvc_status st = CKVC_OK;
    for (const head_rows *r = of; r < of + n && st == CKVC_OK; r++) {
        if (logits) {
            st = op->head_logits(m->be, m->head, r->x, r->at.row0, r->at.n_rows, logits, err);
            logits += r->at.n_rows * m->shape->vocab;
        } else {
            st = op->head_greedy(m->be, m->head, r->x, r->at.row0, r->at.n_rows, next, err);
            next += r->at.n_rows;
        }
    }
    op->weight_release(m->be, m->head);
    return st;
}
