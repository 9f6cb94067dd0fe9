/* Decoding on the CUDA backend, and attention_error: prepares the arguments of the kernels in
 * held.cu and compare.cu. */
#include <assert.h>

#include "lib/backend/cuda/cuda_attention.h"
#include "lib/backend/cuda/cuda.h"

void cuda_cache_keep(backend *be, const be_attention_shape *s, const be_cache *prompt, int64_t n,
                     const kept_set *kept, const be_held *to) {
    cuda_backend *c = cuda_of(be);
    const int64_t d = s->head_dim, n_kv = s->n_kv_heads;
    const size_t n_positions = kept ? kept->offsets[kept->n_sets] : 0,
                 args = cuda_align(2 * (size_t)n_kv * sizeof(cuda_copy));
    assert(n <= prompt->capacity && (!kept || kept->n_sets == 1 || kept->n_sets == n_kv));
    char *scratch =
        cuda_attends(c, s) ? cuda_scratch(c, args + n_positions * sizeof *kept->positions) : NULL;
    cuda_copy *copies = scratch ? cuda_upload_begin(c, args) : NULL;
    if (!copies) { return; }
    cuda_pack all = {.copies = (const cuda_copy *)scratch, .head_dim = s->head_dim};
    for (int64_t g = 0; g < n_kv; g++) {
        int64_t count = n;
        const uint32_t *positions = NULL;
        if (kept) {
            const uint32_t first = cuda_kept_of(kept, g, &count);
            positions = (const uint32_t *)(scratch + args) + first;
        }
        assert(count == to->n_kept[g]);
        const int64_t from = g * prompt->capacity * d, at = to->first[g] * d;
        copies[all.n_copies++] = (cuda_copy){prompt->k->data + from, positions, to->k->data + at,
                                             (int32_t)count, (int32_t)d};
        copies[all.n_copies++] = (cuda_copy){prompt->v->data + from, positions, to->v->data + at,
                                             (int32_t)count, (int32_t)d};
        if (count > all.n_most) { all.n_most = (int32_t)count; }
    }
    cuda_upload_end(c, scratch, copies, args);
    if (kept) { cuda_upload(c, scratch + args, kept->positions, n_positions * sizeof(uint32_t)); }
    cuda_written(c, to->k);
    cuda_written(c, to->v);
    cuda_copy_rows_of(c->stream, &all);
    cuda_check(c, "cache_keep");
}

/* Copies the step's heads to the device, in front of `more` bytes of scratch, which *left receives.
 * Returns false where this fails, which is recorded. */
static bool upload_step(cuda_backend *c, const be_attention_shape *s, const be_step *rows,
                        size_t more, cuda_step *a, char **left) {
    const int64_t n_heads = rows->n * s->n_kv_heads, d = s->head_dim;
    const size_t args = cuda_align((size_t)n_heads * sizeof(cuda_held_head));
    char *scratch = cuda_attends(c, s) ? cuda_scratch(c, args + more) : NULL;
    cuda_held_head *heads = scratch ? cuda_upload_begin(c, args) : NULL;
    if (!heads) { return false; }
    for (int64_t i = 0; i < n_heads; i++) {
        const be_held *held = &rows->held[i / s->n_kv_heads];
        const int64_t g = i % s->n_kv_heads, at = held->first[g] * d;
        heads[i] =
            (cuda_held_head){held->k->data + at, held->v->data + at,
                             (int32_t)(held->n_kept[g] + held->n_own), (int32_t)held->hidden[g]};
    }
    cuda_upload_end(c, scratch, heads, args);
    *left = scratch + args;
    *a = (cuda_step){.heads = (const cuda_held_head *)scratch,
                     .n = (int32_t)rows->n,
                     .n_heads = s->n_heads,
                     .n_kv_heads = s->n_kv_heads,
                     .head_dim = s->head_dim,
                     .scale = s->scale,
                     .q = rows->q->data};
    return true;
}

void cuda_held_rows(backend *be, const be_attention_shape *s, const be_step *rows) {
    cuda_backend *c = cuda_of(be);
    const size_t angles = (size_t)(rows->n * s->head_dim / 2) * sizeof(float);
    cuda_step a;
    char *left;
    if (!upload_step(c, s, rows, 2 * cuda_align(angles), &a, &left)) { return; }
    char *const sin = left + cuda_align(angles);
    cuda_upload(c, left, rows->cos, angles);
    cuda_upload(c, sin, rows->sin, angles);
    a.cos = (const float *)left;
    a.sin = (const float *)sin;
    a.k = rows->k->data;
    a.v = rows->v->data;
    cuda_written(c, rows->q);
    for (int64_t i = 0; i < rows->n; i++) {
        cuda_written(c, rows->held[i].k);
        cuda_written(c, rows->held[i].v);
    }
    cuda_step_rows(c->stream, &a);
    cuda_check(c, "held_rows");
}

void cuda_attention_held(backend *be, const be_attention_shape *s, const be_step *rows,
                         be_buf *out) {
    cuda_backend *c = cuda_of(be);
    int64_t most = 0;
    for (int64_t i = 0; i < rows->n * s->n_kv_heads; i++) {
        const be_held *held = &rows->held[i / s->n_kv_heads];
        const int64_t n = held->n_kept[i % s->n_kv_heads] + held->n_own;
        most = n > most ? n : most;
    }
    cuda_step a;
    char *left;
    const size_t pieces = (size_t)(rows->n * s->n_heads * cuda_held_pieces(most));
    if (!upload_step(c, s, rows, pieces * (size_t)(s->head_dim + 2) * sizeof(float), &a, &left)) {
        return;
    }
    a.n_most = (int32_t)most;
    a.out = cuda_written(c, out);
    a.pieces = (float *)left;
    cuda_step_attend(c->stream, &a);
    cuda_check(c, "attention_held");
}

/* An array with 1 where a position is kept; the caller frees it. */
static uint8_t *kept_flags(const kept_set *kept, int64_t n_prompt) {
    uint8_t *flags = ckvc_calloc((size_t)(kept->n_sets * n_prompt), sizeof *flags);
    for (int64_t g = 0; g < kept->n_sets; g++) {
        int64_t n;
        const uint32_t *positions = kept->positions + cuda_kept_of(kept, g, &n);
        for (int64_t i = 0; i < n; i++) { flags[g * n_prompt + positions[i]] = 1; }
    }
    return flags;
}

ckvc_status cuda_attention_error(backend *be, const be_attention_shape *s, const be_continuation *r,
                                 const be_compared *lanes, be_row_error *out, ckvc_err *err) {
    cuda_backend *c = cuda_of(be);
    const int64_t d = s->head_dim, rows = be_padded_rows(r->n_rows),
                  n_sets = lanes->kept ? lanes->kept->n_sets : 0;
    const size_t result = (size_t)(s->n_heads * r->n_rows) * sizeof *out,
                 kept = (size_t)(n_sets * r->n_prompt);
    CKVC_AUTO_FREE uint8_t *flags = lanes->kept ? kept_flags(lanes->kept, r->n_prompt) : NULL;
    assert(r->n_prompt <= r->prompt.capacity && rows <= r->own.capacity);
    assert(!lanes->kept || n_sets == 1 || n_sets == s->n_kv_heads);
    char *scratch = cuda_attends(c, s) ? cuda_scratch(c, cuda_align(result) + kept) : NULL;
    if (!scratch) { return cuda_sync(be, err); }
    cuda_compare a = {.prompt = r->prompt.k->data,
                      .capacity = r->prompt.capacity,
                      .own_capacity = r->own.capacity,
                      .per_head = n_sets > 1,
                      .n_heads = s->n_heads,
                      .n_kv_heads = s->n_kv_heads,
                      .head_dim = s->head_dim,
                      .window = s->window ? s->window : CUDA_ALL_SEEN,
                      .scale = s->scale,
                      .n_prompt = (int32_t)r->n_prompt,
                      .n_rows = (int32_t)r->n_rows,
                      .out = (double *)scratch};
    for (int i = 0; i < 2; i++) {
        const int64_t lane = i ? lanes->other : lanes->full;
        a.q[i] = r->q->data + lane * rows * s->n_heads * d;
        a.own[i] = r->own.k->data + lane * s->n_kv_heads * r->own.capacity * d;
    }
    if (flags) {
        a.kept = (const uint8_t *)scratch + cuda_align(result);
        cuda_upload(c, scratch + cuda_align(result), flags, kept);
    }
    cuda_compare_rows(c->stream, &a);
    cuda_check(c, "attention_error");
    return cuda_download(c, out, scratch, result, err);
}
