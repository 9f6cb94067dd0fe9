/* The layer loop: x -> x + O(attention(rope(QKV(norm x)))) -> x + down(silu(gate) * up)(norm x), L times, then the final norm.
 *
 * One loop for every family: what differs between models is in the shape and in which biases are there. Prefill and
 * continuation differ in two lines: which cache the rows' keys go to, and which keys they look at.
 */
#include "lib/model/forward.h"

static ckvc_status layer(const forward_pass *p, int32_t il, ckvc_err *err)
{
    model *m = p->m;
    backend *be = m->be;
    const backend_ops *op = be->ops;
    const activations *a = p->act;
    const layer_weights *w = &m->layers[il];
    const be_attention_shape attention = layer_attention(m, il), *s = &attention;
    const int64_t n = p->n_rows;
    const float eps = (float)m->shape.rms_eps;
    be_buf *prompt_k = p->prompt->k[il], *prompt_v = p->prompt->v[il];

    op->rmsnorm(be, a->x, n, w->attention_norm, eps, a->norm);
    op->matmul(be, w->q, w->q_bias, a->norm, n, false, a->q);
    op->matmul(be, w->k, w->k_bias, a->norm, n, false, a->k);
    op->matmul(be, w->v, w->v_bias, a->norm, n, false, a->v);
    if (p->continuation) {
        op->rope_cache(be, s, p->inv_freq, p->n_prompt, 0, n, a->q, a->k, a->v, p->own->k[0], p->own->v[0], p->own->capacity);
        op->attention_kept(be, s, n, p->n_prompt, a->q, p->sets ? &p->sets[il] : NULL, prompt_k, prompt_v, p->prompt->capacity,
                           p->own->k[0], p->own->v[0], p->own->capacity, a->mix);
    } else {
        op->rope_cache(be, s, p->inv_freq, 0, 0, n, a->q, a->k, a->v, prompt_k, prompt_v, p->prompt->capacity);
        op->attention_causal(be, s, n, a->q, prompt_k, prompt_v, p->prompt->capacity, a->mix);
    }
    if (p->tap) {
        ckvc_status rc = p->tap(p->tap_ctx, il, a->q, prompt_k, prompt_v, err);
        if (rc != CKVC_OK)
            return rc;
    }
    op->matmul(be, w->o, w->o_bias, a->mix, n, true, a->x);

    op->rmsnorm(be, a->x, n, w->mlp_norm, eps, a->norm);
    op->matmul(be, w->gate, w->gate_bias, a->norm, n, false, a->gate);
    op->matmul(be, w->up, w->up_bias, a->norm, n, false, a->up);
    op->silu_mul(be, a->gate, a->up, n, m->shape.intermediate, a->gate);
    op->matmul(be, w->down, w->down_bias, a->gate, n, true, a->x);
    return CKVC_OK;
}

ckvc_status forward(const forward_pass *p, ckvc_err *err)
{
    model *m = p->m;
    const backend_ops *op = m->be->ops;
    op->embed(m->be, m->embedding, p->tokens, p->n_rows, p->act->x);
    ckvc_status rc = CKVC_OK;
    for (int32_t il = 0; il < m->shape.n_layers; il++) {
        rc = layer_acquire(m, il, err);
        if (rc == CKVC_OK)
            rc = layer(p, il, err);
        layer_release(m, il);
        if (rc != CKVC_OK)
            return rc;
    }
    rc = op->weight_acquire(m->be, m->final_norm, err);
    if (rc != CKVC_OK)
        return rc;
    op->rmsnorm(m->be, p->act->x, p->n_rows, m->final_norm, (float)m->shape.rms_eps, p->act->norm);
    op->weight_release(m->be, m->final_norm);
    return op->sync(m->be, err);
}

ckvc_status model_head_nll(model *m, const be_buf *x, int64_t row0, int64_t n_rows, const int32_t *target, double *nll,
                           ckvc_err *err)
{
    ckvc_status rc = m->be->ops->weight_acquire(m->be, m->head, err);
    if (rc == CKVC_OK) {
        rc = m->be->ops->head_nll(m->be, m->head, x, row0, n_rows, target, nll, err);
        m->be->ops->weight_release(m->be, m->head);
    }
    return rc;
}

ckvc_status model_head_logits(model *m, const be_buf *x, int64_t row, float *logits, ckvc_err *err)
{
    ckvc_status rc = m->be->ops->weight_acquire(m->be, m->head, err);
    if (rc == CKVC_OK) {
        rc = m->be->ops->head_logits(m->be, m->head, x, row, logits, err);
        m->be->ops->weight_release(m->be, m->head);
    }
    return rc;
}
