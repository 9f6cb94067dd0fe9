/* Attention of the CPU backend. A task is one query head and one block of BE_ROW_TILE query rows.
 * Our own kernels go over its keys once (cpu_fma.h). With OpenBLAS it is done in three steps:
 *
 *   S = scale Q K^T, one product over all keys that some row of the block sees;
 *   a softmax of each row over the keys that this row sees, with zeros elsewhere;
 *   O = S V, with rows divided by their sums.
 *
 * At most BE_ROW_TILE x keys scores exist for each worker. Keys above the diagonal block are not
 * touched. Query head h reads KV head h / group, where group = H/G (grouped-query attention,
 * Ainslie et al. 2023; the order of heads is Hugging Face's). */
#include <assert.h>
#include <cblas.h>
#include <string.h>

#include "lib/backend/cpu/cpu.h"

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* The first key that row j sees. */
static int64_t first_seen(const be_attention_shape *s, int64_t j) {
    return s->window && j >= s->window ? j - s->window + 1 : 0;
}
/* The first key that is read for a block of rows from row0 on; it is the beginning of a tile. */
static int64_t first_key(const be_attention_shape *s, int64_t row0) {
    return first_seen(s, row0) / BE_ROW_TILE * BE_ROW_TILE;
}

void cpu_scores(const cpu_backend *c, const be_attention_shape *s, const float *q, const float *k,
                int64_t n, float *score, int64_t stride) {
    const int ldq = s->n_heads * s->head_dim;
    if (n == 0) { return; }
    if (!c->fma) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, BE_ROW_TILE, (int)n, s->head_dim,
                    s->scale, q, ldq, k, s->head_dim, 0.0f, score, (int)stride);
        return;
    }
    c->fma->product(&(be_product_rows){.n = BE_ROW_TILE}, n, s->head_dim, q, ldq, k, s->head_dim,
                    false, score, stride);
    for (int r = 0; r < BE_ROW_TILE; r++) { kernel_scale(score + r * stride, n, s->scale); }
}

/* The scratch that a worker needs for attend_block over n_keys; n_columns is as in
 * cpu_fma_scratch. With OpenBLAS it is the scores, and the rows of another format that are read at
 * a time. */
static size_t attend_floats(const cpu_backend *c, const be_attention_shape *s, int64_t n_keys,
                            int64_t n_columns) {
    return c->fma ? cpu_fma_scratch(s->head_dim, n_columns)
                  : (size_t)(BE_ROW_TILE * cpu_score_stride(n_keys) + FMA_KEYS * s->head_dim);
}

/* How many rows of a format OpenBLAS takes at once: float32 lies there whole. */
static int64_t rows_at_once(cache_format f, const key_run *run) {
    return f <= CACHE_F32_ROT ? run->n : FMA_KEYS;
}

/* Adds a row's exp(score), divided by its sum, to the columns (or takes the maximum). */
static void add_to_columns(const key_columns *columns, const float *row, row_span span, int64_t n,
                           double inverse) {
    const int64_t hi = span.hi < n ? span.hi : n;
    (columns->largest ? kernel_mass_max : kernel_mass_add)(columns->into + span.lo, row + span.lo,
                                                           hi - span.lo, inverse);
}

/* Attention of a block of BE_ROW_TILE query rows over two runs of keys, row r over span[r]. Rows of
 * q and out lie H*D apart; a row with an empty span is padding and becomes 0. columns is as in
 * cpu_fma.h, or NULL. A kernel: NOLINTNEXTLINE(readability-function-size) */
static void attend_block(const cpu_backend *c, const be_attention_shape *s, const float *q,
                         const key_run runs[2], const row_span *span, const key_columns *columns,
                         float *score, float *out) {
    const int64_t n = runs[0].n + runs[1].n, stride = cpu_score_stride(n);
    const int ldq = s->n_heads * s->head_dim;
    float inverse[BE_ROW_TILE];
    if (c->fma) {
        c->fma->attend(s->head_dim, s->scale, q, ldq, runs, span, columns, out, score);
        return;
    }
    float *const tile = score + BE_ROW_TILE * stride;
    for (int i = 0; i < 2; i++) {
        const int64_t each = rows_at_once(runs[i].formats.keys, &runs[i]);
        for (int64_t at = 0; at < runs[i].n; at += each) {
            const int64_t n_keys = cpu_piece_length(runs[i].n, at, each);
            cpu_scores(c, s, q, cpu_run_keys(&runs[i], s->head_dim, at, n_keys, tile), n_keys,
                       score + i * runs[0].n + at, stride);
        }
    }
    for (int r = 0; r < BE_ROW_TILE; r++) {
        float *row = score + r * stride;
        const bool padding = span[r].hi <= span[r].lo;
        const int64_t lo = padding ? n : span[r].lo, hi = padding ? n : span[r].hi;
        memset(row, 0, (size_t)lo * sizeof *row);
        memset(row + hi, 0, (size_t)(n - hi) * sizeof *row);
        const double one = padding ? 0.0 : 1.0 / kernel_softmax(row + lo, hi - lo, NULL);
        inverse[r] = (float)one;
        if (columns && r >= columns->first && lo < runs[0].n) {
            add_to_columns(columns, row, span[r], runs[0].n, one);
        }
    }
    bool onto = false;
    for (int i = 0; i < 2; score += runs[i++].n) {
        const int64_t each = rows_at_once(runs[i].formats.values, &runs[i]);
        for (int64_t at = 0; at < runs[i].n; at += each) {
            const int64_t n_values = cpu_piece_length(runs[i].n, at, each);
            cblas_sgemm(
                CblasRowMajor, CblasNoTrans, CblasNoTrans, BE_ROW_TILE, s->head_dim, (int)n_values,
                1.0f, score + at, (int)stride,
                cpu_run_rows(runs[i].v, runs[i].formats.values, s->head_dim, at, n_values, tile),
                s->head_dim, onto ? 1.0f : 0.0f, out, ldq);
            onto = true;
        }
    }
    for (int r = 0; r < BE_ROW_TILE; r++) {
        kernel_scale(out + (int64_t)r * ldq, s->head_dim, inverse[r]);
    }
}

/* The scratch of attend_apart. */
static size_t apart_floats(const cpu_backend *c, const be_attention_shape *s, int64_t n_keys) {
    return attend_floats(c, s, n_keys, 0) + (size_t)(2 * BE_ROW_TILE * s->head_dim);
}

/* n <= BE_ROW_TILE rows of one head, which lie `stride` apart. */
typedef struct head_rows {
    const float *q;
    float *out;
    int64_t stride, n;
} head_rows;

/* Attention of rows in a block of their own, to which their queries are copied, as is what comes
 * out. Where formats are rotated, queries are rotated with the keys (unless cpu_run_keys reads
 * those without the rotation), and what the values are mixed to is rotated back. */
static void attend_apart(const cpu_backend *c, const be_attention_shape *s, const head_rows *rows,
                         const key_run runs[2], const row_span *span, float *scratch) {
    const int64_t n = rows->n, stride = rows->stride;
    const size_t d = (size_t)s->head_dim;
    const cache_formats f = runs[0].formats;
    const be_attention_shape alone = {
        .n_heads = 1, .n_kv_heads = 1, .head_dim = s->head_dim, .scale = s->scale};
    float *block = scratch + attend_floats(c, &alone, runs[0].n + runs[1].n, 0),
          *mixed = block + BE_ROW_TILE * d;
    for (int64_t r = 0; r < n; r++) {
        memcpy(block + r * d, rows->q + r * stride, d * sizeof *block);
    }
    memset(block + n * d, 0, (BE_ROW_TILE - n) * d * sizeof *block);
    if (!cache_takes_mean(f)) { cache_rotate(block, n * d, cache_key_rotation(f, s->head_dim)); }
    attend_block(c, &alone, block, runs, span, NULL, scratch, mixed);
    cache_rotate(mixed, n * d, cache_value_rotation(f, s->head_dim));
    for (int64_t r = 0; r < n; r++) {
        memcpy(rows->out + r * stride, mixed + r * d, d * sizeof *mixed);
    }
}

/* ---- prompt rows over the prompt ---- */

typedef struct prompt_job {
    cpu_backend *c;
    const be_attention_shape *s;
    int64_t row0, end;     /* rows row0 ... end-1 */
    const float *q;        /* [rows][H*D], where the first row is row0 */
    const be_cache *cache; /* [G][capacity][D] */
    float *out;
} prompt_job;

static void causal_task(void *ctx, int64_t task, int worker) {
    const prompt_job *a = ctx;
    const be_attention_shape *s = a->s;
    const int64_t h = task % s->n_heads, block = task / s->n_heads * BE_ROW_TILE,
                  row0 = a->row0 + block, at = (block * s->n_heads + h) * s->head_dim;
    const int64_t g = h / (s->n_heads / s->n_kv_heads), k0 = first_key(s, row0),
                  key = (g * a->cache->capacity + k0) * s->head_dim;
    const key_run runs[2] = {
        {a->cache->k->data + key, a->cache->v->data + key, row0 + BE_ROW_TILE - k0, {0}, {0}}, {0}};
    row_span span[BE_ROW_TILE];
    for (int64_t r = 0; r < BE_ROW_TILE; r++) {
        const int64_t j = row0 + r;
        span[r] = (row_span){first_seen(s, j) - k0, j < a->end ? j + 1 - k0 : 0};
    }
    attend_block(a->c, s, a->q + at, runs, span, NULL, a->c->worker[worker].data, a->out + at);
}

void cpu_attention_causal(backend *be, const be_attention_shape *s, int64_t row0, int64_t n_rows,
                          const be_buf *q, const be_cache *cache, be_buf *out) {
    cpu_backend *c = cpu_of(be);
    const int64_t rows = be_padded_rows(n_rows);
    const size_t n = (size_t)(rows * s->n_heads * s->head_dim);
    assert(row0 % BE_ROW_TILE == 0 && row0 + rows <= cache->capacity && n <= q->n && n <= out->n);
    cpu_need(c, attend_floats(c, s, row0 + rows, 0), 0);
    prompt_job a = {.c = c,
                    .s = s,
                    .row0 = row0,
                    .end = row0 + n_rows,
                    .q = q->data,
                    .cache = cache,
                    .out = out->data};
    ckvc_pool_run(be->pool, rows / BE_ROW_TILE * s->n_heads, causal_task, &a);
}

/* ---- continuation rows over the kept prompt positions and themselves ---- */

#define GATHER_SETS 32
/* The most gathered keys and values at a time; a single set may be larger. */
#define GATHER_BYTES ((size_t)4 << 20)

typedef struct kept_job {
    cpu_backend *c;
    const be_attention_shape *s;
    const be_continuation *r;
    const rope_table *angles; /* by which mean keys are rotated, or NULL */
    float *out;
    const be_lane *lanes; /* of this piece of work; see take_lanes */
    int64_t n_tiles;      /* tiles of rows in a lane */
    const kept_set *sets[GATHER_SETS];
    int64_t first[GATHER_SETS + 1]; /* lanes first[i] ... first[i+1]-1 keep sets[i] */
    size_t at[GATHER_SETS];         /* where its keys and values begin in `gathered` */
    int32_t n_sets;
    int64_t n_keys;    /* the most keys of a set and head */
    size_t n_gathered; /* the bytes of all sets */
    /* For each set the keys of every KV head, in the order of heads, and then their values. Each
     * begins at a line of a processor's cache, since a row may have an odd number of bytes. */
    char *gathered;
} kept_job;

/* The bytes of a set's keys, or of its values, in whole lines of a processor's cache. */
static size_t gathered_part(const kept_job *a, const kept_set *kept, cache_format f) {
    const size_t copies = kept->n_sets == 1 ? (size_t)a->s->n_kv_heads : 1;
    return (copies * kept->offsets[kept->n_sets] * cache_bytes(f, (size_t)a->s->head_dim) + 63) /
           64 * 64;
}

/* The bytes of a set's keys and values. */
static size_t gathered_size(const kept_job *a, const kept_set *kept) {
    const cache_formats f = a->r->own.formats;
    return kept ? gathered_part(a, kept, f.keys) + gathered_part(a, kept, f.values) : 0;
}

/* The rows of head g of a set, in the gathered memory. */
static key_run gathered_keys(const kept_job *a, int32_t set, int64_t g) {
    const kept_set *kept = a->sets[set];
    const cache_formats f = a->r->own.formats;
    const size_t d = (size_t)a->s->head_dim,
                 before = kept->n_sets == 1 ? (size_t)g * kept->offsets[1] : kept->offsets[g];
    int64_t n;
    const uint32_t *positions = cpu_kept_of(kept, g, &n);
    const char *k = a->gathered + a->at[set], *v = k + gathered_part(a, kept, f.keys);
    return (key_run){k + before * cache_bytes(f.keys, d), v + before * cache_bytes(f.values, d), n,
                     f,
                     cpu_mean_of(f, &a->r->own.means, a->angles, a->s->head_dim, g, positions, 0)};
}

static void gather_task(void *ctx, int64_t task, int worker) {
    (void)worker;
    const kept_job *a = ctx;
    const int32_t set = (int32_t)(task / a->s->n_kv_heads);
    const int64_t g = task % a->s->n_kv_heads;
    if (!a->sets[set]) { return; }
    const key_run to = gathered_keys(a, set, g);
    int64_t n;
    const uint32_t *positions = cpu_kept_of(a->sets[set], g, &n);
    const int64_t first = g * a->r->prompt.capacity;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = (first + positions[i]) * a->s->head_dim;
        cpu_hold_row(&to, a->s->head_dim, i, a->r->prompt.k->data + at, a->r->prompt.v->data + at);
    }
}

/* Computes the attention of one block: one tile of a lane's rows, one head. */
static void kept_block(const kept_job *a, int64_t i_lane, int64_t tile, int64_t h,
                       const key_columns *columns, int worker) {
    const be_attention_shape *s = a->s;
    const be_continuation *r = a->r;
    const int64_t row0 = tile * BE_ROW_TILE, d = s->head_dim, g = h / (s->n_heads / s->n_kv_heads);
    int32_t set = 0;
    while (a->first[set + 1] <= i_lane) { set++; }
    const be_lane *lane = &a->lanes[i_lane];
    const int64_t lane_rows = a->n_tiles * BE_ROW_TILE, shared = g * r->prompt.capacity * d,
                  own = (lane->from * s->n_kv_heads + g) * r->own.capacity;
    key_run runs[2] = {
        {r->prompt.k->data + shared, r->prompt.v->data + shared, r->n_prompt, {0}, {0}},
        cpu_rows_of(r->own.k, r->own.v, r->own.formats, s->head_dim, own, row0 + BE_ROW_TILE)};
    runs[1].mean =
        cpu_mean_of(r->own.formats, &r->own.means, a->angles, s->head_dim, g, NULL, r->n_prompt);
    const uint32_t *positions = NULL;
    if (a->sets[set]) {
        runs[0] = gathered_keys(a, set, g);
        positions = cpu_kept_of(a->sets[set], g, &runs[0].n);
    }
    row_span span[BE_ROW_TILE];
    int64_t lo = 0;
    for (int64_t i = 0; i < BE_ROW_TILE; i++) {
        const int64_t j = r->n_prompt + row0 + i, first = first_seen(s, j);
        while (lo < runs[0].n && (positions ? (int64_t)positions[lo] : lo) < first) { lo++; }
        span[i] = (row_span){first > r->n_prompt ? runs[0].n + first - r->n_prompt : lo,
                             row0 + i < r->n_rows ? runs[0].n + row0 + i + 1 : 0};
    }
    const int64_t from = ((lane->from * lane_rows + row0) * s->n_heads + h) * d,
                  to = ((lane->to * lane_rows + row0) * s->n_heads + h) * d;
    if (cache_is_plain(r->own.formats)) {
        attend_block(a->c, s, r->q->data + from, runs, span, columns, a->c->worker[worker].data,
                     a->out + to);
    } else {
        assert(a->sets[set] && !columns);
        attend_apart(a->c, s,
                     &(head_rows){r->q->data + from, a->out + to, s->n_heads * d, BE_ROW_TILE},
                     runs, span, a->c->worker[worker].data);
    }
}

static void kept_task(void *ctx, int64_t task, int worker) {
    const kept_job *a = ctx;
    const int64_t block = task / a->s->n_heads;
    kept_block(a, block / a->n_tiles, block % a->n_tiles, task % a->s->n_heads, NULL, worker);
}

/* Takes the first of the n lanes, as many as can have their sets gathered at once. Returns how
 * many. */
static int64_t take_lanes(kept_job *a, const be_lane *lanes, int64_t n) {
    int64_t i = 0;
    a->lanes = lanes;
    a->n_sets = 0;
    a->n_keys = 0;
    a->n_gathered = 0;
    for (; i < n; i++) {
        const kept_set *kept = lanes[i].kept;
        if (a->n_sets > 0 && kept == a->sets[a->n_sets - 1]) { continue; }
        const size_t size = gathered_size(a, kept);
        if (a->n_sets == GATHER_SETS || (a->n_sets > 0 && a->n_gathered + size > GATHER_BYTES)) {
            break;
        }
        assert(!kept || kept->n_sets == 1 || kept->n_sets == a->s->n_kv_heads);
        a->sets[a->n_sets] = kept;
        a->first[a->n_sets] = i;
        a->at[a->n_sets++] = a->n_gathered;
        a->n_gathered += size;
        if (!kept) { a->n_keys = max64(a->n_keys, a->r->n_prompt); }
        for (int32_t k = 0; kept && k < kept->n_sets; k++) {
            a->n_keys = max64(a->n_keys, (int64_t)kept->offsets[k + 1] - kept->offsets[k]);
        }
    }
    a->first[a->n_sets] = i;
    return i;
}

void cpu_attention_kept(backend *be, const be_attention_shape *s, const be_continuation *r,
                        const be_lane *lanes, int64_t n_lanes, be_buf *out) {
    cpu_backend *c = cpu_of(be);
    const int64_t rows = be_padded_rows(r->n_rows);
    assert(r->n_prompt <= r->prompt.capacity && rows <= r->own.capacity);
    kept_job a = {.c = c,
                  .s = s,
                  .r = r,
                  .angles = cpu_means_reserve(c, r->own.formats, &r->own.means, s->head_dim,
                                              r->n_prompt + rows),
                  .out = out->data,
                  .n_tiles = rows / BE_ROW_TILE};
    while (n_lanes > 0) {
        const int64_t n = take_lanes(&a, lanes, n_lanes);
        cpu_need(c, apart_floats(c, s, a.n_keys + rows), a.n_gathered / sizeof(float));
        a.gathered = (char *)c->shared.data;
        if (a.n_gathered > 0) {
            ckvc_pool_run(be->pool, a.n_sets * s->n_kv_heads, gather_task, &a);
        }
        ckvc_pool_run(be->pool, n * a.n_tiles * s->n_heads, kept_task, &a);
        lanes += n;
        n_lanes -= n;
    }
}

/* ---- what continuation rows give to the prompt's positions ---- */

/* A head's blocks are divided into so many pieces; their results are combined in the order of the
 * pieces. */
#define TARGET_PIECES 8

typedef struct target_job {
    kept_job kept; /* a single lane on the whole prompt cache */
    const be_target_rows *rows;
    double *columns;           /* [n_pieces][H][n_prompt] */
    int64_t n_tiles, n_pieces; /* tiles of one piece; number of pieces */
} target_job;

static void target_task(void *ctx, int64_t task, int worker) {
    const target_job *a = ctx;
    const int64_t n_heads = a->kept.s->n_heads, h = task % n_heads, n = a->kept.r->n_prompt,
                  first = task / n_heads * a->n_tiles;
    double *into = a->columns + task * n;
    memset(into, 0, (size_t)n * sizeof *into);
    for (int64_t tile = first; tile < first + a->n_tiles && tile < a->kept.n_tiles; tile++) {
        const int64_t before = max64(0, a->rows->first_row - tile * BE_ROW_TILE);
        const key_columns columns = {into, (int32_t)before, a->rows->largest};
        kept_block(&a->kept, 0, tile, h, before < BE_ROW_TILE ? &columns : NULL, worker);
    }
}

/* Combines the heads of a group, and their pieces, into out [G][n_prompt]. */
static void fold_groups(const target_job *a, double *out) {
    const be_attention_shape *s = a->kept.s;
    const int64_t n = a->kept.r->n_prompt, group = s->n_heads / s->n_kv_heads;
    memset(out, 0, (size_t)(s->n_kv_heads * n) * sizeof *out);
    for (int64_t i = 0; i < a->n_pieces * s->n_heads; i++) {
        const double *from = a->columns + i * n;
        double *to = out + i % s->n_heads / group * n;
        for (int64_t t = 0; t < n; t++) {
            const double larger = from[t] > to[t] ? from[t] : to[t];
            to[t] = a->rows->largest ? larger : to[t] + from[t];
        }
    }
}

ckvc_status cpu_attention_targets(backend *be, const be_attention_shape *s,
                                  const be_continuation *r, const be_target_rows *rows, be_buf *out,
                                  double *targets, ckvc_err *err) {
    cpu_backend *c = cpu_of(be);
    const be_lane alone = {0};
    const int64_t padded = be_padded_rows(r->n_rows), n_tiles = padded / BE_ROW_TILE,
                  each = cpu_pieces(n_tiles, TARGET_PIECES);
    assert(r->n_prompt <= r->prompt.capacity && padded <= r->own.capacity && rows->first_row >= 0 &&
           rows->first_row < r->n_rows);
    target_job a = {.kept = {.c = c, .s = s, .r = r, .out = out->data, .n_tiles = n_tiles},
                    .rows = rows,
                    .n_tiles = each,
                    .n_pieces = cpu_pieces(n_tiles, each)};
    take_lanes(&a.kept, &alone, 1);
    cpu_need(c, attend_floats(c, s, r->n_prompt + padded, r->n_prompt),
             (size_t)(2 * a.n_pieces * s->n_heads * r->n_prompt));
    a.columns = (double *)c->shared.data;
    ckvc_pool_run(be->pool, a.n_pieces * s->n_heads, target_task, &a);
    fold_groups(&a, targets);
    return cpu_sync(be, err);
}

/* Attention of the last rows of a prompt: what its positions get from them, summed over rows and
 * heads (window_mass), or the rows themselves (window_rows). */

typedef struct window_job {
    cpu_backend *c;
    const be_attention_shape *s;
    const be_window *w;
    const float *q; /* [..][H*D], where the first row is w->row0 */
    const be_cache *cache;
    double *head_mass; /* [H][n], or NULL */
    float *rows;       /* [H][window][n], or NULL */
} window_job;

/* Computes the rows j >= first of the block that begins at row0. */
static void window_block(const window_job *a, int64_t h, int64_t row0, int64_t first,
                         float *score) {
    const be_attention_shape *s = a->s;
    const int64_t n_tokens = a->w->n, k0 = first_key(s, row0), n_keys = row0 + BE_ROW_TILE - k0,
                  stride = cpu_score_stride(n_keys), g = h / (s->n_heads / s->n_kv_heads);
    cpu_scores(a->c, s, a->q + ((row0 - a->w->row0) * s->n_heads + h) * s->head_dim,
               a->cache->k->data + (g * a->cache->capacity + k0) * s->head_dim, n_keys, score,
               stride);
    for (int64_t j = row0 > first ? row0 : first; j < row0 + BE_ROW_TILE && j < n_tokens; j++) {
        const int64_t lo = first_seen(s, j), n = j + 1 - lo;
        float *row = score + (j - row0) * stride + lo - k0;
        const double inverse = 1.0 / kernel_softmax(row, n, NULL);
        if (a->head_mass) { kernel_mass_add(a->head_mass + h * n_tokens + lo, row, n, inverse); }
        if (a->rows) {
            float *out = a->rows + (h * a->w->window + j - first) * n_tokens;
            memset(out, 0, (size_t)n_tokens * sizeof *out);
            memcpy(out + lo, row, (size_t)n * sizeof *out);
            kernel_scale(out + lo, n, (float)inverse);
        }
    }
}

static void window_task(void *ctx, int64_t h, int worker) {
    const window_job *a = ctx;
    const int64_t first = a->w->n - a->w->window;
    if (a->head_mass) {
        memset(a->head_mass + h * a->w->n, 0, (size_t)a->w->n * sizeof *a->head_mass);
    }
    for (int64_t row0 = first / BE_ROW_TILE * BE_ROW_TILE; row0 < a->w->n; row0 += BE_ROW_TILE) {
        window_block(a, h, row0, first, a->c->worker[worker].data);
    }
}

static void run_window(window_job *a, size_t shared) {
    const be_window *w = a->w;
    const int64_t rows = be_padded_rows(w->n);
    assert(w->window <= w->n && rows <= a->cache->capacity && w->row0 % BE_ROW_TILE == 0 &&
           w->row0 <= w->n - w->window);
    cpu_need(a->c, (size_t)(BE_ROW_TILE * cpu_score_stride(rows)), shared);
    if (shared) { a->head_mass = (double *)a->c->shared.data; }
    ckvc_pool_run(a->c->base.pool, a->s->n_heads, window_task, a);
}

ckvc_status cpu_window_mass(backend *be, const be_attention_shape *s, const be_window *w,
                            const be_buf *q, const be_cache *cache, double *mass, ckvc_err *err) {
    const int64_t n = w->n, group = s->n_heads / s->n_kv_heads;
    window_job a = {.c = cpu_of(be), .s = s, .w = w, .q = q->data, .cache = cache};
    run_window(&a, 2 * (size_t)(s->n_heads * n));
    for (int64_t g = 0; g < s->n_kv_heads; g++) {
        double *sum = mass + g * n;
        memcpy(sum, a.head_mass + g * group * n, (size_t)n * sizeof *sum);
        for (int64_t h = g * group + 1; h < (g + 1) * group; h++) {
            for (int64_t t = 0; t < n; t++) { sum[t] += a.head_mass[h * n + t]; }
        }
    }
    return cpu_sync(be, err);
}

/* The job writes to rows. */
ckvc_status cpu_window_rows(backend *be, const be_attention_shape *s, const be_window *w,
                            const be_buf *q, const be_cache *cache,
                            float *rows, /* NOLINT(readability-non-const-parameter) */
                            ckvc_err *err) {
    window_job a = {.c = cpu_of(be), .s = s, .w = w, .q = q->data, .cache = cache, .rows = rows};
    run_window(&a, 0);
    return cpu_sync(be, err);
}

void cpu_window_scratch(const be_attention_shape *s, const be_extent *most, size_t *per_worker,
                        size_t *shared) {
    *per_worker = (size_t)(BE_ROW_TILE * cpu_score_stride(be_padded_rows(most->n_prompt)));
    *shared = (size_t)(2 * s->n_heads * most->n_prompt);
}

/* Decoding on the CPU: compact caches that hold what is kept, and the attention of one row of each
 * sequence over its own cache.
 *
 * A task of attention is one sequence and one KV head. The query heads of its group are the rows of
 * one block, so that their keys and values are read once. A row's operations have the order of
 * attention_kept: kept positions first, then the sequence's own, with steps counted from the
 * beginning of each. */

typedef struct keep_job {
    const be_attention_shape *s;
    const be_cache *prompt;
    int64_t n_prompt;
    const kept_set *kept;
    const be_held *to;
    const rope_table *angles; /* by which mean keys are rotated, or NULL */
} keep_job;

static void keep_task(void *ctx, int64_t g, int worker) {
    (void)worker;
    const keep_job *a = ctx;
    const int32_t d = a->s->head_dim;
    int64_t n = a->n_prompt;
    const uint32_t *positions = a->kept ? cpu_kept_of(a->kept, g, &n) : NULL;
    key_run to = cpu_rows_of(a->to->k, a->to->v, a->to->formats, d, a->to->first[g], n);
    to.mean = cpu_mean_of(a->to->formats, &a->to->means, a->angles, d, g, positions, 0);
    assert(n == a->to->n_kept[g]);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = (g * a->prompt->capacity + (positions ? (int64_t)positions[i] : i)) * d;
        cpu_hold_row(&to, d, i, a->prompt->k->data + at, a->prompt->v->data + at);
    }
}

void cpu_cache_keep(backend *be, const be_attention_shape *s, const be_cache *prompt, int64_t n,
                    const kept_set *kept, const be_held *to) {
    assert(n <= prompt->capacity && (!kept || kept->n_sets == 1 || kept->n_sets == s->n_kv_heads));
    keep_job a = {.s = s,
                  .prompt = prompt,
                  .n_prompt = n,
                  .kept = kept,
                  .to = to,
                  .angles = cpu_means_reserve(cpu_of(be), to->formats, &to->means, s->head_dim, n)};
    ckvc_pool_run(be->pool, s->n_kv_heads, keep_task, &a);
}

void cpu_held_rows(backend *be, const be_attention_shape *s, const be_step *rows) {
    (void)be;
    const int64_t d = s->head_dim, half = d / 2;
    float key[CACHE_HEAD_MAX];
    for (int64_t i = 0; i < rows->n; i++) {
        const be_held *held = &rows->held[i];
        const float *cos = rows->cos + i * half, *sin = rows->sin + i * half;
        for (int64_t h = 0; h < s->n_heads; h++) {
            kernel_rope(rows->q->data + (i * s->n_heads + h) * d, cos, sin, (int32_t)half);
        }
        for (int64_t g = 0; g < s->n_kv_heads; g++) {
            const int64_t from = (i * s->n_kv_heads + g) * d,
                          row = held->first[g] + held->n_kept[g] + held->n_own - 1;
            key_run to = cpu_rows_of(held->k, held->v, held->formats, s->head_dim, row, 1);
            if (cache_takes_mean(held->formats)) {
                to.mean = (key_mean){held->means.of_head + g * d, cos, sin, NULL, 0};
            }
            memcpy(key, rows->k->data + from, (size_t)d * sizeof *key);
            kernel_rope(key, cos, sin, (int32_t)half);
            cpu_hold_row(&to, s->head_dim, 0, key, rows->v->data + from);
        }
    }
}

typedef struct held_job {
    cpu_backend *c;
    const be_attention_shape *s;
    const be_step *rows;
    const rope_table *angles; /* by which mean keys are rotated, or NULL */
    int64_t first;            /* the sequence of task 0 */
    float *out;
} held_job;

static void held_task(void *ctx, int64_t task, int worker) {
    const held_job *a = ctx;
    const be_attention_shape *s = a->s;
    const int64_t i = a->first + task / s->n_kv_heads, g = task % s->n_kv_heads, d = s->head_dim,
                  group = s->n_heads / s->n_kv_heads;
    const be_held *held = &a->rows->held[i];
    const int64_t kept = held->n_kept[g], n = kept + held->n_own;
    const cache_formats f = held->formats;
    key_run runs[2] = {
        cpu_rows_of(held->k, held->v, f, s->head_dim, held->first[g], kept),
        cpu_rows_of(held->k, held->v, f, s->head_dim, held->first[g] + kept, held->n_own)};
    if (a->angles) {
        const uint32_t *positions = held->positions + held->from[g];
        runs[0].mean = cpu_mean_of(f, &held->means, a->angles, s->head_dim, g, positions, 0);
        runs[1].mean =
            cpu_mean_of(f, &held->means, a->angles, s->head_dim, g, NULL, held->n_prompt);
    }
    for (int64_t h = 0; h < group; h += BE_ROW_TILE) {
        const int64_t n_heads = cpu_piece_length(group, h, BE_ROW_TILE),
                      at = (i * s->n_heads + g * group + h) * d;
        row_span span[BE_ROW_TILE] = {{0}};
        for (int64_t r = 0; r < n_heads; r++) { span[r] = (row_span){held->hidden[g], n}; }
        attend_apart(a->c, s, &(head_rows){a->rows->q->data + at, a->out + at, d, n_heads}, runs,
                     span, a->c->worker[worker].data);
    }
}

/* The table of angles for the sequences from `first` to before *end, which take no mean out of keys
 * (NULL), or rotate theirs by the same frequencies. The backend keeps two tables, so that sequences
 * of many lengths under dynamic RoPE, each with frequencies of its own, are slow to read so. */
static const rope_table *held_angles(cpu_backend *c, const be_step *rows, int32_t head_dim,
                                     int64_t first, int64_t *end) {
    const be_held *held = &rows->held[first];
    const bool takes = cache_takes_mean(held->formats);
    const size_t bytes = (size_t)head_dim / 2 * sizeof *held->means.inv_freq;
    int64_t most = 0;
    for (*end = first; *end < rows->n; (*end)++) {
        const be_held *other = &rows->held[*end];
        if (takes != cache_takes_mean(other->formats) ||
            (takes && memcmp(held->means.inv_freq, other->means.inv_freq, bytes) != 0)) {
            break;
        }
        most = max64(most, other->n_prompt + other->n_own);
    }
    return cpu_means_reserve(c, held->formats, &held->means, head_dim, most);
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
    cpu_need(c, apart_floats(c, s, most), 0);
    held_job a = {.c = c, .s = s, .rows = rows, .out = out->data};
    for (int64_t end; a.first < rows->n; a.first = end) {
        a.angles = held_angles(c, rows, s->head_dim, a.first, &end);
        ckvc_pool_run(be->pool, (end - a.first) * s->n_kv_heads, held_task, &a);
    }
}

void cpu_attention_scratch(const cpu_backend *c, const be_attention_shape *s, const be_extent *most,
                           size_t *per_worker, size_t *shared) {
    const int64_t keys = be_padded_rows(most->n_prompt) + be_padded_rows(most->n_rows),
                  one_set = 2 * most->n_prompt * s->n_kv_heads * s->head_dim,
                  at_once = (int64_t)(GATHER_BYTES / sizeof(float)),
                  gathered = most->n_lanes > 0 ? max64(one_set, at_once) : 0,
                  columns = most->targets ? most->n_prompt : 0;
    *per_worker = apart_floats(c, s, keys);
    *per_worker = (size_t)max64((int64_t)*per_worker, (int64_t)attend_floats(c, s, keys, columns));
    *shared = (size_t)max64(gathered, 2 * TARGET_PIECES * s->n_heads * columns);
}
