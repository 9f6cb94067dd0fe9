/* Decoding on the CPU: compact caches that hold what is kept, and attention of one row of each
 * sequence over its own.
 *
 * A task of attention is one sequence and one KV head: the query heads of its group are the rows of
 * one block, so that their keys and values are read once. The chain of operations of a row is
 * attention_kept's: kept positions first, then the sequence's own, steps from the beginning of
 * each. */
#include <assert.h>
#include <string.h>

#include "lib/backend/cpu/cpu.h"

typedef struct keep_job {
    const be_attention_shape *s;
    const be_cache *prompt;
    int64_t n_prompt;
    const kept_set *kept;
    const be_held *to;
} keep_job;

static void keep_task(void *ctx, int64_t g, int worker) {
    (void)worker;
    const keep_job *a = ctx;
    const int64_t d = a->s->head_dim;
    const size_t from = (size_t)(g * a->prompt->capacity * d), to = (size_t)(a->to->first[g] * d);
    const float *k = a->prompt->k->data + from, *v = a->prompt->v->data + from;
    float *k_to = a->to->k->data + to, *v_to = a->to->v->data + to;
    int64_t n = a->n_prompt;
    const uint32_t *positions = a->kept ? cpu_kept_of(a->kept, g, &n) : NULL;
    assert(n == a->to->n_kept[g]);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = (positions ? (int64_t)positions[i] : i) * d;
        memcpy(k_to + i * d, k + at, (size_t)d * sizeof *k);
        memcpy(v_to + i * d, v + at, (size_t)d * sizeof *v);
    }
}

void cpu_cache_keep(backend *be, const be_attention_shape *s, const be_cache *prompt, int64_t n,
                    const kept_set *kept, const be_held *to) {
    assert(n <= prompt->capacity && (!kept || kept->n_sets == 1 || kept->n_sets == s->n_kv_heads));
    keep_job a = {.s = s, .prompt = prompt, .n_prompt = n, .kept = kept, .to = to};
    ckvc_pool_run(be->pool, s->n_kv_heads, keep_task, &a);
}

void cpu_held_rows(backend *be, const be_attention_shape *s, const be_step *rows) {
    (void)be;
    const int64_t d = s->head_dim, half = d / 2;
    for (int64_t i = 0; i < rows->n; i++) {
        const be_held *held = &rows->held[i];
        const float *cos = rows->cos + i * half, *sin = rows->sin + i * half;
        for (int64_t h = 0; h < s->n_heads; h++) {
            kernel_rope(rows->q->data + (i * s->n_heads + h) * d, cos, sin, (int32_t)half);
        }
        for (int64_t g = 0; g < s->n_kv_heads; g++) {
            const int64_t from = (i * s->n_kv_heads + g) * d,
                          to = (held->first[g] + held->n_kept[g] + held->n_own - 1) * d;
            assert((size_t)(to + d) <= held->k->n);
            memcpy(held->k->data + to, rows->k->data + from, (size_t)d * sizeof(float));
            memcpy(held->v->data + to, rows->v->data + from, (size_t)d * sizeof(float));
            kernel_rope(held->k->data + to, cos, sin, (int32_t)half);
        }
    }
}

/* A block of heads' queries and results lie behind attention's own scratch. */
size_t cpu_held_floats(const cpu_backend *c, const be_attention_shape *s, int64_t n_keys) {
    return cpu_attend_floats(c, s, n_keys, 0) + (size_t)(2 * BE_ROW_TILE * s->head_dim);
}

typedef struct held_job {
    cpu_backend *c;
    const be_attention_shape *s;
    const be_step *rows;
    float *out;
} held_job;

static void held_task(void *ctx, int64_t task, int worker) {
    const held_job *a = ctx;
    const be_attention_shape *s = a->s;
    const int64_t i = task / s->n_kv_heads, g = task % s->n_kv_heads, d = s->head_dim,
                  group = s->n_heads / s->n_kv_heads;
    const be_held *held = &a->rows->held[i];
    const int64_t kept = held->n_kept[g], n = kept + held->n_own;
    const float *k = held->k->data + held->first[g] * d, *v = held->v->data + held->first[g] * d;
    const key_run runs[2] = {{k, v, kept}, {k + kept * d, v + kept * d, held->n_own}};
    const be_attention_shape alone = {
        .n_heads = 1, .n_kv_heads = 1, .head_dim = s->head_dim, .scale = s->scale};
    float *score = a->c->worker[worker].data, *q = score + cpu_attend_floats(a->c, &alone, n, 0),
          *out = q + BE_ROW_TILE * d;
    for (int64_t h = 0; h < group; h += BE_ROW_TILE) {
        const int64_t n_heads = cpu_piece_length(group, h, BE_ROW_TILE),
                      at = (i * s->n_heads + g * group + h) * d;
        row_span span[BE_ROW_TILE] = {{0}};
        for (int64_t r = 0; r < n_heads; r++) { span[r] = (row_span){held->hidden[g], n}; }
        memcpy(q, a->rows->q->data + at, (size_t)(n_heads * d) * sizeof *q);
        memset(q + n_heads * d, 0, (size_t)((BE_ROW_TILE - n_heads) * d) * sizeof *q);
        cpu_attend(a->c, &alone, q, runs, span, NULL, score, out);
        memcpy(a->out + at, out, (size_t)(n_heads * d) * sizeof *out);
    }
}

void cpu_attention_held(backend *be, const be_attention_shape *s, const be_step *rows,
                        be_buf *out) {
    cpu_backend *c = cpu_of(be);
    const int64_t n_tasks = rows->n * s->n_kv_heads;
    int64_t most = 0;
    for (int64_t i = 0; i < n_tasks; i++) {
        const be_held *held = &rows->held[i / s->n_kv_heads];
        const int64_t keys = held->n_kept[i % s->n_kv_heads] + held->n_own;
        most = keys > most ? keys : most;
    }
    cpu_need(c, cpu_held_floats(c, s, most), 0);
    held_job a = {.c = c, .s = s, .rows = rows, .out = out->data};
    ckvc_pool_run(be->pool, n_tasks, held_task, &a);
}
