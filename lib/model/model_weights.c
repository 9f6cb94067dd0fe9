/* Opening a model: its checked tensors become weights of a backend. */
#include "lib/model/model_weights.h"

#include "lib/base/progress.h"

be_attention_shape layer_attention(const model *m, int32_t layer) {
    const model_shape *s = m->shape;
    return (be_attention_shape){
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .window = model_shape_window(s, layer),
        .scale =
            (float)(1.0 / sqrt(s->query_scalar > 0.0 ? s->query_scalar : (double)s->head_dim))};
}

int layer_base(const model *m, int32_t layer) {
    return m->shape->rope_local_theta > 0.0 && model_shape_window(m->shape, layer) > 0;
}

/* ---- open, close ---- */

static void read_rows(const void *tensor, int64_t row, int64_t n, float *out) {
    tensor_read_rows(tensor, row, n, out);
}

/* Gives a tensor to the backend. fused says which rows of it; NULL: all. */
static ckvc_status hand_over(model *m, const tensor_view *t, const layer_tensor *fused,
                             be_weight **out, ckvc_err *err) {
    be_matrix matrix = {.bytes = t->data,
                        .type = !tensor_as_stored(t)     ? BE_PACKED
                                : t->type == TENSOR_F32  ? BE_F32
                                : t->type == TENSOR_BF16 ? BE_BF16
                                                         : BE_PACKED,
                        .rows = t->dims[0],
                        .cols = t->rank > 1 ? t->dims[1] : 1,
                        .row_bytes = (size_t)(t->bytes / (uint64_t)t->dims[0]),
                        .read = read_rows,
                        .source = t};
    if (fused) {
        matrix.rows = fused->own_rows;
        matrix.first = fused->first;
        matrix.block = fused->block;
        matrix.stride = fused->stride;
    }
    return m->be->ops->weight_create(m->be, &matrix, out, err);
}

static ckvc_status hand_over_all(model *m, ckvc_err *err) {
    model_ends ends;
    CKVC_TRY(model_ends_find(m->spec, &ends, err));
    m->scaled = *ends.embedding;
    m->scaled.times = (float)m->shape->embed_scale;
    const tensor_view *rows = m->scaled.times != 0.0f ? &m->scaled : ends.embedding;
    CKVC_TRY(hand_over(m, rows, NULL, &m->embedding, err));
    m->head = m->embedding;
    if (ends.head != rows) { CKVC_TRY(hand_over(m, ends.head, NULL, &m->head, err)); }
    CKVC_TRY(hand_over(m, ends.final_norm, NULL, &m->final_norm, err));
    for (int32_t l = 0; l < m->shape->n_layers; l++) {
        for (layer_part part = 0; part < LAYER_PARTS; part++) {
            layer_tensor t;
            if (layer_tensor_of(m->shape, l, part, &t)) {
                CKVC_TRY(hand_over(m, model_spec_find(m->spec, t.name), t.block ? &t : NULL,
                                   &m->layers[l][part], err));
            }
        }
    }
    return CKVC_OK;
}

ckvc_status model_open(model_spec *spec, backend *be, model **out, ckvc_err *err) {
    *out = NULL;
    CKVC_AUTO(model_close_at) model *m = ckvc_calloc(1, sizeof *m);
    m->spec = spec;
    m->shape = &spec->shape;
    m->be = be;
    m->layers = ckvc_calloc((size_t)spec->shape.n_layers, sizeof *m->layers);
    CKVC_TRY(model_tensors_check(spec, be->pool, m->fingerprint, err));
    model_sketch(spec, m->sketch);
    CKVC_TRY(hand_over_all(m, err));
    *out = ckvc_take(&m);
    return CKVC_OK;
}

void model_close(model *m) {
    if (!m) { return; }
    const backend_ops *op = m->be->ops;
    for (int32_t l = 0; l < m->shape->n_layers; l++) {
        for (layer_part part = 0; part < LAYER_PARTS; part++) {
            op->weight_free(m->be, m->layers[l][part]);
        }
    }
    if (m->head != m->embedding) { op->weight_free(m->be, m->head); }
    op->weight_free(m->be, m->embedding);
    op->weight_free(m->be, m->final_norm);
    free(m->layers);
    model_spec_free(m->spec);
    free(m);
}

/* ---- acquire, release ---- */

ckvc_status layer_acquire(model *m, int32_t layer, ckvc_err *err) {
    for (layer_part part = 0; part < LAYER_PARTS; part++) {
        be_weight *w = m->layers[layer][part];
        if (w) { CKVC_TRY(m->be->ops->weight_acquire(m->be, w, err)); }
    }
    return CKVC_OK;
}

void layer_release(model *m, int32_t layer) {
    for (layer_part part = 0; part < LAYER_PARTS; part++) {
        be_weight *w = m->layers[layer][part];
        if (w) { m->be->ops->weight_release(m->be, w); }
    }
}

void layer_prefetch(const model *m, int32_t layer) {
    for (layer_part part = 0; part < LAYER_PARTS; part++) {
        const be_weight *w = m->layers[layer][part];
        if (w) { m->be->ops->weight_prefetch(m->be, w); }
    }
}

ckvc_status model_acquire(model *m, ckvc_err *err) {
    const backend_ops *op = m->be->ops;
    be_weight *const ends[] = {m->final_norm, m->head};
    for (int i = 0; i < 2; i++) {
        const ckvc_status st = op->weight_acquire(m->be, ends[i], err);
        op->weight_release(m->be, ends[i]);
        CKVC_TRY(st);
    }
    ckvc_progress_start("unpacking weights", "layers", "layers", (uint64_t)m->shape->n_layers, 0);
    for (int32_t l = 0; l < m->shape->n_layers; l++) {
        const ckvc_status st = layer_acquire(m, l, err);
        layer_release(m, l);
        CKVC_TRY(st);
        ckvc_progress_update((uint64_t)l + 1, (uint64_t)l + 1);
    }
    ckvc_progress_clear();
    return CKVC_OK;
}

/* ---- asking ---- */

size_t model_converted_bytes(const model *m) {
    return (size_t)model_copy_bytes(m->spec, m->be->value_bytes, m->be->in_place).all;
}

size_t model_converted_least(const model *m) {
    return (size_t)model_copy_bytes(m->spec, m->be->value_bytes, m->be->in_place).least;
}

const model_shape *model_get_shape(const model *m) { return m->shape; }
const char *model_fingerprint(const model *m) { return m->fingerprint; }
const char *model_get_sketch(const model *m) { return m->sketch; }
const char *model_name(const model *m) { return m->spec->name; }
