/* From a prefill to the kept sets; ckvc_policy.h says how it is used. One layer is open at a time,
 * until its rows and its cache are complete. Then the sums over its rows become scores, and only
 * the scores are held for all layers.
 *
 *   T tokens · R last rows · W the table's window · L layers · H query heads · G KV heads */
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/sizes.h"
#include "lib/policy/bank_attention.h"
#include "lib/policy/cache_rows.h"
#include "lib/policy/retain_many.h"

enum {
    SUMS_MAX = CKVC_MEANS + 1,
    PIECE = 32 /* rows of a cache that are read at a time */
};

/* Where the next tile must begin; `at` counts rows or positions of the head. */
typedef struct cursor {
    uint32_t layer, head, at;
} cursor;

struct ckvc_prefill {
    ckvc_request request; /* its budget and floor are those now in use */
    const ckvc_table *table;
    ckvc_geometry model;
    ckvc_score score;
    uint32_t T, R, L, H, G, D;
    uint32_t block, budget; /* B in tokens */
    /* The floor f of the block or of the request; `recent` is the block's. */
    double floor;
    uint32_t recent, n_sets;
    bool whole; /* the prompt is no longer than the window: all is kept, tiles are not read */
    bool paper; /* one budget for every layer, under the paper's operator */
    /* The score is the paper's: made of alpha, rho and weights once all layers are there. */
    bool by_weight;
    bool by_bank; /* the score has the attention of the bank's queries in it */
    bool late;    /* the learned ranking with features of version 1, whose late columns need all
                     layers */
    bool alpha_read;
    /* alpha and scores are finished; the sets of the budget are chosen. */
    bool scored, kept;
    double r_struct; /* entropy of alpha */
    /* How many last rows each of the sums over rows adds up; alpha's sum is the last one. */
    uint32_t n_sums, sum_rows[SUMS_MAX];
    cursor rows, cache;
    uint32_t layer;           /* the open layer */
    double *alpha;            /* [T] a sum over layers and heads until all are there, then alpha */
    double *norms;            /* norms of the values, [L][G][T], or [G][T] of the open layer */
    double *s;                /* [L][G][T], unless by_weight */
    double *of_bank;          /* the bank's attention, where by_bank; as `norms` */
    bank_attention bank;      /* of the open KV head, where by_bank */
    double *layer_attention;  /* [L][T], where late */
    double *sums, *of_query;  /* of the open layer: [n_sums][G][T]; [H][T] where late */
    double *columns;          /* [T][CKVC_FEATURES_OWN], where late */
    double *own;              /* the features of one token */
    double *u, *of_set;       /* [T] each */
    double *weight;           /* [G] */
    float *alpha_f32, *rho;   /* [T], [G][T] where by_weight */
    float *queries, *logits;  /* [H][R][D]; [H/G][R][T] of the open KV head */
    float *piece[2];          /* [PIECE][D] of keys and of values, where they are not float32 */
    uint32_t *c, *n_kept;     /* [L][G] */
    uint32_t *n_candidates;   /* [L] T where there is no threshold */
    uint32_t *kept_positions; /* [L][n_sets][T] */
    uint32_t *scratch;        /* [T] */
    char message[256];
};

/* ---- what a block needs, and where it lies ---- */

static size_t of_layer(const ckvc_prefill *p, uint32_t layer, uint32_t head) {
    return ((size_t)layer * p->G + head) * p->T;
}

/* Where a score is finished with its layer, the norms and the bank's attention of the open layer
 * alone are held. */
static size_t of_open(const ckvc_prefill *p, uint32_t layer, uint32_t head) {
    return of_layer(p, p->by_weight || p->late ? layer : 0, head);
}

static double *norms_of(const ckvc_prefill *p, uint32_t layer, uint32_t head) {
    return p->norms + of_open(p, layer, head);
}

static uint32_t query_heads_per_head(const ckvc_prefill *p) { return p->H / p->G; }

static void zero_doubles(double *x, size_t n) {
    for (size_t i = 0; i < n; i++) { x[i] = 0.0; }
}

static void need_sum(ckvc_prefill *p, uint32_t rows) {
    p->sum_rows[p->n_sums++] = rows;
    p->R = rows > p->R ? rows : p->R;
}

static ckvc_score score_asked(const ckvc_request *r, uint32_t b) {
    return r->score ? *r->score : ckvc_table_score(r->table, b);
}

/* Takes budget, floor and recent positions for block b of the table, which serves the budget. */
static void take_block(ckvc_prefill *p, uint32_t b) {
    const ckvc_c_min c_min =
        p->table->c_min ? p->table->c_min[b] : (ckvc_c_min){.floor = 0.2, .recent = 8};
    p->block = b;
    p->budget = ckvc_budget_tokens(p->request.budget, p->T);
    p->floor = p->request.floor ? *p->request.floor : c_min.floor;
    p->recent = (uint32_t)c_min.recent;
}

/* Works out what block b needs to see of a prompt of T tokens. */
static void set_up(ckvc_prefill *p, const ckvc_request *r, uint32_t b) {
    const ckvc_table *t = r->table;
    const bool whole = r->n_tokens <= t->window;
    *p = (ckvc_prefill){.request = *r,
                        .table = t,
                        .model = r->model,
                        .score = whole ? (ckvc_score){0} : score_asked(r, b),
                        .whole = whole,
                        .layer = whole ? r->model.n_layers : 0,
                        .T = r->n_tokens,
                        .L = r->model.n_layers,
                        .H = r->model.n_query_heads,
                        .G = r->model.n_kv_heads,
                        .D = r->model.head_dim};
    take_block(p, b);
    const bool shared = p->score.mode == CKVC_MODE_SHARED;
    p->by_weight = p->score.kind == CKVC_SCORE_PAPER;
    p->paper = shared && p->by_weight && !whole;
    p->by_bank = p->score.kind == CKVC_SCORE_BANK;
    p->late = ckvc_score_learns(p->score.kind) && ckvc_features_rows(p->score.features);
    p->n_sets = ckvc_mode_by_head((ckvc_mode)p->score.mode) ? p->G : 1;
    if (p->score.kind == CKVC_SCORE_WINDOW) { need_sum(p, p->score.window); }
    for (uint32_t i = 0; p->late && i < CKVC_MEANS; i++) { need_sum(p, ckvc_mean_rows[i]); }
    p->alpha_read = !whole && (p->by_weight || p->late);
    if (p->alpha_read) { need_sum(p, t->window); }
    p->R = p->R < p->T ? p->R : p->T;
}

/* Places arrays one after the other in `room`. With room NULL it only counts their bytes. */
typedef struct arena {
    char *memory;
    size_t at;
    bool over;
} arena;

/* Places n1 * n2 * n3 values; every array begins at a multiple of 16 bytes. */
static void *take_array(arena *a, size_t n1, size_t n2, size_t n3, size_t size) {
    const size_t at = a->at;
    size_t n;
    if (!ckvc_mul_size(n1, n2, &n) || !ckvc_mul_size(n, n3, &n) || !ckvc_mul_size(n, size, &n) ||
        !ckvc_add_size(n, 15, &n) || !ckvc_add_size(at, n / 16 * 16, &a->at)) {
        a->over = true;
        return NULL;
    }
    return a->memory ? a->memory + at : NULL;
}

/* Places all arrays of p. Returns their bytes, or SIZE_MAX where the number overflows. */
static size_t lay_out(ckvc_prefill *p, void *memory) {
    const size_t T = p->T, L = p->L, G = p->G, H = p->H, D = p->D;
    const bool all = p->by_weight || p->late, queries = p->model.query_scale > 0.0 && p->R;
    arena a = {.memory = memory};
    take_array(&a, 1, 1, 1, sizeof *p);
    p->alpha = take_array(&a, p->alpha_read, T, 1, sizeof(double));
    p->norms = take_array(&a, all ? L : 1, G, T, sizeof(double));
    p->s = take_array(&a, p->by_weight ? 0 : L, G, T, sizeof(double));
    p->layer_attention = take_array(&a, p->late, L, T, sizeof(double));
    p->sums = take_array(&a, p->n_sums, G, T, sizeof(double));
    p->of_query = take_array(&a, p->late, H, T, sizeof(double));
    p->columns = take_array(&a, p->late, CKVC_FEATURES_OWN, T, sizeof(double));
    p->own = take_array(&a, 1, 1, D + CKVC_FEATURES_1_KEY + 1, sizeof(double));
    p->u = take_array(&a, 1, 1, T, sizeof(double));
    p->of_set = take_array(&a, 1, 1, T, sizeof(double));
    p->weight = take_array(&a, 1, 1, G, sizeof(double));
    const size_t n = p->by_bank ? ckvc_bank_references(p->table, p->table->n_bank) : 0;
    p->bank.n =
        p->by_bank ? ckvc_bank_references(p->table, p->table->bank_use[p->block].n_queries) : 0;
    p->bank.D = D;
    p->of_bank = take_array(&a, p->by_bank ? (p->late ? L : 1) : 0, G, T, sizeof(double));
    p->bank.queries = take_array(&a, 1, n, D, sizeof(float));
    p->bank.positions = take_array(&a, 1, 1, n, sizeof(uint32_t));
    p->bank.by_number = take_array(&a, 1, D, n, sizeof(float));
    p->bank.logits = take_array(&a, 1, T, n, sizeof(float));
    p->bank.most = take_array(&a, 1, 1, n, sizeof(float));
    p->bank.sum = take_array(&a, 1, 1, n, sizeof(double));
    p->alpha_f32 = take_array(&a, p->alpha_read, T, 1, sizeof(float));
    p->rho = take_array(&a, p->by_weight, G, T, sizeof(float));
    p->queries = take_array(&a, queries ? H : 0, p->R, D, sizeof(float));
    p->logits = take_array(&a, queries ? H / G : 0, p->R, T, sizeof(float));
    p->piece[CACHE_KEYS] = take_array(&a, 1, PIECE, D, sizeof(float));
    p->piece[CACHE_VALUES] = take_array(&a, 1, PIECE, D, sizeof(float));
    p->c = take_array(&a, 1, L, G, sizeof(uint32_t));
    p->n_kept = take_array(&a, 1, L, G, sizeof(uint32_t));
    p->n_candidates = take_array(&a, 1, 1, L, sizeof(uint32_t));
    p->kept_positions = take_array(&a, L, p->n_sets, T, sizeof(uint32_t));
    p->scratch = take_array(&a, 1, 1, T, sizeof(uint32_t));
    return a.over ? SIZE_MAX : a.at;
}

size_t ckvc_prefill_bytes(const ckvc_request *request) {
    size_t most = 0;
    for (uint32_t b = 0; request->model.n_kv_heads && b < request->table->n_budgets; b++) {
        ckvc_prefill p;
        set_up(&p, request, b);
        const size_t bytes = lay_out(&p, NULL);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* ---- refusals ---- */

typedef struct note {
    char *text;
    size_t size;
} note;

__attribute__((format(printf, 2, 3))) static int refuse(note to, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    if (to.text && to.size) { vsnprintf(to.text, to.size, fmt, args); }
    va_end(args);
    return -1;
}

#define REFUSE(p, ...) refuse((note){(p)->message, sizeof(p)->message}, __VA_ARGS__)

static int check_budget(double budget, note to) {
    if (!(budget > 0.0 && budget <= (double)UINT32_MAX) ||
        (budget >= 1.0 && budget != floor(budget))) {
        return refuse(to,
                      "a budget of %.10g: want whole tokens from 1 up, or a share of the prompt "
                      "between 0 and 1",
                      budget);
    }
    return 0;
}

/* Checks the score that a request gives in place of the table's, and its floor. */
static int check_score(const ckvc_request *r, note to) {
    const ckvc_table *t = r->table;
    const ckvc_score *s = r->score;
    const bool learned = s && ckvc_score_learns(s->kind),
               window = s && s->kind == CKVC_SCORE_WINDOW;
    if (r->floor && !(*r->floor >= 0.0 && *r->floor <= 1.0)) {
        return refuse(to, "a floor of %g: want 0 to 1", *r->floor);
    }
    if (!s) { return 0; }
    if (s->kind >= CKVC_SCORE_COUNT || s->mode >= CKVC_MODE_COUNT ||
        (window && (s->window < 1 || s->pool % 2 == 0))) {
        return refuse(to,
                      "score %u in mode %u with %u rows and %u positions: want kinds and modes of "
                      "the header, rows from 1 up and an odd pool",
                      s->kind, s->mode, s->window, s->pool);
    }
    if (s->mode != CKVC_MODE_SHARED && !ckvc_table_shares(t, (ckvc_mode)s->mode)) {
        return refuse(to, "mode %s: the table has no such shares",
                      ckvc_mode_name((ckvc_mode)s->mode));
    }
    if (learned && (!t->theta || s->features != t->score[0].features)) {
        return refuse(to, "a learned ranking of features %u, which the table does not have",
                      s->features);
    }
    if (s->kind == CKVC_SCORE_BANK && !t->bank) {
        return refuse(to, "a ranking by the bank's attention: the table has no bank");
    }
    return 0;
}

/* Checks everything about a request that does not depend on the workspace. */
static int check_request(const ckvc_request *r, note to) {
    const ckvc_table *t = r->table;
    const ckvc_geometry *m = &r->model;
    if (t->op != CKVC_OPERATOR_PAPER && !(t->share && t->op == CKVC_OPERATOR_NO_THRESHOLD)) {
        return refuse(
            to, "a probe's table, fitted for the operator %s; deploy one of the paper's operator",
            ckvc_operator_name(t->op));
    }
    if (t->n_layers != m->n_layers || t->n_heads != m->n_kv_heads ||
        (t->head_axis && m->n_query_heads != m->n_kv_heads)) {
        return refuse(to,
                      "is for %u layers x %u %s heads, the model has %u x %u KV heads; `ckvc "
                      "transfer` maps a table to another model",
                      t->n_layers, t->n_heads, t->head_axis ? "query" : "KV", m->n_layers,
                      m->n_kv_heads);
    }
    if (t->n_query_heads != m->n_query_heads) {
        return refuse(to, "is for %u query heads, the model has %u", t->n_query_heads,
                      m->n_query_heads);
    }
    if (!m->head_dim || m->head_dim > CKVC_TABLE_MAX_EXTENT || (m->inv_freq && m->head_dim % 2)) {
        return refuse(to, "the model's keys have %u values: want 1 to %u, and pairs to rotate",
                      m->head_dim, CKVC_TABLE_MAX_EXTENT);
    }
    if (t->theta && t->n_features != ckvc_features_count(t->score[0].features, m->head_dim)) {
        return refuse(to, "its learned ranking is for keys of %u values, the model's have %u",
                      t->n_features - ckvc_features_count(t->score[0].features, 0), m->head_dim);
    }
    if (t->bank && t->bank_dim != m->head_dim) {
        return refuse(to, "its bank has queries of %u values, the model's keys have %u",
                      t->bank_dim, m->head_dim);
    }
    if (!(m->query_scale >= 0.0 && m->query_scale < INFINITY) ||
        (m->query_scale > 0.0 && !m->inv_freq)) {
        return refuse(to,
                      "query_scale is %g: want the logits' scale above 0 and keys after the "
                      "rotation (inv_freq), or 0 for attention rows",
                      m->query_scale);
    }
    if (!r->n_tokens) { return refuse(to, "the prompt has 0 tokens: want one at least"); }
    return check_budget(r->budget, to) ? -1 : check_score(r, to);
}

/* Computes how many positions each set may hold: by the shares of the table's block, with the floor
 * that was asked for, or the budget itself where all sets are of one size. */
static int fill_capacities(ckvc_prefill *p, note to) {
    const ckvc_table *t = p->table;
    const ckvc_mode mode = (ckvc_mode)p->score.mode;
    const bool shared = mode == CKVC_MODE_SHARED;
    const double *share = shared ? NULL : ckvc_table_shares(t, mode) + p->block;
    const uint32_t n = mode == CKVC_MODE_HEADS ? p->L * p->G : p->L,
                   least = shared ? 1 : ckvc_head_floor(p->floor, p->recent, p->budget, p->T);
    if (shared ? p->budget < least
               : ckvc_capacities(share, n, t->n_budgets, p->budget, p->T, least, p->c)) {
        return refuse(to, "a budget of %u tokens is below what every %s must keep; the least is %u",
                      p->budget, mode == CKVC_MODE_HEADS ? "head" : "layer", least);
    }
    for (uint32_t l = 0; shared && l < p->L; l++) { p->c[l] = p->budget; }
    if (mode == CKVC_MODE_LENGTHS) {
        ckvc_even_lengths(share, n, t->n_budgets, p->c);
        for (uint32_t i = p->L * p->G; i-- > 0;) { p->c[i] = p->c[i / p->G]; }
    }
    return 0;
}

/* Checks that the model says how its layers attend, where the score needs it. */
static int check_attending(const ckvc_prefill *p, note to) {
    if (p->by_bank && !(p->model.inv_freq && (p->model.attending || p->model.query_scale > 0.0))) {
        return refuse(to, "ranks by its bank's attention, so keys after the rotation (inv_freq) "
                          "are wanted, and how layers attend (attending, or query_scale)");
    }
    return 0;
}

ckvc_prefill *
ckvc_prefill_begin(void *workspace, size_t bytes, const ckvc_request *request,
                   char *message, /* NOLINT(readability-non-const-parameter): refuse() */
                   size_t message_size) {
    const note to = {message, message_size};
    const ckvc_table *t = request->table;
    if (check_request(request, to)) { return NULL; }
    ckvc_prefill plan;
    set_up(&plan, request,
           ckvc_nearest_budget(t->budgets, t->n_budgets, request->budget, request->n_tokens));
    if (check_attending(&plan, to)) { return NULL; }
    const size_t wanted = lay_out(&plan, NULL);
    if (!workspace || (uintptr_t)workspace % sizeof(double) || bytes < wanted ||
        wanted == SIZE_MAX) {
        refuse(to, "a workspace of %zu bytes%s: want %zu, aligned as malloc does", bytes,
               workspace ? "" : " at NULL", wanted);
        return NULL;
    }
    ckvc_prefill *p = workspace;
    lay_out(&plan, workspace);
    *p = plan;
    if (!p->whole && fill_capacities(p, to)) { return NULL; }
    zero_doubles(p->sums, p->n_sums * of_layer(p, 1, 0));
    if (p->alpha_read) { zero_doubles(p->alpha, p->T); }
    if (p->late) {
        zero_doubles(p->of_query, (size_t)p->H * p->T);
        zero_doubles(p->layer_attention, (size_t)p->L * p->T);
    }
    p->rows.layer = p->R ? 0 : p->L;
    return p;
}

uint32_t ckvc_prefill_rows(const ckvc_prefill *p) { return p->R; }

int ckvc_prefill_keeps_all(const ckvc_prefill *p) { return p->whole; }

/* Whether queries take the place of attention rows, and rows are wanted. */
static bool asks_by_queries(const ckvc_prefill *p) { return p->model.query_scale > 0.0 && p->R; }

int ckvc_prefill_reads_keys(const ckvc_prefill *p) {
    return ckvc_score_learns(p->score.kind) || asks_by_queries(p);
}

int ckvc_prefill_reads_r_sem(const ckvc_prefill *p) {
    return p->table->n_ppl_bins > 1 && p->paper && p->table->op == CKVC_OPERATOR_PAPER;
}

const char *ckvc_prefill_message(const ckvc_prefill *p) { return p->message; }

/* ---- a layer is whole ---- */

/* Writes the mean over the rows of one of the sums, [T], to p->u. */
static const double *mean_over_rows(ckvc_prefill *p, uint32_t sum, uint32_t head) {
    const double *x = p->sums + ((size_t)sum * p->G + head) * p->T;
    const uint32_t rows = p->sum_rows[sum] < p->R ? p->sum_rows[sum] : p->R;
    for (uint32_t t = 0; t < p->T; t++) {
        p->u[t] = x[t] / ((double)rows * query_heads_per_head(p));
    }
    return p->u;
}

/* Writes the largest of the query heads' own means, [T], to p->u. */
static const double *largest_mean(ckvc_prefill *p, uint32_t head) {
    const uint32_t group = query_heads_per_head(p),
                   rows = CKVC_FEATURES_1_ROWS < p->R ? CKVC_FEATURES_1_ROWS : p->R;
    for (uint32_t q = 0; q < group; q++) {
        const double *x = p->of_query + ((size_t)head * group + q) * p->T;
        for (uint32_t t = 0; t < p->T; t++) {
            const double mean = x[t] / (double)rows;
            p->u[t] = q && p->u[t] > mean ? p->u[t] : mean;
        }
    }
    return p->u;
}

/* Adds to the linear form s [T] the part that the features of the attention rows have in it. */
static void add_columns(ckvc_prefill *p, uint32_t head, double *s) {
    const float *theta = p->table->theta + ((size_t)p->layer * p->G + head) * p->table->n_features;
    enum { COLUMNS = CKVC_FEATURES_OWN };
    for (uint32_t i = 0; i < CKVC_MEANS; i++) {
        const double *mean =
            i == CKVC_MEAN_LARGEST ? largest_mean(p, head) : mean_over_rows(p, i, head);
        ckvc_features_of_mean(i, p->T, mean, COLUMNS, p->columns);
    }
    for (uint32_t t = 0; t < p->T; t++) {
        double *late = p->columns + (size_t)t * COLUMNS + CKVC_FEATURES_LATE;
        late[0] = late[1] = 0.0;
    }
    ckvc_linear_form(p->T, COLUMNS, p->columns, theta, p->u);
    for (uint32_t t = 0; t < p->T; t++) { s[t] += p->u[t]; }
}

/* Turns the linear form s [T] of a head into its log score. */
static void finish_form(ckvc_prefill *p, uint32_t layer, uint32_t head, double *s) {
    const double *norms = norms_of(p, layer, head);
    ckvc_score_learned(p->T, p->table->mass[(size_t)layer * p->G + head], norms, s);
    if (p->by_bank) { ckvc_score_bank(p->T, p->of_bank + of_open(p, layer, head), norms, s); }
}

static void close_layer(ckvc_prefill *p) {
    const size_t all = of_layer(p, 1, 0);
    for (uint32_t g = 0; g < p->G; g++) {
        double *s = p->s + of_layer(p, p->layer, g);
        if (p->score.kind == CKVC_SCORE_WINDOW) {
            ckvc_score_window(p->T, mean_over_rows(p, 0, g), p->score.pool,
                              p->score.norm ? norms_of(p, p->layer, g) : NULL, s);
        } else if (p->late) {
            add_columns(p, g, s);
        } else if (!p->by_weight) {
            finish_form(p, p->layer, g, s);
        }
        if (!p->alpha_read) { continue; }
        const double *mass = p->sums + (p->n_sums - 1) * all + of_layer(p, 0, g);
        for (uint32_t t = 0; t < p->T; t++) { p->alpha[t] += mass[t]; }
    }
    zero_doubles(p->sums, p->n_sums * all);
    if (p->late) { zero_doubles(p->of_query, (size_t)p->H * p->T); }
    p->layer++;
}

/* ---- tiles ---- */

typedef struct tile {
    const char *what, *unit;
    uint32_t layer, head, first, n;
    uint32_t n_heads, length; /* heads of a layer; rows or positions of a head */
} tile;

/* Refuses a tile that is not the next one, or whose layer is not the open one. */
static int expect(ckvc_prefill *p, const cursor *c, const cursor *other, const tile *t) {
    if (p->kept || c->layer == p->L) {
        return REFUSE(p, "%s of layer %u: all %u layers have theirs", t->what, t->layer, p->L);
    }
    if (t->layer != c->layer || t->head != c->head || t->first != c->at || t->n < 1 ||
        t->n > t->length - c->at) {
        return REFUSE(p,
                      "%s: got %u %s from %u on of head %u in layer %u; want at most %u from %u on "
                      "of head %u in layer %u (tiles come in order, each once)",
                      t->what, t->n, t->unit, t->first, t->head, t->layer, t->length - c->at, c->at,
                      c->head, c->layer);
    }
    if (other->layer < c->layer) {
        return REFUSE(p, "%s of layer %u: layer %u is not whole yet", t->what, t->layer,
                      other->layer);
    }
    return 0;
}

static void advance_cursor(ckvc_prefill *p, cursor *c, const tile *t) {
    c->at += t->n;
    if (c->at == t->length) {
        c->at = 0;
        c->head++;
    }
    if (c->head == t->n_heads) {
        c->head = 0;
        c->layer++;
    }
    if (p->rows.layer > p->layer && p->cache.layer > p->layer) { close_layer(p); }
}

/* Adds row i of the R to all sums that read it. */
static void add_attention_row(ckvc_prefill *p, uint32_t query_head, uint32_t i, const float *row) {
    const uint32_t head = query_head / query_heads_per_head(p), from_end = p->R - i,
                   rows = CKVC_FEATURES_1_ROWS < p->R ? CKVC_FEATURES_1_ROWS : p->R;
    for (uint32_t k = 0; k < p->n_sums; k++) {
        double *sum = p->sums + ((size_t)k * p->G + head) * p->T;
        for (uint32_t t = 0; from_end <= p->sum_rows[k] && t < p->T; t++) {
            sum[t] += (double)row[t];
        }
    }
    if (!p->late || from_end > rows) { return; }
    const double share = 1.0 / ((double)(rows * query_heads_per_head(p)) * p->G);
    double *own = p->of_query + (size_t)query_head * p->T,
           *layer = p->layer_attention + (size_t)p->layer * p->T;
    for (uint32_t t = 0; t < p->T; t++) {
        own[t] += (double)row[t];
        layer[t] += share * (double)row[t];
    }
}

static int check_values(ckvc_prefill *p, const tile *t, const float *x, size_t width,
                        bool not_negative) {
    for (uint32_t i = 0; i < t->n; i++, x += width) {
        bool good = true;
        for (size_t k = 0; k < width; k++) {
            good &= fabsf(x[k]) < INFINITY && (!not_negative || x[k] >= 0.0f);
        }
        if (!good) {
            return REFUSE(p, "%s of head %u in layer %u: %s %u holds a value that is %s", t->what,
                          t->head, t->layer, t->unit, t->first + i,
                          not_negative ? "below 0 or not finite" : "not finite");
        }
    }
    return 0;
}

static tile rows_tile(const ckvc_prefill *p, const char *what, uint32_t layer, uint32_t head) {
    return (tile){.what = what,
                  .unit = "rows",
                  .layer = layer,
                  .head = head,
                  .n_heads = p->H,
                  .length = p->R};
}

int ckvc_prefill_attention(ckvc_prefill *p, uint32_t layer, uint32_t query_head, uint32_t first_row,
                           uint32_t n_rows, const float *rows) {
    tile t = rows_tile(p, "attention", layer, query_head);
    if (p->whole) { return 0; }
    t.first = first_row;
    t.n = n_rows;
    if (p->model.query_scale > 0.0) {
        return REFUSE(p, "attention: query_scale is %g, so queries are wanted in its place",
                      p->model.query_scale);
    }
    if (expect(p, &p->rows, &p->cache, &t) || check_values(p, &t, rows, p->T, true)) { return -1; }
    for (uint32_t i = 0; i < n_rows; i++) {
        add_attention_row(p, query_head, first_row + i, rows + (size_t)i * p->T);
    }
    advance_cursor(p, &p->rows, &t);
    return 0;
}

int ckvc_prefill_queries(ckvc_prefill *p, uint32_t layer, uint32_t query_head, uint32_t first_row,
                         uint32_t n_rows, const float *queries) {
    tile t = rows_tile(p, "queries", layer, query_head);
    if (p->whole) { return 0; }
    t.first = first_row;
    t.n = n_rows;
    if (!(p->model.query_scale > 0.0)) {
        return REFUSE(p, "queries: query_scale is 0, so attention rows are wanted in their place");
    }
    if (expect(p, &p->rows, &p->cache, &t) || check_values(p, &t, queries, p->D, false)) {
        return -1;
    }
    memcpy(p->queries + ((size_t)query_head * p->R + first_row) * p->D, queries,
           (size_t)n_rows * p->D * sizeof *queries);
    advance_cursor(p, &p->rows, &t);
    return 0;
}

/* q . k in float, as sixteen sums at a time. The order is the same everywhere, and compilers can
 * vectorise it. */
static float dot(const float *q, const float *k, uint32_t n) {
    enum { LANES = 16 };
    float lane[LANES] = {0}, sum = 0;
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (uint32_t j = 0; j < LANES; j++) { lane[j] += q[i + j] * k[i + j]; }
    }
    for (; i < n; i++) { sum += q[i] * k[i]; }
    for (uint32_t j = 0; j < LANES; j++) { sum += lane[j]; }
    return sum;
}

/* Computes the logits of the group's queries with a tile of keys. */
static void add_logits(ckvc_prefill *p, const tile *t, const float *keys) {
    const uint32_t rows = query_heads_per_head(p) * p->R;
    const float *queries = p->queries + (size_t)t->head * rows * p->D;
    for (uint32_t r = 0; r < rows; r++) {
        float *out = p->logits + (size_t)r * p->T + t->first;
        for (uint32_t i = 0; i < t->n; i++) {
            out[i] = dot(queries + (size_t)r * p->D, keys + (size_t)i * p->D, p->D);
        }
    }
}

/* Turns the logits into attention rows and adds them, once all keys of a KV head are there. Row i
 * sees T - R + i + 1 positions. */
static void add_softmaxes(ckvc_prefill *p, uint32_t head) {
    const uint32_t group = query_heads_per_head(p);
    for (uint32_t r = 0; r < group * p->R; r++) {
        const uint32_t i = r % p->R, seen = p->T - p->R + i + 1;
        float *row = p->logits + (size_t)r * p->T;
        double most = -INFINITY, sum = 0.0;
        for (uint32_t t = 0; t < seen; t++) {
            most = (double)row[t] > most ? (double)row[t] : most;
        }
        for (uint32_t t = 0; t < seen; t++) {
            row[t] = (float)exp(p->model.query_scale * ((double)row[t] - most));
            sum += (double)row[t];
        }
        for (uint32_t t = 0; t < p->T; t++) {
            row[t] = t < seen ? (float)((double)row[t] / sum) : 0.0f;
        }
        add_attention_row(p, head * group + r / p->R, i, row);
    }
}

static ckvc_attending attending_of(const ckvc_prefill *p, uint32_t layer) {
    if (p->model.attending) { return p->model.attending[layer]; }
    return (ckvc_attending){.inv_freq = p->model.inv_freq, .scale = p->model.query_scale};
}

/* Takes a tile of keys into the bank's attention, and finishes it with the last tile of a head. */
static void add_bank_attention(ckvc_prefill *p, const tile *t, const float *keys) {
    if (t->first == 0) {
        bank_attention_begin(&p->bank, p->table, p->block, (size_t)t->layer * p->G + t->head, p->T,
                             attending_of(p, t->layer));
    }
    bank_attention_take(&p->bank, t->first, t->n, keys);
    if (t->first + t->n == p->T) {
        bank_attention_finish(&p->bank, p->T, p->of_bank + of_open(p, t->layer, t->head));
    }
}

/* The float32 numbers [count][D] of a tile's rows from `first` on. They lie in p->piece unless the
 * rows are such numbers already, one behind the other. */
static const float *numbers_of(const ckvc_prefill *p, ckvc_rows r, cache_side side, uint32_t first,
                               uint32_t count) {
    if (cache_rows_plain(r) && r.stride == p->D * sizeof(float) &&
        (uintptr_t)r.first % sizeof(float) == 0) {
        return (const float *)r.first + (size_t)first * p->D;
    }
    for (uint32_t i = 0; i < count; i++) {
        cache_rows_read(r, side, p->D, first + i, p->piece[side] + (size_t)i * p->D);
    }
    return p->piece[side];
}

/* Takes keys and values [n][D] of a part of a tile, which is checked. */
static void take_cache(ckvc_prefill *p, const tile *t, const float *keys, const float *values) {
    double *norms = norms_of(p, t->layer, t->head);
    const size_t head = (size_t)t->layer * p->G + t->head;
    const ckvc_head_view v = {.n_tokens = p->T, .head_dim = p->D, .inv_freq = p->model.inv_freq};
    const uint32_t n_own = p->D + CKVC_FEATURES_1_KEY + 1 - CKVC_FEATURES_OWN;
    for (uint32_t i = 0; i < t->n; i++) {
        const size_t at = (size_t)i * p->D;
        norms[t->first + i] = ckvc_norm(values + at, p->D);
        if (!ckvc_score_learns(p->score.kind)) { continue; }
        ckvc_features_own(&v, t->first + i, keys + at, values + at, p->own);
        ckvc_linear_form(1, n_own, p->own,
                         p->table->theta + (head + 1) * p->table->n_features - n_own,
                         p->s + head * p->T + t->first + i);
    }
    if (p->by_bank) { add_bank_attention(p, t, keys); }
    if (asks_by_queries(p)) { add_logits(p, t, keys); }
}

int ckvc_prefill_cache(ckvc_prefill *p, uint32_t layer, uint32_t kv_head, uint32_t first,
                       uint32_t n, const float *keys, const float *values) {
    return ckvc_prefill_cache_rows(p, layer, kv_head, first, n, float_rows(keys, p->D),
                                   float_rows(values, p->D));
}

static int refuse_rows(ckvc_prefill *p, ckvc_rows r, cache_side side, const tile *t) {
    const char *wrong = cache_rows_wrong(r, side, p->D);
    if (!wrong) { return 0; }
    return REFUSE(p, "%s of head %u in layer %u: format %u, stride %zu, heads of %u numbers: %s",
                  side == CACHE_KEYS ? "keys" : "values", t->head, t->layer, r.format, r.stride,
                  p->D, wrong);
}

int ckvc_prefill_cache_rows(ckvc_prefill *p, uint32_t layer, uint32_t kv_head, uint32_t first,
                            uint32_t n, ckvc_rows keys, ckvc_rows values) {
    const tile t = {.what = "cache",
                    .unit = "positions",
                    .layer = layer,
                    .head = kv_head,
                    .first = first,
                    .n = n,
                    .n_heads = p->G,
                    .length = p->T};
    const bool reads_keys = ckvc_prefill_reads_keys(p);
    if (p->whole) { return 0; }
    if (refuse_rows(p, values, CACHE_VALUES, &t) ||
        (reads_keys && refuse_rows(p, keys, CACHE_KEYS, &t)) ||
        expect(p, &p->cache, &p->rows, &t)) {
        return -1;
    }
    if (asks_by_queries(p) && p->rows.layer == layer &&
        p->rows.head / query_heads_per_head(p) <= kv_head) {
        return REFUSE(p, "cache of head %u in layer %u: its queries come before it", kv_head,
                      layer);
    }
    for (int taking = 0; taking < 2; taking++) { /* all are checked before the first is taken */
        for (uint32_t done = 0; done < n; done += PIECE) {
            tile part = t;
            part.first += done;
            part.n = n - done < PIECE ? n - done : PIECE;
            const float *v = numbers_of(p, values, CACHE_VALUES, done, part.n),
                        *k = reads_keys ? numbers_of(p, keys, CACHE_KEYS, done, part.n) : NULL;
            if (taking) {
                take_cache(p, &part, k, v);
            } else if (check_values(p, &part, v, p->D, false) ||
                       (k && check_values(p, &part, k, p->D, false))) {
                return -1;
            }
        }
    }
    if (asks_by_queries(p) && first + n == p->T) { add_softmaxes(p, kv_head); }
    advance_cursor(p, &p->cache, &t);
    return 0;
}

/* ---- sets ---- */

/* Computes alpha from its sum, and the entropy of alpha. */
static int finish_alpha(ckvc_prefill *p, double *r_struct) {
    const double scale = (double)p->T / ((double)p->table->window * p->L * p->H);
    double sum = 0.0, entropy = 0.0;
    for (uint32_t t = 0; t < p->T; t++) { p->alpha[t] *= scale; }
    if (p->table->visible) { ckvc_alpha_visible(p->alpha, p->T, p->table->window); }
    for (uint32_t t = 0; t < p->T; t++) {
        p->alpha_f32[t] = (float)p->alpha[t];
        sum += p->alpha[t];
    }
    if (!(sum > 0.0)) {
        return REFUSE(p, "the attention rows are all 0: want rows after the softmax");
    }
    for (uint32_t t = 0; t < p->T; t++) {
        const double x = p->alpha[t] / sum;
        entropy -= x > 0.0 ? x * log(x) : 0.0;
    }
    *r_struct = entropy;
    return 0;
}

/* Adds the late columns to the linear form, and turns the form into a score. */
static void finish_learned(ckvc_prefill *p, uint32_t l) {
    const ckvc_table *t = p->table;
    double *late = p->columns;
    ckvc_features_late(p->T, p->layer_attention + (size_t)l * p->T, p->alpha, 2, late);
    for (uint32_t g = 0; g < p->G; g++) {
        const size_t head = (size_t)l * p->G + g;
        const float *theta = t->theta + head * t->n_features + CKVC_FEATURES_LATE;
        double *s = p->s + head * p->T;
        for (uint32_t i = 0; i < p->T; i++) {
            const double *x = late + 2 * (size_t)i;
            s[i] += (double)theta[0] * x[0] + (double)theta[1] * x[1];
        }
        finish_form(p, l, g, s);
    }
}

/* rho: the norms of a layer divided by their mean, for each head. */
static void fill_rho(ckvc_prefill *p, uint32_t l) {
    for (uint32_t g = 0; g < p->G; g++) {
        const double *norms = norms_of(p, l, g);
        double sum = 0.0;
        for (uint32_t t = 0; t < p->T; t++) { sum += norms[t]; }
        const double scale = 1.0 / (sum / (double)p->T + 1e-6);
        float *rho = p->rho + (size_t)g * p->T;
        for (uint32_t t = 0; t < p->T; t++) { rho[t] = (float)(norms[t] * scale); }
    }
}

/* The paper's utility u of a layer, from rho. */
static void layer_utility(ckvc_prefill *p, uint32_t l) {
    for (uint32_t g = 0; g < p->G; g++) {
        p->weight[g] = ckvc_table_weight(p->table, l, g, p->block);
    }
    ckvc_utility(p->T, p->G, p->alpha_f32, p->rho, p->weight, p->of_set);
}

/* The log scores [T] that a set is ranked by. */
static const double *ranking_scores(ckvc_prefill *p, uint32_t l, uint32_t g) {
    if (p->n_sets > 1) {
        if (!p->by_weight) { return p->s + of_layer(p, l, g); }
        /* a weight does not change the ranking within one head, so it is 1 here */
        ckvc_score_paper(p->T, p->alpha_f32, p->rho + (size_t)g * p->T, 1.0, p->of_set);
    } else if (p->by_weight) {
        layer_utility(p, l);
        for (uint32_t t = 0; t < p->T; t++) { p->of_set[t] = log(p->of_set[t]); }
    } else {
        memcpy(p->of_set, p->s + of_layer(p, l, 0), p->T * sizeof *p->of_set);
        for (uint32_t h = 1; h < p->G; h++) {
            const double *s = p->s + of_layer(p, l, h);
            for (uint32_t t = 0; t < p->T; t++) {
                p->of_set[t] = s[t] > p->of_set[t] ? s[t] : p->of_set[t];
            }
        }
    }
    return p->of_set;
}

static void keep_layer(ckvc_prefill *p, uint32_t l, uint32_t e, uint32_t pb) {
    const ckvc_table *t = p->table;
    if (p->whole) {
        for (uint32_t i = 0; i < p->T; i++) { p->kept_positions[(size_t)l * p->T + i] = i; }
        p->n_kept[l] = p->T;
        p->n_candidates[l] = 0;
        return;
    }
    if (p->by_weight) { fill_rho(p, l); }
    p->n_candidates[l] = p->T;
    for (uint32_t g = 0; g < p->n_sets; g++) {
        const size_t set = (size_t)l * p->n_sets + g;
        uint32_t *positions = p->kept_positions + set * p->T;
        if (p->paper) {
            layer_utility(p, l);
            const ckvc_rule rule = {ckvc_table_tau(t, l, e, pb, p->block), p->c[set],
                                    t->keep_window};
            p->n_kept[set] =
                ckvc_retain(p->T, p->of_set, rule, positions, &p->n_candidates[l], p->scratch);
            continue;
        }
        p->n_kept[set] = ckvc_retain_head(p->T, ranking_scores(p, l, g), p->recent, p->c[set],
                                          positions, p->scratch);
    }
}

/* Checks that the whole prefill is there; then computes alpha and finishes the scores. */
static int finish_scores(ckvc_prefill *p) {
    if (p->kept) { return REFUSE(p, "its sets are there already"); }
    if (p->layer < p->L) {
        const bool of_cache = p->rows.layer > p->layer;
        const cursor *c = of_cache ? &p->cache : &p->rows;
        return REFUSE(p,
                      "the prefill is not whole: %s of head %u in layer %u is missing from %u on",
                      of_cache ? "the cache" : "attention", c->head, c->layer, c->at);
    }
    if (p->scored) { return 0; }
    if (p->alpha_read && finish_alpha(p, &p->r_struct)) { return -1; }
    for (uint32_t l = 0; p->late && l < p->L; l++) { finish_learned(p, l); }
    p->scored = true;
    return 0;
}

int ckvc_prefill_keep(ckvc_prefill *p, double r_sem) {
    const ckvc_table *t = p->table;
    if (finish_scores(p)) { return -1; }
    if (ckvc_prefill_reads_r_sem(p) && !(r_sem > 0.0 && r_sem < INFINITY)) {
        return REFUSE(p, "r_sem is %g: want the perplexity of the prompt's last %u tokens", r_sem,
                      t->window);
    }
    return ckvc_prefill_keep_in(
        p, ckvc_bin_index(t->edges_entropy, t->n_entropy_bins - 1, p->r_struct),
        ckvc_bin_index(t->edges_ppl, t->n_ppl_bins - 1, r_sem));
}

int ckvc_prefill_keep_in(ckvc_prefill *p, uint32_t entropy_bin, uint32_t ppl_bin) {
    if (finish_scores(p)) { return -1; }
    if (entropy_bin >= p->table->n_entropy_bins || ppl_bin >= p->table->n_ppl_bins) {
        return REFUSE(p, "risk cell %u, %u: the table has %u x %u", entropy_bin, ppl_bin,
                      p->table->n_entropy_bins, p->table->n_ppl_bins);
    }
    for (uint32_t l = 0; l < p->L; l++) { keep_layer(p, l, entropy_bin, ppl_bin); }
    p->kept = true;
    return 0;
}

const uint32_t *ckvc_prefill_set(const ckvc_prefill *p, uint32_t layer, uint32_t kv_head,
                                 uint32_t *n) {
    *n = 0;
    if (!p->kept || layer >= p->L || kv_head >= p->G) { return NULL; }
    const size_t set = (size_t)layer * p->n_sets + (p->n_sets > 1 ? kv_head : 0);
    *n = p->n_kept[set];
    return p->kept_positions + set * p->T;
}

int ckvc_prefill_again(ckvc_prefill *p, double budget, const double *floor) {
    const note to = {p->message, sizeof p->message};
    const ckvc_request before = p->request;
    const uint32_t block = p->block,
                   b = ckvc_nearest_budget(p->table->budgets, p->table->n_budgets, budget, p->T);
    const ckvc_score score = score_asked(&p->request, b);
    ckvc_request asked = before;
    asked.budget = budget;
    asked.floor = floor;
    if (check_budget(budget, to) || check_score(&asked, to)) { return -1; }
    if (!p->whole && memcmp(&score, &p->score, sizeof score) != 0) {
        return REFUSE(p, "a budget of %.10g: its block ranks by another score; begin a prefill",
                      budget);
    }
    p->request = asked;
    take_block(p, b);
    if (!p->whole && fill_capacities(p, to)) { /* a refusal leaves the capacities as they were */
        p->request = before;
        take_block(p, block);
        return -1;
    }
    p->kept = false;
    return 0;
}

const double *ckvc_prefill_scores(ckvc_prefill *p, uint32_t layer, uint32_t kv_head) {
    if (!p->kept || p->whole || layer >= p->L || kv_head >= p->G) { return NULL; }
    if (!p->by_weight) { return p->s + of_layer(p, layer, kv_head); }
    fill_rho(p, layer);
    ckvc_score_paper(p->T, p->alpha_f32, p->rho + (size_t)kv_head * p->T, 1.0, p->of_set);
    return p->of_set;
}

uint32_t ckvc_prefill_candidates(const ckvc_prefill *p, uint32_t layer) {
    return p->kept && layer < p->L ? p->n_candidates[layer] : 0;
}

/* ---- fitted entries ---- */

int ckvc_prefill_fits(const ckvc_prefill *p, uint32_t layer) {
    return p->kept && !p->whole && p->table->bank && layer < p->L &&
           p->table->ridge[(size_t)layer * p->table->n_budgets + p->block] > 0.0;
}

size_t ckvc_prefill_fit_bytes(const ckvc_prefill *p) {
    if (!p->kept || p->whole || !p->table->bank) { return 0; }
    return ckvc_bank_fit_bytes(p->table, p->table->bank_use[p->block].n_queries);
}

/* Fits a KV head's entries; f comes with its keys and values, and how they are attended and held.
 */
static int fit_head(const ckvc_prefill *p, uint32_t layer, uint32_t kv_head, ckvc_fit f,
                    void *scratch, float *keys, float *values) {
    f.n_tokens = p->T;
    f.head_dim = p->D;
    f.kept = ckvc_prefill_set(p, layer, kv_head, &f.n_kept);
    if (!f.kept) { return 0; }
    if (ckvc_prefill_fits(p, layer)) {
        f.ridge = p->table->ridge[(size_t)layer * p->table->n_budgets + p->block];
    }
    return ckvc_bank_fit(p->table, p->block, (size_t)layer * p->G + kv_head, f, scratch, keys,
                         values);
}

int ckvc_prefill_fit(const ckvc_prefill *p, uint32_t layer, uint32_t kv_head,
                     const ckvc_fitting *fitting) {
    const ckvc_fit f = {.keys = float_rows(fitting->keys, p->D),
                        .values = float_rows(fitting->values, p->D),
                        .attending = fitting->attending};
    return fit_head(p, layer, kv_head, f, fitting->scratch, fitting->fitted_keys,
                    fitting->fitted_values);
}

size_t ckvc_prefill_fit_rows_bytes(const ckvc_prefill *p) {
    const size_t of_fit = ckvc_prefill_fit_bytes(p);
    size_t most = 0, of_set, bytes;
    for (size_t set = 0; of_fit && set < (size_t)p->L * p->n_sets; set++) {
        most = p->n_kept[set] > most ? p->n_kept[set] : most;
    }
    if (!ckvc_mul_size(most, 2 * sizeof(float) * p->D, &of_set) ||
        !ckvc_add_size(of_fit, of_set, &bytes)) {
        return SIZE_MAX;
    }
    return bytes;
}

int ckvc_prefill_fit_rows(const ckvc_prefill *p, uint32_t layer, uint32_t kv_head,
                          const ckvc_fitting_rows *fitting) {
    const ckvc_rows keys = fitting->keys, values = fitting->values,
                    as_keys = {NULL, fitting->key_stride, fitting->key_format, keys.pairwise},
                    as_values = {NULL, fitting->value_stride, fitting->value_format, 0};
    uint32_t n;
    const uint32_t *kept = ckvc_prefill_set(p, layer, kv_head, &n);
    if (!kept || cache_rows_wrong(keys, CACHE_KEYS, p->D) ||
        cache_rows_wrong(values, CACHE_VALUES, p->D) ||
        cache_rows_wrong(as_keys, CACHE_KEYS, p->D) ||
        cache_rows_wrong(as_values, CACHE_VALUES, p->D)) {
        return -1;
    }
    const ckvc_fit f = {.keys = keys,
                        .values = values,
                        .attending = fitting->attending,
                        .hold = {.format = as_keys.format},
                        .most_key = cache_rows_most(as_keys, CACHE_KEYS, p->D),
                        .most_value = cache_rows_most(as_values, CACHE_VALUES, p->D)};
    const float *k = NULL, *v = NULL;
    if (ckvc_prefill_fits(p, layer)) {
        /* the fit's own scratch memory is a multiple of 8 bytes */
        float *room = (float *)((char *)fitting->scratch + ckvc_prefill_fit_bytes(p));
        if (fit_head(p, layer, kv_head, f, fitting->scratch, room, room + (size_t)n * p->D)) {
            k = room;
            v = room + (size_t)n * p->D;
        }
    }
    for (size_t i = 0; i < n; i++) {
        char *key = (char *)fitting->kept_keys + i * as_keys.stride,
             *value = (char *)fitting->kept_values + i * as_values.stride;
        if (k) {
            cache_rows_write(as_keys, CACHE_KEYS, p->D, k + i * p->D, key);
            cache_rows_write(as_values, CACHE_VALUES, p->D, v + i * p->D, value);
        } else {
            cache_rows_copy(keys, CACHE_KEYS, p->D, kept[i], as_keys, key);
            cache_rows_copy(values, CACHE_VALUES, p->D, kept[i], as_values, value);
        }
    }
    return k != NULL;
}
