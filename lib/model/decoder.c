/* Sequences that hold only what is kept, and the steps that extend them: see decoder.h. */
#include "lib/model/decoder.h"

#include <assert.h>
#include <math.h>

#include "lib/model/forward.h"

/* What a sequence holds of one layer. */
typedef struct held_layer {
    be_held held;
    /* [G] the arrays of `held`, allocated in one piece with `from` */
    int64_t *first, *n_kept, *hidden;
    int64_t window; /* of the layer; 0: the layer sees everything */
    /* Where a window will hide some of them, or keys are held less their mean: the kept positions,
     * and where each head's begin. */
    uint32_t *positions; /* or NULL */
    int64_t *from;       /* [G] */
} held_layer;

struct sequence {
    model *m;
    int64_t n_prompt, n_own, room;
    int64_t entries;
    size_t kept_bytes;  /* of what is kept, without the room */
    size_t n_values;    /* in `values`: layer by layer the keys, then the values */
    size_t n_positions; /* in the layers' `positions` */
    be_buf *values;     /* one piece of memory; the layers' buffers are views of it */
    double *inv_freq;   /* [2][D/2], rope_frequencies */
    float *key_means;   /* [L][G][D], or NULL where no format takes them out */
    held_layer *layers; /* [L] */
};

/* A step is made in passes of one tile of rows: BE_ROW_TILE sequences each. */
struct decoder {
    model *m;
    int64_t max_sequences;
    activations *act;     /* [n_passes], each of one tile */
    forward_pass *passes; /* [n_passes] */
    be_step (*steps)[2];  /* [n_passes], indexed by layer_base */
    be_held *held;        /* [n_passes][L][sequences of the pass] */
    float *cos, *sin;     /* [2][max_sequences][D/2] */
};

/* ---- sequences ---- */

/* How many numbers of a buffer the keys, or the values, of a layer take in their format. */
static size_t layer_values(const sequence *q, int32_t il, cache_format f) {
    const held_layer *l = &q->layers[il];
    const int64_t last = q->m->shape->n_kv_heads - 1;
    const size_t rows = (size_t)(l->first[last] + l->n_kept[last] + q->room);
    return (cache_bytes(f, rows * (size_t)q->m->shape->head_dim) + sizeof(float) - 1) /
           sizeof(float);
}

/* Works out where everything of a layer will lie. */
static void layer_init(sequence *q, const prompt_cache *from, int32_t il, const kept_set *kept) {
    const be_attention_shape attention = layer_attention(q->m, il);
    const int64_t n_heads = attention.n_kv_heads;
    held_layer *l = &q->layers[il];
    l->window = attention.window;
    l->first = ckvc_calloc((size_t)(4 * n_heads), sizeof *l->first);
    l->n_kept = l->first + n_heads;
    l->hidden = l->n_kept + n_heads;
    l->from = l->hidden + n_heads;
    int64_t rows = 0;
    for (int64_t g = 0; g < n_heads; g++) {
        const uint32_t *offset = kept ? kept->offsets + (kept->n_sets == 1 ? 0 : g) : NULL;
        l->first[g] = rows;
        l->n_kept[g] = kept ? (int64_t)offset[1] - (int64_t)offset[0] : from->n_tokens;
        l->from[g] = kept ? offset[0] : 0;
        rows += l->n_kept[g] + q->room;
        q->entries += l->n_kept[g];
    }
    l->held.formats = kept ? kept->formats : (cache_formats){0};
    q->kept_bytes +=
        (size_t)(rows - n_heads * q->room) * cache_entry_bytes(l->held.formats, attention.head_dim);
    q->n_values +=
        layer_values(q, il, l->held.formats.keys) + layer_values(q, il, l->held.formats.values);
    if (kept && (l->window || cache_takes_mean(l->held.formats))) {
        l->positions = ckvc_copy(kept->positions, kept->offsets[kept->n_sets], sizeof(uint32_t));
        q->n_positions += kept->offsets[kept->n_sets];
    }
}

/* Gives layer il its part of the memory, from *at on, and copies what is kept into it. */
static void layer_fill(sequence *q, const prompt_cache *from, int32_t il, const kept_set *kept,
                       size_t *at) {
    const backend_ops *op = q->m->be->ops;
    const be_attention_shape attention = layer_attention(q->m, il);
    held_layer *l = &q->layers[il];
    const cache_formats f = l->held.formats;
    const size_t n_keys = layer_values(q, il, f.keys), n = layer_values(q, il, f.values);
    l->held = (be_held){.k = op->buf_create(q->m->be, 0),
                        .v = op->buf_create(q->m->be, 0),
                        .first = l->first,
                        .n_kept = l->n_kept,
                        .hidden = l->hidden,
                        .formats = f,
                        .positions = l->positions,
                        .from = l->from,
                        .n_prompt = q->n_prompt};
    if (cache_takes_mean(f)) {
        l->held.means =
            (be_key_means){q->key_means + (size_t)il * means_of_layer(q->m->shape),
                           q->inv_freq + layer_base(q->m, il) * (attention.head_dim / 2)};
    }
    op->buf_view(q->m->be, l->held.k, q->values, *at, n_keys);
    op->buf_view(q->m->be, l->held.v, q->values, *at + n_keys, n);
    *at += n_keys + n;
    const be_cache *cache = kept && kept->fitted ? &from->fitted[il] : &from->layers[il];
    op->cache_keep(q->m->be, &attention, cache, from->n_tokens, kept, &l->held);
}

ckvc_status sequence_create(session *s, const kept_set *sets, int64_t room, sequence **out,
                            ckvc_err *err) {
    const prompt_cache from = session_prompt(s);
    const model_shape *shape = from.m->shape;
    const int64_t context = model_shape_context(shape);
    *out = NULL;
    assert(room >= 0);
    assert(shape->rope != ROPE_DYNAMIC || from.n_tokens + room <= from.n_total);
    CKVC_FAIL_IF(room > context - from.n_tokens, err, CKVC_E_DATA,
                 "a prompt of %lld tokens and %lld more go beyond the model's context of %lld "
                 "(config.json, max_position_embeddings)",
                 (long long)from.n_tokens, (long long)room, (long long)context);
    sequence *q = *out = ckvc_calloc(1, sizeof *q);
    q->m = from.m;
    q->n_prompt = from.n_tokens;
    q->room = room;
    q->inv_freq = ckvc_copy(from.inv_freq, (size_t)shape->head_dim, sizeof *q->inv_freq);
    q->layers = ckvc_calloc((size_t)shape->n_layers, sizeof *q->layers);
    for (int32_t l = 0; l < shape->n_layers; l++) {
        layer_init(q, &from, l, sets ? &sets[l] : NULL);
    }
    q->values = from.m->be->ops->buf_create(from.m->be, q->n_values);
    size_t at = 0;
    for (int32_t l = 0; l < shape->n_layers && !q->key_means; l++) {
        if (!cache_takes_mean(q->layers[l].held.formats)) { continue; }
        CKVC_TRY(session_key_means(s, NULL, err));
        q->key_means = ckvc_copy(from.key_means, (size_t)shape->n_layers * means_of_layer(shape),
                                 sizeof *q->key_means);
    }
    for (int32_t l = 0; l < shape->n_layers; l++) {
        layer_fill(q, &from, l, sets ? &sets[l] : NULL, &at);
    }
    const be_extent most = {.n_prompt = from.n_tokens, .n_rows = room, .vocab = shape->vocab};
    model_reserve(from.m, q->inv_freq, &most);
    return from.m->be->ops->sync(from.m->be, err);
}

void sequence_free(sequence *q) {
    if (!q) { return; }
    for (int32_t l = 0; l < q->m->shape->n_layers; l++) {
        held_layer *layer = &q->layers[l];
        q->m->be->ops->buf_free(q->m->be, layer->held.k);
        q->m->be->ops->buf_free(q->m->be, layer->held.v);
        CKVC_FREE(layer->first, layer->positions);
    }
    q->m->be->ops->buf_free(q->m->be, q->values);
    CKVC_FREE(q->inv_freq, q->key_means, q->layers, q);
}

int64_t sequence_entries(const sequence *q) { return q->entries; }
size_t sequence_kept_bytes(const sequence *q) { return q->kept_bytes; }
size_t sequence_bytes(const sequence *q) {
    return q->n_values * sizeof(float) + q->n_positions * sizeof(uint32_t);
}

/* ---- steps ---- */

ckvc_status decoder_create(model *m, int64_t max_sequences, decoder **out, ckvc_err *err) {
    const size_t n = (size_t)max_sequences, D = (size_t)m->shape->head_dim,
                 n_passes = (size_t)be_padded_rows(max_sequences) / BE_ROW_TILE;
    assert(max_sequences >= 1);
    *out = NULL;
    CKVC_AUTO(decoder_destroy_at) decoder *d = ckvc_calloc(1, sizeof *d);
    d->m = m;
    d->max_sequences = max_sequences;
    d->held = ckvc_calloc(n * (size_t)m->shape->n_layers, sizeof *d->held);
    d->cos = ckvc_alloc(n * D, sizeof *d->cos);
    d->sin = ckvc_alloc(n * D, sizeof *d->sin);
    d->act = ckvc_alloc(n_passes, sizeof *d->act);
    d->passes = ckvc_alloc(n_passes, sizeof *d->passes);
    d->steps = ckvc_alloc(n_passes, sizeof *d->steps);
    activations_init(&d->act[0], m, BE_ROW_TILE, BE_ROW_TILE);
    for (size_t i = 1; i < n_passes; i++) {
        activations_beside(&d->act[i], m, BE_ROW_TILE, &d->act[0]);
    }
    CKVC_TRY(model_acquire(m, err));
    *out = ckvc_take(&d);
    return CKVC_OK;
}

void decoder_destroy(decoder *d) {
    if (!d) { return; }
    for (int64_t i = 0; i < d->max_sequences; i += BE_ROW_TILE) {
        activations_fini(&d->act[i / BE_ROW_TILE], d->m->be);
    }
    CKVC_FREE(d->act, d->passes, d->steps, d->held, d->cos, d->sin, d);
}

/* A head's list holds the kept positions and then the sequence's own. Returns how many at its
 * beginning the query at `position` does not see; `before` is the result for an earlier query. */
static int64_t hidden_of(const sequence *q, const held_layer *l, int64_t g, int64_t position,
                         int64_t before) {
    const int64_t seen = l->window && position >= l->window ? position - l->window + 1 : 0,
                  n_kept = l->held.n_kept[g];
    if (seen >= q->n_prompt) { return n_kept + seen - q->n_prompt; }
    if (!l->positions) { return seen; }
    const uint32_t *positions = l->positions + l->from[g];
    while (before < n_kept && positions[before] < seen) { before++; }
    return before;
}

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* Makes room for one more row, and writes to d's arrays where the parts of row i of n lie. */
static void take_place(decoder *d, sequence *q, int64_t i, int64_t n) {
    const int64_t first = i / BE_ROW_TILE * BE_ROW_TILE, n_beside = min64(n - first, BE_ROW_TILE);
    be_held *held = d->held + first * d->m->shape->n_layers + (i - first);
    const int64_t half = d->m->shape->head_dim / 2, position = q->n_prompt + q->n_own++;
    for (int64_t k = 0; k < 2 * half; k++) {
        const double angle = (double)position * q->inv_freq[k];
        const int64_t at = (k / half * d->max_sequences + i) * half + k % half;
        d->cos[at] = (float)cos(angle);
        d->sin[at] = (float)sin(angle);
    }
    for (int32_t il = 0; il < d->m->shape->n_layers; il++) {
        held_layer *l = &q->layers[il];
        l->held.n_own = q->n_own;
        for (int64_t g = 0; g < d->m->shape->n_kv_heads; g++) {
            l->hidden[g] = hidden_of(q, l, g, position, l->hidden[g]);
        }
        held[il * n_beside] = l->held;
    }
}

/* Runs the step. The rows that predict the following tokens lie, normed, in each pass's act->x. */
static ckvc_status decode_rows(decoder *d, sequence *const *sequences, const int32_t *tokens,
                               int64_t n, ckvc_err *err) {
    const int64_t half = d->m->shape->head_dim / 2;
    int64_t n_passes = 0;
    assert(n >= 1 && n <= d->max_sequences);
    for (int64_t i = 0; i < n; i++) {
        assert(sequences[i]->m == d->m && sequences[i]->n_own < sequences[i]->room);
        CKVC_FAIL_IF(tokens[i] < 0 || tokens[i] >= d->m->shape->vocab, err, CKVC_E_DATA,
                     "sequence %lld: token id %d is outside the model's vocabulary of %d",
                     (long long)i, tokens[i], d->m->shape->vocab);
    }
    for (int64_t i = 0; i < n; i++) { take_place(d, sequences[i], i, n); }
    for (int64_t i = 0; i < n; i += BE_ROW_TILE, n_passes++) {
        const activations *act = &d->act[n_passes];
        be_step *step = d->steps[n_passes];
        step[0] = (be_step){.n = min64(n - i, BE_ROW_TILE),
                            .q = act->q,
                            .k = act->k,
                            .v = act->v,
                            .held = d->held + i * d->m->shape->n_layers,
                            .cos = d->cos + i * half,
                            .sin = d->sin + i * half};
        step[1] = step[0];
        step[1].cos += d->max_sequences * half;
        step[1].sin += d->max_sequences * half;
        d->passes[n_passes] = (forward_pass){.m = d->m,
                                             .act = act,
                                             .tokens = tokens + i,
                                             .n_rows = step->n,
                                             .kind = PASS_STEP,
                                             .step = step};
    }
    for (int64_t i = 0; i < n_passes; i += SESSIONS_TOGETHER) {
        CKVC_TRY(forward(d->passes + i, min64(n_passes - i, SESSIONS_TOGETHER), err));
    }
    return CKVC_OK;
}

ckvc_status decoder_step(decoder *d, sequence *const *sequences, const int32_t *tokens, int64_t n,
                         float *logits, be_greedy *next, ckvc_err *err) {
    CKVC_TRY(decode_rows(d, sequences, tokens, n, err));
    for (int64_t i = 0; i < n; i += BE_ROW_TILE) {
        const head_rows rows = {d->act[i / BE_ROW_TILE].x, {0, min64(n - i, BE_ROW_TILE), 1}};
        CKVC_TRY(model_head_next(d->m, &rows, 1, logits ? logits + i * d->m->shape->vocab : NULL,
                                 logits ? NULL : next + i, err));
    }
    return CKVC_OK;
}
