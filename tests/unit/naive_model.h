/* A transformer in plain loops and doubles, straight from the weight files. It is the oracle for
 * which positions see each other. It knows only a rotary base without scaling. Names and order
 * of tensors are as in the files, which it takes apart by itself once more. */
#pragma once

#include "formats/model/model_files.h"
#include "tests/unit/quantised_blocks.h"

/* Says whether the query of layer `layer` at position j sees the key at position t <= j. */
typedef bool (*naive_sees)(const void *ctx, int32_t layer, int64_t j, int64_t t);

PLAIN_LOOP static inline double naive_value(const tensor_view *t, int64_t i) {
    float f;
    if (t->type == TENSOR_F16) { return half_of(t->data + 2 * i); }
    if (t->type == TENSOR_F32) {
        memcpy(&f, t->data + 4 * i, 4);
    } else { /* bfloat16 */
        const uint8_t *h = t->data + 2 * i;
        const uint32_t bits = (uint32_t)h[1] << 24 | (uint32_t)h[0] << 16;
        memcpy(&f, &bits, 4);
    }
    return (double)f;
}

static inline const tensor_view *naive_tensor(const model_spec *w, int32_t layer,
                                              const char *name) {
    char full[128];
    if (layer < 0) {
        snprintf(full, sizeof full, "%s", name);
    } else {
        snprintf(full, sizeof full, "model.layers.%d.%s", layer, name);
    }
    return model_spec_find(w, full);
}

/* y[r] = W x[r] + b, or + y with add */
PLAIN_LOOP static inline void naive_linear(const model_spec *w, int32_t layer, const char *name,
                                           const double *x, int64_t n, int64_t n_in, int64_t n_out,
                                           bool add, double *y) {
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    const tensor_view *m = naive_tensor(w, layer, full);
    snprintf(full, sizeof full, "%s.bias", name);
    const tensor_view *b = naive_tensor(w, layer, full);
    for (int64_t r = 0; r < n; r++) {
        for (int64_t o = 0; o < n_out; o++) {
            double sum = b ? naive_value(b, o) : 0;
            for (int64_t i = 0; i < n_in; i++) {
                sum += naive_value(m, o * n_in + i) * x[r * n_in + i];
            }
            y[r * n_out + o] = sum + (add ? y[r * n_out + o] : 0);
        }
    }
}

PLAIN_LOOP static inline void naive_norm(const model_spec *w, int32_t layer, const char *name,
                                         double eps, const double *x, int64_t n, int64_t width,
                                         double *y) {
    const tensor_view *t = naive_tensor(w, layer, name);
    for (int64_t r = 0; r < n; r++) {
        double sum = 0;
        for (int64_t i = 0; i < width; i++) { sum += x[r * width + i] * x[r * width + i]; }
        for (int64_t i = 0; i < width; i++) {
            y[r * width + i] =
                x[r * width + i] / sqrt(sum / (double)width + eps) * naive_value(t, i);
        }
    }
}

/* nll[i] = -log P(ids[i+1] | what position i sees), [n-1] */
PLAIN_LOOP static inline void naive_losses(const char *dir, const int32_t *ids, int64_t n,
                                           naive_sees sees, const void *ctx, double *nll) {
    model_spec *w;
    OK(model_files_read(dir, &w, &err));
    const model_shape s = w->shape;
    const int64_t m = s.width, d = s.head_dim, q_width = s.n_heads * d, kv_width = s.n_kv_heads * d,
                  f = s.intermediate;
    const int64_t widths[] = {m, m, q_width, q_width, kv_width, kv_width, f, f, 1, s.vocab};
    double *all[10];
    for (size_t i = 0; i < 10; i++) {
        all[i] = ckvc_calloc((size_t)(n * widths[i]), sizeof *all[i]);
    }
    double *x = all[0], *norm = all[1], *q = all[2], *mix = all[3], *k = all[4], *v = all[5],
           *gate = all[6], *up = all[7], *p = all[8], *logits = all[9];
    for (int64_t i = 0; i < n * m; i++) {
        x[i] =
            naive_value(naive_tensor(w, -1, "model.embed_tokens.weight"), ids[i / m] * m + i % m);
    }
    for (int32_t l = 0; l < s.n_layers; l++) {
        naive_norm(w, l, "input_layernorm.weight", s.rms_eps, x, n, m, norm);
        naive_linear(w, l, "self_attn.q_proj", norm, n, m, q_width, false, q);
        naive_linear(w, l, "self_attn.k_proj", norm, n, m, kv_width, false, k);
        naive_linear(w, l, "self_attn.v_proj", norm, n, m, kv_width, false, v);
        if (s.qk_norm) {
            naive_norm(w, l, "self_attn.q_norm.weight", s.rms_eps, q, n * s.n_heads, d, q);
            naive_norm(w, l, "self_attn.k_norm.weight", s.rms_eps, k, n * s.n_kv_heads, d, k);
        }
        for (int64_t r = 0; r < n; r++) {
            for (int64_t h = 0; h < s.n_heads + s.n_kv_heads; h++) {
                double *head = h < s.n_heads ? q + r * q_width + h * d
                                             : k + r * kv_width + (h - s.n_heads) * d;
                for (int64_t i = 0; i < d / 2; i++) {
                    const double angle =
                                     (double)r * pow(s.rope_theta, -2.0 * (double)i / (double)d),
                                 a = head[i], b = head[i + d / 2];
                    head[i] = a * cos(angle) - b * sin(angle);
                    head[i + d / 2] = b * cos(angle) + a * sin(angle);
                }
            }
        }
        memset(mix, 0, (size_t)(n * q_width) * sizeof *mix);
        for (int64_t j = 0; j < n; j++) {
            for (int64_t h = 0; h < s.n_heads; h++) {
                const int64_t g = h * s.n_kv_heads / s.n_heads;
                double sum = 0;
                for (int64_t t = 0; t <= j; t++) {
                    double dot = 0;
                    for (int64_t i = 0; i < d; i++) {
                        dot += q[j * q_width + h * d + i] * k[t * kv_width + g * d + i];
                    }
                    p[t] = sees(ctx, l, j, t) ? exp(dot / sqrt((double)d)) : 0;
                    sum += p[t];
                }
                for (int64_t t = 0; t <= j; t++) {
                    for (int64_t i = 0; i < d; i++) {
                        mix[j * q_width + h * d + i] += p[t] / sum * v[t * kv_width + g * d + i];
                    }
                }
            }
        }
        naive_linear(w, l, "self_attn.o_proj", mix, n, q_width, m, true, x);
        naive_norm(w, l, "post_attention_layernorm.weight", s.rms_eps, x, n, m, norm);
        naive_linear(w, l, "mlp.gate_proj", norm, n, m, f, false, gate);
        naive_linear(w, l, "mlp.up_proj", norm, n, m, f, false, up);
        for (int64_t i = 0; i < n * f; i++) { gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i]; }
        naive_linear(w, l, "mlp.down_proj", gate, n, f, m, true, x);
    }
    naive_norm(w, -1, "model.norm.weight", s.rms_eps, x, n, m, norm);
    naive_linear(w, -1, s.tied ? "model.embed_tokens" : "lm_head", norm, n, m, s.vocab, false,
                 logits);
    for (int64_t r = 0; r + 1 < n; r++) {
        double sum = 0;
        for (int64_t i = 0; i < s.vocab; i++) { sum += exp(logits[r * s.vocab + i]); }
        nll[r] = log(sum) - logits[r * s.vocab + ids[r + 1]];
    }
    for (size_t i = 0; i < 10; i++) { free(all[i]); }
    model_spec_free(w);
}
