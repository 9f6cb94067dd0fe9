/* Attention of the CPU backend. A task is one query head and one block of BE_ROW_TILE query rows.
 * Our kernels walk over its keys once (cpu_fma.h); with OpenBLAS it is
 *
 *   S = scale Q K^T (one product over all keys that some row of the block sees) -> softmax of each
 * row over the keys that this row sees, zeros elsewhere -> O = S V, rows divided by their sums.
 *
 * and at most BE_ROW_TILE x keys scores exist per worker. Keys above the diagonal block are not
 * touched. Query head h reads KV head h / group, group = H/G (grouped-query attention, Ainslie et
 * al. 2023; the order of heads is Hugging Face's).
 */
#include <assert.h>
#include <cblas.h>
#include <string.h>

#include "lib/backend/cpu/cpu.h"

static int64_t score_stride(int64_t n) {
    return (n + 15) / 16 * 16;
}

/* A worker's scratch for attention over so many keys, in floats. */
static size_t attend_floats(const cpu_backend *c, const be_attention_shape *s, int64_t n_keys) {
    return c->fma ? cpu_fma_scratch(s->head_dim) : (size_t)(BE_ROW_TILE * score_stride(n_keys));
}

/* OpenBLAS's. score [BE_ROW_TILE][stride] */
static void scores(const be_attention_shape *s, const float *q, const key_run *runs, float *score,
                   int64_t stride) {
    const int ldq = s->n_heads * s->head_dim;
    for (int i = 0; i < 2; i++) {
        if (runs[i].n > 0) {
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, BE_ROW_TILE, (int)runs[i].n,
                        s->head_dim, s->scale, q, ldq, runs[i].k, s->head_dim, 0.0f, score,
                        (int)stride);
        }
        score += runs[i].n;
    }
}

/* q, out: the block's first row at this head's columns. score: scratch [BE_ROW_TILE][stride]. */
static void attend(const cpu_backend *c, const be_attention_shape *s, const float *q,
                   const key_run runs[2], const row_span *span, float *score, float *out) {
    const int64_t n = runs[0].n + runs[1].n, stride = score_stride(n);
    const int ldq = s->n_heads * s->head_dim;
    float inverse[BE_ROW_TILE];
    if (c->fma) {
        c->fma->attend(s->head_dim, s->scale, q, ldq, runs, span, out, score);
        return;
    }
    scores(s, q, runs, score, stride);
    for (int r = 0; r < BE_ROW_TILE; r++) {
        float *row = score + r * stride;
        inverse[r] = 0.0f;
        if (span[r].hi <= span[r].lo) {
            memset(row, 0, (size_t)n * sizeof *row);
            continue;
        }
        memset(row, 0, (size_t)span[r].lo * sizeof *row);
        inverse[r] = (float)(1.0 / kernel_softmax(row + span[r].lo, span[r].hi - span[r].lo, NULL));
        memset(row + span[r].hi, 0, (size_t)(n - span[r].hi) * sizeof *row);
    }
    bool onto = false;
    for (int i = 0; i < 2; i++) {
        if (runs[i].n > 0) {
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, BE_ROW_TILE, s->head_dim,
                        (int)runs[i].n, 1.0f, score, (int)stride, runs[i].v, s->head_dim,
                        onto ? 1.0f : 0.0f, out, ldq);
            onto = true;
        }
        score += runs[i].n;
    }
    for (int r = 0; r < BE_ROW_TILE; r++) {
        kernel_scale(out + (int64_t)r * ldq, s->head_dim, inverse[r]);
    }
}

#define GATHER_SETS 32
#define GATHER_FLOATS                                                                              \
    ((int64_t)1 << 20) /* 4 MiB of gathered keys and values in flight; one set may be larger */

typedef struct attention_job {
    cpu_backend *c;
    const be_attention_shape *s;
    int64_t row0, n_rows;
    const float *q; /* [rows][H*D], the first is row0 */
    const float *k, *v;
    int64_t capacity;
    float *out;
    /* attention_kept */
    int64_t n_prompt, own_capacity;
    const float *own_k, *own_v;
    const be_lane *lanes; /* of this piece of work, see cpu_attention_kept */
    int64_t n_tiles;      /* row tiles of a lane */
    const kept_set *sets[GATHER_SETS];
    int64_t first[GATHER_SETS + 1]; /* lanes first[i] ... first[i+1]-1 keep sets[i] */
    int64_t at[GATHER_SETS];        /* where its keys and values begin in `gathered` */
    int32_t n_sets;
    float *gathered; /* per set: K then V of every KV head's kept rows, in order of heads: see
                        gather_task */
    /* window_mass */
    int64_t window;
    double *head_mass; /* [H][n_rows] */
} attention_job;

static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* ---- prompt rows over the prompt ---- */

static void causal_task(void *ctx, int64_t task, int worker) {
    const attention_job *a = ctx;
    const be_attention_shape *s = a->s;
    const int64_t h = task % s->n_heads, row0 = a->row0 + task / s->n_heads * BE_ROW_TILE,
                  d = s->head_dim;
    const int64_t g = h / (s->n_heads / s->n_kv_heads),
                  at = (row0 - a->row0) * s->n_heads * d + h * d;
    /* the first key that the block's first row sees, rounded down so that a block's keys begin at a
     * tile */
    const int64_t k0 = s->window ? max64(0, row0 - s->window + 1) / BE_ROW_TILE * BE_ROW_TILE : 0;
    const key_run runs[2] = {{a->k + (g * a->capacity + k0) * d, a->v + (g * a->capacity + k0) * d,
                              row0 + BE_ROW_TILE - k0},
                             {0}};
    row_span span[BE_ROW_TILE];
    for (int64_t r = 0; r < BE_ROW_TILE; r++) {
        const int64_t j = row0 + r;
        span[r] = (row_span){(s->window ? max64(0, j - s->window + 1) : 0) - k0,
                             j < a->row0 + a->n_rows ? j + 1 - k0 : 0};
    }
    attend(a->c, s, a->q + at, runs, span, a->c->worker[worker].data, a->out + at);
}

void cpu_attention_causal(backend *be, const be_attention_shape *s, int64_t row0, int64_t n_rows,
                          const be_buf *q, const be_buf *cache_k, const be_buf *cache_v,
                          int64_t capacity, be_buf *out) {
    cpu_backend *c = cpu_of(be);
    const int64_t rows = be_padded_rows(n_rows);
    assert(row0 % BE_ROW_TILE == 0 && row0 + rows <= capacity &&
           (size_t)(rows * s->n_heads * s->head_dim) <= q->n &&
           (size_t)(rows * s->n_heads * s->head_dim) <= out->n);
    if (!cpu_reserve(c, attend_floats(c, s, row0 + rows), 0)) { return; }
    attention_job a = {.c = c,
                       .s = s,
                       .row0 = row0,
                       .n_rows = n_rows,
                       .q = q->data,
                       .k = cache_k->data,
                       .v = cache_v->data,
                       .capacity = capacity,
                       .out = out->data};
    ckvc_pool_run(c->base.pool, rows / BE_ROW_TILE * s->n_heads, causal_task, &a);
}

/* ---- continuation rows over the kept prompt positions and themselves ---- */

static const uint32_t *kept_of(const kept_set *kept, int64_t g, int64_t *n) {
    const int32_t set = kept->n_sets == 1 ? 0 : (int32_t)g;
    *n = kept->offsets[set + 1] - kept->offsets[set];
    return kept->positions + kept->offsets[set];
}

/* Where head g's rows begin in the gathered memory, in floats. */
static int64_t gathered_at(const kept_set *kept, int64_t g, int64_t d) {
    return 2 * d * (kept->n_sets == 1 ? g * (int64_t)kept->offsets[1] : (int64_t)kept->offsets[g]);
}

/* Floats of a set's keys and values. */
static int64_t gathered_size(const be_attention_shape *s, const kept_set *kept) {
    return kept ? 2 * (int64_t)s->head_dim * kept->offsets[kept->n_sets] *
                      (kept->n_sets == 1 ? s->n_kv_heads : 1)
                : 0;
}

static void gather_task(void *ctx, int64_t task, int worker) {
    (void)worker;
    const attention_job *a = ctx;
    const int64_t d = a->s->head_dim, set = task / a->s->n_kv_heads, g = task % a->s->n_kv_heads;
    const kept_set *kept = a->sets[set];
    const size_t row = (size_t)d * sizeof(float);
    if (kept == NULL) { return; }
    int64_t n;
    const uint32_t *at = kept_of(kept, g, &n);
    float *k = a->gathered + a->at[set] + gathered_at(kept, g, d), *v = k + n * d;
    for (int64_t i = 0; i < n; i++) {
        memcpy(k + i * d, a->k + (g * a->capacity + at[i]) * d, row);
        memcpy(v + i * d, a->v + (g * a->capacity + at[i]) * d, row);
    }
}

static void kept_task(void *ctx, int64_t task, int worker) {
    const attention_job *a = ctx;
    const be_attention_shape *s = a->s;
    const int64_t h = task % s->n_heads, tile = task / s->n_heads % a->n_tiles,
                  i_lane = task / s->n_heads / a->n_tiles;
    const int64_t row0 = tile * BE_ROW_TILE, d = s->head_dim, g = h / (s->n_heads / s->n_kv_heads);
    int32_t set = 0;
    while (a->first[set + 1] <= i_lane) {
        set++;
    }
    const be_lane *lane = &a->lanes[i_lane];
    const kept_set *kept = a->sets[set];
    const int64_t lane_rows = a->n_tiles * BE_ROW_TILE,
                  own = (lane->from * s->n_kv_heads + g) * a->own_capacity * d;
    const uint32_t *positions = NULL;
    key_run runs[2] = {{a->k + g * a->capacity * d, a->v + g * a->capacity * d, a->n_prompt},
                       {a->own_k + own, a->own_v + own, row0 + BE_ROW_TILE}};
    if (kept) {
        positions = kept_of(kept, g, &runs[0].n);
        runs[0].k = a->gathered + a->at[set] + gathered_at(kept, g, d);
        runs[0].v = runs[0].k + runs[0].n * d;
    }
    row_span span[BE_ROW_TILE];
    int64_t lo = 0;
    for (int64_t r = 0; r < BE_ROW_TILE; r++) {
        const int64_t i = row0 + r, first = s->window ? a->n_prompt + i - s->window + 1
                                                      : 0; /* first position that the row sees */
        while (lo < runs[0].n && (positions ? (int64_t)positions[lo] : lo) < first) {
            lo++;
        }
        span[r] = (row_span){first > a->n_prompt ? runs[0].n + first - a->n_prompt : lo,
                             i < a->n_rows ? runs[0].n + i + 1 : 0};
    }
    attend(a->c, s, a->q + ((lane->from * lane_rows + row0) * s->n_heads + h) * d, runs, span,
           a->c->worker[worker].data,
           a->out + ((lane->to * lane_rows + row0) * s->n_heads + h) * d);
}

/* Takes as many of the n lanes as have their sets gathered at once; returns how many. */
static int64_t take_lanes(attention_job *a, const be_lane *lanes, int64_t n, int64_t *n_keys,
                          int64_t *n_gathered) {
    int64_t i = 0;
    a->lanes = lanes;
    a->n_sets = 0;
    *n_keys = *n_gathered = 0;
    for (; i < n; i++) {
        const kept_set *kept = lanes[i].kept;
        if (a->n_sets > 0 && kept == a->sets[a->n_sets - 1]) { continue; }
        const int64_t size = gathered_size(a->s, kept);
        if (a->n_sets == GATHER_SETS || (a->n_sets > 0 && *n_gathered + size > GATHER_FLOATS)) {
            break;
        }
        assert(!kept || kept->n_sets == 1 || kept->n_sets == a->s->n_kv_heads);
        a->sets[a->n_sets] = kept;
        a->first[a->n_sets] = i;
        a->at[a->n_sets++] = *n_gathered;
        *n_gathered += size;
        if (kept == NULL) { *n_keys = max64(*n_keys, a->n_prompt); }
        for (int32_t k = 0; kept && k < kept->n_sets; k++) {
            *n_keys = max64(*n_keys, (int64_t)kept->offsets[k + 1] - kept->offsets[k]);
        }
    }
    a->first[a->n_sets] = i;
    return i;
}

void cpu_attention_kept(backend *be, const be_attention_shape *s, int64_t n_rows, int64_t n_prompt,
                        const be_buf *q, const be_buf *cache_k, const be_buf *cache_v,
                        int64_t capacity, const be_buf *own_k, const be_buf *own_v,
                        int64_t own_capacity, const be_lane *lanes, int64_t n_lanes, be_buf *out) {
    cpu_backend *c = cpu_of(be);
    const int64_t rows = be_padded_rows(n_rows);
    assert(n_prompt <= capacity && rows <= own_capacity);
    attention_job a = {.c = c,
                       .s = s,
                       .n_rows = n_rows,
                       .n_tiles = rows / BE_ROW_TILE,
                       .q = q->data,
                       .k = cache_k->data,
                       .v = cache_v->data,
                       .capacity = capacity,
                       .out = out->data,
                       .n_prompt = n_prompt,
                       .own_capacity = own_capacity,
                       .own_k = own_k->data,
                       .own_v = own_v->data};
    while (n_lanes > 0) {
        int64_t n_keys, n_gathered;
        const int64_t n = take_lanes(&a, lanes, n_lanes, &n_keys, &n_gathered);
        if (!cpu_reserve(c, attend_floats(c, s, n_keys + rows), (size_t)n_gathered)) { return; }
        a.gathered = c->shared.data;
        if (n_gathered > 0) {
            ckvc_pool_run(c->base.pool, a.n_sets * s->n_kv_heads, gather_task, &a);
        }
        ckvc_pool_run(c->base.pool, n * a.n_tiles * s->n_heads, kept_task, &a);
        lanes += n;
        n_lanes -= n;
    }
}

void cpu_attention_scratch(const cpu_backend *c, const be_attention_shape *s, const be_extent *most,
                           size_t *per_worker, size_t *shared) {
    const int64_t keys = be_padded_rows(most->n_prompt) + be_padded_rows(most->n_rows);
    const int64_t one_set = 2 * most->n_prompt * s->n_kv_heads * s->head_dim,
                  mass = 2 * s->n_heads * most->n_prompt;
    const size_t attention = attend_floats(c, s, keys),
                 window = (size_t)(BE_ROW_TILE * score_stride(be_padded_rows(most->n_prompt)));
    *per_worker = attention > window ? attention : window;
    *shared = (size_t)max64(mass, most->n_lanes > 0 ? max64(one_set, GATHER_FLOATS) : 0);
}

/* ---- the window's attention, summed over its rows ---- */

static void mass_task(void *ctx, int64_t h, int worker) {
    const attention_job *a = ctx;
    const be_attention_shape *s = a->s;
    const int64_t d = s->head_dim, g = h / (s->n_heads / s->n_kv_heads),
                  first = a->n_rows - a->window;
    float *score = a->c->worker[worker].data;
    double *mass = a->head_mass + h * a->n_rows;
    memset(mass, 0, (size_t)a->n_rows * sizeof *mass);
    for (int64_t row0 = first / BE_ROW_TILE * BE_ROW_TILE; row0 < a->n_rows; row0 += BE_ROW_TILE) {
        const int64_t k0 =
            s->window ? max64(0, row0 - s->window + 1) / BE_ROW_TILE * BE_ROW_TILE : 0;
        const key_run runs[2] = {{a->k + (g * a->capacity + k0) * d, NULL, row0 + BE_ROW_TILE - k0},
                                 {0}};
        const int64_t stride = score_stride(runs[0].n);
        const float *q = a->q + ((row0 - a->row0) * s->n_heads + h) * d;
        if (a->c->fma) {
            a->c->fma->product(BE_ROW_TILE, runs[0].n, d, q, s->n_heads * d, runs[0].k, d, false,
                               score, stride);
        } else {
            scores(s, q, runs, score, stride);
        }
        for (int64_t j = max64(row0, first); j < row0 + BE_ROW_TILE && j < a->n_rows; j++) {
            const int64_t lo = s->window ? max64(0, j - s->window + 1) : 0, n = j + 1 - lo;
            float *row = score + (j - row0) * stride + lo - k0;
            if (a->c->fma) { kernel_scale(row, n, s->scale); }
            const double sum = kernel_softmax(row, n, NULL);
            kernel_mass_add(mass + lo, row, n, 1.0 / sum);
        }
    }
}

ckvc_status cpu_window_mass(backend *be, const be_attention_shape *s, int64_t n_rows,
                            int64_t window, const be_buf *q, int64_t row0, const be_buf *cache_k,
                            int64_t capacity, double *mass, ckvc_err *err) {
    cpu_backend *c = cpu_of(be);
    const int64_t rows = be_padded_rows(n_rows), group = s->n_heads / s->n_kv_heads;
    assert(window <= n_rows && rows <= capacity && row0 % BE_ROW_TILE == 0 &&
           row0 <= n_rows - window);
    if (!cpu_reserve(c, (size_t)(BE_ROW_TILE * score_stride(rows)),
                     2 * (size_t)(s->n_heads * n_rows))) {
        return be->ops->sync(be, err);
    }
    attention_job a = {.c = c,
                       .s = s,
                       .row0 = row0,
                       .n_rows = n_rows,
                       .q = q->data,
                       .k = cache_k->data,
                       .capacity = capacity,
                       .window = window,
                       .head_mass = (double *)c->shared.data};
    ckvc_pool_run(c->base.pool, s->n_heads, mass_task, &a);
    for (int64_t g = 0; g < s->n_kv_heads; g++) {
        double *sum = mass + g * n_rows;
        memcpy(sum, a.head_mass + g * group * n_rows, (size_t)n_rows * sizeof *sum);
        for (int64_t h = g * group + 1; h < (g + 1) * group; h++) {
            for (int64_t t = 0; t < n_rows; t++) {
                sum[t] += a.head_mass[h * n_rows + t];
            }
        }
    }
    return be->ops->sync(be, err);
}
