/* A prefill handed to the policy library as an engine with faults would: tables of every mode and
 * score, tiles in and out of order, values that are none. What is refused is refused in one line
 * and leaves no trace; sets ascend, lie in the prompt and are no more than the budget allows. */
#include <math.h>

#include "lib/policy/policy_parts.h"
#include "tests/fuzz/fuzz.h"

enum { T_MAX = 40, TILE = T_MAX * T_MAX };

typedef struct stream {
    const uint8_t *at, *end;
} stream;

static uint32_t next(stream *s) { return s->at < s->end ? *s->at++ : 0; }

/* Numbers from 0 to 4 and, seldom, what no engine should hand over. */
static float value(stream *s) {
    static const float odd[3] = {NAN, INFINITY, -1.0f};
    const uint32_t b = next(s);
    return b > 252 ? odd[b - 253] : (float)b / 63.0f;
}

static ckvc_table *make_table(stream *s, uint32_t L, uint32_t G, uint32_t group, uint32_t D) {
    const double grid[2] = {0.5, 1.0};
    const uint32_t E = 1 + next(s) % 2, P = 1 + next(s) % 2, kind = next(s), features = next(s) % 3;
    ckvc_table *t = ckvc_table_create(L, G, E, P, 2, 2, 2);
    must(t);
    t->n_query_heads = G * group;
    t->window = 1 + next(s) % 8;
    t->visible = next(s) % 2;
    t->keep_window = next(s) % 4;
    t->op = (ckvc_operator)(next(s) % CKVC_OPERATOR_COUNT);
    memcpy(t->head_grid, grid, sizeof grid);
    memcpy(t->gate_grid, grid, sizeof grid);
    t->budgets[0] = 0.25;
    t->budgets[1] = 12;
    if (E > 1) { t->edges_entropy[0] = 2; }
    if (P > 1) { t->edges_ppl[0] = 20; }
    for (size_t i = 0; i < ckvc_weight_index(t, L, 0, 0); i++) {
        t->weight[i] = (float)grid[next(s) % 2];
    }
    for (size_t i = 0; i < ckvc_tau_index(t, L, 0, 0, 0); i++) {
        t->tau[i] = (float)grid[next(s) % 2];
    }
    if (kind % 5 == 0) { return t; }
    must(!ckvc_table_add_shares(t, 1));
    t->op = kind % 7 ? CKVC_OPERATOR_NO_THRESHOLD : t->op;
    const uint32_t n = ckvc_features_count(features, D);
    if (n) { must(!ckvc_table_add_learned(t, n)); }
    for (size_t i = 0; i < (size_t)L * G * n; i++) { t->theta[i] = value(s) - 2.0f; }
    for (size_t i = 0; n && i < (size_t)L * G; i++) { t->mass[i] = next(s) / 64.0; }
    for (size_t i = 0; i < (size_t)L * G * 2; i++) { t->share[i] = next(s) / 64.0; }
    for (size_t i = 0; i < (size_t)L * 2; i++) { t->layer_share[i] = next(s) / 64.0; }
    for (uint32_t b = 0; b < 2; b++) {
        t->c_min[b] = (ckvc_c_min){next(s) / 512.0, next(s) % 8};
        t->score[b] = ckvc_default_score((ckvc_score_kind)(next(s) % CKVC_SCORE_COUNT), features);
        t->score[b].mode = next(s) % CKVC_MODE_COUNT;
    }
    must(!ckvc_table_add_lengths(t));
    for (size_t i = 0; i < (size_t)L * 2; i++) { t->length_share[i] = next(s) % 4; } /* classes */
    return t;
}

/* Where the next right tile begins: rows or positions of a head. */
typedef struct place {
    uint32_t layer, head, at;
} place;

static void moved(place *p, uint32_t n, uint32_t length, uint32_t n_heads) {
    p->at += n;
    p->head += p->at == length;
    p->at %= length;
    p->layer += p->head == n_heads;
    p->head %= n_heads;
}

/* One call, of the next right tile or of another one; whether it was taken. */
static bool step(stream *s, ckvc_prefill *p, const ckvc_request *r, place *rows, place *cache) {
    static float tile[2][TILE];
    const ckvc_geometry *m = &r->model;
    const uint32_t what = next(s), R = ckvc_prefill_rows(p);
    const bool of_rows = R && (rows->layer < cache->layer ||
                               (rows->layer == cache->layer && (m->query_scale > 0 || what % 2)));
    place *next_of = of_rows ? rows : cache, at = *next_of;
    const uint32_t length = of_rows ? R : r->n_tokens, width = of_rows ? T_MAX : m->head_dim;
    uint32_t n = 1 + next(s) % (length - at.at);
    if (what > 240) {
        at.layer += next(s) % 2;
        at.head += next(s) % 2;
        at.at += next(s) % 2;
        n += next(s) % 2 * length;
    }
    for (uint32_t i = 0; i < 2 && what <= 240; i++) {
        const uint32_t filled = next(s);
        for (size_t k = 0; k < (size_t)n * width; k++) {
            tile[i][k] = k % 7 == filled % 7 ? value(s) : (float)(filled % 16);
        }
    }
    const int rc = !of_rows ? ckvc_prefill_cache(p, at.layer, at.head, at.at, n, tile[0], tile[1])
                   : m->query_scale > 0
                       ? ckvc_prefill_queries(p, at.layer, at.head, at.at, n, tile[0])
                       : ckvc_prefill_attention(p, at.layer, at.head, at.at, n, tile[0]);
    if (rc) {
        must(fuzz_one_line(ckvc_prefill_message(p)));
    } else {
        moved(next_of, n, length, of_rows ? m->n_query_heads : m->n_kv_heads);
    }
    return rc == 0;
}

static void check_sets(const ckvc_prefill *p, const ckvc_request *r) {
    const ckvc_geometry *m = &r->model;
    const uint32_t B = ckvc_budget_tokens(r->budget, r->n_tokens);
    uint64_t entries = 0;
    for (uint32_t u = 0; u < m->n_layers * m->n_kv_heads; u++) {
        uint32_t n;
        const uint32_t *set = ckvc_prefill_set(p, u / m->n_kv_heads, u % m->n_kv_heads, &n);
        must(set && n <= r->n_tokens);
        for (uint32_t i = 0; i < n; i++) {
            must(set[i] < r->n_tokens && (i == 0 || set[i - 1] < set[i]));
        }
        entries += n;
    }
    must(entries <= (uint64_t)m->n_layers * m->n_kv_heads * B);
}

FUZZ {
    (void)err;
    static double inv_freq[3] = {1.0, 0.1, 0.01};
    stream s = {data, data + size};
    const uint32_t L = 1 + next(&s) % 2, G = 1 + next(&s) % 3, group = 1 + next(&s) % 2,
                   D = 2 * (1 + next(&s) % 3), shape = next(&s), B = next(&s);
    ckvc_table *t = make_table(&s, L, G, group, D);
    const ckvc_request r = {.table = t,
                            .model = {.n_layers = L + (shape > 250),
                                      .n_query_heads = G * group,
                                      .n_kv_heads = G,
                                      .head_dim = D,
                                      .inv_freq = shape % 2 ? inv_freq : NULL,
                                      .query_scale = shape % 3 == 0 ? 0.5 : 0.0},
                            .n_tokens = next(&s) % T_MAX,
                            .budget = B < 128 ? B / 128.0 : B - 127};
    char message[256] = "";
    const bool sound = !ckvc_table_check(t, message, sizeof message);
    const size_t bytes = sound ? ckvc_prefill_bytes(&r) : 0;
    void *workspace = malloc(bytes + 1);
    memset(workspace, 0xFF, bytes + 1);
    ckvc_prefill *p =
        sound ? ckvc_prefill_begin(workspace, bytes, &r, message, sizeof message) : NULL;
    must(p || fuzz_one_line(message));
    place rows = {0}, cache = {0};
    uint32_t refused = 0;
    if (p && !ckvc_prefill_rows(p)) { rows.layer = L; }
    while (p && (cache.layer < L || rows.layer < L) && refused < 64) {
        refused += !step(&s, p, &r, &rows, &cache);
    }
    if (p && ckvc_prefill_keep(p, next(&s))) {
        must(*ckvc_prefill_message(p));
    } else if (p) {
        check_sets(p, &r);
    }
    free(workspace);
    ckvc_table_free(t);
}
