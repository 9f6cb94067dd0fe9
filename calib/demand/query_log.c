/* See query_log.h. */
#include "calib/demand/query_log.h"

#include <stdlib.h>

#include "lib/base/bytes.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/order.h"

#define DRAW_STAGE 0x71750000u /* stage of the random numbers; the part's number is added */

enum { FIRST = 200 }; /* positions that are passed over: few heads have found their use there */

static size_t vector_values(const model_shape *s) {
    return (size_t)s->n_layers * (size_t)s->n_heads * (size_t)s->head_dim;
}

void query_log_need(uint32_t n_each, const calibrate_inputs *in, worker_options *w) {
    w->beside += SHARD_PARTS * n_each *
                 (vector_values(model_get_shape(in->model)) * sizeof(float) + sizeof(uint32_t));
}

void query_log_open(query_log *q, uint32_t n_each, const calibrate_inputs *in) {
    const size_t n = (size_t)SHARD_PARTS * n_each;
    *q = (query_log){.shape = model_get_shape(in->model), .n_each = n_each};
    q->rows = ckvc_alloc(n, sizeof *q->rows);
    q->vectors = ckvc_alloc(n * vector_values(q->shape), sizeof *q->vectors);
}

void query_log_close(query_log *q) {
    CKVC_FREE(q->rows, q->vectors);
    *q = (query_log){0};
}

size_t query_log_bytes(const query_log *q) {
    const struct shard_query *row = NULL;
    return (size_t)SHARD_PARTS * q->n_each *
           (sizeof row->prompt + sizeof row->part + sizeof row->position +
            vector_values(q->shape) * sizeof(uint16_t));
}

/* Draws n_each of the numbers first ... end - 1, or takes all where there are no more, in ascending
 * order. Returns how many they are. The method is Floyd's: in its step for the number i it takes a
 * number up to i, or i itself where that number is taken already (Bentley and Floyd, "A sample of
 * brilliance", CACM 1987). */
static uint32_t draw(ckvc_rng *r, uint32_t n_each, uint32_t first, uint32_t end, uint32_t *out) {
    const uint32_t all = end - first, n = all < n_each ? all : n_each;
    for (uint32_t i = all - n, k = 0; i < all; i++, k++) {
        const uint32_t drawn = first + (uint32_t)ckvc_rng_below(r, i + 1);
        bool taken = false;
        for (uint32_t j = 0; j < k; j++) { taken |= out[j] == drawn; }
        out[k] = taken ? first + i : drawn;
    }
    qsort(out, n, sizeof *out, ckvc_order_u32);
    return n;
}

void query_log_draw(query_log *q, const prompt *p, worker *w) {
    const uint32_t T = p->n_tokens, C = p->n_continuation,
                   first[SHARD_PARTS] = {T < 2 * FIRST ? 0 : FIRST, 0},
                   end[SHARD_PARTS] = {T, C > 1 ? C - 1 : 0};
    for (uint32_t part = 0; part < SHARD_PARTS; part++) {
        uint32_t *rows = q->rows + part * q->n_each;
        query_rows *to = part == SHARD_PROMPT ? &w->prompt_queries : &w->continuation_queries;
        *to = (query_rows){.rows = rows,
                           .out = q->vectors + part * q->n_each * vector_values(q->shape)};
        if (p->heldout) { continue; }
        ckvc_rng r;
        ckvc_rng_init(&r, w->o.setting.seed, ckvc_rng_key(p->entry->id), DRAW_STAGE + part);
        to->n = draw(&r, q->n_each, first[part], end[part], rows);
    }
}

void query_log_add(const query_log *q, const worker *w, size_t at, shard *rows) {
    const size_t width = vector_values(q->shape);
    for (uint32_t part = 0; part < SHARD_PARTS; part++) {
        const query_rows *of = part == SHARD_PROMPT ? &w->prompt_queries : &w->continuation_queries;
        for (int64_t i = 0; i < of->n; i++) {
            const struct shard_query row = {
                .prompt = (uint32_t)at,
                .part = (uint8_t)part,
                .position =
                    of->rows[i] + (part == SHARD_CONTINUATION ? (uint32_t)w->stats.n_tokens : 0)};
            const size_t n = shard_add_query(rows, &row);
            uint16_t *to = rows->query_vectors + n * width;
            bool finite = true;
            for (size_t k = 0; k < width; k++) {
                to[k] = ckvc_f16_of_f32(of->out[(size_t)i * width + k]);
                finite &= ckvc_f16_is_finite(to[k]);
            }
            if (!finite) { rows->n_queries = n; }
        }
    }
}
