/* A model's sketch: numbers that neither quantisation nor bf16 changes much. See lib/base/sketch.h,
 * and docs/formats.md for the formulas. */
#include <math.h>
#include <stdio.h>

#include "lib/base/json.h"
#include "lib/model/model_weights.h"

/* How far rounding to a type moves a matrix, in 1/10000 of its norm. */
static const uint16_t rounding[] = {
    [TENSOR_F32] = 0,    [TENSOR_F16] = 3,    [TENSOR_BF16] = 15,  [TENSOR_Q4_0] = 900,
    [TENSOR_Q4_1] = 900, [TENSOR_Q5_0] = 450, [TENSOR_Q5_1] = 450, [TENSOR_Q8_0] = 55,
    [TENSOR_Q4_K] = 900, [TENSOR_Q6_K] = 250, [TENSOR_OTHER] = 0};

/* Whether a tensor can be read as a weight. A file may hold other tensors beside the model's. */
static bool is_weight(const tensor_view *t) {
    if (t->type == TENSOR_OTHER) { return false; } /* it has no blocks */
    const char *last = strrchr(t->name, '.');
    const bool matrix = t->rank == 2 && t->dims[0] > 0,
               vector = t->rank == 1 && tensor_block_of(t->type).values == 1;
    return (matrix || vector) && t->dims[t->rank - 1] > 0 &&
           (strcmp(last, ".weight") == 0 || strcmp(last, ".bias") == 0);
}

/* Adds a tensor's part to the numbers. Among the tensors of its rank it is number `which`. */
static void add_tensor(const tensor_view *t, uint32_t which, double out[SKETCH_NUMBERS]) {
    tensor_view plain = *t;
    plain.partial.rows = 0; /* reads rows in the order of Hugging Face's files */
    const int64_t n = t->dims[t->rank - 1];
    CKVC_AUTO_FREE float *v = ckvc_alloc((size_t)n, sizeof *v);
    if (t->rank == 1) { tensor_read_rows(&plain, 0, n, v); }
    for (int k = 0; k < SKETCH_NUMBERS; k++) {
        double sum = 0.0, squares = 0.0;
        if (t->rank == 2) {
            tensor_read_rows(&plain, (2 * k + 1) * t->dims[0] / (2 * SKETCH_NUMBERS), 1, v);
        }
        for (int64_t j = 0; j < n; j++) {
            const double x = (double)v[j];
            sum += sketch_signs((uint32_t)j) >> k & 1 ? x : -x;
            squares += x * x;
        }
        sum /= squares > 0.0 ? sqrt(squares) : 1.0;
        out[k] += sketch_signs(SKETCH_TENSOR + which) >> k & 1 ? sum : -sum;
    }
}

/* A digest of the shape that is the same for every container. GGUF stores numbers as float32, calls
 * Mistral llama, and may store a tied head, or rows for which there is no token. */
static uint64_t digest_shape(const model_shape *s) {
    model_shape p = *s;
    p.family[0] = '\0';
    p.tied = false;
    p.vocab = 0;
    CKVC_AUTO_FREE char *lines = model_shape_lines(&p, 6);
    return sketch_digest(lines, strlen(lines));
}

void model_sketch(const model_spec *spec, char out[SKETCH_TEXT]) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    double numbers[2][SKETCH_NUMBERS] = {{0.0}};
    uint32_t n[2] = {0, 0}, moved = 0;
    const int32_t L = spec->shape.n_layers, looked = L < SKETCH_LAYERS ? L : SKETCH_LAYERS;
    for (int32_t i = 0; i < looked; i++) {
        char layer[32];
        const int length = snprintf(layer, sizeof layer, "model.layers.%d.", i * L / looked);
        for (size_t j = 0; j < spec->n_tensors; j++) {
            const tensor_view *t = spec->by_name[j];
            if (strncmp(t->name, layer, (size_t)length) != 0 || !is_weight(t)) { continue; }
            moved = t->rank == 2 && rounding[t->type] > moved ? rounding[t->type] : moved;
            add_tensor(t, n[t->rank - 1]++, numbers[t->rank - 1]);
        }
    }
    ckvc_buffer_printf(&text, "1 %04x %012llx %012llx", moved, (unsigned long long)spec->words,
                       (unsigned long long)digest_shape(&spec->shape));
    for (int i = 0; i < 2 * SKETCH_NUMBERS; i++) {
        const int kind = i / SKETCH_NUMBERS;
        const double x = numbers[kind][i % SKETCH_NUMBERS] / sqrt(fmax(1.0, n[kind])) * 8192.0;
        ckvc_buffer_printf(&text, "%s%04x", i % SKETCH_NUMBERS ? "" : " ",
                           (unsigned)(fmax(-32768.0, fmin(32767.0, rint(x))) + 32768.0));
    }
    snprintf(out, SKETCH_TEXT, "%s", (const char *)text.data);
}
