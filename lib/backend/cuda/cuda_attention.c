/* Attention of the CUDA backend: prepares the arguments of the kernels in attention.cu and
 * columns.cu.
 *
 * Keys and values are packed first (cuda_attention.h): they are gathered by the kept set, in the
 * type that is multiplied, once for all lanes that share the set. The kernels then go over whole
 * tiles of rows that lie together, whatever is kept. */
#include <assert.h>

#include "lib/backend/cuda/cuda_attention.h"
#include "lib/backend/cuda/cuda.h"

/* Limits of packed sets at a time: lanes go side by side as long as their sets fit; a single lane
 * always does. */
#define PACK_BYTES  ((size_t)256 << 20)
#define PACK_LANES  64
#define WINDOW_ROWS 1024 /* rows that are reserved for; longer windows allocate on first use */

/* What one call packs: the arguments, in pinned memory, and the scratch memory that they point
 * into, which begins with a copy of them. */
typedef struct packing {
    cuda_backend *c;
    const be_attention_shape *s;
    cuda_head *heads;
    cuda_copy *copies;
    size_t args, used;
    char *scratch;
    int32_t n_copies, n_most;
    uint32_t *positions[PACK_LANES]; /* of the lanes' sets; NULL: all of the prompt */
} packing;

static size_t packed_bytes(const cuda_backend *c, const be_attention_shape *s, int64_t n) {
    const size_t value = c->bf16 ? sizeof(uint16_t) : sizeof(float);
    return (size_t)(be_padded_rows(n) * cuda_width(s->head_dim)) * value;
}

static size_t argument_bytes(int64_t n_heads, int64_t n_copies) {
    return cuda_align((size_t)n_heads * sizeof(cuda_head)) +
           cuda_align((size_t)n_copies * sizeof(cuda_copy));
}

bool cuda_attends(cuda_backend *c, const be_attention_shape *s) {
    if (cuda_failed(c)) { return false; }
    if (s->head_dim <= CUDA_WIDEST) { return true; }
    ckvc_fail(&c->failure, CKVC_E_DEVICE,
              "%s: heads of %d values, of which attention takes at most %d; use --backend cpu",
              c->base.kernel, s->head_dim, CUDA_WIDEST);
    return false;
}

/* Begins packing; bytes says how much will be packed. Returns false where this fails, which is
 * recorded. */
static bool packing_begin(packing *p, int64_t n_heads, int64_t n_copies, size_t bytes) {
    p->args = argument_bytes(n_heads, n_copies);
    if (!cuda_attends(p->c, p->s)) { return false; }
    p->scratch = cuda_scratch(p->c, p->args + bytes);
    char *pinned = p->scratch ? cuda_upload_begin(p->c, p->args) : NULL;
    if (!pinned) { return false; }
    p->heads = (cuda_head *)pinned;
    p->copies = (cuda_copy *)(pinned + argument_bytes(n_heads, 0));
    p->used = p->args;
    p->n_copies = p->n_most = 0;
    return true;
}

static void *next_piece(packing *p, size_t bytes) {
    void *at = p->scratch + p->used;
    p->used += cuda_align(bytes);
    return at;
}

static const void *pack(packing *p, const float *from, int64_t stride, const uint32_t *positions,
                        int64_t n) {
    void *to = next_piece(p, packed_bytes(p->c, p->s, n));
    p->copies[p->n_copies++] = (cuda_copy){from, positions, to, (int32_t)n, (int32_t)stride};
    if (n > p->n_most) { p->n_most = (int32_t)n; }
    return to;
}

/* Packs n rows of a cache from value `at` on. The first one has the position `base`, or they are at
 * `positions`. */
static cuda_run pack_run(packing *p, const be_cache *cache, int64_t at, const uint32_t *positions,
                         int64_t base, int64_t n, bool values) {
    const int64_t d = p->s->head_dim;
    cuda_run run = {.positions = positions, .base = (int32_t)base, .n = (int32_t)n};
    if (n == 0) { return run; }
    run.k = pack(p, cache->k->data + at, d, positions, n);
    if (values) { run.v = pack(p, cache->v->data + at, d, positions, n); }
    return run;
}

/* Packs the rows of all query heads, [H]. */
static const void *pack_queries(packing *p, const float *q, int64_t n_rows) {
    const int64_t d = p->s->head_dim, n_heads = p->s->n_heads;
    const void *first = p->scratch + p->used;
    for (int64_t h = 0; h < n_heads; h++) { pack(p, q + h * d, n_heads * d, NULL, n_rows); }
    return first;
}

static void packing_end(packing *p) {
    const cuda_pack all = {(const cuda_copy *)(p->scratch + ((char *)p->copies - (char *)p->heads)),
                           p->n_copies, p->n_most, p->s->head_dim, p->c->bf16};
    cuda_pack_rows(p->c->stream, &all);
}

static int32_t window_of(const be_attention_shape *s) {
    return s->window ? s->window : CUDA_ALL_SEEN;
}

static cuda_attend attend_of(const packing *p, int64_t position, int64_t n_rows, int64_t n_lanes) {
    return (cuda_attend){.heads = (const cuda_head *)p->scratch,
                         .n_heads = p->s->n_heads,
                         .n_kv_heads = p->s->n_kv_heads,
                         .head_dim = p->s->head_dim,
                         .window = window_of(p->s),
                         .scale = p->s->scale,
                         .position = (int32_t)position,
                         .n_rows = (int32_t)n_rows,
                         .n_lanes = (int32_t)n_lanes,
                         .values = true,
                         .bf16 = p->c->bf16};
}

/* ---- prompt rows over the prompt ---- */

void cuda_attention_causal(backend *be, const be_attention_shape *s, int64_t row0, int64_t n_rows,
                           const be_buf *q, const be_cache *cache, be_buf *out) {
    packing p = {.c = cuda_of(be), .s = s};
    const int64_t d = s->head_dim, n_kv = s->n_kv_heads,
                  hidden = s->window && row0 >= s->window ? row0 - s->window + 1 : 0,
                  first = hidden / BE_ROW_TILE * BE_ROW_TILE, n = row0 + n_rows - first;
    assert(row0 % BE_ROW_TILE == 0 && row0 + be_padded_rows(n_rows) <= cache->capacity);
    if (!packing_begin(&p, n_kv, 2 * n_kv, 2 * (size_t)n_kv * packed_bytes(p.c, s, n))) { return; }
    for (int64_t g = 0; g < n_kv; g++) {
        p.heads[g] = (cuda_head){.q = q->data, .out = cuda_written(p.c, out)};
        p.heads[g].run[0] =
            pack_run(&p, cache, (g * cache->capacity + first) * d, NULL, first, n, true);
    }
    cuda_upload_end(p.c, p.scratch, p.heads, p.args);
    packing_end(&p);
    const cuda_attend a = attend_of(&p, row0, n_rows, 1);
    cuda_attend_rows(p.c->stream, &a);
    cuda_check(p.c, "attention_causal");
}

/* ---- continuation rows over the kept prompt positions and themselves ---- */

static size_t positions_bytes(const kept_set *kept) {
    return kept ? cuda_align(kept->offsets[kept->n_sets] * sizeof *kept->positions) : 0;
}

static size_t set_bytes(const cuda_backend *c, const be_attention_shape *s, int64_t n_prompt,
                        const kept_set *kept) {
    size_t bytes = positions_bytes(kept);
    for (int64_t g = 0; g < s->n_kv_heads; g++) {
        int64_t n = n_prompt;
        if (kept) { cuda_kept_of(kept, g, &n); }
        bytes += 2 * packed_bytes(c, s, n);
    }
    return bytes;
}

static size_t own_bytes(const cuda_backend *c, const be_attention_shape *s, int64_t n_rows) {
    return 2 * (size_t)s->n_kv_heads * packed_bytes(c, s, n_rows);
}

/* How many of the n lanes are packed at once; *bytes receives what they take. */
static int64_t lanes_at_once(const packing *p, const be_continuation *r, const be_lane *lanes,
                             int64_t n, size_t *bytes) {
    int64_t i = 0;
    *bytes = 0;
    for (; i < n && i < PACK_LANES; i++) {
        size_t more = 0;
        if (i == 0 || lanes[i].kept != lanes[i - 1].kept) {
            more += set_bytes(p->c, p->s, r->n_prompt, lanes[i].kept);
        }
        if (i == 0 || lanes[i].from != lanes[i - 1].from) {
            more += own_bytes(p->c, p->s, r->n_rows);
        }
        if (i > 0 && *bytes + more > PACK_BYTES) { break; }
        *bytes += more;
    }
    return i;
}

/* Packs the heads of lane i, without what it shares with the lane before it. */
static void pack_lane(packing *p, const be_continuation *r, const be_lane *lanes, int64_t i,
                      float *out) {
    const be_attention_shape *s = p->s;
    const be_lane *lane = &lanes[i];
    const int64_t d = s->head_dim, n_kv = s->n_kv_heads,
                  lane_size = be_padded_rows(r->n_rows) * s->n_heads * d;
    const bool new_set = i == 0 || lane->kept != lane[-1].kept,
               new_rows = i == 0 || lane->from != lane[-1].from;
    uint32_t *positions = new_set && lane->kept ? next_piece(p, positions_bytes(lane->kept)) : NULL;
    p->positions[i] = positions;
    for (int64_t g = 0; g < n_kv; g++) {
        cuda_head *head = &p->heads[i * n_kv + g];
        int64_t n = r->n_prompt;
        const uint32_t *at = positions ? positions + cuda_kept_of(lane->kept, g, &n) : NULL;
        head->q = r->q->data + lane->from * lane_size;
        head->out = out + lane->to * lane_size;
        head->run[0] = new_set ? pack_run(p, &r->prompt, g * r->prompt.capacity * d, at, 0, n, true)
                               : head[-n_kv].run[0];
        head->run[1] = new_rows
                           ? pack_run(p, &r->own, (lane->from * n_kv + g) * r->own.capacity * d,
                                      NULL, r->n_prompt, r->n_rows, true)
                           : head[-n_kv].run[1];
    }
}

/* Begins to pack what the n lanes read. more_copies and bytes are what the caller packs besides,
 * before it calls lanes_packed. */
static bool pack_lanes(packing *p, const be_continuation *r, const be_lane *lanes, int64_t n,
                       be_buf *out, int64_t more_copies, size_t bytes) {
    const int64_t n_heads = n * p->s->n_kv_heads;
    assert(r->n_prompt <= r->prompt.capacity && be_padded_rows(r->n_rows) <= r->own.capacity);
    if (!packing_begin(p, n_heads, 4 * n_heads + more_copies, bytes)) { return false; }
    float *to = cuda_written(p->c, out);
    for (int64_t i = 0; i < n; i++) { pack_lane(p, r, lanes, i, to); }
    return true;
}

static void lanes_packed(packing *p, const be_lane *lanes, int64_t n) {
    cuda_upload_end(p->c, p->scratch, p->heads, p->args);
    for (int64_t i = 0; i < n; i++) {
        const kept_set *kept = lanes[i].kept;
        if (!p->positions[i]) { continue; }
        cuda_upload(p->c, p->positions[i], kept->positions,
                    kept->offsets[kept->n_sets] * sizeof *kept->positions);
    }
    packing_end(p);
}

void cuda_attention_kept(backend *be, const be_attention_shape *s, const be_continuation *r,
                         const be_lane *lanes, int64_t n_lanes, be_buf *out) {
    packing p = {.c = cuda_of(be), .s = s};
    while (n_lanes > 0) {
        size_t bytes;
        const int64_t n = lanes_at_once(&p, r, lanes, n_lanes, &bytes);
        if (!pack_lanes(&p, r, lanes, n, out, 0, bytes)) { return; }
        lanes_packed(&p, lanes, n);
        const cuda_attend a = attend_of(&p, r->n_prompt, r->n_rows, n);
        cuda_attend_rows(p.c->stream, &a);
        cuda_check(p.c, "attention_kept");
        lanes += n;
        n_lanes -= n;
    }
}

/* ---- what rows give to the prompt's positions ---- */

static size_t stats_bytes(const be_attention_shape *s, int64_t n_rows) {
    return 2 * (size_t)(s->n_heads * be_padded_rows(n_rows)) * sizeof(float);
}

static size_t columns_bytes(const be_attention_shape *s, int64_t n_keys) {
    return cuda_align((size_t)(s->n_kv_heads * n_keys) * sizeof(double));
}

static cuda_columns columns_of(const cuda_attend *a, const void *q, int64_t first_row,
                               int64_t n_keys) {
    return (cuda_columns){.heads = a->heads,
                          .q = q,
                          .stats = a->stats,
                          .n_heads = a->n_heads,
                          .n_kv_heads = a->n_kv_heads,
                          .head_dim = a->head_dim,
                          .window = a->window,
                          .scale = a->scale,
                          .position = a->position,
                          .first_row = (int32_t)first_row,
                          .n_rows = a->n_rows,
                          .n_keys = (int32_t)n_keys,
                          .bf16 = a->bf16};
}

static size_t target_bytes(const cuda_backend *c, const be_attention_shape *s, int64_t n_prompt,
                           int64_t n_rows) {
    return set_bytes(c, s, n_prompt, NULL) + own_bytes(c, s, n_rows) +
           (size_t)s->n_heads * packed_bytes(c, s, n_rows) + stats_bytes(s, n_rows) +
           columns_bytes(s, n_prompt);
}

ckvc_status cuda_attention_targets(backend *be, const be_attention_shape *s,
                                   const be_continuation *r, const be_target_rows *rows,
                                   be_buf *out, double *targets, ckvc_err *err) {
    packing p = {.c = cuda_of(be), .s = s};
    const be_lane alone = {0};
    const size_t bytes = target_bytes(p.c, s, r->n_prompt, r->n_rows);
    assert(rows->first_row >= 0 && rows->first_row < r->n_rows);
    if (!pack_lanes(&p, r, &alone, 1, out, s->n_heads, bytes)) { return cuda_sync(be, err); }
    const void *q = pack_queries(&p, r->q->data, r->n_rows);
    lanes_packed(&p, &alone, 1);
    cuda_attend a = attend_of(&p, r->n_prompt, r->n_rows, 1);
    a.stats = next_piece(&p, stats_bytes(s, r->n_rows));
    cuda_attend_rows(p.c->stream, &a);
    cuda_columns columns = columns_of(&a, q, rows->first_row, r->n_prompt);
    columns.largest = rows->largest;
    columns.columns = next_piece(&p, columns_bytes(s, r->n_prompt));
    cuda_column_sums(p.c->stream, &columns);
    cuda_check(p.c, "attention_targets");
    return cuda_download(p.c, targets, columns.columns,
                         (size_t)(s->n_kv_heads * r->n_prompt) * sizeof *targets, err);
}

static size_t window_bytes(const cuda_backend *c, const be_attention_shape *s, int64_t n,
                           int64_t n_rows) {
    return (size_t)s->n_kv_heads * packed_bytes(c, s, n) +
           (size_t)s->n_heads * packed_bytes(c, s, n_rows) + stats_bytes(s, n_rows);
}

/* Packs the keys, and the rows of the tiles in which the window lies, and computes the statistics
 * of these rows; leaves `more` bytes for the caller. Returns false where this fails, which is
 * recorded. */
static bool window_stats(packing *p, const be_window *w, const be_buf *q, const be_cache *cache,
                         size_t more, cuda_columns *columns) {
    const be_attention_shape *s = p->s;
    const int64_t first = (w->n - w->window) / BE_ROW_TILE * BE_ROW_TILE, n_rows = w->n - first;
    const size_t bytes = window_bytes(p->c, s, w->n, n_rows) + more;
    assert(w->window <= w->n && be_padded_rows(w->n) <= cache->capacity && w->row0 <= first);
    if (!packing_begin(p, s->n_kv_heads, s->n_kv_heads + s->n_heads, bytes)) { return false; }
    const float *rows = q->data + (first - w->row0) * s->n_heads * s->head_dim;
    for (int64_t g = 0; g < s->n_kv_heads; g++) {
        p->heads[g] = (cuda_head){.q = rows};
        p->heads[g].run[0] =
            pack_run(p, cache, g * cache->capacity * s->head_dim, NULL, 0, w->n, false);
    }
    const void *packed = pack_queries(p, rows, n_rows);
    cuda_upload_end(p->c, p->scratch, p->heads, p->args);
    packing_end(p);
    cuda_attend a = attend_of(p, first, n_rows, 1);
    a.values = false;
    a.stats = next_piece(p, stats_bytes(s, n_rows));
    cuda_attend_rows(p->c->stream, &a);
    *columns = columns_of(&a, packed, w->n - w->window - first, w->n);
    return true;
}

ckvc_status cuda_window_mass(backend *be, const be_attention_shape *s, const be_window *w,
                             const be_buf *q, const be_cache *cache, double *mass, ckvc_err *err) {
    packing p = {.c = cuda_of(be), .s = s};
    cuda_columns a;
    if (!window_stats(&p, w, q, cache, columns_bytes(s, w->n), &a)) { return cuda_sync(be, err); }
    a.columns = next_piece(&p, columns_bytes(s, w->n));
    cuda_column_sums(p.c->stream, &a);
    cuda_check(p.c, "window_mass");
    return cuda_download(p.c, mass, a.columns, (size_t)(s->n_kv_heads * w->n) * sizeof *mass, err);
}

/* It computes the rows of one query head after the other. */
ckvc_status cuda_window_rows(backend *be, const be_attention_shape *s, const be_window *w,
                             const be_buf *q, const be_cache *cache, float *rows, ckvc_err *err) {
    packing p = {.c = cuda_of(be), .s = s};
    const size_t each = (size_t)(w->window * w->n);
    cuda_columns a;
    if (!window_stats(&p, w, q, cache, each * sizeof *rows, &a)) { return cuda_sync(be, err); }
    a.rows = next_piece(&p, each * sizeof *rows);
    for (; a.head < s->n_heads; a.head++, rows += each) {
        cuda_column_sums(p.c->stream, &a);
        cuda_check(p.c, "window_rows");
        CKVC_TRY(cuda_download(p.c, rows, a.rows, each * sizeof *rows, err));
    }
    return CKVC_OK;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

size_t cuda_attention_scratch(const cuda_backend *c, const be_attention_shape *s,
                              const be_extent *most) {
    const int64_t n = most->n_prompt, n_rows = most->n_rows,
                  window = n < WINDOW_ROWS ? n : WINDOW_ROWS;
    /* a set of a layer has at most one list of every position for each head */
    const size_t positions = cuda_align((size_t)(n * s->n_kv_heads) * sizeof(uint32_t)),
                 lane = set_bytes(c, s, n, NULL) + own_bytes(c, s, n_rows) + positions,
                 shown = window_bytes(c, s, n, window) +
                         larger(columns_bytes(s, n), (size_t)(window * n) * sizeof(float));
    size_t bytes = larger(set_bytes(c, s, n, NULL), shown);
    if (most->n_lanes > 0) {
        bytes = larger(bytes, most->n_lanes == 1 ? lane : larger(lane, PACK_BYTES));
    }
    if (most->targets) { bytes = larger(bytes, target_bytes(c, s, n, n_rows)); }
    const int64_t heads =
        (most->n_lanes < PACK_LANES ? most->n_lanes + 1 : PACK_LANES) * s->n_kv_heads;
    return bytes + argument_bytes(heads, 4 * heads + s->n_heads);
}
