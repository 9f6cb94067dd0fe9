/* The table in memory: allocation within the format's limits, indices, risk bins, and the
 * invariants that every table holds. */
#include "lib/policy/policy_parts.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/sizes.h"

const char *ckvc_operator_name(ckvc_operator op) {
    static const char *const names[CKVC_OPERATOR_COUNT] = {"paper", "no-utility", "no-threshold",
                                                           "mean-pool"};
    return names[op];
}

static bool extent_ok(uint32_t n) { return n >= 1 && n <= CKVC_TABLE_MAX_EXTENT; }

/* Allocates n1 * n2 * n3 * n4 elements of `size` bytes, zeroed. Returns NULL when the product
 * overflows or memory is out. */
static void *array4(size_t n1, size_t n2, size_t n3, size_t n4, size_t size) {
    size_t n;
    if (!ckvc_mul_size(n1, n2, &n) || !ckvc_mul_size(n, n3, &n) || !ckvc_mul_size(n, n4, &n)) {
        return NULL;
    }
    return calloc(n ? n : 1, size);
}

ckvc_table *ckvc_table_create(uint32_t n_layers, uint32_t n_heads, uint32_t n_entropy_bins,
                              uint32_t n_ppl_bins, uint32_t n_budgets, uint32_t n_head_actions,
                              uint32_t n_gate_actions) {
    if (!extent_ok(n_layers) || !extent_ok(n_heads) || !extent_ok(n_entropy_bins) ||
        !extent_ok(n_ppl_bins) || !extent_ok(n_budgets) || n_head_actions < 1 ||
        n_head_actions > CKVC_TABLE_MAX_ACTIONS || n_gate_actions < 1 ||
        n_gate_actions > CKVC_TABLE_MAX_ACTIONS) {
        return NULL;
    }
    ckvc_table *t = calloc(1, sizeof *t);
    if (!t) { return NULL; }
    t->n_layers = n_layers;
    t->n_heads = t->n_query_heads = n_heads;
    t->n_entropy_bins = n_entropy_bins;
    t->n_ppl_bins = n_ppl_bins;
    t->n_budgets = n_budgets;
    t->n_head_actions = n_head_actions;
    t->n_gate_actions = n_gate_actions;
    t->budgets = array4(n_budgets, 1, 1, 1, sizeof(double));
    t->head_grid = array4(n_head_actions, 1, 1, 1, sizeof(double));
    t->gate_grid = array4(n_gate_actions, 1, 1, 1, sizeof(double));
    t->edges_entropy = array4(n_entropy_bins - 1, 1, 1, 1, sizeof(double));
    t->edges_ppl = array4(n_ppl_bins - 1, 1, 1, 1, sizeof(double));
    t->weight = array4(n_layers, n_heads, n_budgets, 1, sizeof(float));
    t->tau = array4(n_layers, n_entropy_bins, n_ppl_bins, n_budgets, sizeof(float));
    if (!t->budgets || !t->head_grid || !t->gate_grid || !t->edges_entropy || !t->edges_ppl ||
        !t->weight || !t->tau) {
        ckvc_table_free(t);
        return NULL;
    }
    return t;
}

int ckvc_table_add_shares(ckvc_table *t, int with_layers) {
    double *share = array4(t->n_layers, t->n_heads, t->n_budgets, 1, sizeof *share),
           *layer_share =
               with_layers ? array4(t->n_layers, t->n_budgets, 1, 1, sizeof *share) : NULL;
    ckvc_c_min *c_min = array4(t->n_budgets, 1, 1, 1, sizeof *c_min);
    ckvc_score *score = array4(t->n_budgets, 1, 1, 1, sizeof *score);
    assert(!t->share);
    if (!share || !c_min || !score || (with_layers && !layer_share)) {
        free(share);
        free(layer_share);
        free(c_min);
        free(score);
        return -1;
    }
    t->share = share;
    t->layer_share = layer_share;
    t->c_min = c_min;
    t->score = score;
    return 0;
}

int ckvc_table_add_lengths(ckvc_table *t) {
    double *share = array4(t->n_layers, t->n_budgets, 1, 1, sizeof *share);
    assert(t->share && !t->length_share);
    t->length_share = share;
    return share ? 0 : -1;
}

const double *ckvc_table_shares(const ckvc_table *t, ckvc_mode mode) {
    return mode == CKVC_MODE_HEADS     ? t->share
           : mode == CKVC_MODE_LAYERS  ? t->layer_share
           : mode == CKVC_MODE_LENGTHS ? t->length_share
                                       : NULL;
}

int ckvc_table_add_learned(ckvc_table *t, uint32_t n_features) {
    float *theta = array4(t->n_layers, t->n_heads, n_features, 1, sizeof *theta);
    double *mass = array4(t->n_layers, t->n_heads, 1, 1, sizeof *mass);
    assert(t->share);
    if (!theta || !mass) {
        free(theta);
        free(mass);
        return -1;
    }
    free(t->theta);
    free(t->mass);
    t->theta = theta;
    t->mass = mass;
    t->n_features = n_features;
    return 0;
}

int ckvc_table_add_bank(ckvc_table *t, uint32_t n_bank, uint32_t head_dim) {
    float *bank = array4(t->n_layers, t->n_query_heads, n_bank, head_dim, sizeof *bank);
    double *ridge = array4(t->n_layers, t->n_budgets, 1, 1, sizeof *ridge);
    ckvc_bank_use *use = array4(t->n_budgets, 1, 1, 1, sizeof *use);
    assert(t->share);
    if (!bank || !ridge || !use) {
        free(bank);
        free(ridge);
        free(use);
        return -1;
    }
    free(t->bank);
    free(t->ridge);
    free(t->bank_use);
    t->bank = bank;
    t->ridge = ridge;
    t->bank_use = use;
    t->n_bank = n_bank;
    t->bank_dim = head_dim;
    return 0;
}

int ckvc_table_add_bytes(ckvc_table *t) {
    double *byte_share = array4(t->n_budgets, 1, 1, 1, sizeof *byte_share);
    ckvc_held *held = array4(t->n_budgets, 1, 1, 1, sizeof *held);
    assert(t->share && !t->byte_share);
    if (!byte_share || !held) {
        free(byte_share);
        free(held);
        return -1;
    }
    t->byte_share = byte_share;
    t->held = held;
    return 0;
}

size_t ckvc_bank_index(const ckvc_table *t, uint32_t l, uint32_t h, uint32_t i) {
    return (((size_t)l * t->n_query_heads + h) * t->n_bank + i) * t->bank_dim;
}

double ckvc_table_ridge(const ckvc_table *t, uint32_t b) {
    double most = 0.0;
    for (size_t l = 0; t->bank && l < t->n_layers; l++) {
        most = fmax(most, t->ridge[l * t->n_budgets + b]);
    }
    return most;
}

static int copy_bank(ckvc_table *t, const ckvc_table *from) {
    const size_t nB = from->n_budgets;
    if (ckvc_table_add_bank(t, from->n_bank, from->bank_dim)) { return -1; }
    memcpy(t->bank, from->bank, ckvc_bank_index(from, from->n_layers, 0, 0) * sizeof *t->bank);
    memcpy(t->ridge, from->ridge, from->n_layers * nB * sizeof *t->ridge);
    memcpy(t->bank_use, from->bank_use, nB * sizeof *t->bank_use);
    return 0;
}

int ckvc_table_copy_shares(ckvc_table *t, const ckvc_table *from) {
    const size_t heads = (size_t)from->n_layers * from->n_heads, nB = from->n_budgets;
    if (ckvc_table_add_shares(t, from->layer_share != NULL)) { return -1; }
    if ((from->length_share && ckvc_table_add_lengths(t)) ||
        (from->theta && ckvc_table_add_learned(t, from->n_features)) ||
        (from->bank && copy_bank(t, from)) || (from->byte_share && ckvc_table_add_bytes(t))) {
        return -1;
    }
    memcpy(t->share, from->share, heads * nB * sizeof *t->share);
    if (t->layer_share) {
        memcpy(t->layer_share, from->layer_share, from->n_layers * nB * sizeof *t->layer_share);
    }
    if (from->length_share) {
        memcpy(t->length_share, from->length_share, from->n_layers * nB * sizeof *t->length_share);
    }
    memcpy(t->c_min, from->c_min, nB * sizeof *t->c_min);
    memcpy(t->score, from->score, nB * sizeof *t->score);
    if (from->theta) {
        memcpy(t->theta, from->theta, heads * t->n_features * sizeof *t->theta);
        memcpy(t->mass, from->mass, heads * sizeof *t->mass);
    }
    if (from->byte_share) {
        memcpy(t->byte_share, from->byte_share, nB * sizeof *t->byte_share);
        memcpy(t->held, from->held, nB * sizeof *t->held);
    }
    return 0;
}

ckvc_table *ckvc_table_clone(const ckvc_table *t) {
    ckvc_table *c = ckvc_table_create(t->n_layers, t->n_heads, t->n_entropy_bins, t->n_ppl_bins,
                                      t->n_budgets, t->n_head_actions, t->n_gate_actions);
    if (!c) { return NULL; }
    c->n_query_heads = t->n_query_heads;
    c->window = t->window;
    c->head_axis = t->head_axis;
    c->visible = t->visible;
    c->keep_window = t->keep_window;
    c->op = t->op;
    memcpy(c->budgets, t->budgets, t->n_budgets * sizeof *c->budgets);
    memcpy(c->head_grid, t->head_grid, t->n_head_actions * sizeof *c->head_grid);
    memcpy(c->gate_grid, t->gate_grid, t->n_gate_actions * sizeof *c->gate_grid);
    memcpy(c->edges_entropy, t->edges_entropy, (t->n_entropy_bins - 1) * sizeof *c->edges_entropy);
    memcpy(c->edges_ppl, t->edges_ppl, (t->n_ppl_bins - 1) * sizeof *c->edges_ppl);
    memcpy(c->weight, t->weight, ckvc_weight_index(t, t->n_layers, 0, 0) * sizeof *c->weight);
    memcpy(c->tau, t->tau, ckvc_tau_index(t, t->n_layers, 0, 0, 0) * sizeof *c->tau);
    if (t->share && ckvc_table_copy_shares(c, t)) {
        ckvc_table_free(c);
        return NULL;
    }
    return c;
}

void ckvc_table_free(ckvc_table *table) {
    if (!table) { return; }
    free(table->budgets);
    free(table->head_grid);
    free(table->gate_grid);
    free(table->edges_entropy);
    free(table->edges_ppl);
    free(table->weight);
    free(table->tau);
    free(table->share);
    free(table->layer_share);
    free(table->length_share);
    free(table->c_min);
    free(table->score);
    free(table->theta);
    free(table->mass);
    free(table->bank);
    free(table->ridge);
    free(table->bank_use);
    free(table->byte_share);
    free(table->held);
    free(table);
}

size_t ckvc_weight_index(const ckvc_table *t, uint32_t l, uint32_t g, uint32_t b) {
    return ((size_t)l * t->n_heads + g) * t->n_budgets + b;
}

size_t ckvc_tau_index(const ckvc_table *t, uint32_t l, uint32_t e, uint32_t p, uint32_t b) {
    return (((size_t)l * t->n_entropy_bins + e) * t->n_ppl_bins + p) * t->n_budgets + b;
}

double ckvc_table_weight(const ckvc_table *t, uint32_t l, uint32_t g, uint32_t b) {
    int a =
        ckvc_grid_index(t->head_grid, t->n_head_actions, t->weight[ckvc_weight_index(t, l, g, b)]);
    assert(a >= 0); /* holds, as every table is checked when it is read */
    return t->head_grid[a];
}

double ckvc_table_tau(const ckvc_table *t, uint32_t l, uint32_t e, uint32_t p, uint32_t b) {
    if (t->op == CKVC_OPERATOR_NO_THRESHOLD) { return -INFINITY; }
    int a = ckvc_grid_index(t->gate_grid, t->n_gate_actions, t->tau[ckvc_tau_index(t, l, e, p, b)]);
    assert(a >= 0);
    return t->gate_grid[a];
}

uint32_t ckvc_bin_index(const double *edges, uint32_t n_edges, double value) {
    uint32_t lo = 0, hi = n_edges; /* edges before lo are <= value, edges from hi on are not */
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (edges[mid] <= value) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

uint32_t ckvc_budget_tokens(double budget, uint32_t n_tokens) {
    double tokens = budget >= 1.0 ? budget : floor(budget * (double)n_tokens);
    if (!(tokens > 0.0)) { return 0; }
    return tokens >= (double)UINT32_MAX ? UINT32_MAX : (uint32_t)tokens;
}

/* It compares ratios, not logarithms: max(b/B, B/b) grows with |log(b/B)|, and equal ratios give
 * equal doubles on every machine. */
uint32_t ckvc_nearest_budget(const double *budgets, uint32_t n, double budget, uint32_t n_tokens) {
    const double T = n_tokens ? (double)n_tokens : 1.0,
                 wanted = budget >= 1.0 ? budget : budget * T;
    uint32_t best = 0;
    double best_ratio = INFINITY, best_tokens = INFINITY;
    for (uint32_t b = 0; b < n; b++) {
        const double tokens = budgets[b] >= 1.0 ? budgets[b] : budgets[b] * T;
        const double ratio = tokens > wanted ? tokens / wanted : wanted / tokens;
        if (budgets[b] == budget) { return b; }
        if (ratio < best_ratio || (ratio == best_ratio && tokens < best_tokens)) {
            best = b;
            best_ratio = ratio;
            best_tokens = tokens;
        }
    }
    return best;
}

/* A value that was rounded from the grid equals one of the grid's values as float32, and those
 * ascend: so a binary search finds it. */
int ckvc_grid_index(const double *grid, uint32_t n, float value) {
    uint32_t lo = 0, hi = n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if ((float)grid[mid] < value) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < n && (float)grid[lo] == value ? (int)lo : -1;
}

/* ---- invariants ---- */

#define FAIL(...)                                                                                  \
    (message && message_size ? (void)snprintf(message, message_size, __VA_ARGS__) : (void)0, -1)
#define FAIL_IF(condition, ...)                                                                    \
    do {                                                                                           \
        if (condition) { return FAIL(__VA_ARGS__); }                                               \
    } while (0)

static int check_grid(const char *section, const double *grid, uint32_t n, char *message,
                      size_t message_size) {
    for (uint32_t i = 0; i < n; i++) {
        FAIL_IF(!isfinite((float)grid[i]) || grid[i] < 0.0,
                "%s[%u] is %.17g: action values are finite and not below 0", section, i, grid[i]);
        FAIL_IF(i && !((float)grid[i - 1] < (float)grid[i]),
                "%s[%u] is %.17g after %.17g: action values ascend, also as float32", section, i,
                grid[i], grid[i - 1]);
    }
    return 0;
}

static int check_edges(const char *section, const double *edges, uint32_t n, char *message,
                       size_t message_size) {
    for (uint32_t i = 0; i < n; i++) {
        FAIL_IF(!isfinite(edges[i]), "%s[%u] is %g: bin edges are finite", section, i, edges[i]);
        FAIL_IF(i && edges[i] < edges[i - 1],
                "%s[%u] is %.17g after %.17g: bin edges do not descend", section, i, edges[i],
                edges[i - 1]);
    }
    return 0;
}

static int check_on_grid(const char *section, const float *values, size_t n, const double *grid,
                         uint32_t n_grid, char *message, size_t message_size) {
    for (size_t i = 0; i < n; i++) {
        FAIL_IF(ckvc_grid_index(grid, n_grid, values[i]) < 0,
                "%s[%zu] is %.9g, which is not one of the %u values of its grid (%.9g ... %.9g)",
                section, i, (double)values[i], n_grid, grid[0], grid[n_grid - 1]);
    }
    return 0;
}

/* Checks shares [n][nB]: those of a block are finite, not negative, and not all 0. */
static int check_shares(const char *section, const double *share, size_t n, uint32_t nB,
                        char *message, size_t message_size) {
    for (uint32_t b = 0; b < nB; b++) {
        bool positive = false;
        for (size_t i = b; i < n * nB; i += nB) {
            FAIL_IF(!isfinite(share[i]) || share[i] < 0.0,
                    "%s[%zu] is %g: shares are finite and not below 0", section, i, share[i]);
            positive = positive || share[i] > 0.0;
        }
        FAIL_IF(!positive, "%s: no share of budget %u is above 0", section, b);
    }
    return 0;
}

static int check_c_min(const ckvc_table *t, uint32_t b, char *message, size_t message_size) {
    const ckvc_c_min *m = &t->c_min[b];
    FAIL_IF(!(m->floor >= 0.0 && m->floor <= 1.0),
            "CMIN[%u]: a floor of %g, want a share of the budget between 0 and 1", b, m->floor);
    FAIL_IF(!(m->recent >= 0.0 && m->recent < (double)UINT32_MAX) || m->recent != floor(m->recent),
            "CMIN[%u]: %g recent positions, want a whole number from 0 up", b, m->recent);
    FAIL_IF(t->budgets[b] >= 1.0 && m->recent + 1.0 > t->budgets[b],
            "CMIN[%u]: c_min is %.0f, above the %.0f tokens of its budget", b, m->recent + 1.0,
            t->budgets[b]);
    return 0;
}

/* Checks what block b says of features: the same version in all blocks, and 0 where there is no
 * theta. */
static int check_features(const ckvc_table *t, uint32_t b, char *message, size_t message_size) {
    const ckvc_score *s = &t->score[b];
    const uint32_t version = s->features;
    FAIL_IF(version != t->score[0].features,
            "SCORE[%u]: features of version %u, but of version %u in SCORE[0]", b, version,
            t->score[0].features);
    FAIL_IF((version || t->theta || ckvc_score_learns(s->kind)) && !ckvc_features_count(version, 2),
            "SCORE[%u]: features of version %u are none that this reader knows", b, version);
    FAIL_IF(version && !t->theta, "SCORE[%u]: features of version %u, but section THETA is missing",
            b, version);
    FAIL_IF(ckvc_score_learns(s->kind) &&
                (s->window != ckvc_features_rows(version) || s->pool || s->norm),
            "SCORE[%u]: window %u, pool %u, norm %u: features of version %u need %u rows, no pool "
            "and no norm",
            b, s->window, s->pool, s->norm, version, ckvc_features_rows(version));
    return 0;
}

static int check_score(const ckvc_table *t, uint32_t b, char *message, size_t message_size) {
    const ckvc_score *s = &t->score[b];
    FAIL_IF(s->kind >= CKVC_SCORE_COUNT, "SCORE[%u]: score %u is none that this reader knows", b,
            s->kind);
    FAIL_IF(s->mode >= CKVC_MODE_COUNT, "SCORE[%u]: mode %u is none that this reader knows", b,
            s->mode);
    FAIL_IF(s->mode != CKVC_MODE_SHARED && !ckvc_table_shares(t, (ckvc_mode)s->mode),
            "SCORE[%u]: mode %s, but section %s is missing", b, ckvc_mode_name((ckvc_mode)s->mode),
            s->mode == CKVC_MODE_LAYERS ? "SHARELAY" : "SHARELEN");
    FAIL_IF(s->kind == CKVC_SCORE_WINDOW && (s->window < 1 || s->pool % 2 == 0 || s->norm > 1),
            "SCORE[%u]: window %u, pool %u, norm %u: want at least one row, an odd pool, 0 or 1", b,
            s->window, s->pool, s->norm);
    FAIL_IF(s->kind == CKVC_SCORE_PAPER && (s->window || s->pool || s->norm),
            "SCORE[%u]: window %u, pool %u, norm %u: the paper's score has none of them", b,
            s->window, s->pool, s->norm);
    FAIL_IF(s->kind == CKVC_SCORE_BANK && !t->bank,
            "SCORE[%u]: ranks by the bank's attention, but section BANK is missing", b);
    return check_features(t, b, message, message_size);
}

/* Checks that theta's length is that of its features for a key of some even length, and that all
 * values are finite. */
static int check_learned(const ckvc_table *t, char *message, size_t message_size) {
    const size_t heads = (size_t)t->n_layers * t->n_heads;
    if (!t->theta) { return 0; }
    const uint32_t version = t->score[0].features, fixed = ckvc_features_count(version, 0);
    FAIL_IF(t->n_features < fixed + 2 || (t->n_features - fixed) % 2,
            "THETA: %u features, version %u has %u and those of a key of even length",
            t->n_features, version, fixed);
    for (size_t i = 0; i < heads * t->n_features; i++) {
        FAIL_IF(!isfinite(t->theta[i]), "THETA[%zu] is %g, want a finite value", i,
                (double)t->theta[i]);
    }
    for (size_t i = 0; i < heads; i++) {
        FAIL_IF(!(t->mass[i] >= 0.0 && isfinite(t->mass[i])),
                "MASS[%zu] is %g, want a finite value from 0 up", i, t->mass[i]);
    }
    return 0;
}

static int check_bank(const ckvc_table *t, char *message, size_t message_size) {
    if (!t->bank) { return 0; }
    FAIL_IF(t->bank_dim < 2 || t->bank_dim % 2, "BANK: queries of %u numbers, want an even number",
            t->bank_dim);
    for (size_t i = 0; i < ckvc_bank_index(t, t->n_layers, 0, 0); i++) {
        FAIL_IF(!isfinite(t->bank[i]), "BANK[%zu] is %g, want a finite value", i,
                (double)t->bank[i]);
    }
    for (size_t i = 0; i < (size_t)t->n_layers * t->n_budgets; i++) {
        FAIL_IF(!(t->ridge[i] >= 0.0 && isfinite(t->ridge[i])),
                "RIDGE[%zu] is %g, want a finite value from 0 up", i, t->ridge[i]);
    }
    for (uint32_t b = 0; b < t->n_budgets; b++) {
        const ckvc_bank_use *use = &t->bank_use[b];
        FAIL_IF(use->n_queries < 1 || use->n_queries > t->n_bank || use->span < 1 ||
                    use->span > CKVC_TABLE_MAX_EXTENT,
                "BANKUSE[%u]: %u queries over %u positions, want 1 ... %u over 1 ... %u", b,
                use->n_queries, use->span, t->n_bank, CKVC_TABLE_MAX_EXTENT);
        /* so that blocks which rank alike can share a prefill */
        FAIL_IF(
            ckvc_table_ranks_by_bank(t) && memcmp(use, t->bank_use, sizeof *use) != 0,
            "BANKUSE[%u]: %u queries over %u positions, but BANKUSE[0] has %u over %u: want the "
            "same in a table that ranks by its bank",
            b, use->n_queries, use->span, t->bank_use->n_queries, t->bank_use->span);
    }
    return 0;
}

static int check_bytes(const ckvc_table *t, char *message, size_t message_size) {
    for (uint32_t b = 0; t->byte_share && b < t->n_budgets; b++) {
        const double share = t->byte_share[b];
        FAIL_IF(!(share >= 0.0 && share < 1.0),
                "BYTES[%u] is %g, want a share of the whole cache below 1, or 0", b, share);
        for (uint32_t k = 0; share > 0.0 && k < b; k++) {
            FAIL_IF(t->byte_share[k] == share, "BYTES[%u] is %g, which BYTES[%u] is already", b,
                    share, k);
        }
        FAIL_IF(t->held[b].keys >= CKVC_TABLE_KEY_FORMATS ||
                    t->held[b].values >= CKVC_TABLE_VALUE_FORMATS,
                "HELD[%u]: format %u of keys or %u of values is none that this reader knows", b,
                t->held[b].keys, t->held[b].values);
    }
    return 0;
}

static int check_budgets_of_heads(const ckvc_table *t, char *message, size_t message_size) {
    if (!t->share) { return 0; }
    if (check_shares("SHARE", t->share, (size_t)t->n_layers * t->n_heads, t->n_budgets, message,
                     message_size) ||
        (t->layer_share && check_shares("SHARELAY", t->layer_share, t->n_layers, t->n_budgets,
                                        message, message_size)) ||
        (t->length_share && check_shares("SHARELEN", t->length_share, t->n_layers, t->n_budgets,
                                         message, message_size))) {
        return -1;
    }
    for (uint32_t b = 0; b < t->n_budgets; b++) {
        if (check_c_min(t, b, message, message_size) || check_score(t, b, message, message_size)) {
            return -1;
        }
    }
    return check_learned(t, message, message_size) || check_bank(t, message, message_size)
               ? -1
               : check_bytes(t, message, message_size);
}

int ckvc_table_check(const ckvc_table *t, char *message, size_t message_size) {
    if (t->window < 1) { return FAIL("SHAPE[6] is 0: the window has at least one row"); }
    FAIL_IF(t->head_axis > 1, "SHAPE[7] is %u: the head axis is 0 (KV heads) or 1 (query heads)",
            t->head_axis);
    FAIL_IF(t->visible > 1, "SHAPE[8] is %u: alpha is 0 (the paper's) or 1 (visible)", t->visible);
    FAIL_IF(t->n_query_heads < 1 || t->n_query_heads > CKVC_TABLE_MAX_EXTENT ||
                t->n_query_heads % t->n_heads ||
                (t->head_axis == 1 && t->n_query_heads != t->n_heads),
            "SHAPE[1] is %u query heads for SHAPE[2] = %u heads of axis %u: want a "
            "multiple, and the same number on axis 1",
            t->n_query_heads, t->n_heads, t->head_axis);
    for (uint32_t b = 0; b < t->n_budgets; b++) {
        double x = t->budgets[b];
        FAIL_IF(!isfinite(x) || x <= 0.0 || (x >= 1.0 && (x != floor(x) || x > (double)UINT32_MAX)),
                "BUDGET[%u] is %.17g: want whole tokens from 1 up, or a share of T between 0 and 1",
                b, x);
    }
    FAIL_IF((unsigned)t->op >= CKVC_OPERATOR_COUNT,
            "SHAPE: operator %u is none that this reader knows", (unsigned)t->op);
    size_t n_weight = ckvc_weight_index(t, t->n_layers, 0, 0),
           n_tau = ckvc_tau_index(t, t->n_layers, 0, 0, 0);
    if (check_grid("GRIDHEAD", t->head_grid, t->n_head_actions, message, message_size) ||
        check_grid("GRIDGATE", t->gate_grid, t->n_gate_actions, message, message_size) ||
        check_edges("EDGEENT", t->edges_entropy, t->n_entropy_bins - 1, message, message_size) ||
        check_edges("EDGEPPL", t->edges_ppl, t->n_ppl_bins - 1, message, message_size) ||
        check_on_grid("WEIGHT", t->weight, n_weight, t->head_grid, t->n_head_actions, message,
                      message_size) ||
        check_on_grid("TAU", t->tau, n_tau, t->gate_grid, t->n_gate_actions, message,
                      message_size) ||
        check_budgets_of_heads(t, message, message_size)) {
        return -1;
    }
    return 0;
}
