/* Creating and freeing a spec, its list of tensors, and what follows from a shape: see
 * model_spec.h. */
#include "lib/model/model_spec.h"

#include <math.h>

#include "lib/base/json.h"

#include "lib/base/files.h"
#include "lib/base/utf8.h"

model_spec *model_spec_create(const char *path) {
    model_spec *spec = ckvc_calloc(1, sizeof *spec);
    spec->path = ckvc_strdup(path);
    CKVC_AUTO_FREE char *name = ckvc_path_name(path);
    size_t n;
    spec->name = ckvc_utf8_replace(name, strlen(name), &n); /* it goes into files that are UTF-8 */
    if (n > 5 && strcmp(spec->name + n - 5, ".gguf") == 0) { spec->name[n - 5] = '\0'; }
    return spec;
}

void model_spec_free(model_spec *spec) {
    if (!spec) { return; }
    for (size_t i = 0; i < spec->n_tensors; i++) { CKVC_FREE(spec->tensors[i].name); }
    if (spec->release) { spec->release(spec->source); }
    CKVC_FREE(spec->by_name, spec->tensors, spec->path, spec->name, spec);
}

void model_spec_add(model_spec *spec, const char *name, const tensor_view *t) {
    CKVC_GROW(spec->tensors, spec->cap_tensors, spec->n_tensors + 1);
    tensor_view *own = &spec->tensors[spec->n_tensors++];
    *own = *t;
    own->name = ckvc_strdup(name);
    if (!own->stored) { own->stored = own->name; }
}

static int by_stored_name(const void *a, const void *b) {
    return strcmp(((const tensor_view *)a)->stored, ((const tensor_view *)b)->stored);
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(const tensor_view *const *)a)->name, (*(const tensor_view *const *)b)->name);
}

ckvc_status model_spec_order(model_spec *spec, ckvc_err *err) {
    const size_t n = spec->n_tensors;
    spec->by_name = ckvc_alloc(n, sizeof *spec->by_name);
    if (n) { qsort(spec->tensors, n, sizeof *spec->tensors, by_stored_name); }
    for (size_t i = 0; i < n; i++) { spec->by_name[i] = &spec->tensors[i]; }
    qsort(spec->by_name, n, sizeof *spec->by_name, by_name);
    for (size_t i = 1; i < n; i++) {
        const tensor_view *a = spec->by_name[i - 1], *b = spec->by_name[i];
        CKVC_FAIL_IF(strcmp(a->name, b->name) == 0, err, CKVC_E_DATA,
                     "%s: tensor \"%s\" is in %s too", b->file, b->stored, a->file);
    }
    return CKVC_OK;
}

const tensor_view *model_spec_find(const model_spec *spec, const char *name) {
    const tensor_view wanted = {.name = name}, *key = &wanted;
    const tensor_view *const *hit =
        bsearch(&key, spec->by_name, spec->n_tensors, sizeof *spec->by_name, by_name);
    return hit ? *hit : NULL;
}

/* ---- what follows from a shape ---- */

int32_t model_shape_window(const model_shape *s, int32_t layer) {
    return s->full_layers[layer / 64] >> (layer % 64) & 1 ? 0 : s->sliding_window;
}

int64_t model_shape_context(const model_shape *s) {
    const bool stretched = s->rope == ROPE_LINEAR || s->rope == ROPE_DYNAMIC;
    const double context = (double)s->max_positions * (stretched ? s->rope_factor : 1.0);
    return context < MODEL_POSITIONS_MAX ? (int64_t)context : MODEL_POSITIONS_MAX;
}

int64_t model_shape_parameters(const model_shape *s) {
    const int64_t m = s->width, q = (int64_t)s->n_heads * s->head_dim,
                  kv = (int64_t)s->n_kv_heads * s->head_dim, f = s->intermediate;
    int64_t layer = m * (q + 2 * kv) + q * m + 3 * m * f + 2 * m;
    if (s->qkv_bias) { layer += q + 2 * kv; }
    if (s->output_bias) { layer += m; }
    if (s->mlp_bias) { layer += 2 * f + m; }
    if (s->qk_norm) { layer += 2 * s->head_dim; }
    if (s->post_norms) { layer += 2 * m; }
    return s->n_layers * layer + (int64_t)s->vocab * m * (s->tied ? 1 : 2) + m;
}

const char *rope_kind_name(rope_kind kind) {
    static const char *const names[] = {"default", "llama3", "linear", "dynamic"};
    return names[kind];
}

/* The fields that decide what the network computes, in this order. A field with its neutral value
 * is left out, so that a later version that knows more fields gives an old model the same lines.
 * The context length is only a limit, and is left out too, except under dynamic scaling, which
 * depends on it. */
char *model_shape_lines(const model_shape *s, int digits) {
    ckvc_buffer b = {0};
    ckvc_buffer_printf(&b, "family=%s\nlayers=%d\nheads=%d\nkv_heads=%d\nhead_dim=%d\n", s->family,
                       s->n_layers, s->n_heads, s->n_kv_heads, s->head_dim);
    ckvc_buffer_printf(&b, "width=%d\nintermediate=%d\nvocab=%d\n", s->width, s->intermediate,
                       s->vocab);
    ckvc_buffer_printf(&b, "rms_eps=%.*g\nrope_theta=%.*g\n", digits, s->rms_eps, digits,
                       s->rope_theta);
    if (s->rope != ROPE_DEFAULT) {
        ckvc_buffer_printf(&b, "rope=%s\nrope_factor=%.*g\n", rope_kind_name(s->rope), digits,
                           s->rope_factor);
    }
    if (s->rope == ROPE_LLAMA3) {
        ckvc_buffer_printf(&b, "rope_low_freq=%.*g\nrope_high_freq=%.*g\n", digits,
                           s->rope_low_freq, digits, s->rope_high_freq);
        ckvc_buffer_printf(&b, "rope_original_positions=%d\n", s->rope_original_positions);
    }
    if (s->rope == ROPE_DYNAMIC) { ckvc_buffer_printf(&b, "max_positions=%d\n", s->max_positions); }
    if (s->rope_dims) { ckvc_buffer_printf(&b, "rope_dims=%d\n", s->rope_dims); }
    if (s->tied) { ckvc_buffer_text(&b, "tied=1\n"); }
    if (s->qkv_bias) { ckvc_buffer_text(&b, "qkv_bias=1\n"); }
    if (s->output_bias) { ckvc_buffer_text(&b, "output_bias=1\n"); }
    if (s->mlp_bias) { ckvc_buffer_text(&b, "mlp_bias=1\n"); }
    if (s->qk_norm) { ckvc_buffer_text(&b, "qk_norm=1\n"); }
    if (s->post_norms) { ckvc_buffer_text(&b, "post_norms=1\n"); }
    if (s->gelu) { ckvc_buffer_text(&b, "gelu=1\n"); }
    const double numbers[] = {s->embed_scale, s->query_scalar, s->rope_local_theta};
    static const char *const names[] = {"embed_scale", "query_scalar", "rope_local_theta"};
    for (int i = 0; i < 3; i++) {
        if (numbers[i] > 0.0) { ckvc_buffer_printf(&b, "%s=%.*g\n", names[i], digits, numbers[i]); }
    }
    if (s->sliding_window) { ckvc_buffer_printf(&b, "sliding_window=%d\n", s->sliding_window); }
    for (int32_t l = 0; s->sliding_window && l < s->n_layers; l++) {
        if (model_shape_window(s, l) == 0) { ckvc_buffer_printf(&b, "full_layer=%d\n", l); }
    }
    return (char *)b.data;
}

/* inv_freq[i] = base^(-2i/D), where D is the number of values that are rotated.
 *
 * llama3: with the wavelength w = 2 pi / inv_freq, long waves (w > original / low) are slowed down
 * by `factor`, short ones (w < original / high) stay, and between them the two are mixed by
 * (original / w - low) / (high - low). linear: all waves are slowed down by `factor`. dynamic: for
 * n > max_positions tokens base = theta * (factor * n / max_positions - (factor - 1))^(D / (D -
 * 2)), else theta. */
void rope_frequencies(const model_shape *s, int64_t n_total, double *inv_freq) {
    const int32_t dims = s->rope_dims ? s->rope_dims : s->head_dim;
    double base = s->rope_theta;
    if (s->rope == ROPE_DYNAMIC && n_total > s->max_positions) {
        base *= pow(s->rope_factor * (double)n_total / s->max_positions - (s->rope_factor - 1.0),
                    (double)dims / (dims - 2));
    }
    for (int32_t i = 0; i < s->head_dim / 2; i++) {
        double f = i < dims / 2 ? pow(base, -2.0 * i / dims) : 0.0;
        if (s->rope == ROPE_LINEAR) { f /= s->rope_factor; }
        if (s->rope == ROPE_LLAMA3) {
            const double turns = s->rope_original_positions * f / (2.0 * 3.14159265358979323846);
            if (turns < s->rope_low_freq) {
                f /= s->rope_factor;
            } else if (turns <= s->rope_high_freq) {
                const double smooth =
                    (turns - s->rope_low_freq) / (s->rope_high_freq - s->rope_low_freq);
                f = (1.0 - smooth) * f / s->rope_factor + smooth * f;
            }
        }
        inv_freq[i] = f;
    }
    if (s->rope_local_theta > 0.0) {
        const model_shape local = {.head_dim = s->head_dim, .rope_theta = s->rope_local_theta};
        rope_frequencies(&local, n_total, inv_freq + s->head_dim / 2);
    }
}

ckvc_status model_shape_evicts(const model_shape *s, const char *name, ckvc_err *err) {
    CKVC_FAIL_IF(
        s->rope_local_theta > 0.0, err, CKVC_E_DATA,
        "%s: this is a %s model, whose layers with a sliding window rotate by a base of their "
        "own: ckvc cannot choose yet what such a model keeps; perplexity, generate "
        "without a table and score --policy full run it",
        name, s->family);
    return CKVC_OK;
}

void model_shape_gemma(model_shape *s, double query_scalar) {
    s->post_norms = s->gelu = true;
    s->embed_scale = sqrt((double)s->width);
    /* so that one value has one spelling */
    s->query_scalar = query_scalar == s->head_dim ? 0.0 : query_scalar;
}

void model_shape_stop(model_shape *s, int64_t id) {
    if (id < 0 || id >= s->vocab || s->n_stop_ids == MODEL_STOP_IDS_MAX) { return; }
    s->stop_ids[s->n_stop_ids++] = (int32_t)id;
}

bool model_shape_stops(const model_shape *s, int32_t id) {
    for (int32_t i = 0; i < s->n_stop_ids; i++) {
        if (s->stop_ids[i] == id) { return true; }
    }
    return false;
}
